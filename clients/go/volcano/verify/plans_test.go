package verify

import (
	"context"
	"sync/atomic"
	"testing"

	pumice "github.com/pumice-scheduler/pumice/clients/go"
	"github.com/pumice-scheduler/pumice/clients/go/cycle"
	"github.com/pumice-scheduler/pumice/clients/go/internal/testserver"
	plugins "github.com/pumice-scheduler/pumice/clients/go/volcano"

	"google.golang.org/grpc"
	"volcano.sh/volcano/cmd/scheduler/app/options"
	"volcano.sh/volcano/pkg/scheduler/actions/allocate"
	"volcano.sh/volcano/pkg/scheduler/conf"
	"volcano.sh/volcano/pkg/scheduler/framework"
	"volcano.sh/volcano/pkg/scheduler/uthelper"
)

// TestPlansPayWhereVolcanoLooksAtSomeNodesOnly counts the calls of one gang under Volcano's default sampling of nodes.
func TestPlansPayWhereVolcanoLooksAtSomeNodesOnly(t *testing.T) {
	var calls atomic.Int64
	count := grpc.WithUnaryInterceptor(func(
		ctx context.Context, method string, request, reply any, connection *grpc.ClientConn, invoke grpc.UnaryInvoker, options ...grpc.CallOption,
	) error {
		calls.Add(1)
		return invoke(ctx, method, request, reply, connection, options...)
	})
	target := testserver.Start(t).Address
	const tasks = 40
	cost := map[bool]int64{}
	for _, plans := range []bool{false, true} {
		options.Default()
		err := plugins.Configure(plugins.Settings{
			Target: target, Client: pumice.Options{DialOptions: []grpc.DialOption{count}},
			Cycle: cycle.Settings{PolicyMode: cycle.PushPolicy, Plans: plans, VerifyEvery: -1, Observer: strict{t: t}},
		})
		if err != nil {
			t.Fatal(err)
		}
		made := oneGang(tasks, 1000)
		harness := uthelper.TestCommonStruct{
			Plugins: withPumice(), Pods: made.pods, Nodes: made.nodes, PodGroups: made.groups, Queues: made.queues,
		}
		conf.EnabledActionMap = map[string]bool{"allocate": true}
		session := harness.RegisterSession(made.tiers, nil)
		before := calls.Load()
		harness.Run([]framework.Action{allocate.New()})
		cost[plans] = calls.Load() - before
		for _, task := range session.Jobs["ns/gang"].Tasks {
			if task.NodeName == "" {
				t.Fatal(task.Name, "has no node")
			}
			if task.Pod.Status.NominatedNodeName != "" {
				t.Error(task.Name, "is nominated still")
			}
		}
		harness.Close()
	}
	t.Log("calls without and with plans:", cost[false], cost[true])
	if cost[false] < tasks || cost[true] > 5 {
		t.Error(cost)
	}
}
