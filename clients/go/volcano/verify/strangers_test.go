package verify

import (
	"fmt"
	"testing"

	"github.com/pumice-scheduler/pumice/clients/go/cycle"
	"github.com/pumice-scheduler/pumice/clients/go/internal/testserver"
	plugins "github.com/pumice-scheduler/pumice/clients/go/volcano"

	v1 "k8s.io/api/core/v1"
	schedulingv1 "volcano.sh/apis/pkg/apis/scheduling/v1beta1"
	"volcano.sh/volcano/pkg/scheduler/api"
	"volcano.sh/volcano/pkg/scheduler/framework"
	"volcano.sh/volcano/pkg/scheduler/util"
)

// TestStrangersOnNodes lets pods that belong to no job of the session come and go, in place of others of the same size and
// with nothing else changed: after each session the service's usage of nodes must be the scheduler's.
func TestStrangersOnNodes(t *testing.T) {
	heard := &opens{strict: strict{t: t}}
	err := plugins.Configure(plugins.Settings{
		Target: testserver.Start(t).Address, Cycle: cycle.Settings{PolicyMode: cycle.PushPolicy, Compatibility: plugins.Release(), VerifyEvery: -1, Observer: heard},
	})
	if err != nil {
		t.Fatal(err)
	}
	pod := func(name, job, node, cpu string) *v1.Pod {
		return util.BuildPod("ns", name, node, v1.PodRunning, api.BuildResourceList(cpu, "1Gi"), job, nil, nil)
	}
	own, other, stranger, big := pod("a", "one", "n0", "1"), pod("b", "one", "n1", "1"), pod("s", "", "n0", "1"), pod("s", "", "n0", "3")
	nodes := []*v1.Node{}
	for number := range 2 {
		nodes = append(nodes, util.BuildNode(fmt.Sprintf("n%d", number),
			api.BuildResourceList("16", "32Gi", api.ScalarResource{Name: "pods", Value: "110"}), map[string]string{}))
	}
	group := util.BuildPodGroup("one", "ns", "q", 1, nil, schedulingv1.PodGroupRunning)
	queue := util.BuildQueue("q", 1, nil)
	for number, step := range []struct {
		jobs bool
		pods []*v1.Pod
	}{
		{true, []*v1.Pod{own, other}},
		{true, []*v1.Pod{own, other}},
		// A stranger comes in place of a job's task, grows, and goes again.
		{true, []*v1.Pod{stranger, other}},
		{true, []*v1.Pod{big, other}},
		{true, []*v1.Pod{own, other}},
		// The job is gone, its pods are not; and it comes back.
		{false, []*v1.Pod{own, other}},
		{false, []*v1.Pod{own, other}},
		{true, []*v1.Pod{own, other}},
		{true, []*v1.Pod{own, other, stranger}},
		{true, []*v1.Pod{other}},
	} {
		session := &framework.Session{
			Jobs: map[api.JobID]*api.JobInfo{}, Nodes: map[string]*api.NodeInfo{}, Tiers: oneGang(1, 1).tiers,
			Queues: map[api.QueueID]*api.QueueInfo{"q": api.NewQueueInfo(internalQueue(queue))},
		}
		for _, node := range nodes {
			session.Nodes[node.Name] = api.NewNodeInfo(node)
		}
		job := api.NewJobInfo("ns/one")
		job.SetPodGroup(internalGroup(group))
		if step.jobs {
			session.Jobs[job.UID] = job
		}
		for _, pod := range step.pods {
			task := api.NewTaskInfo(pod)
			if task.Job == job.UID {
				job.AddTaskInfo(task)
			}
			if err := session.Nodes[task.NodeName].AddTask(task); err != nil {
				t.Fatal(err)
			}
		}
		opened := plugins.Open(session)
		if opened.Err() != nil || len(opened.RefusedRecords()) > 0 {
			t.Fatal(number, opened.Err(), opened.RefusedRecords())
		}
		used := map[string]cycle.Amounts{}
		for name, node := range session.Nodes {
			used[name] = cycle.Amounts{"cpu": node.Used.MilliCPU, "memory": node.Used.Memory}
			for resource, value := range node.Used.ScalarResources {
				used[name][string(resource)] = value
			}
		}
		if differing := opened.Verify(used); len(differing) > 0 {
			t.Fatalf("step %d: usage differs on %v, %d records sent", number, differing, heard.sent)
		}
		if number == 1 && heard.sent != 0 {
			t.Fatal(heard.sent)
		}
		opened.Close()
	}
}
