package cycle

import (
	"context"
	"errors"
	"fmt"
	"slices"

	pumice "github.com/pumice-scheduler/pumice/clients/go"
	pb "github.com/pumice-scheduler/pumice/clients/go/pumicev1"
)

// NodeRejection is the reason why a task may not run on a node.
type NodeRejection struct {
	// Plugin is the plugin that rejects the node.
	Plugin string
	// Code is stable; Message is a sentence for people.
	Code, Message string
	// Unresolvable is true if preemption cannot help.
	Unresolvable bool
}

// Error returns the message.
func (rejection *NodeRejection) Error() string {
	return rejection.Message
}

// class has the results for tasks with equal requests.
type class struct {
	// name of the task that is sent for the class.
	name  string
	cards bool
	// mark is the number of touched nodes that the results take into account, clock the time of the results.
	asked bool
	mark  int
	clock uint64
	// problem is the reason why there are no results.
	problem error
	// By node: whether it has a result, and by plugin its score and rejection.
	known      []bool
	scores     [][]float64
	rejections []map[string]*NodeRejection
	// fetches is the number of calls for touched nodes, alike has their results by key.
	fetches int
	alike   map[Fingerprint]nodeResult
}

// Prepare fetches the results that look-ups of a task need: one call for its class, over all nodes or over those with stale
// results, and none if all results hold. After an error the task must not be placed: the service is unavailable, or does
// not know the task.
func (cycle *Cycle) Prepare(task Task) error {
	cycle.mutex.Lock()
	defer cycle.mutex.Unlock()
	if cycle.unavailable != nil {
		return cycle.closed()
	}
	if err := cycle.admitted.confirm(cycle); err != nil {
		_ = cycle.giveUp(err)
		return cycle.closed()
	}
	if reason, revoked := cycle.admitted.revoked[task.Job]; revoked {
		return fmt.Errorf("job %s: the confirmation of its admission was rejected: %s", task.Job, reason)
	}
	if len(cycle.nodePlugins) == 0 {
		return nil
	}
	class := cycle.classOf(task)
	if class == nil {
		return fmt.Errorf("task %s: is not in the state that was sent to the decision service", task.Name)
	}
	if class.asked && cycle.hasPlan(task) {
		return nil
	}
	if cycle.refresh(class) != nil {
		return cycle.closed()
	}
	return class.problem
}

// closed is the error of Prepare while the service is unavailable; nil with Abstain.
func (cycle *Cycle) closed() error {
	if cycle.scheduler.settings.Fallback == Abstain {
		return nil
	}
	return fmt.Errorf("the decision service is unavailable: %w", cycle.unavailable)
}

// classOf is the class of a task; nil: the task was never sent.
func (cycle *Cycle) classOf(task Task) *class {
	if found, known := cycle.byTask.Load(task.ID); known {
		return found.(*class)
	}
	reported := cycle.scheduler.mirror.tasks[task.Name]
	if reported == nil {
		return nil
	}
	key := reported.classOf(cycle.quotas)
	found := cycle.classes[key]
	if found == nil {
		_, cards := reported.record.GetAnnotations()[annotationCard]
		found = &class{
			name: task.Name, cards: cards, scores: make([][]float64, len(cycle.nodePlugins)), alike: map[Fingerprint]nodeResult{},
		}
		cycle.classes[key] = found
	}
	cycle.byTask.Store(task.ID, found)
	return found
}

// stale returns the nodes on which the results of a class are stale, or true if all are.
func (cycle *Cycle) stale(class *class) (nodes []int, all bool) {
	if !class.asked || cycle.invalidated > class.clock || class.cards && cycle.quotas && cycle.clock > class.clock {
		return nil, true
	}
	if class.problem != nil && class.mark < len(cycle.touched) {
		// There are no results yet of which only some could be stale.
		return nil, true
	}
	for _, touch := range cycle.touched[class.mark:] {
		nodes = append(nodes, touch.node)
	}
	slices.Sort(nodes)
	return slices.Compact(nodes), false
}

// refresh fetches stale results. After an error the service is unavailable.
func (cycle *Cycle) refresh(class *class) error {
	nodes, all := cycle.stale(class)
	if !all {
		nodes = cycle.share(class, nodes)
	}
	if !all && len(nodes) == 0 {
		class.mark, class.clock = len(cycle.touched), cycle.clock
		return nil
	}
	request := &pb.ScoreRequest{
		Tasks: []*pb.Task{{Name: class.name}}, Plugins: cycle.nodePlugins, WithFilter: cycle.filters,
		ResourceFit: pb.ResourceFit_RESOURCE_FIT_NONE, NodeEncoding: pb.NodeEncoding_NODE_ENCODING_SLOTS, Samples: new(uint32),
	}
	if !all {
		request.Candidates = &pb.NodeSet{}
		for _, at := range nodes {
			request.Candidates.Names = append(request.Candidates.Names, cycle.scheduler.mirror.names[at])
		}
	}
	response, err := send(cycle, func(ctx context.Context) (pumice.Reply[*pb.ScoreResponse], error) {
		return cycle.session.Score(ctx, request)
	})
	if err != nil {
		return err
	}
	class.asked, class.mark, class.clock = true, len(cycle.touched), cycle.clock
	if len(response.GetResult().GetItems()) != 1 {
		return cycle.giveUp(errors.New("the response to Score does not have exactly one item"))
	}
	item := response.GetResult().GetItems()[0]
	if class.problem = problemOf(item.GetProblem()); class.problem != nil {
		return nil
	}
	if err := cycle.read(response.GetMetadata().GetNodeTable()); err != nil {
		return cycle.giveUp(err)
	}
	var keys []Fingerprint
	if all {
		clear(class.known)
		clear(class.alike)
	} else {
		keys = class.keys(cycle, nodes)
	}
	if err := class.take(cycle, item); err != nil {
		return cycle.giveUp(err)
	}
	class.keep(nodes, keys)
	return nil
}

func problemOf(problem *pb.Problem) error {
	if problem == nil {
		return nil
	}
	return fmt.Errorf("%s: %s", problem.GetReason(), problem.GetMessage())
}

// read makes sure that the slots of a response have names.
func (cycle *Cycle) read(version *pb.NodeTableVersion) error {
	if cycle.table != nil {
		have := cycle.table.Version()
		if have.GetEpoch() == version.GetEpoch() && have.GetGeneration() == version.GetGeneration() && have.GetLength() >= version.GetLength() {
			return nil
		}
	}
	table := (*pumice.NodeTable)(nil)
	err := cycle.timed(func() (err error) {
		ctx, cancel := cycle.context()
		defer cancel()
		table, err = cycle.session.NodeTable(ctx, version)
		return err
	})
	if err != nil {
		return err
	}
	cycle.table = table
	cycle.slots = make([]int, table.Len())
	for slot := range cycle.slots {
		at, numbered := cycle.scheduler.mirror.nodes[table.Name(uint32(slot))]
		if !numbered {
			at = -1
		}
		cycle.slots[slot] = at
	}
	return nil
}

// take writes a result into the columns of a class.
func (class *class) take(cycle *Cycle, item *pb.ScoreItem) error {
	total := len(cycle.scheduler.mirror.names)
	if len(class.known) < total {
		class.known = append(class.known, make([]bool, total-len(class.known))...)
		class.rejections = append(class.rejections, make([]map[string]*NodeRejection, total-len(class.rejections))...)
		for plugin, column := range class.scores {
			class.scores[plugin] = append(column, make([]float64, total-len(column))...)
		}
	}
	scored, err := pumice.Slots(item.GetNodes())
	if err != nil {
		return err
	}
	for number, slot := range scored {
		at := cycle.slots[slot]
		if at < 0 {
			continue
		}
		class.known[at], class.rejections[at] = true, nil
		for plugin, name := range cycle.nodePlugins {
			class.scores[plugin][at] = scoreOf(item, name, number)
		}
	}
	rejected := map[int]bool{}
	for _, given := range item.GetFilter().GetRejections() {
		reason := given.GetReason()
		rejection := &NodeRejection{
			Plugin: reason.GetPlugin(), Code: reason.GetCode(), Message: reason.GetMessage(),
			Unresolvable: reason.GetResolution() == pb.Resolution_RESOLUTION_UNRESOLVABLE,
		}
		slots, err := pumice.Slots(given.GetNodes())
		if err != nil {
			return err
		}
		for _, slot := range slots {
			at := cycle.slots[slot]
			if at < 0 {
				continue
			}
			class.known[at] = true
			if !rejected[at] {
				rejected[at], class.rejections[at] = true, map[string]*NodeRejection{}
			}
			if class.rejections[at][rejection.Plugin] == nil {
				class.rejections[at][rejection.Plugin] = rejection
			}
		}
	}
	return nil
}

// scoreOf is a plugin's score of one node: that of the whole plugin, or the sum of its parts in their order.
func scoreOf(item *pb.ScoreItem, plugin string, number int) float64 {
	sum := 0.0
	for _, part := range item.GetParts() {
		if part.GetPlugin() == plugin && number < len(part.GetScores()) {
			if part.GetPart() == "" {
				return part.GetScores()[number]
			}
			sum += part.GetScores()[number]
		}
	}
	return sum
}

// lookUp looks a node up in the results of a task's class. If they are stale, or the task was not prepared, it fetches
// them.
func (cycle *Cycle) lookUp(task Task, node string, use func(*class, int)) (known bool, err error) {
	at, numbered := cycle.scheduler.mirror.nodes[node]
	cycle.mutex.RLock()
	found, asked := cycle.byTask.Load(task.ID)
	if asked && numbered && cycle.unavailable == nil {
		class := found.(*class)
		// A plan decides, so stale scores do no harm.
		fresh := cycle.invalidated <= class.clock && cycle.nodeAt[at] <= class.mark || cycle.hasPlan(task)
		if class.asked && fresh && at < len(class.known) && class.known[at] {
			use(class, at)
			cycle.mutex.RUnlock()
			return true, nil
		}
	}
	cycle.mutex.RUnlock()
	cycle.mutex.Lock()
	defer cycle.mutex.Unlock()
	if cycle.unavailable != nil {
		return false, cycle.unavailable
	}
	class := cycle.classOf(task)
	if class == nil || !numbered {
		return false, nil
	}
	if err := cycle.refresh(class); err != nil {
		return false, err
	}
	if class.problem != nil || at >= len(class.known) || !class.known[at] {
		return false, nil
	}
	use(class, at)
	return true, nil
}

// Fits returns the reason why a plugin rejects a node for a task; nil: it does not, or has no opinion. A node that the
// service does not know is rejected.
func (cycle *Cycle) Fits(plugin string, task Task, node string) *NodeRejection {
	cycle.mutex.RLock()
	silent := cycle.takesNoPart(cycle.nodePlugins, plugin)
	cycle.mutex.RUnlock()
	if silent {
		return nil
	}
	var rejection *NodeRejection
	known, err := cycle.lookUp(task, node, func(class *class, at int) { rejection = class.rejections[at][plugin] })
	switch {
	case known:
		return rejection
	case err != nil && cycle.scheduler.settings.Fallback == Abstain:
		return nil
	case err != nil:
		return &NodeRejection{Plugin: plugin, Code: pumice.UnavailableCode, Message: "the decision service is unavailable", Unresolvable: true}
	default:
		return &NodeRejection{Plugin: plugin, Code: "NodeUnknown", Message: "the decision service does not know the node or the task", Unresolvable: true}
	}
}

// Score returns a plugin's score of a node for a task; 0 if the plugin has no opinion. While the service is unavailable it
// is an error, and with Abstain 0. A node or task that the service does not know is an error.
func (cycle *Cycle) Score(plugin string, task Task, node string) (float64, error) {
	cycle.mutex.RLock()
	silent, number := cycle.takesNoPart(cycle.nodePlugins, plugin), slices.Index(cycle.nodePlugins, plugin)
	cycle.mutex.RUnlock()
	if silent {
		return 0, nil
	}
	score := 0.0
	known, err := cycle.lookUp(task, node, func(class *class, at int) { score = class.scores[number][at] })
	switch {
	case known:
		return score, nil
	case err != nil && cycle.scheduler.settings.Fallback == Abstain:
		return 0, nil
	case err != nil:
		return 0, fmt.Errorf("the decision service is unavailable: %w", err)
	default:
		return 0, fmt.Errorf("the decision service does not know node %q or task %q", node, task.Name)
	}
}
