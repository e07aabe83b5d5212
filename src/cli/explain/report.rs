//! What was found out about a job or a task: the object that `-o json` prints. Fields are added to it, never renamed.

use std::collections::BTreeMap;

use serde::Serialize;

use crate::cli::not_evaluated::UnevaluatedRow;

/// The whole explanation.
#[derive(Debug, Clone, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct ExplainReport {
    /// The answer in one sentence, and its kind.
    pub(super) verdict: ExplainVerdict,
    /// What was asked about.
    pub(super) subject: ExplainSubject,
    /// The state and the policy that all of it was read from.
    pub(super) metadata: ExplainMetadata,
    /// Its queue, if there is one of that name.
    pub(super) queue: Option<QueueReport>,
    /// Whether the job may be enqueued.
    pub(super) admission: Option<AdmissionReport>,
    /// Its place among those that wait.
    pub(super) order: Option<OrderReport>,
    /// Its waiting tasks, equal ones together.
    pub(super) task_classes: Vec<TaskClassReport>,
    /// Whether enough of its tasks find a place together.
    pub(super) gang: Option<GangReport>,
    /// Records that take part and whose newest version was refused.
    pub(super) invalid_records: Vec<InvalidRecord>,
    /// Constraints that this explanation does not take into account.
    pub(super) not_evaluated: Vec<UnevaluatedRow>,
    /// What limits this explanation, in sentences.
    pub(super) notes: Vec<String>,
}

/// The kinds of answers, in the order in which they are looked for: the first that applies is the verdict.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub(super) enum VerdictCode {
    /// It ended.
    Completed,
    /// Nothing of it waits.
    Running,
    /// The newest record of the job or the task was refused.
    RecordInvalid,
    /// There is no job of the name that its task gives.
    JobUnknown,
    /// There is no queue of its queue's name.
    QueueUnknown,
    /// The newest record of its queue was refused.
    QueueInvalid,
    /// Its queue takes no jobs.
    QueueClosed,
    /// No task of it is known, or fewer than it needs.
    TooFewTasks,
    /// Its tasks have scheduling gates.
    Gated,
    /// What it asks for cannot be judged.
    RequestInvalid,
    /// Its queue's quota.
    Quota,
    /// No node takes one of its tasks.
    NoNode,
    /// Nodes will take it when what is being released is gone.
    Releasing,
    /// Some of its tasks find a node, but not as many as must start together.
    Gang,
    /// Others are before it, and take what it needs.
    EarlierJobs,
    /// Nothing that is known here keeps it.
    #[default]
    Placeable,
}

/// The answer in one sentence.
#[derive(Debug, Clone, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct ExplainVerdict {
    pub(super) code: VerdictCode,
    /// True: some task of the subject waits.
    pub(super) waiting: bool,
    /// True: the subject cannot start, however many other tasks end: its request exceeds a whole quota, or every node.
    pub(super) impossible: bool,
    pub(super) summary: String,
    /// Changes that would let the subject start, most useful first.
    pub(super) hints: Vec<String>,
}

/// What was asked about.
#[derive(Debug, Clone, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct ExplainSubject {
    /// `job`, `task` or `tasks`.
    pub(super) kind: &'static str,
    pub(super) name: String,
    /// Of a task: its job.
    pub(super) job: String,
    pub(super) queue: String,
    /// Of the job, in lower case; empty: there is no job.
    pub(super) phase: String,
    /// Tasks that must start together.
    pub(super) min_member: u64,
    /// Tasks of the job.
    pub(super) tasks: u64,
    /// Those that wait for a node.
    pub(super) pending: u64,
    /// Of these, with a scheduling gate.
    pub(super) gated: u64,
    /// Those that have a node.
    pub(super) placed: u64,
    /// Those that wait for room that is being released on a node.
    pub(super) pipelined: u64,
    /// Those that ended, or are being deleted.
    pub(super) finished: u64,
    /// Of these, well.
    pub(super) succeeded: u64,
    /// Of these, badly.
    pub(super) failed: u64,
    /// Of these, being deleted.
    pub(super) terminating: u64,
    /// Nodes of those that have one, at most ten.
    pub(super) nodes: Vec<String>,
}

/// What all figures were read from.
#[derive(Debug, Clone, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct ExplainMetadata {
    pub(super) revision: u64,
    pub(super) policy: String,
    pub(super) policy_version: u64,
    pub(super) policy_hash: String,
    /// Number of nodes known.
    pub(super) nodes: u64,
    /// Files whose records are laid over the server's (`--with`).
    pub(super) with: Vec<String>,
}

/// A queue.
#[derive(Debug, Clone, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct QueueReport {
    pub(super) name: String,
    pub(super) state: String,
    /// One row per resource, of the plugin that keeps an account; empty: none does.
    pub(super) account: Vec<QueueAccountRow>,
    /// Highest of allocated / deserved, or its share under drf.
    pub(super) share: Option<f64>,
    /// Jobs of it that hold most of the first resource that is short, largest first, at most three.
    pub(super) holders: Vec<ResourceHolder>,
}

/// One resource of a queue's account, in `unit`.
#[derive(Debug, Clone, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct QueueAccountRow {
    pub(super) resource: String,
    pub(super) unit: &'static str,
    pub(super) allocated: f64,
    /// Admitted and not yet held.
    pub(super) inqueue: f64,
    /// Above the least that running jobs need.
    pub(super) elastic: f64,
    pub(super) deserved: Option<f64>,
    /// Absent: without limit.
    pub(super) capability: Option<f64>,
}

/// A job that holds something.
#[derive(Debug, Clone, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct ResourceHolder {
    pub(super) job: String,
    pub(super) resource: String,
    /// Allocated, and where a job asks to be enqueued also what is only admitted or reserved.
    pub(super) amount: f64,
    /// Of that, not allocated yet.
    pub(super) reserved: f64,
    pub(super) unit: &'static str,
}

/// A verdict of Admit.
#[derive(Debug, Clone, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct AdmissionReport {
    pub(super) permitted: bool,
    /// What could not be judged.
    pub(super) problem: Option<String>,
    pub(super) votes: Vec<AdmitVote>,
    pub(super) reasons: Vec<RejectionReason>,
    /// Of a task: how many of its like are still admitted. Absent: no limit.
    pub(super) headroom: Option<u64>,
    /// Of a task: the cards that would do, best first.
    pub(super) cards: Vec<String>,
}

/// A plugin's vote: 1, 0 or −1.
#[derive(Debug, Clone, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct AdmitVote {
    pub(super) plugin: String,
    pub(super) vote: i32,
}

/// Why something was refused.
#[derive(Debug, Clone, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct RejectionReason {
    pub(super) plugin: String,
    pub(super) code: String,
    pub(super) message: String,
    pub(super) resource: String,
    /// True: preemption may help.
    pub(super) preemption_may_help: bool,
    pub(super) measurements: Vec<ReasonMeasurement>,
}

/// A figure of a reason.
#[derive(Debug, Clone, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct ReasonMeasurement {
    pub(super) name: String,
    pub(super) value: f64,
    pub(super) unit: String,
}

/// The place among those that wait.
#[derive(Debug, Clone, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct OrderReport {
    /// From 1; 0: it has none.
    pub(super) queue_position: u64,
    pub(super) queues: u64,
    /// Queues before its own in which jobs wait.
    pub(super) queues_ahead: Vec<String>,
    /// From 1, among the waiting jobs of its queue; 0: it has none.
    pub(super) job_position: u64,
    pub(super) jobs: u64,
    /// Waiting jobs of its queue before it, first served first, at most ten.
    pub(super) jobs_ahead: Vec<String>,
    pub(super) jobs_ahead_count: u64,
    /// By which plugins, with the job's own keys and those of the first in the queue.
    pub(super) keys: Vec<OrderKeyRow>,
}

/// An order key.
#[derive(Debug, Clone, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct OrderKeyRow {
    pub(super) plugin: String,
    pub(super) own: Vec<f64>,
    pub(super) first_in_queue: Vec<f64>,
}

/// Waiting tasks that are equal but for their names.
#[derive(Debug, Clone, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct TaskClassReport {
    /// At most ten of them.
    pub(super) tasks: Vec<String>,
    pub(super) count: u64,
    pub(super) gated: u64,
    /// Quantities by resource, as written in the record.
    pub(super) requests: BTreeMap<String, String>,
    /// What could not be judged.
    pub(super) problem: Option<String>,
    pub(super) nodes: u64,
    /// Nodes that take one now.
    pub(super) fit_now: u64,
    /// Nodes that take one now or when what is being released is gone.
    pub(super) fit_later: u64,
    /// The nodes that take one now, by name.
    #[serde(skip)]
    pub(super) fit_now_names: Vec<String>,
    /// The nodes that take one now or later, by name.
    #[serde(skip)]
    pub(super) fit_later_names: Vec<String>,
    /// Why the other nodes do not, most nodes first.
    pub(super) rejections: Vec<RejectionRow>,
    /// Each plugin asked alone, whatever the others say: nodes that it refuses.
    pub(super) rejections_by_plugin: Vec<PluginRejections>,
    /// Nodes nearest to fitting, nearest first, at most three.
    pub(super) nearest_nodes: Vec<NearestNode>,
    /// Resources of which no node has as much as the task requests, even when empty; `allocatable` is the largest node's.
    pub(super) beyond_every_node: Vec<ResourceShortage>,
    /// Nodes that take the task, best first.
    pub(super) best_nodes: Vec<ScoredNode>,
    /// Whether one may be allocated in its queue.
    pub(super) admission: Option<AdmissionReport>,
}

/// Nodes refused for one reason.
#[derive(Debug, Clone, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct RejectionRow {
    pub(super) count: u64,
    /// The reason, with the figures of `node`.
    pub(super) reason: RejectionReason,
    /// The refused node that is nearest, or the first by name.
    pub(super) node: String,
}

/// Nodes that one plugin refuses.
#[derive(Debug, Clone, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct PluginRejections {
    pub(super) plugin: String,
    pub(super) rejected: u64,
}

/// A node that does not take the task, and what it lacks.
#[derive(Debug, Clone, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct NearestNode {
    pub(super) node: String,
    pub(super) shortages: Vec<ResourceShortage>,
}

/// A resource of which a node has too little.
#[derive(Debug, Clone, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct ResourceShortage {
    pub(super) resource: String,
    pub(super) unit: &'static str,
    pub(super) requested: f64,
    pub(super) idle: f64,
    /// Of the empty node.
    pub(super) allocatable: f64,
}

/// A node that takes the task, with its score.
#[derive(Debug, Clone, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct ScoredNode {
    pub(super) node: String,
    pub(super) score: f64,
    pub(super) parts: Vec<ScoreComponent>,
}

/// One plugin's part of a score.
#[derive(Debug, Clone, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct ScoreComponent {
    /// `plugin` or `plugin/part`.
    pub(super) name: String,
    pub(super) score: f64,
}

/// Whether enough tasks find a place together.
#[derive(Debug, Clone, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct GangReport {
    /// Tasks that must start together.
    pub(super) min_count: u64,
    /// Of these, placed already or ended well.
    pub(super) placed_count: u64,
    /// Waiting tasks that find a place one after the other, as many as were tried.
    pub(super) placeable: u64,
    /// Waiting tasks that have room when what is being released is gone: an upper bound.
    pub(super) placeable_later: u64,
    /// Waiting tasks that were tried.
    pub(super) attempted: u64,
    /// `placed in a session` or `counted`: an upper bound.
    pub(super) method: &'static str,
    /// What kept the next task: a quota or the nodes.
    pub(super) blocked_by: Option<String>,
    /// The same after those before it were placed: absent: nobody is before it, or it was not tried.
    pub(super) after_earlier_jobs: Option<GangAfterEarlierJobs>,
}

/// How many find a place once those before it are served.
#[derive(Debug, Clone, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct GangAfterEarlierJobs {
    /// Jobs that were placed before it.
    pub(super) jobs_placed: u64,
    /// Those before it that take what it needs, first served first, at most ten.
    pub(super) competing_jobs: Vec<CompetingJob>,
    pub(super) competing_job_count: u64,
    /// Jobs before it that find no place themselves.
    pub(super) jobs_skipped: u64,
    pub(super) placeable: u64,
    /// The job would still be admitted.
    pub(super) permitted: bool,
    pub(super) blocked_by: Option<String>,
}

/// A job that takes what another needs.
#[derive(Debug, Clone, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct CompetingJob {
    pub(super) job: String,
    pub(super) queue: String,
}

/// A record whose newest version was refused.
#[derive(Debug, Clone, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct InvalidRecord {
    /// Such as `node n-1`.
    pub(super) record: String,
    pub(super) problems: Vec<String>,
}
