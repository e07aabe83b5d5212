package kubescheduler

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	pumice "github.com/pumice-scheduler/pumice/clients/go"
	"github.com/pumice-scheduler/pumice/clients/go/internal/testserver"
	pb "github.com/pumice-scheduler/pumice/clients/go/pumicev1"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	ktesting "k8s.io/client-go/testing"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework"
)

// member makes a pod of a pod group.
func member(number int, gpus int64) *corev1.Pod {
	pod := testPod(fmt.Sprintf("train-%d", number), "", "1", gpus)
	pod.Annotations = map[string]string{"scheduling.k8s.io/group-name": "train"}
	return pod
}

// emptyNodes makes nodes n1, n2 and so on, with room for one member each.
func emptyNodes(count int) (nodes []*corev1.Node) {
	for number := range count {
		nodes = append(nodes, testNode(fmt.Sprintf("n%d", number+1), "10", 8))
	}
	return nodes
}

// trainJob sends the job of the members.
func trainJob(t *testing.T, client *pumice.Client, minimum int32) {
	t.Helper()
	jobs := client.Feed("jobs", 0)
	jobs.Put(&pb.Cluster{Queues: []*pb.Queue{{Name: "team"}}, Jobs: []*pb.Job{{Name: "default/train", Queue: "team", MinMember: minimum, Phase: pb.JobPhase_JOB_PHASE_INQUEUE}}})
	if _, err := jobs.Flush(context.Background()); err != nil {
		t.Fatal(err)
	}
}

// packServer starts a server under the policy that packs.
func packServer(t *testing.T) (string, *pumice.Client) {
	t.Helper()
	server := testserver.Start(t)
	client := admin(t, server.Address)
	reload(t, client, pack)
	return server.Address, client
}

// gangServer starts such a server, which knows the job of the members.
func gangServer(t *testing.T, minimum int32) (string, *pumice.Client) {
	t.Helper()
	address, client := packServer(t)
	trainJob(t, client, minimum)
	return address, client
}

// attempt is a pod that has come as far as Permit.
type attempt struct {
	pod    *corev1.Pod
	node   string
	state  fwk.CycleState
	status *fwk.Status
}

// permit runs a cycle up to Permit.
func (bench *bench) permit(pod *corev1.Pod) attempt {
	bench.t.Helper()
	ctx, made := context.Background(), attempt{pod: pod, state: framework.NewCycleState()}
	result, status, _ := bench.framework.RunPreFilterPlugins(ctx, made.state, pod)
	if made.status = status; !status.IsSuccess() {
		return made
	}
	if result == nil || len(result.NodeNames) != 1 {
		bench.t.Fatalf("%s may have %v", pod.Name, result)
	}
	made.node = result.NodeNames.UnsortedList()[0]
	info, err := bench.framework.SnapshotSharedLister().NodeInfos().Get(made.node)
	if err != nil {
		bench.t.Fatal(err)
	}
	if made.status = bench.framework.RunFilterPlugins(ctx, made.state, pod, info); !made.status.IsSuccess() {
		return made
	}
	if made.status = bench.framework.RunReservePluginsReserve(ctx, made.state, pod, made.node); !made.status.IsSuccess() {
		return made
	}
	wait, status := bench.framework.RunPermitPlugins(ctx, made.state, pod, made.node)
	if made.status = status; status.IsWait() {
		if bench.beforeWait != nil {
			bench.beforeWait()
		}
		bench.framework.AddWaitingPod(pod, wait)
	}
	return made
}

// bind runs the binding cycles of pods side by side, as kube-scheduler does, and returns the statuses.
func (bench *bench) bind(attempts []attempt) []*fwk.Status {
	statuses := make([]*fwk.Status, len(attempts))
	var all sync.WaitGroup
	for at, made := range attempts {
		all.Go(func() {
			ctx := context.Background()
			if statuses[at] = bench.framework.WaitOnPermit(ctx, made.pod); statuses[at].IsSuccess() {
				if statuses[at] = bench.framework.RunPreBindPlugins(ctx, made.state, made.pod, made.node); statuses[at].IsSuccess() {
					statuses[at] = bench.framework.RunBindPlugins(ctx, made.state, made.pod, made.node)
				}
			}
			if !statuses[at].IsSuccess() {
				bench.framework.RunReservePluginsUnreserve(ctx, made.state, made.pod, made.node)
			}
		})
	}
	all.Wait()
	return statuses
}

// bindings is the number of bindings that the API server was sent, those without effect included: the fake one does not tell them
// apart. All of the former come before the first of the latter.
func (bench *bench) bindings() (number int) {
	for _, action := range bench.client.Actions() {
		if action.Matches("create", "pods/binding") {
			number++
		}
	}
	return number
}

func TestAGangIsPlacedInOneRequestAndBoundTogether(t *testing.T) {
	address, _ := gangServer(t, 3)
	nodes := emptyNodes(3)
	pods := []*corev1.Pod{member(0, 8), member(1, 8), member(2, 8)}
	bench := start(t, arguments(address, ""), nodes, pods[:2])
	if made := bench.permit(pods[0]); made.status.Message() != "pod group default/train has 2 of the 3 pods that it needs" {
		t.Fatal(made.status)
	}
	if _, err := bench.client.CoreV1().Pods("default").Create(context.Background(), pods[2], metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the third pod is known", func() bool { return bench.mirror().waits(pods[2].UID) })
	before := metricOf(t, "scheduler_pumice_calls_total", "Place")
	attempts, used := []attempt{}, map[string]bool{}
	for at, pod := range pods {
		made := bench.permit(pod)
		if at < 2 && !made.status.IsWait() || at == 2 && !made.status.IsSuccess() {
			t.Fatal(at, made.status)
		}
		attempts, used[made.node] = append(attempts, made), true
		if at == 0 && !bench.wasActivated("default/train-1")() {
			t.Fatal("the others are not called")
		}
	}
	if len(used) != 3 || metricOf(t, "scheduler_pumice_calls_total", "Place") != before+1 {
		t.Fatal(used, metricOf(t, "scheduler_pumice_calls_total", "Place")-before)
	}
	for at, status := range bench.bind(attempts) {
		if !status.IsSuccess() {
			t.Fatal(at, status)
		}
	}
	if number := bench.bindings(); number != 6 {
		t.Fatal(number)
	}
}

func TestAGangThatDoesNotFitWholeGetsNothing(t *testing.T) {
	address, client := gangServer(t, 3)
	pods := []*corev1.Pod{member(0, 8), member(1, 8), member(2, 8)}
	bench := start(t, arguments(address, ""), emptyNodes(2), pods)
	before := metricOf(t, "scheduler_pumice_calls_total", "Place")
	eventually(t, "the gang is refused whole", func() bool {
		return strings.HasPrefix(bench.permit(pods[0]).status.Message(), "pod group default/train: 2 of its 3 waiting pods find a node, and 3 have to: ")
	})
	for _, pod := range pods[1:] {
		if made := bench.permit(pod); made.status.Code() != fwk.UnschedulableAndUnresolvable {
			t.Fatal(made.status)
		}
	}
	if number := metricOf(t, "scheduler_pumice_calls_total", "Place") - before; number > 2 {
		t.Fatal(number, " requests for one gang")
	}
	for _, pod := range pods {
		if task := stored(t, client, "default/"+pod.Name); task.GetNode() != "" {
			t.Fatal(task)
		}
	}
}

func TestABindingThatTheAPIServerRefusesReleasesTheGang(t *testing.T) {
	address, client := gangServer(t, 3)
	pods := []*corev1.Pod{member(0, 8), member(1, 8), member(2, 8)}
	nodes := emptyNodes(3)
	bench := start(t, arguments(address, ""), nodes, pods)
	refuses := true
	bench.client.PrependReactor("create", "pods", func(action ktesting.Action) (bool, runtime.Object, error) {
		binding, is := action.(ktesting.CreateAction).GetObject().(*corev1.Binding)
		if !is {
			return false, nil, nil
		}
		if refuses && binding.Name == "train-1" {
			return true, nil, errors.New("not this one")
		}
		return true, binding, nil
	})
	attempts := []attempt{}
	for _, pod := range pods {
		attempts = append(attempts, bench.permit(pod))
	}
	for _, status := range bench.bind(attempts) {
		if status.Code() != fwk.Unschedulable || !strings.Contains(status.Message(), "does not take the binding of pod train-1: not this one") {
			t.Fatal(status)
		}
	}
	if number := bench.bindings(); number == 0 || number > 3 {
		t.Fatal(number)
	}
	for _, pod := range pods {
		eventually(t, "nothing is held", func() bool { return stored(t, client, "default/"+pod.Name).GetNode() == "" })
	}
	if made := bench.permit(pods[0]); !strings.Contains(made.status.Message(), "not this one") {
		t.Fatal("it rests: ", made.status)
	}
	time.Sleep(gangRest)
	refuses, attempts = false, nil
	for _, pod := range pods {
		attempts = append(attempts, bench.permit(pod))
	}
	for _, status := range bench.bind(attempts) {
		if !status.IsSuccess() {
			t.Fatal(status)
		}
	}
}

func TestANodeThatAnotherPluginRefusesReleasesTheGangAndIsLeftOut(t *testing.T) {
	address, _ := gangServer(t, 2)
	pods := []*corev1.Pod{member(0, 8), member(1, 8)}
	nodes := emptyNodes(3)
	bench := start(t, arguments(address, ""), nodes, pods)
	first := bench.permit(pods[0])
	if !first.status.IsWait() {
		t.Fatal(first.status)
	}
	state := framework.NewCycleState()
	result, status, _ := bench.framework.RunPreFilterPlugins(context.Background(), state, pods[1])
	if !status.IsSuccess() {
		t.Fatal(status)
	}
	refused := result.NodeNames.UnsortedList()[0]
	statuses := framework.NewDefaultNodeToStatus()
	statuses.Set(refused, fwk.NewStatus(fwk.Unschedulable, "a volume is elsewhere"))
	_, status = bench.framework.RunPostFilterPlugins(context.Background(), state, pods[1], statuses)
	if status.Code() != fwk.UnschedulableAndUnresolvable || !strings.Contains(status.Message(), "a volume is elsewhere") {
		t.Fatal(status.Code(), status)
	}
	if status := bench.bind([]attempt{first})[0]; !status.IsRejected() || !strings.Contains(status.Message(), "a volume is elsewhere") {
		t.Fatal(status)
	}
	time.Sleep(gangRest)
	attempts := []attempt{bench.permit(pods[0]), bench.permit(pods[1])}
	for at, status := range bench.bind(attempts) {
		if !status.IsSuccess() || attempts[at].node == refused {
			t.Fatal(attempts[at].node, status)
		}
	}
}

// gangOfTwo is a bench with two pods of one gang, the first of which waits for the other.
func gangOfTwo(t *testing.T) (*bench, []*corev1.Pod, attempt) {
	t.Helper()
	address, _ := gangServer(t, 2)
	pods := []*corev1.Pod{member(0, 8), member(1, 8)}
	bench := start(t, arguments(address, ""), emptyNodes(2), pods)
	first := bench.permit(pods[0])
	if !first.status.IsWait() {
		t.Fatal(first.status)
	}
	return bench, pods, first
}

func TestAMemberThatIsDeletedReleasesTheGang(t *testing.T) {
	bench, _, first := gangOfTwo(t)
	if err := bench.client.CoreV1().Pods("default").Delete(context.Background(), "train-1", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	if status := bench.bind([]attempt{first})[0]; !status.IsRejected() || !strings.Contains(status.Message(), "pod train-1 is deleted") {
		t.Fatal(status)
	}
	if number := bench.bindings(); number != 0 {
		t.Fatal(number)
	}
}

func TestAMemberThatIsBeingDeletedReleasesTheGang(t *testing.T) {
	bench, pods, first := gangOfTwo(t)
	// kube-scheduler gives it no node, and a finalizer holds it.
	ending := pods[1].DeepCopy()
	ending.DeletionTimestamp, ending.Finalizers = new(metav1.Now()), []string{"example.com/slow"}
	if _, err := bench.client.CoreV1().Pods("default").Update(context.Background(), ending, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	begin := time.Now()
	if status := bench.bind([]attempt{first})[0]; !status.IsRejected() || !strings.Contains(status.Message(), "pod train-1 is deleted") || time.Since(begin) > 10*time.Second {
		t.Fatal(status)
	}
}

func TestAMemberThatLeavesItsGroupReleasesTheGang(t *testing.T) {
	bench, pods, first := gangOfTwo(t)
	left := pods[1].DeepCopy()
	left.Annotations, left.Labels = nil, nil
	if _, err := bench.client.CoreV1().Pods("default").Update(context.Background(), left, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	begin := time.Now()
	if status := bench.bind([]attempt{first})[0]; !status.IsRejected() || !strings.Contains(status.Message(), "pod train-1 names another group") || time.Since(begin) > 10*time.Second {
		t.Fatal(status)
	}
}

// TestAReleaseBetweenPermitAndTheWaitOfAPodIsNotMissed: kube-scheduler adds the pod to those that wait after Permit.
func TestAReleaseBetweenPermitAndTheWaitOfAPodIsNotMissed(t *testing.T) {
	address, _ := gangServer(t, 2)
	pods := []*corev1.Pod{member(0, 8), member(1, 8)}
	bench := start(t, arguments(address, ""), emptyNodes(2), pods)
	table := profiles.plugin(bench.framework).hub.gangs
	var released *gang
	bench.beforeWait = func() {
		released = table.of("default/train")
		if err := bench.client.CoreV1().Pods("default").Delete(context.Background(), "train-1", metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		eventually(t, "the gang is released", func() bool { return released.released() != "" && table.of("default/train") == nil })
		// The looks go on, however long it takes.
		time.Sleep(2 * lateLook)
	}
	first, begin := bench.permit(pods[0]), time.Now()
	if !first.status.IsWait() || !released.isHeld() {
		t.Fatal(first.status)
	}
	if status := bench.bind([]attempt{first})[0]; !status.IsRejected() || !strings.Contains(status.Message(), "pod train-1 is deleted") || time.Since(begin) > 10*time.Second {
		t.Fatal(status, time.Since(begin))
	}
	if released.isHeld() {
		t.Fatal("the group is refused for want of a pod that waits no more")
	}
}

// TestAMemberThatLeavesWhileTheServicePlacesReleasesTheGang: nobody waits for it, and no node is held.
func TestAMemberThatLeavesWhileTheServicePlacesReleasesTheGang(t *testing.T) {
	t.Run("deleted", func(t *testing.T) {
		whilePlacing(t, "pod train-1 is deleted", func(bench *bench, pod *corev1.Pod) error {
			return bench.client.CoreV1().Pods("default").Delete(context.Background(), pod.Name, metav1.DeleteOptions{})
		}, func(mirror *mirror, pod *corev1.Pod) bool { return !mirror.waits(pod.UID) })
	})
	t.Run("without its group", func(t *testing.T) {
		whilePlacing(t, "pod train-1 names another group", func(bench *bench, pod *corev1.Pod) error {
			left := pod.DeepCopy()
			left.Annotations = nil
			_, err := bench.client.CoreV1().Pods("default").Update(context.Background(), left, metav1.UpdateOptions{})
			return err
		}, func(mirror *mirror, pod *corev1.Pod) bool { return mirror.left(pod) == hasLeft })
	})
}

// whilePlacing lets the second of two members leave while the service places the gang, and wants it to be released for this reason.
func whilePlacing(t *testing.T, reason string, leave func(*bench, *corev1.Pod) error, hasLeft func(*mirror, *corev1.Pod) bool) {
	t.Helper()
	address, _ := gangServer(t, 2)
	pods := []*corev1.Pod{member(0, 8), member(1, 8)}
	bench := start(t, arguments(address, ""), emptyNodes(2), pods)
	plugin, ctx := profiles.plugin(bench.framework), context.Background()
	plugin.hub.lead()
	nodes, err := bench.framework.SnapshotSharedLister().NodeInfos().List()
	if err != nil {
		t.Fatal(err)
	}
	made, err := plugin.place(ctx, "default/train", pods, nodes, nil)
	if err != nil || len(made.nodes) != 2 {
		t.Fatal(made, err)
	}
	if err := leave(bench, pods[1]); err != nil {
		t.Fatal(err)
	}
	eventually(t, "it is known", func() bool { return hasLeft(bench.mirror(), pods[1]) })
	plugin.hold(made, pods)
	if why := made.released(); !strings.Contains(why, reason) {
		t.Fatal(why)
	}
	if plugin.hub.gangs.of("default/train") != nil || !bench.mirror().waits(pods[0].UID) {
		t.Fatal("the gang holds nodes")
	}
}

func TestNodesThatKubernetesRulesOutAreNoCandidatesOfAGang(t *testing.T) {
	address, _ := gangServer(t, 2)
	nodes := []*corev1.Node{testNode("a", "10", 8), testNode("b", "10", 8), testNode("c", "10", 8), testNode("d", "10", 8), testNode("e", "10", 8)}
	nodes[0].Spec.Unschedulable = true
	nodes[1].Spec.Taints = []corev1.Taint{{Key: "other", Effect: corev1.TaintEffectNoSchedule}}
	nodes[2].Labels["zone"] = "elsewhere"
	nodes[3].Spec.Taints = []corev1.Taint{{Key: "soft", Effect: corev1.TaintEffectPreferNoSchedule}}
	pods := []*corev1.Pod{member(0, 8), member(1, 8)}
	for _, pod := range pods {
		pod.Spec.NodeSelector = map[string]string{"zone": "here"}
	}
	nodes[0].Labels["zone"], nodes[1].Labels["zone"], nodes[3].Labels["zone"], nodes[4].Labels["zone"] = "here", "here", "here", "here"
	bench := start(t, arguments(address, ""), nodes, pods)
	attempts := []attempt{bench.permit(pods[0]), bench.permit(pods[1])}
	if used := attempts[0].node + attempts[1].node; used != "de" && used != "ed" {
		t.Fatal(used, attempts[0].status, attempts[1].status)
	}
}

func TestPodGroupsOfCoschedulingAreSentAsJobs(t *testing.T) {
	address, client := packServer(t)
	pods := []*corev1.Pod{testPod("a", "", "1", 8), testPod("b", "", "1", 8)}
	for _, pod := range pods {
		pod.Labels = map[string]string{GroupLabel: "ring"}
	}
	bench := start(t, arguments(address, ""), emptyNodes(2), pods)
	// Nobody knows of such a group: the pod goes by itself.
	if done := bench.cycle(pods[0]); !done.status.IsSuccess() || len(done.scores) != 2 {
		t.Fatal(done.status, done.scores)
	}
	group := &unstructured.Unstructured{Object: map[string]any{
		"metadata": map[string]any{"namespace": "default", "name": "ring", "uid": "ring-1"},
		"spec":     map[string]any{"minMember": int64(2)},
	}}
	mirror := profiles.plugin(bench.framework).hub.mirror
	mirror.coschedulingHandler().OnAdd(group, false)
	eventually(t, "the job is known", func() bool {
		list, err := client.ListJobs(context.Background(), &pb.ListJobsRequest{Names: []string{"default/ring"}})
		return err == nil && len(list.GetJobs()) == 1 && list.GetJobs()[0].GetJob().GetMinMember() == 2 && list.GetJobs()[0].GetJob().GetQueue() == "kube-scheduler" &&
			stored(t, client, "default/a").GetJob() == "default/ring"
	})
	// A label names a queue, which has to be there.
	labelled := group.DeepCopy()
	labelled.SetLabels(map[string]string{queueLabel: "team"})
	mirror.coschedulingHandler().OnUpdate(group, labelled)
	eventually(t, "the queue is missed", func() bool {
		return strings.Contains(bench.permit(pods[0]).status.Message(), "there is no queue `team`")
	})
	mirror.coschedulingHandler().OnUpdate(labelled, group)
	time.Sleep(gangRest)
	attempts := []attempt{bench.permit(pods[0]), bench.permit(pods[1])}
	if !attempts[0].status.IsWait() || !attempts[1].status.IsSuccess() || attempts[0].node == attempts[1].node {
		t.Fatal(attempts[0].status, attempts[1].status)
	}
	bench.framework.RejectWaitingPod(types.UID("pod-a"))
	mirror.coschedulingHandler().OnDelete(group)
	eventually(t, "the job is gone", func() bool { return stored(t, client, "default/a").GetJob() == "" })
}
