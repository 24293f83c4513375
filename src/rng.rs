//! Counter-based random numbers: a value depends only on its key and counter, never on who draws it or when, so
//! shuffles, initial weights and dropout masks are the same on any number of devices and after any resume.
//!
//! The generator is Threefry-2x32 with 20 rounds (Salmon, Moraes, Dror and Shaw, "Parallel random numbers: as easy as
//! 1, 2, 3", SC 2011). `shaders/shared/threefry.wgsl` is the same function on the device.

/// Threefry-2x32-20: two 32-bit words for (`key`, `counter`).
pub fn threefry2x32(key: [u32; 2], counter: [u32; 2]) -> [u32; 2] {
    const ROTATIONS: [u32; 8] = [13, 15, 26, 6, 17, 29, 16, 24];
    let schedule = [key[0], key[1], 0x1BD1_1BDA ^ key[0] ^ key[1]];
    let mut x = [counter[0].wrapping_add(schedule[0]), counter[1].wrapping_add(schedule[1])];
    for round in 0..20 {
        x[0] = x[0].wrapping_add(x[1]);
        x[1] = x[1].rotate_left(ROTATIONS[round % 8]) ^ x[0];
        if round % 4 == 3 {
            let injection = round / 4 + 1;
            x[0] = x[0].wrapping_add(schedule[injection % 3]);
            x[1] = x[1].wrapping_add(schedule[(injection + 1) % 3]).wrapping_add(injection as u32);
        }
    }
    x
}

/// A 64-bit key for `name` under `seed` (FNV-1a over the name, mixed by one Threefry block).
pub(crate) fn key_for(seed: u64, name: &str) -> [u32; 2] {
    let hash = name.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |h, b| (h ^ u64::from(b)).wrapping_mul(0x0100_0000_01b3));
    threefry2x32(words(seed), words(hash))
}

/// Low and high word of `value`.
pub fn words(value: u64) -> [u32; 2] {
    [value as u32, (value >> 32) as u32]
}

/// A stream of numbers under one key: counters 0, 1, 2, …
#[derive(Debug, Clone)]
pub struct Stream {
    key: [u32; 2],
    counter: u64,
}

impl Stream {
    /// The stream that belongs to `name` under `seed`.
    pub fn new(seed: u64, name: &str) -> Self {
        Self { key: key_for(seed, name), counter: 0 }
    }

    /// The next 64 random bits.
    pub(crate) fn next_u64(&mut self) -> u64 {
        let [lo, hi] = threefry2x32(self.key, words(self.counter));
        self.counter += 1;
        u64::from(lo) | u64::from(hi) << 32
    }

    /// Uniform in [0, 1), 53 bits.
    pub fn uniform(&mut self) -> f64 {
        (self.next_u64() >> 11) as f64 * (1.0 / (1_u64 << 53) as f64)
    }

    /// Standard normal, by the Box–Muller transform (one value per call; the second is not kept).
    pub fn normal(&mut self) -> f64 {
        let radius = (-2.0 * (1.0 - self.uniform()).ln()).sqrt();
        radius * (std::f64::consts::TAU * self.uniform()).cos()
    }

    /// Uniform in `0..bound`, without bias (rejection). `bound` must be positive.
    pub fn below(&mut self, bound: u64) -> u64 {
        assert!(bound > 0, "below(0) has no value to return");
        let limit = u64::MAX - u64::MAX % bound;
        loop {
            let value = self.next_u64();
            if value < limit {
                return value % bound;
            }
        }
    }

    /// Shuffles in place (Fisher–Yates).
    pub fn shuffle<T>(&mut self, items: &mut [T]) {
        for last in (1..items.len()).rev() {
            items.swap(last, self.below(last as u64 + 1) as usize);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Known answers of the Random123 distribution (kat_vectors, threefry2x32 20 rounds).
    #[test]
    fn threefry_matches_the_published_vectors() {
        assert_eq!(threefry2x32([0, 0], [0, 0]), [0x6b20_0159, 0x99ba_4efe]);
        assert_eq!(threefry2x32([u32::MAX; 2], [u32::MAX; 2]), [0x1cb9_96fc, 0xbb00_2be7]);
        assert_eq!(threefry2x32([0x1319_8a2e, 0x0370_7344], [0x243f_6a88, 0x85a3_08d3]), [0xc492_3a9c, 0x483d_f7a0]);
    }

    #[test]
    fn shuffles_are_permutations_and_depend_on_the_seed() {
        let shuffled = |seed| {
            let mut items: Vec<u32> = (0..1000).collect();
            Stream::new(seed, "order").shuffle(&mut items);
            items
        };
        assert_eq!(shuffled(1), shuffled(1));
        assert_ne!(shuffled(1), shuffled(2));
        let mut sorted = shuffled(3);
        sorted.sort_unstable();
        assert_eq!(sorted, (0..1000).collect::<Vec<_>>());
    }

    #[test]
    fn normal_numbers_have_mean_zero_and_variance_one() {
        let mut stream = Stream::new(7, "normal");
        let draws: Vec<f64> = (0..20_000).map(|_| stream.normal()).collect();
        let mean = draws.iter().sum::<f64>() / draws.len() as f64;
        let variance = draws.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / draws.len() as f64;
        assert!(mean.abs() < 0.03 && (variance - 1.0).abs() < 0.05, "mean {mean}, variance {variance}");
    }
}
