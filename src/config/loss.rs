//! `model.loss`: a word, or a table with a kind and its settings.

use super::fields::{Fields, Kinds, Settings, word_or_table};
use super::values::{ABOVE_ZERO, Form, either, list, single, whole};
use crate::nn::{CrossEntropy, Loss};

/// A loss.
pub(super) fn form() -> Form<Loss> {
    word_or_table("a loss such as \"mse\", or a table with its kind and settings")
}

impl Kinds for Loss {
    fn all() -> Vec<(&'static str, Self)> {
        let losses = [
            Self::cross_entropy(),
            Self::binary_cross_entropy(),
            Self::MeanSquaredError,
            Self::MeanAbsoluteError,
            Self::Huber { delta: 1.0 },
            Self::KlDivergence,
            Self::Cosine,
            Self::CosineEmbedding { margin: 0.0 },
        ];
        losses.map(|loss| (loss.name(), loss)).into()
    }
}

impl Settings for Loss {
    fn fields(&mut self, f: &mut Fields<'_>) {
        match self {
            Self::CrossEntropy(CrossEntropy { label_smoothing, ignore_index, class_weights }) => {
                let weights = list(single(0.0..));
                f.field("label_smoothing", "Part spread over all classes", single(0.0..1.0), label_smoothing);
                f.optional("ignore_index", "Targets that count for nothing", whole(0..), ignore_index);
                f.optional("class_weights", "What the targets of each class count", weights, class_weights);
            }
            Self::BinaryCrossEntropy { pos_weight } => {
                let one = single(ABOVE_ZERO).map(|weight| vec![weight], |weights: &Vec<f32>| weights[0]);
                let weights = either(one, "a list of them", list(single(ABOVE_ZERO)));
                f.field("pos_weight", "What positive targets count", weights, pos_weight);
            }
            Self::Huber { delta } => f.field("delta", "Where it becomes linear", single(ABOVE_ZERO), delta),
            Self::CosineEmbedding { margin } => {
                f.field("margin", "The cosine that costs nothing", single(-1.0..=1.0), margin);
            }
            Self::MeanSquaredError | Self::MeanAbsoluteError | Self::KlDivergence | Self::Cosine => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::RunConfig;
    use crate::error::Result;

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
            assert_eq!(parse(&form().write(&expected)).unwrap().model.loss, expected, "{text}");
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
