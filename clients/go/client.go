package pumice

import (
	"context"
	"crypto/tls"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"time"

	pb "github.com/pumice-scheduler/pumice/clients/go/pumicev1"

	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/keepalive"
)

// DefaultTarget is the gRPC address of a server that was started without options.
const DefaultTarget = "127.0.0.1:7461"

// largestResponse bounds a response in bytes: listings and scores of whole clusters are large.
const largestResponse = 256 << 20

// defaultPort is the port of a target that has none.
const defaultPort = "7461"

// Flow-control windows in bytes, of one response and of all responses of a connection. The server has the same for
// requests.
const (
	streamWindow     = 4 << 20
	connectionWindow = 8 << 20
)

// Client calls the three services of one server. It is safe to use from several goroutines.
type Client struct {
	target     string
	options    Options
	connection *grpc.ClientConn
	circuit    *breaker
	decisions  pb.DecisionServiceClient
	state      pb.StateServiceClient
	policies   pb.PolicyServiceClient
	// life ends with Close, and the heartbeats of feeds with it.
	life context.Context
	end  context.CancelFunc

	tableMutex sync.Mutex
	table      NodeTable
}

// Dial makes a client of HOST:PORT, HOST (port 7461), http://…, https://…, unix:PATH or the path of a socket. The first call
// connects.
func Dial(target string, options Options) (*Client, error) {
	options, err := options.withDefaults()
	if err != nil {
		return nil, err
	}
	if strings.HasPrefix(target, "https://") && options.TLS == nil {
		options.TLS = &tls.Config{MinVersion: tls.VersionTLS12}
	}
	if target, err = address(target); err != nil {
		return nil, err
	}
	transport := insecure.NewCredentials()
	if options.TLS != nil {
		transport = credentials.NewTLS(options.TLS)
	}
	settings := []grpc.DialOption{
		grpc.WithTransportCredentials(transport),
		// Calls go directly to the service, whatever proxy the environment names.
		grpc.WithNoProxy(),
		// This library repeats calls itself: it knows which ones may be repeated.
		grpc.WithDisableRetry(),
		grpc.WithDisableServiceConfig(),
		// A response of a megabyte arrives without a pause; the default of gRPC begins with 64 KiB.
		grpc.WithInitialWindowSize(streamWindow),
		grpc.WithInitialConnWindowSize(connectionWindow),
		grpc.WithKeepaliveParams(keepalive.ClientParameters{Time: options.Keepalive, Timeout: options.KeepaliveTimeout}),
		grpc.WithConnectParams(grpc.ConnectParams{
			Backoff:           backoff.Config{BaseDelay: 50 * time.Millisecond, Multiplier: 1.6, Jitter: 0.2, MaxDelay: 5 * time.Second},
			MinConnectTimeout: 2 * time.Second,
		}),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(largestResponse)),
	}
	if options.TokenFile != "" {
		token, err := newFileToken(options.TokenFile, target)
		if err != nil {
			return nil, err
		}
		settings = append(settings, grpc.WithPerRPCCredentials(token))
	}
	connection, err := grpc.NewClient(target, append(settings, options.DialOptions...)...)
	if err != nil {
		return nil, err
	}
	life, end := context.WithCancel(context.Background())
	return &Client{
		life:       life,
		end:        end,
		target:     target,
		options:    options,
		connection: connection,
		circuit:    &breaker{after: options.BreakAfter, pause: options.BreakFor, now: time.Now, changed: options.Metrics.Circuit},
		decisions:  pb.NewDecisionServiceClient(connection),
		state:      pb.NewStateServiceClient(connection),
		policies:   pb.NewPolicyServiceClient(connection),
	}, nil
}

// address is a target in the form that gRPC takes.
func address(target string) (string, error) {
	host, secure := strings.CutPrefix(target, "https://")
	host, plain := strings.CutPrefix(host, "http://")
	host = strings.TrimSuffix(host, "/")
	switch {
	case host == "":
		return "", fmt.Errorf("target %q: the host is missing; give HOST:PORT, https://HOST, unix:PATH or the path of a socket", target)
	case strings.HasPrefix(host, "/"):
		return "unix:" + host, nil
	case strings.Contains(host, ":"):
		return host, nil
	case secure:
		return host + ":443", nil
	case plain:
		return host + ":80", nil
	}
	return host + ":" + defaultPort, nil
}

// Close closes the connection, and ends the heartbeats of the client's feeds.
func (client *Client) Close() error {
	client.end()
	return client.connection.Close()
}

// Connection returns the connection, for calls that this library does not wrap.
func (client *Client) Connection() *grpc.ClientConn {
	return client.connection
}

// repeat reports whether a call may be repeated without harm.
type repeat bool

const (
	once       repeat = false
	repeatable repeat = true
)

// call sends a request, with deadline, retries and the circuit breaker. Its error is an *Error.
func call[Q, R any](
	ctx context.Context, client *Client, method string, may repeat,
	send func(context.Context, Q, ...grpc.CallOption) (R, error), request Q,
) (R, error) {
	started := time.Now()
	ctx, cancel := context.WithTimeout(ctx, client.options.Timeout)
	defer cancel()
	response, attempts, failure := attempt(ctx, client, may, send, request)
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

func attempt[Q, R any](
	ctx context.Context, client *Client, may repeat,
	send func(context.Context, Q, ...grpc.CallOption) (R, error), request Q,
) (response R, attempts int, failure *Error) {
	for attempts = 1; ; attempts++ {
		if ctx.Err() == context.Canceled {
			return response, attempts - 1, &Error{Code: codes.Canceled, Message: "the caller canceled the call", cause: ctx.Err()}
		}
		if !client.circuit.allow() {
			return response, attempts - 1, &Error{
				Code: codes.Unavailable, Reason: ReasonCircuitOpen,
				Message: fmt.Sprintf("%s failed repeatedly, so no calls are sent to it for up to %s; the last failure: %s",
					client.target, client.options.BreakFor, client.circuit.lastCause()),
			}
		}
		response, failure = sendOnce(ctx, client, send, request)
		if failure == nil {
			return response, attempts, nil
		}
		wait, again := client.delay(failure, attempts, may)
		if !again || !sleep(ctx, wait) && ctx.Err() != context.Canceled {
			return response, attempts, failure
		}
	}
}

func sendOnce[Q, R any](
	ctx context.Context, client *Client, send func(context.Context, Q, ...grpc.CallOption) (R, error), request Q,
) (R, *Error) {
	within := ctx
	if client.options.AttemptTimeout > 0 {
		var cancel context.CancelFunc
		within, cancel = context.WithTimeout(ctx, client.options.AttemptTimeout)
		defer cancel()
	}
	response, err := send(within, request)
	if err == nil {
		client.circuit.succeeded()
		return response, nil
	}
	failure := readError(err).locate(client.target)
	switch {
	case failure.Code == codes.Canceled:
		client.circuit.canceled()
	case failure.Unavailable() && failure.RetryAfter == 0:
		client.circuit.failed(failure.Message)
	default:
		client.circuit.succeeded()
	}
	return response, failure
}

// delay returns the wait before the next attempt, and whether there is one.
func (client *Client) delay(failure *Error, attempts int, may repeat) (time.Duration, bool) {
	if attempts >= client.options.Attempts {
		return 0, false
	}
	// The service throttled the call, which therefore had no effect, whatever it was.
	throttled := failure.Code == codes.ResourceExhausted && failure.RetryAfter > 0
	// An earlier attempt of the same call still runs.
	busy := failure.Reason == ReasonSessionBusy && attempts > 1
	if !throttled && (!bool(may) || (!failure.Unavailable() && !busy)) {
		return 0, false
	}
	wait := min(client.options.Backoff<<(attempts-1), client.options.MaxBackoff)
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
