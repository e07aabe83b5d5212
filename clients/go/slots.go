package pumice

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"math/bits"
	"slices"

	pb "github.com/pumice-scheduler/pumice/clients/go/pumicev1"
)

// ErrNodesByName is the error of a function that needs slots for a set that has names: ask with NODE_ENCODING_SLOTS.
var ErrNodesByName = errors.New("the nodes are given by name: ask with NODE_ENCODING_SLOTS, or read the names")

// ErrNodesBySlot is the error of NodeNames for a set that has slots, without a table.
var ErrNodesBySlot = errors.New("the nodes are given by slot: their names are in Client.NodeTable")

// Slots iterates over the slots of a set and their positions: a list in its order, a bitmap from slot 0 up. It allocates
// nothing per slot. A set with names is an error.
func Slots(nodes *pb.NodeSet) (iter.Seq2[int, uint32], error) {
	if len(nodes.GetNames()) > 0 {
		return nil, ErrNodesByName
	}
	return slots(nodes), nil
}

func slots(nodes *pb.NodeSet) iter.Seq2[int, uint32] {
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

// HasSlot reports whether a bitmap has a slot. A set with names or a list of slots has no bitmap: read it with NodeNames or
// Slots.
func HasSlot(bitmap []byte, slot uint32) bool {
	index := int(slot / 8)
	return index < len(bitmap) && bitmap[index]>>(slot%8)&1 == 1
}

// NodeNames returns the names of a set. The table, which may be nil for a set with names, has the names of slots.
func NodeNames(nodes *pb.NodeSet, table *NodeTable) ([]string, error) {
	if table == nil {
		if len(nodes.GetSlots()) > 0 || len(nodes.GetBitmap()) > 0 {
			return nil, ErrNodesBySlot
		}
		return nodes.GetNames(), nil
	}
	names := slices.Clone(nodes.GetNames())
	for _, slot := range slots(nodes) {
		name := table.Name(slot)
		if name == "" {
			return nil, fmt.Errorf("slot %d is beyond the node table, which has %d slots", slot, table.Len())
		}
		names = append(names, name)
	}
	return names, nil
}

// FittingNodes returns the names of the nodes that passed, of one item of a Filter result. An item with a problem is an
// error, and so are no item and one that does not name every node that passed (`detail` COUNTS or SAMPLES, or the `limit` of
// a score): none of them means that no node fits.
func FittingNodes(item *pb.FilterItem, table *NodeTable) ([]string, error) {
	if item == nil {
		return nil, ErrNoItem
	}
	if err := problemOf(CallFilter, item.GetProblem()); err != nil {
		return nil, err
	}
	names, err := NodeNames(item.GetFit(), table)
	if err == nil && len(names) != int(item.GetFitCount()) {
		return nil, fmt.Errorf("%d nodes fit and the item names %d: ask with FILTER_DETAIL_NODES, and without a limit", item.GetFitCount(), len(names))
	}
	return names, err
}

// Scores writes the totals of an item into a column by slot and returns the column. The column grows as needed; slots
// without a score keep their value. No item, an item with a problem, or one with node names, is an error.
func Scores(column []float64, item *pb.ScoreItem) ([]float64, error) {
	if err := scoreError(item); err != nil {
		return column, err
	}
	totals := item.GetTotals()
	for at, slot := range slots(item.GetNodes()) {
		if int(slot) >= len(column) {
			column = append(column, make([]float64, int(slot)+1-len(column))...)
		}
		column[slot] = totals[at]
	}
	return column, nil
}

// ErrNoNode is the error of BestNode and BestSlot if no node has a score.
var ErrNoNode = errors.New("no node has a score")

// ErrNoItem is the error of functions that read an item and get none: a result that is missing says nothing about nodes.
var ErrNoItem = errors.New("there is no item to read")

// BestSlot returns the slot with the highest total, the first of several. ErrNoNode: no node has a score. No item, an item
// with a problem, or one with node names, is another error.
func BestSlot(item *pb.ScoreItem) (uint32, error) {
	if err := scoreError(item); err != nil {
		return 0, err
	}
	best, highest, found := uint32(0), 0.0, false
	totals := item.GetTotals()
	for at, slot := range slots(item.GetNodes()) {
		if !found || totals[at] > highest {
			best, highest, found = slot, totals[at], true
		}
	}
	if !found {
		return 0, noNode(item)
	}
	return best, nil
}

// BestNode returns the name of the node with the highest total, the first of several, and the total. ErrNoNode: no node
// has a score. No item, or an item with a problem, is another error.
func BestNode(item *pb.ScoreItem, table *NodeTable) (string, float64, error) {
	if err := itemError(item); err != nil {
		return "", 0, err
	}
	names, err := NodeNames(item.GetNodes(), table)
	if err != nil {
		return "", 0, err
	}
	best, highest := "", 0.0
	for at, total := range item.GetTotals() {
		if best == "" || total > highest {
			best, highest = names[at], total
		}
	}
	if best == "" {
		return "", 0, noNode(item)
	}
	return best, highest, nil
}

// noNode is the error of an item without nodes. Nodes that fit, and that a limit of 0 left out, are nodes.
func noNode(item *pb.ScoreItem) error {
	if fit := item.GetFilter().GetFitCount(); fit > 0 {
		return fmt.Errorf("%d nodes fit and the item has no score: ask with a limit above 0", fit)
	}
	return ErrNoNode
}

// itemError reports why an item cannot be read.
func itemError(item *pb.ScoreItem) error {
	if item == nil {
		return ErrNoItem
	}
	if err := problemOf(CallScore, item.GetProblem()); err != nil {
		return err
	}
	if nodes := int(count(item.GetNodes())); nodes != len(item.GetTotals()) {
		return fmt.Errorf("the item has %d nodes and %d totals", nodes, len(item.GetTotals()))
	}
	return nil
}

// scoreError is itemError for functions that read slots.
func scoreError(item *pb.ScoreItem) error {
	if len(item.GetNodes().GetNames()) > 0 && item.GetProblem() == nil {
		return ErrNodesByName
	}
	return itemError(item)
}

// NodeTable has the names of slots. Within one epoch and generation it only grows. A table never changes.
type NodeTable struct {
	epoch, generation uint64
	names             []string
	slots             map[string]uint32
}

// Name returns the node of a slot. Empty: the slot is beyond the table.
func (table *NodeTable) Name(slot uint32) string {
	if int(slot) >= len(table.names) {
		return ""
	}
	return table.names[slot]
}

// Slot returns the slot of a node, and whether it has one.
func (table *NodeTable) Slot(name string) (uint32, bool) {
	slot, found := table.slots[name]
	return slot, found
}

// Len returns the number of slots.
func (table *NodeTable) Len() int {
	return len(table.names)
}

// Version returns the version for EvaluationRef.NodeTable of a request with slots.
func (table *NodeTable) Version() *pb.NodeTableVersion {
	return &pb.NodeTableVersion{Epoch: table.epoch, Generation: table.generation, Length: uint32(len(table.names))}
}

func (table *NodeTable) same(version *pb.NodeTableVersion) bool {
	return table.epoch == version.GetEpoch() && table.generation == version.GetGeneration()
}

// ErrNodeTableChanged is the error of a table that the server in use does not have: it was restarted after the response, or
// another server is in use. Repeat the call.
var ErrNodeTableChanged = errors.New("the node table has changed since the response: repeat the call")

// NodeTable returns the table of a version (ResponseMetadata.NodeTable); of nil, the latest. The client keeps the table and
// fetches only new slots.
func (client *Client) NodeTable(ctx context.Context, version *pb.NodeTableVersion) (*NodeTable, error) {
	return client.nodeTable(ctx, nil, version)
}

// NodeTable is Client.NodeTable for the responses of the session: its server is asked.
func (session *Session) NodeTable(ctx context.Context, version *pb.NodeTableVersion) (*NodeTable, error) {
	session.mutex.Lock()
	at := session.server
	session.mutex.Unlock()
	table, err := session.client.nodeTable(ctx, at, version)
	return table, session.unreachable(err)
}

func (client *Client) nodeTable(ctx context.Context, at *server, version *pb.NodeTableVersion) (*NodeTable, error) {
	client.tableMutex.Lock()
	defer client.tableMutex.Unlock()
	table := client.table
	for version == nil || !table.same(version) || int(version.GetLength()) > len(table.names) {
		from := uint32(0)
		if version != nil && table.same(version) {
			from = uint32(len(table.names))
		}
		part, err := callAt(ctx, client, at, "GetNodeTable", repeatable, states(pb.StateServiceClient.GetNodeTable), &pb.GetNodeTableRequest{FromSlot: from})
		if err != nil {
			return nil, err
		}
		if version != nil && (part.GetTable().GetEpoch() != version.GetEpoch() || part.GetTable().GetGeneration() != version.GetGeneration()) {
			return nil, ErrNodeTableChanged
		}
		table = table.grown(part, from)
		if version = part.GetTable(); len(part.GetNames()) == 0 {
			break
		}
	}
	client.table = table
	return &table, nil
}

func (table NodeTable) grown(part *pb.GetNodeTableResponse, from uint32) NodeTable {
	grown := NodeTable{epoch: part.GetTable().GetEpoch(), generation: part.GetTable().GetGeneration()}
	grown.names = append(append([]string{}, table.names[:min(int(from), len(table.names))]...), part.GetNames()...)
	grown.slots = make(map[string]uint32, len(grown.names))
	for slot, name := range grown.names {
		grown.slots[name] = uint32(slot)
	}
	return grown
}
