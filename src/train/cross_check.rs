//! Cross-check: the gradients of the same few samples, computed on all devices and compared. It finds a device that has
//! begun to compute wrongly in mid-run, which no driver reports.
//!
//! All devices compute the same sums: a device whose micro-batch would cut these samples in the middle of a group of batch norm
//! is made ready for them for as long as the check takes. A device that differs is asked once more, about other samples: where
//! a value is all but 0, rounding alone decides on which side of a kink it is, and that happens in one place, not in two.

use std::sync::Arc;

use super::coordinator::Coordinator;
use super::fleet::Setback;
use super::replica::{Event, Job};
use super::task::Task;
use super::worker::{Shard, StepKey};
use crate::data::Batch;
use crate::error::{Error, Result};

/// Samples that are computed everywhere.
const ROWS: usize = 8;

/// Largest ‖a − b‖ / max(‖a‖, ‖b‖) between two devices' gradients that counts as rounding: float32 sums over thousands of
/// terms in different orders differ by about 1e-5.
const TOLERANCE: f64 = 1e-3;

/// What devices are asked about, of `batch`: a few samples that count, and others of which the same is true, as far as there
/// are any. Each has the target of another sample, so that losses are large however well the network has learned: the gradient
/// of what it knows is nothing but rounding.
pub(super) fn questions(task: &Task, batch: &Batch) -> Result<Vec<Arc<Batch>>> {
    let rows = ROWS.min(batch.len());
    let mut questions = Vec::new();
    for end in (rows..=batch.len()).step_by(rows.max(1)) {
        let rows: Vec<usize> = (end - rows..end).collect();
        let targets: Vec<usize> = rows.iter().map(|&row| other_target(batch, row)).collect();
        let question = batch.paired(&rows, &targets)?;
        if task.weight_sum(&question) > 0.0 {
            questions.push(Arc::new(question));
        }
        if questions.len() == 2 {
            break;
        }
    }
    Ok(questions)
}

/// A sample of `batch` with another target than sample `row` has; `row` itself where all have the same.
fn other_target(batch: &Batch, row: usize) -> usize {
    let target = |row: usize| batch.targets.row_bytes(row..row + 1);
    let others = (1..batch.len()).map(|distance| (row + distance) % batch.len());
    others.into_iter().find(|&other| target(other) != target(row)).unwrap_or(row)
}

impl Coordinator {
    /// Compares all devices' gradients of the samples of `questions`. A device that differs from most others, where there are at
    /// least three, is taken out like one that failed; one that has not the memory for the samples is left out of the check.
    ///
    /// # Errors
    /// When devices differ and no majority tells which is right.
    pub(super) fn cross_check(&mut self, questions: &[Arc<Batch>], key: StepKey) -> Result<()> {
        self.settle()?;
        let [first, rest @ ..] = questions else { return Ok(()) };
        let live: Vec<usize> = self.fleet.live().collect();
        if live.len() < 2 {
            return Ok(());
        }
        self.refresh(&live)?;
        let (moved, mut asked): (Vec<_>, Vec<_>) =
            live.into_iter().partition(|&index| self.would_cut(index, first.len()));
        asked.extend(self.ready_for(&moved, first.len())?);
        asked.sort_unstable();
        let mut wrong = self.outvoted(&asked, first, key)?;
        if !wrong.is_empty() {
            let again = self.outvoted(&asked, rest.first().unwrap_or(first), key)?;
            wrong.retain(|index| again.contains(index));
        }
        self.back_to_their_rows(&moved)?;
        if !wrong.is_empty() && wrong.len() == asked.len() {
            let names: Vec<_> = asked.iter().map(|&i| self.labels()[i].as_str()).collect();
            return Err(Error::Training(format!(
                "{} disagree about the gradients of the same samples, and no majority tells which is right: one of them \
                 computes wrongly. Run 'everygpu adapters', and go on from the last checkpoint without the one you trust less",
                names.join(" and ")
            )));
        }
        for index in wrong {
            let adapter = self.labels()[index].clone();
            let message = "computes other gradients than the other devices from the same samples".to_owned();
            if let Setback::Fatal(error) = self.fleet.fail(index, Error::Device { adapter, message }) {
                return Err(error);
            }
        }
        Ok(())
    }
}

impl Coordinator {
    /// Those of the devices `asked` whose gradients of the samples of `batch` differ from those of half of them or more; none
    /// when a device fails over it.
    fn outvoted(&mut self, asked: &[usize], batch: &Arc<Batch>, key: StepKey) -> Result<Vec<usize>> {
        let shard = Shard { batch: batch.clone(), rows: 0..batch.len(), key, exact: true };
        let Some(gradients) = self.gradients_everywhere(asked, &shard)? else { return Ok(Vec::new()) };
        let friends = |a: &Vec<f32>| gradients.iter().filter(|b| agree(a, b)).count();
        let wrong = asked.iter().zip(&gradients).filter(|(_, own)| 2 * friends(own) <= asked.len());
        Ok(wrong.map(|(&index, _)| index).collect())
    }

    /// Whether device `index`, as it is ready for its own rows, would cut `rows` rows inside a group of batch norm.
    fn would_cut(&self, index: usize, rows: usize) -> bool {
        let size = self.micro_batches()[index];
        self.splitter().full()[index] == 0 || (size < rows && !size.is_multiple_of(self.splitter().group()))
    }

    /// Has those of the devices `moved` that have rows of their own make ready for these again.
    fn back_to_their_rows(&mut self, moved: &[usize]) -> Result<()> {
        let ticket = self.fleet.ticket();
        let own = self.splitter().full().to_vec();
        let back: Vec<usize> = moved.iter().copied().filter(|&i| own[i] > 0 && self.alive()[i]).collect();
        for &index in &back {
            self.fleet.send(index, ticket, Job::Prepare { rows: own[index], needed: true });
        }
        self.fleet.collect(ticket, back, |_, _| {})
    }

    /// Each device's gradients, all buckets of trained parameters in one; `None` when a device failed over it.
    fn gradients_everywhere(&mut self, asked: &[usize], shard: &Shard) -> Result<Option<Vec<Vec<f32>>>> {
        let ticket = self.fleet.ticket();
        for &index in asked {
            self.fleet.send(index, ticket, Job::Gradients { shard: shard.clone(), stream: true });
        }
        let buckets = self.layout().buckets().len();
        let mut gradients = vec![vec![Vec::new(); buckets]; asked.len()];
        let mut waiting = asked.to_vec();
        while !waiting.is_empty() {
            match self.fleet.next(ticket, &waiting) {
                Ok((index, Event::Bucket { bucket, values })) => {
                    let position = asked.iter().position(|&a| a == index).expect("it was asked");
                    gradients[position][bucket] = values;
                }
                // A device hands out every bucket before it says this.
                Ok((index, _)) => waiting.retain(|&w| w != index),
                Err(Setback::Device(_)) => return Ok(None),
                Err(Setback::Fatal(error)) => return Err(error),
            }
        }
        let trained = self.layout().trained_buckets();
        Ok(Some(gradients.into_iter().map(|buckets| buckets[..trained].concat()).collect()))
    }
}

/// Whether two devices' gradients are the same but for rounding: ‖a − b‖ ≤ [`TOLERANCE`] · max(‖a‖, ‖b‖). Of samples that are
/// too large for float32 no device has finite ones.
fn agree(a: &[f32], b: &[f32]) -> bool {
    let norm = |values: &mut dyn Iterator<Item = f64>| values.map(|v| v * v).sum::<f64>().sqrt();
    let size = |values: &[f32]| norm(&mut values.iter().map(|x| f64::from(*x)));
    let (a_size, b_size) = (size(a), size(b));
    if !a_size.is_finite() || !b_size.is_finite() {
        return a_size.is_finite() == b_size.is_finite();
    }
    let apart = norm(&mut a.iter().zip(b).map(|(x, y)| f64::from(*x) - f64::from(*y)));
    apart <= TOLERANCE * a_size.max(b_size)
}
