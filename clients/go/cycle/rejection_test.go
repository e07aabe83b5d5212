package cycle

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	pumice "github.com/pumice-scheduler/pumice/clients/go"
	pb "github.com/pumice-scheduler/pumice/clients/go/pumicev1"
)

// hear collects rejections.
func hear(cycle *Cycle) *[]Rejection {
	heard := &[]Rejection{}
	cycle.OnRejected(func(rejection Rejection) { *heard = append(*heard, rejection) })
	return heard
}

func TestUsersHearWhyAJobWaits(t *testing.T) {
	scheduler, _, _ := start(t, Settings{})
	cycle := openCards(t, scheduler)
	heard := hear(cycle)
	cycle.Enqueueable("default/one")
	cycle.Enqueued("default/one")
	if len(*heard) != 0 {
		t.Fatal(*heard)
	}
	cycle.Enqueueable("default/two")
	cycle.Enqueueable("default/two")
	if len(*heard) != 2 {
		t.Fatal(*heard)
	}
	first, again := (*heard)[0], (*heard)[1]
	if !first.Event || again.Event || first.Job != "default/two" || first.Task != "" {
		t.Fatal(first, again)
	}
	// The code and the words are those of the event that the service makes.
	if !cycle.Allocatable(cards, task("one", 0, "q")) {
		t.Fatal(cycle.Err())
	}
	event := elsewhere(t, scheduler, "default/two", pb.AdmitMode_ADMIT_MODE_CHECK).GetEvent()
	if event.GetReason() == "" || first.Code != event.GetReason() || first.Message != event.GetMessage() ||
		first.String() != event.GetReason()+": "+event.GetMessage() {
		t.Fatal(first, event)
	}
	// A task of a queue at its quota: each call tells why, and a call of the service was made for the first only.
	for number := range 4 {
		cycle.Record(Allocated, task("one", number, "q"), "n1")
	}
	*heard = nil
	for range 2 {
		if cycle.Allocatable(cards, task("two", 0, "q")) {
			t.Fatal("a fifth card")
		}
	}
	if len(*heard) != 2 || (*heard)[0].Task != "default/two-0" || (*heard)[0].Job != "default/two" || (*heard)[0].Code == "" ||
		!strings.Contains((*heard)[0].Message, "A") || !(*heard)[0].Event || (*heard)[1].Event {
		t.Fatal(*heard)
	}
	cycle.Close()
	// Another cycle repeats the reason, and no event.
	cycle = openCards(t, scheduler)
	heard = hear(cycle)
	if taken := elsewhere(t, scheduler, "default/one", pb.AdmitMode_ADMIT_MODE_CONFIRM); !taken.GetPermitted() {
		t.Fatal(taken)
	}
	cycle.Close()
	changed := quota()
	changed.node("more", "cpu", "1")
	cycle = scheduler.Open(context.Background(), changed, cardPolicy)
	heard = hear(cycle)
	cycle.Enqueueable("default/two")
	if len(*heard) != 1 || (*heard)[0].Event || (*heard)[0].Code != first.Code {
		t.Fatal(*heard)
	}
	cycle.Close()
}

func TestUsersHearOfARevokedJobAndOfAnUnavailableService(t *testing.T) {
	scheduler, _, server := start(t, Settings{})
	cycle := openCards(t, scheduler)
	heard := hear(cycle)
	cycle.Enqueueable("default/one")
	cycle.Enqueued("default/one")
	if taken := elsewhere(t, scheduler, "default/two", pb.AdmitMode_ADMIT_MODE_CONFIRM); !taken.GetPermitted() {
		t.Fatal(taken)
	}
	_ = cycle.Prepare(task("one", 0, "q"))
	if len(*heard) != 1 || (*heard)[0].Job != "default/one" || (*heard)[0].Code == "" || !(*heard)[0].Event {
		t.Fatal(*heard)
	}
	server.Kill()
	*heard = nil
	cycle.Enqueueable("default/two")
	cycle.Allocatable(cards, task("two", 0, "q"))
	if len(*heard) != 2 || (*heard)[0].Code != pumice.UnavailableCode || (*heard)[1].Task != "default/two-0" || (*heard)[1].Message != "the decision service is unavailable" {
		t.Fatal(*heard)
	}
}

func TestEventsHaveABoundedRate(t *testing.T) {
	limit := eventLimit{every: time.Minute, perCycle: 3, written: map[string]time.Time{}}
	start := time.Unix(1_000_000, 0)
	due := func(cycle uint64, job int, code string, after time.Duration) bool {
		return limit.due(Rejection{Job: fmt.Sprint("job-", job), Code: code, Message: after.String()}, cycle, start.Add(after))
	}
	if !due(1, 0, "A", 0) || due(1, 0, "A", time.Second) || !due(1, 0, "B", time.Second) || due(2, 0, "A", 59*time.Second) || !due(2, 0, "A", time.Minute) {
		t.Fatal("the time between two events of one code on one object")
	}
	written := 0
	for job := range 100 {
		if due(3, 1+job, "A", time.Hour) {
			written++
		}
	}
	if written != 3 {
		t.Fatal(written)
	}
	// Jobs that waited have their turn later.
	if !due(4, 50, "A", time.Hour) {
		t.Fatal("a job never has its event")
	}
	for job := range 2 * longestWritten {
		due(uint64(5+job/3), 1000+job, "A", 2*time.Hour)
	}
	if len(limit.written) > longestWritten {
		t.Fatal(len(limit.written))
	}
	if !due(1_000_000, 0, "A", 4*time.Hour) || len(limit.written) > 2 {
		t.Fatal(len(limit.written))
	}
	never := eventLimit{every: -1, perCycle: 3, written: map[string]time.Time{}}
	if never.due(Rejection{Code: "A"}, 1, start) {
		t.Fatal("an event, though there are to be none")
	}
}

func TestARejectedNodeHasItsCode(t *testing.T) {
	scheduler, _, _ := start(t, Settings{Compatibility: "upstream"})
	cycle := open(t, scheduler, small())
	defer cycle.Close()
	if err := cycle.Prepare(task("new", 0, "q")); err != nil {
		t.Fatal(err)
	}
	rejection := cycle.Fits(rsf, task("new", 0, "q"), "gpu")
	if rejection == nil || rejection.Code == "" || rejection.Reason() != rejection.Message+" ("+rejection.Code+")" {
		t.Fatal(rejection)
	}
	t.Log(rejection.Reason())
}
