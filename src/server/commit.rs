//! `CommitSession` and `ReleaseAssumptions`.

use std::sync::Arc;

use super::ServerContext;
use super::convert::reader::check_name;
use super::convert::wire::Wire as _;
use super::convert::{self, commit, evaluation_ref};
use super::pb;
use super::status::RpcResult;
use super::worker_pool::{CancellationToken, HeldWorker};

impl ServerContext {
    /// Commits a session; a retry gets the recorded outcome.
    pub(super) async fn commit_session(
        self: &Arc<Self>,
        request: pb::CommitSessionRequest,
    ) -> RpcResult<pb::CommitSessionResponse> {
        let pb::CommitSessionRequest { session, jobs } = request;
        let limits = &self.read_options.limits;
        let step = session.unwrap_or_default();
        let step = evaluation_ref::read_session("session", step, limits)?;
        for (at, job) in jobs.iter().enumerate().filter(|(_, job)| job.len() > limits.name_bytes) {
            check_name(&format!("jobs[{at}]"), job, limits)?;
        }
        let name = step.session.clone();
        let jobs: Vec<Arc<str>> = jobs.into_iter().map(Arc::from).collect();
        let edge = Arc::clone(self);
        let work = move |worker: HeldWorker, _: &CancellationToken| {
            let committed = edge
                .state
                .commit_session(&step.session, step.after, &step.changes, &jobs, || drop(worker))?;
            Ok(commit::commit_response(edge.next_decision_id(), &committed))
        };
        let answered = self.workers.queries.run_to_disk(work).await;
        answered.map_err(|failure| self.with_session_progress(&name, failure))
    }

    pub(super) async fn release_assumptions(
        &self,
        request: pb::ReleaseAssumptionsRequest,
    ) -> RpcResult<pb::ReleaseAssumptionsResponse> {
        let pb::ReleaseAssumptionsRequest { session, tasks } = request;
        let tasks = tasks.into_iter().map(Arc::from).collect();
        let _place = self.waiting_place()?;
        let (revision, released) = self.state.release_assumptions(&session, tasks).await?;
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
