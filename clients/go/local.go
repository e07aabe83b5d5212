package pumice

import (
	"cmp"
	"maps"
	"slices"
	"sync"

	pb "github.com/pumice-scheduler/pumice/clients/go/pumicev1"
)

// OrderRule is the rule by which order keys compare.
type OrderRule int

const (
	// Corrected: a key that is a prefix of the other goes first.
	Corrected OrderRule = iota
	// Upstream: a key that is a prefix of the other is equal to it, and keys are equal from the first value that is not a
	// number. This is no total order: select the first of the remaining records again and again ([First]); never sort.
	Upstream
)

// RankedRecord is a record to compare locally.
type RankedRecord struct {
	// Rank is the record's rank in a result of Order.
	Rank *pb.Rank
	// Created is the creation time in seconds. Nil: older than any other.
	Created *int64
}

// Compare compares two records: less than 0, the left one goes first. The first plugin whose keys differ decides, then
// creation time, then name. A rank with a problem has no keys and goes after every rank without, as in the result of Order.
func Compare(left, right RankedRecord, rule OrderRule) int {
	if bad, other := left.Rank.GetProblem() != nil, right.Rank.GetProblem() != nil; bad != other {
		if bad {
			return 1
		}
		return -1
	}
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

// CompareKey compares the keys that one plugin gives two records, for callers with tiers of their own. If a key is missing
// the records are equal.
func CompareKey(left, right *pb.OrderKey, rule OrderRule) int {
	if left == nil || right == nil {
		return 0
	}
	return compareKeys(left.GetValues(), right.GetValues(), rule)
}

func compareKeys(left, right []float64, rule OrderRule) int {
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

// First returns the position of the record that goes first; -1: there are no records. It needs no total order: it starts
// with the first record and takes another whenever that goes before it.
func First(records []RankedRecord, rule OrderRule) int {
	first := -1
	for at := range records {
		if first < 0 || Compare(records[at], records[first], rule) < 0 {
			first = at
		}
	}
	return first
}

// Validity knows which earlier results of a session are stale. Take a mark when a result arrives, and ask later whether
// the result still holds. It is safe to use from several goroutines.
type Validity struct {
	mutex     sync.Mutex
	clock     uint64
	all       uint64
	nodes     map[string]uint64
	allQueues uint64
	queues    map[string]uint64
}

// ValidityMark is a point in a session.
type ValidityMark uint64

// Now returns the mark of a result that has just arrived.
func (validity *Validity) Now() ValidityMark {
	validity.mutex.Lock()
	defer validity.mutex.Unlock()
	return ValidityMark(validity.clock)
}

// Apply records an invalidation. A set of slots, or an unknown scope, makes every result stale.
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

// Node reports whether Filter and Score results of that mark still hold on a node.
func (validity *Validity) Node(since ValidityMark, node string) bool {
	validity.mutex.Lock()
	defer validity.mutex.Unlock()
	return validity.all <= uint64(since) && validity.nodes[node] <= uint64(since)
}

// StaleNodes returns the nodes on which results of that mark are stale. If all is true, every node is.
func (validity *Validity) StaleNodes(since ValidityMark) (names []string, all bool) {
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

// Queue reports whether order keys, headroom and admissions of that mark still hold for a queue.
func (validity *Validity) Queue(since ValidityMark, queue string) bool {
	validity.mutex.Lock()
	defer validity.mutex.Unlock()
	return validity.allQueues <= uint64(since) && validity.queues[queue] <= uint64(since)
}

// Headroom counts down, locally, the number of tasks of a class that a queue still admits by the result of Admit.
type Headroom struct {
	validity *Validity
	mutex    sync.Mutex
	counts   map[headroomKey]headroomCount
}

type headroomKey struct{ queue, class string }

type headroomCount struct {
	mark ValidityMark
	left *uint64
}

// Headroom makes an empty count for one session. A change that makes a count stale removes it.
func (session *Session) Headroom() *Headroom {
	return &Headroom{validity: &session.validity, counts: map[headroomKey]headroomCount{}}
}

// Set records the Admit result of a task. The class is the caller's name for tasks with equal requests. An item that is nil,
// has a problem, or comes from the fallback FailClosed is no result of the service, and removes the count. The caller sets
// no item of FailOpen, which looks like one of a queue without a limit.
func (headroom *Headroom) Set(queue, class string, item *pb.AdmitItem) {
	mark := headroom.validity.Now()
	headroom.mutex.Lock()
	defer headroom.mutex.Unlock()
	unavailable := func(reason *pb.Reason) bool {
		return reason.GetPlugin() == UnavailablePlugin && reason.GetCode() == UnavailableCode
	}
	if item == nil || item.GetProblem() != nil || slices.ContainsFunc(item.GetReasons(), unavailable) {
		delete(headroom.counts, headroomKey{queue, class})
		return
	}
	left := item.Headroom
	if !item.GetPermitted() {
		left = new(uint64)
	}
	headroom.counts[headroomKey{queue, class}] = headroomCount{mark, left}
}

// Take takes headroom for one task. If known is false the count is missing or stale, and the caller must ask Admit again;
// otherwise taken reports whether the queue admits the task. A task also takes from the other classes of its queue, so
// their counts are removed.
func (headroom *Headroom) Take(queue, class string) (taken, known bool) {
	headroom.mutex.Lock()
	defer headroom.mutex.Unlock()
	own := headroomKey{queue, class}
	entry, found := headroom.counts[own]
	if !found || !headroom.validity.Queue(entry.mark, queue) {
		delete(headroom.counts, own)
		return false, false
	}
	if entry.left == nil {
		return true, true
	}
	if *entry.left == 0 {
		return false, true
	}
	left := *entry.left - 1
	headroom.counts[own] = headroomCount{entry.mark, &left}
	maps.DeleteFunc(headroom.counts, func(other headroomKey, _ headroomCount) bool { return other.queue == queue && other.class != class })
	return true, true
}
