package kubescheduler

import (
	"bytes"
	"testing"

	pumice "github.com/pumice-scheduler/pumice/clients/go"
	"github.com/pumice-scheduler/pumice/clients/go/derive"
	pb "github.com/pumice-scheduler/pumice/clients/go/pumicev1"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
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
			if now, err := signature(wanted); err != nil || !bytes.Equal(signed, now) {
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
