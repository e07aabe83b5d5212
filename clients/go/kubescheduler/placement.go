package kubescheduler

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	fwk "k8s.io/kube-scheduler/framework"
)

const gangKey fwk.StateKey = Name + "/gang"

// inPlacement lists the nodes of the placement that a pod group's own cycle tries.
type inPlacement interface {
	ListNodesInPlacement() ([]fwk.NodeInfo, error)
}

// joinInGroupCycle places all pods of a group at the first of them. kube-scheduler judges the pods of a PodGroup in one cycle, on
// each placement by itself: each has a gang of its own.
func (plugin *Plugin) joinInGroupCycle(ctx context.Context, state fwk.CycleState, pod *corev1.Pod, cycle *cycle, group string) (*gang, *fwk.Status) {
	attempt := attemptOf(state)
	if attempt == nil || pod.Spec.SchedulingGroup == nil || pod.Spec.SchedulingGroup.PodGroupName == nil {
		return nil, nil
	}
	known, err := attempt.Read(gangKey)
	if err != nil {
		made, status := plugin.placeInGroupCycle(ctx, pod, cycle, group, *pod.Spec.SchedulingGroup.PodGroupName)
		if status != nil {
			return nil, status
		}
		attempt.Write(gangKey, made)
		known = made
	}
	found := known.(*gang)
	switch _, placed := found.nodes[pod.UID]; {
	case found.rejected != nil:
		plugin.wait(pod)
		return nil, found.rejected
	case len(found.nodes) == 0:
		// No gang: its pods are judged one by one.
		return nil, nil
	case !placed:
		return nil, fwk.NewStatus(fwk.Unschedulable, "the other pods of pod group "+group+" take the room")
	}
	return found, nil
}

// placeInGroupCycle asks for nodes for the pods of a group that kube-scheduler has in its cycle.
func (plugin *Plugin) placeInGroupCycle(ctx context.Context, pod *corev1.Pod, cycle *cycle, group, name string) (*gang, *fwk.Status) {
	lister := plugin.handle.SnapshotSharedLister()
	current, err := lister.PodGroupStates().Get(pod.Namespace, name)
	if err != nil {
		return nil, fwk.AsStatus(fmt.Errorf("pod group %s: %w", group, err))
	}
	members := []*corev1.Pod{}
	for _, member := range current.UnscheduledPods() {
		if mayBePlaced(member) {
			members = append(members, member)
		}
	}
	plugin.hub.mirror.has(ctx, group, members)
	if minimum, known := plugin.hub.mirror.minimumOf(group); !known || minimum <= 1 {
		return newGang(plugin.hub, plugin.handle, group, nil), nil
	}
	nodes, err := lister.NodeInfos().List()
	if placement, limits := lister.(inPlacement); limits && err == nil {
		nodes, err = placement.ListNodesInPlacement()
	}
	if err != nil {
		return nil, fwk.AsStatus(err)
	}
	made, err := plugin.place(ctx, group, members, nodes, nil)
	if err != nil {
		if status := plugin.withoutGang(pod, cycle, err); status != nil {
			return nil, status
		}
		return newGang(plugin.hub, plugin.handle, group, nil), nil
	}
	return made, nil
}
