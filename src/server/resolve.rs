//! Resolves the state and policy that a request is evaluated against: shared state, a session, or an inline cluster and
//! policy.

use std::any::Any;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use pumice_engine::cycle::{ChangeOutcome, SchedulingCycle};
use pumice_engine::model::{ClusterState, ErrorCode, Problem};
use pumice_engine::plugin::DecisionTime;
use pumice_engine::policy::{self, CompileOptions};
use pumice_engine::{PolicyInForce, Revision, Snapshot};
use pumice_state::{StateError, SteppedSession, WeighedResult};

use super::ServerContext;
use super::connection::CallScope;
use super::convert::evaluation_ref::{EvaluationRef, LatestRef, RefTarget, SessionRef, read_ref};
use super::convert::nodes::NodeSetReader;
use super::convert::query::QueryBasis;
use super::convert::{self, inline};
use super::evaluation::{EvaluationContext, HeldState};
use super::pb;
use super::status::{CallError, RpcResult};
use super::worker_pool::CancellationToken;

/// Name of a policy that came with a request.
const INLINE_POLICY: &str = "inline";
/// Session steps with more changes than this leave the async threads.
const MAX_ASYNC_CHANGES: usize = 64;
/// Share of a caller's deadline that is reserved for the response itself, in percent.
const RESPONSE_SHARE: u32 = 10;

/// Arguments of a query that changes the cycle of a session, beside the cycle.
pub(super) struct SessionQuery<'q> {
    pub(super) edge: &'q ServerContext,
    pub(super) session: &'q str,
    pub(super) policy: &'q PolicyInForce,
    /// Changes that the query made.
    pub(super) outcome: &'q mut ChangeOutcome,
    /// Epoch of this process.
    epoch: u64,
    /// Table that the request's slots refer to.
    table: Option<&'q pb::NodeTableVersion>,
    /// Time of the decision; `None`: the request gives none.
    now: Option<DecisionTime>,
    pub(super) stop: &'q CancellationToken,
}

impl SessionQuery<'_> {
    /// Basis of the request's query, in the state of the cycle.
    pub(super) fn basis<'a>(&'a self, state: &'a ClusterState) -> QueryBasis<'a> {
        QueryBasis {
            nodes: NodeSetReader {
                table: self.table,
                ..NodeSetReader::new(state, self.epoch)
            },
            compatibility: self.policy.policy.compatibility(),
            now: self.now,
            options: &self.edge.read_options,
        }
    }
}

/// Inline cluster, its policy, and the warnings from reading them.
type InlineEvaluation = (ClusterState, Arc<PolicyInForce>, Vec<Problem>);

impl ServerContext {
    /// Evaluates a query that changes the session of `against`: one more change, numbered after those in the request. Returns
    /// the context after the change, and the result. `purpose`: why the request needs a session.
    pub(super) async fn query_session<T: Any + Send + Sync>(
        self: &Arc<Self>,
        against: Option<pb::EvaluationRef>,
        purpose: &'static str,
        query: impl FnOnce(SessionQuery<'_>, &mut SchedulingCycle) -> RpcResult<WeighedResult<T>> + Send + 'static,
    ) -> RpcResult<(EvaluationContext, Arc<T>)> {
        let EvaluationRef {
            target,
            node_table: table,
            now,
        } = read_ref(against, &self.read_options.limits)?;
        let RefTarget::Session(step) = target else {
            let message = format!("{purpose}, and the request names none");
            return Err(CallError::new(ErrorCode::SessionMissing, message));
        };
        let (edge, name) = (Arc::clone(self), step.session.clone());
        let epoch = self.state.snapshot().revision.epoch;
        let change = move |stop: &CancellationToken| {
            let SessionRef {
                session,
                after,
                changes,
            } = step;
            edge.state
                .query_cycle(&session, after, &changes, |cycle, policy, outcome| {
                    let asked = SessionQuery {
                        edge: &edge,
                        session: &session,
                        policy,
                        outcome,
                        epoch,
                        table: table.as_ref(),
                        now,
                        stop,
                    };
                    query(asked, cycle)
                })
        };
        let answered = self.workers.queries.run(change).await;
        let (stepped, result) = answered.map_err(|failure| self.with_session_progress(&name, failure))?;
        let mut context = EvaluationContext::of_session(stepped);
        context.now = now;
        Ok((context, result))
    }

    /// Resolves the `against` of a request: finds, waits for or builds its state. An error about a session has its last
    /// applied change.
    pub(super) async fn resolve(self: &Arc<Self>, against: EvaluationRef) -> RpcResult<EvaluationContext> {
        let EvaluationRef {
            target,
            node_table,
            now,
        } = against;
        let mut context = match target {
            RefTarget::Latest(latest) => {
                let (snapshot, policy) = self.resolve_latest(&latest).await?;
                let revision = snapshot.revision;
                EvaluationContext::new(HeldState::Snapshot(snapshot), policy, revision)
            }
            RefTarget::Session(step) => {
                let session = step.session.clone();
                let stepped = Box::pin(self.resolve_session(step)).await;
                stepped.map_err(|failure| self.with_session_progress(&session, failure))?
            }
            RefTarget::Inline(inline) => {
                let edge = Arc::clone(self);
                let resolved = self.run_blocking(move || edge.resolve_inline(*inline));
                let (cluster_state, policy, warnings) = Box::pin(resolved).await?;
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
        context.node_table = node_table;
        context.now = now;
        Ok(context)
    }

    /// Reads the `against` of a request. An error about a session has its last applied change.
    pub(super) fn read_against(&self, against: Option<pb::EvaluationRef>) -> RpcResult<EvaluationRef> {
        let session = match against.as_ref().and_then(|against| against.target.as_ref()) {
            Some(pb::evaluation_ref::Target::Session(step)) if !step.changes.is_empty() => Some(step.id.clone()),
            Some(_) | None => None,
        };
        let read = read_ref(against, &self.read_options.limits);
        read.map_err(|failure| match session {
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

    /// Newest snapshot, or a snapshot at least as new as requested.
    pub(super) async fn resolve_snapshot(&self, latest: &LatestRef) -> RpcResult<Arc<Snapshot>> {
        if latest.at_least.is_none() && latest.positions.is_empty() {
            return Ok(self.state.snapshot());
        }
        Box::pin(self.wait_for_snapshot(latest)).await
    }

    /// Snapshot at least as new as requested.
    async fn wait_for_snapshot(&self, latest: &LatestRef) -> RpcResult<Arc<Snapshot>> {
        let left = CallScope::current().and_then(|call| call.deadline);
        let left = left.map(|deadline| deadline.saturating_duration_since(Instant::now()));
        let wait = wait_before_deadline(latest.max_wait.min(self.state.limits().wait), left);
        let (least, positions) = (latest.at_least, &latest.positions);
        let at_once = self.state.snapshot_at(least, positions, Duration::ZERO).await;
        if wait.is_zero() || !matches!(at_once, Err(StateError::NotReached { .. })) {
            return Ok(at_once?);
        }
        let _place = self.waiting_place()?;
        Ok(self.state.snapshot_at(least, positions, wait).await?)
    }

    /// Snapshot of shared state and the policy of the request.
    pub(super) async fn resolve_latest(&self, latest: &LatestRef) -> RpcResult<(Arc<Snapshot>, Arc<PolicyInForce>)> {
        if self.state.is_store_stale() {
            let message = "this server cannot confirm that it has the newest entry of its store (limit `store_stale_ms`): ask another one";
            return Err(CallError::new(ErrorCode::StoreStale, message));
        }
        let snapshot = self.resolve_snapshot(latest).await?;
        let Some(policy) = snapshot.policies.get(&latest.policy) else {
            let name = Arc::clone(&latest.policy);
            return Err(StateError::PolicyUnknown { name }.into());
        };
        let policy = policy.of_profile(&latest.profile);
        let policy = policy.map_err(StateError::ProfileUnknown)?;
        Ok((snapshot, policy))
    }

    async fn resolve_session(self: &Arc<Self>, step: SessionRef) -> RpcResult<EvaluationContext> {
        let edge = Arc::clone(self);
        let many = step.changes.len() > MAX_ASYNC_CHANGES;
        let step = move || -> RpcResult<SteppedSession> {
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
    pub(super) fn resolve_inline(&self, inline: pb::InlineSnapshot) -> RpcResult<InlineEvaluation> {
        let pb::InlineSnapshot {
            cluster,
            policy_document,
            profile,
            compatibility,
        } = inline;
        let policy = self.compile_inline_policy(&policy_document, &compatibility)?;
        let policy = policy.of_profile(&profile).map_err(StateError::ProfileUnknown)?;
        let (cluster_state, warnings) = inline::cluster_state(
            cluster.unwrap_or_default(),
            policy.policy.compatibility(),
            &self.read_options,
        )?;
        Ok((cluster_state, policy, warnings))
    }

    fn compile_inline_policy(&self, document: &str, compatibility: &str) -> RpcResult<Arc<PolicyInForce>> {
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
            let failure = CallError::new(ErrorCode::PolicyRejected, message);
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

/// Time to wait for a state. It ends early enough for an error to reach the caller before its deadline. `left`: time until then.
fn wait_before_deadline(wanted: Duration, left: Option<Duration>) -> Duration {
    left.map_or(wanted, |left| {
        wanted.min(left.saturating_sub(left * RESPONSE_SHARE / 100))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_wait_ends_before_the_deadline() {
        let wanted = Duration::from_secs(3);
        assert_eq!(wait_before_deadline(wanted, None), wanted);
        let left = Some(Duration::from_secs(1));
        assert_eq!(wait_before_deadline(wanted, left), Duration::from_millis(900));
    }
}
