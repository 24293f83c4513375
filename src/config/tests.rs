//! What run files give, and every message about what is wrong with one.

mod blocks;
mod load;
mod training;

use super::*;
use crate::optim::{Decay, Optimizer, Schedule};
use crate::run::CheckpointPolicy;
use crate::tensor::TensorType;
use crate::train::{MicroBatchSize, Split, TrainOptions};

const MINIMAL: &str = "[model]\nlayers = [\"flatten\", { kind = \"linear\", out = 10 }]\n";

fn parse(text: &str) -> Result<RunConfig> {
    RunConfig::parse(text, "run.toml", Path::new("/base"), &[])
}

fn message(text: &str) -> String {
    parse(text).expect_err(text).to_string()
}

/// The message for a line added to a minimal file, as line 3.
fn added(line: &str) -> String {
    message(&format!("{MINIMAL}{line}\n"))
}

fn set(settings: &[&str]) -> Result<RunConfig> {
    let overrides = settings.iter().map(|s| Override::parse(s)).collect::<Result<Vec<_>>>()?;
    RunConfig::parse(MINIMAL, "run.toml", Path::new("/base"), &overrides)
}

fn set_message(setting: &str) -> String {
    set(&[setting]).expect_err(setting).to_string()
}

#[test]
fn everything_but_the_layers_has_a_default() {
    let config = parse(MINIMAL).unwrap();
    assert_eq!(config.data.source, Source::Digits);
    assert_eq!(config.data.validation, Validation::Fraction { fraction: 0.2, stratified: true });
    assert_eq!((config.train.epochs, config.train.batch, config.train.micro_batch), (10, 64, MicroBatchSize::Auto));
    assert_eq!((config.train.optimizer, config.train.schedule), (Optimizer::adamw(), Schedule::constant(0.001)));
    assert_eq!((config.devices.adapters.as_str(), config.devices.replicas), ("auto", 1));
}

#[test]
fn unknown_keys_name_the_nearest_known_one() {
    assert_eq!(added("[train]\nepoch = 3"), "run.toml:4: unknown key 'train.epoch'; did you mean 'train.epochs'?");
    assert_eq!(added("[optimiser]\nlr = 1"), "run.toml:3: unknown key 'optimiser'; did you mean 'optimizer'?");
    assert_eq!(added("[schedule]\nzzz = 1"), "run.toml:4: unknown key 'schedule.zzz'; known here: kind, warmup");
    assert_eq!(
        message("[model]\nlayers = [\n  { kind = \"linear\",\n out = 10, baes = true }]"),
        "run.toml:4: unknown key 'model.layers[1].baes'; did you mean 'model.layers[1].bias'?"
    );
    assert_eq!(
        message("[[model.layers]]\nkind = \"flatten\"\n[[model.layers]]\nkind = \"relu\"\nout = 1"),
        "run.toml:5: unknown key 'model.layers[2].out'; known here: kind, name"
    );
    assert_eq!(
        added("[optimizer]\nkind = \"sgd\"\nbetas = [0, 0]"),
        "run.toml:5: unknown key 'optimizer.betas'; known here: kind, lr, momentum, nesterov, weight_decay, decay_rank_1, \
         groups, ema_decay"
    );
}

#[test]
fn values_that_cannot_be_used_say_what_was_expected() {
    for (line, expected) in [
        ("[train]\nbatch = 0", "4: train.batch: expected a whole number of at least 1, got 0"),
        ("[train]\nepochs = \"ten\"", "4: train.epochs: expected a whole number of at least 1, got \"ten\""),
        ("[train]\nseed = -1", "4: train.seed: expected a whole number of at least 0, got -1"),
        ("[train]\nmicro_batch = 0", "4: train.micro_batch: expected a whole number of at least 1, or \"auto\", got 0"),
        ("[train]\nclip_norm = 0", "4: train.clip_norm: expected a finite number above 0, or \"none\", got 0"),
        (
            "[train]\ngradient_compression = \"f8\"",
            "4: train.gradient_compression: expected \"none\", \"f16\" or \"bf16\", got \"f8\"",
        ),
        ("[train]\nshuffle = \"no\"", "4: train.shuffle: expected true or false, got \"no\""),
        ("[train]\ndrop_last = 1", "4: train.drop_last: expected true or false, got 1"),
        (
            "[train]\nsplit = [0, 0]",
            "4: train.split: expected \"speed\", \"even\" or a list of weights that are not all 0, one a device, got [0, 0]",
        ),
        (
            "[optimizer]\nkind = \"adan\"",
            "4: optimizer.kind: expected \"adamw\", \"adam\", \"sgd\", \"rmsprop\", \"adagrad\", \"lion\" or \"lamb\", got \
             \"adan\"",
        ),
        ("[optimizer]\nlr = nan", "4: optimizer.lr: expected a finite number above 0, got NaN"),
        ("[optimizer]\nbetas = [0.9]", "4: optimizer.betas: expected two numbers of at least 0 and below 1, got [0.9]"),
        (
            "[schedule]\nkind = \"cosine\"\nfloor = 1.5",
            "5: schedule.floor: expected a number of at least 0 and below 1, got 1.5",
        ),
        (
            "[devices]\nmemory_limit = \"2GB\"",
            "4: devices.memory_limit: expected a size such as \"2GiB\" or \"512MiB\" or a number of bytes, or \"none\", \
             got \"2GB\"",
        ),
        ("[devices]\nreplicas = 0", "4: devices.replicas: expected a whole number from 1 to 64, got 0"),
        (
            "[data]\nscale = \"unit\"",
            "4: data.scale: expected \"none\", \"max\", \"standardize\" or \"standardize-channels\", or a number to \
             multiply by, got \"unit\"",
        ),
        (
            "[data]\nvalidation = 1.0",
            "4: data.validation: expected a fraction of at least 0 and below 1, or \"none\", got 1.0",
        ),
        (
            "[data]\nformat = \"json\"",
            "4: data.format: expected \"digits\", \"csv\", \"idx\", \"mnist\" or \"text\", got \"json\"",
        ),
        ("[data]\nformat = \"csv\"", "3: data.path is missing: the CSV file"),
        ("[data]\nformat = \"csv\"\npath = 3", "5: data.path: expected a string, got 3"),
        ("train = 3", "3: unknown key 'model.train'; known here: input, loss, blocks, layers"),
        ("[data", "3: unclosed table, expected `]`"),
        ("[train]\nbatch = 1\nbatch = 2", "5: duplicate key"),
    ] {
        assert_eq!(added(line), format!("run.toml:{expected}"), "{line}");
    }
}

#[test]
fn layers_that_cannot_be_read_say_which() {
    let layer = |layer: &str| message(&format!("[model]\nlayers = [\n\"flatten\",\n{layer}]"));
    assert_eq!(
        layer("{ kind = \"liner\", out = 3 }"),
        "run.toml:4: model.layers[2].kind: expected a layer kind (did you mean \"linear\"?), got \"liner\""
    );
    assert_eq!(
        layer("\"rleu\""),
        "run.toml:4: model.layers[2]: expected a layer kind (did you mean \"relu\"?), got \"rleu\""
    );
    assert_eq!(layer("\"linear\""), "run.toml:4: model.layers[2].out is missing: the number of outputs");
    assert_eq!(
        layer("{ kind = \"conv2d\", out = 3, kernel = [1, 2, 3] }"),
        "run.toml:4: model.layers[2].kernel: expected a whole number of at least 1, or [vertical, horizontal], got [1, 2, 3]"
    );
    assert_eq!(
        layer("{ kind = \"conv2d\", out = 3, kernel = 3, padding = \"valid\" }"),
        "run.toml:4: model.layers[2].padding: expected \"same\", a whole number, [vertical, horizontal] or [top, bottom, \
         left, right], got \"valid\""
    );
    assert_eq!(
        layer("{ kind = \"dropout\", probability = 1 }"),
        "run.toml:4: model.layers[2].probability: expected a number of at least 0 and below 1, got 1"
    );
    assert_eq!(
        layer("{ kind = \"elu\", alpha = inf }"),
        "run.toml:4: model.layers[2].alpha: expected a finite number, got inf"
    );
    assert_eq!(
        layer("{ kind = \"conv_transpose2d\", out = 3, kernel = 3, padding = \"same\" }"),
        "run.toml:4: model.layers[2].padding: expected a whole number, [vertical, horizontal] or [top, bottom, left, right], \
         got \"same\""
    );
    assert_eq!(layer("7"), "run.toml:4: model.layers[2]: expected a table, got 7");
    assert_eq!(message("[model]\nlayers = []"), "run.toml:1: model.layers: expected at least one layer, got none");
    assert_eq!(message(""), "run.toml:1: model.layers: expected at least one layer, got none");
}

#[test]
fn the_trainer_gets_the_settings() {
    let options =
        parse(&format!("{MINIMAL}[train]\nmicro_batch = 7\nclip_norm = 0.5\nsplit = \"even\"")).unwrap().train;
    assert_eq!(
        (options.micro_batch, options.clip_norm, options.split),
        (MicroBatchSize::Rows(7), Some(0.5), Split::Even)
    );
    assert_eq!(parse(MINIMAL).unwrap().train, TrainOptions::default());
    let policy = parse(&format!("{MINIMAL}[train]\ncheckpoint_every = 50\nkeep_best = 3")).unwrap().checkpoints;
    assert_eq!(policy, CheckpointPolicy { every: 50, keep_last: 2, keep_best: 3 });
}

#[test]
fn overrides_take_the_place_of_what_the_file_says() {
    let settings = ["train.epochs=3", "devices.adapters=0,2", "train.split=[1, 2]", "schedule.kind=cosine"];
    let config = set(&settings).unwrap();
    assert_eq!((config.train.epochs, config.devices.adapters.as_str()), (3, "0,2"));
    assert_eq!((config.train.split, config.train.schedule.decay), (Split::Weights(vec![1.0, 2.0]), Decay::Cosine));
    let flag = Override::flag("--replicas", "devices.replicas", 3);
    assert_eq!(RunConfig::default_demo(&[flag]).unwrap().devices.replicas, 3);
    assert_eq!(set(&["devices.adapters=1"]).unwrap().devices.adapters, "1");
    assert_eq!(set(&["devices.memory_limit=2GiB"]).unwrap().devices.memory_limit, Some(2 << 30));
}

#[test]
fn overrides_that_cannot_be_used_name_the_flag() {
    assert_eq!(
        set_message("train.epoch=3"),
        "--set train.epoch=3: unknown key 'train.epoch'; did you mean 'train.epochs'?"
    );
    assert_eq!(
        set_message("train.epochs=many"),
        "--set train.epochs=many: train.epochs: expected a whole number of at least 1, got \"many\""
    );
    assert_eq!(
        set_message("model.layers.1.out=3"),
        "--set model.layers.1.out=3: model.layers is not a table but [\"flatten\", a table]; set it as a whole"
    );
    assert_eq!(set_message("train"), "--set train: expected KEY=VALUE, such as train.epochs=3");
    assert_eq!(set_message("=3"), "--set =3: expected KEY=VALUE, such as train.epochs=3");
    assert_eq!(set_message("train=3"), "--set train=3: train: expected a table, got 3");
    let flag = Override::flag("--replicas", "devices.replicas", 0);
    let error = RunConfig::default_demo(&[flag]).unwrap_err().to_string();
    assert_eq!(error, "--replicas 0: devices.replicas: expected a whole number from 1 to 64, got 0");
}

#[test]
fn what_is_written_reads_as_the_same() {
    let everything = r#"
        [data]
        format = "csv"
        path = "a \"b\".csv"
        label = -2
        header = false
        delimiter = "\t"
        shape = [1, 8, 8]
        validation = "other.csv"
        scale = 0.1
        [model]
        input = [1, 8, 8]
        layers = [
            { kind = "conv2d", name = "stem", out = 8, kernel = [3, 5], stride = 2, padding = "same", dilation = [1, 1], bias = false },
            "gelu",
            { kind = "conv2d", out = 8, kernel = 1, padding = [1, 0, 2, 0], groups = 4 },
            { kind = "max_pool2d", kernel = 2, stride = 1, padding = [1, 0] },
            { kind = "avg_pool2d", kernel = 2, count_include_pad = false },
            { kind = "conv_transpose2d", out = 3, kernel = 3, stride = 2, padding = 1, output_padding = [1, 0] },
            { kind = "upsample", mode = "bilinear" },
            { kind = "upsample", size = [7, 9] },
            { kind = "leaky_relu", slope = 0.2 },
            { kind = "elu" },
            { kind = "adaptive_avg_pool2d", size = 2 },
            { kind = "reshape", shape = [4, 12] },
            { kind = "conv1d", out = 5, kernel = 3, padding = "same", dilation = 2 },
            { kind = "conv1d", out = 5, kernel = 3, padding = [1, 0] },
            "global_avg_pool",
            { kind = "dropout", probability = 0.1 },
            { kind = "embedding", vocabulary = 65, width = 12 },
            "positions",
            { kind = "layer_norm", bias = false },
            { kind = "self_attention", heads = 3, causal = true, rotary = 1e4 },
            { kind = "self_attention", heads = 2, bias = false },
            { kind = "rms_norm", epsilon = 1e-4 },
            { kind = "group_norm", groups = 2 },
            "batch_norm",
            { kind = "batch_norm", momentum = 0.25, epsilon = 1e-3, affine = false, group = 8 },
            { kind = "linear", out = 10 },
        ]
        [train]
        batch = 128
        micro_batch = 32
        clip_norm = 1
        shuffle = false
        split = [1, 0.5]
        seed = 9223372036854775807
        [optimizer]
        kind = "sgd"
        lr = 1e-2
        [schedule]
        kind = "cosine"
        floor = 0.1
        [devices]
        adapters = [0, "swift"]
        memory_limit = "3GiB"
        [output]
        dir = "out"
    "#;
    let idx =
        "[data]\nformat = \"idx\"\nimages = \"i\"\nlabels = \"l\"\nvalidation = { images = \"j\", labels = \"/m\" }\n";
    let mnist = "[data]\nformat = \"mnist\"\ndir = \"m\"\nscale = \"standardize\"\n";
    for text in [MINIMAL, everything, DEMO, &format!("{idx}{MINIMAL}"), &format!("{mnist}{MINIMAL}")] {
        let config = parse(text).unwrap();
        let written = config.to_toml();
        let again = RunConfig::parse(&written, "again.toml", Path::new("/elsewhere"), &[]);
        assert_eq!(again.unwrap_or_else(|e| panic!("{e}\n{written}")), config, "{written}");
    }
    let Source::Csv { path, .. } = parse(everything).unwrap().data.source else { panic!("a CSV file") };
    assert_eq!(path, std::path::absolute("/base/a \"b\".csv").unwrap());
}

#[test]
fn the_model_must_fit_the_data() {
    let digits = TensorType::f32([1, 8, 8]);
    let build = |text: &str, classes| {
        let model = parse(text).unwrap().model(&digits, &TensorType::u32([]), classes);
        model.map(|_| ()).map_err(|e| e.to_string())
    };
    assert_eq!(build(MINIMAL, Some(10)), Ok(()));
    assert_eq!(
        build(MINIMAL, Some(7)).unwrap_err(),
        "layer 2 (linear): expected [7] as its output, one logit a class of the data, got [10]"
    );
    assert_eq!(
        build("[model]\nlayers = [\"flatten\", { kind = \"linear\", out = 10 }, \"softmax\"]", Some(10)).unwrap_err(),
        "layer 3 (softmax): the cross-entropy loss takes logits and applies softmax itself; leave this layer out"
    );
    assert_eq!(
        build("[model]\ninput = [64]\nlayers = [{ kind = \"linear\", out = 10 }]", Some(10)).unwrap_err(),
        "model.input: expected samples of shape [64], the data's are [1, 8, 8]"
    );
    assert_eq!(
        build("[model]\nlayers = [{ kind = \"conv2d\", name = \"stem\", out = 4, kernel = 9 }]", None).unwrap_err(),
        "layer 1 (conv2d 'stem'): kernel 9×9 does not fit the padded input 8×8: got height×width 8×8 with padding [0, 0, \
         0, 0], expected at least 9×9"
    );
}

#[test]
fn the_examples_fit_their_data() {
    let demo = RunConfig::default_demo(&[]).unwrap();
    let loaded = demo.data.load(demo.train.seed, &demo.model.loss).unwrap();
    assert_eq!(loaded.train.len(), 1797 - 359);
    demo.task(&loaded.card).unwrap();
    let mnist = include_str!("../../examples/mnist.toml");
    parse(mnist).unwrap().model(&TensorType::f32([1, 28, 28]), &TensorType::u32([]), Some(10)).unwrap();
}

#[test]
fn models_beyond_any_use_are_refused_before_they_are_built() {
    let refused = |layers: &str| {
        let text = format!("[model]\ninput = [4, 4, 4]\nlayers = [{layers}]");
        let built = parse(&text).and_then(|c| c.model(&TensorType::f32([4, 4, 4]), &TensorType::u32([]), None));
        built.err().map(|error| error.to_string()).unwrap_or_default()
    };
    let nested =
        r#"{ kind = "repeat", times = 1000, layers = [{ kind = "repeat", times = 1000, layers = ["relu"] }] }"#;
    assert!(refused(nested).contains("expected at most 10000 layers in all, got 1000000"), "{}", refused(nested));
    let gru = r#"{ kind = "gru", hidden = 8, layers = 100000 }"#;
    assert!(refused(gru).contains("a whole number from 1 to 100, got 100000"), "{}", refused(gru));
    let wide = r#"{ kind = "conv_transpose2d", out = 4, kernel = 3, stride = 4294967296 }"#;
    assert!(refused(wide).contains("expected stride of at most 65535, got"), "{}", refused(wide));
    for kind in ["conv2d", "max_pool2d", "avg_pool2d"] {
        let out = if kind == "conv2d" { "out = 4, " } else { "" };
        // Whatever it says, it neither panics nor takes forever.
        refused(&format!("{{ kind = \"{kind}\", {out}kernel = 3, stride = 4294967296, padding = 2000000000 }}"));
    }
}
