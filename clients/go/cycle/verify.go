package cycle

import (
	"hash/fnv"
	"math"
	"slices"
	"strings"

	pb "github.com/pumice-scheduler/pumice/clients/go/pumicev1"
)

// Amounts are the usage of a node: cpu in milli-cores, memory in bytes, pods as a count, all others in thousandths.
type Amounts map[string]float64

// Due reports whether Settings.VerifyEvery asks for Verify in this cycle.
func (cycle *Cycle) Due() bool {
	every := cycle.scheduler.settings.VerifyEvery
	return every > 0 && cycle.scheduler.cycles%uint64(every) == 0
}

// Verify compares the usage of each node with the service's, at the beginning of a cycle. It returns the nodes that differ
// and reports them to the observer, and the next cycle sends a full sync.
func (cycle *Cycle) Verify(used map[string]Amounts) (differing []string) {
	cycle.mutex.Lock()
	defer cycle.mutex.Unlock()
	if cycle.unavailable != nil {
		return nil
	}
	left := make(map[string]uint64, len(used))
	for name, amounts := range used {
		left[name] = checksum(amounts)
	}
	token := ""
	for {
		request := &pb.ListNodesRequest{
			Against: &pb.EvaluationRef{Target: &pb.EvaluationRef_Session{Session: &pb.SessionRef{Id: cycle.session.Opened().GetSession()}}},
			Page:    &pb.Page{Token: token},
		}
		var page *pb.ListNodesResponse
		err := cycle.timed(func() (err error) {
			ctx, cancel := cycle.context()
			defer cancel()
			page, err = cycle.scheduler.settings.Client.ListNodes(ctx, request)
			return err
		})
		if err != nil {
			_ = cycle.giveUp(err)
			return nil
		}
		for _, node := range page.GetNodes() {
			name := node.GetNode().GetName()
			if sum, found := left[name]; !found || sum != checksum(amountsOf(node.GetUsed())) {
				differing = append(differing, name)
			}
			delete(left, name)
		}
		if token = page.GetNextPageToken(); token == "" {
			break
		}
	}
	for name := range left {
		differing = append(differing, name)
	}
	if slices.Sort(differing); len(differing) > 0 {
		cycle.scheduler.Resync()
		cycle.scheduler.settings.Observer.Drifted(differing)
	}
	return differing
}

func amountsOf(list []*pb.Amount) Amounts {
	amounts := Amounts{}
	for _, amount := range list {
		amounts[amount.GetResource()] = amount.GetValue()
	}
	return amounts
}

// checksum is independent of order; absent and zero amounts are equal.
func checksum(amounts Amounts) uint64 {
	type one struct {
		name  string
		value float64
	}
	var list []one
	for name, value := range amounts {
		if value != 0 {
			list = append(list, one{name, value})
		}
	}
	slices.SortFunc(list, func(left, right one) int { return strings.Compare(left.name, right.name) })
	hash := fnv.New64a()
	for _, item := range list {
		_, _ = hash.Write([]byte(item.name))
		var bits [8]byte
		for at, value := 0, math.Float64bits(item.value); at < 8; at++ {
			bits[at] = byte(value >> (8 * at))
		}
		_, _ = hash.Write(bits[:])
	}
	return hash.Sum64()
}
