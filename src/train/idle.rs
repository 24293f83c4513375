//! Why a device gets no samples, for those who wonder what they bought it for.

use std::fmt;

/// A device that gets no samples from now on.
#[derive(Debug, Clone, PartialEq)]
pub struct Idle {
    /// Its index among the run's devices.
    pub device: usize,
    /// Its name.
    pub label: String,
    /// (a, b): it takes a + b·n seconds for n samples, by its own measurements; `None` before there are any.
    pub cost: Option<(f64, f64)>,
    /// Fewest samples that it could get.
    pub least: usize,
    /// Seconds in which the others do a batch without it.
    pub finish: f64,
}

impl fmt::Display for Idle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { label, cost, least, finish, .. } = self;
        let milliseconds = |seconds: f64| format!("{:.1} ms", 1e3 * seconds);
        let finish = milliseconds(*finish);
        match *cost {
            None => write!(f, "{label} gets no samples: a batch has too few for every device"),
            Some((fixed, _)) if fixed >= self.finish => {
                let fixed = milliseconds(fixed);
                write!(
                    f,
                    "{label} gets no samples: its fixed time of {fixed} alone exceeds the common finish of {finish}"
                )
            }
            Some((fixed, each)) => {
                let time = milliseconds(fixed + each * *least as f64);
                let samples = if *least == 1 { "one sample".to_owned() } else { format!("{least} samples") };
                write!(f, "{label} gets no samples: its {time} for {samples} exceed the common finish of {finish}")
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_reason_is_told() {
        let idle = |cost, least| Idle { device: 1, label: "B".into(), cost, least, finish: 0.064 }.to_string();
        let told = |cost| idle(cost, 1);
        assert_eq!(
            told(Some((0.1, 0.001))),
            "B gets no samples: its fixed time of 100.0 ms alone exceeds the common finish of 64.0 ms"
        );
        assert_eq!(
            told(Some((0.06, 0.01))),
            "B gets no samples: its 70.0 ms for one sample exceed the common finish of 64.0 ms"
        );
        assert_eq!(
            idle(Some((0.06, 0.001)), 32),
            "B gets no samples: its 92.0 ms for 32 samples exceed the common finish of 64.0 ms"
        );
        assert_eq!(told(None), "B gets no samples: a batch has too few for every device");
    }
}
