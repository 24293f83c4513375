//! Which device leads. The update runs on one device, and all others wait for it, so it should be the one that updates fastest.
//! How fast a device updates is known once it has led; until then it is taken to be as much faster than the lead as it is in
//! computing gradients, and if that was wrong, the one before leads again.

use std::fmt;

use super::recent::Recent;

/// Another device leads only where its updates take less than this part of the lead's.
const FASTER: f64 = 0.8;
/// Part of a step that a change of the lead must save.
const WORTH: f64 = 0.02;

/// A change of the lead.
#[derive(Debug, Clone, PartialEq)]
pub struct Handover {
    /// Name of the device that led.
    pub from: String,
    /// Name of the one that leads from now on.
    pub to: String,
    /// Seconds that something took.
    pub before: f64,
    /// Seconds that it is expected to take.
    pub expected: f64,
    /// What that is.
    pub of: Timed,
}

/// What a change of the lead makes faster.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Timed {
    /// An update, weights handed to the others included.
    Update,
    /// A step, which the new lead alone may do sooner than all together.
    Step,
}

impl fmt::Display for Handover {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { from, to, before, expected, of } = self;
        let (before, expected) = (1e3 * before, 1e3 * expected);
        write!(f, "{to} applies the updates from now on: ")?;
        match of {
            Timed::Update => write!(f, "it should take {expected:.1} ms where {from} took {before:.1} ms"),
            Timed::Step => {
                write!(f, "alone it should take {expected:.1} ms for a batch, all together took {before:.1} ms")
            }
        }
    }
}

/// What is known of the devices as leads.
#[derive(Debug)]
pub(super) struct Leads {
    updates: Vec<Recent>,
    /// Devices that have not the memory for the optimizer's state.
    refused: Vec<bool>,
    /// Devices that were made the lead to do everything alone.
    soloists: Vec<bool>,
    /// The lead is new: drivers compile in its first update, so that is not measured.
    fresh: bool,
    /// Seconds that the last change took.
    cost: f64,
}

impl Leads {
    pub(super) fn new(devices: usize) -> Self {
        let (no, updates) = (vec![false; devices], vec![Recent::default(); devices]);
        Self { updates, refused: no.clone(), soloists: no, fresh: true, cost: 0.0 }
    }

    /// Notes that an update took `seconds` under `lead`, weights handed to the others included.
    pub(super) fn observe(&mut self, lead: usize, seconds: f64) {
        if !std::mem::take(&mut self.fresh) {
            self.updates[lead].add(seconds);
        }
    }

    /// Device `index` has not the memory to lead.
    pub(super) fn refuse(&mut self, index: usize) {
        self.refused[index] = true;
    }

    /// Another device leads; to make it so took `cost` seconds.
    pub(super) fn changed(&mut self, cost: f64) {
        self.fresh = true;
        self.cost = cost;
    }

    /// Device `index` was lost: another one may come in its place.
    pub(super) fn forget(&mut self, index: usize) {
        self.updates[index] = Recent::default();
        self.refused[index] = false;
        self.soloists[index] = false;
    }

    /// Whether device `index` may be made the lead to do everything alone. Once: what comes of it is then known.
    pub(super) fn may_solo(&self, index: usize) -> bool {
        !self.refused[index] && !self.soloists[index]
    }

    /// Device `index` is made the lead to do everything alone.
    pub(super) fn solo(&mut self, index: usize) {
        self.soloists[index] = true;
    }

    /// A device that should take over from `lead`, with the seconds that an update takes now and then. `each` has a device's
    /// seconds for a sample, as far as known, of those that work; a step takes `step` seconds; `steps` are left for the change
    /// to pay.
    pub(super) fn better(&self, lead: usize, each: &[Option<f64>], step: f64, steps: u64) -> Option<(usize, f64, f64)> {
        let (now, speed) = (self.updates[lead].median()?, each[lead]?);
        let expected = |&index: &usize| {
            let guess = now * each[index]? / speed;
            Some((index, self.updates[index].median().unwrap_or(guess)))
        };
        let others = (0..each.len()).filter(|&index| index != lead && !self.refused[index]);
        let (best, then) = others.filter_map(|index| expected(&index)).min_by(|a, b| a.1.total_cmp(&b.1))?;
        let saved = now - then;
        let worth = then < FASTER * now && saved > WORTH * step && saved * steps as f64 > self.cost;
        worth.then_some((best, now, then))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Device 0 leads and has taken 18 ms for updates.
    fn slow_lead() -> Leads {
        let mut leads = Leads::new(3);
        [0.5, 0.018, 0.018, 0.018].into_iter().for_each(|seconds| leads.observe(0, seconds));
        leads
    }

    const EACH: [Option<f64>; 3] = [Some(1e-3), Some(1e-4), None];

    #[test]
    fn a_device_that_computes_faster_is_tried() {
        let (device, now, then) = slow_lead().better(0, &EACH, 0.043, 500).unwrap();
        assert_eq!((device, now), (1, 0.018));
        assert!((then - 0.0018).abs() < 1e-9);
    }

    #[test]
    fn the_lead_stays_where_a_change_gains_little() {
        let leads = slow_lead();
        assert_eq!(leads.better(0, &EACH, 1.0, 500), None, "16 ms of a second");
        assert_eq!(leads.better(0, &[Some(1e-3), Some(9e-4), None], 0.043, 500), None);
        assert_eq!(leads.better(0, &[Some(1e-3), None, None], 0.043, 500), None);
        assert_eq!(Leads::new(2).better(0, &[Some(1.0), Some(0.1)], 1.0, 500), None, "nothing is known yet");
    }

    #[test]
    fn a_change_must_pay_in_the_steps_that_are_left() {
        let mut leads = slow_lead();
        leads.changed(0.1);
        assert_eq!(leads.better(0, &EACH, 0.043, 6), None);
        assert!(leads.better(0, &EACH, 0.043, 7).is_some());
    }

    #[test]
    fn a_device_that_updates_slower_than_it_computes_gives_the_lead_back() {
        let mut leads = slow_lead();
        leads.changed(0.0);
        [0.5, 0.03, 0.03, 0.03].into_iter().for_each(|seconds| leads.observe(1, seconds));
        assert_eq!(leads.better(1, &EACH, 0.055, 500).map(|(device, ..)| device), Some(0));
        leads.changed(0.0);
        (0..4).for_each(|_| leads.observe(0, 0.018));
        assert_eq!(leads.better(0, &EACH, 0.043, 500), None, "it is not tried again");
    }

    #[test]
    fn a_device_without_the_memory_is_not_asked_again() {
        let mut leads = slow_lead();
        leads.refuse(1);
        assert_eq!(leads.better(0, &EACH, 0.043, 500), None);
        leads.forget(1);
        assert!(leads.better(0, &EACH, 0.043, 500).is_some());
    }
}
