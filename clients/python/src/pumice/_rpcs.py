"""Calls of the protocol, and which of them may be repeated."""

from __future__ import annotations

from pumice import v1
from pumice._flow import Rpc


def _reload_repeatable(request: v1.ReloadPolicyRequest) -> bool:
    """A reload may be repeated only as a dry run: another editor's version may have come in between."""
    return request.dry_run


def _rollback_repeatable(request: v1.RollbackPolicyRequest) -> bool:
    """A rollback may be repeated only as a dry run: each one goes back by one version."""
    return request.dry_run


def _assumptions_repeatable(request: v1.ReleaseAssumptionsRequest) -> bool:
    """Assumptions are released again only for one session: a task may have a newer one."""
    return bool(request.session)


def _never(_request: object) -> bool:
    """A second call would have another effect: another session, or the deletion of something newer."""
    return False


class HealthCheck:
    """Messages of grpc.health.v1, which no package of this one has: a check of the whole server."""

    def __init__(self, body: bytes = b"") -> None:
        """Makes a message of bytes."""
        self.serving = body == b"\x08\x01"

    def SerializeToString(self) -> bytes:  # noqa: N802
        """Returns the request, which has no field."""
        return b""

    @staticmethod
    def FromString(body: bytes) -> HealthCheck:  # noqa: N802
        """Reads a response: its only field is the status."""
        return HealthCheck(body)


HEALTH = Rpc("", HealthCheck, HealthCheck)
HEALTH.path = "/grpc.health.v1.Health/Check"

FILTER = Rpc("DecisionService/Filter", v1.FilterRequest, v1.FilterResponse)
SCORE = Rpc("DecisionService/Score", v1.ScoreRequest, v1.ScoreResponse)
PLACE = Rpc("DecisionService/Place", v1.PlaceRequest, v1.PlaceResponse)
ADMIT = Rpc("DecisionService/Admit", v1.AdmitRequest, v1.AdmitResponse)
ORDER = Rpc("DecisionService/Order", v1.OrderRequest, v1.OrderResponse)
SELECT_VICTIMS = Rpc("DecisionService/SelectVictims", v1.SelectVictimsRequest, v1.SelectVictimsResponse)
OPEN_SESSION = Rpc("DecisionService/OpenSession", v1.OpenSessionRequest, v1.OpenSessionResponse, _never, elsewhere=True)
CLOSE_SESSION = Rpc("DecisionService/CloseSession", v1.CloseSessionRequest, v1.CloseSessionResponse)
COMMIT_SESSION = Rpc("DecisionService/CommitSession", v1.CommitSessionRequest, v1.CommitSessionResponse)

APPLY = Rpc("StateService/Apply", v1.ApplyRequest, v1.ApplyResponse)
SYNC = Rpc("StateService/Sync", v1.SyncRequest, v1.SyncResponse, _never)
GET_NODE_TABLE = Rpc("StateService/GetNodeTable", v1.GetNodeTableRequest, v1.GetNodeTableResponse)
GET_SERVER_INFO = Rpc("StateService/GetServerInfo", v1.GetServerInfoRequest, v1.GetServerInfoResponse)
WHO_AM_I = Rpc("StateService/WhoAmI", v1.WhoAmIRequest, v1.WhoAmIResponse)
LIST_NODES = Rpc("StateService/ListNodes", v1.ListNodesRequest, v1.ListNodesResponse)
LIST_QUEUES = Rpc("StateService/ListQueues", v1.ListQueuesRequest, v1.ListQueuesResponse)
LIST_JOBS = Rpc("StateService/ListJobs", v1.ListJobsRequest, v1.ListJobsResponse)
LIST_TASKS = Rpc("StateService/ListTasks", v1.ListTasksRequest, v1.ListTasksResponse)
LIST_NAMESPACES = Rpc("StateService/ListNamespaces", v1.ListNamespacesRequest, v1.ListNamespacesResponse)
LIST_SESSIONS = Rpc("DecisionService/ListSessions", v1.ListSessionsRequest, v1.ListSessionsResponse)
LIST_RESERVATIONS = Rpc("StateService/ListReservations", v1.ListReservationsRequest, v1.ListReservationsResponse)
FORGET_SOURCE = Rpc("StateService/ForgetSource", v1.ForgetSourceRequest, v1.ForgetSourceResponse, _never)
FORGET_RESOURCE = Rpc("StateService/ForgetResource", v1.ForgetResourceRequest, v1.ForgetResourceResponse, _never)
RELEASE_RESERVATION = Rpc(
    "StateService/ReleaseReservation", v1.ReleaseReservationRequest, v1.ReleaseReservationResponse
)
RELEASE_ASSUMPTIONS = Rpc(
    "StateService/ReleaseAssumptions",
    v1.ReleaseAssumptionsRequest,
    v1.ReleaseAssumptionsResponse,
    _assumptions_repeatable,
)

RELOAD_POLICY = Rpc("PolicyService/ReloadPolicy", v1.ReloadPolicyRequest, v1.ReloadPolicyResponse, _reload_repeatable)
ROLLBACK_POLICY = Rpc(
    "PolicyService/RollbackPolicy", v1.RollbackPolicyRequest, v1.ReloadPolicyResponse, _rollback_repeatable
)
DELETE_POLICY = Rpc("PolicyService/DeletePolicy", v1.DeletePolicyRequest, v1.DeletePolicyResponse, _never)
GET_POLICY = Rpc("PolicyService/GetPolicy", v1.GetPolicyRequest, v1.GetPolicyResponse)
LIST_POLICIES = Rpc("PolicyService/ListPolicies", v1.ListPoliciesRequest, v1.ListPoliciesResponse)
