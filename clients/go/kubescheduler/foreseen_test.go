package kubescheduler

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/pumice-scheduler/pumice/clients/go/internal/testserver"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/kubernetes/pkg/scheduler/framework"
)

// guarded refuses nodes that run out of idle amounts, and scores by more than one plugin.
const guarded = `{actions: allocate, tiers: [{plugins: [{name: predicates}, {name: binpack},
	{name: resource-strategy-fit, arguments: {resources: {cpu: {type: LeastAllocated, weight: 1}, nvidia.com/gpu: {type: MostAllocated, weight: 2}},
	sra: {enable: true, resources: nvidia.com/gpu, weight: 3}}}]}]}`

// lasting lets answers serve pods until the test ends that, however slow the machine is.
func lasting(t *testing.T) {
	before := foreseenAge
	foreseenAge = time.Hour
	t.Cleanup(func() { foreseenAge = before })
}

// place reserves a node of a cycle for its pod.
func (bench *bench) place(done outcome, pod *corev1.Pod, node string) {
	bench.t.Helper()
	if status := bench.framework.RunReservePluginsReserve(context.Background(), done.state, pod, node); !status.IsSuccess() {
		bench.t.Fatal(status)
	}
}

// equalPods makes pods that differ in their names only.
func equalPods(prefix string, count int, gpus int64) []*corev1.Pod {
	pods := []*corev1.Pod{}
	for number := range count {
		pod := testPod(fmt.Sprintf("%s-%03d", prefix, number), "", "2", gpus)
		pods = append(pods, pod)
	}
	return pods
}

func TestResponsesServeEqualPodsAsNewResponsesWould(t *testing.T) {
	for name, test := range map[string]struct {
		policy, arguments string
		plugins           []string
	}{
		"spread":       {spread, "", nil},
		"packed":       {pack, "", nil},
		"idle amounts": {guarded, `, "resourceFit": "Idle"`, nil},
		"untouched":    {spread, `, "scores": "Scaled"`, nil},
		"Koordinator":  {koord, "", koordinators},
	} {
		t.Run(name, func(t *testing.T) {
			lasting(t)
			server := testserver.Start(t)
			reload(t, admin(t, server.Address), test.policy)
			random, nodes := rand.New(rand.NewPCG(3, 5)), []*corev1.Node{}
			for number := range 9 {
				nodes = append(nodes, testNode(fmt.Sprintf("n%d", number), fmt.Sprint(10+8*(number%3)), int64(4*(number%2))))
			}
			equal, others := equalPods("equal", 160, 0), equalPods("other", 40, 1)
			bench := start(t, arguments(server.Address, test.arguments), nodes, append(append([]*corev1.Pod{}, equal...), others...), test.plugins...)
			mirror, served := profiles.plugin(bench.framework).hub.mirror, 0
			placed := map[types.UID]string{}
			for step, pod := range equal {
				before := servedPods(t)
				done := bench.cycle(pod)
				served += servedPods(t) - before
				fresh := bench.separate(pod)
				if fmt.Sprint(done.scores) != fmt.Sprint(fresh.scores) || fmt.Sprint(done.status) != fmt.Sprint(fresh.status) {
					t.Fatalf("pod %d: %v %v, and by an answer of its own %v %v", step, done.scores, done.status, fresh.scores, fresh.status)
				}
				if len(done.scores) == 0 {
					break
				}
				switch names := slices.Sorted(maps.Keys(done.scores)); {
				case step%23 == 22:
					// A pod that did not get its node.
					bench.place(done, pod, names[0])
					bench.framework.RunReservePluginsUnreserve(context.Background(), done.state, pod, names[0])
				case step%17 == 16 && len(others) > 0:
					// Another pod comes between.
					other := bench.cycle(others[0])
					if node := slices.Sorted(maps.Keys(other.scores)); len(node) > 0 {
						bench.place(other, others[0], node[random.IntN(len(node))])
					}
					others = others[1:]
				case step%19 == 18:
					changed := nodes[random.IntN(len(nodes))].DeepCopy()
					changed.Status.Allocatable["cpu"] = testNode("", fmt.Sprint(8+random.IntN(30)), 0).Status.Allocatable["cpu"]
					mirror.nodeSeen(changed)
				case step%29 == 28 && len(placed) > 0:
					gone := slices.Sorted(maps.Keys(placed))[random.IntN(len(placed))]
					mirror.podGone(equalBy(equal, gone))
					delete(placed, gone)
				default:
					node := names[random.IntN(len(names))]
					bench.place(done, pod, node)
					placed[pod.UID] = node
					if random.IntN(2) == 0 {
						// What the API server says of it afterwards changes nothing.
						bound := pod.DeepCopy()
						bench.framework.RunPostBindPlugins(context.Background(), done.state, pod, node)
						labelByZone(bound, node)
						mirror.podSeen(bound)
						running := bound.DeepCopy()
						running.Status.Phase = corev1.PodRunning
						running.Annotations = map[string]string{"k8s.v1.cni.cncf.io/network-status": "[]"}
						mirror.podSeen(running)
					}
				}
			}
			if served < len(equal)/4 {
				t.Fatalf("%d pods were served by answers about others", served)
			}
		})
	}
}

// separate runs a cycle that asks about its pod alone.
func (bench *bench) separate(pod *corev1.Pod) outcome {
	bench.t.Helper()
	last := profiles.plugin(bench.framework).hub.foresight.last
	age := foreseenAge
	foreseenAge = -1
	done := bench.cycle(pod)
	foreseenAge = age
	profiles.plugin(bench.framework).hub.foresight.last = last
	return done
}

func equalBy(pods []*corev1.Pod, uid types.UID) *corev1.Pod {
	for _, pod := range pods {
		if pod.UID == uid {
			return pod
		}
	}
	return nil
}

// servedPods is the number of pods that answers about others have served.
func servedPods(t *testing.T) int {
	t.Helper()
	for _, family := range gathered(t) {
		if family.GetName() == "scheduler_pumice_foreseen_pods_total" {
			return int(family.GetMetric()[0].GetCounter().GetValue())
		}
	}
	return 0
}

func TestAPolicyCountsSoonForEqualPods(t *testing.T) {
	server := testserver.Start(t)
	client := admin(t, server.Address)
	reload(t, client, spread)
	pods := equalPods("equal", 3, 0)
	bench := start(t, arguments(server.Address, ""), []*corev1.Node{testNode("n1", "10", 0), testNode("n2", "20", 0)}, pods)
	bench.cycle(pods[0])
	bench.place(bench.cycle(pods[0]), pods[0], "n1")
	reload(t, client, pack)
	time.Sleep(foreseenAge)
	before := servedPods(t)
	if done, fresh := bench.cycle(pods[1]), bench.separate(pods[1]); fmt.Sprint(done.scores) != fmt.Sprint(fresh.scores) {
		t.Fatal(done.scores, fresh.scores)
	}
	if after := servedPods(t); after != before {
		t.Fatal("an answer by the former policy has served a pod")
	}
}

func TestResponsesServeNoOtherPods(t *testing.T) {
	lasting(t)
	server := testserver.Start(t)
	reload(t, admin(t, server.Address), spread)
	pods := equalPods("equal", 6, 0)
	pods[2].Labels = map[string]string{"app": "other"}
	pods[3].Spec.NodeSelector = map[string]string{"disk": "ssd"}
	pods[4].Annotations = map[string]string{"scheduling.k8s.io/group-name": "gang"}
	bench := start(t, arguments(server.Address, ""), []*corev1.Node{testNode("n1", "10", 0), testNode("n2", "20", 0)}, pods)
	bench.cycle(pods[0])
	bench.cycle(pods[0])
	for at, wanted := range map[int]int{1: 1, 2: 0, 3: 0, 4: 0} {
		bench.cycle(pods[0])
		state, before := framework.NewCycleState(), servedPods(t)
		bench.framework.RunPreFilterPlugins(context.Background(), state, pods[at])
		if served := servedPods(t) - before; served != wanted {
			t.Fatalf("pod %d: %d", at, served)
		}
	}
}
