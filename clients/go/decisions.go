package pumice

import (
	"context"
	"errors"

	pb "github.com/pumice-scheduler/pumice/clients/go/pumicev1"

	"google.golang.org/grpc/codes"
)

// Origin is where a response comes from.
type Origin int

const (
	// OriginNone: there is no response; the call returned an error.
	OriginNone Origin = iota
	// OriginService: the service.
	OriginService
	// OriginFailClosed: the fallback that rejects everything.
	OriginFailClosed
	// OriginFailOpen: the fallback that permits everything.
	OriginFailOpen
	// OriginAbstain: the fallback without an opinion.
	OriginAbstain
)

// String is a word for logs and metrics.
func (origin Origin) String() string {
	return [...]string{"none", "service", "fail_closed", "fail_open", "abstain"}[origin]
}

// Reply is the response to a decision call, with its origin.
type Reply[R any] struct {
	// Response is the service's, or that of the fallback.
	Response R
	// Origin is where Response comes from.
	Origin Origin
	// Cause is the reason why the service gave no response; nil if it did.
	Cause *Error
}

// UnavailablePlugin and UnavailableCode are in the reasons of rejections that the fallback FailClosed gives.
const (
	UnavailablePlugin = "pumice"
	UnavailableCode   = "ServiceUnavailable"
)

// fallback makes the reply to a call that the service did not answer.
func fallback[R any](client *Client, call Call, err error, closed, open func(*pb.Reason) R, empty R) (Reply[R], error) {
	var failure *Error
	if !errors.As(err, &failure) || !(failure.Unavailable() || failure.Reason == ReasonCircuitOpen) || failure.Code == codes.Canceled {
		return Reply[R]{}, err
	}
	reason := &pb.Reason{
		Plugin: UnavailablePlugin, Code: UnavailableCode, Message: "the decision service is unavailable",
		Resolution: pb.Resolution_RESOLUTION_UNRESOLVABLE,
	}
	reply := Reply[R]{Cause: failure}
	switch client.options.Fallback[call] {
	case FailClosed:
		reply.Response, reply.Origin = closed(reason), OriginFailClosed
	case FailOpen:
		reply.Response, reply.Origin = open(reason), OriginFailOpen
	case Abstain:
		reply.Response, reply.Origin = empty, OriginAbstain
	default:
		return Reply[R]{}, err
	}
	client.options.Metrics.Replied(call, reply.Origin)
	return reply, nil
}

func fromService[R any](client *Client, call Call, response R) (Reply[R], error) {
	client.options.Metrics.Replied(call, OriginService)
	return Reply[R]{Response: response, Origin: OriginService}, nil
}

// Filter returns the nodes on which tasks may run.
//
// With the fallback FailOpen every candidate that the request names fits. A request that names none is about all nodes,
// which this client does not know: such a call returns its error.
func (client *Client) Filter(ctx context.Context, request *pb.FilterRequest) (Reply[*pb.FilterResponse], error) {
	reply, err := client.filter(ctx, request)
	return withProblems(CallFilter, reply, err)
}

func (client *Client) filter(ctx context.Context, request *pb.FilterRequest) (Reply[*pb.FilterResponse], error) {
	response, err := call(ctx, client, "Filter", repeatable, client.decisions.Filter, request)
	if err == nil {
		return fromService(client, CallFilter, response)
	}
	if request.GetCandidates() == nil && client.options.Fallback[CallFilter] == FailOpen {
		return Reply[*pb.FilterResponse]{}, err
	}
	return fallback(client, CallFilter, err, closedFilter(request), openFilter(request), &pb.FilterResponse{})
}

func closedFilter(request *pb.FilterRequest) func(*pb.Reason) *pb.FilterResponse {
	return func(reason *pb.Reason) *pb.FilterResponse {
		result := &pb.FilterResult{}
		for range request.GetTasks() {
			result.Items = append(result.Items, &pb.FilterItem{
				Fit:        &pb.NodeSet{},
				Rejections: []*pb.Rejection{{Reason: reason, Nodes: request.GetCandidates(), Count: count(request.GetCandidates())}},
			})
		}
		return &pb.FilterResponse{Result: result}
	}
}

func openFilter(request *pb.FilterRequest) func(*pb.Reason) *pb.FilterResponse {
	return func(*pb.Reason) *pb.FilterResponse {
		result := &pb.FilterResult{}
		for range request.GetTasks() {
			result.Items = append(result.Items, &pb.FilterItem{Fit: request.GetCandidates(), FitCount: count(request.GetCandidates())})
		}
		return &pb.FilterResponse{Result: result}
	}
}

func count(nodes *pb.NodeSet) uint32 {
	number := len(nodes.GetNames())
	for range slots(nodes) {
		number++
	}
	return uint32(number)
}

// Score returns the scores of nodes for tasks. With a limit the Filter result has no sets of nodes, unless FilterDetail asks
// for them: a caller that wants three nodes does not get the names of all others.
func (client *Client) Score(ctx context.Context, request *pb.ScoreRequest) (Reply[*pb.ScoreResponse], error) {
	reply, err := client.score(ctx, request)
	return withProblems(CallScore, reply, err)
}

func (client *Client) score(ctx context.Context, request *pb.ScoreRequest) (Reply[*pb.ScoreResponse], error) {
	response, err := call(ctx, client, "Score", repeatable, client.decisions.Score, limited(request))
	if err == nil {
		return fromService(client, CallScore, response)
	}
	return fallback(client, CallScore, err, nil, nil, &pb.ScoreResponse{})
}

// limited is a request with a limit whose Filter result has samples instead of sets of nodes. The caller's request is not
// changed.
func limited(request *pb.ScoreRequest) *pb.ScoreRequest {
	if request.GetLimit() == 0 || !request.GetWithFilter() || request.GetFilterDetail() != pb.FilterDetail_FILTER_DETAIL_UNSPECIFIED {
		return request
	}
	own := &pb.ScoreRequest{
		Against: request.Against, Tasks: request.Tasks, Candidates: request.Candidates, Plugins: request.Plugins,
		ResourceFit: request.ResourceFit, NodeEncoding: request.NodeEncoding, Samples: request.Samples,
		WithFilter: request.WithFilter, Limit: request.Limit, WithParts: request.WithParts,
		FilterDetail: pb.FilterDetail_FILTER_DETAIL_SAMPLES,
	}
	own.ProtoReflect().SetUnknown(request.ProtoReflect().GetUnknown())
	return own
}

// Place places the tasks of one job. With the fallback FailClosed nothing is placed.
func (client *Client) Place(ctx context.Context, request *pb.PlaceRequest) (Reply[*pb.PlaceResponse], error) {
	reply, err := client.place(ctx, request)
	return withProblems(CallPlace, reply, err)
}

func (client *Client) place(ctx context.Context, request *pb.PlaceRequest) (Reply[*pb.PlaceResponse], error) {
	response, err := call(ctx, client, "Place", repeatable, client.decisions.Place, request)
	if err == nil {
		return fromService(client, CallPlace, response)
	}
	closed := func(reason *pb.Reason) *pb.PlaceResponse {
		return &pb.PlaceResponse{Result: &pb.PlaceResult{Blockers: []*pb.Rejection{{Reason: reason}}}}
	}
	return fallback(client, CallPlace, err, closed, nil, nil)
}

// Admit decides whether jobs may start and tasks may be allocated.
func (client *Client) Admit(ctx context.Context, request *pb.AdmitRequest) (Reply[*pb.AdmitResponse], error) {
	reply, err := client.admit(ctx, request)
	return withProblems(CallAdmit, reply, err)
}

func (client *Client) admit(ctx context.Context, request *pb.AdmitRequest) (Reply[*pb.AdmitResponse], error) {
	response, err := call(ctx, client, "Admit", repeatable, client.decisions.Admit, request)
	if err == nil {
		return fromService(client, CallAdmit, response)
	}
	all := func(permitted bool) func(*pb.Reason) *pb.AdmitResponse {
		return func(reason *pb.Reason) *pb.AdmitResponse {
			result := &pb.AdmitResult{}
			for range request.GetItems() {
				item := &pb.AdmitItem{Permitted: permitted}
				if !permitted {
					item.Reasons = []*pb.Reason{reason}
				}
				result.Items = append(result.Items, item)
			}
			return &pb.AdmitResponse{Result: result}
		}
	}
	return fallback(client, CallAdmit, err, all(false), all(true), &pb.AdmitResponse{})
}

// Order returns the order in which queues and jobs are served.
func (client *Client) Order(ctx context.Context, request *pb.OrderRequest) (Reply[*pb.OrderResponse], error) {
	reply, err := client.order(ctx, request)
	return withProblems(CallOrder, reply, err)
}

func (client *Client) order(ctx context.Context, request *pb.OrderRequest) (Reply[*pb.OrderResponse], error) {
	response, err := call(ctx, client, "Order", repeatable, client.decisions.Order, request)
	if err == nil {
		return fromService(client, CallOrder, response)
	}
	return fallback(client, CallOrder, err, nil, nil, &pb.OrderResponse{})
}

// SelectVictims selects tasks to evict for a preemptor. With the fallback FailClosed no task is evicted. With Abstain the
// response has no items: where several plugins vote, the others decide.
func (client *Client) SelectVictims(ctx context.Context, request *pb.SelectVictimsRequest) (Reply[*pb.SelectVictimsResponse], error) {
	reply, err := client.selectVictims(ctx, request)
	return withProblems(CallSelectVictims, reply, err)
}

func (client *Client) selectVictims(ctx context.Context, request *pb.SelectVictimsRequest) (Reply[*pb.SelectVictimsResponse], error) {
	response, err := call(ctx, client, "SelectVictims", repeatable, client.decisions.SelectVictims, request)
	if err == nil {
		return fromService(client, CallSelectVictims, response)
	}
	closed := func(*pb.Reason) *pb.SelectVictimsResponse {
		result := &pb.SelectVictimsResult{}
		for range request.GetGroups() {
			result.Items = append(result.Items, &pb.VictimItem{})
		}
		return &pb.SelectVictimsResponse{Result: result}
	}
	return fallback(client, CallSelectVictims, err, closed, nil, &pb.SelectVictimsResponse{})
}
