//! `capacity-card`: quotas of card types per queue (Volcano 61a5f00e0, pkg/scheduler/plugins/capacity-card).

mod account;
mod accounts;
mod advance;
mod amounts;
pub mod annotations;
mod card_flow;
mod card_use;
mod cards;
mod check;
mod choices;
mod config;
mod corrected;
mod elsewhere;
mod filter;
mod gang;
mod go_format;
mod guarantees;
mod holding_status;
mod job_entry;
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
mod problems;
mod quota_accounts;
mod record_rules;
pub mod rejection;
mod repeated;
mod request;
mod reservations;
mod scorer;
mod state;
mod task_moves;
mod task_need;
mod task_request;
#[cfg(test)]
mod tests;
mod upstream_job;
mod victims;
mod votes;

pub use account::{QueueAccount, QueueShare};
pub use amounts::QuotaAmounts;
pub use cards::ClusterCards;
pub use check::{CardCheck, check_card};
pub use config::CapacityConfig;
pub use job_entry::{JobAmounts, JobContribution, JobEntry};
pub use limits::{CardQuota, QueueLimits};
pub use node_order::node_order;
pub(super) use plugin::DEF;
pub use problems::{CardRequestError, JobProblem};
pub use request::{TaskPod, task_request};
pub use state::{CapacityState, JobQuotaSummary, TaskEvent};
pub use task_need::{CardDemand, NeedContext, TaskNeed};
pub use task_request::TaskRequest;
pub use upstream_job::UpstreamJobAmounts;
pub use votes::QuotaVerdict;

/// Name of the plugin in a policy.
pub const PLUGIN: &str = "capacity-card";
