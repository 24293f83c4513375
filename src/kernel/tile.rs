//! How a matrix product is cut into workgroups, and which kernel computes it.

use super::shader::shader;
use super::{Kernel, Target, Tiling};

/// A workgroup's tile of the result.
pub(crate) struct Tile {
    /// Rows of the tile.
    rows: usize,
    /// Columns of the tile.
    columns: usize,
    /// Invocations in a workgroup.
    invocations: u32,
    /// Workgroups that keep a device busy: with fewer, K is cut.
    busy: usize,
    /// Fewest terms of K that are worth a workgroup.
    terms: usize,
    tiling: Tiling,
}

impl Tile {
    /// The tile for an M × N result.
    pub fn new(target: &Target, m: usize, n: usize) -> Self {
        match target.tiling {
            // 8 lanes, each with 4 or 8 rows by 2 or 4 columns.
            Tiling::Registers => {
                let (rows, columns) = (if m > 4 { 8 } else { 4 }, if n > 16 { 32 } else { 16 });
                Self { rows, columns, invocations: 8, busy: 32, terms: 256, tiling: target.tiling }
            }
            // 4 × 4 elements an invocation.
            Tiling::Workgroup => {
                let (rows, columns) = match (m, n) {
                    (0..=16, _) => (16, 64),
                    (_, 0..=16) => (64, 16),
                    _ => (64, 64),
                };
                let invocations = (rows * columns / 16) as u32;
                Self { rows, columns, invocations, busy: 256, terms: 128, tiling: target.tiling }
            }
        }
    }

    /// Tiles that an M × N result needs.
    pub fn count(&self, m: usize, n: usize) -> usize {
        m.div_ceil(self.rows) * n.div_ceil(self.columns)
    }

    /// Into how many parts to cut `k` terms where there are `tiles` tiles.
    pub fn parts(&self, tiles: usize, k: usize) -> usize {
        self.busy.div_ceil(tiles).min(k / self.terms).max(1)
    }

    /// The kernel, knowing its tile.
    pub fn kernel(&self) -> Kernel {
        match self.tiling {
            Tiling::Registers => Kernel::linear(shader!("matmul_registers"), self.invocations)
                .define_if(self.rows == 8, "ROWS8")
                .define_if(self.columns == 32, "COLUMNS4"),
            Tiling::Workgroup => Kernel::linear(shader!("matmul"), self.invocations),
        }
        .constant("TILE_M", self.rows)
        .constant("TILE_N", self.columns)
    }
}
