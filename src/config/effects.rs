//! Settings that a run file gives and that change nothing: not wrong, and hardly what was meant.

use super::{RunConfig, Source, TokenizerKind};
use crate::train::Compression;

impl RunConfig {
    /// What has no effect where `devices` devices train: a sentence each, with its place.
    pub fn without_effect(&self, devices: usize) -> Vec<String> {
        let mut found = Vec::new();
        let mut say = |key: &str, what: &str| {
            let place = self.place(key).map(|place| format!("{place}: ")).unwrap_or_default();
            found.push(format!("{place}{key} {what}"));
        };
        if let Source::Text(text) = &self.data.source
            && text.cache.is_some()
            && text.tokenizer == TokenizerKind::Bytes
        {
            say("data.cache", "has no effect: with tokenizer = \"bytes\" the text itself is its tokens");
        }
        for (i, group) in self.train.groups.list.iter().enumerate() {
            let rate = self.train.schedule.base * f64::from(group.lr_scale);
            if !group.frozen && rate < f64::from(f32::MIN_POSITIVE) {
                let what = format!(
                    "keeps what \"{}\" matches as it is, at a learning rate of {rate:?}; frozen = true says so, and also \
                     leaves it out of the gradient's norm",
                    group.pattern
                );
                say(&format!("optimizer.groups[{}].lr_scale", i + 1), &what);
            }
        }
        if devices == 1 && self.train.gradient_compression != Compression::None {
            say("train.gradient_compression", "has no effect: one device alone hands its gradients to nobody");
        }
        if devices == 1 && self.train.cross_check_every > 0 {
            say("train.cross_check_every", "has no effect: one device alone has none to be compared with");
        }
        found
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    fn found(text: &str, devices: usize) -> Vec<String> {
        let model = "[model]\nlayers = [\"flatten\", { kind = \"linear\", out = 2 }]\n";
        let config = RunConfig::parse(&format!("{text}\n{model}"), "run.toml", Path::new(""), &[]).unwrap();
        config.without_effect(devices)
    }

    #[test]
    fn what_changes_nothing_is_found_with_its_place() {
        let train = "[train]\ngradient_compression = \"f16\"\ncross_check_every = 3";
        assert_eq!(
            found(train, 1),
            [
                "run.toml:2: train.gradient_compression has no effect: one device alone hands its gradients to nobody",
                "run.toml:3: train.cross_check_every has no effect: one device alone has none to be compared with",
            ]
        );
        assert_eq!(found(train, 2), [""; 0]);
        let groups =
            "[[optimizer.groups]]\nmatch = \"*.weight\"\n\n[[optimizer.groups]]\nmatch = \"*.bias\"\nlr_scale = ";
        assert_eq!(
            found(&format!("{groups}0"), 2),
            [
                "run.toml:6: optimizer.groups[2].lr_scale keeps what \"*.bias\" matches as it is, at a learning rate of 0.0; \
              frozen = true says so, and also leaves it out of the gradient's norm"
            ]
        );
        assert_eq!(found(&format!("{groups}1e-36"), 2).len(), 1);
        assert_eq!(found(&format!("{groups}1e-30"), 2), [""; 0]);
        assert_eq!(found(&format!("{groups}0\nfrozen = true"), 2), [""; 0]);
        let text = "[data]\nformat = \"text\"\npath = \"a.txt\"\nlength = 2\ncache = \"a.tokens\"\ntokenizer = ";
        assert_eq!(
            found(&format!("{text}\"bytes\""), 2),
            ["run.toml:5: data.cache has no effect: with tokenizer = \"bytes\" the text itself is its tokens"]
        );
        assert_eq!(found(&format!("{text}\"characters\""), 2), [""; 0]);
    }
}
