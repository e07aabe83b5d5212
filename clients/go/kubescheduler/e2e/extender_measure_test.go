//go:build e2e

package e2e

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"testing"

	extender "k8s.io/kube-scheduler/extender/v1"
)

// TestMeasureOfTheExtender compares pods per second of a stock kube-scheduler that asks Pumice with those of one that asks an extender
// which takes every node, pair by pair. EXTENDER_PAIRS is the number of pairs; without it nothing is measured.
func TestMeasureOfTheExtender(t *testing.T) {
	pairs := number("EXTENDER_PAIRS", 0)
	if pairs == 0 {
		t.Skip("EXTENDER_PAIRS names no number of pairs")
	}
	cluster := &live{cluster: startCluster(t)}
	cluster.config = cluster.kubeconfig("live", cluster.account(account))
	cluster.apply("deploy/kustomize/live/access.yaml")
	server := cluster.serve("--extender-max-score", "1000")
	measured := &scheduledCluster{cluster: cluster.cluster, server: server.client}
	measured.reload("default", quotas)
	measured.inParallel(fleetNodes, func(at int) error {
		measured.addNode(fmt.Sprintf("node-%04d", at), "64", "256Gi", 8*int64(at%2))
		return nil
	})
	cluster.until("the server is ready", func() error { return get(http.DefaultClient, server.page+"/readyz", "") })
	trivial := httptest.NewServer(http.HandlerFunc(takesAll))
	defer trivial.Close()
	binary := measured.build()
	asksPumice := measured.extenderConfig("pumice.yaml", "pumice", server.page, true, "")
	asksOther := measured.extenderConfig("other.yaml", "pumice", trivial.URL, true, "")
	pumice, other, ratios := []float64{}, []float64{}, []float64{}
	for pair := range pairs {
		configs, speeds := []string{asksPumice, asksOther}, map[string]float64{}
		for at := range configs {
			config := configs[(at+pair)%2]
			speeds[config], _ = measured.pods(t, binary, config, 300)
		}
		pumice, other = append(pumice, speeds[asksPumice]), append(other, speeds[asksOther])
		ratios = append(ratios, speeds[asksPumice]/speeds[asksOther])
		t.Logf("%.1f pods a second through Pumice, %.1f through an extender that takes all: %.3f", pumice[pair], other[pair], ratios[pair])
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
