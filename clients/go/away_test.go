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

	pb "pumice/clients/go/pumicev1"

	"google.golang.org/grpc/connectivity"
)

var task = &pb.Task{Requests: amounts("cpu", "1")}

// said is a reply without its type.
type said struct {
	by    By
	cause *Error
	// refuses and permits are what the answer says about one item; both false: nothing.
	refuses, permits bool
}

// asks asks each question once and reads what the answer says.
var asks = map[Call]func(context.Context, *Client) (said, error){
	CallFilter: func(ctx context.Context, client *Client) (said, error) {
		request := &pb.FilterRequest{Tasks: []*pb.Task{task}, Candidates: &pb.NodeSet{Names: []string{"n2"}}}
		reply, err := client.Filter(ctx, request)
		items := reply.Response.GetResult().GetItems()
		return said{reply.By, reply.Cause, len(items) == 1 && items[0].FitCount == 0, len(items) == 1 && items[0].FitCount == 1}, err
	},
	CallScore: func(ctx context.Context, client *Client) (said, error) {
		reply, err := client.Score(ctx, &pb.ScoreRequest{Tasks: []*pb.Task{task}})
		items := reply.Response.GetResult().GetItems()
		return said{reply.By, reply.Cause, false, len(items) == 1}, err
	},
	CallPlace: func(ctx context.Context, client *Client) (said, error) {
		groups := []*pb.TaskGroup{{Task: task}}
		reply, err := client.Place(ctx, &pb.PlaceRequest{Groups: groups})
		answer := reply.Response.GetResult()
		return said{reply.By, reply.Cause, answer != nil && !answer.Placed, answer.GetPlaced()}, err
	},
	CallAdmit: func(ctx context.Context, client *Client) (said, error) {
		subject := &pb.AdmitSubject{Subject: &pb.AdmitSubject_Job{Job: &pb.Job{Name: "default/gang"}}}
		reply, err := client.Admit(ctx, &pb.AdmitRequest{Items: []*pb.AdmitSubject{subject}})
		items := reply.Response.GetResult().GetItems()
		return said{reply.By, reply.Cause, len(items) == 1 && !items[0].Permitted, len(items) == 1 && items[0].Permitted}, err
	},
	CallOrder: func(ctx context.Context, client *Client) (said, error) {
		reply, err := client.Order(ctx, &pb.OrderRequest{Jobs: &pb.NameSet{}})
		return said{reply.By, reply.Cause, false, len(reply.Response.GetResult().GetJobs()) > 0}, err
	},
	CallSelectVictims: func(ctx context.Context, client *Client) (said, error) {
		group := &pb.VictimGroup{Preemptor: &pb.Task{Name: "default/gang-0"}, Node: "n1", Candidates: []*pb.Task{{Name: "default/old"}}}
		request := &pb.SelectVictimsRequest{Kind: pb.VictimKind_VICTIM_KIND_PREEMPT, Groups: []*pb.VictimGroup{group}}
		reply, err := client.SelectVictims(ctx, request)
		items := reply.Response.GetResult().GetItems()
		return said{reply.By, reply.Cause, len(items) == 1 && len(items[0].Victims) == 0, len(items) == 1 && len(items[0].Victims) > 0}, err
	},
}

// quick gives up soon, so that a hanging service does not hold the tests up.
func quick(away map[Call]Away) Options {
	return Options{
		Timeout: 150 * time.Millisecond, Attempts: 2, Backoff: time.Millisecond, MaxBackoff: time.Millisecond,
		BreakAfter: -1, Away: away,
	}
}

// TestEveryCallHasItsAnswerWhenTheServiceIsAway goes through the table of the README, cell by cell, under every fault.
func TestEveryCallHasItsAnswerWhenTheServiceIsAway(t *testing.T) {
	feeder := loaded(t, Options{})
	service := feeder.connection.Target()
	cells := 0
	for call, choices := range permitted() {
		for _, away := range choices {
			for _, fault := range []fault{refuse, hang, reset, slow} {
				cells++
				t.Run(fmt.Sprintf("%s/%s/%s", call, away, fault), func(t *testing.T) {
					t.Parallel()
					checkAway(t, service, call, away, fault)
				})
			}
		}
	}
	t.Logf("%d cells", cells)
}

func checkAway(t *testing.T, service string, call Call, away Away, fault fault) {
	between := newProxy(t, service)
	client := dial(t, between.address(), quick(map[Call]Away{call: away}))
	ready(t, client)
	between.set(fault)
	reply, err := asks[call](within(t), client)
	var failure *Error
	if away == ReturnError {
		if !errors.As(err, &failure) || !failure.Away() {
			t.Fatalf("%+v %v", reply, err)
		}
		return
	}
	wanted := map[Away]said{
		FailClosed: {by: ByFailingClosed, refuses: true}, FailOpen: {by: ByFailingOpen, permits: true}, Abstain: {by: ByNobody},
	}[away]
	if err != nil || reply.cause == nil {
		t.Fatalf("%+v %v", reply, err)
	}
	reply.cause = nil
	if reply != wanted {
		t.Fatalf("%+v, expected %+v", reply, wanted)
	}
}

// ready waits until the connection stands, so that a fault meets an answer and not the greeting.
func ready(t *testing.T, client *Client) {
	t.Helper()
	client.connection.Connect()
	for state := client.connection.GetState(); state != connectivity.Ready; state = client.connection.GetState() {
		if !client.connection.WaitForStateChange(within(t), state) {
			t.Fatal(state)
		}
	}
}

func TestAnErrorThatTheServiceDecidedIsNoAbsence(t *testing.T) {
	client := loaded(t, Options{Away: map[Call]Away{CallFilter: FailOpen}})
	request := &pb.FilterRequest{Tasks: []*pb.Task{task}, Candidates: &pb.NodeSet{Names: []string{"nowhere"}}}
	reply, err := client.Filter(within(t), request)
	var failure *Error
	if !errors.As(err, &failure) || failure.Away() || !failure.Decided() || reply.Response != nil {
		t.Fatalf("%+v %v", reply, err)
	}
}

func TestTheServiceAnswersAgainOnceItIsBack(t *testing.T) {
	feeder := loaded(t, Options{})
	between := newProxy(t, feeder.connection.Target())
	options := quick(nil)
	options.Timeout, options.BreakAfter, options.BreakFor = 2*time.Second, 2, time.Millisecond
	options.AttemptTimeout = 200 * time.Millisecond
	client := dial(t, between.address(), options)
	for _, fault := range []fault{refuse, hang, reset} {
		between.set(fault)
		if reply, err := asks[CallFilter](within(t), client); err != nil || reply.by != ByFailingClosed {
			t.Fatalf("%s: %+v %v", fault, reply, err)
		}
		between.set(refuse)
		between.set(pass)
		for deadline := time.Now().Add(30 * time.Second); ; time.Sleep(10 * time.Millisecond) {
			reply, err := asks[CallFilter](within(t), client)
			if err == nil && reply.by == ByService && reply.permits {
				break
			}
			if time.Now().After(deadline) {
				t.Fatalf("after %s: %+v %v", fault, reply, err)
			}
		}
	}
}

func TestTheReadmeShowsTheDefaults(t *testing.T) {
	readme, err := os.ReadFile("README.md")
	if err != nil {
		t.Fatal(err)
	}
	text := string(readme)
	for _, call := range slices.Sorted(maps.Keys(DefaultAway())) {
		line := ""
		for candidate := range strings.Lines(text) {
			if strings.HasPrefix(candidate, "| `"+string(call)+"` |") {
				line = candidate
			}
		}
		for _, away := range []Away{ReturnError, FailClosed, FailOpen, Abstain} {
			possible := slices.Contains(permitted()[call], away)
			if strings.Contains(line, "`"+away.String()+"`") != possible {
				t.Errorf("%s: %s is possible: %v, but the README says %q", call, away, possible, line)
			}
		}
		if !strings.HasPrefix(line, fmt.Sprintf("| `%s` | `%s` |", call, DefaultAway()[call])) {
			t.Errorf("%s: the README does not show the default %s: %q", call, DefaultAway()[call], line)
		}
	}
}

func TestChoicesThatMeanNothingAreRefused(t *testing.T) {
	for call, away := range map[Call]Away{CallPlace: FailOpen, CallScore: FailClosed, "Apply": FailOpen} {
		if _, err := Dial(DefaultTarget, Options{Away: map[Call]Away{call: away}}); err == nil {
			t.Errorf("%s %s was taken", call, away)
		}
	}
	for _, options := range []Options{{Attempts: -1}, {Timeout: -1}} {
		if _, err := Dial(DefaultTarget, options); err == nil {
			t.Errorf("%+v was taken", options)
		}
	}
}
