//go:build e2e

package e2e

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	pumice "github.com/pumice-scheduler/pumice/clients/go"
	"github.com/pumice-scheduler/pumice/clients/go/derive"
	"github.com/pumice-scheduler/pumice/clients/go/internal/testserver"
	"github.com/pumice-scheduler/pumice/clients/go/internal/vectors"
	"github.com/pumice-scheduler/pumice/clients/go/kubescheduler"
	pb "github.com/pumice-scheduler/pumice/clients/go/pumicev1"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

const (
	pack   = `{actions: allocate, tiers: [{plugins: [{name: binpack, arguments: {binpack.cpu: 1, binpack.memory: 1}}]}]}`
	spread = `{actions: allocate, tiers: [{plugins: [{name: resource-strategy-fit, arguments: {resources: {cpu: {type: LeastAllocated, weight: 1}}}}]}]}`
	cards  = `{actions: allocate, tiers: [{plugins: [{name: capacity-card, arguments: {cardUnlimitedCpuMemory: true}}]}]}`
	koord  = `{apiVersion: kubescheduler.config.k8s.io/v1, kind: KubeSchedulerConfiguration, profiles: [{schedulerName: koord,
		plugins: {multiPoint: {disabled: [{name: '*'}], enabled: [{name: NodeResourcesFitPlus}, {name: ScarceResourceAvoidance}]}},
		pluginConfig: [
			{name: NodeResourcesFitPlus, args: {resources: {cpu: {type: LeastAllocated, weight: 1}, memory: {type: MostAllocated, weight: 2}}}},
			{name: ScarceResourceAvoidance, args: {resources: [nvidia.com/gpu]}}]}]}`
)

// example is the configuration that the README names, as it stands but for words that are others here; profiles may follow.
func example(t *testing.T, words ...string) string {
	t.Helper()
	read, err := os.ReadFile("../examples/config.yaml")
	if err != nil {
		t.Fatal(err)
	}
	text := string(read)
	for pair := range slices.Chunk(words, 2) {
		if strings.Count(text, pair[0]) != 1 {
			t.Fatalf("the example has not one %q:\n%s", pair[0], text)
		}
		text = strings.Replace(text, pair[0], pair[1], 1)
	}
	return text
}

// profile is one more of the scheduler's: its plugins at score, and the arguments of Pumice.
func profile(name, scores, arguments string) string {
	return fmt.Sprintf(`{"schedulerName": %q, "plugins": {"multiPoint": {"enabled": [{"name": "Pumice"}]},
		"score": {"disabled": [{"name": "*"}], "enabled": [%s]}}, "pluginConfig": [{"name": "Pumice", "args": {%s}}]}`, name, scores, arguments)
}

func TestPodsAreScheduledByPumice(t *testing.T) {
	cluster := startCluster(t)
	port, folder := freePort(t), t.TempDir()
	serve := func() *testserver.Server {
		return testserver.Start(t, "--grpc-address", "127.0.0.1:"+port, "--data-dir", folder)
	}
	server := serve()
	scheduled := &scheduledCluster{cluster: cluster, server: dial(t, server.Address)}
	for name, document := range map[string]string{"default": pack, "cards": cards, "koord": koord} {
		scheduled.reload(name, document)
	}
	for number := range 3 {
		scheduled.addNode(fmt.Sprintf("gpu-%d", number), "32", "128Gi", 4)
		scheduled.addNode(fmt.Sprintf("cpu-%d", number), "16", "64Gi", 0)
	}
	common := fmt.Sprintf(`"address": %q, "budget": "5s"`, server.Address)
	config := cluster.write("scheduler.yaml", fmt.Appendf(nil, "podInitialBackoffSeconds: 1\npodMaxBackoffSeconds: 2\n%s- %s\n- %s\n- %s\n",
		// A slow machine has more time, so that it gives the same answers.
		example(t, "/etc/kubernetes/scheduler.conf", cluster.config, "127.0.0.1:7461", server.Address, "budget: 500ms", "budget: 5s"),
		profile("open", `{"name": "Pumice"}`, common+`, "fallback": {"filter": "FailOpen"}`),
		profile("cards", `{"name": "Pumice"}`, common+`, "policy": "cards"`),
		profile("koord", `{"name": "Pumice"}, {"name": "NodeResourcesFitPlus"}, {"name": "ScarceResourceAvoidance"}`, common+`, "policy": "koord"`),
	))
	page := "https://127.0.0.1:" + freePort(t)
	scheduler := scheduled.schedule(config, page)
	cluster.until("kube-scheduler is ready", func() error { return get(trusting(), page+"/readyz", "") })

	scheduled.landsWherePumiceSays(t)
	scheduled.waitsForItsQueue(t)
	scheduled.hasKoordinatorsScores(t, scheduler.log)
	if err := get(trusting(), page+"/metrics", `scheduler_pumice_replies_total{call="Score",origin="service"}`); err != nil {
		t.Fatal(err)
	}
	server.Kill()
	scheduled.followsTheChoiceWhileAway(t)
	serve()
	cluster.until("the pod that waited is bound", func() error { return scheduled.bound("away-closed") })
	scheduled.landsOn(t, "after", "pumice")
	if err := get(trusting(), page+"/metrics", `scheduler_pumice_replies_total{call="Filter",origin="fail_open"}`); err != nil {
		t.Fatal(err)
	}
}

// scheduled is the cluster and the service beside it.
type scheduledCluster struct {
	*cluster
	server *pumice.Client
	// verbosity is that of the scheduler's log; 0: all of it. flags are more flags of the scheduler.
	verbosity int
	flags     string
}

func dial(t *testing.T, address string) *pumice.Client {
	t.Helper()
	client, err := pumice.Dial(address, pumice.Options{BreakAfter: -1})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = client.Close() })
	return client
}

// schedule starts the scheduler by the command of the README, with this cluster's configuration and port.
func (scheduled *scheduledCluster) schedule(config, page string) *program {
	scheduled.t.Helper()
	readme, err := os.ReadFile("../README.md")
	if err != nil {
		scheduled.t.Fatal(err)
	}
	block := regexp.MustCompile("(?s)```console\n(.*?)```").FindSubmatch(readme)
	if block == nil || strings.Count(string(block[1]), "\n") != 2 {
		scheduled.t.Fatal("the README does not begin with two commands")
	}
	commands := strings.ReplaceAll(strings.TrimSpace(string(block[1])), "$ ", "")
	if !strings.HasSuffix(commands, "--config examples/config.yaml") {
		scheduled.t.Fatal(commands)
	}
	commands = strings.TrimSuffix(commands, "examples/config.yaml") + config + " --secure-port " + page[strings.LastIndex(page, ":")+1:] +
		" --bind-address 127.0.0.1 --cert-dir " + scheduled.path("scheduler") + " --authentication-skip-lookup=true --authorization-always-allow-paths '/*' -v " + fmt.Sprint(cmp.Or(scheduled.verbosity, 10)) + " " + scheduled.flags
	shell := exec.Command("bash", "-e", "-c", commands)
	shell.Dir = vectors.Root()
	return scheduled.run("kube-scheduler", shell)
}

func (scheduled *scheduledCluster) reload(name, document string) {
	scheduled.t.Helper()
	if _, err := scheduled.server.ReloadPolicy(context.Background(), &pb.ReloadPolicyRequest{Name: name, Document: document}); err != nil {
		scheduled.t.Fatal(name, err)
	}
}

func (scheduled *scheduledCluster) addNode(name, cpu, memory string, gpus int64) {
	scheduled.t.Helper()
	scheduled.addNodeIn("", name, cpu, memory, gpus)
}

// addNodeIn adds a node of a zone, whose labels the API server copies to the pods that are bound there; "": the node names no zone.
func (scheduled *scheduledCluster) addNodeIn(zone, name, cpu, memory string, gpus int64) {
	scheduled.t.Helper()
	amounts := corev1.ResourceList{"cpu": resource.MustParse(cpu), "memory": resource.MustParse(memory), "pods": resource.MustParse("110")}
	labels := map[string]string{"kubernetes.io/hostname": name}
	if zone != "" {
		labels[corev1.LabelTopologyZone], labels[corev1.LabelTopologyRegion] = zone, "region"
	}
	if gpus > 0 {
		amounts["nvidia.com/gpu"] = *resource.NewQuantity(gpus, resource.DecimalSI)
		labels["nvidia.com/gpu.product"], labels["nvidia.com/gpu.count"], labels["nvidia.com/gpu.memory"] = "A100", fmt.Sprint(gpus), "81920"
	}
	_, err := scheduled.client.CoreV1().Nodes().Create(context.Background(), &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels},
		Status: corev1.NodeStatus{
			Capacity: amounts, Allocatable: amounts,
			Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}},
		},
	}, metav1.CreateOptions{})
	if err != nil {
		scheduled.t.Fatal(err)
	}
}

func pod(name, scheduler, cpu string, gpus int64, annotations map[string]string) *corev1.Pod {
	amounts := corev1.ResourceList{"cpu": resource.MustParse(cpu), "memory": resource.MustParse("4Gi")}
	if gpus > 0 {
		amounts["nvidia.com/gpu"] = *resource.NewQuantity(gpus, resource.DecimalSI)
	}
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "default", Annotations: annotations},
		Spec: corev1.PodSpec{SchedulerName: scheduler, Containers: []corev1.Container{{
			Name: "main", Image: "none", Resources: corev1.ResourceRequirements{Requests: amounts, Limits: amounts},
		}}},
	}
}

func (scheduled *scheduledCluster) create(made *corev1.Pod) {
	scheduled.t.Helper()
	if _, err := scheduled.client.CoreV1().Pods("default").Create(context.Background(), made, metav1.CreateOptions{}); err != nil {
		scheduled.t.Fatal(err)
	}
}

func (scheduled *scheduledCluster) nodeOf(name string) (string, error) {
	found, err := scheduled.client.CoreV1().Pods("default").Get(context.Background(), name, metav1.GetOptions{})
	if err != nil {
		return "", err
	}
	if found.Spec.NodeName == "" {
		return "", fmt.Errorf("pod %s has no node: %v", name, found.Status.Conditions)
	}
	return found.Spec.NodeName, nil
}

func (scheduled *scheduledCluster) bound(name string) error {
	_, err := scheduled.nodeOf(name)
	return err
}

// said wants an event about a pod with these words.
func (scheduled *scheduledCluster) said(name, words string) error {
	list, err := scheduled.client.CoreV1().Events("default").List(context.Background(), metav1.ListOptions{FieldSelector: "involvedObject.name=" + name})
	if err != nil {
		return err
	}
	messages := []string{}
	for _, event := range list.Items {
		if event.Reason == "FailedScheduling" && strings.Contains(event.Message, words) {
			return nil
		}
		messages = append(messages, event.Message)
	}
	return fmt.Errorf("the events of %s: %q", name, messages)
}

// scores asks Pumice about a pod as the plugin would, once it knows how the pods stand.
func (scheduled *scheduledCluster) scores(t *testing.T, policy string, made *corev1.Pod) *pb.ScoreItem {
	t.Helper()
	scheduled.until("Pumice knows where the pods are", func() error { return scheduled.agrees() })
	task, err := pumice.TaskRecord(made, derive.AsKubernetes)
	if err != nil {
		t.Fatal(err)
	}
	reply, err := scheduled.server.Score(context.Background(), &pb.ScoreRequest{
		Against: &pb.EvaluationRef{Target: &pb.EvaluationRef_Latest{Latest: &pb.LatestRef{Policy: policy}}},
		Tasks:   []*pb.Task{task}, WithFilter: true, WithParts: true, ResourceFit: pb.ResourceFit_RESOURCE_FIT_IDLE,
	})
	if err != nil || reply.Cause != nil || reply.Response.GetResult().GetItems()[0].GetProblem() != nil {
		t.Fatal(reply, err)
	}
	return reply.Response.GetResult().GetItems()[0]
}

// agrees says whether Pumice has every pod where the API server has it.
func (scheduled *scheduledCluster) agrees() error {
	pods, err := scheduled.client.CoreV1().Pods("default").List(context.Background(), metav1.ListOptions{})
	if err != nil {
		return err
	}
	nodes := map[string]string{}
	for token := ""; ; {
		tasks, err := scheduled.server.ListTasks(context.Background(), &pb.ListTasksRequest{Page: &pb.Page{Size: 1000, Token: token}})
		if err != nil {
			return err
		}
		for _, task := range tasks.GetTasks() {
			nodes[task.GetTask().GetName()] = task.GetTask().GetNode()
		}
		if token = tasks.GetNextPageToken(); token == "" {
			break
		}
	}
	if len(nodes) > len(pods.Items) {
		return fmt.Errorf("there are %d pods, and %d tasks", len(pods.Items), len(nodes))
	}
	for _, item := range pods.Items {
		if node, known := nodes["default/"+item.Name]; !known || node != item.Spec.NodeName {
			return fmt.Errorf("pod %s is on %q and told on %q", item.Name, item.Spec.NodeName, node)
		}
	}
	return nil
}

// landsOn schedules a pod and wants it on one of Pumice's best nodes.
func (scheduled *scheduledCluster) landsOn(t *testing.T, name, scheduler string) string {
	t.Helper()
	made := pod(name, scheduler, "2", 0, nil)
	item := scheduled.scores(t, "default", made)
	best := []string{}
	for at, node := range item.GetNodes().GetNames() {
		if item.GetTotals()[at] == slices.Max(item.GetTotals()) {
			best = append(best, node)
		}
	}
	scheduled.create(made)
	scheduled.until("pod "+name+" is bound", func() error { return scheduled.bound(name) })
	node, err := scheduled.nodeOf(name)
	if err != nil || !slices.Contains(best, node) {
		t.Fatalf("%s went to %s, the best are %v: %v", name, node, best, err)
	}
	return node
}

// landsWherePumiceSays: packed, and after a reload, without a restart, spread.
func (scheduled *scheduledCluster) landsWherePumiceSays(t *testing.T) {
	started := time.Now()
	scheduled.until("Pumice has been told of the nodes", func() error {
		scheduled.wakeUp()
		list, err := scheduled.server.ListNodes(context.Background(), &pb.ListNodesRequest{})
		if err == nil && len(list.GetNodes()) != 6 {
			err = errors.New("not all are there")
		}
		return err
	})
	t.Logf("told of the nodes after %s", time.Since(started))
	packed := map[string]bool{}
	for number := range 5 {
		packed[scheduled.landsOn(t, fmt.Sprintf("pack-%d", number), "pumice")] = true
	}
	scheduled.reload("default", spread)
	apart := map[string]bool{}
	for number := range 5 {
		apart[scheduled.landsOn(t, fmt.Sprintf("spread-%d", number), "pumice")] = true
	}
	if len(packed) > 2 || len(apart) < 3 {
		t.Fatalf("packed on %v, spread over %v", packed, apart)
	}
}

// wakeUp makes the first pod: the scheduler tells Pumice of the nodes when it first schedules.
func (scheduled *scheduledCluster) wakeUp() {
	made := pod("first", "pumice", "100m", 0, nil)
	if _, err := scheduled.client.CoreV1().Pods("default").Get(context.Background(), made.Name, metav1.GetOptions{}); err != nil {
		scheduled.create(made)
	}
}

// cardQuota makes a queue with a job, and returns a function that sets the number of its cards.
func (scheduled *scheduledCluster) cardQuota() func(number int) {
	queues := scheduled.server.Feed("queues", 0)
	return func(number int) {
		scheduled.t.Helper()
		queues.Put(&pb.Cluster{
			Queues: []*pb.Queue{{Name: "team", Annotations: map[string]string{"volcano.sh/card.quota": fmt.Sprintf(`{"A100": %d}`, number)}}},
			Jobs:   []*pb.Job{{Name: "default/train", Queue: "team", MinMember: 1}},
		})
		if outcome, err := queues.Flush(context.Background()); err != nil || len(outcome.GetRefused()) > 0 {
			scheduled.t.Fatal(outcome, err)
		}
	}
}

// waitsForItsQueue: over its quota a pod stays pending and its event says why; with more quota it goes.
func (scheduled *scheduledCluster) waitsForItsQueue(t *testing.T) {
	quota := scheduled.cardQuota()
	quota(4)
	annotations := map[string]string{"scheduling.k8s.io/group-name": "train", "volcano.sh/card.name": "A100"}
	scheduled.create(pod("train-0", "cards", "1", 4, annotations))
	scheduled.until("the pod within the quota is bound", func() error { return scheduled.bound("train-0") })
	scheduled.create(pod("train-1", "cards", "1", 2, annotations))
	scheduled.until("the pod over the quota says why it waits", func() error { return scheduled.said("train-1", "capacity-card: ") })
	if scheduled.bound("train-1") == nil {
		t.Fatal("a pod over its quota has a node")
	}
	quota(8)
	scheduled.until("the pod is bound with more quota", func() error { return scheduled.bound("train-1") })
}

// hasKoordinatorsScores: kube-scheduler logs what every plugin gave, and that is what Pumice answers, number by number.
func (scheduled *scheduledCluster) hasKoordinatorsScores(t *testing.T, log string) {
	made := pod("koord", "koord", "3", 0, nil)
	item := scheduled.scores(t, "koord", made)
	scheduled.create(made)
	scheduled.until("the pod of koord is bound", func() error { return scheduled.bound("koord") })
	text, err := os.ReadFile(log)
	if err != nil {
		t.Fatal(err)
	}
	line := regexp.MustCompile(`"Plugin scored node for pod" pod="default/koord" plugin="(\w+)" node="([\w-]+)" score=(\d+)`)
	logged, different := map[string]string{}, map[string]bool{}
	for _, match := range line.FindAllStringSubmatch(string(text), -1) {
		logged[match[1]+" "+match[2]] = match[3]
		different[match[3]] = true
	}
	if len(logged) != 2*len(item.GetNodes().GetNames()) || len(item.GetParts()) != 2 || len(different) < 3 {
		t.Fatal(logged, item.GetParts())
	}
	for _, part := range item.GetParts() {
		for at, node := range item.GetNodes().GetNames() {
			score := part.GetScores()[at]
			if score < 0 || score > 100 || logged[part.GetPlugin()+" "+node] != fmt.Sprint(score) {
				t.Fatalf("%s on %s: %v, kube-scheduler has %s", part.GetPlugin(), node, score, logged[part.GetPlugin()+" "+node])
			}
		}
	}
}

// followsTheChoiceWhileAway: the profile that fails closed lets its pods wait and says so, the open one binds.
func (scheduled *scheduledCluster) followsTheChoiceWhileAway(t *testing.T) {
	scheduled.create(pod("away-closed", "pumice", "1", 0, nil))
	scheduled.create(pod("away-open", "open", "1", 0, nil))
	scheduled.until("the pod says that the service is away", func() error { return scheduled.said("away-closed", kubescheduler.UnavailableReason) })
	scheduled.until("the pod is bound without the service", func() error { return scheduled.bound("away-open") })
	if scheduled.bound("away-closed") == nil {
		t.Fatal("it fails closed, and yet a pod has a node")
	}
}
