package pumice

import (
	"context"
	"fmt"
	"sync"
	"time"

	pb "github.com/pumice-scheduler/pumice/clients/go/pumicev1"
)

// feedLink is the way of a feed's batches to one server. Every server gets every batch, under the same number: a question that
// names a position can be asked of any of them.
type feedLink struct {
	server *server
	// wake tells the goroutine of the link of batches in the outbox.
	wake chan struct{}

	// sending is held while a batch is being sent: batches go one after the other.
	sending sync.Mutex
	// heard is the time at which the last batch was sent that the server answered. It belongs to sending.
	heard time.Time

	// The fields below belong to the mutex of the feed.
	//
	// outbox has the batches that the server has not answered, in order.
	outbox []*pb.Batch
	// lost: the server may lack a batch that has gone, so that it needs a full sync. At first it lacks everything.
	lost bool
	// through is the number of the last batch that the server has, restarts its epoch then.
	through, restarts uint64
}

// sender sends one batch to a server and returns its outcome. It calls `leaves`, if there is one, when the batch is on its way.
type sender func(ctx context.Context, to *server, batch *pb.Batch, leaves func()) (*pb.BatchOutcome, error)

// mostWaiting is the number of batches that wait for a server; beyond it a full sync takes their place.
const mostWaiting = 1000

// number takes the changes and puts them into the outbox of each server that has all before them. The caller holds the mutex.
func (feed *Feed) number() {
	if !feed.store.changed() || feed.allLost() {
		return
	}
	changes := feed.store.take()
	feed.put(&pb.Batch{
		Kind: pb.BatchKind_BATCH_KIND_DELTA, Put: changes.put, Remove: changes.gone, Unreadable: changes.unreadable,
	}, nil)
}

func (feed *Feed) allLost() bool {
	for _, link := range feed.links {
		if !link.lost {
			return false
		}
	}
	return true
}

// put numbers a batch and puts it into the outboxes: that of a full sync into those of the servers that need it, and for all
// others an empty one of the same number. The caller holds the mutex.
func (feed *Feed) put(batch *pb.Batch, needs []*feedLink) {
	if feed.epoch == 0 {
		feed.epoch = uint64(time.Now().UnixNano())
	}
	feed.sequence++
	empty := &pb.Batch{Kind: pb.BatchKind_BATCH_KIND_DELTA}
	for _, one := range []*pb.Batch{batch, empty} {
		one.Source, one.SourceEpoch, one.Sequence = feed.source, feed.epoch, feed.sequence
		one.SourceKind = pb.SourceKind_SOURCE_KIND_LIVE
	}
	for _, link := range feed.links {
		switch {
		case contains(needs, link):
			link.outbox = append(link.outbox, batch)
		case link.lost:
		case len(link.outbox) >= mostWaiting:
			link.lose()
		case needs != nil:
			link.outbox = append(link.outbox, empty)
		default:
			link.outbox = append(link.outbox, batch)
		}
	}
}

func contains(links []*feedLink, wanted *feedLink) bool {
	for _, link := range links {
		if link == wanted {
			return true
		}
	}
	return false
}

// lose makes the next delivery a full sync. The caller holds the mutex of the feed.
func (link *feedLink) lose() {
	link.lost, link.outbox = true, nil
}

// whole puts a full sync into the outbox of a server that needs one, and of all others that do. Changes that wait for a Flush are
// not sent without one, unless `early`: a part of them might not be meant to be seen.
func (feed *Feed) whole(wanted *feedLink, early bool) {
	feed.mutex.Lock()
	defer feed.mutex.Unlock()
	if !wanted.lost || !early && feed.store.changed() {
		return
	}
	feed.number()
	var needs []*feedLink
	for _, link := range feed.links {
		if link.lost {
			link.lost = false
			needs = append(needs, link)
		}
	}
	list := parts(feed.store.everything(), partRecords)
	for at, part := range list {
		batch := &pb.Batch{Kind: pb.BatchKind_BATCH_KIND_FULL_SYNC_PART, Part: uint32(at) + 1, Put: part.put, Unreadable: part.unreadable}
		if at == len(list)-1 {
			batch.Kind = pb.BatchKind_BATCH_KIND_FULL_SYNC_LAST
		}
		feed.put(batch, needs)
	}
}

// wakeOthers lets the goroutines of the other links send what is in their outboxes.
func (feed *Feed) wakeOthers(own *feedLink) {
	for _, link := range feed.links {
		if link == own {
			continue
		}
		select {
		case link.wake <- struct{}{}:
		default:
		}
	}
}

// first is the next batch of an outbox, and whether it is the last one; nil: the server has all.
func (feed *Feed) first(link *feedLink) (*pb.Batch, bool) {
	feed.mutex.Lock()
	defer feed.mutex.Unlock()
	if len(link.outbox) == 0 {
		return nil, false
	}
	return link.outbox[0], len(link.outbox) == 1
}

// delivery is how batches go to a server.
type delivery struct {
	send sender
	// leaves is called when the last batch is on its way. May be nil.
	leaves func(*pb.SourcePosition)
	// early: a full sync may have changes that wait for a Flush.
	early bool
}

// deliver sends what is in the outbox of a server: first everything if it needs a full sync. The caller holds link.sending. The
// outcome is nil if there was nothing to send.
func (feed *Feed) deliver(ctx context.Context, link *feedLink, how delivery) (outcome *pb.BatchOutcome, err error) {
	feed.whole(link, how.early)
	feed.wakeOthers(link)
	for repaired := false; ; {
		batch, last := feed.first(link)
		if batch == nil {
			return outcome, nil
		}
		var leave func()
		if last && how.leaves != nil {
			leave = func() { how.leaves(positionOf(batch)) }
		}
		sent := time.Now()
		if outcome, err = how.send(ctx, link.server, batch, leave); err != nil {
			feed.unanswered(link, batch)
			return nil, err
		}
		if err := feed.answered(link, sent, batch, outcome); err != nil {
			return nil, err
		}
		if resync := outcome.GetResync(); resync != nil {
			if batch.GetKind() != pb.BatchKind_BATCH_KIND_DELTA || repaired {
				return nil, fmt.Errorf("source %s: %s: %s", feed.source, resync.GetReason(), resync.GetMessage())
			}
			repaired = true
			feed.client.options.Metrics.Resync(feed.source, resync.GetReason())
			feed.whole(link, how.early)
		}
	}
}

func positionOf(batch *pb.Batch) *pb.SourcePosition {
	return &pb.SourcePosition{Source: batch.GetSource(), SourceEpoch: batch.GetSourceEpoch(), Sequence: batch.GetSequence()}
}

// unanswered takes note of a batch without an outcome, which may be lost. An empty one is repeated under its own number.
func (feed *Feed) unanswered(link *feedLink, batch *pb.Batch) {
	feed.mutex.Lock()
	defer feed.mutex.Unlock()
	if !isEmpty(batch) {
		link.lose()
	}
}

func isEmpty(batch *pb.Batch) bool {
	return batch.GetKind() == pb.BatchKind_BATCH_KIND_DELTA && batch.GetPut() == nil && batch.GetRemove() == nil && len(batch.GetUnreadable()) == 0
}

// answered takes note of the outcome of a batch. The caller holds link.sending.
func (feed *Feed) answered(link *feedLink, sent time.Time, batch *pb.Batch, outcome *pb.BatchOutcome) error {
	link.heard = sent
	feed.mutex.Lock()
	link.restarts = outcome.GetRevision().GetEpoch()
	switch {
	case outcome.GetResync() != nil:
		link.lose()
	case len(link.outbox) > 0 && link.outbox[0] == batch:
		link.outbox, link.through = link.outbox[1:], batch.GetSequence()
	}
	feed.mutex.Unlock()
	feed.reportRefused(link, batch, outcome)
	return feed.checkFenced(outcome)
}

// catchUp sends a server all that the feed has sent to any: at least one batch, which finds out whether the server was restarted.
func (feed *Feed) catchUp(ctx context.Context, at *server) error {
	link := feed.linkTo(at)
	link.sending.Lock()
	defer link.sending.Unlock()
	if err := feed.reaches(ctx, link); err != nil {
		return err
	}
	feed.beat(link)
	_, err := feed.deliver(ctx, link, delivery{send: feed.applyCall, early: true})
	return err
}

// reaches asks a server that needs a full sync, before its batches get their numbers, whether it is there.
func (feed *Feed) reaches(ctx context.Context, link *feedLink) error {
	if len(feed.links) == 1 || !feed.isLost(link) {
		return nil
	}
	_, err := callAt(ctx, feed.client, link.server, "WhoAmI", once, states(pb.StateServiceClient.WhoAmI), &pb.WhoAmIRequest{})
	return err
}

func (feed *Feed) isLost(link *feedLink) bool {
	feed.mutex.Lock()
	defer feed.mutex.Unlock()
	return link.lost
}

// beat puts an empty batch into the outboxes, if that of a server is empty.
func (feed *Feed) beat(link *feedLink) {
	feed.mutex.Lock()
	defer feed.mutex.Unlock()
	if !link.lost && len(link.outbox) == 0 {
		feed.put(&pb.Batch{Kind: pb.BatchKind_BATCH_KIND_DELTA}, nil)
	}
}

func (feed *Feed) linkTo(at *server) *feedLink {
	for _, link := range feed.links {
		if link.server == at {
			return link
		}
	}
	return nil
}

// restoreFeeds makes a server fit for questions: every feed sends it what it lacks.
func (client *Client) restoreFeeds(ctx context.Context, at *server) error {
	for _, feed := range client.writing() {
		if err := feed.catchUp(ctx, at); err != nil && !feed.isOver() {
			return err
		}
	}
	return nil
}

// writing has the feeds that have begun and go on.
func (client *Client) writing() (list []*Feed) {
	client.feedsMutex.Lock()
	defer client.feedsMutex.Unlock()
	for _, feed := range client.feeds {
		if !feed.isOver() {
			list = append(list, feed)
		}
	}
	client.feeds = list
	return append([]*Feed{}, list...)
}

// restartedSince reports whether a server that gave a response of this epoch was restarted after the feeds wrote to it: then the
// response is about a state that lacks their records.
func (client *Client) restartedSince(at *server, epoch uint64) bool {
	if epoch == 0 {
		return false
	}
	for _, feed := range client.writing() {
		feed.mutex.Lock()
		link := feed.linkTo(at)
		restarted := link.restarts != 0 && link.restarts != epoch
		feed.mutex.Unlock()
		if restarted {
			return true
		}
	}
	return false
}
