package derive_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	pumice "github.com/pumice-scheduler/pumice/clients/go"
	"github.com/pumice-scheduler/pumice/clients/go/derive"
	"github.com/pumice-scheduler/pumice/clients/go/internal/testserver"
	pb "github.com/pumice-scheduler/pumice/clients/go/pumicev1"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
)

// readsAll is a policy that reads all labels, and the annotations of cards.
const readsAll = `actions: allocate
tiers: [{plugins: [{name: predicates}, {name: nodeorder}, {name: gpu-devices}, {name: capacity-card}]}]`

// writer sends full syncs of one source.
type writer struct {
	t      *testing.T
	ctx    context.Context
	client *pumice.Client
	number uint64
}

func startWriter(t *testing.T) *writer {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Minute)
	t.Cleanup(cancel)
	client, err := pumice.Dial(testserver.Start(t).Address, pumice.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = client.Close() })
	if _, err := client.ReloadPolicy(ctx, &pb.ReloadPolicyRequest{Document: readsAll}); err != nil {
		t.Fatal(err)
	}
	return &writer{t: t, ctx: ctx, client: client}
}

// stored is what a server has of a cluster that it was sent: records by kind and name, and the names that it refused.
type stored struct {
	records map[string]proto.Message
	refused map[string]string
}

// rejection is what the server says of an object that it refused.
func (stored stored) rejection(name string) string {
	_, name, _ = strings.Cut(name, " ")
	for field, message := range stored.refused {
		if of, _, _ := strings.Cut(message, ":"); strings.HasSuffix(of, strings.TrimPrefix(name, "default/")) {
			return field + ": " + message
		}
	}
	return "its problem names only its place"
}

// send replaces everything by a cluster. It drops everything first, so that no earlier record is taken for a refused one.
func (writer *writer) send(cluster *pb.Cluster) stored {
	writer.t.Helper()
	writer.apply(&pb.Cluster{})
	made := stored{records: map[string]proto.Message{}, refused: map[string]string{}}
	for _, problem := range writer.apply(cluster).GetRefused() {
		made.refused[problem.GetField()] = problem.GetMessage()
	}
	for token := ""; ; {
		page, err := writer.client.ListTasks(writer.ctx, &pb.ListTasksRequest{Page: &pb.Page{Size: 1000, Token: token}})
		if err != nil {
			writer.t.Fatal(err)
		}
		for _, task := range page.GetTasks() {
			made.records["pod "+task.GetTask().GetName()] = task.GetTask()
		}
		if token = page.GetNextPageToken(); token == "" {
			break
		}
	}
	nodes, err := writer.client.ListNodes(writer.ctx, &pb.ListNodesRequest{Page: &pb.Page{Size: 1000}})
	if err != nil {
		writer.t.Fatal(err)
	}
	for _, node := range nodes.GetNodes() {
		made.records["node "+node.GetNode().GetName()] = node.GetNode()
	}
	return made
}

func (writer *writer) apply(cluster *pb.Cluster) *pb.BatchOutcome {
	writer.t.Helper()
	writer.number++
	reply, err := pb.NewStateServiceClient(writer.client.Connection()).Apply(writer.ctx, &pb.ApplyRequest{Batch: &pb.Batch{
		Source: "objects", SourceEpoch: 1, Sequence: writer.number, Part: 1, Kind: pb.BatchKind_BATCH_KIND_FULL_SYNC_LAST, Put: cluster,
	}})
	if err != nil || reply.GetOutcome().GetResync() != nil {
		writer.t.Fatal(err, reply)
	}
	return reply.GetOutcome()
}

// sample has random objects as texts, and the records that this client makes of them.
type sample struct {
	nodes, pods, others []json.RawMessage
	records             *pb.Cluster
	// unread are the reasons why this client makes no record, by kind and name.
	unread map[string]error
	owners pumice.Owners
}

func decoded[T any](object any) (*T, []byte, error) {
	text, err := json.Marshal(object)
	if err != nil {
		return nil, nil, err
	}
	value := new(T)
	return value, text, json.Unmarshal(text, value)
}

// makeSample makes random objects. Types of Kubernetes may lack fields, which a scheduler built with them never sees: they are left out.
func makeSample(t *testing.T, dice dice, pods int, rules derive.Derivation) *sample {
	t.Helper()
	made := &sample{records: &pb.Cluster{}, unread: map[string]error{}}
	made.addOwners(t, dice)
	for number := range pods / 8 {
		node, text, err := decoded[corev1.Node](dice.node(number))
		if err != nil {
			continue
		}
		made.nodes = append(made.nodes, text)
		if record, err := pumice.NodeRecord(node); err == nil {
			made.records.Nodes = append(made.records.Nodes, record)
		} else {
			made.unread["node "+node.Name] = err
		}
	}
	for number := range pods {
		object := dice.pod(number)
		if !typesHave("resources") {
			delete(object["status"].(fields), "resources")
			delete(object["status"].(fields), "allocatedResources")
		}
		if !typesHave("schedulingGroup") {
			delete(object["spec"].(fields), "schedulingGroup")
		}
		pod, text, err := decoded[corev1.Pod](object)
		if err != nil {
			// No informer hands out such an object.
			continue
		}
		made.pods = append(made.pods, text)
		record, err := pumice.TaskRecord(pod, rules)
		if err != nil {
			made.unread["pod "+pumice.UnreadableTask(pod, err).GetName()] = err
			continue
		}
		made.owners.Complete(record, pod)
		made.records.Tasks = append(made.records.Tasks, record)
	}
	return made
}

// typesHave reports whether these types of Kubernetes have a newer field.
func typesHave(field string) bool {
	text := `{"spec": {"schedulingGroup": {"podGroupName": "g"}}, "status": {"resources": {"limits": {"cpu": "1"}}}}`
	var pod corev1.Pod
	_ = json.Unmarshal([]byte(text), &pod)
	pod.Spec.Containers = nil
	back, _ := json.Marshal(&pod)
	return strings.Contains(string(back), `"`+field+`":{`)
}

// addOwners adds owners of pods to both namespaces, and finds them as the caches of informers do.
func (made *sample) addOwners(t *testing.T, dice dice) {
	t.Helper()
	named := func(kind, version, namespace string, spec any) fields {
		return fields{"apiVersion": version, "kind": kind, "metadata": fields{"name": "owner", "namespace": namespace}, "spec": spec}
	}
	services := map[string][]*corev1.Service{}
	controllers, replicas, stateful := map[string]*corev1.ReplicationController{}, map[string]*appsv1.ReplicaSet{}, map[string]*appsv1.StatefulSet{}
	for _, namespace := range []string{"default", "team"} {
		service := owner[corev1.Service](t, made, named("Service", "v1", namespace, fields{"selector": fields{"app": pick(dice, "a", "b")}}))
		services[namespace] = []*corev1.Service{service}
		controllers[namespace] = owner[corev1.ReplicationController](t, made,
			named("ReplicationController", "v1", namespace, fields{"selector": fields{"tier": "a"}}))
		replicas[namespace] = owner[appsv1.ReplicaSet](t, made, named("ReplicaSet", "apps/v1", namespace, fields{"selector": dice.labelSelector()}))
		stateful[namespace] = owner[appsv1.StatefulSet](t, made, named("StatefulSet", "apps/v1", namespace, fields{"selector": dice.labelSelector()}))
	}
	made.owners = pumice.Owners{
		Services:              func(namespace string) ([]*corev1.Service, error) { return services[home(namespace)], nil },
		ReplicationController: found(controllers), ReplicaSet: found(replicas), StatefulSet: found(stateful),
	}
}

// home is the namespace of an object that names none.
func home(namespace string) string {
	if namespace == "" {
		return "default"
	}
	return namespace
}

func owner[T any](t *testing.T, made *sample, object fields) *T {
	t.Helper()
	value, text, err := decoded[T](object)
	if err != nil {
		t.Fatal(err)
	}
	made.others = append(made.others, text)
	return value
}

func found[T any](owners map[string]*T) func(namespace, name string) (*T, error) {
	return func(namespace, name string) (*T, error) {
		if name != "owner" {
			return nil, errors.New("not found")
		}
		return owners[home(namespace)], nil
	}
}

// list is the list of objects that a server is sent.
func (made *sample) list(t *testing.T) []byte {
	t.Helper()
	text, err := json.Marshal(fields{"apiVersion": "v1", "kind": "List", "items": slices.Concat(made.nodes, made.pods, made.others)})
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// number is that of an environment variable.
func number(t *testing.T, variable string, usual uint64) uint64 {
	t.Helper()
	text := os.Getenv(variable)
	if text == "" {
		return usual
	}
	given, err := strconv.ParseUint(text, 10, 64)
	if err != nil {
		t.Fatal(variable, err)
	}
	return given
}

// The server stores of an object what it stores of the record that this client makes of the object, or neither. PUMICE_COMPARE_SEED
// is the number of the first sample, PUMICE_COMPARE_SAMPLES how many there are.
func TestObjectsAndRecordsAreStoredAlike(t *testing.T) {
	writer := startWriter(t)
	first, samples := number(t, "PUMICE_COMPARE_SEED", 1), number(t, "PUMICE_COMPARE_SAMPLES", 3)
	same, refused := 0, 0
	for seed := first; seed < first+samples; seed++ {
		rules := []pb.PodRules{pb.PodRules_POD_RULES_UNSPECIFIED, pb.PodRules_POD_RULES_KUBERNETES, pb.PodRules_POD_RULES_VOLCANO}[seed%3]
		derivation := []derive.Derivation{derive.Auto, derive.AsKubernetes, derive.AsVolcano}[seed%3]
		made := makeSample(t, dice{rand.New(rand.NewPCG(seed, 7))}, 400, derivation)
		objects := writer.send(&pb.Cluster{Objects: [][]byte{made.list(t)}, PodRules: rules})
		records := writer.send(made.records)
		for name, want := range objects.records {
			if got := records.records[name]; got == nil || !proto.Equal(want, got) {
				t.Errorf("seed %d, %s: %s", seed, name, difference(want, got, made.unread[name]))
			}
			same++
		}
		for name := range records.records {
			if objects.records[name] == nil {
				t.Errorf("seed %d, %s: the object is refused, its record is not: %s", seed, name, objects.rejection(name))
			}
		}
		refused += len(made.nodes) + len(made.pods) - len(objects.records)
	}
	if same < 100 || refused == 0 {
		t.Errorf("%d objects are stored and %d refused: the samples are poor", same, refused)
	}
	t.Logf("%d objects and records are stored alike, %d are refused", same, refused)
}

// difference names the fields in which two records differ.
func difference(want, got proto.Message, unread error) string {
	if got == nil {
		return fmt.Sprintf("this client made no record, or it was refused: %v", unread)
	}
	values := func(message proto.Message) map[string]any {
		made := map[string]any{}
		text, _ := protojson.Marshal(message)
		_ = json.Unmarshal(text, &made)
		return made
	}
	of, by := values(want), values(got)
	var found []string
	for _, field := range slices.Sorted(maps.Keys(of)) {
		if fmt.Sprint(of[field]) != fmt.Sprint(by[field]) {
			found = append(found, fmt.Sprintf("%s is %v of the object, %v of the record", field, of[field], by[field]))
		}
		delete(by, field)
	}
	for _, field := range slices.Sorted(maps.Keys(by)) {
		found = append(found, fmt.Sprintf("%s is %v of the record alone", field, by[field]))
	}
	return strings.Join(found, "; ")
}
