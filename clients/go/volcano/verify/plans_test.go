package verify

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"

	pumice "github.com/pumice-scheduler/pumice/clients/go"
	"github.com/pumice-scheduler/pumice/clients/go/cycle"
	"github.com/pumice-scheduler/pumice/clients/go/internal/testserver"
	plugins "github.com/pumice-scheduler/pumice/clients/go/volcano"

	"google.golang.org/grpc"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"volcano.sh/volcano/cmd/scheduler/app/options"
	"volcano.sh/volcano/pkg/scheduler/actions/allocate"
	"volcano.sh/volcano/pkg/scheduler/api"
	"volcano.sh/volcano/pkg/scheduler/conf"
	"volcano.sh/volcano/pkg/scheduler/framework"
	"volcano.sh/volcano/pkg/scheduler/uthelper"
)

// counted makes a client option that counts calls.
func counted(calls *atomic.Int64) pumice.Options {
	return pumice.Options{DialOptions: []grpc.DialOption{grpc.WithUnaryInterceptor(func(
		ctx context.Context, method string, request, reply any, connection *grpc.ClientConn, invoke grpc.UnaryInvoker, options ...grpc.CallOption,
	) error {
		calls.Add(1)
		return invoke(ctx, method, request, reply, connection, options...)
	})}}
}

// planning places a gang with Pumice, and returns the nodes of its tasks and the number of calls after the session's.
func planning(t *testing.T, made *scenario, plans bool, builders map[string]framework.PluginBuilder) (nodes map[string]string, calls int64) {
	t.Helper()
	var sum atomic.Int64
	options.Default()
	err := plugins.Configure(plugins.Settings{
		Target: testserver.Start(t).Address, Client: counted(&sum),
		Cycle: cycle.Settings{PolicyMode: cycle.PushPolicy, Plans: plans, VerifyEvery: -1, Observer: strict{t: t}},
	})
	if err != nil {
		t.Fatal(err)
	}
	harness := uthelper.TestCommonStruct{
		Plugins: builders, Pods: made.pods, Nodes: made.nodes, PodGroups: made.groups, Queues: made.queues,
	}
	conf.EnabledActionMap = map[string]bool{"allocate": true}
	session := harness.RegisterSession(made.tiers, nil)
	before := sum.Load()
	harness.Run([]framework.Action{allocate.New()})
	calls = sum.Load() - before
	nodes = map[string]string{}
	for _, task := range session.Jobs["ns/gang"].Tasks {
		if task.NodeName == "" {
			t.Fatal(task.Name, "has no node")
		}
		if task.Pod.Status.NominatedNodeName != "" {
			t.Error(task.Name, "is nominated still")
		}
		nodes[task.Name] = task.NodeName
	}
	harness.Close()
	return nodes, calls
}

// TestALargeGangTakesFewCalls counts the calls of gangs under Volcano's default sampling of nodes. Where nodes are alike, a
// gang of any size takes few; where no two are, with plans.
func TestALargeGangTakesFewCalls(t *testing.T) {
	const few, many = 40, 1000
	_, alike := planning(t, oneGang(many, 1000), false, withPumice())
	distinct := func(tasks int) *scenario {
		made := oneGang(tasks, 1000)
		for number, node := range made.nodes {
			node.Status.Allocatable[v1.ResourceMemory] = resource.MustParse(fmt.Sprintf("%dMi", 128<<10+number))
		}
		return made
	}
	_, without := planning(t, distinct(few), false, withPumice())
	_, with := planning(t, distinct(many), true, withPumice())
	t.Logf("calls of a gang of %d on nodes that are alike: %d; on nodes of which no two are: %d of a gang of %d, with plans %d of a gang of %d",
		many, alike, without, few, with, many)
	if alike > 30 || without < few || with > 30 {
		t.Error(alike, without, with)
	}
}

// refusing is a plugin that takes no planned node.
type refusing struct {
	refused map[string]string
}

func (*refusing) Name() string                      { return "refusing" }
func (*refusing) OnSessionClose(*framework.Session) {}
func (plugin *refusing) OnSessionOpen(session *framework.Session) {
	session.AddPredicateFn("refusing", func(task *api.TaskInfo, node *api.NodeInfo) error {
		if task.Pod.Status.NominatedNodeName != node.Name {
			return nil
		}
		plugin.refused[task.Name] = node.Name
		return api.NewFitErrWithStatus(task, node, &api.Status{Code: api.Unschedulable, Reason: "not here", Plugin: "refusing"})
	})
}

// TestAPlannedNodeThatAnotherPluginRefuses ends the plan, and places the gang without it.
func TestAPlannedNodeThatAnotherPluginRefuses(t *testing.T) {
	made := oneGang(12, 30)
	made.tiers[0].Plugins = append(made.tiers[0].Plugins, entry("refusing", nil, false))
	plugin := &refusing{refused: map[string]string{}}
	builders := withPumice()
	builders["refusing"] = func(framework.Arguments) framework.Plugin { return plugin }
	nodes, calls := planning(t, made, true, builders)
	if len(plugin.refused) != 1 {
		t.Fatal("a plan that cannot be followed is made once:", plugin.refused)
	}
	for task, node := range plugin.refused {
		if nodes[task] == node || node == "" {
			t.Error(task, "is on the refused node", node)
		}
	}
	t.Logf("%d tasks placed, %d calls, %v refused", len(nodes), calls, plugin.refused)
}

// preferring is a plugin with a favourite node.
type preferring struct{}

const favourite = "n00011"

func (preferring) Name() string                      { return "preferring" }
func (preferring) OnSessionClose(*framework.Session) {}
func (preferring) OnSessionOpen(session *framework.Session) {
	session.AddNodeOrderFn("preferring", func(_ *api.TaskInfo, node *api.NodeInfo) (float64, error) {
		return map[string]float64{favourite: 1e6}[node.Name], nil
	})
}

// TestPlansLeaveOutTheScoresOfOtherPlugins is why they are a choice.
func TestPlansLeaveOutTheScoresOfOtherPlugins(t *testing.T) {
	builders := withPumice()
	builders["preferring"] = func(framework.Arguments) framework.Plugin { return preferring{} }
	for _, plans := range []bool{false, true} {
		made := oneGang(4, 12)
		made.tiers[1].Plugins = append(made.tiers[1].Plugins, entry("preferring", nil, false))
		nodes, _ := planning(t, made, plans, builders)
		chosen := 0
		for _, node := range nodes {
			if node == favourite {
				chosen++
			}
		}
		if (chosen == len(nodes)) == plans {
			t.Errorf("plans %t: %d of %d tasks are on the favourite node", plans, chosen, len(nodes))
		}
	}
}
