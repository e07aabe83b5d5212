package pumice

import (
	"bytes"
	"errors"
	"log/slog"
	"strings"
	"testing"

	"github.com/pumice-scheduler/pumice/clients/go/derive"
	"github.com/pumice-scheduler/pumice/clients/go/internal/testserver"
	pb "github.com/pumice-scheduler/pumice/clients/go/pumicev1"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func kubeNode(name, oversubscribed string) *corev1.Node {
	return &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: name, Annotations: map[string]string{oversubscribedCPU: oversubscribed}},
		Status:     corev1.NodeStatus{Allocatable: corev1.ResourceList{"cpu": resource.MustParse("8"), "pods": resource.MustParse("9")}},
	}
}

func kubePod(name, node, cpu string) *corev1.Pod {
	requests := corev1.ResourceRequirements{Requests: corev1.ResourceList{"cpu": resource.MustParse(cpu)}}
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec:       corev1.PodSpec{NodeName: node, Containers: []corev1.Container{{Resources: requests}}},
		Status:     corev1.PodStatus{Phase: corev1.PodRunning},
	}
}

// invalid are the problems of the records of nodes and tasks that the service marks invalid, by name.
func invalid(t *testing.T, client *Client) map[string]string {
	t.Helper()
	nodes, err := client.ListNodes(within(t), &pb.ListNodesRequest{})
	if err != nil {
		t.Fatal(err)
	}
	tasks, err := client.ListTasks(within(t), &pb.ListTasksRequest{})
	if err != nil {
		t.Fatal(err)
	}
	found := map[string]string{}
	note := func(name string, problems []*pb.Problem) {
		found[name] = ""
		for _, problem := range problems {
			found[name] += problem.GetReason() + " " + problem.GetField() + ";"
		}
	}
	for _, node := range nodes.GetNodes() {
		note(node.GetNode().GetName(), node.GetInvalid())
	}
	for _, task := range tasks.GetTasks() {
		note(task.GetTask().GetName(), task.GetInvalid())
	}
	return found
}

func wantInvalid(t *testing.T, client *Client, wanted map[string]string) {
	t.Helper()
	found := invalid(t, client)
	for name, part := range wanted {
		problems, known := found[name]
		if !known || !strings.Contains(problems, part) || part == "" && problems != "" {
			t.Errorf("%s: %q (known: %v), expected %q", name, problems, known, part)
		}
	}
	if len(found) != len(wanted) {
		t.Error(found)
	}
}

func TestARecordThatCannotBeReadLeavesTheLastGoodOneInForce(t *testing.T) {
	server := testserver.Start(t)
	var log bytes.Buffer
	counted := &rejectedCount{}
	options := Options{Heartbeat: -1, Metrics: counted, BreakAfter: -1, Logger: slog.New(slog.NewTextHandler(&log, nil))}
	client := dial(t, server.Address, options)
	feed := client.Feed("tests", 0)
	flush := func() {
		t.Helper()
		outcome, err := feed.Flush(within(t))
		if err != nil || outcome == nil {
			t.Fatal(outcome, err)
		}
	}
	good := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	bad := func(err error, field string) {
		t.Helper()
		var failure *RecordError
		if !errors.As(err, &failure) || failure.Field != field || !strings.Contains(err.Error(), field) {
			t.Fatal(err)
		}
	}
	good(feed.PutNode(kubeNode("n1", "100")))
	good(feed.PutNode(kubeNode("n2", "100")))
	good(feed.PutPod(kubePod("p1", "n1", "2"), derive.Auto))
	flush()
	unreadable := feed.PutNode(kubeNode("n1", "many"))
	bad(unreadable, "metadata.annotations["+oversubscribedCPU+"]")
	if !strings.Contains(unreadable.Error(), "`many` is no number of milli-cores") {
		t.Fatal(unreadable)
	}
	bad(feed.PutPod(kubePod("p1", "n1", "-2"), derive.Auto), "spec")
	bad(feed.PutPod(kubePod("p2", "n2", "-2"), derive.Auto), "spec")
	bad(feed.PutNode(&corev1.Node{}), "metadata.name")
	// The rest of the batch arrives.
	good(feed.PutPod(kubePod("p3", "n2", "1"), derive.Auto))
	flush()
	marked := map[string]string{
		"n1": "UNREADABLE_RECORD batch.unreadable[0].metadata.annotations", "default/p1": "UNREADABLE_RECORD batch.unreadable[1].spec",
		"n2": "TASK_UNREADABLE", "default/p3": "",
	}
	wantInvalid(t, client, marked)
	for _, named := range []string{"name=n1", "name=default/p1", "name=default/p2", "kind=task", "is left out"} {
		if !strings.Contains(log.String(), named) {
			t.Errorf("the log lacks %s: %s", named, log.String())
		}
	}
	if counted.count != 0 {
		t.Error("what the feed could not read counts as refused by the service")
	}
	log.Reset()
	bad(feed.PutPod(kubePod("p1", "n1", "-2"), derive.Auto), "spec")
	if outcome, err := feed.Flush(within(t)); outcome != nil || err != nil || log.Len() > 0 {
		t.Fatal("a mark that is not new was sent or logged again", outcome, err, log.String())
	}
	// A full sync keeps both, also for a service that has forgotten everything.
	feed.Resync()
	flush()
	wantInvalid(t, client, marked)
	server.Kill()
	testserver.Start(t, "--grpc-address", server.Address)
	feed.Resync()
	flush()
	wantInvalid(t, client, marked)
	// The same good record as before ends the mark, and so does a removal.
	good(feed.PutNode(kubeNode("n1", "100")))
	good(feed.PutPod(kubePod("p1", "n1", "2"), derive.Auto))
	feed.Remove(&pb.Removals{Tasks: []string{"default/p2"}})
	flush()
	wantInvalid(t, client, map[string]string{"n1": "", "n2": "", "default/p1": "", "default/p3": ""})
}

// What any user may write on a pod that runs: no node is closed by it.
func TestARunningPodCountsWhateverItsUserWrites(t *testing.T) {
	client := dial(t, testserver.Start(t).Address, Options{})
	feed := client.Feed("tests", 0)
	if err := feed.PutNode(kubeNode("n1", "0")); err != nil {
		t.Fatal(err)
	}
	wanted, unevaluated := map[string]string{"n1": ""}, map[string]string{}
	put := func(name, field string, pod *corev1.Pod) {
		t.Helper()
		pod.Name = name
		if err := feed.PutPod(pod, derive.Auto); err != nil {
			t.Error(name, err)
		}
		wanted["default/"+name], unevaluated["default/"+name] = "", field
	}
	limited := func(name corev1.ResourceName, amount string) *corev1.Pod {
		pod := kubePod("", "n1", "100m")
		pod.Spec.Containers[0].Resources.Limits = corev1.ResourceList{name: resource.MustParse(amount)}
		return pod
	}
	put("limit", "resources", limited("cpu", "10P"))
	put("digits", "resources", limited("example.com/x", strings.Repeat("123456789", 5)))
	put("request", "resources", limited("memory", "18E"))
	put("percent", "resources", limited("koordinator.sh/gpu-core", "150"))
	put("devices", "resources", limited("volcano.sh/vgpu-number", "65"))
	sidecar := kubePod("", "n1", "100m")
	sidecar.Spec.InitContainers = limited("cpu", "10P").Spec.Containers
	put("init", "resources", sidecar)
	texts := kubePod("", "n1", "100m")
	texts.Annotations = map[string]string{"volcano.sh/task-spec": "\xff\xfe", "scheduling.k8s.io/group-name": strings.Repeat("x", 600)}
	texts.Spec.Containers[0].Image = "\xff"
	put("texts", "", texts)
	outcome, err := feed.Flush(within(t))
	if err != nil || len(outcome.GetRefused()) > 0 {
		t.Fatal(outcome, err)
	}
	wantInvalid(t, client, wanted)
	tasks, err := client.ListTasks(within(t), &pb.ListTasksRequest{})
	if err != nil {
		t.Fatal(err)
	}
	for _, task := range tasks.GetTasks() {
		name := task.GetTask().GetName()
		if got := strings.Join(task.GetTask().GetUnevaluatedFields(), ","); got != unevaluated[name] {
			t.Errorf("%s: %q is not evaluated", name, got)
		}
	}
	// Seven pods have requested 100m each.
	for cpu, wanted := range map[string]uint32{"7300m": 1, "7301m": 0} {
		asked := &pb.Task{Requests: &pb.ResourceList{Items: map[string]string{"cpu": cpu}}}
		reply, err := client.Filter(within(t), &pb.FilterRequest{Tasks: []*pb.Task{asked}})
		if err != nil || reply.Response.GetResult().GetItems()[0].GetFitCount() != wanted {
			t.Errorf("%s: %v %v", cpu, reply, err)
		}
	}
}

// rejectedCount counts refused records.
type rejectedCount struct {
	NoMetrics
	count int
}

// Refused counts them.
func (rejectedCount *rejectedCount) Refused(_ string, records int) {
	rejectedCount.count += records
}

func TestQueuesAndJobsThatCannotBeReadAreMarked(t *testing.T) {
	address, _ := serve(t)
	client := dial(t, address, Options{})
	feed := client.Feed("tests", 0)
	object := func(name, amount string) map[string]any {
		return map[string]any{
			"metadata": map[string]any{"name": name},
			"spec":     map[string]any{"minResources": map[string]any{"cpu": amount}, "capability": map[string]any{"cpu": amount}},
		}
	}
	if err := errors.Join(feed.PutQueue(object("q", "4")), feed.PutJob(object("j", "4"), 7)); err != nil {
		t.Fatal(err)
	}
	if _, err := feed.Flush(within(t)); err != nil {
		t.Fatal(err)
	}
	if feed.PutQueue(object("q", "four")) == nil || feed.PutJob(object("j", "four"), 7) == nil || feed.PutQueue(make(chan int)) == nil {
		t.Fatal("an amount that is none was read")
	}
	if _, err := feed.Flush(within(t)); err != nil {
		t.Fatal(err)
	}
	queues, err := client.ListQueues(within(t), &pb.ListQueuesRequest{Names: []string{"q"}})
	if err != nil || len(queues.GetQueues()) != 1 || len(queues.GetQueues()[0].GetInvalid()) != 1 {
		t.Fatal(queues, err)
	}
	jobs, err := client.ListJobs(within(t), &pb.ListJobsRequest{Names: []string{"default/j"}})
	if err != nil || len(jobs.GetJobs()) != 1 || len(jobs.GetJobs()[0].GetInvalid()) != 1 || jobs.GetJobs()[0].GetJob().GetPriority() != 7 {
		t.Fatal(jobs, err)
	}
}

func TestMarksAreSentOnceInOrder(t *testing.T) {
	var kind records[*pb.Node]
	mark := func(message string) *pb.UnreadableRecord {
		return &pb.UnreadableRecord{Kind: pb.RecordKind_RECORD_KIND_NODE, Name: "n", Message: message}
	}
	take := func(put, gone, marked int) {
		t.Helper()
		if items, names, marks := kind.take(); len(items) != put || len(names) != gone || len(marks) != marked {
			t.Fatal(items, names, marks)
		}
	}
	kind.put(&pb.Node{Name: "n"})
	kind.mark(mark("a"))
	// The service has not seen the good record, which goes on counting.
	take(1, 0, 1)
	kind.mark(mark("b"))
	take(0, 0, 1)
	if kind.mark(mark("b")) {
		t.Fatal("the same mark is new")
	}
	take(0, 0, 0)
	kind.remove("n")
	kind.mark(mark("c"))
	take(0, 1, 1)
	kind.remove("n")
	take(0, 1, 0)
	kind.remove("n")
	take(0, 0, 0)
	if items, marks := kind.everything(); len(items)+len(marks) != 0 {
		t.Fatal(items, marks)
	}
}
