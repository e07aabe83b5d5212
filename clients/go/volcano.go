package pumice

import (
	"encoding/json"
	"maps"

	pb "github.com/pumice-scheduler/pumice/clients/go/pumicev1"

	"google.golang.org/protobuf/types/known/timestamppb"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// defaultQueue is the queue of pod groups that name none.
const defaultQueue = "default"

// QueueRecord makes a record of a Volcano Queue. The object is Volcano's own type, the map of an unstructured object, or
// any value with the JSON of a Queue: this module does not require Volcano's.
func QueueRecord(object any) (*pb.Queue, error) {
	read := struct {
		Metadata metav1.ObjectMeta
		Spec     struct {
			Weight               *int32
			Priority             int32
			Parent               string
			Reclaimable          *bool
			Capability, Deserved corev1.ResourceList
			Guarantee            struct{ Resource corev1.ResourceList }
			Affinity             *queueAffinity
		}
		Status struct{ State string }
	}{}
	if err := readObject(object, &read, &read.Metadata); err != nil {
		return nil, err
	}
	state, known := map[string]pb.QueueState{
		"": pb.QueueState_QUEUE_STATE_UNSPECIFIED, "Open": pb.QueueState_QUEUE_STATE_OPEN, "Closed": pb.QueueState_QUEUE_STATE_CLOSED,
		"Closing": pb.QueueState_QUEUE_STATE_CLOSING, "Unknown": pb.QueueState_QUEUE_STATE_UNKNOWN,
	}[read.Status.State]
	if !known {
		return nil, fieldError("status.state", "%q is none of Open, Closed, Closing, Unknown", read.Status.State)
	}
	return &pb.Queue{
		Name: read.Metadata.Name, Uid: string(read.Metadata.UID), CreationTime: created(&read.Metadata), Annotations: read.Metadata.Annotations,
		Weight: read.Spec.Weight, Priority: read.Spec.Priority, State: state, Parent: read.Spec.Parent, Reclaimable: read.Spec.Reclaimable,
		Capability: ResourceTexts(read.Spec.Capability), Deserved: ResourceTexts(read.Spec.Deserved),
		Guarantee: ResourceTexts(read.Spec.Guarantee.Resource), Affinity: read.Spec.Affinity.message(),
	}, nil
}

// queueAffinity is spec.affinity of a Queue.
type queueAffinity struct{ NodeGroupAffinity, NodeGroupAntiAffinity *nodeGroups }

type nodeGroups struct {
	RequiredDuringSchedulingIgnoredDuringExecution, PreferredDuringSchedulingIgnoredDuringExecution []string
}

// message makes the affinity of a record; absent and empty have different meanings.
func (affinity *queueAffinity) message() *pb.QueueAffinity {
	if affinity == nil {
		return nil
	}
	lists := func(own *nodeGroups) *pb.NodeGroupLists {
		if own == nil {
			return nil
		}
		return &pb.NodeGroupLists{
			Required: own.RequiredDuringSchedulingIgnoredDuringExecution, Preferred: own.PreferredDuringSchedulingIgnoredDuringExecution,
		}
	}
	return &pb.QueueAffinity{NodeGroupAffinity: lists(affinity.NodeGroupAffinity), NodeGroupAntiAffinity: lists(affinity.NodeGroupAntiAffinity)}
}

// JobRecord makes a record of a Volcano PodGroup, which it reads as QueueRecord reads a Queue. The caller looks up the
// priority of the pod group's class: the object has only the name of the class.
func JobRecord(object any, priority int32) (*pb.Job, error) {
	read := struct {
		Metadata metav1.ObjectMeta
		Spec     struct {
			Queue        string
			MinMember    int32
			MinResources *corev1.ResourceList

			MinTaskMember  map[string]int32
			SubGroupPolicy []subGroupPolicy
		}
		Status struct{ Phase string }
	}{}
	if err := readObject(object, &read, &read.Metadata); err != nil {
		return nil, err
	}
	phase, known := map[string]pb.JobPhase{
		"": pb.JobPhase_JOB_PHASE_UNSPECIFIED, "Pending": pb.JobPhase_JOB_PHASE_PENDING, "Inqueue": pb.JobPhase_JOB_PHASE_INQUEUE,
		"Running": pb.JobPhase_JOB_PHASE_RUNNING, "Unknown": pb.JobPhase_JOB_PHASE_UNKNOWN, "Completed": pb.JobPhase_JOB_PHASE_COMPLETED,
	}[read.Status.Phase]
	if !known {
		return nil, fieldError("status.phase", "%q is none of Pending, Inqueue, Running, Unknown, Completed", read.Status.Phase)
	}
	queue := read.Spec.Queue
	if queue == "" {
		queue = defaultQueue
	}
	record := &pb.Job{
		Name: namespaced(read.Metadata.Namespace, read.Metadata.Name), Uid: string(read.Metadata.UID), Queue: queue, CreationTime: created(&read.Metadata),
		Priority: priority, Phase: phase, MinMember: read.Spec.MinMember, Annotations: jobAnnotations(&read.Metadata),
		MinTaskMember: read.Spec.MinTaskMember, SubGroupPolicies: subGroupPolicies(read.Spec.SubGroupPolicy),
	}
	if read.Spec.MinResources != nil {
		// Absent and empty have different meanings.
		record.MinResources = &pb.ResourceList{Items: map[string]string{}}
		for name, quantity := range *read.Spec.MinResources {
			record.MinResources.Items[string(name)] = quantity.String()
		}
	}
	return record, nil
}

func readObject(object, into any, metadata *metav1.ObjectMeta) error {
	if err := decode(object, into); err != nil {
		return &RecordError{Cause: err}
	}
	if metadata.Name == "" {
		return errNameless
	}
	return nil
}

// decode reads a value by its JSON.
func decode(object, into any) error {
	text, err := json.Marshal(object)
	if err != nil {
		return err
	}
	return json.Unmarshal(text, into)
}

func created(metadata *metav1.ObjectMeta) *timestamppb.Timestamp {
	if metadata.CreationTimestamp.IsZero() {
		return nil
	}
	return timestamppb.New(metadata.CreationTimestamp.Time)
}

// preemptable is the annotation or label of a pod group that says whether tasks of the job may be preempted.
const preemptable = "volcano.sh/preemptable"

// jobAnnotations are the annotations of a pod group. Its label about preemption stands for a missing annotation, as in Volcano.
func jobAnnotations(group *metav1.ObjectMeta) map[string]string {
	label, labelled := group.Labels[preemptable]
	if _, annotated := group.Annotations[preemptable]; annotated || !labelled {
		return group.Annotations
	}
	annotations := maps.Clone(group.Annotations)
	if annotations == nil {
		annotations = map[string]string{}
	}
	annotations[preemptable] = label
	return annotations
}
