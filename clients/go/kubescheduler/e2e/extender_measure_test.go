//go:build e2e

package e2e

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/pumice-scheduler/pumice/clients/go/derive"
	"github.com/pumice-scheduler/pumice/clients/go/internal/testserver"

	corev1 "k8s.io/api/core/v1"
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

// TestMeasureOfALargeBody compares the time of a filter request with 5,000 whole nodes with that of one which is refused once its JSON
// is read, because its pod has no name. EXTENDER_BODIES is the number of pairs; without it nothing is measured.
func TestMeasureOfALargeBody(t *testing.T) {
	pairs := number("EXTENDER_BODIES", 0)
	if pairs == 0 {
		t.Skip("EXTENDER_BODIES names no number of pairs")
	}
	address := "127.0.0.1:" + freePort(t)
	server := testserver.Start(t, "--http-address", address)
	feed := dial(t, server.Address).Feed("measured", 0)
	asked := largePod(0, 1)
	asked.Spec.NodeName, asked.Status = "", corev1.PodStatus{Phase: corev1.PodPending}
	if err := feed.PutPod(asked, derive.AsKubernetes); err != nil {
		t.Fatal(err)
	}
	list := &corev1.NodeList{}
	for at := range 5_000 {
		list.Items = append(list.Items, *largeNode(at))
		if err := feed.PutNode(&list.Items[at]); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := feed.Flush(context.Background()); err != nil {
		t.Fatal(err)
	}
	whole, err := json.Marshal(extender.ExtenderArgs{Pod: asked, Nodes: list})
	if err != nil {
		t.Fatal(err)
	}
	nameless := asked.DeepCopy()
	nameless.Name = ""
	refused, err := json.Marshal(extender.ExtenderArgs{Pod: nameless, Nodes: list})
	if err != nil {
		t.Fatal(err)
	}
	client := &http.Client{}
	ask := func(body []byte) (time.Duration, []byte) {
		begin := time.Now()
		response, err := client.Post("http://"+address+"/kube-scheduler/filter", "application/json", bytes.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		defer response.Body.Close()
		text, err := io.ReadAll(response.Body)
		if err != nil {
			t.Fatal(err)
		}
		return time.Since(begin), text
	}
	times, ratios := [2][]time.Duration{}, []float64{}
	for range pairs + 1 {
		parsed, why := ask(refused)
		answered, text := ask(whole)
		var result extender.ExtenderFilterResult
		if !strings.Contains(string(why), "Pod.metadata.name: empty") {
			t.Fatalf("%.200s", why)
		}
		if err := json.Unmarshal(text, &result); err != nil || result.Error != "" || len(result.Nodes.Items) != len(list.Items) {
			t.Fatalf("%v %s", err, result.Error)
		}
		times[0], times[1] = append(times[0], parsed), append(times[1], answered)
		ratios = append(ratios, answered.Seconds()/parsed.Seconds())
	}
	// The first pair warms the connection.
	for kind := range times {
		times[kind] = times[kind][1:]
		slices.Sort(times[kind])
	}
	ratios = ratios[1:]
	slices.Sort(ratios)
	t.Logf("%d bytes: read in %s, answered in %s, medians; ratio %.2f", len(whole), times[0][pairs/2], times[1][pairs/2], ratios[pairs/2])
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
