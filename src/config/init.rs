//! `init` of a layer: a word, or a table with a kind and its setting.

use super::layers::LayerSpec;
use super::reader::{Section, any_of, choice, finite, positive, single};
use super::tree::{Value, quoted};
use crate::error::Result;
use crate::nn::layers::Initializer;

#[derive(Clone, Copy)]
enum Kind {
    XavierUniform,
    XavierNormal,
    KaimingUniform,
    KaimingNormal,
    Orthogonal,
    Normal,
    TruncatedNormal,
    Constant,
}

const KINDS: [(&str, Kind); 8] = [
    ("xavier-uniform", Kind::XavierUniform),
    ("xavier-normal", Kind::XavierNormal),
    ("kaiming-uniform", Kind::KaimingUniform),
    ("kaiming-normal", Kind::KaimingNormal),
    ("orthogonal", Kind::Orthogonal),
    ("normal", Kind::Normal),
    ("truncated-normal", Kind::TruncatedNormal),
    ("constant", Kind::Constant),
];

/// The layer's `init`, where it is of a kind that may have one and does.
pub(super) fn read(layer: &LayerSpec, section: &mut Section) -> Result<Option<Initializer>> {
    let has_weights = matches!(
        layer,
        LayerSpec::Linear(_)
            | LayerSpec::Conv2d(_)
            | LayerSpec::Conv1d(_)
            | LayerSpec::ConvTranspose2d(_)
            | LayerSpec::Embedding(_)
            | LayerSpec::Positions(_)
            | LayerSpec::SelfAttention(_)
            | LayerSpec::Recurrent(_)
    );
    if has_weights { read_key("init", section) } else { Ok(None) }
}

/// The initialiser under `key`, where there is one.
pub(super) fn read_key(key: &str, section: &mut Section) -> Result<Option<Initializer>> {
    let Some(node) = section.take(key) else { return Ok(None) };
    let path = format!("{}.{key}", section.name());
    let names: Vec<_> = KINDS.iter().map(|(name, _)| quoted(name)).collect();
    let initializer = match &node.value {
        Value::String(_) => {
            let kind = choice(&KINDS)(&node.value).map_err(|expected| section.mismatch(key, &node, &expected))?;
            settings(kind, Section::empty(&path, node.origin))?
        }
        Value::Table(_) => {
            let mut table = Section::new(&path, node)?;
            let kind = table.required("kind", &any_of(&names), choice(&KINDS))?;
            settings(kind, table)?
        }
        _ => return Err(section.mismatch(key, &node, "a word such as \"orthogonal\", or a table with a kind")),
    };
    Ok(Some(initializer))
}

/// The initialiser of this kind with the section's setting.
fn settings(kind: Kind, mut section: Section) -> Result<Initializer> {
    const DEVIATION: &str = "the standard deviation";
    let initializer = match kind {
        Kind::XavierUniform => Initializer::XavierUniform,
        Kind::XavierNormal => Initializer::XavierNormal,
        Kind::KaimingUniform => Initializer::KaimingUniform,
        Kind::KaimingNormal => Initializer::KaimingNormal,
        Kind::Orthogonal => Initializer::Orthogonal { gain: section.get("gain", 1.0, single(positive))? },
        Kind::Normal => Initializer::Normal { deviation: section.required("deviation", DEVIATION, single(positive))? },
        Kind::TruncatedNormal => {
            Initializer::TruncatedNormal { deviation: section.required("deviation", DEVIATION, single(positive))? }
        }
        Kind::Constant => {
            Initializer::Constant { value: section.required("value", "what all weights are", single(finite))? }
        }
    };
    section.finish()?;
    Ok(initializer)
}

/// The initialiser as TOML.
pub(super) fn write(initializer: &Initializer) -> String {
    let table = |kind: &str, key: &str, value: f32| format!("{{ kind = {}, {key} = {value:?} }}", quoted(kind));
    match *initializer {
        Initializer::XavierUniform => quoted("xavier-uniform"),
        Initializer::XavierNormal => quoted("xavier-normal"),
        Initializer::KaimingUniform => quoted("kaiming-uniform"),
        Initializer::KaimingNormal => quoted("kaiming-normal"),
        Initializer::Orthogonal { gain } => table("orthogonal", "gain", gain),
        Initializer::Normal { deviation } => table("normal", "deviation", deviation),
        Initializer::TruncatedNormal { deviation } => table("truncated-normal", "deviation", deviation),
        Initializer::Constant { value } => table("constant", "value", value),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::RunConfig;
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
            assert_eq!(parse(&layer(&write(&expected))).unwrap(), config);
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
