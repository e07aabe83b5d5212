package cycle

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	pumice "pumice/clients/go"
	pb "pumice/clients/go/pumicev1"
)

// Task is a pod in a question. ID is its key in look-ups, Name its record's.
type Task struct {
	ID, Name, Job, Queue string
}

// Cycle is one scheduling cycle. Prepare, and what tells of changes, come one after the other, as in a scheduler's loop;
// look-ups may come from several goroutines.
type Cycle struct {
	scheduler *Scheduler
	policy    Policy
	began     time.Time

	nodePlugins, orderPlugins, admitPlugins, victimPlugins []string
	filters, quotas                                        bool
	refusedRecords                                         []string

	mutex   sync.RWMutex
	session *pumice.Session
	away    error
	// What happened: clock counts it, touched names nodes in that order, and spoiled is when everything became stale.
	clock   uint64
	touched []int
	nodeAt  map[int]int
	spoiled uint64
	// standing is what this cycle made of tasks.
	standing map[string]pb.TaskStatus

	classes map[string]*class
	byTask  sync.Map
	slots   []int
	table   *pumice.NodeTable

	order    ranks
	admitted admissions
	victims  map[string][]*pb.VictimVote
	plans    map[string]*plan

	calls   atomic.Int64
	waited  atomic.Int64
	changes atomic.Int64
}

func newCycle(scheduler *Scheduler, policy Policy) *Cycle {
	return &Cycle{
		scheduler: scheduler, policy: policy, began: time.Now(), nodeAt: map[int]int{}, standing: map[string]pb.TaskStatus{},
		classes: map[string]*class{}, order: newRanks(), admitted: newAdmissions(), victims: map[string][]*pb.VictimVote{},
		plans: map[string]*plan{},
	}
}

// Usage is what the cycle cost so far.
func (cycle *Cycle) Usage() Usage {
	return Usage{
		Calls: int(cycle.calls.Load()), Waited: time.Duration(cycle.waited.Load()), Changes: int(cycle.changes.Load()),
	}
}

// Err is why the service is away for this cycle; nil if it is not.
func (cycle *Cycle) Err() error {
	cycle.mutex.RLock()
	defer cycle.mutex.RUnlock()
	return cycle.away
}

// Refused are records that the service has not taken, with the reason.
func (cycle *Cycle) Refused() []string {
	return cycle.refusedRecords
}

// canGoOn says whether the session serves another cycle: nothing happened in it, and it is not old.
func (cycle *Cycle) canGoOn(policy Policy, keepFor time.Duration) bool {
	return cycle != nil && cycle.away == nil && cycle.session != nil && cycle.changes.Load() == 0 && !cycle.admitted.asked &&
		cycle.policy.Document == policy.Document && keepFor > 0 && time.Since(cycle.began) < keepFor
}

func (cycle *Cycle) goOn() {
	cycle.calls.Store(0)
	cycle.waited.Store(0)
}

// timed counts a call, and the time that it took.
func (cycle *Cycle) timed(ask func() error) error {
	budget := cycle.scheduler.settings.Budget
	if budget.Calls > 0 && cycle.calls.Load() >= int64(budget.Calls) ||
		budget.Time > 0 && cycle.waited.Load() >= int64(budget.Time) {
		return ErrBudget
	}
	cycle.calls.Add(1)
	started := time.Now()
	defer func() { cycle.waited.Add(int64(time.Since(started))) }()
	return ask()
}

// ask asks a question of the session. Whatever goes wrong, the service is away for the rest of the cycle: what happened
// in a session that is lost cannot be asked of another.
func ask[R any](
	cycle *Cycle, question func(context.Context) (pumice.Reply[R], error),
) (response R, err error) {
	if cycle.away != nil {
		return response, cycle.away
	}
	if err := cycle.admitted.confirm(cycle); err != nil {
		return response, cycle.giveUp(err)
	}
	err = cycle.timed(func() error {
		ctx, cancel := cycle.context()
		defer cancel()
		reply, err := question(ctx)
		if err == nil && reply.Cause != nil {
			err = reply.Cause
		}
		response = reply.Response
		return err
	})
	var failure *pumice.Error
	if errors.As(err, &failure) && failure.SessionEnded() && cycle.changes.Load() == 0 {
		// Nothing is lost with it.
		if err = cycle.open(context.Background()); err == nil {
			cycle.spoil()
			return ask(cycle, question)
		}
	}
	if err != nil {
		return response, cycle.giveUp(err)
	}
	if cycle.session.Effects().GetInvalidation().GetScope() == pb.InvalidationScope_INVALIDATION_SCOPE_ALL {
		cycle.spoil()
	}
	return response, nil
}

// context ends with the budget.
func (cycle *Cycle) context() (context.Context, context.CancelFunc) {
	budget := cycle.scheduler.settings.Budget.Time
	if budget < 0 {
		return context.WithCancel(context.Background())
	}
	return context.WithTimeout(context.Background(), budget-time.Duration(cycle.waited.Load()))
}

func (cycle *Cycle) giveUp(err error) error {
	if cycle.away == nil {
		cycle.away = err
		cycle.scheduler.settings.Observer.Trouble(err)
	}
	return cycle.away
}

// spoil makes all answers stale.
func (cycle *Cycle) spoil() {
	cycle.clock++
	cycle.spoiled = cycle.clock
}

// Verb is what happened to a task.
type Verb int

// What can happen to a task.
const (
	// Allocated: it was given idle room on a node.
	Allocated Verb = iota
	// Pipelined: it was promised room that is being released.
	Pipelined
	// Evicted: it was told to go.
	Evicted
	// Unevicted: it stays after all.
	Unevicted
	// Withdrawn: it has no place any more, whichever of the first two it had.
	Withdrawn
)

// Happened tells what has happened to a task. It rides on the next question.
func (cycle *Cycle) Happened(verb Verb, task Task, node string) {
	cycle.mutex.Lock()
	defer cycle.mutex.Unlock()
	cycle.changes.Add(1)
	cycle.clock++
	before := cycle.standing[task.Name]
	var change *pb.SessionChange
	// Who is pipelined or being evicted changes what a node will have, not what it uses, and no plugin reads that.
	moves := true
	switch verb {
	case Allocated:
		change = pumice.AllocateOn(task.Name, node)
		cycle.standing[task.Name] = pb.TaskStatus_TASK_STATUS_ALLOCATED
	case Pipelined:
		change, moves = pumice.PipelineOn(task.Name, node), false
		cycle.standing[task.Name] = pb.TaskStatus_TASK_STATUS_PIPELINED
	case Evicted:
		change, moves = pumice.Evict(task.Name), before == pb.TaskStatus_TASK_STATUS_PIPELINED
		cycle.standing[task.Name] = pb.TaskStatus_TASK_STATUS_RELEASING
	case Unevicted:
		change, moves = pumice.Unevict(task.Name), false
		cycle.standing[task.Name] = pb.TaskStatus_TASK_STATUS_RUNNING
	case Withdrawn:
		change = pumice.Unallocate(task.Name)
		if before == pb.TaskStatus_TASK_STATUS_PIPELINED {
			change, moves = pumice.Unpipeline(task.Name), false
		}
		cycle.standing[task.Name] = pb.TaskStatus_TASK_STATUS_PENDING
	}
	if cycle.away == nil {
		cycle.session.Note(change)
	}
	if at, numbered := cycle.scheduler.mirror.nodes[node]; numbered && moves {
		cycle.touched = append(cycle.touched, at)
		cycle.nodeAt[at] = len(cycle.touched)
	}
	cycle.order.happened(task)
	cycle.admitted.happened(verb, task, cycle)
	cycle.planned(verb, task, node)
}

// Close ends the cycle. A session in which nothing happened is kept for the next one.
func (cycle *Cycle) Close() {
	cycle.mutex.Lock()
	defer cycle.mutex.Unlock()
	if cycle.away == nil {
		if err := cycle.admitted.confirm(cycle); err != nil {
			_ = cycle.giveUp(err)
		}
	}
	scheduler := cycle.scheduler
	scheduler.settings.Observer.Closed(cycle.Usage())
	scheduler.mutex.Lock()
	defer scheduler.mutex.Unlock()
	if cycle.canGoOn(cycle.policy, scheduler.settings.KeepFor) {
		scheduler.kept = cycle
		return
	}
	cycle.end()
}

// end closes the session; nobody waits for it.
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
		// It ends with its lease in any case.
		_ = session.Close(ctx)
	}()
}
