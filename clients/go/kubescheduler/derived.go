package kubescheduler

import (
	"slices"
	"strings"
	"unique"

	pumice "github.com/pumice-scheduler/pumice/clients/go"
	"github.com/pumice-scheduler/pumice/clients/go/derive"
	pb "github.com/pumice-scheduler/pumice/clients/go/pumicev1"

	"google.golang.org/protobuf/proto"
	corev1 "k8s.io/api/core/v1"
)

// derivedTask is the record that was made of an object of a pod, its owners and its group, and the signature of the record.
type derivedTask struct {
	pod    *corev1.Pod
	record *pb.Task
	// signed is shared by equal pods; nil before it is asked for.
	signed *unique.Handle[string]
}

// isOf reports whether an object of a pod has the content of that of which the record was made. kube-scheduler tries a pod again by a copy.
func (known *derivedTask) isOf(pod *corev1.Pod) bool {
	return known != nil && (known.pod == pod ||
		known.pod.UID == pod.UID && known.pod.ResourceVersion == pod.ResourceVersion && pod.ResourceVersion != "" &&
			known.pod.Spec.NodeName == pod.Spec.NodeName && known.pod.Status.NominatedNodeName == pod.Status.NominatedNodeName)
}

// record makes the record of a pod, with what its owners tell: a question is judged by what it says itself, not by the record that the
// service has. Its job is the pod group of Volcano's annotations, or one that this scheduler watches: of any other the service would
// know nothing. The record of a waiting pod is made once, because the pod is signed, filtered and put on a node by the same object; when an
// owner or a group changes, the handler that hears of it calls remake. The lock is held.
func (mirror *mirror) record(pod *corev1.Pod) (*pb.Task, error) {
	if known := mirror.derived[pod.UID]; known.isOf(pod) {
		return copyOf(known.record), nil
	}
	record, err := pumice.TaskRecord(pod, derive.AsKubernetes)
	if err != nil {
		return nil, err
	}
	if annotatedGroup(pod) == "" {
		record.Job = ""
		if group := plainGroup(pod); group != "" {
			if _, found := mirror.groups[group]; found {
				record.Job = group
			}
		}
	}
	mirror.owners.Complete(record, pod)
	if pod.Spec.NodeName == "" && mirror.pods[pod.UID] == pod {
		mirror.derived[pod.UID] = &derivedTask{pod: pod, record: record}
		record = copyOf(record)
	}
	return record, nil
}

// underive forgets the record that was made of a pod. The lock is held.
func (mirror *mirror) underive(pod *corev1.Pod) {
	delete(mirror.derived, pod.UID)
}

// signed makes the record by which a pod is judged, and its signature.
func (mirror *mirror) signed(pod *corev1.Pod) (*pb.Task, string, error) {
	mirror.mutex.Lock()
	defer mirror.mutex.Unlock()
	record, err := mirror.record(pod)
	if err != nil {
		return nil, "", err
	}
	signed, err := mirror.signatureOf(pod, record)
	return record, signed, err
}

// signatureOf is the signature of the record of a pod, before anything in it is changed. The lock is held.
func (mirror *mirror) signatureOf(pod *corev1.Pod, record *pb.Task) (string, error) {
	known := mirror.derived[pod.UID]
	if !known.isOf(pod) {
		return signature(record)
	}
	if known.signed == nil {
		signed, err := signature(record)
		if err != nil {
			return "", err
		}
		shared := unique.Make(signed)
		known.signed = &shared
	}
	return known.signed.Value(), nil
}

// signature encodes a record without the fields that tell equal tasks apart: their name in the namespace, uid and creation time.
func signature(record *pb.Task) (string, error) {
	// A copy of the first level is enough: only fields of that level are taken out.
	signed := &pb.Task{}
	from, to := record.ProtoReflect(), signed.ProtoReflect()
	for field, value := range from.Range {
		if !slices.Contains(unsignedFields, string(field.Name())) {
			to.Set(field, value)
		}
	}
	// Terms of other pods select by namespace.
	if namespace, _, found := strings.Cut(record.GetName(), "/"); found {
		signed.Name = namespace
	}
	encoded, err := proto.MarshalOptions{Deterministic: true}.Marshal(signed)
	return string(encoded), err
}

// unsignedFields tell equal tasks apart, and no score or filter of a waiting task depends on them; of the name the namespace is signed.
var unsignedFields = []string{"name", "uid", "creation_time"}

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
		PriorityFromClass: record.PriorityFromClass, PreemptionPolicy: record.PreemptionPolicy,
		ContainerRequests: record.ContainerRequests, OwnerKind: record.OwnerKind, ScheduledTime: record.ScheduledTime,
		StartTime: record.StartTime, RoleFromLabel: record.RoleFromLabel, QosClass: record.QosClass, WithoutPriority: record.WithoutPriority,
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
