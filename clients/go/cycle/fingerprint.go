package cycle

import (
	"hash/maphash"
	"math"
	"slices"
	"strings"

	"github.com/pumice-scheduler/pumice/clients/go/derive"
	pb "github.com/pumice-scheduler/pumice/clients/go/pumicev1"

	"google.golang.org/protobuf/types/known/timestamppb"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// Fingerprint is a hash of what records are made of, valid within one process. It reads content and no address: objects
// may be copied, or replaced by equal ones. An object from an API server is read by its uid and resource version, which
// changes with every change of it; one without a version is read field by field. The zero value is the fingerprint of
// nothing.
type Fingerprint uint64

var seed = maphash.MakeSeed()

// Number adds a number. The order of additions counts.
func (sum *Fingerprint) Number(value uint64) {
	// Each bit of the sum and the value decides about each bit of the result: numbers that differ in a few bits are common.
	hash := (uint64(*sum) + 0x9e3779b97f4a7c15) ^ value
	hash = (hash ^ hash>>32) * 0xd6e8feb86659fd93
	hash = (hash ^ hash>>32) * 0xd6e8feb86659fd93
	*sum = Fingerprint(hash ^ hash>>32)
}

// Float adds a number.
func (sum *Fingerprint) Float(value float64) {
	sum.Number(math.Float64bits(value))
}

// Text adds a text.
func (sum *Fingerprint) Text(text string) {
	sum.Number(maphash.String(seed, text))
}

// Flag adds an optional switch.
func (sum *Fingerprint) Flag(value *bool) {
	switch {
	case value == nil:
		sum.Number(0)
	case *value:
		sum.Number(1)
	default:
		sum.Number(2)
	}
}

// Element adds an element of a set: the order of such additions does not count.
func (sum *Fingerprint) Element(other Fingerprint) {
	*sum += other
}

// Amounts adds amounts; absent and empty differ.
func (sum *Fingerprint) Amounts(list corev1.ResourceList) {
	if list == nil {
		sum.Number(1)
		return
	}
	var set Fingerprint
	var digits [32]byte
	for name, quantity := range list {
		var own Fingerprint
		own.Text(string(name))
		number, suffix := quantity.CanonicalizeBytes(digits[:0])
		own.Number(maphash.Bytes(seed, number))
		own.Number(maphash.Bytes(seed, suffix))
		set.Element(own)
	}
	sum.Number(uint64(set))
}

// Annotations adds the annotations that served plugins read.
func (sum *Fingerprint) Annotations(all map[string]string) {
	var set Fingerprint
	for key, value := range all {
		if strings.HasPrefix(key, annotationPrefix) {
			set.Element(pair(key, value))
		}
	}
	sum.Number(uint64(set))
}

func pair(key, value string) (own Fingerprint) {
	own.Text(key)
	own.Text(value)
	return own
}

// object adds the version of an object, and reports whether it has one.
func (sum *Fingerprint) object(uid types.UID, version string) bool {
	sum.Text(string(uid))
	sum.Text(version)
	return version != ""
}

// Node adds what pumice.NodeRecord reads.
func (sum *Fingerprint) Node(node *corev1.Node) {
	// Volcano adds the limits of storage drivers, which are another object's.
	sum.Amounts(node.Status.Allocatable)
	if sum.object(node.UID, node.ResourceVersion) {
		return
	}
	sum.Text(node.Name)
	var labels Fingerprint
	for key, value := range node.Labels {
		labels.Element(pair(key, value))
	}
	sum.Number(uint64(labels))
	sum.Flag(&node.Spec.Unschedulable)
	sum.texts(unsentNodeFields(node))
	sum.Annotations(node.Annotations)
	ready := slices.IndexFunc(node.Status.Conditions, func(condition corev1.NodeCondition) bool { return condition.Type == corev1.NodeReady })
	if ready >= 0 {
		sum.Text(string(node.Status.Conditions[ready].Status))
	}
}

func (sum *Fingerprint) texts(list []string) {
	sum.Number(uint64(len(list)))
	for _, text := range list {
		sum.Text(text)
	}
}

// Pod adds the pod's name, uid, and what FillFromPod reads.
func (sum *Fingerprint) Pod(pod *corev1.Pod) {
	// Volcano changes the node and the nominated node in place. Amounts beyond 64 bits are others on a node.
	assigned := pod.Spec.NodeName != ""
	sum.Flag(&assigned)
	sum.Text(pod.Status.NominatedNodeName)
	if sum.object(pod.UID, pod.ResourceVersion) {
		return
	}
	sum.Text(pod.Namespace)
	sum.Text(pod.Name)
	sum.Annotations(pod.Annotations)
	sum.texts(unsentPodFields(pod))
	if !pod.CreationTimestamp.IsZero() {
		sum.Number(uint64(pod.CreationTimestamp.UnixNano()))
	}
	if _, cards := pod.Annotations[annotationCard]; cards {
		effective, err := derive.Effective(pod, derive.AsVolcano)
		var set Fingerprint
		for name, amount := range effective.Limits {
			set.Element(pair(name, amount))
		}
		sum.Number(uint64(set))
		sum.Flag(&effective.Bounded)
		if err != nil {
			// Which of several wrong amounts the error names is chance.
			sum.Number(1)
		}
	}
}

// FillFromNode leaves out of a node's record what the plugins that a scheduler hands over do not read, and names it.
func FillFromNode(record *pb.Node, node *corev1.Node) {
	record.Taints, record.Images, record.Devices, record.UnevaluatedFields = nil, nil, nil, unsentNodeFields(node)
}

// FillFromPod fills a task's record with what its pod says, and the scheduler does not keep beside it.
func FillFromPod(task *pb.Task, pod *corev1.Pod) error {
	task.NominatedNode, task.Annotations = pod.Status.NominatedNodeName, ReadAnnotations(pod.Annotations)
	task.UnevaluatedFields = unsentPodFields(pod)
	if !pod.CreationTimestamp.IsZero() {
		task.CreationTime = timestamppb.New(pod.CreationTimestamp.Time)
	}
	if _, cards := pod.Annotations[annotationCard]; cards {
		// Cards are counted by limits: without them, the task would hold none.
		effective, err := derive.Effective(pod, derive.AsVolcano)
		if err != nil {
			return err
		}
		if len(effective.Limits) > 0 {
			task.Limits = &pb.ResourceList{Items: effective.Limits}
		}
		if effective.Bounded {
			task.UnevaluatedFields = append(task.UnevaluatedFields, derive.UnreadAmounts)
		}
	}
	return nil
}

// annotationPrefix begins the annotations that served plugins read.
const annotationPrefix = "volcano.sh/"

// ReadAnnotations are the annotations that served plugins read; nil: none.
func ReadAnnotations(all map[string]string) map[string]string {
	var read map[string]string
	for key, value := range all {
		if strings.HasPrefix(key, annotationPrefix) {
			if read == nil {
				read = map[string]string{}
			}
			read[key] = derive.ValidText(value)
		}
	}
	return read
}
