package cycle

import (
	"context"
	"fmt"
	"strings"
	"testing"

	pb "github.com/pumice-scheduler/pumice/clients/go/pumicev1"
)

const cards = "capacity-card"

var cardPolicy = Policy{Plugins: []string{cards}, Document: `actions: "enqueue, allocate"
tiers:
- plugins:
  - {name: capacity-card, arguments: {cardUnlimitedCpuMemory: true}}
`}

// cardJob is a job that waits for admission, with a number of tasks that use one card each.
func (cluster *cluster) cardJob(name string, tasks int) {
	records := &pb.Cluster{Jobs: []*pb.Job{{
		Name: "default/" + name, Queue: "q", MinMember: int32(tasks), Phase: pb.JobPhase_JOB_PHASE_PENDING,
		MinResources: amounts("cpu", "1"), Annotations: map[string]string{"volcano.sh/card.request": fmt.Sprintf(`{"A": %d}`, tasks)},
	}}}
	for number := range tasks {
		records.Tasks = append(records.Tasks, &pb.Task{
			Name: fmt.Sprintf("default/%s-%d", name, number), Job: "default/" + name,
			Requests: amounts("cpu", "1", "nvidia.com/gpu", "1"), Limits: amounts("nvidia.com/gpu", "1"),
			Annotations: map[string]string{annotationCard: "A"},
		})
	}
	cluster.add(JobGroup, name, records)
}

// quota is a queue of four cards on a node of eight, and two jobs that have no entry together.
func quota() *cluster {
	made := &cluster{}
	made.add(NodeGroup, "n1", &pb.Cluster{Nodes: []*pb.Node{{
		Name: "n1", Labels: map[string]string{"nvidia.com/gpu.product": "A"},
		Allocatable: amounts("cpu", "64", "memory", "64Gi", "pods", "110", "nvidia.com/gpu", "8"),
	}}})
	made.add(QueueGroup, "q", &pb.Cluster{Queues: []*pb.Queue{{
		Name: "q", Annotations: map[string]string{"volcano.sh/card.quota": `{"A": 4}`}, Capability: amounts("cpu", "64", "memory", "64Gi"),
	}}})
	made.cardJob("one", 4)
	made.cardJob("two", 1)
	return made
}

func openCards(t *testing.T, scheduler *Scheduler) *Cycle {
	t.Helper()
	cycle := scheduler.Open(context.Background(), quota(), cardPolicy)
	if cycle.Err() != nil || len(cycle.RefusedRecords()) > 0 {
		t.Fatal(cycle.Err(), cycle.RefusedRecords())
	}
	return cycle
}

// elsewhere asks about a job outside the cycle's session.
func elsewhere(t *testing.T, scheduler *Scheduler, job string, mode pb.AdmitMode) *pb.AdmitItem {
	t.Helper()
	result, err := scheduler.settings.Client.Admit(context.Background(), &pb.AdmitRequest{
		Mode: mode, Items: []*pb.AdmitSubject{{Subject: &pb.AdmitSubject_Job{Job: &pb.Job{Name: job}}}},
	})
	if err != nil {
		t.Fatal(err)
	}
	return result.Response.GetResult().GetItems()[0]
}

func TestAQueueAtItsQuotaTakesNobodyElse(t *testing.T) {
	scheduler, _, _ := start(t, Settings{})
	cycle := openCards(t, scheduler)
	heard := hear(cycle)
	check := pb.AdmitMode_ADMIT_MODE_CHECK
	vote := func(job string, want int) {
		t.Helper()
		if votes := cycle.Enqueueable(job); votes[cards] != want {
			t.Fatal(job, votes, *heard)
		}
	}
	// A permit that nobody takes up holds nothing.
	vote("default/two", 1)
	vote("default/one", 1)
	cycle.Enqueued("default/one")
	vote("default/two", -1)
	if len(*heard) != 1 || (*heard)[0].Job != "default/two" {
		t.Fatal(*heard)
	}
	why := (*heard)[0].Message
	if !strings.Contains(why, "<q>") || !strings.Contains(why, "<A>") {
		t.Fatalf("%q", why)
	}
	// So far that counts in this session only; the next query confirms it, in one more call.
	if !elsewhere(t, scheduler, "default/two", check).GetPermitted() {
		t.Fatal("a tentative permit counts for others")
	}
	before := cycle.Usage().Calls
	if !cycle.Allocatable(cards, task("one", 0, "q")) || cycle.Usage().Calls != before+2 {
		t.Fatal(cycle.Err(), cycle.Usage().Calls-before)
	}
	if refused := elsewhere(t, scheduler, "default/two", check); refused.GetPermitted() || refused.GetReasons()[0].GetMessage() != why {
		t.Fatal(refused, why)
	}
	// Headroom counts down without a query, until the last card.
	before = cycle.Usage().Calls
	for number := range 4 {
		if !cycle.Allocatable(cards, task("one", number, "q")) {
			t.Fatal(number, cycle.Err())
		}
		cycle.Record(Allocated, task("one", number, "q"), "n1")
	}
	if calls := cycle.Usage().Calls - before; calls != 0 {
		t.Fatal(calls)
	}
	if cycle.Allocatable(cards, task("two", 0, "q")) || cycle.Err() != nil {
		t.Fatal("a fifth card", cycle.Err())
	}
	// A card that is given back can be used again.
	cycle.Record(Withdrawn, task("one", 3, "q"), "n1")
	if !cycle.Allocatable(cards, task("one", 3, "q")) {
		t.Fatal(cycle.Err())
	}
	cycle.Close()
}

func TestAJobWhoseQuotaOthersTookIsRevoked(t *testing.T) {
	scheduler, _, _ := start(t, Settings{})
	cycle := openCards(t, scheduler)
	var revoked []string
	cycle.OnRevoked(func(job, reason string) { revoked = append(revoked, job, reason) })
	if votes := cycle.Enqueueable("default/one"); votes[cards] != 1 {
		t.Fatal(votes)
	}
	cycle.Enqueued("default/one")
	if taken := elsewhere(t, scheduler, "default/two", pb.AdmitMode_ADMIT_MODE_CONFIRM); !taken.GetPermitted() {
		t.Fatal(taken)
	}
	err := cycle.Prepare(task("one", 0, "q"))
	if err == nil || len(revoked) != 2 || revoked[0] != "default/one" || revoked[1] == "" || !strings.Contains(err.Error(), revoked[1]) {
		t.Fatal(err, revoked)
	}
	if cycle.Err() != nil {
		t.Fatal(cycle.Err())
	}
	// The other job is not touched by that.
	if err := cycle.Prepare(task("two", 0, "q")); err != nil {
		t.Fatal(err)
	}
	cycle.Close()
}
