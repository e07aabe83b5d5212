package pumice

import (
	"context"
	"sync/atomic"
	"time"

	pb "github.com/pumice-scheduler/pumice/clients/go/pumicev1"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
)

// Stream sends the batches of a feed over one stream (Sync) instead of one call each. A stream that has failed cannot be
// used again: open another one, and the feed sends a full sync, unless a heartbeat has done so. A stream goes to the address that
// was in use when it was opened, and fails when another one is. A stream is safe to use from several goroutines, also
// together with the feed's own Flush; batches go one after the other.
type Stream struct {
	feed *Feed
	// server is the one that the stream goes to.
	server *server
	wire   grpc.BidiStreamingClient[pb.SyncRequest, pb.SyncResponse]
	cancel context.CancelFunc
	over   atomic.Bool
}

// Stream opens a stream, which ends when it is closed or the context ends.
func (feed *Feed) Stream(ctx context.Context) (*Stream, error) {
	ctx, cancel := context.WithCancel(ctx)
	used := feed.client.servers.inUse()
	wire, err := used.state.Sync(ctx)
	if err != nil {
		cancel()
		return nil, readError(err).locate(used.target)
	}
	return &Stream{feed: feed, server: used, wire: wire, cancel: cancel}, nil
}

// Flush is Feed.Flush over this stream. Options.Timeout bounds each batch. Its error is an *Error or ErrFenced.
func (stream *Stream) Flush(ctx context.Context) (outcome *pb.BatchOutcome, err error) {
	feed, servers := stream.feed, stream.feed.client.servers
	if err := feed.begin(); err != nil {
		return nil, err
	}
	if servers.inUse() != stream.server {
		stream.end()
	}
	if stream.over.Load() {
		return nil, &Error{Code: codes.Unavailable, Message: "the stream has ended: open another one"}
	}
	ctx, cancel := servers.whileUsed(ctx, stream.server)
	defer cancel()
	err = feed.alone(ctx, feed.linkTo(stream.server), func(ctx context.Context, link *feedLink) error {
		outcome, err = feed.deliver(ctx, link, delivery{send: stream.send, leaves: feed.leaving(), early: true})
		return err
	})
	if err == nil {
		feed.follow(ctx, stream.server)
	}
	return outcome, err
}

// end makes the stream unusable.
func (stream *Stream) end() {
	stream.over.Store(true)
	stream.cancel()
}

// Close ends the stream. Closing twice is allowed.
func (stream *Stream) Close() error {
	if stream.over.Swap(true) {
		return nil
	}
	defer stream.cancel()
	return stream.wire.CloseSend()
}

func (stream *Stream) send(ctx context.Context, _ *server, batch *pb.Batch, leaves func()) (*pb.BatchOutcome, error) {
	started, client := time.Now(), stream.feed.client
	outcome, failure := stream.exchange(ctx, batch, leaves)
	if failure != nil {
		stream.end()
		client.options.Metrics.Call("Sync", failure.Code.String(), 1, time.Since(started))
		return nil, client.failedAt(ctx, stream.server, failure, started)
	}
	client.options.Metrics.Call("Sync", "OK", 1, time.Since(started))
	return outcome, nil
}

// exchange sends a batch and reads outcomes up to its own.
func (stream *Stream) exchange(ctx context.Context, batch *pb.Batch, leaves func()) (*pb.BatchOutcome, *Error) {
	if stream.over.Load() {
		return nil, &Error{Code: codes.Canceled, Message: "the stream was closed: open another one"}
	}
	ctx, cancel := context.WithTimeout(ctx, stream.feed.client.options.Timeout)
	defer cancel()
	// A stream has one context for its whole life: giving up a batch ends the stream.
	defer context.AfterFunc(ctx, stream.cancel)()
	failed := func(err error) *Error {
		if ctx.Err() == context.DeadlineExceeded {
			return &Error{Code: codes.DeadlineExceeded, Message: "no outcome of the batch arrived in time", cause: err}
		}
		return readError(err).locate(stream.server.target)
	}
	if err := stream.wire.Send(&pb.SyncRequest{Batch: batch}); err != nil {
		// The service's error is in the response.
		if _, received := stream.wire.Recv(); received != nil {
			err = received
		}
		return nil, failed(err)
	}
	if leaves != nil {
		leaves()
	}
	for {
		response, err := stream.wire.Recv()
		if err != nil {
			return nil, failed(err)
		}
		outcome := response.GetOutcome()
		// The outcome of a batch is also that of the batches before it.
		if outcome.GetResync() != nil || outcome.GetPosition().GetSequence() >= batch.GetSequence() {
			return outcome, nil
		}
	}
}
