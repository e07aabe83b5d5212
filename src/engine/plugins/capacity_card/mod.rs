//! `capacity-card`: quotas of card types per queue (Volcano 61a5f00e0, pkg/scheduler/plugins/capacity-card).

mod account;
mod alike;
pub mod annotations;
mod books;
mod cards;
mod carry;
mod check;
mod config;
mod corrected;
mod counts;
mod discovery;
mod entry;
mod filter;
mod flow;
mod job;
mod json;
mod kinds;
mod limits;
pub mod metrics;
mod need;
mod node_order;
mod number;
mod one_card;
mod order;
mod plugin;
pub mod refusal;
mod request;
mod reserved;
mod scorer;
mod state;
#[cfg(test)]
mod tests;
mod together;
mod victims;
mod votes;

pub use account::{Account, Share};
pub use cards::Cards;
pub use check::{Checked, check_card};
pub use config::Config;
pub use counts::Counts;
pub use discovery::{CardOnNode, NodeCards};
pub use entry::{Contribution, Figures, JobEntry};
pub use job::JobView;
pub use limits::{Limits, Quota};
pub use need::{Asks, Context, Demand, Need};
pub use node_order::node_order;
pub(super) use plugin::DEF;
pub use request::{Pod, RequestError, task_request};
pub use state::{CapacityState, JobFigures, Move};
pub use votes::Verdict;

/// Its name in a policy.
pub const PLUGIN: &str = "capacity-card";
