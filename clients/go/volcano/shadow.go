//go:build shadow

package volcano

import (
	"fmt"
	"math"
	"reflect"
	"slices"
	"unsafe"

	"github.com/pumice-scheduler/pumice/clients/go/cycle"

	"volcano.sh/volcano/pkg/scheduler/api"
	"volcano.sh/volcano/pkg/scheduler/framework"
	"volcano.sh/volcano/pkg/scheduler/plugins/binpack"
	"volcano.sh/volcano/pkg/scheduler/plugins/drf"
	resourcestrategyfit "volcano.sh/volcano/pkg/scheduler/plugins/resource-strategy-fit"
)

// hasShadow is true in builds with shadow mode.
const hasShadow = true

// inTree are the in-tree plugins of Volcano's own.
func inTree() map[string]framework.PluginBuilder {
	return map[string]framework.PluginBuilder{
		resourcestrategyfit.PluginName: resourcestrategyfit.New, drf.PluginName: drf.New, binpack.PluginName: binpack.New,
	}
}

// describe names a query in a comparison.
func describe(task *api.TaskInfo, node *api.NodeInfo) string {
	return fmt.Sprintf("%s/%s on %s", task.Namespace, task.Name, node.Name)
}

// registered is what a plugin has put into a session under its name, in the map of this field. The framework has no
// getter for it, so the field is read by its name; where a version of Volcano has none of it, that is an error.
func registered[F any](session *framework.Session, field, name string) (function F, found bool, err error) {
	value := reflect.ValueOf(session).Elem().FieldByName(field)
	if !value.IsValid() || value.Type() != reflect.TypeFor[map[string]F]() {
		return function, false, fmt.Errorf("this version of Volcano keeps its functions elsewhere: %s", field)
	}
	all := *(*map[string]F)(unsafe.Pointer(value.UnsafeAddr()))
	function, found = all[name]
	return function, found, nil
}

// wrap puts a comparing function in the place of the in-tree one; where there is none, nothing.
func wrap[F any](session *framework.Session, field, name string, own F, has bool, put func(string, F), compare func(used, own F) F) error {
	used, found, err := registered[F](session, field, name)
	if err == nil && found && has {
		put(name, compare(used, own))
	}
	return err
}

// shadow leaves the in-tree functions at work, and compares each answer with Pumice's.
func (hooks *hooks) shadow(comparison *cycle.Comparison, session *framework.Session) error {
	name := hooks.name
	note := func(hook string, same bool, query func() string, used, own any) {
		comparison.Add(name+"/"+hook, same, query, used, own)
	}
	session.AddPrePredicateFn(name, func(task *api.TaskInfo) error {
		// Whatever it answers, the scheduler goes on.
		err := hooks.prePredicate(task)
		note("PrePredicate", err == nil, func() string { return task.Name }, nil, err)
		return nil
	})
	for _, err := range []error{
		wrap(session, "predicateFns", name, hooks.predicate, hooks.predicate != nil, session.AddPredicateFn,
			func(used, own api.PredicateFn) api.PredicateFn {
				return func(task *api.TaskInfo, node *api.NodeInfo) error {
					verdict, other := used(task, node), own(task, node)
					note("Predicate", sameFit(verdict, other), func() string { return describe(task, node) }, verdict, other)
					return verdict
				}
			}),
		wrap(session, "nodeOrderFns", name, hooks.nodeOrder, hooks.nodeOrder != nil, session.AddNodeOrderFn,
			func(used, own api.NodeOrderFn) api.NodeOrderFn {
				return func(task *api.TaskInfo, node *api.NodeInfo) (float64, error) {
					score, err := used(task, node)
					other, _ := own(task, node)
					hook := "NodeOrder"
					if score != other && math.Abs(score-other) <= 1e-12*math.Max(math.Abs(score), math.Abs(other)) {
						hook = "NodeOrder, last bits"
					}
					note(hook, score == other, func() string { return describe(task, node) }, score, other)
					return score, err
				}
			}),
		wrap(session, "jobOrderFns", name, hooks.jobOrder, hooks.jobOrder != nil, session.AddJobOrderFn, compared(note, "JobOrder")),
		wrap(session, "queueOrderFns", name, hooks.queueOrder, hooks.queueOrder != nil, session.AddQueueOrderFn, compared(note, "QueueOrder")),
		wrap(session, "preemptableFns", name, hooks.preemptable, hooks.preemptable != nil, session.AddPreemptableFn, chosen(note, "Preemptable")),
		wrap(session, "reclaimableFns", name, hooks.reclaimable, hooks.reclaimable != nil, session.AddReclaimableFn, chosen(note, "Reclaimable")),
		wrap(session, "allocatableFns", name, hooks.allocatable, hooks.allocatable != nil, session.AddAllocatableFn,
			func(used, own api.AllocatableFn) api.AllocatableFn {
				return func(queue *api.QueueInfo, task *api.TaskInfo) bool {
					verdict, other := used(queue, task), own(queue, task)
					note("Allocatable", verdict == other, func() string { return task.Name }, verdict, other)
					return verdict
				}
			}),
		wrap(session, "jobEnqueueableFns", name, hooks.enqueueable, hooks.enqueueable != nil, session.AddJobEnqueueableFn,
			func(used, own api.VoteFn) api.VoteFn {
				return func(job any) int {
					vote, other := used(job), own(job)
					note("JobEnqueueable", vote == other, func() string { return job.(*api.JobInfo).Name }, vote, other)
					return vote
				}
			}),
	} {
		if err != nil {
			return err
		}
	}
	if hooks.enqueued != nil {
		session.AddJobEnqueuedFn(name, hooks.enqueued)
	}
	return nil
}

type noting = func(hook string, same bool, query func() string, used, own any)

func compared(note noting, hook string) func(used, own api.CompareFn) api.CompareFn {
	return func(used, own api.CompareFn) api.CompareFn {
		return func(left, right any) int {
			order, other := used(left, right), own(left, right)
			note(hook, sign(order) == sign(other), func() string { return nameOf(left) + " and " + nameOf(right) }, order, other)
			return order
		}
	}
}

func sign(value int) int {
	return min(1, max(-1, value))
}

func nameOf(record any) string {
	switch record := record.(type) {
	case *api.JobInfo:
		return string(record.UID)
	case *api.QueueInfo:
		return record.Name
	default:
		return fmt.Sprint(record)
	}
}

func chosen(note noting, hook string) func(used, own api.EvictableFn) api.EvictableFn {
	return func(used, own api.EvictableFn) api.EvictableFn {
		return func(preemptor *api.TaskInfo, candidates []*api.TaskInfo) ([]*api.TaskInfo, int) {
			victims, vote := used(preemptor, candidates)
			others, otherVote := own(preemptor, candidates)
			same := vote == otherVote && slices.Equal(names(victims), names(others))
			hook := hook
			if len(victims)+len(others) > 0 {
				hook += ", with victims"
			}
			note(hook, same, func() string { return fmt.Sprintf("%s among %v", preemptor.Name, names(candidates)) },
				fmt.Sprint(names(victims), vote), fmt.Sprint(names(others), otherVote))
			return victims, vote
		}
	}
}

func names(tasks []*api.TaskInfo) (list []string) {
	for _, task := range tasks {
		list = append(list, task.Namespace+"/"+task.Name)
	}
	return list
}

// sameFit: both fit, or both refuse with the same codes and reasons.
func sameFit(one, other error) bool {
	left, isLeft := one.(*api.FitError)
	right, isRight := other.(*api.FitError)
	if !isLeft || !isRight {
		return one == nil && other == nil
	}
	return slices.EqualFunc(left.Status, right.Status, func(left, right *api.Status) bool {
		return left.Code == right.Code && left.Reason == right.Reason
	})
}
