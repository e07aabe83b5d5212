//go:build e2e

package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strconv"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	extender "k8s.io/kube-scheduler/extender/v1"
)

// TestMeasureOfTheExtender compares pods per second of a stock kube-scheduler that asks Pumice with those of one that asks an extender
// which takes every node, pair by pair. EXTENDER_PAIRS is the number of pairs; without it nothing is measured.
func TestMeasureOfTheExtender(t *testing.T) {
	pairs, err := strconv.Atoi(os.Getenv("EXTENDER_PAIRS"))
	if err != nil {
		t.Skip("EXTENDER_PAIRS names no number of pairs")
	}
	cluster := &live{cluster: startCluster(t)}
	cluster.config = cluster.kubeconfig("live", cluster.account(account))
	cluster.apply("deploy/kustomize/live/access.yaml")
	server := cluster.serve("--extender-max-score", "1000")
	scheduled := &scheduledCluster{cluster: cluster.cluster, server: server.client}
	scheduled.reload("default", quotas)
	for number := range 1000 {
		scheduled.addNode(fmt.Sprintf("node-%04d", number), "64", "256Gi", 8*int64(number%2))
	}
	cluster.until("the server is ready", func() error { return get(http.DefaultClient, server.page+"/readyz", "") })
	trivial := httptest.NewServer(http.HandlerFunc(takesAll))
	defer trivial.Close()
	pumice, other, ratios := []float64{}, []float64{}, []float64{}
	for pair := range pairs {
		speeds := map[string]float64{}
		order := []string{server.page, trivial.URL}
		if pair%2 == 1 {
			slices.Reverse(order)
		}
		for turn, page := range order {
			name := fmt.Sprintf("speed-%d-%d", pair, turn)
			speeds[page] = scheduled.speed(t, name, func() *program { return scheduled.stock(name, page, true) })
		}
		pumice, other = append(pumice, speeds[server.page]), append(other, speeds[trivial.URL])
		ratios = append(ratios, speeds[server.page]/speeds[trivial.URL])
		t.Logf("%.1f pods a second through Pumice, %.1f through an extender that takes all: %.3f", speeds[server.page], speeds[trivial.URL], ratios[pair])
	}
	for _, values := range [][]float64{pumice, other, ratios} {
		slices.Sort(values)
	}
	t.Logf("medians: %.1f and %.1f pods a second, ratio %.3f", pumice[pairs/2], other[pairs/2], ratios[pairs/2])
}

// takesAll answers every node of a request, and scores none.
func takesAll(response http.ResponseWriter, request *http.Request) {
	var asked extender.ExtenderArgs
	if err := json.NewDecoder(request.Body).Decode(&asked); err != nil {
		http.Error(response, err.Error(), http.StatusBadRequest)
		return
	}
	var result any = extender.ExtenderFilterResult{NodeNames: asked.NodeNames}
	if request.URL.Path == "/kube-scheduler/prioritize" {
		scores := extender.HostPriorityList{}
		for _, name := range *asked.NodeNames {
			scores = append(scores, extender.HostPriority{Host: name})
		}
		result = scores
	}
	response.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(response).Encode(result)
}

// speed is the number of pods that a scheduler binds in a second, of 300 that wait when it starts.
func (scheduled *scheduledCluster) speed(t *testing.T, scheduler string, start func() *program) float64 {
	t.Helper()
	const count = 300
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
	defer cancel()
	pods := scheduled.client.CoreV1().Pods("default")
	for number := range count {
		scheduled.create(pod(fmt.Sprintf("%s-%03d", scheduler, number), scheduler, "1", int64(number%2), nil))
	}
	list, err := pods.List(ctx, metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	watch, err := pods.Watch(ctx, metav1.ListOptions{ResourceVersion: list.ResourceVersion})
	if err != nil {
		t.Fatal(err)
	}
	speed := make(chan float64, 1)
	go func() {
		defer close(speed)
		bound, first := map[string]bool{}, time.Time{}
		for event := range watch.ResultChan() {
			changed, isPod := event.Object.(*corev1.Pod)
			if !isPod || changed.Spec.NodeName == "" || bound[changed.Name] {
				continue
			}
			bound[changed.Name] = true
			if first.IsZero() {
				first = time.Now()
			}
			if len(bound) == count {
				speed <- (count - 1) / time.Since(first).Seconds()
				return
			}
		}
	}()
	started := start()
	measured, all := <-speed
	watch.Stop()
	if !all {
		t.Fatal("the watch ended before all pods were bound")
	}
	started.kill()
	scheduled.forget(started)
	if err := pods.DeleteCollection(ctx, now(), metav1.ListOptions{}); err != nil {
		t.Fatal(err)
	}
	scheduled.until("the pods are gone", func() error {
		list, err := pods.List(ctx, metav1.ListOptions{})
		if err == nil && len(list.Items) > 0 {
			err = fmt.Errorf("%d are there", len(list.Items))
		}
		return err
	})
	return measured
}
