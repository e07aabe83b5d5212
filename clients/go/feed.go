package pumice

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	pb "github.com/pumice-scheduler/pumice/clients/go/pumicev1"
)

const (
	// partRecords is the number of records in one part of a full sync.
	partRecords = 20_000
	// loggedRecords is the number of refused records that one outcome logs by name.
	loggedRecords = 10
	// reasonUnreadable is the reason by which an outcome repeats a record that the feed itself marked unreadable.
	reasonUnreadable = "UNREADABLE_RECORD"
	// reasonRestarted is the reason of a full sync to a service that has lost the records.
	reasonRestarted = "SERVICE_RESTARTED"
)

// Feed writes the records of one source, which follows a cluster: it keeps them, sends changes, and sends a full sync
// after a loss. From the first Flush until Close it also sends a heartbeat while there is nothing to send
// (Options.Heartbeat), so that the source does not become stale. It is safe to use from several goroutines.
//
// The service refuses a bad record and applies the rest; the last good record of that name stays in force. The outcome
// names the refused records, Options.Logger gets a warning for each, and Options.Metrics their number.
type Feed struct {
	client *Client
	source string
	epoch  uint64
	// life ends with Close, or with the client.
	life   context.Context
	end    context.CancelFunc
	beats  sync.Once
	closed bool
	// resync asks the next Flush for a full sync. It waits for no batch that is being sent.
	resync atomic.Bool

	// sending is held while a batch is being sent: batches go one after the other.
	sending  sync.Mutex
	sequence uint64
	inSync   bool
	fenced   bool
	// heard is the time at which the last batch was sent that the service answered, restarts the epoch of the service then.
	heard    time.Time
	restarts uint64
	// onRefused is called with refused records. May be nil.
	onRefused func([]RefusedRecord)
	// beat is a heartbeat without an outcome, which is repeated under its own number.
	beat *pb.Batch

	mutex sync.Mutex
	store store
}

// Feed makes a feed. With epoch 0 its epoch is the time of its first batch, in nanoseconds: a process that begins to write
// later fences an older one, and a process on standby, which sends nothing, fences none.
func (client *Client) Feed(source string, epoch uint64) *Feed {
	life, end := context.WithCancel(client.life)
	return &Feed{client: client, source: source, epoch: epoch, life: life, end: end}
}

// Close ends the feed: it sends no more heartbeats and no more batches, and the source becomes stale unless another
// process writes it. Closing twice is allowed.
func (feed *Feed) Close() {
	feed.end()
	feed.sending.Lock()
	defer feed.sending.Unlock()
	feed.closed = true
}

// Put adds or replaces records, which the next Flush sends. An unchanged record is not sent again. The feed keeps the
// records: the caller must not change them afterwards.
func (feed *Feed) Put(cluster *pb.Cluster) {
	feed.mutex.Lock()
	defer feed.mutex.Unlock()
	feed.store.put(cluster)
}

// Remove removes records, by name.
func (feed *Feed) Remove(gone *pb.Removals) {
	feed.mutex.Lock()
	defer feed.mutex.Unlock()
	feed.store.remove(gone)
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
	if err := feed.begin(); err != nil {
		return nil, err
	}
	if feed.resync.Swap(false) {
		feed.inSync = false
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

// begin reports why the feed cannot send. The first time it starts the heartbeats.
func (feed *Feed) begin() error {
	switch {
	case feed.closed:
		return ErrFeedClosed
	case feed.fenced:
		return ErrFenced
	}
	if feed.client.options.Heartbeat >= 0 {
		feed.beats.Do(func() { go feed.keepAlive(feed.life) })
	}
	return nil
}

// Resync makes the next Flush send a full sync.
func (feed *Feed) Resync() {
	feed.resync.Store(true)
}

// delta is the next batch with the changes; nil: nothing changed.
func (feed *Feed) delta() *pb.Batch {
	feed.mutex.Lock()
	defer feed.mutex.Unlock()
	if !feed.store.changed() {
		return nil
	}
	changes := feed.store.take()
	return feed.numbered(&pb.Batch{
		Kind: pb.BatchKind_BATCH_KIND_DELTA, Put: changes.put, Remove: changes.gone, Unreadable: changes.unreadable,
	})
}

func (feed *Feed) numbered(batch *pb.Batch) *pb.Batch {
	if feed.epoch == 0 {
		feed.epoch = uint64(time.Now().UnixNano())
	}
	// A heartbeat that was lost leaves a gap now, for which the service asks for a full sync.
	feed.beat = nil
	feed.sequence++
	batch.Source, batch.SourceEpoch, batch.Sequence = feed.source, feed.epoch, feed.sequence
	batch.SourceKind = pb.SourceKind_SOURCE_KIND_LIVE
	return batch
}

// fullSync sends all records, in parts.
func (feed *Feed) fullSync(ctx context.Context, send sender) (*pb.BatchOutcome, error) {
	feed.mutex.Lock()
	list := parts(feed.store.everything(), partRecords)
	feed.mutex.Unlock()
	var outcome *pb.BatchOutcome
	for number, part := range list {
		batch := &pb.Batch{
			Kind: pb.BatchKind_BATCH_KIND_FULL_SYNC_PART, Part: uint32(number) + 1, Put: part.put, Unreadable: part.unreadable,
		}
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
	sent := time.Now()
	outcome, err := send(ctx, batch)
	if err != nil {
		return nil, err
	}
	return outcome, feed.answered(sent, batch, outcome)
}

// answered takes note of the outcome of a batch.
func (feed *Feed) answered(sent time.Time, batch *pb.Batch, outcome *pb.BatchOutcome) error {
	feed.heard, feed.restarts = sent, outcome.GetRevision().GetEpoch()
	feed.reportRefused(batch, outcome)
	return feed.checkFenced(outcome)
}

func (feed *Feed) checkFenced(outcome *pb.BatchOutcome) error {
	if outcome.GetResync().GetReason() == "FENCED" {
		feed.fenced = true
		feed.end()
		return ErrFenced
	}
	return nil
}

// OpenSession sends the changes and opens a session after them, in one call: against is a LatestRef or nil. The outcome of
// the batch, with refused records, is in Session.Opened.
func (feed *Feed) OpenSession(ctx context.Context, against *pb.EvaluationRef) (*Session, error) {
	feed.sending.Lock()
	defer feed.sending.Unlock()
	if err := feed.begin(); err != nil {
		return nil, err
	}
	if feed.resync.Swap(false) {
		feed.inSync = false
	}
	if !feed.inSync {
		if _, err := feed.fullSync(ctx, feed.applyCall); err != nil {
			return nil, err
		}
	}
	delta, sent := feed.delta(), time.Now()
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
	if err == nil && delta == nil && session.opened.GetMetadata().GetRevision().GetEpoch() != feed.restarts {
		session, err = feed.reopen(ctx, session, against)
	}
	if err != nil {
		return nil, err
	}
	if outcome := session.Opened().GetOutcome(); outcome != nil {
		if err := feed.answered(sent, delta, outcome); err != nil {
			return nil, err
		}
	}
	feed.inSync = true
	return session, nil
}

// reopen sends everything to a service that was restarted since the last batch, and opens another session after it. With
// nothing to send, the first session has told so.
func (feed *Feed) reopen(ctx context.Context, session *Session, against *pb.EvaluationRef) (*Session, error) {
	feed.inSync = false
	feed.client.options.Metrics.Resync(feed.source, reasonRestarted)
	// Without this call the session ends with its lease.
	_ = session.Close(ctx)
	if _, err := feed.fullSync(ctx, feed.applyCall); err != nil {
		return nil, err
	}
	return feed.client.openSession(ctx, against, nil)
}
