package cycle

import (
	"context"
	"fmt"
	"testing"

	pb "github.com/pumice-scheduler/pumice/clients/go/pumicev1"
)

func (listener *listener) Refused(fresh []RefusedRecord, now int) {
	listener.refused = append(listener.refused, fmt.Sprint(fresh, " of ", now))
}

// opened opens a cycle that has to be available, whatever was refused.
func opened(t *testing.T, scheduler *Scheduler, state SchedulerState, policy Policy) *Cycle {
	t.Helper()
	cycle := scheduler.Open(context.Background(), state, policy)
	if cycle.Err() != nil {
		t.Fatal(cycle.Err())
	}
	return cycle
}

// TestABadRecordOfAnyKindIsNamedAndStopsNothing lets the service refuse one record of each kind, in the full sync and
// later.
func TestABadRecordOfAnyKindIsNamedAndStopsNothing(t *testing.T) {
	scheduler, heard, _ := start(t, Settings{Compatibility: "upstream"})
	bad := amounts("cpu", "many")
	state := small()
	state.add(NodeGroup, "bad", &pb.Cluster{Nodes: []*pb.Node{{Name: "bad", Allocatable: bad}}})
	state.add(QueueGroup, "badq", &pb.Cluster{Queues: []*pb.Queue{{Name: "badq", Capability: bad}}})
	state.add(JobGroup, "badj", &pb.Cluster{
		Jobs:  []*pb.Job{{Name: "default/badj", Queue: "q", MinResources: bad}},
		Tasks: []*pb.Task{{Name: "default/badj-0", Job: "default/badj", Requests: bad}, {Name: "default/badj-1", Requests: amounts("cpu", "1")}},
	})
	names := func(cycle *Cycle) (list []string) {
		for _, record := range cycle.RefusedRecords() {
			if record.Message == "" || record.Field == "" || record.Unreadable {
				t.Fatalf("%+v", record)
			}
			list = append(list, record.Kind+" "+record.Name)
		}
		return list
	}
	want := "[job default/badj node bad queue badq task default/badj-0]"
	cycle := opened(t, scheduler, state, policy)
	if got := fmt.Sprint(names(cycle)); got != want {
		t.Fatal(got)
	}
	// All other tasks have results; one without a record has none of its own.
	for name, known := range map[string]bool{"default/new-0": true, "default/badj-1": true} {
		if err := cycle.Prepare(Task{ID: name, Name: name, Queue: "q"}); (err == nil) != known {
			t.Fatal(name, err)
		}
	}
	if err := cycle.Prepare(task("badj", 0, "q")); err == nil {
		t.Fatal("a task without a record was prepared")
	}
	if err := cycle.Prepare(task("new", 1, "q")); err != nil {
		t.Fatal("a bad record took the others with it:", err)
	}
	cycle.Close()
	// It is reported once, and stays refused while nothing changes.
	state.node("more", "cpu", "1")
	cycle = opened(t, scheduler, state, policy)
	if got := fmt.Sprint(names(cycle)); got != want || len(heard.refused) != 1 {
		t.Fatal(got, heard.refused)
	}
	cycle.Close()
	// A good record, or none, ends it. A new one comes in a delta.
	state.node("bad", "cpu", "1")
	state.keys = state.keys[:len(state.keys)-2]
	state.add(QueueGroup, "badq", &pb.Cluster{Queues: []*pb.Queue{{Name: "badq"}}})
	state.add(NodeGroup, "n2", &pb.Cluster{Nodes: []*pb.Node{{Name: "n2", Allocatable: bad}}})
	cycle = opened(t, scheduler, state, policy)
	defer cycle.Close()
	if got := fmt.Sprint(names(cycle)); got != "[node n2]" || len(heard.refused) != 2 {
		t.Fatal(got, heard.refused)
	}
	if err := cycle.Prepare(task("new", 0, "q")); err != nil {
		t.Fatal(err)
	}
	// The last good record of n2 counts.
	if score, err := cycle.Score(rsf, task("new", 0, "q"), "n2"); score != 250 || err != nil {
		t.Fatal(score, err)
	}
}

// marked is a state whose groups have unreadable records.
type marked struct {
	*cluster
	marks map[string][]*pb.UnreadableRecord
}

func (marked *marked) Fingerprint(at int) uint64 {
	return marked.cluster.Fingerprint(at) + uint64(len(marked.marks[marked.Key(at).Name]))
}

func (marked *marked) Records(at int) (GroupRecords, error) {
	records, err := marked.cluster.Records(at)
	records.Unreadable = marked.marks[marked.Key(at).Name]
	return records, err
}

func TestAnUnreadableTaskKeepsItsLastGoodRecordAndNothingElse(t *testing.T) {
	scheduler, heard, _ := start(t, Settings{Compatibility: "upstream"})
	state := &marked{cluster: small(), marks: map[string][]*pb.UnreadableRecord{}}
	mark := func(name, node string) *pb.UnreadableRecord {
		return &pb.UnreadableRecord{
			Kind: pb.RecordKind_RECORD_KIND_TASK, Name: name, Field: "spec", Message: "cannot be read", Node: node,
		}
	}
	used := func() string {
		t.Helper()
		cycle := opened(t, scheduler, state, policy)
		defer cycle.Close()
		list, err := scheduler.settings.Client.ListNodes(context.Background(), &pb.ListNodesRequest{})
		if err != nil {
			t.Fatal(err)
		}
		text := ""
		for _, node := range list.GetNodes() {
			cpu := 0.0
			for _, amount := range node.GetUsed() {
				if amount.GetResource() == "cpu" {
					cpu = amount.GetValue()
				}
			}
			text += fmt.Sprintf("%s %.0f ", node.GetNode().GetName(), cpu)
		}
		return fmt.Sprint(text, cycle.RefusedRecords())
	}
	if got := used(); got != "gpu 0 n1 4000 n2 0 []" {
		t.Fatal(got)
	}
	// The running task cannot be read any more; another of the job is new, and its job changes.
	state.job("old", "q", amounts("cpu", "3"), "", "n2")
	old := state.group[GroupKey{JobGroup, "old"}]
	old.Tasks = old.Tasks[1:]
	state.marks["old"] = []*pb.UnreadableRecord{mark("default/old-0", "n1"), mark("default/old-7", "")}
	marks := "[task default/old-0: spec: cannot be read task default/old-7: spec: cannot be read]"
	for range 2 {
		if got := used(); got != "gpu 0 n1 4000 n2 3000 "+marks {
			t.Fatal(got)
		}
		state.node("more", "cpu", "1")
		state.keys = state.keys[:len(state.keys)-1]
	}
	if len(heard.refused) != 1 || heard.sent[len(heard.sent)-1] != 0 {
		t.Fatal(heard.refused, heard.sent)
	}
	// The service knows that the record is not the newest one.
	tasks, err := scheduler.settings.Client.ListTasks(context.Background(), &pb.ListTasksRequest{})
	if err != nil {
		t.Fatal(err)
	}
	for _, stored := range tasks.GetTasks() {
		if marked := stored.GetTask().GetName() == "default/old-0"; marked != (len(stored.GetInvalid()) > 0) {
			t.Fatal(stored)
		}
	}
	// A full sync keeps both: the record, and the mark.
	scheduler.Resync()
	if got := used(); got != "gpu 0 n1 4000 n2 3000 "+marks {
		t.Fatal(got)
	}
	// One is readable again, the other goes.
	state.job("old", "q", amounts("cpu", "2"), "n1", "n2")
	delete(state.marks, "old")
	if got := used(); got != "gpu 0 n1 2000 n2 2000 []" {
		t.Fatal(got)
	}
	// An unreadable node keeps its record; its tasks without a job arrive.
	state.add(NodeGroup, "n1", &pb.Cluster{Tasks: []*pb.Task{{
		Name: "x/stranger", Node: "n1", Status: pb.TaskStatus_TASK_STATUS_RUNNING, Requests: amounts("cpu", "1"),
	}}})
	state.marks["n1"] = []*pb.UnreadableRecord{{Kind: pb.RecordKind_RECORD_KIND_NODE, Name: "n1", Message: "malformed"}}
	if got := used(); got != "gpu 0 n1 3000 n2 2000 [node n1: malformed]" {
		t.Fatal(got)
	}
	// It goes altogether.
	state.keys = state.keys[1:]
	delete(state.marks, "n1")
	if got := used(); got != "gpu 0 n2 2000 []" {
		t.Fatal(got)
	}
}

func TestNodesThatComeAndGoLeaveNoNumbers(t *testing.T) {
	scheduler, _, _ := start(t, Settings{Compatibility: "upstream"})
	for round := range 20 {
		state := small()
		for number := range 10 {
			state.node(fmt.Sprintf("n-%d-%d", round, number), "cpu", fmt.Sprint(8+number), "pods", "110")
		}
		cycle := open(t, scheduler, state)
		for _, number := range []int{0, 9} {
			name := fmt.Sprintf("n-%d-%d", round, number)
			if err := cycle.Prepare(task("new", 0, "q")); err != nil {
				t.Fatal(err)
			}
			score, err := cycle.Score(rsf, task("new", 0, "q"), name)
			if want := 1000 * 2 / float64(8+number); err != nil || int(score) != int(want) {
				t.Fatal(name, score, want, err)
			}
		}
		if round > 0 {
			if rejection := cycle.Fits(rsf, task("new", 0, "q"), fmt.Sprintf("n-%d-3", round-1)); rejection == nil || rejection.Code != "NodeUnknown" {
				t.Fatal(rejection)
			}
		}
		cycle.Close()
		if mirror := scheduler.mirror; len(mirror.names) != 13 || len(mirror.nodes) != 13 || len(mirror.vacant) != 0 {
			t.Fatal(round, len(mirror.names), len(mirror.nodes), len(mirror.vacant))
		}
	}
}
