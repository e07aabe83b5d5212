// First makes a first decision, about three nodes that it sends with the request. PUMICE_SERVER names the server; the default
// is the one on this machine.
package main

import (
	"cmp"
	"context"
	"fmt"
	"os"

	pumice "github.com/pumice-scheduler/pumice/clients/go"
	pb "github.com/pumice-scheduler/pumice/clients/go/pumicev1"

	"google.golang.org/protobuf/proto"
)

const policy = `
actions: allocate
tiers:
- plugins:
  - name: resource-strategy-fit
    arguments:
      resources:
        nvidia.com/gpu: {type: MostAllocated, weight: 2}
        cpu: {type: LeastAllocated, weight: 1}
`

func main() {
	if err := ask(cmp.Or(os.Getenv("PUMICE_SERVER"), pumice.DefaultTarget)); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func ask(server string) error {
	client, err := pumice.Dial(server, pumice.Options{})
	if err != nil {
		return err
	}
	defer client.Close()
	amounts := func(cpu, gpu string) *pb.ResourceList {
		items := map[string]string{"cpu": cpu, "pods": "110"}
		if gpu != "" {
			items["nvidia.com/gpu"] = gpu
		}
		return &pb.ResourceList{Items: items}
	}
	cluster := &pb.Cluster{
		Nodes: []*pb.Node{
			{Name: "gpu-1", Allocatable: amounts("64", "8")},
			{Name: "gpu-2", Allocatable: amounts("64", "8")},
			{Name: "cpu-1", Allocatable: amounts("32", "")},
		},
		Tasks: []*pb.Task{{
			Name: "ml/train-0", Node: "gpu-2", Status: pb.TaskStatus_TASK_STATUS_RUNNING,
			Requests: &pb.ResourceList{Items: map[string]string{"cpu": "8", "nvidia.com/gpu": "4"}},
		}},
	}
	inline := &pb.InlineSnapshot{Cluster: cluster, PolicyDocument: policy}
	task := &pb.Task{Requests: &pb.ResourceList{Items: map[string]string{"cpu": "2", "nvidia.com/gpu": "1"}}}
	reply, err := client.Score(context.Background(), &pb.ScoreRequest{
		Against: &pb.EvaluationRef{Target: &pb.EvaluationRef_Inline{Inline: inline}}, Tasks: []*pb.Task{task}, WithFilter: true, Limit: proto.Uint32(3),
	})
	if err != nil {
		return err
	}
	item := reply.Response.GetResult().GetItems()[0]
	fmt.Println("a task of 2 cores and a GPU, best node first:")
	for at, node := range item.GetNodes().GetNames() {
		fmt.Printf("%s %.3f\n", node, item.GetTotals()[at])
	}
	for _, rejection := range item.GetFilter().GetRejections() {
		fmt.Printf("rejected: %s: %s\n", rejection.GetSamples()[0].GetNode(), rejection.GetReason().GetMessage())
	}
	return nil
}
