//! Hooks of a plugin. [`QuotaPlugin`] extends them with two methods that change plugin states.

mod account;
mod decision_time;
mod node_hooks;
mod peer_hooks;
mod queue_order;
mod quota;
mod reason;
mod record_rules;

use std::fmt::Debug;
use std::sync::Arc;

pub use account::{AccountAmounts, NodeCard, PluginAccount, PluginAccounts, QueueGauge, QueueTreeNode};
pub use decision_time::DecisionTime;
pub use node_hooks::{ChunkRejections, HookNumbers, MAX_PARTS, NodeFilter, NodeScorer, PreparedHook, TemplateRule};
pub use peer_hooks::{DomainPeers, NO_DOMAIN, PeerFilter, PeerHook, PeerKey, PeerScorer};
pub use pumice_kernels::columns::ChunkScores;
pub use queue_order::{EvictionOrder, QueueComparison};
pub use quota::{QuotaPlugin, Shortfall};
pub use reason::{Measurement, Reason, Resolution};
pub use record_rules::{RecordRules, RecordWarning, RecordWarningKind};

use super::devices::{DevicePick, DeviceScorer};
use super::model::constraints::ConstraintSet;
use super::model::{ClusterState, JobRecord, LabelKinds, NamedAmounts, Problem, TaskClass, TaskRecord};
use super::plugin_state::{PluginState, PluginStates};
use super::policy::{
    Compatibility, DecisionKind, DiagnosticReport, PluginArguments, PluginSwitches, Switch, YamlValue,
};

/// Queue name that means all queues, in lists of queues whose keys changed. No queue has this name.
pub const EVERY_QUEUE: &str = "";

/// Plugin of a policy, compiled once and never changed.
pub trait Plugin: Debug + Send + Sync {
    /// Hooks that the plugin registers; the others are never called.
    fn hooks(&self) -> PluginHooks;

    /// Arguments after defaults and repairs, in the spelling of the policy document; null: the plugin has none.
    fn effective_arguments(&self) -> YamlValue {
        YamlValue::Null
    }

    /// Prepares the scores of a task class; `None`: 0 on every node.
    ///
    /// # Errors
    /// The class carries something that the plugin cannot read, such as a malformed annotation.
    fn prepare_scorer<'a>(
        &'a self,
        context: PluginContext<'a>,
        class: &'a TaskClass,
    ) -> PreparedHook<dyn NodeScorer + 'a> {
        let _ = (context, class);
        Ok(None)
    }

    /// Prepares the filter of a task class; `None`: every node passes.
    ///
    /// # Errors
    /// The errors of [`Self::prepare_scorer`].
    fn prepare_filter<'a>(
        &'a self,
        context: PluginContext<'a>,
        class: &'a TaskClass,
    ) -> PreparedHook<dyn NodeFilter + 'a> {
        let _ = (context, class);
        Ok(None)
    }

    /// Computes the plugin's state from a cluster state. `switches` come from the first entry with its name and apply
    /// to all entries. `None`: the plugin has no state.
    fn build_state(&self, cluster_state: &ClusterState, switches: &PluginSwitches) -> Option<Arc<dyn PluginState>> {
        let _ = (cluster_state, switches);
        None
    }

    /// Order keys of jobs, in their order, smaller first; `None`: the plugin does not order jobs in this policy.
    fn job_keys(&self, context: PluginContext<'_>, jobs: &[Arc<str>]) -> Option<Vec<OrderKey>> {
        let _ = (context, jobs);
        None
    }

    /// Order keys of queues, smaller first.
    fn queue_keys(&self, context: PluginContext<'_>, queues: &[Arc<str>]) -> Option<Vec<OrderKey>> {
        let _ = (context, queues);
        None
    }

    /// Comparison of `queues`, by position, if keys are not sufficient. `None`: the keys are sufficient.
    fn queue_comparison<'a>(
        &'a self,
        context: PluginContext<'a>,
        queues: &[Arc<str>],
    ) -> Option<Box<dyn QueueComparison + 'a>> {
        let _ = (context, queues);
        None
    }

    /// Comparison of two queues whose tasks may be evicted for a preemptor of a queue: negative if tasks of the left
    /// queue are evicted first, 0 if the order of queues decides. `None`: the plugin has no such order.
    fn victim_queue_order(&self, context: PluginContext<'_>, preemptor: &str, left: &str, right: &str) -> Option<i64> {
        let _ = (context, preemptor, left, right);
        None
    }

    /// True if a queue holds too much to be served more tasks. `None`: the plugin abstains.
    ///
    /// # Errors
    /// The queue cannot be evaluated.
    fn overused(&self, context: PluginContext<'_>, queue: &str) -> Result<Option<bool>, Problem> {
        let _ = (context, queue);
        Ok(None)
    }

    /// True if a queue may preempt or reclaim for these tasks together. `None`: the plugin abstains.
    ///
    /// # Errors
    /// The queue cannot be evaluated.
    fn may_preempt(
        &self,
        context: PluginContext<'_>,
        queue: &str,
        tasks: &[&TaskRecord],
    ) -> Result<Option<bool>, Problem> {
        let _ = (context, queue, tasks);
        Ok(None)
    }

    /// Order keys of tasks, in the order of `tasks`; smaller keys first. They are constant during a cycle unless the plugin declares
    /// [`PluginHooks::reads_tasks`]. `None`: the plugin does not order tasks.
    fn task_keys(&self, context: PluginContext<'_>, tasks: &[&TaskRecord]) -> Option<Vec<OrderKey>> {
        let _ = (context, tasks);
        None
    }

    /// True if the filter or the score tells a task apart from the others of its job. Only for plugins that declare
    /// [`PluginHooks::reads_tasks`].
    fn reads_task(&self, cluster_state: &ClusterState, task: &TaskRecord) -> bool {
        let _ = (cluster_state, task);
        false
    }

    /// Opinion on the state of a job of the cluster state.
    fn job_opinion(&self, context: PluginContext<'_>, job: &JobRecord) -> JobOpinion {
        let _ = (context, job);
        JobOpinion::default()
    }

    /// Opinion on the state of a group of a job's tasks.
    fn group_opinion(&self, context: PluginContext<'_>, group: TaskGroup<'_>) -> GroupOpinion {
        let _ = (context, group);
        GroupOpinion::default()
    }

    /// Order key of a group among the groups of its job, smaller first. `None`: the plugin does not order groups.
    fn group_key(&self, context: PluginContext<'_>, group: TaskGroup<'_>) -> Option<Vec<f64>> {
        let _ = (context, group);
        None
    }

    /// Opinion on whether a job may be enqueued, for example a rejection because its queue lacks 4 GPUs. `None`: the
    /// plugin abstains.
    ///
    /// # Errors
    /// The job cannot be evaluated.
    fn admit_job(&self, context: PluginContext<'_>, job: &JobRecord) -> Result<Option<AdmitOpinion>, Problem> {
        let _ = (context, job);
        Ok(None)
    }

    /// Opinion on whether a task of a queue may be allocated. `None`: the plugin abstains.
    ///
    /// # Errors
    /// The task cannot be evaluated.
    fn admit_task(
        &self,
        context: PluginContext<'_>,
        queue: &str,
        task: &TaskRecord,
    ) -> Result<Option<AdmitOpinion>, Problem> {
        let _ = (context, queue, task);
        Ok(None)
    }

    /// True for each candidate that may be evicted. `None`: the plugin abstains.
    ///
    /// # Errors
    /// The query cannot be evaluated.
    fn victims(&self, context: PluginContext<'_>, query: &VictimQuery<'_>) -> Result<Option<Vec<bool>>, Problem> {
        let _ = (context, query);
        Ok(None)
    }

    /// Positions of the candidates that may be evicted, in the plugin's order; `None`: the plugin abstains.
    ///
    /// # Errors
    /// The errors of [`Self::victims`].
    fn ordered_victims(
        &self,
        context: PluginContext<'_>,
        query: &VictimQuery<'_>,
    ) -> Result<Option<Vec<usize>>, Problem> {
        let goes = self.victims(context, query)?;
        Ok(goes.map(|goes| {
            let numbered = goes.into_iter().enumerate();
            numbered
                .filter(|(_, goes)| *goes)
                .map(|(position, _)| position)
                .collect()
        }))
    }

    /// Part of the plugin in evictions without a preemptor; `None`: it takes none, and is not asked for victims of this kind.
    fn shuffle_part(&self) -> Option<ShufflePart> {
        None
    }

    /// True if a placement of a task of this queue may change the verdicts of the filter or the score on the next one, by
    /// accounts.
    fn heeds_placements(&self, context: PluginContext<'_>, queue: &str) -> bool {
        let _ = (context, queue);
        self.hooks().accounts
    }

    /// True if the filter on resources leaves out the amounts of a resource.
    fn ignores_resource(&self, name: &str) -> bool {
        let _ = name;
        false
    }

    /// Minimum and maximum score of a node on which the task fits, such as (0.0, 100.0). `None`: unbounded.
    fn score_bounds(&self) -> Option<(f64, f64)> {
        None
    }

    /// Score of the plugin by the devices of a node; `None`: it has none.
    fn device_scorer(&self) -> Option<&dyn DeviceScorer> {
        None
    }

    /// The plugin as a quota plugin. `None`: the plugin has no quotas.
    fn quota(&self) -> Option<&dyn QuotaPlugin> {
        None
    }
}

/// State and time that a hook is evaluated against.
#[derive(Clone, Copy, Debug)]
pub struct PluginContext<'a> {
    /// Cluster state that the decision is evaluated against.
    pub cluster_state: &'a ClusterState,
    /// Plugin states of the cluster state. For filters and scores empty unless a plugin of the query declares
    /// [`PluginHooks::accounts`].
    pub plugin_states: &'a PluginStates,
    /// True if nodes are evaluated as they will be after all releasing tasks have ended.
    pub after_release: bool,
    /// Time of the decision from the query. Plugins must not use another clock. `None`: the query has no time.
    pub now: Option<DecisionTime>,
}

impl<'a> PluginContext<'a> {
    /// Context in which tasks that are being released still count.
    pub fn new(cluster_state: &'a ClusterState, plugin_states: &'a PluginStates, now: Option<DecisionTime>) -> Self {
        Self {
            cluster_state,
            plugin_states,
            after_release: false,
            now,
        }
    }
}

/// Opinion of one plugin on the admission of a job or a task.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct AdmitOpinion {
    /// Reasons against it, with measurements; empty: permitted.
    pub reasons: Vec<(Reason, Vec<Measurement>)>,
    /// Cards that a task may use, best first, each with the number of such tasks that the queue still admits on it.
    pub cards: Vec<(Arc<str>, u64)>,
    /// Number of equal tasks that the queue still admits. `None`: unlimited, or a job.
    pub headroom: Option<u64>,
    /// Amounts to reserve for an admitted job, by name.
    pub reserve: NamedAmounts,
}

/// Opinion of one plugin on the state of a job; `None`: it has none.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct JobOpinion {
    /// Objection: the job cannot start in its present state.
    pub objection: Option<JobObjection>,
    /// True if the tasks that hold resources are enough to start the job.
    pub ready: Option<bool>,
    /// Vote on whether the job's pipelined tasks keep their places: above 0 permits, below 0 rejects.
    pub pipelined: Option<i64>,
    /// True if the job may evict others to get its tasks.
    pub starving: Option<bool>,
}

/// Group of a job's tasks by the job's policies about groups.
#[derive(Clone, Copy, Debug)]
pub struct TaskGroup<'a> {
    /// Job that the group belongs to.
    pub job: &'a JobRecord,
    /// Name of the group; empty: the tasks that no policy is about.
    pub name: &'a str,
    /// Highest priority of its tasks, at least 0.
    pub priority: i32,
}

/// Opinion of one plugin on the state of a group; `None`: it has none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct GroupOpinion {
    /// True if the tasks that hold resources are enough to start the group.
    pub ready: Option<bool>,
    /// Vote on whether the group's pipelined tasks keep their places: above 0 permits, below 0 rejects.
    pub pipelined: Option<i64>,
}

/// Objection to a job: a stable code and a sentence. For example, `NotEnoughPodsOfTask`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JobObjection {
    /// Stable code, usable as the reason of a condition.
    pub reason: &'static str,
    /// Sentence, usable as the message of that condition.
    pub message: String,
}

/// Order key of one job, queue or task, compared value by value; or the problem that it has none.
pub type OrderKey = Result<Vec<f64>, Problem>;

/// Meaning of one value of an order key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OrderKeyPart {
    /// Name of the value, such as `share`.
    pub name: &'static str,
    /// True if the value is negated because larger values are served first.
    pub is_negated: bool,
    /// True if the value is 0 or 1.
    pub is_flag: bool,
}

impl OrderKeyPart {
    /// Negated priority.
    pub const PRIORITY: Self = Self {
        is_negated: true,
        ..Self::number("priority")
    };
    /// Share of what a queue or job deserves.
    pub const SHARE: Self = Self::number("share");

    /// Value that is a number.
    pub const fn number(name: &'static str) -> Self {
        Self {
            name,
            is_negated: false,
            is_flag: false,
        }
    }

    /// Value that is 0 or 1.
    pub const fn flag(name: &'static str) -> Self {
        Self {
            is_flag: true,
            ..Self::number(name)
        }
    }
}

/// Meanings of the first values of a plugin's order keys; later ones have no name.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OrderKeyMeanings {
    /// Values of the keys of jobs.
    pub jobs: &'static [OrderKeyPart],
    /// Values of the keys of queues.
    pub queues: &'static [OrderKeyPart],
}

/// Kinds of eviction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum VictimKind {
    /// Eviction within a queue.
    Preempt,
    /// Eviction between queues.
    Reclaim,
    /// Eviction of whole gangs within a queue, for the preemptor's job.
    GangPreempt,
    /// Eviction of whole gangs between queues, for the preemptor's job.
    GangReclaim,
    /// Eviction without a preemptor, such as of tasks on nodes with a high load.
    Shuffle,
}

/// Part of a plugin in evictions without a preemptor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ShufflePart {
    /// The plugin names victims, in rounds.
    Names {
        /// Nanoseconds from one round to the next, at least.
        interval: i64,
    },
    /// The plugin spares tasks that others name.
    Spares,
}

impl VictimKind {
    /// True for evictions of whole gangs.
    pub fn is_of_gangs(self) -> bool {
        matches!(self, Self::GangPreempt | Self::GangReclaim)
    }
}

/// Query for the candidates that may be evicted for a preemptor.
#[derive(Clone, Copy, Debug)]
pub struct VictimQuery<'a> {
    /// Kind of eviction.
    pub kind: VictimKind,
    /// Task that needs the resources. An empty one for evictions without a preemptor.
    pub preemptor: &'a TaskRecord,
    /// Tasks that may be evicted, in order; a task may appear twice.
    pub candidates: &'a [&'a TaskRecord],
    /// Order in which the candidates would be evicted.
    pub eviction_order: EvictionOrder<'a>,
}

/// Hooks that a plugin registers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "each hook is there or not, whatever the others are"
)]
pub struct PluginHooks {
    /// True if the plugin takes part in Filter.
    pub filter: bool,
    /// True if the plugin takes part in Score.
    pub score: bool,
    /// True if the plugin takes part in Order, of jobs or queues.
    pub order: bool,
    /// True if the plugin takes part in `SelectVictims`.
    pub victims: bool,
    /// True if the plugin takes part in Admit.
    pub admit: bool,
    /// True if the plugin has opinions on the state of jobs.
    pub job_state: bool,
    /// True if the plugin takes part in Order, of tasks.
    pub task_order: bool,
    /// True if the filter or the score reads the task's queue and limits, and plugin states. Task classes become
    /// smaller then, and queries wait until the plugin states are computed.
    pub accounts: bool,
    /// True if the filter or the score may tell tasks of one job apart, see [`Plugin::reads_task`]. Only beside `accounts`.
    pub reads_tasks: bool,
    /// True if the filter or the score reads the devices of nodes. Columns do not have devices, so Place then evaluates
    /// nodes from their entries.
    pub devices: bool,
    /// Constraints between pods and nodes that the filter evaluates. Results list constraints that are not evaluated by
    /// any hook.
    pub filter_evaluates: ConstraintSet,
    /// Constraints between pods and nodes that the score evaluates.
    pub score_evaluates: ConstraintSet,
    /// Rule by which the filter picks devices for a task's share; `None`: it picks none.
    pub device_pick: Option<DevicePick>,
    /// True if the plugin tells filters and scores of Kubernetes which pods a session moves. Of a policy without such a
    /// plugin, the reference's scores show the pods as the session found them.
    pub moves_pods: bool,
    /// True if the filter or the score reads the pods of nodes as Kubernetes counts them.
    pub reads_pods: bool,
    /// True if the plugin abstains on every task. Place then does not ask it about each task.
    pub abstains_on_tasks: bool,
    /// Name under which the plugin's state is kept, if plugins of other names read the same state; `None`: the plugin's
    /// own.
    pub shared_state: Option<&'static str>,
    /// How tasks of one template are found, if the filter judges all of them by the first one in the query.
    pub template: Option<TemplateRule>,
}

/// Effect of a query that gives no time on a plugin that compares with it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TimeEffect {
    /// Decisions that depend on the time.
    pub decisions: &'static [DecisionKind],
    /// Sentence: the effect on them.
    pub effect: &'static str,
}

/// Effect of a cluster state that has none of the records which a plugin compares with.
#[derive(Clone, Copy, Debug)]
pub struct AbsentInput {
    /// Decisions that depend on the records.
    pub decisions: &'static [DecisionKind],
    /// True if a cluster state has none of them.
    pub is_absent: fn(&ClusterState) -> bool,
    /// Sentence: the effect on the decisions.
    pub effect: &'static str,
}

/// Pattern of a plugin that reads all labels.
pub const EVERY_LABEL: &str = "*";

/// Registry entry of a plugin.
#[derive(Clone, Copy, Debug)]
#[expect(clippy::struct_excessive_bools, reason = "each is a fact about the plugin by itself")]
pub struct PluginDef {
    /// Name of the plugin in a policy.
    pub name: &'static str,
    /// Families of decisions that the plugin takes part in, sorted.
    pub families: &'static [&'static str],
    /// Task annotations that the plugin reads.
    pub task_annotations: &'static [&'static str],
    /// Job annotations that the plugin reads.
    pub job_annotations: &'static [&'static str],
    /// Queue annotations that the plugin reads.
    pub queue_annotations: &'static [&'static str],
    /// Node labels that the plugin reads. A `*` at the end or the beginning matches any text, for example
    /// `nvidia.com/*`.
    pub node_labels: &'static [&'static str],
    /// Labels of tasks that the plugin reads, with `*` as in `node_labels`.
    pub task_labels: &'static [&'static str],
    /// Extension points that the plugin has in profiles of a `KubeSchedulerConfiguration`; empty: no profile has it.
    pub profile_points: &'static [&'static str],
    /// Weight with which kube-scheduler enables the plugin in profiles that do not disable it; 0: it enables it without a score;
    /// `None`: only profiles that name the plugin have it.
    pub default_weight: Option<i32>,
    /// True if the plugin computes at `filter` and `score` what it did not prepare at the points before.
    pub prepares_itself: bool,
    /// True if the plugin keeps quotas of queues: a policy that also has one of Volcano's unserved plugins for quotas gets a
    /// warning.
    pub keeps_quotas: bool,
    /// True if the plugin marks jobs that are not ready when a session closes.
    pub marks_unready_jobs: bool,
    /// Meanings of the values of its order keys.
    pub order_keys: OrderKeyMeanings,
    /// Switch with which the plugin excludes another one in its tier; `None`: it excludes none.
    pub excludes: Option<(Switch, &'static str)>,
    /// True if the accounts of the plugin's state have gauges: the page of metrics computes the state then.
    pub gauges: bool,
    /// Effect of a query that gives no time; `None`: the plugin does not compare with the time.
    pub time_effect: Option<TimeEffect>,
    /// Effect of a cluster state without the records that the plugin reads; `None`: every state has them, or their absence has a
    /// meaning of its own.
    pub absent_input: Option<&'static AbsentInput>,
    /// Rules of the plugin about records; `None`: it has none.
    pub record_rules: Option<&'static dyn RecordRules>,
    /// Compiles the plugin's arguments and reports diagnostics. After an error the result is not used.
    pub compile: PluginCompiler,
}

impl PluginDef {
    /// Kinds of records whose labels the plugin reads completely.
    pub fn all_labels(&self) -> LabelKinds {
        LabelKinds {
            nodes: self.node_labels.contains(&EVERY_LABEL),
            tasks: self.task_labels.contains(&EVERY_LABEL),
        }
    }

    /// Entry of a plugin that takes part in nothing and reads nothing yet.
    pub const fn new(name: &'static str, compile: PluginCompiler) -> Self {
        Self {
            name,
            families: &[],
            task_annotations: &[],
            job_annotations: &[],
            queue_annotations: &[],
            node_labels: &[],
            task_labels: &[],
            profile_points: &[],
            default_weight: None,
            prepares_itself: false,
            keeps_quotas: false,
            marks_unready_jobs: false,
            order_keys: OrderKeyMeanings { jobs: &[], queues: &[] },
            excludes: None,
            gauges: false,
            time_effect: None,
            absent_input: None,
            record_rules: None,
            compile,
        }
    }
}

/// Compiler of a plugin's arguments.
pub type PluginCompiler = fn(&PluginArguments, Compatibility, &mut DiagnosticReport) -> Arc<dyn Plugin>;
