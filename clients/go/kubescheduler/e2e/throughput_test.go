//go:build e2e

package e2e

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
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
		measured.addNodeIn(fmt.Sprintf("zone-%d", at%3), fmt.Sprintf("gpu-%04d", at), "64", "256Gi", 8)
		return nil
	})
	binary := measured.build()
	stock := measured.write("stock.yaml", fmt.Appendf(nil, `{"apiVersion": "kubescheduler.config.k8s.io/v1", "kind": "KubeSchedulerConfiguration",
		"clientConnection": {"kubeconfig": %q, "qps": 2000, "burst": 2000}, "leaderElection": {"leaderElect": false}, "percentageOfNodesToScore": 100,
		"profiles": [{"schedulerName": "pumice", "pluginConfig": [{"name": "PodTopologySpread", "args": {"defaultingType": "List"}}]}]}`, measured.config))
	plugin := measured.write("plugin.yaml", []byte(example(t, "{kubeconfig: /etc/kubernetes/scheduler.conf}",
		fmt.Sprintf("{kubeconfig: %s, qps: 2000, burst: 2000}", measured.config), "127.0.0.1:7461", server.Address)))
	ratios, processor := []float64{}, []float64{}
	for pair := range number("E2E_THROUGHPUT_PAIRS", 7) {
		configs := []string{stock, plugin}
		speeds, times, served := map[string]float64{}, map[string]float64{}, map[string]float64{}
		for at := range configs {
			config := configs[(at+pair)%2]
			used := processorTime(t, server.Process())
			speeds[config], times[config] = measured.pods(t, binary, config, pods)
			served[config] = processorTime(t, server.Process()) - used
			times[config] += served[config]
		}
		ratios = append(ratios, speeds[plugin]/speeds[stock])
		processor = append(processor, times[plugin]/times[stock])
		each := 1000 / (0.9 * float64(pods))
		t.Logf("stock %.0f pods a second, plugin %.0f: %.3f; processor time of a pod %.2f ms and %.2f ms (%.2f of them the server's), %.2f times",
			speeds[stock], speeds[plugin], ratios[pair], times[stock]*each, times[plugin]*each, served[plugin]*each, processor[pair])
	}
	slices.Sort(ratios)
	slices.Sort(processor)
	t.Logf("median: %.3f times the pods a second of stock, %.2f times the processor time", ratios[len(ratios)/2], processor[len(processor)/2])
}

// build makes the program of kube-scheduler, so that measurements do not wait for compilers.
func (scheduled *scheduledCluster) build() string {
	scheduled.t.Helper()
	binary := scheduled.path("pumice-kube-scheduler")
	build := exec.Command("go", "build", "-o", binary, "./cmd/pumice-kube-scheduler")
	build.Dir = vectors.Root() + "/clients/go/kubescheduler"
	if output, err := build.CombinedOutput(); err != nil {
		scheduled.t.Fatalf("%v\n%s", err, output)
	}
	return binary
}

// pods is the number of pods a second, and the processor time of the scheduler.
func (scheduled *scheduledCluster) pods(t *testing.T, binary, config string, count int) (float64, float64) {
	t.Helper()
	scheduled.createAll("speed", count, func(name string) *corev1.Pod { return pod(name, "pumice", "1", 1, nil) })
	times := scheduled.boundAt(count/10, count)
	port := freePort(t)
	scheduler := scheduled.run("measured-scheduler", exec.Command(binary, "--config", config, "--secure-port", port, "--bind-address", "127.0.0.1",
		"--cert-dir", scheduled.path("certificates"), "--authentication-skip-lookup=true", "--authorization-always-allow-paths", "/*"))
	next := func() (at time.Time) {
		scheduled.until("the pods are bound", func() error {
			select {
			case at = <-times:
				return nil
			default:
				return errors.New("they are not yet")
			}
		})
		return at
	}
	begin, used := next(), processorTime(t, scheduler.command.Process.Pid)
	profiled := scheduled.profile(config, port)
	took := next().Sub(begin).Seconds()
	<-profiled
	used = processorTime(t, scheduler.command.Process.Pid) - used
	scheduler.kill()
	scheduled.forget(scheduler)
	scheduled.removeAll()
	return float64(count-count/10) / took, used
}

// profile writes a profile of two seconds of a scheduler, and its metrics, into the folder E2E_THROUGHPUT_PROFILE, if there is one.
func (scheduled *scheduledCluster) profile(config, port string) <-chan struct{} {
	done := make(chan struct{})
	folder := os.Getenv("E2E_THROUGHPUT_PROFILE")
	if folder == "" {
		close(done)
		return done
	}
	name := filepath.Join(folder, strings.TrimSuffix(filepath.Base(config), ".yaml"))
	save := func(path, file string) error {
		response, err := trusting().Get("https://127.0.0.1:" + port + path)
		if err != nil {
			return err
		}
		defer response.Body.Close()
		text, err := io.ReadAll(response.Body)
		if err == nil {
			err = os.WriteFile(file, text, 0o644)
		}
		return err
	}
	go func() {
		defer close(done)
		if err := errors.Join(save("/debug/pprof/profile?seconds=2", name+".pprof"), save("/metrics", name+".metrics")); err != nil {
			scheduled.t.Error(err)
		}
	}()
	return done
}

// boundAt sends the times at which these numbers of pods have nodes, by a watch that begins now: a page of metrics that is read all the time costs
// the scheduler more than the pods.
func (scheduled *scheduledCluster) boundAt(numbers ...int) <-chan time.Time {
	scheduled.t.Helper()
	ctx, stop := context.WithCancel(context.Background())
	scheduled.t.Cleanup(stop)
	pods := scheduled.client.CoreV1().Pods("default")
	list, err := pods.List(ctx, metav1.ListOptions{Limit: 1})
	if err != nil {
		scheduled.t.Fatal(err)
	}
	times := make(chan time.Time, len(numbers))
	bound := map[string]bool{}
	// note reports whether that was the last number.
	note := func(pod *corev1.Pod) bool {
		if pod.Spec.NodeName == "" || bound[pod.Name] {
			return false
		}
		bound[pod.Name] = true
		if len(bound) == numbers[0] {
			times <- time.Now()
			numbers = numbers[1:]
		}
		return len(numbers) == 0
	}
	go func() {
		version := list.ResourceVersion
		for ctx.Err() == nil {
			watch, err := pods.Watch(ctx, metav1.ListOptions{ResourceVersion: version})
			if err == nil {
				for event := range watch.ResultChan() {
					if changed, isPod := event.Object.(*corev1.Pod); isPod && note(changed) {
						watch.Stop()
						return
					}
				}
			}
			// The API server ends a watch that reads too slowly: what was missed is in a list.
			missed, err := pods.List(ctx, metav1.ListOptions{})
			if err != nil {
				continue
			}
			for at := range missed.Items {
				if note(&missed.Items[at]) {
					return
				}
			}
			version = missed.ResourceVersion
		}
	}()
	return times
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
