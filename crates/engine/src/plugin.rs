//! Plugin contract: batch hooks that take a task class and fill columns of nodes.

use std::fmt::Debug;
use std::sync::Arc;

use smallvec::SmallVec;

use super::model::resource_name::ResourceKind;
use super::model::{
    CHUNK_SIZE, ClusterState, JobRecord, NamedAmounts, NodeChunk, NodeMask, Problem, TaskClass, TaskRecord,
};
use super::plugin_state::{PluginState, PluginStates};
use super::policy::{Compatibility, DiagnosticReport, PluginArguments, PluginSwitches, YamlValue};

/// Scores of the nodes of one chunk.
pub type ChunkScores = [f64; CHUNK_SIZE];

/// Largest number of parts that a plugin's score may have.
pub const MAX_PARTS: usize = 4;

/// Queue name that means all queues, in lists of queues whose keys changed. No queue has this name.
pub const EVERY_QUEUE: &str = "";

/// Rejected nodes of one chunk, grouped by the number of the filter's reason.
#[derive(Clone, Debug, Default)]
pub struct ChunkRejections {
    groups: SmallVec<[(u16, NodeMask); 8]>,
    ignore_reasons: bool,
}

impl ChunkRejections {
    /// Rejections for a caller that reads only which nodes are rejected.
    pub fn without_reasons() -> Self {
        Self {
            ignore_reasons: true,
            ..Self::default()
        }
    }

    /// True if nobody reads the reasons, so that the filter need not determine them.
    pub fn ignores_reasons(&self) -> bool {
        self.ignore_reasons
    }

    /// Records that these nodes are rejected for this reason. A filter rejects a node once.
    pub fn reject(&mut self, number: u16, nodes: &NodeMask) {
        if self.ignore_reasons || nodes.is_empty() {
            return;
        }
        match self.groups.iter_mut().find(|(other, _)| *other == number) {
            Some((_, group)) => *group = group.or(nodes),
            None => self.groups.push((number, *nodes)),
        }
    }

    /// Takes the groups; no node counts as rejected afterwards.
    pub fn drain(&mut self) -> impl Iterator<Item = (u16, NodeMask)> + '_ {
        self.groups.drain(..)
    }
}

/// Plugin of a policy, compiled once and never changed.
pub trait Plugin: Debug + Send + Sync {
    /// Hooks that the plugin registers; the others are never called.
    fn hooks(&self) -> PluginHooks;

    /// Arguments after defaults and repairs, in the spelling of the policy document.
    fn effective_arguments(&self) -> YamlValue;

    /// Prepares the scores of a task class; `None`: 0 on every node.
    ///
    /// # Errors
    /// The class carries something that the plugin cannot read, such as a malformed annotation.
    fn prepare_scorer<'a>(
        &'a self,
        class: &'a TaskClass,
        facts: PrepareContext<'a>,
    ) -> PreparedHook<dyn NodeScorer + 'a> {
        let _ = (class, facts);
        Ok(None)
    }

    /// Prepares the filter of a task class; `None`: every node passes.
    ///
    /// # Errors
    /// The errors of [`Self::prepare_scorer`].
    fn prepare_filter<'a>(
        &'a self,
        class: &'a TaskClass,
        facts: PrepareContext<'a>,
    ) -> PreparedHook<dyn NodeFilter + 'a> {
        let _ = (class, facts);
        Ok(None)
    }

    /// Computes the plugin's state from a cluster state; `None`: the plugin has none. `switches` are those of the first
    /// entry of its name, which hold for all entries.
    fn build_state(&self, cluster_state: &ClusterState, switches: &PluginSwitches) -> Option<Arc<dyn PluginState>> {
        let _ = (cluster_state, switches);
        None
    }

    /// Order keys of jobs, smaller first; `None`: the plugin does not order jobs in this policy.
    fn job_keys(&self, derived: &PluginStates, jobs: &[Arc<str>]) -> Option<Vec<OrderKey>> {
        let _ = (derived, jobs);
        None
    }

    /// Order keys of queues, smaller first; `None`: the plugin does not order queues in this policy.
    fn queue_keys(&self, derived: &PluginStates, queues: &[Arc<str>]) -> Option<Vec<OrderKey>> {
        let _ = (derived, queues);
        None
    }

    /// Why the reference cannot tell which of two queues comes first, if that is for want of something of the first one;
    /// only under `compatibility: upstream`.
    fn breaks_order(&self, derived: &PluginStates, queue: &str, other: &str) -> Option<Problem> {
        let _ = (derived, queue, other);
        None
    }

    /// Opinion on whether a job may be enqueued; `None`: the plugin abstains. With `keep` the plugin reserves the needs
    /// of a permitted job.
    ///
    /// # Errors
    /// The job cannot be judged.
    fn admit_job(
        &self,
        derived: &mut PluginStates,
        cluster_state: &ClusterState,
        job: &JobRecord,
        keep: bool,
    ) -> Result<Option<AdmitOpinion>, Problem> {
        let _ = (derived, cluster_state, job, keep);
        Ok(None)
    }

    /// Opinion on whether a task of a queue may be allocated; `None`: the plugin abstains.
    ///
    /// # Errors
    /// The task cannot be judged.
    fn admit_task(
        &self,
        derived: &PluginStates,
        cluster_state: &ClusterState,
        queue: &str,
        task: &TaskRecord,
    ) -> Result<Option<AdmitOpinion>, Problem> {
        let _ = (derived, cluster_state, queue, task);
        Ok(None)
    }

    /// Number of tasks like this one, itself included, that the plugin surely permits one after the other, on whichever
    /// nodes. The task is permitted and holds nothing yet. These tasks use no cards, and each changes the plugin's
    /// state alike ([`PluginState::apply_repeated`]). 1: each task must be judged.
    fn repeatable_admissions(
        &self,
        derived: &PluginStates,
        cluster_state: &ClusterState,
        queue: &str,
        task: &TaskRecord,
    ) -> u64 {
        let _ = (derived, cluster_state, queue, task);
        1
    }

    /// True if the filter or the score of this task depends on the holdings of the task's job. Only for plugins that
    /// declare [`PluginHooks::accounts`].
    fn reads_job(&self, task: &TaskRecord) -> bool {
        let _ = task;
        false
    }

    /// Card that a task uses on a node; `None`: the plugin assigns no cards, or the node has none for the task.
    /// `admitted` are the cards that admission permitted, best first; empty: it named none.
    fn card_on_node(
        &self,
        derived: &PluginStates,
        task: &TaskRecord,
        node: &str,
        admitted: &[Arc<str>],
    ) -> Option<Arc<str>> {
        let _ = (derived, task, node, admitted);
        None
    }

    /// Releases the tentative reservations of jobs that were not enqueued.
    ///
    /// # Errors
    /// A reservation cannot be released.
    fn release_tentative(&self, derived: &mut PluginStates) -> Result<(), Problem> {
        let _ = derived;
        Ok(())
    }

    /// True for each candidate that may be evicted; `None`: the plugin abstains.
    ///
    /// # Errors
    /// The query cannot be judged.
    fn victims(&self, query: &VictimQuery<'_>) -> Result<Option<Vec<bool>>, Problem> {
        let _ = query;
        Ok(None)
    }

    /// Amounts other than the node's resources that the preemptor lacks on a node, each with the gain from every
    /// candidate; empty: the plugin permits the preemptor there.
    ///
    /// # Errors
    /// The query cannot be judged.
    fn shortfalls(&self, query: &VictimQuery<'_>, node: &str) -> Result<Vec<Shortfall>, Problem> {
        let _ = (query, node);
        Ok(Vec::new())
    }
}

/// State from which filters and scores are prepared, besides the class.
#[derive(Clone, Copy, Debug)]
pub struct PrepareContext<'a> {
    /// Cluster state.
    pub state: &'a ClusterState,
    /// Plugin states of the cluster state; empty unless a plugin of the query declares [`PluginHooks::accounts`].
    pub plugin_states: &'a PluginStates,
}

/// Opinion of one plugin on the admission of a job or a task.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct AdmitOpinion {
    /// Reasons against it, with measurements; empty: permitted.
    pub reasons: Vec<(Reason, Vec<Measurement>)>,
    /// Cards that a task may use, best first, each with the number of such tasks that the queue still admits on it.
    pub cards: Vec<(Arc<str>, u64)>,
    /// Number of tasks like this one that the queue still admits; `None`: without limit, or for a job.
    pub headroom: Option<u64>,
    /// Amounts promised to an admitted job, by name.
    pub reserve: NamedAmounts,
}

/// Order key of one job or queue, compared value by value; or the problem that it has none.
pub type OrderKey = Result<Vec<f64>, Problem>;

/// Kinds of eviction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum VictimKind {
    /// Eviction within a queue.
    Preempt,
    /// Eviction between queues.
    Reclaim,
}

/// Query for the candidates that may be evicted for a preemptor.
#[derive(Clone, Copy, Debug)]
pub struct VictimQuery<'a> {
    /// Kind of eviction.
    pub kind: VictimKind,
    /// Plugin states of the cluster state.
    pub plugin_states: &'a PluginStates,
    /// Task that needs the resources.
    pub preemptor: &'a TaskRecord,
    /// Tasks that may be evicted, in order; a task may appear twice.
    pub candidates: &'a [&'a TaskRecord],
}

/// Amount other than the node's resources that a preemptor lacks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Shortfall {
    /// Missing amount; above 0.
    pub missing: i128,
    /// Gain from the eviction of each candidate, in their order.
    pub gains: Vec<i128>,
}

/// Hook that is prepared for one task class.
pub type PreparedHook<H> = Result<Option<Box<H>>, Problem>;

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
    /// True if the filter or the score reads the task's queue and limits, and plugin states. Task classes become
    /// smaller then, and queries wait until the plugin states are computed.
    pub accounts: bool,
}

/// Prepared score of one task class.
pub trait NodeScorer {
    /// Names of the score's parts in the order of their sum, at most [`MAX_PARTS`]; one empty name: the whole plugin.
    fn parts(&self) -> &[&'static str];

    /// Fills one column per part. Places without a node may get any finite value.
    fn score(&self, chunk: &NodeChunk, parts: &mut [ChunkScores]);

    /// Bounds of the plugin's score; a queried node outside them makes the task fail. `None`: no score can leave its
    /// bounds.
    fn range(&self) -> Option<(f64, f64)> {
        None
    }

    /// Warnings about the class, such as an annotation that the reference ignores.
    fn warnings(&self) -> Vec<Problem> {
        Vec::new()
    }
}

/// Prepared filter of one task class.
pub trait NodeFilter {
    /// Judges the nodes of the chunk that are in `among`. Returns the rejected ones, and records a reason for each of
    /// them if reasons are read.
    fn filter(&self, chunk: &NodeChunk, among: &NodeMask, verdicts: &mut ChunkRejections) -> NodeMask;

    /// Reason of this number, without measurements.
    fn reason(&self, number: u16) -> Reason;

    /// Measurements that a reason compared at one node, in the order of its message.
    fn measurements(&self, chunk: &NodeChunk, offset: usize, number: u16) -> Vec<Measurement>;
}

/// Effect of evictions on a rejection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Resolution {
    /// Evictions may help (Unschedulable).
    Unschedulable,
    /// Evictions cannot help (`UnschedulableAndUnresolvable`).
    Unresolvable,
}

/// Reason of a rejection, for people and programs.
#[derive(Clone, Debug, PartialEq)]
pub struct Reason {
    /// Name of the plugin, or `node-state`, `resource-fit`.
    pub plugin: Arc<str>,
    /// Stable code, usable as the reason of a Kubernetes event.
    pub code: &'static str,
    /// Sentence, usable as the message of that event.
    pub message: String,
    /// Effect of evictions.
    pub resolution: Resolution,
    /// Resource that was short; empty: none in particular.
    pub resource: Arc<str>,
}

/// Measurement of a reason.
#[derive(Clone, Debug, PartialEq)]
pub struct Measurement {
    /// Name of the measured amount: `requested`, `idle memory`.
    pub name: String,
    /// Value in `unit`.
    pub value: f64,
    /// Unit: `cores`, `bytes`, `cards`, or empty for a plain count.
    pub unit: &'static str,
}

impl Measurement {
    /// Measurement of a resource: converts an amount from the engine's unit to people's.
    pub fn of_resource(name: impl Into<String>, resource: &str, amount: f64) -> Self {
        let (divisor, unit) = match ResourceKind::of(resource) {
            ResourceKind::Cpu => (1000.0, "cores"),
            ResourceKind::Memory => (1.0, "bytes"),
            ResourceKind::Pods => (1.0, ""),
            ResourceKind::EphemeralStorage => (1000.0, "bytes"),
            ResourceKind::Scalar if resource.starts_with("hugepages-") => (1000.0, "bytes"),
            ResourceKind::Scalar | ResourceKind::CountQuota | ResourceKind::Uncounted => (1000.0, ""),
        };
        Self {
            name: name.into(),
            value: amount / divisor,
            unit,
        }
    }
}

/// Registry entry of a plugin.
#[derive(Clone, Copy, Debug)]
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
    /// Node labels that the plugin reads; a `*` at the end or the beginning stands for any text there.
    pub node_labels: &'static [&'static str],
    /// Compiles the plugin's arguments and reports diagnostics. After an error the result is not used.
    pub compile: fn(&PluginArguments, Compatibility, &mut DiagnosticReport) -> Arc<dyn Plugin>,
}
