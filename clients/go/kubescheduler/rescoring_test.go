package kubescheduler

import (
	"context"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/pumice-scheduler/pumice/clients/go/internal/testserver"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework"
)

// ordered scores nodes that a pod prefers relative to each other.
const ordered = `{actions: allocate, tiers: [{plugins: [{name: nodeorder, arguments: {nodeaffinity.weight: 3, leastrequested.weight: 1}}]}]}`

// again scores one node as kube-scheduler does for a pod that equals the one before: on a copy of the cycle's state, of which
// PreScore sees all nodes.
func (bench *bench) again(pod *corev1.Pod, node fwk.NodeInfo) (map[string]int64, *rescoring) {
	bench.t.Helper()
	ctx, state := context.Background(), framework.NewCycleState()
	if _, status, _ := bench.framework.RunPreFilterPlugins(ctx, state, pod); !status.IsSuccess() {
		bench.t.Fatal(status)
	}
	return bench.scoreOn(state.Clone(), pod, node)
}

// scoreOn returns the scores of one node before they are scaled, by plugin.
func (bench *bench) scoreOn(state fwk.CycleState, pod *corev1.Pod, node fwk.NodeInfo) (map[string]int64, *rescoring) {
	bench.t.Helper()
	ctx, scores := context.Background(), map[string]int64{}
	for _, name := range append([]string{Name}, profiles.elsewhere(bench.framework)...) {
		plugin := profiles.plugin(bench.framework)
		var preScore fwk.PreScorePlugin = plugin
		if name != Name {
			preScore = &named{name: name, handle: bench.framework}
		}
		if status := preScore.PreScore(ctx, state, pod, bench.infos()); status.IsSkip() {
			continue
		} else if !status.IsSuccess() {
			bench.t.Fatal(status)
		}
		score, status := lookUp(ctx, state, name, node)
		if !status.IsSuccess() {
			bench.t.Fatal(status)
		}
		scores[name] = score
	}
	known, err := state.Read(scoresKey)
	if err != nil {
		bench.t.Fatal(err)
	}
	return scores, known.(*scoring).later
}

func (bench *bench) infos() []fwk.NodeInfo {
	bench.t.Helper()
	infos, err := bench.framework.SnapshotSharedLister().NodeInfos().List()
	if err != nil {
		bench.t.Fatal(err)
	}
	return infos
}

// separately makes each cycle ask for scores by requests of their own until the test, or the function that it returns, ends that.
func separately(t *testing.T) func() {
	before, age := scoredAtOnce, foreseenAge
	scoredAtOnce, foreseenAge = 0, 0
	restore := func() { scoredAtOnce, foreseenAge = before, age }
	t.Cleanup(restore)
	return restore
}

// fresh scores one node among all, in a cycle of its own, by a request about scores alone.
func (bench *bench) fresh(pod *corev1.Pod, node fwk.NodeInfo) map[string]int64 {
	bench.t.Helper()
	defer separately(bench.t)()
	ctx, state := context.Background(), framework.NewCycleState()
	if _, status, _ := bench.framework.RunPreFilterPlugins(ctx, state, pod); !status.IsSuccess() {
		bench.t.Fatal(status)
	}
	scores, later := bench.scoreOn(state, pod, node)
	if later != nil {
		bench.t.Fatal("a cycle that is no copy asks about all nodes")
	}
	return scores
}

func TestOneNodeIsScoredAgainAsAmongAll(t *testing.T) {
	for name, test := range map[string]struct {
		policy  string
		plugins []string
		// alone: one request about one node gives its scores.
		alone bool
		// atOnce: they come with the verdict of the filter.
		atOnce bool
	}{
		"scores of each node by itself": {spread, nil, true, false},
		"Koordinator's":                 {koord, koordinators, true, false},
		"relative scores":               {ordered, nil, false, false},
		"scores with verdicts":          {spread, nil, false, true},
		"Koordinator's with verdicts":   {koord, koordinators, false, true},
		"relative scores, apart":        {ordered, nil, false, true},
	} {
		t.Run(name, func(t *testing.T) {
			if !test.atOnce {
				separately(t)
			}
			server := testserver.Start(t)
			reload(t, admin(t, server.Address), test.policy)
			nodes, random := []*corev1.Node{}, rand.New(rand.NewPCG(7, 11))
			for number := range 12 {
				node := testNode(fmt.Sprintf("n%02d", number), fmt.Sprint(40+20*(number%3)), 0)
				node.Labels["disk"] = fmt.Sprint(number % 3)
				nodes = append(nodes, node)
			}
			pod := testPod("new", "", "1", 0)
			pod.Spec.Affinity = &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{}}
			for disk := range 3 {
				pod.Spec.Affinity.NodeAffinity.PreferredDuringSchedulingIgnoredDuringExecution = append(
					pod.Spec.Affinity.NodeAffinity.PreferredDuringSchedulingIgnoredDuringExecution, corev1.PreferredSchedulingTerm{
						Weight: int32(10 * (disk + 1)), Preference: corev1.NodeSelectorTerm{MatchExpressions: []corev1.NodeSelectorRequirement{
							{Key: "disk", Operator: corev1.NodeSelectorOpIn, Values: []string{fmt.Sprint(disk)}},
						}},
					})
			}
			pods := []*corev1.Pod{pod}
			for number := range 40 {
				pods = append(pods, testPod(fmt.Sprintf("other-%d", number), "", fmt.Sprint(1+number%5), 0))
			}
			bench := start(t, arguments(server.Address, ""), nodes, pods, test.plugins...)
			bench.fresh(pod, bench.infos()[0])
			seen, filters := map[string]bool{}, 0
			for _, other := range pods[1:] {
				node := bench.infos()[random.IntN(len(nodes))]
				bench.framework.RunReservePluginsReserve(context.Background(), framework.NewCycleState(), other, node.Node().Name)
				before := metricOf(t, "scheduler_pumice_calls_total", "Filter")
				scores, later := bench.again(pod, node)
				filters += metricOf(t, "scheduler_pumice_calls_total", "Filter") - before
				if wanted := bench.fresh(pod, node); fmt.Sprint(scores) != fmt.Sprint(wanted) {
					t.Fatalf("after %s went to %s: %v, and %v among all", other.Name, node.Node().Name, scores, wanted)
				}
				if asked := later != nil && later.all == nil && len(later.one.item.GetTotals()) == 1; asked != test.alone {
					t.Fatalf("one node was asked about: %t", asked)
				}
				seen[fmt.Sprint(scores)] = true
			}
			if apart := !test.atOnce || test.policy == ordered; (filters > 0) != apart {
				t.Fatalf("%d requests of Filter", filters)
			}
			if len(seen) < 8 {
				t.Fatalf("the scores hardly change: %v", seen)
			}
		})
	}
}

func TestNodesAreScoredAgainTogetherWhereOneDoesNotDo(t *testing.T) {
	separately(t)
	server := testserver.Start(t)
	client := admin(t, server.Address)
	reload(t, client, spread)
	pod := testPod("new", "", "1", 0)
	bench := start(t, arguments(server.Address, ""), []*corev1.Node{testNode("n1", "10", 0), testNode("n2", "20", 0)}, []*corev1.Pod{pod})
	one, two := bench.fresh(pod, bench.infos()[0]), bench.fresh(pod, bench.infos()[1])
	state := framework.NewCycleState()
	if _, status, _ := bench.framework.RunPreFilterPlugins(context.Background(), state, pod); !status.IsSuccess() {
		t.Fatal(status)
	}
	copied := state.Clone()
	for at, wanted := range []map[string]int64{one, two, one} {
		if scores, _ := bench.scoreOn(copied, pod, bench.infos()[at%2]); scores[Name] != wanted[Name] {
			t.Fatal(at, scores, wanted)
		}
	}
	// Of relative scores one node alone has others: then all are asked about, whatever was seen before.
	reload(t, client, ordered)
	time.Sleep(rankingAge)
	pod.Spec.Affinity = &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{PreferredDuringSchedulingIgnoredDuringExecution: []corev1.PreferredSchedulingTerm{
		{Weight: 5, Preference: corev1.NodeSelectorTerm{MatchFields: []corev1.NodeSelectorRequirement{{Key: metav1.ObjectNameField, Operator: corev1.NodeSelectorOpIn, Values: []string{"n1"}}}}},
	}}}
	wanted := bench.fresh(pod, bench.infos()[1])
	asks := profiles.plugin(bench.framework)
	seen := *asks.policy.seen.Load()
	seen.alone = true
	asks.policy.seen.Store(&seen)
	scores, later := bench.again(pod, bench.infos()[1])
	if scores[Name] != wanted[Name] || later == nil || later.all == nil || len(later.all.item.GetTotals()) != 2 {
		t.Fatal(scores, wanted, later)
	}
}

func TestAPolicyThatChangesWhileANodeIsScoredAgainEndsTheRanking(t *testing.T) {
	separately(t)
	server := testserver.Start(t)
	client := admin(t, server.Address)
	reload(t, client, spread)
	pod := testPod("new", "", "1", 0)
	bench := start(t, arguments(server.Address, ""), []*corev1.Node{testNode("n1", "10", 0), testNode("n2", "20", 0)}, []*corev1.Pod{pod})
	if _, status, _ := bench.framework.RunPreFilterPlugins(context.Background(), framework.NewCycleState(), pod); !status.IsSuccess() {
		t.Fatal(status)
	}
	if signed, why := bench.sign(pod); signed == nil {
		t.Fatal(why)
	}
	bench.fresh(pod, bench.infos()[0])
	state := framework.NewCycleState()
	if _, status, _ := bench.framework.RunPreFilterPlugins(context.Background(), state, pod); !status.IsSuccess() {
		t.Fatal(status)
	}
	reload(t, client, pack)
	ctx, copied := context.Background(), state.Clone()
	if status := profiles.plugin(bench.framework).PreScore(ctx, copied, pod, bench.infos()); !status.IsSuccess() {
		t.Fatal(status)
	}
	if _, status := lookUp(ctx, copied, Name, bench.infos()[0]); status.Code() != fwk.Error || status.Message() != ChangedReason {
		t.Fatal(status)
	}
}
