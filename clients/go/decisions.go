package pumice

import (
	"context"
	"errors"
	"fmt"

	pb "github.com/pumice-scheduler/pumice/clients/go/pumicev1"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/proto"
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

// decisionRequest is the request of a decision call.
type decisionRequest interface {
	proto.Message
	GetAgainst() *pb.EvaluationRef
}

// decisionResponse is a response with metadata.
type decisionResponse interface {
	proto.Message
	comparable
	GetMetadata() *pb.ResponseMetadata
}

// decision is a decision call: its method, the items of its response, and its fallbacks.
type decision[Q decisionRequest, R decisionResponse] struct {
	call Call
	send func(pb.DecisionServiceClient, context.Context, Q, ...grpc.CallOption) (R, error)
	// against is the field of a request that says what it is evaluated against.
	against func(Q) **pb.EvaluationRef
	// changes reports whether a request is itself a change of its session. Nil: none is.
	changes func(Q) bool
	// prepared is the request to send. Nil: the caller's.
	prepared func(Q) Q
	// items are the problems of a response, and an error if it does not have an item for each of the request.
	items func(Q, R) ([]ItemProblem, error)
	// closed, open and abstain make the responses of the fallbacks; one that is nil is not permitted.
	closed, open func(Q, *pb.Reason) R
	abstain      func() R
}

// decide sends a request to the service.
func decide[Q decisionRequest, R decisionResponse](ctx context.Context, client *Client, decision *decision[Q, R], request Q) (Reply[R], error) {
	reply, err := decision.ask(ctx, client, nil, request)
	return decision.judge(request, reply, err)
}

// ask sends a request. Without an answer the reply is that of the fallback.
func (decision *decision[Q, R]) ask(ctx context.Context, client *Client, session *Session, request Q) (Reply[R], error) {
	response, err := decision.sendTo(ctx, client, session, request)
	if err != nil {
		return decision.fallback(client, request, err)
	}
	client.options.Metrics.Replied(decision.call, OriginService)
	return Reply[R]{Response: response, Origin: OriginService}, nil
}

// sendTo sends a request, of a session to the server that opened it.
func (decision *decision[Q, R]) sendTo(ctx context.Context, client *Client, session *Session, request Q) (R, error) {
	if decision.prepared != nil {
		request = decision.prepared(request)
	}
	if session != nil {
		response, err := callAt(ctx, client, session.server, string(decision.call), repeatable, decisions(decision.send), request)
		return response, session.unreachable(err)
	}
	if request.GetAgainst().GetInline() != nil {
		return call(ctx, client, string(decision.call), repeatable, decisions(decision.send), request)
	}
	send := func(ctx context.Context, server *server, request Q, options ...grpc.CallOption) (R, error) {
		response, err := decision.send(server.decisions, ctx, request, options...)
		if err != nil || !client.restartedSince(server, response.GetMetadata().GetRevision().GetEpoch()) {
			return response, err
		}
		// The response is about a state without the records of this client's feeds.
		if err := client.restoreFeeds(ctx, server); err != nil {
			return response, err
		}
		return decision.send(server.decisions, ctx, request, options...)
	}
	return call(ctx, client, string(decision.call), repeatable, send, request)
}

// fallback makes the reply to a request that the service did not answer.
func (decision *decision[Q, R]) fallback(client *Client, request Q, err error) (Reply[R], error) {
	var failure *Error
	if !errors.As(err, &failure) || !(failure.Unavailable() || failure.Reason == ReasonCircuitOpen) || failure.Code == codes.Canceled {
		return Reply[R]{}, err
	}
	reason := &pb.Reason{
		Plugin: UnavailablePlugin, Code: UnavailableCode, Message: "the decision service is unavailable",
		Resolution: pb.Resolution_RESOLUTION_UNRESOLVABLE,
	}
	var none R
	reply := Reply[R]{Cause: failure}
	switch chosen := client.options.Fallback[decision.call]; {
	case chosen == FailClosed && decision.closed != nil:
		reply.Response, reply.Origin = decision.closed(request, reason), OriginFailClosed
	case chosen == FailOpen && decision.open != nil:
		reply.Response, reply.Origin = decision.open(request, reason), OriginFailOpen
	case chosen == Abstain && decision.abstain != nil:
		reply.Response, reply.Origin = decision.abstain(), OriginAbstain
	}
	if reply.Response == none {
		return Reply[R]{}, err
	}
	client.options.Metrics.Replied(decision.call, reply.Origin)
	return reply, nil
}

// ErrIncomplete is the error of a response that does not have exactly one item for each item of its request. The reply is
// empty, because nobody can say which items it is about.
var ErrIncomplete = errors.New("the response does not have one item for each item of the request")

// judge returns a ProblemError for a response of the service in which an item has a problem.
func (decision *decision[Q, R]) judge(request Q, reply Reply[R], err error) (Reply[R], error) {
	if err != nil || reply.Origin != OriginService {
		return reply, err
	}
	problems, err := decision.items(request, reply.Response)
	switch {
	case err != nil:
		return Reply[R]{}, fmt.Errorf("%s: %w", decision.call, err)
	case len(problems) > 0:
		return reply, &ProblemError{Call: decision.call, Items: problems}
	}
	return reply, nil
}

// Filter returns the nodes on which tasks may run.
//
// With the fallback FailOpen every candidate that the request names fits. A request that names none is about all nodes,
// which this client does not know: such a call returns its error.
func (client *Client) Filter(ctx context.Context, request *pb.FilterRequest) (Reply[*pb.FilterResponse], error) {
	return decide(ctx, client, &filtering, request)
}

// Score returns the scores of nodes for tasks. With a limit the Filter result has no sets of nodes, unless FilterDetail asks
// for them: a caller that wants three nodes does not get the names of all others.
func (client *Client) Score(ctx context.Context, request *pb.ScoreRequest) (Reply[*pb.ScoreResponse], error) {
	return decide(ctx, client, &scoring, request)
}

// Place places the tasks of one job. With the fallback FailClosed nothing is placed.
func (client *Client) Place(ctx context.Context, request *pb.PlaceRequest) (Reply[*pb.PlaceResponse], error) {
	return decide(ctx, client, &placing, request)
}

// Admit decides whether jobs may start and tasks may be allocated.
func (client *Client) Admit(ctx context.Context, request *pb.AdmitRequest) (Reply[*pb.AdmitResponse], error) {
	return decide(ctx, client, &admitting, request)
}

// Order returns the order in which queues and jobs are served.
func (client *Client) Order(ctx context.Context, request *pb.OrderRequest) (Reply[*pb.OrderResponse], error) {
	return decide(ctx, client, &ordering, request)
}

// SelectVictims selects tasks to evict for a preemptor. With the fallback FailClosed no task is evicted. With Abstain the
// response has no items: where several plugins vote, the others decide.
func (client *Client) SelectVictims(ctx context.Context, request *pb.SelectVictimsRequest) (Reply[*pb.SelectVictimsResponse], error) {
	return decide(ctx, client, &selecting, request)
}
