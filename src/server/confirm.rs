//! Admit with mode CONFIRM: a write at the newest state, through the writer.

use std::sync::Arc;

use super::ServerContext;
use super::convert;
use super::convert::admit::{self, AdmitCall};
use super::convert::evaluation_ref::{EvaluationRef, LatestRef, RefTarget, SessionRef, read_ref};
use super::convert::listing::timestamp;
use super::convert::nodes::NodeEncoding;
use super::convert::not_evaluated;
use super::evaluation::{response_metadata, session_effects};
use super::pb;
use super::status::{CallError, RpcResult};
use super::worker_pool::{CancellationToken, HeldWorker};
use pumice_engine::model::{ClusterState, ErrorCode, Problem};
use pumice_engine::plugin::DecisionTime;
use pumice_engine::policy::DecisionKind;
use pumice_state::{ConfirmItem, ConfirmItems, ConfirmOutcome, LedgerConfirm, SessionConfirm};

impl ServerContext {
    /// Confirms jobs at the newest state, or in a session.
    pub(super) async fn confirm(
        self: &Arc<Self>,
        against: Option<pb::EvaluationRef>,
        call: AdmitCall,
    ) -> RpcResult<pb::AdmitResponse> {
        let EvaluationRef { target, now, .. } = read_ref(against, &self.read_options.limits)?;
        match target {
            RefTarget::Latest(latest) => self.confirm_latest(latest, now, call).await,
            RefTarget::Session(step) => self.confirm_in_session(step, now, call).await,
            RefTarget::Inline(_) => {
                let message = "mode: CONFIRM writes to shared state, and the request brings a cluster of its own";
                Err(CallError::new(ErrorCode::ConfirmInline, message))
            }
        }
    }

    async fn confirm_latest(
        self: &Arc<Self>,
        latest: LatestRef,
        now: Option<DecisionTime>,
        call: AdmitCall,
    ) -> RpcResult<pb::AdmitResponse> {
        let (snapshot, policy) = self.resolve_latest(&latest).await?;
        if policy.policy.has_plugin_state() && !snapshot.plugin_state_cache.is_ready(&policy.name) {
            // Computed here so that the writer does not have to compute it.
            let derive = move |_: &CancellationToken| {
                snapshot.plugin_states(&policy);
                Ok(())
            };
            self.workers.queries.run(derive).await?;
        }
        let plugins = call.plugins.clone();
        let confirm = LedgerConfirm {
            policy: latest.policy,
            profile: latest.profile,
            plugins: plugins.clone(),
            lease: call.lease,
            now,
            items: ConfirmItems::Unread(self.item_reader(call.items)),
        };
        let _place = self.waiting_place()?;
        let done = self.state.confirm(confirm).await?;
        Ok(self.confirm_response(&done, &plugins, now, None))
    }

    async fn confirm_in_session(
        self: &Arc<Self>,
        step: SessionRef,
        now: Option<DecisionTime>,
        call: AdmitCall,
    ) -> RpcResult<pb::AdmitResponse> {
        let name = step.session.clone();
        let (plugins, lease, all_enqueued) = (call.plugins.clone(), call.lease, call.items.is_empty());
        let asked = plugins.clone();
        let confirm = SessionConfirm {
            plugins,
            lease,
            now,
            read_items: (!all_enqueued).then(|| self.item_reader(call.items)),
        };
        let edge = Arc::clone(self);
        let ask = move |worker: HeldWorker, _: &CancellationToken| {
            let SessionRef {
                session,
                after,
                changes,
            } = step;
            Ok(edge
                .state
                .confirm_session(&session, after, &changes, confirm, || drop(worker))?)
        };
        let answered = self.workers.queries.run_to_disk(ask).await;
        let (stepped, done) = answered.map_err(|failure| self.with_session_progress(&name, failure))?;
        let effects = session_effects(&stepped, NodeEncoding::Names);
        Ok(self.confirm_response(&done, &asked, now, Some(effects)))
    }

    /// Reader of the items, which the writer calls.
    fn item_reader(self: &Arc<Self>, items: Vec<pb::AdmitSubject>) -> pumice_state::ConfirmReader {
        let edge = Arc::clone(self);
        Box::new(
            move |cluster_state: &ClusterState, compatibility| -> Vec<Result<ConfirmItem, Problem>> {
                AdmitCall::read_confirm_items(items, cluster_state, compatibility, &edge.read_options)
            },
        )
    }

    /// Response to a confirmation by these plugins; `effects`: of its session.
    fn confirm_response(
        &self,
        done: &ConfirmOutcome,
        plugins: &[Arc<str>],
        now: Option<DecisionTime>,
        effects: Option<pb::SessionEffects>,
    ) -> pb::AdmitResponse {
        let policy = &done.policy;
        // A request without items stores nothing: its response has no durability.
        let durability = (!done.items.is_empty()).then(|| convert::durability(done.durability));
        pb::AdmitResponse {
            metadata: Some(pb::ResponseMetadata {
                effects,
                not_evaluated: not_evaluated::of_decision(&policy.policy, DecisionKind::Admit, plugins, None, now),
                now: timestamp(now.map(|now| now.seconds)),
                ..response_metadata(self.next_decision_id(), done.revision, policy)
            }),
            result: Some(admit::confirm_result(&done.items)),
            durability: durability.unwrap_or_default().into(),
        }
    }
}
