package cycle

import (
	"context"
	"slices"
	"strconv"
	"strings"

	pumice "github.com/pumice-scheduler/pumice/clients/go"
	pb "github.com/pumice-scheduler/pumice/clients/go/pumicev1"
)

// VictimKind is the kind of an eviction.
type VictimKind = pb.VictimKind

// The kinds of eviction.
const (
	// Preempt takes resources within a queue.
	Preempt = pb.VictimKind_VICTIM_KIND_PREEMPT
	// Reclaim takes resources from other queues.
	Reclaim = pb.VictimKind_VICTIM_KIND_RECLAIM
)

const (
	// aheadAfter is the number of calls for one kind of preemptor after which the candidates of all nodes are sent ahead.
	aheadAfter = 4
	// aheadGroups and aheadCandidates bound one request that is sent ahead.
	aheadGroups, aheadCandidates = 1_000, 10_000
)

// victimVotes are the votes on victims since the last event.
type victimVotes struct {
	clock uint64
	votes map[string][]*pb.VictimVote
	// misses is the number of calls for the preemptors of a key, ahead has those whose candidates were sent ahead.
	misses map[string]int
	ahead  map[string]bool
}

func newVictimVotes() victimVotes {
	return victimVotes{votes: map[string][]*pb.VictimVote{}, misses: map[string]int{}, ahead: map[string]bool{}}
}

// Victims returns the candidates that a plugin permits to evict for a preemptor, by position. If voting is false the plugin
// takes no part, or the service is unavailable. The result depends on the order of the candidates. Equal calls are sent
// once, until the next event.
func (cycle *Cycle) Victims(plugin string, kind VictimKind, preemptor Task, candidates []string) (victims []int, voting bool) {
	cycle.mutex.Lock()
	defer cycle.mutex.Unlock()
	if cycle.unavailable != nil || cycle.takesNoPart(cycle.victimPlugins, plugin) {
		return nil, false
	}
	votes, err := cycle.votesFor(kind, preemptor, preemptor.Name, candidates)
	if err != nil {
		return nil, false
	}
	return chosenBy(plugin, votes)
}

// VictimsAhead is Victims for schedulers that ask about one node after the other and do not fix the order of a node's
// candidates: it takes them by name. Tasks of one class in one job share results. If a preemptor is hopeless on a few nodes,
// the candidates that `ahead` returns, of all nodes, are sent together.
func (cycle *Cycle) VictimsAhead(
	plugin string, kind VictimKind, preemptor Task, candidates []string, ahead func() [][]string,
) (victims []int, voting bool) {
	cycle.mutex.Lock()
	defer cycle.mutex.Unlock()
	if cycle.unavailable != nil || cycle.takesNoPart(cycle.victimPlugins, plugin) {
		return nil, false
	}
	order := make([]int, len(candidates))
	for at := range order {
		order[at] = at
	}
	slices.SortStableFunc(order, func(left, right int) int { return strings.Compare(candidates[left], candidates[right]) })
	sorted := make([]string, len(candidates))
	for at, from := range order {
		sorted[at] = candidates[from]
	}
	votes, err := cycle.votesAhead(kind, preemptor, sorted, ahead)
	if err != nil {
		return nil, false
	}
	chosen, voting := chosenBy(plugin, votes)
	for _, at := range chosen {
		if at < len(order) {
			victims = append(victims, order[at])
		}
	}
	slices.Sort(victims)
	return victims, voting
}

func (cycle *Cycle) votesAhead(kind VictimKind, preemptor Task, sorted []string, ahead func() [][]string) ([]*pb.VictimVote, error) {
	of := preemptor.Name
	if reported := cycle.scheduler.mirror.tasks[preemptor.Name]; reported != nil {
		of = preemptor.Job + "\x00" + strconv.Itoa(int(reported.record.GetPriority())) + "\x00" + reported.classOf(cycle.quotas)
	}
	of = "by name\x00" + of
	group := kind.String() + "\x00" + of
	victims := cycle.currentVictims()
	if _, known := victims.votes[victimKey(kind, of, sorted)]; !known {
		if victims.misses[group]++; victims.misses[group] > aheadAfter && !victims.ahead[group] {
			victims.ahead[group] = true
			if err := cycle.sendAhead(kind, preemptor, of, ahead()); err != nil {
				return nil, err
			}
		}
	}
	return cycle.votesFor(kind, preemptor, of, sorted)
}

// sendAhead asks about the candidates of many nodes.
func (cycle *Cycle) sendAhead(kind VictimKind, preemptor Task, of string, lists [][]string) error {
	var part [][]string
	asked, size := map[string]bool{}, 0
	send := func() error {
		if len(part) == 0 {
			return nil
		}
		err := cycle.fetchVotes(kind, preemptor, of, part)
		part, size = nil, 0
		return err
	}
	for _, list := range lists {
		slices.Sort(list)
		key := victimKey(kind, of, list)
		if _, known := cycle.victims.votes[key]; known || asked[key] {
			continue
		}
		asked[key] = true
		if len(part) == aheadGroups || size+len(list) > aheadCandidates {
			if err := send(); err != nil {
				return err
			}
		}
		part, size = append(part, list), size+len(list)
	}
	return send()
}

// currentVictims are the votes since the last event; those before it are forgotten.
func (cycle *Cycle) currentVictims() *victimVotes {
	if cycle.victims.clock != cycle.clock {
		cycle.victims = newVictimVotes()
		cycle.victims.clock = cycle.clock
	}
	return &cycle.victims
}

func victimKey(kind VictimKind, of string, candidates []string) string {
	return kind.String() + "\x00" + of + "\x00\x00" + strings.Join(candidates, "\x00")
}

// votesFor returns the votes on one list of candidates. `of` stands for the preemptor and all that have the same results.
func (cycle *Cycle) votesFor(kind VictimKind, preemptor Task, of string, candidates []string) ([]*pb.VictimVote, error) {
	key := victimKey(kind, of, candidates)
	if votes, known := cycle.currentVictims().votes[key]; known {
		return votes, nil
	}
	if err := cycle.fetchVotes(kind, preemptor, of, [][]string{candidates}); err != nil {
		return nil, err
	}
	return cycle.victims.votes[key], nil
}

func (cycle *Cycle) fetchVotes(kind VictimKind, preemptor Task, of string, lists [][]string) error {
	request := &pb.SelectVictimsRequest{Kind: kind, Plugins: cycle.victimPlugins}
	for _, candidates := range lists {
		group := &pb.VictimGroup{Preemptor: &pb.Task{Name: preemptor.Name}}
		for _, name := range candidates {
			group.Candidates = append(group.Candidates, &pb.Task{Name: name})
		}
		request.Groups = append(request.Groups, group)
	}
	response, err := send(cycle, func(ctx context.Context) (pumice.Reply[*pb.SelectVictimsResponse], error) {
		return cycle.session.SelectVictims(ctx, request)
	})
	if err != nil {
		return err
	}
	victims := cycle.currentVictims()
	for at, item := range response.GetResult().GetItems() {
		if at >= len(lists) {
			break
		}
		votes := item.GetVotes()
		if item.GetProblem() != nil {
			// No task is evicted for a preemptor that cannot be judged.
			votes = nil
			for _, name := range cycle.victimPlugins {
				votes = append(votes, &pb.VictimVote{Plugin: name})
			}
		}
		victims.votes[victimKey(kind, of, lists[at])] = votes
	}
	return nil
}

// chosenBy returns the victims of a plugin's vote.
func chosenBy(plugin string, votes []*pb.VictimVote) (victims []int, voting bool) {
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
