package kubescheduler

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	pumice "github.com/pumice-scheduler/pumice/clients/go"
	pb "github.com/pumice-scheduler/pumice/clients/go/pumicev1"

	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/types/known/durationpb"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"
)

const (
	// gather is the time for which changes wait for others, unless a request needs them.
	gather = 50 * time.Millisecond
	// pause is the wait of the background after a failure.
	pause = time.Second
	// largestPart bounds one call, such as a part of a full sync; the budget of a cycle is shorter.
	largestPart = 10 * time.Second
)

// hub has what the profiles of one scheduler share: the connection to a service, the state, and the waiting pods.
type hub struct {
	client  *pumice.Client
	mirror  *mirror
	waiting *waitingRoom
	gangs   *gangTable
	log     klog.Logger

	// config reaches the API server for kinds that have no informer of the scheduler's.
	config *rest.Config

	leading  sync.Once
	ctx      context.Context
	requests chan chan error
	// position is the last batch. Reading it from the feed would wait while the feed sends.
	position atomic.Pointer[pb.SourcePosition]
}

// hubKey: one per source of a service in a scheduler.
type hubKey struct {
	factory    informers.SharedInformerFactory
	connection string
}

var (
	hubsMutex sync.Mutex
	hubs      = map[hubKey]*hub{}
)

// hubOf finds or makes the hub. It ends with the context, which is that of the scheduler's process.
func hubOf(ctx context.Context, handle fwk.Handle, args *Args) (*hub, error) {
	text, err := json.Marshal([]any{args.Address, args.TLS, args.Source})
	if err != nil {
		return nil, err
	}
	key := hubKey{handle.SharedInformerFactory(), string(text)}
	hubsMutex.Lock()
	defer hubsMutex.Unlock()
	if known, found := hubs[key]; found {
		return known, nil
	}
	for other := range hubs {
		if other.factory == key.factory && hubs[other].mirror.source == args.Source {
			return nil, fmt.Errorf("source %q: profiles that share it have the same address and tls", args.Source)
		}
	}
	log := klog.FromContext(ctx).WithValues("plugin", Name)
	options, err := args.options(counting{}, log)
	if err != nil {
		return nil, err
	}
	client, err := pumice.Dial(args.Address, options)
	if err != nil {
		return nil, fmt.Errorf("address: %w", err)
	}
	made := &hub{
		client: client, mirror: newMirror(client.Feed(args.Source, 0), args.Source), waiting: newWaitingRoom(), gangs: newGangTable(),
		log: log, ctx: ctx, requests: make(chan chan error),
	}
	made.mirror.gone = made.gangs.podGone
	if err := made.mirror.watch(key.factory); err != nil {
		return nil, errors.Join(err, client.Close())
	}
	if err := made.mirror.watchGroups(key.factory); err != nil {
		return nil, errors.Join(err, client.Close())
	}
	made.config = handle.KubeConfig()
	hubs[key] = made
	context.AfterFunc(ctx, func() {
		hubsMutex.Lock()
		delete(hubs, key)
		hubsMutex.Unlock()
		_ = client.Close()
	})
	return made, nil
}

// lead begins to write. A scheduler on standby schedules nothing, so it never calls lead and fences no other.
func (hub *hub) lead() {
	hub.leading.Do(func() {
		go hub.send()
		go hub.retry()
		go hub.watchCoscheduling()
	})
}

// send sends what has changed: at once when a question waits for it, else after a while.
func (hub *hub) send() {
	var due <-chan time.Time
	for {
		var waiters []chan error
		select {
		case <-hub.ctx.Done():
			return
		case <-hub.mirror.wake:
			if due == nil {
				due = time.After(gather)
			}
			continue
		case <-due:
		case waiter := <-hub.requests:
			waiters = append(waiters, waiter)
		}
		due = nil
		err := hub.sendOnce()
		if err != nil && !errors.Is(err, pumice.ErrFenced) {
			due = time.After(pause)
		}
		for _, waiter := range waiters {
			waiter <- err
		}
	}
}

func (hub *hub) sendOnce() error {
	// A part of the scheduler's view would be taken for the whole.
	for !hub.mirror.synced() {
		select {
		case <-hub.ctx.Done():
			return hub.ctx.Err()
		case <-time.After(5 * time.Millisecond):
		}
	}
	if err := hub.mirror.flush(hub.ctx); err != nil {
		return err
	}
	hub.position.Store(hub.mirror.feed.Position())
	return nil
}

// flush waits until everything that is known now has been sent.
func (hub *hub) flush(ctx context.Context) error {
	done := make(chan error, 1)
	select {
	case hub.requests <- done:
	case <-ctx.Done():
		return late("the state could not be sent in time")
	}
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
		return late("the state could not be sent in time")
	}
}

// late is the error of an unavailable service.
func late(message string) error {
	return &pumice.Error{Code: codes.DeadlineExceeded, Message: message}
}

// asking sends the changes and then a request. If the service was restarted and lacks the state, asking sends a full sync and
// the request once more.
func asking[R any](ctx context.Context, hub *hub, args *Args, ask func(*pb.EvaluationRef) (pumice.Reply[R], error)) (R, error) {
	response, position, err := askingOnce(ctx, hub, args, ask)
	if forgotten(err) {
		hub.resync(position)
		response, _, err = askingOnce(ctx, hub, args, ask)
	}
	return response, err
}

func askingOnce[R any](ctx context.Context, hub *hub, args *Args, ask func(*pb.EvaluationRef) (pumice.Reply[R], error)) (R, *pb.SourcePosition, error) {
	var none R
	if err := hub.flush(ctx); err != nil {
		return none, nil, err
	}
	// What was acknowledged is visible; a replica of the service may lag behind.
	position := hub.position.Load()
	latest := &pb.LatestRef{
		Policy: args.Policy, Profile: args.PolicyProfile,
		Positions: []*pb.SourcePosition{position}, MaxWait: durationpb.New(args.Budget.Duration / 4),
	}
	reply, err := ask(&pb.EvaluationRef{Target: &pb.EvaluationRef_Latest{Latest: latest}})
	return reply.Response, position, err
}

// forgotten reports whether the service lacks state that this scheduler has sent.
func forgotten(err error) bool {
	var failure *pumice.Error
	return errors.As(err, &failure) && (failure.Code == codes.FailedPrecondition || failure.Reason == pumice.ReasonEpochChanged)
}

// resync makes the next flush send everything, once for all that found the state of that position gone.
func (hub *hub) resync(position *pb.SourcePosition) {
	if hub.position.CompareAndSwap(position, nil) {
		hub.mirror.feed.Resync()
	}
}

// originOf is the origin of the reply to a failed call; false: there is no fallback.
func originOf(chosen pumice.Fallback, err error) (pumice.Origin, bool) {
	var failure *pumice.Error
	if !errors.As(err, &failure) || !(failure.Unavailable() || failure.Reason == pumice.ReasonCircuitOpen || forgotten(err)) {
		return 0, false
	}
	switch chosen {
	case pumice.FailClosed:
		return pumice.OriginFailClosed, true
	case pumice.FailOpen:
		return pumice.OriginFailOpen, true
	case pumice.Abstain:
		return pumice.OriginAbstain, true
	case pumice.ReturnError:
	}
	return 0, false
}
