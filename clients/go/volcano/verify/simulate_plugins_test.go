package verify

import (
	"context"
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	plugins "github.com/pumice-scheduler/pumice/clients/go/volcano"

	v1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	schedulingv1 "volcano.sh/apis/pkg/apis/scheduling/v1beta1"
	"volcano.sh/volcano/cmd/scheduler/app/options"
	"volcano.sh/volcano/pkg/scheduler/conf"
	"volcano.sh/volcano/pkg/scheduler/framework"
	"volcano.sh/volcano/pkg/scheduler/plugins/cdp"
	"volcano.sh/volcano/pkg/scheduler/plugins/nodegroup"
	"volcano.sh/volcano/pkg/scheduler/plugins/pdb"
	"volcano.sh/volcano/pkg/scheduler/plugins/resourcequota"
	tasktopology "volcano.sh/volcano/pkg/scheduler/plugins/task-topology"
	"volcano.sh/volcano/pkg/scheduler/plugins/tdm"
)

// lastRelease is the release whose rules of these plugins were recorded.
const lastRelease = "volcano-ed72c7c81"

// further are plugins beside those of Volcano's chart, each with its arguments and the part of a cluster that it reads.
var further = map[string]struct {
	builder   framework.PluginBuilder
	arguments map[string]any
	decorate  func(*scenario, *rand.Rand)
}{
	"task-topology": {tasktopology.New, nil, (*scenario).withRoles},
	"tdm":           {tdm.New, map[string]any{"tdm.revocable-zone.rz1": "00:00-23:59"}, (*scenario).withZones},
	"cdp":           {cdp.New, nil, (*scenario).withCooldowns},
	"pdb":           {pdb.New, nil, (*scenario).withBudgets},
	"nodegroup":     {nodegroup.New, nil, (*scenario).withNodeGroups},
	"resourcequota": {resourcequota.New, nil, (*scenario).withQuotas},
}

func annotate(object metav1.Object, name, value string) {
	annotations := object.GetAnnotations()
	if annotations == nil {
		annotations = map[string]string{}
	}
	annotations[name] = value
	object.SetAnnotations(annotations)
}

func label(object metav1.Object, name, value string) {
	labels := object.GetLabels()
	if labels == nil {
		labels = map[string]string{}
	}
	labels[name] = value
	object.SetLabels(labels)
}

// withRoles gives pods roles, and some jobs wishes of how the roles lie.
func (scenario *scenario) withRoles(dice *rand.Rand) {
	for _, pod := range scenario.pods {
		annotate(pod, "volcano.sh/task-spec", []string{"ps", "worker", "chief"}[dice.IntN(3)])
	}
	for _, group := range scenario.groups {
		if dice.IntN(3) > 0 {
			annotate(group, "volcano.sh/task-topology-affinity", "ps,worker")
		}
		if dice.IntN(3) == 0 {
			annotate(group, "volcano.sh/task-topology-anti-affinity", []string{"ps", "chief", "worker,chief"}[dice.IntN(3)])
		}
		if dice.IntN(3) == 0 {
			annotate(group, "volcano.sh/task-topology-task-order", "worker,ps")
		}
	}
}

// withZones puts nodes into an open zone and one that no argument names, and lets some pods use them.
func (scenario *scenario) withZones(dice *rand.Rand) {
	for _, node := range scenario.nodes {
		if zone := []string{"", "", "rz1", "rz2"}[dice.IntN(4)]; zone != "" {
			label(node, "volcano.sh/revocable-zone", zone)
		}
	}
	for _, group := range scenario.groups {
		if dice.IntN(2) == 0 {
			annotate(group, "volcano.sh/preemptable", "true")
		}
	}
	for _, pod := range scenario.pods {
		switch dice.IntN(4) {
		case 0:
			annotate(pod, "volcano.sh/revocable-zone", "*")
		case 1:
			annotate(pod, "volcano.sh/preemptable", "true")
		}
	}
}

// withCooldowns protects some running pods for longer than this test can last, and some for a time that is over.
func (scenario *scenario) withCooldowns(dice *rand.Rand) {
	for _, pod := range scenario.pods {
		if dice.IntN(3) > 0 {
			annotate(pod, "volcano.sh/cooldown-time", []string{"10m", "1000000h", "soon"}[dice.IntN(3)])
		}
		if pod.Spec.NodeName != "" {
			scheduled := v1.PodCondition{Type: v1.PodScheduled, Status: v1.ConditionTrue, LastTransitionTime: metav1.Unix(1000, 0)}
			pod.Status.Conditions = append(pod.Status.Conditions, scheduled)
		}
	}
}

// withBudgets bounds how many pods of some labels may be disrupted.
func (scenario *scenario) withBudgets(dice *rand.Rand) {
	for _, pod := range scenario.pods {
		if dice.IntN(4) > 0 {
			label(pod, "app", string("abc"[dice.IntN(3)]))
		}
	}
	for number, app := range []string{"a", "b"} {
		budget := &policyv1.PodDisruptionBudget{}
		budget.Name, budget.Namespace = fmt.Sprintf("budget-%d", number), "ns"
		budget.Spec.Selector = &metav1.LabelSelector{MatchLabels: map[string]string{"app": app}}
		budget.Status.DisruptionsAllowed = int32(dice.IntN(3))
		scenario.budgets = append(scenario.budgets, budget)
	}
}

// withNodeGroups puts nodes into groups, and binds queues to some of them within limits.
func (scenario *scenario) withNodeGroups(dice *rand.Rand) {
	for _, node := range scenario.nodes {
		label(node, "volcano.sh/nodegroup-name", string("ab"[dice.IntN(2)]))
	}
	for _, queue := range scenario.queues {
		affinity := &schedulingv1.NodeGroupAffinity{}
		if dice.IntN(2) == 0 {
			affinity.RequiredDuringSchedulingIgnoredDuringExecution = []string{"a", "b"}[:1+dice.IntN(2)]
		} else {
			affinity.PreferredDuringSchedulingIgnoredDuringExecution = []string{"b", "a"}
		}
		queue.Spec.Affinity = &schedulingv1.Affinity{NodeGroupAffinity: affinity}
		if dice.IntN(2) == 0 {
			annotate(queue, "volcano.sh/nodegroup-resource-limits", fmt.Sprintf(`{"a": {"cpu": "%d"}, "b": {"memory": "%dGi"}}`, 2+dice.IntN(8), 2+dice.IntN(8)))
		}
	}
}

// withQuotas bounds what the jobs of the namespace may request.
func (scenario *scenario) withQuotas(dice *rand.Rand) {
	for number := range 1 + dice.IntN(2) {
		quota := &v1.ResourceQuota{}
		quota.Name, quota.Namespace = fmt.Sprintf("quota-%d", number), "ns"
		amount := func(least, most int) v1.ResourceList {
			return v1.ResourceList{
				v1.ResourceCPU:    *resource.NewQuantity(int64(least+dice.IntN(most-least+1)), resource.DecimalSI),
				v1.ResourceMemory: *resource.NewQuantity(int64(least+dice.IntN(most-least+1))<<30, resource.BinarySI),
			}
		}
		quota.Status.Hard, quota.Status.Used = amount(4, 12), amount(0, 3)
		quota.Spec.Hard = quota.Status.Hard
		scenario.quotas = append(scenario.quotas, quota)
	}
}

// seeBudgets waits until the session's plugins see the budgets.
func (scenario *scenario) seeBudgets(t *testing.T, session *framework.Session) {
	t.Helper()
	client, lister := session.KubeClient().PolicyV1(), session.InformerFactory().Policy().V1().PodDisruptionBudgets().Lister()
	for _, budget := range scenario.budgets {
		if _, err := client.PodDisruptionBudgets(budget.Namespace).Create(context.Background(), budget, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	for {
		if seen, err := lister.List(labels.Everything()); err != nil || len(seen) == len(scenario.budgets) {
			return
		}
		time.Sleep(time.Millisecond)
	}
}

// withFurther adds plugins of these names to the second tier of Volcano's chart.
func withFurther(names []string) []conf.Tier {
	all := stockTiers()
	last := len(all) - 1
	for _, name := range names {
		all[last].Plugins = append(all[last].Plugins, entry(name, further[name].arguments, false))
	}
	return all
}

// furtherPolicy is the document of the same plugins.
func furtherPolicy(t *testing.T, names []string, actions []framework.Action) []byte {
	t.Helper()
	const last = "  - name: binpack\n"
	added := last
	for _, name := range names {
		added += "  - name: " + name + "\n"
		for argument, value := range further[name].arguments {
			added += fmt.Sprintf("    arguments: {%s: '%v'}\n", argument, value)
		}
	}
	return []byte(strings.Replace(string(stockPolicy(t, actions)), last, added, 1))
}

// furtherEnd is as stockEnd, and false where Volcano crashes: its task-topology counts a task twice that waits for room.
func (scenario *scenario) furtherEnd(t *testing.T, names []string, actions []framework.Action) (end string, ended bool) {
	t.Helper()
	defer func() {
		if crash := recover(); crash != nil {
			framework.CleanupPluginBuilders()
		}
	}()
	return strings.Join(scenario.stockEnd(t, withFurther(names), actions), "\n"), true
}

// TestSimulateFurtherPlugins compares first cycles as TestSimulate does, with some of the plugins that Volcano's chart does not name.
func TestSimulateFurtherPlugins(t *testing.T) {
	if plugins.Release() != lastRelease {
		t.Skipf("the rules of these plugins were recorded for %s only", lastRelease)
	}
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	options.Default()
	folder := t.TempDir()
	known := make([]string, 0, len(further))
	for name := range further {
		known = append(known, name)
	}
	slices.Sort(known)
	drawn, changed, crashes := map[string]int{}, map[string]int{}, 0
	for _, seed := range clusters(t) {
		dice := rand.New(rand.NewPCG(seed, 13))
		names := []string{known[int(seed)%len(known)]}
		if other := known[dice.IntN(len(known))]; other != names[0] {
			names = append(names, other)
		}
		made := func() *scenario {
			scenario := simulated(seed, 7000)
			dice := rand.New(rand.NewPCG(seed, 17))
			for _, name := range names {
				further[name].decorate(scenario, dice)
			}
			return scenario
		}
		actions := actionsOf(seed)
		ours := made().simulatedEnd(t, folder, furtherPolicy(t, names, actions))
		if ours == nil {
			continue
		}
		end := strings.Join(ours, "\n")
		ends := inTreeEnds(end, func() (string, bool) { return made().furtherEnd(t, names, actionsOf(seed)) })
		if ends == nil {
			crashes++
			continue
		}
		count(t, "simulated cycles of further plugins", 1, 0)
		if ends[end] == 0 {
			t.Errorf("cluster %d with %v ends as none of %d in-tree runs (%d ends); the nearest differs in\n%s",
				seed, names, mostRuns, len(ends), nearestEnd(ours, ends))
		}
		without := strings.Join(made().simulatedEnd(t, folder, furtherPolicy(t, nil, actions)), "\n")
		for _, name := range names {
			drawn[name]++
			if without != end {
				changed[name]++
			}
		}
	}
	t.Logf("clusters by plugin: %v; ends that the plugins change: %v; clusters on which Volcano crashes: %d", drawn, changed, crashes)
	for _, name := range known {
		if len(clusters(t)) >= 30 && changed[name] == 0 {
			t.Errorf("no end shows that %s is there", name)
		}
	}
}
