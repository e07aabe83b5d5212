package cycle

import (
	"context"
	"fmt"
	"testing"

	pb "github.com/pumice-scheduler/pumice/clients/go/pumicev1"
)

// rows is a cluster of nodes of two kinds, some of which hold a task, and a gang that waits.
func rows(nodes, tasks int) *cluster {
	made := small()
	var busy []string
	for number := range nodes {
		name := fmt.Sprintf("r%03d", number)
		made.node(name, "cpu", []string{"8", "12"}[number%2], "memory", "64Gi", "pods", "110")
		if number%5 == 0 {
			busy = append(busy, name)
		}
	}
	made.job("runs", "q", amounts("cpu", "1", "memory", "1Gi"), busy...)
	made.job("gang", "q", amounts("cpu", "2", "memory", "4Gi"), make([]string, tasks)...)
	return made
}

// compareAll compares the results of every node with those that the service has in the same session.
func compareAll(t *testing.T, cycle *Cycle, asked Task, nodes int) {
	t.Helper()
	reply, err := cycle.session.Score(context.Background(), &pb.ScoreRequest{
		Tasks: []*pb.Task{{Name: asked.Name}}, Plugins: cycle.nodePlugins, WithFilter: true, ResourceFit: pb.ResourceFit_RESOURCE_FIT_NONE,
		NodeEncoding: pb.NodeEncoding_NODE_ENCODING_NAMES,
	})
	if err != nil {
		t.Fatal(err)
	}
	item := reply.Response.GetResult().GetItems()[0]
	scores := map[string]float64{}
	for number, name := range item.GetNodes().GetNames() {
		scores[name] = scoreOf(item, rsf, number)
	}
	for number := range nodes {
		name := fmt.Sprintf("r%03d", number)
		score, known := scores[name]
		found, err := cycle.Score(rsf, asked, name)
		if rejection := cycle.Fits(rsf, asked, name); (rejection == nil) != known || err != nil || known && found != score {
			t.Fatal(name, "has", found, rejection, err, "and in the service", score, known)
		}
	}
}

// fill places a gang on the nodes that `choose` names, and compares all results now and then.
func fill(t *testing.T, cycle *Cycle, nodes, tasks int, choose func(number int) string) {
	t.Helper()
	for number := range tasks {
		placed := task("gang", number, "q")
		if err := cycle.Prepare(placed); err != nil {
			t.Fatal(err)
		}
		cycle.Record(Allocated, placed, choose(number))
		if number%7 == 0 {
			compareAll(t, cycle, task("gang", tasks-1, "q"), nodes)
		}
		if number%11 == 10 {
			cycle.Record(Withdrawn, placed, choose(number))
		}
	}
}

func TestNodesThatAreAlikeShareResults(t *testing.T) {
	const nodes, tasks = 40, 120
	for name, choose := range map[string]func(int) string{
		"one after the other":   func(number int) string { return fmt.Sprintf("r%03d", number/4) },
		"each node in its turn": func(number int) string { return fmt.Sprintf("r%03d", number%nodes) },
	} {
		scheduler, _, _ := start(t, Settings{})
		cycle := open(t, scheduler, rows(nodes, tasks))
		before := cycle.Usage().Calls
		fill(t, cycle, nodes, tasks, choose)
		// Two kinds of nodes, with and without a task, and up to four tasks more on each; some go again.
		if calls := cycle.Usage().Calls - before; calls > 40 {
			t.Error(name, calls)
		}
		cycle.Close()
	}
}

// TestNodesOfWhichTheServiceKnowsMoreShareNothingWrong has pods of another source, whose amounts the scheduler does not know.
func TestNodesOfWhichTheServiceKnowsMoreShareNothingWrong(t *testing.T) {
	const nodes, tasks = 30, 80
	scheduler, _, server := start(t, Settings{})
	other, _ := connect(t, server, Settings{Source: "other", PolicyMode: PushPolicy})
	strange := &cluster{}
	var busy []string
	for number := 3; number < nodes; number += 4 {
		busy = append(busy, fmt.Sprintf("r%03d", number))
	}
	strange.job("strange", "q", amounts("cpu", "3", "memory", "3Gi"), busy...)
	open(t, scheduler, rows(nodes, tasks)).Close()
	open(t, other, strange).Close()
	state := rows(nodes, tasks)
	state.node("more", "cpu", "1")
	cycle := open(t, scheduler, state)
	defer cycle.Close()
	fill(t, cycle, nodes, tasks, func(number int) string { return fmt.Sprintf("r%03d", number%nodes) })
}

// TestARefusedRecordEndsTheSharing: what the service has in its place may be anything.
func TestARefusedRecordEndsTheSharing(t *testing.T) {
	const nodes, tasks = 40, 60
	scheduler, _, _ := start(t, Settings{})
	state := rows(nodes, tasks)
	state.node("wrong", "cpu", "many")
	cycle := scheduler.Open(context.Background(), state, policy)
	defer cycle.Close()
	if len(cycle.RefusedRecords()) != 1 || cycle.Err() != nil {
		t.Fatal(cycle.RefusedRecords(), cycle.Err())
	}
	before := cycle.Usage().Calls
	fill(t, cycle, nodes, tasks, func(number int) string { return fmt.Sprintf("r%03d", number%nodes) })
	if calls := cycle.Usage().Calls - before; calls < tasks {
		t.Error(calls)
	}
}

// TestEventsAreSentBeforeTheyAreMany places tasks for which nothing has to be asked.
func TestEventsAreSentBeforeTheyAreMany(t *testing.T) {
	const nodes, tasks = 10, 1500
	scheduler, _, _ := start(t, Settings{})
	cycle := open(t, scheduler, rows(nodes, tasks))
	defer cycle.Close()
	most := 0
	for number := range tasks {
		placed := task("gang", number, "q")
		if err := cycle.Prepare(placed); err != nil {
			t.Fatal(err)
		}
		cycle.Record(Allocated, placed, "r000")
		cycle.Record(Withdrawn, placed, "r000")
		most = max(most, cycle.unsent)
	}
	if most < mostUnsent/2 || most > mostUnsent+2 {
		t.Error(most)
	}
}

// TestAClassFollowsThePolicy: a class depends on the queue only where a plugin has quotas.
func TestAClassFollowsThePolicy(t *testing.T) {
	one := known{record: &pb.Task{Name: "ns/a-0"}, queue: "a"}
	other := known{record: &pb.Task{Name: "ns/b-0"}, queue: "b"}
	for _, quotas := range []bool{false, true, false} {
		if (one.classOf(quotas) == other.classOf(quotas)) == quotas || (one.kindOf(quotas) == other.kindOf(quotas)) == quotas {
			t.Error("quotas:", quotas)
		}
	}
}
