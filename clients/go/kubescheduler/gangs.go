package kubescheduler

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	pumice "github.com/pumice-scheduler/pumice/clients/go"
	pb "github.com/pumice-scheduler/pumice/clients/go/pumicev1"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	fwk "k8s.io/kube-scheduler/framework"
)

const (
	// gangRest is the time for which all pods of a group share the result of an attempt that placed none.
	gangRest = time.Second
	// exclusion is the time for which a gang is not placed on a node that another plugin refused for one of its pods.
	exclusion = 30 * time.Second
)

// gangTable has the gangs that wait for their pods, and what is known of groups without one.
type gangTable struct {
	mutex   sync.Mutex
	current map[string]*gang
	groups  map[string]*groupMemory
}

// groupMemory is what is remembered of a group between attempts.
type groupMemory struct {
	// minimum is the group's least number of pods by the service; it is asked for again at the time next.
	minimum int32
	next    time.Time
	// rejected is the last attempt's status, until rest is over.
	rejected *fwk.Status
	rest     time.Time
	// released is the gang of the last attempt, if it was released after that, and releases their number in a row.
	released *gang
	releases int
	// excluded are nodes that another plugin refused, and until when.
	excluded map[string]time.Time
}

func newGangTable() *gangTable {
	return &gangTable{current: map[string]*gang{}, groups: map[string]*groupMemory{}}
}

// of finds the gang of a group.
func (table *gangTable) of(group string) *gang {
	table.mutex.Lock()
	defer table.mutex.Unlock()
	return table.current[group]
}

// begin makes a gang the group's current one.
func (table *gangTable) begin(made *gang) {
	table.mutex.Lock()
	defer table.mutex.Unlock()
	table.current[made.group] = made
}

// forget ends the time of a gang.
func (table *gangTable) forget(ended *gang) {
	table.mutex.Lock()
	defer table.mutex.Unlock()
	if table.current[ended.group] == ended {
		delete(table.current, ended.group)
	}
}

// succeed ends the time of a gang that is bound.
func (table *gangTable) succeed(bound *gang) {
	table.forget(bound)
	table.memory(bound.group, func(known *groupMemory) { known.released, known.releases = nil, 0 })
}

// fail ends the time of a gang that is released. The next attempt comes after a rest that doubles each time.
func (table *gangTable) fail(ended *gang, why string) {
	table.forget(ended)
	table.memory(ended.group, func(known *groupMemory) {
		known.released, known.rejected = ended, fwk.NewStatus(fwk.UnschedulableAndUnresolvable, why)
		known.rest = time.Now().Add(min(gangRest<<min(known.releases, 10), longestRest/2))
		known.releases++
	})
}

// podLeft releases the gang that waits for a pod which no longer comes, and says why.
func (table *gangTable) podLeft(pod *corev1.Pod, why string) {
	if waits := table.of(groupOf(pod)); waits != nil {
		if _, placed := waits.nodes[pod.UID]; placed {
			waits.release("pod group " + waits.group + " is released: pod " + pod.Name + " " + why)
		}
	}
}

// memory changes or reads what is remembered of a group. Memories that say nothing any more are dropped.
func (table *gangTable) memory(group string, use func(*groupMemory)) {
	table.mutex.Lock()
	defer table.mutex.Unlock()
	known, found := table.groups[group]
	if !found {
		if len(table.groups) >= mostMemories {
			table.dropOld()
		}
		known = &groupMemory{excluded: map[string]time.Time{}}
		table.groups[group] = known
	}
	use(known)
}

// mostMemories is the number of remembered groups from which on old ones are dropped.
const mostMemories = 10_000

// dropOld drops the memories that say nothing any more. The lock is held.
func (table *gangTable) dropOld() {
	now := time.Now()
	for group, known := range table.groups {
		for node, until := range known.excluded {
			if now.After(until) {
				delete(known.excluded, node)
			}
		}
		if now.After(known.next) && now.After(known.rest) && len(known.excluded) == 0 {
			delete(table.groups, group)
		}
	}
}

// exclude keeps a group off a node for a while.
func (table *gangTable) exclude(group, node string) {
	table.memory(group, func(known *groupMemory) { known.excluded[node] = time.Now().Add(exclusion) })
}

// minimumOf is the least number of pods of a group; 0: the service knows no such job.
func (plugin *Plugin) minimumOf(ctx context.Context, group string) (int32, error) {
	if minimum, found := plugin.hub.mirror.minimumOf(group); found {
		return minimum, nil
	}
	var minimum int32
	fresh := false
	plugin.hub.gangs.memory(group, func(known *groupMemory) { minimum, fresh = known.minimum, time.Now().Before(known.next) })
	if fresh {
		return minimum, nil
	}
	list, err := plugin.hub.client.ListJobs(ctx, &pb.ListJobsRequest{Names: []string{group}})
	if err != nil {
		return 0, err
	}
	minimum = 0
	for _, job := range list.GetJobs() {
		minimum = job.GetJob().GetMinMember()
	}
	plugin.hub.gangs.memory(group, func(known *groupMemory) {
		known.minimum, known.next = minimum, time.Now().Add(gangRest)
	})
	return minimum, nil
}

// join finds the gang of a pod, or places one. No gang and no status: the pod goes by itself.
func (plugin *Plugin) join(ctx context.Context, state fwk.CycleState, pod *corev1.Pod, cycle *cycle) (*gang, *fwk.Status) {
	group := cycle.task.GetJob()
	if !*plugin.args.Gangs || group == "" {
		return nil, nil
	}
	if state.IsPodGroupSchedulingCycle() {
		return plugin.joinInGroupCycle(ctx, state, pod, cycle, group)
	}
	if known := plugin.hub.gangs.of(group); known != nil {
		switch node, placed := known.nodes[pod.UID]; {
		case !placed:
			plugin.wait(pod)
			return nil, fwk.NewStatus(fwk.UnschedulableAndUnresolvable, "other pods of pod group "+group+" are being bound")
		case known.open() && known.try(pod.UID):
			return known, nil
		case known.open():
			plugin.hub.gangs.exclude(group, node)
			known.release("pod group " + group + " is released: kube-scheduler does not take node " + node + " for pod " + pod.Name)
		}
	}
	minimum, err := plugin.minimumOf(ctx, group)
	if err != nil {
		return nil, plugin.withoutGang(pod, cycle, err)
	}
	members, placed := plugin.hub.mirror.waitingMembers(group, pod.Spec.SchedulerName)
	if !slices.ContainsFunc(members, func(member *corev1.Pod) bool { return member.UID == pod.UID }) {
		members = append(members, pod)
	}
	if minimum <= 1 || placed >= int(minimum) {
		// Not a gang, or one that runs already.
		return nil, nil
	}
	if len(members)+placed < int(minimum) {
		plugin.wait(pod)
		return nil, fwk.NewStatus(fwk.UnschedulableAndUnresolvable, fmt.Sprintf("pod group %s has %d of the %d pods that it needs", group, len(members)+placed, minimum))
	}
	return plugin.placeGang(ctx, pod, cycle, group, members)
}

// wait adds a rejected pod to the waiting room, by the last response of the service.
func (plugin *Plugin) wait(pod *corev1.Pod) {
	plugin.hub.waiting.enter(pod, plugin.handle, plugin.args.Policy, plugin.policy.metadata.Load())
}

// placeGang asks for nodes for all members at once, and counts them on these nodes from then on.
func (plugin *Plugin) placeGang(ctx context.Context, pod *corev1.Pod, cycle *cycle, group string, members []*corev1.Pod) (*gang, *fwk.Status) {
	var rejected *fwk.Status
	excluded := &pb.NodeSet{}
	plugin.hub.gangs.memory(group, func(known *groupMemory) {
		now := time.Now()
		if now.Before(known.rest) || known.released != nil && known.released.isHeld() {
			rejected = known.rejected
		}
		for node, until := range known.excluded {
			if now.Before(until) {
				excluded.Names = append(excluded.Names, node)
			}
		}
	})
	if rejected != nil {
		plugin.wait(pod)
		return nil, rejected
	}
	slices.Sort(excluded.Names)
	nodes, err := plugin.handle.SnapshotSharedLister().NodeInfos().List()
	if err != nil {
		return nil, fwk.AsStatus(err)
	}
	made, err := plugin.place(ctx, group, members, nodes, excluded)
	if err != nil {
		return nil, plugin.withoutGang(pod, cycle, err)
	}
	if made.rejected != nil {
		plugin.hub.gangs.memory(group, func(known *groupMemory) {
			known.rejected, known.released, known.rest = made.rejected, nil, time.Now().Add(gangRest)
		})
		plugin.wait(pod)
		return nil, made.rejected
	}
	if _, placed := made.nodes[pod.UID]; !placed {
		// An elastic gang whose room is taken by the others.
		plugin.wait(pod)
	}
	placed := slices.DeleteFunc(slices.Clone(members), func(member *corev1.Pod) bool { return made.nodes[member.UID] == "" })
	plugin.hold(made, placed)
	if why := made.released(); why != "" {
		plugin.wait(pod)
		return nil, fwk.NewStatus(fwk.UnschedulableAndUnresolvable, why)
	}
	made.callBack(slices.DeleteFunc(placed, func(member *corev1.Pod) bool { return member.UID == pod.UID }))
	if _, placed := made.nodes[pod.UID]; !placed {
		return nil, fwk.NewStatus(fwk.UnschedulableAndUnresolvable, "other pods of pod group "+group+" are being bound")
	}
	made.try(pod.UID)
	return made, nil
}

// hold counts the members of a gang on their nodes, and makes the gang the group's current one.
func (plugin *Plugin) hold(made *gang, members []*corev1.Pod) {
	for _, member := range members {
		made.expect(member.UID)
		plugin.hub.mirror.reserve(member, made.nodes[member.UID], "")
	}
	plugin.hub.gangs.begin(made)
	time.AfterFunc(2*plugin.args.GangTimeout.Duration, func() {
		made.release(fmt.Sprintf("pod group %s is released: its pods did not all get their nodes within %s", made.group, 2*plugin.args.GangTimeout.Duration))
	})
	// A pod that leaves from now on finds the gang. One that left while the service placed the pods did not.
	for _, member := range members {
		if why := plugin.hub.mirror.left(member); why != "" {
			plugin.hub.gangs.podLeft(member, why)
		}
	}
}

// withoutGang is the status of a pod whose gang could not be placed because the service failed: that of Admit. None: the pod goes by
// itself.
func (plugin *Plugin) withoutGang(pod *corev1.Pod, cycle *cycle, err error) *fwk.Status {
	if status := plugin.fallbackStatus(pumice.CallAdmit, pod, cycle, err); !status.IsSkip() {
		return status
	}
	return nil
}

// place sends one Place request about the members of a group, and about those of the nodes that one of them may use.
func (plugin *Plugin) place(ctx context.Context, group string, members []*corev1.Pod, nodes []fwk.NodeInfo, excluded *pb.NodeSet) (*gang, error) {
	if !plugin.hub.mirror.has(ctx, "", members) {
		return &gang{rejected: fwk.NewStatus(fwk.UnschedulableAndUnresolvable, "not all pods of pod group "+group+" have been seen")}, nil
	}
	classes, err := plugin.memberClasses(members)
	if err != nil {
		return &gang{rejected: fwk.NewStatus(fwk.UnschedulableAndUnresolvable, err.Error())}, nil
	}
	groups := []*pb.TaskGroup{}
	for _, class := range classes {
		groups = append(groups, &pb.TaskGroup{Names: class.names})
	}
	candidates := plugin.candidates(ctx, classes, nodes)
	response, err := asking(ctx, plugin.hub, &plugin.args, func(against *pb.EvaluationRef) (pumice.Reply[*pb.PlaceResponse], error) {
		return pumice.AllowProblems(plugin.hub.client.Place(ctx, &pb.PlaceRequest{
			Against: against, Job: &pb.Job{Name: group}, Groups: groups, Candidates: candidates, Exclusions: excluded, IdleOnly: true,
			Effect: pb.PlaceEffect_PLACE_EFFECT_PREVIEW, NodeEncoding: pb.NodeEncoding_NODE_ENCODING_NAMES, Samples: new(uint32(0)),
		}))
	})
	if err != nil {
		return nil, err
	}
	replies.WithLabelValues(string(pumice.CallPlace), pumice.OriginService.String()).Inc()
	plugin.policy.see(response.GetMetadata(), nil)
	made := newGang(plugin.hub, plugin.handle, group, map[types.UID]string{})
	result := response.GetResult()
	if !result.GetPlaced() {
		gangs.WithLabelValues("rejected").Inc()
		made.rejected = notPlaced(group, len(members), result)
		return made, nil
	}
	if len(result.GetGroups()) != len(groups) {
		return nil, fmt.Errorf("the response has %d groups for %d of the request", len(result.GetGroups()), len(groups))
	}
	for at, placed := range result.GetGroups() {
		names := placed.GetAllocated().GetNames()
		if len(names) > len(classes[at].pods) {
			return nil, fmt.Errorf("the response has %d nodes for %d tasks", len(names), len(classes[at].pods))
		}
		for number, node := range names {
			made.nodes[classes[at].pods[number].UID] = node
		}
	}
	if len(made.nodes) == 0 {
		return nil, fmt.Errorf("pod group %s is placed, and no pod of it has a node", group)
	}
	gangs.WithLabelValues("placed").Inc()
	return made, nil
}

// notPlaced is the status of a gang that the service did not place.
func notPlaced(group string, members int, result *pb.PlaceResult) *fwk.Status {
	reasons := []string{}
	for _, placed := range result.GetGroups() {
		if problem := placed.GetProblem(); problem != nil {
			reasons = append(reasons, problem.GetMessage())
		}
	}
	for _, blocker := range result.GetBlockers() {
		reasons = append(reasons, said(blocker.GetReason()))
	}
	slices.Sort(reasons)
	reasons = slices.Compact(reasons)
	text := fmt.Sprintf("pod group %s: %d of its %d waiting pods find a node, and %d have to", group, result.GetPlacedCount(), members, result.GetMinCount())
	if len(reasons) > 0 {
		text += ": " + strings.Join(reasons[:min(len(reasons), 5)], "; ")
	}
	return fwk.NewStatus(fwk.UnschedulableAndUnresolvable, text)
}
