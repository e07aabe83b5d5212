package pumice

import (
	"cmp"
	"maps"
	"sync"

	pb "pumice/clients/go/pumicev1"
)

// Rule is how order keys compare.
type Rule int

const (
	// Corrected: where one key ends it goes first.
	Corrected Rule = iota
	// Upstream: where one key ends the two are equal, and equal as well at a value that is not a number. That is no total
	// order: choose the first of those left again and again ([First]), never sort by it.
	Upstream
)

// Ranked is what is compared locally: a rank of an answer of Order, and when the record was created, in seconds; nil:
// oldest.
type Ranked struct {
	Rank    *pb.Rank
	Created *int64
}

// Compare says which of two records comes first: less than 0, the left one. The first plugin whose keys differ decides,
// then creation time, then name.
func Compare(left, right Ranked, rule Rule) int {
	keys, others := left.Rank.GetKeys(), right.Rank.GetKeys()
	for at := range min(len(keys), len(others)) {
		if order := compareKeys(keys[at].GetValues(), others[at].GetValues(), rule); order != 0 {
			return order
		}
	}
	switch {
	case left.Created == nil && right.Created != nil:
		return -1
	case left.Created != nil && right.Created == nil:
		return 1
	case left.Created != nil && *left.Created != *right.Created:
		return cmp.Compare(*left.Created, *right.Created)
	}
	return cmp.Compare(left.Rank.GetName(), right.Rank.GetName())
}

// CompareKey compares the keys that one plugin gives two records, for callers that have tiers of their own. A missing key
// says nothing: 0.
func CompareKey(left, right *pb.OrderKey, rule Rule) int {
	if left == nil || right == nil {
		return 0
	}
	return compareKeys(left.GetValues(), right.GetValues(), rule)
}

func compareKeys(left, right []float64, rule Rule) int {
	for at := range min(len(left), len(right)) {
		switch {
		case left[at] < right[at]:
			return -1
		case left[at] > right[at]:
			return 1
		case left[at] != right[at]:
			// One of them is not a number.
			return 0
		}
	}
	if rule == Corrected {
		return cmp.Compare(len(left), len(right))
	}
	return 0
}

// First is the position of the record that comes first, -1 of none: start with the first, and take another when it comes
// before. That needs no total order.
func First(records []Ranked, rule Rule) int {
	first := -1
	for at := range records {
		if first < 0 || Compare(records[at], records[first], rule) < 0 {
			first = at
		}
	}
	return first
}

// Validity counts how often earlier answers of a session became stale. Take a Mark when an answer comes, and ask later
// whether it still holds. It is safe to use from several goroutines.
type Validity struct {
	mutex     sync.Mutex
	clock     uint64
	all       uint64
	nodes     map[string]uint64
	allQueues uint64
	queues    map[string]uint64
}

// Mark is a point in a session.
type Mark uint64

// Now is the mark of an answer that has just come.
func (validity *Validity) Now() Mark {
	validity.mutex.Lock()
	defer validity.mutex.Unlock()
	return Mark(validity.clock)
}

// Apply takes in what a reply says. A set of slots or a scope that is not known makes everything stale.
func (validity *Validity) Apply(stale *pb.Invalidation) {
	scope := stale.GetScope()
	if scope == pb.InvalidationScope_INVALIDATION_SCOPE_NONE && len(stale.GetQueues()) == 0 {
		return
	}
	if stale == nil {
		return
	}
	validity.mutex.Lock()
	defer validity.mutex.Unlock()
	validity.clock++
	switch {
	case scope == pb.InvalidationScope_INVALIDATION_SCOPE_NONE:
	case scope == pb.InvalidationScope_INVALIDATION_SCOPE_NODES && len(stale.GetNodes().GetSlots()) == 0 && len(stale.GetNodes().GetBitmap()) == 0:
		if validity.nodes == nil {
			validity.nodes = map[string]uint64{}
		}
		for _, name := range stale.GetNodes().GetNames() {
			validity.nodes[name] = validity.clock
		}
	default:
		validity.all, validity.allQueues = validity.clock, validity.clock
		clear(validity.nodes)
		clear(validity.queues)
	}
	if validity.queues == nil {
		validity.queues = map[string]uint64{}
	}
	for _, name := range stale.GetQueues() {
		validity.queues[name] = validity.clock
	}
}

// Node says whether filter and score answers of that time still hold on a node.
func (validity *Validity) Node(since Mark, node string) bool {
	validity.mutex.Lock()
	defer validity.mutex.Unlock()
	return validity.all <= uint64(since) && validity.nodes[node] <= uint64(since)
}

// StaleNodes are the nodes on which answers of that time no longer hold; all is true if that is so on every node.
func (validity *Validity) StaleNodes(since Mark) (names []string, all bool) {
	validity.mutex.Lock()
	defer validity.mutex.Unlock()
	if validity.all > uint64(since) {
		return nil, true
	}
	for name, at := range validity.nodes {
		if at > uint64(since) {
			names = append(names, name)
		}
	}
	return names, false
}

// Queue says whether keys, headroom and admissions of that time still hold for a queue.
func (validity *Validity) Queue(since Mark, queue string) bool {
	validity.mutex.Lock()
	defer validity.mutex.Unlock()
	return validity.allQueues <= uint64(since) && validity.queues[queue] <= uint64(since)
}

// Headroom counts locally how many tasks of a class a queue still admits, as Admit answered.
type Headroom struct {
	validity *Validity
	mutex    sync.Mutex
	rooms    map[roomKey]room
}

type roomKey struct{ queue, class string }

type room struct {
	mark Mark
	left *uint64
}

// Headroom makes a count for one session; changes that make it stale end it.
func (session *Session) Headroom() *Headroom {
	return &Headroom{validity: &session.validity, rooms: map[roomKey]room{}}
}

// Set takes in an admission of a task. Class is the caller's word for tasks that ask for the same.
func (headroom *Headroom) Set(queue, class string, admission *pb.AdmitItem) {
	mark := headroom.validity.Now()
	headroom.mutex.Lock()
	defer headroom.mutex.Unlock()
	left := admission.Headroom
	if !admission.GetPermitted() {
		left = new(uint64)
	}
	headroom.rooms[roomKey{queue, class}] = room{mark, left}
}

// Take takes room for one task: taken says whether there was some, known whether the count still holds. Where it is not
// known, ask again. A task of one class takes from the others of its queue, too: their counts end.
func (headroom *Headroom) Take(queue, class string) (taken, known bool) {
	headroom.mutex.Lock()
	defer headroom.mutex.Unlock()
	own := roomKey{queue, class}
	entry, found := headroom.rooms[own]
	if !found || !headroom.validity.Queue(entry.mark, queue) {
		delete(headroom.rooms, own)
		return false, false
	}
	if entry.left == nil {
		return true, true
	}
	if *entry.left == 0 {
		return false, true
	}
	left := *entry.left - 1
	headroom.rooms[own] = room{entry.mark, &left}
	maps.DeleteFunc(headroom.rooms, func(other roomKey, _ room) bool { return other.queue == queue && other.class != class })
	return true, true
}
