//go:build e2e

package e2e

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/pumice-scheduler/pumice/clients/go/internal/testserver"
	"github.com/pumice-scheduler/pumice/clients/go/internal/vectors"
	pb "github.com/pumice-scheduler/pumice/clients/go/pumicev1"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

const (
	// fleetNodes is the number of nodes with eight GPUs each; fleetCPUs that of nodes without.
	fleetNodes, fleetCPUs = 1000, 20
	notReady              = "node.kubernetes.io/not-ready"
)

// fleet is a cluster of many nodes, with a server whose policy is a mounted file.
type fleet struct {
	*scheduledCluster
	page string
	// mount is the folder of the policy, as Kubernetes mounts a ConfigMap.
	mount string
	swaps int
	serve func() *testserver.Server
	// running is the server that runs now.
	running *testserver.Server
}

// number is that of a variable of the environment, or another one.
func number(name string, otherwise int) int {
	if given, err := strconv.Atoi(os.Getenv(name)); err == nil {
		return given
	}
	return otherwise
}

// TestAFleetOfGPUNodes runs the scenarios on 1,000 nodes one after the other. E2E_NODES is another number of nodes, E2E_SCENARIO the
// words of the only scenario to run.
func TestAFleetOfGPUNodes(t *testing.T) {
	fleet := startFleet(t)
	started := time.Now()
	for _, scenario := range []struct {
		name string
		run  func(*testing.T)
	}{
		{"gathers GPU tasks and keeps CPU tasks off", fleet.gathersAndSpares},
		{"batches equal pods", fleet.batches},
		{"reserves for idle devices", fleet.reserves},
		{"never overshoots a quota", fleet.keepsTheQuota},
		{"takes a mounted policy under load", fleet.takesAMountedPolicy},
		{"goes on after a crash", fleet.goesOnAfterACrash},
		{"is not misled by nodes that flap", fleet.isNotMisled},
		{"binds a gang whole or not at all", fleet.bindsGangsWhole},
	} {
		if !strings.Contains(scenario.name, os.Getenv("E2E_SCENARIO")) {
			continue
		}
		begin := time.Now()
		scenario.run(t)
		t.Logf("%s: %s", scenario.name, time.Since(begin).Round(time.Millisecond))
	}
	t.Logf("all scenarios: %s", time.Since(started).Round(time.Millisecond))
}

func startFleet(t *testing.T) *fleet {
	t.Helper()
	cluster := startCluster(t)
	made := &fleet{mount: t.TempDir()}
	builtIn, err := os.ReadFile(filepath.Join(vectors.Root(), "policies/default.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	made.scheduledCluster = &scheduledCluster{cluster: cluster}
	made.swap(string(builtIn))
	port, folder := freePort(t), t.TempDir()
	made.serve = func() *testserver.Server {
		return testserver.Start(t, "--grpc-address", "127.0.0.1:"+port, "--data-dir", folder, "--policy-file", filepath.Join(made.mount, "policy.yaml"), "--policy-poll-ms", "100")
	}
	made.running = made.serve()
	made.server = dial(t, made.running.Address)
	for name, file := range map[string]string{"proportional": "proportional.yaml", "cards": "capacity-card.yaml"} {
		document, err := os.ReadFile(filepath.Join(vectors.Root(), "examples", file))
		if err != nil {
			t.Fatal(err)
		}
		made.reload(name, string(document))
	}
	nodes := number("E2E_NODES", fleetNodes)
	made.inParallel(nodes+fleetCPUs, func(at int) error {
		if at < nodes {
			made.addNode(fmt.Sprintf("gpu-%04d", at), "64", "256Gi", 8)
		} else {
			made.addNode(fmt.Sprintf("cpu-%04d", at-nodes), "64", "256Gi", 0)
		}
		return nil
	})
	made.page = made.startScheduler(t, "scheduler", made.running.Address)
	return made
}

// startScheduler starts kube-scheduler with the example's profile and those of the other policies.
func (scheduled *scheduledCluster) startScheduler(t *testing.T, name, address string) string {
	t.Helper()
	common := fmt.Sprintf(`"address": %q, "budget": "5s"`, address)
	config := scheduled.write(name+".yaml", fmt.Appendf(nil, "podInitialBackoffSeconds: 1\npodMaxBackoffSeconds: 2\n%s- %s\n- %s\n",
		example(t, "{kubeconfig: /etc/kubernetes/scheduler.conf}", fmt.Sprintf("{kubeconfig: %s, qps: 2000, burst: 2000}", scheduled.config), "127.0.0.1:7461", address, "budget: 500ms", "budget: 5s"),
		profile("proportional", `{"name": "Pumice"}`, common+`, "policy": "proportional"`),
		profile("cards", `{"name": "Pumice"}`, common+`, "policy": "cards"`),
	))
	page := "https://127.0.0.1:" + freePort(t)
	scheduled.verbosity = cmp.Or(scheduled.verbosity, 2)
	scheduled.schedule(config, page)
	scheduled.until("kube-scheduler is ready", func() error { return get(trusting(), page+"/readyz", "") })
	return page
}

// swap replaces the mounted policy as the kubelet replaces a ConfigMap's: a new folder, and a link that is renamed over the old one.
func (fleet *fleet) swap(document string) {
	fleet.t.Helper()
	fleet.swaps++
	version := fmt.Sprintf("..version-%d", fleet.swaps)
	steps := []error{
		os.Mkdir(filepath.Join(fleet.mount, version), 0o700),
		os.WriteFile(filepath.Join(fleet.mount, version, "policy.yaml"), []byte(document), 0o600),
		os.Symlink(version, filepath.Join(fleet.mount, "..data_tmp")),
		os.Rename(filepath.Join(fleet.mount, "..data_tmp"), filepath.Join(fleet.mount, "..data")),
	}
	if fleet.swaps == 1 {
		steps = append(steps, os.Symlink("..data/policy.yaml", filepath.Join(fleet.mount, "policy.yaml")))
	}
	if err := errors.Join(steps...); err != nil {
		fleet.t.Fatal(err)
	}
}

// inParallel does many things, sixteen at a time.
func (scheduled *scheduledCluster) inParallel(count int, one func(int) error) {
	scheduled.t.Helper()
	next, failures := make(chan int), make(chan error, count)
	var workers sync.WaitGroup
	for range 16 {
		workers.Go(func() {
			for at := range next {
				if err := one(at); err != nil {
					failures <- err
				}
			}
		})
	}
	for at := range count {
		next <- at
	}
	close(next)
	workers.Wait()
	close(failures)
	for err := range failures {
		scheduled.t.Fatal(err)
	}
}

// createAll creates pods named PREFIX-NUMBER.
func (scheduled *scheduledCluster) createAll(prefix string, count int, make func(name string) *corev1.Pod) {
	scheduled.t.Helper()
	scheduled.inParallel(count, func(at int) error {
		_, err := scheduled.client.CoreV1().Pods("default").Create(context.Background(), make(fmt.Sprintf("%s-%d", prefix, at)), metav1.CreateOptions{})
		return err
	})
}

// placed returns the nodes of the pods with a prefix, by pod; those without one are absent.
func (scheduled *scheduledCluster) placed(prefix string) map[string]string {
	scheduled.t.Helper()
	pods, err := scheduled.client.CoreV1().Pods("default").List(context.Background(), metav1.ListOptions{ResourceVersion: ""})
	if err != nil {
		scheduled.t.Fatal(err)
	}
	nodes := map[string]string{}
	for _, item := range pods.Items {
		if strings.HasPrefix(item.Name, prefix+"-") && item.Spec.NodeName != "" {
			nodes[item.Name] = item.Spec.NodeName
		}
	}
	return nodes
}

// allPlaced waits until this number of pods with a prefix have nodes.
func (scheduled *scheduledCluster) allPlaced(prefix string, count int) map[string]string {
	scheduled.t.Helper()
	var nodes map[string]string
	scheduled.until(fmt.Sprintf("%d pods of %s have nodes", count, prefix), func() error {
		if nodes = scheduled.placed(prefix); len(nodes) != count {
			return fmt.Errorf("%d have", len(nodes))
		}
		return nil
	})
	return nodes
}

// remove deletes the pods with a prefix.
func (scheduled *scheduledCluster) remove(prefix string, count int) {
	scheduled.t.Helper()
	scheduled.inParallel(count, func(at int) error {
		return scheduled.client.CoreV1().Pods("default").Delete(context.Background(), fmt.Sprintf("%s-%d", prefix, at), now())
	})
	scheduled.until("the pods of "+prefix+" are gone for Pumice", func() error { return scheduled.agrees() })
}

// perNode counts pods by node.
func perNode(nodes map[string]string) map[string]int {
	counts := map[string]int{}
	for _, node := range nodes {
		counts[node]++
	}
	return counts
}

// metric is the sum of the series of a metric on a page whose text matches.
func metric(t *testing.T, page, series string) (sum float64) {
	t.Helper()
	response, err := trusting().Get(page + "/metrics")
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	for _, found := range regexp.MustCompile(`(?m)^`+series+` (\S+)$`).FindAllSubmatch(body, -1) {
		value, err := strconv.ParseFloat(string(bytes.TrimSpace(found[1])), 64)
		if err != nil {
			t.Fatal(err)
		}
		sum += value
	}
	return sum
}

// gathersAndSpares: 64 tasks with a GPU each fill eight nodes, and tasks without go to the nodes that have none, evenly.
func (fleet *fleet) gathersAndSpares(t *testing.T) {
	fleet.createAll("gather", 64, func(name string) *corev1.Pod { return pod(name, "pumice", "1", 1, nil) })
	fleet.createAll("spare", 60, func(name string) *corev1.Pod { return pod(name, "pumice", "8", 0, nil) })
	gathered := perNode(fleet.allPlaced("gather", 64))
	for node, count := range gathered {
		if !strings.HasPrefix(node, "gpu-") || count != 8 {
			t.Fatalf("64 tasks with a GPU are on %v", gathered)
		}
	}
	spared := perNode(fleet.allPlaced("spare", 60))
	for node, count := range spared {
		if !strings.HasPrefix(node, "cpu-") || count != 3 {
			t.Fatalf("60 tasks without a GPU are on %v", spared)
		}
	}
	fleet.remove("gather", 64)
	fleet.remove("spare", 60)
}

// batches: of equal pods that come one after the other, nine of ten get their node by the scores of an earlier one.
// kube-scheduler drops scores that are half a second old: on a busy machine more pods find none for that reason alone, and
// they are counted apart.
func (fleet *fleet) batches(t *testing.T) {
	growth := func(counter, label string) func() float64 {
		series := counter + `\{[^}]*` + label + `[^}]*\}`
		before := metric(t, fleet.page, series)
		return func() float64 { return metric(t, fleet.page, series) - before }
	}
	hits := growth("scheduler_batch_attempts_total", `result="hint_used"`)
	noHint := growth("scheduler_batch_attempts_total", `result="no_hint"`)
	notUsed := growth("scheduler_batch_attempts_total", `result="hint_not_used"`)
	late := growth("scheduler_batch_cache_flushed_total", `reason="expired"`)
	fleet.createAll("equal", 400, func(name string) *corev1.Pod { return pod(name, "pumice", "8", 8, nil) })
	if used := perNode(fleet.allPlaced("equal", 400)); len(used) != 400 {
		t.Fatalf("400 tasks with eight GPUs are on %d nodes", len(used))
	}
	batched, expired := hits(), late()
	t.Logf("%.0f of 400 equal pods were batched, %.0f came when the scores were too old", batched, expired)
	if batched+expired < 360 || batched <= expired {
		t.Errorf("%.0f of 400 equal pods were batched, %.0f came when the scores were too old; attempts without a hint: %.0f, with one that was not used: %.0f",
			batched, expired, noHint(), notUsed())
	}
	fleet.remove("equal", 400)
}

// reserves: a task without a GPU that may only use nodes with idle GPUs is refused, with the reason in its event.
func (fleet *fleet) reserves(t *testing.T) {
	made := pod("reserve-0", "proportional", "1", 0, nil)
	made.Spec.NodeSelector = map[string]string{"nvidia.com/gpu.product": "A100"}
	fleet.create(made)
	fleet.until("the refused pod says why", func() error { return fleet.said("reserve-0", "resource-strategy-fit: ") })
	if fleet.bound("reserve-0") == nil {
		t.Fatal("the cores that are reserved for GPUs are given away")
	}
	fleet.remove("reserve", 1)
}

// keepsTheQuota: of 100 pods at full speed as many as the quota are bound, at no time more, and the others say why.
func (fleet *fleet) keepsTheQuota(t *testing.T) {
	quota := fleet.cardQuota()
	annotations := map[string]string{"scheduling.k8s.io/group-name": "train", "volcano.sh/card.name": "A100"}
	quota(40)
	fleet.createAll("card", 100, func(name string) *corev1.Pod { return pod(name, "cards", "1", 1, annotations) })
	most := 0
	watch := func(wanted int) {
		fleet.until(fmt.Sprintf("%d pods are bound", wanted), func() error {
			most = max(most, len(fleet.placed("card")))
			if most < wanted {
				return fmt.Errorf("%d are", most)
			}
			return nil
		})
	}
	watch(40)
	refused := ""
	for at := range 100 {
		if name := fmt.Sprintf("card-%d", at); fleet.placed("card")[name] == "" {
			refused = name
			break
		}
	}
	fleet.until("a pod over the quota says why", func() error { return fleet.said(refused, "capacity-card: ") })
	if now := len(fleet.placed("card")); most > 40 || now != 40 {
		t.Fatalf("%d pods at most and %d now, with a quota of 40", most, now)
	}
	quota(55)
	watch(55)
	time.Sleep(2 * time.Second)
	if now := len(fleet.placed("card")); now != 55 {
		t.Fatalf("%d pods, with a quota of 55", now)
	}
	fleet.remove("card", 100)
}

// takesAMountedPolicy: while pods come, the mounted policy changes five times; none is lost, and the last one counts in the end.
func (fleet *fleet) takesAMountedPolicy(t *testing.T) {
	version := func() uint64 {
		found, err := fleet.server.GetPolicy(context.Background(), &pb.GetPolicyRequest{Name: "default"})
		if err != nil {
			t.Fatal(err)
		}
		return found.GetPolicy().GetVersion()
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		fleet.createAll("load", 150, func(name string) *corev1.Pod { return pod(name, "pumice", "100m", 0, nil) })
	}()
	for round := range 5 {
		before := version()
		fleet.swap([]string{pack, spread}[round%2])
		fleet.until("the mounted policy is in force", func() error {
			if version() == before {
				return errors.New("it is not")
			}
			return nil
		})
	}
	<-done
	fleet.allPlaced("load", 150)
	// The last one packs: what comes now goes to few nodes.
	fleet.createAll("packed", 20, func(name string) *corev1.Pod { return pod(name, "pumice", "1", 0, nil) })
	if used := perNode(fleet.allPlaced("packed", 20)); len(used) > 2 {
		t.Fatalf("packed on %v", used)
	}
	before := version()
	builtIn, err := os.ReadFile(filepath.Join(vectors.Root(), "policies/default.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	fleet.swap(string(builtIn))
	fleet.until("the first policy is in force again", func() error {
		if version() == before {
			return errors.New("it is not")
		}
		return nil
	})
	fleet.remove("load", 150)
	fleet.remove("packed", 20)
}

// goesOnAfterACrash: the server is killed among 120 pods and starts again; all pods get nodes, and it knows where they are.
func (fleet *fleet) goesOnAfterACrash(t *testing.T) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		fleet.createAll("crash", 120, func(name string) *corev1.Pod { return pod(name, "pumice", "1", 1, nil) })
	}()
	fleet.until("some pods have nodes", func() error {
		if len(fleet.placed("crash")) < 20 {
			return errors.New("not yet")
		}
		return nil
	})
	fleet.running.Kill()
	<-done
	fleet.running = fleet.serve()
	used := perNode(fleet.allPlaced("crash", 120))
	for node, count := range used {
		if count > 8 {
			t.Fatalf("%d tasks with a GPU are on %s", count, node)
		}
	}
	fleet.until("the new server knows where the pods are", func() error { return fleet.agrees() })
	fleet.remove("crash", 120)
}

// isNotMisled: half of the nodes become unready and ready again, twice, while pods come. No pod goes to a node that has been unready since
// before the pod came, all get nodes, and everybody still runs.
func (fleet *fleet) isNotMisled(t *testing.T) {
	half := number("E2E_NODES", fleetNodes) / 2
	ready := func(ready bool) {
		status, taints := corev1.ConditionTrue, []corev1.Taint{}
		if !ready {
			status, taints = corev1.ConditionFalse, []corev1.Taint{{Key: notReady, Effect: corev1.TaintEffectNoSchedule}}
		}
		fleet.inParallel(half, func(at int) error {
			// Every second node, as the controller of node lifecycles does it.
			name := fmt.Sprintf("gpu-%04d", 2*at)
			condition := fmt.Appendf(nil, `{"status": {"conditions": [{"type": "Ready", "status": %q}]}}`, status)
			_, first := fleet.client.CoreV1().Nodes().Patch(context.Background(), name, types.StrategicMergePatchType, condition, metav1.PatchOptions{}, "status")
			taint := fmt.Appendf(nil, `{"spec": {"taints": [%s]}}`, strings.Join(taintTexts(taints), ","))
			_, second := fleet.client.CoreV1().Nodes().Patch(context.Background(), name, types.MergePatchType, taint, metav1.PatchOptions{})
			return errors.Join(first, second)
		})
	}
	odd := func(node string) bool { return strings.HasPrefix(node, "gpu-") && (node[len(node)-1]-'0')%2 == 1 }
	for wave := range 2 {
		ready(false)
		during, after := fmt.Sprintf("during%d", wave), fmt.Sprintf("after%d", wave)
		fleet.createAll(during, 60, func(name string) *corev1.Pod { return pod(name, "pumice", "1", 8, nil) })
		for name, node := range fleet.allPlaced(during, 60) {
			if !odd(node) {
				t.Fatalf("pod %s is on %s, which is not ready", name, node)
			}
		}
		done := make(chan struct{})
		go func() {
			defer close(done)
			fleet.createAll(after, 60, func(name string) *corev1.Pod { return pod(name, "pumice", "1", 8, nil) })
		}()
		ready(true)
		<-done
		if used := perNode(fleet.allPlaced(after, 60)); len(used) != 60 {
			t.Fatalf("60 tasks with eight GPUs are on %d nodes", len(used))
		}
		fleet.remove(during, 60)
		fleet.remove(after, 60)
	}
	nodes, err := fleet.server.ListNodes(context.Background(), &pb.ListNodesRequest{Page: &pb.Page{Size: 2000}})
	if err != nil || slices.ContainsFunc(nodes.GetNodes(), func(node *pb.NodeStatus) bool { return !node.GetNode().GetReady() }) {
		t.Fatal("a node is not ready for Pumice: ", err)
	}
}

func taintTexts(taints []corev1.Taint) []string {
	texts := []string{}
	for _, taint := range taints {
		texts = append(texts, fmt.Sprintf(`{"key": %q, "effect": %q}`, taint.Key, taint.Effect))
	}
	return texts
}
