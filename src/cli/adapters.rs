//! `everygpu adapters`

use std::io::Write;

use clap::Args;
use everygpu::gpu::{self, Adapter};
use everygpu::self_test::{KernelCheck, SelfTest, self_test};
use serde_json::{Value, json};

use super::terminal;

/// List the adapters: index, name, backend, driver, limits, features, and whether they compute correctly
#[derive(Debug, Args)]
pub struct Adapters {
    /// Print a JSON array
    #[arg(long)]
    json: bool,
}

impl Adapters {
    pub fn run(self) -> anyhow::Result<()> {
        let adapters = gpu::Adapters::discover()?;
        if self.json {
            let list: Vec<Value> = adapters.iter().map(|adapter| described(adapter, &verdict(adapter))).collect();
            writeln!(terminal::data(), "{}", serde_json::to_string_pretty(&list)?)?;
            return Ok(());
        }
        let mut out = terminal::out();
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
            writeln!(out, "   self-test: {}", worded(&verdict(adapter)))?;
        }
        Ok(())
    }
}

/// What the self-test says, or why there is no verdict. On a thread of its own: a driver may make wgpu panic.
fn verdict(adapter: &Adapter) -> Result<SelfTest, String> {
    std::thread::scope(|scope| match std::thread::Builder::new().spawn_scoped(scope, || self_test(adapter)) {
        Ok(thread) => match thread.join() {
            Ok(outcome) => outcome.map_err(|error| error.to_string()),
            Err(_) => Err("the driver panicked".to_owned()),
        },
        Err(error) => Err(format!("no thread could be started for it: {error}")),
    })
}

fn worded(verdict: &Result<SelfTest, String>) -> String {
    match verdict {
        Ok(test) if test.passed() => {
            format!("passed, {} kernels in {:.1} s", test.kernels.len(), test.seconds)
        }
        Ok(test) => format!("FAILED, this adapter will not be used: {test}"),
        Err(error) => format!("could not run, this adapter will not be used: {error}"),
    }
}

fn described(adapter: &Adapter, verdict: &Result<SelfTest, String>) -> Value {
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
        "self_test": {
            "passed": verdict.as_ref().is_ok_and(SelfTest::passed),
            "verdict": worded(verdict),
            "kernels": verdict.as_ref().map_or(0, |test| test.kernels.len()),
            "failed": verdict.iter().flat_map(|t| &t.kernels).filter(|k| !k.passed()).map(|k: &KernelCheck| &k.kernel)
                .collect::<Vec<_>>(),
        },
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
