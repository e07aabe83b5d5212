package cycle

import (
	"context"
	"maps"
	"slices"

	pumice "pumice/clients/go"
	pb "pumice/clients/go/pumicev1"
)

// ranks are the order keys of jobs and queues, as far as they still hold.
type ranks struct {
	asked  bool
	jobs   map[string]map[string]*pb.OrderKey
	queues map[string]map[string]*pb.OrderKey
	// A job's keys change with what happens to its tasks, a queue's with what happens to anybody's.
	staleJobs   map[string]bool
	staleQueues bool
	clock       uint64
}

func newRanks() ranks {
	return ranks{
		jobs: map[string]map[string]*pb.OrderKey{}, queues: map[string]map[string]*pb.OrderKey{}, staleJobs: map[string]bool{},
	}
}

func (ranks *ranks) happened(task Task) {
	ranks.staleQueues = true
	if task.Job != "" {
		ranks.staleJobs[task.Job] = true
	}
}

// CompareJobs says which job a plugin wants first: less than 0, the left one; 0: it does not say. It looks keys up; after
// a change of one of the two it asks once for all that changed.
func (cycle *Cycle) CompareJobs(plugin, left, right string) int {
	return cycle.compare(plugin, left, right, func(ranks *ranks) (map[string]map[string]*pb.OrderKey, bool) {
		return ranks.jobs, ranks.staleJobs[left] || ranks.staleJobs[right]
	})
}

// CompareQueues is the same for queues.
func (cycle *Cycle) CompareQueues(plugin, left, right string) int {
	return cycle.compare(plugin, left, right, func(ranks *ranks) (map[string]map[string]*pb.OrderKey, bool) {
		return ranks.queues, ranks.staleQueues
	})
}

func (cycle *Cycle) compare(
	plugin, left, right string, of func(*ranks) (map[string]map[string]*pb.OrderKey, bool),
) int {
	if left == right {
		return 0
	}
	cycle.mutex.RLock()
	table, stale := of(&cycle.order)
	usable := cycle.order.asked && !stale && cycle.spoiled <= cycle.order.clock && cycle.away == nil
	one, other := table[left][plugin], table[right][plugin]
	cycle.mutex.RUnlock()
	if !usable {
		cycle.mutex.Lock()
		defer cycle.mutex.Unlock()
		if cycle.away != nil || cycle.askOrder() != nil {
			return 0
		}
		table, _ = of(&cycle.order)
		one, other = table[left][plugin], table[right][plugin]
	}
	return pumice.CompareKey(one, other, cycle.rule())
}

func (cycle *Cycle) rule() pumice.Rule {
	if cycle.scheduler.settings.Compatibility == "upstream" {
		return pumice.Upstream
	}
	return pumice.Corrected
}

// askOrder asks for the keys that do not hold any more: all of them at first.
func (cycle *Cycle) askOrder() error {
	ranks := &cycle.order
	all := !ranks.asked || cycle.spoiled > ranks.clock
	if !all && !ranks.staleQueues && len(ranks.staleJobs) == 0 {
		return nil
	}
	request := &pb.OrderRequest{Plugins: cycle.orderPlugins}
	if all || ranks.staleQueues {
		request.Queues = &pb.NameSet{}
	}
	switch {
	case all:
		request.Jobs = &pb.NameSet{}
	case len(ranks.staleJobs) > 0:
		request.Jobs = &pb.NameSet{Names: slices.Sorted(maps.Keys(ranks.staleJobs))}
	}
	response, err := ask(cycle, func(ctx context.Context) (pumice.Reply[*pb.OrderResponse], error) {
		return cycle.session.Order(ctx, request)
	})
	if err != nil {
		return err
	}
	keep(ranks.queues, response.GetResult().GetQueues())
	keep(ranks.jobs, response.GetResult().GetJobs())
	ranks.asked, ranks.staleQueues, ranks.clock = true, false, cycle.clock
	clear(ranks.staleJobs)
	return nil
}

func keep(table map[string]map[string]*pb.OrderKey, answered []*pb.Rank) {
	for _, rank := range answered {
		keys := make(map[string]*pb.OrderKey, len(rank.GetKeys()))
		for _, key := range rank.GetKeys() {
			keys[key.GetPlugin()] = key
		}
		table[rank.GetName()] = keys
	}
}

// JobKey is a plugin's order key of a job; nil if it has none.
func (cycle *Cycle) JobKey(plugin, job string) []float64 {
	cycle.mutex.Lock()
	defer cycle.mutex.Unlock()
	if cycle.away != nil || cycle.askOrder() != nil {
		return nil
	}
	return cycle.order.jobs[job][plugin].GetValues()
}
