package pumice

import (
	"context"
	"testing"
	"time"

	"github.com/pumice-scheduler/pumice/clients/go/internal/testserver"
	pb "github.com/pumice-scheduler/pumice/clients/go/pumicev1"
)

// serve starts the real server as a process of its own, on free ports, and says where it serves.
func serve(t testing.TB) (address, socket string) {
	t.Helper()
	server := testserver.Start(t)
	return server.Address, server.Socket
}

func dial(t testing.TB, target string, options Options) *Client {
	t.Helper()
	client, err := Dial(target, options)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = client.Close() })
	return client
}

func within(t testing.TB) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	t.Cleanup(cancel)
	return ctx
}

func must[T any](t testing.TB, value T, err error) T {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
	return value
}

func amounts(items ...string) *pb.ResourceList {
	list := &pb.ResourceList{Items: map[string]string{}}
	for at := 0; at < len(items); at += 2 {
		list.Items[items[at]] = items[at+1]
	}
	return list
}

// cluster has three nodes, of which one is half full, and a gang of two that waits.
func cluster() *pb.Cluster {
	node := func(name string) *pb.Node {
		return &pb.Node{Name: name, Allocatable: amounts("cpu", "8", "memory", "32Gi", "pods", "110")}
	}
	task := func(name, cpu string) *pb.Task {
		return &pb.Task{Name: "default/" + name, Job: "default/gang", Requests: amounts("cpu", cpu)}
	}
	return &pb.Cluster{
		Nodes:  []*pb.Node{node("n1"), node("n2"), node("n3")},
		Queues: []*pb.Queue{{Name: "research"}},
		Jobs:   []*pb.Job{{Name: "default/gang", Queue: "research", MinMember: 2}},
		Tasks: []*pb.Task{
			{Name: "default/old", Node: "n1", Status: pb.TaskStatus_TASK_STATUS_RUNNING, Requests: amounts("cpu", "4")},
			task("gang-0", "6"), task("gang-1", "6"),
		},
	}
}

const spread = `actions: allocate
tiers: [{plugins: [{name: resource-strategy-fit, arguments: {resources: {cpu: {type: LeastAllocated, weight: 1}}}}]}]`

// loaded is a client of a server that knows the cluster, under a policy that spreads.
func loaded(t testing.TB, options Options) *Client {
	t.Helper()
	address, _ := serve(t)
	client := dial(t, address, options)
	feed := client.Feed("tests", 0)
	feed.Put(cluster())
	outcome, err := feed.Flush(within(t))
	if err != nil || len(outcome.GetRefused()) > 0 {
		t.Fatal(err, outcome.GetRefused())
	}
	_, err = client.ReloadPolicy(within(t), &pb.ReloadPolicyRequest{Document: spread})
	if err != nil {
		t.Fatal(err)
	}
	return client
}
