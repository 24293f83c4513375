//! What the terminal shows of a training: a bar for the epoch, a line for each finished one, a table at the end.

use everygpu::error::Result;
use everygpu::run::RunFolder;
use everygpu::train::{EpochRecord, Flow, Observer, Progress, StepRecord, Trainer};
use indicatif::{ProgressBar, ProgressStyle};

use super::say;

/// Passes what happens on to the run folder and shows it.
pub struct Report {
    folder: RunFolder,
    bar: ProgressBar,
    labels: Vec<String>,
    /// Rows and seconds of each device, over the whole training.
    work: Vec<(u64, f64)>,
    last_epoch: Option<EpochRecord>,
}

impl Report {
    /// Shows what starts now.
    pub fn new(trainer: &Trainer, folder: RunFolder, samples: usize) -> Self {
        let labels = trainer.coordinator().labels();
        // As the literature counts: no running statistics.
        let placed = trainer.coordinator().layout().parameters().iter().filter(|placed| placed.role.is_trained());
        let parameters: usize = placed.map(|placed| placed.shape.elements()).sum();
        say(format!("{parameters} parameters, {samples} training samples, {} device(s):", labels.len()));
        for (index, label) in labels.iter().enumerate() {
            say(format!(
                "  {label}{}",
                if index == trainer.coordinator().lead() { ", applies the updates" } else { "" }
            ));
        }
        let bar = ProgressBar::new(0);
        let style = ProgressStyle::with_template("{prefix} {wide_bar} {pos}/{len}  {msg}");
        bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
        let work = vec![(0, 0.0); labels.len()];
        Self { folder, bar, labels, work, last_epoch: None }
    }

    /// Takes the bar away and prints who did what.
    pub fn finish(self) -> RunFolder {
        self.bar.finish_and_clear();
        let total: u64 = self.work.iter().map(|(rows, _)| rows).sum();
        if total > 0 {
            say("");
            say(format!("{:<48} {:>10} {:>7} {:>14}", "device", "samples", "share", "samples/s busy"));
            for (label, (rows, seconds)) in self.labels.iter().zip(&self.work) {
                let share = 100.0 * *rows as f64 / total as f64;
                let speed = if *seconds > 0.0 { *rows as f64 / seconds } else { 0.0 };
                say(format!("{label:<48} {rows:>10} {share:>6.1}% {speed:>14.0}"));
            }
        }
        if let Some(accuracy) = self.last_epoch.and_then(|e| e.validation).and_then(|v| v.accuracy()) {
            say(format!("held-out accuracy: {:.2}%", 100.0 * accuracy));
        }
        self.folder
    }

    fn step(&mut self, record: &StepRecord) {
        for ((rows, seconds), (shard, busy)) in self.work.iter_mut().zip(record.shards.iter().zip(&record.busy)) {
            *rows += *shard as u64;
            *seconds += busy;
        }
        self.bar.set_length(record.steps_per_epoch);
        self.bar.set_position(record.step_in_epoch + 1);
        self.bar.set_prefix(format!("epoch {}", record.epoch + 1));
        let speed = record.samples as f64 / record.seconds.max(f64::MIN_POSITIVE);
        let split = joined(&record.shards);
        self.bar.set_message(format!("loss {:.4}  {speed:.0} samples/s  split {split}", record.loss));
        if let Some(why) = record.unapplied {
            self.say(&format!("step {}: {why}; the update was skipped", record.step));
        }
    }

    fn epoch(&mut self, record: &EpochRecord, trainer: &Trainer) {
        let mut line = format!("epoch {:>3}/{}  loss {:.4}", record.epoch + 1, record.epochs, record.train.loss());
        if let Some(validation) = &record.validation {
            line += &format!("  held-out loss {:.4}", validation.loss());
            if let Some(accuracy) = validation.accuracy() {
                line += &format!("  accuracy {:.2}%", 100.0 * accuracy);
            }
        }
        line +=
            &format!("  {:.0} samples/s  split {}", record.samples_per_second, joined(trainer.coordinator().split()));
        self.say(&line);
        self.last_epoch = Some(record.clone());
    }

    /// A line that stays, above the bar.
    fn say(&self, line: &str) {
        self.bar.suspend(|| say(line));
    }
}

/// Rows by device: `43+21`.
fn joined(shards: &[usize]) -> String {
    shards.iter().map(usize::to_string).collect::<Vec<_>>().join("+")
}

impl Observer for Report {
    fn observe(&mut self, progress: &Progress<'_>, trainer: &mut Trainer) -> Result<Flow> {
        // First what is to last: whoever reads of a checkpoint or a way back may count on it.
        let observed = self.folder.observe(progress, trainer);
        match progress {
            Progress::Step(record) => self.step(record),
            Progress::Epoch(record) => self.epoch(record, trainer),
            Progress::Lost(loss) => self.say(&loss.to_string()),
            Progress::Rejoined(label) => self.say(&format!("{label} is back and takes part again")),
            Progress::Idle(idle) => self.say(&idle.to_string()),
            Progress::Employed(label) => self.say(&format!("{label} gets samples again")),
            Progress::Led(handover) => self.say(&handover.to_string()),
            Progress::RolledBack(back) => self.say(&back.to_string()),
        }
        observed
    }
}
