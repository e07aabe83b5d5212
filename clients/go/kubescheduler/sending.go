package kubescheduler

import (
	"context"
	"errors"
	"time"

	pumice "github.com/pumice-scheduler/pumice/clients/go"
	pb "github.com/pumice-scheduler/pumice/clients/go/pumicev1"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
)

// sentBatch is a batch that the service has or will have. A question that names its position waits for it.
type sentBatch struct {
	position *pb.SourcePosition
	// changes is the number of changes that it has sent, with those of all batches before it.
	changes uint64
	// ended is closed when the service has replied, or will not.
	ended chan struct{}
}

// isOnItsWay reports whether the service has not replied yet.
func (batch *sentBatch) isOnItsWay() bool {
	select {
	case <-batch.ended:
		return false
	default:
		return true
	}
}

// send sends what has changed: at once when a question waits for it or a pod was put on a node, else after a while.
func (hub *hub) send() {
	var due <-chan time.Time
	for {
		var waiters []chan error
		select {
		case <-hub.ctx.Done():
			return
		case <-hub.mirror.wake:
			if due == nil {
				due = time.After(gather)
			}
			continue
		case <-due:
		case <-hub.urgent:
		case waiter := <-hub.requests:
			waiters = append(waiters, waiter)
		}
		due = nil
		err := hub.sendOnce(func() {
			for _, waiter := range waiters {
				waiter <- nil
			}
			waiters = nil
		})
		if err != nil && !errors.Is(err, pumice.ErrFenced) {
			due = time.After(pause)
		}
		for _, waiter := range waiters {
			waiter <- err
		}
	}
}

// sendOnce sends one batch, if there is something to send. `leaves` is called when the last part of the batch is on its way.
func (hub *hub) sendOnce(leaves func()) error {
	// A part of the scheduler's view would be taken for the whole.
	for !hub.mirror.synced() {
		select {
		case <-hub.ctx.Done():
			return hub.ctx.Err()
		case <-time.After(5 * time.Millisecond):
		}
	}
	changes, ended := hub.mirror.changes.Load(), make(chan struct{})
	defer close(ended)
	hub.noted.leaves = func(position *pb.SourcePosition) {
		hub.sent.Store(&sentBatch{position, changes, ended})
		leaves()
	}
	if err := hub.sendBatch(); err != nil {
		hub.sent.Store(nil)
		return err
	}
	hub.sent.Store(&sentBatch{hub.mirror.feed.Position(), changes, ended})
	return nil
}

// sendBatch sends what has changed by the stream, and by a call of its own where that has ended: the service may have been restarted.
func (hub *hub) sendBatch() error {
	ctx := context.WithValue(hub.ctx, batchKey{}, hub.noted)
	if hub.stream == nil {
		if err := hub.mirror.flush(ctx); err != nil {
			return err
		}
		// Without a stream calls do.
		hub.stream, _ = hub.mirror.feed.Stream(ctx)
		return nil
	}
	_, err := hub.stream.Flush(hub.ctx)
	if err == nil || errors.Is(err, pumice.ErrFenced) {
		return err
	}
	_ = hub.stream.Close()
	hub.stream = nil
	var failure *pumice.Error
	if errors.As(err, &failure) && failure.Code == codes.DeadlineExceeded {
		return err
	}
	return hub.mirror.flush(ctx)
}

// batchKey is the key of the [notedBatches] of a context.
type batchKey struct{}

// notedBatches hear of a batch of [hub.sendOnce] when it is sent: a question may follow it at once, because the service lets the question
// wait until the batch is visible.
type notedBatches struct {
	leaves func(*pb.SourcePosition)
}

// notedOf returns what hears of the batches of a call; nil: nothing does.
func notedOf(ctx context.Context) *notedBatches {
	noted, _ := ctx.Value(batchKey{}).(*notedBatches)
	return noted
}

func (noted *notedBatches) note(batch *pb.Batch) {
	if noted != nil && batch != nil && batch.GetKind() != pb.BatchKind_BATCH_KIND_FULL_SYNC_PART {
		noted.leaves(&pb.SourcePosition{Source: batch.GetSource(), SourceEpoch: batch.GetSourceEpoch(), Sequence: batch.GetSequence()})
	}
}

// noteCall reports a batch that is sent by a call.
func noteCall(ctx context.Context, method string, request, reply any, connection *grpc.ClientConn, invoke grpc.UnaryInvoker, options ...grpc.CallOption) error {
	if apply, is := request.(*pb.ApplyRequest); is {
		notedOf(ctx).note(apply.GetBatch())
	}
	return invoke(ctx, method, request, reply, connection, options...)
}

// noteStream reports the batches that are sent by a stream.
func noteStream(ctx context.Context, description *grpc.StreamDesc, connection *grpc.ClientConn, method string, open grpc.Streamer, options ...grpc.CallOption) (grpc.ClientStream, error) {
	stream, err := open(ctx, description, connection, method, options...)
	if noted := notedOf(ctx); err == nil && noted != nil {
		stream = &notedStream{stream, noted}
	}
	return stream, err
}

// notedStream is a stream whose batches are noted.
type notedStream struct {
	grpc.ClientStream
	noted *notedBatches
}

// SendMsg sends a message.
func (stream *notedStream) SendMsg(message any) error {
	if err := stream.ClientStream.SendMsg(message); err != nil {
		return err
	}
	if sync, is := message.(*pb.SyncRequest); is {
		stream.noted.note(sync.GetBatch())
	}
	return nil
}

// hurry sends what has changed without waiting for a question that needs it.
func (hub *hub) hurry() {
	select {
	case hub.urgent <- struct{}{}:
	default:
	}
}

// flush waits until everything that is known now is on its way, and returns the last batch.
func (hub *hub) flush(ctx context.Context) (*sentBatch, error) {
	for {
		if last := hub.sent.Load(); last != nil && last.changes >= hub.mirror.changes.Load() {
			return last, nil
		}
		done := make(chan error, 1)
		select {
		case hub.requests <- done:
		case <-ctx.Done():
			return nil, late("the state could not be sent in time")
		}
		select {
		case err := <-done:
			if last := hub.sent.Load(); err == nil && last != nil {
				return last, nil
			} else if err != nil {
				return nil, err
			}
		case <-ctx.Done():
			return nil, late("the state could not be sent in time")
		}
	}
}
