// Cycle runs one cycle of a scheduler with plugins of its own, as Volcano's adapter does: it gives the state in groups, makes
// one call for equal tasks, looks up results per node, and records events. PUMICE_SERVER names the server; the default is the
// one on this machine.
package main

import (
	"cmp"
	"context"
	"fmt"
	"os"

	pumice "github.com/pumice-scheduler/pumice/clients/go"
	"github.com/pumice-scheduler/pumice/clients/go/cycle"
	pb "github.com/pumice-scheduler/pumice/clients/go/pumicev1"
)

const configuration = `
actions: allocate
tiers:
- plugins:
  - name: drf
  - name: resource-strategy-fit
    arguments:
      resources:
        cpu: {type: MostAllocated, weight: 1}
`

const fit = "resource-strategy-fit"

// state is the scheduler's state, which never changes here.
type state []group

type group struct {
	key     cycle.GroupKey
	records *pb.Cluster
}

func (state state) Groups() int               { return len(state) }
func (state state) Key(at int) cycle.GroupKey { return state[at].key }
func (state state) Fingerprint(int) uint64    { return 1 }
func (state state) Records(at int) (cycle.GroupRecords, error) {
	return cycle.GroupRecords{Cluster: state[at].records}, nil
}

func cpu(text string) *pb.ResourceList {
	return &pb.ResourceList{Items: map[string]string{"cpu": text, "pods": "110"}}
}

func cluster() state {
	node := func(name, amount string) group {
		return group{cycle.GroupKey{Kind: cycle.NodeGroup, Name: name}, &pb.Cluster{Nodes: []*pb.Node{{Name: name, Allocatable: cpu(amount)}}}}
	}
	gang := &pb.Cluster{Jobs: []*pb.Job{{Name: "ml/gang", Queue: "research", MinMember: 3, Phase: pb.JobPhase_JOB_PHASE_INQUEUE}}}
	for number := range 3 {
		gang.Tasks = append(gang.Tasks, &pb.Task{
			Name: fmt.Sprintf("ml/gang-%d", number), Job: "ml/gang",
			Requests: &pb.ResourceList{Items: map[string]string{"cpu": "3"}},
		})
	}
	return state{
		node("n1", "8"), node("n2", "4"),
		{cycle.GroupKey{Kind: cycle.QueueGroup, Name: "research"}, &pb.Cluster{Queues: []*pb.Queue{{Name: "research"}}}},
		{cycle.GroupKey{Kind: cycle.JobGroup, Name: "ml/gang"}, gang},
	}
}

func main() {
	if err := run(cmp.Or(os.Getenv("PUMICE_SERVER"), pumice.DefaultTarget)); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(server string) error {
	client, err := pumice.Dial(server, pumice.Options{})
	if err != nil {
		return err
	}
	defer client.Close()
	scheduler, err := cycle.New(cycle.Settings{
		Client: client, Source: "example", Policy: "example", PolicyMode: cycle.PushPolicy,
	})
	if err != nil {
		return err
	}
	policy := cycle.Policy{Document: configuration, Plugins: []string{"drf", fit}}
	now := scheduler.Open(context.Background(), cluster(), policy)
	defer now.Close()
	for number := range 3 {
		name := fmt.Sprintf("ml/gang-%d", number)
		task := cycle.Task{ID: name, Name: name, Job: "ml/gang", Queue: "research"}
		// The one call; it fails while the service is unavailable.
		if err := now.Prepare(task); err != nil {
			return err
		}
		best, most := "", 0.0
		for _, node := range []string{"n1", "n2"} {
			if now.Fits(fit, task, node) != nil {
				continue
			}
			score, err := now.Score(fit, task, node)
			if err != nil {
				return err
			}
			if best == "" || score > most {
				best, most = node, score
			}
		}
		if best == "" {
			return fmt.Errorf("no node fits %s", name)
		}
		now.Record(cycle.Allocated, task, best)
		fmt.Printf("%s -> %s, %.1f\n", name, best, most)
	}
	return nil
}
