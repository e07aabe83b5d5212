package pumice

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"

	pb "github.com/pumice-scheduler/pumice/clients/go/pumicev1"

	"google.golang.org/grpc/codes"
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
//
// With several addresses every server gets every batch: that in use within Flush, the others in the background. So another
// server can take over at once, and a process that was fenced is fenced by all of them.
type Feed struct {
	client *Client
	source string
	// life ends with Close, or with the client.
	life  context.Context
	end   context.CancelFunc
	beats sync.Once
	over  atomic.Bool
	// resync asks the next Flush for a full sync. It waits for no batch that is being sent.
	resync atomic.Bool
	links  []*feedLink

	// mutex belongs to the fields below, and to some of the links. It is never held while something is being sent.
	mutex sync.Mutex
	// epoch is the same for all servers, and for the whole life of the feed: a process that was paused cannot fence a newer one.
	epoch, sequence uint64
	closed, fenced  bool
	store           store
	// putError is why a Put was refused; the next call that sends reports it.
	putError error
	// onRefused is called with refused records. May be nil.
	onRefused func([]RefusedRecord)
	// onItsWay is called when the last batch of a Flush leaves. May be nil.
	onItsWay func(*pb.SourcePosition)
}

// Feed makes a feed. With epoch 0 its epoch is the time of its first batch, in nanoseconds: a process that begins to write
// later fences an older one, and a process on standby, which sends nothing, fences none.
func (client *Client) Feed(source string, epoch uint64) *Feed {
	life, end := context.WithCancel(client.life)
	feed := &Feed{client: client, source: source, epoch: epoch, life: life, end: end}
	for _, server := range client.servers.all {
		feed.links = append(feed.links, &feedLink{server: server, lost: true, wake: make(chan struct{}, 1)})
	}
	return feed
}

// Close ends the feed: it sends no more heartbeats and no more batches, and the source becomes stale unless another
// process writes it. Closing twice is allowed.
func (feed *Feed) Close() {
	feed.end()
	feed.mutex.Lock()
	feed.closed = true
	feed.mutex.Unlock()
	feed.over.Store(true)
	for _, link := range feed.links {
		// What is being sent ends first.
		link.sending.Lock()
		//lint:ignore SA2001 nothing else is to be done
		link.sending.Unlock()
	}
}

func (feed *Feed) isOver() bool {
	return feed.over.Load()
}

// Put adds or replaces records, which the next Flush sends. An unchanged record is not sent again. The feed keeps the
// records: the caller must not change them afterwards.
//
// A feed compares records by their names, so it keeps no Objects, PodRules and PriorityClasses. A cluster with such a field is
// not put, and the next Flush, session or stream returns the error and sends nothing.
func (feed *Feed) Put(cluster *pb.Cluster) {
	feed.mutex.Lock()
	defer feed.mutex.Unlock()
	if field := fieldWithoutName(cluster); field != "" {
		feed.putError = fmt.Errorf("pumice: Feed.Put got a cluster with %s, which a feed does not keep: nothing of it was put. "+
			"Put objects with PutNode, PutPod, PutQueue and PutJob, or send this cluster by the generated StateServiceClient under a source of its own", field)
		return
	}
	feed.store.put(cluster)
}

// fieldWithoutName returns the first field of a cluster that is there and whose items have no names; "": there is none.
func fieldWithoutName(cluster *pb.Cluster) string {
	switch {
	case len(cluster.GetObjects()) > 0:
		return "objects"
	case cluster.GetPodRules() != pb.PodRules_POD_RULES_UNSPECIFIED:
		return "pod_rules"
	case len(cluster.GetPriorityClasses()) > 0:
		return "priority_classes"
	}
	return ""
}

// Remove removes records, by name.
func (feed *Feed) Remove(gone *pb.Removals) {
	feed.mutex.Lock()
	defer feed.mutex.Unlock()
	feed.store.remove(gone)
}

// Position returns the number of the last batch that the server in use has. A request can wait for it (LatestRef.Positions),
// whatever server it is sent to.
func (feed *Feed) Position() *pb.SourcePosition {
	link := feed.linkTo(feed.client.servers.inUse())
	feed.mutex.Lock()
	defer feed.mutex.Unlock()
	return &pb.SourcePosition{Source: feed.source, SourceEpoch: feed.epoch, Sequence: link.through}
}

// OnItsWay sets the function that is called when the last batch of a Flush is on its way, with its position: a question that names
// the position may follow at once, because the service lets it wait for the batch. The function must not call the feed.
func (feed *Feed) OnItsWay(call func(*pb.SourcePosition)) {
	feed.mutex.Lock()
	defer feed.mutex.Unlock()
	feed.onItsWay = call
}

// Flush sends the changes: a delta, or a full sync at first and after a loss. If nothing changed, nothing is sent and the
// outcome is nil.
func (feed *Feed) Flush(ctx context.Context) (*pb.BatchOutcome, error) {
	return feed.flush(ctx)
}

// applyCall sends a batch as a call of its own.
func (feed *Feed) applyCall(ctx context.Context, to *server, batch *pb.Batch, leaves func()) (*pb.BatchOutcome, error) {
	if leaves != nil {
		leaves()
	}
	may := repeatable
	if feed.client.servers.several() {
		// Another server is asked sooner; this one gets the batch again in the background.
		may = once
	}
	request := &pb.ApplyRequest{Batch: batch}
	response, err := callAt(ctx, feed.client, to, "Apply", may, states(pb.StateServiceClient.Apply), request)
	return response.GetOutcome(), err
}

// flush delivers the changes to the server in use. If another one takes its place meanwhile, that one has to have them.
func (feed *Feed) flush(ctx context.Context) (outcome *pb.BatchOutcome, err error) {
	err = feed.atServerInUse(ctx, func(ctx context.Context, link *feedLink) error {
		outcome, err = feed.deliver(ctx, link, delivery{send: feed.applyCall, leaves: feed.leaving(), early: true})
		return err
	})
	return outcome, err
}

// leaving is what hears of batches that are on their way.
func (feed *Feed) leaving() func(*pb.SourcePosition) {
	feed.mutex.Lock()
	defer feed.mutex.Unlock()
	return feed.onItsWay
}

// atServerInUse takes the changes, and does something with the server in use. After a failure of that server it does so with
// the next one.
func (feed *Feed) atServerInUse(ctx context.Context, do func(context.Context, *feedLink) error) error {
	if err := feed.begin(); err != nil {
		return err
	}
	servers := feed.client.servers
	var tried []*server
	for used := servers.inUse(); ; {
		tried = append(tried, used)
		within, cancel := servers.whileUsed(ctx, used)
		err := feed.alone(within, feed.linkTo(used), do)
		cancel()
		if err == nil {
			servers.answered(used, false)
			feed.follow(ctx, used)
			return nil
		}
		next := servers.next(tried)
		var failure *Error
		if next == nil || ctx.Err() != nil || !errors.As(err, &failure) || !failure.movesOn() && failure.Code != codes.Canceled {
			return err
		}
		used = next
	}
}

// follow delivers the changes to another server that came into use while they went to this one: a question that follows goes there.
func (feed *Feed) follow(ctx context.Context, to *server) {
	if now := feed.client.servers.inUse(); now != to {
		// If it fails, so does the question.
		_ = feed.alone(ctx, feed.linkTo(now), func(ctx context.Context, link *feedLink) error {
			_, err := feed.deliver(ctx, link, delivery{send: feed.applyCall, early: true})
			return err
		})
	}
}

// alone takes the changes and does something with a server while nothing else is sent to it.
func (feed *Feed) alone(ctx context.Context, link *feedLink, do func(context.Context, *feedLink) error) error {
	link.sending.Lock()
	defer link.sending.Unlock()
	if err := feed.stopped(); err != nil {
		return err
	}
	feed.mutex.Lock()
	if feed.resync.Swap(false) {
		link.lose()
	}
	feed.number()
	feed.mutex.Unlock()
	return do(ctx, link)
}

// begin reports why the feed cannot send. The first time it starts the heartbeats, and the ways to the other servers.
func (feed *Feed) begin() error {
	if err := feed.stopped(); err != nil {
		return err
	}
	feed.mutex.Lock()
	putError := feed.putError
	feed.putError = nil
	feed.mutex.Unlock()
	if putError != nil {
		return putError
	}
	feed.beats.Do(func() {
		feed.client.feedsMutex.Lock()
		feed.client.feeds = append(feed.client.feeds, feed)
		feed.client.feedsMutex.Unlock()
		if feed.client.options.Heartbeat < 0 && len(feed.links) == 1 {
			return
		}
		for _, link := range feed.links {
			go feed.keepAlive(feed.life, link)
		}
	})
	return nil
}

// stopped reports why the feed cannot send.
func (feed *Feed) stopped() error {
	feed.mutex.Lock()
	defer feed.mutex.Unlock()
	switch {
	case feed.closed:
		return ErrFeedClosed
	case feed.fenced:
		return ErrFenced
	}
	return nil
}

// Resync makes the next Flush send a full sync.
func (feed *Feed) Resync() {
	feed.resync.Store(true)
}

func (feed *Feed) checkFenced(outcome *pb.BatchOutcome) error {
	if outcome.GetResync().GetReason() == "FENCED" {
		feed.mutex.Lock()
		feed.fenced = true
		feed.mutex.Unlock()
		feed.over.Store(true)
		feed.end()
		return ErrFenced
	}
	return nil
}

// OpenSession sends the changes and opens a session after them, in one call: against is a LatestRef or nil. The outcome of
// the batch, with refused records, is in Session.Opened. If the server in use fails, the session opens at the next one.
func (feed *Feed) OpenSession(ctx context.Context, against *pb.EvaluationRef) (session *Session, err error) {
	err = feed.atServerInUse(ctx, func(ctx context.Context, link *feedLink) error {
		session, err = feed.openAt(ctx, link, against)
		return err
	})
	return session, err
}
