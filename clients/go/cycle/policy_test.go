package cycle

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/pumice-scheduler/pumice/clients/go/internal/testserver"
	pb "github.com/pumice-scheduler/pumice/clients/go/pumicev1"
)

// push puts a document in force in the name of somebody else.
func push(t *testing.T, scheduler *Scheduler, document string) *pb.Policy {
	t.Helper()
	reply, err := scheduler.settings.Client.ReloadPolicy(context.Background(), &pb.ReloadPolicyRequest{
		Name: scheduler.settings.Policy, Document: document, Compatibility: "upstream",
	})
	if err != nil {
		t.Fatal(err)
	}
	return reply.GetPolicy()
}

// leastAllocated is the document of cycle_test.go with another argument.
var leastAllocated = strings.Replace(document, "MostAllocated", "LeastAllocated", 1)

// scoreOn opens a cycle on a state, and returns the score of a node on which half of the cpu is used.
func scoreOn(t *testing.T, scheduler *Scheduler, state SchedulerState) float64 {
	t.Helper()
	cycle := open(t, scheduler, state)
	defer cycle.Close()
	if err := cycle.Prepare(task("new", 0, "q")); err != nil {
		t.Fatal(err)
	}
	score, err := cycle.Score(rsf, task("new", 0, "q"), "n1")
	if err != nil {
		t.Fatal(err)
	}
	return score
}

func TestThePolicyOfTheServiceGovernsFromTheNextSessionOn(t *testing.T) {
	scheduler, heard := connect(t, testserver.Start(t), Settings{})
	state := small()
	push(t, scheduler, document)
	if score := scoreOn(t, scheduler, state); score != 750 {
		t.Fatal(score)
	}
	// The state is unchanged, so that the session would be reused.
	push(t, scheduler, leastAllocated)
	if score := scoreOn(t, scheduler, state); score != 250 {
		t.Fatal("a pushed policy does not govern:", score)
	}
	if _, err := scheduler.settings.Client.RollbackPolicy(context.Background(), &pb.RollbackPolicyRequest{}); err != nil {
		t.Fatal(err)
	}
	if score := scoreOn(t, scheduler, state); score != 750 {
		t.Fatal("a rollback does not govern:", score)
	}
	if score := scoreOn(t, scheduler, state); score != 750 {
		t.Fatal(score)
	}
	// Each version was reported once, and the scheduler pushed nothing.
	var origins []string
	for _, policy := range heard.governs {
		origins = append(origins, fmt.Sprint(policy.Version, " ", policy.Origin))
	}
	if fmt.Sprint(origins) != "[2 rpc:127.0.0.1 3 rpc:127.0.0.1 4 rollback:2]" || len(heard.pushes) > 0 {
		t.Fatal(origins, heard.pushes)
	}
	// One call finds out that nothing has changed.
	cycle := open(t, scheduler, state)
	if calls := cycle.Usage().Calls; calls != 1 {
		t.Fatal(calls)
	}
	cycle.Close()
}

func TestQuotasDoNotFailOpenUnderTheBuiltInPolicy(t *testing.T) {
	server := testserver.Start(t)
	scheduler, heard := connect(t, server, Settings{})
	away := func(why string, want error) {
		t.Helper()
		cycle := scheduler.Open(context.Background(), quota(), cardPolicy)
		defer cycle.Close()
		if err := cycle.Err(); !errors.Is(err, want) || !strings.Contains(err.Error(), why) {
			t.Fatal(err)
		}
		if votes := cycle.Enqueueable("default/one"); votes[cards] != -1 {
			t.Fatal(votes)
		}
		if cycle.Allocatable(cards, task("one", 0, "q")) || cycle.Prepare(task("one", 0, "q")) == nil {
			t.Fatal("a task was let through")
		}
	}
	away("built in; push the scheduler's", ErrPolicyMissing)
	away("built in", ErrPolicyMissing)
	admits := func() {
		t.Helper()
		cycle := scheduler.Open(context.Background(), quota(), cardPolicy)
		defer cycle.Close()
		if votes := cycle.Enqueueable("default/one"); cycle.Err() != nil || votes[cards] != 1 {
			t.Fatal(cycle.Err(), votes)
		}
	}
	push(t, scheduler, cardPolicy.Document)
	admits()
	// Back to the built-in policy, by a rollback and by a deletion.
	client := scheduler.settings.Client
	if _, err := client.RollbackPolicy(context.Background(), &pb.RollbackPolicyRequest{}); err != nil {
		t.Fatal(err)
	}
	away("rollback:1) is built in", ErrPolicyMissing)
	push(t, scheduler, cardPolicy.Document)
	admits()
	if _, err := client.DeletePolicy(context.Background(), &pb.DeletePolicyRequest{Name: "default"}); err != nil {
		t.Fatal(err)
	}
	away("built-in) is built in", ErrPolicyMissing)
	// A policy without any of the scheduler's plugins has no quotas either.
	push(t, scheduler, "actions: allocate\ntiers: [{plugins: [{name: binpack}]}]")
	away("names none of capacity-card", ErrPolicyMissing)
	if len(heard.trouble) != 5 {
		t.Fatal(heard.trouble)
	}
}

func TestARestartThatLostThePolicyIsNoPolicy(t *testing.T) {
	server := testserver.Start(t)
	scheduler, _ := connect(t, server, Settings{})
	push(t, scheduler, document)
	open(t, scheduler, small()).Close()
	server.Kill()
	again := testserver.Start(t, "--grpc-address", server.Address)
	defer again.Kill()
	cycle := scheduler.Open(context.Background(), small(), policy)
	defer cycle.Close()
	if err := cycle.Err(); !errors.Is(err, ErrPolicyMissing) {
		t.Fatal(err)
	}
}

func TestOnlyThePolicyWithTheExpectedHashGoverns(t *testing.T) {
	server := testserver.Start(t)
	hash := fmt.Sprintf("%x", sha256.Sum256([]byte(document)))
	scheduler, _ := connect(t, server, Settings{PolicyHash: strings.ToUpper(hash)})
	away := func() {
		t.Helper()
		cycle := scheduler.Open(context.Background(), small(), policy)
		defer cycle.Close()
		if err := cycle.Err(); !errors.Is(err, ErrPolicyDiffers) || !strings.Contains(err.Error(), "hash "+hash+" is expected") {
			t.Fatal(err)
		}
	}
	away()
	push(t, scheduler, leastAllocated)
	away()
	push(t, scheduler, document)
	open(t, scheduler, small()).Close()
	push(t, scheduler, leastAllocated)
	away()

	for _, wrong := range []Settings{{PolicyHash: "4834cc5e4ce8"}, {PolicyHash: strings.Repeat("g", 64)}, {PolicyHash: hash, PolicyMode: PushPolicy}} {
		wrong.Client = scheduler.settings.Client
		if _, err := New(wrong); err == nil || !strings.Contains(err.Error(), "PolicyHash") {
			t.Fatal(wrong, err)
		}
	}
}

func TestANamedPolicyThatIsNotThereYet(t *testing.T) {
	scheduler, _ := connect(t, testserver.Start(t), Settings{Policy: "prod"})
	state := small()
	for range 2 {
		cycle := scheduler.Open(context.Background(), state, policy)
		if err := cycle.Err(); !errors.Is(err, ErrPolicyMissing) || !strings.Contains(err.Error(), "no policy prod") {
			t.Fatal(err)
		}
		cycle.Close()
	}
	// The state has been sent all the same.
	nodes, err := scheduler.settings.Client.ListNodes(context.Background(), &pb.ListNodesRequest{})
	if err != nil || len(nodes.GetNodes()) != 3 {
		t.Fatal(err, nodes)
	}
	push(t, scheduler, document)
	if score := scoreOn(t, scheduler, state); score != 750 {
		t.Fatal(score)
	}
	if _, err := scheduler.settings.Client.DeletePolicy(context.Background(), &pb.DeletePolicyRequest{Name: "prod"}); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		cycle := scheduler.Open(context.Background(), state, policy)
		if cycle.Err() == nil {
			t.Fatal("a deleted policy governs")
		}
		cycle.Close()
	}
}

func TestAPluginThatOneSideNamesIsReportedOnceAndHasNoOpinion(t *testing.T) {
	scheduler, heard := connect(t, testserver.Start(t), Settings{})
	push(t, scheduler, `actions: "enqueue, allocate"
tiers: [{plugins: [{name: gang}, {name: resource-strategy-fit}, {name: binpack}, {name: capacity-card}]}]`)
	own := Policy{Document: strings.Replace(document, "{name: drf}", "{name: drf, enableHierarchy: true}", 1), Plugins: policy.Plugins}
	for number := range 3 {
		state := small()
		state.node("more", "cpu", fmt.Sprint(number+1))
		cycle := scheduler.Open(context.Background(), state, own)
		if cycle.Err() != nil {
			t.Fatal(cycle.Err())
		}
		first := task("new", 0, "q")
		if err := cycle.Prepare(first); err != nil {
			t.Fatal(err)
		}
		before := cycle.Usage().Calls
		if cycle.CompareJobs("drf", "default/new", "default/old") != 0 || cycle.CompareQueues("drf", "q", "r") != 0 || cycle.JobKey("drf", "default/new") != nil {
			t.Fatal("drf orders jobs")
		}
		if _, voting := cycle.Victims("drf", Preempt, first, []string{"default/old-0"}, nil); voting {
			t.Fatal("drf votes on victims")
		}
		if score, err := cycle.Score("drf", first, "n1"); score != 0 || err != nil || cycle.Fits("drf", first, "n1") != nil {
			t.Fatal(score, err)
		}
		if !cycle.Allocatable("drf", first) || cycle.Enqueueable("default/new")["drf"] != 0 {
			t.Fatal("drf rejects")
		}
		if calls := cycle.Usage().Calls - before; calls != 0 || cycle.Err() != nil {
			t.Fatal(calls, cycle.Err())
		}
		cycle.Close()
	}
	if len(heard.governs) != 1 {
		t.Fatal(heard.governs)
	}
	if found := heard.governs[0]; fmt.Sprint(found.OnlyScheduler, found.OnlyPolicy) != "[drf] [gang binpack capacity-card]" || found.HierarchyDiffers {
		t.Fatal(found, found.OnlyScheduler, found.OnlyPolicy, found.HierarchyDiffers)
	}
	// Another policy is reported again.
	push(t, scheduler, document)
	scheduler.Open(context.Background(), small(), own).Close()
	if found := heard.governs[len(heard.governs)-1]; len(heard.governs) != 2 || len(found.OnlyScheduler)+len(found.OnlyPolicy) > 0 || !found.HierarchyDiffers {
		t.Fatal(heard.governs)
	}
}

func TestAPolicyOfAnotherReleaseIsReported(t *testing.T) {
	for _, one := range []struct{ own, policy, reported string }{
		{"volcano-1.15.1", "volcano-1.14.4", "volcano-1.14.4"},
		{"volcano-1.15.1", "upstream", "volcano-ed72c7c81"},
		{"volcano-1.15.1", "volcano-1.15.1", ""},
		{"volcano-1.15.1", "corrected", ""},
		{"volcano-ed72c7c81", "upstream", ""},
		{"", "volcano-1.14.4", ""},
	} {
		scheduler, heard := connect(t, testserver.Start(t), Settings{Release: one.own})
		push(t, scheduler, "pumice: {compatibility: "+one.policy+"}\n"+document)
		open(t, scheduler, small()).Close()
		if len(heard.governs) != 1 || heard.governs[0].OtherRelease != one.reported {
			t.Error(one, heard.governs)
		}
	}
}

func TestOrderOfKeysIsThatOfThePolicyThatGoverns(t *testing.T) {
	for compatibility, upstream := range map[string]bool{"upstream": true, "corrected": false} {
		scheduler, _ := connect(t, testserver.Start(t), Settings{})
		push(t, scheduler, "pumice: {compatibility: "+compatibility+"}\n"+document)
		cycle := open(t, scheduler, small())
		if cycle.upstream != upstream {
			t.Fatal(compatibility)
		}
		cycle.Close()
	}
}

func TestPushingSaysWhatItReplaces(t *testing.T) {
	scheduler, heard, _ := start(t, Settings{})
	open(t, scheduler, small()).Close()
	// A change of its own configuration, and of somebody else.
	own := Policy{Document: leastAllocated, Plugins: policy.Plugins}
	changed := small()
	changed.node("n3", "cpu", "1")
	scheduler.Open(context.Background(), changed, own).Close()
	push(t, scheduler, "actions: allocate\ntiers: [{plugins: [{name: binpack}]}]")
	if score := scoreOn(t, scheduler, small()); score != 750 {
		t.Fatal(score)
	}
	want := "[1 (built-in) by 2, own true 2 (rpc:127.0.0.1) by 3, own true 4 (rpc:127.0.0.1) by 5, own false]"
	if fmt.Sprint(heard.pushes) != want {
		t.Fatal(heard.pushes)
	}
}

func TestPushingReplacesNoVersionThatItHasNotRead(t *testing.T) {
	scheduler, heard, _ := start(t, Settings{})
	cycle := newCycle(scheduler, policy)
	stale := uint64(7)
	if _, err := cycle.reload(context.Background(), &stale, false); err == nil {
		t.Fatal("another version was replaced")
	}
	if err := cycle.pushPolicy(context.Background()); err != nil || len(heard.pushes) != 1 {
		t.Fatal(err, heard.pushes)
	}
}

func TestCheckingComparesEffectsAndNotTheOrderOfActions(t *testing.T) {
	scheduler, heard, _ := start(t, Settings{PolicyMode: CheckPolicy, Compatibility: "upstream"})
	own := Policy{Document: strings.Replace(document, "actions: allocate", `actions: "allocate, backfill, enqueue"`, 1), Plugins: policy.Plugins}
	check := func() error {
		cycle := scheduler.Open(context.Background(), small(), own)
		defer cycle.Close()
		return cycle.Err()
	}
	if err := check(); !errors.Is(err, ErrPolicyDiffers) || !strings.Contains(err.Error(), "policy default, version 1") || !strings.Contains(err.Error(), "+++") {
		t.Fatal(err)
	}
	// As operators write it, with the order of actions, and with defaults written out.
	written := strings.Replace(document, "actions: allocate", `actions: "enqueue, allocate, backfill"`, 1)
	push(t, scheduler, strings.Replace(written, "{name: drf}", "{name: drf, enablePredicate: true}", 1))
	if err := check(); err != nil {
		t.Fatal(err)
	}
	// The adapter's own options are in the ConfigMap, and in no policy that it makes.
	push(t, scheduler, strings.Replace(written, "    arguments:\n", "    arguments:\n      pumice.keepFor: never\n", 1))
	if err := check(); err != nil {
		t.Fatal(err)
	}
	push(t, scheduler, strings.Replace(written, "{name: drf}", "{name: drf, enableJobOrder: false}", 1))
	if err := check(); !errors.Is(err, ErrPolicyDiffers) {
		t.Fatal(err)
	}
	push(t, scheduler, strings.Replace(written, "allocate, backfill", "allocate, preempt", 1))
	if err := check(); !errors.Is(err, ErrPolicyDiffers) {
		t.Fatal(err)
	}
	if len(heard.pushes) > 0 {
		t.Fatal("checking pushed")
	}
}

func TestActionsHaveTheOrderOfTheFile(t *testing.T) {
	enabled := []string{"backfill", "enqueue", "allocate"}
	for file, want := range map[string]string{
		"actions: \"enqueue, allocate,backfill\"\ntiers: []": "enqueue, allocate, backfill",
		"actions: enqueue, allocate":                         "allocate, backfill, enqueue",
		"":                                                   "allocate, backfill, enqueue",
		"{":                                                  "allocate, backfill, enqueue",
	} {
		if actions := OrderActions(enabled, []byte(file)); actions != want {
			t.Error(file, actions)
		}
	}
}
