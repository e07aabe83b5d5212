package kubescheduler

import (
	"testing"

	pumice "github.com/pumice-scheduler/pumice/clients/go"
	"github.com/pumice-scheduler/pumice/clients/go/derive"
	pb "github.com/pumice-scheduler/pumice/clients/go/pumicev1"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// TestARecordIsThatOfTheNewestObject: what is kept equals what is derived anew, whatever others did to a copy.
func TestARecordIsThatOfTheNewestObject(t *testing.T) {
	bench := start(t, arguments("127.0.0.1:1", ""), nil, nil)
	mirror := profiles.plugin(bench.framework).hub.mirror
	check := func(pod *corev1.Pod) {
		t.Helper()
		wanted, err := pumice.TaskRecord(pod, derive.AsKubernetes)
		if err != nil {
			t.Fatal(err)
		}
		for range 2 {
			record, signed, err := mirror.signed(pod)
			if err != nil || !proto.Equal(record, wanted) {
				t.Fatalf("%v\n%v\n%v", record, wanted, err)
			}
			if now, err := signature(wanted); err != nil || signed != now {
				t.Fatal("the signature is that of another record", err)
			}
			record.Node, record.Name, record.UnevaluatedFields = "elsewhere", "other", append(record.UnevaluatedFields, "more")
			if record.Constraints != nil {
				record.Constraints.NodeSelector = map[string]string{"other": "yes"}
			}
		}
	}
	pod := testPod("a", "", "1", 1)
	pod.Spec.NodeSelector = map[string]string{"zone": "a"}
	check(pod)
	mirror.podSeen(pod)
	if len(mirror.derived) != 1 {
		t.Fatal("the record of a waiting pod is not kept")
	}
	check(pod)
	changed := pod.DeepCopy()
	changed.Spec.Containers[0].Resources.Requests["cpu"] = resource.MustParse("2")
	check(changed)
	mirror.podSeen(changed)
	check(changed)
	check(pod)
	placed := changed.DeepCopy()
	placed.Spec.NodeName = "n1"
	mirror.podSeen(placed)
	check(placed)
	if len(mirror.derived) != 0 {
		t.Fatal("records of placed pods are kept")
	}
	mirror.podSeen(pod)
	mirror.podGone(pod)
	if len(mirror.derived) != 0 {
		t.Fatal("records of deleted pods are kept")
	}
}

// TestARecordServesCopiesOfItsObject: kube-scheduler tries a pod again by a copy of the object that it has.
func TestARecordServesCopiesOfItsObject(t *testing.T) {
	bench := start(t, arguments("127.0.0.1:1", ""), nil, nil)
	mirror := bench.mirror()
	pod := testPod("a", "", "1", 1)
	pod.ResourceVersion = "7"
	mirror.podSeen(pod)
	mirror.derived[pod.UID].record.Role = "of the first object"
	serves := func(change func(*corev1.Pod)) bool {
		other := pod.DeepCopy()
		change(other)
		record, _, err := mirror.signed(other)
		if err != nil {
			t.Fatal(err)
		}
		return record.Role == "of the first object"
	}
	if !serves(func(*corev1.Pod) {}) {
		t.Error("the record of a copy is made again")
	}
	for name, change := range map[string]func(*corev1.Pod){
		"a newer object":        func(pod *corev1.Pod) { pod.ResourceVersion = "8" },
		"one without a version": func(pod *corev1.Pod) { pod.ResourceVersion = "" },
		"one on a node":         func(pod *corev1.Pod) { pod.Spec.NodeName = "n1" },
		"a nominated one":       func(pod *corev1.Pod) { pod.Status.NominatedNodeName = "n1" },
	} {
		if serves(change) {
			t.Error(name)
		}
	}
}

// TestAnOwnerIsFoundByItsName: one that was made again has another uid than the pods name.
func TestAnOwnerIsFoundByItsName(t *testing.T) {
	bench := start(t, arguments("127.0.0.1:1", ""), nil, nil)
	mirror, app := bench.mirror(), "first"
	set := &appsv1.ReplicaSet{ObjectMeta: metav1.ObjectMeta{Name: "web", Namespace: "default", UID: "new"}}
	mirror.owners = pumice.Owners{ReplicaSet: func(string, string) (*appsv1.ReplicaSet, error) {
		found := set.DeepCopy()
		found.Spec.Selector = &metav1.LabelSelector{MatchLabels: map[string]string{"app": app}}
		return found, nil
	}}
	pod, controls := testPod("a", "", "1", 0), true
	pod.OwnerReferences = []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "ReplicaSet", Name: "web", UID: "old", Controller: &controls}}
	mirror.podSeen(pod)
	check := func(wanted string) {
		t.Helper()
		record, _, err := mirror.signed(pod)
		if err != nil || record.GetConstraints().GetOwnerSelector().GetMatchLabels()["app"] != wanted {
			t.Fatal(record, err)
		}
	}
	check("first")
	app = "second"
	mirror.ownerSeen(&appsv1.ReplicaSet{ObjectMeta: metav1.ObjectMeta{Name: "other", Namespace: "default", UID: "old"}})
	// Nothing that the pod names has changed.
	check("first")
	mirror.ownerSeen(set)
	check("second")
}

// TestEveryFieldIsCopied: a field that is added to the protocol is copied, too.
func TestEveryFieldIsCopied(t *testing.T) {
	record := &pb.Task{Constraints: &pb.PodConstraints{}}
	for _, message := range []protoreflect.Message{record.ProtoReflect(), record.Constraints.ProtoReflect()} {
		fields := message.Descriptor().Fields()
		for at := range fields.Len() {
			field := fields.Get(at)
			switch {
			case field.IsList() && field.Kind() == protoreflect.MessageKind:
				message.Mutable(field).List().AppendMutable()
			case field.Kind() == protoreflect.MessageKind && !field.IsMap() && message.Has(field):
			default:
				fill(message, field)
			}
			if !message.Has(field) {
				t.Fatalf("%s has no value", field.Name())
			}
		}
	}
	if copied := copyOf(record); !proto.Equal(copied, record) {
		t.Fatalf("%v\n%v", copied, record)
	}
}
