package kubescheduler

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/pumice-scheduler/pumice/clients/go/internal/testserver"
	pb "github.com/pumice-scheduler/pumice/clients/go/pumicev1"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/kubernetes/pkg/scheduler/framework"
)

// TestARequestSeesWhatIsOnItsWay: a pod counts on its node in the very next question, however late its batch.
func TestARequestSeesWhatIsOnItsWay(t *testing.T) {
	server := testserver.Start(t)
	reload(t, admin(t, server.Address), spread)
	pod, others := testPod("new", "", "1", 0), []*corev1.Pod{}
	for number := range 30 {
		others = append(others, testPod("other-"+string(rune('a'+number)), "", "3", 0))
	}
	bench := start(t, arguments(server.Address, ""), []*corev1.Node{testNode("n1", "100", 0), testNode("n2", "100", 0)}, append(slices.Clone(others), pod))
	bench.cycle(pod).want(t, Name, map[string]int64{"n1": 100, "n2": 100})
	for number, other := range others {
		bench.framework.RunReservePluginsReserve(context.Background(), framework.NewCycleState(), other, "n1")
		used := 3*int64(number+1) + 1
		bench.cycle(pod).want(t, Name, map[string]int64{"n1": (100*(100-used) + 49) / 99, "n2": 100})
	}
}

// TestABindThatSucceedsHoldsNoRequestUp: of two records that differ in nothing but that, neither changes a decision; anything else does.
func TestABindThatSucceedsHoldsNoRequestUp(t *testing.T) {
	server := testserver.Start(t)
	client := admin(t, server.Address)
	reload(t, client, spread)
	pod, other := testPod("new", "", "1", 0), testPod("other", "", "3", 0)
	bench := start(t, arguments(server.Address, ""), []*corev1.Node{testNode("n1", "10", 0)}, []*corev1.Pod{pod, other})
	bench.cycle(pod)
	mirror := profiles.plugin(bench.framework).hub.mirror
	changes := func(change func()) uint64 {
		before := mirror.changes.Load()
		change()
		return mirror.changes.Load() - before
	}
	ctx, state := context.Background(), framework.NewCycleState()
	if count := changes(func() { bench.framework.RunReservePluginsReserve(ctx, state, other, "n1") }); count != 1 {
		t.Fatal(count)
	}
	if count := changes(func() { bench.framework.RunPostBindPlugins(ctx, state, other, "n1") }); count != 0 {
		t.Fatal(count)
	}
	// A gang that ends takes its pods off their nodes, while one of them is bound by itself.
	mirror.unreserve(other.UID)
	if count := changes(func() { bench.framework.RunPostBindPlugins(ctx, state, other, "n1") }); count != 1 {
		t.Fatal(count)
	}
	placed := other.DeepCopy()
	placed.Spec.NodeName = "n1"
	if count := changes(func() { mirror.podSeen(placed) }); count != 0 {
		t.Fatal(count)
	}
	eventually(t, "the bind is told all the same", func() bool {
		return stored(t, client, "default/other").GetStatus() == pb.TaskStatus_TASK_STATUS_BOUND
	})
	for name, change := range map[string]func(*corev1.Pod){
		"a label":      func(pod *corev1.Pod) { pod.Labels = map[string]string{"new": "yes"} },
		"another node": func(pod *corev1.Pod) { pod.Spec.NodeName = "n2" },
		"its end":      func(pod *corev1.Pod) { pod.Status.Phase = corev1.PodSucceeded },
	} {
		changed := placed.DeepCopy()
		change(changed)
		if count := changes(func() { mirror.podSeen(changed) }); count != 1 {
			t.Fatal(name, count)
		}
	}
}

// TestABatchThatTakesLongIsWaitedFor: a question that may not wait long enough is no reason for a full sync.
func TestABatchThatTakesLongIsWaitedFor(t *testing.T) {
	server := testserver.Start(t)
	reload(t, admin(t, server.Address), spread)
	pod := testPod("new", "", "1", 0)
	bench := start(t, arguments(server.Address, ""), []*corev1.Node{testNode("n1", "10", 0)}, []*corev1.Pod{pod})
	bench.cycle(pod)
	hub := profiles.plugin(bench.framework).hub
	ended := make(chan struct{})
	arrived := hub.sent.Load()
	// A batch that is not there yet: the next number.
	late := &pb.SourcePosition{Source: arrived.position.GetSource(), SourceEpoch: arrived.position.GetSourceEpoch(), Sequence: arrived.position.GetSequence() + 1}
	hub.sent.Store(&sentBatch{late, hub.mirror.changes.Load(), ended})
	time.AfterFunc(100*time.Millisecond, func() {
		hub.sent.Store(arrived)
		close(ended)
	})
	plugin := profiles.plugin(bench.framework)
	plugin.args.Budget.Duration = 2 * time.Second
	bench.cycle(pod).want(t, Name, map[string]int64{"n1": 100})
	if hub.sent.Load() != arrived {
		t.Fatal("a full sync")
	}
}
