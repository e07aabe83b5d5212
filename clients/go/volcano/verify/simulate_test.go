package verify

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/pumice-scheduler/pumice/clients/go/internal/testserver"
	plugins "github.com/pumice-scheduler/pumice/clients/go/volcano"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	kube "k8s.io/apimachinery/pkg/runtime"
	schedulingv1 "volcano.sh/apis/pkg/apis/scheduling/v1beta1"
	"volcano.sh/volcano/cmd/scheduler/app/options"
	"volcano.sh/volcano/pkg/scheduler/conf"
	"volcano.sh/volcano/pkg/scheduler/framework"
	"volcano.sh/volcano/pkg/scheduler/plugins/nodeorder"
	"volcano.sh/volcano/pkg/scheduler/plugins/predicates"
	"volcano.sh/volcano/pkg/scheduler/uthelper"
)

// stockPolicy is the configuration of Volcano's chart, with other actions, as the release has it.
func stockPolicy(t *testing.T, actions []framework.Action) []byte {
	t.Helper()
	chart, err := os.ReadFile("../../../../examples/queues/policy.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, action := range actions {
		names = append(names, action.Name())
	}
	all := strings.Replace(string(chart), "enqueue, allocate, backfill", strings.Join(names, ", "), 1)
	return []byte(all + "pumice: {compatibility: " + plugins.Release() + "}\n")
}

func stockTiers() []conf.Tier {
	without := func(name string) conf.PluginOption {
		off := false
		option := entry(name, nil, false)
		option.EnabledPreemptable = &off
		return option
	}
	return tiers(
		[]conf.PluginOption{entry("priority", nil, false), without("gang"), entry("conformance", nil, false)},
		[]conf.PluginOption{
			entry("overcommit", nil, false), without("drf"), entry("predicates", nil, false), entry("proportion", nil, false),
			entry("nodeorder", nil, false), entry("binpack", nil, false),
		},
	)
}

// stockEnd is where one cycle of Volcano leaves each task, in the words of `pumice simulate --tasks`.
func (scenario *scenario) stockEnd(t *testing.T, tiers []conf.Tier, actions []framework.Action) []string {
	t.Helper()
	conf.EnabledActionMap = map[string]bool{}
	for _, action := range actions {
		conf.EnabledActionMap[action.Name()] = true
	}
	builders := inTree()
	builders[predicates.PluginName], builders[nodeorder.PluginName] = predicates.New, nodeorder.New
	for name, plugin := range further {
		builders[name] = plugin.builder
	}
	harness := uthelper.TestCommonStruct{
		Plugins: builders, Pods: scenario.pods, Nodes: scenario.nodes, PodGroups: scenario.groups, Queues: scenario.queues,
		ResourceQuotas: scenario.quotas,
	}
	session := harness.RegisterSession(tiers, nil)
	scenario.seeBudgets(t, session)
	harness.Run(actions)
	var lines []string
	for _, job := range session.Jobs {
		for _, task := range job.Tasks {
			status, node := strings.ToUpper(task.Status.String()), task.NodeName
			switch status {
			case "BINDING", "BOUND":
				status = "RUNNING"
			case "ALLOCATED":
				// Nobody commits it.
				status, node = "PENDING", ""
			}
			lines = append(lines, fmt.Sprintf("%s/%s %s %s", task.Namespace, task.Name, status, node))
		}
	}
	harness.Close()
	slices.Sort(lines)
	return lines
}

// group gives some jobs policies about groups, and their pods labels and priorities.
func (scenario *scenario) group(seed uint64) {
	dice := rand.New(rand.NewPCG(seed, 11))
	pods := map[string][]*v1.Pod{}
	for _, pod := range scenario.pods {
		job := pod.Annotations[schedulingv1.KubeGroupNameAnnotationKey]
		pods[job] = append(pods[job], pod)
	}
	number := func(least, most int) *int32 {
		number := int32(least + dice.IntN(most-least+1))
		return &number
	}
	for _, group := range scenario.groups {
		if dice.IntN(3) == 0 {
			continue
		}
		policy := schedulingv1.SubGroupPolicySpec{Name: "part", MatchLabelKeys: []string{"part"}}
		if dice.IntN(4) > 0 {
			policy.SubGroupSize = number(1, 3)
		}
		if dice.IntN(3) > 0 {
			policy.MinSubGroups = number(0, 2)
		}
		policies := []schedulingv1.SubGroupPolicySpec{policy}
		if dice.IntN(3) == 0 {
			policies[0].LabelSelector = &metav1.LabelSelector{MatchLabels: map[string]string{"role": "a"}}
			other := schedulingv1.SubGroupPolicySpec{Name: "other", MatchLabelKeys: []string{"role", "part"}, SubGroupSize: number(1, 2)}
			policies = append(policies, other)
		}
		group.Spec.SubGroupPolicy = policies
		parts := 1 + dice.IntN(3)
		for _, pod := range pods[group.Name] {
			if dice.IntN(6) > 0 {
				pod.Labels["part"] = fmt.Sprint(dice.IntN(parts) * 9)
			}
			pod.Labels["role"] = string("ab"[dice.IntN(2)])
			if dice.IntN(4) == 0 {
				pod.Spec.Priority = number(-2, 3)
			}
		}
	}
}

// list is the cluster as `kubectl get -o json` writes it.
func (scenario *scenario) list(t *testing.T) []byte {
	t.Helper()
	list := unstructured.UnstructuredList{Object: map[string]any{"apiVersion": "v1", "kind": "List"}}
	add := func(version, kind string, object any) {
		made, err := kube.DefaultUnstructuredConverter.ToUnstructured(object)
		if err != nil {
			t.Fatal(err)
		}
		item := unstructured.Unstructured{Object: made}
		item.SetAPIVersion(version)
		item.SetKind(kind)
		list.Items = append(list.Items, item)
	}
	for _, node := range scenario.nodes {
		add("v1", "Node", node)
	}
	for _, queue := range scenario.queues {
		add("scheduling.volcano.sh/v1beta1", "Queue", queue)
	}
	for _, group := range scenario.groups {
		add("scheduling.volcano.sh/v1beta1", "PodGroup", group)
	}
	for _, pod := range scenario.pods {
		add("v1", "Pod", pod)
	}
	// Quotas and budgets are parts of its record.
	add("v1", "Namespace", &v1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "ns"}})
	for _, quota := range scenario.quotas {
		add("v1", "ResourceQuota", quota)
	}
	for _, budget := range scenario.budgets {
		add("policy/v1", "PodDisruptionBudget", budget)
	}
	text, err := list.MarshalJSON()
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// simulatedEnd is where the first cycle of `pumice simulate` leaves each task. Nothing: no task of the cluster waits.
func (scenario *scenario) simulatedEnd(t *testing.T, folder string, policy []byte) []string {
	t.Helper()
	path := func(name string) string { return filepath.Join(folder, name) }
	for name, text := range map[string][]byte{"cluster.json": scenario.list(t), "policy.yaml": policy} {
		if err := os.WriteFile(path(name), text, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	// All arrive at once, and no second cycle begins.
	command := exec.Command(testserver.Binary(), "simulate", path("cluster.json"), "--policy", path("policy.yaml"), "--cycles",
		"--arrival-speedup", "1e12", "--after", "0", "--tasks", path("tasks.jsonl"))
	if output, err := command.CombinedOutput(); err != nil {
		if strings.Contains(string(output), "no task that waits") {
			return nil
		}
		t.Fatalf("%v: %s", err, output)
	}
	written, err := os.ReadFile(path("tasks.jsonl"))
	if err != nil {
		t.Fatal(err)
	}
	var lines []string
	for scanner := bufio.NewScanner(bytes.NewReader(written)); scanner.Scan(); {
		var task struct{ Task, Status, Node string }
		if err := json.Unmarshal(scanner.Bytes(), &task); err != nil {
			t.Fatal(err)
		}
		lines = append(lines, fmt.Sprintf("%s %s %s", task.Task, task.Status, task.Node))
	}
	slices.Sort(lines)
	return lines
}

// simulated is a random cluster whose nodes have no equal scores.
func simulated(seed, kind uint64) *scenario {
	scenario := random(seed+kind, shape{nodes: 6, queues: 4, jobs: 15, tasks: 6, full: seed%4 != 0, cards: seed%2 == 0, distinct: true})
	// Pods of other schedulers have other priorities.
	for _, pod := range scenario.pods {
		pod.Spec.SchedulerName = "volcano"
	}
	return scenario
}

// inTreeEnds runs Volcano three times, and on until it ends as Pumice does. Nothing: it crashed.
func inTreeEnds(end string, run func() (string, bool)) map[string]int {
	ends := map[string]int{}
	for tries := 0; tries < 3 || tries < mostRuns && ends[end] == 0; tries++ {
		theirs, ended := run()
		if !ended {
			return nil
		}
		ends[theirs]++
	}
	return ends
}

// TestSimulate compares the first cycle of `pumice simulate --cycles` under the configuration of Volcano's chart, with the
// actions in any order, with whole cycles of Volcano: the simulation ends as some run of Volcano does.
func TestSimulate(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	options.Default()
	folder, alone, runs := t.TempDir(), 0, 0
	statuses := map[string]int{}
	for _, seed := range clusters(t) {
		made := func() *scenario {
			scenario := simulated(seed, 3000)
			if seed%3 == 0 {
				scenario.group(seed)
			}
			return scenario
		}
		ours := made().simulatedEnd(t, folder, stockPolicy(t, actionsOf(seed)))
		if ours == nil {
			continue
		}
		end := strings.Join(ours, "\n")
		ends := inTreeEnds(end, func() (string, bool) {
			runs++
			return strings.Join(made().stockEnd(t, stockTiers(), actionsOf(seed)), "\n"), true
		})
		count(t, "simulated cycles", 1, 0)
		if ends[end] == 0 {
			nearest := nearestEnd(ours, ends)
			t.Errorf("cluster %d ends as none of %d in-tree runs (%d ends); the nearest differs in\n%s", seed, mostRuns, len(ends), nearest)
		}
		if len(ends) == 1 {
			alone++
		}
		for _, line := range ours {
			statuses[strings.Fields(line)[1]]++
		}
	}
	t.Logf("%d clusters, %d of them with one end in all in-tree runs (%d): %v", len(clusters(t)), alone, runs, statuses)
	for _, status := range []string{"RUNNING", "PENDING", "PIPELINED", "RELEASING"} {
		if statuses[status] == 0 {
			t.Errorf("no task ended as %s", status)
		}
	}
}

// nearestEnd lists what differs between an end and the in-tree one that is most like it.
func nearestEnd(ours []string, ends map[string]int) string {
	var nearest []string
	for end := range ends {
		lines := strings.Split(end, "\n")
		var differing []string
		for _, line := range ours {
			if !slices.Contains(lines, line) {
				differing = append(differing, "Pumice:  "+line)
			}
		}
		for _, line := range lines {
			if !slices.Contains(ours, line) {
				differing = append(differing, "Volcano: "+line)
			}
		}
		if nearest == nil || len(differing) < len(nearest) {
			nearest = differing
		}
	}
	return strings.Join(nearest, "\n")
}
