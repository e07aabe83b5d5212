package cycle

import (
	"errors"
	"time"

	pumice "pumice/clients/go"
)

// Away is what a cycle does without the service.
type Away int

const (
	// FailClosed refuses: Prepare fails, nothing is admitted or allocatable, nobody gives way.
	FailClosed Away = iota
	// Abstain has no opinion: every node fits and scores 0, all are equal and admitted; victims are left to others.
	Abstain
)

// PolicyMode is how the scheduler's own configuration and the policy of the service come to be the same.
type PolicyMode int

const (
	// HandPolicy hands the configuration to the service whenever it changes.
	HandPolicy PolicyMode = iota
	// CheckPolicy only compares, and treats the service as away while they differ.
	CheckPolicy
)

// Budget bounds one cycle. What would go beyond it is not asked: the service is away for the rest of the cycle.
type Budget struct {
	// Calls to the service. Default 10,000; less than 0: no bound.
	Calls int
	// Time spent waiting for it. Default 5 s; less than 0: no bound.
	Time time.Duration
}

// Settings say how a Scheduler behaves. The zero value of each field stands for its default.
type Settings struct {
	// Client is needed.
	Client *pumice.Client
	// Source owns the records. Default "volcano".
	Source string
	// Policy is its name in the service. Default "default".
	Policy string
	// Compatibility of a policy that is handed over: "corrected" or "upstream". Default "corrected".
	Compatibility string
	// PolicyMode: default HandPolicy.
	PolicyMode PolicyMode
	// Away: default FailClosed.
	Away Away
	// Budget of one cycle.
	Budget Budget
	// KeepFor is how long a session in which nothing happened serves the cycles after it, while the state stays as it is.
	// Until then a policy that somebody else brought in force is not noticed. Default 10 s, less than 0: never.
	KeepFor time.Duration
	// VerifyEvery so many cycles the service's usage of all nodes is compared with the scheduler's; a difference makes
	// the next cycle send everything. Default 100, less than 0: never.
	VerifyEvery int
	// Plans asks Place once per job, for Best.
	Plans bool
	// Observer hears of cycles. Default: nobody.
	Observer Observer
}

// Observer hears what cycles do. Its methods return at once.
type Observer interface {
	// Opened: a cycle began; so many records were sent, and finding and sending them took so long.
	Opened(sent int, took time.Duration)
	// Closed: a cycle ended.
	Closed(Usage)
	// Trouble: the service is away for the rest of the cycle, and why.
	Trouble(error)
	// Drifted: the service's usage of these nodes is not the scheduler's; the next cycle sends everything.
	Drifted(nodes []string)
}

// Usage is what a cycle cost so far.
type Usage struct {
	// Calls to the service, those that open, close and verify included.
	Calls int
	// Waited for the service.
	Waited time.Duration
	// Changes told with Happened.
	Changes int
}

type silent struct{}

func (silent) Opened(int, time.Duration) {}
func (silent) Closed(Usage)              {}
func (silent) Trouble(error)             {}
func (silent) Drifted([]string)          {}

// ErrBudget is why the service is not asked any more in a cycle.
var ErrBudget = errors.New("the cycle's budget of calls or time is used up")

// ErrPolicyDiffers is why the service is not asked under CheckPolicy.
var ErrPolicyDiffers = errors.New("the policy of the service is not the scheduler's configuration")

func (settings Settings) withDefaults() (Settings, error) {
	if settings.Client == nil {
		return settings, errors.New("a client is needed")
	}
	standard(&settings.Source, "volcano")
	standard(&settings.Policy, "default")
	standard(&settings.Compatibility, "corrected")
	standard(&settings.Budget.Calls, 10_000)
	standard(&settings.Budget.Time, 5*time.Second)
	standard(&settings.KeepFor, 10*time.Second)
	standard(&settings.VerifyEvery, 100)
	if settings.Observer == nil {
		settings.Observer = silent{}
	}
	return settings, nil
}

func standard[T comparable](field *T, value T) {
	var zero T
	if *field == zero {
		*field = value
	}
}
