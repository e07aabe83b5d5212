package cycle

import (
	"context"
	"fmt"
	"testing"

	pb "github.com/pumice-scheduler/pumice/clients/go/pumicev1"
)

// large is a state of 10,000 nodes and 100,000 running tasks in 10,000 jobs, with fingerprints of its own.
type large struct {
	cluster
	prints []uint64
}

func (large *large) Fingerprint(at int) uint64 { return large.prints[at] }

func largeState() *large {
	made := &large{}
	for number := range 10_000 {
		made.node(fmt.Sprintf("n%05d", number), "cpu", "64", "memory", "256Gi", "pods", "110")
	}
	made.add(QueueGroup, "q", &pb.Cluster{Queues: []*pb.Queue{{Name: "q"}}})
	for number := range 10_000 {
		made.job(fmt.Sprintf("j%05d", number), "q", amounts("cpu", "1", "memory", "1Gi"), nodesOf(number)...)
	}
	made.prints = make([]uint64, len(made.keys))
	return made
}

func nodesOf(job int) (nodes []string) {
	for task := range 10 {
		nodes = append(nodes, fmt.Sprintf("n%05d", (job+task*997)%10_000))
	}
	return nodes
}

// BenchmarkOpen opens a session in which 100 jobs have changed, and closes it.
func BenchmarkOpen(b *testing.B) {
	scheduler, _, _ := start(b, Settings{Compatibility: "upstream", VerifyEvery: -1, Budget: Budget{Time: -1}})
	state := largeState()
	open(b, scheduler, state).Close()
	b.ResetTimer()
	for round := range b.N {
		b.StopTimer()
		for number := range 100 {
			at := 10_001 + (round*100+number)%10_000
			state.prints[at]++
			nodes := nodesOf(at - 10_001)
			nodes[0] = nodesOf(round)[0]
			name := state.keys[at].Name
			state.job(name, "q", amounts("cpu", "1", "memory", "1Gi"), nodes...)
		}
		b.StartTimer()
		cycle := scheduler.Open(context.Background(), state, policy)
		if cycle.Err() != nil {
			b.Fatal(cycle.Err())
		}
		b.StopTimer()
		cycle.Close()
		b.StartTimer()
	}
}

// BenchmarkOpenUnchanged is a cycle in which nothing has changed: nothing is sent.
func BenchmarkOpenUnchanged(b *testing.B) {
	scheduler, _, _ := start(b, Settings{VerifyEvery: -1, KeepFor: 1 << 40, Budget: Budget{Time: -1}})
	state := largeState()
	open(b, scheduler, state).Close()
	for b.Loop() {
		scheduler.Open(context.Background(), state, policy).Close()
	}
}
