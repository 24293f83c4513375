//! `everygpu shaders`

use std::collections::HashSet;
use std::path::PathBuf;

use anyhow::Context;
use clap::Args;
use everygpu::checkpoint::write_atomic;
use everygpu::kernel::{Target, Tiling};
use everygpu::shaders::all_kernels;

use super::{path, say};

/// Write every kernel's WGSL to a folder, for tools that check shaders
#[derive(Debug, Args)]
pub struct Shaders {
    /// The folder; made where there is none
    #[arg(long, value_name = "DIR", value_parser = path())]
    dump: PathBuf,
}

impl Shaders {
    pub fn run(self) -> anyhow::Result<()> {
        let file = self.dump.ancestors().find(|path| path.is_file());
        file.map_or(Ok(()), |file| anyhow::bail!("{}: expected a folder, found a file", file.display()))?;
        std::fs::create_dir_all(&self.dump).with_context(|| self.dump.display().to_string())?;
        let mut written = HashSet::new();
        for tiling in [Tiling::Workgroup, Tiling::Registers] {
            for kernel in all_kernels(&Target { tiling, ..Target::default() })? {
                let source = kernel.source();
                if !written.contains(&source) {
                    let file = self.dump.join(format!("{}-{:03}.wgsl", kernel.shader.name, written.len()));
                    write_atomic(&file, source.as_bytes())?;
                    written.insert(source);
                }
            }
        }
        say(format!("{} shaders in {}", written.len(), self.dump.display()));
        Ok(())
    }
}
