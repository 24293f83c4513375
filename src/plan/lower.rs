//! Graph → plan.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use super::slots::Slots;
use super::{Buffer, Dispatch, Layout, Plan, PlannedInput, PlannedOutput, View, accumulate};
use crate::error::{Error, Result};
use crate::graph::{Accumulator, Graph, ParameterId, Role, Running, Source};
use crate::kernel::{Kernel, Launch, Operand, Target};
use crate::op::ValueId;

impl Plan {
    /// Lowers `graph`, whose parameters stand as `layout` says, for `target`.
    ///
    /// # Errors
    /// When a kernel or a buffer does not fit the target's limits; the message names it and the limit.
    pub fn new(graph: &Graph, layout: Arc<Layout>, target: &Target) -> Result<Self> {
        layout.check(graph)?;
        let mut lowering = Lowering::new(graph, &layout, target);
        let needed = graph.needed();
        for node in (0..graph.nodes().len()).filter(|&n| needed[n]) {
            lowering.node(node)?;
        }
        for (index, input) in graph.inputs().iter().enumerate() {
            lowering.accumulate(input.value)?;
            target.check_binding(|| format!("input {}", graph.inputs()[index].name), lowering.bytes(input.value))?;
        }
        let carried: Vec<u64> = graph.carried_tensors().iter().map(|c| lowering.bytes(c.value)).collect();
        for (carried, &bytes) in graph.carried_tensors().iter().zip(&carried) {
            target.check_binding(|| carried.name.clone(), bytes)?;
        }
        let inputs = graph
            .inputs()
            .iter()
            .map(|i| PlannedInput {
                name: i.name.clone(),
                ty: graph.values()[i.value.index()].ty.clone(),
                constant: i.constant.clone(),
            })
            .collect::<Vec<_>>();
        let outputs = graph
            .outputs()
            .iter()
            .map(|(name, value)| PlannedOutput {
                name: name.clone(),
                ty: graph.values()[value.index()].ty.clone(),
                view: lowering.view(*value),
            })
            .collect();
        let statistics = graph.accumulators().iter().filter(|(a, _)| matches!(a, Accumulator::Statistic(_))).count();
        let Lowering { dispatches, slots, ready, .. } = lowering;
        let micro_batch =
            inputs.iter().find(|i| i.constant.is_none()).and_then(|i| i.ty.shape.dims().first().copied()).unwrap_or(1);
        let slots = slots.into_bytes();
        Ok(Self { micro_batch, inputs, slots, carried, layout, statistics, dispatches, outputs, ready })
    }
}

struct Lowering<'a> {
    graph: &'a Graph,
    layout: &'a Layout,
    target: &'a Target,
    /// For each value, the value whose memory it shares (itself, unless it is a view).
    roots: Vec<usize>,
    /// For each root, uses that are still to come.
    uses: Vec<usize>,
    /// For each root, its slot while it is alive.
    slot_of: Vec<Option<usize>>,
    slots: Slots,
    /// Where roots are that have no slot: those that are left in the sum that is all they are for.
    direct: HashMap<usize, View>,
    /// Sums that were written so far.
    written: HashSet<(Buffer, u64)>,
    /// For each value, the sums that it feeds and has not been added to.
    sums: HashMap<ValueId, Vec<Accumulator>>,
    dispatches: Vec<Dispatch>,
    ready: Vec<usize>,
}

impl<'a> Lowering<'a> {
    fn new(graph: &'a Graph, layout: &'a Layout, target: &'a Target) -> Self {
        let mut roots: Vec<usize> = (0..graph.values().len()).collect();
        let needed = graph.needed();
        let mut uses = vec![0; graph.values().len()];
        for (node, _) in graph.nodes().iter().zip(&needed).filter(|(_, needed)| **needed) {
            let shares = node.op.is_view() || node.op.is_in_place();
            if shares {
                roots[node.outputs[0].index()] = roots[node.inputs[0].index()];
            }
            if !node.op.is_view() {
                node.inputs.iter().for_each(|v| uses[roots[v.index()]] += 1);
            }
        }
        let mut sums: HashMap<ValueId, Vec<Accumulator>> = HashMap::new();
        for &(accumulator, value) in graph.accumulators() {
            uses[roots[value.index()]] += 1;
            sums.entry(value).or_default().push(accumulator);
        }
        // An output's memory is never given back.
        graph.outputs().iter().for_each(|(_, v)| uses[roots[v.index()]] += 1);
        Self {
            graph,
            layout,
            target,
            slot_of: vec![None; roots.len()],
            roots,
            uses,
            slots: Slots::default(),
            direct: HashMap::new(),
            written: HashSet::new(),
            sums,
            dispatches: Vec::new(),
            ready: vec![0; layout.buckets().len()],
        }
    }

    fn bytes(&self, value: ValueId) -> u64 {
        self.graph.values()[value.index()].ty.bytes() as u64
    }

    /// Where a value is. It must be alive.
    fn view(&self, value: ValueId) -> View {
        let root = self.roots[value.index()];
        let bytes = self.bytes(value);
        match self.graph.values()[root].source {
            Source::Input(index) => View { buffer: Buffer::Input(index), offset: 0, bytes },
            Source::Carried(index) => View { buffer: Buffer::Carried(index), offset: 0, bytes },
            Source::Parameter(parameter) => {
                let place = self.layout.place(parameter);
                View { buffer: Buffer::Parameter(place.bucket), offset: place.offset, bytes }
            }
            Source::Node { .. } => self.direct.get(&root).copied().unwrap_or_else(|| {
                let slot = self.slot_of[root].expect("a value is alive until its last use");
                View { buffer: Buffer::Slot(slot), offset: 0, bytes }
            }),
        }
    }

    fn node(&mut self, index: usize) -> Result<()> {
        let node = &self.graph.nodes()[index];
        if node.op.is_view() {
            return self.accumulate(node.outputs[0]);
        }
        let ty = |v: &ValueId| &self.graph.values()[v.index()].ty;
        let input_types: Vec<_> = node.inputs.iter().map(ty).collect();
        let output_types: Vec<_> = node.outputs.iter().map(ty).collect();
        let lowering = node.op.lower(&input_types, &output_types, self.target)?;
        let mut left = Vec::new();
        for output in &node.outputs {
            let bytes = self.bytes(*output);
            self.target.check_binding(|| format!("output of {} ({})", node.op.name(), node.scope), bytes)?;
            if let Some(sum) = self.left_in_sum(*output, &node.outputs, &lowering.launches) {
                self.direct.insert(output.index(), sum);
                left.push(sum);
            } else if !node.op.is_in_place() {
                self.slot_of[output.index()] = Some(self.slots.take(bytes));
            }
        }
        let mut scratch = Vec::new();
        for &bytes in &lowering.scratch {
            self.target.check_binding(|| format!("scratch of {} ({})", node.op.name(), node.scope), bytes)?;
            scratch.push(View { buffer: Buffer::Slot(self.slots.take(bytes)), offset: 0, bytes });
        }
        for mut launch in lowering.launches {
            let view = |operand: &Operand| match *operand {
                Operand::Input(i) => self.view(node.inputs[i]),
                Operand::Output(i) => self.view(node.outputs[i]),
                Operand::Scratch(i) => scratch[i],
            };
            let views: Vec<_> = launch.operands.iter().map(view).collect();
            // All that can add are told, so that it does not depend on the number of rows which kernels there are.
            if launch.adds && !left.is_empty() {
                launch.kernel = self.adding(launch.kernel, left.iter().find(|sum| views.contains(sum)).copied());
            }
            self.push(launch, views, &node.scope)?;
        }
        for view in scratch {
            if let Buffer::Slot(slot) = view.buffer {
                self.slots.give_back(slot);
            }
        }
        for &input in &node.inputs {
            self.release(input);
        }
        // A step's squared deviations are merged by its count and sum before these change.
        let mut outputs = node.outputs.clone();
        outputs.sort_by_key(|&output| !self.feeds(output, |accumulator| self.merged_by(accumulator).is_some()));
        for output in outputs {
            if let Some(&sum) = self.direct.get(&output.index()) {
                self.changes(sum);
            }
            self.accumulate(output)?;
            // An output that nothing reads is free at once.
            if self.uses[self.roots[output.index()]] == 0 {
                self.free(output);
            }
        }
        Ok(())
    }

    /// Adds `value` to the sums that it feeds.
    fn accumulate(&mut self, value: ValueId) -> Result<()> {
        for accumulator in self.sums.remove(&value).unwrap_or_default() {
            let bytes = self.bytes(value);
            let sum = self.sum(accumulator, bytes);
            match self.merged_by(accumulator) {
                Some((steps, mean)) => {
                    let (mean, steps) = (self.sum_beside(value, mean)?, self.sum_beside(value, steps)?);
                    let views = vec![self.view(value), mean.0, steps.0, sum, mean.1, steps.1];
                    let mut launch = accumulate::pool_kernel(bytes as usize / 4);
                    launch.kernel = self.adding(launch.kernel, Some(sum));
                    self.push(launch, views, "")?;
                }
                None => {
                    let views = vec![self.view(value), sum];
                    let mut launch = accumulate::kernel(bytes as usize / 4);
                    launch.kernel = self.adding(launch.kernel, Some(sum));
                    self.push(launch, views, "")?;
                }
            }
            self.changes(sum);
            self.release(value);
        }
        Ok(())
    }

    /// The sum that `output` is for and nothing else, where the kernels of its node can add to it: then they do so, and
    /// the value needs no memory of its own.
    fn left_in_sum(&mut self, output: ValueId, outputs: &[ValueId], launches: &[Launch]) -> Option<View> {
        let root = output.index();
        let value = *self.sums.keys().find(|value| self.roots[value.index()] == root)?;
        let [accumulator] = self.sums[&value][..] else { return None };
        let is_running = match accumulator {
            Accumulator::Gradient(parameter) => !self.layout.place(parameter).role.is_trained(),
            Accumulator::Statistic(_) => false,
        };
        let binds = |launch: &Launch, value: ValueId| {
            let index = outputs.iter().position(|&output| output == value);
            index.is_some_and(|index| launch.operands.contains(&Operand::Output(index)))
        };
        let alone = |launch: &Launch| outputs.iter().all(|&other| other == output || !binds(launch, other));
        let can = launches.iter().filter(|launch| binds(launch, output)).all(|launch| launch.adds && alone(launch));
        if self.uses[root] != 1 || is_running || !can {
            return None;
        }
        self.sums.remove(&value);
        Some(self.sum(accumulator, self.bytes(value)))
    }

    /// Where what feeds `accumulator`, of so many bytes, is added up.
    fn sum(&self, accumulator: Accumulator, bytes: u64) -> View {
        match accumulator {
            Accumulator::Gradient(parameter) => self.gradient(parameter),
            Accumulator::Statistic(i) => {
                View { buffer: Buffer::Statistics, offset: i as u64 * super::ALIGNMENT, bytes }
            }
        }
    }

    /// `kernel`, adding to `sum` where there is one: the first kernel that does so starts anew with each step.
    fn adding(&mut self, kernel: Kernel, sum: Option<View>) -> Kernel {
        let adds = match sum {
            None => 0,
            Some(sum) if self.written.insert((sum.buffer, sum.offset)) => 1,
            Some(_) => 2,
        };
        kernel.define("ADD").size("adds", adds)
    }

    /// Notes that what was lowered last changes `sum`.
    fn changes(&mut self, sum: View) {
        if let Buffer::Gradient(bucket) = sum.buffer {
            self.ready[bucket] = self.dispatches.len();
        }
    }

    /// Where a parameter's gradient, or the sum for a running statistic, is.
    fn gradient(&self, parameter: ParameterId) -> View {
        let place = self.layout.place(parameter);
        View { buffer: Buffer::Gradient(place.bucket), offset: place.offset, bytes: place.bytes }
    }

    /// What squared deviations that go to `accumulator` are merged by: the parameters of their count and their mean.
    fn merged_by(&self, accumulator: Accumulator) -> Option<(ParameterId, ParameterId)> {
        let Accumulator::Gradient(parameter) = accumulator else { return None };
        match self.layout.place(parameter).role {
            Role::Running(Running::Variance { steps, mean, .. }) => Some((steps, mean)),
            _ => None,
        }
    }

    /// Of what `parameter` sums up, what comes from the node of `value`, and the sum.
    fn sum_beside(&self, value: ValueId, parameter: ParameterId) -> Result<(View, View)> {
        let outputs = match self.graph.values()[value.index()].source {
            Source::Node { node, .. } => &self.graph.nodes()[node].outputs[..],
            _ => &[],
        };
        let sums = |output: &&ValueId| self.feeds(**output, |sum| sum == Accumulator::Gradient(parameter));
        let found = outputs.iter().find(sums).ok_or_else(|| {
            let name = &self.layout.place(parameter).name;
            Error::shape(format!("parameter {name}"), "expected its sums from the op that gives those of its variance")
        })?;
        Ok((self.view(*found), self.gradient(parameter)))
    }

    /// Whether `value` has yet to be added to a sum that `is` wanted.
    fn feeds(&self, value: ValueId, is: impl Fn(Accumulator) -> bool) -> bool {
        self.sums.get(&value).is_some_and(|sums| sums.iter().any(|&sum| is(sum)))
    }

    fn release(&mut self, value: ValueId) {
        let root = self.roots[value.index()];
        self.uses[root] -= 1;
        if self.uses[root] == 0 {
            self.free(value);
        }
    }

    fn free(&mut self, value: ValueId) {
        if let Some(slot) = self.slot_of[self.roots[value.index()]].take() {
            self.slots.give_back(slot);
        }
    }

    fn push(&mut self, launch: Launch, views: Vec<View>, scope: &str) -> Result<()> {
        self.dispatches.push(Dispatch::new(launch, views, scope, self.target)?);
        Ok(())
    }
}
