package kubescheduler

import (
	"context"
	"fmt"
	"testing"

	"github.com/pumice-scheduler/pumice/clients/go/internal/testserver"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// spreading ranks nodes by the default constraints of topology spread alone.
const spreading = `{apiVersion: kubescheduler.config.k8s.io/v1, kind: KubeSchedulerConfiguration, profiles: [{schedulerName: spreading,
	plugins: {multiPoint: {disabled: [{name: '*'}], enabled: [{name: PodTopologySpread, weight: 2}]}}}]}`

// webPods are pods that a Service selects: count without a node, and one on n1.
func webPods(count int) []*corev1.Pod {
	pods := []*corev1.Pod{testPod("web-old", "n1", "1", 0)}
	for number := range count {
		pods = append(pods, testPod(fmt.Sprintf("web-%d", number), "", "1", 0))
	}
	for _, pod := range pods {
		pod.Labels = map[string]string{"app": "web"}
	}
	return pods
}

// startWeb starts a bench with these pods, their Service and two nodes, under the policy that spreads them.
func startWeb(t *testing.T, pods []*corev1.Pod) *bench {
	t.Helper()
	server := testserver.Start(t)
	reload(t, admin(t, server.Address), spreading)
	nodes := []*corev1.Node{testNode("n1", "10", 0), testNode("n2", "10", 0)}
	for _, node := range nodes {
		node.Labels = map[string]string{corev1.LabelHostname: node.Name, corev1.LabelTopologyZone: "zone-of-" + node.Name}
	}
	bench := start(t, arguments(server.Address, ""), nodes, pods)
	service := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Name: "web", Namespace: "default", UID: types.UID("web")}, Spec: corev1.ServiceSpec{Selector: map[string]string{"app": "web"}}}
	if _, err := bench.client.CoreV1().Services("default").Create(context.Background(), service, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	// The object that the scheduler has, of which a record was made before the Service came.
	eventually(t, "the Service is known", func() bool {
		pod, err := bench.mirror().listed.Pods("default").Get(pods[1].Name)
		if err != nil {
			return false
		}
		task, _, err := bench.mirror().signed(pod)
		return err == nil && task.GetConstraints().GetOwnerSelector().GetMatchLabels()["app"] == "web"
	})
	return bench
}

// TestThePodsOfAnOwnerAreSpread: the service takes nothing from the record that it has of a pod, so that the question names the selector.
func TestThePodsOfAnOwnerAreSpread(t *testing.T) {
	pods := webPods(1)
	bench := startWeb(t, pods)
	// In two ways of asking: with a verdict by Filter and scores by Score, and again once the plugin has seen scores of the policy.
	for range 2 {
		// kube-scheduler's plugin has 9 for n1 and 6 for n2 before it normalises: 100 × (9 + 6 − 9) ÷ 9.
		bench.cycle(pods[1]).want(t, Name, map[string]int64{"n1": 66, "n2": 100})
	}
}
