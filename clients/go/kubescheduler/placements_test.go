//go:build !kubernetes_1_36

package kubescheduler

import (
	"context"
	"fmt"
	"testing"

	"github.com/pumice-scheduler/pumice/clients/go/internal/testserver"

	corev1 "k8s.io/api/core/v1"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework"
)

// proposed is the node that a placement has for a pod.
type proposed struct {
	pod  *corev1.Pod
	node string
}

func (proposed *proposed) GetPod() *corev1.Pod           { return proposed.pod }
func (proposed *proposed) GetPodInfo() fwk.PodInfo       { return nil }
func (proposed *proposed) GetNodeName() string           { return proposed.node }
func (proposed *proposed) GetCycleState() fwk.CycleState { return nil }

func TestPlacementsAreScoredInOneRequest(t *testing.T) {
	server := testserver.Start(t)
	reload(t, admin(t, server.Address), pack)
	nodes := []*corev1.Node{testNode("a", "10", 0), testNode("b", "10", 0), testNode("c", "10", 0)}
	pods := []*corev1.Pod{testPod("one", "", "1", 0), testPod("two", "", "1", 0), testPod("old", "b", "8", 0)}
	bench := start(t, arguments(server.Address, ""), nodes, pods)
	if done := bench.cycle(pods[0]); !done.status.IsSuccess() {
		t.Fatal(done.status)
	}
	plugin, ctx := profiles.plugin(bench.framework), context.Background()
	before := metricOf(t, "scheduler_pumice_calls_total", "Score")
	cycle, scores := framework.NewCycleState(), []fwk.PlacementScore{}
	for _, node := range []string{"a", "b", "c"} {
		placement := framework.NewCycleState()
		placement.SetPodGroupSchedulingCycle(cycle)
		tried := &fwk.PodGroupAssignments{Placement: &fwk.Placement{Name: node}, ProposedAssignments: []fwk.ProposedAssignment{&proposed{pods[0], node}, &proposed{pods[1], "c"}}}
		score, status := plugin.ScorePlacement(ctx, placement, nil, tried)
		if !status.IsSuccess() {
			t.Fatal(status)
		}
		scores = append(scores, fwk.PlacementScore{Placement: tried.Placement, Score: score})
	}
	if status := plugin.NormalizePlacementScore(ctx, cycle, &framework.PodGroupInfo{}, scores); !status.IsSuccess() {
		t.Fatal(status)
	}
	found := ""
	for _, score := range scores {
		found += fmt.Sprintf("%s %d ", score.Placement.Name, score.Score)
	}
	// On b nine of ten cores would be in use, elsewhere one: half of (90 + 10), and of (10 + 10).
	if found != "a 20 b 100 c 20 " || metricOf(t, "scheduler_pumice_calls_total", "Score") != before+1 {
		t.Fatal(found, metricOf(t, "scheduler_pumice_calls_total", "Score")-before)
	}
}

// TestPlacementsOfThePodsOfAnOwnerAreSpread: see TestThePodsOfAnOwnerAreSpread.
func TestPlacementsOfThePodsOfAnOwnerAreSpread(t *testing.T) {
	pods := webPods(1)
	bench := startWeb(t, pods)
	bench.cycle(pods[1])
	placements := map[*fwk.Placement]*fwk.PodGroupAssignments{}
	for _, node := range []string{"n1", "n2"} {
		placement := &fwk.Placement{Name: node}
		placements[placement] = &fwk.PodGroupAssignments{Placement: placement, ProposedAssignments: []fwk.ProposedAssignment{&proposed{pods[1], node}}}
	}
	means, err := profiles.plugin(bench.framework).scorePlacements(context.Background(), placements)
	if err != nil {
		t.Fatal(err)
	}
	found := map[string]float64{}
	for placement, mean := range means {
		found[placement.Name] = mean
	}
	if found["n1"] >= found["n2"] {
		t.Fatal(found)
	}
}
