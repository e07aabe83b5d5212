package volcano

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/pumice-scheduler/pumice/clients/go/cycle"

	"google.golang.org/protobuf/proto"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"volcano.sh/apis/pkg/apis/scheduling"
	"volcano.sh/volcano/pkg/scheduler/api"
	"volcano.sh/volcano/pkg/scheduler/framework"
)

// sample is a session of one node, queue and job, with one task of the job and one of nobody on the node.
type sample struct {
	session       *framework.Session
	queue         *scheduling.Queue
	job           *api.JobInfo
	own, stranger *api.TaskInfo
}

func newSample() *sample {
	task := func(name string, job api.JobID) *api.TaskInfo {
		made := api.NewTaskInfo(&v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name, UID: types.UID(name), ResourceVersion: "1"}})
		made.Job = job
		return made
	}
	made := &sample{queue: &scheduling.Queue{ObjectMeta: metav1.ObjectMeta{Name: "q"}}, own: task("own", "ns/j"), stranger: task("stranger", "")}
	made.job = api.NewJobInfo("ns/j", made.own)
	made.job.PodGroup = &api.PodGroup{}
	node := api.NewNodeInfo(&v1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n"}})
	node.Tasks = map[api.TaskID]*api.TaskInfo{"own": made.own, "stranger": made.stranger}
	made.session = &framework.Session{
		Jobs: map[api.JobID]*api.JobInfo{"ns/j": made.job}, Nodes: map[string]*api.NodeInfo{"n": node},
		Queues: map[api.QueueID]*api.QueueInfo{"q": {Name: "q", Queue: made.queue}},
	}
	return made
}

// taskChanges change what Volcano itself keeps of a task; what its pod says is tested beside cycle.Fingerprint.
var taskChanges = []func(*api.TaskInfo, *rand.Rand){
	func(task *api.TaskInfo, dice *rand.Rand) { task.NodeName = fmt.Sprint(dice.IntN(3)) },
	func(task *api.TaskInfo, dice *rand.Rand) { task.Priority = int32(dice.IntN(3)) },
	func(task *api.TaskInfo, dice *rand.Rand) {
		task.Status = []api.TaskStatus{api.Pending, api.Running, api.Releasing}[dice.IntN(3)]
	},
	func(task *api.TaskInfo, dice *rand.Rand) { task.SchGated = dice.IntN(2) == 0 },
	func(task *api.TaskInfo, dice *rand.Rand) { task.Resreq.MilliCPU = float64(dice.IntN(3)) / 2 },
	func(task *api.TaskInfo, dice *rand.Rand) {
		task.Resreq.Memory = []float64{0, 1, 2, -1, 1 << 63}[dice.IntN(5)]
	},
	func(task *api.TaskInfo, dice *rand.Rand) {
		task.Resreq.ScalarResources = map[v1.ResourceName]float64{"pods": 1000, "example.com/gpu": float64(dice.IntN(3))}
	},
	func(task *api.TaskInfo, _ *rand.Rand) {
		task.Resreq.ScalarResources = map[v1.ResourceName]float64{"pods": 1000}
	},
	func(task *api.TaskInfo, dice *rand.Rand) {
		task.Pod.Status.NominatedNodeName = fmt.Sprint(dice.IntN(3))
	},
}

func some(dice *rand.Rand) v1.ResourceList {
	return v1.ResourceList{"cpu": *resource.NewMilliQuantity(dice.Int64N(3), resource.DecimalSI)}
}

func name(dice *rand.Rand) string { return fmt.Sprint(dice.IntN(3)) }

var sampleChanges = []func(*sample, *rand.Rand){
	func(sample *sample, dice *rand.Rand) { taskChanges[dice.IntN(len(taskChanges))](sample.own, dice) },
	func(sample *sample, dice *rand.Rand) { taskChanges[dice.IntN(len(taskChanges))](sample.stranger, dice) },
	func(sample *sample, dice *rand.Rand) {
		sample.session.Nodes["n"].Node.Spec.Unschedulable = dice.IntN(2) == 0
	},
	func(sample *sample, dice *rand.Rand) { sample.queue.UID = types.UID(name(dice)) },
	func(sample *sample, dice *rand.Rand) { sample.queue.CreationTimestamp = metav1.Unix(dice.Int64N(3), 0) },
	func(sample *sample, dice *rand.Rand) { sample.queue.Spec.Parent = name(dice) },
	func(sample *sample, dice *rand.Rand) { sample.queue.Spec.Weight = int32(dice.IntN(3)) },
	func(sample *sample, dice *rand.Rand) { sample.queue.Spec.Priority = int32(dice.IntN(3)) },
	func(sample *sample, dice *rand.Rand) {
		sample.queue.Spec.Reclaimable = map[int]*bool{1: new(bool)}[dice.IntN(2)]
	},
	func(sample *sample, dice *rand.Rand) { sample.queue.Spec.Capability = some(dice) },
	func(sample *sample, dice *rand.Rand) { sample.queue.Spec.Deserved = some(dice) },
	func(sample *sample, dice *rand.Rand) { sample.queue.Spec.Guarantee.Resource = some(dice) },
	func(sample *sample, dice *rand.Rand) {
		sample.queue.Status.State = []scheduling.QueueState{scheduling.QueueStateOpen, scheduling.QueueStateClosed}[dice.IntN(2)]
	},
	func(sample *sample, dice *rand.Rand) {
		sample.queue.Annotations = map[string]string{"volcano.sh/card.quota": name(dice)}
	},
	func(sample *sample, dice *rand.Rand) { sample.job.Queue = api.QueueID(name(dice)) },
	func(sample *sample, dice *rand.Rand) { sample.job.PgUID = types.UID(name(dice)) },
	func(sample *sample, dice *rand.Rand) { sample.job.Priority = int32(dice.IntN(3)) },
	func(sample *sample, dice *rand.Rand) { sample.job.MinAvailable = int32(dice.IntN(3)) },
	func(sample *sample, dice *rand.Rand) { sample.job.CreationTimestamp = metav1.Unix(dice.Int64N(3), 0) },
	func(sample *sample, dice *rand.Rand) {
		sample.job.PodGroup.Status.Phase = []scheduling.PodGroupPhase{scheduling.PodGroupPending, scheduling.PodGroupInqueue}[dice.IntN(2)]
	},
	func(sample *sample, dice *rand.Rand) {
		sample.job.PodGroup.Annotations = map[string]string{"volcano.sh/card.request": name(dice)}
	},
	func(sample *sample, dice *rand.Rand) {
		list := some(dice)
		sample.job.PodGroup.Spec.MinResources = map[int]*v1.ResourceList{1: &list}[dice.IntN(2)]
	},
}

// TestTheRecordsOfAGroupChangeWithItsFingerprintOnly changes everything that a record is made of, and checks that no
// two records of a group have one fingerprint.
func TestTheRecordsOfAGroupChangeWithItsFingerprintOnly(t *testing.T) {
	dice, made := rand.New(rand.NewPCG(3, 4)), newSample()
	seen := map[cycle.GroupKind]map[uint64]string{cycle.NodeGroup: {}, cycle.QueueGroup: {}, cycle.JobGroup: {}}
	changed := make([]bool, len(sampleChanges))
	for range 20_000 {
		before := newText(t, made.session)
		number := dice.IntN(len(sampleChanges))
		sampleChanges[number](made, dice)
		changed[number] = changed[number] || newText(t, made.session) != before
		snapshot := snapshotOf(made.session)
		for at := range snapshot.Groups() {
			kind, print, text := snapshot.Key(at).Kind, snapshot.Fingerprint(at), recordsText(t, snapshot, at)
			if other, known := seen[kind][print]; known && other != text {
				t.Fatalf("one fingerprint of two groups, after change %d:\n%s\n%s", number, other, text)
			}
			seen[kind][print] = text
		}
	}
	for number, effective := range changed {
		if !effective {
			t.Errorf("change %d changes no record", number)
		}
	}
	for kind, prints := range seen {
		t.Logf("%d fingerprints of a %s", len(prints), kind)
	}
}

// TestATaskOnANodeIsSentWithoutWhatItsSchedulerMisread sends no amount that the service would refuse.
func TestATaskOnANodeIsSentWithoutWhatItsSchedulerMisread(t *testing.T) {
	task := newSample().own
	task.Resreq = &api.Resource{MilliCPU: 100, Memory: -9e18, ScalarResources: map[v1.ResourceName]float64{"example.com/gpu": 2e19}}
	for node, wanted := range map[string]string{
		"":  "cpu=100m example.com/gpu=20000000000000000000m memory=-9000000000000000000 []",
		"n": "cpu=100m [resources]",
	} {
		task.NodeName = node
		record, mark := taskRecord(task, "")
		if mark != nil {
			t.Fatal(mark)
		}
		text := ""
		items := record.GetRequests().GetItems()
		for _, name := range slices.Sorted(maps.Keys(items)) {
			text += name + "=" + items[name] + " "
		}
		if text += fmt.Sprint(record.GetUnevaluatedFields()); text != wanted {
			t.Errorf("on %q: %s, expected %s", node, text, wanted)
		}
	}
}

func recordsText(t *testing.T, snapshot *snapshot, at int) string {
	records, err := snapshot.Records(at)
	if err != nil {
		t.Fatal(err)
	}
	text, err := proto.MarshalOptions{Deterministic: true}.Marshal(records.Cluster)
	if err != nil {
		t.Fatal(err)
	}
	return fmt.Sprintf("%q %v", text, records.Unreadable)
}

func newText(t *testing.T, session *framework.Session) (all string) {
	snapshot := snapshotOf(session)
	for at := range snapshot.Groups() {
		all += recordsText(t, snapshot, at)
	}
	return all
}
