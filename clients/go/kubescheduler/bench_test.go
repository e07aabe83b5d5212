package kubescheduler

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	pumice "github.com/pumice-scheduler/pumice/clients/go"
	pb "github.com/pumice-scheduler/pumice/clients/go/pumicev1"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/events"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"
	schedulerapi "k8s.io/kubernetes/pkg/scheduler/apis/config"
	"k8s.io/kubernetes/pkg/scheduler/backend/cache"
	"k8s.io/kubernetes/pkg/scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/defaultbinder"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/queuesort"
	frameworkruntime "k8s.io/kubernetes/pkg/scheduler/framework/runtime"
	schedulermetrics "k8s.io/kubernetes/pkg/scheduler/metrics"
)

func TestMain(main *testing.M) {
	schedulermetrics.Register()
	main.Run()
}

// bench is kube-scheduler's framework over a fake API, with the plugins in one profile.
type bench struct {
	t         *testing.T
	framework framework.Framework
	client    *fake.Clientset
	nodes     []*corev1.Node
	pods      []*corev1.Pod

	// beforeWait is called between Permit and the wait of a pod; may be nil.
	beforeWait func()

	// events are those that the plugins have written.
	events events.FakeRecorder

	mutex     sync.Mutex
	activated []string
}

// Activate notes what was put back into the queue.
func (bench *bench) Activate(_ klog.Logger, pods map[string]*corev1.Pod) {
	bench.mutex.Lock()
	defer bench.mutex.Unlock()
	for key := range pods {
		bench.activated = append(bench.activated, key)
	}
}

func (bench *bench) wasActivated(key string) func() bool {
	return func() bool {
		bench.mutex.Lock()
		defer bench.mutex.Unlock()
		for _, name := range bench.activated {
			if name == key {
				return true
			}
		}
		return false
	}
}

func testNode(name, cpu string, gpus int64) *corev1.Node {
	amounts := corev1.ResourceList{"cpu": resource.MustParse(cpu), "memory": resource.MustParse("64Gi"), "pods": resource.MustParse("110")}
	labels := map[string]string{}
	if gpus > 0 {
		amounts["nvidia.com/gpu"] = *resource.NewQuantity(gpus, resource.DecimalSI)
		labels = map[string]string{"nvidia.com/gpu.product": "A100", "nvidia.com/gpu.count": fmt.Sprint(gpus), "nvidia.com/gpu.memory": "81920"}
	}
	return &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID("node-" + name), Labels: labels},
		Status: corev1.NodeStatus{
			Allocatable: amounts, Capacity: amounts,
			Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}},
		},
	}
}

func testPod(name, node, cpu string, gpus int64) *corev1.Pod {
	amounts := corev1.ResourceList{"cpu": resource.MustParse(cpu)}
	if gpus > 0 {
		amounts["nvidia.com/gpu"] = *resource.NewQuantity(gpus, resource.DecimalSI)
	}
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "default", UID: types.UID("pod-" + name)},
		Spec: corev1.PodSpec{
			NodeName: node, SchedulerName: "bench",
			Containers: []corev1.Container{{Name: "main", Resources: corev1.ResourceRequirements{Requests: amounts, Limits: amounts}}},
		},
		Status: corev1.PodStatus{Phase: corev1.PodPending},
	}
}

// start makes a profile with the plugins named; Pumice has these arguments.
func start(t *testing.T, arguments string, nodes []*corev1.Node, pods []*corev1.Pod, names ...string) *bench {
	t.Helper()
	return startAt(t, nil, arguments, nodes, pods, names...)
}

// startAt is start; kinds that have no informer of the scheduler's are at this API server.
func startAt(t *testing.T, config *rest.Config, arguments string, nodes []*corev1.Node, pods []*corev1.Pod, names ...string) *bench {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	t.Cleanup(cancel)
	made := &bench{t: t, nodes: nodes, pods: pods}
	made.events.Events = make(chan string, 100)
	objects, placed := []runtime.Object{}, []*corev1.Pod{}
	for _, node := range nodes {
		objects = append(objects, node)
	}
	for _, pod := range pods {
		objects = append(objects, pod)
		if pod.Spec.NodeName != "" {
			placed = append(placed, pod)
		}
	}
	made.client = fake.NewClientset(objects...)
	factory := informers.NewSharedInformerFactory(made.client, 0)
	profile := &schedulerapi.KubeSchedulerProfile{
		SchedulerName: "bench",
		Plugins: &schedulerapi.Plugins{
			QueueSort: schedulerapi.PluginSet{Enabled: []schedulerapi.Plugin{{Name: "PrioritySort"}}},
			Bind:      schedulerapi.PluginSet{Enabled: []schedulerapi.Plugin{{Name: "DefaultBinder"}}},
		},
		PluginConfig: []schedulerapi.PluginConfig{{Name: Name, Args: &runtime.Unknown{Raw: []byte(arguments), ContentType: runtime.ContentTypeJSON}}},
	}
	for _, name := range append([]string{Name}, names...) {
		profile.Plugins.MultiPoint.Enabled = append(profile.Plugins.MultiPoint.Enabled, schedulerapi.Plugin{Name: name, Weight: 1})
	}
	registry := Registry()
	registry["PrioritySort"] = queuesort.New
	registry["DefaultBinder"] = defaultbinder.New
	var err error
	made.framework, err = frameworkruntime.NewFramework(ctx, registry, profile,
		frameworkruntime.WithClientSet(made.client), frameworkruntime.WithInformerFactory(factory),
		frameworkruntime.WithSnapshotSharedLister(cache.NewSnapshot(placed, nodes)), frameworkruntime.WithPodActivator(made),
		frameworkruntime.WithWaitingPods(frameworkruntime.NewWaitingPodsMap()), frameworkruntime.WithPodsInPreBind(frameworkruntime.NewPodsInPreBindMap()),
		frameworkruntime.WithEventRecorder(&made.events), frameworkruntime.WithKubeConfig(config))
	if err != nil {
		t.Fatal(err)
	}
	factory.Start(ctx.Done())
	factory.WaitForCacheSync(ctx.Done())
	// Each listener hears of the objects in its own time.
	for _, registration := range made.mirror().registrations {
		eventually(t, "the objects have been taken in", registration.HasSynced)
	}
	return made
}

// outcome is what a cycle came to: per node its score, or why it was refused.
type outcome struct {
	state    fwk.CycleState
	status   *fwk.Status
	scores   map[string]map[string]int64
	statuses map[string]string
}

// cycle runs the points of a scheduling cycle up to the scores.
func (bench *bench) cycle(pod *corev1.Pod) outcome {
	bench.t.Helper()
	ctx := context.Background()
	done := outcome{state: framework.NewCycleState(), scores: map[string]map[string]int64{}, statuses: map[string]string{}}
	if _, done.status, _ = bench.framework.RunPreFilterPlugins(ctx, done.state, pod); !done.status.IsSuccess() {
		return done
	}
	all, err := bench.framework.SnapshotSharedLister().NodeInfos().List()
	if err != nil {
		bench.t.Fatal(err)
	}
	feasible := []fwk.NodeInfo{}
	for _, info := range all {
		if status := bench.framework.RunFilterPlugins(ctx, done.state, pod, info); status.IsSuccess() {
			feasible = append(feasible, info)
		} else {
			done.statuses[info.Node().Name] = status.Message()
		}
	}
	if done.status = bench.framework.RunPreScorePlugins(ctx, done.state, pod, feasible); !done.status.IsSuccess() {
		return done
	}
	scores, status := bench.framework.RunScorePlugins(ctx, done.state, pod, feasible)
	done.status = status
	for _, node := range scores {
		done.scores[node.Name] = map[string]int64{}
		for _, score := range node.Scores {
			done.scores[node.Name][score.Name] = score.Score
		}
	}
	return done
}

func (done outcome) want(t *testing.T, plugin string, scores map[string]int64) {
	t.Helper()
	if !done.status.IsSuccess() {
		t.Fatal(done.status)
	}
	if len(done.scores) != len(scores) {
		t.Fatal(done.scores, done.statuses)
	}
	for node, score := range scores {
		if done.scores[node][plugin] != score {
			t.Fatal(done.scores)
		}
	}
}

func admin(t *testing.T, address string) *pumice.Client {
	t.Helper()
	client, err := pumice.Dial(address, pumice.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = client.Close() })
	return client
}

func reload(t *testing.T, client *pumice.Client, document string) {
	t.Helper()
	if _, err := client.ReloadPolicy(context.Background(), &pb.ReloadPolicyRequest{Document: document}); err != nil {
		t.Fatal(err)
	}
}

func eventually(t *testing.T, what string, holds func() bool) {
	t.Helper()
	for range 1200 {
		if holds() {
			return
		}
		time.Sleep(50 * time.Millisecond)
	}
	t.Fatal("it did not come: " + what)
}
