//! The order in which samples are visited. It depends on the seed and the epoch alone, so global batch i holds the same
//! samples on any number of devices and after any resume. Knows only counts, no samples.

use crate::error::{Error, Result};
use crate::rng::Stream;

/// Cuts each epoch's order of samples into global batches. No sample is padded, repeated or (without `drop_last`)
/// dropped: the last batch is short instead.
#[derive(Debug, Clone)]
pub struct Sampler {
    len: usize,
    batch: usize,
    seed: u64,
    shuffle: bool,
    drop_last: bool,
    /// The order of the epoch that was asked for last.
    order: Option<(u64, Vec<usize>)>,
}

impl Sampler {
    /// A sampler over `len` samples in global batches of `batch`.
    ///
    /// # Errors
    /// When `len` or `batch` is 0, or `drop_last` would drop everything (`batch` over `len`).
    pub fn new(len: usize, batch: usize, seed: u64, shuffle: bool, drop_last: bool) -> Result<Self> {
        if len == 0 {
            return Err(Error::invalid("data set", "it is empty: at least one sample is needed"));
        }
        if batch == 0 {
            return Err(Error::invalid("batch", "expected at least 1, got 0"));
        }
        if drop_last && batch > len {
            let message = format!("drop_last with a batch of {batch} over {len} samples would drop all of them");
            return Err(Error::invalid("batch", message));
        }
        Ok(Self { len, batch, seed, shuffle, drop_last, order: None })
    }

    /// Number of samples.
    #[expect(clippy::len_without_is_empty, reason = "never empty")]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Samples in a full global batch.
    pub fn batch(&self) -> usize {
        self.batch
    }

    /// Batches in one epoch, at least 1.
    pub fn steps_per_epoch(&self) -> usize {
        if self.drop_last { self.len / self.batch } else { self.len.div_ceil(self.batch) }
    }

    /// The samples of global batch `step` of `epoch` (both from 0), in order. The epoch's order is kept until another
    /// epoch is asked for.
    ///
    /// # Panics
    /// When `step` is not below [`Sampler::steps_per_epoch`]: a caller's bug.
    pub fn batch_indices(&mut self, epoch: u64, step: usize) -> Vec<usize> {
        let steps = self.steps_per_epoch();
        assert!(step < steps, "step {step} of an epoch of {steps}");
        if self.order.as_ref().is_none_or(|(cached, _)| *cached != epoch) {
            self.order = Some((epoch, self.epoch_order(epoch)));
        }
        let order = self.order.as_ref().map(|(_, order)| order.as_slice()).unwrap_or_default();
        let start = step * self.batch;
        order[start..self.len.min(start.saturating_add(self.batch))].to_vec()
    }

    /// The batches from global batch `step` of `epoch` on, epoch after epoch, without end; `step` may be
    /// [`Sampler::steps_per_epoch`] (the next epoch's first) or more.
    pub(crate) fn batches_from(mut self, epoch: u64, step: usize) -> impl Iterator<Item = Vec<usize>> + Send + 'static {
        let steps = self.steps_per_epoch();
        let mut position = (epoch + (step / steps) as u64, step % steps);
        std::iter::repeat_with(move || {
            let indices = self.batch_indices(position.0, position.1);
            position = if position.1 + 1 == steps { (position.0 + 1, 0) } else { (position.0, position.1 + 1) };
            indices
        })
    }

    /// All samples in the order of `epoch`, with those that `drop_last` leaves out at the end.
    fn epoch_order(&self, epoch: u64) -> Vec<usize> {
        let mut order: Vec<usize> = (0..self.len).collect();
        if self.shuffle {
            Stream::new(self.seed, &format!("epoch {epoch}")).shuffle(&mut order);
        }
        order
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn epoch(sampler: &mut Sampler, epoch: u64) -> Vec<Vec<usize>> {
        (0..sampler.steps_per_epoch()).map(|step| sampler.batch_indices(epoch, step)).collect()
    }

    proptest! {
        #[test]
        fn an_epoch_visits_each_sample_once(
            len in 1_usize..300, batch in 1_usize..320, seed: u64, e in 0_u64..9, shuffle: bool,
        ) {
            let mut sampler = Sampler::new(len, batch, seed, shuffle, false).unwrap();
            let batches = epoch(&mut sampler, e);
            let (last, full) = batches.split_last().unwrap();
            prop_assert!(full.iter().all(|b| b.len() == batch));
            prop_assert!(!last.is_empty() && last.len() <= batch);
            let mut visited = batches.concat();
            visited.sort_unstable();
            prop_assert_eq!(visited, (0..len).collect::<Vec<_>>());
        }
    }

    #[test]
    fn the_order_depends_on_seed_and_epoch_only() {
        let sampler = |seed, batch| Sampler::new(100, batch, seed, true, false).unwrap();
        assert_eq!(epoch(&mut sampler(1, 8), 3).concat(), epoch(&mut sampler(1, 33), 3).concat());
        assert_ne!(epoch(&mut sampler(1, 8), 3), epoch(&mut sampler(1, 8), 4));
        assert_ne!(epoch(&mut sampler(1, 8), 3), epoch(&mut sampler(2, 8), 3));
        let mut jumping = sampler(1, 8);
        let there = jumping.batch_indices(3, 5);
        jumping.batch_indices(0, 0);
        assert_eq!(jumping.batch_indices(3, 5), there);
        let mut plain = Sampler::new(5, 2, 1, false, false).unwrap();
        assert_eq!(epoch(&mut plain, 7), [vec![0, 1], vec![2, 3], vec![4]]);
    }

    #[test]
    fn the_batches_from_any_place_are_the_rest_of_the_run() {
        let mut sampler = Sampler::new(10, 4, 5, true, false).unwrap();
        let all: Vec<_> = (0..3).flat_map(|e| epoch(&mut sampler, e)).collect();
        for (place, from) in [((0, 0), 0), ((1, 2), 5), ((0, 3), 3), ((0, 4), 4)] {
            let rest: Vec<_> = sampler.clone().batches_from(place.0, place.1).take(9 - from).collect();
            assert_eq!(rest, all[from..]);
        }
    }

    #[test]
    fn drop_last_drops_the_short_batch_only() {
        let mut sampler = Sampler::new(10, 4, 0, true, true).unwrap();
        assert_eq!(epoch(&mut sampler, 0).iter().map(Vec::len).collect::<Vec<_>>(), [4, 4]);
        assert_eq!(Sampler::new(8, 4, 0, true, true).unwrap().steps_per_epoch(), 2);
        assert_eq!(epoch(&mut Sampler::new(3, 9, 0, true, false).unwrap(), 0)[0].len(), 3);
        assert_eq!(Sampler::new(3, usize::MAX, 0, true, false).unwrap().batch_indices(0, 0).len(), 3);
    }

    #[test]
    fn impossible_settings_are_refused() {
        let error = |len, batch, drop_last| Sampler::new(len, batch, 0, true, drop_last).unwrap_err().to_string();
        assert_eq!(error(5, 0, false), "batch: expected at least 1, got 0");
        assert_eq!(error(5, 6, true), "batch: drop_last with a batch of 6 over 5 samples would drop all of them");
        assert!(error(0, 1, false).contains("empty"));
    }
}
