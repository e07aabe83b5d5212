package pumice

import (
	"context"
	"errors"
	"time"

	pb "github.com/pumice-scheduler/pumice/clients/go/pumicev1"
)

// openAt opens a session at a server, with the last batch for it in the same call. The caller holds link.sending.
func (feed *Feed) openAt(ctx context.Context, link *feedLink, against *pb.EvaluationRef) (*Session, error) {
	delta, err := feed.deliverAllButOne(ctx, link)
	if err != nil {
		return nil, err
	}
	sent := time.Now()
	session, err := feed.client.openSession(ctx, link.server, against, delta)
	var failure *Error
	if errors.As(err, &failure) && failure.Reason == ReasonResyncNeeded {
		if fenced := feed.checkFenced(failure.Outcome); fenced != nil {
			return nil, fenced
		}
		session, err = feed.openAfterAll(ctx, link, against, failure.Outcome.GetResync().GetReason())
		delta = nil
	}
	if err == nil && delta == nil && session.Opened().GetMetadata().GetRevision().GetEpoch() != feed.restartsOf(link) {
		// The service was restarted since the last batch. With nothing to send, the session has told so. Without a call it
		// ends with its lease.
		_ = session.Close(ctx)
		session, err = feed.openAfterAll(ctx, link, against, reasonRestarted)
	}
	if err != nil {
		if delta != nil {
			feed.unanswered(link, delta)
		}
		return nil, err
	}
	if outcome := session.Opened().GetOutcome(); outcome != nil {
		if err := feed.answered(link, sent, delta, outcome); err != nil {
			return nil, err
		}
	}
	feed.wakeOthers(link)
	return session, nil
}

// deliverAllButOne sends what a server lacks, but a delta with the last changes, which it returns: it goes with the session.
func (feed *Feed) deliverAllButOne(ctx context.Context, link *feedLink) (*pb.Batch, error) {
	if batch, last := feed.first(link); last && batch.GetKind() == pb.BatchKind_BATCH_KIND_DELTA && !isEmpty(batch) {
		return batch, nil
	}
	_, err := feed.deliver(ctx, link, delivery{send: feed.applyCall, early: true})
	return nil, err
}

// openAfterAll sends everything to a service that lost the records, and opens a session after it.
func (feed *Feed) openAfterAll(ctx context.Context, link *feedLink, against *pb.EvaluationRef, reason string) (*Session, error) {
	feed.client.options.Metrics.Resync(feed.source, reason)
	feed.mutex.Lock()
	link.lose()
	feed.mutex.Unlock()
	if _, err := feed.deliver(ctx, link, delivery{send: feed.applyCall, early: true}); err != nil {
		return nil, err
	}
	return feed.client.openSession(ctx, link.server, against, nil)
}

func (feed *Feed) restartsOf(link *feedLink) uint64 {
	feed.mutex.Lock()
	defer feed.mutex.Unlock()
	return link.restarts
}
