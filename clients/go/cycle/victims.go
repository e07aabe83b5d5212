package cycle

import (
	"context"
	"slices"
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
	votes map[Fingerprint][]*pb.VictimVote
	// misses is the number of calls for the preemptors of a key, ahead has those whose candidates were sent ahead.
	misses map[Fingerprint]int
	ahead  map[Fingerprint]bool
}

func newVictimVotes() victimVotes {
	return victimVotes{votes: map[Fingerprint][]*pb.VictimVote{}, misses: map[Fingerprint]int{}, ahead: map[Fingerprint]bool{}}
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
	key := Fingerprint(kind)
	key.Text(preemptor.Name)
	for _, name := range candidates {
		key.Text(name)
	}
	votes, known := cycle.currentVictims().votes[key]
	if !known {
		if cycle.fetchVotes(kind, preemptor, []victimList{{key, candidates}}) != nil {
			return nil, false
		}
		votes = cycle.victims.votes[key]
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
	votes, err := cycle.votesAhead(kind, preemptor, candidates, ahead)
	if err != nil {
		return nil, false
	}
	chosen, voting := chosenBy(plugin, votes)
	if len(chosen) == 0 {
		return nil, voting
	}
	order := byName(candidates)
	for _, at := range chosen {
		if at < len(order) {
			victims = append(victims, order[at])
		}
	}
	slices.Sort(victims)
	return victims, voting
}

// byName returns the positions of names in the order of the names.
func byName(names []string) []int {
	order := make([]int, len(names))
	for at := range order {
		order[at] = at
	}
	slices.SortStableFunc(order, func(left, right int) int { return strings.Compare(names[left], names[right]) })
	return order
}

// victimList are candidates on one node, with the key of their votes.
type victimList struct {
	key   Fingerprint
	names []string
}

// setKey is the key of votes on candidates in any order.
func setKey(preemptors Fingerprint, candidates []string) Fingerprint {
	var set Fingerprint
	for _, name := range candidates {
		var own Fingerprint
		own.Text(name)
		set.Element(own)
	}
	preemptors.Number(uint64(set))
	return preemptors
}

// preemptors is the key of all preemptors that have the results of one.
func (cycle *Cycle) preemptors(kind VictimKind, preemptor Task) Fingerprint {
	key := Fingerprint(kind)
	key.Text("by name")
	reported := cycle.scheduler.mirror.tasks[preemptor.Name]
	if reported == nil {
		key.Text(preemptor.Name)
		return key
	}
	key.Text(preemptor.Job)
	key.Number(uint64(reported.record.GetPriority()))
	key.Text(reported.classOf(cycle.quotas))
	return key
}

func (cycle *Cycle) votesAhead(kind VictimKind, preemptor Task, candidates []string, ahead func() [][]string) ([]*pb.VictimVote, error) {
	of, victims := cycle.preemptors(kind, preemptor), cycle.currentVictims()
	key := setKey(of, candidates)
	if votes, known := victims.votes[key]; known {
		return votes, nil
	}
	if victims.misses[of]++; victims.misses[of] > aheadAfter && !victims.ahead[of] {
		victims.ahead[of] = true
		if err := cycle.sendAhead(kind, preemptor, of, ahead()); err != nil {
			return nil, err
		}
	}
	if votes, known := cycle.currentVictims().votes[key]; known {
		return votes, nil
	}
	if err := cycle.fetchVotes(kind, preemptor, []victimList{{key, slices.Sorted(slices.Values(candidates))}}); err != nil {
		return nil, err
	}
	return cycle.victims.votes[key], nil
}

// sendAhead asks about the candidates of many nodes.
func (cycle *Cycle) sendAhead(kind VictimKind, preemptor Task, of Fingerprint, lists [][]string) error {
	var part []victimList
	asked, size := map[Fingerprint]bool{}, 0
	send := func() error {
		if len(part) == 0 {
			return nil
		}
		err := cycle.fetchVotes(kind, preemptor, part)
		part, size = nil, 0
		return err
	}
	for _, list := range lists {
		key := setKey(of, list)
		if _, known := cycle.victims.votes[key]; known || asked[key] {
			continue
		}
		asked[key] = true
		if len(part) == aheadGroups || size+len(list) > aheadCandidates {
			if err := send(); err != nil {
				return err
			}
		}
		slices.Sort(list)
		part, size = append(part, victimList{key, list}), size+len(list)
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

func (cycle *Cycle) fetchVotes(kind VictimKind, preemptor Task, lists []victimList) error {
	request := &pb.SelectVictimsRequest{Kind: kind, Plugins: cycle.victimPlugins}
	for _, list := range lists {
		group := &pb.VictimGroup{Preemptor: &pb.Task{Name: preemptor.Name}}
		for _, name := range list.names {
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
		victims.votes[lists[at].key] = votes
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
