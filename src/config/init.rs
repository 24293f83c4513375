//! `init` of a layer: a word, or a table with a kind and its setting.

use super::fields::{Fields, Kinds, Settings, word_or_table};
use super::values::{ABOVE_ZERO, Form, single};
use crate::nn::layers::Initializer;

/// How weights start.
pub(super) fn form() -> Form<Initializer> {
    word_or_table("a word such as \"orthogonal\", or a table with a kind")
}

impl Kinds for Initializer {
    fn all() -> Vec<(&'static str, Self)> {
        vec![
            ("xavier-uniform", Self::XavierUniform),
            ("xavier-normal", Self::XavierNormal),
            ("kaiming-uniform", Self::KaimingUniform),
            ("kaiming-normal", Self::KaimingNormal),
            ("orthogonal", Self::Orthogonal { gain: 1.0 }),
            ("normal", Self::Normal { deviation: 0.0 }),
            ("truncated-normal", Self::TruncatedNormal { deviation: 0.0 }),
            ("constant", Self::Constant { value: 0.0 }),
        ]
    }
}

impl Settings for Initializer {
    fn fields(&mut self, f: &mut Fields<'_>) {
        match self {
            Self::Orthogonal { gain } => f.field("gain", "Times the matrix", single(ABOVE_ZERO), gain),
            Self::Normal { deviation } | Self::TruncatedNormal { deviation } => {
                f.required("deviation", "the standard deviation", single(ABOVE_ZERO), deviation);
            }
            Self::Constant { value } => f.required("value", "what all weights are", single(..), value),
            Self::XavierUniform | Self::XavierNormal | Self::KaimingUniform | Self::KaimingNormal => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::RunConfig;
    use crate::error::Result;
    use crate::graph::Init;
    use crate::tensor::TensorType;

    fn parse(layer: &str) -> Result<RunConfig> {
        let text = format!("[model]\nlayers = [\n{layer}, \"flatten\", {{ kind = \"linear\", out = 2 }}]\n");
        RunConfig::parse(&text, "run.toml", std::path::Path::new("/base"), &[])
    }

    #[test]
    fn every_initialiser_is_read_written_and_built() {
        for (text, expected) in [
            ("\"xavier-uniform\"", Initializer::XavierUniform),
            ("\"xavier-normal\"", Initializer::XavierNormal),
            ("{ kind = \"kaiming-uniform\" }", Initializer::KaimingUniform),
            ("\"kaiming-normal\"", Initializer::KaimingNormal),
            ("\"orthogonal\"", Initializer::Orthogonal { gain: 1.0 }),
            ("{ kind = \"orthogonal\", gain = 1.5 }", Initializer::Orthogonal { gain: 1.5 }),
            ("{ kind = \"normal\", deviation = 0.5 }", Initializer::Normal { deviation: 0.5 }),
            ("{ kind = \"truncated-normal\", deviation = 0.02 }", Initializer::TruncatedNormal { deviation: 0.02 }),
            ("{ kind = \"constant\", value = -1 }", Initializer::Constant { value: -1.0 }),
        ] {
            let layer = |init: &str| format!("{{ kind = \"conv2d\", out = 3, kernel = 2, init = {init} }}");
            let config = parse(&layer(text)).unwrap();
            assert_eq!(config.model.layers[0].init, Some(expected), "{text}");
            assert_eq!(parse(&layer(&form().write(&expected))).unwrap(), config);
            assert_eq!(RunConfig::parse(&config.to_toml(), "run.toml", "".as_ref(), &[]).unwrap().model, config.model);
            let target = TensorType::u32([]);
            let model = config.model.build(&TensorType::f32([1, 4, 4]), &target, Some(2)).unwrap();
            let graph = crate::nn::training_graph(&model, &config.model.loss, &target, 1).unwrap();
            let mut other = crate::graph::Graph::new();
            other.initialized(expected, |g| g.parameter("w", [3, 1, 2, 2], crate::graph::Init::Zeros)).unwrap();
            assert_eq!(graph.parameters()[0].init, other.parameters()[0].init);
        }
    }

    /// Every weight of a layer starts so, biases as without it; attention's output projection may start otherwise.
    #[test]
    fn layers_with_several_weights_start_as_their_roles_say() {
        let normal = |deviation| Init::Normal { deviation };
        let uniform = Init::Uniform { bound: 0.5 };
        let of = |keys: &str| {
            let config = parse(&format!("{{ {keys} }}")).unwrap();
            assert_eq!(RunConfig::parse(&config.to_toml(), "run.toml", "".as_ref(), &[]).unwrap().model, config.model);
            let target = TensorType::u32([]);
            let model = config.model.build(&TensorType::f32([3, 4]), &target, Some(2)).unwrap();
            let graph = crate::nn::training_graph(&model, &config.model.loss, &target, 1).unwrap();
            let inits: Vec<Init> = graph.parameters().iter().map(|p| p.init).collect();
            inits[..inits.len() - 2].to_vec() // without the linear layer's
        };
        let init = "init = { kind = \"normal\", deviation = 0.25 }";
        assert_eq!(of(&format!("kind = \"positions\", {init}")), [normal(0.25)]);
        let attention = format!("kind = \"self_attention\", heads = 2, {init}");
        assert_eq!(of(&attention), [normal(0.25), Init::Zeros, normal(0.25), Init::Zeros]);
        let both = of(&format!("{attention}, out_init = {{ kind = \"normal\", deviation = 0.125 }}"));
        assert_eq!(both, [normal(0.25), Init::Zeros, normal(0.125), Init::Zeros]);
        let out = of("kind = \"self_attention\", heads = 2, out_init = \"kaiming-normal\"");
        let own = Init::XavierUniform { fan_in: 4, fan_out: 4 };
        assert_eq!(out, [own, Init::Zeros, Init::KaimingNormal { fan_in: 4 }, Init::Zeros]);
        for kind in ["lstm", "gru"] {
            let layer = of(&format!("kind = \"{kind}\", hidden = 4, {init}"));
            assert_eq!(layer, [normal(0.25), normal(0.25), uniform, uniform], "{kind}");
        }
        // Weights that are stacked count as one matrix, as in PyTorch.
        let stacked = of("kind = \"gru\", hidden = 4, init = \"xavier-normal\"");
        assert_eq!(stacked[1], Init::XavierNormal { fan_in: 4, fan_out: 12 });
    }

    #[test]
    fn what_cannot_be_an_initialiser_is_told_with_its_place() {
        let init =
            |init: &str| parse(&format!("{{ kind = \"linear\", out = 3, init = {init} }}")).unwrap_err().to_string();
        assert_eq!(
            init("\"he\""),
            "run.toml:3: model.layers[1].init: expected \"xavier-uniform\", \"xavier-normal\", \"kaiming-uniform\", \
             \"kaiming-normal\", \"orthogonal\", \"normal\", \"truncated-normal\" or \"constant\", got \"he\""
        );
        assert_eq!(
            init("\"truncated-normal\""),
            "run.toml:3: model.layers[1].init.deviation is missing: the standard deviation"
        );
        assert_eq!(
            init("{ kind = \"orthogonal\", deviation = 1 }"),
            "run.toml:3: unknown key 'model.layers[1].init.deviation'; known here: kind, gain"
        );
        assert_eq!(
            init("{ kind = \"orthogonal\", gain = 1e39 }"),
            "run.toml:3: model.layers[1].init.gain: expected a finite number above 0 in single precision, got 1e39"
        );
        assert_eq!(
            init("3"),
            "run.toml:3: model.layers[1].init: expected a word such as \"orthogonal\", or a table with a kind, got 3"
        );
        assert_eq!(
            parse("{ kind = \"relu\", init = \"orthogonal\" }").unwrap_err().to_string(),
            "run.toml:3: unknown key 'model.layers[1].init'; known here: kind, name"
        );
    }
}
