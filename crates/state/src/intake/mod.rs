//! Intake of records: batches of sources, in order, and what a batch must hold to be taken.

pub(crate) mod batch;
pub(crate) mod batch_outcome;
mod full_sync_staging;
pub(crate) mod outcome_problems;
pub(crate) mod record_bytes;
pub(crate) mod record_rules;
pub(crate) mod source_forgetting;
pub(crate) mod source_memory;
mod source_progress;
pub(crate) mod source_status;
pub(crate) mod sources;
pub(crate) mod unreadable;
