package pumice

import (
	"context"
	"fmt"
	"iter"
	"math/bits"

	pb "pumice/clients/go/pumicev1"
)

// Slots goes through the slots of a set: in the stated order, or those of a bitmap from 0 up, numbered from 0. It
// allocates nothing.
func Slots(nodes *pb.NodeSet) iter.Seq2[int, uint32] {
	return func(yield func(int, uint32) bool) {
		for at, slot := range nodes.GetSlots() {
			if !yield(at, slot) {
				return
			}
		}
		at := 0
		for index, some := range nodes.GetBitmap() {
			for some != 0 {
				if !yield(at, uint32(index*8+bits.TrailingZeros8(some))) {
					return
				}
				some &= some - 1
				at++
			}
		}
	}
}

// HasSlot says whether a bitmap holds a slot.
func HasSlot(bitmap []byte, slot uint32) bool {
	index := int(slot / 8)
	return index < len(bitmap) && bitmap[index]>>(slot%8)&1 == 1
}

// Scores spreads the totals of an item over a column by slot. The column is the caller's, and is used again from call to
// call; slots beyond its end make it grow, slots without a score keep what they had.
func Scores(column []float64, item *pb.ScoreItem) []float64 {
	totals := item.GetTotals()
	for at, slot := range Slots(item.GetNodes()) {
		if at >= len(totals) {
			break
		}
		if int(slot) >= len(column) {
			column = append(column, make([]float64, int(slot)+1-len(column))...)
		}
		column[slot] = totals[at]
	}
	return column
}

// Best is the slot with the highest total, the first of several; false if there is none.
func Best(item *pb.ScoreItem) (uint32, bool) {
	var best uint32
	highest, found := 0.0, false
	totals := item.GetTotals()
	for at, slot := range Slots(item.GetNodes()) {
		if at < len(totals) && (!found || totals[at] > highest) {
			best, highest, found = slot, totals[at], true
		}
	}
	return best, found
}

// NodeTable has the names of slots. Within one epoch and generation it only grows.
type NodeTable struct {
	epoch, generation uint64
	names             []string
	slots             map[string]uint32
}

// Name is the node of a slot; empty if the table does not reach so far.
func (table *NodeTable) Name(slot uint32) string {
	if int(slot) >= len(table.names) {
		return ""
	}
	return table.names[slot]
}

// Slot is the slot of a node.
func (table *NodeTable) Slot(name string) (uint32, bool) {
	slot, found := table.slots[name]
	return slot, found
}

// Len is the number of slots.
func (table *NodeTable) Len() int {
	return len(table.names)
}

// Version is what a question with slots names in Ground.NodeTable.
func (table *NodeTable) Version() *pb.NodeTableVersion {
	return &pb.NodeTableVersion{Epoch: table.epoch, Generation: table.generation, Length: uint32(len(table.names))}
}

func (table *NodeTable) same(version *pb.NodeTableVersion) bool {
	return table.epoch == version.GetEpoch() && table.generation == version.GetGeneration()
}

// NodeTable is the names of slots, as far as the stamp of an answer (Stamp.NodeTable) goes; of nil: the newest. Only
// what is new is read. The table that is returned never changes.
func (client *Client) NodeTable(ctx context.Context, version *pb.NodeTableVersion) (*NodeTable, error) {
	client.tableMutex.Lock()
	defer client.tableMutex.Unlock()
	table := client.table
	for version == nil || !table.same(version) || int(version.GetLength()) > len(table.names) {
		from := uint32(0)
		if version != nil && table.same(version) {
			from = uint32(len(table.names))
		}
		stretch, err := call(ctx, client, "GetNodeTable", repeatable, client.state.GetNodeTable, &pb.GetNodeTableRequest{FromSlot: from})
		if err != nil {
			return nil, err
		}
		if version != nil && (stretch.GetTable().GetEpoch() != version.GetEpoch() || stretch.GetTable().GetGeneration() != version.GetGeneration()) {
			return nil, fmt.Errorf("the node table has changed since the answer: ask again")
		}
		table = table.grown(stretch, from)
		if version = stretch.GetTable(); len(stretch.GetNames()) == 0 {
			break
		}
	}
	client.table = table
	return &table, nil
}

func (table NodeTable) grown(stretch *pb.GetNodeTableResponse, from uint32) NodeTable {
	grown := NodeTable{epoch: stretch.GetTable().GetEpoch(), generation: stretch.GetTable().GetGeneration()}
	grown.names = append(append([]string{}, table.names[:min(int(from), len(table.names))]...), stretch.GetNames()...)
	grown.slots = make(map[string]uint32, len(grown.names))
	for slot, name := range grown.names {
		grown.slots[name] = uint32(slot)
	}
	return grown
}
