//! The corrected rule: exact accounts, every reason, and no way past a quota.
//!
//! A job that may use any of several cards is given one when it is admitted: the first of its list for which its minimum has
//! quota and, where its tasks are known, free capacity on nodes. From then on the amounts of the job are on that card.

mod advance;
mod card_choice;
mod card_claims;
mod filter;
mod gang;
mod guarantees;
mod holding_status;
mod job_entry;
mod job_minimum;
mod job_moves;
mod matching;
mod path_usage;
mod queue_path;
mod reservations;
mod scorer;
#[cfg(test)]
mod service_type_tests;
mod state;
mod task_need;
#[cfg(test)]
mod tests;
mod victims;
mod votes;

pub use card_claims::CardClaims;
pub use job_entry::{JobAmounts, JobContribution, JobEntry};
pub use state::CapacityState;
