package pumice_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	pumice "github.com/pumice-scheduler/pumice/clients/go"
	"github.com/pumice-scheduler/pumice/clients/go/derive"
	"github.com/pumice-scheduler/pumice/clients/go/internal/testserver"
	pb "github.com/pumice-scheduler/pumice/clients/go/pumicev1"

	"google.golang.org/protobuf/proto"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// live decodes an object as an informer hands it out.
func live[T any](b testing.TB, name string) *T {
	b.Helper()
	text, err := os.ReadFile("testdata/" + name)
	if err != nil {
		b.Fatal(err)
	}
	value := new(T)
	if err := json.Unmarshal(text, value); err != nil {
		b.Fatal(err)
	}
	return value
}

// encode repeats what makes the bytes of one object, and reports how many they are.
func encode(b *testing.B, bytes func() ([]byte, error)) {
	b.ReportAllocs()
	size := 0
	for b.Loop() {
		made, err := bytes()
		if err != nil {
			b.Fatal(err)
		}
		size = len(made)
	}
	b.ReportMetric(float64(size), "bytes")
}

// BenchmarkPod compares the record of a live pod with the pod itself, as it is and without its managed fields.
func BenchmarkPod(b *testing.B) {
	pod := live[corev1.Pod](b, "live-pod.json")
	b.Run("record", func(b *testing.B) {
		encode(b, func() ([]byte, error) {
			record, err := pumice.TaskRecord(pod, derive.AsKubernetes)
			if err != nil {
				return nil, err
			}
			return proto.Marshal(record)
		})
	})
	b.Run("object", func(b *testing.B) {
		encode(b, func() ([]byte, error) { return json.Marshal(pod) })
	})
	b.Run("object-unmanaged", func(b *testing.B) {
		encode(b, func() ([]byte, error) { return json.Marshal(unmanaged(pod)) })
	})
}

// unmanaged is a pod without its managed fields, which schedulers may leave out of their caches.
func unmanaged(pod *corev1.Pod) *corev1.Pod {
	copied := *pod
	copied.ManagedFields = nil
	return &copied
}

// BenchmarkNode compares the record of a live node with the node itself.
func BenchmarkNode(b *testing.B) {
	node := live[corev1.Node](b, "live-node.json")
	b.Run("record", func(b *testing.B) {
		encode(b, func() ([]byte, error) {
			record, err := pumice.NodeRecord(node)
			if err != nil {
				return nil, err
			}
			return proto.Marshal(record)
		})
	})
	b.Run("object", func(b *testing.B) {
		encode(b, func() ([]byte, error) { return json.Marshal(node) })
	})
}

// liveCluster has 1,000 nodes and 5,000 pods on them.
type liveCluster struct {
	nodes []*corev1.Node
	pods  []*corev1.Pod
}

func makeLiveCluster(t *testing.T) *liveCluster {
	t.Helper()
	made := &liveCluster{}
	node, pod := live[corev1.Node](t, "live-node.json"), live[corev1.Pod](t, "live-pod.json")
	for number := range 1000 {
		copied := *node
		copied.Name, copied.UID = fmt.Sprintf("node-%d", number), types.UID(fmt.Sprintf("3f0d4a4e-0d1b-4c1a-9a53-%012d", number))
		made.nodes = append(made.nodes, &copied)
	}
	for number := range 5000 {
		copied := *pod
		copied.Name, copied.UID = fmt.Sprintf("web-6d4cf56db6-%05d", number), types.UID(fmt.Sprintf("7c0d4a4e-0d1b-4c1a-9a53-%012d", number))
		copied.Spec.NodeName = fmt.Sprintf("node-%d", number%1000)
		made.pods = append(made.pods, &copied)
	}
	return made
}

// add adds an object to a part of a full sync, in one way.
func add(way string, part *pb.Cluster, object any) error {
	pod, isPod := object.(*corev1.Pod)
	switch {
	case way == "records" && isPod:
		record, err := pumice.TaskRecord(pod, derive.AsKubernetes)
		part.Tasks = append(part.Tasks, record)
		return err
	case way == "records":
		record, err := pumice.NodeRecord(object.(*corev1.Node))
		part.Nodes = append(part.Nodes, record)
		return err
	case isPod:
		text, err := json.Marshal(pod)
		part.Tasks = append(part.Tasks, &pb.Task{Object: text, PodRules: pb.PodRules_POD_RULES_KUBERNETES})
		return err
	default:
		text, err := json.Marshal(object)
		part.Nodes = append(part.Nodes, &pb.Node{Object: text})
		return err
	}
}

// parts are a full sync of the cluster, made in one way.
func (cluster *liveCluster) parts(way string) ([]*pb.Cluster, error) {
	parts := []*pb.Cluster{}
	count := 0
	each := func(object any) error {
		if count%500 == 0 {
			parts = append(parts, &pb.Cluster{})
		}
		count++
		return add(way, parts[len(parts)-1], object)
	}
	for _, node := range cluster.nodes {
		if err := each(node); err != nil {
			return nil, err
		}
	}
	for _, pod := range cluster.pods {
		if err := each(pod); err != nil {
			return nil, err
		}
	}
	return parts, nil
}

// syncCost is what a full sync costs: bytes, and processor time of this process and of the server.
type syncCost struct {
	bytes       int
	own, server time.Duration
}

// sync makes a full sync of the cluster in one way, and sends it.
func (cluster *liveCluster) sync(t *testing.T, service pb.StateServiceClient, way string, server int) syncCost {
	t.Helper()
	own, other := ownTime(t), timeOf(t, server)
	parts, err := cluster.parts(way)
	if err != nil {
		t.Fatal(err)
	}
	cost := syncCost{}
	for at, part := range parts {
		kind := pb.BatchKind_BATCH_KIND_FULL_SYNC_PART
		if at == len(parts)-1 {
			kind = pb.BatchKind_BATCH_KIND_FULL_SYNC_LAST
		}
		reply, err := service.Apply(context.Background(), &pb.ApplyRequest{Batch: &pb.Batch{
			Source: way, SourceEpoch: 1, Sequence: uint64(at + 1), Part: uint32(at + 1), Kind: kind, Put: part,
		}})
		if err != nil || len(reply.GetOutcome().GetRefused()) > 0 || reply.GetOutcome().GetResync() != nil {
			t.Fatal(err, reply.GetOutcome().GetRefused(), reply.GetOutcome().GetResync())
		}
		cost.bytes += proto.Size(part)
	}
	cost.own, cost.server = ownTime(t)-own, timeOf(t, server)-other
	return cost
}

func ownTime(t *testing.T) time.Duration {
	t.Helper()
	var usage syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &usage); err != nil {
		t.Fatal(err)
	}
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
}

// timeOf is the processor time of another process, in steps of 10 ms.
func timeOf(t *testing.T, process int) time.Duration {
	t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", process))
	if err != nil {
		t.Fatal(err)
	}
	// The name of the program is in brackets, and may have spaces.
	sum := 0
	for _, field := range strings.Fields(string(text[bytes.LastIndexByte(text, ')')+1:]))[11:13] {
		ticks, err := strconv.Atoi(field)
		if err != nil {
			t.Fatal(err)
		}
		sum += ticks
	}
	return time.Duration(sum) * 10 * time.Millisecond
}

// TestMeasureObjectsAndRecords prints what the first full sync of a server costs, if MEASURE is set.
func TestMeasureObjectsAndRecords(t *testing.T) {
	if os.Getenv("MEASURE") == "" {
		t.Skip("MEASURE is not set")
	}
	cluster := makeLiveCluster(t)
	least := map[string]syncCost{}
	ways := []string{"records", "objects"}
	for range 5 {
		for _, way := range ways {
			server := testserver.Start(t)
			client, err := pumice.Dial(server.Address, pumice.Options{})
			if err != nil {
				t.Fatal(err)
			}
			service := pb.NewStateServiceClient(client.Connection())
			cost := cluster.sync(t, service, way, server.Process())
			if last, known := least[way]; known {
				cost.own, cost.server = min(cost.own, last.own), min(cost.server, last.server)
			}
			least[way] = cost
			_ = client.Close()
			server.Kill()
		}
	}
	for _, way := range ways {
		cost := least[way]
		t.Logf("%s: %.1f MB, processor time %v, and %v of the server", way, float64(cost.bytes)/1e6, cost.own.Round(time.Millisecond), cost.server)
	}
}
