package pumice

import (
	"context"

	pb "github.com/pumice-scheduler/pumice/clients/go/pumicev1"
)

// ReloadPolicy puts a document in force. The *Error of a rejected document has a Report. Only a dry run is repeated:
// another editor's version may have come in between.
func (client *Client) ReloadPolicy(ctx context.Context, request *pb.ReloadPolicyRequest) (*pb.ReloadPolicyResponse, error) {
	return call(ctx, client, "ReloadPolicy", repeatIf(request.GetDryRun()), policies(pb.PolicyServiceClient.ReloadPolicy), request)
}

// RollbackPolicy puts an earlier version in force again. Only a dry run is repeated.
func (client *Client) RollbackPolicy(ctx context.Context, request *pb.RollbackPolicyRequest) (*pb.ReloadPolicyResponse, error) {
	return call(ctx, client, "RollbackPolicy", repeatIf(request.GetDryRun()), policies(pb.PolicyServiceClient.RollbackPolicy), request)
}

// GetPolicy returns one version of a policy.
func (client *Client) GetPolicy(ctx context.Context, request *pb.GetPolicyRequest) (*pb.GetPolicyResponse, error) {
	return call(ctx, client, "GetPolicy", repeatable, policies(pb.PolicyServiceClient.GetPolicy), request)
}

// ListPolicies lists versions, newest first.
func (client *Client) ListPolicies(ctx context.Context, request *pb.ListPoliciesRequest) (*pb.ListPoliciesResponse, error) {
	return call(ctx, client, "ListPolicies", repeatable, policies(pb.PolicyServiceClient.ListPolicies), request)
}

// DeletePolicy deletes a policy. It is never repeated: another caller may have made a new policy of that name in between.
func (client *Client) DeletePolicy(ctx context.Context, request *pb.DeletePolicyRequest) (*pb.DeletePolicyResponse, error) {
	return call(ctx, client, "DeletePolicy", once, policies(pb.PolicyServiceClient.DeletePolicy), request)
}

// GetServerInfo returns the server's version, plugins, limits, sources and policies.
func (client *Client) GetServerInfo(ctx context.Context) (*pb.GetServerInfoResponse, error) {
	return call(ctx, client, "GetServerInfo", repeatable, states(pb.StateServiceClient.GetServerInfo), &pb.GetServerInfoRequest{})
}

// WhoAmI returns who the server takes the caller for.
func (client *Client) WhoAmI(ctx context.Context) (*pb.WhoAmIResponse, error) {
	return call(ctx, client, "WhoAmI", repeatable, states(pb.StateServiceClient.WhoAmI), &pb.WhoAmIRequest{})
}

// ListNodes returns one page of nodes with their usage.
func (client *Client) ListNodes(ctx context.Context, request *pb.ListNodesRequest) (*pb.ListNodesResponse, error) {
	return call(ctx, client, "ListNodes", repeatable, states(pb.StateServiceClient.ListNodes), request)
}

// ListQueues returns one page of queues with their accounts.
func (client *Client) ListQueues(ctx context.Context, request *pb.ListQueuesRequest) (*pb.ListQueuesResponse, error) {
	return call(ctx, client, "ListQueues", repeatable, states(pb.StateServiceClient.ListQueues), request)
}

// ListJobs returns one page of jobs with their accounts.
func (client *Client) ListJobs(ctx context.Context, request *pb.ListJobsRequest) (*pb.ListJobsResponse, error) {
	return call(ctx, client, "ListJobs", repeatable, states(pb.StateServiceClient.ListJobs), request)
}

// ListTasks returns one page of tasks.
func (client *Client) ListTasks(ctx context.Context, request *pb.ListTasksRequest) (*pb.ListTasksResponse, error) {
	return call(ctx, client, "ListTasks", repeatable, states(pb.StateServiceClient.ListTasks), request)
}

// ListNamespaces returns one page of namespaces.
func (client *Client) ListNamespaces(ctx context.Context, request *pb.ListNamespacesRequest) (*pb.ListNamespacesResponse, error) {
	return call(ctx, client, "ListNamespaces", repeatable, states(pb.StateServiceClient.ListNamespaces), request)
}

// ListReservations returns one page of the admission ledger.
func (client *Client) ListReservations(ctx context.Context, request *pb.ListReservationsRequest) (*pb.ListReservationsResponse, error) {
	return call(ctx, client, "ListReservations", repeatable, states(pb.StateServiceClient.ListReservations), request)
}

// ForgetSource removes a source and its records. It is never repeated: the source may have come back in between.
func (client *Client) ForgetSource(ctx context.Context, request *pb.ForgetSourceRequest) (*pb.ForgetSourceResponse, error) {
	return call(ctx, client, "ForgetSource", once, states(pb.StateServiceClient.ForgetSource), request)
}

// ForgetResource forgets a resource name that no record uses. It is never repeated: a record may have brought the name back in
// between.
func (client *Client) ForgetResource(ctx context.Context, request *pb.ForgetResourceRequest) (*pb.ForgetResourceResponse, error) {
	return call(ctx, client, "ForgetResource", once, states(pb.StateServiceClient.ForgetResource), request)
}

// ReleaseReservation ends a reservation.
func (client *Client) ReleaseReservation(ctx context.Context, request *pb.ReleaseReservationRequest) (*pb.ReleaseReservationResponse, error) {
	return call(ctx, client, "ReleaseReservation", repeatable, states(pb.StateServiceClient.ReleaseReservation), request)
}

// ReleaseAssumptions ends assumed placements, for example because their binds failed. It is repeated only for those of one
// session: under the name of a task alone, a newer assumption may have come in between.
func (client *Client) ReleaseAssumptions(ctx context.Context, request *pb.ReleaseAssumptionsRequest) (*pb.ReleaseAssumptionsResponse, error) {
	return call(ctx, client, "ReleaseAssumptions", repeatIf(request.GetSession() != ""), states(pb.StateServiceClient.ReleaseAssumptions), request)
}

// ListSessions returns one page of the open sessions.
func (client *Client) ListSessions(ctx context.Context, request *pb.ListSessionsRequest) (*pb.ListSessionsResponse, error) {
	return call(ctx, client, "ListSessions", repeatable, decisions(pb.DecisionServiceClient.ListSessions), request)
}
