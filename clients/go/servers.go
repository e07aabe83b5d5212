package pumice

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	pb "github.com/pumice-scheduler/pumice/clients/go/pumicev1"

	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/keepalive"
)

// longestRest is the most by which the rest of an address grows that fails again and again, in times of ReturnAfter.
const longestRest = 32

// server is one address of a client, with its connection.
type server struct {
	target     string
	connection *grpc.ClientConn
	decisions  pb.DecisionServiceClient
	state      pb.StateServiceClient
	policies   pb.PolicyServiceClient
	health     healthpb.HealthClient

	// The fields below belong to the mutex of the list.
	//
	// until is the time before which the server is not used, because it failed, and rest the length of that pause. Back is the time
	// at which it was used again.
	until, back time.Time
	rest        time.Duration
	// used ends when the server fails while it is in use.
	used    context.Context
	failure context.CancelFunc
}

// serverList has the addresses of a client in the order of preference, and knows which one is in use. Everything that sends
// asks it.
type serverList struct {
	all     []*server
	pause   time.Duration
	now     func() time.Time
	changed func(now, before *server, reason string)
	// restores makes a server fit for questions: the feeds send it what it lacks. isServing asks a server whether it takes calls.
	restores  func(context.Context, *server) error
	isServing func(context.Context, *server) error
	life      context.Context

	// restoring is held while a server is being restored.
	restoring sync.Mutex
	mutex     sync.Mutex
	current   *server
	// restored is true if the server in use has what the feeds have sent.
	restored  bool
	returning bool
}

// split splits a target into addresses, in the order of preference.
func split(target string) []string {
	list := strings.Split(target, ",")
	for at := range list {
		list[at] = strings.TrimSpace(list[at])
	}
	return list
}

// connect makes the servers of a target. The first call connects.
func connect(target string, options *Options) ([]*server, error) {
	var made []*server
	seen := map[string]bool{}
	addresses := split(target)
	for _, one := range addresses {
		known, err := connectOne(one, options, len(addresses) > 1)
		if err == nil && seen[known.target] {
			err = errors.Join(fmt.Errorf("target %q: the address %s stands twice", target, known.target), known.connection.Close())
		}
		if err != nil {
			for _, server := range made {
				_ = server.connection.Close()
			}
			return nil, err
		}
		seen[known.target] = true
		made = append(made, known)
	}
	return made, nil
}

// connectOne makes a server. Among several addresses TLS is for those that do not say otherwise.
func connectOne(target string, options *Options, several bool) (*server, error) {
	security := options.TLS
	if strings.HasPrefix(target, "https://") && security == nil {
		security = &tls.Config{MinVersion: tls.VersionTLS12}
	}
	plain := strings.HasPrefix(target, "http://")
	target, err := address(target)
	if err != nil {
		return nil, err
	}
	transport := insecure.NewCredentials()
	if security != nil && !(several && (plain || strings.HasPrefix(target, "unix:"))) {
		transport = credentials.NewTLS(security)
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
	used, failure := context.WithCancel(context.Background())
	return &server{
		target: target, connection: connection, used: used, failure: failure,
		decisions: pb.NewDecisionServiceClient(connection), state: pb.NewStateServiceClient(connection),
		policies: pb.NewPolicyServiceClient(connection), health: healthpb.NewHealthClient(connection),
	}, nil
}

// several reports whether there is more than one address.
func (list *serverList) several() bool {
	return len(list.all) > 1
}

// inUse is the server that calls go to.
func (list *serverList) inUse() *server {
	list.mutex.Lock()
	defer list.mutex.Unlock()
	return list.current
}

// next is the server for another attempt of a call: the one in use, then the first that works as far as anybody knows, then
// the others. Nil: the call has tried all.
func (list *serverList) next(tried []*server) *server {
	list.mutex.Lock()
	defer list.mutex.Unlock()
	if !slices.Contains(tried, list.current) {
		return list.current
	}
	var resting *server
	for _, server := range list.all {
		switch {
		case slices.Contains(tried, server):
		case list.works(server):
			return server
		case resting == nil:
			resting = server
		}
	}
	return resting
}

// works reports whether a server has not failed of late. The caller holds the mutex.
func (list *serverList) works(server *server) bool {
	return !list.now().Before(server.until)
}

// failed records that a server failed. If it is in use, another one that works takes its place; without one it stays.
func (list *serverList) failed(server *server, reason string) {
	if !list.several() {
		return
	}
	list.mutex.Lock()
	if now := list.now(); list.works(server) {
		again := server == list.current && now.Sub(server.back) < server.rest
		server.rest = max(list.pause, min(2*server.rest, longestRest*list.pause))
		if !again {
			server.rest = list.pause
		}
		server.until = now.Add(server.rest)
	}
	at := slices.IndexFunc(list.all, list.works)
	if server != list.current || at < 0 {
		list.mutex.Unlock()
		return
	}
	server.failure()
	report := list.use(list.all[at], false, reason)
	list.mutex.Unlock()
	report()
}

// answered records that a server answered a call, before which it may have been restored. It takes the place of one in use that
// has failed.
func (list *serverList) answered(server *server, restored bool) {
	if !list.several() {
		return
	}
	list.mutex.Lock()
	report := func() {}
	if before := list.current; server != before && !list.works(before) {
		before.failure()
		server.until = list.now()
		report = list.use(server, restored, "the other address failed")
	}
	list.mutex.Unlock()
	report()
}

// use puts a server in use. The caller holds the mutex, and calls the result without it.
func (list *serverList) use(server *server, restored bool, reason string) func() {
	before := list.current
	list.current, list.restored = server, restored
	if server.used.Err() != nil {
		server.used, server.failure = context.WithCancel(list.life)
	}
	if server != list.all[0] && !list.returning {
		list.returning = true
		go list.comeBack()
	}
	return func() { list.changed(server, before, reason) }
}

// whileUsed bounds a context: it also ends when the server fails while it is in use.
func (list *serverList) whileUsed(ctx context.Context, server *server) (context.Context, context.CancelFunc) {
	list.mutex.Lock()
	used, isUsed := server.used, server == list.current
	list.mutex.Unlock()
	ctx, cancel := context.WithCancel(ctx)
	if !isUsed {
		return ctx, cancel
	}
	stop := context.AfterFunc(used, cancel)
	return ctx, func() {
		stop()
		cancel()
	}
}

// restore makes a server fit for questions, unless it is the one in use and was restored since it came into use.
func (list *serverList) restore(ctx context.Context, server *server) error {
	if !list.several() || list.isRestored(server) {
		return nil
	}
	list.restoring.Lock()
	defer list.restoring.Unlock()
	if list.isRestored(server) {
		return nil
	}
	if err := list.restores(ctx, server); err != nil {
		return err
	}
	list.mutex.Lock()
	defer list.mutex.Unlock()
	list.restored = list.restored || server == list.current
	return nil
}

func (list *serverList) isRestored(server *server) bool {
	list.mutex.Lock()
	defer list.mutex.Unlock()
	return list.restored && server == list.current
}

// comeBack looks for a server that is preferred to the one in use, when its rest is over, until the first one is in use again.
func (list *serverList) comeBack() {
	for {
		candidate, wait := list.preferred()
		if candidate == nil && wait == 0 {
			return
		}
		if candidate == nil {
			if !sleep(list.life, wait) {
				return
			}
			continue
		}
		err := list.probe(candidate)
		if list.life.Err() != nil {
			return
		}
		list.mutex.Lock()
		report := func() {}
		switch {
		case err != nil:
			candidate.until = list.now().Add(list.pause)
		case slices.Index(list.all, candidate) < slices.Index(list.all, list.current):
			candidate.back = list.now()
			// What was sent to the other one meanwhile may be on its way: the first question makes sure.
			report = list.use(candidate, false, "it works again")
		}
		list.mutex.Unlock()
		report()
	}
}

// probe makes a server fit for questions, so that the first one does not wait for a full sync, and asks whether it takes them.
func (list *serverList) probe(candidate *server) error {
	ctx, cancel := context.WithTimeout(list.life, max(list.pause, time.Second))
	defer cancel()
	if err := list.restores(ctx, candidate); err != nil {
		return err
	}
	return list.isServing(ctx, candidate)
}

// preferred is the first server that is preferred to the one in use and has rested, or the wait until there may be one; neither:
// the first server is in use.
func (list *serverList) preferred() (*server, time.Duration) {
	list.mutex.Lock()
	defer list.mutex.Unlock()
	wait := time.Duration(0)
	for _, server := range list.all {
		if server == list.current {
			break
		}
		if list.works(server) {
			return server, 0
		}
		if left := server.until.Sub(list.now()); wait == 0 || left < wait {
			wait = left
		}
	}
	list.returning = wait > 0
	return nil, wait
}

// close closes all connections.
func (list *serverList) close() error {
	var wrong []error
	for _, server := range list.all {
		wrong = append(wrong, server.connection.Close())
	}
	return errors.Join(wrong...)
}
