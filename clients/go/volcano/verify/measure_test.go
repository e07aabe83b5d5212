package verify

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"runtime"
	"sync/atomic"
	"testing"
	"time"

	pumice "github.com/pumice-scheduler/pumice/clients/go"
	"github.com/pumice-scheduler/pumice/clients/go/cycle"
	"github.com/pumice-scheduler/pumice/clients/go/internal/testserver"
	plugins "github.com/pumice-scheduler/pumice/clients/go/volcano"

	"google.golang.org/grpc"
	v1 "k8s.io/api/core/v1"
	schedulingv1 "volcano.sh/apis/pkg/apis/scheduling/v1beta1"
	"volcano.sh/volcano/cmd/scheduler/app/options"
	"volcano.sh/volcano/pkg/scheduler/actions/allocate"
	"volcano.sh/volcano/pkg/scheduler/api"
	"volcano.sh/volcano/pkg/scheduler/conf"
	"volcano.sh/volcano/pkg/scheduler/framework"
	"volcano.sh/volcano/pkg/scheduler/plugins/drf"
	resourcestrategyfit "volcano.sh/volcano/pkg/scheduler/plugins/resource-strategy-fit"
	"volcano.sh/volcano/pkg/scheduler/uthelper"
	"volcano.sh/volcano/pkg/scheduler/util"
)

// oneGang is one job of a number of tasks on a number of empty nodes.
func oneGang(tasks, nodes int) *scenario {
	made := &scenario{queues: []*schedulingv1.Queue{util.BuildQueue("q", 1, nil)}}
	for number := range nodes {
		made.nodes = append(made.nodes, util.BuildNode(fmt.Sprintf("n%05d", number),
			api.BuildResourceList("32", "128Gi", api.ScalarResource{Name: "pods", Value: "110"}), map[string]string{}))
	}
	made.groups = []*schedulingv1.PodGroup{util.BuildPodGroup("gang", "ns", "q", int32(tasks), nil, schedulingv1.PodGroupInqueue)}
	for number := range tasks {
		made.pods = append(made.pods, util.BuildPod("ns", fmt.Sprintf("gang-%d", number), "", v1.PodPending,
			api.BuildResourceList("4", "8Gi"), "gang", map[string]string{}, map[string]string{}))
	}
	made.tiers = tiers(
		[]conf.PluginOption{entry("gang", nil, false), entry("drf", nil, false)},
		[]conf.PluginOption{entry("resource-strategy-fit", nil, false)},
	)
	return made
}

// TestGang measures one cycle: a gang of 64 on 1,000 nodes, with the in-tree plugins, with Pumice, and with its plans.
func TestGang(t *testing.T) {
	if os.Getenv("MEASURE") == "" {
		t.Skip("MEASURE is not set")
	}
	options.Default()
	options.ServerOpts.PercentageOfNodesToFind = 100
	var calls atomic.Int64
	count := grpc.WithUnaryInterceptor(func(
		ctx context.Context, method string, request, reply any, connection *grpc.ClientConn, invoke grpc.UnaryInvoker, options ...grpc.CallOption,
	) error {
		calls.Add(1)
		return invoke(ctx, method, request, reply, connection, options...)
	})
	target := testserver.Start(t).Address
	for _, variant := range []struct {
		name          string
		pumice, plans bool
	}{{"in-tree", false, false}, {"Pumice", true, false}, {"Pumice, plans", true, true}} {
		builders := map[string]framework.PluginBuilder{}
		for name, builder := range local {
			builders[name] = builder
		}
		builders[drf.PluginName], builders[resourcestrategyfit.PluginName] = drf.New, resourcestrategyfit.New
		if variant.pumice {
			builders = withPumice()
		}
		err := plugins.Configure(plugins.Settings{
			Target: target, Client: pumice.Options{DialOptions: []grpc.DialOption{count}},
			Cycle: cycle.Settings{PolicyMode: cycle.PushPolicy, Compatibility: "upstream", Plans: variant.plans, VerifyEvery: -1, Observer: strict{t: t}},
		})
		if err != nil {
			t.Fatal(err)
		}
		best, least, opened := time.Hour, int64(1<<60), time.Hour
		for range 5 {
			made := oneGang(64, 1000)
			harness := uthelper.TestCommonStruct{
				Plugins: builders, Pods: made.pods, Nodes: made.nodes, PodGroups: made.groups, Queues: made.queues,
			}
			conf.EnabledActionMap = map[string]bool{"allocate": true}
			before, started := calls.Load(), time.Now()
			session := harness.RegisterSession(made.tiers, nil)
			opening := time.Since(started)
			started = time.Now()
			harness.Run([]framework.Action{allocate.New()})
			took := time.Since(started)
			placed := 0
			for _, task := range session.Jobs["ns/gang"].Tasks {
				if task.NodeName != "" {
					placed++
				}
			}
			if placed != 64 {
				t.Fatalf("%s placed %d", variant.name, placed)
			}
			harness.Close()
			best, least, opened = min(best, took), min(least, calls.Load()-before), min(opened, opening)
		}
		t.Logf("%-14s allocate %v, %d calls (harness and session open %v), best of 5", variant.name, best, least, opened)
	}
}

// TestOpen measures the opening of a session on 10,000 nodes with 100,000 pods, of which 100 have changed.
func TestOpen(t *testing.T) {
	if os.Getenv("MEASURE") == "" {
		t.Skip("MEASURE is not set")
	}
	heard := &opens{}
	err := plugins.Configure(plugins.Settings{
		Target: testserver.Start(t).Address, Client: pumice.Options{Timeout: 5 * time.Minute},
		Cycle: cycle.Settings{PolicyMode: cycle.PushPolicy, Compatibility: "upstream", VerifyEvery: -1, Observer: heard, Budget: cycle.Budget{Open: 5 * time.Minute}},
	})
	if err != nil {
		t.Fatal(err)
	}
	session := &framework.Session{
		Jobs: map[api.JobID]*api.JobInfo{}, Nodes: map[string]*api.NodeInfo{}, Queues: map[api.QueueID]*api.QueueInfo{},
		Tiers: oneGang(1, 1).tiers,
	}
	fill(session)
	best := map[int]time.Duration{}
	for round := range 16 {
		if round > 0 {
			// Volcano makes a session from clones.
			for name, node := range session.Nodes {
				session.Nodes[name] = node.Clone()
			}
			changed := 0
			for id, job := range session.Jobs {
				session.Jobs[id] = job.Clone()
				for _, task := range session.Jobs[id].Tasks {
					if round%2 == 1 && changed < 100 {
						changed++
						if task.Status = api.Running; round%4 == 1 {
							task.Status = api.Releasing
						}
						break
					}
				}
			}
		}
		// The clones are the scheduler's garbage.
		runtime.GC()
		started := time.Now()
		cycle := plugins.Open(session)
		took := time.Since(started)
		t.Logf("session %d: %d records sent, %v", round, heard.sent, took)
		best[heard.sent] = min(took, cmp.Or(best[heard.sent], time.Hour))
		cycle.Close()
	}
	t.Log("best by records sent:", best)
}

type opens struct {
	strict
	sent int
}

func (opens *opens) Opened(sent int, _ time.Duration) { opens.sent = sent }
func (opens *opens) Unavailable(err error)            { panic(err) }

func fill(session *framework.Session) {
	queue := util.BuildQueue("q", 1, nil)
	session.Queues["q"] = api.NewQueueInfo(internalQueue(queue))
	for number := range 10_000 {
		node := util.BuildNode(fmt.Sprintf("n%05d", number),
			api.BuildResourceList("64", "256Gi", api.ScalarResource{Name: "pods", Value: "110"}), map[string]string{})
		session.Nodes[node.Name] = api.NewNodeInfo(node)
		name := fmt.Sprintf("j%05d", number)
		job := api.NewJobInfo(api.JobID("ns/" + name))
		job.SetPodGroup(internalGroup(util.BuildPodGroup(name, "ns", "q", 1, nil, schedulingv1.PodGroupRunning)))
		for task := range 10 {
			on := fmt.Sprintf("n%05d", (number+task*997)%10_000)
			pod := util.BuildPod("ns", fmt.Sprintf("%s-%d", name, task), on, v1.PodRunning, api.BuildResourceList("1", "1Gi"), name, nil, nil)
			info := api.NewTaskInfo(pod)
			job.AddTaskInfo(info)
		}
		session.Jobs[job.UID] = job
	}
	for _, job := range session.Jobs {
		for _, task := range job.Tasks {
			if err := session.Nodes[task.NodeName].AddTask(task); err != nil {
				panic(err)
			}
		}
	}
}
