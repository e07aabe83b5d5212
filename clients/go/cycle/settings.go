package cycle

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"strings"
	"time"

	pumice "github.com/pumice-scheduler/pumice/clients/go"
)

// Fallback is the behaviour of a cycle without the service.
type Fallback int

const (
	// FailClosed rejects: Prepare fails, no job is admitted, no task is allocatable, no task is evicted.
	FailClosed Fallback = iota
	// Abstain has no opinion: every node fits and scores 0, all jobs and queues are equal, all are admitted, and other
	// plugins select victims.
	Abstain
)

// Budget bounds the time that one cycle loses by a slow service. When it is used up, the service counts as unavailable for
// the rest of the cycle. A cycle may make any number of calls that are answered in time, so that no gang is too large.
type Budget struct {
	// InTime is the time within which an answer is expected. Default 100 ms.
	InTime time.Duration
	// Time is the time by which the answers of a cycle may be late together: a late answer adds the time beyond InTime, an
	// early one takes off what it left of InTime. Default 5 s; less than 0: no bound.
	Time time.Duration
	// Open is the time for all calls that begin a cycle, a full sync included. Default 30 s; less than 0: no bound.
	Open time.Duration
	// Calls is the largest number of calls. Default 0, or less: no bound.
	Calls int
}

// Settings configure a Scheduler. The zero value of each field means its default.
type Settings struct {
	// Client is required.
	Client *pumice.Client
	// Source is the name of the source that owns the records. Default "volcano".
	Source string
	// Policy is the name of the policy in the service. Default "default".
	Policy string
	// PolicyMode is FollowPolicy by default.
	PolicyMode PolicyMode
	// PolicyHash is the hash that FollowPolicy expects: under any other policy the service counts as unavailable. Empty: any
	// policy but the built-in one.
	PolicyHash string
	// Compatibility of the scheduler's configuration under PushPolicy and CheckPolicy: "corrected", "upstream" or a
	// release such as "volcano-1.15.1". Default "corrected". Under FollowPolicy the policy says it.
	Compatibility string
	// Release of the scheduler, as policies name it, such as "volcano-1.15.1". A policy that follows another release is
	// reported in GoverningPolicy. Empty: none is.
	Release string
	// Fallback is FailClosed by default.
	Fallback Fallback
	// Budget bounds one cycle.
	Budget Budget
	// KeepFor is the time for which a session without events is reused by later cycles, while state and policy are
	// unchanged. FollowPolicy and CheckPolicy ask for the version of the policy each time; PushPolicy notices another one
	// after this time. Default 10 s; less than 0: no reuse.
	KeepFor time.Duration
	// VerifyEvery is the number of cycles after which the usage of all nodes is compared with the service's. After a
	// difference the next cycle sends a full sync. Default 100; less than 0: never.
	VerifyEvery int
	// EventsEvery is the shortest time between two events of one code on one job or task, in Rejection.Event. Default 5 min;
	// less than 0: no events.
	EventsEvery time.Duration
	// EventsPerCycle is the largest number of events of one cycle. Default 50.
	EventsPerCycle int
	// Plans lets PlannedNode call Place once per job.
	Plans bool
	// Observer is notified of cycles. May be nil.
	Observer Observer
}

// Observer is notified of what cycles do. Its methods must return at once.
type Observer interface {
	// Opened reports the beginning of a cycle, the number of sent records, and the time to find and send them.
	Opened(sent int, took time.Duration)
	// Closed reports the end of a cycle.
	Closed(Usage)
	// Unavailable reports that the service is unavailable for the rest of the cycle, with the reason.
	Unavailable(error)
	// Drifted reports nodes whose usage in the service differs from the scheduler's. The next cycle sends a full sync.
	Drifted(nodes []string)
	// Refused reports records that are newly left out, because they could not be made or the service refused them, and the
	// number of all that are left out now.
	Refused(fresh []RefusedRecord, now int)
	// Governed reports the policy that decides, once when it or the scheduler's configuration has changed.
	Governed(GoverningPolicy)
	// PolicyPushed reports that PushPolicy put the scheduler's configuration in force in place of another version. `own` is
	// false if somebody else had put that version in force.
	PolicyPushed(was, now PolicyVersion, own bool)
}

// Usage is the cost of a cycle so far.
type Usage struct {
	// Calls is the number of calls to the service, including those that open, close and verify.
	Calls int
	// Waited is the time spent waiting for the service.
	Waited time.Duration
	// Changes is the number of events.
	Changes int
}

// NoObserver ignores every notification.
type NoObserver struct{}

// Opened does nothing.
func (NoObserver) Opened(int, time.Duration) {}

// Closed does nothing.
func (NoObserver) Closed(Usage) {}

// Unavailable does nothing.
func (NoObserver) Unavailable(error) {}

// Drifted does nothing.
func (NoObserver) Drifted([]string) {}

// Refused does nothing.
func (NoObserver) Refused([]RefusedRecord, int) {}

// Governed does nothing.
func (NoObserver) Governed(GoverningPolicy) {}

// PolicyPushed does nothing.
func (NoObserver) PolicyPushed(PolicyVersion, PolicyVersion, bool) {}

// ErrBudget is the error of a cycle whose budget is used up.
var ErrBudget = errors.New("the cycle's budget is used up: the answers of the decision service come too late")

func (settings Settings) withDefaults() (Settings, error) {
	if settings.Client == nil {
		return settings, errors.New("Settings.Client: is missing; pumice.Dial makes one")
	}
	if settings.Budget.InTime < 0 {
		return settings, fmt.Errorf("Settings.Budget.InTime: %s is below 0; leave it out for the default", settings.Budget.InTime)
	}
	if settings.PolicyHash != "" && settings.PolicyMode != FollowPolicy {
		return settings, errors.New("Settings.PolicyHash: only FollowPolicy expects a hash; leave one of the two settings out")
	}
	if hash := strings.ToLower(settings.PolicyHash); hash != "" {
		if text, err := hex.DecodeString(hash); err != nil || len(text) != sha256.Size {
			return settings, fmt.Errorf("Settings.PolicyHash: %q is no SHA-256 in hexadecimal, of 64 digits; `sha256sum FILE` prints that of a document", settings.PolicyHash)
		}
		settings.PolicyHash = hash
	}
	standard(&settings.Source, "volcano")
	standard(&settings.Policy, "default")
	standard(&settings.Compatibility, "corrected")
	standard(&settings.Budget.InTime, 100*time.Millisecond)
	standard(&settings.Budget.Time, 5*time.Second)
	standard(&settings.Budget.Open, 30*time.Second)
	standard(&settings.KeepFor, 10*time.Second)
	standard(&settings.VerifyEvery, 100)
	standard(&settings.EventsEvery, 5*time.Minute)
	standard(&settings.EventsPerCycle, 50)
	if settings.Observer == nil {
		settings.Observer = NoObserver{}
	}
	return settings, nil
}

func standard[T comparable](field *T, value T) {
	var zero T
	if *field == zero {
		*field = value
	}
}
