package pumice

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	pb "pumice/clients/go/pumicev1"

	"google.golang.org/protobuf/proto"
)

// partRecords is how many records a part of a snapshot holds.
const partRecords = 20_000

// Feed writes the records of one source: it keeps them, sends what has changed, and everything after a loss. It is safe
// to use from several goroutines.
type Feed struct {
	client *Client
	source string
	epoch  uint64

	// sending is held while a batch is on its way: batches go one after the other.
	sending  sync.Mutex
	sequence uint64
	inStep   bool
	fenced   bool

	mutex  sync.Mutex
	nodes  records[*pb.Node]
	queues records[*pb.Queue]
	jobs   records[*pb.Job]
	tasks  records[*pb.Task]
}

// Feed makes a feed. With epoch 0 it takes the time in nanoseconds when it first sends: a process that begins to write
// later fences an older one, and one that stands by and only collects fences nobody.
func (client *Client) Feed(source string, epoch uint64) *Feed {
	return &Feed{client: client, source: source, epoch: epoch}
}

// record is what has a name and can be compared.
type record interface {
	proto.Message
	GetName() string
}

// records of one kind: all of them, and what has changed since they were sent.
type records[R record] struct {
	all     map[string]R
	changed map[string]bool
}

func (kind *records[R]) put(item R) {
	if kind.all == nil {
		kind.all, kind.changed = map[string]R{}, map[string]bool{}
	}
	if known, found := kind.all[item.GetName()]; found && proto.Equal(known, item) {
		return
	}
	kind.all[item.GetName()] = item
	kind.changed[item.GetName()] = true
}

func (kind *records[R]) remove(name string) {
	if _, found := kind.all[name]; found {
		delete(kind.all, name)
		kind.changed[name] = true
	}
}

// take gives what has changed, and forgets that it has.
func (kind *records[R]) take() (put []R, gone []string) {
	for _, name := range slices.Sorted(maps.Keys(kind.changed)) {
		if item, found := kind.all[name]; found {
			put = append(put, item)
		} else {
			gone = append(gone, name)
		}
	}
	clear(kind.changed)
	return put, gone
}

func (kind *records[R]) everything() []R {
	clear(kind.changed)
	items := make([]R, 0, len(kind.all))
	// By name: slots follow, and the same cluster makes the same batch.
	for _, name := range slices.Sorted(maps.Keys(kind.all)) {
		items = append(items, kind.all[name])
	}
	return items
}

// Put takes records in; they are sent by the next Flush. A record that is as it was sent is not sent again. The feed
// keeps them: do not change them afterwards.
func (feed *Feed) Put(cluster *pb.Cluster) {
	feed.mutex.Lock()
	defer feed.mutex.Unlock()
	for _, item := range cluster.GetNodes() {
		feed.nodes.put(item)
	}
	for _, item := range cluster.GetQueues() {
		feed.queues.put(item)
	}
	for _, item := range cluster.GetJobs() {
		feed.jobs.put(item)
	}
	for _, item := range cluster.GetTasks() {
		feed.tasks.put(item)
	}
}

// Remove takes records out, by name.
func (feed *Feed) Remove(gone *pb.Removals) {
	feed.mutex.Lock()
	defer feed.mutex.Unlock()
	for _, name := range gone.GetNodes() {
		feed.nodes.remove(name)
	}
	for _, name := range gone.GetQueues() {
		feed.queues.remove(name)
	}
	for _, name := range gone.GetJobs() {
		feed.jobs.remove(name)
	}
	for _, name := range gone.GetTasks() {
		feed.tasks.remove(name)
	}
}

// Position is the last batch that was sent; a question can wait for it (World.Positions).
func (feed *Feed) Position() *pb.SourcePosition {
	feed.sending.Lock()
	defer feed.sending.Unlock()
	return &pb.SourcePosition{Source: feed.source, SourceEpoch: feed.epoch, Sequence: feed.sequence}
}

// Flush sends what has changed: a delta, or everything the first time and after a loss. Nothing changed: nothing is
// sent, and the outcome is nil. Look at Refused: those records were not taken.
func (feed *Feed) Flush(ctx context.Context) (*pb.BatchOutcome, error) {
	return feed.flush(ctx, feed.alone)
}

// sender brings one batch to the service, and its outcome back.
type sender func(context.Context, *pb.Batch) (*pb.BatchOutcome, error)

// alone sends a batch as a call of its own.
func (feed *Feed) alone(ctx context.Context, batch *pb.Batch) (*pb.BatchOutcome, error) {
	response, err := call(ctx, feed.client, "Apply", repeatable, feed.client.state.Apply, &pb.ApplyRequest{Batch: batch})
	return response.GetOutcome(), err
}

func (feed *Feed) flush(ctx context.Context, send sender) (*pb.BatchOutcome, error) {
	feed.sending.Lock()
	defer feed.sending.Unlock()
	if feed.fenced {
		return nil, ErrFenced
	}
	if !feed.inStep {
		return feed.snapshot(ctx, send)
	}
	delta := feed.delta()
	if delta == nil {
		return nil, nil
	}
	outcome, err := feed.apply(ctx, send, delta)
	if err != nil {
		return nil, err
	}
	if resync := outcome.GetResync(); resync != nil {
		feed.client.options.Metrics.Resync(feed.source, resync.GetReason())
		return feed.snapshot(ctx, send)
	}
	feed.inStep = true
	return outcome, nil
}

// Resync makes the next Flush send everything.
func (feed *Feed) Resync() {
	feed.sending.Lock()
	defer feed.sending.Unlock()
	feed.inStep = false
}

// delta is what has changed, as the next batch, or nil.
func (feed *Feed) delta() *pb.Batch {
	feed.mutex.Lock()
	defer feed.mutex.Unlock()
	put, gone := &pb.Cluster{}, &pb.Removals{}
	put.Nodes, gone.Nodes = feed.nodes.take()
	put.Queues, gone.Queues = feed.queues.take()
	put.Jobs, gone.Jobs = feed.jobs.take()
	put.Tasks, gone.Tasks = feed.tasks.take()
	if proto.Size(put) == 0 && proto.Size(gone) == 0 {
		return nil
	}
	return feed.numbered(&pb.Batch{Kind: pb.BatchKind_BATCH_KIND_DELTA, Put: put, Remove: gone})
}

func (feed *Feed) numbered(batch *pb.Batch) *pb.Batch {
	if feed.epoch == 0 {
		feed.epoch = uint64(time.Now().UnixNano())
	}
	feed.sequence++
	batch.Source, batch.SourceEpoch, batch.Sequence = feed.source, feed.epoch, feed.sequence
	return batch
}

// snapshot sends everything, in parts.
func (feed *Feed) snapshot(ctx context.Context, send sender) (*pb.BatchOutcome, error) {
	feed.mutex.Lock()
	whole := &pb.Cluster{
		Nodes: feed.nodes.everything(), Queues: feed.queues.everything(),
		Jobs: feed.jobs.everything(), Tasks: feed.tasks.everything(),
	}
	feed.mutex.Unlock()
	var outcome *pb.BatchOutcome
	rest := parts(whole, partRecords)
	for number, part := range rest {
		batch := &pb.Batch{Kind: pb.BatchKind_BATCH_KIND_FULL_SYNC_PART, Part: uint32(number) + 1, Put: part}
		if number == len(rest)-1 {
			batch.Kind = pb.BatchKind_BATCH_KIND_FULL_SYNC_LAST
		}
		var err error
		if outcome, err = feed.apply(ctx, send, feed.numbered(batch)); err != nil {
			return nil, err
		}
		if resync := outcome.GetResync(); resync != nil {
			return nil, fmt.Errorf("source %s: %s: %s", feed.source, resync.GetReason(), resync.GetMessage())
		}
	}
	feed.inStep = true
	return outcome, nil
}

// apply sends one batch. Until its outcome is here nobody knows whether it arrived, and so the next one is a snapshot.
func (feed *Feed) apply(ctx context.Context, send sender, batch *pb.Batch) (*pb.BatchOutcome, error) {
	feed.inStep = false
	outcome, err := send(ctx, batch)
	if err != nil {
		return nil, err
	}
	return outcome, feed.fence(outcome)
}

func (feed *Feed) fence(outcome *pb.BatchOutcome) error {
	if outcome.GetResync().GetReason() == "FENCED" {
		feed.fenced = true
		return ErrFenced
	}
	return nil
}

// OpenSession begins a scheduling cycle on what has changed, in one call. against is a LatestRef or nil.
func (feed *Feed) OpenSession(ctx context.Context, against *pb.EvaluationRef) (*Session, error) {
	feed.sending.Lock()
	defer feed.sending.Unlock()
	if feed.fenced {
		return nil, ErrFenced
	}
	if !feed.inStep {
		if _, err := feed.snapshot(ctx, feed.alone); err != nil {
			return nil, err
		}
	}
	delta := feed.delta()
	feed.inStep = delta == nil
	session, err := feed.client.openSession(ctx, against, delta)
	var failure *Error
	if errors.As(err, &failure) && failure.Reason == ReasonResyncNeeded {
		if fenced := feed.fence(failure.Outcome); fenced != nil {
			return nil, fenced
		}
		feed.client.options.Metrics.Resync(feed.source, failure.Outcome.GetResync().GetReason())
		if _, err := feed.snapshot(ctx, feed.alone); err != nil {
			return nil, err
		}
		session, err = feed.client.openSession(ctx, against, nil)
	}
	if err != nil {
		return nil, err
	}
	feed.inStep = true
	return session, nil
}

// parts cuts a cluster into parts of at most so many records; an empty one is one empty part.
func parts(whole *pb.Cluster, most int) []*pb.Cluster {
	list := []*pb.Cluster{{}}
	room := most
	last := func() *pb.Cluster {
		if room == 0 {
			list = append(list, &pb.Cluster{})
			room = most
		}
		room--
		return list[len(list)-1]
	}
	for _, item := range whole.GetNodes() {
		part := last()
		part.Nodes = append(part.Nodes, item)
	}
	for _, item := range whole.GetQueues() {
		part := last()
		part.Queues = append(part.Queues, item)
	}
	for _, item := range whole.GetJobs() {
		part := last()
		part.Jobs = append(part.Jobs, item)
	}
	for _, item := range whole.GetTasks() {
		part := last()
		part.Tasks = append(part.Tasks, item)
	}
	return list
}
