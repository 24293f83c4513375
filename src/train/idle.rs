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
    /// Seconds in which the others do a batch without it.
    pub finish: f64,
}

impl fmt::Display for Idle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { label, cost, finish, .. } = self;
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
                let one = milliseconds(fixed + each);
                write!(f, "{label} gets no samples: its {one} for one sample exceed the common finish of {finish}")
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_reason_is_told() {
        let told = |cost| Idle { device: 1, label: "B".into(), cost, finish: 0.064 }.to_string();
        assert_eq!(
            told(Some((0.1, 0.001))),
            "B gets no samples: its fixed time of 100.0 ms alone exceeds the common finish of 64.0 ms"
        );
        assert_eq!(
            told(Some((0.06, 0.01))),
            "B gets no samples: its 70.0 ms for one sample exceed the common finish of 64.0 ms"
        );
        assert_eq!(told(None), "B gets no samples: a batch has too few for every device");
    }
}
