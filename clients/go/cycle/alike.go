package cycle

import (
	"slices"

	pb "github.com/pumice-scheduler/pumice/clients/go/pumicev1"

	"google.golang.org/protobuf/proto"
)

const (
	// shareAfter is the number of calls for touched nodes of one class after which nodes share results.
	shareAfter = 4
	// mostUnsent is the number of unsent events with which a call is made though nodes could share results: a request
	// does not grow without bound.
	mostUnsent = 1_000
)

// touch is an event that changes what a node uses.
type touch struct {
	node int
	// change is added to the node's fingerprint; its opposite reverts it.
	change Fingerprint
}

// nodeLoads are fingerprints of the nodes: of their records, and of the tasks that they hold. Two nodes with equal ones have
// equal results for any class, as long as no plugin has quotas.
type nodeLoads struct {
	made bool
	// usable is false if the service may have other records than the mirror.
	usable bool
	// prints has the fingerprint of each node, by number, taken of the first `seen` touches.
	prints []Fingerprint
	seen   int
}

// nodeResult is the result of a class for one node.
type nodeResult struct {
	scores     []float64
	rejections map[string]*NodeRejection
}

// share takes the results of nodes that are alike, and returns the nodes that have to be asked about.
func (cycle *Cycle) share(class *class, nodes []int) (left []int) {
	if class.fetches < shareAfter || cycle.unsent >= mostUnsent || !cycle.takeLoads() {
		return nodes
	}
	for _, at := range nodes {
		result, found := class.alike[class.key(cycle, at)]
		if !found {
			left = append(left, at)
			continue
		}
		for plugin, score := range result.scores {
			class.scores[plugin][at] = score
		}
		class.rejections[at] = result.rejections
	}
	return left
}

// keys returns the keys of results that are about to be fetched for touched nodes.
func (class *class) keys(cycle *Cycle, nodes []int) []Fingerprint {
	if class.fetches++; class.fetches < shareAfter || !cycle.takeLoads() {
		return nil
	}
	keys := make([]Fingerprint, len(nodes))
	for number, at := range nodes {
		keys[number] = class.key(cycle, at)
	}
	return keys
}

// keep keeps fetched results for nodes that come into the same state.
func (class *class) keep(nodes []int, keys []Fingerprint) {
	for number, key := range keys {
		at := nodes[number]
		if key == 0 || !class.known[at] {
			continue
		}
		result := nodeResult{rejections: class.rejections[at]}
		for _, column := range class.scores {
			result.scores = append(result.scores, column[at])
		}
		class.alike[key] = result
	}
}

// key is equal for nodes with equal fingerprints, whose results of before the last events are equal, too: a difference of
// which the mirror does not know, such as pods of another source, would have shown there. 0: the node shares nothing.
func (class *class) key(cycle *Cycle, at int) Fingerprint {
	if at >= len(class.known) || !class.known[at] || at >= len(cycle.loads.prints) {
		return 0
	}
	key := cycle.loads.prints[at]
	for _, column := range class.scores {
		key.Float(column[at])
	}
	var rejections Fingerprint
	for plugin, rejection := range class.rejections[at] {
		own := pair(plugin, rejection.Code)
		own.Text(rejection.Message)
		own.Flag(&rejection.Unresolvable)
		rejections.Element(own)
	}
	key.Number(uint64(rejections))
	return key
}

// takeLoads brings the fingerprints of all nodes up to the last event, and reports whether they may be used.
func (cycle *Cycle) takeLoads() bool {
	loads := &cycle.loads
	if !loads.made {
		loads.made = true
		// A refused record may leave anything behind in the service.
		loads.usable = !cycle.quotas && !slices.ContainsFunc(cycle.refusedRecords, func(record RefusedRecord) bool {
			return record.Kind != "queue" && record.Kind != "job"
		})
		if loads.usable {
			loads.prints = cycle.scheduler.mirror.nodePrints()
		}
	}
	if !loads.usable {
		return false
	}
	for _, touch := range cycle.touched[loads.seen:] {
		loads.prints[touch.node].Element(touch.change)
	}
	loads.seen = len(cycle.touched)
	return true
}

// nodePrints returns the fingerprint of every node with its tasks, by number.
func (mirror *mirror) nodePrints() []Fingerprint {
	prints := make([]Fingerprint, len(mirror.names))
	for at, name := range mirror.names {
		if group := mirror.groups[GroupKey{NodeGroup, name}]; group != nil {
			prints[at] = group.nodePrint()
		} else {
			prints[at].Text(name)
		}
	}
	for _, task := range mirror.tasks {
		if at, numbered := mirror.nodes[task.record.GetNode()]; numbered {
			prints[at].Element(task.kindOf(false))
		}
	}
	return prints
}

// nodePrint returns the fingerprint of a node's record, without its name and labels, which plugins without quotas do not
// read.
func (group *group) nodePrint() Fingerprint {
	for _, record := range group.records.Cluster.GetNodes() {
		if group.node != 0 {
			break
		}
		node := proto.CloneOf(record)
		node.Name, node.Uid, node.Labels, node.UnevaluatedFields = "", "", nil, nil
		group.node.Text(recordText(node, record.GetName()))
	}
	return group.node
}

// change returns the change of a node's fingerprint by an event.
func (cycle *Cycle) change(event PlacementEvent, task Task, before pb.TaskStatus) (change Fingerprint) {
	reported := cycle.scheduler.mirror.tasks[task.Name]
	switch {
	case reported == nil || reported.record.GetNode() != "":
	case event == Allocated && before == pb.TaskStatus_TASK_STATUS_UNSPECIFIED:
		return reported.placedPrint()
	case event == Withdrawn && before == pb.TaskStatus_TASK_STATUS_ALLOCATED:
		return -reported.placedPrint()
	}
	// From now on the node is like no other.
	change.Text(task.Name)
	change.Number(cycle.clock)
	return change
}

// placedPrint is what a task of this class, placed in a cycle, adds to the fingerprint of a node.
func (known *known) placedPrint() Fingerprint {
	placed := known.kindOf(false)
	placed.Text("placed")
	return placed
}
