//go:build e2e

package e2e

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/pumice-scheduler/pumice/clients/go/internal/testserver"
	"github.com/pumice-scheduler/pumice/clients/go/internal/vectors"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// TestMeasureOfPodsPerSecond compares kube-scheduler with the plugin and without, pair by pair, on 1,000 nodes: the pods are there before
// the scheduler is, and the time counts from the first tenth of them to the last. E2E_THROUGHPUT_PODS is the number of pods; without it
// nothing is measured. E2E_THROUGHPUT_PAIRS is the number of pairs, 7 unless it is set.
func TestMeasureOfPodsPerSecond(t *testing.T) {
	pods := number("E2E_THROUGHPUT_PODS", 0)
	if pods == 0 {
		t.Skip("E2E_THROUGHPUT_PODS names no number of pods")
	}
	server := testserver.Start(t)
	measured := &scheduledCluster{cluster: startCluster(t), server: dial(t, server.Address), verbosity: 1}
	measured.inParallel(number("E2E_NODES", fleetNodes), func(at int) error {
		measured.addNode(fmt.Sprintf("gpu-%04d", at), "64", "256Gi", 8)
		return nil
	})
	binary := measured.path("pumice-kube-scheduler")
	build := exec.Command("go", "build", "-o", binary, "./cmd/pumice-kube-scheduler")
	build.Dir = vectors.Root() + "/clients/go/kubescheduler"
	if output, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, output)
	}
	stock := measured.write("stock.yaml", fmt.Appendf(nil, `{"apiVersion": "kubescheduler.config.k8s.io/v1", "kind": "KubeSchedulerConfiguration",
		"clientConnection": {"kubeconfig": %q, "qps": 2000, "burst": 2000}, "leaderElection": {"leaderElect": false}, "percentageOfNodesToScore": 100,
		"profiles": [{"schedulerName": "pumice", "pluginConfig": [{"name": "PodTopologySpread", "args": {"defaultingType": "List"}}]}]}`, measured.config))
	plugin := measured.write("plugin.yaml", []byte(example(t, "{kubeconfig: /etc/kubernetes/scheduler.conf}",
		fmt.Sprintf("{kubeconfig: %s, qps: 2000, burst: 2000}", measured.config), "127.0.0.1:7461", server.Address)))
	ratios, processor := []float64{}, []float64{}
	for pair := range number("E2E_THROUGHPUT_PAIRS", 7) {
		configs := []string{stock, plugin}
		speeds, times := map[string]float64{}, map[string]float64{}
		for at := range configs {
			config := configs[(at+pair)%2]
			used := processorTime(t, server.Process())
			speeds[config], times[config] = measured.pods(t, binary, config, pods)
			times[config] += processorTime(t, server.Process()) - used
		}
		ratios = append(ratios, speeds[plugin]/speeds[stock])
		processor = append(processor, times[plugin]/times[stock])
		t.Logf("stock %.0f pods a second, plugin %.0f: %.3f; processor time %.2f times", speeds[stock], speeds[plugin], ratios[pair], processor[pair])
	}
	slices.Sort(ratios)
	slices.Sort(processor)
	t.Logf("median: %.3f times the pods a second of stock, %.2f times the processor time", ratios[len(ratios)/2], processor[len(processor)/2])
}

// pods is the number of pods a second, and the processor time of the scheduler.
func (scheduled *scheduledCluster) pods(t *testing.T, binary, config string, count int) (float64, float64) {
	t.Helper()
	scheduled.createAll("speed", count, func(name string) *corev1.Pod { return pod(name, "pumice", "1", 1, nil) })
	port := freePort(t)
	page := "https://127.0.0.1:" + port
	scheduler := scheduled.run("measured-scheduler", exec.Command(binary, "--config", config, "--secure-port", port, "--bind-address", "127.0.0.1",
		"--cert-dir", scheduled.path("certificates"), "--authentication-skip-lookup=true", "--authorization-always-allow-paths", "/*"))
	scheduled.until("the scheduler is ready", func() error { return get(trusting(), page+"/readyz", "") })
	bound := func() int {
		return int(metric(t, page, `scheduler_schedule_attempts_total\{profile="pumice",result="scheduled"\}`))
	}
	first, begin, used := 0, time.Now(), 0.0
	for limit := time.Now().Add(5 * time.Minute); ; time.Sleep(20 * time.Millisecond) {
		now := bound()
		if first == 0 && now >= count/10 {
			first, begin, used = now, time.Now(), processorTime(t, scheduler.command.Process.Pid)
		}
		if now >= count {
			break
		}
		if time.Now().After(limit) {
			t.Fatalf("%d of %d pods are bound after five minutes", now, count)
		}
	}
	took := time.Since(begin).Seconds()
	used = processorTime(t, scheduler.command.Process.Pid) - used
	scheduler.kill()
	scheduled.forget(scheduler)
	scheduled.inParallel(count, func(at int) error {
		return scheduled.client.CoreV1().Pods("default").Delete(context.Background(), fmt.Sprintf("speed-%d", at), now())
	})
	scheduled.until("the pods are gone", func() error {
		left, err := scheduled.client.CoreV1().Pods("default").List(context.Background(), metav1.ListOptions{Limit: 1})
		if err == nil && len(left.Items) > 0 {
			err = fmt.Errorf("%d are there", len(left.Items))
		}
		return err
	})
	return float64(count-first) / took, used
}

// processorTime is that of a process, in seconds.
func processorTime(t *testing.T, process int) float64 {
	t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", process))
	if err != nil {
		t.Fatal(err)
	}
	_, after, _ := strings.Cut(string(text), ") ")
	fields, ticks := strings.Fields(after), 0.0
	for _, field := range fields[11:13] {
		value, err := strconv.ParseFloat(field, 64)
		if err != nil {
			t.Fatal(err)
		}
		ticks += value
	}
	return ticks / 100
}
