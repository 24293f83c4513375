//! `everygpu adapters`

use std::io::Write;

use clap::Args;
use everygpu::gpu::{self, Adapter};
use serde_json::{Value, json};

/// List the adapters that can train: index, name, backend, driver, limits, features
#[derive(Debug, Args)]
pub struct Adapters {
    /// Print a JSON array
    #[arg(long)]
    json: bool,
}

impl Adapters {
    pub fn run(self) -> anyhow::Result<()> {
        let adapters = gpu::Adapters::discover()?;
        let mut out = std::io::stdout().lock();
        if self.json {
            let list: Vec<Value> = adapters.iter().map(described).collect();
            writeln!(out, "{}", serde_json::to_string_pretty(&list)?)?;
            return Ok(());
        }
        for adapter in adapters.iter() {
            let target = adapter.target();
            writeln!(out, "{}: {}", adapter.index, adapter.name())?;
            writeln!(out, "   {} through {}, driver {}", adapter.kind().name(), adapter.backend(), adapter.driver())?;
            writeln!(
                out,
                "   binding up to {}, buffer up to {}, {} invocations, {} workgroup memory, {} storage buffers",
                size(target.max_binding),
                size(target.max_buffer),
                target.max_invocations,
                size(u64::from(target.max_workgroup_memory)),
                target.max_storage_buffers,
            )?;
            let features = adapter.features();
            let words: Vec<_> =
                features.iter().map(|(name, on)| format!("{}{name}", if *on { "" } else { "no " })).collect();
            writeln!(out, "   {}", words.join(", "))?;
        }
        Ok(())
    }
}

fn described(adapter: &Adapter) -> Value {
    let target = adapter.target();
    let features: serde_json::Map<_, _> =
        adapter.features().into_iter().map(|(name, on)| (name.to_owned(), on.into())).collect();
    let (vendor, device) = adapter.pci_id();
    json!({
        "index": adapter.index,
        "name": adapter.name(),
        "backend": adapter.backend(),
        "type": adapter.kind().name(),
        "driver": adapter.driver(),
        "vendor": vendor,
        "device": device,
        "limits": {
            "max_storage_buffer_binding_size": target.max_binding,
            "max_buffer_size": target.max_buffer,
            "max_compute_invocations_per_workgroup": target.max_invocations,
            "max_compute_workgroup_storage_size": target.max_workgroup_memory,
            "max_storage_buffers_per_shader_stage": target.max_storage_buffers,
        },
        "features": features,
    })
}

/// Bytes in the largest binary unit that keeps them at 1 or more.
fn size(bytes: u64) -> String {
    let units = [("GiB", 30), ("MiB", 20), ("KiB", 10)];
    match units.iter().find(|(_, shift)| bytes >> shift > 0) {
        Some((unit, shift)) if bytes.trailing_zeros() >= *shift => format!("{} {unit}", bytes >> shift),
        Some((unit, shift)) => format!("{:.1} {unit}", bytes as f64 / (1_u64 << shift) as f64),
        None => format!("{bytes} B"),
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn sizes_are_readable() {
        assert_eq!(
            [0, 1023, 16 << 10, 128 << 20, (4 << 30) - 256].map(super::size),
            ["0 B", "1023 B", "16 KiB", "128 MiB", "4.0 GiB"].map(str::to_owned)
        );
    }
}
