//! Trains the embedded digits on every adapter at once, whatever their makers, and tells who did what:
//!
//! ```text
//! cargo run --release --example mixed_adapters
//! ```

use std::sync::Arc;

use everygpu::prelude::*;

fn main() -> Result<()> {
    let adapters = Adapters::discover()?;
    for adapter in adapters.iter() {
        let (kind, backend) = (adapter.kind().name(), adapter.backend());
        println!("{}: {kind}, {backend}, driver {}", adapter.label(), adapter.driver());
    }
    // Those that compute wrongly are left out; the trainer would do so, too.
    let (adapters, rejected) = usable(adapters.select("all")?)?;
    for (adapter, verdict) in &rejected {
        println!("{} is left out: {verdict}", adapter.label());
    }

    let (train, held_out) = split(&digits()?, 0.2, 0, true)?;
    let normalizer = Normalizer::fit(Normalization::Scale, &train)?;
    let train: Arc<dyn Dataset> = Arc::new(normalizer.apply(train)?);
    let held_out: Arc<dyn Dataset> = Arc::new(normalizer.apply(held_out)?);

    let model = Sequential::new([1, 8, 8]).flatten().linear(256).relu().linear(10);
    let options = TrainOptions {
        epochs: 20,
        batch: 256,
        schedule: Schedule::cosine(5e-3).with_warmup(10),
        ..TrainOptions::default()
    };
    let mut trainer = Trainer::builder(Task::classification(model), options).adapters(&adapters).start()?;

    // Rows that each device did, and the seconds it took for them.
    let mut done = vec![(0_usize, 0.0); adapters.len()];
    let mut observer = |progress: &Progress<'_>| {
        match progress {
            Progress::Step(step) => {
                for (device, (rows, seconds)) in done.iter_mut().enumerate() {
                    *rows += step.shards[device];
                    *seconds += step.busy[device];
                }
                if let Some(resplit) = &step.resplit {
                    println!("step {}: rows {:?} → {:?}", step.step, resplit.before, resplit.after);
                }
            }
            Progress::Lost(loss) => println!("{} stopped working: {}", loss.label, loss.error),
            _ => {}
        }
        Flow::Continue
    };
    let report = trainer.fit(&train, Some(&held_out), &mut observer)?;

    let score = trainer.evaluate(&held_out)?.accuracy().unwrap_or(f64::NAN);
    println!("{} steps, {:.2}% of the held-out digits right", report.steps, 100.0 * score);
    let coordinator = trainer.coordinator();
    let (split, alive) = (coordinator.split().to_vec(), coordinator.alive());
    let mut hashes = Vec::new();
    for (device, adapter) in adapters.iter().enumerate().filter(|(device, _)| alive[*device]) {
        let (rows, seconds) = done[device];
        let (label, share, hash) = (adapter.label(), split[device], trainer.weights_hash(device)?);
        println!(
            "{label}: {rows} rows, {:.0} rows/s while at work, now {share} of {} rows a batch, weights {hash:016x}",
            rows as f64 / f64::max(seconds, f64::MIN_POSITIVE),
            split.iter().sum::<usize>()
        );
        hashes.push(hash);
    }
    assert!(hashes.iter().all(|hash| *hash == hashes[0]), "weights differ between devices");
    println!("weights are equal, bit by bit, on all {} devices", hashes.len());
    Ok(())
}
