package verify

import (
	"strings"
	"testing"

	"github.com/pumice-scheduler/pumice/clients/go/cycle"
	"github.com/pumice-scheduler/pumice/clients/go/internal/testserver"
	plugins "github.com/pumice-scheduler/pumice/clients/go/volcano"

	v1 "k8s.io/api/core/v1"
	"volcano.sh/apis/pkg/apis/scheduling"
	schedulingv1 "volcano.sh/apis/pkg/apis/scheduling/v1beta1"
	"volcano.sh/volcano/cmd/scheduler/app/options"
	"volcano.sh/volcano/pkg/scheduler/actions/allocate"
	"volcano.sh/volcano/pkg/scheduler/actions/enqueue"
	"volcano.sh/volcano/pkg/scheduler/api"
	"volcano.sh/volcano/pkg/scheduler/conf"
	"volcano.sh/volcano/pkg/scheduler/framework"
	"volcano.sh/volcano/pkg/scheduler/uthelper"
	"volcano.sh/volcano/pkg/scheduler/util"
)

// cardJobs are jobs of a number of tasks with one card each, in a queue of four cards.
func cardJobs(phase schedulingv1.PodGroupPhase, tasks ...int) *scenario {
	card := api.ScalarResource{Name: "nvidia.com/gpu", Value: "1"}
	queue := util.BuildQueueWithAnnos("q", 1, api.BuildResourceList("64", "64Gi"), map[string]string{"volcano.sh/card.quota": `{"A": 4}`})
	node := util.BuildNode("n1", api.BuildResourceList("64", "64Gi",
		api.ScalarResource{Name: "pods", Value: "110"}, api.ScalarResource{Name: "nvidia.com/gpu", Value: "8"}),
		map[string]string{"nvidia.com/gpu.product": "A"})
	made := &scenario{
		queues: []*schedulingv1.Queue{queue}, nodes: []*v1.Node{node},
		tiers: tiers([]conf.PluginOption{
			entry("gang", nil, false), entry("capacity-card", map[string]any{"cardUnlimitedCpuMemory": true}, false),
		}),
	}
	for number, count := range tasks {
		name := string(rune('a' + number))
		group := util.BuildPodGroupWithMinResources(name, "ns", "q", int32(count), nil, api.BuildResourceList("1", "1Gi"), phase)
		group.Annotations = map[string]string{"volcano.sh/card.request": `{"A": ` + string(rune('0'+count)) + `}`}
		made.groups = append(made.groups, group)
		for task := range count {
			pod := util.BuildPod("ns", name+"-"+string(rune('0'+task)), "", v1.PodPending, api.BuildResourceList("1", "1Gi", card), name, nil, nil)
			pod.Annotations["volcano.sh/card.name"] = "A"
			pod.Spec.Containers[0].Resources.Limits = api.BuildResourceList("1", "1Gi", card)
			made.pods = append(made.pods, pod)
		}
	}
	return made
}

// explained runs a cycle and returns what the owner of a job is told.
func explained(t *testing.T, made *scenario, job api.JobID, actions ...framework.Action) (*framework.Session, *api.JobInfo, scheduling.PodGroupCondition) {
	t.Helper()
	options.Default()
	err := plugins.Configure(plugins.Settings{
		Target: testserver.Start(t).Address,
		Cycle:  cycle.Settings{PolicyMode: cycle.PushPolicy, VerifyEvery: -1, Observer: strict{t: t}},
	})
	if err != nil {
		t.Fatal(err)
	}
	harness := uthelper.TestCommonStruct{
		Plugins: withPumice(), Pods: made.pods, Nodes: made.nodes, PodGroups: made.groups, Queues: made.queues,
	}
	conf.EnabledActionMap = map[string]bool{"enqueue": true, "allocate": true}
	session := harness.RegisterSession(made.tiers, nil)
	harness.Run(actions)
	info := session.Jobs[job]
	var condition scheduling.PodGroupCondition
	t.Cleanup(harness.Close)
	for _, found := range info.PodGroup.Status.Conditions {
		condition = found
	}
	return session, info, condition
}

func TestAJobAboveItsQuotaSaysWhy(t *testing.T) {
	_, job, condition := explained(t, cardJobs(schedulingv1.PodGroupPending, 5), "ns/a", enqueue.New(), allocate.New())
	if job.PodGroup.Status.Phase != scheduling.PodGroupPending {
		t.Fatal(job.PodGroup.Status.Phase)
	}
	if condition.Type != scheduling.PodGroupUnschedulableType || condition.Reason == "" || !strings.Contains(condition.Message, "q") {
		t.Fatalf("%+v", condition)
	}
	if job.JobFitErrors != condition.Reason+": "+condition.Message || !strings.Contains(job.FitError(), condition.Reason) {
		t.Fatal(job.JobFitErrors, job.FitError())
	}
	if value(t, "volcano_pumice_events_total") == 0 {
		t.Fatal("no event")
	}
	t.Log(condition.Reason, condition.Message)
}

func TestATaskOfAFullQueueSaysWhy(t *testing.T) {
	// The job was admitted before the quota was lowered.
	session, job, condition := explained(t, cardJobs(schedulingv1.PodGroupInqueue, 5), "ns/a", allocate.New())
	// The gang gives four tasks back; the fifth is the one that the queue did not take.
	rejected := 0
	for id, task := range job.Tasks {
		if fit := job.NodesFitErrors[id]; fit != nil && strings.Contains(fit.Error(), condition.Reason) && task.Status == api.Pending {
			rejected++
		}
	}
	if rejected != 1 || condition.Reason == "" {
		t.Fatal(rejected, condition)
	}
	written := event(t, session.KubeClient(), condition.Message)
	if written.InvolvedObject.Kind != "Pod" || written.Reason != condition.Reason {
		t.Fatal(written)
	}
}
