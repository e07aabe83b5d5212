//! `CommitSession` and `ReleaseAssumptions`.

use std::sync::Arc;

use tonic::Request;

use super::ServerContext;
use super::convert::reader::check_name;
use super::convert::wire::Wire as _;
use super::convert::{self, commit, evaluation_ref};
use super::pb;
use super::policy_audit::AuditedCall;
use super::status::{CallError, RpcResult};
use super::worker_pool::{CancellationToken, HeldWorker};
use crate::audit::{AuditAction, AuditOutcome};

impl ServerContext {
    /// Commits a session; a retry gets the recorded outcome.
    pub(super) async fn commit_session(
        self: Arc<Self>,
        rpc: Request<pb::CommitSessionRequest>,
    ) -> RpcResult<pb::CommitSessionResponse> {
        let pb::CommitSessionRequest { session, jobs } = rpc.into_inner();
        let limits = &self.read_options.limits;
        let step = session.unwrap_or_default();
        let step = evaluation_ref::read_session("session", step, limits)?;
        for (at, job) in jobs.iter().enumerate().filter(|(_, job)| job.len() > limits.name_bytes) {
            check_name(&format!("jobs[{at}]"), job, limits)?;
        }
        let name = step.session.clone();
        let jobs: Vec<Arc<str>> = jobs.into_iter().map(Arc::from).collect();
        let edge = Arc::clone(&self);
        let work = move |worker: HeldWorker, _: &CancellationToken| {
            let committed = edge
                .state
                .commit_session(&step.session, step.after, &step.changes, &jobs, || drop(worker))?;
            Ok(commit::commit_response(edge.next_decision_id(), &committed))
        };
        let answered = self.workers.queries.run_to_disk(work).await;
        answered.map_err(|failure| self.with_session_progress(&name, failure))
    }

    /// Ends committed placements before their sources show them.
    pub(super) async fn release_assumptions(
        self: Arc<Self>,
        rpc: Request<pb::ReleaseAssumptionsRequest>,
    ) -> RpcResult<pb::ReleaseAssumptionsResponse> {
        let (_, extensions, request) = rpc.into_parts();
        let pb::ReleaseAssumptionsRequest { session, tasks } = request;
        let target = match session.as_str() {
            "" => tasks.first().cloned().unwrap_or_default(),
            session => format!("session {session}"),
        };
        let audited = AuditedCall::new(&extensions, AuditAction::ReleaseAssumptions, target);
        let tasks = tasks.into_iter().map(Arc::from).collect();
        let release = async {
            let _place = self.waiting_place()?;
            Ok::<_, CallError>(self.state.release_assumptions(&session, tasks).await?)
        };
        let (revision, released) = audited.recorded(release.await, |_| (AuditOutcome::Done, Vec::new()))?;
        let durability = match released.as_slice() {
            [] => pb::Durability::Unspecified,
            _ => convert::durability(self.state.durability()),
        };
        Ok(pb::ReleaseAssumptionsResponse {
            durability: durability.into(),
            revision: Some(revision.write()),
            released: commit::name_strings(&released),
        })
    }
}
