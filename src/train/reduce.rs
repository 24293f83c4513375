//! Sums of the replicas' gradients: in replica order, never in order of arrival, so that a step's result does not depend on
//! timing. It takes sums, not means: the division by the step's weight is the update's.

use std::sync::Arc;

use super::replica::Pool;
use crate::trace;

/// The sums of one step, bucket by bucket.
#[derive(Debug)]
pub(super) struct Reducer {
    /// Reused from step to step.
    sums: Vec<Arc<Vec<f32>>>,
    /// For each bucket, what has arrived but not been added yet, by contributor.
    waiting: Vec<Vec<Option<Vec<f32>>>>,
    /// For each bucket, the number of contributors that have been added.
    added: Vec<usize>,
}

impl Reducer {
    /// A reducer for buckets of these many values.
    pub(super) fn new(lengths: &[usize]) -> Self {
        Self {
            sums: lengths.iter().map(|&len| Arc::new(vec![0.0; len])).collect(),
            waiting: lengths.iter().map(|_| Vec::new()).collect(),
            added: vec![0; lengths.len()],
        }
    }

    /// Starts a step with this many contributors; what an abandoned attempt left is forgotten.
    pub(super) fn begin(&mut self, contributors: usize, pool: &Pool) {
        for waiting in &mut self.waiting {
            waiting.drain(..).flatten().for_each(|values| pool.give(values));
            waiting.resize_with(contributors, || None);
        }
        self.added.fill(0);
    }

    /// Takes one contributor's bucket. The sum, once all contributors are in it.
    pub(super) fn add(
        &mut self,
        contributor: usize,
        bucket: usize,
        values: Vec<f32>,
        pool: &Pool,
    ) -> Option<Arc<Vec<f32>>> {
        let _span = trace::span(|| "host".to_owned(), "sum");
        let waiting = &mut self.waiting[bucket];
        waiting[contributor] = Some(values);
        while let Some(values) = waiting.get_mut(self.added[bucket]).and_then(Option::take) {
            // The lead has let go of last step's sum: it was used before the step ended. After a failure it may not have.
            let sum = Arc::make_mut(&mut self.sums[bucket]);
            if self.added[bucket] == 0 {
                sum.copy_from_slice(&values);
            } else {
                sum.iter_mut().zip(&values).for_each(|(s, v)| *s += v);
            }
            pool.give(values);
            self.added[bucket] += 1;
        }
        (self.added[bucket] == waiting.len()).then(|| self.sums[bucket].clone())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_order_of_arrival_does_not_matter() {
        // In replica order (1e8 − 1e8) + 1 is 1; in order of arrival it would be 0.
        let pool = Pool::default();
        let mut reducer = Reducer::new(&[1]);
        for order in [[0, 1, 2], [2, 0, 1], [2, 1, 0]] {
            reducer.begin(3, &pool);
            let values = [1e8_f32, -1e8, 1.0];
            let sums: Vec<_> = order.iter().filter_map(|&c| reducer.add(c, 0, vec![values[c]], &pool)).collect();
            assert_eq!(sums.len(), 1);
            assert_eq!(*sums[0], [1.0]);
        }
    }

    #[test]
    fn an_abandoned_step_leaves_nothing_behind() {
        let pool = Pool::default();
        let mut reducer = Reducer::new(&[2]);
        reducer.begin(2, &pool);
        assert!(reducer.add(1, 0, vec![5.0, 5.0], &pool).is_none());
        reducer.begin(1, &pool);
        assert_eq!(*reducer.add(0, 0, vec![1.0, 2.0], &pool).unwrap(), [1.0, 2.0]);
    }
}
