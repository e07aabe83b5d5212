package kubescheduler

import (
	"context"
	"errors"
	"time"

	pumice "github.com/pumice-scheduler/pumice/clients/go"
	pb "github.com/pumice-scheduler/pumice/clients/go/pumicev1"

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
	hub.leaves = func(position *pb.SourcePosition) {
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

// sendBatch sends what has changed by the stream, and by a call of its own where that has ended: the service may have been restarted,
// or another server is in use.
func (hub *hub) sendBatch() error {
	if hub.stream == nil {
		if err := hub.mirror.flush(hub.ctx); err != nil {
			return err
		}
		// Without a stream calls do.
		hub.stream, _ = hub.mirror.feed.Stream(hub.ctx)
		return nil
	}
	address := hub.client.Address()
	_, err := hub.stream.Flush(hub.ctx)
	if err == nil || errors.Is(err, pumice.ErrFenced) {
		return err
	}
	_ = hub.stream.Close()
	hub.stream = nil
	var failure *pumice.Error
	if errors.As(err, &failure) && failure.Code == codes.DeadlineExceeded && hub.client.Address() == address {
		return err
	}
	return hub.mirror.flush(hub.ctx)
}

// watchServer finds out, if the caller has to wait for another batch, whether the server is there at all: one that hangs is left for the
// next, and the batch with it. A server that is busy with a full sync answers such a call at once. The caller calls the result.
func (hub *hub) watchServer(ctx context.Context) (stop func()) {
	deadline, limited := ctx.Deadline()
	if !limited || len(hub.client.Addresses()) == 1 {
		return func() {}
	}
	timer := time.AfterFunc(time.Until(deadline)/4, func() { _, _ = hub.client.WhoAmI(ctx) })
	return func() { timer.Stop() }
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
	watched := false
	for {
		if last := hub.sent.Load(); last != nil && last.changes >= hub.mirror.changes.Load() {
			return last, nil
		}
		if !watched {
			watched = true
			defer hub.watchServer(ctx)()
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
