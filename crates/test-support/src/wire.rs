//! Blocking client of all services.

use std::net::SocketAddr;
use std::sync::Arc;

use pumice::server::pb;
use pumice::server::pb::DecisionServiceClient;
use pumice::server::pb::PolicyServiceClient;
use pumice::server::pb::StateServiceClient;
use tokio::runtime::Runtime;
use tonic::transport::{Channel, Endpoint};
use tonic::{Response, Status};

/// Blocking clients over one connection.
#[derive(Clone)]
pub struct BlockingClients {
    runtime: Arc<Runtime>,
    channel: Channel,
}

macro_rules! calls {
    ($($client:ident: $($method:ident($query:ident) -> $result:ident),+;)+) => {$($(
        pub fn $method(&self, query: pb::$query) -> Result<pb::$result, Status> {
            let mut client = $client::new(self.channel.clone()).max_decoding_message_size(usize::MAX);
            self.runtime.block_on(client.$method(query)).map(Response::into_inner)
        }
    )+)+};
}

impl BlockingClients {
    /// Client that waits on this runtime.
    pub fn connect(runtime: Arc<Runtime>, address: SocketAddr) -> Self {
        let endpoint = Endpoint::from_shared(format!("http://{address}")).unwrap();
        let channel = runtime.block_on(endpoint.connect()).unwrap();
        Self { runtime, channel }
    }

    /// Client over a connection.
    pub fn over(runtime: Arc<Runtime>, channel: Channel) -> Self {
        Self { runtime, channel }
    }

    /// Connection, for clients of other services.
    pub fn channel(&self) -> Channel {
        self.channel.clone()
    }

    /// Waits for a future.
    pub fn wait<T>(&self, future: impl Future<Output = T>) -> T {
        self.runtime.block_on(future)
    }

    calls! {
        DecisionServiceClient:
            filter(FilterRequest) -> FilterResponse,
            score(ScoreRequest) -> ScoreResponse,
            open_session(OpenSessionRequest) -> OpenSessionResponse,
            close_session(CloseSessionRequest) -> CloseSessionResponse,
            list_sessions(ListSessionsRequest) -> ListSessionsResponse,
            commit_session(CommitSessionRequest) -> CommitSessionResponse,
            place(PlaceRequest) -> PlaceResponse,
            admit(AdmitRequest) -> AdmitResponse,
            order(OrderRequest) -> OrderResponse,
            select_victims(SelectVictimsRequest) -> SelectVictimsResponse;
        StateServiceClient:
            apply(ApplyRequest) -> ApplyResponse,
            get_node_table(GetNodeTableRequest) -> GetNodeTableResponse,
            get_server_info(GetServerInfoRequest) -> GetServerInfoResponse,
            list_nodes(ListNodesRequest) -> ListNodesResponse,
            list_queues(ListQueuesRequest) -> ListQueuesResponse,
            list_jobs(ListJobsRequest) -> ListJobsResponse,
            list_tasks(ListTasksRequest) -> ListTasksResponse,
            list_namespaces(ListNamespacesRequest) -> ListNamespacesResponse,
            list_reservations(ListReservationsRequest) -> ListReservationsResponse,
            release_reservation(ReleaseReservationRequest) -> ReleaseReservationResponse,
            release_assumptions(ReleaseAssumptionsRequest) -> ReleaseAssumptionsResponse,
            forget_source(ForgetSourceRequest) -> ForgetSourceResponse,
            forget_resource(ForgetResourceRequest) -> ForgetResourceResponse;
        PolicyServiceClient:
            reload_policy(ReloadPolicyRequest) -> ReloadPolicyResponse,
            rollback_policy(RollbackPolicyRequest) -> ReloadPolicyResponse,
            delete_policy(DeletePolicyRequest) -> DeletePolicyResponse,
            get_policy(GetPolicyRequest) -> GetPolicyResponse,
            list_policies(ListPoliciesRequest) -> ListPoliciesResponse;
    }

    /// Applies one batch. Returns its outcome.
    pub fn apply_batch(&self, batch: pb::Batch) -> Result<pb::BatchOutcome, Status> {
        let reply = self.apply(pb::ApplyRequest { batch: Some(batch) })?;
        Ok(reply.outcome.unwrap_or_default())
    }
}
