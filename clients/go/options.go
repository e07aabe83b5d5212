package pumice

import (
	"crypto/tls"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"google.golang.org/grpc"
)

// Options say how a client behaves. The zero value of each field stands for its default.
type Options struct {
	// TLS encrypts the connection. Nil: not encrypted, unless the target begins with https://.
	TLS *tls.Config
	// Timeout is the time of a whole call, attempts and waits included, unless its context ends sooner. Default 2 s.
	Timeout time.Duration
	// AttemptTimeout is the time of one attempt. Default: all that is left.
	AttemptTimeout time.Duration
	// Attempts is how often a call is asked at most, where asking twice does no harm. Default 3.
	Attempts int
	// Backoff is the wait before the second attempt; it doubles, up to MaxBackoff, and is shortened at random. Defaults
	// 50 ms and 1 s.
	Backoff, MaxBackoff time.Duration
	// Keepalive is how long a silent connection waits before it asks whether the service lives. Default 30 s.
	Keepalive time.Duration
	// KeepaliveTimeout is how long the service gets to say so. Default 10 s.
	KeepaliveTimeout time.Duration
	// BreakAfter is after how many calls in a row without an answer the service is not asked any more. Default 5, less
	// than 0: never.
	BreakAfter int
	// BreakFor is how long; then one call tries. Default 5 s.
	BreakFor time.Duration
	// Away says per call what stands in for an answer when the service is away. Calls that are not named: DefaultAway.
	Away map[Call]Away
	// Metrics hears of every call. Default: nobody.
	Metrics Metrics
	// DialOptions are added to those of the connection.
	DialOptions []grpc.DialOption
}

// Call is a kind of question.
type Call string

// The questions that have an answer when the service is away. Every other call returns its error.
const (
	CallFilter        Call = "Filter"
	CallScore         Call = "Score"
	CallPlace         Call = "Place"
	CallAdmit         Call = "Admit"
	CallOrder         Call = "Order"
	CallSelectVictims Call = "SelectVictims"
)

// Away is what stands in for an answer when the service is away.
type Away int

const (
	// ReturnError returns the error, and no answer.
	ReturnError Away = iota + 1
	// FailClosed refuses: no node fits, nothing is placed or admitted, nobody gives way.
	FailClosed
	// FailOpen permits: every candidate fits, every job and task is admitted.
	FailOpen
	// Abstain gives no opinion: an empty answer, for callers that have others to ask.
	Abstain
)

// String is the name.
func (away Away) String() string {
	switch away {
	case ReturnError:
		return "ReturnError"
	case FailClosed:
		return "FailClosed"
	case FailOpen:
		return "FailOpen"
	case Abstain:
		return "Abstain"
	default:
		return fmt.Sprintf("Away(%d)", int(away))
	}
}

// DefaultAway is what stands in for an answer unless Options.Away says otherwise.
func DefaultAway() map[Call]Away {
	return map[Call]Away{
		CallFilter:        FailClosed,
		CallScore:         Abstain,
		CallPlace:         FailClosed,
		CallAdmit:         FailClosed,
		CallOrder:         Abstain,
		CallSelectVictims: FailClosed,
	}
}

// permitted are the choices that mean something for a call.
func permitted() map[Call][]Away {
	return map[Call][]Away{
		CallFilter:        {ReturnError, FailClosed, FailOpen, Abstain},
		CallScore:         {ReturnError, Abstain},
		CallPlace:         {ReturnError, FailClosed},
		CallAdmit:         {ReturnError, FailClosed, FailOpen, Abstain},
		CallOrder:         {ReturnError, Abstain},
		CallSelectVictims: {ReturnError, FailClosed, Abstain},
	}
}

func (options Options) withDefaults() (Options, error) {
	fill(&options.Timeout, 2*time.Second)
	fill(&options.Attempts, 3)
	fill(&options.Backoff, 50*time.Millisecond)
	fill(&options.MaxBackoff, time.Second)
	fill(&options.Keepalive, 30*time.Second)
	fill(&options.KeepaliveTimeout, 10*time.Second)
	fill(&options.BreakAfter, 5)
	fill(&options.BreakFor, 5*time.Second)
	if options.Metrics == nil {
		options.Metrics = NoMetrics{}
	}
	var wrong []error
	if options.Timeout < 0 || options.AttemptTimeout < 0 || options.Backoff < 0 || options.MaxBackoff < 0 || options.BreakFor < 0 {
		wrong = append(wrong, errors.New("a span of time is below 0"))
	}
	if options.Attempts < 1 {
		wrong = append(wrong, errors.New("there is at least one attempt"))
	}
	away, possible := DefaultAway(), permitted()
	for call, chosen := range options.Away {
		if !slices.Contains(possible[call], chosen) {
			wrong = append(wrong, fmt.Errorf("%s cannot answer with %s when the service is away", call, chosen))
		}
	}
	maps.Copy(away, options.Away)
	options.Away = away
	return options, errors.Join(wrong...)
}

func fill[T comparable](field *T, standard T) {
	var zero T
	if *field == zero {
		*field = standard
	}
}

// Metrics hears what the client does. Its methods are called from several goroutines, and return at once.
type Metrics interface {
	// Call ended after so many attempts. The reason is that of the error, or its code, or "OK".
	Call(method, reason string, attempts int, took time.Duration)
	// Answered says who answered a question that was asked of the service.
	Answered(call Call, by By)
	// Circuit opened or closed.
	Circuit(open bool)
	// Resync: a source had to send everything again, and why.
	Resync(source, reason string)
}

// NoMetrics hears nothing.
type NoMetrics struct{}

// Call does nothing.
func (NoMetrics) Call(string, string, int, time.Duration) {}

// Answered does nothing.
func (NoMetrics) Answered(Call, By) {}

// Circuit does nothing.
func (NoMetrics) Circuit(bool) {}

// Resync does nothing.
func (NoMetrics) Resync(string, string) {}
