//go:build e2e

package e2e

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/pumice-scheduler/pumice/clients/go/internal/vectors"
	pb "github.com/pumice-scheduler/pumice/clients/go/pumicev1"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// quotas is the built-in policy with quotas of queues.
const quotas = `{actions: "enqueue, allocate", tiers: [{plugins: [{name: predicates}, {name: proportion}, {name: resource-strategy-fit, arguments: {
	resourceStrategyFitWeight: 10, resources: {nvidia.com/gpu: {type: MostAllocated, weight: 2}, cpu: {type: LeastAllocated, weight: 1}},
	sra: {enable: true, resources: nvidia.com/gpu, weight: 10, resourceWeight: {nvidia.com/gpu: 1}}}}]}]}`

// TestAStockSchedulerAsksByItsExtenderProtocol: a kube-scheduler without any plugin of ours, and a server that watches the cluster.
func TestAStockSchedulerAsksByItsExtenderProtocol(t *testing.T) {
	cluster := &live{cluster: startCluster(t)}
	cluster.config = cluster.kubeconfig("live", cluster.account(account))
	cluster.apply("deploy/kustomize/live/access.yaml")
	cluster.apply("deploy/kustomize/live/bind/access.yaml")
	cluster.apply("deploy/check/volcano_kinds.yaml")
	server := cluster.serve("--extender-max-score", "1000", "--extender-bind", "true")
	scheduled := &scheduledCluster{cluster: cluster.cluster, server: server.client}
	scheduled.reload("default", quotas)
	for number := range 2 {
		scheduled.addNode(fmt.Sprintf("gpu-%d", number), "64", "256Gi", 8)
		scheduled.addNode(fmt.Sprintf("cpu-%d", number), "64", "256Gi", 0)
	}
	cluster.until("the server is ready", func() error { return get(http.DefaultClient, server.page+"/readyz", "") })
	for _, mode := range []string{"names", "nodes", "binds"} {
		scheduler := scheduled.stock(mode, server.page, mode != "nodes")
		scheduled.gathersAndSpares(t, mode)
		scheduled.keepsTheQuota(t, cluster, mode)
		scheduler.kill()
		cluster.forget(scheduler)
		if binds := metric(t, server.page, `pumice_calls_total\{rpc="kube-scheduler/bind",code="Ok"\}`); (binds > 0) != (mode == "binds") {
			t.Fatalf("%s: the server was asked for %.0f binds", mode, binds)
		}
	}
}

// extenderConfig writes the configuration of a scheduler of this name that has an extender and none of our plugins.
func (scheduled *scheduledCluster) extenderConfig(file, scheduler, page string, nodeNames bool, bindVerb string) string {
	scheduled.t.Helper()
	return scheduled.write(file, fmt.Appendf(nil, `{"apiVersion": "kubescheduler.config.k8s.io/v1", "kind": "KubeSchedulerConfiguration",
		"clientConnection": {"kubeconfig": %q, "qps": 1000, "burst": 1000}, "leaderElection": {"leaderElect": false},
		"percentageOfNodesToScore": 100, "podInitialBackoffSeconds": 1, "podMaxBackoffSeconds": 2,
		"profiles": [{"schedulerName": %q}],
		"extenders": [{"urlPrefix": "%s/kube-scheduler", "filterVerb": "filter", "prioritizeVerb": "prioritize", "preemptVerb": "preempt",
			"weight": 1, "nodeCacheCapable": %t, "bindVerb": %q, "httpTimeout": "5s"}]}`, scheduled.path("kubeconfig"), scheduler, page, nodeNames, bindVerb))
}

// stock starts such a kube-scheduler.
func (scheduled *scheduledCluster) stock(name, page string, nodeNames bool) *program {
	scheduled.t.Helper()
	bindVerb := ""
	if name == "binds" {
		bindVerb = "bind"
	}
	config := scheduled.extenderConfig(name+".yaml", name, page, nodeNames, bindVerb)
	port := freePort(scheduled.t)
	command := exec.Command("go", "run", "./cmd/pumice-kube-scheduler", "--config", config, "--secure-port", port, "--bind-address", "127.0.0.1",
		"--cert-dir", scheduled.path("certificates-"+name), "--authentication-skip-lookup=true", "--authorization-always-allow-paths", "/*")
	command.Dir = vectors.Root() + "/clients/go/kubescheduler"
	started := scheduled.run("stock-"+name, command)
	scheduled.until("the stock scheduler is ready", func() error { return get(trusting(), "https://127.0.0.1:"+port+"/readyz", "") })
	return started
}

// gathersAndSpares: GPU tasks gather on one node, and CPU tasks stay off the nodes with GPUs.
func (scheduled *scheduledCluster) gathersAndSpares(t *testing.T, mode string) {
	gpus := map[string]bool{}
	for number := range 4 {
		name := fmt.Sprintf("%s-gpu-%d", mode, number)
		scheduled.create(pod(name, mode, "1", 1, nil))
		scheduled.until(name+" is bound", func() error { return scheduled.bound(name) })
		node, err := scheduled.nodeOf(name)
		if err != nil || !strings.HasPrefix(node, "gpu-") {
			t.Fatal(name, node, err)
		}
		gpus[node] = true
		name = fmt.Sprintf("%s-cpu-%d", mode, number)
		scheduled.create(pod(name, mode, "1", 0, nil))
		scheduled.until(name+" is bound", func() error { return scheduled.bound(name) })
		if node, err = scheduled.nodeOf(name); err != nil || !strings.HasPrefix(node, "cpu-") {
			t.Fatal(name, node, err)
		}
	}
	if len(gpus) != 1 {
		t.Fatalf("GPU tasks of 1 card are on %v", gpus)
	}
}

// keepsTheQuota: of many pods at once exactly as many are bound as the queue may hold, and the others say why they wait.
func (scheduled *scheduledCluster) keepsTheQuota(t *testing.T, cluster *live, mode string) {
	count, quota := 60, 15
	if all := os.Getenv("E2E_QUOTA_PODS"); all != "" {
		wanted, err := strconv.Atoi(all)
		if err != nil {
			t.Fatal(err)
		}
		count, quota = wanted, wanted/4
	}
	queue := fmt.Sprintf(`{"apiVersion": "scheduling.volcano.sh/v1beta1", "kind": "Queue", "metadata": {"name": "quota-%s"},
		"spec": {"weight": 1, "capability": {"cpu": "%d"}}, "status": {"state": "Open"}}`, mode, quota)
	group := fmt.Sprintf(`{"apiVersion": "scheduling.volcano.sh/v1beta1", "kind": "PodGroup", "metadata": {"name": "many-%s"},
		"spec": {"queue": "quota-%s", "minMember": 1}}`, mode, mode)
	cluster.until("a queue can be made", func() error { return cluster.create("/apis/scheduling.volcano.sh/v1beta1/queues", queue) })
	cluster.until("a group can be made", func() error {
		return cluster.create("/apis/scheduling.volcano.sh/v1beta1/namespaces/default/podgroups", group)
	})
	cluster.until("the server knows the group", func() error {
		jobs, err := scheduled.server.ListJobs(context.Background(), &pb.ListJobsRequest{})
		if err == nil && !slices.ContainsFunc(jobs.GetJobs(), func(job *pb.JobStatus) bool { return job.GetJob().GetName() == "default/many-"+mode }) {
			err = errors.New("it does not")
		}
		return err
	})
	annotations := map[string]string{"scheduling.k8s.io/group-name": "many-" + mode}
	for number := range count {
		scheduled.create(pod(fmt.Sprintf("%s-%03d", mode, number), mode, "1", 0, annotations))
	}
	started, most := time.Now(), 0
	bound := func() error {
		list, err := scheduled.client.CoreV1().Pods("default").List(context.Background(), metav1.ListOptions{})
		if err != nil {
			return err
		}
		now := 0
		for _, item := range list.Items {
			if item.Annotations["scheduling.k8s.io/group-name"] == "many-"+mode && item.Spec.NodeName != "" {
				now++
			}
		}
		most = max(most, now)
		if now < quota {
			return fmt.Errorf("%d are bound", now)
		}
		return nil
	}
	scheduled.until("as many pods are bound as the quota permits", bound)
	t.Logf("%s: %d of %d pods are bound after %s", mode, most, count, time.Since(started))
	scheduled.until("a pod that waits says why", func() error {
		for number := range count {
			if err := scheduled.said(fmt.Sprintf("%s-%03d", mode, number), "proportion: "); err == nil {
				return nil
			}
		}
		return errors.New("no event names the plugin")
	})
	for range 20 {
		time.Sleep(100 * time.Millisecond)
		if err := bound(); err != nil || most > quota {
			t.Fatalf("%d are bound, and the quota is %d: %v", most, quota, err)
		}
	}
	scheduled.removeAll()
}

// removeAll deletes all pods, and waits until they are gone.
func (scheduled *scheduledCluster) removeAll() {
	scheduled.t.Helper()
	pods := scheduled.client.CoreV1().Pods("default")
	if err := pods.DeleteCollection(context.Background(), now(), metav1.ListOptions{}); err != nil {
		scheduled.t.Fatal(err)
	}
	scheduled.until("the pods are gone", func() error {
		left, err := pods.List(context.Background(), metav1.ListOptions{Limit: 1})
		if err == nil && len(left.Items) > 0 {
			err = fmt.Errorf("%s is there", left.Items[0].Name)
		}
		return err
	})
}
