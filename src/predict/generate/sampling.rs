//! The choice of a token from a model's probabilities.

use crate::error::{Error, Result};
use crate::rng::Stream;

/// How a token is chosen.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Sampling {
    /// Probabilities are raised to 1/temperature: below 1 the likely get likelier; 0 takes the likeliest.
    pub temperature: f64,
    /// Only this many of the likeliest are chosen from.
    pub top_k: Option<usize>,
    /// Only the likeliest that together have this probability are chosen from (nucleus sampling; Holtzman et al., "The
    /// Curious Case of Neural Text Degeneration", 2020): above 0, at most 1.
    pub top_p: f64,
    /// Together with a token's position, decides the choice.
    pub seed: u64,
}

impl Default for Sampling {
    fn default() -> Self {
        Self { temperature: 1.0, top_k: None, top_p: 1.0, seed: 0 }
    }
}

impl Sampling {
    /// Checks the settings.
    ///
    /// # Errors
    /// When one is outside its range.
    pub fn validate(&self) -> Result<()> {
        if !(self.temperature.is_finite() && self.temperature >= 0.0) {
            let message = format!("expected a finite number, 0 or more, got {}", self.temperature);
            return Err(Error::invalid("temperature", message));
        }
        if self.top_k == Some(0) {
            return Err(Error::invalid("top-k", "expected 1 token or more, got 0"));
        }
        if !(self.top_p > 0.0 && self.top_p <= 1.0) {
            return Err(Error::invalid("top-p", format!("expected above 0 and at most 1, got {}", self.top_p)));
        }
        Ok(())
    }

    /// The token at `position` of the text, chosen by `probabilities`. Of equally likely ones the first counts as
    /// likelier.
    pub fn choose(&self, probabilities: &[f32], position: u64) -> u32 {
        let mut ranked: Vec<(usize, f64)> = probabilities.iter().map(|&p| f64::from(p)).enumerate().collect();
        ranked.sort_by(|a, b| b.1.total_cmp(&a.1));
        let Some(&(likeliest, largest)) = ranked.first() else { return 0 };
        if self.temperature == 0.0 {
            return likeliest as u32;
        }
        ranked.truncate(self.top_k.unwrap_or(usize::MAX));
        for (_, p) in &mut ranked {
            *p = (*p / largest).powf(1.0 / self.temperature);
        }
        let total: f64 = ranked.iter().map(|(_, p)| p).sum();
        let mut sum = 0.0;
        let nucleus = ranked.iter().position(|(_, p)| {
            sum += p;
            sum >= self.top_p * total
        });
        ranked.truncate(nucleus.map_or(usize::MAX, |last| last + 1));
        let total: f64 = ranked.iter().map(|(_, p)| p).sum();
        let mut left = Stream::new(self.seed, &format!("token {position}")).uniform() * total;
        let chosen = ranked.iter().find(|(_, p)| {
            left -= p;
            left < 0.0
        });
        chosen.unwrap_or(&ranked[ranked.len() - 1]).0 as u32
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const P: [f32; 4] = [0.1, 0.4, 0.2, 0.3];

    fn shares(sampling: Sampling) -> [f64; 4] {
        let mut counts = [0.0; 4];
        (0..20_000).for_each(|position| counts[sampling.choose(&P, position) as usize] += 1.0 / 20_000.0);
        counts
    }

    fn close(shares: [f64; 4], expected: [f64; 4]) {
        let off = shares.iter().zip(expected).map(|(a, b)| (a - b).abs()).fold(0.0, f64::max);
        assert!(off < 0.015, "{shares:?} {expected:?}"); // 4 deviations of a share over 20,000 draws
        shares.iter().zip(expected).for_each(|(&a, b)| assert!(b > 0.0 || a == 0.0, "{shares:?}"));
    }

    #[test]
    fn tokens_come_as_often_as_they_should() {
        let plain = Sampling::default();
        close(shares(plain), [0.1, 0.4, 0.2, 0.3]);
        close(shares(Sampling { temperature: 0.5, ..plain }), [0.01 / 0.3, 0.16 / 0.3, 0.04 / 0.3, 0.09 / 0.3]);
        close(shares(Sampling { top_k: Some(2), ..plain }), [0.0, 4.0 / 7.0, 0.0, 3.0 / 7.0]);
        close(shares(Sampling { top_p: 0.65, ..plain }), [0.0, 4.0 / 7.0, 0.0, 3.0 / 7.0]);
        close(shares(Sampling { top_p: 0.71, ..plain }), [0.0, 4.0 / 9.0, 2.0 / 9.0, 3.0 / 9.0]);
        close(shares(Sampling { temperature: 0.0, ..plain }), [0.0, 1.0, 0.0, 0.0]);
        close(shares(Sampling { top_p: 1e-9, ..plain }), [0.0, 1.0, 0.0, 0.0]);
        // A temperature so low that only the likeliest is left in floating point.
        close(shares(Sampling { temperature: 1e-6, ..plain }), [0.0, 1.0, 0.0, 0.0]);
    }

    #[test]
    fn a_choice_depends_on_seed_and_position_only() {
        let choose =
            |seed| (0..50).map(|at| Sampling { seed, ..Sampling::default() }.choose(&P, at)).collect::<Vec<_>>();
        assert_eq!(choose(1), choose(1));
        assert_ne!(choose(1), choose(2));
    }

    #[test]
    fn settings_are_checked() {
        let plain = Sampling::default();
        assert!(plain.validate().is_ok());
        for bad in [
            Sampling { temperature: -1.0, ..plain },
            Sampling { temperature: f64::NAN, ..plain },
            Sampling { top_k: Some(0), ..plain },
            Sampling { top_p: 0.0, ..plain },
            Sampling { top_p: 1.1, ..plain },
        ] {
            assert!(bad.validate().is_err(), "{bad:?}");
        }
    }
}
