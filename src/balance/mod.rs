//! Who does what of a step: which rows each device computes, and which device updates. All of it follows from
//! measurements by one cost model and one planner; nothing here knows threads or devices, so it is tested on made-up
//! ones.
//!
//! A device's time for n rows is modelled as a + b·n: a least-squares line over its own timings, which fades with age.
//! What a step takes beside the longest of these times is its overhead, the update and the exchange: a median of the
//! last few steps, kept with the device that updated, and apart for shared steps and for those that one device did
//! alone. So the time of a step by any plan can be predicted:
//!
//! ```text
//! step = longest of a + b·n + overhead(who updates, shared or alone)
//! ```
//!
//! Every few steps the planner compares the plan with what each device could do as the one that updates: with rows for
//! which the last device finishes earliest, with all rows for itself, or with the rows as they are.
//!
//! A [`Profile`] holds what is known of one device. It comes and goes with the device: what is absent is `None` in the
//! views that the planner gets, and nothing has to be forgotten.

mod apportion;
mod costs;
mod measured;
mod pause;
mod plan;
mod planner;
mod probe;
mod profile;
mod reasons;

pub use plan::{Resplit, Split};
pub(crate) use planner::PAYBACK;
pub use planner::Planner;
pub(crate) use profile::Profile;
pub use reasons::{Handover, Idle, Sharing, Timed};
