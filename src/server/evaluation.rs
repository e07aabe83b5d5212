//! Resolves a request's `against` to the state and the policy that evaluate it.

use std::any::Any;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use prost::Message;
use tonic::metadata::MetadataMap;

use crate::limits::parse_grpc_timeout;
use pumice_engine::cycle::{ChangeOutcome, SchedulingCycle};
use pumice_engine::decide::PluginStateOrigin;
use pumice_engine::model::{ClusterState, Problem};
use pumice_engine::plugin::{EVERY_QUEUE, PluginContext};
use pumice_engine::plugin_state::PluginStates;
use pumice_engine::policy::{self, CompileOptions};
use pumice_engine::{PolicyInForce, Revision, Snapshot};
use pumice_state::{StateError, SteppedSession, WeighedResult};

use super::ServerContext;
use super::convert::batch::problems;
use super::convert::evaluation_ref::{EvaluationRef, InlineRef, LatestRef, SessionRef};
use super::convert::nodes::{NodeEncoding, NodeSetReader, NodeSetWriter};
use super::convert::not_evaluated::EvaluatedState;
use super::convert::{self, inline};
use super::pb;
use super::status::CallError;
use super::worker_pool::CancellationToken;

/// Name of a policy that came with a request.
const INLINE_POLICY: &str = "inline";
/// Session steps with more changes than this leave the async threads.
const MAX_ASYNC_CHANGES: usize = 64;
/// Longest metadata in the trailers of an error, where it is sent as base64.
const METADATA_BYTES: usize = 1_500;
/// Share of a caller's deadline that is reserved for the response itself, in percent.
const RESPONSE_SHARE: u32 = 10;

/// Inline cluster, its policy, and the warnings from reading them.
type InlineEvaluation = (ClusterState, Arc<PolicyInForce>, Vec<Problem>);

#[derive(Debug)]
enum HeldState {
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
    node_table: Option<pb::NodeTableVersion>,
    warnings: Vec<Problem>,
    /// Time of the decision; `None`: the request gives none.
    pub(super) now: Option<i64>,
}

impl EvaluationContext {
    /// Cluster state with what its policy evaluates.
    pub(super) fn evaluated_state(&self) -> EvaluatedState<'_> {
        EvaluatedState::new(self.cluster_state(), &self.policy.policy)
    }

    pub(super) fn cluster_state(&self) -> &ClusterState {
        match &self.state {
            HeldState::Snapshot(snapshot) => &snapshot.state,
            HeldState::Session(step) => &step.cluster_state,
            HeldState::Inline(cluster_state) => cluster_state,
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
        match &self.state {
            HeldState::Session(_) => PluginStateOrigin::Modified(derived),
            HeldState::Snapshot(_) | HeldState::Inline(_) => PluginStateOrigin::Computed(derived),
        }
    }

    /// Context that filters and scores read.
    pub(super) fn prepare_context<'a>(&'a self, derived: &'a PluginStates) -> PluginContext<'a> {
        PluginContext {
            cluster_state: self.cluster_state(),
            plugin_states: derived,
            now: self.now,
            after_release: false,
        }
    }

    /// Cluster state as a cycle, with its plugin states. Takes long if they have to be computed first.
    pub(super) fn cycle(&self) -> SchedulingCycle {
        match &self.state {
            HeldState::Session(step) => step.cycle.clone(),
            HeldState::Snapshot(_) | HeldState::Inline(_) => SchedulingCycle::new(
                self.cluster_state().clone(),
                self.policy.policy.compatibility(),
                self.plugin_states(),
            ),
        }
    }

    /// Reader of node sets, with the table of this cluster state's slots.
    pub(super) fn node_sets(&self) -> NodeSetReader<'_> {
        NodeSetReader {
            state: self.cluster_state(),
            epoch: self.revision.epoch,
            inline: matches!(self.state, HeldState::Inline(_)),
        }
    }

    /// Table that the request's slots refer to.
    pub(super) fn node_table(&self) -> Option<&pb::NodeTableVersion> {
        self.node_table.as_ref()
    }

    /// Metadata of a response that names nodes in this encoding.
    pub(super) fn response_metadata(&self, edge: &ServerContext, encoding: NodeEncoding) -> pb::ResponseMetadata {
        let effects = match &self.state {
            HeldState::Session(step) => Some(session_effects(step, encoding)),
            HeldState::Snapshot(_) | HeldState::Inline(_) => None,
        };
        pb::ResponseMetadata {
            node_table: (encoding == NodeEncoding::Slots).then(|| self.node_sets().table_version()),
            effects,
            warnings: problems(&self.warnings),
            now: self.now.map(|seconds| prost_types::Timestamp { seconds, nanos: 0 }),
            ..response_metadata(edge.next_decision_id(), self.revision, &self.policy)
        }
    }

    /// Number of the last applied change, in a session.
    pub(super) fn applied_through(&self) -> Option<u64> {
        match &self.state {
            HeldState::Session(step) => Some(step.applied_through),
            HeldState::Snapshot(_) | HeldState::Inline(_) => None,
        }
    }

    /// Adds the metadata of the session, which says how far it came, to an error.
    pub(super) fn attach_metadata(&self, edge: &ServerContext, failure: CallError) -> CallError {
        match self.state {
            HeldState::Session(_) => {
                failure.with_response_metadata(&fit_trailers(self.response_metadata(edge, NodeEncoding::Names)))
            }
            HeldState::Snapshot(_) | HeldState::Inline(_) => failure,
        }
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
        revision: Some(convert::revision(revision)),
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

/// Shortens metadata to fit in trailers, of which clients take a few kilobytes: long invalidations become general ones.
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

fn session_effects(step: &SteppedSession, encoding: NodeEncoding) -> pb::SessionEffects {
    let ChangeOutcome {
        nodes,
        queues,
        warnings,
        events: _,
    } = &step.outcome;
    let writer = NodeSetWriter {
        state: &step.cluster_state,
        encoding,
    };
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

impl ServerContext {
    /// Evaluates a query that changes its session: one more change, numbered after those in the request.
    pub(super) async fn query_session<T: Any + Send + Sync>(
        self: &Arc<Self>,
        step: SessionRef,
        query: impl FnOnce(&ClusterState, &PolicyInForce, &mut PluginStates) -> Result<WeighedResult<T>, Problem>
        + Send
        + 'static,
    ) -> Result<(EvaluationContext, Arc<T>), CallError> {
        let asked = move |edge: &ServerContext, step: SessionRef, _: &CancellationToken| {
            let SessionRef {
                session,
                after,
                changes,
            } = step;
            Ok(edge.state.query_session(&session, after, &changes, query)?)
        };
        self.change_session(step, asked).await
    }

    /// Changes a session on a worker. Returns the context after the change, and the result.
    pub(super) async fn change_session<T: Any + Send + Sync>(
        self: &Arc<Self>,
        step: SessionRef,
        change: impl FnOnce(&Self, SessionRef, &CancellationToken) -> Result<(SteppedSession, Arc<T>), CallError>
        + Send
        + 'static,
    ) -> Result<(EvaluationContext, Arc<T>), CallError> {
        let edge = Arc::clone(self);
        let name = step.session.clone();
        let changed = move |stop: &CancellationToken| change(&edge, step, stop);
        let answered = self.workers.queries.run(changed).await;
        let (stepped, result) = answered.map_err(|failure| self.with_session_progress(&name, failure))?;
        Ok((Self::session_context(stepped), result))
    }

    /// Context of a session after a step.
    pub(super) fn session_context(stepped: SteppedSession) -> EvaluationContext {
        EvaluationContext {
            policy: Arc::clone(&stepped.policy),
            revision: stepped.revision,
            state: HeldState::Session(Box::new(stepped)),
            node_table: None,
            warnings: Vec::new(),
            now: None,
        }
    }

    /// Resolves the `against` of a request: finds, waits for or builds its state. An error about a session says how far
    /// it came.
    pub(super) async fn resolve(
        self: &Arc<Self>,
        evaluation_ref: Option<pb::EvaluationRef>,
        metadata: &MetadataMap,
    ) -> Result<EvaluationContext, CallError> {
        let session = match evaluation_ref
            .as_ref()
            .and_then(|evaluation_ref| evaluation_ref.target.as_ref())
        {
            Some(pb::evaluation_ref::Target::Session(step)) => Some(step.id.clone()),
            Some(pb::evaluation_ref::Target::Latest(_) | pb::evaluation_ref::Target::Inline(_)) | None => None,
        };
        let found = self.resolve_ref(evaluation_ref, metadata).await;
        found.map_err(|failure| match session {
            Some(session) => self.with_session_progress(&session, failure),
            None => failure,
        })
    }

    /// Adds to an error how far the session came, if that is known.
    pub(super) fn with_session_progress(&self, session: &str, failure: CallError) -> CallError {
        match self.state.applied_through(session) {
            Some(applied) => failure.with_applied_through(applied),
            None => failure,
        }
    }

    async fn resolve_ref(
        self: &Arc<Self>,
        evaluation_ref: Option<pb::EvaluationRef>,
        metadata: &MetadataMap,
    ) -> Result<EvaluationContext, CallError> {
        let now = convert::evaluation_ref::decision_time(evaluation_ref.as_ref());
        let (evaluation_ref, table) = convert::evaluation_ref::read_ref(evaluation_ref, &self.read_options.limits)?;
        let context = match evaluation_ref {
            EvaluationRef::Latest(evaluation_ref) => self.resolve_latest(evaluation_ref, metadata).await?,
            EvaluationRef::Session(step) => self.resolve_session(step).await?,
            EvaluationRef::Inline(evaluation_ref) => {
                let edge = Arc::clone(self);
                let (cluster_state, policy, warnings) =
                    self.run_blocking(move || edge.resolve_inline(*evaluation_ref)).await?;
                let revision = Revision {
                    number: 0,
                    ..self.state.snapshot().revision
                };
                EvaluationContext {
                    state: HeldState::Inline(Box::new(cluster_state)),
                    policy,
                    revision,
                    node_table: None,
                    warnings,
                    now: None,
                }
            }
        };
        Ok(EvaluationContext {
            node_table: table,
            now,
            ..context
        })
    }

    /// Newest snapshot, or one that is at least as new as requested.
    pub(super) async fn resolve_snapshot(
        &self,
        evaluation_ref: &LatestRef,
        metadata: &MetadataMap,
    ) -> Result<Arc<Snapshot>, CallError> {
        if evaluation_ref.at_least.is_none() && evaluation_ref.positions.is_empty() {
            return Ok(self.state.snapshot());
        }
        let wait = wait_before_deadline(evaluation_ref.max_wait.min(self.state.limits().wait), metadata);
        let snapshot = self
            .state
            .snapshot_at(evaluation_ref.at_least, &evaluation_ref.positions, wait)
            .await;
        Ok(snapshot?)
    }

    async fn resolve_latest(
        &self,
        evaluation_ref: LatestRef,
        metadata: &MetadataMap,
    ) -> Result<EvaluationContext, CallError> {
        let snapshot = self.resolve_snapshot(&evaluation_ref, metadata).await?;
        let Some(policy) = snapshot.policies.get(&evaluation_ref.policy) else {
            return Err(StateError::PolicyUnknown {
                name: evaluation_ref.policy,
            }
            .into());
        };
        let policy = policy.of_profile(&evaluation_ref.profile);
        Ok(EvaluationContext {
            policy: policy.map_err(StateError::ProfileUnknown)?,
            revision: snapshot.revision,
            state: HeldState::Snapshot(snapshot),
            node_table: None,
            warnings: Vec::new(),
            now: None,
        })
    }

    async fn resolve_session(self: &Arc<Self>, step: SessionRef) -> Result<EvaluationContext, CallError> {
        let edge = Arc::clone(self);
        let many = step.changes.len() > MAX_ASYNC_CHANGES;
        let step = move || -> Result<SteppedSession, CallError> {
            let SessionRef {
                session,
                after,
                changes,
            } = step;
            Ok(edge.state.step_session(&session, after, &changes)?)
        };
        let stepped = if many { self.run_blocking(step).await? } else { step()? };
        Ok(Self::session_context(stepped))
    }

    /// Builds the cluster and the policy that came with a request. Returns warnings, too.
    pub(super) fn resolve_inline(&self, evaluation_ref: InlineRef) -> Result<InlineEvaluation, CallError> {
        let InlineRef {
            cluster,
            document,
            profile,
            compatibility,
        } = evaluation_ref;
        let policy = self.compile_inline_policy(&document, &compatibility)?;
        let policy = policy.of_profile(&profile).map_err(StateError::ProfileUnknown)?;
        let (cluster_state, warnings) = inline::cluster_state(cluster, &self.read_options)?;
        Ok((cluster_state, policy, warnings))
    }

    fn compile_inline_policy(&self, document: &str, compatibility: &str) -> Result<Arc<PolicyInForce>, CallError> {
        let document = if document.is_empty() {
            super::BUILT_IN_POLICY
        } else {
            document
        };
        let options = CompileOptions {
            limits: self.state.limits().document_limits(),
            compatibility: convert::policy::read_compatibility("against.inline.compatibility", compatibility)?,
            strict: false,
        };
        let compiled = policy::compile(document, &options).map_err(|report| {
            let message = format!("against.inline.policy_document: {} errors", report.errors().count());
            let failure = CallError::invalid("POLICY_REJECTED", message);
            failure.with_policy_report(convert::policy::policy_report(&report))
        })?;
        Ok(Arc::new(PolicyInForce {
            name: Arc::from(INLINE_POLICY),
            version: 0,
            hash: pumice_state::document_hash(document),
            profile: Arc::default(),
            policy: compiled.policy,
        }))
    }
}

/// Time to wait for a state, so that the error still arrives before the caller's deadline.
fn wait_before_deadline(wanted: Duration, metadata: &MetadataMap) -> Duration {
    let timeout = metadata.get("grpc-timeout").and_then(|value| value.to_str().ok());
    match timeout.and_then(parse_grpc_timeout) {
        Some(timeout) => wanted.min(timeout.saturating_sub(timeout * RESPONSE_SHARE / 100)),
        None => wanted,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_wait_ends_before_the_deadline() {
        let mut metadata = MetadataMap::new();
        assert_eq!(
            wait_before_deadline(Duration::from_secs(3), &metadata),
            Duration::from_secs(3)
        );
        metadata.insert("grpc-timeout", "1000m".parse().unwrap());
        assert_eq!(
            wait_before_deadline(Duration::from_secs(3), &metadata),
            Duration::from_millis(900)
        );
        assert_eq!(parse_grpc_timeout("99999999H"), Some(Duration::from_hours(99_999_999)));
        for wrong in ["", "S", "1", "123456789S", "1x", "-1S", "1é"] {
            assert_eq!(parse_grpc_timeout(wrong), None, "{wrong}");
        }
    }
}
