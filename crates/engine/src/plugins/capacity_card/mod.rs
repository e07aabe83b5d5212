//! `capacity-card`: quotas of card types per queue (Volcano 61a5f00e0, pkg/scheduler/plugins/capacity-card).

mod account_listing;
mod amounts;
pub mod annotations;
mod card_accounts;
mod card_rules;
mod cluster_cards;
mod config;
mod corrected;
mod json;
mod metrics;
mod node_kinds;
mod node_order;
mod plugin;
mod problems;
mod queue_account;
mod queue_limits;
mod quota_verdict;
mod record_rules;
pub mod rejection;
mod task_request;
mod upstream;

pub use amounts::QuotaAmounts;
pub use card_accounts::{CardAccounts, JobQuotaSummary, TaskEvent};
pub use cluster_cards::ClusterCards;
pub use config::CapacityConfig;
pub use corrected::{CapacityState, CardClaims, JobAmounts, JobContribution, JobEntry};
pub use node_order::node_order;
pub(super) use plugin::DEF;
pub use problems::{CardRequestError, JobProblem};
pub use queue_account::{QueueAccount, QueueShare};
pub use queue_limits::{CardQuota, QueueLimits};
pub use quota_verdict::QuotaVerdict;
pub use task_request::TaskRequest;
pub use upstream::{
    CardCheck, QuotaRequester, TaskPod, UpstreamCapacityState, UpstreamJobAmounts, check_card, task_request,
};

/// Name of the plugin in a policy.
pub const PLUGIN: &str = "capacity-card";
