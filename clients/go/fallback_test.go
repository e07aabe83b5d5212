package pumice

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	pb "github.com/pumice-scheduler/pumice/clients/go/pumicev1"

	"google.golang.org/grpc/connectivity"
)

var task = &pb.Task{Requests: amounts("cpu", "1")}

// said is a reply without its type.
type said struct {
	origin Origin
	cause  *Error
	// refuses and permits are what the response says about one item; both false: nothing.
	refuses, permits bool
}

// asks sends each call once and reads its response.
var asks = map[Call]func(context.Context, *Client) (said, error){
	CallFilter: func(ctx context.Context, client *Client) (said, error) {
		request := &pb.FilterRequest{Tasks: []*pb.Task{task}, Candidates: &pb.NodeSet{Names: []string{"n2"}}}
		reply, err := client.Filter(ctx, request)
		items := reply.Response.GetResult().GetItems()
		return said{reply.Origin, reply.Cause, len(items) == 1 && items[0].FitCount == 0, len(items) == 1 && items[0].FitCount == 1}, err
	},
	CallScore: func(ctx context.Context, client *Client) (said, error) {
		reply, err := client.Score(ctx, &pb.ScoreRequest{Tasks: []*pb.Task{task}})
		items := reply.Response.GetResult().GetItems()
		return said{reply.Origin, reply.Cause, false, len(items) == 1}, err
	},
	CallPlace: func(ctx context.Context, client *Client) (said, error) {
		groups := []*pb.TaskGroup{{Task: task}}
		reply, err := client.Place(ctx, &pb.PlaceRequest{Groups: groups})
		result := reply.Response.GetResult()
		return said{reply.Origin, reply.Cause, result != nil && !result.Placed, result.GetPlaced()}, err
	},
	CallAdmit: func(ctx context.Context, client *Client) (said, error) {
		subject := &pb.AdmitSubject{Subject: &pb.AdmitSubject_Job{Job: &pb.Job{Name: "default/gang"}}}
		reply, err := client.Admit(ctx, &pb.AdmitRequest{Items: []*pb.AdmitSubject{subject}})
		items := reply.Response.GetResult().GetItems()
		return said{reply.Origin, reply.Cause, len(items) == 1 && !items[0].Permitted, len(items) == 1 && items[0].Permitted}, err
	},
	CallOrder: func(ctx context.Context, client *Client) (said, error) {
		reply, err := client.Order(ctx, &pb.OrderRequest{Jobs: &pb.NameSet{}})
		return said{reply.Origin, reply.Cause, false, len(reply.Response.GetResult().GetJobs()) > 0}, err
	},
	CallSelectVictims: func(ctx context.Context, client *Client) (said, error) {
		group := &pb.VictimGroup{Preemptor: &pb.Task{Name: "default/gang-0"}, Node: "n1", Candidates: []*pb.Task{{Name: "default/old"}}}
		request := &pb.SelectVictimsRequest{Kind: pb.VictimKind_VICTIM_KIND_PREEMPT, Groups: []*pb.VictimGroup{group}}
		reply, err := client.SelectVictims(ctx, request)
		items := reply.Response.GetResult().GetItems()
		return said{reply.Origin, reply.Cause, len(items) == 1 && len(items[0].Victims) == 0, len(items) == 1 && len(items[0].Victims) > 0}, err
	},
}

// quick gives up soon, so that a hanging service does not hold the tests up.
func quick(fallback map[Call]Fallback) Options {
	return Options{
		Timeout: 150 * time.Millisecond, Attempts: 2, Backoff: time.Millisecond, MaxBackoff: time.Millisecond,
		BreakAfter: -1, Fallback: fallback,
	}
}

// TestEveryCallHasItsFallbackWhileTheServiceIsUnavailable goes through the table of the README, cell by cell, under every outage.
func TestEveryCallHasItsFallbackWhileTheServiceIsUnavailable(t *testing.T) {
	feeder := loaded(t, Options{})
	service := feeder.Connection().Target()
	cells := 0
	for call, choices := range Fallbacks() {
		for _, chosen := range choices {
			for _, outage := range []outage{refuse, hang, reset, slow} {
				cells++
				t.Run(fmt.Sprintf("%s/%s/%s", call, chosen, outage), func(t *testing.T) {
					t.Parallel()
					checkFallback(t, service, call, chosen, outage)
				})
			}
		}
	}
	t.Logf("%d cells", cells)
}

func checkFallback(t *testing.T, service string, call Call, chosen Fallback, outage outage) {
	between := newProxy(t, service)
	client := dial(t, between.address(), quick(map[Call]Fallback{call: chosen}))
	ready(t, client)
	between.set(outage)
	reply, err := asks[call](within(t), client)
	var failure *Error
	if chosen == ReturnError {
		if !errors.As(err, &failure) || !failure.Unavailable() {
			t.Fatalf("%+v %v", reply, err)
		}
		return
	}
	wanted := map[Fallback]said{
		FailClosed: {origin: OriginFailClosed, refuses: true}, FailOpen: {origin: OriginFailOpen, permits: true}, Abstain: {origin: OriginAbstain},
	}[chosen]
	if err != nil || reply.cause == nil {
		t.Fatalf("%+v %v", reply, err)
	}
	reply.cause = nil
	if reply != wanted {
		t.Fatalf("%+v, expected %+v", reply, wanted)
	}
}

// ready waits until the connection stands, so that a outage meets an result and not the greeting.
func ready(t *testing.T, client *Client) {
	t.Helper()
	client.Connection().Connect()
	for state := client.Connection().GetState(); state != connectivity.Ready; state = client.Connection().GetState() {
		if !client.Connection().WaitForStateChange(within(t), state) {
			t.Fatal(state)
		}
	}
}

func TestAnErrorThatTheServiceDecidedIsNoAbsence(t *testing.T) {
	client := loaded(t, Options{Fallback: map[Call]Fallback{CallFilter: FailOpen}})
	request := &pb.FilterRequest{Tasks: []*pb.Task{task}, Candidates: &pb.NodeSet{Names: []string{"nowhere"}}}
	reply, err := client.Filter(within(t), request)
	var failure *Error
	if !errors.As(err, &failure) || failure.Unavailable() || !failure.Decided() || reply.Response != nil {
		t.Fatalf("%+v %v", reply, err)
	}
}

func TestTheServiceIsUsedAgainOnceItIsBack(t *testing.T) {
	feeder := loaded(t, Options{})
	between := newProxy(t, feeder.Connection().Target())
	options := quick(map[Call]Fallback{CallFilter: FailClosed})
	options.Timeout, options.BreakAfter, options.BreakFor = 2*time.Second, 2, time.Millisecond
	options.AttemptTimeout = 200 * time.Millisecond
	client := dial(t, between.address(), options)
	for _, outage := range []outage{refuse, hang, reset} {
		between.set(outage)
		if reply, err := asks[CallFilter](within(t), client); err != nil || reply.origin != OriginFailClosed {
			t.Fatalf("%s: %+v %v", outage, reply, err)
		}
		between.set(refuse)
		between.set(pass)
		for deadline := time.Now().Add(30 * time.Second); ; time.Sleep(10 * time.Millisecond) {
			reply, err := asks[CallFilter](within(t), client)
			if err == nil && reply.origin == OriginService && reply.permits {
				break
			}
			if time.Now().After(deadline) {
				t.Fatalf("after %s: %+v %v", outage, reply, err)
			}
		}
	}
}

func TestTheReadmeShowsTheFallbacks(t *testing.T) {
	readme, err := os.ReadFile("README.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, call := range slices.Sorted(maps.Keys(Fallbacks())) {
		line := ""
		for candidate := range strings.Lines(string(readme)) {
			if strings.HasPrefix(candidate, "| `"+string(call)+"` |") {
				line = candidate
			}
		}
		for _, fallback := range []Fallback{FailClosed, FailOpen, Abstain} {
			possible := slices.Contains(Fallbacks()[call], fallback)
			if strings.Contains(line, "`"+fallback.String()+"`") != possible {
				t.Errorf("%s: %s is possible: %v, but the README says %q", call, fallback, possible, line)
			}
		}
	}
}

func TestChoicesThatMeanNothingAreRefused(t *testing.T) {
	for call, chosen := range map[Call]Fallback{CallPlace: FailOpen, CallScore: FailClosed, "Apply": FailOpen} {
		if _, err := Dial(DefaultTarget, Options{Fallback: map[Call]Fallback{call: chosen}}); err == nil {
			t.Errorf("%s %s was taken", call, chosen)
		}
	}
	for _, options := range []Options{{Attempts: -1}, {Timeout: -1}} {
		if _, err := Dial(DefaultTarget, options); err == nil {
			t.Errorf("%+v was taken", options)
		}
	}
}
