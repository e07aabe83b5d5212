package pumice

import (
	"context"
	"sync/atomic"
	"time"

	pb "pumice/clients/go/pumicev1"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
)

// Stream sends the batches of a feed over one stream (Sync) in place of a call for each. Once it has failed it is over:
// open another one, and the feed sends everything. It is safe to use from several goroutines, beside the feed's own
// Flush too; batches go one after the other.
type Stream struct {
	feed   *Feed
	wire   grpc.BidiStreamingClient[pb.SyncRequest, pb.SyncResponse]
	cancel context.CancelFunc
	over   atomic.Bool
}

// Stream opens a stream, which lives until it is closed or the context ends.
func (feed *Feed) Stream(ctx context.Context) (*Stream, error) {
	ctx, cancel := context.WithCancel(ctx)
	wire, err := feed.client.state.Sync(ctx)
	if err != nil {
		cancel()
		return nil, readError(err)
	}
	return &Stream{feed: feed, wire: wire, cancel: cancel}, nil
}

// Flush is the feed's Flush over this stream. It takes at most Options.Timeout per batch; its error is an *Error or
// ErrFenced.
func (stream *Stream) Flush(ctx context.Context) (*pb.BatchOutcome, error) {
	return stream.feed.flush(ctx, stream.send)
}

// Close ends the stream. A second time it does nothing.
func (stream *Stream) Close() error {
	if stream.over.Swap(true) {
		return nil
	}
	defer stream.cancel()
	return stream.wire.CloseSend()
}

func (stream *Stream) send(ctx context.Context, batch *pb.Batch) (*pb.BatchOutcome, error) {
	started, options := time.Now(), &stream.feed.client.options
	outcome, failure := stream.exchange(ctx, batch)
	if failure != nil {
		stream.over.Store(true)
		stream.cancel()
		options.Metrics.Call("Sync", failure.Code.String(), 1, time.Since(started))
		return nil, failure
	}
	options.Metrics.Call("Sync", "OK", 1, time.Since(started))
	return outcome, nil
}

// exchange sends a batch and reads up to its outcome.
func (stream *Stream) exchange(ctx context.Context, batch *pb.Batch) (*pb.BatchOutcome, *Error) {
	if stream.over.Load() {
		return nil, &Error{Code: codes.Unavailable, Message: "the stream is over"}
	}
	ctx, cancel := context.WithTimeout(ctx, stream.feed.client.options.Timeout)
	defer cancel()
	// A stream has one context for its whole life: whoever gives a batch up gives the stream up.
	defer context.AfterFunc(ctx, stream.cancel)()
	failed := func(err error) *Error {
		if ctx.Err() == context.DeadlineExceeded {
			return &Error{Code: codes.DeadlineExceeded, Message: "the batch was not answered in time", cause: err}
		}
		return readError(err)
	}
	if err := stream.wire.Send(&pb.SyncRequest{Batch: batch}); err != nil {
		// What the service said stands in the answer that is read.
		if _, said := stream.wire.Recv(); said != nil {
			err = said
		}
		return nil, failed(err)
	}
	for {
		response, err := stream.wire.Recv()
		if err != nil {
			return nil, failed(err)
		}
		outcome := response.GetOutcome()
		// A later batch's outcome stands for those before it; an earlier one's came late.
		if outcome.GetResync() != nil || outcome.GetPosition().GetSequence() >= batch.GetSequence() {
			return outcome, nil
		}
	}
}
