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
// takes no part, or the service is unavailable.
//
// The candidates are judged job by job, those of one job in the given order: of the jobs Volcano fixes no order. Until the
// next event, calls share a result if jobs and records of their candidates are equal, one by one, and so are those of their
// preemptors. If a preemptor is hopeless on a few nodes, the candidates that `ahead` returns, of all nodes, are sent together;
// `ahead` may be nil.
func (cycle *Cycle) Victims(
	plugin string, kind VictimKind, preemptor Task, candidates []string, ahead func() [][]string,
) (victims []int, voting bool) {
	cycle.mutex.Lock()
	defer cycle.mutex.Unlock()
	if cycle.unavailable != nil || cycle.takesNoPart(cycle.victimPlugins, plugin) {
		return nil, false
	}
	preemptors := cycle.preemptors(kind, preemptor)
	list := cycle.victimList(preemptors, candidates)
	votes, err := cycle.victimVotes(kind, preemptor, preemptors, list, ahead)
	if err != nil {
		return nil, false
	}
	chosen, voting := chosenBy(plugin, votes)
	for _, at := range chosen {
		if at < len(list.order) {
			victims = append(victims, list.order[at])
		}
	}
	slices.Sort(victims)
	return victims, voting
}

// victimList are candidates on one node, job by job, with the key of their votes.
type victimList struct {
	key   Fingerprint
	names []string
	// order has the position of each name among the given candidates.
	order []int
}

func (cycle *Cycle) victimList(preemptors Fingerprint, candidates []string) victimList {
	list := victimList{key: preemptors, names: candidates, order: make([]int, len(candidates))}
	jobs, kinds := make([]string, len(candidates)), make([]Fingerprint, len(candidates))
	for at, name := range candidates {
		list.order[at] = at
		jobs[at], kinds[at] = cycle.victimKind(name)
	}
	if !slices.IsSorted(jobs) {
		slices.SortStableFunc(list.order, func(left, right int) int { return strings.Compare(jobs[left], jobs[right]) })
		list.names = make([]string, len(candidates))
		for number, at := range list.order {
			list.names[number] = candidates[at]
		}
	}
	for _, at := range list.order {
		list.key.Number(uint64(kinds[at]))
	}
	return list
}

// victimKind returns the job of a candidate, and a fingerprint that is equal for candidates of one job that are judged
// alike: those with equal records on one node. A task with an event in this cycle is no longer as its record says.
func (cycle *Cycle) victimKind(name string) (job string, kind Fingerprint) {
	reported := cycle.scheduler.mirror.tasks[name]
	if reported == nil {
		kind.Text(name)
		return "", kind
	}
	if reported.victim == 0 || reported.victimQuotas != cycle.quotas {
		reported.victim, reported.victimQuotas = reported.kindOf(cycle.quotas), cycle.quotas
		reported.victim.Text(reported.record.GetNode())
		reported.victim.Text(reported.record.GetJob())
	}
	kind = reported.victim
	if len(cycle.statuses) > 0 {
		if _, changed := cycle.statuses[name]; changed {
			kind.Text(name)
		}
	}
	return reported.job, kind
}

// preemptors is the key of all preemptors that have the results of one.
func (cycle *Cycle) preemptors(kind VictimKind, preemptor Task) Fingerprint {
	key := Fingerprint(kind)
	reported := cycle.scheduler.mirror.tasks[preemptor.Name]
	if reported == nil {
		key.Text(preemptor.Name)
		return key
	}
	key.Text(preemptor.Job)
	key.Number(uint64(reported.record.GetPriority()))
	key.Number(uint64(reported.kindOf(cycle.quotas)))
	return key
}

func (cycle *Cycle) victimVotes(
	kind VictimKind, preemptor Task, preemptors Fingerprint, list victimList, ahead func() [][]string,
) ([]*pb.VictimVote, error) {
	victims := cycle.currentVictims()
	if votes, known := victims.votes[list.key]; known {
		return votes, nil
	}
	if victims.misses[preemptors]++; victims.misses[preemptors] > aheadAfter && !victims.ahead[preemptors] && ahead != nil {
		victims.ahead[preemptors] = true
		if err := cycle.sendAhead(kind, preemptor, preemptors, ahead()); err != nil {
			return nil, err
		}
	}
	if votes, known := cycle.currentVictims().votes[list.key]; known {
		return votes, nil
	}
	if err := cycle.fetchVotes(kind, preemptor, []victimList{list}); err != nil {
		return nil, err
	}
	return cycle.victims.votes[list.key], nil
}

// sendAhead asks about the candidates of many nodes.
func (cycle *Cycle) sendAhead(kind VictimKind, preemptor Task, preemptors Fingerprint, candidates [][]string) error {
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
	for _, names := range candidates {
		list := cycle.victimList(preemptors, names)
		if _, known := cycle.victims.votes[list.key]; known || asked[list.key] {
			continue
		}
		asked[list.key] = true
		if len(part) == aheadGroups || size+len(names) > aheadCandidates {
			if err := send(); err != nil {
				return err
			}
		}
		part, size = append(part, list), size+len(names)
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
