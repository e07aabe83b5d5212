package pumice

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	pb "github.com/pumice-scheduler/pumice/clients/go/pumicev1"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/protoadapt"
	"google.golang.org/protobuf/types/known/durationpb"
)

func failing(code codes.Code, details ...protoadapt.MessageV1) error {
	said, err := status.New(code, "no").WithDetails(details...)
	if err != nil {
		panic(err)
	}
	return said.Err()
}

func reason(word string) protoadapt.MessageV1 {
	return protoadapt.MessageV1Of(&errdetails.ErrorInfo{Reason: word, Domain: "pumice"})
}

// asked says how often a call is asked that fails like this, one error after the other, and then is answered.
func asked(t *testing.T, may repeat, failures ...error) int {
	t.Helper()
	client := dial(t, DefaultTarget, Options{Backoff: 1, MaxBackoff: 1, Attempts: 3})
	times := 0
	_, _ = call(context.Background(), client, "Test", may, func(context.Context, *server, int, ...grpc.CallOption) (int, error) {
		times++
		if times <= len(failures) {
			return 0, failures[times-1]
		}
		return 1, nil
	}, 0)
	return times
}

func TestOnlyWhatDoesNoHarmIsAskedAgain(t *testing.T) {
	away := failing(codes.Unavailable)
	busy := failing(codes.Aborted, reason(ReasonSessionBusy))
	later := failing(codes.ResourceExhausted, reason("LIMIT_EXCEEDED"),
		protoadapt.MessageV1Of(&errdetails.RetryInfo{RetryDelay: durationpb.New(time.Millisecond)}))
	for name, test := range map[string]struct {
		may      repeat
		failures []error
		times    int
	}{
		"away":                 {repeatable, []error{away, away}, 3},
		"away for good":        {repeatable, []error{away, away, away, away}, 3},
		"away, not repeatable": {once, []error{away}, 1},
		"turned away":          {once, []error{later}, 2},
		"too large":            {repeatable, []error{failing(codes.ResourceExhausted, reason("LIMIT_EXCEEDED"))}, 1},
		"busy":                 {repeatable, []error{busy}, 1},
		"still busy":           {repeatable, []error{away, busy}, 3},
		"wrong":                {repeatable, []error{failing(codes.InvalidArgument, reason("INVALID"))}, 1},
		"a fault of its own":   {repeatable, []error{failing(codes.Internal, reason("INTERNAL"))}, 1},
	} {
		if times := asked(t, test.may, test.failures...); times != test.times {
			t.Errorf("%s: asked %d times, expected %d", name, times, test.times)
		}
	}
}

func TestTheCircuitOpensAndCloses(t *testing.T) {
	now := time.Unix(0, 0)
	var seen []bool
	circuit := &breaker{after: 2, pause: time.Second, now: func() time.Time { return now }, changed: func(open bool) { seen = append(seen, open) }}
	allowed := func(wanted bool) {
		t.Helper()
		if got := circuit.allow(); got != wanted {
			t.Fatalf("allowed: %v", got)
		}
	}
	allowed(true)
	circuit.failed("away")
	allowed(true)
	circuit.failed("away")
	allowed(false)
	now = now.Add(time.Second)
	allowed(true)
	allowed(false)
	circuit.failed("away")
	allowed(false)
	now = now.Add(time.Second)
	allowed(true)
	circuit.canceled()
	allowed(true)
	circuit.succeeded()
	allowed(true)
	if len(seen) != 2 || !seen[0] || seen[1] {
		t.Fatal(seen)
	}
}

func TestAnOpenCircuitAsksNobody(t *testing.T) {
	options := quick(map[Call]Fallback{CallAdmit: FailClosed})
	options.BreakAfter, options.BreakFor = 1, time.Hour
	client := dial(t, "127.0.0.1:1", options)
	for range 3 {
		reply, err := asks[CallAdmit](within(t), client)
		if err != nil || reply.origin != OriginFailClosed {
			t.Fatalf("%+v %v", reply, err)
		}
		if reply.cause.Reason != ReasonCircuitOpen && reply.cause.Code != codes.Unavailable {
			t.Fatal(reply.cause)
		}
	}
	_, err := client.GetServerInfo(within(t))
	var failure *Error
	if !errors.As(err, &failure) || failure.Reason != ReasonCircuitOpen || !strings.Contains(failure.Message, "the last failure: no Pumice server at") {
		t.Fatal(err)
	}
}

func TestOneTargetHasManyNames(t *testing.T) {
	address, socket := serve(t)
	for _, target := range []string{address, "http://" + address, socket, "unix:" + socket} {
		if _, err := dial(t, target, Options{}).GetServerInfo(within(t)); err != nil {
			t.Errorf("%s: %v", target, err)
		}
	}
	if _, err := dial(t, "https://"+address, Options{Attempts: 1}).GetServerInfo(within(t)); err == nil {
		t.Error("a server without TLS was taken for one with it")
	}
}

func TestARefusedPolicyHasAReport(t *testing.T) {
	client := loaded(t, Options{})
	_, err := client.ReloadPolicy(within(t), &pb.ReloadPolicyRequest{Document: "tiers: 1"})
	var failure *Error
	if !errors.As(err, &failure) || failure.Reason != "POLICY_REJECTED" || failure.Report.GetDiagnostics()[0].GetLine() != 1 {
		t.Fatal(err)
	}
}
