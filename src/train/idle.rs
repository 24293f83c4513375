//! Why a device gets no samples, for those who wonder what they bought it for.

use std::fmt;

use super::rest::Sharing;

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
    /// What sharing would cost, where one device does a batch alone.
    pub sharing: Option<Sharing>,
}

impl fmt::Display for Idle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { label, cost, least, finish, sharing, .. } = self;
        let milliseconds = |seconds: f64| format!("{:.1} ms", 1e3 * seconds);
        let finish = milliseconds(*finish);
        let Some((fixed, each)) = *cost else {
            return write!(f, "{label} gets no samples: a batch has too few for every device");
        };
        if fixed >= self.finish {
            let fixed = milliseconds(fixed);
            return write!(
                f,
                "{label} gets no samples: its fixed time of {fixed} alone exceeds the common finish of {finish}"
            );
        }
        let time = fixed + each * *least as f64;
        match sharing {
            Some(Sharing { together, exchange, alone }) if time <= self.finish => {
                let [together, exchange, alone] = [together, exchange, alone].map(|seconds| milliseconds(*seconds));
                write!(
                    f,
                    "{label} gets no samples: with it a batch takes {together}, {exchange} of which for the update and the \
                     exchange of gradients and weights; without it {alone}"
                )
            }
            _ => {
                let time = milliseconds(time);
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
        let idle =
            |cost, least| Idle { device: 1, label: "B".into(), cost, least, finish: 0.064, sharing: None }.to_string();
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
        let sharing = Some(Sharing { together: 0.043, exchange: 0.018, alone: 0.028 });
        let idle = Idle { device: 1, label: "B".into(), cost: Some((0.01, 0.001)), least: 1, finish: 0.027, sharing };
        assert_eq!(
            idle.to_string(),
            "B gets no samples: with it a batch takes 43.0 ms, 18.0 ms of which for the update and the exchange of \
             gradients and weights; without it 28.0 ms"
        );
    }
}
