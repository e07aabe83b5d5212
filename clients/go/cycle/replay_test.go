package cycle

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	pumice "github.com/pumice-scheduler/pumice/clients/go"
	"github.com/pumice-scheduler/pumice/clients/go/internal/testserver"
	pb "github.com/pumice-scheduler/pumice/clients/go/pumicev1"
)

// lose ends the session of a cycle behind its back.
func lose(t *testing.T, cycle *Cycle) {
	t.Helper()
	if err := cycle.session.Close(context.Background()); err != nil {
		t.Fatal(err)
	}
}

// busy is a cycle in which one task is placed, and what the next one then scores.
func busy(t *testing.T, scheduler *Scheduler, between func(*Cycle)) float64 {
	t.Helper()
	cycle := open(t, scheduler, small())
	defer cycle.Close()
	if err := cycle.Prepare(task("new", 0, "q")); err != nil {
		t.Fatal(err)
	}
	cycle.Record(Allocated, task("new", 0, "q"), "n2")
	if err := cycle.Prepare(task("new", 1, "q")); err != nil {
		t.Fatal(err)
	}
	if between != nil {
		between(cycle)
	}
	// This one is sent with the call that finds the session gone.
	cycle.Record(Allocated, task("new", 1, "q"), "n2")
	if err := cycle.Prepare(task("new", 2, "q")); err != nil {
		t.Fatal(err)
	}
	score, err := cycle.Score(rsf, task("new", 2, "q"), "n2")
	if err != nil || cycle.Err() != nil {
		t.Fatal(err, cycle.Err())
	}
	return score
}

func TestACycleOutlivesItsSession(t *testing.T) {
	scheduler, heard, server := start(t, Settings{KeepFor: -1})
	expected := busy(t, scheduler, nil)
	if score := busy(t, scheduler, func(cycle *Cycle) { lose(t, cycle) }); score != expected || expected == 0 {
		t.Fatal(score, expected)
	}
	// A restart loses state, policy and session.
	score := busy(t, scheduler, func(*Cycle) {
		server.Kill()
		testserver.Start(t, "--grpc-address", server.Address)
	})
	if score != expected || len(heard.trouble) > 0 {
		t.Fatal(score, expected, heard.trouble)
	}
}

func TestALostSessionIsNotReplayedUnderAnotherPolicy(t *testing.T) {
	server := testserver.Start(t)
	scheduler, _ := connect(t, server, Settings{PolicyMode: FollowPolicy})
	push := func(text string) {
		if _, err := scheduler.settings.Client.ReloadPolicy(context.Background(), &pb.ReloadPolicyRequest{Document: text}); err != nil {
			t.Fatal(err)
		}
	}
	push(document)
	cycle := open(t, scheduler, small())
	defer cycle.Close()
	cycle.Record(Allocated, task("new", 0, "q"), "n2")
	if err := cycle.Prepare(task("new", 1, "q")); err != nil {
		t.Fatal(err)
	}
	push(strings.Replace(document, "MostAllocated", "LeastAllocated", 1))
	lose(t, cycle)
	cycle.Record(Allocated, task("new", 1, "q"), "n2")
	if err := cycle.Prepare(task("new", 2, "q")); !errors.Is(err, errPolicyChanged) {
		t.Fatal(err)
	}
}

func TestAdmissionsOutliveTheirSession(t *testing.T) {
	scheduler, heard, _ := start(t, Settings{})
	cycle := openCards(t, scheduler)
	defer cycle.Close()
	if votes := cycle.Enqueueable("default/one"); votes[cards] != 1 {
		t.Fatal(votes)
	}
	cycle.Enqueued("default/one")
	lose(t, cycle)
	if votes := cycle.Enqueueable("default/two"); votes[cards] != -1 {
		t.Fatal("the permit that was kept is lost:", votes)
	}
	first := Task{ID: "one-0", Name: "default/one-0", Job: "default/one", Queue: "q"}
	lose(t, cycle)
	if !cycle.Allocatable(cards, first) {
		t.Fatal("not confirmed", cycle.Err())
	}
	lose(t, cycle)
	if err := cycle.Prepare(first); err != nil || len(heard.trouble) > 0 {
		t.Fatal(err, heard.trouble)
	}
	if item := elsewhere(t, scheduler, "default/two", pb.AdmitMode_ADMIT_MODE_CONFIRM); item.GetPermitted() {
		t.Fatal("the reservation is gone")
	}
}

// TestAnOutageEndsWithTheRestart keeps a scheduler trying while its service is away: the first cycle after the return has
// the service, and those before it name the cause.
func TestAnOutageEndsWithTheRestart(t *testing.T) {
	server := testserver.Start(t)
	options, err := ReadOptions(func(string) string { return "" }, map[string]any{"pumice.policyMode": "hand", "pumice.timeout": "200ms"})
	if err != nil {
		t.Fatal(err)
	}
	client, err := pumice.Dial(server.Address, options.Client)
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	options.Settings.Client = client
	scheduler, err := New(options.Settings)
	if err != nil {
		t.Fatal(err)
	}
	open(t, scheduler, small()).Close()
	server.Kill()
	circuit := false
	for number := range 12 {
		state := small()
		state.node("more", "cpu", string(rune('1'+number%9)))
		cycle := scheduler.Open(context.Background(), state, policy)
		err := cycle.Err()
		if err == nil {
			t.Fatal("a server that is gone replied")
		}
		// The connection may end under the first cycles, which name that end.
		if number > 5 && !strings.Contains(err.Error(), "connection refused") {
			t.Fatal("the cause is not named:", err)
		}
		circuit = circuit || strings.Contains(cycle.Err().Error(), "CIRCUIT_OPEN")
		cycle.Close()
	}
	if !circuit {
		t.Fatal("the circuit never opened")
	}
	testserver.Start(t, "--grpc-address", server.Address)
	back := time.Now()
	for {
		cycle := scheduler.Open(context.Background(), small(), policy)
		cycle.Close()
		if cycle.Err() == nil {
			break
		}
		if time.Since(back) > 10*time.Second {
			t.Fatal("the service is back, and not asked:", cycle.Err())
		}
		time.Sleep(20 * time.Millisecond)
	}
	t.Log("asked again after", time.Since(back).Round(time.Millisecond))
}

// TestAForksOwnActionsAndPluginsAreNoError makes a policy of a configuration with actions and plugins that the service
// does not know.
func TestAForksOwnActionsAndPluginsAreNoError(t *testing.T) {
	actions := OrderActions([]string{"allocate", "enqueue", "ourown"}, []byte(`actions: "enqueue, ourown, allocate"`))
	if actions != "enqueue, allocate" || OrderActions([]string{"ourown"}, nil) != "allocate" {
		t.Fatal(actions)
	}
	own := Policy{Plugins: policy.Plugins, Document: strings.Replace(document, "actions: allocate", `actions: "`+actions+`"`, 1) + "  - {name: ours, arguments: {ours.weight: 3}}\n"}
	server := testserver.Start(t)
	for _, mode := range []PolicyMode{PushPolicy, FollowPolicy, CheckPolicy} {
		scheduler, _ := connect(t, server, Settings{PolicyMode: mode})
		cycle := scheduler.Open(context.Background(), small(), own)
		if cycle.Err() != nil {
			t.Fatal(mode, cycle.Err())
		}
		cycle.Close()
	}
}
