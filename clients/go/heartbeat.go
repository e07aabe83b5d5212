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
	// never is an interval that does not end.
	never = 365 * 24 * time.Hour
)

// keepAlive sends a server of the feed what is in its outbox, and a heartbeat whenever it has heard nothing for an interval, until
// the context ends. One heartbeat is under way at a time, and none waits for another.
func (feed *Feed) keepAlive(ctx context.Context, link *feedLink) {
	interval, restarts, known := feed.interval(ctx, link)
	failures := 0
	for wait := feed.retryWait(interval, failures); link.rest(ctx, wait, failures == 0); {
		var current uint64
		var err error
		wait, current, err = feed.beatOnce(ctx, link, interval)
		if !known || current != restarts {
			// The limits of a service that was restarted may be others.
			interval, restarts, known = feed.interval(ctx, link)
			wait = min(wait, interval)
		}
		switch {
		case err == nil:
			failures = 0
		case errors.Is(err, ErrFenced) || errors.Is(err, ErrFeedClosed) || ctx.Err() != nil:
			return
		default:
			if failures++; failures == 1 {
				feed.client.options.Logger.Warn("Pumice got no heartbeat of a feed", "source", feed.source, "address", link.server.target, "error", err.Error())
			}
			wait = feed.retryWait(interval, failures)
		}
		if !known {
			wait = min(wait, feed.retryWait(interval, failures))
		}
	}
}

// rest waits, until something is in the outbox if `wakes`; false: the context has ended.
func (link *feedLink) rest(ctx context.Context, wait time.Duration, wakes bool) bool {
	wake := link.wake
	if !wakes {
		wake = nil
	}
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-wake:
	case <-timer.C:
	}
	return true
}

// retryWait is the wait after failed heartbeats, up to the interval.
func (feed *Feed) retryWait(interval time.Duration, failures int) time.Duration {
	return min(interval, feed.client.options.MaxBackoff<<min(max(failures-1, 0), 8))
}

// interval is the silence before a heartbeat: that of the options, otherwise a third of the limit of the server. It also
// returns the epoch of the server that has this limit, and whether the server answered.
func (feed *Feed) interval(ctx context.Context, link *feedLink) (interval time.Duration, restarts uint64, known bool) {
	switch own := feed.client.options.Heartbeat; {
	case own > 0:
		return own, feed.restartsOf(link), true
	case own < 0:
		return never, feed.restartsOf(link), true
	}
	info, err := callAt(ctx, feed.client, link.server, "GetServerInfo", repeatable, states(pb.StateServiceClient.GetServerInfo), &pb.GetServerInfoRequest{})
	if err != nil {
		var failure *Error
		// A service that lacks the call will not list the limit later.
		lacks := errors.As(err, &failure) && failure.Code == codes.Unimplemented
		return defaultHeartbeat, feed.restartsOf(link), lacks
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
	return max(time.Duration(min(milliseconds, uint64(never.Milliseconds())))*time.Millisecond/3, shortestHeartbeat)
}

// beatOnce sends a server what is in its outbox, and a heartbeat if it has heard nothing for an interval. It returns the wait before
// the next one, and the epoch of the server. Changes stay for the next Flush, so that they become visible together.
func (feed *Feed) beatOnce(ctx context.Context, link *feedLink, interval time.Duration) (time.Duration, uint64, error) {
	link.sending.Lock()
	defer link.sending.Unlock()
	if err := feed.stopped(); err != nil {
		return 0, feed.restartsOf(link), err
	}
	silence := time.Since(link.heard)
	if batch, _ := feed.first(link); batch == nil && !feed.isLost(link) && silence < interval {
		return interval - silence, feed.restartsOf(link), nil
	}
	if err := feed.reaches(ctx, link); err != nil {
		return interval, feed.restartsOf(link), err
	}
	feed.beat(link)
	_, err := feed.deliver(ctx, link, delivery{send: feed.applyCall})
	return interval, feed.restartsOf(link), err
}
