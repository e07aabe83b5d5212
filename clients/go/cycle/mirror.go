package cycle

import (
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	pb "github.com/pumice-scheduler/pumice/clients/go/pumicev1"

	"google.golang.org/protobuf/proto"
)

// GroupKind is the kind of a group of records.
type GroupKind byte

// The kinds of groups.
const (
	// NodeGroup is a node with those of its tasks that belong to no job of the scheduler.
	NodeGroup GroupKind = iota
	// QueueGroup is a queue.
	QueueGroup
	// JobGroup is a job with its tasks.
	JobGroup
)

// String is the kind in messages.
func (kind GroupKind) String() string {
	return map[GroupKind]string{NodeGroup: "node", QueueGroup: "queue", JobGroup: "job"}[kind]
}

// GroupKey identifies a group.
type GroupKey struct {
	Kind GroupKind
	Name string
}

// GroupRecords are the records of a group.
type GroupRecords struct {
	// Cluster has the records, with at most one node, queue or job.
	Cluster *pb.Cluster
	// Hold is kept while the group is unchanged. It keeps objects whose addresses are part of the fingerprint.
	Hold any
}

// SchedulerState is the state of the scheduler at the beginning of a cycle, in groups of records that change together. Its
// methods are called from several goroutines.
type SchedulerState interface {
	// Groups returns the number of groups.
	Groups() int
	// Key returns the key of a group.
	Key(at int) GroupKey
	// Fingerprint returns the fingerprint of a group, which changes with every change in the group.
	Fingerprint(at int) uint64
	// Records returns the records of a group. It is called only if the fingerprint is new. A group with an error is left
	// out and named in Cycle.RefusedRecords.
	Records(at int) (GroupRecords, error)
}

// NodeHinter is a SchedulerState that takes, before any node's fingerprint is read, the nodes that the tasks of changed
// jobs name now or named before. On all other nodes the tasks of jobs are unchanged.
type NodeHinter interface {
	SchedulerState
	HintNodes(nodes map[string]bool)
}

// mirror has the records that were sent to the service, by group, and finds the changes.
type mirror struct {
	round  uint64
	groups map[GroupKey]*group
	// tasks by name, with the group in which each was last seen.
	tasks map[string]*known
	// nodes has the number of each node, in the order in which they were first seen.
	nodes map[string]int
	names []string
}

type group struct {
	fingerprint uint64
	seen        uint64
	records     GroupRecords
}

// known is a task that was sent, with its class.
type known struct {
	record *pb.Task
	owner  GroupKey
	queue  string
	class  string
}

func newMirror() *mirror {
	return &mirror{groups: map[GroupKey]*group{}, tasks: map[string]*known{}, nodes: map[string]int{}}
}

// fresh is a group with a new fingerprint.
type fresh struct {
	at      int
	print   uint64
	records GroupRecords
	err     error
}

// take finds the changes: records to put, and names to remove. A group whose records cannot be made keeps those that were
// sent last, if there are any; it is named in `unreadable` and tried again in the next cycle.
func (mirror *mirror) take(state SchedulerState) (put *pb.Cluster, gone *pb.Removals, unreadable []string) {
	mirror.round++
	changed, same := mirror.compare(state)
	put, gone = &pb.Cluster{}, &pb.Removals{}
	known := len(mirror.groups)
	for _, item := range changed {
		key := state.Key(item.at)
		before := mirror.groups[key]
		if before != nil {
			same++
		}
		if item.err != nil {
			unreadable = append(unreadable, fmt.Sprintf("%s %s: %v", key.Kind, key.Name, item.err))
			if before != nil {
				before.seen, before.fingerprint = mirror.round, ^item.print
			}
			continue
		}
		mirror.groups[key] = &group{fingerprint: item.print, seen: mirror.round, records: item.records}
		mirror.replace(key, before, item.records.Cluster, put, gone)
	}
	if same != known {
		for key, group := range mirror.groups {
			if group.seen != mirror.round {
				delete(mirror.groups, key)
				mirror.replace(key, group, &pb.Cluster{}, put, gone)
			}
		}
	}
	mirror.keepMoved(gone)
	return put, gone, unreadable
}

// forget makes every fingerprint count as new.
func (mirror *mirror) forget() {
	for _, group := range mirror.groups {
		group.fingerprint = ^group.fingerprint
	}
}

// compare makes all fingerprints, those of nodes last, and returns the changed groups and the number of unchanged ones.
func (mirror *mirror) compare(state SchedulerState) (changed []fresh, same int) {
	changed, same = mirror.part(state, func(kind GroupKind) bool { return kind != NodeGroup })
	if listener, listens := state.(NodeHinter); listens {
		nodes := map[string]bool{}
		for _, item := range changed {
			note := func(tasks []*pb.Task) {
				for _, task := range tasks {
					nodes[task.GetNode()] = true
				}
			}
			note(item.records.Cluster.GetTasks())
			if before := mirror.groups[state.Key(item.at)]; before != nil {
				note(before.records.Cluster.GetTasks())
			}
		}
		listener.HintNodes(nodes)
	}
	more, others := mirror.part(state, func(kind GroupKind) bool { return kind == NodeGroup })
	changed = append(changed, more...)
	slices.SortFunc(changed, func(left, right fresh) int { return left.at - right.at })
	return changed, same + others
}

// chunk is the number of groups that a goroutine takes at a time.
const chunk = 256

// part compares the groups of some kinds, on all processors.
func (mirror *mirror) part(state SchedulerState, wanted func(GroupKind) bool) (changed []fresh, same int) {
	total := state.Groups()
	workers := max(1, min(runtime.GOMAXPROCS(0), total/64))
	parts, counts := make([][]fresh, workers), make([]int, workers)
	var wait sync.WaitGroup
	var next atomic.Int64
	for worker := range workers {
		wait.Go(func() {
			count := 0
			for from := int(next.Add(chunk)) - chunk; from < total; from = int(next.Add(chunk)) - chunk {
				for at := from; at < min(from+chunk, total); at++ {
					key := state.Key(at)
					if !wanted(key.Kind) {
						continue
					}
					print := state.Fingerprint(at)
					if before := mirror.groups[key]; before != nil && before.fingerprint == print {
						before.seen = mirror.round
						count++
						continue
					}
					records, err := state.Records(at)
					parts[worker] = append(parts[worker], fresh{at, print, records, err})
				}
			}
			counts[worker] = count
		})
	}
	wait.Wait()
	for worker := range workers {
		changed = append(changed, parts[worker]...)
		same += counts[worker]
	}
	return changed, same
}

// replace adds the difference between two states of a group to the changes.
func (mirror *mirror) replace(key GroupKey, before *group, now, put *pb.Cluster, gone *pb.Removals) {
	queue := ""
	for _, job := range now.GetJobs() {
		queue = job.GetQueue()
	}
	old := map[string]*pb.Task{}
	if before != nil {
		for _, task := range before.records.Cluster.GetTasks() {
			old[task.GetName()] = task
		}
	}
	for _, task := range now.GetTasks() {
		last := old[task.GetName()]
		delete(old, task.GetName())
		if last == nil || !proto.Equal(last, task) {
			put.Tasks = append(put.Tasks, task)
		}
		mirror.tasks[task.GetName()] = &known{record: task, owner: key, queue: queue}
	}
	for name := range old {
		// The task may have moved to another group.
		if owner := mirror.tasks[name]; owner == nil || owner.owner == key {
			delete(mirror.tasks, name)
			gone.Tasks = append(gone.Tasks, name)
		}
	}
	put.Nodes = append(put.Nodes, now.GetNodes()...)
	put.Queues = append(put.Queues, now.GetQueues()...)
	put.Jobs = append(put.Jobs, now.GetJobs()...)
	for _, node := range now.GetNodes() {
		if _, numbered := mirror.nodes[node.GetName()]; !numbered {
			mirror.nodes[node.GetName()] = len(mirror.names)
			mirror.names = append(mirror.names, node.GetName())
		}
	}
	if len(now.GetNodes())+len(now.GetQueues())+len(now.GetJobs()) == 0 {
		switch key.Kind {
		case NodeGroup:
			gone.Nodes = append(gone.Nodes, key.Name)
		case QueueGroup:
			gone.Queues = append(gone.Queues, key.Name)
		case JobGroup:
			gone.Jobs = append(gone.Jobs, key.Name)
		}
	}
}

// keepMoved takes tasks that moved to another group out of the removals.
func (mirror *mirror) keepMoved(gone *pb.Removals) {
	left := gone.Tasks[:0]
	for _, name := range gone.Tasks {
		if mirror.tasks[name] == nil {
			left = append(left, name)
		}
	}
	gone.Tasks = left
}

// classOf is the class of a task. Tasks of one class have equal records but for names, uids, times and annotations that no
// served plugin reads; where a plugin has quotas, also the same queue.
func (known *known) classOf(quotas bool) string {
	if known.class != "" {
		return known.class
	}
	task := proto.CloneOf(known.record)
	task.Name, task.Uid, task.Job, task.CreationTime, task.Priority, task.NominatedNode = "", "", "", nil, 0, ""
	read := map[string]string{}
	for _, key := range annotationsRead {
		if value, found := task.GetAnnotations()[key]; found {
			read[key] = value
		}
	}
	task.Annotations = read
	text, err := proto.MarshalOptions{Deterministic: true}.Marshal(task)
	if err != nil {
		// A class of its own.
		text = []byte(known.record.GetName())
	}
	known.class = string(text) + "\x00"
	if quotas {
		known.class += known.queue
	}
	// All tasks of a job use one card, which may differ from that of another job.
	if strings.Contains(read[annotationCard], "|") {
		known.class += "\x00" + known.record.GetJob()
	}
	return known.class
}

// annotationCard has the cards that a task may use.
const annotationCard = "volcano.sh/card.name"

// annotationsRead are the annotations of tasks that served plugins read.
var annotationsRead = [...]string{"volcano.sh/resource-strategy-scoring-type", "volcano.sh/resource-strategy-weight", annotationCard}
