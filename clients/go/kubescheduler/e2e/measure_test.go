//go:build e2e

package e2e

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"regexp"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/pumice-scheduler/pumice/clients/go/internal/testserver"

	clientv3 "go.etcd.io/etcd/client/v3"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer/protobuf"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/scheme"
)

// TestMeasureOfALargeCluster compares the time until a server shows a cluster with that of a bare list, pair by pair. LIVE_PODS is
// the number of pods; without it nothing is measured. LIVE_PAIRS is the number of pairs, 7 unless it is set.
func TestMeasureOfALargeCluster(t *testing.T) {
	pods, err := strconv.Atoi(os.Getenv("LIVE_PODS"))
	if err != nil {
		t.Skip("LIVE_PODS names no number of pods")
	}
	pairs, err := strconv.Atoi(os.Getenv("LIVE_PAIRS"))
	if err != nil {
		pairs = 7
	}
	cluster := &live{cluster: startCluster(t)}
	cluster.config = cluster.kubeconfig("live", cluster.account(account))
	cluster.apply("deploy/kustomize/live/access.yaml")
	begin := time.Now()
	cluster.load(pods/10, pods)
	t.Logf("%d nodes and %d pods loaded in %s", pods/10, pods, time.Since(begin))
	ratios, costs := []float64{}, []float64{}
	for range pairs {
		listed, size := cluster.list()
		shown, processor, grown := cluster.show(pods)
		ratios = append(ratios, shown.Seconds()/listed.Seconds())
		t.Logf("bare list %s (%d MB), visible after %s: %.2f times; %.2f s of processor time; %d bytes of memory a pod at the peak", listed, size>>20, shown, ratios[len(ratios)-1], processor, grown)
		if other := os.Getenv("LIVE_AGAINST"); other != "" {
			own := os.Getenv("PUMICE_BIN")
			t.Setenv("PUMICE_BIN", other)
			_, of, _ := cluster.show(pods)
			t.Setenv("PUMICE_BIN", own)
			costs = append(costs, processor/of)
			t.Logf("%s: %.2f s of processor time; %.3f times it here", other, of, costs[len(costs)-1])
		}
	}
	slices.Sort(ratios)
	t.Logf("median %.2f times the bare list", ratios[len(ratios)/2])
	if len(costs) > 0 {
		slices.Sort(costs)
		t.Logf("median %.3f times the processor time of the other program", costs[len(costs)/2])
	}
}

// load writes nodes and pods into etcd as the API server stores them.
func (live *live) load(nodes, pods int) {
	live.t.Helper()
	live.stopAPI()
	client, err := clientv3.New(clientv3.Config{Endpoints: []string{live.etcd}})
	if err != nil {
		live.t.Fatal(err)
	}
	defer client.Close()
	codec := scheme.Codecs.CodecForVersions(protobuf.NewSerializer(scheme.Scheme, scheme.Scheme), nil, corev1.SchemeGroupVersion, nil)
	puts := make(chan clientv3.Op, 1000)
	put := func(key string, object runtime.Object) {
		encoded, err := runtime.Encode(codec, object)
		if err != nil {
			live.t.Error(err)
			return
		}
		puts <- clientv3.OpPut(key, string(encoded))
	}
	go func() {
		defer close(puts)
		for number := range nodes {
			made := largeNode(number)
			put("/registry/minions/"+made.Name, made)
		}
		for number := range pods {
			made := largePod(number, nodes)
			put("/registry/pods/default/"+made.Name, made)
		}
	}()
	var writers sync.WaitGroup
	for range 4 {
		writers.Go(func() {
			batch := []clientv3.Op{}
			flush := func() {
				if _, err := client.Txn(context.Background()).Then(batch...).Commit(); err != nil {
					live.t.Error(err)
				}
				batch = batch[:0]
			}
			for one := range puts {
				if batch = append(batch, one); len(batch) == 100 {
					flush()
				}
			}
			if len(batch) > 0 {
				flush()
			}
		})
	}
	writers.Wait()
	live.startAPI()
}

func identity(name string) metav1.ObjectMeta {
	return metav1.ObjectMeta{
		Name: name, UID: types.UID(fmt.Sprintf("0b9f4a52-7a7c-4d3e-9f51-%012x", len(name)<<32|int(hashOf(name)))),
		CreationTimestamp: metav1.NewTime(time.Unix(1_790_000_000, 0)),
	}
}

func hashOf(name string) uint32 {
	sum := uint32(2166136261)
	for _, one := range []byte(name) {
		sum = (sum ^ uint32(one)) * 16777619
	}
	return sum
}

func largeNode(number int) *corev1.Node {
	name := fmt.Sprintf("node-%05d", number)
	amounts := corev1.ResourceList{"cpu": resource.MustParse("64"), "memory": resource.MustParse("256Gi"), "pods": resource.MustParse("110"), "ephemeral-storage": resource.MustParse("900Gi")}
	made := &corev1.Node{ObjectMeta: identity(name), Status: corev1.NodeStatus{
		Capacity: amounts, Allocatable: amounts,
		Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue, Reason: "KubeletReady", Message: "kubelet is posting ready status"}},
		NodeInfo:   corev1.NodeSystemInfo{KernelVersion: "6.12.0", OSImage: "Debian GNU/Linux 13", KubeletVersion: "v1.36.3", ContainerRuntimeVersion: "containerd://2.1.4", Architecture: "amd64", OperatingSystem: "linux"},
	}}
	made.Labels = map[string]string{
		"kubernetes.io/hostname": name, "kubernetes.io/arch": "amd64", "kubernetes.io/os": "linux", "topology.kubernetes.io/zone": fmt.Sprintf("zone-%d", number%3),
		"node.kubernetes.io/instance-type": "large",
	}
	for image := range 10 {
		made.Status.Images = append(made.Status.Images, corev1.ContainerImage{Names: []string{fmt.Sprintf("registry.example/team/image-%d@sha256:%064x", image, image), fmt.Sprintf("registry.example/team/image-%d:v1", image)}, SizeBytes: 123456789})
	}
	return made
}

func largePod(number, nodes int) *corev1.Pod {
	made := &corev1.Pod{ObjectMeta: identity(fmt.Sprintf("web-%06d-7d9c5b8f6d-x%04d", number/50, number%50))}
	made.Namespace = "default"
	made.Labels = map[string]string{"app": fmt.Sprintf("web-%d", number/50), "pod-template-hash": "7d9c5b8f6d", "team": fmt.Sprintf("team-%d", number%20)}
	made.Annotations = map[string]string{"prometheus.io/scrape": "true", "prometheus.io/port": "9090"}
	yes := true
	made.OwnerReferences = []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "ReplicaSet", Name: fmt.Sprintf("web-%d", number/50), UID: "5f0c5d0e-9a55-4b7b-8a86-0123456789ab", Controller: &yes}}
	amounts := corev1.ResourceList{"cpu": resource.MustParse("500m"), "memory": resource.MustParse("1Gi")}
	container := corev1.Container{
		Name: "main", Image: "registry.example/team/image-1:v1", Resources: corev1.ResourceRequirements{Requests: amounts, Limits: amounts},
		Ports: []corev1.ContainerPort{{Name: "http", ContainerPort: 8080, Protocol: corev1.ProtocolTCP}}, TerminationMessagePath: "/dev/termination-log",
		TerminationMessagePolicy: corev1.TerminationMessageReadFile, ImagePullPolicy: corev1.PullIfNotPresent,
	}
	for variable := range 8 {
		container.Env = append(container.Env, corev1.EnvVar{Name: fmt.Sprintf("SETTING_%d", variable), Value: "some value of this setting"})
	}
	made.Spec = corev1.PodSpec{
		NodeName: fmt.Sprintf("node-%05d", number%nodes), SchedulerName: "default-scheduler", Containers: []corev1.Container{container}, RestartPolicy: corev1.RestartPolicyAlways,
		DNSPolicy: corev1.DNSClusterFirst, ServiceAccountName: "default", Tolerations: []corev1.Toleration{
			{Key: "node.kubernetes.io/not-ready", Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoExecute},
			{Key: "node.kubernetes.io/unreachable", Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoExecute},
		},
	}
	since := metav1.NewTime(time.Unix(1_790_000_100, 0))
	made.Status = corev1.PodStatus{Phase: corev1.PodRunning, HostIP: "10.0.0.1", PodIP: "10.1.2.3", PodIPs: []corev1.PodIP{{IP: "10.1.2.3"}}, StartTime: &since, QOSClass: corev1.PodQOSGuaranteed}
	for _, condition := range []corev1.PodConditionType{"PodReadyToStartContainers", "Initialized", "Ready", "ContainersReady", "PodScheduled"} {
		made.Status.Conditions = append(made.Status.Conditions, corev1.PodCondition{Type: condition, Status: corev1.ConditionTrue, LastTransitionTime: since})
	}
	made.Status.ContainerStatuses = []corev1.ContainerStatus{{
		Name: "main", Ready: true, Image: "registry.example/team/image-1:v1", ImageID: fmt.Sprintf("registry.example/team/image-1@sha256:%064x", 1),
		ContainerID: fmt.Sprintf("containerd://%064x", number), State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: since}},
	}}
	return made
}

// list reads all nodes and pods page by page, and does nothing with them; the time, and the bytes.
func (live *live) list() (time.Duration, int) {
	live.t.Helper()
	authority, err := os.ReadFile(live.path("authority.crt"))
	if err != nil {
		live.t.Fatal(err)
	}
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(authority)
	client := &http.Client{Transport: &http.Transport{DisableCompression: true, TLSClientConfig: &tls.Config{RootCAs: pool}}}
	// The continuation stands before the objects.
	continued := regexp.MustCompile(`"continue":("[^"]*")`)
	begin, size := time.Now(), 0
	for _, resource := range []string{"nodes", "pods"} {
		for token := ""; ; {
			request, err := http.NewRequest(http.MethodGet, live.address+"/api/v1/"+resource+"?limit=500&continue="+token, nil)
			if err != nil {
				live.t.Fatal(err)
			}
			request.Header.Set("Authorization", "Bearer "+live.secrets["e2e"])
			request.Header.Set("Accept", "application/json")
			response, err := client.Do(request)
			if err != nil {
				live.t.Fatal(err)
			}
			page, err := io.ReadAll(response.Body)
			response.Body.Close()
			if err != nil || response.StatusCode != http.StatusOK {
				live.t.Fatal(err, response.Status)
			}
			size += len(page)
			found := continued.FindSubmatch(page[:min(len(page), 2000)])
			if found == nil {
				break
			}
			if err := json.Unmarshal(found[1], &token); err != nil {
				live.t.Fatal(err)
			}
		}
	}
	return time.Since(begin), size
}

// show starts a server; the time until it shows everything, its processor time until then, and its memory at the peak by pods, beyond that
// of an empty server.
func (live *live) show(pods int) (shown time.Duration, processor float64, grown int) {
	live.t.Helper()
	empty := testserver.Start(live.t)
	idle := peak(live.t, empty.Process())
	empty.Kill()
	begin := time.Now()
	server := live.serve()
	for get(http.DefaultClient, server.page+"/readyz", "") != nil {
		time.Sleep(5 * time.Millisecond)
	}
	shown, processor = time.Since(begin), processorTime(live.t, server.server.Process())
	most := peak(live.t, server.server.Process())
	if err := get(http.DefaultClient, server.page+"/metrics", fmt.Sprintf("pumice_tasks %d\n", pods)); err != nil {
		live.t.Fatal(err)
	}
	server.server.Kill()
	return shown, processor, (most - idle) / pods
}

// peak is the most memory that a process held, in bytes.
func peak(t *testing.T, process int) int {
	t.Helper()
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", process))
	if err != nil {
		t.Fatal(err)
	}
	for line := range bytes.Lines(status) {
		if fields := bytes.Fields(line); len(fields) > 1 && string(fields[0]) == "VmHWM:" {
			kibibytes, err := strconv.Atoi(string(fields[1]))
			if err != nil {
				t.Fatal(err)
			}
			return kibibytes << 10
		}
	}
	t.Fatal("the process has no VmHWM")
	return 0
}
