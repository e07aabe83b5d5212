package pumice

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	pb "github.com/pumice-scheduler/pumice/clients/go/pumicev1"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/protoadapt"
	"google.golang.org/protobuf/types/known/durationpb"
)

// scripted is a service whose decisions follow a script.
type scripted struct {
	pb.UnimplementedDecisionServiceServer
	mutex  sync.Mutex
	script func(context.Context) (proto.Message, error)
}

// OpenSession opens a session that has a name.
func (*scripted) OpenSession(context.Context, *pb.OpenSessionRequest) (*pb.OpenSessionResponse, error) {
	return &pb.OpenSessionResponse{Session: "s"}, nil
}

func (service *scripted) play(script func(context.Context) (proto.Message, error)) {
	service.mutex.Lock()
	defer service.mutex.Unlock()
	service.script = script
}

func (service *scripted) serve(t *testing.T) string {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	server := grpc.NewServer(grpc.UnaryInterceptor(func(ctx context.Context, request any, info *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
		if strings.HasSuffix(info.FullMethod, "/OpenSession") {
			return handler(ctx, request)
		}
		service.mutex.Lock()
		script := service.script
		service.mutex.Unlock()
		return script(ctx)
	}))
	pb.RegisterDecisionServiceServer(server, service)
	t.Cleanup(server.Stop)
	go func() { _ = server.Serve(listener) }()
	return listener.Addr().String()
}

// outcomeOf is what a caller of a decision call gets.
type outcomeOf struct {
	origin   Origin
	cause    *Error
	response bool
	err      error
}

func got[R decisionResponse](reply Reply[R], err error) outcomeOf {
	var none R
	return outcomeOf{reply.Origin, reply.Cause, reply.Response != none, err}
}

// way is a decision call about two items, and the response to it with some items, of which the last ones have a problem.
type way struct {
	name    string
	call    Call
	direct  func(context.Context, *Client) outcomeOf
	session func(context.Context, *Session) outcomeOf
	respond func(items, problems int) proto.Message
	empty   proto.Message
	bare    proto.Message
}

func filled[I any](items, problems int, item func(*pb.Problem) I) (list []I) {
	for at := range items {
		var problem *pb.Problem
		if at >= items-problems {
			problem = &pb.Problem{Code: int32(codes.NotFound), Reason: "TASK_UNKNOWN", Message: "no such task"}
		}
		list = append(list, item(problem))
	}
	return list
}

func ways() []way {
	two := []*pb.Task{task, task}
	filter := func() *pb.FilterRequest {
		return &pb.FilterRequest{Tasks: two, Candidates: &pb.NodeSet{Names: []string{"n1"}}}
	}
	score := func() *pb.ScoreRequest { return &pb.ScoreRequest{Tasks: two, WithFilter: true, Limit: proto.Uint32(1)} }
	place := func(effect pb.PlaceEffect) *pb.PlaceRequest {
		return &pb.PlaceRequest{Groups: []*pb.TaskGroup{{Task: task}, {Task: task}}, Effect: effect}
	}
	admit := func(mode pb.AdmitMode) *pb.AdmitRequest {
		job := &pb.AdmitSubject{Subject: &pb.AdmitSubject_Job{Job: &pb.Job{Name: "j"}}}
		return &pb.AdmitRequest{Items: []*pb.AdmitSubject{job, job}, Mode: mode}
	}
	// A name that is given twice has one rank.
	order := func() *pb.OrderRequest { return &pb.OrderRequest{Jobs: &pb.NameSet{Names: []string{"a", "b", "a"}}} }
	victims := func() *pb.SelectVictimsRequest {
		return &pb.SelectVictimsRequest{Kind: pb.VictimKind_VICTIM_KIND_PREEMPT, Groups: []*pb.VictimGroup{{}, {}}}
	}
	placed := func(items, problems int) proto.Message {
		return &pb.PlaceResponse{Result: &pb.PlaceResult{Groups: filled(items, problems, func(problem *pb.Problem) *pb.PlacedGroup { return &pb.PlacedGroup{Problem: problem} })}}
	}
	admitted := func(items, problems int) proto.Message {
		return &pb.AdmitResponse{Result: &pb.AdmitResult{Items: filled(items, problems, func(problem *pb.Problem) *pb.AdmitItem { return &pb.AdmitItem{Problem: problem} })}}
	}
	return []way{
		{
			"Filter", CallFilter,
			func(ctx context.Context, client *Client) outcomeOf { return got(client.Filter(ctx, filter())) },
			func(ctx context.Context, session *Session) outcomeOf { return got(session.Filter(ctx, filter())) },
			func(items, problems int) proto.Message {
				return &pb.FilterResponse{Result: &pb.FilterResult{Items: filled(items, problems, func(problem *pb.Problem) *pb.FilterItem { return &pb.FilterItem{Problem: problem} })}}
			},
			&pb.FilterResponse{}, &pb.FilterResponse{Result: &pb.FilterResult{}},
		},
		{
			"Score", CallScore,
			func(ctx context.Context, client *Client) outcomeOf { return got(client.Score(ctx, score())) },
			func(ctx context.Context, session *Session) outcomeOf { return got(session.Score(ctx, score())) },
			func(items, problems int) proto.Message {
				return &pb.ScoreResponse{Result: &pb.ScoreResult{Items: filled(items, problems, func(problem *pb.Problem) *pb.ScoreItem { return &pb.ScoreItem{Problem: problem} })}}
			},
			&pb.ScoreResponse{}, &pb.ScoreResponse{Result: &pb.ScoreResult{}},
		},
		{
			"Place", CallPlace,
			func(ctx context.Context, client *Client) outcomeOf {
				return got(client.Place(ctx, place(pb.PlaceEffect_PLACE_EFFECT_PREVIEW)))
			},
			func(ctx context.Context, session *Session) outcomeOf {
				return got(session.Place(ctx, place(pb.PlaceEffect_PLACE_EFFECT_PREVIEW)))
			},
			placed, &pb.PlaceResponse{}, &pb.PlaceResponse{Result: &pb.PlaceResult{}},
		},
		{
			"Place, which changes the session", CallPlace, nil,
			func(ctx context.Context, session *Session) outcomeOf {
				return got(session.Place(ctx, place(pb.PlaceEffect_PLACE_EFFECT_SESSION)))
			},
			placed, &pb.PlaceResponse{}, &pb.PlaceResponse{Result: &pb.PlaceResult{}},
		},
		{
			"Admit", CallAdmit,
			func(ctx context.Context, client *Client) outcomeOf {
				return got(client.Admit(ctx, admit(pb.AdmitMode_ADMIT_MODE_CHECK)))
			},
			func(ctx context.Context, session *Session) outcomeOf {
				return got(session.Admit(ctx, admit(pb.AdmitMode_ADMIT_MODE_CHECK)))
			},
			admitted, &pb.AdmitResponse{}, &pb.AdmitResponse{Result: &pb.AdmitResult{}},
		},
		{
			"Admit, which changes the session", CallAdmit, nil,
			func(ctx context.Context, session *Session) outcomeOf {
				return got(session.Admit(ctx, admit(pb.AdmitMode_ADMIT_MODE_TENTATIVE)))
			},
			admitted, &pb.AdmitResponse{}, &pb.AdmitResponse{Result: &pb.AdmitResult{}},
		},
		{
			"Order", CallOrder,
			func(ctx context.Context, client *Client) outcomeOf { return got(client.Order(ctx, order())) },
			func(ctx context.Context, session *Session) outcomeOf { return got(session.Order(ctx, order())) },
			func(items, problems int) proto.Message {
				return &pb.OrderResponse{Result: &pb.OrderResult{Jobs: filled(items, problems, func(problem *pb.Problem) *pb.Rank { return &pb.Rank{Problem: problem} })}}
			},
			&pb.OrderResponse{}, &pb.OrderResponse{Result: &pb.OrderResult{}},
		},
		{
			"SelectVictims", CallSelectVictims,
			func(ctx context.Context, client *Client) outcomeOf { return got(client.SelectVictims(ctx, victims())) },
			func(ctx context.Context, session *Session) outcomeOf {
				return got(session.SelectVictims(ctx, victims()))
			},
			func(items, problems int) proto.Message {
				return &pb.SelectVictimsResponse{Result: &pb.SelectVictimsResult{Items: filled(items, problems, func(problem *pb.Problem) *pb.VictimItem { return &pb.VictimItem{Problem: problem} })}}
			},
			&pb.SelectVictimsResponse{}, &pb.SelectVictimsResponse{Result: &pb.SelectVictimsResult{}},
		},
	}
}

// kindOf is what a failure of a call means.
type kindOf int

const (
	// answeredWell: the service answered.
	answeredWell kindOf = iota
	// away: the service gave no answer, so that a fallback counts.
	away
	// decided: the call failed, and no fallback counts.
	decided
	// incomplete: the response is not about what was asked.
	incomplete
	// problematic: items have a problem.
	problematic
)

// failureKind is a way in which a call fails.
type failureKind struct {
	name   string
	kind   kindOf
	script func(way) func(context.Context) (proto.Message, error)
	// adjust changes the options, caller the context of the call.
	adjust func(*Options)
	caller func(context.Context) (context.Context, context.CancelFunc)
}

func fails(code codes.Code, details ...protoadapt.MessageV1) func(way) func(context.Context) (proto.Message, error) {
	return func(way) func(context.Context) (proto.Message, error) {
		return func(context.Context) (proto.Message, error) { return nil, failing(code, details...) }
	}
}

func responds(response func(way) proto.Message) func(way) func(context.Context) (proto.Message, error) {
	return func(way way) func(context.Context) (proto.Message, error) {
		return func(context.Context) (proto.Message, error) { return response(way), nil }
	}
}

func hangs(way) func(context.Context) (proto.Message, error) {
	return func(ctx context.Context) (proto.Message, error) {
		<-ctx.Done()
		return nil, ctx.Err()
	}
}

func failureKinds() []failureKind {
	retry := protoadapt.MessageV1Of(&errdetails.RetryInfo{RetryDelay: durationpb.New(time.Millisecond)})
	short := func(ctx context.Context) (context.Context, context.CancelFunc) {
		return context.WithTimeout(ctx, 30*time.Millisecond)
	}
	over := func(ctx context.Context) (context.Context, context.CancelFunc) {
		return context.WithDeadline(ctx, time.Unix(0, 0))
	}
	canceled := func(ctx context.Context) (context.Context, context.CancelFunc) {
		ctx, cancel := context.WithCancel(ctx)
		cancel()
		return ctx, cancel
	}
	abandoned := func(ctx context.Context) (context.Context, context.CancelFunc) {
		ctx, cancel := context.WithCancel(ctx)
		time.AfterFunc(20*time.Millisecond, cancel)
		return ctx, cancel
	}
	patient := func(options *Options) {
		options.Attempts, options.Backoff, options.MaxBackoff = 99, time.Minute, time.Minute
	}
	return []failureKind{
		{name: "an answer", kind: answeredWell, script: responds(func(way way) proto.Message { return way.respond(2, 0) })},
		{name: "unavailable", kind: away, script: fails(codes.Unavailable)},
		{name: "unavailable, and says so", kind: away, script: fails(codes.Unavailable, reason("STOPPING"))},
		{name: "breaks off", kind: away, script: fails(codes.Internal)},
		{name: "something unknown", kind: away, script: fails(codes.Unknown)},
		{name: "throttled", kind: away, script: fails(codes.ResourceExhausted, reason("LIMIT_EXCEEDED"), retry)},
		{name: "its deadline", kind: away, script: fails(codes.DeadlineExceeded, reason("DEADLINE_EXCEEDED"))},
		{name: "hangs", kind: away, script: hangs},
		{name: "the caller's deadline", kind: away, script: hangs, caller: short, adjust: func(options *Options) { options.Timeout = time.Minute }},
		{name: "a deadline that is over", kind: away, script: hangs, caller: over},
		{name: "the circuit is open", kind: away, script: fails(codes.Unavailable), adjust: func(options *Options) { options.BreakAfter, options.BreakFor = 1, time.Hour }},
		{name: "canceled before", kind: decided, script: hangs, caller: canceled},
		{name: "canceled while the circuit is open", kind: decided, script: fails(codes.Unavailable), caller: canceled, adjust: func(options *Options) { options.BreakAfter, options.BreakFor = 1, time.Hour }},
		{name: "canceled meanwhile", kind: decided, script: hangs, caller: abandoned, adjust: func(options *Options) { options.Timeout = time.Minute }},
		{name: "canceled between attempts", kind: decided, script: fails(codes.Unavailable), caller: abandoned, adjust: func(options *Options) { patient(options); options.Timeout = time.Hour }},
		{name: "a wrong request", kind: decided, script: fails(codes.InvalidArgument, reason("ENUM_INVALID"))},
		{name: "too large", kind: decided, script: fails(codes.ResourceExhausted, reason("LIMIT_EXCEEDED"))},
		{name: "a lost session", kind: decided, script: fails(codes.FailedPrecondition, reason(ReasonSessionExpired))},
		{name: "a fault of the service", kind: decided, script: fails(codes.Internal, reason("INTERNAL"))},
		{name: "no such call", kind: decided, script: fails(codes.Unimplemented)},
		{name: "no right", kind: decided, script: fails(codes.PermissionDenied)},
		{name: "an empty message", kind: incomplete, script: responds(func(way way) proto.Message { return way.empty })},
		{name: "an empty result", kind: incomplete, script: responds(func(way way) proto.Message { return way.bare })},
		{name: "an item too few", kind: incomplete, script: responds(func(way way) proto.Message { return way.respond(1, 0) })},
		{name: "an item too many", kind: incomplete, script: responds(func(way way) proto.Message { return way.respond(3, 1) })},
		{name: "a problem", kind: problematic, script: responds(func(way way) proto.Message { return way.respond(2, 1) })},
		{name: "nothing but problems", kind: problematic, script: responds(func(way way) proto.Message { return way.respond(2, 2) })},
	}
}

// TestEveryFailureOfEveryCallIsReported goes through every call, in a session and without, every failure and every fallback.
func TestEveryFailureOfEveryCallIsReported(t *testing.T) {
	cells := 0
	for _, way := range ways() {
		for _, failure := range failureKinds() {
			for _, chosen := range Fallbacks()[way.call] {
				for _, inSession := range []bool{false, true} {
					if way.direct == nil && !inSession {
						continue
					}
					cells++
					t.Run(fmt.Sprintf("%s/%s/%s/%v", way.name, failure.name, chosen, inSession), func(t *testing.T) {
						t.Parallel()
						checkFailure(t, way, failure, chosen, inSession)
					})
				}
			}
		}
	}
	t.Logf("%d cells", cells)
}

func checkFailure(t *testing.T, way way, failure failureKind, chosen Fallback, inSession bool) {
	service := &scripted{}
	service.play(failure.script(way))
	options := quick(map[Call]Fallback{way.call: chosen})
	options.Timeout = 150 * time.Millisecond
	if failure.kind != away {
		options.Timeout = 20 * time.Second
	}
	if failure.adjust != nil {
		failure.adjust(&options)
	}
	client, ctx := dial(t, service.serve(t), options), within(t)
	var session *Session
	if inSession {
		// A machine with other work may need more than the time of one call.
		for session == nil {
			if opened, err := client.OpenSession(ctx, nil); err == nil {
				session = opened
			} else if ctx.Err() != nil {
				t.Fatal(err)
			}
		}
	}
	if options.BreakAfter > 0 {
		// Another call finds the service away.
		_, _ = client.Order(ctx, &pb.OrderRequest{})
	}
	if failure.caller != nil {
		var cancel context.CancelFunc
		ctx, cancel = failure.caller(ctx)
		defer cancel()
	}
	for range 2 {
		outcome := outcomeOf{}
		if inSession {
			outcome = way.session(ctx, session)
		} else {
			outcome = way.direct(ctx, client)
		}
		checkOutcome(t, way, failure, chosen, outcome)
	}
}

func checkOutcome(t *testing.T, way way, failure failureKind, chosen Fallback, outcome outcomeOf) {
	t.Helper()
	var failed *Error
	var problems *ProblemError
	is := false
	nothing := outcome.origin == OriginNone && !outcome.response && outcome.cause == nil
	switch failure.kind {
	case answeredWell:
		is = outcome.err == nil && outcome.origin == OriginService && outcome.response
	case away:
		if chosen == ReturnError {
			is = errors.As(outcome.err, &failed) && (failed.Unavailable() || failed.Reason == ReasonCircuitOpen) && nothing
			break
		}
		origin := map[Fallback]Origin{FailClosed: OriginFailClosed, FailOpen: OriginFailOpen, Abstain: OriginAbstain}[chosen]
		is = outcome.err == nil && outcome.origin == origin && outcome.cause != nil && outcome.response
	case decided:
		is = errors.As(outcome.err, &failed) && nothing
	case incomplete:
		is = errors.Is(outcome.err, ErrIncomplete) && strings.Contains(outcome.err.Error(), string(way.call)) && nothing
	case problematic:
		is = errors.As(outcome.err, &problems) && problems.Call == way.call && outcome.origin == OriginService && outcome.response
	}
	if !is {
		t.Errorf("%+v", outcome)
	}
}

// TestNoResultIsNotAnEmptyOne asks for all records, whose number only the service knows.
func TestNoResultIsNotAnEmptyOne(t *testing.T) {
	service := &scripted{}
	client := dial(t, service.serve(t), Options{})
	for _, response := range []*pb.OrderResponse{{}, {Result: &pb.OrderResult{}}} {
		service.play(func(context.Context) (proto.Message, error) { return response, nil })
		_, err := client.Order(within(t), &pb.OrderRequest{Jobs: &pb.NameSet{}})
		if errors.Is(err, ErrIncomplete) != (response.Result == nil) {
			t.Error(response, err)
		}
	}
}

// TestAFallbackHasAnItemForEachOneAsked checks that a caller who reads the items of a fallback finds those of the request.
func TestAFallbackHasAnItemForEachOneAsked(t *testing.T) {
	closed := dial(t, "127.0.0.1:1", quick(map[Call]Fallback{
		CallFilter: FailClosed, CallPlace: FailClosed, CallAdmit: FailClosed, CallSelectVictims: FailClosed,
	}))
	ctx := within(t)
	filtered, err := closed.Filter(ctx, &pb.FilterRequest{Tasks: []*pb.Task{task, task}})
	if items := filtered.Response.GetResult().GetItems(); err != nil || len(items) != 2 || items[1].GetRejections()[0].GetReason().GetCode() != UnavailableCode {
		t.Fatal(items, err)
	}
	placed, err := closed.Place(ctx, &pb.PlaceRequest{Groups: []*pb.TaskGroup{{Task: task}, {Task: task}}})
	if groups := placed.Response.GetResult().GetGroups(); err != nil || len(groups) != 2 || groups[1].GetBlockers()[0].GetReason().GetPlugin() != UnavailablePlugin {
		t.Fatal(groups, err)
	}
	admitted, err := closed.Admit(ctx, &pb.AdmitRequest{Items: []*pb.AdmitSubject{{}, {}}})
	if items := admitted.Response.GetResult().GetItems(); err != nil || len(items) != 2 || items[0] == items[1] {
		t.Fatal(items, err)
	}
	// A fallback says nothing about a queue, which may have headroom once the service is back.
	headroom := (&Session{}).Headroom()
	headroom.Set("q", "small", admitted.Response.GetResult().GetItems()[0])
	headroom.Set("q", "large", nil)
	for _, class := range []string{"small", "large"} {
		if _, known := headroom.Take("q", class); known {
			t.Error("a queue without headroom")
		}
	}
}
