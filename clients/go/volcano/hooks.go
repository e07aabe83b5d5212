package volcano

import (
	"slices"
	"strings"

	"github.com/pumice-scheduler/pumice/clients/go/cycle"

	"volcano.sh/volcano/pkg/scheduler/api"
	"volcano.sh/volcano/pkg/scheduler/framework"
	"volcano.sh/volcano/pkg/scheduler/plugins/util"
)

// hooks are a plugin's functions; nil where it has none.
type hooks struct {
	name         string
	prePredicate api.PrePredicateFn
	predicate    api.PredicateFn
	nodeOrder    api.NodeOrderFn
	bestNode     api.BestNodeFn
	jobOrder     api.CompareFn
	queueOrder   api.CompareFn
	preemptable  api.EvictableFn
	reclaimable  api.EvictableFn
	allocatable  api.AllocatableFn
	enqueueable  api.VoteFn
	enqueued     api.JobEnqueuedFn
}

// hooksOf are the functions that a plugin has in Volcano, and PrePredicate, where Pumice is asked.
func hooksOf(name string, running *running) *hooks {
	made := &hooks{name: name, prePredicate: func(task *api.TaskInfo) error {
		running.endNomination()
		err := running.cycle.Prepare(running.task(task))
		if err == nil {
			running.nominate(task)
		}
		return err
	}}
	switch name {
	case "resource-strategy-fit":
		made.predicate, made.nodeOrder = running.predicate(name), running.nodeOrder(name)
	case "binpack":
		made.nodeOrder = running.nodeOrder(name)
	case "drf":
		made.jobOrder, made.preemptable = running.jobOrder(name), running.victims(name, cycle.Preempt)
		if hierarchy(running.session) {
			made.queueOrder, made.reclaimable = running.queueOrder(name), running.victims(name, cycle.Reclaim)
		}
	case "capacity-card":
		made.predicate, made.nodeOrder = running.predicate(name), running.nodeOrder(name)
		made.queueOrder, made.allocatable = running.queueOrder(name), running.allocatable(name)
		made.enqueueable = running.enqueueable(name)
		made.enqueued = func(job any) { running.cycle.Enqueued(string(job.(*api.JobInfo).UID)) }
		made.preemptable, made.reclaimable = running.victims(name, cycle.Preempt), running.victims(name, cycle.Reclaim)
	}
	if made.nodeOrder != nil {
		made.bestNode = running.bestNode()
	}
	return made
}

// hierarchy is decided by the first entry, as in Volcano.
func hierarchy(session *framework.Session) bool {
	for _, tier := range session.Tiers {
		for _, option := range tier.Plugins {
			if option.Name == "drf" {
				return option.EnabledHierarchy != nil && *option.EnabledHierarchy
			}
		}
	}
	return false
}

func (hooks *hooks) register(session *framework.Session) {
	session.AddPrePredicateFn(hooks.name, hooks.prePredicate)
	if hooks.predicate != nil {
		session.AddPredicateFn(hooks.name, hooks.predicate)
	}
	if hooks.nodeOrder != nil {
		session.AddNodeOrderFn(hooks.name, hooks.nodeOrder)
		session.AddBestNodeFn(hooks.name, hooks.bestNode)
	}
	if hooks.jobOrder != nil {
		session.AddJobOrderFn(hooks.name, hooks.jobOrder)
	}
	if hooks.queueOrder != nil {
		session.AddQueueOrderFn(hooks.name, hooks.queueOrder)
	}
	if hooks.preemptable != nil {
		session.AddPreemptableFn(hooks.name, hooks.preemptable)
	}
	if hooks.reclaimable != nil {
		session.AddReclaimableFn(hooks.name, hooks.reclaimable)
	}
	if hooks.allocatable != nil {
		session.AddAllocatableFn(hooks.name, hooks.allocatable)
	}
	if hooks.enqueueable != nil {
		session.AddJobEnqueueableFn(hooks.name, hooks.enqueueable)
		session.AddJobEnqueuedFn(hooks.name, hooks.enqueued)
	}
}

func (running *running) predicate(name string) api.PredicateFn {
	return func(task *api.TaskInfo, node *api.NodeInfo) error {
		rejection := running.cycle.Fits(name, running.task(task), node.Name)
		if rejection == nil {
			return nil
		}
		status := &api.Status{Code: api.Unschedulable, Reason: rejection.Reason(), Plugin: name}
		if running.quiet {
			// The in-tree plugins have no codes.
			status.Reason = rejection.Message
		}
		if rejection.Unresolvable {
			status.Code = api.UnschedulableAndUnresolvable
		}
		return api.NewFitErrWithStatus(task, node, status)
	}
}

func (running *running) nodeOrder(name string) api.NodeOrderFn {
	return func(task *api.TaskInfo, node *api.NodeInfo) (float64, error) {
		// A node without a score has 0: PrePredicate and Predicate have failed for it.
		score, _ := running.cycle.Score(name, running.task(task), node.Name)
		return score, nil
	}
}

// bestNode follows a plan as long as the other plugins leave the planned node among the candidates.
func (running *running) bestNode() api.BestNodeFn {
	return func(task *api.TaskInfo, scores map[float64][]*api.NodeInfo) *api.NodeInfo {
		known := running.task(task)
		best := running.cycle.PlannedNode(known, func() []string { return running.pending(task) })
		if best == "" {
			return nil
		}
		for _, nodes := range scores {
			for _, node := range nodes {
				if node.Name == best {
					return node
				}
			}
		}
		running.cycle.DropPlan(known.Job)
		return nil
	}
}

// pending are the tasks of a job that wait, in the order in which the session takes them, the given one first.
func (running *running) pending(first *api.TaskInfo) []string {
	var waiting []*api.TaskInfo
	for _, task := range running.session.Jobs[first.Job].TaskStatusIndex[api.Pending] {
		if task.UID != first.UID && !task.SchGated && !task.Resreq.IsEmpty() {
			waiting = append(waiting, task)
		}
	}
	slices.SortFunc(waiting, func(left, right *api.TaskInfo) int {
		switch {
		case running.session.TaskOrderFn(left, right):
			return -1
		case running.session.TaskOrderFn(right, left):
			return 1
		default:
			return strings.Compare(left.Name, right.Name)
		}
	})
	names := []string{first.Namespace + "/" + first.Name}
	for _, task := range waiting {
		names = append(names, task.Namespace+"/"+task.Name)
	}
	return names
}

func (running *running) jobOrder(name string) api.CompareFn {
	return func(left, right any) int {
		return running.cycle.CompareJobs(name, string(left.(*api.JobInfo).UID), string(right.(*api.JobInfo).UID))
	}
}

func (running *running) queueOrder(name string) api.CompareFn {
	return func(left, right any) int {
		return running.cycle.CompareQueues(name, left.(*api.QueueInfo).Name, right.(*api.QueueInfo).Name)
	}
}

// victims are those of the given candidates that may be evicted, in the given order.
func (running *running) victims(name string, kind cycle.VictimKind) api.EvictableFn {
	return func(preemptor *api.TaskInfo, candidates []*api.TaskInfo) ([]*api.TaskInfo, int) {
		names := make([]string, 0, len(candidates))
		for _, candidate := range candidates {
			names = append(names, candidate.Namespace+"/"+candidate.Name)
		}
		chosen, voting := running.cycle.Victims(name, kind, running.task(preemptor), names, func() [][]string {
			return running.candidates(preemptor, candidates)
		})
		if !voting {
			return nil, util.Abstain
		}
		var victims []*api.TaskInfo
		for _, at := range chosen {
			victims = append(victims, candidates[at])
		}
		return victims, util.Permit
	}
}

// candidates are the tasks of each node that Volcano will probably ask about, after the candidates of one node: of the same
// relation to the preemptor, and in the same states. A list that it does not ask about is not used.
func (running *running) candidates(preemptor *api.TaskInfo, like []*api.TaskInfo) (lists [][]string) {
	type relation struct {
		ownJob, ownQueue bool
		status           api.TaskStatus
	}
	jobs := running.session.Jobs
	relationOf := func(task *api.TaskInfo) (relation, bool) {
		job, own := jobs[task.Job], jobs[preemptor.Job]
		if job == nil || own == nil {
			return relation{}, false
		}
		return relation{task.Job == preemptor.Job, job.Queue == own.Queue, task.Status}, true
	}
	wanted := map[relation]bool{}
	for _, task := range like {
		if found, known := relationOf(task); known {
			wanted[found] = true
		}
	}
	for _, node := range running.session.Nodes {
		var list []string
		for _, task := range node.Tasks {
			if found, known := relationOf(task); known && wanted[found] && task.Preemptable {
				list = append(list, task.Namespace+"/"+task.Name)
			}
		}
		if len(list) > 0 {
			lists = append(lists, list)
		}
	}
	return lists
}

func (running *running) allocatable(name string) api.AllocatableFn {
	return func(queue *api.QueueInfo, task *api.TaskInfo) bool {
		asked := running.task(task)
		asked.Queue = queue.Name
		running.rejected = nil
		permitted := running.cycle.Allocatable(name, asked)
		if !permitted {
			running.explainTask(task)
		}
		return permitted
	}
}

func (running *running) enqueueable(name string) api.VoteFn {
	return func(job any) int {
		return running.cycle.Enqueueable(string(job.(*api.JobInfo).UID))[name]
	}
}
