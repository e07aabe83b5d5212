package pumice

import (
	"context"
	"errors"
	"time"

	pb "github.com/pumice-scheduler/pumice/clients/go/pumicev1"

	"google.golang.org/grpc/codes"
)

const (
	// staleLimit is the limit of the service after which a silent source becomes stale, in milliseconds.
	staleLimit = "source_stale_ms"
	// defaultHeartbeat is the silence before a heartbeat if the service does not list that limit: a third of its default.
	defaultHeartbeat = 20 * time.Second
	// shortestHeartbeat bounds the rate of heartbeats.
	shortestHeartbeat = 10 * time.Millisecond
)

// keepAlive sends a heartbeat whenever the feed has been silent for an interval, until the context ends. One heartbeat is
// under way at a time, and none waits for another.
func (feed *Feed) keepAlive(ctx context.Context) {
	interval, restarts, known := feed.interval(ctx)
	failures := 0
	for wait := feed.retryWait(interval, failures); sleep(ctx, wait); {
		var current uint64
		var err error
		wait, current, err = feed.beatOnce(ctx, interval)
		if !known || current != restarts {
			// The limits of a service that was restarted may be others.
			interval, restarts, known = feed.interval(ctx)
			wait = min(wait, interval)
		}
		switch {
		case err == nil:
			failures = 0
		case errors.Is(err, ErrFenced) || errors.Is(err, ErrFeedClosed) || ctx.Err() != nil:
			return
		default:
			if failures++; failures == 1 {
				feed.client.options.Logger.Warn("Pumice got no heartbeat of a feed", "source", feed.source, "error", err.Error())
			}
			wait = feed.retryWait(interval, failures)
		}
		if !known {
			wait = min(wait, feed.retryWait(interval, failures))
		}
	}
}

// retryWait is the wait after failed heartbeats, up to the interval.
func (feed *Feed) retryWait(interval time.Duration, failures int) time.Duration {
	return min(interval, feed.client.options.MaxBackoff<<min(max(failures-1, 0), 8))
}

// interval is the silence before a heartbeat: that of the options, otherwise a third of the limit of the service. It also
// returns the epoch of the service that has this limit, and whether the service answered.
func (feed *Feed) interval(ctx context.Context) (interval time.Duration, restarts uint64, known bool) {
	if own := feed.client.options.Heartbeat; own > 0 {
		return own, feed.epochOfService(), true
	}
	info, err := feed.client.GetServerInfo(ctx)
	if err != nil {
		var failure *Error
		// A service that lacks the call will not list the limit later.
		lacks := errors.As(err, &failure) && failure.Code == codes.Unimplemented
		return defaultHeartbeat, feed.epochOfService(), lacks
	}
	interval = defaultHeartbeat
	for _, limit := range info.GetLimits() {
		if limit.GetName() == staleLimit {
			interval = third(limit.GetValue())
		}
	}
	return interval, info.GetRevision().GetEpoch(), true
}

// third is a third of a number of milliseconds.
func third(milliseconds uint64) time.Duration {
	const longest = 365 * 24 * time.Hour
	return max(time.Duration(min(milliseconds, uint64(longest.Milliseconds())))*time.Millisecond/3, shortestHeartbeat)
}

func (feed *Feed) epochOfService() uint64 {
	feed.sending.Lock()
	defer feed.sending.Unlock()
	return feed.restarts
}

// beatOnce sends a heartbeat if the feed has been silent for an interval. It returns the wait before the next one, and the
// epoch of the service.
func (feed *Feed) beatOnce(ctx context.Context, interval time.Duration) (time.Duration, uint64, error) {
	feed.sending.Lock()
	defer feed.sending.Unlock()
	if err := feed.begin(); err != nil {
		return 0, feed.restarts, err
	}
	if silence := time.Since(feed.heard); feed.inSync && silence < interval {
		return interval - silence, feed.restarts, nil
	}
	err := feed.sendBeat(ctx)
	return interval, feed.restarts, err
}

// sendBeat sends an empty delta, or repeats one without an outcome. Changes stay for the next Flush, so that they become
// visible together.
func (feed *Feed) sendBeat(ctx context.Context) error {
	if !feed.inSync {
		return feed.repair(ctx)
	}
	if feed.beat == nil {
		feed.beat = feed.numbered(&pb.Batch{Kind: pb.BatchKind_BATCH_KIND_DELTA})
	}
	sent := time.Now()
	outcome, err := feed.applyCall(ctx, feed.beat)
	if err != nil {
		// Nothing is lost with an empty batch.
		return err
	}
	beat := feed.beat
	feed.beat = nil
	if err := feed.answered(sent, beat, outcome); err != nil {
		return err
	}
	if resync := outcome.GetResync(); resync != nil {
		feed.client.options.Metrics.Resync(feed.source, resync.GetReason())
		feed.inSync = false
		return feed.repair(ctx)
	}
	return nil
}

// repair sends a full sync after a loss. If changes wait for a Flush, that Flush sends it: a part of them might not be
// meant to be seen.
func (feed *Feed) repair(ctx context.Context) error {
	feed.mutex.Lock()
	changed := feed.store.changed()
	feed.mutex.Unlock()
	if changed {
		return nil
	}
	_, err := feed.fullSync(ctx, feed.applyCall)
	return err
}
