//! Cross-check: the gradients of the same few samples, computed on all devices and compared. It finds a device that has
//! begun to compute wrongly in mid-run, which no driver reports.

use std::sync::Arc;

use super::coordinator::Coordinator;
use super::fleet::Setback;
use super::replica::{Event, Job};
use super::worker::{Shard, StepKey};
use crate::data::Batch;
use crate::error::{Error, Result};

/// Samples that are computed everywhere.
const ROWS: usize = 8;

/// Largest ‖a − b‖ / max(‖a‖, ‖b‖) between two devices' gradients that counts as rounding: float32 sums over thousands of
/// terms in different orders differ by about 1e-5.
const TOLERANCE: f64 = 1e-3;

impl Coordinator {
    /// Compares all devices' gradients of the first samples of `batch`. A device that differs from most others, where there
    /// are at least three, is taken out like one that failed.
    ///
    /// # Errors
    /// When devices differ and no majority tells which is right.
    pub(super) fn cross_check(&mut self, batch: &Arc<Batch>, key: StepKey) -> Result<()> {
        self.settle()?;
        let asked: Vec<usize> = self.fleet.live().collect();
        if asked.len() < 2 {
            return Ok(());
        }
        self.refresh(&asked)?;
        let shard = Shard { batch: batch.clone(), rows: 0..ROWS.min(batch.len()), key, exact: true };
        let idle: Vec<usize> = asked.iter().copied().filter(|&i| self.splitter().full()[i] == 0).collect();
        let ticket = self.fleet.ticket();
        for &index in &idle {
            self.fleet.send(index, ticket, Job::Prepare { rows: ROWS });
        }
        self.fleet.collect_slow(ticket, idle, |_, _| {})?;
        let Some(gradients) = self.gradients_everywhere(&asked, &shard)? else { return Ok(()) };
        let agrees = |a: usize, b: usize| difference(&gradients[a], &gradients[b]) <= TOLERANCE;
        let friends: Vec<usize> =
            (0..asked.len()).map(|a| (0..asked.len()).filter(|&b| agrees(a, b)).count()).collect();
        let wrong: Vec<usize> = (0..asked.len()).filter(|&a| 2 * friends[a] <= asked.len()).collect();
        if wrong.len() == asked.len() {
            let names: Vec<_> = asked.iter().map(|&i| self.labels()[i].as_str()).collect();
            return Err(Error::Training(format!(
                "{} disagree about the gradients of the same samples, and no majority tells which is right: one of them \
                 computes wrongly. Run 'everygpu adapters', and go on from the last checkpoint without the one you trust less",
                names.join(" and ")
            )));
        }
        for index in wrong.into_iter().map(|w| asked[w]) {
            let adapter = self.labels()[index].clone();
            let message = "computes other gradients than the other devices from the same samples".to_owned();
            if let Setback::Fatal(error) = self.fleet.fail(index, Error::Device { adapter, message }) {
                return Err(error);
            }
        }
        self.settle()
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

/// ‖a − b‖ / max(‖a‖, ‖b‖); infinite when either is not finite.
fn difference(a: &[f32], b: &[f32]) -> f64 {
    let norm = |values: &mut dyn Iterator<Item = f64>| values.map(|v| v * v).sum::<f64>().sqrt();
    let apart = norm(&mut a.iter().zip(b).map(|(x, y)| f64::from(*x) - f64::from(*y)));
    let scale = norm(&mut a.iter().map(|x| f64::from(*x))).max(norm(&mut b.iter().map(|x| f64::from(*x))));
    let relative = if scale > 0.0 { apart / scale } else { 0.0 };
    if relative.is_finite() { relative } else { f64::INFINITY }
}
