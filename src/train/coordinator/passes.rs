//! A batch's way over the devices: gradients and their sum, the update and its broadcast, forward passes.

use std::sync::Arc;

use super::Coordinator;
use crate::data::Batch;
use crate::optim::{NormOutcome, Update};
use crate::plan::Buffer;
use crate::train::fleet::Setback;
use crate::train::replica::{Event, Job};
use crate::train::rest::exchanges;
use crate::train::worker::{Shard, ShardReport, StepKey};

impl Coordinator {
    /// Rows of a batch of `samples` in a training step, by device: as the split says, but for a device that is measured.
    fn rows(&self, samples: usize) -> Vec<usize> {
        match self.probes.active() {
            Some(probe) if samples == self.splitter.batch() => self.splitter.lend(probe.device, probe.rows),
            _ => self.splitter.shards(samples),
        }
    }

    /// The devices that follow the updates: those with rows, the lead, and one that is being measured.
    fn followed(&self) -> Vec<usize> {
        let probed = self.probes.active().map(|probe| probe.device);
        let has_part = |&i: &usize| self.splitter.full()[i] > 0 || i == self.lead || probed == Some(i);
        self.fleet.live().filter(has_part).collect()
    }

    /// Computes the gradients of all shards and leaves their sum on the lead.
    pub(super) fn gradients(
        &mut self,
        batch: &Arc<Batch>,
        key: StepKey,
    ) -> std::result::Result<(Vec<usize>, Vec<Option<ShardReport>>), Setback> {
        let ticket = self.fleet.ticket();
        let counts = self.rows(batch.len());
        let shards = shards(batch, key, &counts);
        let participants: Vec<usize> = shards.iter().map(|(index, _)| *index).collect();
        // The lead alone needs no detour over the host: its sums are where the update reads them.
        let stream = exchanges(&counts, self.lead);
        for (index, shard) in shards {
            self.fleet.send(index, ticket, Job::Gradients { shard, stream });
        }
        self.reducer.begin(participants.len(), self.fleet.pool());
        let mut reports = vec![None; self.fleet.len()];
        let mut computing = participants.len();
        let mut summing = if stream { self.layout.buckets().len() } else { 0 };
        while computing > 0 || summing > 0 {
            let owing: Vec<usize> = participants.iter().copied().filter(|&p| reports[p].is_none()).collect();
            match self.fleet.next(ticket, &owing)? {
                (index, Event::Bucket { bucket, values }) => {
                    let contributor = participants.iter().position(|&p| p == index).expect("it was given rows");
                    for (bucket, values) in self.reducer.add(contributor, bucket, values, self.fleet.pool()) {
                        let buffer = Buffer::Gradient(bucket);
                        self.fleet.send(self.lead, ticket, Job::Write { buffer, values });
                        summing -= 1;
                    }
                }
                (index, Event::Shard(report)) => {
                    reports[index] = Some(report);
                    computing -= 1;
                }
                _ => {}
            }
        }
        Ok((counts, reports))
    }

    /// Updates the lead's weights and passes them on to the devices that need them.
    pub(super) fn update(&mut self, update: &Update) -> std::result::Result<NormOutcome, Setback> {
        let ticket = self.fleet.ticket();
        let followed = self.followed();
        for index in 0..self.stale.len() {
            self.stale[index] |= !followed.contains(&index);
        }
        let stream = followed != [self.lead];
        for values in std::mem::take(&mut self.broadcasting) {
            if let Ok(values) = Arc::try_unwrap(values) {
                self.fleet.pool().give(values);
            }
        }
        self.fleet.send(self.lead, ticket, Job::Update { update: *update, stream });
        loop {
            match self.fleet.next(ticket, &[self.lead]) {
                Ok((_, Event::Bucket { bucket, values })) => {
                    let values = Arc::new(values);
                    for &index in followed.iter().filter(|&&index| index != self.lead) {
                        let buffer = Buffer::Parameter(bucket);
                        self.fleet.send(index, ticket, Job::Write { buffer, values: values.clone() });
                    }
                    self.broadcasting.push(values);
                }
                // The lead hands out every bucket before it says this.
                Ok((_, Event::Updated(outcome))) => return Ok(outcome),
                Ok(_) => {}
                Err(Setback::Device(index)) if index != self.lead => {}
                Err(setback) => return Err(setback),
            }
        }
    }

    pub(super) fn try_evaluate(&mut self, batch: &Arc<Batch>, key: StepKey) -> std::result::Result<Vec<f64>, Setback> {
        let ticket = self.fleet.ticket();
        let shards = shards(batch, key, &self.splitter.shards(batch.len()));
        let mut waiting: Vec<usize> = shards.iter().map(|(index, _)| *index).collect();
        for (index, shard) in shards {
            self.fleet.send(index, ticket, Job::Evaluate { shard });
        }
        let mut reports = vec![None; self.fleet.len()];
        while !waiting.is_empty() {
            if let (index, Event::Shard(report)) = self.fleet.next(ticket, &waiting)? {
                reports[index] = Some(report);
                waiting.retain(|&w| w != index);
            }
        }
        Ok(summed(&reports))
    }
}

/// Sums of the devices' statistics, in replica order.
pub(super) fn summed(reports: &[Option<ShardReport>]) -> Vec<f64> {
    let mut sums: Vec<f64> = Vec::new();
    for report in reports.iter().flatten() {
        sums.resize(sums.len().max(report.statistics.len()), 0.0);
        sums.iter_mut().zip(&report.statistics).for_each(|(sum, s)| *sum += s);
    }
    sums
}

/// Contiguous row ranges of `counts` rows of a batch, by device.
fn shards(batch: &Arc<Batch>, key: StepKey, counts: &[usize]) -> Vec<(usize, Shard)> {
    let mut start = 0;
    let mut shards = Vec::new();
    for (index, &count) in counts.iter().enumerate() {
        if count > 0 {
            shards.push((index, Shard { batch: batch.clone(), rows: start..start + count, key, exact: false }));
        }
        start += count;
    }
    shards
}
