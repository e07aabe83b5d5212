package pumice

import (
	"math"
	"strings"

	"github.com/pumice-scheduler/pumice/clients/go/derive"
	pb "github.com/pumice-scheduler/pumice/clients/go/pumicev1"

	"google.golang.org/protobuf/types/known/timestamppb"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

const (
	// Added to a node's cpu in milli-cores, and to its memory in bytes (Volcano ed72c7c81, node_info.go).
	oversubscribedCPU    = "volcano.sh/oversubscription-cpu"
	oversubscribedMemory = "volcano.sh/oversubscription-memory"
)

// groupAnnotations name the pod group of a pod; the first one that is present and not empty counts.
var groupAnnotations = [...]string{"scheduling.k8s.io/group-name", "scheduling.volcano.sh/group-name"}

// NodeRecord makes a record of a Kubernetes node. Its error is a *RecordError; Feed.PutNode tells the service of it.
func NodeRecord(node *corev1.Node) (*pb.Node, error) {
	if node.Name == "" {
		return nil, errNameless
	}
	record := &pb.Node{
		Name: node.Name, Uid: string(node.UID), Labels: node.Labels,
		Allocatable: ResourceTexts(node.Status.Allocatable), Unschedulable: node.Spec.Unschedulable,
		Taints: taints(node), Images: nodeImages(node),
	}
	if !node.CreationTimestamp.IsZero() {
		record.CreationTime = timestamppb.New(node.CreationTimestamp.Time)
	}
	devices, err := nodeDevices(node)
	if err != nil {
		return nil, fieldError("status.allocatable", "%w", err)
	}
	record.Devices = devices
	more := map[string]string{}
	for _, amount := range []struct{ name, key, suffix, unit string }{
		{"cpu", oversubscribedCPU, "m", "milli-cores"}, {"memory", oversubscribedMemory, "", "bytes"},
	} {
		text, found := node.Annotations[amount.key]
		if !found {
			continue
		}
		// Kubernetes' other ways of writing an amount are none of Volcano's.
		if _, err := derive.ParseQuantity(text + amount.suffix); err != nil || strings.Trim(text, "0123456789.") != "" {
			return nil, fieldError("metadata.annotations["+amount.key+"]", "`%.64s` is no number of %s: %w", text, amount.unit, derive.ErrQuantity)
		}
		more[amount.name] = text + amount.suffix
	}
	if len(more) > 0 {
		record.Oversubscription = &pb.ResourceList{Items: more}
	}
	for _, condition := range node.Status.Conditions {
		if condition.Type == corev1.NodeReady {
			ready := condition.Status == corev1.ConditionTrue
			record.Ready = &ready
			break
		}
	}
	return record, nil
}

// NamespaceRecord makes a record of a Kubernetes namespace.
func NamespaceRecord(namespace *corev1.Namespace) *pb.Namespace {
	return &pb.Namespace{Name: namespace.Name, Labels: namespace.Labels}
}

// ResourceTexts makes the amounts of a record; nil stays nil.
func ResourceTexts(list corev1.ResourceList) *pb.ResourceList {
	if list == nil {
		return nil
	}
	items := make(map[string]string, len(list))
	for name, quantity := range list {
		items[string(name)] = quantity.String()
		if quantity.Format == resource.BinarySI && quantity.Value() == math.MaxInt64 {
			// Kubernetes has cut the amount; the service refuses it as it was.
			items[string(name)] = "8Ei"
		}
	}
	return &pb.ResourceList{Items: items}
}

// preemptionPolicy of a pod. Without a class the usual policy needs no words.
func preemptionPolicy(pod *corev1.Pod, record *pb.Task) pb.PreemptionPolicy {
	switch policy := pod.Spec.PreemptionPolicy; {
	case policy == nil || *policy == "":
		return pb.PreemptionPolicy_PREEMPTION_POLICY_UNSPECIFIED
	case *policy == corev1.PreemptNever:
		return pb.PreemptionPolicy_PREEMPTION_POLICY_NEVER
	case record.PriorityClassName != "" || record.PriorityFromClass:
		return pb.PreemptionPolicy_PREEMPTION_POLICY_LOWER_PRIORITY
	}
	return pb.PreemptionPolicy_PREEMPTION_POLICY_UNSPECIFIED
}

// TaskRecord makes a record of a Kubernetes pod. Its effective requests follow the rules of the derivation. The record names `resources` as
// not evaluated if amounts are too large for a record, or a pod with a node asks for shared devices that nobody can mean. The error is a
// *RecordError; Feed.PutPod tells the service of it.
func TaskRecord(pod *corev1.Pod, derivation derive.Derivation) (*pb.Task, error) {
	if pod.Name == "" {
		return nil, errNameless
	}
	pod = derive.WithValidTexts(pod)
	effective, err := derive.Effective(pod, derivation)
	if err != nil {
		return nil, fieldError("spec", "%w", err)
	}
	devices, err := podDevices(pod)
	if err != nil && pod.Spec.NodeName == "" {
		return nil, fieldError("spec.containers[].resources.limits", "%w", err)
	}
	record := &pb.Task{
		Name: namespaced(pod.Namespace, pod.Name), Uid: string(pod.UID), Priority: effective.Priority, Status: taskStatus(pod),
		Node: pod.Spec.NodeName, Gated: len(pod.Spec.SchedulingGates) > 0, NominatedNode: pod.Status.NominatedNodeName,
		Annotations:       pod.Annotations,
		Requests:          &pb.ResourceList{Items: effective.Requests},
		NonzeroRequests:   &pb.ResourceList{Items: effective.NonzeroRequests},
		CountedRequests:   &pb.ResourceList{Items: effective.CountedRequests},
		UnevaluatedFields: derive.UnevaluatedPodFields(pod),
		Labels:            pod.Labels, Constraints: constraintsOf(pod, devices),
		Role: role(pod), PriorityClassName: pod.Spec.PriorityClassName, PriorityFromClass: effective.PriorityFromClass,
	}
	if effective.Bounded || err != nil {
		record.UnevaluatedFields = append(record.UnevaluatedFields, derive.UnreadAmounts)
	}
	record.PreemptionPolicy = preemptionPolicy(pod, record)
	for _, gate := range pod.Spec.SchedulingGates {
		record.SchedulingGates = append(record.SchedulingGates, gate.Name)
	}
	if effective.ContainerNonzeroRequests != nil {
		record.ContainerNonzeroRequests = &pb.ResourceList{Items: effective.ContainerNonzeroRequests}
	}
	if effective.KubernetesRequests != nil {
		record.KubernetesRequests = &pb.ResourceList{Items: effective.KubernetesRequests}
	}
	if len(effective.Limits) > 0 {
		record.Limits = &pb.ResourceList{Items: effective.Limits}
	}
	if !pod.CreationTimestamp.IsZero() {
		record.CreationTime = timestamppb.New(pod.CreationTimestamp.Time)
	}
	if group := groupOf(pod); group != "" {
		record.Job = namespaced(pod.Namespace, group)
	}
	if len(pod.OwnerReferences) > 0 {
		record.OwnerKind = pod.OwnerReferences[0].Kind
	}
	record.ScheduledTime = scheduledTime(pod)
	return record, nil
}

// cooldown is the label or annotation with a pod's cooldown time, for the plugin cdp of Volcano.
const cooldown = "volcano.sh/cooldown-time"

// scheduledTime is the time at which a running pod with a cooldown time was scheduled, by its first condition that says so.
func scheduledTime(pod *corev1.Pod) *timestamppb.Timestamp {
	_, annotated := pod.Annotations[cooldown]
	_, labelled := pod.Labels[cooldown]
	if !annotated && !labelled || pod.Status.Phase != corev1.PodRunning {
		return nil
	}
	for _, condition := range pod.Status.Conditions {
		if condition.Type == corev1.PodScheduled && condition.Status == corev1.ConditionTrue {
			if condition.LastTransitionTime.IsZero() {
				return nil
			}
			return timestamppb.New(condition.LastTransitionTime.Time)
		}
	}
	return nil
}

// groupOf is the pod group of a pod, without its namespace: Volcano's annotations come before the group of scheduling.k8s.io.
func groupOf(pod *corev1.Pod) string {
	for _, key := range groupAnnotations {
		if group := pod.Annotations[key]; group != "" {
			return group
		}
	}
	return derive.SchedulingGroup(pod)
}

// taskRole is the annotation, and else the label, with a task's role in its job.
const taskRole = "volcano.sh/task-spec"

func role(pod *corev1.Pod) string {
	if own := pod.Annotations[taskRole]; own != "" {
		return own
	}
	return pod.Labels[taskRole]
}

// taskStatus is the status of a pod. A pod without a phase comes from no API server; it counts as pending.
func taskStatus(pod *corev1.Pod) pb.TaskStatus {
	if pod.Status.Phase == "" {
		return pb.TaskStatus_TASK_STATUS_UNSPECIFIED
	}
	return map[string]pb.TaskStatus{
		"Pending":   pb.TaskStatus_TASK_STATUS_PENDING,
		"Bound":     pb.TaskStatus_TASK_STATUS_BOUND,
		"Running":   pb.TaskStatus_TASK_STATUS_RUNNING,
		"Releasing": pb.TaskStatus_TASK_STATUS_RELEASING,
		"Succeeded": pb.TaskStatus_TASK_STATUS_SUCCEEDED,
		"Failed":    pb.TaskStatus_TASK_STATUS_FAILED,
		"Unknown":   pb.TaskStatus_TASK_STATUS_UNKNOWN,
	}[derive.Status(pod)]
}
