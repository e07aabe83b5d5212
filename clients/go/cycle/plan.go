package cycle

import (
	"context"

	pumice "pumice/clients/go"
	pb "pumice/clients/go/pumicev1"
)

// plan is where Place puts the tasks of a job, by task.
type plan struct {
	nodes map[string]string
}

// follows says whether a task has a place in a plan, so that nothing has to be asked for it.
func (cycle *Cycle) follows(task Task) bool {
	planned := cycle.plans[task.Job]
	return planned != nil && planned.nodes[task.Name] != ""
}

// planned keeps plans that are followed, and drops the others.
func (cycle *Cycle) planned(verb Verb, task Task, node string) {
	for job, plan := range cycle.plans {
		if verb == Allocated && job == task.Job && plan.nodes[task.Name] == node {
			delete(plan.nodes, task.Name)
			if len(plan.nodes) > 0 {
				continue
			}
		}
		delete(cycle.plans, job)
	}
}

// Best is the node that Place would give a task, with those of its job that wait as well; empty if there is no plan, or it
// has no place for the task: then the best score decides. One question per job, as long as the scheduler follows. Pending
// names tasks of the job in the order in which they will be placed, this one among them.
func (cycle *Cycle) Best(task Task, pending func() []string) string {
	cycle.mutex.Lock()
	defer cycle.mutex.Unlock()
	if !cycle.scheduler.settings.Plans || task.Job == "" || cycle.away != nil {
		return ""
	}
	if planned := cycle.plans[task.Job]; planned != nil {
		return planned.nodes[task.Name]
	}
	groups := cycle.groups(pending())
	none := uint32(0)
	response, err := ask(cycle, func(ctx context.Context) (pumice.Reply[*pb.PlaceResponse], error) {
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

// groups puts tasks of one class that follow each other together.
func (cycle *Cycle) groups(names []string) (groups []*pb.TaskGroup) {
	last := ""
	for _, name := range names {
		told := cycle.scheduler.mirror.tasks[name]
		if told == nil {
			continue
		}
		if class := told.classOf(cycle.quotas); len(groups) == 0 || class != last {
			last = class
			groups = append(groups, &pb.TaskGroup{})
		}
		group := groups[len(groups)-1]
		group.Names = append(group.Names, name)
	}
	return groups
}

// Forget drops the plan of a job that the scheduler does not follow.
func (cycle *Cycle) Forget(job string) {
	cycle.mutex.Lock()
	defer cycle.mutex.Unlock()
	delete(cycle.plans, job)
}
