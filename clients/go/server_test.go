package pumice

import (
	"bufio"
	"context"
	"encoding/json"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"pumice/clients/go/internal/vectors"
	pb "pumice/clients/go/pumicev1"
)

// serve starts the real server as a process of its own, on free ports, and says where it serves.
func serve(t testing.TB) (address, socket string) {
	t.Helper()
	binary := os.Getenv("PUMICE_BIN")
	if binary == "" {
		binary = filepath.Join(vectors.Root(), "target", "debug", "pumice")
	}
	folder, err := os.MkdirTemp("", "pumice")
	if err != nil {
		t.Fatal(err)
	}
	socket = filepath.Join(folder, "s")
	command := exec.Command(binary, "serve", "--grpc-address", "127.0.0.1:0", "--http-address", "127.0.0.1:0",
		"--grpc-socket", socket, "--log", "info", "--log-format", "json")
	log, err := command.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := command.Start(); err != nil {
		t.Fatalf("%v: run cargo build, or name the program in PUMICE_BIN", err)
	}
	t.Cleanup(func() {
		_ = command.Process.Kill()
		_ = command.Wait()
		_ = os.RemoveAll(folder)
	})
	lines := bufio.NewScanner(log)
	for lines.Scan() {
		var entry struct{ Message, GRPC string }
		if json.Unmarshal(lines.Bytes(), &entry) == nil && entry.Message == "serving" {
			// The rest of the log is read, so that a full pipe does not hold the process up.
			go func() { _, _ = io.Copy(io.Discard, log) }()
			return entry.GRPC, socket
		}
	}
	t.Fatal("the server ended before it served")
	return "", ""
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
