package cycle

import (
	"runtime"
	"slices"
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
	// Unreadable are records of the group that could not be made. The last good record of each stays in force.
	Unreadable []*pb.UnreadableRecord
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
	// Records returns the records of a group. It is called only if the fingerprint is new. After an error the group keeps
	// its last good records, and Cycle.RefusedRecords names it.
	Records(at int) (GroupRecords, error)
}

// mirror has the records that were sent to the service, by group, and finds the changes.
type mirror struct {
	round  uint64
	groups map[GroupKey]*group
	// tasks by name, with the group in which each was last seen.
	tasks map[string]*known
	// nodes has the number of each node, names the name of each number; vacant numbers are given to the next new nodes.
	nodes  map[string]int
	names  []string
	vacant []int
	// unreadable records, by kind and name.
	unreadable map[recordKey]RefusedRecord
}

type group struct {
	fingerprint uint64
	seen        uint64
	records     GroupRecords
	// node is the fingerprint of a node's record, see nodePrint; 0: it was not made yet.
	node Fingerprint
}

func newMirror() *mirror {
	return &mirror{groups: map[GroupKey]*group{}, tasks: map[string]*known{}, nodes: map[string]int{}, unreadable: map[recordKey]RefusedRecord{}}
}

// changes are what a cycle sends.
type changes struct {
	put  *pb.Cluster
	gone *pb.Removals
	// marks are unreadable records whose state is new.
	marks []*pb.UnreadableRecord
}

func (changes *changes) count() int {
	put, gone := changes.put, changes.gone
	return len(put.GetNodes()) + len(put.GetQueues()) + len(put.GetJobs()) + len(put.GetTasks()) +
		len(gone.GetNodes()) + len(gone.GetQueues()) + len(gone.GetJobs()) + len(gone.GetTasks()) + len(changes.marks)
}

// fresh is a group with a new fingerprint.
type fresh struct {
	at      int
	print   uint64
	records GroupRecords
	err     error
}

// take finds the changes. A record that cannot be made keeps its last good state, if there was one, and changes nothing
// else: all other records arrive.
func (mirror *mirror) take(state SchedulerState) *changes {
	mirror.round++
	changed, same := mirror.compare(state)
	made := &changes{put: &pb.Cluster{}, gone: &pb.Removals{}}
	known := len(mirror.groups)
	for _, item := range changed {
		key := state.Key(item.at)
		before := mirror.groups[key]
		if before != nil {
			same++
		}
		if item.err != nil {
			// The next cycle tries again.
			item.print = ^item.print
			item.records = GroupRecords{Cluster: &pb.Cluster{}}
			if before != nil {
				item.records.Cluster = before.records.Cluster
			}
			item.records.Unreadable = []*pb.UnreadableRecord{Unreadable(recordKinds[key.Kind], key.Name, item.err)}
		}
		now := &group{fingerprint: item.print, seen: mirror.round, records: item.records}
		mirror.groups[key] = now
		mirror.replace(key, before, now, made)
	}
	if same != known {
		for key, before := range mirror.groups {
			if before.seen != mirror.round {
				delete(mirror.groups, key)
				mirror.replace(key, before, &group{records: GroupRecords{Cluster: &pb.Cluster{}}}, made)
			}
		}
	}
	mirror.keepMoved(made.gone)
	mirror.number(made)
	return made
}

var recordKinds = map[GroupKind]pb.RecordKind{
	NodeGroup: pb.RecordKind_RECORD_KIND_NODE, QueueGroup: pb.RecordKind_RECORD_KIND_QUEUE, JobGroup: pb.RecordKind_RECORD_KIND_JOB,
}

// number gives every node a number, first those of nodes that are gone: no column is longer than the most nodes at a time.
func (mirror *mirror) number(changes *changes) {
	for _, name := range changes.gone.GetNodes() {
		if at, numbered := mirror.nodes[name]; numbered {
			delete(mirror.nodes, name)
			mirror.names[at] = ""
			mirror.vacant = append(mirror.vacant, at)
		}
	}
	for _, node := range changes.put.GetNodes() {
		if _, numbered := mirror.nodes[node.GetName()]; numbered {
			continue
		}
		at := len(mirror.names)
		if last := len(mirror.vacant) - 1; last >= 0 {
			at, mirror.vacant = mirror.vacant[last], mirror.vacant[:last]
			mirror.names[at] = node.GetName()
		} else {
			mirror.names = append(mirror.names, node.GetName())
		}
		mirror.nodes[node.GetName()] = at
	}
}

// forget makes every fingerprint count as new.
func (mirror *mirror) forget() {
	for _, group := range mirror.groups {
		group.fingerprint = ^group.fingerprint
	}
}

// chunk is the number of groups that a goroutine takes at a time.
const chunk = 256

// compare makes all fingerprints, on all processors, and returns the changed groups and the number of unchanged ones.
func (mirror *mirror) compare(state SchedulerState) (changed []fresh, same int) {
	total := state.Groups()
	workers := max(1, min(runtime.GOMAXPROCS(0), total/64))
	parts, counts := make([][]fresh, workers), make([]int, workers)
	var wait sync.WaitGroup
	var next atomic.Int64
	for worker := range workers {
		wait.Add(1)
		go func() {
			defer wait.Done()
			count := 0
			for from := int(next.Add(chunk)) - chunk; from < total; from = int(next.Add(chunk)) - chunk {
				for at := from; at < min(from+chunk, total); at++ {
					key, print := state.Key(at), state.Fingerprint(at)
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
		}()
	}
	wait.Wait()
	for worker := range workers {
		changed = append(changed, parts[worker]...)
		same += counts[worker]
	}
	slices.SortFunc(changed, func(left, right fresh) int { return left.at - right.at })
	return changed, same
}

// replace adds the difference between two states of a group to the changes.
func (mirror *mirror) replace(key GroupKey, before, after *group, changes *changes) {
	var old GroupRecords
	if before != nil {
		old = before.records
	}
	after.records.keepUnreadable(key, old)
	now := after.records.Cluster
	mirror.mark(old.Unreadable, after.records.Unreadable, changes)
	mirror.replaceTasks(key, old.Cluster, now, changes)
	put, gone := changes.put, changes.gone
	// Equal records are not sent again.
	put.Nodes = append(put.Nodes, fresher(now.GetNodes(), old.Cluster.GetNodes())...)
	put.Queues = append(put.Queues, fresher(now.GetQueues(), old.Cluster.GetQueues())...)
	put.Jobs = append(put.Jobs, fresher(now.GetJobs(), old.Cluster.GetJobs())...)
	marked := old.marks(recordKinds[key.Kind], key.Name) && !after.records.marks(recordKinds[key.Kind], key.Name)
	gone.Nodes = append(gone.Nodes, missing(now.GetNodes(), old.Cluster.GetNodes(), marked && key.Kind == NodeGroup, key.Name)...)
	gone.Queues = append(gone.Queues, missing(now.GetQueues(), old.Cluster.GetQueues(), marked && key.Kind == QueueGroup, key.Name)...)
	gone.Jobs = append(gone.Jobs, missing(now.GetJobs(), old.Cluster.GetJobs(), marked && key.Kind == JobGroup, key.Name)...)
}

// missing has the names of the records of `before` that `now` does not have, and the name whose mark has ended.
func missing[R interface{ GetName() string }](now, before []R, marked bool, name string) (names []string) {
	for _, record := range before {
		names = append(names, record.GetName())
	}
	if marked && !slices.Contains(names, name) {
		names = append(names, name)
	}
	return slices.DeleteFunc(names, func(name string) bool {
		return slices.ContainsFunc(now, func(record R) bool { return record.GetName() == name })
	})
}

// fresher are those of `now` that `before` does not have.
func fresher[R proto.Message](now, before []R) (list []R) {
	for _, item := range now {
		if !slices.ContainsFunc(before, func(other R) bool { return proto.Equal(other, item) }) {
			list = append(list, item)
		}
	}
	return list
}

// marks reports whether a record of the group is unreadable.
func (records *GroupRecords) marks(kind pb.RecordKind, name string) bool {
	return slices.ContainsFunc(records.Unreadable, func(mark *pb.UnreadableRecord) bool {
		return mark.GetKind() == kind && mark.GetName() == name
	})
}

// keepUnreadable puts the last good record of every unreadable one in its place.
func (records *GroupRecords) keepUnreadable(key GroupKey, old GroupRecords) {
	if len(records.Unreadable) == 0 || records.Cluster == old.Cluster {
		return
	}
	merged := &pb.Cluster{
		Nodes: slices.Clone(records.Cluster.GetNodes()), Queues: slices.Clone(records.Cluster.GetQueues()),
		Jobs: slices.Clone(records.Cluster.GetJobs()), Tasks: slices.Clone(records.Cluster.GetTasks()),
	}
	if records.marks(recordKinds[key.Kind], key.Name) {
		merged.Nodes = append(merged.Nodes, old.Cluster.GetNodes()...)
		merged.Queues = append(merged.Queues, old.Cluster.GetQueues()...)
		merged.Jobs = append(merged.Jobs, old.Cluster.GetJobs()...)
	}
	for _, task := range old.Cluster.GetTasks() {
		if records.marks(pb.RecordKind_RECORD_KIND_TASK, task.GetName()) {
			merged.Tasks = append(merged.Tasks, task)
		}
	}
	records.Cluster = merged
}

// mark takes note of the unreadable records of a group. A mark ends when its record is sent or removed.
func (mirror *mirror) mark(before, now []*pb.UnreadableRecord, changes *changes) {
	left := map[recordKey]bool{}
	for _, mark := range now {
		key := recordKey{kindWord(mark.GetKind()), mark.GetName()}
		left[key] = true
		found := RefusedRecord{Kind: key.kind, Name: key.name, Field: mark.GetField(), Message: mark.GetMessage(), Unreadable: true}
		if mirror.unreadable[key] != found {
			mirror.unreadable[key] = found
			changes.marks = append(changes.marks, mark)
		}
	}
	for _, mark := range before {
		if key := (recordKey{kindWord(mark.GetKind()), mark.GetName()}); !left[key] {
			delete(mirror.unreadable, key)
			if mark.GetKind() == pb.RecordKind_RECORD_KIND_TASK && mirror.tasks[key.name] == nil {
				// It was never sent; only its mark was.
				changes.gone.Tasks = append(changes.gone.Tasks, key.name)
			}
		}
	}
}

func (mirror *mirror) replaceTasks(key GroupKey, before, now *pb.Cluster, changes *changes) {
	queue := ""
	for _, job := range now.GetJobs() {
		queue = job.GetQueue()
	}
	old := map[string]*pb.Task{}
	for _, task := range before.GetTasks() {
		old[task.GetName()] = task
	}
	for _, task := range now.GetTasks() {
		last := old[task.GetName()]
		delete(old, task.GetName())
		if last == nil || last != task && !proto.Equal(last, task) {
			changes.put.Tasks = append(changes.put.Tasks, task)
		}
		mirror.tasks[task.GetName()] = &known{record: task, owner: key, job: task.GetJob(), queue: queue}
	}
	for name := range old {
		// The task may have moved to another group.
		if owner := mirror.tasks[name]; owner == nil || owner.owner == key {
			delete(mirror.tasks, name)
			changes.gone.Tasks = append(changes.gone.Tasks, name)
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
