//! What the user is told of the planner's decisions: why a device gets no samples, for those who wonder what they
//! bought it for, and why another one updates.

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
    /// What sharing would cost, where one device does a batch alone.
    pub sharing: Option<Sharing>,
}

/// What it would cost to share a batch that one device does alone.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Sharing {
    /// Seconds of a step in which all devices that help take part.
    pub together: f64,
    /// Seconds of these for the update and for exchanging gradients and weights.
    pub exchange: f64,
    /// Seconds of a step by the one alone.
    pub alone: f64,
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

/// Another device applies the updates.
#[derive(Debug, Clone, PartialEq)]
pub struct Handover {
    /// Name of the device that did.
    pub from: String,
    /// Name of the one that does from now on.
    pub to: String,
    /// Seconds that something took.
    pub before: f64,
    /// Seconds that it is expected to take.
    pub expected: f64,
    /// What that is.
    pub of: Timed,
}

/// What such a change makes faster.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Timed {
    /// An update, weights handed to the others included.
    Update,
    /// A step, which the one alone may do sooner than all together.
    Step,
}

impl fmt::Display for Handover {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { from, to, before, expected, of } = self;
        let (before, expected) = (1e3 * before, 1e3 * expected);
        write!(f, "{to} applies the updates from now on: ")?;
        match of {
            Timed::Update => write!(f, "it should take {expected:.1} ms where {from} took {before:.1} ms"),
            Timed::Step => {
                write!(f, "alone it should take {expected:.1} ms for a batch, all together took {before:.1} ms")
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
