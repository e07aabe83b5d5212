package pumice_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"testing"

	pumice "github.com/pumice-scheduler/pumice/clients/go"
	"github.com/pumice-scheduler/pumice/clients/go/derive"
	"github.com/pumice-scheduler/pumice/clients/go/internal/vectors"
	pb "github.com/pumice-scheduler/pumice/clients/go/pumicev1"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	corev1 "k8s.io/api/core/v1"
)

// read decodes JSON, or ends the test.
func read[T any](t *testing.T, text []byte) *T {
	t.Helper()
	value := new(T)
	if err := json.Unmarshal(text, value); err != nil {
		t.Fatal(err)
	}
	return value
}

// recordsOf makes the records of a dump's objects.
func recordsOf(t *testing.T, text []byte) *pb.Cluster {
	t.Helper()
	dump := read[struct{ Items []json.RawMessage }](t, text)
	records := &pb.Cluster{}
	groups := map[string]any{}
	var pods []*corev1.Pod
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	for _, item := range dump.Items {
		object := *read[map[string]any](t, item)
		switch object["kind"] {
		case "Node":
			record, err := pumice.NodeRecord(read[corev1.Node](t, item))
			must(err)
			records.Nodes = append(records.Nodes, record)
		case "Queue":
			record, err := pumice.QueueRecord(object)
			must(err)
			records.Queues = append(records.Queues, record)
		case "PodGroup":
			record, err := pumice.JobRecord(object, 0)
			must(err)
			groups[record.Name] = object
			records.Jobs = append(records.Jobs, record)
		case "Pod":
			pods = append(pods, read[corev1.Pod](t, item))
		}
	}
	for _, pod := range pods {
		record, err := pumice.TaskRecord(pod, derive.Auto)
		must(err)
		// The command line has all classes of a dump, and looks them up.
		record.PriorityFromClass = false
		if group := groups[record.Job]; group != nil {
			record.SubGroup, err = pumice.SubGroup(group, pod)
			must(err)
		}
		records.Tasks = append(records.Tasks, record)
	}
	return records
}

// The records of the command line's import stand beside the objects; those of this client are the same.
func TestRecordsEqualThoseOfADump(t *testing.T) {
	folder := filepath.Join(vectors.Root(), "tests", "data")
	objects, err := os.ReadFile(filepath.Join(folder, "constraints.json"))
	if err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(filepath.Join(folder, "constraints.records.json"))
	if err != nil {
		t.Fatal(err)
	}
	want, got := &pb.Cluster{}, recordsOf(t, objects)
	if err := protojson.Unmarshal(text, want); err != nil {
		t.Fatal(err)
	}
	compare(t, want.Nodes, got.Nodes)
	compare(t, want.Queues, got.Queues)
	compare(t, want.Jobs, got.Jobs)
	compare(t, want.Tasks, got.Tasks)
}

func compare[R interface {
	proto.Message
	GetName() string
}](t *testing.T, want, got []R) {
	t.Helper()
	named := map[string]R{}
	for _, record := range got {
		named[record.GetName()] = record
	}
	if len(named) != len(want) || len(want) == 0 {
		t.Errorf("%d records, not %d", len(named), len(want))
	}
	for _, record := range want {
		if own, found := named[record.GetName()]; !found || !proto.Equal(record, own) {
			t.Errorf("%s: got\n%s\nnot\n%s", record.GetName(), protojson.Format(own), protojson.Format(record))
		}
	}
}
