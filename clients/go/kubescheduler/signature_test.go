package kubescheduler

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/pumice-scheduler/pumice/clients/go/internal/testserver"
	pb "github.com/pumice-scheduler/pumice/clients/go/pumicev1"

	"google.golang.org/protobuf/reflect/protoreflect"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	fwk "k8s.io/kube-scheduler/framework"
)

// sign returns the signature that kube-scheduler would compare, or why there is none.
func (bench *bench) sign(pod *corev1.Pod) ([]byte, string) {
	bench.t.Helper()
	fragments, status := profiles.plugin(bench.framework).SignPod(context.Background(), pod)
	if !status.IsSuccess() {
		if status.Code() != fwk.Unschedulable {
			bench.t.Fatal(status)
		}
		return nil, status.Message()
	}
	signed := map[string]any{}
	for _, fragment := range fragments {
		signed[fragment.Key] = fragment.Value
	}
	text, err := json.Marshal(signed)
	if err != nil {
		bench.t.Fatal(err)
	}
	return text, ""
}

func TestEqualPodsHaveEqualSignatures(t *testing.T) {
	bench := start(t, arguments("127.0.0.1:1", ""), nil, nil)
	full := func() *corev1.Pod {
		pod := testPod("a", "", "1", 1)
		pod.Labels = map[string]string{"app": "web", "tier": "front"}
		pod.Annotations = map[string]string{"volcano.sh/card.name": "A100", "other": "one"}
		pod.Spec.NodeSelector = map[string]string{"zone": "a"}
		pod.Spec.Tolerations = []corev1.Toleration{{Key: "gpu", Operator: corev1.TolerationOpExists}}
		pod.Spec.Affinity = &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{PreferredDuringSchedulingIgnoredDuringExecution: []corev1.PreferredSchedulingTerm{
			{Weight: 1, Preference: corev1.NodeSelectorTerm{MatchExpressions: []corev1.NodeSelectorRequirement{{Key: "disk", Operator: corev1.NodeSelectorOpExists}}}},
		}}}
		return pod
	}
	first, why := bench.sign(full())
	if first == nil {
		t.Fatal(why)
	}
	other := full()
	other.Name, other.UID, other.CreationTimestamp = "b", "pod-b", metav1.NewTime(time.Unix(1_800_000_000, 0))
	other.ResourceVersion = "77"
	if second, why := bench.sign(other); !bytes.Equal(first, second) {
		t.Fatalf("%s\n%s\n%s", first, second, why)
	}
	number := int32(7)
	for name, change := range map[string]func(*corev1.Pod){
		"a request":         func(pod *corev1.Pod) { pod.Spec.Containers[0].Resources.Requests["cpu"] = resource.MustParse("2") },
		"a limit":           func(pod *corev1.Pod) { pod.Spec.Containers[0].Resources.Limits["cpu"] = resource.MustParse("2") },
		"another resource":  func(pod *corev1.Pod) { pod.Spec.Containers[0].Resources.Requests["memory"] = resource.MustParse("1Gi") },
		"overhead":          func(pod *corev1.Pod) { pod.Spec.Overhead = corev1.ResourceList{"cpu": resource.MustParse("1")} },
		"an annotation":     func(pod *corev1.Pod) { pod.Annotations["volcano.sh/card.name"] = "H100" },
		"a label":           func(pod *corev1.Pod) { pod.Labels["app"] = "db" },
		"the priority":      func(pod *corev1.Pod) { pod.Spec.Priority = &number },
		"the class":         func(pod *corev1.Pod) { pod.Spec.PriorityClassName = "high" },
		"the role":          func(pod *corev1.Pod) { pod.Annotations["volcano.sh/task-spec"] = "worker" },
		"the node selector": func(pod *corev1.Pod) { pod.Spec.NodeSelector["zone"] = "b" },
		"a toleration":      func(pod *corev1.Pod) { pod.Spec.Tolerations[0].Key = "tpu" },
		"node affinity": func(pod *corev1.Pod) {
			pod.Spec.Affinity.NodeAffinity.PreferredDuringSchedulingIgnoredDuringExecution[0].Weight = 2
		},
		"a port": func(pod *corev1.Pod) {
			pod.Spec.Containers[0].Ports = []corev1.ContainerPort{{HostPort: 80, ContainerPort: 80}}
		},
		"an image":         func(pod *corev1.Pod) { pod.Spec.Containers[0].Image = "other" },
		"a nomination":     func(pod *corev1.Pod) { pod.Status.NominatedNodeName = "n1" },
		"a field not read": func(pod *corev1.Pod) { pod.Spec.ResourceClaims = []corev1.PodResourceClaim{{Name: "gpu"}} },
	} {
		pod := full()
		change(pod)
		if changed, why := bench.sign(pod); changed == nil || bytes.Equal(first, changed) {
			t.Errorf("%s does not show: %s %s", name, changed, why)
		}
	}
	for name, test := range map[string]struct {
		change func(*corev1.Pod)
		reason string
	}{
		"Volcano's group":    {func(pod *corev1.Pod) { pod.Annotations["scheduling.k8s.io/group-name"] = "g" }, unsignableGroup},
		"a scheduling group": {func(pod *corev1.Pod) { pod.Spec.SchedulingGroup = &corev1.PodSchedulingGroup{PodGroupName: new("g")} }, unsignableGroup},
		"Coscheduling's":     {func(pod *corev1.Pod) { pod.Labels[GroupLabel] = "g" }, unsignableGroup},
		"pod affinity": {func(pod *corev1.Pod) {
			pod.Spec.Affinity.PodAffinity = &corev1.PodAffinity{RequiredDuringSchedulingIgnoredDuringExecution: []corev1.PodAffinityTerm{{TopologyKey: "zone"}}}
		}, unsignableOthers},
		"pod anti-affinity": {func(pod *corev1.Pod) {
			pod.Spec.Affinity.PodAntiAffinity = &corev1.PodAntiAffinity{RequiredDuringSchedulingIgnoredDuringExecution: []corev1.PodAffinityTerm{{TopologyKey: "zone"}}}
		}, unsignableOthers},
		"topology spread": {func(pod *corev1.Pod) {
			pod.Spec.TopologySpreadConstraints = []corev1.TopologySpreadConstraint{{MaxSkew: 1, TopologyKey: "zone", WhenUnsatisfiable: corev1.DoNotSchedule}}
		}, unsignableOthers},
		"an amount below 0": {func(pod *corev1.Pod) { pod.Spec.Containers[0].Resources.Requests["cpu"] = resource.MustParse("-1") }, "-1"},
	} {
		pod := full()
		test.change(pod)
		if signed, why := bench.sign(pod); signed != nil || !strings.Contains(why, test.reason) {
			t.Errorf("%s: %s %q", name, signed, why)
		}
	}
}

// TestEveryFieldOfARecordIsSigned: a field that is added to the protocol shows, unless it is named as one that tells equal pods apart.
func TestEveryFieldOfARecordIsSigned(t *testing.T) {
	empty, err := signature(&pb.Task{})
	if err != nil || len(empty) != 0 {
		t.Fatal(empty, err)
	}
	fields := (&pb.Task{}).ProtoReflect().Descriptor().Fields()
	for at := range fields.Len() {
		field, record := fields.Get(at), &pb.Task{}
		fill(record.ProtoReflect(), field)
		signed, err := signature(record)
		if err != nil {
			t.Fatal(err)
		}
		if left := slices.Contains(unsignedFields, string(field.Name())); left != (len(signed) == 0) {
			t.Errorf("%s: left out: %t, signature %x", field.Name(), left, signed)
		}
	}
}

// fill gives a field some value.
func fill(message protoreflect.Message, field protoreflect.FieldDescriptor) {
	switch {
	case field.IsMap():
		message.Mutable(field).Map().Set(protoreflect.ValueOfString("key").MapKey(), protoreflect.ValueOfString("value"))
	case field.IsList():
		message.Mutable(field).List().Append(protoreflect.ValueOfString("one"))
	case field.Kind() == protoreflect.MessageKind:
		message.Mutable(field)
	case field.Kind() == protoreflect.StringKind:
		message.Set(field, protoreflect.ValueOfString("text"))
	case field.Kind() == protoreflect.BytesKind:
		message.Set(field, protoreflect.ValueOfBytes([]byte("text")))
	case field.Kind() == protoreflect.BoolKind:
		message.Set(field, protoreflect.ValueOfBool(true))
	case field.Kind() == protoreflect.EnumKind:
		message.Set(field, protoreflect.ValueOfEnum(1))
	case field.Kind() == protoreflect.Int32Kind:
		message.Set(field, protoreflect.ValueOfInt32(1))
	default:
		panic(fmt.Sprint("no value for ", field.Kind()))
	}
}

func TestAReloadAndAServiceThatIsAwayChangeSignatures(t *testing.T) {
	server := testserver.Start(t)
	client := admin(t, server.Address)
	reload(t, client, spread)
	pod := testPod("new", "", "1", 0)
	bench := start(t, `{"address": "`+server.Address+`", "budget": "5s", "fallback": {"filter": "FailOpen"}}`, []*corev1.Node{testNode("n1", "10", 0), testNode("n2", "10", 0)}, []*corev1.Pod{pod})
	seen := map[string]bool{}
	next := func(what string) {
		t.Helper()
		if done := bench.cycle(pod); !done.status.IsSuccess() {
			t.Fatal(done.status)
		}
		signed, why := bench.sign(pod)
		if signed == nil || seen[string(signed)] {
			t.Fatalf("%s does not show: %s %s", what, signed, why)
		}
		seen[string(signed)] = true
		if again, _ := bench.sign(pod); !bytes.Equal(signed, again) {
			t.Fatal("a pod has two signatures")
		}
	}
	next("the first policy")
	reload(t, client, pack)
	// Nodes are ranked by the former policy.
	if done := bench.cycle(pod); done.status.Message() != ChangedReason || !bench.wasActivated("default/new")() {
		t.Fatal(done.status)
	}
	next("the second policy")
	server.Kill()
	// An answer serves equal pods for a while.
	time.Sleep(foreseenAge)
	next("the service that is away")
}

func TestThePodsOfAnOwnerHaveNoSignatureWhereAPolicySpreadsThem(t *testing.T) {
	server := testserver.Start(t)
	client := admin(t, server.Address)
	reload(t, client, pack)
	service := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Name: "web", Namespace: "default", UID: types.UID("web")}, Spec: corev1.ServiceSpec{Selector: map[string]string{"app": "web"}}}
	pod := testPod("web-0", "", "1", 0)
	pod.Labels = map[string]string{"app": "web"}
	bench := start(t, arguments(server.Address, ""), []*corev1.Node{testNode("n1", "10", 0), testNode("n2", "10", 0)}, []*corev1.Pod{pod})
	if _, err := bench.client.CoreV1().Services("default").Create(context.Background(), service, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	eventually(t, "before the first score it has none", func() bool { _, why := bench.sign(pod); return why == unsignableOwner })
	if done := bench.cycle(pod); !done.status.IsSuccess() {
		t.Fatal(done.status)
	}
	if _, why := bench.sign(pod); why != "" {
		t.Fatal("the policy packs: ", why)
	}
	reload(t, client, `{actions: allocate, tiers: [{plugins: [{name: nodeorder}]}]}`)
	time.Sleep(rankingAge)
	if done := bench.cycle(pod); !done.status.IsSuccess() {
		t.Fatal(done.status)
	}
	if _, why := bench.sign(pod); why != unsignableOwner {
		t.Fatal("the policy spreads: ", why)
	}
}

func TestTheFrameworkSignsPodsOfEveryProfileOfOurs(t *testing.T) {
	for _, names := range [][]string{nil, koordinators} {
		bench := start(t, arguments("127.0.0.1:1", ""), nil, nil, names...)
		first, second := bench.framework.SignPod(context.Background(), testPod("a", "", "1", 0)), bench.framework.SignPod(context.Background(), testPod("b", "", "1", 0))
		if len(first) == 0 || !bytes.Equal(first, second) {
			t.Fatalf("%v: %s %s", names, first, second)
		}
	}
}

func TestNamespacesAreSigned(t *testing.T) {
	bench := start(t, arguments("127.0.0.1:1", ""), nil, nil)
	one, other := testPod("a", "", "1", 0), testPod("a", "", "1", 0)
	other.Namespace = "elsewhere"
	first, _ := bench.sign(one)
	if second, _ := bench.sign(other); first == nil || second == nil || string(first) == string(second) {
		t.Fatalf("%s\n%s", first, second)
	}
}
