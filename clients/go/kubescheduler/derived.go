package kubescheduler

import (
	pumice "github.com/pumice-scheduler/pumice/clients/go"
	"github.com/pumice-scheduler/pumice/clients/go/derive"
	pb "github.com/pumice-scheduler/pumice/clients/go/pumicev1"

	corev1 "k8s.io/api/core/v1"
)

// derivedTask is the record that was derived from an object of a pod.
type derivedTask struct {
	pod    *corev1.Pod
	record *pb.Task
}

// derive makes the record of a pod. That of a waiting pod is derived once: it is signed, filtered and put on a node by the same
// object. The lock is held.
func (mirror *mirror) derive(pod *corev1.Pod) (*pb.Task, error) {
	if known, found := mirror.derived[pod.UID]; found && known.pod == pod {
		return copyOf(known.record), nil
	}
	record, err := pumice.TaskRecord(pod, derive.AsKubernetes)
	if err != nil {
		return nil, err
	}
	if pod.Spec.NodeName == "" && mirror.pods[pod.UID] == pod {
		mirror.derived[pod.UID] = derivedTask{pod, record}
		record = copyOf(record)
	}
	return record, nil
}

// copyOf copies a record and its constraints, of which others change fields. What is below them is shared.
func copyOf(record *pb.Task) *pb.Task {
	return &pb.Task{
		Name: record.Name, Uid: record.Uid, Job: record.Job, Priority: record.Priority, Status: record.Status, Node: record.Node,
		Gated: record.Gated, NominatedNode: record.NominatedNode, Annotations: record.Annotations, Requests: record.Requests,
		Limits: record.Limits, NonzeroRequests: record.NonzeroRequests, CountedRequests: record.CountedRequests,
		CreationTime: record.CreationTime, UnevaluatedFields: record.UnevaluatedFields, Labels: record.Labels,
		Constraints: constraintsOf(record.Constraints), Role: record.Role, PriorityClassName: record.PriorityClassName,
		SchedulingGates: record.SchedulingGates, SubGroup: record.SubGroup, ContainerNonzeroRequests: record.ContainerNonzeroRequests,
		KubernetesRequests: record.KubernetesRequests, Object: record.Object, PodRules: record.PodRules,
		PriorityFromClass: record.PriorityFromClass,
	}
}

// constraintsOf copies constraints; nil: there are none.
func constraintsOf(constraints *pb.PodConstraints) *pb.PodConstraints {
	if constraints == nil {
		return nil
	}
	return &pb.PodConstraints{
		NodeSelector: constraints.NodeSelector, Affinity: constraints.Affinity, Tolerations: constraints.Tolerations,
		HostPorts: constraints.HostPorts, TopologySpreadConstraints: constraints.TopologySpreadConstraints, Images: constraints.Images,
		ImageVolumes: constraints.ImageVolumes, OwnerSelector: constraints.OwnerSelector, Devices: constraints.Devices,
	}
}
