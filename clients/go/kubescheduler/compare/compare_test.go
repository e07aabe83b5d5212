package compare

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"testing"

	pumice "github.com/pumice-scheduler/pumice/clients/go"
	"github.com/pumice-scheduler/pumice/clients/go/derive"
	"github.com/pumice-scheduler/pumice/clients/go/internal/testserver"
	"github.com/pumice-scheduler/pumice/clients/go/kubescheduler"
	pb "github.com/pumice-scheduler/pumice/clients/go/pumicev1"

	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/names"
)

const head = "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\n"

// pair is a document of Pumice and one of kube-scheduler with the same meaning.
type pair struct {
	name, pumice, kube string
	// named says that Pumice's plugins have the names of kube-scheduler's.
	named bool
	// only is the release for which the documents have the same meaning; empty: each.
	only string
}

var pairs = []pair{{
	name: "volcano",
	// Volcano has its plugins of this release.
	only:   "kube-scheduler-1.36",
	pumice: "{actions: allocate, tiers: [{plugins: [{name: predicates}, {name: nodeorder}]}]}",
	kube: head + `profiles:
- pluginConfig:
  - {name: InterPodAffinity, args: {hardPodAffinityWeight: 0}}
  - name: NodeResourcesBalancedAllocation
    args: {resources: [{name: cpu, weight: 1}, {name: memory, weight: 1}, {name: nvidia.com/gpu, weight: 1}]}
`,
}, same("default", "profiles: [{schedulerName: default-scheduler}]\n"), same("most", `profiles:
- plugins:
    multiPoint:
      enabled: [{name: NodeResourcesFit, weight: 7}, {name: InterPodAffinity, weight: 5}]
      disabled: [{name: ImageLocality}, {name: NodePorts}]
    score: {disabled: [{name: TaintToleration}]}
  pluginConfig:
  - name: NodeResourcesFit
    args: {scoringStrategy: {type: MostAllocated}}
  - {name: InterPodAffinity, args: {hardPodAffinityWeight: 33}}
  - name: NodeResourcesBalancedAllocation
    args: {resources: [{name: cpu}, {name: memory, weight: 1}, {name: nvidia.com/gpu}]}
`), same("weighted", `profiles:
- plugins:
    multiPoint: {disabled: [{name: PodTopologySpread}]}
  pluginConfig:
  - name: NodeResourcesFit
    args:
      scoringStrategy:
        type: LeastAllocated
        resources: [{name: nvidia.com/gpu, weight: 5}, {name: memory, weight: 3}, {name: ephemeral-storage}, {name: hugepages-2Mi, weight: 2}, {name: none/such}]
  - {name: InterPodAffinity, args: {ignorePreferredTermsOfExistingPods: true}}
  - name: NodeResourcesBalancedAllocation
    args: {resources: [{name: ephemeral-storage}, {name: cpu}, {name: nvidia.com/gpu}, {name: hugepages-2Mi}]}
`), same("ratio", `profiles:
- plugins:
    multiPoint:
      disabled: [{name: "*"}]
      enabled:
      - {name: PrioritySort}
      - {name: DefaultBinder}
      - {name: NodeUnschedulable}
      - {name: NodeResourcesFit, weight: 3}
      - {name: NodeResourcesBalancedAllocation, weight: 2}
      - {name: TaintToleration}
    score: {enabled: [{name: ImageLocality, weight: 4}]}
  pluginConfig:
  - name: NodeResourcesFit
    args:
      scoringStrategy:
        type: RequestedToCapacityRatio
        resources: [{name: cpu, weight: 3}, {name: memory}, {name: nvidia.com/gpu, weight: 7}]
        requestedToCapacityRatio: {shape: [{utilization: 7, score: 0}, {utilization: 60, score: 10}, {utilization: 95, score: 3}]}
  - name: NodeResourcesBalancedAllocation
    args: {resources: [{name: memory}]}
`), same("most-weighted", `profiles:
- plugins: {multiPoint: {disabled: [{name: InterPodAffinity}, {name: PodTopologySpread}, {name: NodeAffinity}]}}
  pluginConfig:
  - name: NodeResourcesFit
    args: {scoringStrategy: {type: MostAllocated, resources: [{name: memory, weight: 2}, {name: cpu}, {name: nvidia.com/gpu, weight: 4}]}}
`), same("added", `profiles:
- pluginConfig:
  - name: NodeResourcesFit
    args: {ignoredResources: [nvidia.com/gpu, cpu, none/such]}
  - name: NodeAffinity
    args:
      addedAffinity:
        requiredDuringSchedulingIgnoredDuringExecution:
          nodeSelectorTerms:
          - {matchExpressions: [{key: disk, operator: In, values: [ssd, hdd]}]}
          - {matchExpressions: [{key: topology.kubernetes.io/zone, operator: NotIn, values: [a]}], matchFields: [{key: metadata.name, operator: NotIn, values: [n0]}]}
        preferredDuringSchedulingIgnoredDuringExecution:
        - {weight: 40, preference: {matchExpressions: [{key: topology.kubernetes.io/zone, operator: In, values: [b]}]}}
        - {weight: 7, preference: {matchExpressions: [{key: disk, operator: DoesNotExist}]}}
  - {name: InterPodAffinity, args: {hardPodAffinityWeight: 100, ignorePreferredTermsOfExistingPods: true}}
  - name: PodTopologySpread
    args:
      defaultingType: List
      defaultConstraints:
      - {maxSkew: 1, topologyKey: topology.kubernetes.io/zone, whenUnsatisfiable: DoNotSchedule}
      - {maxSkew: 2, topologyKey: topology.kubernetes.io/zone, whenUnsatisfiable: ScheduleAnyway, nodeTaintsPolicy: Honor}
      - {maxSkew: 2, topologyKey: kubernetes.io/hostname, whenUnsatisfiable: ScheduleAnyway, matchLabelKeys: [tier]}
      - {maxSkew: 3, topologyKey: disk, whenUnsatisfiable: DoNotSchedule, minDomains: 3, nodeAffinityPolicy: Ignore}
`), same("groups", `profiles:
- pluginConfig:
  - name: NodeResourcesFit
    args: {ignoredResourceGroups: [nvidia.com, kubernetes.io]}
  - name: NodeAffinity
    args:
      addedAffinity:
        preferredDuringSchedulingIgnoredDuringExecution:
        - {weight: 100, preference: {matchFields: [{key: metadata.name, operator: In, values: [n1]}]}}
  - {name: InterPodAffinity, args: {hardPodAffinityWeight: 100}}
  - {name: PodTopologySpread, args: {defaultingType: List}}
`)}

// same is a document that both read, Pumice as one for this release.
func same(name, profiles string) pair {
	followed := "pumice: {compatibility: " + kubescheduler.Release + "}\n"
	return pair{name: name, pumice: head + profiles + followed, kube: head + profiles, named: true}
}

// number is a variable of the environment, or the standard.
func number(t *testing.T, name string, standard uint64) uint64 {
	t.Helper()
	text := os.Getenv(name)
	if text == "" {
		return standard
	}
	value, err := strconv.ParseUint(text, 10, 64)
	if err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	return value
}

const podsOfCluster = 15

// tally is what the pods of all clusters came to.
type tally struct{ clusters, pods, fit, refused, failed, differences int }

func (tally tally) String() string {
	return fmt.Sprintf("%d clusters, %d pods, %d nodes fit, %d refused, %d pods without scores, %d differences",
		tally.clusters, tally.pods, tally.fit, tally.refused, tally.failed, tally.differences)
}

// TestPumiceDecidesAsKubeScheduler judges PUMICE_COMPARE_CLUSTERS clusters of each pair, other ones for each. The number of the first
// is PUMICE_COMPARE_SEED.
func TestPumiceDecidesAsKubeScheduler(t *testing.T) {
	clusters, first := number(t, "PUMICE_COMPARE_CLUSTERS", 20), number(t, "PUMICE_COMPARE_SEED", 1)
	server := testserver.Start(t)
	client, err := pumice.Dial(server.Address, pumice.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = client.Close() })
	var counted tally
	for place, pair := range pairs {
		if pair.only != "" && pair.only != kubescheduler.Release {
			continue
		}
		t.Run(pair.name, func(t *testing.T) {
			kube, known := newKube(t, pair.kube, withoutObjects), counted.differences
			for seed := first; seed < first+clusters; seed++ {
				counted.clusters++
				cluster := newDice(place, seed).makeCluster(podsOfCluster, pair.named)
				if !pair.named {
					cluster.dropOpenSelectors(t)
				}
				kube.use(t, &cluster)
				asked := ask(t, client, pair, cluster, kube.filters())
				for at, pod := range cluster.waiting {
					want := kube.judge(t, pod)
					counted.pods, counted.fit, counted.refused = counted.pods+1, counted.fit+len(want.fit), counted.refused+len(want.refused)
					if want.failed != "" {
						counted.failed++
					}
					if difference := asked.differs(at, want, pair.named); difference != "" {
						counted.differences++
						t.Errorf("seed %d, pod %s: %s", seed, pod.Name, difference)
					}
				}
				if counted.differences > known+20 {
					t.Fatal("too many differences")
				}
			}
		})
	}
	t.Logf("%s: %v", kubescheduler.Release, counted)
}

// results are Pumice's, an item for each waiting pod.
type results struct {
	filtered []*pb.FilterItem
	// alone asks each plugin by itself.
	alone  []*pb.FilterItem
	scored []*pb.ScoreItem
}

func ask(t *testing.T, client *pumice.Client, pair pair, random randomCluster, filters []string) results {
	t.Helper()
	cluster, tasks := &pb.Cluster{}, []*pb.Task{}
	for _, node := range random.nodes {
		record, err := pumice.NodeRecord(node)
		if err != nil {
			t.Fatal(err)
		}
		cluster.Nodes = append(cluster.Nodes, record)
	}
	for _, pod := range slices.Concat(random.placed, random.waiting) {
		record, err := pumice.TaskRecord(pod, derive.AsKubernetes)
		if err != nil {
			t.Fatal(err)
		}
		random.owners().Complete(record, pod)
		if pod.Spec.NodeName != "" {
			cluster.Tasks = append(cluster.Tasks, record)
		} else {
			tasks = append(tasks, record)
		}
	}
	for _, namespace := range random.namespaces {
		cluster.Namespaces = append(cluster.Namespaces, pumice.NamespaceRecord(namespace))
	}
	against := &pb.EvaluationRef{Target: &pb.EvaluationRef_Inline{Inline: &pb.InlineSnapshot{Cluster: cluster, PolicyDocument: pair.pumice}}}
	var made results
	filtered, err := client.Filter(context.Background(), &pb.FilterRequest{
		Against: against, Tasks: tasks, ResourceFit: pb.ResourceFit_RESOURCE_FIT_IDLE,
	})
	if err != nil {
		t.Fatal(err)
	}
	made.filtered = filtered.Response.GetResult().GetItems()
	scored, err := client.Score(context.Background(), &pb.ScoreRequest{
		Against: against, Tasks: tasks, WithFilter: true, WithParts: true, ResourceFit: pb.ResourceFit_RESOURCE_FIT_IDLE,
	})
	var problems *pumice.ProblemError
	if err != nil && !errors.As(err, &problems) {
		t.Fatal(err)
	}
	made.scored = scored.Response.GetResult().GetItems()
	if pair.named {
		alone, err := client.Filter(context.Background(), &pb.FilterRequest{
			Against: against, Tasks: tasks, Plugins: filters, ResourceFit: pb.ResourceFit_RESOURCE_FIT_NONE,
		})
		if err != nil {
			t.Fatal(err)
		}
		made.alone = alone.Response.GetResult().GetItems()
	}
	return made
}

// nodeFilters are the filters that have their name and all their reasons in Pumice.
var nodeFilters = []string{
	names.NodeUnschedulable, names.TaintToleration, names.NodeAffinity, names.NodePorts, names.PodTopologySpread, names.InterPodAffinity,
}

// differs says how Pumice's answer differs from kube-scheduler's; empty: it does not.
func (results results) differs(at int, want verdict, named bool) string {
	filtered, item := results.filtered[at], results.scored[at]
	fit := slices.Sorted(slices.Values(filtered.GetFit().GetNames()))
	slices.Sort(want.fit)
	if !slices.Equal(fit, want.fit) {
		return fmt.Sprintf("fit %v, want %v; refused %v, want %v", fit, want.fit, filtered.GetRejections(), want.refused)
	}
	if named {
		if difference := differsAlone(results.alone[at], want); difference != "" {
			return difference
		}
	}
	if len(fit) == 0 {
		return ""
	}
	if want.failed != "" {
		if item.GetProblem() == nil {
			return "no problem, but kube-scheduler says: " + want.failed
		}
		return ""
	}
	if item.GetProblem() != nil {
		return "problem: " + item.GetProblem().GetMessage()
	}
	for number, node := range item.GetNodes().GetNames() {
		if total := item.GetTotals()[number]; total != float64(want.totals[node]) {
			return fmt.Sprintf("%s scores %v of %v, want %v of %v", node, total, item.GetParts(), want.totals[node], want.parts)
		}
	}
	return ""
}

// differsAlone says how plugins that are asked by themselves differ: each node is refused by the plugin that refuses it first in
// kube-scheduler, and for as long.
func differsAlone(item *pb.FilterItem, want verdict) string {
	type place struct{ plugin, node string }
	refused := map[place]pb.Resolution{}
	for _, rejection := range item.GetRejections() {
		for _, node := range rejection.GetNodes().GetNames() {
			if slices.Contains(want.fit, node) {
				return fmt.Sprintf("%s refuses %s, which fits", rejection.GetReason().GetPlugin(), node)
			}
			refused[place{rejection.GetReason().GetPlugin(), node}] = rejection.GetReason().GetResolution()
		}
	}
	for node, first := range want.refused {
		if !slices.Contains(nodeFilters, first.plugin) {
			continue
		}
		resolution, found := refused[place{first.plugin, node}]
		if !found || first.lasting != (resolution == pb.Resolution_RESOLUTION_UNRESOLVABLE) {
			return fmt.Sprintf("%s on %s: %v, %v, want %v", first.plugin, node, found, resolution, first)
		}
	}
	return ""
}
