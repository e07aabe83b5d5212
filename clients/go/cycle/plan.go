package cycle

import (
	"context"

	pumice "github.com/pumice-scheduler/pumice/clients/go"
	pb "github.com/pumice-scheduler/pumice/clients/go/pumicev1"
)

// plan has the nodes that Place chose for the tasks of a job, by task.
type plan struct {
	nodes map[string]string
}

// hasPlan reports whether a plan has a node for a task, which therefore needs no call.
func (cycle *Cycle) hasPlan(task Task) bool {
	planned := cycle.plans[task.Job]
	return planned != nil && planned.nodes[task.Name] != ""
}

// planned keeps a plan that the scheduler follows and drops all others.
func (cycle *Cycle) planned(event PlacementEvent, task Task, node string) {
	for job, plan := range cycle.plans {
		if event == Allocated && job == task.Job && plan.nodes[task.Name] == node {
			delete(plan.nodes, task.Name)
			if len(plan.nodes) > 0 {
				continue
			}
		}
		delete(cycle.plans, job)
	}
}

// PlannedNode returns the node that Place chooses for a task when it places all pending tasks of the job. Empty: there is
// no plan, or it has no node for the task; then the best score decides. It makes one call per job while the scheduler
// follows the plan. Pending returns the pending tasks of the job in placement order, this one included.
func (cycle *Cycle) PlannedNode(task Task, pending func() []string) string {
	cycle.mutex.Lock()
	defer cycle.mutex.Unlock()
	if !cycle.scheduler.settings.Plans || task.Job == "" || cycle.unavailable != nil || cycle.unplanned[task.Job] {
		return ""
	}
	if planned := cycle.plans[task.Job]; planned != nil {
		return planned.nodes[task.Name]
	}
	groups := cycle.groups(pending())
	none := uint32(0)
	response, err := send(cycle, func(ctx context.Context) (pumice.Reply[*pb.PlaceResponse], error) {
		return cycle.session.Place(ctx, &pb.PlaceRequest{
			Job: &pb.Job{Name: task.Job}, Groups: groups, MinAvailable: &none, Effect: pb.PlaceEffect_PLACE_EFFECT_PREVIEW,
			IdleOnly: true,
		})
	})
	if err != nil {
		return ""
	}
	made := &plan{nodes: map[string]string{}}
	for number, group := range response.GetResult().GetGroups() {
		for at, node := range group.GetAllocated().GetNames() {
			if number < len(groups) && at < len(groups[number].GetNames()) {
				made.nodes[groups[number].GetNames()[at]] = node
			}
		}
	}
	cycle.plans[task.Job] = made
	return made.nodes[task.Name]
}

// groups makes one group of adjacent tasks of one class.
func (cycle *Cycle) groups(names []string) (groups []*pb.TaskGroup) {
	last := ""
	for _, name := range names {
		reported := cycle.scheduler.mirror.tasks[name]
		if reported == nil {
			continue
		}
		if class := reported.classOf(cycle.quotas); len(groups) == 0 || class != last {
			last = class
			groups = append(groups, &pb.TaskGroup{})
		}
		group := groups[len(groups)-1]
		group.Names = append(group.Names, name)
	}
	return groups
}

// DropPlan drops the plan of a job, because the scheduler cannot follow it. No other plan is made for the job in this cycle.
func (cycle *Cycle) DropPlan(job string) {
	cycle.mutex.Lock()
	defer cycle.mutex.Unlock()
	delete(cycle.plans, job)
	cycle.unplanned[job] = true
}

// Plans reports whether Settings.Plans is set.
func (cycle *Cycle) Plans() bool {
	return cycle.scheduler.settings.Plans
}
