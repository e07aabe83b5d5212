package pumice

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	pb "github.com/pumice-scheduler/pumice/clients/go/pumicev1"

	"google.golang.org/protobuf/proto"
)

// partRecords is the number of records in one part of a full sync.
const partRecords = 20_000

// Feed writes the records of one source: it keeps them, sends changes, and sends a full sync after a loss. It is safe to
// use from several goroutines.
//
// The service refuses a bad record and applies the rest; the last good record of that name stays in force. The outcome
// names the refused records, and Options.Logger gets a warning.
type Feed struct {
	client *Client
	source string
	epoch  uint64

	// sending is held while a batch is being sent: batches go one after the other.
	sending  sync.Mutex
	sequence uint64
	inSync   bool
	fenced   bool

	mutex  sync.Mutex
	nodes  records[*pb.Node]
	queues records[*pb.Queue]
	jobs   records[*pb.Job]
	tasks  records[*pb.Task]
}

// Feed makes a feed. With epoch 0 its epoch is the time of its first batch, in nanoseconds: a process that begins to write
// later fences an older one, and a process on standby, which sends nothing, fences none.
func (client *Client) Feed(source string, epoch uint64) *Feed {
	return &Feed{client: client, source: source, epoch: epoch}
}

// record is a message with a name.
type record interface {
	proto.Message
	GetName() string
}

// records are the records of one kind, and the names of those that changed since the last batch.
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

// take returns the changes since the last batch.
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
	// Sorted by name: the service numbers slots in this order, and equal clusters make equal batches.
	for _, name := range slices.Sorted(maps.Keys(kind.all)) {
		items = append(items, kind.all[name])
	}
	return items
}

// Put adds or replaces records, which the next Flush sends. An unchanged record is not sent again. The feed keeps the
// records: the caller must not change them afterwards.
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

// Remove removes records, by name.
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

// Position returns the number of the last batch. A request can wait for it (LatestRef.Positions).
func (feed *Feed) Position() *pb.SourcePosition {
	feed.sending.Lock()
	defer feed.sending.Unlock()
	return &pb.SourcePosition{Source: feed.source, SourceEpoch: feed.epoch, Sequence: feed.sequence}
}

// Flush sends the changes: a delta, or a full sync at first and after a loss. If nothing changed, nothing is sent and the
// outcome is nil.
func (feed *Feed) Flush(ctx context.Context) (*pb.BatchOutcome, error) {
	return feed.flush(ctx, feed.applyCall)
}

// sender sends one batch and returns its outcome.
type sender func(context.Context, *pb.Batch) (*pb.BatchOutcome, error)

// apply sends a batch as a call of its own.
func (feed *Feed) applyCall(ctx context.Context, batch *pb.Batch) (*pb.BatchOutcome, error) {
	response, err := call(ctx, feed.client, "Apply", repeatable, feed.client.state.Apply, &pb.ApplyRequest{Batch: batch})
	return response.GetOutcome(), err
}

func (feed *Feed) flush(ctx context.Context, send sender) (*pb.BatchOutcome, error) {
	feed.sending.Lock()
	defer feed.sending.Unlock()
	if feed.fenced {
		return nil, ErrFenced
	}
	if !feed.inSync {
		return feed.fullSync(ctx, send)
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
		return feed.fullSync(ctx, send)
	}
	feed.inSync = true
	return outcome, nil
}

// Resync makes the next Flush send a full sync.
func (feed *Feed) Resync() {
	feed.sending.Lock()
	defer feed.sending.Unlock()
	feed.inSync = false
}

// delta is the next batch with the changes; nil: nothing changed.
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

// fullSync sends all records, in parts.
func (feed *Feed) fullSync(ctx context.Context, send sender) (*pb.BatchOutcome, error) {
	feed.mutex.Lock()
	cluster := &pb.Cluster{
		Nodes: feed.nodes.everything(), Queues: feed.queues.everything(),
		Jobs: feed.jobs.everything(), Tasks: feed.tasks.everything(),
	}
	feed.mutex.Unlock()
	var outcome *pb.BatchOutcome
	list := parts(cluster, partRecords)
	for number, part := range list {
		batch := &pb.Batch{Kind: pb.BatchKind_BATCH_KIND_FULL_SYNC_PART, Part: uint32(number) + 1, Put: part}
		if number == len(list)-1 {
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
	feed.inSync = true
	return outcome, nil
}

// apply sends one batch. While its outcome is unknown, it may be lost: then the next batch is a full sync.
func (feed *Feed) apply(ctx context.Context, send sender, batch *pb.Batch) (*pb.BatchOutcome, error) {
	feed.inSync = false
	outcome, err := send(ctx, batch)
	if err != nil {
		return nil, err
	}
	feed.logRefused(outcome)
	return outcome, feed.checkFenced(outcome)
}

// logRefused warns about refused records: the service has an older record of that name, or none.
func (feed *Feed) logRefused(outcome *pb.BatchOutcome) {
	refused := outcome.GetRefused()
	if len(refused) == 0 {
		return
	}
	first := refused[0]
	feed.client.options.Logger.Warn("Pumice refused records of a feed",
		"source", feed.source, "records", len(refused),
		"field", first.GetField(), "reason", first.GetReason(), "message", first.GetMessage())
}

func (feed *Feed) checkFenced(outcome *pb.BatchOutcome) error {
	if outcome.GetResync().GetReason() == "FENCED" {
		feed.fenced = true
		return ErrFenced
	}
	return nil
}

// OpenSession sends the changes and opens a session after them, in one call: against is a LatestRef or nil. The outcome of
// the batch, with refused records, is in Session.Opened.
func (feed *Feed) OpenSession(ctx context.Context, against *pb.EvaluationRef) (*Session, error) {
	feed.sending.Lock()
	defer feed.sending.Unlock()
	if feed.fenced {
		return nil, ErrFenced
	}
	if !feed.inSync {
		if _, err := feed.fullSync(ctx, feed.applyCall); err != nil {
			return nil, err
		}
	}
	delta := feed.delta()
	feed.inSync = delta == nil
	session, err := feed.client.openSession(ctx, against, delta)
	var failure *Error
	if errors.As(err, &failure) && failure.Reason == ReasonResyncNeeded {
		if fenced := feed.checkFenced(failure.Outcome); fenced != nil {
			return nil, fenced
		}
		feed.client.options.Metrics.Resync(feed.source, failure.Outcome.GetResync().GetReason())
		if _, err := feed.fullSync(ctx, feed.applyCall); err != nil {
			return nil, err
		}
		session, err = feed.client.openSession(ctx, against, nil)
	}
	if err != nil {
		return nil, err
	}
	feed.logRefused(session.Opened().GetOutcome())
	feed.inSync = true
	return session, nil
}

// parts splits a cluster into parts of at most `most` records. An empty cluster is one empty part.
func parts(whole *pb.Cluster, most int) []*pb.Cluster {
	list := []*pb.Cluster{{}}
	left := most
	last := func() *pb.Cluster {
		if left == 0 {
			list = append(list, &pb.Cluster{})
			left = most
		}
		left--
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
