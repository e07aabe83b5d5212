//! `capacity-card`: quotas of card types per queue (Volcano 61a5f00e0, pkg/scheduler/plugins/capacity-card).

mod account;
mod accounts;
mod advance;
mod amounts;
pub mod annotations;
mod batch;
mod card_flow;
mod cards;
mod check;
mod choices;
mod config;
mod corrected;
mod filter;
mod gang;
mod go_format;
mod guarantees;
mod holding_status;
mod job_entry;
mod json;
mod least;
mod limits;
mod matching;
mod metrics;
mod node_kinds;
mod node_order;
mod one_card;
mod order;
mod packing;
mod pieces;
mod plugin;
mod quota_accounts;
mod record_rules;
pub mod rejection;
mod repeated;
mod request;
mod reservations;
mod scorer;
mod state;
mod task_need;
#[cfg(test)]
mod tests;
mod upstream_job;
mod victims;
mod votes;
mod weight;

pub use account::{QueueAccount, QueueShare};
pub use amounts::QuotaAmounts;
pub use cards::ClusterCards;
pub use check::{CardCheck, check_card};
pub use config::CapacityConfig;
pub use job_entry::{JobAmounts, JobContribution, JobEntry, JobProblem};
pub use limits::{CardQuota, QueueLimits};
pub use node_order::node_order;
pub(super) use plugin::DEF;
pub use request::{CardRequestError, TaskPod, task_request};
pub use state::{CapacityState, JobQuotaSummary, TaskEvent};
pub use task_need::{CardDemand, NeedContext, TaskNeed, TaskRequest};
pub use upstream_job::UpstreamJobAmounts;
pub use votes::QuotaVerdict;

/// Name of the plugin in a policy.
pub const PLUGIN: &str = "capacity-card";
