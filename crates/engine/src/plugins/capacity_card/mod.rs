//! `capacity-card`: quotas of card types per queue (Volcano 61a5f00e0, pkg/scheduler/plugins/capacity-card).

mod account_listing;
mod amounts;
pub mod annotations;
mod card_accounts;
mod card_rules;
mod cluster_cards;
mod config;
mod corrected;
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
mod service_types;
mod task_request;
mod upstream;

use account_listing::all_amounts;
use amounts::CARD_SEPARATOR;
pub use amounts::QuotaAmounts;
use annotations::{REQUEST, normalize_choice};
pub use card_accounts::CardAccounts;
use card_accounts::queue_unknown;
use card_rules::CardRules;
pub use card_rules::CardVotes;
pub use cluster_cards::ClusterCards;
pub use config::CapacityConfig;
pub use corrected::{CapacityState, CardClaims, JobAmounts, JobContribution, JobEntry};
use node_kinds::{CardSet, NodeKinds};
pub use node_order::node_order;
use node_order::rank_score;
pub(super) use plugin::DEF;
use plugin::apply_events;
pub use problems::CardRequestError;
pub use queue_account::QueueAccount;
use queue_account::fit_count;
pub use queue_limits::{CardQuota, QueueLimits};
pub use quota_verdict::QuotaVerdict;
use rejection::{QuotaComparison, QuotaDimension, QuotaRejection, insufficient};
use service_types::ServiceTypes;
pub use task_request::TaskRequest;
use task_request::{cards_milli, requested_milli};
pub use upstream::{QuotaRequester, TaskPod, UpstreamCapacityState, UpstreamJobAmounts, check_card, task_request};

/// Name of the plugin in a policy.
pub const PLUGIN: &str = "capacity-card";
