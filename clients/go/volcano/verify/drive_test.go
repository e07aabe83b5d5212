package verify

import (
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	pumice "github.com/pumice-scheduler/pumice/clients/go"
	"github.com/pumice-scheduler/pumice/clients/go/cycle"
	"github.com/pumice-scheduler/pumice/clients/go/internal/testserver"
	plugins "github.com/pumice-scheduler/pumice/clients/go/volcano"

	"volcano.sh/volcano/cmd/scheduler/app/options"
	"volcano.sh/volcano/pkg/scheduler/actions/allocate"
	"volcano.sh/volcano/pkg/scheduler/actions/backfill"
	"volcano.sh/volcano/pkg/scheduler/actions/enqueue"
	"volcano.sh/volcano/pkg/scheduler/actions/preempt"
	"volcano.sh/volcano/pkg/scheduler/actions/reclaim"
	"volcano.sh/volcano/pkg/scheduler/conf"
	"volcano.sh/volcano/pkg/scheduler/framework"
	"volcano.sh/volcano/pkg/scheduler/plugins/binpack"
	"volcano.sh/volcano/pkg/scheduler/plugins/drf"
	resourcestrategyfit "volcano.sh/volcano/pkg/scheduler/plugins/resource-strategy-fit"
	"volcano.sh/volcano/pkg/scheduler/uthelper"
)

// mostRuns of the in-tree plugins on one cluster: Volcano goes through maps, and through nodes in the order in which its
// goroutines come to them, so that one cluster may end in several ways.
const mostRuns = 200

func inTree() map[string]framework.PluginBuilder {
	all := map[string]framework.PluginBuilder{
		drf.PluginName: drf.New, resourcestrategyfit.PluginName: resourcestrategyfit.New, binpack.PluginName: binpack.New,
	}
	for name, builder := range local {
		all[name] = builder
	}
	return all
}

// actionsOf are all actions, in the order of Volcano's documents for even clusters and in a random one for odd ones.
func actionsOf(seed uint64) []framework.Action {
	actions := []framework.Action{enqueue.New(), allocate.New(), backfill.New(), preempt.New(), reclaim.New()}
	if seed%2 == 1 {
		rand.New(rand.NewPCG(seed, 13)).Shuffle(len(actions), func(left, right int) { actions[left], actions[right] = actions[right], actions[left] })
	}
	return actions
}

// end is where a whole cycle leaves each task and each job, and how often what recorded.
type end struct {
	text                     string
	placed, waiting, evicted int
}

func (scenario *scenario) end(t testing.TB, builders map[string]framework.PluginBuilder, actions ...framework.Action) (end end) {
	t.Helper()
	conf.EnabledActionMap = map[string]bool{}
	for _, action := range actions {
		conf.EnabledActionMap[action.Name()] = true
	}
	harness := uthelper.TestCommonStruct{
		Plugins: builders, Pods: scenario.pods, Nodes: scenario.nodes, PodGroups: scenario.groups, Queues: scenario.queues,
	}
	session := harness.RegisterSession(scenario.tiers, nil)
	harness.Run(actions)
	var lines []string
	for _, job := range session.Jobs {
		lines = append(lines, fmt.Sprint(job.UID, " ", job.PodGroup.Status.Phase))
		for _, task := range job.Tasks {
			lines = append(lines, fmt.Sprint(task.Name, " ", task.Status, " ", task.NodeName))
			switch task.Status.String() {
			case "Allocated", "Binding":
				end.placed++
			case "Pipelined":
				end.waiting++
			case "Releasing":
				end.evicted++
			}
		}
	}
	if own := plugins.CycleOf(session); own != nil && own.Err() != nil {
		t.Error(own.Err())
	}
	harness.Close()
	slices.Sort(lines)
	end.text = strings.Join(lines, "\n")
	return end
}

// TestOursDrive lets Pumice's answers decide: a cycle ends as one with the in-tree plugins does.
func TestOursDrive(t *testing.T) {
	// As few orders of goroutines as can be had.
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	options.Default()
	err := plugins.Configure(plugins.Settings{
		Target: testserver.Start(t).Address, Client: pumice.Options{Timeout: 5 * time.Minute},
		Cycle: cycle.Settings{PolicyMode: cycle.PushPolicy, Compatibility: plugins.Release(), Budget: cycle.Budget{Calls: -1, Time: -1}, VerifyEvery: 1, KeepFor: -1, Observer: strict{t: t}},
	})
	if err != nil {
		t.Fatal(err)
	}
	for name, hierarchy := range map[string]bool{"drf": false, "hierarchical drf": true} {
		var sum end
		alone, runs := 0, 0
		for _, seed := range clusters(t) {
			run := func(builders map[string]framework.PluginBuilder) end {
				// Cycles write into the objects that they are given.
				made := random(seed+1000, shape{nodes: 6, queues: 5, jobs: 15, tasks: 6, full: true, cards: seed%2 == 0, hierarchy: hierarchy, distinct: true})
				made.tiers = tiers(
					[]conf.PluginOption{entry("gang", nil, false), entry("drf", nil, hierarchy)},
					[]conf.PluginOption{entry("resource-strategy-fit", strategies[seed%2], false), entry("binpack", nil, false)},
				)
				return made.end(t, builders, actionsOf(seed)...)
			}
			ours := run(withPumice())
			ends := map[string]int{}
			for tries := 0; tries < 3 || tries < mostRuns && ends[ours.text] == 0; tries++ {
				ends[run(inTree()).text]++
				runs++
			}
			count(t, "whole cycles", 1, 0)
			if ends[ours.text] == 0 {
				t.Errorf("%s, cluster %d ends as none of %d in-tree runs (%d ends):\n%s", name, seed, mostRuns, len(ends), ours.text)
			}
			if len(ends) == 1 {
				alone++
			}
			sum.placed, sum.waiting, sum.evicted = sum.placed+ours.placed, sum.waiting+ours.waiting, sum.evicted+ours.evicted
		}
		t.Logf("%s: %d clusters, %d of them with one end in all in-tree runs (%d); %d tasks placed, %d pipelined, %d evicted",
			name, len(clusters(t)), alone, runs, sum.placed, sum.waiting, sum.evicted)
		if sum.placed == 0 || sum.evicted == 0 {
			t.Errorf("%s: nobody was placed, or nobody evicted", name)
		}
	}
}
