package cycle

import (
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	pb "pumice/clients/go/pumicev1"

	"google.golang.org/protobuf/proto"
)

// Kind of a group of records.
type Kind byte

// The kinds of groups.
const (
	// NodeGroup is a node, with the tasks on it that belong to no job of the scheduler.
	NodeGroup Kind = iota
	// QueueGroup is a queue.
	QueueGroup
	// JobGroup is a job with its tasks.
	JobGroup
)

// Key names a group.
type Key struct {
	Kind Kind
	Name string
}

// Records of a group.
type Records struct {
	// Cluster has them, with at most one node, queue or job.
	Cluster *pb.Cluster
	// Hold is kept as long as the group is unchanged: what a fingerprint was made of by address.
	Hold any
}

// Snapshot is the state of the scheduler at the beginning of a cycle, in groups of records that change together. Its
// methods are called from several goroutines.
type Snapshot interface {
	// Groups is their number.
	Groups() int
	// Key of a group.
	Key(at int) Key
	// Fingerprint of a group: another one if anything in it has changed.
	Fingerprint(at int) uint64
	// Records of a group; asked for only when its fingerprint is new.
	Records(at int) (Records, error)
}

// Forewarned is a Snapshot that wants to know, before it is asked about nodes, which of them are named by tasks of jobs
// that have changed, as they were told before or as they are now. The tasks of jobs on all other nodes are as they were.
type Forewarned interface {
	Snapshot
	Forewarn(nodes map[string]bool)
}

// mirror is what the service was told, by group, and finds out what has changed.
type mirror struct {
	round  uint64
	groups map[Key]*group
	// tasks and owners by name: whose group they were last seen in.
	tasks map[string]*known
	// nodes are numbered in the order in which they were first seen.
	nodes map[string]int
	names []string
}

type group struct {
	fingerprint uint64
	seen        uint64
	records     Records
}

// known is a task that was told, and to which class it belongs.
type known struct {
	record *pb.Task
	owner  Key
	queue  string
	class  string
}

func newMirror() *mirror {
	return &mirror{groups: map[Key]*group{}, tasks: map[string]*known{}, nodes: map[string]int{}}
}

// fresh is a group whose fingerprint is new.
type fresh struct {
	at      int
	print   uint64
	records Records
	err     error
}

// take finds what has changed: records to put, and names to remove.
func (mirror *mirror) take(snapshot Snapshot) (*pb.Cluster, *pb.Removals, error) {
	mirror.round++
	changed, same := mirror.compare(snapshot)
	put, gone := &pb.Cluster{}, &pb.Removals{}
	known := len(mirror.groups)
	for _, item := range changed {
		if item.err != nil {
			return nil, nil, fmt.Errorf("%s: %w", snapshot.Key(item.at).Name, item.err)
		}
		key := snapshot.Key(item.at)
		before := mirror.groups[key]
		if before != nil {
			same++
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
	mirror.settle(put, gone)
	return put, gone, nil
}

// forget makes every fingerprint new.
func (mirror *mirror) forget() {
	for _, group := range mirror.groups {
		group.fingerprint = ^group.fingerprint
	}
}

// compare makes all fingerprints, those of nodes last, and says how many groups are as they were.
func (mirror *mirror) compare(snapshot Snapshot) (changed []fresh, same int) {
	changed, same = mirror.part(snapshot, func(kind Kind) bool { return kind != NodeGroup })
	if listener, listens := snapshot.(Forewarned); listens {
		nodes := map[string]bool{}
		for _, item := range changed {
			note := func(tasks []*pb.Task) {
				for _, task := range tasks {
					nodes[task.GetNode()] = true
				}
			}
			note(item.records.Cluster.GetTasks())
			if before := mirror.groups[snapshot.Key(item.at)]; before != nil {
				note(before.records.Cluster.GetTasks())
			}
		}
		listener.Forewarn(nodes)
	}
	more, others := mirror.part(snapshot, func(kind Kind) bool { return kind == NodeGroup })
	changed = append(changed, more...)
	slices.SortFunc(changed, func(left, right fresh) int { return left.at - right.at })
	return changed, same + others
}

// stretch is how many groups a goroutine takes at a time.
const stretch = 256

// part compares the groups of some kinds, with all processors.
func (mirror *mirror) part(snapshot Snapshot, wanted func(Kind) bool) (changed []fresh, same int) {
	total := snapshot.Groups()
	workers := max(1, min(runtime.GOMAXPROCS(0), total/64))
	parts, counts := make([][]fresh, workers), make([]int, workers)
	var wait sync.WaitGroup
	var next atomic.Int64
	for worker := range workers {
		wait.Go(func() {
			count := 0
			for from := int(next.Add(stretch)) - stretch; from < total; from = int(next.Add(stretch)) - stretch {
				for at := from; at < min(from+stretch, total); at++ {
					key := snapshot.Key(at)
					if !wanted(key.Kind) {
						continue
					}
					print := snapshot.Fingerprint(at)
					if before := mirror.groups[key]; before != nil && before.fingerprint == print {
						before.seen = mirror.round
						count++
						continue
					}
					records, err := snapshot.Records(at)
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

// replace notes the difference between two states of a group.
func (mirror *mirror) replace(key Key, before *group, now, put *pb.Cluster, gone *pb.Removals) {
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
		// Another group may have it now.
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

// settle keeps a task that went from one group to another from being removed.
func (mirror *mirror) settle(_ *pb.Cluster, gone *pb.Removals) {
	left := gone.Tasks[:0]
	for _, name := range gone.Tasks {
		if mirror.tasks[name] == nil {
			left = append(left, name)
		}
	}
	gone.Tasks = left
}

// class is the word for tasks that ask for the same: all of the record but names, uids and times, of annotations only
// those that served plugins read, and the queue where a quota is asked.
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
		// Not equal to any other.
		text = []byte(known.record.GetName())
	}
	known.class = string(text) + "\x00"
	if quotas {
		known.class += known.queue
	}
	// All tasks of a job use one card: which one of several is the job's own affair.
	if strings.Contains(read[annotationCard], "|") {
		known.class += "\x00" + known.record.GetJob()
	}
	return known.class
}

// annotationCard names the card, or cards, that a task may use.
const annotationCard = "volcano.sh/card.name"

// annotationsRead of tasks change the answers of served plugins.
var annotationsRead = [...]string{"volcano.sh/resource-strategy-scoring-type", "volcano.sh/resource-strategy-weight", annotationCard}
