//! `[schedule]`: the learning rate by step.

use super::fields::{Fields, Kinds, Settings};
use super::tree::{Value, quoted};
use super::values::{ABOVE_ZERO, Allowed, Form, INSIDE, PART, number, whole};
use crate::optim::{Decay, Schedule, Span};

/// A length of training: an integer, a fraction of the run, or epochs.
fn span() -> Form<Span> {
    span_if("steps as a whole number, a part of the run such as 0.05, or epochs such as \"2 epochs\"", |_| true)
}

/// The same, but not of no length.
fn period() -> Form<Span> {
    let some = |span: &Span| !matches!(span, Span::Steps(0) | Span::Fraction(0.0) | Span::Epochs(0.0));
    span_if(format!("{}, and more than 0", span().allowed), some)
}

fn span_if(words: impl Into<Allowed>, accept: fn(&Span) -> bool) -> Form<Span> {
    let read = move |value: &Value| {
        let span = match value {
            Value::Integer(steps) => u64::try_from(*steps).ok().map(Span::Steps),
            Value::Float(part) => Some(*part).filter(|part| (0.0..=1.0).contains(part)).map(Span::Fraction),
            Value::String(words) => epochs(words).map(Span::Epochs),
            _ => None,
        };
        span.filter(accept)
    };
    Form::plain(words, read).written(|span| match span {
        Span::Steps(steps) => steps.to_string(),
        Span::Fraction(part) => format!("{part:?}"),
        Span::Epochs(epochs) => quoted(&format!("{epochs} epochs")),
    })
}

/// `2 epochs`, `0.5 epochs` or `1 epoch`.
fn epochs(words: &str) -> Option<f64> {
    let count = words.strip_suffix("epochs").or_else(|| words.strip_suffix("epoch"))?.trim();
    count.parse().ok().filter(|epochs: &f64| epochs.is_finite() && *epochs >= 0.0)
}

impl Kinds for Decay {
    fn all() -> Vec<(&'static str, Self)> {
        let none = Span::Steps(0);
        vec![
            ("constant", Self::Constant),
            ("linear", Self::Linear),
            ("cosine", Self::Cosine),
            ("cosine-restarts", Self::CosineRestarts { period: none, factor: 1.0 }),
            ("step", Self::Step { every: none, gamma: 0.1 }),
            ("exponential", Self::Exponential { every: Span::Epochs(1.0), gamma: 1.0 }),
            ("one-cycle", Self::OneCycle { rise: 0.3, div: 25.0, final_div: 1e4 }),
            ("plateau", Self::Plateau { factor: 0.1, patience: 10, threshold: 1e-4 }),
        ]
    }
}

impl Settings for Decay {
    fn fields(&mut self, f: &mut Fields<'_>) {
        match self {
            Self::Constant | Self::Linear | Self::Cosine => {}
            Self::CosineRestarts { period: length, factor } => {
                f.required("period", "how long the first cosine takes", period(), length);
                f.field("factor", "What each period is longer by than the one before", number(1.0..), factor);
            }
            Self::Step { every, gamma } => {
                f.required("every", "how long the rate stays between two falls", period(), every);
                f.field("gamma", "What the rate is multiplied by", number(PART), gamma);
            }
            Self::Exponential { every, gamma } => {
                f.field("every", "How long the rate takes for one fall", period(), every);
                f.required("gamma", "what the rate is multiplied by", number(PART), gamma);
            }
            Self::OneCycle { rise, div, final_div } => {
                f.field("rise", "The part of the run in which the rate rises", number(INSIDE), rise);
                f.field("div", "The highest rate over the first", number(ABOVE_ZERO), div);
                f.field("final_div", "The first rate over the last", number(ABOVE_ZERO), final_div);
            }
            Self::Plateau { factor, patience, threshold } => {
                f.field("factor", "What the rate is multiplied by", number(INSIDE), factor);
                f.field("patience", "Epochs without a better loss that are put up with", whole(0..), patience);
                f.field("threshold", "The part of the best loss that counts as better", number(0.0..1.0), threshold);
            }
        }
    }
}

/// The section's fields.
pub(super) fn fields(schedule: &mut Schedule, f: &mut Fields<'_>) {
    f.kind("kind", "How the learning rate goes after the warm-up", &mut schedule.decay);
    f.field("warmup", "Length of a linear warm-up", span(), &mut schedule.warmup);
    f.settings(&mut schedule.decay);
    if f.has(!matches!(schedule.decay, Decay::Constant | Decay::OneCycle { .. })) {
        f.field("floor", "The least rate as a fraction of the first", number(0.0..1.0), &mut schedule.floor);
    }
}
