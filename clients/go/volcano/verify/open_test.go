package verify

import (
	"fmt"
	"maps"
	"os"
	"runtime"
	"slices"
	"strconv"
	"syscall"
	"testing"
	"time"

	pumice "github.com/pumice-scheduler/pumice/clients/go"
	"github.com/pumice-scheduler/pumice/clients/go/cycle"
	"github.com/pumice-scheduler/pumice/clients/go/internal/testserver"
	plugins "github.com/pumice-scheduler/pumice/clients/go/volcano"

	v1 "k8s.io/api/core/v1"
	schedulingv1 "volcano.sh/apis/pkg/apis/scheduling/v1beta1"
	"volcano.sh/volcano/pkg/scheduler/api"
	"volcano.sh/volcano/pkg/scheduler/cache"
	"volcano.sh/volcano/pkg/scheduler/framework"
	"volcano.sh/volcano/pkg/scheduler/util"
)

// processor returns the processor time of this process so far.
func processor() time.Duration {
	var usage syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &usage); err != nil {
		panic(err)
	}
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
}

// TestOpen measures the opening of a session on 10,000 nodes with 100,000 pods, of which 100 have changed in every other
// session, beside the snapshot that Volcano's cache makes for each session.
func TestOpen(t *testing.T) {
	if os.Getenv("MEASURE") == "" {
		t.Skip("MEASURE is not set")
	}
	heard := &opens{strict: strict{t: t}}
	err := plugins.Configure(plugins.Settings{
		Target: testserver.Start(t).Address, Client: pumice.Options{Timeout: 5 * time.Minute},
		Cycle: cycle.Settings{PolicyMode: cycle.PushPolicy, Compatibility: plugins.Release(), VerifyEvery: -1, Observer: heard, Budget: cycle.Budget{Open: 5 * time.Minute}},
	})
	if err != nil {
		t.Fatal(err)
	}
	stored := fill(t)
	measured := map[string][]time.Duration{}
	const rounds = 17
	for round := range rounds {
		if round > 0 && round%2 == 1 {
			change(t, stored, 100, round)
		}
		runtime.GC()
		began, used := time.Now(), processor()
		state := stored.Snapshot()
		snapshot, snapshotUsed := time.Since(began), processor()-used
		session := &framework.Session{Jobs: state.Jobs, Nodes: state.Nodes, Queues: state.Queues, Tiers: oneGang(1, 1).tiers}
		if len(session.Nodes) != manyNodes || len(session.Jobs) != manyNodes {
			t.Fatal(len(session.Nodes), len(session.Jobs))
		}
		runtime.GC()
		began, used = time.Now(), processor()
		opened := plugins.Open(session)
		took, openUsed := time.Since(began), processor()-used
		if opened.Err() != nil {
			t.Fatal(opened.Err())
		}
		t.Logf("session %2d: Volcano's snapshot %v (processor %v); Pumice %v (processor %v), %d records sent",
			round, snapshot, snapshotUsed, took, openUsed, heard.sent)
		opened.Close()
		if round > 0 {
			kind := fmt.Sprintf("Pumice, %d records sent", heard.sent)
			for name, value := range map[string]time.Duration{
				"Volcano's snapshot": snapshot, "Volcano's snapshot, processor": snapshotUsed, kind: took, kind + ", processor": openUsed,
			} {
				measured[name] = append(measured[name], value)
			}
		}
	}
	for _, name := range slices.Sorted(maps.Keys(measured)) {
		list := measured[name]
		slices.Sort(list)
		t.Logf("%-40s least %v, median %v, most %v", name, list[0], list[len(list)/2], list[len(list)-1])
	}
}

type opens struct {
	strict
	sent int
}

func (opens *opens) Opened(sent int, _ time.Duration) { opens.sent = sent }

const manyNodes = 10_000

// fill makes a cache of 10,000 nodes and as many jobs of ten pods.
func fill(t testing.TB) *cache.SchedulerCache {
	made := cache.NewCustomMockSchedulerCache("measured", util.NewFakeBinder(0), util.NewFakeEvictor(0), &util.FakeStatusUpdater{}, nil, nil)
	stop := make(chan struct{})
	t.Cleanup(func() { close(stop) })
	made.Run(stop)
	made.WaitForCacheSync(stop)
	made.AddQueueV1beta1(util.BuildQueue("q", 1, nil))
	for number := range manyNodes {
		labels := map[string]string{}
		for label := range 15 {
			labels[fmt.Sprintf("example.com/label-%d", label)] = fmt.Sprintf("value-%d-%d", label, number%7)
		}
		node := util.BuildNode(fmt.Sprintf("n%05d", number),
			api.BuildResourceList("64", "256Gi", api.ScalarResource{Name: "pods", Value: "110"}), labels)
		node.ResourceVersion = "1000"
		if err := made.AddOrUpdateNode(node); err != nil {
			t.Fatal(err)
		}
		name := fmt.Sprintf("j%05d", number)
		made.AddPodGroupV1beta1(util.BuildPodGroup(name, "ns", "q", 1, nil, schedulingv1.PodGroupRunning))
		for task := range 10 {
			made.AddPod(manyPod(number, task))
		}
	}
	return made
}

func manyPod(job, task int) *v1.Pod {
	name := fmt.Sprintf("j%05d", job)
	on := fmt.Sprintf("n%05d", (job+task*997)%manyNodes)
	pod := util.BuildPod("ns", fmt.Sprintf("%s-%d", name, task), on, v1.PodRunning, api.BuildResourceList("1", "1Gi"), name, nil, nil)
	pod.ResourceVersion = strconv.Itoa(100_000 + job)
	return pod
}

// change changes the priority of one pod of each of some jobs.
func change(t testing.TB, stored *cache.SchedulerCache, jobs, round int) {
	for job := range jobs {
		before, after := manyPod(job, 0), manyPod(job, 0)
		priority := int32(round)
		after.Spec.Priority = &priority
		after.ResourceVersion = strconv.Itoa(1_000_000 + round)
		stored.UpdatePod(before, after)
	}
}
