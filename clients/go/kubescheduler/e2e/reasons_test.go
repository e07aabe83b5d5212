//go:build e2e

package e2e

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os/exec"
	"strings"
	"testing"

	"github.com/pumice-scheduler/pumice/clients/go/internal/testserver"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// TestReasonsStandWherePeopleLook: a pod that waits says why, in a condition and an event, written by one of two servers.
func TestReasonsStandWherePeopleLook(t *testing.T) {
	cluster := &live{cluster: startCluster(t)}
	ctx := context.Background()
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "pumice"}}
	if _, err := cluster.client.CoreV1().Namespaces().Create(ctx, namespace, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	cluster.config = cluster.kubeconfig("live", cluster.account(account))
	cluster.apply("deploy/kustomize/live/access.yaml")
	cluster.apply("deploy/kustomize/live/reasons/access.yaml")
	cluster.addNode("node-0")
	cluster.addGang()
	cluster.waits("huge", "elsewhere", "1000", nil)
	cluster.waits("other", "default-scheduler", "1000", nil)
	cluster.waits("train-0", "volcano", "1000", map[string]string{"scheduling.k8s.io/group-name": "train"})

	servers := []*watched{}
	for range 2 {
		servers = append(servers, cluster.serve("--explain-pods-of", "elsewhere,volcano"))
	}
	for _, server := range servers {
		cluster.until("the server is ready", func() error { return get(http.DefaultClient, server.page+"/readyz", "") })
	}
	cluster.until("the pod says why it waits", func() error { return cluster.says("huge", servers[0]) })
	cluster.until("the pod of the gang says why it waits", func() error { return cluster.says("train-0", servers[0]) })
	cluster.until("the gang says why it waits", cluster.gangSays)
	if err := cluster.says("other", servers[0]); err == nil {
		t.Fatal("a pod of another scheduler is explained")
	}
	lease, err := cluster.client.CoordinationV1().Leases("pumice").Get(ctx, "pumice-reasons", metav1.GetOptions{})
	if err != nil || lease.Spec.HolderIdentity == nil || *lease.Spec.LeaseTransitions != 1 {
		t.Fatal(lease, err)
	}
	// A pod that gets a node waits no longer.
	binding := &corev1.Binding{ObjectMeta: metav1.ObjectMeta{Name: "huge"}, Target: corev1.ObjectReference{Kind: "Node", Name: "node-0"}}
	if err := cluster.client.CoreV1().Pods("default").Bind(ctx, binding, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	cluster.until("the pod says that it has a node", func() error { return cluster.waitsNoLonger("huge") })
	// The holder goes, and the other one goes on.
	holder := *lease.Spec.HolderIdentity
	for _, server := range servers {
		if strings.HasPrefix(holder, fmt.Sprintf("pumice-%d-", server.server.Process())) {
			server.server.Kill()
		}
	}
	cluster.waits("later", "elsewhere", "500", nil)
	cluster.until("the other server writes", func() error {
		for _, server := range servers {
			if err := cluster.says("later", server); err == nil {
				return nil
			}
		}
		return errors.New("no reason")
	})
}

// waits makes a pod that fits nowhere.
func (live *live) waits(name, scheduler, cpu string, annotations map[string]string) {
	(&scheduledCluster{cluster: live.cluster}).create(pod(name, scheduler, cpu, 0, annotations))
}

const (
	podGroups = "/apis/scheduling.volcano.sh/v1beta1/namespaces/default/podgroups"
	queues    = "/apis/scheduling.volcano.sh/v1beta1/queues"
)

// addGang makes a pod group, of a kind with a status of its own, as Volcano's is.
func (live *live) addGang() {
	live.apply("deploy/check/volcano_kinds.yaml")
	status := []byte(`[{"op": "add", "path": "/spec/versions/0/subresources", "value": {"status": {}}}]`)
	kind := "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/podgroups.scheduling.volcano.sh"
	if err := live.client.RESTClient().Patch(types.JSONPatchType).AbsPath(kind).Body(status).Do(context.Background()).Error(); err != nil {
		live.t.Fatal(err)
	}
	live.until("a queue can be made", func() error {
		return live.create(queues, `{"apiVersion": "scheduling.volcano.sh/v1beta1", "kind": "Queue", "metadata": {"name": "team"}, "spec": {"weight": 1}, "status": {"state": "Open"}}`)
	})
	live.until("a pod group can be made", func() error {
		return live.create(podGroups, `{"apiVersion": "scheduling.volcano.sh/v1beta1", "kind": "PodGroup", "metadata": {"name": "train"}, "spec": {"queue": "team", "minMember": 1}}`)
	})
	live.until("pod groups have a status", func() error {
		phase := []byte(`{"status": {"phase": "Inqueue", "conditions": [{"type": "Scheduled", "status": "True"}]}}`)
		return live.client.RESTClient().Patch(types.MergePatchType).AbsPath(podGroups + "/train/status").Body(phase).Do(context.Background()).Error()
	})
}

// gangSays wants the condition of the pod group beside that of others, and an event.
func (live *live) gangSays() error {
	text, err := live.client.RESTClient().Get().AbsPath(podGroups + "/train").DoRaw(context.Background())
	if err != nil {
		return err
	}
	var group struct {
		Status struct {
			Conditions []struct{ Type, Message string }
		}
	}
	if err := json.Unmarshal(text, &group); err != nil {
		return err
	}
	conditions := group.Status.Conditions
	if len(conditions) != 2 || conditions[0].Type != "Scheduled" || conditions[1].Type != "PumiceSchedulable" || conditions[1].Message == "" {
		return errors.New(string(text))
	}
	events, err := live.client.CoreV1().Events("default").List(context.Background(), metav1.ListOptions{FieldSelector: "involvedObject.kind=PodGroup"})
	if err != nil || len(events.Items) != 1 || events.Items[0].Message != conditions[1].Message {
		return fmt.Errorf("%v %v", events, err)
	}
	return nil
}

// waitsNoLonger wants a condition that is true.
func (live *live) waitsNoLonger(name string) error {
	found, err := live.client.CoreV1().Pods("default").Get(context.Background(), name, metav1.GetOptions{})
	if err != nil {
		return err
	}
	for _, condition := range found.Status.Conditions {
		if condition.Type == "PumiceSchedulable" && condition.Status == corev1.ConditionTrue && condition.Reason == "Scheduled" {
			return nil
		}
	}
	return fmt.Errorf("%v", found.Status.Conditions)
}

// says wants a condition and one event that say what the command says.
func (live *live) says(name string, server *watched) error {
	target := []string{"explain", "task", "default/" + name}
	if name == "train-0" {
		target = []string{"explain", "job", "default/train"}
	}
	output, err := exec.Command(testserver.Binary(), append(target, "--server", "http://"+server.server.Address, "-o", "json")...).Output()
	if err != nil {
		return fmt.Errorf("%w: %s", err, output)
	}
	found, err := live.client.CoreV1().Pods("default").Get(context.Background(), name, metav1.GetOptions{})
	if err != nil {
		return err
	}
	message := ""
	for _, condition := range found.Status.Conditions {
		if condition.Type == "PumiceSchedulable" {
			message = condition.Message
		}
	}
	sentence, _, _ := strings.Cut(message, ";")
	if sentence == "" || !strings.Contains(string(output), sentence) {
		return fmt.Errorf("the condition says %q, and the command %s", message, output)
	}
	events, err := live.client.CoreV1().Events("default").List(context.Background(), metav1.ListOptions{FieldSelector: "involvedObject.name=" + name})
	if err != nil || len(events.Items) != 1 || events.Items[0].Message != message || events.Items[0].Source.Component != "pumice" {
		return fmt.Errorf("%v %v", events, err)
	}
	return nil
}
