//! Tuning on real devices: what is reported was run, bytes are as predicted, limits end a sweep, and nothing is left
//! behind.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;

use everygpu::data::Dataset;
use everygpu::error::Result;
use everygpu::gpu::Adapter;
use everygpu::nn::Sequential;
use everygpu::optim::Optimizer;
use everygpu::rng::Stream;
use everygpu::train::{MicroBatchSize, Task, TrainOptions};
use everygpu::tune::{
    Bench, Bounds, End, Measurement, Outcome, Scratch, Sweep, TuneReport, Tuned, Tuning, plot, sweep, tune,
};

use crate::training::*;

fn task() -> Task {
    Task::classification(Sequential::new([1, 4, 4]).conv2d(2, 3, 1).relu().flatten().dropout(0.2).linear(3))
}

/// Quick: a few steps a size.
fn tuning() -> Tuning {
    Tuning {
        task: task(),
        options: TrainOptions { optimizer: Optimizer::adamw(), ..options(8) },
        data: Arc::new(classes(40, &[1, 4, 4], 3, 2)),
        adapters: adapters(),
        replicas: 1,
        memory_limit: None,
        snapshot: None,
        seconds: 0.02,
    }
}

fn quietly(tuning: &Tuning) -> TuneReport {
    tune(tuning, &mut |_| {}).expect("tuning works")
}

#[test]
fn what_is_returned_was_run_with_the_bytes_predicted() {
    let tuning = tuning();
    let mut told = Vec::new();
    let mut observe = |what: Tuned<'_>| {
        if let Tuned::Size(size) | Tuned::Again(_, size) = what {
            told.push(size.rows);
        }
    };
    let report = tune(&tuning, &mut observe).expect("tuning works");
    assert_eq!(report.adapters.len(), tuning.adapters.len());
    // Sizes beyond a knee are run, and told, twice.
    assert!(told.len() >= report.adapters.iter().map(|a| a.sweep.sizes.len()).sum::<usize>());
    for adapter in &report.adapters {
        let sweep = &adapter.sweep;
        assert!(sweep.at(sweep.knee.expect("a size ran")).is_some(), "the knee ran");
        assert!(sweep.at(report.advice.micro_batch).is_some(), "the micro-batch ran everywhere");
        for size in &sweep.sizes {
            let measured = size.ran().unwrap_or_else(|| panic!("{}: {size:?}", adapter.label));
            assert_eq!(size.predicted_bytes, Some(measured.allocated_bytes), "{}: {} rows", adapter.label, size.rows);
            assert!(measured.steps > 0 && measured.seconds_per_step > 0.0);
        }
    }
    let noise = report.noise.as_ref().expect("40 samples are enough");
    assert!(noise.initial_weights && noise.trace > 0.0, "{noise:?}");
    let json = serde_json::to_value(&report).expect("it can be serialised");
    assert_eq!(json["adapters"][0]["sizes"][0]["outcome"], "ran");
    assert!(plot(&report).ends_with("</svg>\n"));
}

#[test]
fn the_sweep_leaves_no_trace_in_weights_and_moments() {
    let data: Arc<dyn Dataset> = tuning().data;
    for optimizer in [Optimizer::adamw(), Optimizer::sgd(0.9)] {
        let options = TrainOptions { optimizer, ..options(8) };
        let mut trainer = trainer_on(&devices(1), &task(), &options);
        train(&mut trainer, &data, 3);
        let before = trainer.snapshot().expect("the device works");
        let bits = |snapshot: &everygpu::checkpoint::Snapshot| -> Vec<Vec<u8>> {
            snapshot.weights.iter().chain(&snapshot.optimizer).map(|(_, t)| t.bytes().to_vec()).collect()
        };
        let tuning = Tuning { options, snapshot: Some(before.clone()), ..tuning() };
        let report = quietly(&tuning);
        assert!(!report.noise.expect("40 samples are enough").initial_weights);
        assert_eq!(bits(&trainer.snapshot().expect("the device works")), bits(&before));

        // On the devices of the sweep itself: weights as given, moments zero, after every size.
        for adapter in &tuning.adapters {
            let mut scratch = tuning.scratch(adapter).expect("it opens");
            let state = scratch.state().expect("the device works");
            assert!(state.iter().flatten().any(|byte| *byte != 0));
            for rows in [1, 8, 5] {
                scratch.measure(rows).expect("it runs");
                assert!(scratch.state().expect("the device works") == state, "{}: {rows} rows", adapter.label());
            }
        }
    }
}

/// A real device whose steps all take the same time, however many rows they have and however busy the machine is:
/// larger sizes always improve.
struct Steady(Scratch);

impl Bench for Steady {
    fn predict(&mut self, rows: usize) -> Result<u64> {
        self.0.predict(rows)
    }

    fn measure(&mut self, rows: usize) -> Result<Measurement> {
        let measured = self.0.measure(rows)?;
        Ok(Measurement { seconds_per_step: 1.0, samples_per_second: rows as f64, ..measured })
    }
}

/// Sweeps a steady device of `adapter`.
fn steady_sweep(tuning: &Tuning, adapter: &Adapter, memory: Option<u64>) -> Sweep {
    let memory_limit = memory;
    let scratch = Tuning { memory_limit, ..tuning.clone() }.scratch(adapter).expect("it opens");
    let bounds = Bounds { rows: tuning.data.len(), group: 1, memory, seconds: f64::INFINITY };
    sweep(&mut Steady(scratch), &bounds, &mut |_| {})
}

#[test]
fn the_memory_limit_ends_the_sweep() {
    let open = tuning();
    for adapter in &open.adapters {
        let one = || Tuning { adapters: vec![adapter.clone()], ..open.clone() };
        let mut scratch = one().scratch(adapter).expect("it opens");
        let mut predict = |rows| scratch.predict(rows).expect("it fits");
        for room in [1, 3, 4, 6] {
            let limit = predict(room);
            let sweep = steady_sweep(&one(), adapter, Some(limit));
            assert_eq!(sweep.end, End::Memory, "{room}: {sweep:?}");
            let over: Vec<_> = sweep.sizes.iter().filter(|s| s.ran().is_none()).collect();
            let told = |o: &Outcome| matches!(o, Outcome::Skipped { reason } if reason.contains("memory limit"));
            assert!(!over.is_empty() && over.iter().all(|s| s.rows > room && told(&s.outcome)), "{room}: {sweep:?}");
            let ran = sweep.sizes.iter().filter(|s| s.ran().is_some()).map(|s| s.rows).max();
            assert!(ran.is_some_and(|rows| rows <= room && 2 * rows > room), "{room}: {sweep:?}");
            assert!(sweep.sizes.iter().filter_map(|s| s.ran()).all(|m| m.allocated_bytes <= limit));
        }
        // By its own times, which may end it earlier.
        let limit = predict(3);
        let timed = quietly(&Tuning { memory_limit: Some(limit), ..one() }).adapters.remove(0).sweep;
        assert!(timed.sizes.iter().all(|s| s.rows <= 3 || s.ran().is_none()), "{timed:?}");
        assert!(timed.sizes.iter().filter_map(|s| s.ran()).all(|m| m.allocated_bytes <= limit), "{timed:?}");
        let message = tune(&Tuning { memory_limit: Some(100), ..one() }, &mut |_| {}).unwrap_err().to_string();
        assert!(
            message.contains("no adapter can run a single sample") && message.contains("out of memory"),
            "{message}"
        );
    }
}

/// The size that the sweep takes at a memory limit trains under that limit, and as one piece.
#[test]
fn what_is_taken_at_a_memory_limit_trains_within_it() {
    let free = Tuning { seconds: 0.001, ..tuning() };
    let mut stream = Stream::new(7, "limits");
    for adapter in &free.adapters {
        let one = |memory_limit| Tuning { adapters: vec![adapter.clone()], memory_limit, ..free.clone() };
        let (least, most) = {
            let mut scratch = one(None).scratch(adapter).expect("it opens");
            (scratch.predict(1).expect("it fits"), scratch.predict(40).expect("it fits"))
        };
        let layout = layout(&task(), adapter.target().largest_binding());
        for _ in 0..10 {
            let limit = least + stream.below(most - least);
            let mut scratch = one(Some(limit)).scratch(adapter).expect("it opens");
            let bounds = Bounds { rows: 40, group: 1, memory: Some(limit), seconds: f64::INFINITY };
            let rows = sweep(&mut scratch, &bounds, &mut |_| {}).knee.expect("a single row fits");
            drop(scratch);
            let options = TrainOptions { batch: rows, micro_batch: MicroBatchSize::Rows(rows), ..free.options.clone() };
            let device = open(adapter, Some(limit));
            let trainer = trainer_with(&[device], &task(), &options, &layout, |_, worker| Box::new(worker));
            let mut trainer = trainer.unwrap_or_else(|error| panic!("{limit} bytes, {rows} rows: {error}"));
            train(&mut trainer, &free.data, 1);
            assert_eq!(trainer.coordinator().micro_batches(), [rows], "{} with {limit} bytes", adapter.label());
        }
    }
}

#[test]
fn the_data_set_ends_the_sweep_and_too_little_has_no_noise_scale() {
    let tuning = Tuning { data: Arc::new(classes(3, &[1, 4, 4], 3, 2)), ..tuning() };
    for adapter in &tuning.adapters {
        let sweep = steady_sweep(&tuning, adapter, None);
        let sizes: Vec<_> = sweep.sizes.iter().map(|s| s.rows).collect();
        assert_eq!((sweep.end, sizes), (End::Data, vec![1, 2, 3]));
    }
    let report = quietly(&tuning);
    assert!(report.adapters.iter().flat_map(|adapter| &adapter.sweep.sizes).all(|size| size.rows <= 3));
    assert_eq!((report.noise, report.advice.batch), (None, 1));
}

#[test]
fn replicas_pay_for_their_exchange() {
    let one = Tuning { adapters: adapters()[..1].to_vec(), ..tuning() };
    let two = Tuning { replicas: 2, ..one.clone() };
    let report = quietly(&two);
    let knee = report.adapters[0].sweep.knee.expect("it ran");
    assert!(report.advice.reasons[0].contains(&(2 * knee).to_string()), "{:?}", report.advice.reasons);
    let bytes = |tuning: &Tuning| tuning.scratch(&tuning.adapters[0]).unwrap().predict(4).unwrap();
    assert!(bytes(&two) > bytes(&one));
    assert!(tune(&Tuning { replicas: 0, ..one }, &mut |_| {}).is_err());
}

#[test]
fn other_weights_and_data_are_refused() {
    let mut trainer = trainer_on(&devices(1), &task(), &options(8));
    let snapshot = trainer.snapshot().expect("the device works");
    let other = Task::classification(Sequential::new([1, 4, 4]).flatten().linear(3));
    let error = tune(&Tuning { task: other, snapshot: Some(snapshot), ..tuning() }, &mut |_| {}).unwrap_err();
    assert!(error.to_string().contains("has no value of its shape"), "{error}");
    let data = Arc::new(classes(9, &[1, 5, 5], 3, 2));
    let error = tune(&Tuning { data, ..tuning() }, &mut |_| {}).unwrap_err().to_string();
    assert!(error.contains("the model takes samples of f32[1, 4, 4]"), "{error}");
}

const RUN: &str = "# My run.\n[model]\nlayers = [\"flatten\", { kind = \"linear\", out = 10 }] # small\n\n[train] # how\n\
                   batch = 32 # samples\nmicro_batch = \"auto\"  # to be tuned\n";

fn everygpu(arguments: &[&str], folder: &Path) -> (i32, String, String) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_everygpu"));
    let output = command.args(arguments).current_dir(folder).output().expect("the binary runs");
    let text = |bytes| String::from_utf8(bytes).expect("output is UTF-8");
    (output.status.code().expect("it was not killed"), text(output.stdout), text(output.stderr))
}

#[test]
fn the_command_applies_one_key_and_keeps_the_rest() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("run.toml");
    fs::write(&file, RUN).expect("it can be written");
    let quick = ["tune", "run.toml", "--seconds", "0.01", "--adapters", "0"];
    let (code, out, error) = everygpu(&[&quick[..], &["--svg", "plot.svg"]].concat(), folder.path());
    assert_eq!(code, 0, "{error}");
    for part in ["samples/s", "the knee is at", "gradient noise scale", "recommended micro-batch", "recommended batch"]
    {
        assert!(out.contains(part), "{part}\n{out}");
    }
    assert_eq!(fs::read_to_string(&file).expect("it is there"), RUN, "nothing is written without --apply");
    assert!(fs::read_to_string(folder.path().join("plot.svg")).expect("it was drawn").starts_with("<svg"));

    let (code, out, error) = everygpu(&[&quick[..], &["--apply", "--json"]].concat(), folder.path());
    assert_eq!(code, 0, "{error}");
    let report: serde_json::Value = serde_json::from_str(&out).expect("it is JSON and nothing else");
    let applied = RUN.replace("\"auto\"", &report["advice"]["micro_batch"].to_string());
    assert_eq!(fs::read_to_string(&file).expect("it is there"), applied);
    assert!(error.contains("wrote train.micro_batch = "), "{error}");
}

#[test]
fn the_command_fails_with_a_message() {
    let folder = tempfile::tempdir().expect("a folder");
    fs::write(folder.path().join("run.toml"), RUN).expect("it can be written");
    assert_eq!(everygpu(&["tune"], folder.path()).0, 2);
    assert_eq!(everygpu(&["tune", "run.toml", "--seconds", "0"], folder.path()).0, 2);
    for (arguments, expected) in [
        (&["tune", "no.toml"][..], "error: no.toml: "),
        (&["tune", "run.toml", "--adapters", "99"], "error: unknown adapter '99'"),
        (&["tune", "run.toml", "--resume", "."], "there is no checkpoint"),
        (&["tune", "run.toml", "--adapters", "0", "--memory-limit", "1KiB"], "no adapter can run a single sample"),
    ] {
        let (code, _, error) = everygpu(arguments, folder.path());
        assert!(code == 1 && error.contains(expected), "{code} {error}");
    }
}
