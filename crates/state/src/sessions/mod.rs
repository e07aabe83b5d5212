//! Sessions of schedulers: private copies of a snapshot, their changes, and the commit of what they decided.

pub(crate) mod assumption_requests;
mod commit;
pub(crate) mod commit_arbiter;
pub(crate) mod commit_judge;
pub(crate) mod commit_outcome;
pub(crate) mod confirm;
mod former_states;
pub(crate) mod hold;
pub(crate) mod opening;
pub(crate) mod placed_calls;
mod placement_count;
pub(crate) mod query;
pub(crate) mod registry;
mod session_entry;
pub(crate) mod status;
pub(crate) mod steps;
pub(crate) mod tombstones;
mod transaction;
