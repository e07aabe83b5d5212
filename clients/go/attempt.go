package pumice

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	pb "github.com/pumice-scheduler/pumice/clients/go/pumicev1"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/peer"
)

// repeat says whether a call may be repeated without harm.
type repeat int

const (
	// once: a second call has another effect. A call that was never sent goes to another server.
	once repeat = iota
	// elsewhere: a second call does no harm at another server.
	elsewhere
	// repeatable: a second call does no harm anywhere.
	repeatable
)

// repeatIf is repeatable under a condition, otherwise once.
func repeatIf(harmless bool) repeat {
	if harmless {
		return repeatable
	}
	return once
}

// patience is the least time after which a server that did not answer counts as failed. A caller with less time of its own says
// nothing about the server.
const patience = 100 * time.Millisecond

// sending sends a request to a server.
type sending[Q, R any] func(context.Context, *server, Q, ...grpc.CallOption) (R, error)

// decisions makes a sending of a method of the service of decisions.
func decisions[Q, R any](method func(pb.DecisionServiceClient, context.Context, Q, ...grpc.CallOption) (R, error)) sending[Q, R] {
	return func(ctx context.Context, server *server, request Q, options ...grpc.CallOption) (R, error) {
		return method(server.decisions, ctx, request, options...)
	}
}

// states makes a sending of a method of the service of the state.
func states[Q, R any](method func(pb.StateServiceClient, context.Context, Q, ...grpc.CallOption) (R, error)) sending[Q, R] {
	return func(ctx context.Context, server *server, request Q, options ...grpc.CallOption) (R, error) {
		return method(server.state, ctx, request, options...)
	}
}

// policies makes a sending of a method of the service of policies.
func policies[Q, R any](method func(pb.PolicyServiceClient, context.Context, Q, ...grpc.CallOption) (R, error)) sending[Q, R] {
	return func(ctx context.Context, server *server, request Q, options ...grpc.CallOption) (R, error) {
		return method(server.policies, ctx, request, options...)
	}
}

// call sends a request to the server in use, with deadline, retries, failover and the circuit breaker. Its error is an *Error.
func call[Q, R any](ctx context.Context, client *Client, method string, may repeat, send sending[Q, R], request Q) (R, error) {
	return callAt(ctx, client, nil, method, may, send, request)
}

// callAt is call to one server alone; nil: to the one in use, and others after it.
func callAt[Q, R any](ctx context.Context, client *Client, at *server, method string, may repeat, send sending[Q, R], request Q) (R, error) {
	started := time.Now()
	ctx, cancel := context.WithTimeout(ctx, client.options.Timeout)
	defer cancel()
	response, attempts, failure := attempt(ctx, client, at, may, send, request)
	reason := "OK"
	if failure != nil {
		if reason = failure.Reason; reason == "" {
			reason = failure.Code.String()
		}
	}
	client.options.Metrics.Call(method, reason, attempts, time.Since(started))
	if failure != nil {
		return response, failure
	}
	return response, nil
}

// attempt sends a request until it is answered. One round goes to each server at most once, without a wait.
func attempt[Q, R any](
	ctx context.Context, client *Client, at *server, may repeat, send sending[Q, R], request Q,
) (response R, attempts int, failure *Error) {
	for rounds := 1; ; rounds++ {
		if ctx.Err() == context.Canceled {
			return response, attempts, &Error{Code: codes.Canceled, Message: "the caller canceled the call", cause: ctx.Err()}
		}
		if !client.circuit.allow() {
			return response, attempts, client.circuitOpen()
		}
		var tried []*server
		for server := client.first(at); server != nil; {
			tried = append(tried, server)
			attempts++
			var sent bool
			response, sent, failure = sendOnce(ctx, client, server, len(client.servers.all)-len(tried), at, send, request)
			if failure == nil {
				return response, attempts, nil
			}
			if server = nil; at == nil && failure.movesOn() && (may != once || !sent) && ctx.Err() == nil {
				server = client.servers.next(tried)
			}
		}
		client.countFailure(failure, at, tried)
		wait, again := client.delay(failure, rounds, attempts, may)
		if !again || !sleep(ctx, wait) && ctx.Err() != context.Canceled {
			return response, attempts, failure
		}
	}
}

// first is the server of a call's first attempt.
func (client *Client) first(at *server) *server {
	if at != nil {
		return at
	}
	return client.servers.inUse()
}

// countFailure counts a round for the circuit, if no address works, and says in the error how many were tried.
func (client *Client) countFailure(failure *Error, at *server, tried []*server) {
	several := client.servers.several()
	if at == nil && several && len(tried) > 1 && failure.movesOn() {
		failure.Message = fmt.Sprintf("%s; none of %d addresses works, this one was the last", failure.Message, len(tried))
	}
	outage := !several || at == nil && len(tried) == len(client.servers.all)
	switch {
	case failure.Code == codes.Canceled:
		client.circuit.canceled()
	case !failure.Unavailable() || failure.RetryAfter > 0:
		client.circuit.succeeded()
	case outage:
		client.circuit.failed(failure.Message)
	default:
		client.circuit.canceled()
	}
}

// circuitOpen is the error of a call that is not sent.
func (client *Client) circuitOpen() *Error {
	return &Error{
		Code: codes.Unavailable, Reason: ReasonCircuitOpen,
		Message: fmt.Sprintf("%s failed repeatedly, so no calls are sent to it for up to %s; the last failure: %s",
			client.target, client.options.BreakFor, client.circuit.lastCause()),
	}
}

// sendOnce sends a request to one server. `others` is the number of servers that may be tried after it. It also reports whether
// the request may have arrived.
func sendOnce[Q, R any](
	ctx context.Context, client *Client, server *server, others int, at *server, send sending[Q, R], request Q,
) (response R, sent bool, failure *Error) {
	within, cancel := client.within(ctx, others, at)
	defer cancel()
	started := time.Now()
	if at == nil {
		if err := client.servers.restore(within, server); err != nil {
			return response, false, client.failedAt(ctx, server, errorFrom(err), started)
		}
	}
	var arrived peer.Peer
	response, err := send(within, server, request, grpc.Peer(&arrived))
	if err == nil {
		client.circuit.succeeded()
		if at == nil {
			client.servers.answered(server, true)
		}
		return response, true, nil
	}
	return response, arrived.Addr != nil, client.failedAt(ctx, server, errorFrom(err).locate(server.target), started)
}

// within bounds an attempt: by AttemptTimeout, or else by an equal part of the time that is left for each server to be tried.
func (client *Client) within(ctx context.Context, others int, at *server) (context.Context, context.CancelFunc) {
	limit := client.options.AttemptTimeout
	if deadline, limited := ctx.Deadline(); limit == 0 && limited && at == nil && others > 0 {
		limit = time.Until(deadline) / time.Duration(others+1)
	}
	if limit == 0 {
		return context.WithCancel(ctx)
	}
	return context.WithTimeout(ctx, limit)
}

// failedAt records the failure of a server.
func (client *Client) failedAt(ctx context.Context, server *server, failure *Error, started time.Time) *Error {
	impatient := failure.Code == codes.DeadlineExceeded && time.Since(started) < patience
	if failure.movesOn() && !impatient && ctx.Err() != context.Canceled {
		client.servers.failed(server, failure.Message)
	}
	return failure
}

// errorFrom is the error of a call, or of what was done before it.
func errorFrom(err error) *Error {
	var failure *Error
	if errors.As(err, &failure) {
		return failure
	}
	return readError(err)
}

// delay returns the wait before the next round, and whether there is one.
func (client *Client) delay(failure *Error, rounds, attempts int, may repeat) (time.Duration, bool) {
	if rounds >= client.options.Attempts {
		return 0, false
	}
	// The service throttled the call, which therefore had no effect, whatever it was.
	throttled := failure.Code == codes.ResourceExhausted && failure.RetryAfter > 0
	// An earlier attempt of the same call still runs.
	busy := failure.Reason == ReasonSessionBusy && attempts > 1
	if !throttled && (may != repeatable || (!failure.Unavailable() && !busy)) {
		return 0, false
	}
	wait := min(client.options.Backoff<<(rounds-1), client.options.MaxBackoff)
	return wait/2 + time.Duration(rand.Int64N(int64(wait/2)+1)) + failure.RetryAfter, true
}

// sleep waits, and reports false if the context ends before.
func sleep(ctx context.Context, wait time.Duration) bool {
	if deadline, limited := ctx.Deadline(); limited && time.Until(deadline) <= wait {
		return false
	}
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-timer.C:
		return true
	}
}

// isServing asks a server whether it takes calls: one that is stopping says that it does not, although it still answers.
func isServing(ctx context.Context, server *server) error {
	response, err := server.health.Check(ctx, &healthpb.HealthCheckRequest{})
	if err != nil {
		return readError(err).locate(server.target)
	}
	if status := response.GetStatus(); status != healthpb.HealthCheckResponse_SERVING {
		return fmt.Errorf("%s is %s", server.target, status)
	}
	return nil
}
