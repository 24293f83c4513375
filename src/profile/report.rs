//! What a profile holds, and how dispatches add up.

use indexmap::IndexMap;
use serde::Serialize;

use crate::plan::Dispatch;

/// What of a step a dispatch belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Part {
    /// Forward and backward over a micro-batch.
    Gradients,
    /// The optimizer.
    Update,
}

/// A dispatch and what it takes.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Timed {
    /// What it belongs to.
    pub part: Part,
    /// Its kernel's label.
    pub kernel: String,
    /// Its layer; empty where it belongs to none.
    pub layer: String,
    /// Workgroups.
    pub groups: [u32; 3],
    /// Median over the rounds.
    pub seconds: f64,
    /// Bytes of all that it binds, each view once, whether it is read, written or both.
    pub bytes: u64,
    /// Floating-point operations, where the op says.
    pub flops: Option<u64>,
}

impl Timed {
    pub(super) fn new(part: Part, dispatch: &Dispatch, seconds: f64) -> Self {
        Self {
            part,
            kernel: dispatch.kernel.label(),
            layer: dispatch.scope.clone(),
            groups: dispatch.groups,
            seconds,
            bytes: dispatch.bytes(),
            flops: dispatch.flops,
        }
    }
}

/// How fast work was done.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Rate {
    /// 10⁹ floating-point operations a second, over the dispatches whose ops tell them.
    pub gflops: Option<f64>,
    /// 10⁹ bytes a second.
    pub gbytes: f64,
}

impl Rate {
    /// Of dispatches together.
    pub fn of<'a>(dispatches: impl Iterator<Item = &'a Timed> + Clone) -> Self {
        let per_second = |amount: u64, seconds: f64| amount as f64 / seconds.max(SHORTEST) * 1e-9;
        let counted = dispatches.clone().filter_map(|timed| Some((timed.flops?, timed.seconds)));
        let flops = counted.reduce(|(flops, seconds), (more, also)| (flops + more, seconds + also));
        let all = dispatches.fold((0, 0.0), |(bytes, seconds), timed| (bytes + timed.bytes, seconds + timed.seconds));
        Self { gflops: flops.map(|(flops, seconds)| per_second(flops, seconds)), gbytes: per_second(all.0, all.1) }
    }
}

/// Seconds that no dispatch is shorter than: some clocks tick so seldom that they count none.
const SHORTEST: f64 = 1e-9;

/// What an adapter does at best.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Ceilings {
    /// 10⁹ floating-point operations a second of fused multiplications and additions in registers.
    pub gflops: f64,
    /// 10⁹ bytes a second, read and written, of a copy that is larger than most caches.
    pub gbytes: f64,
}

/// Dispatches that have something in common.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Group {
    /// What they have in common: the kernel or the layer.
    pub name: String,
    /// How many there are.
    pub dispatches: usize,
    /// The sum of their medians.
    pub seconds: f64,
    /// Its share in the sum over all dispatches of the profile.
    pub share: f64,
    /// What they reach together.
    #[serde(flatten)]
    pub rate: Rate,
}

impl Group {
    /// `dispatches` by what `key` gives, the groups that take longest first.
    pub(super) fn by<'a>(dispatches: &'a [Timed], key: impl Fn(&'a Timed) -> &'a str) -> Vec<Self> {
        let total: f64 = dispatches.iter().map(|timed| timed.seconds).sum();
        let mut groups: IndexMap<&str, Vec<&Timed>> = IndexMap::new();
        for timed in dispatches {
            groups.entry(key(timed)).or_default().push(timed);
        }
        let group = |(name, of): (&str, Vec<&Timed>)| {
            let seconds: f64 = of.iter().map(|timed| timed.seconds).sum();
            let rate = Rate::of(of.iter().copied());
            Self { name: name.to_owned(), dispatches: of.len(), seconds, share: seconds / total, rate }
        };
        let mut groups: Vec<Self> = groups.into_iter().map(group).collect();
        groups.sort_by(|a, b| b.seconds.total_cmp(&a.seconds));
        groups
    }
}

/// Where the time of a step goes. Times are medians over the rounds, in seconds.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Profile {
    /// The adapter's name and index.
    pub adapter: String,
    /// Its driver.
    pub driver: String,
    /// Rows of the micro-batch.
    pub micro_batch: usize,
    /// Repetitions.
    pub rounds: usize,
    /// How dispatches were timed: by the `device`'s clock, or by the `host`'s, which counts what it takes to submit
    /// each and to wait for it.
    pub timed_by: &'static str,
    /// What the adapter does at best.
    pub ceilings: Ceilings,
    /// A whole step by the host's clock: upload, forward, backward, update, and the wait for them.
    pub step: f64,
    /// The sum over the dispatches of forward and backward.
    pub gradients: f64,
    /// The sum over the dispatches of the update.
    pub update: f64,
    /// What of the step is in no dispatch. Below 0 where timing each by itself costs more than that.
    pub gaps: f64,
    /// Dispatches by kernel.
    pub by_kernel: Vec<Group>,
    /// Dispatches by layer. What belongs to none has an empty name.
    pub by_layer: Vec<Group>,
    /// Every dispatch, in the order in which they run.
    pub dispatches: Vec<Timed>,
}
