package kubescheduler

import (
	"context"
	"slices"
	"time"

	pb "github.com/pumice-scheduler/pumice/clients/go/pumicev1"

	"google.golang.org/protobuf/types/known/timestamppb"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// GroupLabel names the pod group of a pod, as the plugin Coscheduling reads it.
const GroupLabel = "scheduling.x-k8s.io/pod-group"

// queueLabel names the queue of a pod group whose API has no field for it.
const queueLabel = "scheduling.volcano.sh/queue-name"

// volcanoAnnotations name the pod group of a pod, as Volcano reads them.
var volcanoAnnotations = []string{"scheduling.k8s.io/group-name", "scheduling.volcano.sh/group-name"}

// groupOf returns the pod group of a pod, "namespace/name"; empty: the pod names none. Volcano's annotations come before
// spec.schedulingGroup and the label of Coscheduling.
func groupOf(pod *corev1.Pod) string {
	if group := annotatedGroup(pod); group != "" {
		return group
	}
	return plainGroup(pod)
}

// annotatedGroup returns the pod group that Volcano's annotations name.
func annotatedGroup(pod *corev1.Pod) string {
	for _, key := range volcanoAnnotations {
		if name := pod.Annotations[key]; name != "" {
			return pod.Namespace + "/" + name
		}
	}
	return ""
}

// plainGroup returns the pod group that a pod names elsewhere than in Volcano's annotations.
func plainGroup(pod *corev1.Pod) string {
	if isOfScheduling(pod) {
		return pod.Namespace + "/" + *pod.Spec.SchedulingGroup.PodGroupName
	}
	if name := pod.Labels[GroupLabel]; name != "" {
		return pod.Namespace + "/" + name
	}
	return ""
}

// isOfScheduling reports whether a pod names a PodGroup of scheduling.k8s.io.
func isOfScheduling(pod *corev1.Pod) bool {
	group := pod.Spec.SchedulingGroup
	return group != nil && group.PodGroupName != nil && *group.PodGroupName != ""
}

// podGroup is a pod group that this scheduler watches, and sends as a job.
type podGroup struct {
	uid types.UID
	// minimum is the least number of pods with which the group starts.
	minimum int32
}

// groupSeen takes in a pod group, and puts its pods again when it is new.
func (mirror *mirror) groupSeen(object metav1.Object, minimum, priority int32) {
	name := object.GetNamespace() + "/" + object.GetName()
	made := &pb.Cluster{}
	queue := object.GetLabels()[queueLabel]
	if queue == "" {
		// A queue of this source's own: one of another source, such as Volcano's `default`, may be missing, or come later.
		queue = mirror.source
		made.Queues = []*pb.Queue{{Name: queue}}
	}
	mirror.mutex.Lock()
	defer mirror.mutex.Unlock()
	before, found := mirror.groups[name]
	mirror.groups[name] = podGroup{object.GetUID(), minimum}
	record := &pb.Job{
		Name: name, Uid: string(object.GetUID()), Queue: queue, MinMember: minimum, Priority: priority,
		Annotations: object.GetAnnotations(), Phase: pb.JobPhase_JOB_PHASE_INQUEUE,
	}
	if created := object.GetCreationTimestamp(); !created.IsZero() {
		record.CreationTime = timestamppb.New(created.Time)
	}
	made.Jobs = []*pb.Job{record}
	mirror.feed.Put(made)
	if !found || before.uid != object.GetUID() {
		mirror.putMembers(name)
	}
	mirror.changed()
}

// groupGone forgets a pod group; its pods go on without one.
func (mirror *mirror) groupGone(object metav1.Object) {
	name := object.GetNamespace() + "/" + object.GetName()
	mirror.mutex.Lock()
	defer mirror.mutex.Unlock()
	if mirror.groups[name].uid != object.GetUID() {
		return
	}
	delete(mirror.groups, name)
	mirror.feed.Remove(&pb.Removals{Jobs: []string{name}})
	mirror.putMembers(name)
	mirror.changed()
}

// putMembers writes the records of a group's pods again. The lock is held.
func (mirror *mirror) putMembers(group string) {
	for uid := range mirror.members[group] {
		if pod, found := mirror.pods[uid]; found {
			mirror.remake(pod)
		}
	}
}

// minimumOf is the least number of pods of a group that this scheduler watches; false: it watches no such group.
func (mirror *mirror) minimumOf(group string) (int32, bool) {
	mirror.mutex.Lock()
	defer mirror.mutex.Unlock()
	known, found := mirror.groups[group]
	return known.minimum, found
}

// index notes the group of a pod. The lock is held.
func (mirror *mirror) index(pod *corev1.Pod) {
	group := groupOf(pod)
	if group == "" {
		return
	}
	if mirror.members[group] == nil {
		mirror.members[group] = map[types.UID]struct{}{}
	}
	mirror.members[group][pod.UID] = struct{}{}
}

// unindex forgets the group of a pod. The lock is held.
func (mirror *mirror) unindex(pod *corev1.Pod) {
	group := groupOf(pod)
	delete(mirror.members[group], pod.UID)
	if len(mirror.members[group]) == 0 {
		delete(mirror.members, group)
	}
}

// waitingMembers returns the pods of a group that may be given a node now and are of one scheduling profile, and how many have one.
func (mirror *mirror) waitingMembers(group, profile string) (waiting []*corev1.Pod, placed int) {
	mirror.mutex.Lock()
	defer mirror.mutex.Unlock()
	for uid := range mirror.members[group] {
		pod := mirror.pods[uid]
		_, given := mirror.assumed[uid]
		switch {
		case pod == nil || pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed:
		case pod.Spec.NodeName != "" || given:
			placed++
		case mayBePlaced(pod) && pod.Spec.SchedulerName == profile:
			waiting = append(waiting, pod)
		}
	}
	return waiting, placed
}

// mayBePlaced reports whether kube-scheduler would give a pod without a node one.
func mayBePlaced(pod *corev1.Pod) bool {
	return pod.DeletionTimestamp == nil && len(pod.Spec.SchedulingGates) == 0
}

// Why a pod of a group no longer comes.
const (
	isDeleted = "is deleted"
	hasLeft   = "names another group, or none"
)

// left says why a pod of a group no longer comes; empty: it may come.
func (mirror *mirror) left(pod *corev1.Pod) string {
	mirror.mutex.Lock()
	defer mirror.mutex.Unlock()
	newest, found := mirror.pods[pod.UID]
	switch {
	case !found || newest.DeletionTimestamp != nil:
		return isDeleted
	case groupOf(newest) != groupOf(pod):
		return hasLeft
	}
	return ""
}

// catchUp is the most that a request about stored pods waits for them: kube-scheduler's own handlers may hear of a pod earlier.
const catchUp = 200 * time.Millisecond

// has waits until these pods, and the group if it is one of this scheduler's, have been seen; false: they were not in time.
func (mirror *mirror) has(ctx context.Context, group string, pods []*corev1.Pod) bool {
	for limit := time.Now().Add(catchUp); ; {
		if mirror.hasNow(group, pods) {
			return true
		}
		select {
		case <-ctx.Done():
			return false
		case <-time.After(2 * time.Millisecond):
		}
		if time.Now().After(limit) {
			return false
		}
	}
}

// hasNow reports whether these pods have been seen; an empty group always has been.
func (mirror *mirror) hasNow(group string, pods []*corev1.Pod) bool {
	mirror.mutex.Lock()
	defer mirror.mutex.Unlock()
	if _, found := mirror.groups[group]; group != "" && !found {
		return false
	}
	return !slices.ContainsFunc(pods, func(pod *corev1.Pod) bool { return mirror.pods[pod.UID] == nil })
}
