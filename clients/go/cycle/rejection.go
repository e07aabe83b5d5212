package cycle

import (
	"fmt"
	"strings"
	"time"

	pumice "github.com/pumice-scheduler/pumice/clients/go"
	pb "github.com/pumice-scheduler/pumice/clients/go/pumicev1"
)

// Rejection is the reason why a job may not start, or why its queue takes no task, for the users who own it.
type Rejection struct {
	// Job and Task are names. Empty Task: the rejection concerns the whole job.
	Job, Task string
	// Code is stable, and suitable as the reason of a Kubernetes event; Message is a sentence for people.
	Code, Message string
	// Event is true if an event is due: once per code and object in Settings.EventsEvery, and not more than
	// Settings.EventsPerCycle in a cycle.
	Event bool
}

// String is the rejection in messages: the code, and the sentence.
func (rejection Rejection) String() string {
	return rejection.Code + ": " + rejection.Message
}

// OnRejected sets the function that is called with each rejection of Enqueueable, Allocatable and of confirmations. It must
// not call the cycle.
func (cycle *Cycle) OnRejected(call func(Rejection)) {
	cycle.mutex.Lock()
	defer cycle.mutex.Unlock()
	cycle.admitted.onRejected = call
}

// reject reports the rejection of a job or task, with the event that the service has made of it.
func (cycle *Cycle) reject(job, task string, item *pb.AdmitItem) {
	rejection := Rejection{Job: job, Task: task, Code: item.GetEvent().GetReason(), Message: item.GetEvent().GetMessage()}
	if rejection.Code == "" {
		rejection.Code, rejection.Message = item.GetProblem().GetReason(), item.GetProblem().GetMessage()
	}
	if rejection.Code == "" {
		rejection.Code, rejection.Message = "Rejected", "the decision service gave no reason"
	}
	cycle.report(rejection)
}

// rejectUnavailable reports a rejection for want of the service.
func (cycle *Cycle) rejectUnavailable(job, task string) {
	// The cause is the operator's, and may differ from cycle to cycle.
	cycle.report(Rejection{Job: job, Task: task, Code: pumice.UnavailableCode, Message: "the decision service is unavailable"})
}

func (cycle *Cycle) report(rejection Rejection) {
	if cycle.admitted.onRejected == nil {
		return
	}
	rejection.Event = cycle.scheduler.events.due(rejection, cycle.number, time.Now())
	cycle.admitted.onRejected(rejection)
}

// eventLimit bounds the rate of events.
type eventLimit struct {
	every    time.Duration
	perCycle int
	// written has the time of the last event by object and code; cycle and inCycle count those of one cycle.
	written map[string]time.Time
	cycle   uint64
	inCycle int
	// swept is the cycle in which old events were forgotten last.
	swept uint64
}

// longestWritten is the number of events that are remembered; beyond it, those that are old enough are forgotten.
const longestWritten = 10_000

// due reports whether an event of a rejection is due, and counts it.
func (limit *eventLimit) due(rejection Rejection, cycle uint64, now time.Time) bool {
	if limit.every < 0 {
		return false
	}
	if cycle != limit.cycle {
		limit.cycle, limit.inCycle = cycle, 0
	}
	// Amounts change from cycle to cycle: the code is what counts.
	key := strings.Join([]string{rejection.Job, rejection.Task, rejection.Code}, "\x00")
	if last, found := limit.written[key]; found && now.Sub(last) < limit.every || limit.inCycle >= limit.perCycle {
		return false
	}
	if len(limit.written) >= longestWritten && limit.swept != cycle {
		limit.swept = cycle
		for other, last := range limit.written {
			if now.Sub(last) >= limit.every {
				delete(limit.written, other)
			}
		}
	}
	if len(limit.written) >= longestWritten {
		return false
	}
	limit.written[key] = now
	limit.inCycle++
	return true
}

// Reason is the message of a rejected node with its code, for users.
func (rejection *NodeRejection) Reason() string {
	if rejection.Code == "" {
		return rejection.Message
	}
	return fmt.Sprintf("%s (%s)", rejection.Message, rejection.Code)
}
