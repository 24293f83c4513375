//! Run files' optimizers, groups of parameters and schedules.

use std::path::Path;

use crate::config::RunConfig;
use crate::optim::{Decay, Group, Groups, Optimizer, Schedule, Span};

const MODEL: &str = "[model]\nlayers = [\"flatten\", { kind = \"linear\", out = 10 }]\n";

/// The run file with these lines, from line 3.
fn parse(lines: &str) -> Result<RunConfig, String> {
    RunConfig::parse(&format!("{MODEL}{lines}"), "run.toml", Path::new("/base"), &[]).map_err(|e| e.to_string())
}

fn message(lines: &str) -> String {
    parse(lines).expect_err(lines)
}

fn optimizer(lines: &str) -> Optimizer {
    parse(&format!("[optimizer]\n{lines}")).unwrap().train.optimizer
}

fn schedule(lines: &str) -> Schedule {
    parse(&format!("[optimizer]\nlr = 2.0\n[schedule]\n{lines}")).unwrap().train.schedule
}

#[test]
fn each_optimizer_has_its_defaults_and_takes_its_settings() {
    for (kind, lr, rule) in [
        ("sgd", 0.01, Optimizer::sgd(0.9)),
        ("adam", 0.001, Optimizer::adam()),
        ("adamw", 0.001, Optimizer::adamw()),
        ("rmsprop", 0.01, Optimizer::rmsprop()),
        ("adagrad", 0.01, Optimizer::adagrad()),
        ("lion", 1e-4, Optimizer::lion()),
        ("lamb", 0.001, Optimizer::lamb()),
    ] {
        let config = parse(&format!("[optimizer]\nkind = \"{kind}\"")).unwrap();
        assert_eq!((config.train.optimizer, config.train.schedule.base), (rule, lr), "{kind}");
    }
    for (lines, rule) in [
        (
            "kind = \"sgd\"\nmomentum = 0.5\nnesterov = true\nweight_decay = 0.1",
            Optimizer::Sgd { momentum: 0.5, nesterov: true, weight_decay: 0.1 },
        ),
        (
            "kind = \"adam\"\nbetas = [0.5, 0.6]\nepsilon = 0.1\nweight_decay = 0.2",
            Optimizer::Adam { beta1: 0.5, beta2: 0.6, epsilon: 0.1, weight_decay: 0.2 },
        ),
        (
            "kind = \"rmsprop\"\nalpha = 0.5\nepsilon = 0.1\nmomentum = 0.3\ncentered = true\nweight_decay = 0.2",
            Optimizer::RmsProp { alpha: 0.5, epsilon: 0.1, momentum: 0.3, centered: true, weight_decay: 0.2 },
        ),
        (
            "kind = \"adagrad\"\nlr_decay = 0.5\nepsilon = 0.1\ninitial_accumulator = 2\nweight_decay = 0.2",
            Optimizer::Adagrad { lr_decay: 0.5, epsilon: 0.1, initial_accumulator: 2.0, weight_decay: 0.2 },
        ),
        (
            "kind = \"lion\"\nbetas = [0.5, 0.6]\nweight_decay = 0.2",
            Optimizer::Lion { beta1: 0.5, beta2: 0.6, weight_decay: 0.2 },
        ),
        (
            "kind = \"lamb\"\nbetas = [0.5, 0.6]\nepsilon = 0.1\nclamp = [1, 2]\nweight_decay = 0.2",
            Optimizer::Lamb { beta1: 0.5, beta2: 0.6, epsilon: 0.1, clamp: [1.0, 2.0], weight_decay: 0.2 },
        ),
    ] {
        assert_eq!(optimizer(lines), rule);
    }
}

const GROUPS: &str = r#"
[optimizer]
ema_decay = 0.999
decay_rank_1 = true
[[optimizer.groups]]
match = "*.bias"
weight_decay = 0
[[optimizer.groups]]
match = "stem.*"
frozen = true
[[optimizer.groups]]
match = "head.*"
lr_scale = 10
"#;

#[test]
fn groups_are_read_in_their_order() {
    let options = parse(GROUPS).unwrap().train;
    let list = vec![
        Group { weight_decay: Some(0.0), ..Group::new("*.bias") },
        Group { frozen: true, ..Group::new("stem.*") },
        Group { lr_scale: 10.0, ..Group::new("head.*") },
    ];
    assert_eq!((options.groups, options.ema_decay), (Groups { decay_rank_1: true, list }, Some(0.999)));
}

#[test]
fn each_schedule_has_its_defaults_and_takes_its_settings() {
    let new = |decay| Schedule::new(2.0, decay);
    for (lines, expected) in [
        ("warmup = 3", Schedule::constant(2.0).with_warmup(3)),
        ("warmup = 0.05", Schedule { warmup: Span::Fraction(0.05), ..Schedule::constant(2.0) }),
        ("warmup = \"1.5 epochs\"", Schedule { warmup: Span::Epochs(1.5), ..Schedule::constant(2.0) }),
        ("kind = \"linear\"\nfloor = 0.1", Schedule { floor: 0.1, ..new(Decay::Linear) }),
        ("kind = \"cosine\"", new(Decay::Cosine)),
        (
            "kind = \"cosine-restarts\"\nperiod = 100",
            new(Decay::CosineRestarts { period: Span::Steps(100), factor: 1.0 }),
        ),
        (
            "kind = \"cosine-restarts\"\nperiod = 0.25\nfactor = 2\nfloor = 0.1",
            Schedule { floor: 0.1, ..new(Decay::CosineRestarts { period: Span::Fraction(0.25), factor: 2.0 }) },
        ),
        ("kind = \"step\"\nevery = \"30 epochs\"", new(Decay::Step { every: Span::Epochs(30.0), gamma: 0.1 })),
        ("kind = \"exponential\"\ngamma = 0.9", new(Decay::Exponential { every: Span::Epochs(1.0), gamma: 0.9 })),
        (
            "kind = \"exponential\"\ngamma = 0.9\nevery = 1",
            new(Decay::Exponential { every: Span::Steps(1), gamma: 0.9 }),
        ),
        ("kind = \"one-cycle\"", new(Decay::OneCycle { rise: 0.3, div: 25.0, final_div: 1e4 })),
        (
            "kind = \"one-cycle\"\nrise = 0.2\ndiv = 10\nfinal_div = 100",
            new(Decay::OneCycle { rise: 0.2, div: 10.0, final_div: 100.0 }),
        ),
        ("kind = \"plateau\"", new(Decay::Plateau { factor: 0.1, patience: 10, threshold: 1e-4 })),
        (
            "kind = \"plateau\"\nfactor = 0.5\npatience = 2\nthreshold = 0\nfloor = 0.01",
            Schedule { floor: 0.01, ..new(Decay::Plateau { factor: 0.5, patience: 2, threshold: 0.0 }) },
        ),
    ] {
        assert_eq!(schedule(lines), expected, "{lines}");
    }
}

#[test]
fn what_is_wrong_is_named() {
    let span = "steps as a whole number, a part of the run such as 0.05, or epochs such as \"2 epochs\"";
    for (lines, expected) in [
        ("[optimizer]\nkind = \"sgd\"\nmomentum = 0\nnesterov = true", {
            "5: optimizer.momentum: expected a number above 0 with nesterov, got 0".to_owned()
        }),
        ("[optimizer]\nkind = \"lamb\"\nclamp = [2, 1]", {
            "5: optimizer.clamp[2]: expected a finite number above the lower bound, got 1".to_owned()
        }),
        ("[optimizer]\nkind = \"sgd\"\nmomentum = 0.99999999999", {
            "5: optimizer.momentum: expected a number of at least 0 and below 1 in single precision, got 0.99999999999"
                .to_owned()
        }),
        ("[optimizer]\nepsilon = 1e-50", {
            "4: optimizer.epsilon: expected a finite number above 0 in single precision, got 1e-50".to_owned()
        }),
        ("[[optimizer.groups]]\nmatch = \"*\"\nlr_scale = 1e39", {
            "5: optimizer.groups[1].lr_scale: expected a finite number of at least 0 in single precision, got 1e39"
                .to_owned()
        }),
        ("[train]\nclip_norm = 1e300", {
            "4: train.clip_norm: expected a finite number above 0 in single precision, or \"none\", got 1e300"
                .to_owned()
        }),
        ("[optimizer]\nkind = \"lamb\"\nclamp = 2", {
            "5: optimizer.clamp: expected two finite numbers of at least 0, the lower one first, got 2".to_owned()
        }),
        ("[optimizer]\nkind = \"rmsprop\"\nbeta = 2", {
            "5: unknown key 'optimizer.beta'; known here: kind, lr, alpha, epsilon, momentum, centered, weight_decay, \
             decay_rank_1, groups, ema_decay"
                .to_owned()
        }),
        ("[optimizer]\nema_decay = 1", {
            "4: optimizer.ema_decay: expected a number of at least 0 and below 1, or \"none\", got 1".to_owned()
        }),
        ("[optimizer]\ngroups = \"*.bias\"", {
            "4: optimizer.groups: expected a list of tables, each with a match, got \"*.bias\"".to_owned()
        }),
        ("[[optimizer.groups]]\nfrozen = true", {
            "3: optimizer.groups[1].match is missing: the parameters' names, such as \"*.bias\"".to_owned()
        }),
        ("[[optimizer.groups]]\nmatch = \"a\"\n[[optimizer.groups]]\nmatch = \"b\"\nlr_scale = -1", {
            "7: optimizer.groups[2].lr_scale: expected a finite number of at least 0, got -1".to_owned()
        }),
        ("[[optimizer.groups]]\nmatch = \"a\"\nlr = 1", {
            "5: unknown key 'optimizer.groups[1].lr'; did you mean 'optimizer.groups[1].lr_scale'?".to_owned()
        }),
        ("[schedule]\nwarmup = -1", format!("4: schedule.warmup: expected {span}, got -1")),
        ("[schedule]\nwarmup = 1.5", format!("4: schedule.warmup: expected {span}, got 1.5")),
        ("[schedule]\nwarmup = \"2 days\"", format!("4: schedule.warmup: expected {span}, got \"2 days\"")),
        (
            "[schedule]\nkind = \"step\"\nevery = 0",
            format!("5: schedule.every: expected {span}, and more than 0, got 0"),
        ),
        (
            "[schedule]\nkind = \"step\"",
            "3: schedule.every is missing: how long the rate stays between two falls".into(),
        ),
        ("[schedule]\nkind = \"exponential\"", "3: schedule.gamma is missing: what the rate is multiplied by".into()),
        ("[schedule]\nkind = \"plateau\"\nfactor = 1", {
            "5: schedule.factor: expected a number above 0 and below 1, got 1".to_owned()
        }),
        ("[schedule]\nkind = \"one-cycle\"\nfloor = 0.1", {
            "5: unknown key 'schedule.floor'; known here: kind, warmup, rise, div, final_div".to_owned()
        }),
    ] {
        assert_eq!(message(lines), format!("run.toml:{expected}"), "{lines}");
    }
}

#[test]
fn what_is_written_reads_as_the_same() {
    let mut files = vec![GROUPS.to_owned()];
    for kind in ["sgd", "adam", "rmsprop", "adagrad", "lion", "lamb"] {
        files.push(format!("[optimizer]\nkind = \"{kind}\"\nweight_decay = 0.3"));
    }
    for lines in [
        "kind = \"linear\"\nwarmup = \"2 epochs\"\nfloor = 0.1",
        "kind = \"cosine-restarts\"\nperiod = 0.25\nfactor = 2",
        "kind = \"step\"\nevery = \"0.5 epochs\"",
        "kind = \"exponential\"\ngamma = 0.9",
        "kind = \"one-cycle\"\nwarmup = 0.1",
        "kind = \"plateau\"\nthreshold = 0.01",
    ] {
        files.push(format!("[schedule]\n{lines}"));
    }
    for lines in files {
        let config = parse(&lines).unwrap();
        let written = config.to_toml();
        let again = RunConfig::parse(&written, "again.toml", Path::new("/elsewhere"), &[]);
        assert_eq!(again.unwrap_or_else(|e| panic!("{e}\n{written}")), config, "{written}");
    }
    let plain = parse("").unwrap().to_toml();
    for line in ["decay_rank_1 = false\n", "groups = []\n", "ema_decay = \"none\"\n"] {
        assert!(plain.contains(line), "{plain}");
    }
}
