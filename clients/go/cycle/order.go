package cycle

import (
	"context"
	"maps"
	"slices"

	pumice "github.com/pumice-scheduler/pumice/clients/go"
	pb "github.com/pumice-scheduler/pumice/clients/go/pumicev1"
)

// ranks are the order keys of jobs and queues.
type ranks struct {
	asked  bool
	jobs   map[string]map[string]*pb.OrderKey
	queues map[string]map[string]*pb.OrderKey
	// An event of a task makes the keys of its job and of all queues stale.
	staleJobs   map[string]bool
	staleQueues bool
	clock       uint64
}

func newRanks() ranks {
	return ranks{
		jobs: map[string]map[string]*pb.OrderKey{}, queues: map[string]map[string]*pb.OrderKey{}, staleJobs: map[string]bool{},
	}
}

func (ranks *ranks) recorded(task Task) {
	ranks.staleQueues = true
	if task.Job != "" {
		ranks.staleJobs[task.Job] = true
	}
}

// CompareJobs compares two jobs by a plugin: less than 0, the left one goes first; 0: the plugin has no opinion, or the
// service is unavailable. It looks up order keys; if one is stale it fetches all stale keys in one call.
func (cycle *Cycle) CompareJobs(plugin, left, right string) int {
	return cycle.compare(plugin, left, right, func(ranks *ranks) (map[string]map[string]*pb.OrderKey, bool) {
		return ranks.jobs, ranks.staleJobs[left] || ranks.staleJobs[right]
	})
}

// CompareQueues is CompareJobs for queues.
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
	if cycle.takesNoPart(cycle.orderPlugins, plugin) {
		cycle.mutex.RUnlock()
		return 0
	}
	usable := cycle.order.asked && !stale && cycle.invalidated <= cycle.order.clock && cycle.unavailable == nil
	one, other := table[left][plugin], table[right][plugin]
	cycle.mutex.RUnlock()
	if !usable {
		cycle.mutex.Lock()
		defer cycle.mutex.Unlock()
		if cycle.unavailable != nil || cycle.fetchKeys() != nil {
			return 0
		}
		table, _ = of(&cycle.order)
		one, other = table[left][plugin], table[right][plugin]
	}
	return pumice.CompareKey(one, other, cycle.rule())
}

func (cycle *Cycle) rule() pumice.OrderRule {
	if cycle.upstream {
		return pumice.Upstream
	}
	return pumice.Corrected
}

// fetchKeys fetches stale keys; at first all keys.
func (cycle *Cycle) fetchKeys() error {
	ranks := &cycle.order
	all := !ranks.asked || cycle.invalidated > ranks.clock
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
	response, err := send(cycle, func(ctx context.Context) (pumice.Reply[*pb.OrderResponse], error) {
		return cycle.session.Order(ctx, request)
	})
	if err != nil {
		return err
	}
	store(ranks.queues, response.GetResult().GetQueues())
	store(ranks.jobs, response.GetResult().GetJobs())
	ranks.asked, ranks.staleQueues, ranks.clock = true, false, cycle.clock
	clear(ranks.staleJobs)
	return nil
}

func store(table map[string]map[string]*pb.OrderKey, fetched []*pb.Rank) {
	for _, rank := range fetched {
		keys := make(map[string]*pb.OrderKey, len(rank.GetKeys()))
		for _, key := range rank.GetKeys() {
			keys[key.GetPlugin()] = key
		}
		table[rank.GetName()] = keys
	}
}

// JobKey returns a plugin's order key of a job; nil: it has none, or the service is unavailable.
func (cycle *Cycle) JobKey(plugin, job string) []float64 {
	cycle.mutex.Lock()
	defer cycle.mutex.Unlock()
	if cycle.unavailable != nil || cycle.takesNoPart(cycle.orderPlugins, plugin) || cycle.fetchKeys() != nil {
		return nil
	}
	return cycle.order.jobs[job][plugin].GetValues()
}
