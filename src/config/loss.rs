//! `model.loss`: a word, or a table with a kind and its settings.

use super::reader::{Read, Section, any_of, below_one, choice, list, not_negative, number, positive, single, whole};
use super::tree::{Value, quoted};
use crate::error::Result;
use crate::nn::{CrossEntropy, Loss};

#[derive(Clone, Copy)]
enum Kind {
    CrossEntropy,
    BinaryCrossEntropy,
    MeanSquaredError,
    MeanAbsoluteError,
    Huber,
    KlDivergence,
    Cosine,
    CosineEmbedding,
}

const KINDS: [(&str, Kind); 8] = [
    ("cross-entropy", Kind::CrossEntropy),
    ("bce", Kind::BinaryCrossEntropy),
    ("mse", Kind::MeanSquaredError),
    ("l1", Kind::MeanAbsoluteError),
    ("huber", Kind::Huber),
    ("kl", Kind::KlDivergence),
    ("cosine", Kind::Cosine),
    ("cosine-embedding", Kind::CosineEmbedding),
];

/// The loss of `[model]`; where it is not given, the mean squared error for `regression` data, else cross-entropy.
pub(super) fn read(model: &mut Section, regression: bool) -> Result<Loss> {
    let Some(node) = model.take("loss") else {
        return Ok(if regression { Loss::MeanSquaredError } else { Loss::cross_entropy() });
    };
    match &node.value {
        Value::String(_) => {
            let kind = choice(&KINDS)(&node.value).map_err(|expected| model.mismatch("loss", &node, &expected))?;
            settings(kind, Section::empty("model.loss", node.origin))
        }
        Value::Table(_) => {
            let mut section = Section::new("model.loss", node)?;
            let names: Vec<_> = KINDS.iter().map(|(name, _)| quoted(name)).collect();
            let kind = section.required("kind", &any_of(&names), choice(&KINDS))?;
            settings(kind, section)
        }
        _ => Err(model.mismatch("loss", &node, "a loss such as \"mse\", or a table with its kind and settings")),
    }
}

/// The loss of this kind with the section's settings.
fn settings(kind: Kind, mut section: Section) -> Result<Loss> {
    let loss = match kind {
        Kind::CrossEntropy => Loss::CrossEntropy(CrossEntropy {
            label_smoothing: section.get("label_smoothing", 0.0, single(below_one))?,
            ignore_index: section.optional("ignore_index", whole(0))?,
            class_weights: section.optional("class_weights", list(single(not_negative)))?,
        }),
        Kind::BinaryCrossEntropy => {
            Loss::BinaryCrossEntropy { pos_weight: section.get("pos_weight", vec![1.0], one_or_several)? }
        }
        Kind::MeanSquaredError => Loss::MeanSquaredError,
        Kind::MeanAbsoluteError => Loss::MeanAbsoluteError,
        Kind::Huber => Loss::Huber { delta: section.get("delta", 1.0, single(positive))? },
        Kind::KlDivergence => Loss::KlDivergence,
        Kind::Cosine => Loss::Cosine,
        Kind::CosineEmbedding => Loss::CosineEmbedding { margin: section.get("margin", 0.0, cosine)? },
    };
    section.finish()?;
    Ok(loss)
}

/// A number that a cosine may be.
fn cosine(value: &Value) -> Read<f32> {
    number(|v| (-1.0..=1.0).contains(&v), "a number from -1 to 1")(value).map(|number| number as f32)
}

/// A positive number, or a list of them.
fn one_or_several(value: &Value) -> Read<Vec<f32>> {
    let one = single(positive)(value).map(|weight| vec![weight]);
    one.or_else(|expected| list(single(positive))(value).map_err(|_| format!("{expected}, or a list of them")))
}

/// The loss as TOML: its word, or a table where it has settings.
pub(super) fn write(loss: &Loss) -> String {
    let settings = match loss {
        Loss::CrossEntropy(CrossEntropy { label_smoothing, ignore_index, class_weights }) => {
            let mut settings = vec![("label_smoothing", format!("{label_smoothing:?}"))];
            settings.extend(ignore_index.map(|index| ("ignore_index", index.to_string())));
            settings.extend(class_weights.as_ref().map(|weights| ("class_weights", format!("{weights:?}"))));
            settings
        }
        Loss::BinaryCrossEntropy { pos_weight } => vec![("pos_weight", format!("{pos_weight:?}"))],
        Loss::Huber { delta } => vec![("delta", format!("{delta:?}"))],
        Loss::CosineEmbedding { margin } => vec![("margin", format!("{margin:?}"))],
        Loss::MeanSquaredError | Loss::MeanAbsoluteError | Loss::KlDivergence | Loss::Cosine => Vec::new(),
    };
    if settings.is_empty() {
        return quoted(loss.name());
    }
    let settings: Vec<_> = settings.into_iter().map(|(key, value)| format!(", {key} = {value}")).collect();
    format!("{{ kind = {}{} }}", quoted(loss.name()), settings.concat())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::RunConfig;

    fn parse(loss: &str) -> Result<RunConfig> {
        let text = format!("[model]\nlayers = [\"flatten\", {{ kind = \"linear\", out = 10 }}]\nloss = {loss}\n");
        RunConfig::parse(&text, "run.toml", std::path::Path::new("/base"), &[])
    }

    #[test]
    fn every_loss_is_read_and_written() {
        let weights = vec![0.5, 2.0];
        let smooth = CrossEntropy { label_smoothing: 0.1, ignore_index: Some(0), class_weights: Some(weights.clone()) };
        for (text, expected) in [
            ("\"cross-entropy\"", Loss::cross_entropy()),
            (
                "{ kind = \"cross-entropy\", label_smoothing = 0.1, ignore_index = 0, class_weights = [0.5, 2] }",
                Loss::CrossEntropy(smooth),
            ),
            ("\"bce\"", Loss::binary_cross_entropy()),
            ("{ kind = \"bce\", pos_weight = 3 }", Loss::BinaryCrossEntropy { pos_weight: vec![3.0] }),
            ("{ kind = \"bce\", pos_weight = [0.5, 2.0] }", Loss::BinaryCrossEntropy { pos_weight: weights }),
            ("\"mse\"", Loss::MeanSquaredError),
            ("{ kind = \"l1\" }", Loss::MeanAbsoluteError),
            ("\"huber\"", Loss::Huber { delta: 1.0 }),
            ("{ kind = \"huber\", delta = 0.25 }", Loss::Huber { delta: 0.25 }),
            ("\"kl\"", Loss::KlDivergence),
            ("\"cosine\"", Loss::Cosine),
            ("\"cosine-embedding\"", Loss::CosineEmbedding { margin: 0.0 }),
            ("{ kind = \"cosine-embedding\", margin = 0.25 }", Loss::CosineEmbedding { margin: 0.25 }),
        ] {
            assert_eq!(parse(text).unwrap().model.loss, expected, "{text}");
            assert_eq!(parse(&write(&expected)).unwrap().model.loss, expected, "{text}");
        }
    }

    #[test]
    fn what_cannot_be_a_loss_is_told_with_its_place() {
        let kinds = "\"cross-entropy\", \"bce\", \"mse\", \"l1\", \"huber\", \"kl\", \"cosine\" or \
                     \"cosine-embedding\"";
        for (text, expected) in [
            ("\"hinge\"", format!("model.loss: expected {kinds}, got \"hinge\"")),
            ("3", "model.loss: expected a loss such as \"mse\", or a table with its kind and settings, got 3".into()),
            ("{ delta = 1 }", format!("model.loss.kind is missing: {kinds}")),
            ("{ kind = \"mse\", delta = 1 }", "unknown key 'model.loss.delta'; known here: kind".into()),
            ("{ kind = \"huber\", delta = 0 }", "model.loss.delta: expected a finite number above 0, got 0".into()),
            (
                "{ kind = \"cosine-embedding\", margin = 2 }",
                "model.loss.margin: expected a number from -1 to 1, got 2".into(),
            ),
            (
                "{ kind = \"cross-entropy\", label_smoothing = 1.0 }",
                "model.loss.label_smoothing: expected a number of at least 0 and below 1, got 1.0".into(),
            ),
            (
                "{ kind = \"cross-entropy\", class_weights = [1, -1] }",
                "model.loss.class_weights: expected a list, each entry a finite number of at least 0, got [1, -1]"
                    .into(),
            ),
            (
                "{ kind = \"bce\", pos_weight = [] }",
                "model.loss.pos_weight: expected a finite number above 0, or a list of them, got []".into(),
            ),
        ] {
            assert_eq!(parse(text).unwrap_err().to_string(), format!("run.toml:3: {expected}"), "{text}");
        }
    }

    #[test]
    fn numbers_of_a_csv_file_go_with_binary_cross_entropy() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("a.csv"), "x,y\n1,0\n2,1\n3,1\n4,0\n5,1\n").unwrap();
        let data = "[data]\nformat = \"csv\"\npath = \"a.csv\"\nregression = true\n";
        let model = "[model]\nlayers = [{ kind = \"linear\", out = 1 }]\nloss = { kind = \"bce\", pos_weight = 2 }\n";
        let config = RunConfig::parse(&format!("{data}{model}"), "run.toml", dir.path(), &[]).unwrap();
        let task = config.task(&config.data.load(0, &config.model.loss).unwrap().card).unwrap();
        assert_eq!(task.statistics(), ["loss", "accuracy"]);
        assert!(task.training(3).unwrap().to_string().contains("Softplus"));
    }
}
