package cycle

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	pumice "github.com/pumice-scheduler/pumice/clients/go"
	pb "github.com/pumice-scheduler/pumice/clients/go/pumicev1"

	"google.golang.org/protobuf/proto"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// amountTexts are different amounts, some of them near each other.
var amountTexts = []string{"0", "1", "1m", "0.0001", "0.0002", "2", "2000m", "9e18", "18E", "123456789012345678901234567890", "1Gi", "-1"}

// mutations change one thing that a record may be made of.
type mutation[O any] struct {
	name  string
	apply func(object O, dice *rand.Rand)
}

func drawn(dice *rand.Rand, of ...string) string { return of[dice.IntN(len(of))] }

func drawnAmounts(dice *rand.Rand, names ...string) corev1.ResourceList {
	list := corev1.ResourceList{}
	for _, name := range names {
		if dice.IntN(3) > 0 {
			list[corev1.ResourceName(name)] = resource.MustParse(drawn(dice, amountTexts...))
		}
	}
	return list
}

var nodeMutations = []mutation[*corev1.Node]{
	{"name", func(node *corev1.Node, dice *rand.Rand) { node.Name = drawn(dice, "n1", "n2") }},
	{"uid", func(node *corev1.Node, dice *rand.Rand) { node.UID = types.UID(drawn(dice, "", "u1", "u2")) }},
	{"labels", func(node *corev1.Node, dice *rand.Rand) {
		node.Labels = map[string]string{drawn(dice, "a", "b"): drawn(dice, "a", "b"), "c": drawn(dice, "", "a")}
	}},
	{"allocatable", func(node *corev1.Node, dice *rand.Rand) {
		node.Status.Allocatable = drawnAmounts(dice, "cpu", "memory", "example.com/gpu")
	}},
	{"no allocatable", func(node *corev1.Node, _ *rand.Rand) { node.Status.Allocatable = nil }},
	{"unschedulable", func(node *corev1.Node, dice *rand.Rand) { node.Spec.Unschedulable = dice.IntN(2) == 0 }},
	{"taints", func(node *corev1.Node, dice *rand.Rand) {
		node.Spec.Taints = []corev1.Taint{{Key: drawn(dice, "own", corev1.TaintNodeUnschedulable), Effect: corev1.TaintEffectNoSchedule}}
	}},
	{"ready", func(node *corev1.Node, dice *rand.Rand) {
		node.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionStatus(drawn(dice, "True", "False"))}}
	}},
	{"oversubscription", func(node *corev1.Node, dice *rand.Rand) {
		node.Annotations = map[string]string{"volcano.sh/oversubscription-" + drawn(dice, "cpu", "memory"): drawn(dice, "1", "2", "no")}
	}},
}

var podMutations = []mutation[*corev1.Pod]{
	{"name", func(pod *corev1.Pod, dice *rand.Rand) { pod.Name = drawn(dice, "p1", "p2") }},
	{"namespace", func(pod *corev1.Pod, dice *rand.Rand) { pod.Namespace = drawn(dice, "a", "b") }},
	{"uid", func(pod *corev1.Pod, dice *rand.Rand) { pod.UID = types.UID(drawn(dice, "u1", "u2")) }},
	{"creation", func(pod *corev1.Pod, dice *rand.Rand) {
		pod.CreationTimestamp = metav1.NewTime(time.Unix(int64(dice.IntN(3)), 0))
	}},
	{"nominated", func(pod *corev1.Pod, dice *rand.Rand) { pod.Status.NominatedNodeName = drawn(dice, "", "n1", "n2") }},
	{"node", func(pod *corev1.Pod, dice *rand.Rand) { pod.Spec.NodeName = drawn(dice, "", "n1") }},
	{"annotations", func(pod *corev1.Pod, dice *rand.Rand) {
		pod.Annotations = map[string]string{"volcano.sh/resource-strategy-weight": drawn(dice, "1", "2"), "other": drawn(dice, "1", "2")}
	}},
	{"card", func(pod *corev1.Pod, dice *rand.Rand) {
		pod.Annotations = map[string]string{annotationCard: drawn(dice, "A", "A|B")}
	}},
	{"ports", func(pod *corev1.Pod, dice *rand.Rand) {
		pod.Spec.Containers = []corev1.Container{{Name: "c", Ports: []corev1.ContainerPort{{HostPort: int32(dice.IntN(2))}}}}
	}},
	{"selector", func(pod *corev1.Pod, _ *rand.Rand) { pod.Spec.NodeSelector = map[string]string{"a": "b"} }},
	{"volumes", func(pod *corev1.Pod, _ *rand.Rand) {
		pod.Spec.Volumes = []corev1.Volume{{VolumeSource: corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{}}}}
	}},
	{"limits", func(pod *corev1.Pod, dice *rand.Rand) {
		pod.Spec.Containers = []corev1.Container{{Name: "c", Resources: corev1.ResourceRequirements{Limits: drawnAmounts(dice, "cpu", "nvidia.com/gpu")}}}
	}},
	{"limits in force", func(pod *corev1.Pod, dice *rand.Rand) {
		pod.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "c", Resources: &corev1.ResourceRequirements{Limits: drawnAmounts(dice, "nvidia.com/gpu")}}}
	}},
	{"overhead", func(pod *corev1.Pod, dice *rand.Rand) {
		pod.Spec.Overhead = drawnAmounts(dice, "cpu", "nvidia.com/gpu")
	}},
	{"sidecar", func(pod *corev1.Pod, dice *rand.Rand) {
		always := corev1.ContainerRestartPolicyAlways
		pod.Spec.InitContainers = []corev1.Container{{Name: "i", RestartPolicy: &always, Resources: corev1.ResourceRequirements{Limits: drawnAmounts(dice, "nvidia.com/gpu")}}}
	}},
}

// differ walks through random changes and checks that whenever the record of an object changes, so does its fingerprint,
// and that a copy has the same fingerprint.
func differ[O interface{ DeepCopy() O }](t *testing.T, object O, mutations []mutation[O], record func(O) string, print func(O) Fingerprint) {
	t.Helper()
	dice := rand.New(rand.NewPCG(1, 2))
	seen := map[Fingerprint]string{}
	records := map[string]bool{}
	for range 20_000 {
		mutation := mutations[dice.IntN(len(mutations))]
		mutation.apply(object, dice)
		made, own := record(object), print(object)
		if before, known := seen[own]; known && before != made {
			t.Fatalf("one fingerprint of two records, after a change of %s:\n%s\n%s", mutation.name, before, made)
		}
		if print(object.DeepCopy()) != own {
			t.Fatal("a copy has another fingerprint", made)
		}
		seen[own], records[made] = made, true
	}
	if len(records) < 500 {
		t.Fatal("too few records", len(records))
	}
	t.Logf("%d records, %d fingerprints", len(records), len(seen))
}

func nodeText(node *corev1.Node) string {
	record, err := pumice.NodeRecord(node)
	if record != nil {
		FillFromNode(record, node)
	}
	return textOf(record, err)
}

func podText(pod *corev1.Pod) string {
	record := &pb.Task{Name: pod.Namespace + "/" + pod.Name, Uid: string(pod.UID)}
	err := FillFromPod(record, pod)
	return textOf(record, err)
}

func textOf(record proto.Message, err error) string {
	text, failed := proto.MarshalOptions{Deterministic: true}.Marshal(record)
	return fmt.Sprintf("%q %t %v", text, err == nil, failed)
}

func TestARecordChangesWithItsFingerprintOnly(t *testing.T) {
	ofNode := func(node *corev1.Node) (sum Fingerprint) { sum.Node(node); return sum }
	ofPod := func(pod *corev1.Pod) (sum Fingerprint) { sum.Pod(pod); return sum }
	t.Run("nodes", func(t *testing.T) {
		differ(t, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n"}}, nodeMutations, nodeText, ofNode)
	})
	t.Run("pods", func(t *testing.T) {
		differ(t, &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "p"}}, podMutations, podText, ofPod)
	})
	// From an API server: each change has a version of its own, but for what Volcano changes in place.
	version := 0
	t.Run("versions of nodes", func(t *testing.T) {
		versioned := append([]mutation[*corev1.Node]{}, nodeMutations...)
		for at, own := range versioned {
			versioned[at].apply = func(node *corev1.Node, dice *rand.Rand) {
				if own.apply(node, dice); own.name != "allocatable" && own.name != "no allocatable" {
					version++
					node.ResourceVersion = fmt.Sprint(version)
				}
			}
		}
		differ(t, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n", ResourceVersion: "0"}}, versioned, nodeText, ofNode)
	})
	t.Run("versions of pods", func(t *testing.T) {
		versioned := append([]mutation[*corev1.Pod]{}, podMutations...)
		for at, own := range versioned {
			versioned[at].apply = func(pod *corev1.Pod, dice *rand.Rand) {
				if own.apply(pod, dice); own.name != "nominated" && own.name != "node" {
					version++
					pod.ResourceVersion = fmt.Sprint(version)
				}
			}
		}
		differ(t, &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "p", ResourceVersion: "0"}}, versioned, podText, ofPod)
	})
}

func TestAmountsThatAreEqualHaveOneFingerprint(t *testing.T) {
	of := func(text string) (sum Fingerprint) {
		sum.Amounts(corev1.ResourceList{"cpu": resource.MustParse(text)})
		return sum
	}
	if of("2") != of("2000m") || of("0.0001") == of("0.0002") || of("18E") == of("17E") {
		t.Error("amounts are not told apart by their values")
	}
}
