//! Trains a small network on the embedded digits, on every adapter of the machine:
//!
//! ```text
//! cargo run --release --example digits
//! ```

use std::sync::Arc;

use everygpu::prelude::*;

fn main() -> Result<()> {
    // Real handwritten digits, 8×8 pixels; a fifth is held out, the same share of every class.
    let (train, held_out) = split(&digits()?, 0.2, 0, true)?;
    // Scaled by what the training samples say, never by the held-out ones.
    let normalizer = Normalizer::fit(Normalization::Scale, &train)?;
    let train: Arc<dyn Dataset> = Arc::new(normalizer.apply(train)?);
    let held_out: Arc<dyn Dataset> = Arc::new(normalizer.apply(held_out)?);

    let model = Sequential::new([1, 8, 8]).flatten().linear(64).relu().linear(10);
    let adapters = Adapters::discover()?.select("auto")?;
    let options = TrainOptions {
        epochs: 20,
        batch: 64,
        optimizer: Optimizer::adamw(),
        schedule: Schedule::cosine(5e-3).with_warmup(20),
        ..TrainOptions::default()
    };
    let mut trainer = Trainer::builder(Task::classification(model), options).adapters(&adapters).start()?;

    let mut print = |progress: &Progress<'_>| {
        if let Progress::Epoch(epoch) = progress {
            let accuracy = epoch.validation.as_ref().and_then(|v| v.accuracy()).unwrap_or(f64::NAN);
            println!(
                "epoch {:2}  loss {:.4}  held-out accuracy {:5.2}%  {:.0} samples/s",
                epoch.epoch + 1,
                epoch.train.loss(),
                100.0 * accuracy,
                epoch.samples_per_second
            );
        }
        Flow::Continue
    };
    trainer.fit(&train, Some(&held_out), &mut print)?;

    let score = trainer.evaluate(&held_out)?;
    println!("held-out accuracy {:.2}%", 100.0 * score.accuracy().unwrap_or(f64::NAN));
    Ok(())
}
