//! Decisions: total functions of a cluster state, a policy and a query.

mod admit;
mod ahead;
mod builtin_filters;
mod candidates;
mod class_scorers;
mod class_survey;
mod classes;
mod filter;
mod heap;
mod hook_inputs;
mod job_state;
mod not_evaluated;
mod order;
mod order_rank;
mod order_tasks;
mod parallelism;
mod peer_scorers;
mod place;
mod plugin_selection;
mod query;
mod queue_state;
mod reduce;
pub mod reduce_order;
pub mod reduce_victims;
mod rejections;
mod score;
mod score_pass;
#[cfg(test)]
pub(crate) mod tests;
mod top;
mod verdict_cache;
mod victims;

pub use admit::{AdmitQuery, AdmitSubject, AdmitVerdict, JobAdmitter, admit, admit_task};
pub use builtin_filters::{NODE_STATE, RESOURCE_FIT};
pub use filter::{filter, filter_with};
pub(crate) use heap::SchedulingHeap;
pub use job_state::JobState;
pub(crate) use job_state::{
    is_group_pipelined, is_group_ready, is_job_pipelined, is_job_ready, is_job_starving, job_objection,
};
pub use not_evaluated::{
    ConstraintSubject, NotEvaluated, UnevaluatedTask, not_evaluated_for_labels, not_evaluated_of_node_fields,
    not_evaluated_of_nodes, not_evaluated_of_policy, not_evaluated_of_tasks,
};
pub use order::{OrderQuery, OrderResult, order, order_key_meanings};
pub use order_rank::{OrderRank, PluginKeys};
pub use parallelism::Parallelism;
pub use place::{
    GANG, PlaceBlocker, PlaceGroup, PlaceQuery, PlaceResult, PlacedGroup, PluginStateOrigin, place, place_cancellable,
    place_in_cycle,
};
pub(crate) use place::{IdleChoice, NodeChoice, NodeChooser, NodeGradient, NodeRankings, PassingNodes};
pub use query::{
    FilterDetail, FilterVerdict, NodeQuery, QueryTask, RejectionGroup, ResourceFit, ScorePart, ScoreQuery, ScoreSheet,
    TaskResult, TaskResults,
};
pub use queue_state::{may_queue_reclaim, queue_overused};
pub use score::{score, score_with};
pub use verdict_cache::{VerdictCache, VerdictCacheUse, VerdictReuse};
pub(crate) use victims::ShuffleQuery;
pub(crate) use victims::tier_victims;
pub use victims::{LastRounds, VictimGroup, VictimVerdict, VictimVote, VictimsQuery, eviction_order, victims};
