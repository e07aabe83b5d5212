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
	// foresight has the last answer that serves equal pods.
	foresight foresightBook
	log       klog.Logger

	leading  sync.Once
	ctx      context.Context
	requests chan chan error
	// urgent asks for a batch at once.
	urgent chan struct{}
	// stream takes the batches; nil: there is none yet, or it has ended. Only the goroutine that sends uses it.
	stream *pumice.Stream
	// leaves hears of a batch that is on its way: a question may follow it at once, because the service lets the question wait until the
	// batch is visible. Only the goroutine that sends uses it.
	leaves func(*pb.SourcePosition)
	// sent is the last batch that is on its way or has arrived; nil: none is, or it failed.
	sent atomic.Pointer[sentBatch]
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
	log.Info("The plugin is built into this release of kube-scheduler", "release", Release)
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
		log: log, ctx: ctx, requests: make(chan chan error), urgent: make(chan struct{}, 1),
	}
	made.mirror.leaves = made.gangs.podLeft
	made.mirror.feed.OnItsWay(func(position *pb.SourcePosition) { made.leaves(position) })
	if err := made.mirror.watch(key.factory); err != nil {
		return nil, errors.Join(err, client.Close())
	}
	if err := made.mirror.watchGroups(key.factory); err != nil {
		return nil, errors.Join(err, client.Close())
	}
	if err := made.watchCoscheduling(handle.KubeConfig()); err != nil {
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

// lead begins to write. A scheduler on standby schedules nothing, so it never calls lead and fences no other.
func (hub *hub) lead() {
	hub.leading.Do(func() {
		go hub.send()
		go hub.retry()
	})
}

// late is the error of an unavailable service.
func late(message string) error {
	return &pumice.Error{Code: codes.DeadlineExceeded, Message: message}
}

// asking sends the changes and, while they are on their way, a request, which the service answers once it has them. If the service was
// restarted and lacks the state, asking sends a full sync and the request once more.
func asking[R any](ctx context.Context, hub *hub, args *Args, ask func(*pb.EvaluationRef) (pumice.Reply[R], error)) (R, error) {
	address := hub.client.Address()
	response, last, err := askingOnce(ctx, hub, args, ask)
	if forgotten(err) && hub.client.Address() != address {
		// Another server has the state, and other slots of nodes.
		response, last, err = askingOnce(ctx, hub, args, ask)
	}
	if forgotten(err) && last.onItsWay {
		// The batch took longer than the service lets a question wait.
		select {
		case <-last.ended:
		case <-ctx.Done():
			return response, err
		}
		response, last, err = askingOnce(ctx, hub, args, ask)
	}
	if forgotten(err) {
		hub.resync(last.sentBatch)
		response, _, err = askingOnce(ctx, hub, args, ask)
	}
	return response, err
}

// namedBatch is the batch that a question has named, and whether it was on its way then.
type namedBatch struct {
	*sentBatch
	onItsWay bool
}

func askingOnce[R any](ctx context.Context, hub *hub, args *Args, ask func(*pb.EvaluationRef) (pumice.Reply[R], error)) (R, namedBatch, error) {
	var none R
	last, err := hub.flush(ctx)
	if err != nil {
		return none, namedBatch{}, err
	}
	named := namedBatch{last, last.isOnItsWay()}
	latest := &pb.LatestRef{
		Policy: args.Policy, Profile: args.PolicyProfile,
		Positions: []*pb.SourcePosition{last.position}, MaxWait: durationpb.New(args.Budget.Duration / 4),
	}
	reply, err := ask(&pb.EvaluationRef{Target: &pb.EvaluationRef_Latest{Latest: latest}})
	return reply.Response, named, err
}

// forgotten reports whether the service lacks state that this scheduler has sent.
func forgotten(err error) bool {
	var failure *pumice.Error
	return errors.As(err, &failure) && (failure.Code == codes.FailedPrecondition || failure.Reason == pumice.ReasonEpochChanged)
}

// resync makes the next flush send everything, once for all that found the state of that batch gone.
func (hub *hub) resync(last *sentBatch) {
	now := hub.sent.Load()
	isLost := now == last || now != nil && last != nil && now.position.GetSequence() <= last.position.GetSequence()
	if isLost && hub.sent.CompareAndSwap(now, nil) {
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
