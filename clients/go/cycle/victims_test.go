package cycle

import (
	"context"
	"fmt"
	"math/rand/v2"
	"testing"

	pb "github.com/pumice-scheduler/pumice/clients/go/pumicev1"
)

// crowded is a queue with a large job on each node, and a small one that waits.
func crowded(nodes int) *cluster {
	made := small()
	for number := range nodes {
		node := fmt.Sprintf("c%03d", number)
		made.node(node, "cpu", "8", "memory", "32Gi", "pods", "110")
		made.job(fmt.Sprintf("big%03d", number), "q", amounts("cpu", "2"), node, node, node)
	}
	return made
}

func candidatesOn(number int) []string {
	name := fmt.Sprintf("default/big%03d", number)
	return []string{name + "-2", name + "-0", name + "-1"}
}

// asGiven asks the service about candidates in the given order.
func asGiven(t *testing.T, cycle *Cycle, kind VictimKind, preemptor string, candidates []string) (victims []int) {
	t.Helper()
	group := &pb.VictimGroup{Preemptor: &pb.Task{Name: preemptor}}
	for _, name := range candidates {
		group.Candidates = append(group.Candidates, &pb.Task{Name: name})
	}
	reply, err := cycle.session.SelectVictims(context.Background(), &pb.SelectVictimsRequest{
		Kind: kind, Plugins: []string{"drf"}, Groups: []*pb.VictimGroup{group},
	})
	if err != nil {
		t.Fatal(err)
	}
	victims, _ = chosenBy("drf", reply.Response.GetResult().GetItems()[0].GetVotes())
	return victims
}

func TestAHopelessPreemptorIsAskedAboutAllNodesTogether(t *testing.T) {
	const nodes = 60
	scheduler, _, _ := start(t, Settings{Compatibility: "upstream"})
	cycle := open(t, scheduler, crowded(nodes))
	defer cycle.Close()
	collected := 0
	ahead := func() (lists [][]string) {
		collected++
		for number := range nodes {
			lists = append(lists, candidatesOn(number))
		}
		return lists
	}
	before := cycle.Usage().Calls
	ask := func(preemptor Task) {
		t.Helper()
		for number := range nodes {
			candidates := candidatesOn(number)
			victims, voting := cycle.Victims("drf", Preempt, preemptor, candidates, ahead)
			expected := asGiven(t, cycle, Preempt, preemptor.Name, candidates)
			if !voting || fmt.Sprint(victims) != fmt.Sprint(expected) || len(expected) == 0 || len(expected) == len(candidates) {
				t.Fatal(number, victims, expected)
			}
		}
	}
	ask(task("new", 0, "q"))
	if calls := cycle.Usage().Calls - before; calls != aheadAfter+1 || collected != 1 {
		t.Fatal(calls, collected)
	}
	// Another task of the same gang has the same results.
	ask(task("new", 1, "q"))
	if calls := cycle.Usage().Calls - before; calls != aheadAfter+1 || collected != 1 {
		t.Fatal(calls, collected)
	}
	// An event makes them stale.
	cycle.Record(Evicted, task("big000", 0, "q"), "c000")
	candidates := []string{"default/big000-2", "default/big000-1"}
	if _, voting := cycle.Victims("drf", Preempt, task("new", 0, "q"), candidates, ahead); !voting || cycle.Usage().Calls-before != aheadAfter+2 {
		t.Fatal(cycle.Usage().Calls - before)
	}
}

// TestVictimsAreThoseOfTheGivenOrder asks about candidates of several jobs, in chance orders: the first ones of a job may go,
// whoever they are.
func TestVictimsAreThoseOfTheGivenOrder(t *testing.T) {
	scheduler, _, _ := start(t, Settings{Compatibility: "upstream"})
	state := crowded(1)
	state.job("mixed", "q", amounts("cpu", "1"), "c000", "c000", "c000", "c000")
	for _, record := range state.group[GroupKey{JobGroup, "mixed"}].GetTasks()[2:] {
		record.Requests = amounts("cpu", "1500m")
	}
	cycle := open(t, scheduler, state)
	defer cycle.Close()
	dice := rand.New(rand.NewPCG(1, 7))
	candidates := append(candidatesOn(0), "default/mixed-0", "default/mixed-1", "default/mixed-2", "default/mixed-3")
	before, ends := cycle.Usage().Calls, map[string]bool{}
	for round := range 200 {
		dice.Shuffle(len(candidates), func(one, other int) { candidates[one], candidates[other] = candidates[other], candidates[one] })
		victims, _ := cycle.Victims("drf", Preempt, task("new", round%3, "q"), candidates, nil)
		expected := asGiven(t, cycle, Preempt, "default/new-0", candidates)
		if fmt.Sprint(victims) != fmt.Sprint(expected) || len(victims) == 0 || len(victims) == len(candidates) {
			t.Fatal(candidates, victims, expected)
		}
		ends[fmt.Sprint(victims)] = true
	}
	// Four tasks of two kinds have six orders; the three equal ones have one.
	if calls := cycle.Usage().Calls - before; calls != 6 || len(ends) < 4 {
		t.Fatal(calls, len(ends))
	}
}

func TestCandidatesThatWereNotForeseenAreAskedAbout(t *testing.T) {
	scheduler, _, _ := start(t, Settings{Compatibility: "upstream"})
	cycle := open(t, scheduler, crowded(20))
	defer cycle.Close()
	collected := 0
	ahead := func() [][]string {
		collected++
		return [][]string{{"default/old-0"}, {"default/nobody"}}
	}
	for number := range 20 {
		victims, voting := cycle.Victims("drf", Preempt, task("new", 0, "q"), candidatesOn(number), ahead)
		if !voting || len(victims) == 0 {
			t.Fatal(number, victims, cycle.Err())
		}
	}
	// One useless request, and no more of them.
	if collected != 1 || cycle.Err() != nil {
		t.Fatal(collected, cycle.Err())
	}
}
