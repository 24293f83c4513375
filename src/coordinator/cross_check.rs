//! Cross-check: the gradients of the same few samples, computed on all devices and compared. It finds a device that has
//! begun to compute wrongly in mid-run, which no driver reports.
//!
//! All devices compute the same sums: a device whose micro-batch would cut these samples in the middle of a group of
//! batch norm is prepared for them for as long as the check takes. A device that differs is asked once more, about
//! other samples: where a value is all but 0, rounding alone decides on which side of a kink it is, and that happens in
//! one place, not in two.

use std::sync::Arc;

use super::Coordinator;
use crate::data::Batch;
use crate::error::{Error, Result};
use crate::fleet::{Event, Job, Shard, StepKey};

/// Largest ‖a − b‖ / max(‖a‖, ‖b‖) between two devices' gradients that counts as rounding: float32 sums over thousands
/// of terms in different orders differ by about 1e-5.
const TOLERANCE: f64 = 1e-3;

impl Coordinator {
    /// Compares all devices' gradients of the samples of `questions`. A device that differs from most others, where
    /// there are at least three, is taken out like one that failed; one that lacks the memory for the samples is left
    /// out of the check.
    ///
    /// # Errors
    /// When devices differ and no majority tells which is right.
    pub(crate) fn cross_check(&mut self, questions: &[Arc<Batch>], key: StepKey) -> Result<()> {
        self.settle()?;
        let [first, rest @ ..] = questions else { return Ok(()) };
        let here: Vec<usize> = self.fleet.here().collect();
        if here.len() < 2 {
            return Ok(());
        }
        self.refresh(&here)?;
        let (moved, mut asked): (Vec<_>, Vec<_>) =
            here.into_iter().partition(|&device| self.needs_preparing(device, first.len()));
        asked.extend(self.prepare_others(&moved, first.len())?);
        asked.sort_unstable();
        let mut wrong = self.outvoted(&asked, first, key)?;
        if !wrong.is_empty() {
            let again = self.outvoted(&asked, rest.first().unwrap_or(first), key)?;
            wrong.retain(|device| again.contains(device));
        }
        self.back_to_their_rows(&moved)?;
        if !wrong.is_empty() && wrong.len() == asked.len() {
            let names: Vec<_> = asked.iter().map(|&device| self.fleet.label(device)).collect();
            return Err(Error::Training(format!(
                "{} disagree about the gradients of the same samples, and no majority tells which is right: one of them \
                 computes wrongly. Run 'everygpu adapters', and go on from the last checkpoint without the one you trust less",
                names.join(" and ")
            )));
        }
        for device in wrong {
            let adapter = self.fleet.label(device).to_owned();
            let message = "computes other gradients than the other devices from the same samples".to_owned();
            self.fleet.fail(device, Error::Device { adapter, message })?;
        }
        Ok(())
    }

    /// Those of the devices `asked` whose gradients of the samples of `batch` differ from those of half of them or
    /// more; none when a device fails over it.
    fn outvoted(&mut self, asked: &[usize], batch: &Arc<Batch>, key: StepKey) -> Result<Vec<usize>> {
        let shard = Shard { batch: batch.clone(), rows: 0..batch.len(), key, weight: 0.0, exact: true };
        let Some(gradients) = self.gradients_everywhere(asked, &shard)? else { return Ok(Vec::new()) };
        let friends = |a: &Vec<f32>| gradients.iter().filter(|b| agree(a, b)).count();
        let wrong = asked.iter().zip(&gradients).filter(|(_, own)| 2 * friends(own) <= asked.len());
        Ok(wrong.map(|(&device, _)| device).collect())
    }

    /// Whether `device` has to be prepared for `rows` rows: it is prepared for none, having none of its own, or its
    /// micro-batches would cut a group of batch norm.
    fn needs_preparing(&self, device: usize, rows: usize) -> bool {
        let size = self.fleet.get(device).map_or(0, |present| present.micro_batch);
        self.planner.full()[device] == 0 || (size < rows && !size.is_multiple_of(self.planner.group()))
    }

    /// Has those of the devices `moved` that have rows of their own prepare for these again.
    fn back_to_their_rows(&mut self, moved: &[usize]) -> Result<()> {
        let own = self.planner.full();
        let back: Vec<usize> = moved.iter().copied().filter(|&device| own[device] > 0).collect();
        self.fleet.ask(&back, |device| Job::Prepare { rows: own[device], needed: true }).map(drop)
    }

    /// Each device's gradients, all buckets of trained parameters in one; `None` when a device failed over it.
    fn gradients_everywhere(&mut self, asked: &[usize], shard: &Shard) -> Result<Option<Vec<Vec<f32>>>> {
        let ticket = self.fleet.ticket();
        for &device in asked {
            self.fleet.send(device, ticket, Job::Gradients { shard: shard.clone(), stream: true });
        }
        let mut gradients = vec![vec![Vec::new(); self.layout.buckets().len()]; asked.len()];
        let mut waiting = asked.to_vec();
        while !waiting.is_empty() {
            let (device, event) = self.fleet.next(ticket, &waiting)?;
            match event {
                Some(Event::Bucket { bucket, values }) => {
                    if let Some(position) = asked.iter().position(|&other| other == device) {
                        gradients[position][bucket] = values;
                    }
                }
                // A device hands out every bucket before it says this.
                Some(_) => waiting.retain(|&other| other != device),
                None => return Ok(None),
            }
        }
        let trained = self.layout.trained_buckets();
        Ok(Some(gradients.into_iter().map(|buckets| buckets[..trained].concat()).collect()))
    }
}

/// Whether two devices' gradients are the same but for rounding: ‖a − b‖ ≤ [`TOLERANCE`] · max(‖a‖, ‖b‖). Of samples
/// that are too large for float32 no device has finite ones.
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
