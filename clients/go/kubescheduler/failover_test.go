package kubescheduler

import (
	"context"
	"testing"

	pumice "github.com/pumice-scheduler/pumice/clients/go"
	"github.com/pumice-scheduler/pumice/clients/go/internal/testserver"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/kubernetes/pkg/scheduler/framework"
)

// twoServers are two servers under one policy, and the arguments that name both.
func twoServers(t *testing.T, budget string) ([2]*testserver.Server, [2]*pumice.Client, string) {
	t.Helper()
	var servers [2]*testserver.Server
	var clients [2]*pumice.Client
	for at := range servers {
		servers[at] = testserver.Start(t)
		clients[at] = admin(t, servers[at].Address)
		reload(t, clients[at], spread)
	}
	return servers, clients, `{"address": "` + servers[0].Address + `, ` + servers[1].Address + `", "budget": "` + budget + `"}`
}

// TestACycleIsAnsweredByTheNextServerWithTheWholeState: within the budget of the very cycle that finds the server gone, and with the
// pods that the scheduler has assumed.
func TestACycleIsAnsweredByTheNextServerWithTheWholeState(t *testing.T) {
	for name, end := range map[string]func(*testserver.Server){"killed": (*testserver.Server).Kill, "hangs": (*testserver.Server).Pause} {
		t.Run(name, func(t *testing.T) {
			servers, clients, arguments := twoServers(t, "8s")
			pod, other := testPod("new", "", "1", 0), testPod("other", "", "8", 0)
			bench := start(t, arguments, []*corev1.Node{testNode("n1", "10", 0), testNode("n2", "10", 0)},
				[]*corev1.Pod{testPod("old", "n1", "5", 0), pod, other})
			bench.cycle(pod).want(t, Name, map[string]int64{"n1": 44, "n2": 100})
			eventually(t, "the second server has the state", func() bool { return stored(t, clients[1], "default/old") != nil })
			before := metricOf(t, "scheduler_pumice_address_changes_total", servers[1].Address)
			end(servers[0])
			defer servers[0].Resume()
			// Not bound, and sent to a server that does not answer: it counts at the next one.
			bench.framework.RunReservePluginsReserve(context.Background(), framework.NewCycleState(), other, "n2")
			bench.cycle(pod).want(t, Name, map[string]int64{"n1": 100, "n2": 25})
			if now := metricOf(t, "scheduler_pumice_address_changes_total", servers[1].Address); now != before+1 {
				t.Fatal(before, now)
			}
			for range 3 {
				bench.cycle(pod).want(t, Name, map[string]int64{"n1": 100, "n2": 25})
			}
		})
	}
}

// TestAChangeDoesNotWaitForABatchToAServerThatHangs: the change of a later pod has to be sent before anybody can be asked, and the batch
// before it has no reply.
func TestAChangeDoesNotWaitForABatchToAServerThatHangs(t *testing.T) {
	servers, clients, arguments := twoServers(t, "8s")
	pod, other, third := testPod("new", "", "1", 0), testPod("other", "", "8", 0), testPod("third", "", "1", 0)
	bench := start(t, arguments, []*corev1.Node{testNode("n1", "10", 0), testNode("n2", "10", 0)},
		[]*corev1.Pod{testPod("old", "n1", "5", 0), pod, other, third})
	bench.cycle(pod).want(t, Name, map[string]int64{"n1": 44, "n2": 100})
	eventually(t, "the second server has the state", func() bool { return stored(t, clients[1], "default/old") != nil })
	hub := profiles.plugin(bench.framework).hub
	servers[0].Pause()
	defer servers[0].Resume()
	bench.framework.RunReservePluginsReserve(context.Background(), framework.NewCycleState(), other, "n2")
	eventually(t, "a batch is on its way", func() bool { last := hub.sent.Load(); return last != nil && last.isOnItsWay() })
	bench.framework.RunReservePluginsReserve(context.Background(), framework.NewCycleState(), third, "n1")
	bench.cycle(pod).want(t, Name, map[string]int64{"n1": 100, "n2": 33})
	if hub.client.Address() != servers[1].Address {
		t.Fatal(hub.client.Address())
	}
}

// TestAnOlderLeaderIsFencedWhereverItGoes: a scheduler that was cut off from the first server does not go on at the second.
func TestAnOlderLeaderIsFencedWhereverItGoes(t *testing.T) {
	servers, clients, arguments := twoServers(t, "8s")
	nodes, pod := []*corev1.Node{testNode("n1", "10", 0)}, testPod("new", "", "1", 0)
	older := start(t, arguments, nodes, []*corev1.Pod{pod})
	if done := older.cycle(pod); !done.status.IsSuccess() {
		t.Fatal(done.status)
	}
	newer := start(t, arguments, append(nodes, testNode("n2", "10", 0)), []*corev1.Pod{pod})
	if done := newer.cycle(pod); !done.status.IsSuccess() {
		t.Fatal(done.status)
	}
	eventually(t, "the second server has the state of the newer leader", func() bool {
		return profiles.plugin(newer.framework).hub.mirror.feed.Position().GetSourceEpoch() == epochOf(t, clients[1])
	})
	servers[0].Kill()
	eventually(t, "the older leader is refused", func() bool {
		late := testPod("late", "", "1", 0)
		older.framework.RunReservePluginsReserve(context.Background(), framework.NewCycleState(), late, "n1")
		done := older.cycle(pod)
		older.framework.RunReservePluginsUnreserve(context.Background(), framework.NewCycleState(), late, "n1")
		return !done.status.IsSuccess()
	})
	if done := newer.cycle(pod); !done.status.IsSuccess() || len(done.scores) != 2 {
		t.Fatal(done.status, done.scores)
	}
	if stored(t, clients[1], "default/late") != nil {
		t.Fatal("the older leader wrote to the second server")
	}
}

func epochOf(t *testing.T, client *pumice.Client) uint64 {
	t.Helper()
	info, err := client.GetServerInfo(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	for _, status := range info.GetSources() {
		if status.GetPosition().GetSource() == "kube-scheduler" {
			return status.GetPosition().GetSourceEpoch()
		}
	}
	return 0
}
