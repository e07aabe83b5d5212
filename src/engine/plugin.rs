//! The contract of plugins: batch hooks over columns. A hook takes a task class and fills columns.

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

/// Most parts that a plugin's score may have.
pub const MAX_PARTS: usize = 4;

/// Among the queues whose keys a change moved, this stands for all there are: no queue has it for a name.
pub const EVERY_QUEUE: &str = "";

/// Why nodes of one chunk were refused: sets of them, by number of a reason of the filter that refused.
#[derive(Clone, Debug, Default)]
pub struct ChunkRejections {
    groups: SmallVec<[(u16, NodeMask); 8]>,
    ignore_reasons: bool,
}

impl ChunkRejections {
    /// For those who want to know nothing but who is refused.
    pub fn without_reasons() -> Self {
        Self {
            ignore_reasons: true,
            ..Self::default()
        }
    }

    /// True if nobody reads reasons, so that none need be found.
    pub fn ignores_reasons(&self) -> bool {
        self.ignore_reasons
    }

    /// Notes that these nodes are refused for this reason; a node is refused once.
    pub fn reject(&mut self, number: u16, nodes: &NodeMask) {
        if self.ignore_reasons || nodes.is_empty() {
            return;
        }
        match self.groups.iter_mut().find(|(other, _)| *other == number) {
            Some((_, group)) => *group = group.or(nodes),
            None => self.groups.push((number, *nodes)),
        }
    }

    /// Takes the groups out; nobody is refused any more.
    pub fn drain(&mut self) -> impl Iterator<Item = (u16, NodeMask)> + '_ {
        self.groups.drain(..)
    }
}

/// A plugin of a policy, compiled once and never changed.
pub trait Plugin: Debug + Send + Sync {
    /// Which hooks it registers; the others are never called.
    fn hooks(&self) -> PluginHooks;

    /// Its arguments with every default put in and every repair made, in the spelling of the policy document.
    fn effective_arguments(&self) -> YamlValue;

    /// Prepares scoring of a task class; `None`: 0 on every node.
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

    /// Prepares filtering for a task class; `None`: passes on every node.
    ///
    /// # Errors
    /// As [`Self::prepare_scorer`].
    fn prepare_filter<'a>(
        &'a self,
        class: &'a TaskClass,
        facts: PrepareContext<'a>,
    ) -> PreparedHook<dyn NodeFilter + 'a> {
        let _ = (class, facts);
        Ok(None)
    }

    /// What it keeps beside a cluster state; `None`: nothing. `switches` are those of the first entry of its name, which decide for
    /// all entries.
    fn build_state(&self, cluster_state: &ClusterState, switches: &PluginSwitches) -> Option<Arc<dyn PluginState>> {
        let _ = (cluster_state, switches);
        None
    }

    /// Order keys of jobs, smaller first; `None`: it has no say in this policy.
    fn job_keys(&self, derived: &PluginStates, jobs: &[Arc<str>]) -> Option<Vec<OrderKey>> {
        let _ = (derived, jobs);
        None
    }

    /// Order keys of queues, smaller first; `None`: it has no say in this policy.
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

    /// Says whether a job may be enqueued, and with `keep` keeps back what a permitted one needs; `None`: it abstains.
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

    /// Says whether a task of a queue may be allocated; `None`: it abstains.
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

    /// Tasks like this one, which is permitted and holds nothing yet, come one after the other, and each goes to some
    /// node: so many of them in a row, this one included, are surely permitted, use no cards, and move what is kept
    /// beside the state alike, whichever nodes they go to ([`PluginState::follow_alike`]). 1: each must be asked about.
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

    /// True if its filter or its score depends, for this task, on what the task's job holds; only for plugins that
    /// declare [`PluginHooks::accounts`].
    fn reads_job(&self, task: &TaskRecord) -> bool {
        let _ = task;
        false
    }

    /// The card that a task uses on a node. `admitted`: the cards that admission said would do, best first; empty: it
    /// said none. `None`: the plugin gives tasks no cards, or the node has none for it.
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

    /// Ends what was kept back for jobs that were not enqueued.
    ///
    /// # Errors
    /// It cannot be taken back.
    fn release_tentative(&self, derived: &mut PluginStates) -> Result<(), Problem> {
        let _ = derived;
        Ok(())
    }

    /// For each candidate, whether it may go; `None`: it abstains.
    ///
    /// # Errors
    /// The question cannot be judged.
    fn victims(&self, query: &VictimQuery<'_>) -> Result<Option<Vec<bool>>, Problem> {
        let _ = query;
        Ok(None)
    }

    /// What the preemptor lacks on a node besides room, each with what the candidates would make up for; nothing: the
    /// plugin has nothing against it there.
    ///
    /// # Errors
    /// The question cannot be judged.
    fn shortfalls(&self, query: &VictimQuery<'_>, node: &str) -> Result<Vec<Shortfall>, Problem> {
        let _ = (query, node);
        Ok(Vec::new())
    }
}

/// What filters and scores are prepared from, besides the class.
#[derive(Clone, Copy, Debug)]
pub struct PrepareContext<'a> {
    /// The state.
    pub state: &'a ClusterState,
    /// What plugins keep beside it; empty unless one of those asked declares [`PluginHooks::accounts`].
    pub plugin_states: &'a PluginStates,
}

/// What one plugin says to a job or a task that asks to be admitted.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct AdmitOpinion {
    /// Why not, with figures; empty: permitted.
    pub reasons: Vec<(Reason, Vec<Measurement>)>,
    /// For a task: the cards that would do, best first, and how many such tasks its queue still admits on each.
    pub cards: Vec<(Arc<str>, u64)>,
    /// For a task: how many of its like its queue still admits; `None`: without limit.
    pub headroom: Option<u64>,
    /// For a job: what it is promised once it is admitted, by name.
    pub reserve: NamedAmounts,
}

/// A key of one job or queue: values compare one by one. Or why there is none.
pub type OrderKey = Result<Vec<f64>, Problem>;

/// The two ways to take room.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum VictimKind {
    /// Within a queue.
    Preempt,
    /// Between queues.
    Reclaim,
}

/// Who may have to go for a preemptor.
#[derive(Clone, Copy, Debug)]
pub struct VictimQuery<'a> {
    /// Which way.
    pub kind: VictimKind,
    /// What plugins keep beside the state.
    pub plugin_states: &'a PluginStates,
    /// Who needs room.
    pub preemptor: &'a TaskRecord,
    /// Who may have to go, in order; one may stand twice.
    pub candidates: &'a [&'a TaskRecord],
}

/// Something besides room that a preemptor lacks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Shortfall {
    /// How much; above 0.
    pub missing: i128,
    /// What each candidate makes up for when it goes, in their order.
    pub gains: Vec<i128>,
}

/// A hook made ready for one task class.
pub type PreparedHook<H> = Result<Option<Box<H>>, Problem>;

/// Hooks that a plugin registers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "each hook is there or not, whatever the others are"
)]
pub struct PluginHooks {
    /// Takes part in Filter.
    pub filter: bool,
    /// Takes part in Score.
    pub score: bool,
    /// Takes part in Order, of jobs or queues.
    pub order: bool,
    /// Takes part in `SelectVictims`.
    pub victims: bool,
    /// Takes part in Admit.
    pub admit: bool,
    /// Its filter or its score depends on the task's queue and limits, and on what plugins keep beside the state. Who
    /// declares it makes classes of tasks smaller, and questions wait for what is kept.
    pub accounts: bool,
}

/// A plugin's score for one task class.
pub trait NodeScorer {
    /// Names of its parts, in the order in which they add up, at most [`MAX_PARTS`]; one empty name: the whole plugin.
    fn parts(&self) -> &[&'static str];

    /// Fills one column per part, for every place of the chunk; places without a node may hold anything finite.
    fn score(&self, chunk: &NodeChunk, parts: &mut [ChunkScores]);

    /// Bounds of the whole plugin's score; a node that is asked about and lies outside refuses the task whole. `None`:
    /// there are none, or none can be crossed.
    fn range(&self) -> Option<(f64, f64)> {
        None
    }

    /// What was overlooked in the class, such as an annotation that the reference ignores.
    fn warnings(&self) -> Vec<Problem> {
        Vec::new()
    }
}

/// A plugin's filter for one task class.
pub trait NodeFilter {
    /// Judges the nodes of the chunk that are in `among`. Answers which of them it refuses, and notes a reason for each
    /// of these, if reasons are read.
    fn filter(&self, chunk: &NodeChunk, among: &NodeMask, verdicts: &mut ChunkRejections) -> NodeMask;

    /// Reason `number`, without figures.
    fn reason(&self, number: u16) -> Reason;

    /// The figures that reason `number` compared at one node, in the order that its message names them.
    fn measurements(&self, chunk: &NodeChunk, offset: usize, number: u16) -> Vec<Measurement>;
}

/// May evictions help?
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Resolution {
    /// They may.
    Unschedulable,
    /// They cannot.
    Unresolvable,
}

/// Why something was refused, for people and programs.
#[derive(Clone, Debug, PartialEq)]
pub struct Reason {
    /// Plugin, or `node-state`, `resource-fit`.
    pub plugin: Arc<str>,
    /// Stable word, usable as the reason of a Kubernetes event.
    pub code: &'static str,
    /// Sentence, usable as the message of that event.
    pub message: String,
    /// May evictions help?
    pub resolution: Resolution,
    /// Resource that was short; empty: none in particular.
    pub resource: Arc<str>,
}

/// One figure of a reason.
#[derive(Clone, Debug, PartialEq)]
pub struct Measurement {
    /// What it is: `requested`, `idle memory`.
    pub name: String,
    /// In `unit`.
    pub value: f64,
    /// `cores`, `bytes`, `cards`, or empty for a plain count.
    pub unit: &'static str,
}

impl Measurement {
    /// An amount of a resource, given in the engine's unit, in people's.
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

/// A row of the registry.
#[derive(Clone, Copy, Debug)]
pub struct PluginDef {
    /// Name in a policy.
    pub name: &'static str,
    /// Families of questions that it takes part in, sorted.
    pub families: &'static [&'static str],
    /// Annotations of tasks that it reads.
    pub task_annotations: &'static [&'static str],
    /// Annotations of jobs that it reads.
    pub job_annotations: &'static [&'static str],
    /// Annotations of queues that it reads.
    pub queue_annotations: &'static [&'static str],
    /// Labels of nodes that it reads; a trailing `*` means any that begins so, a leading one any that ends so.
    pub node_labels: &'static [&'static str],
    /// Compiles its arguments. Faults go to the report; with a fault among them the result is not used.
    pub compile: fn(&PluginArguments, Compatibility, &mut DiagnosticReport) -> Arc<dyn Plugin>,
}
