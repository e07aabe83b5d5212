package pumice

import (
	"maps"
	"slices"

	pb "github.com/pumice-scheduler/pumice/clients/go/pumicev1"

	"google.golang.org/protobuf/proto"
)

// record is a message with a name.
type record interface {
	proto.Message
	GetName() string
}

// change is the part of a named record that changed since the last batch.
type change uint8

const (
	// changedRecord: the record was put or removed.
	changedRecord change = 1 << iota
	// changedMark: the record was marked unreadable.
	changedMark
)

// records are the records of one kind, those that cannot be read, and the changes since the last batch. The last good
// record of an unreadable one stays: a full sync sends both.
type records[R record] struct {
	all        map[string]R
	unreadable map[string]*pb.UnreadableRecord
	changed    map[string]change
}

func (kind *records[R]) put(item R) {
	name := item.GetName()
	known, found := kind.all[name]
	if found && kind.unreadable[name] == nil && proto.Equal(known, item) {
		return
	}
	if kind.all == nil {
		kind.all = map[string]R{}
	}
	kind.all[name] = item
	delete(kind.unreadable, name)
	kind.note(name, changedRecord)
}

func (kind *records[R]) remove(name string) {
	_, found := kind.all[name]
	if !found && kind.unreadable[name] == nil {
		return
	}
	delete(kind.all, name)
	delete(kind.unreadable, name)
	kind.note(name, changedRecord)
}

// mark marks a record unreadable. It reports false if the mark is not new.
func (kind *records[R]) mark(unread *pb.UnreadableRecord) bool {
	if known := kind.unreadable[unread.GetName()]; known != nil && proto.Equal(known, unread) {
		return false
	}
	if kind.unreadable == nil {
		kind.unreadable = map[string]*pb.UnreadableRecord{}
	}
	kind.unreadable[unread.GetName()] = unread
	kind.note(unread.GetName(), changedMark)
	return true
}

func (kind *records[R]) note(name string, what change) {
	if kind.changed == nil {
		kind.changed = map[string]change{}
	}
	kind.changed[name] |= what
}

// take returns the changes since the last batch, sorted by name.
func (kind *records[R]) take() (put []R, gone []string, unreadable []*pb.UnreadableRecord) {
	for _, name := range slices.Sorted(maps.Keys(kind.changed)) {
		item, found := kind.all[name]
		switch {
		case kind.changed[name]&changedRecord == 0:
		case found:
			put = append(put, item)
		default:
			gone = append(gone, name)
		}
		// The service removes, puts and then marks.
		if mark := kind.unreadable[name]; mark != nil {
			unreadable = append(unreadable, mark)
		}
	}
	clear(kind.changed)
	return put, gone, unreadable
}

// everything returns all records, sorted by name: the service numbers slots in this order, and equal clusters make equal
// batches.
func (kind *records[R]) everything() ([]R, []*pb.UnreadableRecord) {
	clear(kind.changed)
	return sorted(kind.all), sorted(kind.unreadable)
}

func sorted[V any](named map[string]V) []V {
	list := make([]V, 0, len(named))
	for _, name := range slices.Sorted(maps.Keys(named)) {
		list = append(list, named[name])
	}
	return list
}

// contents are the records of one batch.
type contents struct {
	put        *pb.Cluster
	gone       *pb.Removals
	unreadable []*pb.UnreadableRecord
}

// store has the records of a feed.
type store struct {
	nodes  records[*pb.Node]
	queues records[*pb.Queue]
	jobs   records[*pb.Job]
	tasks  records[*pb.Task]
	// namespaces are few and change rarely.
	namespaces records[*pb.Namespace]
}

func (store *store) put(cluster *pb.Cluster) {
	for _, item := range cluster.GetNodes() {
		store.nodes.put(item)
	}
	for _, item := range cluster.GetQueues() {
		store.queues.put(item)
	}
	for _, item := range cluster.GetJobs() {
		store.jobs.put(item)
	}
	for _, item := range cluster.GetTasks() {
		store.tasks.put(item)
	}
	for _, item := range cluster.GetNamespaces() {
		store.namespaces.put(item)
	}
}

func (store *store) remove(gone *pb.Removals) {
	for _, name := range gone.GetNodes() {
		store.nodes.remove(name)
	}
	for _, name := range gone.GetQueues() {
		store.queues.remove(name)
	}
	for _, name := range gone.GetJobs() {
		store.jobs.remove(name)
	}
	for _, name := range gone.GetTasks() {
		store.tasks.remove(name)
	}
	for _, name := range gone.GetNamespaces() {
		store.namespaces.remove(name)
	}
}

func (store *store) mark(unread *pb.UnreadableRecord) bool {
	switch unread.GetKind() {
	case pb.RecordKind_RECORD_KIND_NODE:
		return store.nodes.mark(unread)
	case pb.RecordKind_RECORD_KIND_QUEUE:
		return store.queues.mark(unread)
	case pb.RecordKind_RECORD_KIND_JOB:
		return store.jobs.mark(unread)
	case pb.RecordKind_RECORD_KIND_TASK:
		return store.tasks.mark(unread)
	case pb.RecordKind_RECORD_KIND_NAMESPACE:
		return store.namespaces.mark(unread)
	}
	return false
}

// changed reports whether there are changes since the last batch.
func (store *store) changed() bool {
	others := len(store.queues.changed) + len(store.jobs.changed) + len(store.namespaces.changed)
	return len(store.nodes.changed)+len(store.tasks.changed)+others > 0
}

// take returns the changes since the last batch.
func (store *store) take() contents {
	put, gone := &pb.Cluster{}, &pb.Removals{}
	var marks [5][]*pb.UnreadableRecord
	put.Nodes, gone.Nodes, marks[0] = store.nodes.take()
	put.Queues, gone.Queues, marks[1] = store.queues.take()
	put.Jobs, gone.Jobs, marks[2] = store.jobs.take()
	put.Tasks, gone.Tasks, marks[3] = store.tasks.take()
	put.Namespaces, gone.Namespaces, marks[4] = store.namespaces.take()
	return contents{put: put, gone: gone, unreadable: slices.Concat(marks[:]...)}
}

// everything returns all records.
func (store *store) everything() contents {
	put := &pb.Cluster{}
	var marks [5][]*pb.UnreadableRecord
	put.Nodes, marks[0] = store.nodes.everything()
	put.Queues, marks[1] = store.queues.everything()
	put.Jobs, marks[2] = store.jobs.everything()
	put.Tasks, marks[3] = store.tasks.everything()
	put.Namespaces, marks[4] = store.namespaces.everything()
	return contents{put: put, unreadable: slices.Concat(marks[:]...)}
}

// parts splits the records of a full sync into parts of at most `most` records. No record makes one empty part.
func parts(whole contents, most int) []contents {
	list := []contents{{put: &pb.Cluster{}}}
	left := most
	last := func() *contents {
		if left == 0 {
			list = append(list, contents{put: &pb.Cluster{}})
			left = most
		}
		left--
		return &list[len(list)-1]
	}
	for _, item := range whole.put.GetNodes() {
		part := last().put
		part.Nodes = append(part.Nodes, item)
	}
	for _, item := range whole.put.GetQueues() {
		part := last().put
		part.Queues = append(part.Queues, item)
	}
	for _, item := range whole.put.GetJobs() {
		part := last().put
		part.Jobs = append(part.Jobs, item)
	}
	for _, item := range whole.put.GetTasks() {
		part := last().put
		part.Tasks = append(part.Tasks, item)
	}
	for _, item := range whole.put.GetNamespaces() {
		part := last().put
		part.Namespaces = append(part.Namespaces, item)
	}
	for _, item := range whole.unreadable {
		part := last()
		part.unreadable = append(part.unreadable, item)
	}
	return list
}
