package pumice

import (
	"slices"
	"testing"

	pb "github.com/pumice-scheduler/pumice/clients/go/pumicev1"
)

func TestSlotsReadAsTheNamesDo(t *testing.T) {
	client, ctx := loaded(t, Options{}), within(t)
	ask := func(encoding pb.NodeEncoding, limit *uint32) (*pb.ScoreItem, *pb.ResponseMetadata) {
		t.Helper()
		reply, err := client.Score(ctx, &pb.ScoreRequest{
			Tasks: []*pb.Task{{Requests: amounts("cpu", "1")}}, WithFilter: true, NodeEncoding: encoding, Limit: limit,
		})
		if err != nil || reply.Cause != nil {
			t.Fatal(err, reply.Cause)
		}
		return reply.Response.GetResult().GetItems()[0], reply.Response.GetMetadata()
	}
	two := uint32(2)
	for _, limit := range []*uint32{nil, &two} {
		named, _ := ask(pb.NodeEncoding_NODE_ENCODING_NAMES, limit)
		slotted, metadata := ask(pb.NodeEncoding_NODE_ENCODING_SLOTS, limit)
		table, err := client.NodeTable(ctx, metadata.GetNodeTable())
		if err != nil {
			t.Fatal(err)
		}
		var names []string
		list, err := Slots(slotted.GetNodes())
		if err != nil {
			t.Fatal(err)
		}
		for _, slot := range list {
			names = append(names, table.Name(slot))
			if again, found := table.Slot(table.Name(slot)); !found || again != slot {
				t.Fatal(again)
			}
		}
		if !slices.Equal(names, named.GetNodes().GetNames()) || !slices.Equal(slotted.GetTotals(), named.GetTotals()) {
			t.Fatal(names, named)
		}
		best, err := BestSlot(slotted)
		if err != nil || table.Name(best) == "n1" {
			t.Fatal(best, err)
		}
	}
	feed := client.Feed("more", 0)
	feed.Put(&pb.Cluster{Nodes: []*pb.Node{{Name: "n4", Allocatable: amounts("cpu", "1", "pods", "9")}}})
	if _, err := feed.Flush(ctx); err != nil {
		t.Fatal(err)
	}
	table, err := client.NodeTable(ctx, nil)
	if err != nil || table.Len() != 4 || table.Name(3) != "n4" || table.Name(4) != "" || table.Version().GetLength() != 4 {
		t.Fatal(table, err)
	}
}

// everyOther is a score of every other one of n nodes.
func everyOther(nodes int) *pb.ScoreItem {
	item := &pb.ScoreItem{Nodes: &pb.NodeSet{Bitmap: make([]byte, (nodes+7)/8)}}
	for slot := 0; slot < nodes; slot += 2 {
		item.Nodes.Bitmap[slot/8] |= 1 << (slot % 8)
		item.Totals = append(item.Totals, float64(slot))
	}
	return item
}

// TestDecodingMakesNoGarbage permits Slots its iterator, whatever the number of slots.
func TestDecodingMakesNoGarbage(t *testing.T) {
	item, column := everyOther(10_000), make([]float64, 10_000)
	sum := uint32(0)
	allocated := testing.AllocsPerRun(10, func() {
		column, _ = Scores(column, item)
		best, _ := BestSlot(item)
		list, _ := Slots(item.GetNodes())
		for _, slot := range list {
			sum += slot
		}
		if best != 9_998 || column[9_998] != 9_998 || !HasSlot(item.Nodes.Bitmap, 9_998) || HasSlot(item.Nodes.Bitmap, 99_999) {
			t.Error(best)
		}
	})
	if allocated > 2 {
		t.Errorf("%v allocations", allocated)
	}
}

func BenchmarkScores(b *testing.B) {
	item, column := everyOther(10_000), make([]float64, 10_000)
	b.ReportAllocs()
	for b.Loop() {
		column, _ = Scores(column, item)
	}
}
