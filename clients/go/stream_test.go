package pumice

import (
	"context"
	"errors"
	"testing"

	pb "github.com/pumice-scheduler/pumice/clients/go/pumicev1"

	"google.golang.org/grpc/codes"
)

func TestAStreamCarriesAFeedAndAnotherOneAfterALoss(t *testing.T) {
	address, _ := serve(t)
	client := dial(t, address, Options{})
	feed := client.Feed("streamed", 0)
	feed.Put(cluster())
	stream, err := feed.Stream(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	position := func(outcome *pb.BatchOutcome, err error) uint64 {
		t.Helper()
		if err != nil || len(outcome.GetRefused()) > 0 || outcome.GetResync() != nil {
			t.Fatal(outcome, err)
		}
		return outcome.GetPosition().GetSequence()
	}
	if at := position(stream.Flush(within(t))); at != 1 {
		t.Fatal(at)
	}
	if outcome, err := stream.Flush(within(t)); outcome != nil || err != nil {
		t.Fatal("nothing has changed", outcome, err)
	}
	feed.Put(&pb.Cluster{Nodes: []*pb.Node{{Name: "n4", Allocatable: amounts("cpu", "1")}}})
	if at := position(stream.Flush(within(t))); at != 2 {
		t.Fatal(at)
	}
	// A call of its own in between does not disturb it.
	feed.Remove(&pb.Removals{Nodes: []string{"n4"}})
	if at := position(feed.Flush(within(t))); at != 3 {
		t.Fatal(at)
	}
	feed.Put(&pb.Cluster{Nodes: []*pb.Node{{Name: "n5"}}})
	if at := position(stream.Flush(within(t))); at != 4 {
		t.Fatal(at)
	}
	if stream.Close() != nil || stream.Close() != nil {
		t.Fatal("closing")
	}
	feed.Remove(&pb.Removals{Nodes: []string{"n5"}})
	var failure *Error
	if _, err := stream.Flush(within(t)); !errors.As(err, &failure) || failure.Code != codes.Unavailable {
		t.Fatal(err)
	}
	// The next one sends everything, the removal that was lost included.
	again, err := feed.Stream(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	position(again.Flush(within(t)))
	list, err := client.ListNodes(within(t), &pb.ListNodesRequest{})
	if err != nil || len(list.GetNodes()) != 3 {
		t.Fatal(list, err)
	}
	// A process that begins later fences it.
	newer := client.Feed("streamed", 0)
	newer.Put(cluster())
	if _, err := newer.Flush(within(t)); err != nil {
		t.Fatal(err)
	}
	feed.Put(&pb.Cluster{Nodes: []*pb.Node{{Name: "n6"}}})
	if _, err := again.Flush(within(t)); !errors.Is(err, ErrFenced) {
		t.Fatal(err)
	}
	// Whoever gives a batch up gives the stream up.
	third, err := newer.Stream(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	gone, cancel := context.WithCancel(context.Background())
	cancel()
	newer.Put(&pb.Cluster{Nodes: []*pb.Node{{Name: "n7"}}})
	for range 2 {
		if _, err := third.Flush(gone); err == nil {
			break
		}
	}
	if _, err := newer.Flush(within(t)); err != nil {
		t.Fatal(err)
	}
}
