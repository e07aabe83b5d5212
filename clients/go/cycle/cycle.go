package cycle

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	pumice "github.com/pumice-scheduler/pumice/clients/go"
	pb "github.com/pumice-scheduler/pumice/clients/go/pumicev1"
)

// Task identifies a pod: ID is its key in look-ups, Name the name of its record.
type Task struct {
	ID, Name, Job, Queue string
}

// Cycle is one scheduling cycle. Prepare and Record are called one after the other, as in a scheduler's loop; look-ups may
// come from several goroutines.
type Cycle struct {
	scheduler *Scheduler
	policy    Policy
	// number counts cycles, also those that reuse a session.
	number uint64
	began  time.Time

	nodePlugins, orderPlugins, admitPlugins, victimPlugins []string
	filters, quotas, upstream                              bool
	refusedRecords                                         []RefusedRecord

	mutex       sync.RWMutex
	session     *pumice.Session
	unavailable error
	// clock counts events, touched has the changes of nodes by them, in order, and invalidated is the clock at which every
	// result became stale. Unsent is the number of events since the last call.
	clock       uint64
	touched     []touch
	nodeAt      map[int]int
	invalidated uint64
	unsent      int
	loads       nodeLoads
	// statuses of the tasks with an event in this cycle that was not reverted.
	statuses map[string]pb.TaskStatus

	classes map[string]*class
	byTask  sync.Map
	slots   []int
	table   *pumice.NodeTable

	order    ranks
	admitted admissions
	victims  victimVotes
	plans    map[string]*plan
	// unplanned jobs have no plan any more, because the scheduler could not follow one.
	unplanned map[string]bool

	// late is the time by which answers have been late, see Budget.Time. While the cycle is opening, it does not count.
	late    time.Duration
	opening bool

	calls   atomic.Int64
	waited  atomic.Int64
	changes atomic.Int64
}

func newCycle(scheduler *Scheduler, policy Policy) *Cycle {
	return &Cycle{
		scheduler: scheduler, policy: policy, number: scheduler.cycles, began: time.Now(), nodeAt: map[int]int{}, statuses: map[string]pb.TaskStatus{},
		classes: map[string]*class{}, order: newRanks(), admitted: newAdmissions(), victims: newVictimVotes(),
		plans: map[string]*plan{}, unplanned: map[string]bool{},
	}
}

// Usage returns what the cycle has cost so far.
func (cycle *Cycle) Usage() Usage {
	return Usage{
		Calls: int(cycle.calls.Load()), Waited: time.Duration(cycle.waited.Load()), Changes: int(cycle.changes.Load()),
	}
}

// Err returns the reason why the service is unavailable in this cycle; nil: it is available.
func (cycle *Cycle) Err() error {
	cycle.mutex.RLock()
	defer cycle.mutex.RUnlock()
	return cycle.unavailable
}

// RefusedRecords returns the records that are not in force as the scheduler has them, sorted by kind and name.
func (cycle *Cycle) RefusedRecords() []RefusedRecord {
	return cycle.refusedRecords
}

// takesNoPart reports whether a plugin is not among those that are asked, while the service is available: the policy does
// not name it, or the service does not serve it there.
func (cycle *Cycle) takesNoPart(asked []string, plugin string) bool {
	return cycle.unavailable == nil && !slices.Contains(asked, plugin)
}

// reusable reports whether the session can serve another cycle: it has no events, is not old, and is on the server in use.
func (cycle *Cycle) reusable(policy Policy, keepFor time.Duration) bool {
	return cycle != nil && cycle.unavailable == nil && cycle.session != nil && cycle.session.Address() == cycle.scheduler.settings.Client.Address() && cycle.changes.Load() == 0 && !cycle.admitted.asked &&
		cycle.policy.Document == policy.Document && keepFor > 0 && time.Since(cycle.began) < keepFor
}

func (cycle *Cycle) reuse() {
	cycle.number = cycle.scheduler.cycles
	cycle.calls.Store(0)
	cycle.waited.Store(0)
	cycle.late = 0
}

// timed counts a call and its time, and charges the budget with its delay.
func (cycle *Cycle) timed(call func() error) error {
	budget := cycle.scheduler.settings.Budget
	if budget.Calls > 0 && cycle.calls.Load() >= int64(budget.Calls) || !cycle.opening && budget.Time > 0 && cycle.late >= budget.Time {
		return ErrBudget
	}
	cycle.calls.Add(1)
	started := time.Now()
	defer func() {
		took := time.Since(started)
		cycle.waited.Add(int64(took))
		if !cycle.opening {
			cycle.late = max(0, cycle.late+took-budget.InTime)
		}
	}()
	return call()
}

// send sends a call in the session. After an error the service is unavailable for the rest of the cycle.
func send[R any](
	cycle *Cycle, call func(context.Context) (pumice.Reply[R], error),
) (response R, err error) {
	if cycle.unavailable != nil {
		return response, cycle.unavailable
	}
	if err := cycle.admitted.confirm(cycle); err != nil {
		return response, cycle.giveUp(err)
	}
	if response, err = ask(cycle, call); err != nil {
		return response, cycle.giveUp(err)
	}
	if cycle.session.Effects().GetInvalidation().GetScope() == pb.InvalidationScope_INVALIDATION_SCOPE_ALL {
		cycle.invalidate()
	}
	return response, nil
}

// ask makes one call in the session, and makes it again in another session if that one was lost.
func ask[R any](cycle *Cycle, call func(context.Context) (pumice.Reply[R], error)) (response R, err error) {
	for attempt := 1; ; attempt++ {
		err = cycle.timed(func() error {
			ctx, cancel := cycle.context()
			defer cancel()
			reply, err := pumice.AllowProblems(call(ctx))
			if err == nil && reply.Cause != nil {
				err = reply.Cause
			}
			response = reply.Response
			return err
		})
		var failure *pumice.Error
		if attempt > 1 || !errors.As(err, &failure) || !failure.SessionEnded() {
			if err == nil {
				cycle.unsent = 0
			}
			return response, err
		}
		if err := cycle.replay(); err != nil {
			return response, fmt.Errorf("%w; the session before it was lost: %w", err, failure)
		}
	}
}

// replay opens another session in place of a lost one, and repeats what has happened in it. Results under another policy do
// not go with those that the cycle has.
func (cycle *Cycle) replay() error {
	lost, policy := cycle.session, cycle.scheduler.inForce
	if err := cycle.open(context.Background()); err != nil {
		return err
	}
	if now := cycle.scheduler.inForce; now.Hash != policy.Hash || now.compatibility != policy.compatibility {
		return errPolicyChanged
	}
	cycle.invalidate()
	return cycle.timed(func() error {
		ctx, cancel := cycle.context()
		defer cancel()
		return lost.ReplayIn(ctx, cycle.session)
	})
}

// context ends when the budget is used up, if the answer does not come in time.
func (cycle *Cycle) context() (context.Context, context.CancelFunc) {
	budget := cycle.scheduler.settings.Budget
	return within(context.Background(), budget.Time, budget.InTime+budget.Time-cycle.late)
}

// within bounds a context, unless the bound is less than 0.
func within(ctx context.Context, bound, left time.Duration) (context.Context, context.CancelFunc) {
	if bound < 0 {
		return context.WithCancel(ctx)
	}
	return context.WithTimeout(ctx, left)
}

func (cycle *Cycle) giveUp(err error) error {
	if cycle.unavailable == nil {
		cycle.unavailable = err
		cycle.scheduler.settings.Observer.Unavailable(err)
	}
	return cycle.unavailable
}

// invalidate makes every result stale.
func (cycle *Cycle) invalidate() {
	cycle.clock++
	cycle.invalidated = cycle.clock
}

// PlacementEvent is an event of a task in a cycle.
type PlacementEvent int

// The events of a task.
const (
	// Allocated: the task takes idle resources of a node.
	Allocated PlacementEvent = iota
	// Pipelined: the task waits for resources that are being released on a node.
	Pipelined
	// Evicted: the task is evicted.
	Evicted
	// Unevicted reverts Evicted.
	Unevicted
	// Withdrawn reverts Allocated or Pipelined.
	Withdrawn
)

// Record records an event of a task, which is sent with the next call.
func (cycle *Cycle) Record(event PlacementEvent, task Task, node string) {
	cycle.mutex.Lock()
	defer cycle.mutex.Unlock()
	cycle.changes.Add(1)
	cycle.clock++
	cycle.unsent++
	before := cycle.statuses[task.Name]
	var change *pb.SessionChange
	// A pipelined or evicted task changes what a node will have, not what it uses; no plugin reads the former.
	moves := true
	switch event {
	case Allocated:
		change = pumice.AllocateOn(task.Name, node)
		cycle.statuses[task.Name] = pb.TaskStatus_TASK_STATUS_ALLOCATED
	case Pipelined:
		change, moves = pumice.PipelineOn(task.Name, node), false
		cycle.statuses[task.Name] = pb.TaskStatus_TASK_STATUS_PIPELINED
	case Evicted:
		change, moves = pumice.Evict(task.Name), before == pb.TaskStatus_TASK_STATUS_PIPELINED
		cycle.statuses[task.Name] = pb.TaskStatus_TASK_STATUS_RELEASING
	case Unevicted:
		change, moves = pumice.Unevict(task.Name), false
		delete(cycle.statuses, task.Name)
	case Withdrawn:
		change = pumice.Unallocate(task.Name)
		if before == pb.TaskStatus_TASK_STATUS_PIPELINED {
			change, moves = pumice.Unpipeline(task.Name), false
		}
		delete(cycle.statuses, task.Name)
	}
	if cycle.unavailable == nil {
		cycle.session.AddChanges(change)
	}
	if at, numbered := cycle.scheduler.mirror.nodes[node]; numbered && moves {
		cycle.touched = append(cycle.touched, touch{at, cycle.change(event, task, before)})
		cycle.nodeAt[at] = len(cycle.touched)
	}
	cycle.order.recorded(task)
	cycle.admitted.recorded(event, task, cycle)
	cycle.planned(event, task, node)
}

// Close ends the cycle. A session without events is kept for the next cycle.
func (cycle *Cycle) Close() {
	cycle.mutex.Lock()
	defer cycle.mutex.Unlock()
	if cycle.unavailable == nil {
		if err := cycle.admitted.confirm(cycle); err != nil {
			_ = cycle.giveUp(err)
		}
	}
	scheduler := cycle.scheduler
	scheduler.settings.Observer.Closed(cycle.Usage())
	scheduler.mutex.Lock()
	defer scheduler.mutex.Unlock()
	if cycle.reusable(cycle.policy, scheduler.settings.KeepFor) {
		scheduler.last = cycle
		return
	}
	cycle.end()
}

// end closes the session in the background.
func (cycle *Cycle) end() {
	session := cycle.session
	if session == nil {
		return
	}
	cycle.session = nil
	cycle.calls.Add(1)
	go func() {
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		defer cancel()
		// Without this call the session ends with its lease.
		_ = session.Close(ctx)
	}()
}
