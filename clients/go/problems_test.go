package pumice

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	pb "github.com/pumice-scheduler/pumice/clients/go/pumicev1"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
)

func TestACallWhileTheServiceIsAwayIsAnErrorUnlessAFallbackIsChosen(t *testing.T) {
	client := dial(t, "127.0.0.1:1", Options{Attempts: 1, BreakAfter: -1})
	for call, ask := range asks {
		reply, err := ask(within(t), client)
		var failure *Error
		if !errors.As(err, &failure) || !failure.Unavailable() || reply != (said{}) {
			t.Errorf("%s: %+v %v", call, reply, err)
		}
	}
	if OriginService == (Reply[*pb.FilterResponse]{}).Origin {
		t.Error("the zero reply looks like the service's")
	}
}

func TestFailOpenWithoutCandidatesIsAnError(t *testing.T) {
	client := dial(t, "127.0.0.1:1", quick(map[Call]Fallback{CallFilter: FailOpen}))
	reply, err := client.Filter(within(t), &pb.FilterRequest{Tasks: []*pb.Task{task}})
	if err == nil || reply.Response != nil {
		t.Fatalf("every node fits, and the reply names none: %+v", reply)
	}
}

// withOneProblem sends each call with a good item and one that has a problem; it returns the items that have a result.
var withOneProblem = map[Call]func(context.Context, *Client, *Session) (int, error){
	CallFilter: func(ctx context.Context, client *Client, session *Session) (int, error) {
		request := &pb.FilterRequest{Tasks: []*pb.Task{task, {Name: "default/nobody"}}}
		reply, err := client.Filter(ctx, request)
		if session != nil {
			reply, err = session.Filter(ctx, request)
		}
		return int(reply.Response.GetResult().GetItems()[0].GetFitCount()), err
	},
	CallScore: func(ctx context.Context, client *Client, session *Session) (int, error) {
		request := &pb.ScoreRequest{Tasks: []*pb.Task{task, {Requests: amounts("cpu", "1x")}}}
		reply, err := client.Score(ctx, request)
		if session != nil {
			reply, err = session.Score(ctx, request)
		}
		return len(reply.Response.GetResult().GetItems()[0].GetTotals()), err
	},
	CallPlace: func(ctx context.Context, client *Client, session *Session) (int, error) {
		request := &pb.PlaceRequest{Groups: []*pb.TaskGroup{{Task: task}, {Task: &pb.Task{Name: "default/nobody"}}}}
		reply, err := client.Place(ctx, request)
		if session != nil {
			reply, err = session.Place(ctx, request)
		}
		return len(reply.Response.GetResult().GetGroups()), err
	},
	CallAdmit: func(ctx context.Context, client *Client, session *Session) (int, error) {
		request := &pb.AdmitRequest{}
		for _, name := range []string{"default/gang", "default/nobody"} {
			request.Items = append(request.Items, &pb.AdmitSubject{Subject: &pb.AdmitSubject_Job{Job: &pb.Job{Name: name}}})
		}
		reply, err := client.Admit(ctx, request)
		if session != nil {
			reply, err = session.Admit(ctx, request)
		}
		return len(reply.Response.GetResult().GetItems()), err
	},
	CallOrder: func(ctx context.Context, client *Client, session *Session) (int, error) {
		request := &pb.OrderRequest{Queues: &pb.NameSet{}, Jobs: &pb.NameSet{Names: []string{"default/gang", "default/nobody"}}}
		reply, err := client.Order(ctx, request)
		if session != nil {
			reply, err = session.Order(ctx, request)
		}
		return len(reply.Response.GetResult().GetJobs()), err
	},
	CallSelectVictims: func(ctx context.Context, client *Client, session *Session) (int, error) {
		group := func(preemptor string) *pb.VictimGroup {
			return &pb.VictimGroup{Preemptor: &pb.Task{Name: preemptor}, Node: "n1", Candidates: []*pb.Task{{Name: "default/old"}}}
		}
		request := &pb.SelectVictimsRequest{
			Kind: pb.VictimKind_VICTIM_KIND_PREEMPT, Groups: []*pb.VictimGroup{group("default/gang-0"), group("default/nobody")},
		}
		reply, err := client.SelectVictims(ctx, request)
		if session != nil {
			reply, err = session.SelectVictims(ctx, request)
		}
		return len(reply.Response.GetResult().GetItems()), err
	},
}

func TestAnItemWithAProblemIsAnErrorBesideTheOtherResults(t *testing.T) {
	client := loaded(t, Options{})
	session, err := client.OpenSession(within(t), nil)
	if err != nil {
		t.Fatal(err)
	}
	for call, send := range withOneProblem {
		for _, in := range []*Session{nil, session} {
			results, err := send(within(t), client, in)
			var problems *ProblemError
			if !errors.As(err, &problems) || problems.Call != call || len(problems.Items) != 1 || problems.Items[0].Item == 0 {
				t.Errorf("%s, in a session: %v: %v", call, in != nil, err)
				continue
			}
			if results == 0 {
				t.Errorf("%s: the result of the good item is missing", call)
			}
			if !strings.Contains(err.Error(), problems.Items[0].Problem.GetMessage()) {
				t.Errorf("%s: %v", call, err)
			}
		}
	}
	reply, err := AllowProblems(client.Filter(within(t), &pb.FilterRequest{Tasks: []*pb.Task{{Name: "default/nobody"}}}))
	if err != nil || reply.Response.GetResult().GetItems()[0].GetProblem() == nil {
		t.Fatal(reply, err)
	}
}

func TestHelpersReturnAProblemAsAnError(t *testing.T) {
	problem := &pb.Problem{Reason: "TASK_UNKNOWN", Message: "no such task"}
	scored := &pb.ScoreItem{Problem: problem}
	var problems *ProblemError
	if _, err := FittingNodes(&pb.FilterItem{Problem: problem}, nil); !errors.As(err, &problems) {
		t.Error("FittingNodes:", err)
	}
	if _, _, err := BestNode(scored, nil); !errors.As(err, &problems) {
		t.Error("BestNode:", err)
	}
	if _, err := BestSlot(scored); !errors.As(err, &problems) {
		t.Error("BestSlot:", err)
	}
	if _, err := Scores(nil, scored); !errors.As(err, &problems) {
		t.Error("Scores:", err)
	}
	headroom := (&Session{}).Headroom()
	headroom.Set("q", "small", &pb.AdmitItem{Problem: problem})
	if _, known := headroom.Take("q", "small"); known {
		t.Error("Headroom: a problem counts as a queue without headroom")
	}
}

func TestHelpersTellNoNodeFromNodesThatTheyCannotRead(t *testing.T) {
	byName, bySlot := &pb.NodeSet{Names: []string{"n1", "n2"}}, &pb.NodeSet{Slots: []uint32{1, 0}}
	table := &NodeTable{names: []string{"n1", "n2"}}
	if _, err := Slots(byName); !errors.Is(err, ErrNodesByName) {
		t.Error("Slots:", err)
	}
	if _, err := BestSlot(&pb.ScoreItem{Nodes: byName, Totals: []float64{1, 2}}); !errors.Is(err, ErrNodesByName) {
		t.Error("BestSlot:", err)
	}
	if _, err := Scores(nil, &pb.ScoreItem{Nodes: byName, Totals: []float64{1, 2}}); !errors.Is(err, ErrNodesByName) {
		t.Error("Scores:", err)
	}
	if _, err := NodeNames(bySlot, nil); !errors.Is(err, ErrNodesBySlot) {
		t.Error("NodeNames:", err)
	}
	if _, err := NodeNames(&pb.NodeSet{Slots: []uint32{7}}, table); err == nil {
		t.Error("NodeNames: a slot beyond the table has a name")
	}
	if _, err := FittingNodes(&pb.FilterItem{FitCount: 3}, nil); err == nil {
		t.Error("FittingNodes: counts alone look like no node")
	}
	if _, err := FittingNodes(nil, nil); !errors.Is(err, ErrNoItem) {
		t.Error("FittingNodes:", err)
	}
	if _, _, err := BestNode(nil, nil); !errors.Is(err, ErrNoItem) {
		t.Error("BestNode:", err)
	}
	if _, err := BestSlot(nil); !errors.Is(err, ErrNoItem) {
		t.Error("BestSlot:", err)
	}
	if _, err := Scores(nil, nil); !errors.Is(err, ErrNoItem) {
		t.Error("Scores:", err)
	}
	for _, unlike := range []*pb.ScoreItem{{Nodes: bySlot}, {Nodes: bySlot, Totals: []float64{1}}, {Totals: []float64{1}}} {
		if _, _, err := BestNode(unlike, table); err == nil || errors.Is(err, ErrNoNode) {
			t.Error("BestNode:", err)
		}
		if _, err := BestSlot(unlike); err == nil || errors.Is(err, ErrNoNode) {
			t.Error("BestSlot:", err)
		}
		if _, err := Scores(nil, unlike); err == nil {
			t.Error("Scores: nodes and totals do not belong together")
		}
	}
	// A limit of 0 left out the nodes that fit.
	if _, _, err := BestNode(&pb.ScoreItem{Filter: &pb.FilterItem{FitCount: 3}}, nil); err == nil || errors.Is(err, ErrNoNode) {
		t.Error("BestNode:", err)
	}
	if best, total, err := BestNode(&pb.ScoreItem{Nodes: bySlot, Totals: []float64{1, 2}}, table); best != "n1" || total != 2 || err != nil {
		t.Error("BestNode:", best, total, err)
	}
	if _, _, err := BestNode(&pb.ScoreItem{}, nil); !errors.Is(err, ErrNoNode) {
		t.Error("BestNode:", err)
	}
	if _, err := BestSlot(&pb.ScoreItem{}); !errors.Is(err, ErrNoNode) {
		t.Error("BestSlot:", err)
	}
	if names, err := FittingNodes(&pb.FilterItem{Fit: byName, FitCount: 2}, nil); !slices.Equal(names, byName.Names) || err != nil {
		t.Error("FittingNodes:", names, err)
	}
	if names, err := FittingNodes(&pb.FilterItem{Fit: &pb.NodeSet{}}, nil); len(names) > 0 || err != nil {
		t.Error("FittingNodes:", names, err)
	}
}

func TestAWrongAddressIsNamedInTheError(t *testing.T) {
	both := httptest.NewUnstartedServer(http.NotFoundHandler())
	both.Config.Protocols = new(http.Protocols)
	both.Config.Protocols.SetHTTP1(true)
	both.Config.Protocols.SetUnencryptedHTTP2(true)
	both.Start()
	t.Cleanup(both.Close)
	plain := httptest.NewServer(http.NotFoundHandler())
	t.Cleanup(plain.Close)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	other := grpc.NewServer()
	go func() { _ = other.Serve(listener) }()
	t.Cleanup(other.Stop)
	for name, target := range map[string]string{
		"nothing": "127.0.0.1:1", "HTTP/1": plain.Listener.Addr().String(), "HTTP/2": both.Listener.Addr().String(),
		"another gRPC service": listener.Addr().String(),
	} {
		_, err := dial(t, target, Options{Attempts: 1}).GetServerInfo(within(t))
		if err == nil || !strings.Contains(err.Error(), target) || !strings.Contains(err.Error(), "gRPC on port 7461") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestATargetWithoutAPortHasTheDefaultPort(t *testing.T) {
	for target, wanted := range map[string]string{
		"pumice": "pumice:7461", "pumice:1": "pumice:1", "http://pumice/": "pumice:80", "https://pumice": "pumice:443",
		"/run/p.sock": "unix:/run/p.sock", "unix:p.sock": "unix:p.sock", "[::1]:7461": "[::1]:7461",
	} {
		if got, err := address(target); got != wanted || err != nil {
			t.Errorf("%s: %s %v", target, got, err)
		}
	}
	for _, target := range []string{"", "https://", "http:///"} {
		if got, err := address(target); err == nil {
			t.Errorf("%q: %s", target, got)
		}
	}
}

func TestRefusedRecordsOfAFeedAreLogged(t *testing.T) {
	var log bytes.Buffer
	address, _ := serve(t)
	client := dial(t, address, Options{Logger: slog.New(slog.NewTextHandler(&log, nil))})
	feed := client.Feed("tests", 0)
	feed.Put(&pb.Cluster{Nodes: []*pb.Node{{Name: "n1", Allocatable: amounts("cpu", "1x")}}})
	outcome, err := feed.Flush(within(t))
	if err != nil || len(outcome.GetRefused()) != 1 || !strings.Contains(log.String(), outcome.GetRefused()[0].GetField()) {
		t.Fatal(outcome, err, log.String())
	}
	log.Reset()
	feed.Put(&pb.Cluster{Nodes: []*pb.Node{{Name: "n2", Allocatable: amounts("cpu", "1x")}}})
	session, err := feed.OpenSession(within(t), nil)
	if err != nil || len(session.Opened().GetOutcome().GetRefused()) != 1 || !strings.Contains(log.String(), "source=tests") {
		t.Fatal(err, log.String())
	}
}

func TestTheErrorOfARejectedPolicyShowsItsFirstDiagnostics(t *testing.T) {
	failure := &Error{Reason: "POLICY_REJECTED", Message: "rejected", Report: &pb.PolicyReport{}}
	for line := range uint32(5) {
		failure.Report.Diagnostics = append(failure.Report.Diagnostics, &pb.Diagnostic{Line: line + 1, Column: 2, Path: "tiers", Message: "no list"})
	}
	text := failure.Error()
	if !strings.Contains(text, "line 3, column 2: tiers: no list") || strings.Contains(text, "line 4") || !strings.Contains(text, "2 more") {
		t.Fatal(text)
	}
}

func TestALimitedScoreDoesNotNameAllFittingNodes(t *testing.T) {
	client := loaded(t, Options{})
	request := &pb.ScoreRequest{Tasks: []*pb.Task{task}, WithFilter: true, Limit: proto.Uint32(1)}
	reply, err := client.Score(within(t), request)
	item := reply.Response.GetResult().GetItems()[0]
	if err != nil || len(item.GetNodes().GetNames()) != 1 || item.GetFilter().GetFitCount() != 3 || len(item.GetFilter().GetFit().GetNames()) > 1 {
		t.Fatal(item, err)
	}
	if request.FilterDetail != pb.FilterDetail_FILTER_DETAIL_UNSPECIFIED {
		t.Fatal("the caller's request was changed")
	}
	request.FilterDetail = pb.FilterDetail_FILTER_DETAIL_NODES
	reply, err = client.Score(within(t), request)
	if fit := reply.Response.GetResult().GetItems()[0].GetFilter().GetFit(); err != nil || len(fit.GetNames()) != 3 {
		t.Fatal(fit, err)
	}
	cut := &pb.FilterItem{Fit: &pb.NodeSet{Names: []string{"n1"}}, FitCount: 3}
	if _, err := FittingNodes(cut, nil); err == nil || !strings.Contains(err.Error(), "limit") {
		t.Fatal("nodes that the limit left out look unfit", err)
	}
	// A field of the protocol that the copy forgets would be lost.
	full := &pb.ScoreRequest{}
	fields := full.ProtoReflect().Descriptor().Fields()
	for at := range fields.Len() {
		field := fields.Get(at)
		if field.IsList() || field.Message() != nil {
			full.ProtoReflect().Set(field, full.ProtoReflect().NewField(field))
			continue
		}
		full.ProtoReflect().Set(field, map[protoreflect.Kind]protoreflect.Value{
			protoreflect.BoolKind: protoreflect.ValueOfBool(true), protoreflect.Uint32Kind: protoreflect.ValueOfUint32(7),
			protoreflect.EnumKind: protoreflect.ValueOfEnum(1),
		}[field.Kind()])
	}
	full.Tasks, full.Plugins = []*pb.Task{task}, []string{"drf"}
	full.FilterDetail = pb.FilterDetail_FILTER_DETAIL_UNSPECIFIED
	copied := limited(full)
	copied.FilterDetail = pb.FilterDetail_FILTER_DETAIL_UNSPECIFIED
	if copied == full || !proto.Equal(copied, full) {
		t.Fatal(copied)
	}
}
