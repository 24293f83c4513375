//! `[schedule]`: the learning rate by step.

use super::reader::{Read, Section, below_one, choice, number, positive, whole};
use super::tree::{Value, quoted};
use crate::error::Result;
use crate::optim::{Decay, Schedule, Span};

/// `[schedule]`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct ScheduleConfig {
    /// How the learning rate goes after the warm-up.
    pub decay: Decay,
    /// Linear warm-up.
    pub warmup: Span,
    /// The least rate as a fraction of the first.
    pub floor: f64,
}

const SPAN: &str = "steps as a whole number, a part of the run such as 0.05, or epochs such as \"2 epochs\"";

/// A length of training: an integer, a fraction of the run, or epochs.
fn span(value: &Value) -> Read<Span> {
    let span = match value {
        Value::Integer(steps) => u64::try_from(*steps).ok().map(Span::Steps),
        Value::Float(part) => Some(*part).filter(|part| (0.0..=1.0).contains(part)).map(Span::Fraction),
        Value::String(words) => epochs(words).map(Span::Epochs),
        _ => None,
    };
    span.ok_or_else(|| SPAN.to_owned())
}

/// The same, but not of no length.
fn period(value: &Value) -> Read<Span> {
    let none = |span: &Span| matches!(span, Span::Steps(0) | Span::Fraction(0.0) | Span::Epochs(0.0));
    span(value).ok().filter(|span| !none(span)).ok_or_else(|| format!("{SPAN}, and more than 0"))
}

/// `2 epochs`, `0.5 epochs` or `1 epoch`.
fn epochs(words: &str) -> Option<f64> {
    let count = words.strip_suffix("epochs").or_else(|| words.strip_suffix("epoch"))?.trim();
    count.parse().ok().filter(|epochs: &f64| epochs.is_finite() && *epochs >= 0.0)
}

fn write_span(span: Span) -> String {
    match span {
        Span::Steps(steps) => steps.to_string(),
        Span::Fraction(part) => format!("{part:?}"),
        Span::Epochs(epochs) => quoted(&format!("{epochs} epochs")),
    }
}

/// A number above 0 and below 1.
fn inside(value: &Value) -> Read<f64> {
    number(|v| v > 0.0 && v < 1.0, "a number above 0 and below 1")(value)
}

/// A number above 0 and up to 1.
fn part(value: &Value) -> Read<f64> {
    number(|v| v > 0.0 && v <= 1.0, "a number above 0 and up to 1")(value)
}

/// A finite number of at least 1.
fn growth(value: &Value) -> Read<f64> {
    number(|v| v.is_finite() && v >= 1.0, "a finite number of at least 1")(value)
}

#[derive(Clone, Copy)]
enum Kind {
    Constant,
    Linear,
    Cosine,
    CosineRestarts,
    Step,
    Exponential,
    OneCycle,
    Plateau,
}

const KINDS: [(&str, Kind); 8] = [
    ("constant", Kind::Constant),
    ("linear", Kind::Linear),
    ("cosine", Kind::Cosine),
    ("cosine-restarts", Kind::CosineRestarts),
    ("step", Kind::Step),
    ("exponential", Kind::Exponential),
    ("one-cycle", Kind::OneCycle),
    ("plateau", Kind::Plateau),
];

impl ScheduleConfig {
    pub(super) fn read(mut section: Section) -> Result<Self> {
        let kind = section.get("kind", Kind::Constant, choice(&KINDS))?;
        let warmup = section.get("warmup", Span::Steps(0), span)?;
        let decay = match kind {
            Kind::Constant => Decay::Constant,
            Kind::Linear => Decay::Linear,
            Kind::Cosine => Decay::Cosine,
            Kind::CosineRestarts => Decay::CosineRestarts {
                period: section.required("period", "how long the first cosine takes", period)?,
                factor: section.get("factor", 1.0, growth)?,
            },
            Kind::Step => Decay::Step {
                every: section.required("every", "how long the rate stays between two falls", period)?,
                gamma: section.get("gamma", 0.1, part)?,
            },
            Kind::Exponential => Decay::Exponential {
                every: section.get("every", Span::Epochs(1.0), period)?,
                gamma: section.required("gamma", "what the rate is multiplied by", part)?,
            },
            Kind::OneCycle => Decay::OneCycle {
                rise: section.get("rise", 0.3, inside)?,
                div: section.get("div", 25.0, positive)?,
                final_div: section.get("final_div", 1e4, positive)?,
            },
            Kind::Plateau => Decay::Plateau {
                factor: section.get("factor", 0.1, inside)?,
                patience: section.get("patience", 10, whole(0))?,
                threshold: section.get("threshold", 1e-4, below_one)?,
            },
        };
        let floor = match decay {
            Decay::Constant | Decay::OneCycle { .. } => 0.0,
            _ => section.get("floor", 0.0, below_one)?,
        };
        section.finish()?;
        Ok(Self { decay, warmup, floor })
    }

    pub(super) fn write(&self) -> Vec<(&'static str, String)> {
        let number = |value: f64| format!("{value:?}");
        let (kind, settings) = match self.decay {
            Decay::Constant => ("constant", vec![]),
            Decay::Linear => ("linear", vec![]),
            Decay::Cosine => ("cosine", vec![]),
            Decay::CosineRestarts { period, factor } => {
                ("cosine-restarts", vec![("period", write_span(period)), ("factor", number(factor))])
            }
            Decay::Step { every, gamma } => ("step", vec![("every", write_span(every)), ("gamma", number(gamma))]),
            Decay::Exponential { every, gamma } => {
                ("exponential", vec![("every", write_span(every)), ("gamma", number(gamma))])
            }
            Decay::OneCycle { rise, div, final_div } => {
                ("one-cycle", vec![("rise", number(rise)), ("div", number(div)), ("final_div", number(final_div))])
            }
            Decay::Plateau { factor, patience, threshold } => {
                let (factor, threshold) = (number(factor), number(threshold));
                ("plateau", vec![("factor", factor), ("patience", patience.to_string()), ("threshold", threshold)])
            }
        };
        let mut entries = vec![("kind", quoted(kind)), ("warmup", write_span(self.warmup))];
        entries.extend(settings);
        if !matches!(self.decay, Decay::Constant | Decay::OneCycle { .. }) {
            entries.push(("floor", number(self.floor)));
        }
        entries
    }

    /// The schedule for a base learning rate.
    pub fn schedule(&self, base: f64) -> Schedule {
        Schedule { base, warmup: self.warmup, decay: self.decay, floor: self.floor }
    }
}
