package pumice

import (
	"context"
	"crypto/tls"
	"errors"
	"math/rand/v2"
	"strings"
	"sync"
	"time"

	pb "pumice/clients/go/pumicev1"

	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/keepalive"
)

// DefaultTarget is where a server listens that was started without options.
const DefaultTarget = "127.0.0.1:7461"

// largestReply is taken: listings and scores of whole clusters.
const largestReply = 256 << 20

// Bytes that may be under way in an answer, and in all answers of a connection, before any was taken; as the server has it for
// what it is sent.
const (
	streamWindow     = 4 << 20
	connectionWindow = 8 << 20
)

// Client holds the three services of one server. It is safe to use from several goroutines.
type Client struct {
	options    Options
	connection *grpc.ClientConn
	circuit    *breaker
	decisions  pb.DecisionServiceClient
	state      pb.StateServiceClient
	policies   pb.PolicyServiceClient

	tableMutex sync.Mutex
	table      NodeTable
}

// Dial makes a client of HOST:PORT, http://…, https://…, unix:PATH or the path of a socket. The first call connects.
func Dial(target string, options Options) (*Client, error) {
	options, err := options.withDefaults()
	if err != nil {
		return nil, err
	}
	if rest, secure := strings.CutPrefix(target, "https://"); secure {
		target = rest
		if options.TLS == nil {
			options.TLS = &tls.Config{MinVersion: tls.VersionTLS12}
		}
	}
	target = strings.TrimSuffix(strings.TrimPrefix(target, "http://"), "/")
	if target == "" {
		return nil, errors.New("the target is empty")
	}
	if strings.HasPrefix(target, "/") {
		target = "unix:" + target
	}
	transport := insecure.NewCredentials()
	if options.TLS != nil {
		transport = credentials.NewTLS(options.TLS)
	}
	settings := []grpc.DialOption{
		grpc.WithTransportCredentials(transport),
		// A decision is asked for directly, whatever proxy the environment names.
		grpc.WithNoProxy(),
		// This library knows which questions may be asked twice.
		grpc.WithDisableRetry(),
		grpc.WithDisableServiceConfig(),
		// Answers of a megabyte come without a pause; grpc begins with 64 KiB and learns.
		grpc.WithInitialWindowSize(streamWindow),
		grpc.WithInitialConnWindowSize(connectionWindow),
		grpc.WithKeepaliveParams(keepalive.ClientParameters{Time: options.Keepalive, Timeout: options.KeepaliveTimeout}),
		grpc.WithConnectParams(grpc.ConnectParams{
			Backoff:           backoff.Config{BaseDelay: 50 * time.Millisecond, Multiplier: 1.6, Jitter: 0.2, MaxDelay: 5 * time.Second},
			MinConnectTimeout: 2 * time.Second,
		}),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(largestReply)),
	}
	connection, err := grpc.NewClient(target, append(settings, options.DialOptions...)...)
	if err != nil {
		return nil, err
	}
	return &Client{
		options:    options,
		connection: connection,
		circuit:    &breaker{after: options.BreakAfter, rest: options.BreakFor, now: time.Now, changed: options.Metrics.Circuit},
		decisions:  pb.NewDecisionServiceClient(connection),
		state:      pb.NewStateServiceClient(connection),
		policies:   pb.NewPolicyServiceClient(connection),
	}, nil
}

// Close ends the connection.
func (client *Client) Close() error {
	return client.connection.Close()
}

// Connection is for calls that this library does not wrap.
func (client *Client) Connection() *grpc.ClientConn {
	return client.connection
}

// repeat says whether asking twice does no harm.
type repeat bool

const (
	once       repeat = false
	repeatable repeat = true
)

// call asks, with deadline, retries and the circuit breaker. Its error is an *Error.
func call[Q, R any](
	ctx context.Context, client *Client, method string, may repeat,
	ask func(context.Context, Q, ...grpc.CallOption) (R, error), question Q,
) (R, error) {
	started := time.Now()
	ctx, cancel := context.WithTimeout(ctx, client.options.Timeout)
	defer cancel()
	answer, attempts, failure := attempt(ctx, client, may, ask, question)
	reason := "OK"
	if failure != nil {
		if reason = failure.Reason; reason == "" {
			reason = failure.Code.String()
		}
	}
	client.options.Metrics.Call(method, reason, attempts, time.Since(started))
	if failure != nil {
		return answer, failure
	}
	return answer, nil
}

func attempt[Q, R any](
	ctx context.Context, client *Client, may repeat,
	ask func(context.Context, Q, ...grpc.CallOption) (R, error), question Q,
) (answer R, attempts int, failure *Error) {
	for attempts = 1; ; attempts++ {
		if !client.circuit.allow() {
			return answer, attempts - 1, &Error{
				Code: codes.Unavailable, Reason: ReasonCircuitOpen, Message: "the service did not answer for a while",
			}
		}
		answer, failure = askOnce(ctx, client, ask, question)
		if failure == nil {
			return answer, attempts, nil
		}
		wait, again := client.delay(failure, attempts, may)
		if !again || !sleep(ctx, wait) {
			return answer, attempts, failure
		}
	}
}

func askOnce[Q, R any](
	ctx context.Context, client *Client, ask func(context.Context, Q, ...grpc.CallOption) (R, error), question Q,
) (R, *Error) {
	within := ctx
	if client.options.AttemptTimeout > 0 {
		var cancel context.CancelFunc
		within, cancel = context.WithTimeout(ctx, client.options.AttemptTimeout)
		defer cancel()
	}
	answer, err := ask(within, question)
	if err == nil {
		client.circuit.answered()
		return answer, nil
	}
	failure := readError(err)
	switch {
	case failure.Code == codes.Canceled:
		client.circuit.gaveUp()
	case failure.Away() && failure.RetryAfter == 0:
		client.circuit.away()
	default:
		client.circuit.answered()
	}
	return answer, failure
}

// delay says how long to wait before the next attempt, if there is one.
func (client *Client) delay(failure *Error, attempts int, may repeat) (time.Duration, bool) {
	if attempts >= client.options.Attempts {
		return 0, false
	}
	// The service turned it away at its door: nothing happened, whatever was asked.
	refused := failure.Code == codes.ResourceExhausted && failure.RetryAfter > 0
	// An earlier attempt of the same question is still at work.
	busy := failure.Reason == ReasonSessionBusy && attempts > 1
	if !refused && (!bool(may) || (!failure.Away() && !busy)) {
		return 0, false
	}
	wait := min(client.options.Backoff<<(attempts-1), client.options.MaxBackoff)
	return wait/2 + time.Duration(rand.Int64N(int64(wait/2)+1)) + failure.RetryAfter, true
}

// sleep waits, unless the context would end meanwhile.
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
