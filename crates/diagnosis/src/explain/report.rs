//! Report of `pumice explain`: the object that `-o json` prints. Fields are added to it, never renamed.

use std::collections::BTreeMap;

use serde::Serialize;

use pumice_console::not_evaluated::UnevaluatedRow;
use pumice_protocol::v1 as pb;

/// Explanation of one job or task.
#[derive(Debug, Clone, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct ExplainReport {
    /// Verdict: its code, its sentence and the remedies.
    pub(super) verdict: ExplainVerdict,
    /// Job or task that the report is about.
    pub(super) subject: ExplainSubject,
    /// State and policy that the report was read from.
    pub(super) metadata: ExplainMetadata,
    /// Queue of the job. Absent: no queue has that name.
    pub(super) queue: Option<QueueReport>,
    /// Verdict of Admit on the job. Absent: the job is enqueued already.
    pub(super) admission: Option<AdmissionReport>,
    /// Actions of the policy, where they matter to the hints.
    #[serde(skip)]
    pub(super) actions: Option<Vec<String>>,
    /// Position among the waiting jobs.
    pub(super) order: Option<OrderReport>,
    /// State of the job by the plugins of the policy. Absent: none has an opinion.
    pub(super) job_state: Option<JobStateReport>,
    /// Waiting tasks, equal ones together.
    pub(super) task_classes: Vec<TaskClassReport>,
    /// Number of tasks that find a place together.
    pub(super) gang: Option<GangReport>,
    /// Rejection of the tasks that must start together, as if they were one, where the queue admits each of them but not all.
    pub(super) gang_admission: Option<AdmissionReport>,
    /// That one task.
    #[serde(skip)]
    pub(super) gang_subject: Option<pb::Task>,
    /// Records of the job, its tasks, its queue and nodes whose newest version was refused.
    pub(super) invalid_records: Vec<InvalidRecord>,
    /// Constraints that this explanation does not take into account.
    pub(super) not_evaluated: Vec<UnevaluatedRow>,
    /// Limits of this explanation, in sentences.
    pub(super) notes: Vec<String>,
}

/// Codes of verdicts, in the order in which the causes are checked: the first that applies is the verdict.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub(super) enum VerdictCode {
    /// All tasks ended.
    Completed,
    /// No task waits.
    Running,
    /// The newest record of the job or the task was refused.
    RecordInvalid,
    /// No job has the name that the task gives.
    JobUnknown,
    /// No queue has the name that the job gives.
    QueueUnknown,
    /// The newest record of the queue was refused.
    QueueInvalid,
    /// The queue takes nothing new.
    QueueClosed,
    /// Fewer tasks are known than must start together.
    TooFewTasks,
    /// Tasks have scheduling gates.
    Gated,
    /// The request is invalid and cannot be evaluated.
    RequestInvalid,
    /// The quota of the queue rejects the job or its tasks.
    Quota,
    /// No node takes one of the tasks.
    NoNode,
    /// Nodes will take the tasks once releasing tasks are gone.
    Releasing,
    /// Some tasks find a node, but fewer than must start together.
    Gang,
    /// Earlier jobs take the capacity that the job needs.
    EarlierJobs,
    /// Pumice finds no reason that keeps the job.
    #[default]
    Placeable,
}

/// Verdict in one sentence.
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

/// Job or task that the report is about.
#[derive(Debug, Clone, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct ExplainSubject {
    /// `job`, `task` or `tasks`.
    pub(super) kind: &'static str,
    pub(super) name: String,
    /// Job of a task.
    pub(super) job: String,
    pub(super) queue: String,
    /// Phase of the job, in lower case, such as `pending`. Empty: the task has no job.
    pub(super) phase: String,
    /// Number of tasks that must start together.
    pub(super) min_member: u64,
    /// Number of tasks of the job.
    pub(super) tasks: u64,
    /// Number of tasks that wait for a node.
    pub(super) pending: u64,
    /// Number of waiting tasks with a scheduling gate that the scheduler does not take off.
    pub(super) gated: u64,
    /// Number of waiting tasks with Volcano's own gate alone, which its scheduler takes off when the queue admits the task.
    pub(super) queue_gated: u64,
    /// Number of tasks that have a node.
    pub(super) placed: u64,
    /// Number of tasks that wait for capacity that a node is releasing.
    pub(super) pipelined: u64,
    /// Number of tasks that ended or are being deleted.
    pub(super) finished: u64,
    /// Number of tasks that succeeded.
    pub(super) succeeded: u64,
    /// Number of tasks that failed.
    pub(super) failed: u64,
    /// Number of tasks that are being deleted.
    pub(super) terminating: u64,
    /// Nodes of the placed tasks, at most ten.
    pub(super) nodes: Vec<String>,
    /// Devices that placed tasks have, of at most ten tasks. Empty: none has any, or their sources do not say which.
    pub(super) devices: Vec<TaskDevices>,
}

/// Devices of a node that a task has, or would get.
#[derive(Debug, Clone, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct TaskDevices {
    pub(super) task: String,
    pub(super) node: String,
    /// Numbers of the devices, ascending.
    pub(super) devices: Vec<u32>,
}

/// Devices that a task asks for.
#[derive(Debug, Clone, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct RequestedDevices {
    pub(super) count: u32,
    /// Thousandths of each. 0: what `memoryMib` is of the device's memory.
    pub(super) milli: u32,
    /// Memory of each in MiB. 0: none in particular.
    pub(super) memory_mib: u32,
    /// Models that would do. Empty: any.
    pub(super) models: Vec<String>,
}

/// State and policy that all amounts were read from.
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

/// Queue and its account.
#[derive(Debug, Clone, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct QueueReport {
    pub(super) name: String,
    pub(super) state: String,
    /// One row per resource, of the plugin that has an account. Empty: no plugin has one.
    pub(super) account: Vec<QueueAccountRow>,
    /// Highest ratio allocated / deserved, or the share under drf.
    pub(super) share: Option<f64>,
    /// Jobs of the queue that hold most of the first resource that is short, largest first, at most three.
    pub(super) holders: Vec<ResourceHolder>,
    /// Resources that the queue has lent: it holds less than it deserves while other queues hold more than they
    /// deserve.
    pub(super) lent: Vec<LentAmount>,
}

/// Amount of a resource that a queue deserves, and that others hold.
#[derive(Debug, Clone, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct LentAmount {
    pub(super) resource: String,
    pub(super) unit: &'static str,
    pub(super) holds: f64,
    pub(super) deserves: f64,
    /// Queues that hold more than they deserve, the most first.
    pub(super) holders: Vec<LentHolder>,
}

/// Queue that holds more than it deserves.
#[derive(Debug, Clone, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct LentHolder {
    pub(super) queue: String,
    /// Amount beyond what it deserves.
    pub(super) beyond: f64,
}

/// Row of a queue's account: one resource, in `unit`.
#[derive(Debug, Clone, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct QueueAccountRow {
    pub(super) resource: String,
    pub(super) unit: &'static str,
    pub(super) allocated: f64,
    /// Amount admitted and not yet allocated.
    pub(super) inqueue: f64,
    /// Amount above the minimum of running jobs.
    pub(super) elastic: f64,
    pub(super) deserved: Option<f64>,
    pub(super) guarantee: Option<f64>,
    /// Upper limit. Absent: no limit.
    pub(super) capability: Option<f64>,
    /// Amount that the queue may hold: its capability, and what the cluster leaves after the guarantees of others.
    pub(super) real_capability: Option<f64>,
}

/// Job that holds a resource.
#[derive(Debug, Clone, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct ResourceHolder {
    pub(super) job: String,
    pub(super) resource: String,
    /// Allocated amount; where a job asks to be enqueued, the admitted and reserved amount is included.
    pub(super) amount: f64,
    /// Part of the amount that is not allocated yet.
    pub(super) reserved: f64,
    pub(super) unit: &'static str,
    /// Reason that a job with a reserved amount never starts, however many other tasks end. Absent: it may start.
    pub(super) never_starts: Option<String>,
}

/// Verdict of Admit.
#[derive(Debug, Clone, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct AdmissionReport {
    pub(super) permitted: bool,
    /// Problem of a request that cannot be evaluated.
    pub(super) problem: Option<String>,
    pub(super) votes: Vec<AdmitVote>,
    pub(super) reasons: Vec<RejectionReason>,
    /// Number of equal tasks that the queue still admits. Absent: no limit, or the verdict is on a job.
    pub(super) headroom: Option<u64>,
    /// Acceptable cards of a task that the quota permits, best first.
    pub(super) cards: Vec<String>,
}

/// Vote of a plugin: 1, 0 or −1.
#[derive(Debug, Clone, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct AdmitVote {
    pub(super) plugin: String,
    pub(super) vote: i32,
}

/// Reason of a rejection: plugin, code, text and measurements.
#[derive(Debug, Clone, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct RejectionReason {
    pub(super) plugin: String,
    pub(super) code: String,
    pub(super) message: String,
    pub(super) resource: String,
    /// True: preemption may help. Of a node's reason under a policy of Volcano: `SelectVictims` finds tasks whose eviction makes
    /// room on such a node, and the policy has the action that evicts them.
    pub(super) preemption_may_help: bool,
    pub(super) measurements: Vec<ReasonMeasurement>,
}

/// Measurement of a reason, such as `requested` 8 cards.
#[derive(Debug, Clone, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct ReasonMeasurement {
    pub(super) name: String,
    pub(super) value: f64,
    pub(super) unit: String,
}

/// Position among the waiting queues and jobs.
#[derive(Debug, Clone, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct OrderReport {
    /// Position of the queue, from 1. 0: it has none.
    pub(super) queue_position: u64,
    pub(super) queues: u64,
    /// Earlier queues in which jobs wait.
    pub(super) queues_ahead: Vec<String>,
    /// Position among the waiting jobs of the queue, from 1. 0: it has none.
    pub(super) job_position: u64,
    pub(super) jobs: u64,
    /// Earlier waiting jobs of the queue, first served first, at most ten.
    pub(super) jobs_ahead: Vec<String>,
    pub(super) jobs_ahead_count: u64,
    /// Order keys by plugin, of the job and of the first job in the queue.
    pub(super) keys: Vec<OrderKeyRow>,
    /// Order keys by plugin, of the queue and of the first queue before it in which jobs wait. Without such a queue its own.
    pub(super) queue_keys: Vec<QueueOrderKeyRow>,
}

/// Order keys of one plugin.
#[derive(Debug, Clone, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct OrderKeyRow {
    pub(super) plugin: String,
    pub(super) own: Vec<f64>,
    pub(super) first_in_queue: Vec<f64>,
    /// Values with their names, such as `priority 10`.
    pub(super) own_text: String,
    pub(super) first_in_queue_text: String,
}

/// Order keys of queues by one plugin.
#[derive(Debug, Clone, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct QueueOrderKeyRow {
    pub(super) plugin: String,
    pub(super) own: Vec<f64>,
    pub(super) first_queue: Vec<f64>,
    /// Values with their names, such as `share 0.25`.
    pub(super) own_text: String,
    pub(super) first_queue_text: String,
}

/// Waiting tasks that are equal but for their names.
#[derive(Debug, Clone, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct TaskClassReport {
    /// Names of the tasks, at most ten.
    pub(super) tasks: Vec<String>,
    pub(super) count: u64,
    pub(super) gated: u64,
    /// Quantities by resource, as written in the record.
    pub(super) requests: BTreeMap<String, String>,
    /// Devices that each task asks for. Absent: none.
    pub(super) devices: Option<RequestedDevices>,
    /// Devices that the first task would get now. Absent: it asks for none, or finds no place.
    pub(super) would_get: Option<TaskDevices>,
    /// Problem of a request that cannot be evaluated.
    pub(super) problem: Option<String>,
    pub(super) nodes: u64,
    /// Number of nodes that take a task now.
    pub(super) fit_now: u64,
    /// Number of nodes that take a task now, or once releasing tasks are gone.
    pub(super) fit_later: u64,
    /// Nodes that take a task now or later, by name.
    #[serde(skip)]
    pub(super) fit_later_names: Vec<String>,
    /// Rejections of the other nodes, most nodes first.
    pub(super) rejections: Vec<RejectionRow>,
    /// Number of nodes that each plugin rejects alone.
    pub(super) rejections_by_plugin: Vec<PluginRejections>,
    /// Nodes nearest to fitting, nearest first, at most three.
    pub(super) nearest_nodes: Vec<NearestNode>,
    /// Resources that no node has enough of for the task, even when empty. `allocatable` is the amount of the largest
    /// node.
    pub(super) beyond_every_node: Vec<ResourceShortage>,
    /// Nodes that take the task, best first.
    pub(super) best_nodes: Vec<ScoredNode>,
    /// Evictions that make room for the task. Empty: none does, or `SelectVictims` was not asked.
    pub(super) evictions: Vec<EvictionReport>,
    /// Verdict of Admit on one of the tasks.
    pub(super) admission: Option<AdmissionReport>,
}

/// Nodes rejected for one reason.
#[derive(Debug, Clone, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct RejectionRow {
    pub(super) count: u64,
    /// Reason, with the measurements of `node`.
    pub(super) reason: RejectionReason,
    /// Rejected node that is nearest to fitting, or the first by name.
    pub(super) node: String,
    /// Rejected nodes, sorted by name.
    #[serde(skip)]
    pub(super) nodes: Vec<String>,
}

/// Number of nodes that one plugin rejects.
#[derive(Debug, Clone, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct PluginRejections {
    pub(super) plugin: String,
    pub(super) rejected: u64,
}

/// Node that does not take the task, with its shortages.
#[derive(Debug, Clone, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct NearestNode {
    pub(super) node: String,
    pub(super) shortages: Vec<ResourceShortage>,
}

/// Resource that a node has too little of.
#[derive(Debug, Clone, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct ResourceShortage {
    pub(super) resource: String,
    pub(super) unit: &'static str,
    pub(super) requested: f64,
    pub(super) idle: f64,
    /// Amount of the empty node.
    pub(super) allocatable: f64,
}

/// Node that takes the task, with its score.
#[derive(Debug, Clone, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct ScoredNode {
    pub(super) node: String,
    pub(super) score: f64,
    pub(super) parts: Vec<ScoreComponent>,
}

/// Part of a score by one plugin.
#[derive(Debug, Clone, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct ScoreComponent {
    /// `plugin` or `plugin/part`.
    pub(super) name: String,
    pub(super) score: f64,
}

/// Number of tasks that find a place together.
#[derive(Debug, Clone, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct GangReport {
    /// Number of tasks that must start together.
    pub(super) min_count: u64,
    /// Number of tasks that are placed or succeeded.
    pub(super) placed_count: u64,
    /// Number of attempted tasks that find a place one after the other.
    pub(super) placeable: u64,
    /// Number of attempted tasks that find a place once releasing tasks are gone.
    pub(super) placeable_later: u64,
    /// Number of waiting tasks that were attempted.
    pub(super) attempted: u64,
    /// True: Place would place the job now.
    pub(super) starts: bool,
    /// True: Place would place the job once releasing tasks are gone.
    pub(super) starts_later: bool,
    /// How the number was found: `placed`.
    pub(super) method: &'static str,
    /// Roles and groups of the job that would still lack tasks.
    pub(super) short_members: Vec<ShortMembers>,
    /// Problem of a request that Place cannot evaluate.
    pub(super) problem: Option<String>,
    /// Reason that keeps the next task: a quota or the nodes.
    pub(super) blocked_by: Option<String>,
    /// Result after earlier jobs were placed. Absent: no job is earlier, or it was not tried.
    pub(super) after_earlier_jobs: Option<GangAfterEarlierJobs>,
}

/// Role, or groups of a job, of which too few tasks find a place.
#[derive(Debug, Clone, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct ShortMembers {
    /// `task` of a role, or `group`.
    pub(super) kind: &'static str,
    /// Name of the role or of the group policy.
    pub(super) name: String,
    /// Number of tasks or groups that must still start.
    pub(super) needed: u64,
    /// Number of those that find a place.
    pub(super) found: u64,
}

/// State of a job by the plugins of the policy.
#[derive(Debug, Clone, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct JobStateReport {
    /// False: a plugin objects, and no scheduler serves the job.
    pub(super) valid: bool,
    /// Sentence of the first objection. Empty: valid.
    pub(super) message: String,
    /// True: the job may evict others to get its tasks.
    pub(super) starving: bool,
}

/// Evictions that make room for a task, as `SelectVictims` selects them.
#[derive(Debug, Clone, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct EvictionReport {
    /// `preempt` or `reclaim`.
    pub(super) action: &'static str,
    /// True: the policy has the action.
    pub(super) in_policy: bool,
    /// Nodes on which it makes room, sorted by name.
    #[serde(skip)]
    pub(super) nodes: Vec<String>,
    pub(super) node_count: u64,
    /// First of these nodes, and the tasks that are evicted there.
    pub(super) node: String,
    pub(super) tasks: Vec<String>,
}

/// Number of tasks that find a place after the earlier jobs.
#[derive(Debug, Clone, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct GangAfterEarlierJobs {
    /// Number of earlier jobs that were placed.
    pub(super) jobs_placed: u64,
    /// Earlier jobs that take the capacity that the job needs, first served first, at most ten.
    pub(super) competing_jobs: Vec<CompetingJob>,
    pub(super) competing_job_count: u64,
    /// Number of earlier jobs that find no place themselves.
    pub(super) jobs_skipped: u64,
    pub(super) placeable: u64,
    /// True: Place would still place the job.
    pub(super) starts: bool,
    /// True: the job would still be admitted.
    pub(super) permitted: bool,
    pub(super) blocked_by: Option<String>,
}

/// Job that takes capacity that another needs.
#[derive(Debug, Clone, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct CompetingJob {
    pub(super) job: String,
    pub(super) queue: String,
    /// Reason that the job never starts, however many other tasks end. Absent: it may start.
    pub(super) never_starts: Option<String>,
}

/// Record whose newest version was refused.
#[derive(Debug, Clone, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct InvalidRecord {
    /// Kind and name, such as `node n-1`.
    pub(super) record: String,
    pub(super) problems: Vec<String>,
}

impl TaskClassReport {
    /// Number of tasks of the class that the queue admits now.
    pub(super) fn admitted_count(&self) -> u64 {
        let waiting = self.count.saturating_sub(self.gated);
        let headroom = self.admission.as_ref().and_then(|admission| admission.headroom);
        headroom.map_or(waiting, |headroom| headroom.min(waiting))
    }
}
