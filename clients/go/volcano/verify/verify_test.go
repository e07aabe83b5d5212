// Package verify runs whole cycles of Volcano's scheduler, and compares what every function of its plugins returns with
// Pumice's answer, call by call.
package verify

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"testing"
	"time"

	pumice "github.com/pumice-scheduler/pumice/clients/go"
	"github.com/pumice-scheduler/pumice/clients/go/cycle"
	"github.com/pumice-scheduler/pumice/clients/go/internal/testserver"
	plugins "github.com/pumice-scheduler/pumice/clients/go/volcano"

	"github.com/prometheus/client_golang/prometheus"
	v1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	schedulingv1 "volcano.sh/apis/pkg/apis/scheduling/v1beta1"
	"volcano.sh/volcano/cmd/scheduler/app/options"
	"volcano.sh/volcano/pkg/scheduler/actions/allocate"
	"volcano.sh/volcano/pkg/scheduler/actions/backfill"
	"volcano.sh/volcano/pkg/scheduler/actions/enqueue"
	"volcano.sh/volcano/pkg/scheduler/actions/preempt"
	"volcano.sh/volcano/pkg/scheduler/actions/reclaim"
	"volcano.sh/volcano/pkg/scheduler/api"
	"volcano.sh/volcano/pkg/scheduler/conf"
	"volcano.sh/volcano/pkg/scheduler/framework"
	"volcano.sh/volcano/pkg/scheduler/plugins/conformance"
	"volcano.sh/volcano/pkg/scheduler/plugins/gang"
	"volcano.sh/volcano/pkg/scheduler/plugins/overcommit"
	"volcano.sh/volcano/pkg/scheduler/plugins/priority"
	"volcano.sh/volcano/pkg/scheduler/plugins/proportion"
	"volcano.sh/volcano/pkg/scheduler/uthelper"
	"volcano.sh/volcano/pkg/scheduler/util"
)

// local are in-tree plugins that share the tiers.
var local = map[string]framework.PluginBuilder{
	gang.PluginName: gang.New, priority.PluginName: priority.New, conformance.PluginName: conformance.New,
	overcommit.PluginName: overcommit.New, proportion.PluginName: proportion.New,
}

func withPumice() map[string]framework.PluginBuilder {
	all := map[string]framework.PluginBuilder{}
	for name, builder := range local {
		all[name] = builder
	}
	for _, name := range plugins.Names() {
		all[name] = func(arguments framework.Arguments) framework.Plugin { return plugins.New(name, arguments) }
	}
	return all
}

// entry is a plugin with everything switched on.
func entry(name string, arguments map[string]any, hierarchy bool) conf.PluginOption {
	on := true
	option := conf.PluginOption{Name: name, Arguments: arguments}
	plugins := []**bool{
		&option.EnabledJobOrder, &option.EnabledJobReady, &option.EnabledJobPipelined, &option.EnabledTaskOrder,
		&option.EnabledPreemptable, &option.EnabledReclaimable, &option.EnablePreemptive, &option.EnabledQueueOrder,
		&option.EnabledPredicate, &option.EnabledBestNode, &option.EnabledNodeOrder, &option.EnabledJobEnqueued,
		&option.EnabledJobStarving, &option.EnabledOverused, &option.EnabledAllocatable, &option.EnabledVictim,
		&option.EnabledSubJobReady, &option.EnabledSubJobPipelined, &option.EnabledSubJobOrder,
	}
	for _, plugin := range plugins {
		*plugin = &on
	}
	option.EnabledHierarchy = &hierarchy
	return option
}

func tiers(list ...[]conf.PluginOption) (made []conf.Tier) {
	for _, plugins := range list {
		made = append(made, conf.Tier{Plugins: plugins})
	}
	return made
}

// scenario is a random cluster.
type scenario struct {
	tiers    []conf.Tier
	queues   []*schedulingv1.Queue
	groups   []*schedulingv1.PodGroup
	pods     []*v1.Pod
	nodes    []*v1.Node
	quotas   []*v1.ResourceQuota
	budgets  []*policyv1.PodDisruptionBudget
	priority []string
}

type shape struct {
	nodes, queues, jobs, tasks int
	hierarchy, full, cards     bool
	// distinct nodes have no equal scores: of equal ones Volcano draws lots. Uniform nodes are of two kinds.
	distinct, uniform bool
}

func random(seed uint64, shape shape) *scenario {
	dice := rand.New(rand.NewPCG(seed, 7))
	made := &scenario{}
	pick := func(of ...string) string { return of[dice.IntN(len(of))] }
	for number := range shape.nodes {
		scalars := []api.ScalarResource{{Name: "pods", Value: "110"}}
		if number%3 == 0 {
			scalars = append(scalars, api.ScalarResource{Name: "example.com/gpu", Value: pick("2", "4", "8")})
		}
		cpu, memory := pick("4", "8", "16", "7.5"), pick("8Gi", "16Gi", "10G")
		switch {
		case shape.distinct:
			cpu, memory = fmt.Sprintf("%dm", 6000+number*317), fmt.Sprintf("%dMi", 9000+number*211)
		case shape.uniform:
			cpu, memory = "16", "16Gi"
		}
		made.nodes = append(made.nodes, util.BuildNode(fmt.Sprintf("n%03d", number),
			api.BuildResourceList(cpu, memory, scalars...), map[string]string{}))
	}
	paths := []string{"root/eng/dev", "root/eng/prod", "root/sci", "root/ops/day", "root/ops/night"}
	weights := []string{"100/50/50", "100/50/30", "100/20", "100/30/1", "100/30/9"}
	for number := range shape.queues {
		name := fmt.Sprintf("q%d", number)
		annotations := map[string]string{}
		if shape.hierarchy {
			annotations[schedulingv1.KubeHierarchyAnnotationKey] = paths[number%len(paths)]
			annotations[schedulingv1.KubeHierarchyWeightAnnotationKey] = weights[number%len(weights)]
		}
		queue := util.BuildQueueWithAnnos(name, int32(dice.IntN(4)+1), nil, annotations)
		queue.CreationTimestamp = metav1.Unix(int64(1000+dice.IntN(5)), 0)
		made.queues = append(made.queues, queue)
	}
	free := map[string]int{}
	for number := range shape.jobs {
		name, queue := fmt.Sprintf("j%02d", number), fmt.Sprintf("q%d", number%shape.queues)
		tasks := dice.IntN(shape.tasks) + 1
		running := shape.full && dice.IntN(3) > 0
		phase := schedulingv1.PodGroupPending
		if running {
			phase = schedulingv1.PodGroupRunning
		}
		least := int32(1)
		if !running {
			least = int32(dice.IntN(tasks) + 1)
		}
		group := util.BuildPodGroupWithMinResources(name, "ns", queue, least, nil, api.BuildResourceList("1", "1Gi"), phase)
		group.CreationTimestamp = metav1.Unix(int64(2000+dice.IntN(5)), 0)
		made.groups = append(made.groups, group)
		request := api.BuildResourceList(pick("500m", "1", "2", "1500m"), pick("512Mi", "1Gi", "3Gi", "1G"))
		if shape.cards && dice.IntN(3) == 0 {
			request["example.com/gpu"] = api.BuildResourceList("", "", api.ScalarResource{Name: "example.com/gpu", Value: "1"})["example.com/gpu"]
		}
		for task := range tasks {
			node, state := "", v1.PodPending
			if running {
				node, state = fmt.Sprintf("n%03d", dice.IntN(shape.nodes)), v1.PodRunning
				if free[node]++; free[node] > 3 {
					continue
				}
			}
			pod := util.BuildPod("ns", fmt.Sprintf("%s-%d", name, task), node, state, request, name, map[string]string{}, map[string]string{})
			pod.CreationTimestamp = metav1.Unix(3000, 0)
			if dice.IntN(8) == 0 {
				pod.Annotations["volcano.sh/resource-strategy-scoring-type"] = pick("MostAllocated", "LeastAllocated")
				pod.Annotations["volcano.sh/resource-strategy-weight"] = pick(`{"cpu": 3, "memory": 1}`, `{"cpu": 1.5}`, `{"pods": 1, "cpu": 2}`)
			}
			made.pods = append(made.pods, pod)
		}
	}
	return made
}

// shares compares the shares that the in-tree plugin publishes with Pumice's, after each event.
func shares(session *framework.Session, comparison *cycle.Comparison) {
	compare := func(*framework.Event) {
		cycle := plugins.CycleOf(session)
		families, err := prometheus.DefaultGatherer.Gather()
		if cycle == nil || err != nil {
			return
		}
		for _, family := range families {
			if family.GetName() != "volcano_job_share" {
				continue
			}
			for _, metric := range family.GetMetric() {
				labels := map[string]string{}
				for _, label := range metric.GetLabel() {
					labels[label.GetName()] = label.GetValue()
				}
				job := labels["job_ns"] + "/" + labels["job_id"]
				if session.Jobs[api.JobID(job)] == nil || session.IsJobTerminated(api.JobID(job)) {
					continue
				}
				used, own := metric.GetGauge().GetValue(), cycle.JobKey("drf", job)
				comparison.Add("drf/share after event", len(own) == 1 && own[0] == used, func() string { return job }, used, own)
			}
		}
	}
	session.AddEventHandler(&framework.EventHandler{AllocateFunc: compare, DeallocateFunc: compare})
}

func (scenario *scenario) run(t testing.TB, comparison *cycle.Comparison, follow bool, actions ...framework.Action) {
	t.Helper()
	// Volcano's harness reads who is enabled while a session opens.
	conf.EnabledActionMap = map[string]bool{}
	for _, action := range actions {
		conf.EnabledActionMap[action.Name()] = true
	}
	harness := uthelper.TestCommonStruct{
		Plugins: withPumice(), Pods: scenario.pods, Nodes: scenario.nodes, PodGroups: scenario.groups, Queues: scenario.queues,
	}
	session := harness.RegisterSession(scenario.tiers, nil)
	if own := plugins.CycleOf(session); own == nil || own.Err() != nil || len(own.RefusedRecords()) > 0 {
		t.Fatal(own.Err(), own.RefusedRecords())
	}
	if follow {
		shares(session, comparison)
	}
	harness.Run(actions)
	if err := plugins.CycleOf(session).Err(); err != nil {
		t.Error(err)
	}
	harness.Close()
}

func configure(t testing.TB, comparison *cycle.Comparison) {
	t.Helper()
	options.Default()
	err := plugins.Configure(plugins.Settings{
		Target: testserver.Start(t).Address, Shadow: true, Comparison: comparison, Client: pumice.Options{Timeout: 5 * time.Minute},
		Cycle: cycle.Settings{PolicyMode: cycle.PushPolicy, Compatibility: plugins.Release(), Budget: cycle.Budget{Calls: -1, Time: -1}, VerifyEvery: 1, KeepFor: -1, Observer: strict{t: t}},
	})
	if err != nil {
		t.Fatal(err)
	}
}

// clusters returns the seeds of the clusters of each suite: CLUSTERS of them, or 30, from a number that SEED gives; or the
// one CLUSTER that a failure has named.
func clusters(t testing.TB) (seeds []uint64) {
	number := func(name string, without uint64) uint64 {
		text := os.Getenv(name)
		if text == "" {
			return without
		}
		read, err := strconv.ParseUint(text, 10, 32)
		if err != nil {
			t.Fatal(name, err)
		}
		return read
	}
	if one := os.Getenv("CLUSTER"); one != "" {
		return []uint64{number("CLUSTER", 0)}
	}
	first := number("SEED", 0) * 1_000_000
	for at := range number("CLUSTERS", 30) {
		seeds = append(seeds, first+at)
	}
	return seeds
}

// count notes compared calls in the file that COUNTS names.
func count(t testing.TB, hook string, calls, differences uint64) {
	path := os.Getenv("COUNTS")
	if path == "" {
		return
	}
	file, err := os.OpenFile(path, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err == nil {
		_, err = fmt.Fprintf(file, "%s\t%d\t%d\n", hook, calls, differences)
		err = errors.Join(err, file.Close())
	}
	if err != nil {
		t.Fatal(err)
	}
}

// report lets no difference pass, and no hook that nobody called.
func report(t *testing.T, comparison *cycle.Comparison, called ...string) {
	t.Helper()
	for _, name := range called {
		if !slices.ContainsFunc(comparison.Hooks(), func(hook cycle.HookComparison) bool { return hook.Hook == name }) {
			t.Errorf("%s was not called", name)
		}
	}
	for _, hook := range comparison.Hooks() {
		count(t, t.Name()+" "+hook.Hook, hook.Calls, hook.Differences)
		t.Logf("%-40s %8d calls %6d differences", hook.Hook, hook.Calls, hook.Differences)
		if hook.Differences > 0 {
			t.Errorf("%s differs", hook.Hook)
		}
		for _, sample := range hook.Samples {
			t.Log("   ", sample)
		}
	}
}

// strict lets nothing pass that an operator would want to know.
type strict struct {
	cycle.NoObserver
	t testing.TB
}

func (strict strict) Unavailable(err error) { strict.t.Error(err) }
func (strict strict) Drifted(nodes []string) {
	strict.t.Error("usage differs on", nodes)
}

var strategies = []map[string]any{
	{"resourceStrategyFitWeight": 10},
	{"resourceStrategyFitWeight": 3, "resources": map[string]any{
		"cpu": map[string]any{"type": "MostAllocated", "weight": 2}, "memory": map[string]any{"type": "LeastAllocated", "weight": 1},
		"example.com/*": map[string]any{"type": "MostAllocated", "weight": 5}}},
	{"resources": map[string]any{"nvidia.com/*": map[string]any{"type": "MostAllocated", "weight": 5}, "pods": map[string]any{"type": "LeastAllocated", "weight": 1}},
		"sra": map[string]any{"enable": true, "resources": "example.com/gpu", "weight": 7, "resourceWeight": map[string]any{"example.com/gpu": 3}}},
	{"resourceStrategyFitWeight": 0, "sra": map[string]any{"enable": true, "resources": "example.com/gpu,cpu", "weight": 10}},
	{"proportional": map[string]any{"enable": true, "resources": "example.com/gpu",
		"resourceProportion": map[string]any{"example.com/gpu.cpu": 1, "example.com/gpu.memory": 1.5}}},
}

func TestResourceStrategyFit(t *testing.T) {
	comparison := &cycle.Comparison{}
	configure(t, comparison)
	for _, seed := range clusters(t) {
		made := random(seed, shape{nodes: 20, queues: 2, jobs: 10, tasks: 6, full: seed%2 == 0, cards: true})
		made.tiers = tiers(
			[]conf.PluginOption{entry("priority", nil, false), entry("gang", nil, false)},
			[]conf.PluginOption{entry("resource-strategy-fit", strategies[seed%uint64(len(strategies))], false), entry("binpack", map[string]any{"binpack.cpu": 2, "binpack.resources": "example.com/gpu"}, false)},
		)
		made.run(t, comparison, false, enqueue.New(), allocate.New(), backfill.New(), preempt.New())
	}
	report(t, comparison, "resource-strategy-fit/NodeOrder", "resource-strategy-fit/Predicate", "binpack/NodeOrder")
}

// TestGangs has large jobs on nodes that are alike, so that most results are those of another node.
func TestGangs(t *testing.T) {
	comparison := &cycle.Comparison{}
	configure(t, comparison)
	for _, seed := range clusters(t) {
		made := random(seed+2000, shape{nodes: 24, queues: 2, jobs: 8, tasks: 24, full: seed%2 == 0, cards: true, uniform: true})
		made.tiers = tiers(
			[]conf.PluginOption{entry("priority", nil, false), entry("gang", nil, false)},
			[]conf.PluginOption{entry("resource-strategy-fit", strategies[seed%uint64(len(strategies))], false), entry("binpack", nil, false)},
		)
		made.run(t, comparison, false, enqueue.New(), allocate.New(), backfill.New(), preempt.New())
	}
	report(t, comparison, "resource-strategy-fit/NodeOrder", "resource-strategy-fit/Predicate", "binpack/NodeOrder")
}

func TestDRF(t *testing.T) {
	comparison := &cycle.Comparison{}
	configure(t, comparison)
	for _, seed := range clusters(t) {
		made := random(seed, shape{nodes: 6, queues: 2, jobs: 14, tasks: 6, full: true, cards: true})
		made.tiers = tiers(
			[]conf.PluginOption{entry("gang", nil, false), entry("drf", nil, false), entry("conformance", nil, false)},
			[]conf.PluginOption{entry("proportion", nil, false), entry("overcommit", nil, false), entry("resource-strategy-fit", nil, false)},
		)
		made.run(t, comparison, true, enqueue.New(), allocate.New(), preempt.New(), reclaim.New())
	}
	report(t, comparison, "drf/JobOrder", "drf/Preemptable", "drf/Preemptable, with victims", "drf/share after event")
}

func TestHierarchicalDRF(t *testing.T) {
	comparison := &cycle.Comparison{}
	configure(t, comparison)
	for _, seed := range clusters(t) {
		made := random(seed, shape{nodes: 6, queues: 5, jobs: 15, tasks: 6, full: true, cards: seed%2 == 0, hierarchy: true})
		made.tiers = tiers(
			[]conf.PluginOption{entry("gang", nil, false), entry("drf", nil, true)},
			[]conf.PluginOption{entry("resource-strategy-fit", nil, false)},
		)
		made.run(t, comparison, true, enqueue.New(), allocate.New(), reclaim.New(), preempt.New())
	}
	report(t, comparison, "drf/QueueOrder", "drf/JobOrder", "drf/Reclaimable", "drf/Reclaimable, with victims",
		"drf/Preemptable", "drf/Preemptable, with victims", "drf/share after event")
}
