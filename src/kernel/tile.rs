//! How a matrix product is cut into workgroups, and which kernel computes it.

use super::shader::shader;
use super::{Kernel, Target, Tiling};

/// Products (M, K)·(K, N).
#[derive(Debug, Clone, Copy)]
pub(crate) struct Product {
    /// How many there are.
    pub batch: usize,
    pub m: usize,
    pub k: usize,
    pub n: usize,
    /// Whether K follows the number of rows, and M is fixed; else it is the other way about.
    pub k_varies: bool,
}

/// A workgroup's tile of the result.
#[derive(Debug)]
pub(crate) struct Tile {
    product: Product,
    /// Rows of the tile.
    rows: usize,
    /// Fewest rows of a tile, which alone decide into how many parts K is cut.
    least_rows: usize,
    /// Columns of the tile.
    columns: usize,
    /// Invocations in a workgroup.
    invocations: u32,
    /// Workgroups that keep a device busy: with fewer, K is cut.
    busy: usize,
    /// Fewest terms of K that are worth a workgroup.
    terms: usize,
    /// Terms that are summed on their own before they join the total, for rounding grows with the number of additions
    /// in a row; and those of the blocks at the end of K, 0 where there are none.
    blocks: [usize; 2],
    /// Into how many parts K is cut, and the terms of each but the last.
    cut: (usize, usize),
    family: Family,
}

/// The kernels, for all sizes and both ways in which either operand may be stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Family {
    /// Tiles staged in workgroup memory, 4 × 4 elements an invocation: real GPUs.
    Workgroup,
    /// A lane has 4 or 8 rows by 2 or 4 columns in registers: few rows on software adapters. Sums are cut as in
    /// `Stationary`, so that a row of a forward product has the same bits however many come with it, unless K is cut into
    /// parts.
    Registers,
    /// A block of b stays while rows of a go past: software adapters.
    Stationary,
}

/// With so many rows or fewer, loading a block of b costs more than it saves.
const FEW_ROWS: usize = 8;

/// Most iterations of an invocation, over all its loops together: older lavapipe ends them at 65,535, without a word.
const MOST_ITERATIONS: usize = 48_000;

/// Fewest rows that a block of b is to serve where K is so long that the iterations bound them.
const SERVED: usize = 16;

/// Lanes of a software adapter's workgroup: a vector of the processor.
const LANES: usize = 8;

impl Tile {
    /// The tile for `product`. What it leaves to the compiler does not depend on what varies, beyond there being
    /// [`FEW_ROWS`].
    pub fn new(target: &Target, product: Product) -> Self {
        let Product { m, n, .. } = product;
        let tile = |rows, columns, family| {
            let (invocations, busy, terms) = match family {
                Family::Workgroup => (rows * columns / 16, 256, 128),
                Family::Registers => (LANES, 32, 256),
                Family::Stationary => (LANES, 32, 512),
            };
            let blocks = match family {
                Family::Workgroup => [128, 0],
                Family::Registers | Family::Stationary => product.blocks(target.unrolled),
            };
            Self {
                product,
                rows,
                least_rows: rows,
                columns,
                invocations: invocations as u32,
                busy,
                terms,
                blocks,
                cut: (1, product.k),
                family,
            }
        };
        let mut tile = match (target.tiling, m, n) {
            (Tiling::Registers, 0..=FEW_ROWS, _) => {
                tile(if m > 4 { 8 } else { 4 }, if n > 16 { 32 } else { 16 }, Family::Registers)
            }
            (Tiling::Registers, ..) => {
                let tile = tile(64, product.vectors() * LANES, Family::Stationary);
                // Rows to make up for loading a block, but not so many that threads wait for one another.
                let shares = (4 * target.threads).div_ceil(product.batch * n.div_ceil(tile.columns));
                Self { rows: m.div_ceil(shares).clamp(tile.least_rows, 512), ..tile }
            }
            (Tiling::Workgroup, 0..=16, _) => tile(16, 64, Family::Workgroup),
            (Tiling::Workgroup, _, 0..=16) => tile(64, 16, Family::Workgroup),
            (Tiling::Workgroup, ..) => tile(64, 64, Family::Workgroup),
        };
        tile.cut = tile.cut(target);
        if tile.family == Family::Stationary {
            let blocks = tile.blocks_of(tile.cut.1);
            let loading = blocks * (tile.blocks[0] + 2);
            let rows = MOST_ITERATIONS.saturating_sub(loading) / (blocks + product.vectors() + 1);
            tile.rows = tile.rows.min(rows).max(1);
        }
        tile
    }

    /// Blocks of b that so many terms are cut into, at most.
    fn blocks_of(&self, terms: usize) -> usize {
        terms.div_ceil(self.blocks[0]) + 2
    }

    /// Most terms that an invocation has the iterations for.
    fn most_terms(&self) -> usize {
        let terms = self.blocks[0];
        let block = match self.family {
            Family::Workgroup => return usize::MAX,
            Family::Registers => terms / 4 + terms % 4 + 3,
            Family::Stationary => terms + 2 + SERVED,
        };
        (MOST_ITERATIONS / block - 2) * terms
    }

    /// Tiles that the products need.
    pub fn count(&self) -> usize {
        self.count_of(self.rows)
    }

    /// Tiles of so many rows that the products need.
    fn count_of(&self, rows: usize) -> usize {
        self.product.batch * self.product.m.div_ceil(rows) * self.product.n.div_ceil(self.columns)
    }

    /// Into how many parts K is cut, and the terms of each but the last.
    pub fn parts(&self) -> (usize, usize) {
        self.cut
    }

    /// Into how many parts to cut K, for its partial sums to fit `target` where that can be.
    fn cut(&self, target: &Target) -> (usize, usize) {
        let Product { batch, m, k, n, .. } = self.product;
        let most = (target.max_binding / (batch * m * n * 4) as u64) as usize;
        let parts = self.busy.div_ceil(self.count_of(self.least_rows)).min(k / self.terms).min(most).max(1);
        let parts = parts.max(k.div_ceil(self.most_terms()));
        let step = match self.family {
            Family::Workgroup | Family::Registers => 16,
            Family::Stationary => self.blocks[0],
        };
        let chunk = k.div_ceil(parts).next_multiple_of(step);
        (k.div_ceil(chunk), chunk)
    }

    /// The kernel, knowing its tile and the products' sizes.
    pub fn kernel(&self) -> Kernel {
        let Product { batch, m, k, n, k_varies } = self.product;
        let [terms, rest] = self.blocks;
        let kernel = match self.family {
            Family::Workgroup => Kernel::linear(shader!("matmul"), self.invocations)
                .constant("TILE_M", self.rows)
                .constant("BLOCK", terms),
            Family::Registers => Kernel::linear(shader!("matmul_registers"), self.invocations)
                .define_if(self.rows == 8, "ROWS8")
                .define_if(self.columns == 32, "COLUMNS4")
                .constant("TILE_M", self.rows)
                .constant("BLOCK", terms),
            Family::Stationary => Kernel::linear(shader!("matmul_stationary"), self.invocations)
                .define("TALL")
                .define_if(rest > 0, "REST")
                .define_if(!n.is_multiple_of(self.columns), "EDGE")
                .constant("VECTORS", self.columns / LANES)
                .constant("HEIGHTS", if rest > 0 { 2_usize } else { 1 })
                .constant("TERMS_0", terms)
                .constant("TERMS_1", rest)
                .size("tile_m", self.rows),
        };
        let kernel = kernel.constant("TILE_N", self.columns).constant("N", n).size("batch", batch);
        match k_varies {
            true => kernel.constant("M", m).size("k", k),
            false => kernel.size("m", m).constant("K", k),
        }
    }
}

impl Product {
    /// Columns that a lane has of a block of b that stays, at most 8, so that workgroups share N evenly.
    fn vectors(&self) -> usize {
        self.n.div_ceil(self.n.div_ceil(8 * LANES)).div_ceil(LANES)
    }

    /// Terms of a block of b that stays, and of the blocks at the end of K, so that a loop's body has about `unrolled`
    /// multiply-adds. There are never more than 128.
    fn blocks(&self, unrolled: usize) -> [usize; 2] {
        let most = (unrolled / self.vectors()).min(unrolled / 4).min(128);
        if self.k_varies {
            // The number of samples may be large, and its blocks many: shorter ones keep the rounding where it is.
            let most = 1 << most.min(64).ilog2();
            return [most, most / 2];
        }
        let blocks = self.k.div_ceil(most);
        match (blocks..=blocks + blocks / 2).find(|blocks| self.k.is_multiple_of(*blocks)) {
            Some(blocks) => [self.k / blocks, 0],
            None => [most, self.k % most],
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A forward product's tile on a software adapter.
    fn forward(m: usize, k: usize, n: usize) -> Tile {
        let target = Target { tiling: Tiling::Registers, ..Target::default() };
        Tile::new(&target, Product { batch: 1, m, k, n, k_varies: false })
    }

    #[test]
    fn software_adapters_keep_blocks_of_b_unless_there_are_few_rows() {
        for (m, family) in [(1, Family::Registers), (8, Family::Registers), (9, Family::Stationary)] {
            assert_eq!(forward(m, 512, 512).family, family, "{m} rows");
        }
    }

    #[test]
    fn sums_are_cut_alike_for_all_numbers_of_rows() {
        let blocks = [
            ((512, 512), [64, 0]),
            ((784, 512), [56, 0]), // equal blocks where K divides into some
            ((512, 10), [128, 0]), // longer ones where there are few columns
            ((10, 512), [10, 0]),
            ((1031, 512), [64, 7]),
        ];
        for ((k, n), blocks) in blocks {
            for m in [1, 8, 9, 256] {
                assert_eq!(forward(m, k, n).blocks, blocks, "{m} × {k} × {n}");
            }
        }
    }

    #[test]
    fn one_kernel_serves_all_numbers_of_rows() {
        let source = |rows: usize, k_varies: bool| {
            let target = Target { tiling: Tiling::Registers, ..Target::default() };
            let [m, k] = if k_varies { [512, rows] } else { [rows, 512] };
            Tile::new(&target, Product { batch: 1, m, k, n: 100, k_varies }).kernel().source()
        };
        for k_varies in [false, true] {
            assert_eq!(source(43, k_varies), source(20_000, k_varies));
        }
    }

    #[test]
    fn tiles_are_enough_to_keep_a_device_busy_and_tall_enough_to_pay() {
        for (m, rows) in [(9, 64), (256, 64), (1024, 256), (100_000, 512)] {
            assert_eq!(forward(m, 512, 512).rows, rows, "{m} rows");
        }
    }

    #[test]
    fn parts_of_k_are_whole_blocks() {
        let target = Target { tiling: Tiling::Registers, ..Target::default() };
        let tile = Tile::new(&target, Product { batch: 1, m: 128, k: 65_001, n: 10, k_varies: true });
        assert_eq!(tile.parts(), (16, 4096));
        let small = Target { max_binding: 3 * 128 * 10 * 4, ..target.clone() };
        assert_eq!(Tile::new(&small, tile.product).parts().0, 3);
        // They decide how sums are rounded, so threads have no say in them.
        let target = Target { threads: 1, ..target };
        assert_eq!(Tile::new(&target, tile.product).parts(), (16, 4096));
    }

    #[test]
    fn no_invocation_iterates_more_than_old_lavapipe_does() {
        for unrolled in [128, 512] {
            let target = Target { tiling: Tiling::Registers, unrolled, ..Target::default() };
            for (m, k, n) in
                [(512, 4096, 512), (512, 2048, 512), (4096, 1 << 20, 4096), (9, 65_537, 3), (1, 1 << 20, 9000)]
            {
                for k_varies in [false, true] {
                    let tile = Tile::new(&target, Product { batch: 1, m, k, n, k_varies });
                    let (parts, chunk) = tile.parts();
                    assert!(parts * chunk >= k && (parts - 1) * chunk < k);
                    let [terms, rest] = tile.blocks;
                    let blocks = chunk / terms + (chunk % terms).div_ceil(rest.max(1));
                    let iterations = match tile.family {
                        Family::Stationary => blocks * (terms + tile.rows + 1) + tile.rows * (tile.columns / LANES + 1),
                        _ => blocks * (terms / 4 + terms % 4 + 1),
                    };
                    assert!(iterations < 65_535, "{m} × {k} × {n}, {unrolled}: {iterations}");
                }
            }
        }
    }
}
