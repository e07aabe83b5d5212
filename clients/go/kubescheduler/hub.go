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
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"
)

const (
	// gather is how long changes that nobody asks for wait for others.
	gather = 50 * time.Millisecond
	// pause is how long the background waits after the service was away.
	pause = time.Second
	// largestPart is the time of one call at most, such as a part of a snapshot; in a cycle its budget is over before.
	largestPart = 10 * time.Second
)

// hub is what the profiles of one scheduler share that ask the same service: connection, state, and the pods that wait.
type hub struct {
	client  *pumice.Client
	mirror  *mirror
	waiting *waitingRoom
	log     klog.Logger

	leading  sync.Once
	ctx      context.Context
	requests chan chan error
	// position is how far the state has been sent. The feed itself would make a question wait while it sends.
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
	options, err := args.options(counting{})
	if err != nil {
		return nil, err
	}
	client, err := pumice.Dial(args.Address, options)
	if err != nil {
		return nil, fmt.Errorf("address: %w", err)
	}
	log := klog.FromContext(ctx).WithValues("plugin", Name)
	made := &hub{
		client: client, mirror: newMirror(client.Feed(args.Source, 0), args.Source, log), waiting: newWaitingRoom(),
		log: log, ctx: ctx, requests: make(chan chan error),
	}
	if err := made.mirror.watch(key.factory); err != nil {
		return nil, errors.Join(err, client.Close())
	}
	hubs[key] = made
	context.AfterFunc(ctx, func() {
		hubsMutex.Lock()
		delete(hubs, key)
		hubsMutex.Unlock()
		_ = client.Close()
	})
	return made, nil
}

// lead begins to write. A scheduler that stands by schedules nothing, so it does not come here, and fences nobody.
func (hub *hub) lead() {
	hub.leading.Do(func() {
		go hub.send()
		go hub.retry()
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

// late is an error of the kind that the service being away makes.
func late(message string) error {
	return &pumice.Error{Code: codes.DeadlineExceeded, Message: message}
}

// asking sends what has changed and asks; where the service knows nothing of what was sent before, for it has started
// anew, everything is sent and the question asked once more.
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

// forgotten: the service does not stand where this scheduler has brought it.
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

// standsIn says who answers a question that failed like this; false: nobody, it is an error.
func standsIn(chosen pumice.Fallback, err error) (pumice.Origin, bool) {
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
