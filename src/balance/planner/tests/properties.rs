//! The planner in made-up worlds.

use proptest::prelude::*;

use crate::balance::planner::*;

/// What is true of a device.
#[derive(Debug, Clone, Copy)]
struct True {
    fixed: f64,
    each: f64,
    update: f64,
}

/// Devices, what an exchange takes, and a planner that sees only measurements.
struct World {
    devices: Vec<True>,
    exchange: f64,
    batch: usize,
    planner: Planner,
    profiles: Vec<Profile>,
}

impl World {
    fn new(batch: usize, group: usize, devices: Vec<True>, exchange: f64) -> Self {
        let planner =
            Planner::new(&Split::Speed, batch, devices.len(), false).unwrap().in_groups(group).over_buckets(3);
        let profiles = vec![Profile::default(); devices.len()];
        Self { devices, exchange, batch, planner, profiles }
    }

    fn time(&self, device: usize, rows: usize) -> f64 {
        let True { fixed, each, .. } = self.devices[device];
        if rows == 0 { 0.0 } else { fixed + each * rows as f64 }
    }

    fn overhead(&self, plan: &Plan) -> f64 {
        self.devices[plan.lead()].update + if plan.is_shared() { self.exchange } else { 0.0 }
    }

    fn step(&self, plan: &Plan) -> f64 {
        let longest = plan.rows.iter().enumerate().map(|(device, &rows)| self.time(device, rows)).fold(0.0, f64::max);
        longest + self.overhead(plan)
    }

    /// Steps by the plan, then a look; whether it changed.
    fn go_on(&mut self) -> bool {
        let plan = self.planner.plan().clone();
        for _ in 0..5 {
            for (device, &rows) in plan.rows.iter().enumerate().filter(|(_, rows)| **rows > 0) {
                let seconds = self.time(device, rows);
                self.profiles[device].observe(rows, seconds);
            }
            let overhead = self.overhead(&plan);
            self.profiles[plan.lead()].observe_update(plan.is_shared(), self.devices[plan.lead()].update, overhead);
        }
        let view: Vec<_> = self.profiles.iter().map(Some).collect();
        let change = self.planner.better(&view, PAYBACK);
        let changed = change.is_some();
        change.map(|change| self.planner.adopt(change.plan));
        changed
    }

    /// The fastest step of all plans that are thought of.
    fn best(&self) -> f64 {
        let lines: Vec<_> = self.devices.iter().map(|d| Some((d.fixed, d.each))).collect();
        let equal = equal_finish(self.batch, self.planner.group, &lines);
        let plans = (0..self.devices.len()).flat_map(|owner| {
            let mut alone = vec![0; self.devices.len()];
            alone[owner] = self.batch;
            [alone, equal.clone()].map(|rows| Plan { rows, owners: vec![owner; 3] })
        });
        plans.map(|plan| self.step(&plan)).fold(f64::INFINITY, f64::min)
    }
}

/// Devices that update as much faster as they compute, with fixed times that are small beside a share of the batch.
fn devices() -> impl Strategy<Value = Vec<True>> {
    let device = (0.0_f64..0.02, 0.5_f64..4.0).prop_map(|(fixed, each)| (fixed, each * 1e-3));
    (proptest::collection::vec(device, 2..5), 0.0_f64..20.0).prop_map(|(devices, updates)| {
        let device = |(fixed, each): (f64, f64)| True { fixed: fixed * each * 100.0, each, update: updates * each };
        devices.into_iter().map(device).collect()
    })
}

proptest! {
    #[test]
    fn it_comes_to_the_best_plan_and_stays(devices in devices(), exchange in 0.0_f64..0.2, group in 1_usize..3) {
        let mut world = World::new(256, group, devices, exchange);
        let changes: Vec<bool> = (0..40).map(|_| world.go_on()).collect();
        let (reached, best) = (world.step(world.planner.plan()), world.best());
        prop_assert!(reached <= 1.05 * best, "{:?} takes {reached}, the best {best}", world.planner.plan());
        prop_assert!(changes[20..].iter().all(|changed| !changed), "{changes:?}");
    }

    #[test]
    fn a_change_costs_less_and_keeps_to_what_is_possible(
        devices in devices(),
        absent in proptest::collection::vec(any::<bool>(), 4),
        (batch, group) in (1_usize..200, 1_usize..40),
        (exchange, looks) in (0.0_f64..0.2, 0_usize..6),
    ) {
        let mut world = World::new(batch, group, devices, exchange);
        for _ in 0..looks {
            world.go_on();
        }
        let lead = world.planner.plan().lead();
        let view: Vec<_> =
            world.profiles.iter().enumerate().map(|(i, p)| (i == lead || !absent[i]).then_some(p)).collect();
        world.planner.remove_absent(&view);
        let before = world.planner.plan().clone();
        let plans = [Some(before.clone()), world.planner.better(&view, PAYBACK).map(|change| change.plan)];
        for plan in plans.iter().flatten() {
            prop_assert_eq!(plan.rows.iter().sum::<usize>(), batch);
            prop_assert!(keeps_groups(&plan.rows, group), "{:?}", plan);
            prop_assert!(view.iter().zip(&plan.rows).all(|(device, rows)| device.is_some() || *rows == 0), "{:?}", plan);
            prop_assert!(view[plan.lead()].is_some());
        }
        let costs = Costs::new(&view, lead);
        let [_, after] = &plans;
        prop_assert!(after.iter().all(|after| costs.step(after) < costs.step(&before)));
    }
}
