package kubescheduler

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/pumice-scheduler/pumice/clients/go/internal/testserver"
	pb "github.com/pumice-scheduler/pumice/clients/go/pumicev1"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// foreseeing starts a bench on two nodes of which an answer serves equal pods until the test ends.
func foreseeing(t *testing.T, policy string, pods []*corev1.Pod, nodes ...*corev1.Node) *bench {
	t.Helper()
	lasting(t)
	server := testserver.Start(t)
	reload(t, admin(t, server.Address), policy)
	if len(nodes) == 0 {
		nodes = []*corev1.Node{testNode("n1", "10", 0), testNode("n2", "20", 0)}
	}
	bench := start(t, arguments(server.Address, ""), nodes, pods)
	for _, pod := range pods {
		if pod.Spec.NodeName == "" {
			// The first answer shows that scores do not depend on other nodes, the second one serves equal pods.
			bench.cycle(pod)
			bench.cycle(pod)
			break
		}
	}
	return bench
}

// wantAsSeparate runs a cycle, which comes to what one with an answer of its own comes to. It returns the cycle.
func (bench *bench) wantAsSeparate(pod *corev1.Pod) outcome {
	bench.t.Helper()
	done := bench.cycle(pod)
	fresh := bench.separate(pod)
	if fmt.Sprint(done.scores, done.status) != fmt.Sprint(fresh.scores, fresh.status) {
		bench.t.Fatalf("%v %v %v, and by an answer of its own %v %v %v", done.scores, done.status, done.statuses, fresh.scores, fresh.status, fresh.statuses)
	}
	return done
}

// mirror is the mirror of a bench.
func (bench *bench) mirror() *mirror {
	return profiles.plugin(bench.framework).hub.mirror
}

// TestACordonedNodeTakesMoreEqualPods: kube-scheduler judges by the pods' tolerations whether it does.
func TestACordonedNodeTakesMoreEqualPods(t *testing.T) {
	cordoned := testNode("n1", "10", 0)
	cordoned.Spec.Unschedulable = true
	pods := equalPods("equal", 4, 0)
	bench := foreseeing(t, spread, pods, cordoned, testNode("n2", "20", 0), testNode("n3", "20", 0))
	for _, pod := range pods {
		done := bench.wantAsSeparate(pod)
		if len(done.scores) != 3 {
			t.Fatal(done.statuses)
		}
		bench.place(done, pod, "n1")
	}
}

func TestAPodUnderTheNameOfAnotherEndsResponses(t *testing.T) {
	pods := equalPods("equal", 2, 0)
	bench := foreseeing(t, spread, append(pods, testPod("old", "n1", "5", 0)))
	mirror, before := bench.mirror(), bench.wantAsSeparate(pods[1])
	// What a listener hears of a pod that was deleted and made again while the watch was interrupted: one update.
	again := testPod("old", "", "5", 0)
	again.UID = "pod-again"
	if _, err := bench.client.CoreV1().Pods("default").Update(context.Background(), again, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the other pod is known", func() bool { return mirror.waits("pod-again") })
	if done := bench.wantAsSeparate(pods[1]); fmt.Sprint(done.scores) == fmt.Sprint(before.scores) {
		t.Fatal("the former pod counts on its node", done.scores)
	}
	mirror.mutex.Lock()
	defer mirror.mutex.Unlock()
	if mirror.pods["pod-old"] != nil || mirror.placed["pod-old"] != nil {
		t.Fatal("the former pod is kept")
	}
}

func TestAPodThatCannotBeReadEndsResponsesWhenItEnds(t *testing.T) {
	pods, unreadable := equalPods("equal", 2, 0), testPod("unreadable", "n1", "1", 0)
	unreadable.Spec.Containers[0].Resources.Requests["cpu"] = resource.MustParse("-1")
	unreadable.Status.Phase = corev1.PodRunning
	bench := foreseeing(t, spread, append(pods, unreadable))
	if done := bench.wantAsSeparate(pods[1]); len(done.scores) != 1 {
		t.Fatal("nobody knows what is left of the node", done.scores)
	}
	bench.mirror().podGone(unreadable)
	if done := bench.wantAsSeparate(pods[1]); len(done.scores) != 2 {
		t.Fatal(done.statuses)
	}
}

// TestAPodThatHasChangedSinceItWasJudgedEndsResponses: what counts on its node is the pod as it is now.
func TestAPodThatHasChangedSinceItWasJudgedEndsResponses(t *testing.T) {
	pods := equalPods("equal", 2, 0)
	bench := foreseeing(t, spread, pods)
	done := bench.wantAsSeparate(pods[0])
	changed := testPod(pods[0].Name, "", "7", 0)
	bench.mirror().podSeen(changed)
	bench.place(done, pods[0], "n1")
	bench.wantAsSeparate(pods[1])
}

// TestAPodCountsThatTheMirrorHasNotHeardOf: kube-scheduler's own listener may be faster than the mirror's.
func TestAPodCountsThatTheMirrorHasNotHeardOf(t *testing.T) {
	pods := equalPods("equal", 2, 0)
	bench := foreseeing(t, spread, pods, testNode("n1", "10", 0), testNode("n2", "10", 0))
	mirror := bench.mirror()
	mirror.mutex.Lock()
	mirror.pods, mirror.derived = map[types.UID]*corev1.Pod{}, map[types.UID]*derivedTask{}
	mirror.mutex.Unlock()
	bench.place(bench.cycle(pods[0]), pods[0], "n1")
	// n1: 6 of 10 cores would be left, n2: 8.
	bench.cycle(pods[1]).want(t, Name, map[string]int64{"n1": 75, "n2": 100})
	bench.wantAsSeparate(pods[1])
	mirror.podGone(pods[0])
	if done := bench.wantAsSeparate(pods[1]); done.scores["n1"][Name] != 100 {
		t.Fatal(done.scores)
	}
}

// TestAResponseServesNoPodOnceItsPolicyIsKnownToBeAFormerOne: a pod of another kind has shown that.
func TestAResponseServesNoPodOnceItsPolicyIsKnownToBeAFormerOne(t *testing.T) {
	lasting(t)
	server := testserver.Start(t)
	client := admin(t, server.Address)
	reload(t, client, guarded)
	pods, other := equalPods("equal", 2, 0), testPod("other", "", "2", 0)
	// Nothing is foreseen of ports.
	other.Spec.Containers[0].Ports = []corev1.ContainerPort{{HostPort: 80, ContainerPort: 80}}
	bench := start(t, arguments(server.Address, ""), []*corev1.Node{testNode("n1", "10", 0), testNode("n2", "20", 0)}, append(pods, other))
	bench.cycle(pods[0])
	bench.place(bench.cycle(pods[0]), pods[0], "n1")
	reload(t, client, strings.ReplaceAll(guarded, "weight: 3", "weight: 4"))
	bench.sign(other)
	bench.cycle(other)
	before := servedPods(t)
	bench.cycle(pods[1])
	if after := servedPods(t); after != before {
		t.Fatal("an answer by the former policy has served a pod")
	}
}

func TestAResponseServesPodsOfAPolicyThatOnlyFilters(t *testing.T) {
	pods := equalPods("equal", 30, 0)
	bench := foreseeing(t, `{actions: allocate, tiers: [{plugins: [{name: predicates}]}]}`, pods)
	for _, pod := range pods {
		done := bench.wantAsSeparate(pod)
		if !done.status.IsSuccess() && !done.status.IsSkip() {
			t.Fatal(done.status)
		}
		bench.place(done, pod, "n1")
	}
}

// TestResponsesServeEqualPodsWhileOthersAreBound: what binding goroutines and informers report beside the cycles. The race detector
// looks on, if it is used.
func TestResponsesServeEqualPodsWhileOthersAreBound(t *testing.T) {
	pods := equalPods("equal", 120, 0)
	nodes := []*corev1.Node{testNode("n1", "400", 0), testNode("n2", "400", 0), testNode("n3", "200", 0)}
	bench := foreseeing(t, spread, pods, nodes...)
	mirror, ctx, before := bench.mirror(), context.Background(), servedPods(t)
	var binding sync.WaitGroup
	for number, pod := range pods {
		done := bench.cycle(pod)
		if len(done.scores) != 3 {
			t.Fatal(done.status, done.statuses)
		}
		node := nodes[number%3].Name
		bench.place(done, pod, node)
		binding.Go(func() {
			switch number % 8 {
			case 3:
				bench.framework.RunReservePluginsUnreserve(ctx, done.state, pod, node)
			case 6:
				mirror.podGone(pod)
				bench.framework.RunPostBindPlugins(ctx, done.state, pod, node)
			default:
				bench.framework.RunPostBindPlugins(ctx, done.state, pod, node)
				bound := pod.DeepCopy()
				bound.Spec.NodeName = node
				mirror.podSeen(bound)
			}
		})
		if number%10 == 9 {
			binding.Wait()
			fresh, one := bench.separate(pods[0]), bench.cycle(pods[0])
			if fmt.Sprint(one.scores) != fmt.Sprint(fresh.scores) {
				t.Fatal(number, one.scores, fresh.scores)
			}
		}
	}
	if servedPods(t) == before {
		t.Fatal("no pod was served by an answer about another")
	}
}

// labelByZone binds a pod to a node as the API server does, which copies the labels of the node's zone and region.
func labelByZone(pod *corev1.Pod, node string) {
	pod.Spec.NodeName = node
	pod.Labels = map[string]string{corev1.LabelTopologyZone: "a", corev1.LabelTopologyRegion: "r"}
}

// TestWhatOthersAddToABoundPodEndsNoResponses: labels of the API server, annotations of the network, and the kubelet's reports change
// nothing for equal pods.
func TestWhatOthersAddToABoundPodEndsNoResponses(t *testing.T) {
	pods, node := equalPods("equal", 6, 0), testNode("n1", "10", 0)
	bench := foreseeing(t, spread, pods, node, testNode("n2", "20", 0))
	mirror, bound := bench.mirror(), pods[0].DeepCopy()
	done := bench.wantAsSeparate(pods[0])
	bench.place(done, pods[0], "n1")
	bench.framework.RunPostBindPlugins(context.Background(), done.state, pods[0], "n1")
	report := node.DeepCopy()
	for at, change := range []struct {
		what   string
		served int
		apply  func()
	}{
		{"the zone of its node", 1, func() { labelByZone(bound, "n1") }},
		{"an annotation", 1, func() { bound.Annotations = map[string]string{"cni.projectcalico.org/podIP": "10.0.0.7"} }},
		{"a nomination", 1, func() { bound.Status.NominatedNodeName = "n1" }},
		{"a heartbeat of the node", 1, func() { report.Status.Conditions[0].LastHeartbeatTime = metav1.Now() }},
		{"a label of the node", 0, func() { report.Labels = map[string]string{"disk": "ssd"} }},
	} {
		bound, report = bound.DeepCopy(), report.DeepCopy()
		change.apply()
		mirror.podSeen(bound)
		mirror.nodeSeen(report)
		before := servedPods(t)
		bench.cycle(pods[at%len(pods[1:])+1])
		if served := servedPods(t) - before; served != change.served {
			t.Fatal(change.what, served)
		}
		bench.wantAsSeparate(pods[1])
	}
	eventually(t, "the service has the changed record", func() bool {
		return stored(t, profiles.plugin(bench.framework).hub.client, "default/"+bound.Name).GetNominatedNode() == "n1"
	})
	resized := bound.DeepCopy()
	resized.Spec.Containers[0].Resources.Requests["cpu"] = resource.MustParse("3")
	mirror.podSeen(resized)
	before := servedPods(t)
	bench.cycle(pods[1])
	if servedPods(t) != before {
		t.Fatal("a pod takes more of its node")
	}
}

// TestANodeThatCanBeReadAgainIsPutAgain: its record is the one from before the object that could not be read.
func TestANodeThatCanBeReadAgainIsPutAgain(t *testing.T) {
	pods, node := equalPods("equal", 2, 0), testNode("n1", "10", 0)
	bench := foreseeing(t, spread, pods, node, testNode("n2", "20", 0))
	marked := func() bool {
		list, err := profiles.plugin(bench.framework).hub.client.ListNodes(context.Background(), &pb.ListNodesRequest{Names: []string{"n1"}})
		return err == nil && len(list.GetNodes()) == 1 && len(list.GetNodes()[0].GetInvalid()) == 1
	}
	bad := node.DeepCopy()
	bad.Annotations = map[string]string{"volcano.sh/oversubscription-cpu": "many"}
	bench.mirror().nodeSeen(bad)
	eventually(t, "the node is marked", marked)
	if !bench.mirror().knows("n1") {
		t.Fatal("the service has a good record of the node")
	}
	bench.mirror().nodeSeen(node)
	eventually(t, "the mark is gone", func() bool { return !marked() })
}
