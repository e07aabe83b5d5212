//! The state and the policy that evaluate a request, and the metadata of its response.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use prost::Message;

use pumice_engine::cycle::{ChangeOutcome, SchedulingCycle};
use pumice_engine::decide::{Parallelism, PluginStateOrigin, VerdictReuse};
use pumice_engine::model::{ClusterState, ErrorCode, Problem};
use pumice_engine::plugin::{DecisionTime, EVERY_QUEUE, PluginContext};
use pumice_engine::plugin_state::PluginStates;
use pumice_engine::policy::DecisionKind;
use pumice_engine::{PolicyInForce, Revision, Snapshot};
use pumice_state::SteppedSession;

use super::ServerContext;
use super::convert::batch::problems;
use super::convert::listing::timestamp;
use super::convert::nodes::{NodeEncoding, NodeSetReader, NodeSetWriter};
use super::convert::not_evaluated::{self, EvaluatedState};
use super::convert::query::QueryBasis;
use super::convert::wire::Wire as _;
use super::pb;
use super::status::CallError;

/// Longest metadata in the trailers of an error, where it is sent as base64.
const METADATA_BYTES: usize = 1_500;
/// State that a request is evaluated on, held to the end of the call.
#[derive(Debug)]
pub(super) enum HeldState {
    Snapshot(Arc<Snapshot>),
    Session(Box<SteppedSession>),
    Inline(Box<ClusterState>),
}

/// Context in which one request is evaluated, held to the end of the call.
#[derive(Debug)]
pub(super) struct EvaluationContext {
    state: HeldState,
    pub(super) policy: Arc<PolicyInForce>,
    revision: Revision,
    pub(super) node_table: Option<pb::NodeTableVersion>,
    pub(super) warnings: Vec<Problem>,
    /// Time of the decision; `None`: the request gives none.
    pub(super) now: Option<DecisionTime>,
}

impl EvaluationContext {
    /// Context of a state and a policy, for a request that names no slots and gives no time.
    pub(super) fn new(state: HeldState, policy: Arc<PolicyInForce>, revision: Revision) -> Self {
        EvaluationContext {
            state,
            policy,
            revision,
            node_table: None,
            warnings: Vec::new(),
            now: None,
        }
    }

    /// Context of a session after a step.
    pub(super) fn of_session(stepped: SteppedSession) -> Self {
        let (policy, revision) = (Arc::clone(&stepped.policy), stepped.revision);
        Self::new(HeldState::Session(Box::new(stepped)), policy, revision)
    }

    /// Cluster state with what its policy evaluates for a decision that names these plugins; empty: it asks what is switched on.
    pub(super) fn evaluated_state(&self, plugins: &[Arc<str>]) -> EvaluatedState<'_> {
        EvaluatedState::new(self.cluster_state(), &self.policy.policy, plugins)
    }

    pub(super) fn cluster_state(&self) -> &ClusterState {
        match &self.state {
            HeldState::Snapshot(snapshot) => &snapshot.state,
            HeldState::Session(step) => &step.cluster_state,
            HeldState::Inline(cluster_state) => cluster_state,
        }
    }

    /// Session in which the request is evaluated; `None`: it is evaluated in none.
    fn session(&self) -> Option<&SteppedSession> {
        match &self.state {
            HeldState::Session(step) => Some(step),
            HeldState::Snapshot(_) | HeldState::Inline(_) => None,
        }
    }

    /// Plugin states of the cluster state. Takes long if they have to be computed first.
    pub(super) fn plugin_states(&self) -> PluginStates {
        match &self.state {
            HeldState::Snapshot(snapshot) => snapshot.plugin_states(&self.policy),
            HeldState::Session(step) => step.cycle.plugin_states().clone(),
            HeldState::Inline(cluster_state) => self.policy.policy.compute_plugin_states(cluster_state),
        }
    }

    /// Plugin states for a query of Filter or Score with these plugins; empty if none of them reads its state.
    pub(super) fn plugin_states_for(&self, plugins: &[Arc<str>]) -> PluginStates {
        if self.policy.policy.reads_plugin_state(plugins) {
            self.plugin_states()
        } else {
            PluginStates::default()
        }
    }

    /// True if Filter and Score by the policy's tiers have all plugin states that they need.
    pub(super) fn has_plugin_states(&self) -> bool {
        match &self.state {
            HeldState::Session(_) => true,
            HeldState::Snapshot(snapshot) => {
                !self.policy.policy.reads_plugin_state(&[]) || snapshot.plugin_state_cache.is_ready(&self.policy.name)
            }
            HeldState::Inline(_) => !self.policy.policy.reads_plugin_state(&[]),
        }
    }

    /// Origin of the plugin states: whether they belong to a snapshot or to a session.
    pub(super) fn plugin_state_origin<'a>(&self, derived: &'a PluginStates) -> PluginStateOrigin<'a> {
        match self.session() {
            Some(_) => PluginStateOrigin::Modified(derived),
            None => PluginStateOrigin::Computed(derived),
        }
    }

    /// Context that filters and scores read.
    pub(super) fn prepare_context<'a>(&'a self, derived: &'a PluginStates) -> PluginContext<'a> {
        PluginContext::new(self.cluster_state(), derived, self.now)
    }

    /// Verdicts of earlier queries on the same lineage of states; `None`: a cluster that came with its request has none.
    fn verdict_reuse<'a>(&'a self, edge: &'a ServerContext) -> Option<VerdictReuse<'a>> {
        let lineage = match &self.state {
            HeldState::Snapshot(_) => "",
            HeldState::Session(step) => step.name(),
            HeldState::Inline(_) => return None,
        };
        Some(edge.verdict_reuse(&self.policy.policy, lineage))
    }

    /// Execution of a query on this state, which may be cancelled.
    pub(super) fn parallelism<'a>(
        &'a self,
        edge: &'a ServerContext,
        threads: usize,
        is_cancelled: &'a (dyn Fn() -> bool + Sync),
    ) -> Parallelism<'a> {
        Parallelism {
            threads,
            is_cancelled,
            verdicts: self.verdict_reuse(edge),
        }
    }

    /// Cluster state as a cycle, with its plugin states. Takes long if they have to be computed first.
    pub(super) fn cycle(&self) -> SchedulingCycle {
        let new = || {
            let rules = self.policy.policy.node_change_rules();
            SchedulingCycle::new(self.cluster_state().clone(), rules, self.plugin_states())
        };
        self.session().map_or_else(new, |step| step.cycle.clone())
    }

    /// Reader of node sets, with the table of this cluster state's slots.
    fn node_sets(&self) -> NodeSetReader<'_> {
        NodeSetReader {
            state: self.cluster_state(),
            epoch: self.revision.epoch,
            inline: matches!(self.state, HeldState::Inline(_)),
            table: self.node_table.as_ref(),
        }
    }

    /// Basis of the request's query.
    pub(super) fn query_basis<'a>(&'a self, edge: &'a ServerContext) -> QueryBasis<'a> {
        QueryBasis {
            nodes: self.node_sets(),
            compatibility: self.policy.policy.compatibility(),
            now: self.now,
            options: &edge.read_options,
        }
    }

    /// Metadata of a response that names nodes in this encoding.
    pub(super) fn response_metadata(&self, edge: &ServerContext, encoding: NodeEncoding) -> pb::ResponseMetadata {
        pb::ResponseMetadata {
            node_table: (encoding == NodeEncoding::Slots).then(|| self.node_sets().table_version()),
            effects: self.session().map(|step| session_effects(step, encoding)),
            warnings: self.warnings(edge),
            now: timestamp(self.now.map(|now| now.seconds)),
            ..response_metadata(edge.next_decision_id(), self.revision, &self.policy)
        }
    }

    /// Metadata of a decision about which the request names these plugins.
    pub(super) fn decision_metadata(
        &self,
        edge: &ServerContext,
        encoding: NodeEncoding,
        kind: DecisionKind,
        plugins: &[Arc<str>],
    ) -> pb::ResponseMetadata {
        let (policy, state) = (&self.policy.policy, self.cluster_state());
        pb::ResponseMetadata {
            not_evaluated: not_evaluated::of_decision(policy, kind, plugins, Some(state), self.now),
            ..self.response_metadata(edge, encoding)
        }
    }

    /// Warnings about the state: parts of an inline cluster that were ignored, or sources that may miss changes.
    fn warnings(&self, edge: &ServerContext) -> Vec<pb::Problem> {
        if matches!(self.state, HeldState::Inline(_)) {
            return problems(&self.warnings);
        }
        let stale = |(source, silence): (Arc<str>, Duration)| {
            let seconds = silence.as_secs();
            let message =
                format!("source `{source}` is stale: it was heard {seconds} s ago, and its records may be old");
            Problem::new(ErrorCode::SourceStale, format!("sources[{source}]"), message)
        };
        let unconfirmed = |time: Duration| {
            let seconds = time.as_secs();
            let message = format!(
                "the store has not confirmed for {seconds} s that this server has its newest entry: promises of other servers may be missing"
            );
            Problem::new(ErrorCode::StoreStale, "store", message)
        };
        let stale = edge.state.stale_sources().into_iter().map(stale);
        problems(stale.chain(edge.state.store_unconfirmed().map(unconfirmed)))
    }

    /// Number of the last applied change, in a session.
    pub(super) fn applied_through(&self) -> Option<u64> {
        self.session().map(|step| step.applied_through)
    }

    /// Adds the metadata of the session, with its last applied change, to an error.
    pub(super) fn attach_metadata(&self, edge: &ServerContext, failure: CallError) -> CallError {
        if self.session().is_none() {
            return failure;
        }
        failure.with_response_metadata(&fit_trailers(self.response_metadata(edge, NodeEncoding::Names)))
    }
}

/// Response metadata for a state and a policy.
pub(super) fn response_metadata(
    decision_id: String,
    revision: Revision,
    policy: &PolicyInForce,
) -> pb::ResponseMetadata {
    let PolicyInForce {
        name,
        version,
        hash,
        profile: _,
        policy: _,
    } = policy;
    pb::ResponseMetadata {
        decision_id,
        revision: Some(revision.write()),
        policy: name.to_string(),
        policy_version: *version,
        policy_hash: hash.to_string(),
        ..pb::ResponseMetadata::default()
    }
}

/// Invalidation of all earlier results.
fn invalidate_all() -> pb::Invalidation {
    pb::Invalidation {
        scope: pb::InvalidationScope::All.into(),
        ..pb::Invalidation::default()
    }
}

/// Shortens metadata to fit in trailers, because clients accept only a few kilobytes. Long invalidations become ALL.
fn fit_trailers(mut metadata: pb::ResponseMetadata) -> pb::ResponseMetadata {
    if metadata.encoded_len() > METADATA_BYTES
        && let Some(effects) = &mut metadata.effects
    {
        effects.invalidation = Some(invalidate_all());
        while metadata.encoded_len() > METADATA_BYTES
            && let Some(effects) = &mut metadata.effects
            && effects.warnings.pop().is_some()
        {}
    }
    metadata
}

/// Effects of the changes of a session, with nodes in this encoding.
pub(super) fn session_effects(step: &SteppedSession, encoding: NodeEncoding) -> pb::SessionEffects {
    let ChangeOutcome {
        nodes,
        queues,
        warnings,
        events: _,
    } = &step.outcome;
    let writer = NodeSetWriter::new(&step.cluster_state, encoding);
    let touched: Vec<_> = nodes.iter().copied().collect();
    let scope = if touched.is_empty() {
        pb::InvalidationScope::None
    } else {
        pb::InvalidationScope::Nodes
    };
    // Repeated changes: their outcome was part of a reply that may be lost, and is not remembered. Amounts of jobs and
    // queues count on every node.
    let elsewhere = !touched.is_empty() && step.policy.policy.reads_plugin_state(&[]);
    let invalidation = if step.repeated || elsewhere {
        invalidate_all()
    } else {
        pb::Invalidation {
            scope: scope.into(),
            nodes: (!touched.is_empty()).then(|| writer.set(&touched)),
            queues: changed_queues(step, queues),
        }
    };
    pb::SessionEffects {
        applied_through: step.applied_through,
        invalidation: Some(invalidation),
        warnings: problems(warnings),
    }
}

/// Names of queues whose keys changed.
fn changed_queues(step: &SteppedSession, queues: &BTreeSet<Arc<str>>) -> Vec<String> {
    if queues.contains(EVERY_QUEUE) {
        return step
            .cluster_state
            .queues()
            .iter()
            .map(|(name, _)| name.to_string())
            .collect();
    }
    queues.iter().map(ToString::to_string).collect()
}
