package cycle

import (
	"context"
	"slices"
	"sync"
	"time"

	pumice "github.com/pumice-scheduler/pumice/clients/go"
	pb "github.com/pumice-scheduler/pumice/clients/go/pumicev1"

	"google.golang.org/grpc/codes"
)

// Scheduler is one scheduler process. It keeps its state in the service up to date.
type Scheduler struct {
	settings Settings
	feed     *pumice.Feed

	mutex  sync.Mutex
	mirror *mirror
	last   *Cycle
	cycles uint64
	force  bool
	// pushed is the scheduler's document that is in force, hash the hash of the version in force. Not used by FollowPolicy.
	pushed, hash string
	// own has the hashes of the documents that this process has pushed.
	own map[string]bool
	// refused has the records that the service refused. Heartbeats of the feed may add to it at any time.
	refusedMutex sync.Mutex
	refused      map[recordKey]RefusedRecord
	// reported has the refused records of which the observer knows.
	reported map[RefusedRecord]bool
	events   eventLimit
	// inForce is the policy of the last session, governing what was reported of it, under which configuration.
	inForce    *policyInForce
	governing  PolicyVersion
	configured Policy
	// served has the extension points of each served plugin.
	served map[string][]string
}

// New makes a Scheduler. It sends nothing yet.
func New(settings Settings) (*Scheduler, error) {
	settings, err := settings.withDefaults()
	if err != nil {
		return nil, err
	}
	made := &Scheduler{settings: settings, feed: settings.Client.Feed(settings.Source, 0), mirror: newMirror(), own: map[string]bool{}, refused: map[recordKey]RefusedRecord{}}
	made.events = eventLimit{every: settings.EventsEvery, perCycle: settings.EventsPerCycle, written: map[string]time.Time{}}
	made.feed.OnRefused(made.refuse)
	return made, nil
}

// Policy is the scheduler's own configuration.
type Policy struct {
	// Document is volcano-scheduler.conf, in YAML or JSON.
	Document string
	// Plugins are the names of the plugins that use the service, in the order of the tiers.
	Plugins []string
}

// Open begins a cycle: it finds the changes since the last one by fingerprint and sends them. If there are none, and the
// last cycle had no events, the new cycle reuses its session and results, and sends nothing.
//
// Open does not fail. Without the service the cycle behaves as Settings.Fallback says, and Observer.Unavailable gets the
// reason.
func (scheduler *Scheduler) Open(ctx context.Context, state SchedulerState, policy Policy) *Cycle {
	scheduler.mutex.Lock()
	defer scheduler.mutex.Unlock()
	started := time.Now()
	scheduler.cycles++
	if scheduler.force {
		scheduler.mirror.forget()
		scheduler.feed.Resync()
	}
	changes := scheduler.mirror.take(state)
	sent := changes.count()
	scheduler.takeRefused(changes)
	scheduler.feed.Remove(changes.gone)
	scheduler.feed.Put(changes.put)
	scheduler.feed.PutUnreadable(changes.marks...)
	last := scheduler.last
	scheduler.last = nil
	if sent == 0 && !scheduler.force && last.reusable(policy, scheduler.settings.KeepFor) {
		if last.reuse(); last.unchanged(ctx) {
			scheduler.settings.Observer.Opened(0, time.Since(started))
			return last
		}
	}
	cycle := newCycle(scheduler, policy)
	if last != nil {
		last.end()
	}
	err := cycle.open(ctx)
	scheduler.reportRefused(cycle)
	scheduler.force = err != nil && scheduler.force
	if err != nil {
		cycle.giveUp(err)
	}
	scheduler.settings.Observer.Opened(sent, time.Since(started))
	return cycle
}

// Resync makes the next cycle send a full sync.
func (scheduler *Scheduler) Resync() {
	scheduler.mutex.Lock()
	defer scheduler.mutex.Unlock()
	scheduler.force = true
}

// open opens the session, if the policy in force may decide.
func (cycle *Cycle) open(ctx context.Context) error {
	scheduler := cycle.scheduler
	bound := scheduler.settings.Budget.Open
	ctx, cancel := within(ctx, bound, bound)
	defer cancel()
	cycle.opening = true
	defer func() { cycle.opening = false }()
	if scheduler.served == nil {
		err := cycle.timed(func() error { return scheduler.loadServed(ctx) })
		if err != nil {
			return err
		}
	}
	if scheduler.settings.PolicyMode != FollowPolicy && scheduler.pushed != cycle.policy.Document {
		if err := cycle.syncPolicy(ctx); err != nil {
			return err
		}
	}
	if err := cycle.exists(ctx); err != nil {
		return err
	}
	for attempt := 1; ; attempt++ {
		if err := cycle.openSession(ctx); err != nil {
			if codeOf(err) == codes.NotFound {
				scheduler.inForce = nil
			}
			return err
		}
		policy, err := cycle.readPolicy(ctx, cycle.session.Opened().GetMetadata())
		again := false
		if err == nil {
			again, err = scheduler.governs(policy, cycle.policy.Plugins)
		}
		if err == nil {
			cycle.selectPlugins(policy)
			scheduler.report(policy, cycle.policy)
			return nil
		}
		cycle.end()
		if !again || attempt > 1 {
			return err
		}
		if err := cycle.syncPolicy(ctx); err != nil {
			return err
		}
	}
}

// openSession sends the changes and opens a session after them.
func (cycle *Cycle) openSession(ctx context.Context) error {
	scheduler := cycle.scheduler
	against := &pb.EvaluationRef{Target: &pb.EvaluationRef_Latest{Latest: &pb.LatestRef{Policy: scheduler.settings.Policy}}}
	return cycle.timed(func() (err error) {
		cycle.session, err = scheduler.feed.OpenSession(ctx, against)
		return err
	})
}

// report reports the policy that decides, once.
func (scheduler *Scheduler) report(policy *policyInForce, own Policy) {
	if scheduler.governing == policy.PolicyVersion && scheduler.configured.Document == own.Document &&
		slices.Equal(scheduler.configured.Plugins, own.Plugins) {
		return
	}
	scheduler.governing, scheduler.configured = policy.PolicyVersion, own
	scheduler.settings.Observer.Governed(scheduler.compare(policy, own))
}

// loadServed fetches the served plugins.
func (scheduler *Scheduler) loadServed(ctx context.Context) error {
	info, err := scheduler.settings.Client.GetServerInfo(ctx)
	if err != nil {
		return err
	}
	scheduler.served = map[string][]string{}
	for _, plugin := range info.GetPlugins() {
		scheduler.served[plugin.GetName()] = plugin.GetExtensionPoints()
	}
	return nil
}

// selectPlugins selects the plugins for each kind of call: those of the scheduler that the policy names.
func (cycle *Cycle) selectPlugins(policy *policyInForce) {
	served, named := cycle.scheduler.served, policy.configuration.plugins()
	cycle.upstream = policy.release() != ""
	of := func(points ...string) (names []string) {
		for _, name := range cycle.policy.Plugins {
			asked := slices.Contains(named, name) && slices.ContainsFunc(points, func(point string) bool { return slices.Contains(served[name], point) })
			if asked && !slices.Contains(names, name) {
				names = append(names, name)
			}
		}
		return names
	}
	cycle.nodePlugins = of("filter", "score")
	cycle.filters = len(of("filter")) > 0
	cycle.orderPlugins = of("order")
	cycle.admitPlugins = of("admit")
	cycle.victimPlugins = of("victims")
	cycle.quotas = slices.Contains(cycle.admitPlugins, "capacity-card")
}
