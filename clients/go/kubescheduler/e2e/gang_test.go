//go:build e2e

package e2e

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"regexp"
	"testing"
	"time"

	"github.com/pumice-scheduler/pumice/clients/go/internal/testserver"
	pb "github.com/pumice-scheduler/pumice/clients/go/pumicev1"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	schedulingv1beta1 "k8s.io/api/scheduling/v1beta1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// gangPods is the number of pods of a gang.
const gangPods = 500

// bindsGangsWhole: a gang of 500 pods is bound whole, and while the API server refuses the binding of one of them no pod is bound.
// E2E_GANG_RUNS is the number of runs.
func (fleet *fleet) bindsGangsWhole(t *testing.T) {
	jobs := fleet.server.Feed("queues", 0)
	for run := range number("E2E_GANG_RUNS", 2) {
		name := fmt.Sprintf("gang%d", run)
		jobs.Put(&pb.Cluster{Queues: []*pb.Queue{{Name: "team"}}, Jobs: []*pb.Job{{Name: "default/" + name, Queue: "team", MinMember: gangPods, Phase: pb.JobPhase_JOB_PHASE_INQUEUE}}})
		if outcome, err := jobs.Flush(context.Background()); err != nil || len(outcome.GetRefused()) > 0 {
			t.Fatal(outcome, err)
		}
		refused := fmt.Sprintf("%s-%d", name, run*37%gangPods)
		if run%2 == 0 {
			fleet.refuseBinding(refused)
		}
		begin := time.Now()
		annotations := map[string]string{"scheduling.k8s.io/group-name": name}
		fleet.createAll(name, gangPods, func(name string) *corev1.Pod { return pod(name, "pumice", "1", 8, annotations) })
		if run%2 == 0 {
			fleet.until("the pod says that the gang was released", func() error { return fleet.said(refused, "does not take the binding of pod "+refused) })
			for range 5 {
				if bound := len(fleet.placed(name)); bound != 0 {
					t.Fatalf("%d of %d pods are bound", bound, gangPods)
				}
				time.Sleep(200 * time.Millisecond)
			}
			fleet.takeBindings()
		}
		fleet.wholeOrNothing(t, name, refused, run%2 == 0)
		t.Logf("a gang of %d pods: %s", gangPods, time.Since(begin).Round(time.Millisecond))
		fleet.remove(name, gangPods)
	}
}

// wholeOrNothing waits until the gang is bound. Once a first pod is bound the others follow without a further attempt.
func (fleet *fleet) wholeOrNothing(t *testing.T, name, pod string, released bool) {
	t.Helper()
	before := metric(t, fleet.page, `scheduler_pumice_gangs_total\{result="bound"\}`)
	fleet.until("some pod of the gang is bound", func() error {
		if len(fleet.placed(name)) == 0 {
			return errors.New("none is")
		}
		return nil
	})
	nodes := fleet.allPlaced(name, gangPods)
	if used := perNode(nodes); len(used) != gangPods {
		t.Fatalf("%d pods with eight GPUs are on %d nodes", gangPods, len(used))
	}
	if now := metric(t, fleet.page, `scheduler_pumice_gangs_total\{result="bound"\}`); now > before+1 {
		t.Fatalf("the gang of %s was bound in %.0f parts (released before: %t)", pod, now-before, released)
	}
}

// refuseBinding makes the API server refuse the binding of a pod.
func (fleet *fleet) refuseBinding(name string) {
	fleet.t.Helper()
	ctx, fail := context.Background(), admissionv1.Fail
	policy := &admissionv1.ValidatingAdmissionPolicy{
		ObjectMeta: metav1.ObjectMeta{Name: "no-binding"},
		Spec: admissionv1.ValidatingAdmissionPolicySpec{
			FailurePolicy: &fail,
			MatchConstraints: &admissionv1.MatchResources{ResourceRules: []admissionv1.NamedRuleWithOperations{{RuleWithOperations: admissionv1.RuleWithOperations{
				Operations: []admissionv1.OperationType{admissionv1.Create},
				Rule:       admissionv1.Rule{APIGroups: []string{""}, APIVersions: []string{"v1"}, Resources: []string{"pods/binding"}},
			}}}},
			Validations: []admissionv1.Validation{{Expression: fmt.Sprintf("object.metadata.name != %q", name), Message: "not this pod"}},
		},
	}
	if _, err := fleet.client.AdmissionregistrationV1().ValidatingAdmissionPolicies().Create(ctx, policy, metav1.CreateOptions{}); err != nil {
		fleet.t.Fatal(err)
	}
	binding := &admissionv1.ValidatingAdmissionPolicyBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "no-binding"},
		Spec:       admissionv1.ValidatingAdmissionPolicyBindingSpec{PolicyName: "no-binding", ValidationActions: []admissionv1.ValidationAction{admissionv1.Deny}},
	}
	if _, err := fleet.client.AdmissionregistrationV1().ValidatingAdmissionPolicyBindings().Create(ctx, binding, metav1.CreateOptions{}); err != nil {
		fleet.t.Fatal(err)
	}
	fleet.create(pod("probe-"+name, "nobody", "1", 0, nil))
	defer func() {
		if err := fleet.client.CoreV1().Pods("default").Delete(ctx, "probe-"+name, now()); err != nil {
			fleet.t.Fatal(err)
		}
	}()
	fleet.until("the API server refuses the binding", func() error {
		asked := &corev1.Binding{ObjectMeta: metav1.ObjectMeta{Name: name}, Target: corev1.ObjectReference{Kind: "Node", Name: "gpu-0000"}}
		err := fleet.client.CoreV1().Pods("default").Bind(ctx, asked, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		if apierrors.IsInvalid(err) || apierrors.IsForbidden(err) {
			return nil
		}
		return fmt.Errorf("it says %v", err)
	})
}

// takeBindings makes the API server take all bindings again.
func (fleet *fleet) takeBindings() {
	fleet.t.Helper()
	ctx := context.Background()
	err := errors.Join(
		fleet.client.AdmissionregistrationV1().ValidatingAdmissionPolicyBindings().Delete(ctx, "no-binding", metav1.DeleteOptions{}),
		fleet.client.AdmissionregistrationV1().ValidatingAdmissionPolicies().Delete(ctx, "no-binding", metav1.DeleteOptions{}),
	)
	if err != nil {
		fleet.t.Fatal(err)
	}
}

// TestPodGroupsOfKubernetesArePlacedTogether: with the gates of the release, the pods of a PodGroup are placed in one request on each
// placement, and the placements are scored in one.
func TestPodGroupsOfKubernetesArePlacedTogether(t *testing.T) {
	const gates = "GenericWorkload=true,TopologyAwareWorkloadScheduling=true"
	cluster := startCluster(t, "--feature-gates="+gates, "--runtime-config=scheduling.k8s.io/v1beta1=true")
	server := testserver.Start(t)
	scheduled := &scheduledCluster{cluster: cluster, server: dial(t, server.Address)}
	scheduled.reload("default", pack)
	for _, rack := range []string{"a", "b", "c"} {
		for at := range 4 {
			name := fmt.Sprintf("%s-%d", rack, at)
			scheduled.addNode(name, "16", "64Gi", 8)
			label := fmt.Appendf(nil, `{"metadata": {"labels": {"rack": %q}}}`, rack)
			if _, err := cluster.client.CoreV1().Nodes().Patch(context.Background(), name, types.MergePatchType, label, metav1.PatchOptions{}); err != nil {
				t.Fatal(err)
			}
		}
	}
	scheduled.flags, scheduled.verbosity = "--feature-gates "+gates, 10
	page := scheduled.startScheduler(t, "groups", server.Address)
	// Rack b is the fullest: packing chooses it for a gang that fits there.
	filler := pod("filler", "pumice", "8", 0, nil)
	filler.Spec.NodeSelector = map[string]string{"rack": "b"}
	scheduled.create(filler)
	scheduled.until("the filler is bound", func() error { return scheduled.bound("filler") })
	calls := func(method string) float64 {
		return metric(t, page, `scheduler_pumice_replies_total\{call="`+method+`",origin="service"\}`)
	}
	places, scores := calls("Place"), calls("Score")
	scheduled.groupOf("ring", 4)
	scheduled.createAll("ring", 4, func(name string) *corev1.Pod {
		made := pod(name, "pumice", "1", 8, nil)
		made.Spec.SchedulingGroup = &corev1.PodSchedulingGroup{PodGroupName: new("ring")}
		return made
	})
	nodes := perNode(scheduled.allPlaced("ring", 4))
	for node := range nodes {
		if node[0] != 'b' || len(nodes) != 4 {
			log, _ := os.ReadFile(cluster.path("kube-scheduler.log"))
			t.Fatalf("the gang is on %v\n%s", nodes, bytes.Join(regexp.MustCompile(`(?m)^.*(scored placement|final score for podGroup|Fallback used).*$`).FindAll(log, -1), []byte("\n")))
		}
	}
	if placed, scored := calls("Place")-places, calls("Score")-scores; placed != 3 || scored != 1 {
		t.Fatalf("%.0f Place requests for three placements, and %.0f Score requests", placed, scored)
	}
	// Five pods do not fit into one rack: none gets a node.
	scheduled.groupOf("large", 5)
	scheduled.createAll("large", 5, func(name string) *corev1.Pod {
		made := pod(name, "pumice", "1", 8, nil)
		made.Spec.SchedulingGroup = &corev1.PodSchedulingGroup{PodGroupName: new("large")}
		return made
	})
	// kube-scheduler ends the cycle at the first pod without a node, so that one of the pods has the reason.
	scheduled.until("the gang that does not fit says why", func() error {
		var none error
		for at := range 5 {
			if none = scheduled.said(fmt.Sprintf("large-%d", at), "of its 5 waiting pods find a node, and 5 have to"); none == nil {
				return nil
			}
		}
		return none
	})
	if found := scheduled.placed("large"); len(found) != 0 {
		t.Fatal(found)
	}
}

// groupOf makes a PodGroup that needs this number of pods, all in one rack.
func (scheduled *scheduledCluster) groupOf(name string, minimum int32) {
	scheduled.t.Helper()
	group := &schedulingv1beta1.PodGroup{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: schedulingv1beta1.PodGroupSpec{
			SchedulingPolicy:      schedulingv1beta1.PodGroupSchedulingPolicy{Gang: &schedulingv1beta1.GangSchedulingPolicy{MinCount: minimum}},
			SchedulingConstraints: &schedulingv1beta1.PodGroupSchedulingConstraints{Topology: []schedulingv1beta1.TopologyConstraint{{Key: "rack"}}},
		},
	}
	if _, err := scheduled.client.SchedulingV1beta1().PodGroups("default").Create(context.Background(), group, metav1.CreateOptions{}); err != nil {
		scheduled.t.Fatal(err)
	}
}
