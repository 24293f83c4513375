//! Sums of the replicas' gradients: in replica order, never in order of arrival, so that a step's result does not
//! depend on timing. It takes sums, not means: the division by the step's weight is the update's. Squared deviations,
//! for running variances, are merged by counts and means.

use std::ops::Range;
use std::sync::Arc;

use crate::fleet::Pool;
use crate::plan::{Layout, Placed, Role, Running};
use crate::trace;

/// The sums of one step, bucket by bucket.
#[derive(Debug)]
pub(super) struct Reducer {
    /// Reused from step to step.
    sums: Vec<Arc<Vec<f32>>>,
    /// The devices whose buckets are summed, in order.
    contributors: Vec<usize>,
    /// For each bucket, what has arrived but not been added yet, by contributor.
    waiting: Vec<Vec<Option<Vec<f32>>>>,
    /// For each bucket, the number of contributors that have been added.
    added: Vec<usize>,
    /// Buckets of a contributor while they are being added.
    adding: Vec<Vec<f32>>,
    /// The buckets of sums for running statistics, the last ones. A contributor's are added together.
    running: Range<usize>,
    /// The running variances.
    variances: Vec<Variance>,
}

/// Where the sums for a running variance are, and those beside it.
#[derive(Debug)]
struct Variance {
    /// Σ(x − mean)².
    squares: Place,
    /// Σ(x − r).
    shifts: Place,
    /// n.
    count: Place,
}

/// A parameter's bucket and range in it.
type Place = (usize, Range<usize>);

impl Variance {
    /// Makes Σ(x − mean)² over what is added, whose buckets begin with `first`, into that over what is summed, too
    /// (Chan, Golub and LeVeque, 1983).
    fn merge(&self, sums: &[Arc<Vec<f32>>], added: &mut [Vec<f32>], first: usize) {
        let (bucket, range) = &self.squares;
        for i in 0..range.len() {
            let of = |(bucket, range): &Place, i: usize| {
                let at = range.start + i;
                (f64::from(sums[*bucket][at]), f64::from(added[bucket - first][at]))
            };
            let (squares, shifts, (a, b)) = (of(&self.squares, i), of(&self.shifts, i), of(&self.count, 0));
            let apart = shifts.0 / a - shifts.1 / b;
            added[bucket - first][range.start + i] = (squares.0 + squares.1 + apart * apart * (a * b / (a + b))) as f32;
        }
    }
}

impl Reducer {
    /// A reducer for the buckets of `layout`.
    pub(super) fn new(layout: &Layout) -> Self {
        let lengths = || layout.buckets().iter().map(|&bytes| bytes as usize / 4);
        let place = |placed: &Placed| {
            let first = placed.offset as usize / 4;
            (placed.bucket, first..first + placed.bytes as usize / 4)
        };
        let variance = |placed: &Placed| match placed.role {
            Role::Running(Running::Variance { steps, mean, .. }) => {
                let [shifts, count] = [mean, steps].map(|parameter| place(layout.place(parameter)));
                Some(Variance { squares: place(placed), shifts, count })
            }
            _ => None,
        };
        Self {
            sums: lengths().map(|len| Arc::new(vec![0.0; len])).collect(),
            contributors: Vec::new(),
            waiting: lengths().map(|_| Vec::new()).collect(),
            added: lengths().map(|_| 0).collect(),
            adding: Vec::new(),
            running: layout.trained_buckets()..layout.buckets().len(),
            variances: layout.parameters().iter().filter_map(variance).collect(),
        }
    }

    /// Starts a step with these devices; what an abandoned attempt left is forgotten.
    pub(super) fn begin(&mut self, contributors: &[usize], pool: &Pool) {
        self.contributors.clear();
        self.contributors.extend_from_slice(contributors);
        for waiting in &mut self.waiting {
            waiting.drain(..).flatten().for_each(|values| pool.give(values));
            waiting.resize_with(contributors.len(), || None);
        }
        self.added.fill(0);
    }

    /// Takes a device's bucket. The buckets to which nothing more comes now.
    pub(super) fn add(&mut self, device: usize, bucket: usize, values: Vec<f32>, pool: &Pool) -> Range<usize> {
        let _span = trace::span(|| "host".to_owned(), "sum");
        let none = bucket..bucket;
        let Some(contributor) = self.contributors.iter().position(|&other| other == device) else { return none };
        self.waiting[bucket][contributor] = Some(values);
        let together = if self.running.contains(&bucket) { self.running.clone() } else { bucket..bucket + 1 };
        let next = |reducer: &Self| reducer.added[bucket];
        while together.clone().all(|b| self.waiting[b].get(next(self)).is_some_and(Option::is_some)) {
            let contributor = next(self);
            self.adding.extend(together.clone().filter_map(|b| self.waiting[b][contributor].take()));
            self.sum(together.clone(), pool);
        }
        if next(self) == self.waiting[bucket].len() { together } else { none }
    }

    /// The sum of a bucket that is complete.
    pub(super) fn sum_of(&self, bucket: usize) -> Arc<Vec<f32>> {
        self.sums[bucket].clone()
    }

    /// Adds a contributor's `buckets`.
    fn sum(&mut self, buckets: Range<usize>, pool: &Pool) {
        let first = self.added[buckets.start] == 0;
        let merges = buckets == self.running && !first;
        let variances = if merges { &self.variances[..] } else { &[] };
        variances.iter().for_each(|variance| variance.merge(&self.sums, &mut self.adding, buckets.start));
        for (bucket, values) in buckets.zip(self.adding.drain(..)) {
            // The owner has let go of last step's sum: it was used before the step ended. After a failure it may not
            // have.
            let sum = Arc::make_mut(&mut self.sums[bucket]);
            if first {
                sum.copy_from_slice(&values);
            } else {
                sum.iter_mut().zip(&values).for_each(|(s, v)| *s += v);
            }
            for (_, merged) in variances.iter().map(|variance| &variance.squares).filter(|(of, _)| *of == bucket) {
                sum[merged.clone()].copy_from_slice(&values[merged.clone()]);
            }
            pool.give(values);
            self.added[bucket] += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::graph::{Graph, Init};
    use crate::kernel::Target;

    /// A trained parameter of this many values.
    fn reducer(values: usize) -> Reducer {
        let mut graph = Graph::new();
        graph.parameter("w", [values], Init::Zeros).unwrap();
        Reducer::new(&Layout::new(&graph, &Target::default()).unwrap())
    }

    /// A bucket that begins with `values`.
    fn bucket(values: &[f32]) -> Vec<f32> {
        let mut bucket = values.to_vec();
        bucket.resize(64, 0.0);
        bucket
    }

    #[test]
    fn the_order_of_arrival_does_not_matter() {
        // In replica order (1e8 − 1e8) + 1 is 1; in order of arrival it would be 0.
        let pool = Pool::default();
        let mut reducer = reducer(1);
        for order in [[0, 1, 2], [2, 0, 1], [2, 1, 0]] {
            reducer.begin(&[1, 4, 6], &pool);
            let values = [1e8_f32, -1e8, 1.0];
            let complete: Vec<_> =
                order.iter().flat_map(|&c| reducer.add([1, 4, 6][c], 0, bucket(&[values[c]]), &pool)).collect();
            assert_eq!((complete, reducer.sum_of(0)), (vec![0], Arc::new(bucket(&[1.0]))));
        }
    }

    #[test]
    fn an_abandoned_step_leaves_nothing_behind() {
        let pool = Pool::default();
        let mut reducer = reducer(2);
        reducer.begin(&[0, 1], &pool);
        assert!(reducer.add(1, 0, bucket(&[5.0, 5.0]), &pool).is_empty());
        reducer.begin(&[0], &pool);
        assert_eq!(reducer.add(0, 0, bucket(&[1.0, 2.0]), &pool), 0..1);
        assert_eq!(*reducer.sum_of(0), bucket(&[1.0, 2.0]));
    }

    /// [0, 0] and [3, 3, 3, 3] have the squared deviations 0 and 0, together 12, from their mean 2; in buckets of their
    /// own.
    #[test]
    fn squared_deviations_are_merged_by_counts_and_means() {
        let mut graph = Graph::new();
        let (steps, _) = graph.running("steps", [1], Init::Zeros, Running::Steps).unwrap();
        let mean = Running::Mean { momentum: 0.1, steps };
        let (mean, _) = graph.running("mean", [1], Init::Zeros, mean).unwrap();
        graph.running("variance", [1], Init::Ones, Running::Variance { momentum: 0.1, steps, mean }).unwrap();
        let target = Target { max_binding: 256, ..Target::default() };
        let layout = Layout::new(&graph, &target).unwrap();
        let at: Vec<usize> = layout.parameters().iter().map(|placed| placed.bucket).collect();
        let mut reducer = Reducer::new(&layout);
        let pool = Pool::default();
        let of = [[2.0, 0.0, 0.0], [4.0, 12.0, 0.0]];
        for order in [[0, 1], [1, 0]] {
            reducer.begin(&[0, 1], &pool);
            let mut complete = 0..0;
            for (contributor, parameter) in order.iter().flat_map(|&c| [2, 0, 1].map(|p| (c, p))) {
                assert!(complete.is_empty());
                complete = reducer.add(contributor, at[parameter], bucket(&[of[contributor][parameter]]), &pool);
            }
            assert!(at.iter().all(|bucket| complete.contains(bucket)));
            assert_eq!([0, 1, 2].map(|parameter| reducer.sum_of(at[parameter])[0]), [6.0, 12.0, 12.0]);
        }
    }
}
