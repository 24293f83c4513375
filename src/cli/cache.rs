//! What the program keeps between two starts, and where.

use std::path::PathBuf;

use clap::Args;
use everygpu::self_test::keep_verdicts_in;

/// The environment variable that names the folder.
const FOLDER: &str = "EVERYGPU_CACHE_DIR";

/// What of earlier starts a command may use.
#[derive(Debug, Args)]
pub struct Cache {
    /// Test every adapter before it is used, also where the same program found it right in the last 30 days
    #[arg(long, global = true)]
    self_test: bool,
    /// Read and write nothing in the cache folder (EVERYGPU_CACHE_DIR, or `everygpu` in the user's folder for caches)
    #[arg(long, global = true)]
    no_cache: bool,
}

impl Cache {
    /// Takes effect for the whole process.
    pub fn open(&self) {
        if let Some(folder) = folder().filter(|_| !self.no_cache) {
            keep_verdicts_in(folder.join("self-test"), self.self_test);
        }
    }
}

/// The cache folder; none where the user has no folder for caches, or has named an empty one.
fn folder() -> Option<PathBuf> {
    match std::env::var_os(FOLDER) {
        Some(folder) => Some(PathBuf::from(folder)).filter(|folder| !folder.as_os_str().is_empty()),
        None => Some(dirs::cache_dir()?.join("everygpu")),
    }
}
