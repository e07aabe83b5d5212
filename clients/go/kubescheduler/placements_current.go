//go:build !kubernetes_1_36

package kubescheduler

import (
	"context"
	"fmt"
	"slices"
	"sync"

	pumice "github.com/pumice-scheduler/pumice/clients/go"
	pb "github.com/pumice-scheduler/pumice/clients/go/pumicev1"

	"k8s.io/apimachinery/pkg/types"
	fwk "k8s.io/kube-scheduler/framework"
)

var _ fwk.PlacementScorePlugin = &Plugin{}

const candidatesKey fwk.StateKey = Name + "/placements"

// triedPlacements are the placements of a pod group that kube-scheduler wants scores of.
type triedPlacements struct {
	mutex sync.Mutex
	list  map[*fwk.Placement]*fwk.PodGroupAssignments
}

// Clone gives the same: it has its own lock.
func (tried *triedPlacements) Clone() fwk.StateData {
	return tried
}

// creating guards the first write of the placements to a state.
var creating sync.Mutex

// ScorePlacement collects a placement. All are scored in one request once they are known, in NormalizePlacementScore.
func (plugin *Plugin) ScorePlacement(_ context.Context, state fwk.PlacementCycleState, _ fwk.PodGroupInfo, assignments *fwk.PodGroupAssignments) (int64, *fwk.Status) {
	cycle := state.GetPodGroupSchedulingCycle()
	if cycle == nil {
		return 0, fwk.AsStatus(fmt.Errorf("placement %s is of no pod group", assignments.Name))
	}
	creating.Lock()
	known, err := cycle.Read(candidatesKey)
	if err != nil {
		known = &triedPlacements{list: map[*fwk.Placement]*fwk.PodGroupAssignments{}}
		cycle.Write(candidatesKey, known)
	}
	creating.Unlock()
	tried := known.(*triedPlacements)
	tried.mutex.Lock()
	defer tried.mutex.Unlock()
	tried.list[assignments.Placement] = assignments
	return 0, nil
}

// PlacementScoreExtensions scores all placements at once.
func (plugin *Plugin) PlacementScoreExtensions() fwk.PlacementScoreExtensions {
	return plugin
}

// NormalizePlacementScore sends one Score request about the pods and nodes of all placements. The score of a placement is the mean
// of its pods' scores, scaled to 0..100. Without the service, all have 0 or the cycle fails, by the fallback of Score.
func (plugin *Plugin) NormalizePlacementScore(ctx context.Context, state fwk.PodGroupCycleState, group fwk.PodGroupInfo, scores []fwk.PlacementScore) *fwk.Status {
	known, err := state.Read(candidatesKey)
	if err != nil {
		return fwk.AsStatus(fmt.Errorf("no placements of pod group %s were collected: %w", group.GetName(), err))
	}
	state.Delete(candidatesKey)
	tried := known.(*triedPlacements)
	tried.mutex.Lock()
	defer tried.mutex.Unlock()
	ctx, cancel := context.WithTimeout(ctx, plugin.args.Budget.Duration)
	defer cancel()
	means, err := plugin.scorePlacements(ctx, tried.list)
	if err != nil {
		pods := group.GetUnscheduledPods()
		if len(pods) == 0 {
			return fwk.AsStatus(err)
		}
		if status := plugin.fallbackStatus(pumice.CallScore, pods[0], &cycle{without: &missedCalls{}}, err); !status.IsSkip() {
			return status
		}
		return nil
	}
	list := make(fwk.NodeScoreList, len(scores))
	column := make([]float64, len(scores))
	for at, score := range scores {
		column[at] = means[score.Placement]
	}
	encoded, err := raw(column)
	if err != nil {
		return fwk.AsStatus(err)
	}
	for at := range scores {
		list[at].Score = encoded[at]
	}
	normalize(list)
	for at := range scores {
		scores[at].Score = list[at].Score
	}
	return nil
}

// scorePlacements returns the mean of the scores of each placement's pods on their nodes. Equal pods are one task of the request.
func (plugin *Plugin) scorePlacements(ctx context.Context, placements map[*fwk.Placement]*fwk.PodGroupAssignments) (map[*fwk.Placement]float64, error) {
	query := placementQuery{plugin: plugin, classes: map[string]int{}, pods: map[types.UID]int{}, nodes: map[string]bool{}}
	for _, placement := range placements {
		for _, assignment := range placement.ProposedAssignments {
			if err := query.add(assignment); err != nil {
				return nil, err
			}
		}
	}
	means := map[*fwk.Placement]float64{}
	if len(query.tasks) == 0 {
		return means, nil
	}
	totals, err := query.send(ctx)
	if err != nil {
		return nil, err
	}
	for placement, assigned := range placements {
		sum := 0.0
		for _, assignment := range assigned.ProposedAssignments {
			sum += totals[query.pods[assignment.GetPod().UID]][assignment.GetNodeName()]
		}
		if count := len(assigned.ProposedAssignments); count > 0 {
			means[placement] = sum / float64(count)
		}
	}
	return means, nil
}

// placementQuery is the one request about all placements.
type placementQuery struct {
	plugin  *Plugin
	tasks   []*pb.Task
	classes map[string]int
	// pods are the classes by pod: its record is the same in each placement.
	pods  map[types.UID]int
	nodes map[string]bool
}

// add adds the pod and the node of an assignment.
func (query *placementQuery) add(assignment fwk.ProposedAssignment) error {
	if node := assignment.GetNodeName(); !query.nodes[node] && query.plugin.hub.mirror.knows(node) {
		query.nodes[node] = true
	}
	pod := assignment.GetPod()
	if _, known := query.pods[pod.UID]; known {
		return nil
	}
	if pod.Spec.NodeName != "" {
		// The question is about a pod without a node.
		pod = pod.DeepCopy()
		pod.Spec.NodeName = ""
	}
	record, signed, err := query.plugin.hub.mirror.signed(pod)
	if err != nil {
		return err
	}
	class, found := query.classes[signed]
	if !found {
		class = len(query.tasks)
		query.classes[signed] = class
		query.tasks = append(query.tasks, record)
	}
	query.pods[pod.UID] = class
	return nil
}

// send returns the scores of each task by node.
func (query *placementQuery) send(ctx context.Context) ([]map[string]float64, error) {
	plugin := query.plugin
	candidates := &pb.NodeSet{}
	for node := range query.nodes {
		candidates.Names = append(candidates.Names, node)
	}
	slices.Sort(candidates.Names)
	response, err := asking(ctx, plugin.hub, &plugin.args, func(against *pb.EvaluationRef) (pumice.Reply[*pb.ScoreResponse], error) {
		return pumice.AllowProblems(plugin.hub.client.Score(ctx, &pb.ScoreRequest{
			Against: against, Tasks: query.tasks, Candidates: candidates, NodeEncoding: pb.NodeEncoding_NODE_ENCODING_NAMES,
		}))
	})
	if err != nil {
		return nil, err
	}
	replies.WithLabelValues(string(pumice.CallScore), pumice.OriginService.String()).Inc()
	items := response.GetResult().GetItems()
	if len(items) != len(query.tasks) {
		return nil, fmt.Errorf("the response has %d items for %d tasks", len(items), len(query.tasks))
	}
	totals := make([]map[string]float64, len(items))
	for at, item := range items {
		if problem := item.GetProblem(); problem != nil {
			return nil, fmt.Errorf("task %s: %s", query.tasks[at].GetName(), problem.GetMessage())
		}
		totals[at] = map[string]float64{}
		names := item.GetNodes().GetNames()
		if err := columnsOf(item, len(names)); err != nil {
			return nil, err
		}
		for number, node := range names {
			totals[at][node] = item.GetTotals()[number]
		}
	}
	return totals, nil
}
