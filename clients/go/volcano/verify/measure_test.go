package verify

import (
	"bytes"
	"fmt"
	"os"
	"runtime"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/pumice-scheduler/pumice/clients/go/cycle"
	"github.com/pumice-scheduler/pumice/clients/go/internal/testserver"
	plugins "github.com/pumice-scheduler/pumice/clients/go/volcano"

	v1 "k8s.io/api/core/v1"
	schedulingv1 "volcano.sh/apis/pkg/apis/scheduling/v1beta1"
	"volcano.sh/volcano/cmd/scheduler/app/options"
	"volcano.sh/volcano/pkg/scheduler/actions/allocate"
	"volcano.sh/volcano/pkg/scheduler/actions/preempt"
	"volcano.sh/volcano/pkg/scheduler/api"
	"volcano.sh/volcano/pkg/scheduler/conf"
	"volcano.sh/volcano/pkg/scheduler/framework"
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

// cost is the cost of one cycle's actions, and what came of them.
type cost struct {
	took, own, server time.Duration
	calls             int64
	placed            int
}

// processorOf returns the processor time of another process, in Linux's ticks of 10 ms.
func processorOf(process int) time.Duration {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", process))
	if err != nil {
		return 0
	}
	// The name of the program is in brackets, and may have spaces.
	fields := strings.Fields(string(text[bytes.LastIndexByte(text, ')')+1:]))
	sum := 0
	for _, field := range fields[11:13] {
		ticks, err := strconv.Atoi(field)
		if err != nil {
			return 0
		}
		sum += ticks
	}
	return time.Duration(sum) * 10 * time.Millisecond
}

// race runs the actions on a scenario with the in-tree plugins, with Pumice, and with its plans, in turns, and logs the
// least of each cost.
func race(t *testing.T, turns int, scenario func() *scenario, placed int, actions ...framework.Action) {
	t.Helper()
	if os.Getenv("MEASURE") == "" {
		t.Skip("MEASURE is not set")
	}
	server := testserver.Start(t)
	variants := []string{"in-tree", "Pumice", "Pumice, plans"}
	best := map[string]cost{}
	for range turns {
		for number, variant := range variants {
			var calls atomic.Int64
			options.Default()
			err := plugins.Configure(plugins.Settings{
				Target: server.Address, Client: counted(&calls),
				Cycle: cycle.Settings{PolicyMode: cycle.PushPolicy, Compatibility: plugins.Release(), Plans: number == 2, VerifyEvery: -1, Observer: strict{t: t}},
			})
			if err != nil {
				t.Fatal(err)
			}
			builders := withPumice()
			if number == 0 {
				builders = inTree()
			}
			now := once(t, scenario(), builders, server.Process(), &calls, actions...)
			if now.placed != placed {
				t.Fatalf("%s placed %d", variant, now.placed)
			}
			if last, known := best[variant]; known {
				now.took, now.own, now.server = min(now.took, last.took), min(now.own, last.own), min(now.server, last.server)
			}
			best[variant] = now
		}
	}
	for _, variant := range variants {
		now := best[variant]
		t.Logf("%-14s %v, processor time %v and %v of the service, %d calls, session included; least of %d",
			variant, now.took, now.own, now.server, now.calls, turns)
	}
}

func once(t *testing.T, made *scenario, builders map[string]framework.PluginBuilder, server int, calls *atomic.Int64, actions ...framework.Action) (_ cost) {
	t.Helper()
	conf.EnabledActionMap = map[string]bool{}
	for _, action := range actions {
		conf.EnabledActionMap[action.Name()] = true
	}
	harness := uthelper.TestCommonStruct{
		Plugins: builders, Pods: made.pods, Nodes: made.nodes, PodGroups: made.groups, Queues: made.queues,
	}
	session := harness.RegisterSession(made.tiers, nil)
	runtime.GC()
	began, own, its := time.Now(), processor(), processorOf(server)
	harness.Run(actions)
	now := cost{took: time.Since(began), own: processor() - own, server: processorOf(server) - its}
	for _, job := range session.Jobs {
		for _, task := range job.Tasks {
			if task.Status == api.Binding || task.Status == api.Allocated {
				now.placed++
			}
		}
	}
	// Closing the harness would wait for ever: nobody reads its events, and more than 100 do not fit.
	if own := plugins.CycleOf(session); own != nil {
		own.Close()
	}
	now.calls = calls.Load()
	return now
}

// TestGang measures a gang of 64 on 1,000 nodes, under Volcano's default sampling of nodes.
func TestGang(t *testing.T) {
	race(t, 5, func() *scenario { return oneGang(64, 1000) }, 64, allocate.New())
}

// TestLargeGang measures a gang of 1,000 on 1,000 nodes.
func TestLargeGang(t *testing.T) {
	race(t, 2, func() *scenario { return oneGang(1000, 1000) }, 1000, allocate.New())
}

// TestManyGangs measures 20 gangs of 50 on 1,000 nodes.
func TestManyGangs(t *testing.T) {
	race(t, 3, func() *scenario {
		made := oneGang(1000, 1000)
		made.groups = nil
		for number := range 20 {
			made.groups = append(made.groups, util.BuildPodGroup(fmt.Sprintf("gang-%d", number), "ns", "q", 50, nil, schedulingv1.PodGroupInqueue))
		}
		for number, pod := range made.pods {
			pod.Annotations[schedulingv1.KubeGroupNameAnnotationKey] = fmt.Sprintf("gang-%d", number/50)
		}
		return made
	}, 1000, allocate.New())
}

// TestHopelessGang measures a gang of 120 on 1,000 full nodes, where no eviction helps.
func TestHopelessGang(t *testing.T) {
	race(t, 5, func() *scenario {
		made := oneGang(120, 1000)
		made.groups = append(made.groups, util.BuildPodGroup("full", "ns", "q", 8000, nil, schedulingv1.PodGroupRunning))
		for number := range 8000 {
			pod := util.BuildPod("ns", fmt.Sprintf("full-%d", number), fmt.Sprintf("n%05d", number/8), v1.PodRunning,
				api.BuildResourceList("4", "8Gi"), "full", map[string]string{}, map[string]string{})
			pod.Annotations[schedulingv1.PodPreemptable] = "true"
			made.pods = append(made.pods, pod)
		}
		// The shares would permit an eviction, and gang does not: drf is asked about every node, for each task.
		made.tiers[0].Plugins = []conf.PluginOption{entry("drf", nil, false), entry("gang", nil, false)}
		return made
	}, 0, allocate.New(), preempt.New())
}
