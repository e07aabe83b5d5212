package kubescheduler

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"testing"

	"github.com/pumice-scheduler/pumice/clients/go/internal/testserver"
	pb "github.com/pumice-scheduler/pumice/clients/go/pumicev1"

	pumice "github.com/pumice-scheduler/pumice/clients/go"

	"google.golang.org/protobuf/proto"
)

// aheadNodes are the names of the nodes, by slot.
var aheadNodes = []string{"n-c", "n-a", "n-b"}

func amountsOf(cpu, memory string) *pb.ResourceList {
	return &pb.ResourceList{Items: map[string]string{"cpu": cpu, "memory": memory}}
}

// aheadCluster has as many tasks like this one on each node.
func aheadCluster(task *pb.Task, each int) *pb.Cluster {
	cluster := &pb.Cluster{}
	for at, name := range aheadNodes {
		size := []string{"40", "8", "17"}[at]
		cluster.Nodes = append(cluster.Nodes, &pb.Node{Name: name, Allocatable: &pb.ResourceList{Items: map[string]string{"cpu": size, "memory": "512Gi", "pods": "110"}}})
		for number := range each {
			placed := proto.CloneOf(task)
			placed.Name, placed.Node, placed.Status = fmt.Sprintf("team/%s-%d", name, number), name, pb.TaskStatus_TASK_STATUS_BINDING
			cluster.Tasks = append(cluster.Tasks, placed)
		}
	}
	return cluster
}

func inline(cluster *pb.Cluster, policy string) *pb.EvaluationRef {
	return &pb.EvaluationRef{Target: &pb.EvaluationRef_Inline{Inline: &pb.InlineSnapshot{Cluster: cluster, PolicyDocument: policy}}}
}

// nodeNames are the names of the nodes in a set, in its order.
func nodeNames(t *testing.T, nodes *pb.NodeSet) []string {
	t.Helper()
	if len(nodes.GetNames()) > 0 {
		return nodes.GetNames()
	}
	names := []string{}
	slots, err := pumice.Slots(nodes)
	if err != nil {
		t.Fatal(err)
	}
	for _, slot := range slots {
		names = append(names, aheadNodes[slot])
	}
	return names
}

// scored are a sheet's totals and parts by node.
func scored(t *testing.T, nodes *pb.NodeSet, totals []float64, parts []*pb.ScorePart) map[string][]float64 {
	t.Helper()
	names, sheet := nodeNames(t, nodes), map[string][]float64{}
	if len(names) != len(totals) {
		t.Fatal(names, totals)
	}
	for at, name := range names {
		sheet[name] = []float64{totals[at]}
		for _, part := range parts {
			sheet[name] = append(sheet[name], part.GetScores()[at])
		}
	}
	return sheet
}

// scoreOf asks, and returns the items.
func scoreOf(t *testing.T, client *pumice.Client, request *pb.ScoreRequest) []*pb.ScoreItem {
	t.Helper()
	reply, err := client.Score(context.Background(), request)
	if err != nil {
		t.Fatal(err)
	}
	return reply.Response.GetResult().GetItems()
}

// TestScoresAheadAreThoseOfSuchAClusterHoweverTheyAreAsked: by name and by slot, of candidates in the caller's order, of plugins by
// name, without a filter, and as far ahead as can be.
func TestScoresAheadAreThoseOfSuchAClusterHoweverTheyAreAsked(t *testing.T) {
	client := admin(t, testserver.Start(t).Address)
	task := &pb.Task{Name: "team/new", Requests: amountsOf("1", "4Gi")}
	for _, encoding := range []pb.NodeEncoding{pb.NodeEncoding_NODE_ENCODING_NAMES, pb.NodeEncoding_NODE_ENCODING_SLOTS} {
		for _, candidates := range [][]string{nil, {"n-b", "n-c"}, {"n-b", "n-a", "n-c"}} {
			for _, plugins := range [][]string{nil, {"resource-strategy-fit"}} {
				for _, filtered := range []bool{true, false} {
					t.Run(fmt.Sprint(encoding, candidates, plugins, filtered), func(t *testing.T) {
						request := &pb.ScoreRequest{
							Against: inline(aheadCluster(task, 0), guarded), Tasks: []*pb.Task{task}, Plugins: plugins, NodeEncoding: encoding,
							WithFilter: filtered, WithParts: true, Ahead: 32, ResourceFit: pb.ResourceFit_RESOURCE_FIT_IDLE,
						}
						if candidates != nil {
							request.Candidates = &pb.NodeSet{Names: candidates}
						}
						wantAhead(t, client, request, task)
					})
				}
			}
		}
	}
}

// wantAhead compares what a request foresees with what the same request says of clusters with more tasks.
func wantAhead(t *testing.T, client *pumice.Client, request *pb.ScoreRequest, task *pb.Task) {
	t.Helper()
	item := scoreOf(t, client, request)[0]
	if len(item.GetAhead()) != 32 {
		t.Fatal(len(item.GetAhead()), item)
	}
	for at, ahead := range item.GetAhead() {
		later := proto.CloneOf(request)
		later.Against, later.Ahead = inline(aheadCluster(task, at+1), guarded), 0
		fresh := scoreOf(t, client, later)[0]
		foreseen := scored(t, ahead.GetNodes(), ahead.GetTotals(), ahead.GetParts())
		if wanted := scored(t, fresh.GetNodes(), fresh.GetTotals(), fresh.GetParts()); !maps.EqualFunc(foreseen, wanted, slices.Equal) {
			t.Fatalf("%d more: %v, and by a request of its own %v", at+1, foreseen, wanted)
		}
		if one, other := nodeNames(t, ahead.GetNodes()), nodeNames(t, fresh.GetNodes()); !slices.Equal(one, other) {
			t.Fatalf("%d more: in the order %v, and by a request of its own %v", at+1, one, other)
		}
	}
}

func TestEachTaskOfARequestHasScoresAheadOfItsOwn(t *testing.T) {
	client := admin(t, testserver.Start(t).Address)
	small, big := &pb.Task{Name: "team/small", Requests: amountsOf("1", "4Gi")}, &pb.Task{Name: "team/big", Requests: amountsOf("7", "4Gi")}
	port, again := proto.CloneOf(small), proto.CloneOf(small)
	port.Name, again.Name = "team/port", "team/again"
	port.Constraints = &pb.PodConstraints{HostPorts: []*pb.HostPort{{Port: 80, Protocol: "TCP"}}}
	request := func(tasks ...*pb.Task) *pb.ScoreRequest {
		return &pb.ScoreRequest{Against: inline(aheadCluster(small, 0), guarded), Tasks: tasks, WithFilter: true, WithParts: true, Ahead: 5}
	}
	together := scoreOf(t, client, request(small, big, port, again))
	for at, task := range []*pb.Task{small, big, port, again} {
		alone := scoreOf(t, client, request(task))[0]
		if !proto.Equal(&pb.ScoreItem{Ahead: alone.GetAhead()}, &pb.ScoreItem{Ahead: together[at].GetAhead()}) {
			t.Errorf("%s: %v, and alone %v", task.GetName(), together[at].GetAhead(), alone.GetAhead())
		}
		// The big one fits the smallest node once, the next two times, the largest five times.
		if wanted := map[string]int{"team/small": 5, "team/big": 5, "team/port": 0, "team/again": 5}[task.GetName()]; len(alone.GetAhead()) != wanted {
			t.Errorf("%s: %d", task.GetName(), len(alone.GetAhead()))
		}
	}
}

func TestScoresAheadCountWhatASessionHasChanged(t *testing.T) {
	client, ctx := admin(t, testserver.Start(t).Address), context.Background()
	task := &pb.Task{Name: "team/new", Requests: amountsOf("1", "4Gi")}
	before := &pb.Task{Name: "team/before", Requests: amountsOf("5", "4Gi"), Job: "team/job"}
	cluster := aheadCluster(task, 0)
	cluster.Queues, cluster.Jobs = []*pb.Queue{{Name: "queue"}}, []*pb.Job{{Name: "team/job", Queue: "queue"}}
	cluster.Tasks = append(cluster.Tasks, before)
	session, err := client.OpenSession(ctx, inline(cluster, guarded))
	if err != nil {
		t.Fatal(err)
	}
	session.AddChanges(pumice.AllocateOn("team/before", "n-a"))
	reply, err := session.Score(ctx, &pb.ScoreRequest{Tasks: []*pb.Task{task}, WithFilter: true, Ahead: 3, ResourceFit: pb.ResourceFit_RESOURCE_FIT_IDLE})
	if err != nil {
		t.Fatal(err)
	}
	item := reply.Response.GetResult().GetItems()[0]
	// Three of eight cores are left on n-a: for one task now, and for two more.
	counts := []int{len(item.GetTotals())}
	for _, ahead := range item.GetAhead() {
		counts = append(counts, len(ahead.GetTotals()))
	}
	if !slices.Equal(counts, []int{3, 3, 3, 2}) {
		t.Fatal(counts)
	}
}

// TestAScoreOutOfRangeAheadRefusesNothingNow: what is foreseen of a second task is no verdict on the first one.
func TestAScoreOutOfRangeAheadRefusesNothingNow(t *testing.T) {
	client := admin(t, testserver.Start(t).Address)
	const policy = `{apiVersion: kubescheduler.config.k8s.io/v1, kind: KubeSchedulerConfiguration, profiles: [{schedulerName: koord,
		plugins: {multiPoint: {disabled: [{name: '*'}], enabled: [{name: NodeResourcesFitPlus, weight: 7}]}},
		pluginConfig: [{name: NodeResourcesFitPlus, args: {resources: {cpu: {type: LeastAllocated, weight: 2}, memory: {type: MostAllocated, weight: -1}}}}]}]}`
	cluster := &pb.Cluster{Nodes: []*pb.Node{{Name: "n1", Allocatable: &pb.ResourceList{Items: map[string]string{"cpu": "10", "memory": "64Gi", "pods": "110"}}}}}
	request := &pb.ScoreRequest{Against: inline(cluster, policy), Tasks: []*pb.Task{{Name: "team/new", Requests: amountsOf("4", "32Gi")}}, WithFilter: true}
	now := scoreOf(t, client, request)[0]
	if now.GetProblem() != nil || len(now.GetTotals()) != 1 {
		t.Fatal(now)
	}
	request.Ahead = 2
	if foresees := scoreOf(t, client, request)[0]; foresees.GetProblem() != nil || !slices.Equal(foresees.GetTotals(), now.GetTotals()) {
		t.Fatal(foresees)
	}
}
