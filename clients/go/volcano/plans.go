package volcano

import (
	v1 "k8s.io/api/core/v1"
	"volcano.sh/volcano/pkg/scheduler/api"
)

// nomination is the node of a plan, written into a copy of a task's pod. Volcano tries a nominated node before all others,
// and looks at no other one if it fits: with its sampling of nodes, a planned node would often not be looked at.
type nomination struct {
	task *api.TaskInfo
	pod  *v1.Pod
}

// nominate lets Volcano look at the planned node of a task first.
func (running *running) nominate(task *api.TaskInfo) {
	if running.quiet || !running.cycle.Plans() || task.Pod == nil || task.Pod.Status.NominatedNodeName != "" {
		return
	}
	best := running.cycle.PlannedNode(running.task(task), func() []string { return running.pending(task) })
	if best == "" {
		return
	}
	// The session shares the pod with the scheduler's cache, which must not see the nomination.
	nominated := *task.Pod
	nominated.Status.NominatedNodeName = best
	running.nominated = &nomination{task: task, pod: task.Pod}
	task.Pod = &nominated
}

// endNomination gives the last nominated task its own pod back, before anybody writes it.
func (running *running) endNomination() {
	if last := running.nominated; last != nil {
		last.task.Pod, running.nominated = last.pod, nil
	}
}
