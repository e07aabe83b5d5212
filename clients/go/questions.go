package pumice

import (
	"context"
	"errors"

	pb "pumice/clients/go/pumicev1"

	"google.golang.org/grpc/codes"
)

// By is who answered a question.
type By int

const (
	// ByService: the service.
	ByService By = iota
	// ByFailingClosed: nobody, and so everything is refused.
	ByFailingClosed
	// ByFailingOpen: nobody, and so everything is permitted.
	ByFailingOpen
	// ByNobody: nobody, and there is no opinion.
	ByNobody
)

// String is a word for logs and metrics.
func (by By) String() string {
	return [...]string{"service", "failing_closed", "failing_open", "nobody"}[by]
}

// Reply is an answer, and who gave it.
type Reply[R any] struct {
	// Response is the service's, or what stands in for it.
	Response R
	// By is who answered.
	By By
	// Cause is why the service did not; nil if it did.
	Cause *Error
}

// AwayPlugin and AwayCode stand in the reasons of refusals that this client gives when the service is away.
const (
	AwayPlugin = "pumice"
	AwayCode   = "ServiceAway"
)

// standIn makes the reply of a question whose service is away.
func standIn[R any](client *Client, call Call, err error, closed, open func(*pb.Reason) R, none R) (Reply[R], error) {
	var failure *Error
	if !errors.As(err, &failure) || !(failure.Away() || failure.Reason == ReasonCircuitOpen) || failure.Code == codes.Canceled {
		return Reply[R]{}, err
	}
	reason := &pb.Reason{
		Plugin: AwayPlugin, Code: AwayCode, Message: "the decision service is away",
		Resolution: pb.Resolution_RESOLUTION_UNRESOLVABLE,
	}
	reply := Reply[R]{Cause: failure}
	switch client.options.Away[call] {
	case FailClosed:
		reply.Response, reply.By = closed(reason), ByFailingClosed
	case FailOpen:
		reply.Response, reply.By = open(reason), ByFailingOpen
	case Abstain:
		reply.Response, reply.By = none, ByNobody
	default:
		return Reply[R]{}, err
	}
	client.options.Metrics.Answered(call, reply.By)
	return reply, nil
}

func answered[R any](client *Client, call Call, response R) (Reply[R], error) {
	client.options.Metrics.Answered(call, ByService)
	return Reply[R]{Response: response}, nil
}

// Filter asks where tasks may run. Failing open, every candidate named by the question fits; a question that names none
// is about all nodes, which this client does not know: then FitCount is 0 and By says that anything goes.
func (client *Client) Filter(ctx context.Context, request *pb.FilterRequest) (Reply[*pb.FilterResponse], error) {
	response, err := call(ctx, client, "Filter", repeatable, client.decisions.Filter, request)
	if err == nil {
		return answered(client, CallFilter, response)
	}
	return standIn(client, CallFilter, err, closedFilter(request), openFilter(request), &pb.FilterResponse{})
}

func closedFilter(request *pb.FilterRequest) func(*pb.Reason) *pb.FilterResponse {
	return func(reason *pb.Reason) *pb.FilterResponse {
		answer := &pb.FilterResult{}
		for range request.GetTasks() {
			answer.Items = append(answer.Items, &pb.FilterItem{
				Fit:        &pb.NodeSet{},
				Rejections: []*pb.Rejection{{Reason: reason, Nodes: request.GetCandidates(), Count: count(request.GetCandidates())}},
			})
		}
		return &pb.FilterResponse{Result: answer}
	}
}

func openFilter(request *pb.FilterRequest) func(*pb.Reason) *pb.FilterResponse {
	return func(*pb.Reason) *pb.FilterResponse {
		answer := &pb.FilterResult{}
		for range request.GetTasks() {
			answer.Items = append(answer.Items, &pb.FilterItem{Fit: request.GetCandidates(), FitCount: count(request.GetCandidates())})
		}
		return &pb.FilterResponse{Result: answer}
	}
}

func count(nodes *pb.NodeSet) uint32 {
	number := len(nodes.GetNames()) + len(nodes.GetSlots())
	for range Slots(&pb.NodeSet{Bitmap: nodes.GetBitmap()}) {
		number++
	}
	return uint32(number)
}

// Score asks where tasks should run.
func (client *Client) Score(ctx context.Context, request *pb.ScoreRequest) (Reply[*pb.ScoreResponse], error) {
	response, err := call(ctx, client, "Score", repeatable, client.decisions.Score, request)
	if err == nil {
		return answered(client, CallScore, response)
	}
	return standIn(client, CallScore, err, nil, nil, &pb.ScoreResponse{})
}

// Place places a whole job. Failing closed, nothing is placed.
func (client *Client) Place(ctx context.Context, request *pb.PlaceRequest) (Reply[*pb.PlaceResponse], error) {
	response, err := call(ctx, client, "Place", repeatable, client.decisions.Place, request)
	if err == nil {
		return answered(client, CallPlace, response)
	}
	closed := func(reason *pb.Reason) *pb.PlaceResponse {
		return &pb.PlaceResponse{Result: &pb.PlaceResult{Blockers: []*pb.Rejection{{Reason: reason}}}}
	}
	return standIn(client, CallPlace, err, closed, nil, nil)
}

// Admit asks whether jobs may start and tasks be allocated.
func (client *Client) Admit(ctx context.Context, request *pb.AdmitRequest) (Reply[*pb.AdmitResponse], error) {
	response, err := call(ctx, client, "Admit", repeatable, client.decisions.Admit, request)
	if err == nil {
		return answered(client, CallAdmit, response)
	}
	all := func(permitted bool) func(*pb.Reason) *pb.AdmitResponse {
		return func(reason *pb.Reason) *pb.AdmitResponse {
			answer := &pb.AdmitResult{}
			for range request.GetItems() {
				item := &pb.AdmitItem{Permitted: permitted}
				if !permitted {
					item.Reasons = []*pb.Reason{reason}
				}
				answer.Items = append(answer.Items, item)
			}
			return &pb.AdmitResponse{Result: answer}
		}
	}
	return standIn(client, CallAdmit, err, all(false), all(true), &pb.AdmitResponse{})
}

// Order asks who is next.
func (client *Client) Order(ctx context.Context, request *pb.OrderRequest) (Reply[*pb.OrderResponse], error) {
	response, err := call(ctx, client, "Order", repeatable, client.decisions.Order, request)
	if err == nil {
		return answered(client, CallOrder, response)
	}
	return standIn(client, CallOrder, err, nil, nil, &pb.OrderResponse{})
}

// SelectVictims asks who gives way. Failing closed, nobody does. An abstaining answer has no items: where other plugins
// vote, those decide alone.
func (client *Client) SelectVictims(ctx context.Context, request *pb.SelectVictimsRequest) (Reply[*pb.SelectVictimsResponse], error) {
	response, err := call(ctx, client, "SelectVictims", repeatable, client.decisions.SelectVictims, request)
	if err == nil {
		return answered(client, CallSelectVictims, response)
	}
	closed := func(*pb.Reason) *pb.SelectVictimsResponse {
		answer := &pb.SelectVictimsResult{}
		for range request.GetGroups() {
			answer.Items = append(answer.Items, &pb.VictimItem{})
		}
		return &pb.SelectVictimsResponse{Result: answer}
	}
	return standIn(client, CallSelectVictims, err, closed, nil, &pb.SelectVictimsResponse{})
}

// ReloadPolicy puts a document in force; refused: an *Error with a Report. Asked again only as a dry run: another
// editor's may have come between.
func (client *Client) ReloadPolicy(ctx context.Context, request *pb.ReloadPolicyRequest) (*pb.ReloadPolicyResponse, error) {
	return call(ctx, client, "ReloadPolicy", repeat(request.GetDryRun()), client.policies.ReloadPolicy, request)
}

// RollbackPolicy puts an earlier version in force again. Asked again only as a dry run.
func (client *Client) RollbackPolicy(ctx context.Context, request *pb.RollbackPolicyRequest) (*pb.RollbackPolicyResponse, error) {
	return call(ctx, client, "RollbackPolicy", repeat(request.GetDryRun()), client.policies.RollbackPolicy, request)
}

// GetPolicy reads a version.
func (client *Client) GetPolicy(ctx context.Context, request *pb.GetPolicyRequest) (*pb.GetPolicyResponse, error) {
	return call(ctx, client, "GetPolicy", repeatable, client.policies.GetPolicy, request)
}

// ListPolicies lists versions, newest first.
func (client *Client) ListPolicies(ctx context.Context, request *pb.ListPoliciesRequest) (*pb.ListPoliciesResponse, error) {
	return call(ctx, client, "ListPolicies", repeatable, client.policies.ListPolicies, request)
}

// GetServerInfo says what the server is and allows.
func (client *Client) GetServerInfo(ctx context.Context) (*pb.GetServerInfoResponse, error) {
	return call(ctx, client, "GetServerInfo", repeatable, client.state.GetServerInfo, &pb.GetServerInfoRequest{})
}

// ListNodes reads one page of nodes with their usage.
func (client *Client) ListNodes(ctx context.Context, request *pb.ListNodesRequest) (*pb.ListNodesResponse, error) {
	return call(ctx, client, "ListNodes", repeatable, client.state.ListNodes, request)
}

// ListQueues reads one page of queues with their accounts.
func (client *Client) ListQueues(ctx context.Context, request *pb.ListQueuesRequest) (*pb.ListQueuesResponse, error) {
	return call(ctx, client, "ListQueues", repeatable, client.state.ListQueues, request)
}

// ListJobs reads one page of jobs with their accounts.
func (client *Client) ListJobs(ctx context.Context, request *pb.ListJobsRequest) (*pb.ListJobsResponse, error) {
	return call(ctx, client, "ListJobs", repeatable, client.state.ListJobs, request)
}

// ListTasks reads one page of tasks.
func (client *Client) ListTasks(ctx context.Context, request *pb.ListTasksRequest) (*pb.ListTasksResponse, error) {
	return call(ctx, client, "ListTasks", repeatable, client.state.ListTasks, request)
}

// ListReservations reads one page of the admission ledger.
func (client *Client) ListReservations(ctx context.Context, request *pb.ListReservationsRequest) (*pb.ListReservationsResponse, error) {
	return call(ctx, client, "ListReservations", repeatable, client.state.ListReservations, request)
}

// ReleaseReservation takes a reservation back.
func (client *Client) ReleaseReservation(ctx context.Context, request *pb.ReleaseReservationRequest) (*pb.ReleaseReservationResponse, error) {
	return call(ctx, client, "ReleaseReservation", repeatable, client.state.ReleaseReservation, request)
}

// ReleaseAssumptions ends assumptions whose binds failed. Asked again only for one session's: under a task's name alone a
// newer assumption may stand meanwhile.
func (client *Client) ReleaseAssumptions(ctx context.Context, request *pb.ReleaseAssumptionsRequest) (*pb.ReleaseAssumptionsResponse, error) {
	return call(ctx, client, "ReleaseAssumptions", repeat(request.GetSession() != ""), client.state.ReleaseAssumptions, request)
}

// ListSessions reads one page of the open sessions.
func (client *Client) ListSessions(ctx context.Context, request *pb.ListSessionsRequest) (*pb.ListSessionsResponse, error) {
	return call(ctx, client, "ListSessions", repeatable, client.decisions.ListSessions, request)
}
