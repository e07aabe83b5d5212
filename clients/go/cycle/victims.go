package cycle

import (
	"context"
	"strconv"
	"strings"

	pumice "github.com/pumice-scheduler/pumice/clients/go"
	pb "github.com/pumice-scheduler/pumice/clients/go/pumicev1"
)

// VictimKind is the scheduler's way to take entry.
type VictimKind = pb.VictimKind

// The purposes.
const (
	// Preempt takes resources within a queue.
	Preempt = pb.VictimKind_VICTIM_KIND_PREEMPT
	// Reclaim takes resources from other queues.
	Reclaim = pb.VictimKind_VICTIM_KIND_RECLAIM
)

// Victims returns the candidates that a plugin permits to evict for a preemptor, by position. If voting is false the plugin
// takes no part, or the service is unavailable. The result depends on the order of the candidates. Equal calls are sent
// once, until the next event.
func (cycle *Cycle) Victims(plugin string, kind VictimKind, preemptor Task, candidates []string) (victims []int, voting bool) {
	cycle.mutex.Lock()
	defer cycle.mutex.Unlock()
	if cycle.unavailable != nil || cycle.takesNoPart(cycle.victimPlugins, plugin) {
		return nil, false
	}
	key := kind.String() + "\x00" + strconv.FormatUint(cycle.clock, 10) + "\x00" + preemptor.Name + "\x00" + strings.Join(candidates, "\x00")
	votes, known := cycle.victims[key]
	if !known {
		group := &pb.VictimGroup{Preemptor: &pb.Task{Name: preemptor.Name}}
		for _, name := range candidates {
			group.Candidates = append(group.Candidates, &pb.Task{Name: name})
		}
		response, err := send(cycle, func(ctx context.Context) (pumice.Reply[*pb.SelectVictimsResponse], error) {
			return cycle.session.SelectVictims(ctx, &pb.SelectVictimsRequest{
				Kind: kind, Plugins: cycle.victimPlugins, Groups: []*pb.VictimGroup{group},
			})
		})
		if err != nil {
			return nil, false
		}
		// Results of an earlier clock are not needed again.
		clear(cycle.victims)
		for _, item := range response.GetResult().GetItems() {
			votes = item.GetVotes()
			if item.GetProblem() != nil {
				// No task is evicted for a preemptor that cannot be judged.
				for _, name := range cycle.victimPlugins {
					votes = append(votes, &pb.VictimVote{Plugin: name})
				}
			}
		}
		cycle.victims[key] = votes
	}
	for _, vote := range votes {
		if vote.GetPlugin() == plugin && !vote.GetAbstained() {
			for _, at := range vote.GetVictims() {
				victims = append(victims, int(at))
			}
			return victims, true
		}
	}
	return nil, false
}
