//! Resolves the state and policy that a request is evaluated against: shared state, a session, or an inline cluster and
//! policy.

use std::any::Any;
use std::sync::Arc;
use std::time::Duration;

use tonic::Code;
use tonic::metadata::MetadataMap;

use crate::limits::parse_grpc_timeout;
use pumice_engine::model::{ClusterState, Problem};
use pumice_engine::plugin_state::PluginStates;
use pumice_engine::policy::{self, CompileOptions};
use pumice_engine::{PolicyInForce, Revision, Snapshot};
use pumice_state::{StateError, SteppedSession, WeighedResult};

use super::ServerContext;
use super::convert::evaluation_ref::{EvaluationRef, InlineRef, LatestRef, SessionRef};
use super::convert::{self, inline};
use super::evaluation::{EvaluationContext, HeldState, STORE_STALE};
use super::pb;
use super::status::CallError;
use super::worker_pool::CancellationToken;

/// Name of a policy that came with a request.
const INLINE_POLICY: &str = "inline";
/// Session steps with more changes than this leave the async threads.
const MAX_ASYNC_CHANGES: usize = 64;
/// Share of a caller's deadline that is reserved for the response itself, in percent.
const RESPONSE_SHARE: u32 = 10;

/// Inline cluster, its policy, and the warnings from reading them.
type InlineEvaluation = (ClusterState, Arc<PolicyInForce>, Vec<Problem>);

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
        Ok((EvaluationContext::of_session(stepped), result))
    }

    /// Resolves the `against` of a request: finds, waits for or builds its state. An error about a session has its last
    /// applied change.
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
        let mut context = match evaluation_ref {
            EvaluationRef::Latest(evaluation_ref) => {
                let (snapshot, policy) = self.resolve_latest(&evaluation_ref, metadata).await?;
                let revision = snapshot.revision;
                EvaluationContext::new(HeldState::Snapshot(snapshot), policy, revision)
            }
            EvaluationRef::Session(step) => self.resolve_session(step).await?,
            EvaluationRef::Inline(evaluation_ref) => {
                let edge = Arc::clone(self);
                let (cluster_state, policy, warnings) =
                    self.run_blocking(move || edge.resolve_inline(*evaluation_ref)).await?;
                let revision = Revision {
                    number: 0,
                    ..self.state.snapshot().revision
                };
                let state = HeldState::Inline(Box::new(cluster_state));
                let mut context = EvaluationContext::new(state, policy, revision);
                context.warnings = warnings;
                context
            }
        };
        context.node_table = table;
        context.now = now;
        Ok(context)
    }

    /// Newest snapshot, or a snapshot at least as new as requested.
    pub(super) async fn resolve_snapshot(
        &self,
        evaluation_ref: &LatestRef,
        metadata: &MetadataMap,
    ) -> Result<Arc<Snapshot>, CallError> {
        if evaluation_ref.at_least.is_none() && evaluation_ref.positions.is_empty() {
            return Ok(self.state.snapshot());
        }
        let wait = wait_before_deadline(evaluation_ref.max_wait.min(self.state.limits().wait), metadata);
        let (least, positions) = (evaluation_ref.at_least, &evaluation_ref.positions);
        let at_once = self.state.snapshot_at(least, positions, Duration::ZERO).await;
        if wait.is_zero() || !matches!(at_once, Err(StateError::NotReached { .. })) {
            return Ok(at_once?);
        }
        let _place = self.waiting_place()?;
        Ok(self.state.snapshot_at(least, positions, wait).await?)
    }

    /// Snapshot of shared state and the policy of the request.
    pub(super) async fn resolve_latest(
        &self,
        evaluation_ref: &LatestRef,
        metadata: &MetadataMap,
    ) -> Result<(Arc<Snapshot>, Arc<PolicyInForce>), CallError> {
        if self.state.is_store_stale() {
            let message = "this server cannot confirm that it has the newest entry of its store (limit `store_stale_ms`): ask another one";
            return Err(CallError::new(Code::Unavailable, STORE_STALE, message));
        }
        let snapshot = self.resolve_snapshot(evaluation_ref, metadata).await?;
        let Some(policy) = snapshot.policies.get(&evaluation_ref.policy) else {
            let name = Arc::clone(&evaluation_ref.policy);
            return Err(StateError::PolicyUnknown { name }.into());
        };
        let policy = policy.of_profile(&evaluation_ref.profile);
        let policy = policy.map_err(StateError::ProfileUnknown)?;
        Ok((snapshot, policy))
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
        Ok(EvaluationContext::of_session(stepped))
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
        let (cluster_state, warnings) =
            inline::cluster_state(cluster, policy.policy.compatibility(), &self.read_options)?;
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

/// Time to wait for a state. It ends early enough for an error to reach the caller before its deadline.
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
