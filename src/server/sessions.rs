//! Sessions: opened with a batch, listed and closed.
#![expect(clippy::unused_async, reason = "all methods of the protocol are called alike")]

use std::sync::Arc;

use tonic::Request;

use pumice_engine::model::ErrorCode;
use pumice_engine::policy::DecisionKind;
use pumice_state::{ConnectionShare, OpenSession, SessionBase, SessionStatus};

use super::ServerContext;
use super::connection::CallerConnection;
use super::convert::batch::{SharedResourceNames, batch_outcome, object_bytes, problems, read_batch, record_count};
use super::convert::evaluation_ref::{self, RefTarget};
use super::convert::listing::PageRequest;
use super::convert::not_evaluated;
use super::convert::policy::duration;
use super::convert::wire::Wire as _;
use super::decision_call::{MAX_ASYNC_OBJECT_BYTES, MAX_ASYNC_TASKS};
use super::evaluation::response_metadata;
use super::pb;
use super::status::{CallError, RpcResult};

impl ServerContext {
    pub(super) async fn open_session(
        self: Arc<Self>,
        rpc: Request<pb::OpenSessionRequest>,
    ) -> RpcResult<pb::OpenSessionResponse> {
        let connection = CallerConnection::state_share(rpc.extensions());
        let pb::OpenSessionRequest { against, batch, lease } = rpc.into_inner();
        let lease = evaluation_ref::read_duration("lease", lease)?;
        let against = evaluation_ref::read_ref(against, &self.read_options.limits)?;
        let (base, warnings) = match against.target {
            RefTarget::Session(_) => {
                let message = "against.session: a session cannot be opened on a session";
                return Err(CallError::new(ErrorCode::EvaluationRefInvalid, message));
            }
            RefTarget::Latest(latest) => {
                self.resolve_snapshot(&latest).await?;
                let (policy, profile) = (latest.policy, latest.profile);
                (SessionBase::Latest { policy, profile }, Vec::new())
            }
            RefTarget::Inline(_) if batch.is_some() => {
                let message = "batch: a batch changes shared state, and the session has an inline cluster";
                return Err(CallError::new(ErrorCode::BatchWithInline, message));
            }
            RefTarget::Inline(inline) => {
                let edge = Arc::clone(&self);
                self.run_blocking(move || {
                    let (cluster_state, policy, warnings) = edge.resolve_inline(*inline)?;
                    let cluster_state = Box::new(cluster_state);
                    Ok((SessionBase::Inline { cluster_state, policy }, warnings))
                })
                .await?
            }
        };
        let batch = match batch {
            Some(batch) => Some(self.read_batch(batch, connection.clone()).await?),
            None => None,
        };
        let _place = batch.is_some().then(|| self.waiting_place()).transpose()?;
        let opened = self
            .state
            .open_session(OpenSession {
                base,
                batch,
                lease,
                connection,
            })
            .await?;
        Ok(pb::OpenSessionResponse {
            metadata: Some(pb::ResponseMetadata {
                warnings: problems(&warnings),
                not_evaluated: not_evaluated::of_policy(&opened.policy.policy, DecisionKind::Session),
                ..response_metadata(self.next_decision_id(), opened.revision, &opened.policy)
            }),
            session: opened.session.to_string(),
            outcome: opened.batch_outcome.map(batch_outcome),
            lease: Some(duration(opened.lease)),
            max_age: Some(duration(opened.max_age)),
        })
    }

    /// Closes a session; its changes are gone.
    pub(super) async fn close_session(
        self: Arc<Self>,
        rpc: Request<pb::CloseSessionRequest>,
    ) -> RpcResult<pb::CloseSessionResponse> {
        let pb::CloseSessionRequest { session } = rpc.into_inner();
        let closed = self.state.close_session(&session);
        let applied_through = closed.map_err(|error| self.with_session_progress(&session, error.into()))?;
        Ok(pb::CloseSessionResponse { applied_through })
    }

    /// Lists the open sessions by name, page by page.
    pub(super) async fn list_sessions(
        self: Arc<Self>,
        rpc: Request<pb::ListSessionsRequest>,
    ) -> RpcResult<pb::ListSessionsResponse> {
        let wanted = PageRequest::read(Vec::new(), rpc.into_inner().page, self.read_options.limits.page_records);
        let all = self.state.list_sessions();
        let after = all.iter().filter(|status| *status.session > *wanted.after);
        let (page, next_page_token) = wanted.cut_page(after.map(|status| (&*status.session, status)));
        let sessions = page.into_iter().map(session_status).collect();
        Ok(pb::ListSessionsResponse {
            sessions,
            next_page_token,
        })
    }

    /// Reads a batch that came by this connection; a large one on a blocking thread.
    pub(super) async fn read_batch(
        self: &Arc<Self>,
        sent: pb::Batch,
        connection: Option<ConnectionShare>,
    ) -> RpcResult<pumice_state::Batch> {
        let records = sent.put.as_ref().map_or(0, record_count);
        let bytes = sent.put.as_ref().map_or(0, object_bytes);
        let edge = Arc::clone(self);
        let read = move || {
            let mut names = SharedResourceNames::new(edge.state.resource_names());
            let batch = read_batch(sent, &mut names, &edge.read_options, edge.batch_rules())?;
            Ok(pumice_state::Batch {
                names: Some(names.into_first_table()),
                connection,
                ..batch
            })
        };
        if records <= MAX_ASYNC_TASKS && bytes <= MAX_ASYNC_OBJECT_BYTES {
            read()
        } else {
            self.run_blocking(read).await
        }
    }
}

fn session_status(status: &SessionStatus) -> pb::SessionStatus {
    let SessionStatus {
        session,
        source,
        age,
        idle,
        lease_left,
        changes,
        savepoints,
        active_queries: queries,
        policy,
        revision,
    } = status;
    pb::SessionStatus {
        session: session.to_string(),
        source: source.as_ref().map(ToString::to_string).unwrap_or_default(),
        age: Some(duration(*age)),
        idle: idle.map(duration),
        lease_left: lease_left.map(duration),
        changes: *changes,
        savepoints: u32::try_from(*savepoints).unwrap_or(u32::MAX),
        requests_in_progress: *queries,
        policy: policy.name.to_string(),
        policy_version: policy.version,
        revision: Some(revision.write()),
    }
}
