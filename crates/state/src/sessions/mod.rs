//! Sessions of schedulers: private copies of a snapshot, their changes, and the commit of what they decided.

pub(crate) mod commit;
pub(crate) mod commit_judge;
pub(crate) mod commit_outcome;
pub(crate) mod confirm;
mod former_states;
pub(crate) mod hold;
pub(crate) mod opening;
pub(crate) mod placed_calls;
pub(crate) mod query;
pub(crate) mod registry;
pub(crate) mod status;
pub(crate) mod steps;
pub(crate) mod tombstones;
mod transaction;
