package cycle

import (
	"fmt"
	"slices"
	"testing"
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

func TestAHopelessPreemptorIsAskedAboutAllNodesTogether(t *testing.T) {
	const nodes = 60
	exact, _, _ := start(t, Settings{Compatibility: "upstream"})
	one := open(t, exact, crowded(nodes))
	defer one.Close()
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
			victims, voting := cycle.VictimsAhead("drf", Preempt, preemptor, candidates, ahead)
			sorted := slices.Sorted(slices.Values(candidates))
			expected, _ := one.Victims("drf", Preempt, preemptor, sorted)
			var names, want []string
			for _, at := range victims {
				names = append(names, candidates[at])
			}
			for _, at := range expected {
				want = append(want, sorted[at])
			}
			slices.Sort(names)
			if !voting || !slices.IsSorted(victims) || fmt.Sprint(names) != fmt.Sprint(want) || len(want) == 0 {
				t.Fatal(number, names, want)
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
	one.Record(Evicted, task("big000", 0, "q"), "c000")
	candidates := candidatesOn(0)[1:]
	if _, voting := cycle.VictimsAhead("drf", Preempt, task("new", 0, "q"), candidates, ahead); !voting || cycle.Usage().Calls-before != aheadAfter+2 {
		t.Fatal(cycle.Usage().Calls - before)
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
		victims, voting := cycle.VictimsAhead("drf", Preempt, task("new", 0, "q"), candidatesOn(number), ahead)
		if !voting || len(victims) == 0 {
			t.Fatal(number, victims, cycle.Err())
		}
	}
	// One useless request, and no more of them.
	if collected != 1 || cycle.Err() != nil {
		t.Fatal(collected, cycle.Err())
	}
}
