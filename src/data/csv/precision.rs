//! Whether float32 can tell a column's values apart. Inputs are float32, and values such as 1700000000, 1700000001, …
//! are the same number there: what distinguishes them is lost before anything can be scaled.

/// What rounding to float32 costs one column; grows by a value at a time.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Precision {
    count: f64,
    mean: f64,
    /// Sum of squared differences from the mean (B. P. Welford, 1962).
    squares: f64,
    /// Largest difference between a value and its float32.
    rounding: f64,
    /// The first value.
    pub first: f64,
}

impl Precision {
    /// A part of the deviation, about a four-thousandth, up to which rounding makes no difference that counts.
    pub(super) const FINE: f64 = 1.0 / 4096.0;
    /// A part of the deviation from which a column cannot be used.
    pub(super) const COARSE: f64 = 0.01;

    pub(super) fn push(&mut self, value: f64, rounded: f32) {
        if self.count == 0.0 {
            self.first = value;
        }
        self.count += 1.0;
        let difference = value - self.mean;
        self.mean += difference / self.count;
        self.squares += difference * (value - self.mean);
        self.rounding = self.rounding.max((value - f64::from(rounded)).abs());
    }

    fn deviation(&self) -> f64 {
        (self.squares / self.count).sqrt()
    }

    /// The largest rounding error as a part of the standard deviation; 0 for a column that is constant or empty.
    pub(super) fn lost(&self) -> f64 {
        let deviation = self.deviation();
        if deviation > 0.0 { self.rounding / deviation } else { 0.0 }
    }

    /// What is wrong with a column that loses too much; `standardize`: whether standardizing it would help.
    pub(super) fn complaint(&self, standardize: bool) -> String {
        let also = if standardize { ", or set data.scale = \"standardize\"" } else { "" };
        format!(
            "float32 cannot tell its values apart: they are around {:.3e} with a deviation of {:.3e}; take a constant off them \
             or scale them in the file{also}",
            self.mean,
            self.deviation()
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lost(values: impl IntoIterator<Item = f64>) -> f64 {
        let mut precision = Precision::default();
        values.into_iter().for_each(|v| precision.push(v, v as f32));
        precision.lost()
    }

    #[test]
    fn what_is_lost_is_measured_against_the_deviation() {
        let counted = |from: f64, step: f64| (0..100).map(move |i| from + step * f64::from(i));
        assert!(lost(counted(1.7e9, 1.0)) > 1.0);
        assert!((Precision::FINE..Precision::COARSE).contains(&lost(counted(1.7e9, 1000.0))));
        assert!(lost(counted(1.7e9, 1e6)) < Precision::FINE);
        assert_eq!(lost(counted(0.0, 1.0)), 0.0);
        assert!(lost(counted(0.1, 0.1)) < 1e-6);
        assert_eq!(lost([0.1; 50]), 0.0);
        assert!(lost(counted(0.0, 1e-50)) > 0.5, "below what float32 can hold");
    }
}
