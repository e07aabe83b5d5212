package cycle

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	pumice "github.com/pumice-scheduler/pumice/clients/go"
	"github.com/pumice-scheduler/pumice/clients/go/internal/testserver"
	"github.com/pumice-scheduler/pumice/clients/go/internal/vectors"
	pb "github.com/pumice-scheduler/pumice/clients/go/pumicev1"

	"google.golang.org/protobuf/proto"
)

// cluster is a state of plain records; a group's fingerprint is its content. Groups in bad cannot be read.
type cluster struct {
	keys  []GroupKey
	group map[GroupKey]*pb.Cluster
	read  atomic.Int64
	bad   map[string]bool
}

func (cluster *cluster) Groups() int         { return len(cluster.keys) }
func (cluster *cluster) Key(at int) GroupKey { return cluster.keys[at] }
func (cluster *cluster) Fingerprint(at int) uint64 {
	text, _ := proto.MarshalOptions{Deterministic: true}.Marshal(cluster.group[cluster.keys[at]])
	hash := fnv.New64a()
	_, _ = hash.Write(text)
	return hash.Sum64()
}
func (cluster *cluster) Records(at int) (GroupRecords, error) {
	cluster.read.Add(1)
	if cluster.bad[cluster.keys[at].Name] {
		return GroupRecords{}, errors.New("a malformed annotation")
	}
	return GroupRecords{Cluster: cluster.group[cluster.keys[at]]}, nil
}

func (cluster *cluster) add(kind GroupKind, name string, records *pb.Cluster) {
	key := GroupKey{kind, name}
	if cluster.group == nil {
		cluster.group = map[GroupKey]*pb.Cluster{}
	}
	if cluster.group[key] == nil {
		cluster.keys = append(cluster.keys, key)
	}
	cluster.group[key] = records
}

func (cluster *cluster) node(name string, items ...string) {
	cluster.add(NodeGroup, name, &pb.Cluster{Nodes: []*pb.Node{{Name: name, Allocatable: amounts(items...)}}})
}

func amounts(items ...string) *pb.ResourceList {
	list := &pb.ResourceList{Items: map[string]string{}}
	for at := 0; at < len(items); at += 2 {
		list.Items[items[at]] = items[at+1]
	}
	return list
}

// job is a gang of equal tasks; those with a node run there.
func (cluster *cluster) job(name, queue string, request *pb.ResourceList, nodes ...string) {
	records := &pb.Cluster{Jobs: []*pb.Job{{
		Name: "default/" + name, Queue: queue, MinMember: int32(len(nodes)), Phase: pb.JobPhase_JOB_PHASE_INQUEUE,
	}}}
	for number, node := range nodes {
		task := &pb.Task{Name: fmt.Sprintf("default/%s-%d", name, number), Job: "default/" + name, Requests: request, Node: node}
		if node != "" {
			task.Status = pb.TaskStatus_TASK_STATUS_RUNNING
		}
		records.Tasks = append(records.Tasks, task)
	}
	cluster.add(JobGroup, name, records)
}

func task(job string, number int, queue string) Task {
	name := fmt.Sprintf("default/%s-%d", job, number)
	return Task{ID: name, Name: name, Job: "default/" + job, Queue: queue}
}

const document = `actions: allocate
tiers:
- plugins:
  - {name: drf}
  - name: resource-strategy-fit
    arguments:
      resources: {cpu: {type: MostAllocated, weight: 1}}
      proportional: {enable: true, resources: "example.com/gpu", resourceProportion: {example.com/gpu.cpu: 4, example.com/gpu.memory: 1}}
`

var policy = Policy{Document: document, Plugins: []string{"drf", "resource-strategy-fit"}}

const rsf = "resource-strategy-fit"

func small() *cluster {
	made := &cluster{}
	made.node("n1", "cpu", "8", "memory", "32Gi", "pods", "110")
	made.node("n2", "cpu", "8", "memory", "32Gi", "pods", "110")
	made.node("gpu", "cpu", "8", "memory", "32Gi", "pods", "110", "example.com/gpu", "2")
	made.add(QueueGroup, "q", &pb.Cluster{Queues: []*pb.Queue{{Name: "q"}}})
	made.job("old", "q", amounts("cpu", "4"), "n1")
	made.job("new", "q", amounts("cpu", "2"), "", "", "")
	return made
}

// listener records what a Scheduler reports.
type listener struct {
	NoObserver
	sent    []int
	trouble []error
	drifted []string
	governs []GoverningPolicy
	pushes  []string
	refused []string
}

func (listener *listener) Opened(sent int, _ time.Duration) {
	listener.sent = append(listener.sent, sent)
}
func (listener *listener) Unavailable(err error) { listener.trouble = append(listener.trouble, err) }
func (listener *listener) Drifted(nodes []string) {
	listener.drifted = append(listener.drifted, nodes...)
}

func (listener *listener) Governed(policy GoverningPolicy) {
	listener.governs = append(listener.governs, policy)
}
func (listener *listener) PolicyPushed(was, now PolicyVersion, own bool) {
	listener.pushes = append(listener.pushes, fmt.Sprintf("%d (%s) by %d, own %t", was.Version, was.Origin, now.Version, own))
}

// start makes a Scheduler that pushes its policy, unless the settings check it, on a server of its own.
func start(t testing.TB, settings Settings) (*Scheduler, *listener, *testserver.Server) {
	t.Helper()
	if settings.PolicyMode == FollowPolicy {
		settings.PolicyMode = PushPolicy
	}
	server := testserver.Start(t)
	scheduler, heard := connect(t, server, settings)
	return scheduler, heard, server
}

// connect makes a Scheduler of a server.
func connect(t testing.TB, server *testserver.Server, settings Settings) (*Scheduler, *listener) {
	t.Helper()
	client, err := pumice.Dial(server.Address, pumice.Options{Timeout: 20 * time.Second, BreakAfter: -1, Attempts: 1})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = client.Close() })
	heard := &listener{}
	settings.Client, settings.Observer = client, heard
	scheduler, err := New(settings)
	if err != nil {
		t.Fatal(err)
	}
	return scheduler, heard
}

func open(t testing.TB, scheduler *Scheduler, state SchedulerState) *Cycle {
	t.Helper()
	cycle := scheduler.Open(context.Background(), state, policy)
	if err := cycle.Err(); err != nil {
		t.Fatal(err)
	}
	if refused := cycle.RefusedRecords(); len(refused) > 0 {
		t.Fatal(refused)
	}
	return cycle
}

func TestOneCallServesAClassAndItsLookUps(t *testing.T) {
	scheduler, _, _ := start(t, Settings{Compatibility: "upstream"})
	cycle := open(t, scheduler, small())
	before := cycle.Usage().Calls
	first, second := task("new", 0, "q"), task("new", 1, "q")
	if err := cycle.Prepare(first); err != nil {
		t.Fatal(err)
	}
	// The query, and once per process the table of slots.
	if calls := cycle.Usage().Calls - before; calls != 2 {
		t.Fatal(calls)
	}
	before = cycle.Usage().Calls
	if score, err := cycle.Score(rsf, first, "n1"); score != 750 || err != nil {
		t.Fatal(score, err)
	}
	if score, err := cycle.Score(rsf, second, "n2"); score != 250 || err != nil {
		t.Fatal(score, err)
	}
	if rejection := cycle.Fits(rsf, first, "n2"); rejection != nil {
		t.Fatal(rejection)
	}
	rejection := cycle.Fits(rsf, first, "gpu")
	if rejection == nil || !rejection.Unresolvable || rejection.Message != "proportional of resource example.com/gpu check failed" {
		t.Fatalf("%+v", rejection)
	}
	if err := cycle.Prepare(second); err != nil {
		t.Fatal(err)
	}
	if calls := cycle.Usage().Calls - before; calls != 0 {
		t.Fatal(calls)
	}
	// One node is touched: the next query is about that one, and carries the change.
	cycle.Record(Allocated, first, "n1")
	if err := cycle.Prepare(second); err != nil {
		t.Fatal(err)
	}
	if score, err := cycle.Score(rsf, second, "n1"); score != 1000 || err != nil {
		t.Fatal(score, err)
	}
	if score, err := cycle.Score(rsf, second, "n2"); score != 250 || err != nil {
		t.Fatal(score, err)
	}
	if calls := cycle.Usage().Calls - before; calls != 1 {
		t.Fatal(calls)
	}
	// And back.
	cycle.Record(Withdrawn, first, "n1")
	if score, err := cycle.Score(rsf, second, "n1"); score != 750 || err != nil {
		t.Fatal(score, err)
	}
	cycle.Close()
}

func TestNothingIsAskedWhenNothingHasChanged(t *testing.T) {
	scheduler, heard, _ := start(t, Settings{})
	state := small()
	for range 3 {
		cycle := open(t, scheduler, state)
		if err := cycle.Prepare(task("new", 0, "q")); err != nil {
			t.Fatal(err)
		}
		if cycle.CompareJobs("drf", "default/new", "default/old") >= 0 {
			t.Fatal("a job that holds nothing is not first")
		}
		cycle.Close()
		if len(heard.sent) > 1 && cycle.Usage().Calls != 0 {
			t.Fatal(cycle.Usage())
		}
	}
	if fmt.Sprint(heard.sent) != "[10 0 0]" {
		t.Fatal(heard.sent)
	}
	// One group changes: its records are read again, and only what differs is sent.
	read := state.read.Load()
	state.job("new", "q", amounts("cpu", "2"), "n2", "", "")
	cycle := open(t, scheduler, state)
	if fmt.Sprint(heard.sent) != "[10 0 0 1]" || state.read.Load() != read+1 {
		t.Fatal(heard.sent, state.read.Load()-read)
	}
	if err := cycle.Prepare(task("new", 1, "q")); err != nil {
		t.Fatal(err)
	}
	if score, err := cycle.Score(rsf, task("new", 1, "q"), "n2"); score != 500 || err != nil {
		t.Fatal(score, err)
	}
	cycle.Close()
	// A group goes.
	state.keys = state.keys[:len(state.keys)-1]
	cycle = open(t, scheduler, state)
	if err := cycle.Prepare(task("new", 1, "q")); err == nil {
		t.Fatal("a task that is gone was prepared")
	}
	cycle.Close()
}

func TestAGroupThatCannotBeReadIsLeftOutAndNamed(t *testing.T) {
	scheduler, _, _ := start(t, Settings{})
	state := small()
	open(t, scheduler, state).Close()
	// A known node keeps its last good record, and a new one is missing; all other changes arrive.
	state.bad = map[string]bool{"n1": true, "n3": true}
	state.node("n1", "cpu", "1")
	state.node("n3", "cpu", "1")
	state.node("n4", "cpu", "8", "pods", "110")
	for range 2 {
		cycle := scheduler.Open(context.Background(), state, policy)
		if err := cycle.Err(); err != nil {
			t.Fatal(err)
		}
		if refused := fmt.Sprint(cycle.RefusedRecords()); refused != "[node n1: a malformed annotation node n3: a malformed annotation]" {
			t.Fatal(refused)
		}
		if err := cycle.Prepare(task("new", 0, "q")); err != nil {
			t.Fatal(err)
		}
		for node, known := range map[string]bool{"n1": true, "n2": true, "n3": false, "n4": true} {
			if _, err := cycle.Score(rsf, task("new", 0, "q"), node); (err == nil) != known {
				t.Fatal(node, err)
			}
		}
		cycle.Close()
	}
	// Once the cause is gone, the records are sent.
	state.bad = nil
	cycle := open(t, scheduler, state)
	if err := cycle.Prepare(task("new", 0, "q")); err != nil {
		t.Fatal(err)
	}
	if score, err := cycle.Score(rsf, task("new", 0, "q"), "n3"); err != nil {
		t.Fatal(score, err)
	}
	cycle.Close()
}

func TestKeysAreAskedAgainAfterAChangeOnly(t *testing.T) {
	scheduler, _, _ := start(t, Settings{Compatibility: "upstream"})
	cycle := open(t, scheduler, small())
	compare := func() int { return cycle.CompareJobs("drf", "default/new", "default/old") }
	before := cycle.Usage().Calls
	if compare() >= 0 || compare() >= 0 || cycle.Usage().Calls != before+1 {
		t.Fatal(cycle.Usage().Calls - before)
	}
	cycle.Record(Allocated, task("new", 0, "q"), "n2")
	cycle.Record(Allocated, task("new", 1, "q"), "n2")
	if compare() != 0 || compare() != 0 || cycle.Usage().Calls != before+2 {
		t.Fatal(compare(), cycle.Usage().Calls-before)
	}
	cycle.Record(Pipelined, task("new", 2, "q"), "n2")
	if compare() <= 0 || cycle.Usage().Calls != before+3 {
		t.Fatal(cycle.Usage().Calls - before)
	}
	if cycle.CompareQueues("drf", "q", "other") != 0 {
		t.Fatal("drf without hierarchy orders queues")
	}
}

func TestVictimsKeepTheOrderAndAreAskedOnce(t *testing.T) {
	scheduler, _, _ := start(t, Settings{Compatibility: "upstream"})
	state := small()
	state.job("big", "q", amounts("cpu", "2"), "n2", "n2", "n2")
	cycle := open(t, scheduler, state)
	before := cycle.Usage().Calls
	for range 2 {
		victims, voting := cycle.Victims("drf", Preempt, task("new", 0, "q"), []string{"default/big-2", "default/big-0", "default/big-1"}, nil)
		if !voting || fmt.Sprint(victims) != "[0 1]" {
			t.Fatal(victims, voting)
		}
	}
	if calls := cycle.Usage().Calls - before; calls != 1 {
		t.Fatal(calls)
	}
	cycle.Record(Evicted, task("big", 2, "q"), "n2")
	victims, _ := cycle.Victims("drf", Preempt, task("new", 0, "q"), []string{"default/big-0", "default/big-1"}, nil)
	if fmt.Sprint(victims) != "[0]" {
		t.Fatal(victims)
	}
	// Room that is being released is no node's usage: nothing has to be asked about nodes.
	if err := cycle.Prepare(task("new", 0, "q")); err != nil {
		t.Fatal(err)
	}
	before = cycle.Usage().Calls
	cycle.Record(Evicted, task("big", 0, "q"), "n2")
	if cycle.Fits(rsf, task("new", 0, "q"), "n2") != nil || cycle.Usage().Calls != before {
		t.Fatal(cycle.Usage().Calls - before)
	}
}

func TestACycleWithoutTheServiceFailsClosedOrAbstains(t *testing.T) {
	for _, chosen := range []Fallback{FailClosed, Abstain} {
		scheduler, heard, server := start(t, Settings{Fallback: chosen})
		cycle := open(t, scheduler, small())
		server.Kill()
		first := task("new", 0, "q")
		if err := cycle.Prepare(first); (err != nil) != (chosen == FailClosed) {
			t.Fatal(chosen, err)
		}
		if len(heard.trouble) != 1 || cycle.Err() == nil {
			t.Fatal(heard.trouble)
		}
		if rejection := cycle.Fits(rsf, first, "n1"); (rejection != nil) != (chosen == FailClosed) {
			t.Fatal(chosen, rejection)
		}
		if score, err := cycle.Score(rsf, first, "n1"); score != 0 || (err != nil) != (chosen == FailClosed) {
			t.Fatal(chosen, score, err)
		}
		if cycle.CompareJobs("drf", "default/new", "default/old") != 0 {
			t.Fatal("an opinion without the service")
		}
		if _, voting := cycle.Victims("drf", Preempt, first, []string{"default/old-0"}, nil); voting {
			t.Fatal("a vote without the service")
		}
		if cycle.Allocatable("drf", first) != (chosen == Abstain) {
			t.Fatal(chosen)
		}
		want := map[Fallback]int{FailClosed: -1, Abstain: 0}[chosen]
		if votes := cycle.Enqueueable("default/new"); votes["drf"] != want {
			t.Fatal(votes)
		}
		cycle.Enqueued("default/new")
		cycle.Record(Allocated, first, "n1")
		cycle.Close()
		next := scheduler.Open(context.Background(), small(), policy)
		if next.Err() == nil {
			t.Fatal("a cycle without the service began")
		}
		next.Close()
	}
}

func TestDriftMakesTheNextCycleSendEverything(t *testing.T) {
	scheduler, heard, _ := start(t, Settings{VerifyEvery: 1})
	state := small()
	cycle := open(t, scheduler, state)
	used := map[string]Amounts{"n1": {"cpu": 4000, "pods": 1}, "n2": {}, "gpu": {}}
	if !cycle.Due() || cycle.Verify(used) != nil || len(heard.drifted) != 0 {
		t.Fatal(heard.drifted)
	}
	used["n2"]["cpu"] = 1
	if differing := cycle.Verify(used); fmt.Sprint(differing) != "[n2]" || fmt.Sprint(heard.drifted) != "[n2]" {
		t.Fatal(differing)
	}
	cycle.Close()
	read := state.read.Load()
	open(t, scheduler, state).Close()
	if all := state.read.Load() - read; all != int64(state.Groups()) {
		t.Fatal(all)
	}
}

func TestPlansPlaceAJobWithOneCall(t *testing.T) {
	scheduler, _, _ := start(t, Settings{Plans: true})
	cycle := open(t, scheduler, small())
	pending := func() []string { return []string{"default/new-0", "default/new-1", "default/new-2"} }
	if err := cycle.Prepare(task("new", 0, "q")); err != nil {
		t.Fatal(err)
	}
	before := cycle.Usage().Calls
	var nodes []string
	for number := range 3 {
		if err := cycle.Prepare(task("new", number, "q")); err != nil {
			t.Fatal(err)
		}
		node := cycle.PlannedNode(task("new", number, "q"), pending)
		nodes = append(nodes, node)
		for _, name := range []string{"n1", "n2"} {
			if _, err := cycle.Score(rsf, task("new", number, "q"), name); err != nil {
				t.Fatal(err)
			}
		}
		cycle.Record(Allocated, task("new", number, "q"), node)
	}
	if fmt.Sprint(nodes) != "[n1 n1 n2]" || cycle.Usage().Calls != before+1 {
		t.Fatal(nodes, cycle.Usage().Calls-before)
	}
	cycle.Close()
}

func TestAPlanThatCannotBeFollowedIsMadeOnce(t *testing.T) {
	scheduler, _, _ := start(t, Settings{Plans: true})
	cycle := open(t, scheduler, small())
	defer cycle.Close()
	planned := func(number int) string {
		return cycle.PlannedNode(task("new", number, "q"), func() []string { return []string{fmt.Sprintf("default/new-%d", number)} })
	}
	if err := cycle.Prepare(task("new", 0, "q")); err != nil || planned(0) == "" {
		t.Fatal(err)
	}
	cycle.DropPlan("default/new")
	cycle.Record(Allocated, task("new", 0, "q"), "n2")
	before := cycle.Usage().Calls
	if node := planned(1); node != "" || cycle.Usage().Calls != before {
		t.Fatal(node, cycle.Usage().Calls-before)
	}
}

// TestTheExampleRunsAsTheReadmeSays runs the two commands of clients/go/volcano/README.md that need no Volcano.
func TestTheExampleRunsAsTheReadmeSays(t *testing.T) {
	readme, err := os.ReadFile(filepath.Join("..", "volcano", "README.md"))
	if err != nil {
		t.Fatal(err)
	}
	blocks := regexp.MustCompile("(?s)```console\n(.*?)```").FindAllSubmatch(readme, 2)
	commands := strings.ReplaceAll(string(blocks[0][1]), "$ ", "")
	address := testserver.Start(t).Address
	shell := exec.Command("bash", "-e", "-c", commands)
	shell.Dir = vectors.Root()
	shell.Env = append(os.Environ(), "PUMICE_SERVER="+address)
	said, err := shell.Output()
	if err != nil || string(said) != string(blocks[1][1]) {
		t.Fatalf("%v: %s", err, said)
	}
}
