package pumice

import (
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"time"

	"google.golang.org/grpc"
)

// Options configure a client. The zero value of each field means its default.
type Options struct {
	// TLS encrypts the connection. Nil: no encryption, unless the target begins with https://.
	TLS *tls.Config
	// TokenFile has a bearer token that is sent with each call, over TLS or to this machine only. It is read again every ten
	// seconds. Empty: none.
	TokenFile string
	// Timeout bounds a whole call, attempts and waits included, unless its context ends sooner. Default 2 s.
	Timeout time.Duration
	// AttemptTimeout bounds one attempt. Default: the time that is left; with several addresses an equal part of it for each that
	// is left to be tried.
	AttemptTimeout time.Duration
	// Attempts is the largest number of attempts of a call that may be repeated. Default 3. With several addresses each attempt
	// tries one after the other.
	Attempts int
	// Backoff is the wait before the second attempt. It doubles after each, up to MaxBackoff, and a random part of up to
	// one half is taken off. Defaults 50 ms and 1 s.
	Backoff, MaxBackoff time.Duration
	// Keepalive is the time after which a silent connection is probed. Default 30 s.
	Keepalive time.Duration
	// KeepaliveTimeout is the time that the service has to answer the probe. Default 10 s.
	KeepaliveTimeout time.Duration
	// ReturnAfter is the time for which an address that failed is not used while another one works. It doubles each time that the
	// address fails again as soon as it is used again, up to 32 times of it. Default 10 s.
	ReturnAfter time.Duration
	// BreakAfter is the number of failed calls in a row after which no call is sent, to whatever address. Default 5; less than 0:
	// never.
	BreakAfter int
	// BreakFor is the time for which no call is sent; then one call probes the service. Default 5 s.
	BreakFor time.Duration
	// Heartbeat is the silence after which a feed sends an empty batch, so that its source does not become stale. Default: a
	// third of the service's source_stale_ms; less than 0: never, for callers that send batches often enough themselves.
	Heartbeat time.Duration
	// Fallback chooses, per call, the reply while the service is unavailable. Default of every call: ReturnError.
	Fallback map[Call]Fallback
	// Metrics is notified of every call. Default: NoMetrics.
	Metrics Metrics
	// Logger gets a warning for each record of a feed that cannot be read or that the service refused, for a heartbeat that
	// failed, and for each change to another address. Default: slog.Default().
	Logger *slog.Logger
	// DialOptions are added to those of the connection.
	DialOptions []grpc.DialOption
}

// Call names a decision call.
type Call string

// The decision calls. Only they can have a fallback; every other call returns its error.
const (
	CallFilter        Call = "Filter"
	CallScore         Call = "Score"
	CallPlace         Call = "Place"
	CallAdmit         Call = "Admit"
	CallOrder         Call = "Order"
	CallSelectVictims Call = "SelectVictims"
)

// Fallback is the reply to a decision call while the service is unavailable.
type Fallback int

const (
	// ReturnError returns the error and no response.
	ReturnError Fallback = iota + 1
	// FailClosed rejects: no node fits, nothing is placed or admitted, no task is evicted.
	FailClosed
	// FailOpen permits: every candidate fits, every job and task is admitted.
	FailOpen
	// Abstain returns an empty response, for callers that combine several opinions.
	Abstain
)

// String is the name of the choice.
func (fallback Fallback) String() string {
	switch fallback {
	case ReturnError:
		return "ReturnError"
	case FailClosed:
		return "FailClosed"
	case FailOpen:
		return "FailOpen"
	case Abstain:
		return "Abstain"
	default:
		return fmt.Sprintf("Fallback(%d)", int(fallback))
	}
}

// Fallbacks returns the choices that each call permits. The first one, ReturnError, is the default.
func Fallbacks() map[Call][]Fallback {
	return map[Call][]Fallback{
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
	fill(&options.ReturnAfter, 10*time.Second)
	fill(&options.BreakAfter, 5)
	fill(&options.BreakFor, 5*time.Second)
	if options.Metrics == nil {
		options.Metrics = NoMetrics{}
	}
	if options.Logger == nil {
		options.Logger = slog.Default()
	}
	wrong := options.wrongNumbers()
	possible := Fallbacks()
	for _, call := range slices.Sorted(maps.Keys(options.Fallback)) {
		chosen := options.Fallback[call]
		switch choices, known := possible[call]; {
		case !known:
			wrong = append(wrong, fmt.Errorf("Options.Fallback: %q is no decision call", call))
		case !slices.Contains(choices, chosen):
			wrong = append(wrong, fmt.Errorf("Options.Fallback[%s]: %s is none of %v", call, chosen, choices))
		}
	}
	options.Fallback = maps.Clone(options.Fallback)
	return options, errors.Join(wrong...)
}

func (options Options) wrongNumbers() (wrong []error) {
	for _, field := range []struct {
		name string
		time time.Duration
	}{
		{"Timeout", options.Timeout},
		{"AttemptTimeout", options.AttemptTimeout},
		{"Backoff", options.Backoff},
		{"MaxBackoff", options.MaxBackoff},
		{"Keepalive", options.Keepalive},
		{"KeepaliveTimeout", options.KeepaliveTimeout},
		{"BreakFor", options.BreakFor},
		{"ReturnAfter", options.ReturnAfter},
	} {
		if field.time < 0 {
			wrong = append(wrong, fmt.Errorf("Options.%s: %s is below 0", field.name, field.time))
		}
	}
	if options.Attempts < 1 {
		wrong = append(wrong, fmt.Errorf("Options.Attempts: %d is below 1", options.Attempts))
	}
	return wrong
}

func fill[T comparable](field *T, standard T) {
	var zero T
	if *field == zero {
		*field = standard
	}
}

// Metrics is notified of what the client does. Its methods are called from several goroutines and must return at once.
type Metrics interface {
	// Call reports the end of a call: its number of attempts, and the reason of its error, otherwise its code, or "OK".
	Call(method, reason string, attempts int, took time.Duration)
	// Replied reports the origin of the reply to a decision call.
	Replied(call Call, origin Origin)
	// InUse reports the address that calls go to from now on, the one before, which is empty at first, and the reason of the change.
	InUse(address, before, reason string)
	// Circuit reports that the circuit opened or closed.
	Circuit(open bool)
	// Resync reports that a source had to send a full sync, and the reason.
	Resync(source, reason string)
	// Refused reports the number of records of a batch that the service refused.
	Refused(source string, records int)
}

// NoMetrics ignores every notification.
type NoMetrics struct{}

// Call does nothing.
func (NoMetrics) Call(string, string, int, time.Duration) {}

// Replied does nothing.
func (NoMetrics) Replied(Call, Origin) {}

// InUse does nothing.
func (NoMetrics) InUse(string, string, string) {}

// Circuit does nothing.
func (NoMetrics) Circuit(bool) {}

// Resync does nothing.
func (NoMetrics) Resync(string, string) {}

// Refused does nothing.
func (NoMetrics) Refused(string, int) {}
