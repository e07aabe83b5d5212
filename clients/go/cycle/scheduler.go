package cycle

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	pumice "pumice/clients/go"
	pb "pumice/clients/go/pumicev1"
)

// Scheduler is one scheduler process, with its state in the service.
type Scheduler struct {
	settings Settings
	feed     *pumice.Feed

	mutex  sync.Mutex
	mirror *mirror
	kept   *Cycle
	cycles uint64
	force  bool
	// handed is the document that is known to be in force, and its hash in the service.
	handed, hash string
	// served are the plugins that the service serves, by name, with the extension points of each.
	served map[string][]string
}

// New makes a Scheduler. It asks nothing yet.
func New(settings Settings) (*Scheduler, error) {
	settings, err := settings.withDefaults()
	if err != nil {
		return nil, err
	}
	return &Scheduler{settings: settings, feed: settings.Client.Feed(settings.Source, 0), mirror: newMirror()}, nil
}

// Policy is the scheduler's own configuration.
type Policy struct {
	// Document is volcano-scheduler.conf, in YAML or JSON.
	Document string
	// Plugins are those of its plugins that ask the service, in the order of the tiers.
	Plugins []string
}

// Open begins a cycle: what has changed since the last one is found by fingerprint and sent. When nothing has, and
// nothing happened in the last cycle, its session goes on, answers included, and nothing is sent at all.
//
// It does not fail: without the service the cycle answers as Settings.Away says, and Trouble tells why.
func (scheduler *Scheduler) Open(ctx context.Context, snapshot Snapshot, policy Policy) *Cycle {
	scheduler.mutex.Lock()
	defer scheduler.mutex.Unlock()
	started := time.Now()
	scheduler.cycles++
	if scheduler.force {
		scheduler.mirror.forget()
		scheduler.feed.Resync()
	}
	put, gone, err := scheduler.mirror.take(snapshot)
	sent := 0
	if err == nil {
		sent = count(put, gone)
		scheduler.feed.Remove(gone)
		scheduler.feed.Put(put)
	}
	last := scheduler.kept
	scheduler.kept = nil
	if err == nil && sent == 0 && !scheduler.force && last.canGoOn(policy, scheduler.settings.KeepFor) {
		last.goOn()
		scheduler.settings.Observer.Opened(0, time.Since(started))
		return last
	}
	cycle := newCycle(scheduler, policy)
	if last != nil {
		last.end()
	}
	if err == nil {
		err = cycle.open(ctx)
	}
	scheduler.force = err != nil && scheduler.force
	if err != nil {
		cycle.giveUp(err)
	}
	scheduler.settings.Observer.Opened(sent, time.Since(started))
	return cycle
}

// Resync makes the next cycle work everything out anew, and send it.
func (scheduler *Scheduler) Resync() {
	scheduler.mutex.Lock()
	defer scheduler.mutex.Unlock()
	scheduler.force = true
}

func count(put *pb.Cluster, gone *pb.Removals) int {
	return len(put.GetNodes()) + len(put.GetQueues()) + len(put.GetJobs()) + len(put.GetTasks()) +
		len(gone.GetNodes()) + len(gone.GetQueues()) + len(gone.GetJobs()) + len(gone.GetTasks())
}

// open opens the session, with the policy that the scheduler has.
func (cycle *Cycle) open(ctx context.Context) error {
	scheduler := cycle.scheduler
	if scheduler.served == nil {
		err := cycle.timed(func() error { return scheduler.learn(ctx) })
		if err != nil {
			return err
		}
	}
	if scheduler.handed != cycle.policy.Document {
		if err := cycle.timed(func() error { return scheduler.agree(ctx, cycle.policy) }); err != nil {
			return err
		}
	}
	against := &pb.EvaluationRef{Target: &pb.EvaluationRef_Latest{Latest: &pb.LatestRef{Policy: scheduler.settings.Policy}}}
	for again := false; ; again = true {
		err := cycle.timed(func() (err error) {
			cycle.session, err = scheduler.feed.OpenSession(ctx, against)
			return err
		})
		if err != nil {
			return err
		}
		for _, problem := range cycle.session.Opened().GetOutcome().GetRefused() {
			cycle.refusedRecords = append(cycle.refusedRecords, problem.GetField()+": "+problem.GetMessage())
		}
		if cycle.session.Opened().GetMetadata().GetPolicyHash() == scheduler.hash {
			break
		}
		// Somebody else has brought another policy in force, or the service has started anew.
		cycle.end()
		if again {
			return ErrPolicyDiffers
		}
		if err := cycle.timed(func() error { return scheduler.agree(ctx, cycle.policy) }); err != nil {
			return err
		}
	}
	cycle.choose(scheduler.served)
	return nil
}

// learn asks which plugins the service serves.
func (scheduler *Scheduler) learn(ctx context.Context) error {
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

// agree makes sure that the service has the scheduler's policy in force.
func (scheduler *Scheduler) agree(ctx context.Context, policy Policy) error {
	scheduler.handed = ""
	checkOnly := scheduler.settings.PolicyMode == CheckPolicy
	reply, err := scheduler.settings.Client.ReloadPolicy(ctx, &pb.ReloadPolicyRequest{
		Name: scheduler.settings.Policy, Document: policy.Document, DryRun: checkOnly,
		Compatibility: scheduler.settings.Compatibility,
	})
	if err != nil {
		return err
	}
	if checkOnly {
		if reply.GetDifference() != "" {
			return errors.Join(ErrPolicyDiffers, errors.New(reply.GetDifference()))
		}
		inForce, err := scheduler.settings.Client.GetPolicy(ctx, &pb.GetPolicyRequest{Name: scheduler.settings.Policy})
		if err != nil {
			return err
		}
		scheduler.handed, scheduler.hash = policy.Document, inForce.GetPolicy().GetHash()
		return nil
	}
	scheduler.handed, scheduler.hash = policy.Document, reply.GetPolicy().GetHash()
	return nil
}

// choose says whom the cycle asks what.
func (cycle *Cycle) choose(served map[string][]string) {
	of := func(points ...string) (names []string) {
		for _, name := range cycle.policy.Plugins {
			asked := slices.ContainsFunc(points, func(point string) bool { return slices.Contains(served[name], point) })
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
