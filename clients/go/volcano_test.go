package pumice

import (
	"encoding/json"
	"strings"
	"testing"

	pb "github.com/pumice-scheduler/pumice/clients/go/pumicev1"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
)

func TestQueuesAndPodGroupsBecomeRecords(t *testing.T) {
	object := func(text string) any {
		made := map[string]any{}
		if err := json.Unmarshal([]byte(text), &made); err != nil {
			t.Fatal(err)
		}
		return made
	}
	same := func(got proto.Message, err error, want proto.Message, text string) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		if err := protojson.Unmarshal([]byte(text), want); err != nil || !proto.Equal(got, want) {
			t.Errorf("%v instead of %v, %v", got, want, err)
		}
	}
	queue, err := QueueRecord(object(`{"metadata": {"name": "team", "uid": "1", "creationTimestamp": "2026-01-02T03:04:05Z", "annotations": {"a": "b"}},
		"spec": {"weight": 3, "priority": 4, "parent": "root", "reclaimable": false, "capability": {"cpu": "1500m"}, "deserved": {},
			"guarantee": {"resource": {"memory": "1Gi"}}, "somethingElse": 1}, "status": {"state": "Open"}}`))
	same(queue, err, &pb.Queue{}, `{"name": "team", "uid": "1", "creationTime": "2026-01-02T03:04:05Z", "annotations": {"a": "b"}, "weight": 3,
		"priority": 4, "parent": "root", "reclaimable": false, "state": "QUEUE_STATE_OPEN", "capability": {"items": {"cpu": "1500m"}},
		"deserved": {}, "guarantee": {"items": {"memory": "1Gi"}}}`)
	queue, err = QueueRecord(object(`{"metadata": {"name": "bare"}}`))
	same(queue, err, &pb.Queue{}, `{"name": "bare"}`)
	job, err := JobRecord(object(`{"metadata": {"name": "gang", "namespace": "ml"}, "spec": {"minMember": 2, "minResources": {}, "queue": "team"},
		"status": {"phase": "Inqueue"}}`), 9)
	same(job, err, &pb.Job{}, `{"name": "ml/gang", "queue": "team", "minMember": 2, "minResources": {}, "priority": 9, "phase": "JOB_PHASE_INQUEUE"}`)
	job, err = JobRecord(object(`{"metadata": {"name": "gang"}}`), 0)
	same(job, err, &pb.Job{}, `{"name": "default/gang", "queue": "default"}`)
	for text, complaint := range map[string]string{
		`{}`: "metadata.name",
		`{"metadata": {"name": "x"}, "status": {"state": "Odd", "phase": "Odd"}}`:                               "Odd",
		`{"metadata": {"name": "x"}, "spec": {"capability": {"cpu": "many"}, "minResources": {"cpu": "many"}}}`: "quantities",
	} {
		if _, err := QueueRecord(object(text)); err == nil || !strings.Contains(err.Error(), complaint) {
			t.Error(text, err)
		}
		if _, err := JobRecord(object(text), 0); err == nil || !strings.Contains(err.Error(), complaint) {
			t.Error(text, err)
		}
	}
}
