package kubescheduler

import (
	"context"
	"errors"
	"fmt"

	pumice "github.com/pumice-scheduler/pumice/clients/go"
	pb "github.com/pumice-scheduler/pumice/clients/go/pumicev1"

	corev1 "k8s.io/api/core/v1"
	fwk "k8s.io/kube-scheduler/framework"
)

// PreScore sends one Score request about the nodes that are left.
func (plugin *Plugin) PreScore(ctx context.Context, state fwk.CycleState, pod *corev1.Pod, nodes []fwk.NodeInfo) *fwk.Status {
	scoring, status := plugin.score(ctx, state, pod, nodes)
	if !status.IsSuccess() {
		return status
	}
	if scoring.later == nil {
		if err := plugin.addOwnScores(scoring); err != nil {
			return fwk.AsStatus(err)
		}
		plugin.policy.own.Store(scoring.columns[Name] != nil)
	}
	if !plugin.policy.own.Load() {
		return fwk.NewStatus(fwk.Skip)
	}
	return nil
}

// addOwnScores makes the plugin's own column, if something is left for it.
func (plugin *Plugin) addOwnScores(scoring *scoring) error {
	if scoring.columns[Name] != nil {
		return nil
	}
	column, err := ownScores(scoring.item, plugin.args.Scores, profiles.elsewhere(plugin.handle))
	if err == nil && column != nil {
		scoring.columns[Name] = column
	}
	return err
}

// scoring is the answer of a cycle, and the columns made of it.
type scoring struct {
	// foresight has the scores of each node, where an answer serves equal pods; the rest are those of the nodes without them.
	foresight *foresight
	// later asks when a score is wanted; then there is nothing else.
	later *rescoring
	item  *pb.ScoreItem
	table *pumice.NodeTable
	// at is the position of a slot in the columns, + 1.
	at      []int32
	columns map[string][]int64
}

// place is the position of a node's scores in the columns; false: it has none.
func (scoring *scoring) place(slot uint32) (int32, bool) {
	if scoring == nil || int(slot) >= len(scoring.at) || scoring.at[slot] == 0 {
		return 0, false
	}
	return scoring.at[slot] - 1, true
}

// Clone gives the same.
func (scoring *scoring) Clone() fwk.StateData {
	return scoring
}

// score sends one request per cycle. Skip: the scheduler's other plugins decide.
func (plugin *Plugin) score(ctx context.Context, state fwk.CycleState, pod *corev1.Pod, nodes []fwk.NodeInfo) (*scoring, *fwk.Status) {
	if known, err := state.Read(scoresKey); err == nil {
		made := known.(*scoring)
		if made.item == nil && made.later == nil {
			return nil, fwk.NewStatus(fwk.Skip)
		}
		return made, nil
	}
	cycle, err := plugin.begin(state, pod)
	if err != nil {
		return nil, fwk.AsStatus(err)
	}
	if made := plugin.scoresOf(cycle); made != nil {
		state.Write(scoresKey, made)
		return made, nil
	}
	if cycle.copied && plugin.policy.mayScoreAlone() {
		made := &scoring{later: &rescoring{plugin: plugin, cycle: cycle, nodes: nodes}}
		state.Write(scoresKey, made)
		return made, nil
	}
	ctx, cancel := context.WithDeadline(ctx, cycle.until)
	defer cancel()
	made, err := plugin.ask(ctx, cycle, nodes)
	if errors.Is(err, pumice.ErrNodeTableChanged) {
		made, err = plugin.ask(ctx, cycle, nodes)
	}
	if err != nil {
		if status := plugin.fallbackStatus(pumice.CallScore, pod, cycle, err); !status.IsSkip() {
			return nil, status
		}
		state.Write(scoresKey, &scoring{})
		return nil, fwk.NewStatus(fwk.Skip)
	}
	replies.WithLabelValues(string(pumice.CallScore), pumice.OriginService.String()).Inc()
	if problem := made.item.GetProblem(); problem != nil {
		return nil, fwk.AsStatus(errors.New(problem.GetMessage()))
	}
	state.Write(scoresKey, made)
	return made, nil
}

// ask sends the nodes by slot if all slots are known, otherwise by name.
func (plugin *Plugin) ask(ctx context.Context, cycle *cycle, nodes []fwk.NodeInfo) (*scoring, error) {
	slots := bySlot(cycle.table, nodes)
	response, err := asking(ctx, plugin.hub, &plugin.args, func(against *pb.EvaluationRef) (pumice.Reply[*pb.ScoreResponse], error) {
		candidates := slots
		if slots == nil {
			candidates = plugin.byName(nodes)
		} else {
			against.NodeTable = cycle.table.Version()
		}
		// A second time the slots may be others.
		slots = nil
		return pumice.AllowProblems(plugin.hub.client.Score(ctx, &pb.ScoreRequest{
			Against: against, Tasks: []*pb.Task{cycle.task}, Candidates: candidates,
			NodeEncoding: pb.NodeEncoding_NODE_ENCODING_SLOTS, WithParts: true,
		}))
	})
	if err != nil {
		return nil, err
	}
	table, err := plugin.hub.client.NodeTable(ctx, response.GetMetadata().GetNodeTable())
	if err != nil {
		return nil, err
	}
	if len(response.GetResult().GetItems()) != 1 {
		return nil, errors.New("the response does not have exactly one item")
	}
	item := response.GetResult().GetItems()[0]
	if cycle.copied && plugin.policy.outdates(response.GetMetadata()) {
		return nil, errors.New(ChangedReason)
	}
	if !cycle.copied {
		plugin.policy.see(response.GetMetadata(), item)
	}
	return plugin.columns(item, table)
}

// scoresOf makes the columns of the scores that came with the verdict of the filter; nil: none came, or they are none of kube-scheduler's.
func (plugin *Plugin) scoresOf(cycle *cycle) *scoring {
	if view := cycle.foresight; view != nil {
		made := *view.steps[0]
		made.foresight = view
		if cycle.scores != nil && !cycle.copied {
			plugin.policy.see(cycle.metadata, cycle.scores)
			replies.WithLabelValues(string(pumice.CallScore), pumice.OriginService.String()).Inc()
		}
		return &made
	}
	if cycle.scores == nil {
		return nil
	}
	made, err := plugin.columns(cycle.scores, cycle.table)
	if err == nil {
		err = plugin.addOwnScores(made)
	}
	if err != nil {
		// A node that other plugins refuse may be at fault: the nodes that are left are asked about.
		return nil
	}
	if !cycle.copied {
		plugin.policy.see(cycle.metadata, cycle.scores)
	}
	replies.WithLabelValues(string(pumice.CallScore), pumice.OriginService.String()).Inc()
	return made
}

// columns orders the scores of an item by slot.
func (plugin *Plugin) columns(item *pb.ScoreItem, table *pumice.NodeTable) (*scoring, error) {
	made := &scoring{item: item, table: table, at: make([]int32, table.Len()), columns: map[string][]int64{}}
	scored, err := pumice.Slots(item.GetNodes())
	if err != nil {
		return nil, err
	}
	count := 0
	for at, slot := range scored {
		if int(slot) >= len(made.at) {
			return nil, fmt.Errorf("slot %d is beyond the node table", slot)
		}
		made.at[slot] = int32(at) + 1
		count++
	}
	if err := columnsOf(item, count); err != nil {
		return nil, err
	}
	if item.GetProblem() != nil {
		return made, nil
	}
	// Here, for a plugin may be enabled at score alone.
	for _, name := range profiles.elsewhere(plugin.handle) {
		if made.columns[name], err = partScores(item, name); err != nil {
			return nil, err
		}
	}
	return made, nil
}

// bySlot is nil if not all of them have a slot.
func bySlot(table *pumice.NodeTable, nodes []fwk.NodeInfo) *pb.NodeSet {
	if table == nil {
		return nil
	}
	bitmap := make([]byte, (table.Len()+7)/8)
	for _, info := range nodes {
		slot, found := table.Slot(info.Node().Name)
		if !found {
			return nil
		}
		bitmap[slot/8] |= 1 << (slot % 8)
	}
	return &pb.NodeSet{Bitmap: bitmap}
}

// byName leaves out nodes that were never sent to the service.
func (plugin *Plugin) byName(nodes []fwk.NodeInfo) *pb.NodeSet {
	set := &pb.NodeSet{}
	for _, info := range nodes {
		if plugin.hub.mirror.knows(info.Node().Name) {
			set.Names = append(set.Names, info.Node().Name)
		}
	}
	return set
}

// Score looks the node up.
func (plugin *Plugin) Score(ctx context.Context, state fwk.CycleState, _ *corev1.Pod, info fwk.NodeInfo) (int64, *fwk.Status) {
	return lookUp(ctx, state, Name, info)
}

// lookUp is the score of a node in a plugin's column; 0 for a node that was not asked about.
func lookUp(ctx context.Context, state fwk.CycleState, plugin string, info fwk.NodeInfo) (int64, *fwk.Status) {
	read, err := state.Read(scoresKey)
	if err != nil {
		return 0, fwk.AsStatus(fmt.Errorf("%s is not enabled at preScore: %w", plugin, err))
	}
	made := read.(*scoring)
	if made.later != nil {
		if made, err = made.later.ask(ctx, info); err != nil {
			// kube-scheduler drops its scores, and scores all nodes as it would without them.
			return 0, fwk.AsStatus(err)
		}
	}
	if made.item == nil {
		// Nobody answered, and the other plugins decide.
		return 0, nil
	}
	slot, known := made.table.Slot(info.Node().Name)
	if made.foresight != nil && known {
		made = made.foresight.step(slot)
	}
	place, scored := made.place(slot)
	if !known || !scored {
		return 0, nil
	}
	column, found := made.columns[plugin]
	if !found {
		return 0, fwk.AsStatus(fmt.Errorf("%s is not enabled at preScore", plugin))
	}
	return column[place], nil
}

// ScoreExtensions scales the scores.
func (plugin *Plugin) ScoreExtensions() fwk.ScoreExtensions {
	return plugin
}

// NormalizeScore makes the scores 0..100.
func (plugin *Plugin) NormalizeScore(_ context.Context, _ fwk.CycleState, _ *corev1.Pod, scores fwk.NodeScoreList) *fwk.Status {
	normalize(scores)
	return nil
}
