package cycle

import (
	"context"
	"errors"
	"fmt"
	"slices"

	pumice "pumice/clients/go"
	pb "pumice/clients/go/pumicev1"
)

// Refusal is why a task may not run on a node.
type Refusal struct {
	// Plugin that refuses.
	Plugin string
	// Code and Message are for programs and people.
	Code, Message string
	// Unresolvable: evictions cannot help.
	Unresolvable bool
}

// Error is the message.
func (refusal *Refusal) Error() string {
	return refusal.Message
}

// class has the answers for tasks that ask for the same.
type class struct {
	// name of the task that was asked about.
	name  string
	cards bool
	// mark is how many touches of nodes the answers have seen, clock when they came.
	asked bool
	mark  int
	clock uint64
	// problem is why there are none.
	problem error
	// By node: what is known, and per plugin score and refusal.
	known    []bool
	scores   [][]float64
	refusals []map[string]*Refusal
}

// Prepare asks what look-ups need to know of a task: one question for its class over all nodes, or over those where
// answers became stale; none when all still hold. Its error means that the task must not be placed now: the service is
// away, or does not know it.
func (cycle *Cycle) Prepare(task Task) error {
	cycle.mutex.Lock()
	defer cycle.mutex.Unlock()
	if cycle.away != nil {
		return cycle.closed()
	}
	if err := cycle.admitted.confirm(cycle); err != nil {
		_ = cycle.giveUp(err)
		return cycle.closed()
	}
	if reason, revoked := cycle.admitted.revoked[task.Job]; revoked {
		return fmt.Errorf("the job's admission was not confirmed: %s", reason)
	}
	if len(cycle.nodePlugins) == 0 {
		return nil
	}
	class := cycle.classOf(task)
	if class == nil {
		return fmt.Errorf("the decision service does not know task %s", task.Name)
	}
	if class.asked && cycle.follows(task) {
		return nil
	}
	if cycle.refresh(class) != nil {
		return cycle.closed()
	}
	return class.problem
}

// closed is what away means for Prepare.
func (cycle *Cycle) closed() error {
	if cycle.scheduler.settings.Away == Abstain {
		return nil
	}
	return fmt.Errorf("the decision service is away: %w", cycle.away)
}

// classOf is the class of a task, nil if the task was never told.
func (cycle *Cycle) classOf(task Task) *class {
	if found, known := cycle.byTask.Load(task.ID); known {
		return found.(*class)
	}
	told := cycle.scheduler.mirror.tasks[task.Name]
	if told == nil {
		return nil
	}
	key := told.classOf(cycle.quotas)
	found := cycle.classes[key]
	if found == nil {
		_, cards := told.record.GetAnnotations()[annotationCard]
		found = &class{name: task.Name, cards: cards, scores: make([][]float64, len(cycle.nodePlugins))}
		cycle.classes[key] = found
	}
	cycle.byTask.Store(task.ID, found)
	return found
}

// stale says on which nodes the answers of a class no longer hold, and whether that is so on all.
func (cycle *Cycle) stale(class *class) (nodes []int, all bool) {
	if !class.asked || cycle.spoiled > class.clock || class.cards && cycle.quotas && cycle.clock > class.clock {
		return nil, true
	}
	nodes = slices.Clone(cycle.touched[class.mark:])
	slices.Sort(nodes)
	return slices.Compact(nodes), false
}

// refresh asks for what is stale. Its error means that the service is away.
func (cycle *Cycle) refresh(class *class) error {
	nodes, all := cycle.stale(class)
	if !all && len(nodes) == 0 {
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
	response, err := ask(cycle, func(ctx context.Context) (pumice.Reply[*pb.ScoreResponse], error) {
		return cycle.session.Score(ctx, request)
	})
	if err != nil {
		return err
	}
	class.asked, class.mark, class.clock = true, len(cycle.touched), cycle.clock
	if len(response.GetResult().GetItems()) != 1 {
		return cycle.giveUp(errors.New("the answer has not one item"))
	}
	item := response.GetResult().GetItems()[0]
	if class.problem = problemOf(item.GetProblem()); class.problem != nil {
		return nil
	}
	if err := cycle.read(response.GetMetadata().GetNodeTable()); err != nil {
		return cycle.giveUp(err)
	}
	if all {
		clear(class.known)
	}
	class.take(cycle, item)
	return nil
}

func problemOf(problem *pb.Problem) error {
	if problem == nil {
		return nil
	}
	return fmt.Errorf("%s: %s", problem.GetReason(), problem.GetMessage())
}

// read makes sure that the slots of an answer have names.
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
		table, err = cycle.scheduler.settings.Client.NodeTable(ctx, version)
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

// take spreads an answer over the columns of a class.
func (class *class) take(cycle *Cycle, item *pb.ScoreItem) {
	total := len(cycle.scheduler.mirror.names)
	if len(class.known) < total {
		class.known = append(class.known, make([]bool, total-len(class.known))...)
		class.refusals = append(class.refusals, make([]map[string]*Refusal, total-len(class.refusals))...)
		for plugin, column := range class.scores {
			class.scores[plugin] = append(column, make([]float64, total-len(column))...)
		}
	}
	for number, slot := range pumice.Slots(item.GetNodes()) {
		at := cycle.slots[slot]
		if at < 0 {
			continue
		}
		class.known[at], class.refusals[at] = true, nil
		for plugin, name := range cycle.nodePlugins {
			class.scores[plugin][at] = scoreOf(item, name, number)
		}
	}
	refused := map[int]bool{}
	for _, rejection := range item.GetFilter().GetRejections() {
		reason := rejection.GetReason()
		refusal := &Refusal{
			Plugin: reason.GetPlugin(), Code: reason.GetCode(), Message: reason.GetMessage(),
			Unresolvable: reason.GetResolution() == pb.Resolution_RESOLUTION_UNRESOLVABLE,
		}
		for _, slot := range pumice.Slots(rejection.GetNodes()) {
			at := cycle.slots[slot]
			if at < 0 {
				continue
			}
			class.known[at] = true
			if !refused[at] {
				refused[at], class.refusals[at] = true, map[string]*Refusal{}
			}
			if class.refusals[at][refusal.Plugin] == nil {
				class.refusals[at][refusal.Plugin] = refusal
			}
		}
	}
}

// scoreOf is a plugin's score of one node: that of the whole plugin, or the sum of its parts, in their order.
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

// look looks a node up in the answers of a task's class. Where they are stale, or nobody prepared the task, they are
// asked for now.
func (cycle *Cycle) look(task Task, node string, use func(*class, int)) (known bool, err error) {
	at, numbered := cycle.scheduler.mirror.nodes[node]
	cycle.mutex.RLock()
	found, asked := cycle.byTask.Load(task.ID)
	if asked && numbered && cycle.away == nil {
		class := found.(*class)
		// Where a plan decides, the scores do not.
		fresh := cycle.spoiled <= class.clock && cycle.nodeAt[at] <= class.mark || cycle.follows(task)
		if class.asked && fresh && at < len(class.known) && class.known[at] {
			use(class, at)
			cycle.mutex.RUnlock()
			return true, nil
		}
	}
	cycle.mutex.RUnlock()
	cycle.mutex.Lock()
	defer cycle.mutex.Unlock()
	if cycle.away != nil {
		return false, cycle.away
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

// Fits says whether a plugin lets a task run on a node; nil: it does. A node that the service does not know is refused.
func (cycle *Cycle) Fits(plugin string, task Task, node string) *Refusal {
	var refusal *Refusal
	known, err := cycle.look(task, node, func(class *class, at int) { refusal = class.refusals[at][plugin] })
	switch {
	case known:
		return refusal
	case err != nil && cycle.scheduler.settings.Away == Abstain:
		return nil
	case err != nil:
		return &Refusal{Plugin: plugin, Code: pumice.AwayCode, Message: "the decision service is away", Unresolvable: true}
	default:
		return &Refusal{Plugin: plugin, Code: "NodeUnknown", Message: "the decision service does not know the node or the task", Unresolvable: true}
	}
}

// Score is what a plugin gives a node for a task; 0 where it is not known.
func (cycle *Cycle) Score(plugin string, task Task, node string) float64 {
	score := 0.0
	number := slices.Index(cycle.nodePlugins, plugin)
	if number < 0 {
		return 0
	}
	_, _ = cycle.look(task, node, func(class *class, at int) { score = class.scores[number][at] })
	return score
}
