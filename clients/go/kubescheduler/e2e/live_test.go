//go:build e2e

package e2e

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	pumice "github.com/pumice-scheduler/pumice/clients/go"
	"github.com/pumice-scheduler/pumice/clients/go/internal/testserver"
	"github.com/pumice-scheduler/pumice/clients/go/internal/vectors"
	pb "github.com/pumice-scheduler/pumice/clients/go/pumicev1"

	"google.golang.org/protobuf/types/known/durationpb"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/yaml"
)

// account is that of the manifest, which the token of the watch belongs to.
const account = "system:serviceaccount:pumice:pumice"

// watched is a server that watches the cluster with the rights of the manifest.
type watched struct {
	server *testserver.Server
	client *pumice.Client
	page   string
}

// live is the cluster with objects in it.
type live struct {
	*cluster
	// config is a kubeconfig of the account.
	config string
}

func TestAClusterIsWatchedWithTheRightsOfTheManifest(t *testing.T) {
	cluster := &live{cluster: startCluster(t)}
	cluster.config = cluster.kubeconfig("live", cluster.account(account))
	cluster.apply("deploy/kustomize/live/access.yaml")
	for number := range 3 {
		cluster.addNode(fmt.Sprintf("node-%d", number))
	}
	cluster.addPod("before", "node-0")

	first := cluster.serve()
	cluster.until("the first server is ready", func() error { return get(http.DefaultClient, first.page+"/readyz", "") })
	if err := first.shows("node-0", "node-1", "node-2", "default/before on node-0"); err != nil {
		t.Fatal(err)
	}
	if err := get(http.DefaultClient, first.page+"/readyz?verbose", "podgroups.scheduling.volcano.sh (not served by the API server)"); err != nil {
		t.Fatal("an absent kind is told: ", err)
	}
	second := cluster.serve()
	cluster.until("the second server is ready", func() error { return get(http.DefaultClient, second.page+"/readyz", "") })

	cluster.showsEvents(first, second)
	cluster.showsDevices(first, second)
	cluster.showsOwners(first)
	cluster.noticesKinds(first, second)
	cluster.explains(first)
	cluster.resumes(first, second)
	cluster.listsAgain(first, second)
	cluster.seesOnlyItsNamespaces()
	cluster.feedsAServer()
	cluster.namesMissingRights()
}

// serve starts a server that watches the cluster; more flags may follow.
func (live *live) serve(flags ...string) *watched {
	live.t.Helper()
	port := freePort(live.t)
	flags = append([]string{"--state", "kubernetes", "--kubeconfig", live.config, "--http-address", "127.0.0.1:" + port, "--source-stale-ms", "3s"}, flags...)
	server := testserver.Start(live.t, flags...)
	return &watched{server, dial(live.t, server.Address), "http://127.0.0.1:" + port}
}

// shows wants exactly these records of nodes, pods, queues and pod groups.
func (watched *watched) shows(wanted ...string) error {
	ctx := context.Background()
	found := []string{}
	nodes, err := watched.client.ListNodes(ctx, &pb.ListNodesRequest{})
	if err != nil {
		return err
	}
	for _, node := range nodes.GetNodes() {
		found = append(found, node.GetNode().GetName())
	}
	tasks, err := watched.client.ListTasks(ctx, &pb.ListTasksRequest{})
	if err != nil {
		return err
	}
	for _, task := range tasks.GetTasks() {
		name := task.GetTask().GetName()
		if node := task.GetTask().GetNode(); node != "" {
			name += " on " + node
		}
		found = append(found, name)
	}
	queues, err := watched.client.ListQueues(ctx, &pb.ListQueuesRequest{})
	if err != nil {
		return err
	}
	for _, queue := range queues.GetQueues() {
		found = append(found, "queue "+queue.GetQueue().GetName())
	}
	jobs, err := watched.client.ListJobs(ctx, &pb.ListJobsRequest{})
	if err != nil {
		return err
	}
	for _, job := range jobs.GetJobs() {
		found = append(found, "job "+job.GetJob().GetName())
	}
	slices.Sort(found)
	slices.Sort(wanted)
	if !slices.Equal(found, wanted) {
		return fmt.Errorf("%q are shown, and %q wanted", found, wanted)
	}
	return nil
}

// showsEvents: creations, bindings and deletions are revisions, soon.
func (live *live) showsEvents(servers ...*watched) {
	live.addPod("comes", "")
	for _, server := range servers {
		live.until("a new pod is shown", func() error {
			return server.shows("node-0", "node-1", "node-2", "default/before on node-0", "default/comes")
		})
	}
	binding := &corev1.Binding{ObjectMeta: metav1.ObjectMeta{Name: "comes"}, Target: corev1.ObjectReference{Kind: "Node", Name: "node-1"}}
	if err := live.client.CoreV1().Pods("default").Bind(context.Background(), binding, metav1.CreateOptions{}); err != nil {
		live.t.Fatal(err)
	}
	for _, server := range servers {
		live.until("the bound pod is shown", func() error {
			return server.shows("node-0", "node-1", "node-2", "default/before on node-0", "default/comes on node-1")
		})
	}
	live.deletePod("comes")
	for _, server := range servers {
		live.until("the deleted pod is gone", func() error {
			return server.shows("node-0", "node-1", "node-2", "default/before on node-0")
		})
	}
	live.measuresEvents(servers[0])
}

// measuresEvents: the time from the API server's response to a revision that shows the change.
func (live *live) measuresEvents(server *watched) {
	times := []time.Duration{}
	for number := range 40 {
		label := fmt.Appendf(nil, `{"metadata": {"labels": {"round": "%d"}}}`, number)
		info, err := server.client.GetServerInfo(context.Background())
		if err != nil {
			live.t.Fatal(err)
		}
		revision := info.GetRevision()
		revision.Number++
		if _, err := live.client.CoreV1().Nodes().Patch(context.Background(), "node-2", types.MergePatchType, label, metav1.PatchOptions{}); err != nil {
			live.t.Fatal(err)
		}
		begin := time.Now()
		latest := &pb.LatestRef{AtLeast: revision, MaxWait: durationpb.New(10 * time.Second)}
		against := &pb.EvaluationRef{Target: &pb.EvaluationRef_Latest{Latest: latest}}
		if _, err := server.client.ListQueues(context.Background(), &pb.ListQueuesRequest{Against: against}); err != nil {
			live.t.Fatal(err)
		}
		times = append(times, time.Since(begin))
	}
	slices.Sort(times)
	live.t.Logf("from the response of the API server to the revision: median %s, 90 %% within %s", times[20], times[36])
}

// showsOwners: a pod that waits has the selector of its service, also if the service comes later.
func (live *live) showsOwners(server *watched) {
	selects := func() error {
		tasks, err := server.client.ListTasks(context.Background(), &pb.ListTasksRequest{Names: []string{"default/waits"}})
		if err != nil {
			return err
		}
		for _, task := range tasks.GetTasks() {
			if task.GetTask().GetConstraints().GetOwnerSelector().GetMatchLabels()["app"] == "web" {
				return nil
			}
		}
		return fmt.Errorf("%v", tasks)
	}
	live.addPod("waits", "")
	service := &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Name: "web"},
		Spec:       corev1.ServiceSpec{Selector: map[string]string{"app": "web"}, Ports: []corev1.ServicePort{{Port: 80}}},
	}
	if _, err := live.client.CoreV1().Services("default").Create(context.Background(), service, metav1.CreateOptions{}); err != nil {
		live.t.Fatal(err)
	}
	live.until("the waiting pod has the selector of its service", selects)
}

// noticesKinds: kinds that come later are watched from then on.
func (live *live) noticesKinds(servers ...*watched) {
	live.apply("deploy/check/volcano_kinds.yaml")
	live.until("queues can be made", func() error {
		return live.create("/apis/scheduling.volcano.sh/v1beta1/queues", `{"apiVersion": "scheduling.volcano.sh/v1beta1", "kind": "Queue",
			"metadata": {"name": "team"}, "spec": {"weight": 1}, "status": {"state": "Open"}}`)
	})
	live.until("a pod group can be made", func() error {
		return live.create("/apis/scheduling.volcano.sh/v1beta1/namespaces/default/podgroups", `{"apiVersion": "scheduling.volcano.sh/v1beta1",
			"kind": "PodGroup", "metadata": {"name": "train"}, "spec": {"queue": "team", "minMember": 1}}`)
	})
	for _, server := range servers {
		live.until("queues and pod groups are shown", func() error { return server.shows(live.all()...) })
	}
}

// all are the records after the steps above, with the queues that Volcano makes when it starts.
func (live *live) all() []string {
	return []string{"node-0", "node-1", "node-2", "default/before on node-0", "default/waits", "queue default", "queue root", "queue team", "job default/train"}
}

// explains: nothing but a kubeconfig, and a pod's reasons.
func (live *live) explains(server *watched) {
	explain := exec.Command(testserver.Binary(), "explain", "task", "default/waits", "--server", "http://"+server.server.Address)
	output, err := explain.CombinedOutput()
	if err != nil || !strings.Contains(string(output), "default/waits") {
		live.t.Fatalf("%v\n%s", err, output)
	}
}

// resumes: the API server goes away and comes back; meanwhile the servers say that changes may be missing.
func (live *live) resumes(servers ...*watched) {
	live.stopAPI()
	for _, server := range servers {
		live.until("a server whose cluster is away is not ready", func() error {
			response, err := http.Get(server.page + "/readyz?verbose")
			if err != nil {
				return err
			}
			defer response.Body.Close()
			body, err := io.ReadAll(response.Body)
			if err == nil && (response.StatusCode == http.StatusOK || !strings.Contains(string(body), "[-] cluster: changes may be missing for")) {
				err = errors.New(string(body))
			}
			return err
		})
		if err := server.shows(live.all()...); err != nil {
			live.t.Fatal("the records stay: ", err)
		}
	}
	live.startAPI()
	live.addPod("after", "")
	for _, server := range servers {
		live.until("a pod of the API server that came back is shown", func() error { return server.shows(append(live.all(), "default/after")...) })
		live.until("the server is ready again", func() error { return get(http.DefaultClient, server.page+"/readyz", "") })
	}
}

// listsAgain: what was deleted while the API server had forgotten the watched versions is gone.
func (live *live) listsAgain(servers ...*watched) {
	processes := []int{}
	for _, server := range servers {
		processes = append(processes, server.server.Process())
	}
	// The servers stand still, so that they miss what happens meanwhile.
	signal(live.t, "STOP", processes...)
	live.stopAPI()
	live.startAPI()
	live.deletePod("after")
	live.stopAPI()
	live.compact()
	live.startAPI()
	signal(live.t, "CONT", processes...)
	for _, server := range servers {
		live.until("what was deleted meanwhile is gone", func() error { return server.shows(live.all()...) })
		live.until("the server is ready again", func() error { return get(http.DefaultClient, server.page+"/readyz", "") })
	}
}

// seesOnlyItsNamespaces: with namespaces the pods of others are not asked for.
func (live *live) seesOnlyItsNamespaces() {
	other := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "other"}}
	if _, err := live.client.CoreV1().Namespaces().Create(context.Background(), other, metav1.CreateOptions{}); err != nil {
		live.t.Fatal(err)
	}
	elsewhere := pod("elsewhere", "default-scheduler", "1", 0, nil)
	elsewhere.Namespace = "other"
	if _, err := live.client.CoreV1().Pods("other").Create(context.Background(), elsewhere, metav1.CreateOptions{}); err != nil {
		live.t.Fatal(err)
	}
	// Here a plugin gives the token.
	plugin := live.write("plugin", fmt.Appendf(nil, `#!/bin/sh
echo '{"apiVersion": "client.authentication.k8s.io/v1", "kind": "ExecCredential", "status": {"token": "%s"}}'`, live.account(account)))
	if err := os.Chmod(plugin, 0o700); err != nil {
		live.t.Fatal(err)
	}
	own := *live
	own.config = live.kubeconfigOf("plugged", fmt.Sprintf(`{"exec": {"apiVersion": "client.authentication.k8s.io/v1", "command": %q, "interactiveMode": "Never"}}`, plugin))
	server := own.serve("--kubernetes-namespace", "other")
	live.until("only its namespace is shown", func() error {
		return server.shows("node-0", "node-1", "node-2", "other/elsewhere", "queue default", "queue root", "queue team")
	})
	server.server.Kill()
	if err := live.client.CoreV1().Pods("other").Delete(context.Background(), "elsewhere", now()); err != nil {
		live.t.Fatal(err)
	}
}

// feedsAServer: a process of its own feeds a server; a second one takes over, and the first one ends.
func (live *live) feedsAServer() {
	server := testserver.Start(live.t)
	fed := &watched{server: server, client: dial(live.t, server.Address)}
	// Here a file has the token, as in a pod.
	file := live.kubeconfigOf("mounted", fmt.Sprintf(`{"tokenFile": %q}`, live.write("token", []byte(live.account(account)))))
	sync := func(name string) *program {
		return live.run(name, exec.Command(testserver.Binary(), "state", "sync", "--kubeconfig", file, "--context", "e2e", "--server", "http://"+server.Address))
	}
	first := sync("sync-1")
	live.until("the fed server shows all", func() error { return fed.shows(live.all()...) })
	second := sync("sync-2")
	live.until("the second feeder is there", func() error {
		log, err := os.ReadFile(second.log)
		if err == nil && !strings.Contains(string(log), "the cluster is visible") {
			err = errors.New(string(log))
		}
		return err
	})
	select {
	case <-first.ended:
	case <-time.After(time.Minute):
		live.t.Fatal("the first feeder does not end")
	}
	if log := tail(first.log); !strings.Contains(log, "another process feeds the source `kubernetes`") {
		live.t.Fatal(log)
	}
	live.forget(first)
	if err := fed.shows(live.all()...); err != nil {
		live.t.Fatal(err)
	}
	second.kill()
	live.forget(second)
}

// namesMissingRights: an account without rights is told what to bind.
func (live *live) namesMissingRights() {
	own := *live
	own.config = live.kubeconfig("nobody", live.account("nobody"))
	server := own.serve()
	live.until("the missing right is named", func() error {
		response, err := http.Get(server.page + "/readyz?verbose")
		if err != nil {
			return err
		}
		defer response.Body.Close()
		body, err := io.ReadAll(response.Body)
		if err == nil && !strings.Contains(string(body), `nodes is forbidden: User "nobody" cannot list resource "nodes"`) {
			err = errors.New(string(body))
		}
		return err
	})
}

func (live *live) addNode(name string) {
	(&scheduledCluster{cluster: live.cluster}).addNode(name, "16", "64Gi", 0)
}

func (live *live) addPod(name, node string) {
	made := pod(name, "elsewhere", "1", 0, nil)
	made.Labels = map[string]string{"app": "web"}
	made.Spec.NodeName = node
	(&scheduledCluster{cluster: live.cluster}).create(made)
}

func (live *live) deletePod(name string) {
	live.t.Helper()
	if err := live.client.CoreV1().Pods("default").Delete(context.Background(), name, now()); err != nil {
		live.t.Fatal(err)
	}
}

// now deletes without waiting for a kubelet.
func now() metav1.DeleteOptions {
	none := int64(0)
	return metav1.DeleteOptions{GracePeriodSeconds: &none}
}

// apply creates the objects of a file of the repository.
func (live *live) apply(file string) {
	live.t.Helper()
	paths := map[string]string{
		"ClusterRole":              "/apis/rbac.authorization.k8s.io/v1/clusterroles",
		"ClusterRoleBinding":       "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings",
		"Role":                     "/apis/rbac.authorization.k8s.io/v1/namespaces/pumice/roles",
		"RoleBinding":              "/apis/rbac.authorization.k8s.io/v1/namespaces/pumice/rolebindings",
		"CustomResourceDefinition": "/apis/apiextensions.k8s.io/v1/customresourcedefinitions",
	}
	text, err := os.ReadFile(filepath.Join(vectors.Root(), file))
	if err != nil {
		live.t.Fatal(err)
	}
	documents := yaml.NewYAMLOrJSONDecoder(bytes.NewReader(text), 4096)
	for {
		var object map[string]any
		if err := documents.Decode(&object); errors.Is(err, io.EOF) {
			return
		} else if err != nil {
			live.t.Fatal(file, err)
		}
		path, known := paths[fmt.Sprint(object["kind"])]
		if !known {
			live.t.Fatalf("%s: no path for %v", file, object["kind"])
		}
		encoded, err := json.Marshal(object)
		if err == nil {
			err = live.create(path, string(encoded))
		}
		if err != nil {
			live.t.Fatal(file, err)
		}
	}
}

func (live *live) create(path, object string) error {
	return live.client.RESTClient().Post().AbsPath(path).SetHeader("Content-Type", "application/json").Body([]byte(object)).Do(context.Background()).Error()
}
