package kubescheduler

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	pumice "github.com/pumice-scheduler/pumice/clients/go"
	"github.com/pumice-scheduler/pumice/clients/go/internal/testserver"
	pb "github.com/pumice-scheduler/pumice/clients/go/pumicev1"

	dto "github.com/prometheus/client_model/go"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/component-base/metrics/legacyregistry"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework"
)

const (
	spread = `{actions: allocate, tiers: [{plugins: [{name: resource-strategy-fit, arguments: {resources: {cpu: {type: LeastAllocated, weight: 1}}}}]}]}`
	pack   = `{actions: allocate, tiers: [{plugins: [{name: resource-strategy-fit, arguments: {resources: {cpu: {type: MostAllocated, weight: 1}}}}]}]}`
	koord  = `{apiVersion: kubescheduler.config.k8s.io/v1, kind: KubeSchedulerConfiguration, profiles: [{schedulerName: koord,
		plugins: {multiPoint: {disabled: [{name: '*'}], enabled: [{name: NodeResourcesFitPlus, weight: 7}, {name: ScarceResourceAvoidance}]}},
		pluginConfig: [{name: NodeResourcesFitPlus, args: {resources: {cpu: {type: LeastAllocated, weight: 1}}}},
			{name: ScarceResourceAvoidance, args: {resources: [nvidia.com/gpu]}}]}]}`
	cards = `{actions: allocate, tiers: [{plugins: [{name: capacity-card, arguments: {cardUnlimitedCpuMemory: true}}]}]}`
)

func arguments(address, more string) string {
	return fmt.Sprintf(`{"address": %q, "budget": "20s"%s}`, address, more)
}

func TestACycleAsksCountsAndForgets(t *testing.T) {
	server := testserver.Start(t)
	client := admin(t, server.Address)
	reload(t, client, spread)
	nodes := []*corev1.Node{testNode("n1", "10", 0), testNode("n2", "10", 0)}
	pod := testPod("new", "", "1", 0)
	bench := start(t, arguments(server.Address, ""), nodes, []*corev1.Pod{testPod("old", "n1", "5", 0), pod})
	// n1: 4 of 10 cores would be left, n2: 9.
	bench.cycle(pod).want(t, Name, map[string]int64{"n1": 44, "n2": 100})

	ctx, other := context.Background(), testPod("other", "", "8", 0)
	if _, err := bench.client.CoreV1().Pods("default").Create(ctx, other, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the other pod is known", func() bool { return stored(t, client, "default/other") != nil })
	state := framework.NewCycleState()
	if status := bench.framework.RunReservePluginsReserve(ctx, state, other, "n2"); !status.IsSuccess() {
		t.Fatal(status)
	}
	// Not bound, and yet it counts: n2 has 1 left.
	bench.cycle(pod).want(t, Name, map[string]int64{"n1": 100, "n2": 25})
	bench.framework.RunReservePluginsUnreserve(ctx, state, other, "n2")
	bench.framework.RunReservePluginsUnreserve(ctx, state, other, "n2")
	bench.cycle(pod).want(t, Name, map[string]int64{"n1": 44, "n2": 100})

	bench.framework.RunReservePluginsReserve(ctx, state, other, "n2")
	bench.framework.RunPostBindPlugins(ctx, state, other, "n2")
	// A late word about the pod, from before the bind, does not undo it.
	touched := other.DeepCopy()
	touched.Annotations = map[string]string{"touched": "yes"}
	if _, err := bench.client.CoreV1().Pods("default").Update(ctx, touched, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	bench.cycle(pod).want(t, Name, map[string]int64{"n1": 100, "n2": 25})
	bound := other.DeepCopy()
	bound.Spec.NodeName = "n2"
	if _, err := bench.client.CoreV1().Pods("default").Update(ctx, bound, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the bind is told", func() bool {
		task := stored(t, client, "default/other")
		return task.GetStatus() == pb.TaskStatus_TASK_STATUS_BOUND && task.GetNode() == "n2"
	})
	if err := bench.client.CoreV1().Pods("default").Delete(ctx, "other", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the deletion is told", func() bool { return stored(t, client, "default/other") == nil })
	reload(t, client, pack)
	bench.cycle(pod).want(t, Name, map[string]int64{"n1": 100, "n2": 17})
}

func stored(t *testing.T, client *pumice.Client, name string) *pb.Task {
	t.Helper()
	list, err := client.ListTasks(context.Background(), &pb.ListTasksRequest{Names: []string{name}})
	if err != nil || len(list.GetTasks()) == 0 {
		return nil
	}
	return list.GetTasks()[0].GetTask()
}

func TestKoordinatorsPluginsStandUnderTheirOwnNames(t *testing.T) {
	server := testserver.Start(t)
	client := admin(t, server.Address)
	reload(t, client, koord)
	nodes := []*corev1.Node{testNode("cpu", "10", 0), testNode("gpu", "10", 8)}
	pod := testPod("new", "", "1", 0)
	bench := start(t, arguments(server.Address, ""), nodes, []*corev1.Pod{testPod("old", "cpu", "5", 0), pod}, koordinators...)
	done := bench.cycle(pod)
	// Without a weight, and not scaled; and Pumice itself has none beside them. Left on gpu: memory and the scarce one.
	done.want(t, "NodeResourcesFitPlus", map[string]int64{"cpu": 40, "gpu": 90})
	done.want(t, "ScarceResourceAvoidance", map[string]int64{"cpu": 100, "gpu": 50})
	if _, own := done.scores["cpu"][Name]; own {
		t.Fatal(done.scores)
	}
	// A profile may enable them at score alone.
	state := framework.NewCycleState()
	infos, err := bench.framework.SnapshotSharedLister().NodeInfos().List()
	if err != nil {
		t.Fatal(err)
	}
	asking := profiles.plugin(bench.framework)
	if status := asking.PreScore(context.Background(), state, pod, infos); !status.IsSkip() {
		t.Fatal(status)
	}
	for _, info := range infos {
		want := done.scores[info.Node().Name]["NodeResourcesFitPlus"]
		if score, status := lookUp(context.Background(), state, "NodeResourcesFitPlus", info); score != want || !status.IsSuccess() {
			t.Fatal(score, status)
		}
		if _, status := lookUp(context.Background(), state, Name, info); status.Code() != fwk.Error {
			t.Fatal("a column that nobody made")
		}
	}
	reload(t, client, spread)
	if done := bench.cycle(pod); done.status.IsSuccess() || !strings.Contains(done.status.Message(), "the policy has no scores of NodeResourcesFitPlus") {
		t.Fatal(done.status)
	}
}

func TestAQueueRefusesAndItsRoomCallsThePodBack(t *testing.T) {
	server := testserver.Start(t)
	client := admin(t, server.Address)
	reload(t, client, cards)
	queues := client.Feed("queues", 0)
	quota := func(cards string) {
		queues.Put(&pb.Cluster{
			Queues: []*pb.Queue{{Name: "team", Annotations: map[string]string{"volcano.sh/card.quota": `{"A100": ` + cards + `}`}}},
			Jobs:   []*pb.Job{{Name: "default/job", Queue: "team", MinMember: 1}},
		})
		if _, err := queues.Flush(context.Background()); err != nil {
			t.Fatal(err)
		}
	}
	quota("4")
	pod := testPod("big", "", "1", 8)
	pod.Annotations = map[string]string{"scheduling.k8s.io/group-name": "job", "volcano.sh/card.name": "A100"}
	lost := testPod("lost", "", "1", 0)
	lost.Annotations = map[string]string{"scheduling.k8s.io/group-name": "nowhere"}
	bench := start(t, arguments(server.Address, ""), []*corev1.Node{testNode("gpu", "64", 8), testNode("cpu", "64", 0)}, []*corev1.Pod{pod, lost})
	done := bench.cycle(pod)
	if done.status.Code() != fwk.UnschedulableAndUnresolvable || !strings.HasPrefix(done.status.Message(), "capacity-card: ") {
		t.Fatal(done.status.Code(), done.status)
	}
	if done := bench.cycle(lost); !done.status.IsRejected() || !strings.Contains(done.status.Message(), "default/nowhere") {
		t.Fatal(done.status)
	}
	quota("8")
	eventually(t, "the pod is put back", bench.wasActivated("default/big"))
	done = bench.cycle(pod)
	if !done.status.IsSuccess() || !strings.HasPrefix(done.statuses["cpu"], "capacity-card: ") || len(done.scores) != 1 {
		t.Fatal(done.status, done.statuses, done.scores)
	}
}

func TestTheServiceIsAwayAsConfigured(t *testing.T) {
	nodes := []*corev1.Node{testNode("n1", "10", 0)}
	pod := testPod("new", "", "1", 0)
	pod.Annotations = map[string]string{"scheduling.k8s.io/group-name": "job"}
	for _, test := range []struct {
		away string
		want fwk.Code
	}{
		{`{}`, fwk.UnschedulableAndUnresolvable},
		{`{"filter": "FailOpen"}`, fwk.UnschedulableAndUnresolvable},
		{`{"filter": "FailOpen", "admit": "FailOpen"}`, fwk.Success},
		{`{"filter": "Abstain", "admit": "Abstain"}`, fwk.Success},
		{`{"filter": "FailOpen", "admit": "FailOpen", "score": "ReturnError"}`, fwk.Error},
		{`{"filter": "ReturnError", "admit": "FailOpen"}`, fwk.Error},
		{`{"admit": "ReturnError"}`, fwk.Error},
	} {
		bench := start(t, `{"address": "127.0.0.1:1", "budget": "100ms", "fallback": `+test.away+`}`, nodes, []*corev1.Pod{pod})
		done := bench.cycle(pod)
		if done.status.Code() != test.want {
			t.Errorf("%s: %s %s", test.away, done.status.Code(), done.status)
		}
		if done.status.IsRejected() && done.status.Message() != UnavailableReason {
			t.Errorf("%s: %s", test.away, done.status)
		}
		if done.status.IsSuccess() && len(done.scores) != 1 {
			t.Errorf("%s: %v", test.away, done.scores)
		}
	}
}

func TestADecisionWithoutTheServiceIsCountedAndSaid(t *testing.T) {
	pod := testPod("new", "", "1", 0)
	bench := start(t, `{"address": "127.0.0.1:1", "budget": "100ms", "fallback": {"filter": "FailOpen"}}`, []*corev1.Node{testNode("n1", "10", 0)}, []*corev1.Pod{pod})
	before := metricOf(t, "scheduler_pumice_decisions_without_service_total", "bound")
	done := bench.cycle(pod)
	if !done.status.IsSuccess() {
		t.Fatal(done.status)
	}
	bench.framework.RunReservePluginsReserve(context.Background(), done.state, pod, "n1")
	bench.framework.RunPostBindPlugins(context.Background(), done.state, pod, "n1")
	if now := metricOf(t, "scheduler_pumice_decisions_without_service_total", "bound"); now != before+1 {
		t.Fatal(before, now)
	}
	wanted := "Warning DecidedWithoutPumice bound to node n1 while the decision service was unavailable: Filter (fail_open), Score (abstain)"
	if text := <-bench.events.Events; text != wanted {
		t.Fatal(text)
	}
	closed := start(t, `{"address": "127.0.0.1:1", "budget": "100ms"}`, nil, []*corev1.Pod{pod})
	before = metricOf(t, "scheduler_pumice_decisions_without_service_total", "waits")
	if done := closed.cycle(pod); done.status.Message() != UnavailableReason || metricOf(t, "scheduler_pumice_decisions_without_service_total", "waits") != before+1 {
		t.Fatal(done.status)
	}
}

func TestAServiceThatWasRestartedGetsEverythingAndThePodsComeBack(t *testing.T) {
	server := testserver.Start(t)
	pod := testPod("new", "", "1", 0)
	bench := start(t, arguments(server.Address, `, "scores": "Scaled"`), []*corev1.Node{testNode("n1", "10", 0)}, []*corev1.Pod{pod})
	reload(t, admin(t, server.Address), spread)
	bench.cycle(pod).want(t, Name, map[string]int64{"n1": 100})
	server.Kill()
	quick := start(t, `{"address": "`+server.Address+`", "budget": "200ms", "source": "quick"}`, nil, []*corev1.Pod{pod})
	if done := quick.cycle(pod); done.status.Message() != UnavailableReason {
		t.Fatal(done.status)
	}
	again := testserver.Start(t, "--grpc-address", server.Address)
	reload(t, admin(t, again.Address), spread)
	eventually(t, "the pod is put back", quick.wasActivated("default/new"))
	bench.cycle(pod).want(t, Name, map[string]int64{"n1": 100})
}

func TestProfilesShareWhatTheyWriteAndAStandbyWritesNothing(t *testing.T) {
	server := testserver.Start(t)
	client := admin(t, server.Address)
	nodes, pod := []*corev1.Node{testNode("n1", "10", 0)}, testPod("new", "", "1", 0)
	leader := start(t, arguments(server.Address, ""), nodes, []*corev1.Pod{pod})
	if done := leader.cycle(pod); !done.status.IsSuccess() {
		t.Fatal(done.status)
	}
	standby := start(t, arguments(server.Address, ""), nodes, []*corev1.Pod{pod})
	if done := leader.cycle(pod); !done.status.IsSuccess() {
		t.Fatal(done.status)
	}
	// It takes over, and the former leader writes no more.
	if done := standby.cycle(pod); !done.status.IsSuccess() {
		t.Fatal(done.status)
	}
	late := testPod("late", "", "1", 0)
	if _, err := leader.client.CoreV1().Pods("default").Create(context.Background(), late, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the former leader is refused", func() bool {
		done := leader.cycle(pod)
		return done.status.Code() == fwk.Error && strings.Contains(done.status.Message(), pumice.ErrFenced.Error())
	})
	info, err := client.GetServerInfo(context.Background())
	if err != nil || len(info.GetSources()) != 1 || info.GetSources()[0].GetPosition().GetSource() != "kube-scheduler" {
		t.Fatal(info.GetSources(), err)
	}
	args, err := parsed(arguments(server.Address, ""))
	if err != nil {
		t.Fatal(err)
	}
	first, err := hubOf(context.Background(), standby.framework, &args)
	if err != nil || first.mirror.source != "kube-scheduler" {
		t.Fatal(err)
	}
	args.Policy, args.Scores, args.Fallback.Filter = "other", ScoresScaled, "FailOpen"
	if second, err := hubOf(context.Background(), standby.framework, &args); err != nil || second != first {
		t.Fatal(err)
	}
	args.Address = "127.0.0.1:1"
	if _, err := hubOf(context.Background(), standby.framework, &args); err == nil {
		t.Fatal("two ways of writing one source")
	}
}

// gathered are the metrics of this process.
func gathered(t *testing.T) []*dto.MetricFamily {
	t.Helper()
	families, err := legacyregistry.DefaultGatherer.Gather()
	if err != nil {
		t.Fatal(err)
	}
	return families
}

// metricOf is the sum of a counter over the series with this value of some label.
func metricOf(t *testing.T, name, value string) (sum int) {
	t.Helper()
	for _, family := range gathered(t) {
		for _, metric := range family.GetMetric() {
			if family.GetName() == name && slices.ContainsFunc(metric.GetLabel(), func(label *dto.LabelPair) bool { return label.GetValue() == value }) {
				sum += int(metric.GetCounter().GetValue())
			}
		}
	}
	return sum
}

func TestMetricsStandOnTheSchedulersPage(t *testing.T) {
	registerMetrics()
	replies.WithLabelValues("Filter", "service").Inc()
	for _, family := range gathered(t) {
		if family.GetName() == "scheduler_pumice_replies_total" {
			return
		}
	}
	t.Fatal("not there")
}

func TestWaitingPodsRestLongerEachTime(t *testing.T) {
	room, now := newWaitingRoom(), time.Unix(0, 0)
	room.now = func() time.Time { return now }
	pod := testPod("p", "", "1", 0)
	metadata := func(epoch, revision, version uint64) *pb.ResponseMetadata {
		return &pb.ResponseMetadata{Revision: &pb.Revision{Epoch: epoch, Number: revision}, PolicyVersion: version}
	}
	due := func(epoch, revision, version uint64) string {
		for reason, pods := range room.due(&pb.Revision{Epoch: epoch, Number: revision}, map[string]uint64{"default": version}) {
			if len(pods) == 1 {
				return reason
			}
		}
		return ""
	}
	enter := func(at *pb.ResponseMetadata) { room.enter(pod, nil, "default", at) }
	enter(metadata(1, 5, 1))
	now = now.Add(time.Hour)
	for _, step := range []struct {
		revision, version uint64
		want              string
	}{{5, 1, ""}, {6, 1, "state"}, {7, 1, ""}} {
		if got := due(1, step.revision, step.version); got != step.want {
			t.Fatal(step, got)
		}
	}
	enter(metadata(1, 7, 1))
	now = now.Add(look)
	if got := due(1, 8, 1); got != "" {
		t.Fatal("too early:", got)
	}
	if got := due(1, 8, 2); got != "policy" {
		t.Fatal(got)
	}
	enter(metadata(1, 8, 2))
	if got := due(2, 1, 2); got != "back" {
		t.Fatal(got)
	}
	enter(nil)
	if got := due(2, 1, 2); got != "back" {
		t.Fatal(got)
	}
	for range 20 {
		enter(metadata(1, 8, 2))
	}
	now = now.Add(longestRest)
	if got := due(1, 9, 2); got != "state" {
		t.Fatal(got)
	}
	room.leave(pod.UID)
	if len(room.policies()) != 0 {
		t.Fatal("it has left")
	}
}

// sourceOf is the status of the scheduler's source, or nil.
func sourceOf(t *testing.T, client *pumice.Client) *pb.SourceStatus {
	t.Helper()
	info, err := client.GetServerInfo(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	for _, source := range info.GetSources() {
		if source.GetPosition().GetSource() == "kube-scheduler" {
			return source
		}
	}
	return nil
}

func TestAnIdleSchedulerStaysHeard(t *testing.T) {
	server := testserver.Start(t, "--source-stale-ms", "2000")
	client, pod := admin(t, server.Address), testPod("new", "", "1", 0)
	bench := start(t, arguments(server.Address, ""), []*corev1.Node{testNode("n1", "10", 0)}, []*corev1.Pod{pod})
	if sourceOf(t, client) != nil {
		t.Fatal("a standby writes")
	}
	if done := bench.cycle(pod); !done.status.IsSuccess() {
		t.Fatal(done.status)
	}
	for until := time.Now().Add(3 * time.Second); time.Now().Before(until); time.Sleep(50 * time.Millisecond) {
		if source := sourceOf(t, client); source.GetStale() || !source.GetSynced() {
			t.Fatal(source)
		}
	}
	if done := bench.cycle(pod); !done.status.IsSuccess() || sourceOf(t, client).GetPosition().GetSequence() < 3 {
		t.Fatal(done.status, sourceOf(t, client))
	}
}

func TestAnObjectThatCannotBeReadIsMarkedAndTheOthersArrive(t *testing.T) {
	server := testserver.Start(t)
	client, ctx := admin(t, server.Address), context.Background()
	reload(t, client, spread)
	bad, worse := testNode("bad", "10", 0), testPod("worse", "n2", "1", 0)
	bad.Annotations = map[string]string{"volcano.sh/oversubscription-cpu": "many"}
	worse.Spec.Containers[0].Resources.Requests["cpu"] = resource.MustParse("-1")
	nodes := []*corev1.Node{testNode("n1", "10", 0), testNode("n2", "10", 0), bad}
	pod := testPod("new", "", "1", 0)
	bench := start(t, arguments(server.Address, ""), nodes, []*corev1.Pod{pod, worse})
	// Nobody knows how much of n2 the pod takes, so that nothing new goes there.
	done := bench.cycle(pod)
	done.want(t, Name, map[string]int64{"n1": 100})
	if !strings.Contains(done.statuses["n2"], "default/worse") && !strings.Contains(done.statuses["n2"], "node-state") || done.statuses["bad"] == "" {
		t.Fatal(done.statuses)
	}
	fixed := testPod("worse", "n2", "1", 0)
	if _, err := bench.client.CoreV1().Pods("default").Update(ctx, fixed, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the pod is read", func() bool { return stored(t, client, "default/worse") != nil })
	bench.cycle(pod).want(t, Name, map[string]int64{"n1": 100, "n2": 89})
	// The last good record stays in force.
	if _, err := bench.client.CoreV1().Pods("default").Update(ctx, worse, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the mark is known", func() bool {
		list, err := client.ListTasks(ctx, &pb.ListTasksRequest{Names: []string{"default/worse"}})
		return err == nil && len(list.GetTasks()) == 1 && len(list.GetTasks()[0].GetInvalid()) == 1
	})
	bench.cycle(pod).want(t, Name, map[string]int64{"n1": 100, "n2": 89})
}
