//! Who does what of a step: which rows each device computes, and which device updates. All of it follows from measurements
//! by one cost model and one planner; nothing here knows threads or devices, so it is tested on made-up ones.
//!
//! A [`Profile`] holds what is known of one device. It comes and goes with the device: what is absent is `None` in the views
//! that the planner gets, and nothing has to be forgotten.

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
