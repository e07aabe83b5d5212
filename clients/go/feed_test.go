package pumice

import (
	"errors"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/pumice-scheduler/pumice/clients/go/derive"
	pb "github.com/pumice-scheduler/pumice/clients/go/pumicev1"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func TestAFeedSendsWhatHasChangedAndEverythingAfterALoss(t *testing.T) {
	address, _ := serve(t)
	client, ctx := dial(t, address, Options{}), within(t)
	feed := client.Feed("tests", 0)
	feed.Put(cluster())
	flush := func(sequence uint64) {
		t.Helper()
		outcome, err := feed.Flush(ctx)
		if err != nil || outcome.GetPosition().GetSequence() != sequence {
			t.Fatal(outcome, err)
		}
	}
	flush(1)
	feed.Put(cluster())
	if outcome, err := feed.Flush(ctx); outcome != nil || err != nil {
		t.Fatal("nothing has changed", outcome, err)
	}
	feed.Remove(&pb.Removals{Tasks: []string{"default/old", "default/nobody"}})
	flush(2)
	tasks := func(wanted int) {
		t.Helper()
		listed, err := client.ListTasks(ctx, &pb.ListTasksRequest{})
		if err != nil || len(listed.GetTasks()) != wanted {
			t.Fatal(listed, err)
		}
	}
	tasks(2)
	feed.sequence++
	feed.Remove(&pb.Removals{Tasks: []string{"default/gang-0"}})
	flush(5)
	tasks(1)
	feed.Resync()
	flush(6)
	newer := client.Feed("tests", 0)
	newer.Put(cluster())
	if _, err := newer.Flush(ctx); err != nil {
		t.Fatal(err)
	}
	feed.Remove(&pb.Removals{Tasks: []string{"default/gang-1"}})
	for range 2 {
		if _, err := feed.Flush(ctx); !errors.Is(err, ErrFenced) {
			t.Fatal(err)
		}
	}
	tasks(3)
}

func TestASessionOpensOnWhatHasChanged(t *testing.T) {
	address, _ := serve(t)
	client, ctx := dial(t, address, Options{}), within(t)
	feed := client.Feed("tests", 0)
	feed.Put(cluster())
	for number := range 3 {
		if number == 1 {
			feed.Put(&pb.Cluster{Nodes: []*pb.Node{{Name: "n4", Allocatable: amounts("cpu", "8", "pods", "9")}}})
		}
		if number == 2 {
			feed.sequence++
			feed.Put(&pb.Cluster{Nodes: []*pb.Node{{Name: "n5", Allocatable: amounts("cpu", "8", "pods", "9")}}})
		}
		session, err := feed.OpenSession(ctx, nil)
		if err != nil {
			t.Fatal(number, err)
		}
		reply, err := session.Filter(ctx, big())
		if names := fits(t, reply, err); len(names) != 2+number {
			t.Fatal(number, names)
		}
	}
}

func TestALargeClusterIsSentInParts(t *testing.T) {
	mark := &pb.UnreadableRecord{Kind: pb.RecordKind_RECORD_KIND_NODE, Name: "n9"}
	list := parts(contents{put: cluster(), unreadable: []*pb.UnreadableRecord{mark}}, 2)
	if len(list) != 5 || len(list[0].put.Nodes) != 2 || len(list[1].put.Nodes) != 1 || len(list[1].put.Queues) != 1 || list[4].unreadable[0] != mark {
		t.Fatal(list)
	}
	if empty := parts(contents{put: &pb.Cluster{}}, 2); len(empty) != 1 {
		t.Fatal(empty)
	}
}

func TestAFeedRefusesWhatItDoesNotKeep(t *testing.T) {
	address, _ := serve(t)
	client, ctx := dial(t, address, Options{}), within(t)
	feed := client.Feed("tests", 0)
	for field, unkept := range map[string]*pb.Cluster{
		"objects":          {Objects: [][]byte{[]byte("{}")}},
		"pod_rules":        {PodRules: pb.PodRules_POD_RULES_VOLCANO},
		"priority_classes": {PriorityClasses: []*pb.PriorityClass{{Name: "high"}}},
	} {
		unkept.Nodes = []*pb.Node{{Name: "lost"}}
		feed.Put(unkept)
		if outcome, err := feed.Flush(ctx); outcome != nil || err == nil || !strings.Contains(err.Error(), "with "+field) {
			t.Fatal(field, outcome, err)
		}
	}
	feed.Put(cluster())
	if outcome, err := feed.Flush(ctx); err != nil || outcome.GetPosition().GetSequence() != 1 {
		t.Fatal("what the feed keeps is sent", outcome, err)
	}
	if listed, err := client.ListNodes(ctx, &pb.ListNodesRequest{}); err != nil || len(listed.GetNodes()) != len(cluster().GetNodes()) {
		t.Fatal("nothing of a refused cluster is put", listed, err)
	}
}

func TestKubernetesObjectsAreRecords(t *testing.T) {
	node, err := NodeRecord(&corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: "n1", CreationTimestamp: metav1.Unix(1_700_000_000, 0), Annotations: map[string]string{oversubscribedCPU: "500"}},
		Status: corev1.NodeStatus{
			Allocatable: corev1.ResourceList{"cpu": resource.MustParse("4")},
			Conditions:  []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionUnknown}},
		},
	})
	if err != nil || node.GetReady() || node.Ready == nil || node.GetOversubscription().GetItems()["cpu"] != "500m" || node.GetCreationTime().GetSeconds() != 1_700_000_000 {
		t.Fatal(node, err)
	}
	task, err := TaskRecord(&corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "p", Annotations: map[string]string{"scheduling.k8s.io/group-name": "g"}},
		Spec:       corev1.PodSpec{Containers: []corev1.Container{{Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{"cpu": resource.MustParse("0.1m")}}}}},
		Status:     corev1.PodStatus{Phase: corev1.PodPending},
	}, derive.Auto)
	if err != nil || task.GetName() != "default/p" || task.GetJob() != "default/g" || task.GetStatus() != pb.TaskStatus_TASK_STATUS_PENDING {
		t.Fatal(task, err)
	}
	if task.GetRequests().GetItems()["cpu"] != "1m" || task.GetNonzeroRequests().GetItems()["memory"] != "200Mi" || task.Limits != nil {
		t.Fatal(task)
	}
}

func TestAFeedSendsLabelsAgainThatAPolicyReadsByNow(t *testing.T) {
	address, _ := serve(t)
	client, ctx := dial(t, address, Options{}), within(t)
	reload := func(plugin string) []string {
		t.Helper()
		reply, err := client.ReloadPolicy(ctx, &pb.ReloadPolicyRequest{Document: "actions: allocate\ntiers: [{plugins: [{name: " + plugin + "}]}]\n"})
		if err != nil {
			t.Fatal(err)
		}
		return reply.GetAwaitedSources()
	}
	reload("binpack")
	feed := client.Feed("tests", 0)
	labelled := &pb.Node{Name: "labelled", Allocatable: amounts("cpu", "8", "pods", "9"), Labels: map[string]string{"zone": "a"}}
	feed.Put(&pb.Cluster{Nodes: []*pb.Node{labelled, {Name: "plain", Allocatable: amounts("cpu", "8", "pods", "9")}}})
	flush := func() {
		t.Helper()
		if _, err := feed.Flush(ctx); err != nil {
			t.Fatal(err)
		}
	}
	flush()
	if awaited := reload("predicates"); len(awaited) != 1 || awaited[0] != "tests" {
		t.Fatal(awaited)
	}
	request := &pb.FilterRequest{Tasks: []*pb.Task{{
		Requests: amounts("cpu", "1"), Constraints: &pb.PodConstraints{NodeSelector: map[string]string{"zone": "a"}},
	}}}
	reply, err := client.Filter(ctx, request)
	var problems *ProblemError
	if !errors.As(err, &problems) {
		t.Fatal("the labels are not there yet", reply, err)
	}
	// Any change makes the feed hear of it.
	feed.Put(&pb.Cluster{Nodes: []*pb.Node{{Name: "more", Allocatable: amounts("cpu", "8", "pods", "9")}}})
	flush()
	reply, err = client.Filter(ctx, request)
	if names := fits(t, reply, err); len(names) != 1 || names[0] != "labelled" {
		t.Fatal(names)
	}
}

func TestAFeedSendsNamespacesAndOwners(t *testing.T) {
	address, _ := serve(t)
	client, ctx := dial(t, address, Options{}), within(t)
	feed := client.Feed("tests", 0)
	feed.PutNamespace(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "red", Labels: map[string]string{"team": "red"}}})
	yes := true
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{
		Name: "p", Namespace: "red", Labels: map[string]string{"app": "web", "tier": "1"},
		OwnerReferences: []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "ReplicaSet", Name: "set", Controller: &yes}},
	}, Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "c"}}}}
	service := &corev1.Service{Spec: corev1.ServiceSpec{Selector: map[string]string{"app": "web"}}}
	owners := Owners{
		Services: func(string) ([]*corev1.Service, error) { return []*corev1.Service{service}, nil },
		ReplicaSet: func(_, name string) (*appsv1.ReplicaSet, error) {
			if name != "set" {
				return nil, errors.New("gone")
			}
			return &appsv1.ReplicaSet{Spec: appsv1.ReplicaSetSpec{Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"tier": "1"}}}}, nil
		},
	}
	record, err := TaskRecord(pod, derive.AsKubernetes)
	if err != nil {
		t.Fatal(err)
	}
	owners.Complete(record, pod)
	feed.Put(&pb.Cluster{Tasks: []*pb.Task{record}})
	if _, err := feed.Flush(ctx); err != nil {
		t.Fatal(err)
	}
	namespaces, err := client.ListNamespaces(ctx, &pb.ListNamespacesRequest{})
	if err != nil || namespaces.GetNamespaces()[0].GetNamespace().GetLabels()["team"] != "red" {
		t.Fatal(namespaces, err)
	}
	tasks, err := client.ListTasks(ctx, &pb.ListTasksRequest{})
	if err != nil {
		t.Fatal(err)
	}
	wanted := map[string]string{"app": "web", "tier": "1"}
	if selector := tasks.GetTasks()[0].GetTask().GetConstraints().GetOwnerSelector(); !maps.Equal(selector.GetMatchLabels(), wanted) {
		t.Fatal(selector)
	}
	pod.OwnerReferences[0].Name = "lost"
	owners.Complete(record, pod)
	if !slices.Equal(record.GetUnevaluatedFields(), []string{"ownerSelector"}) {
		t.Fatal(record.GetUnevaluatedFields())
	}
	feed.Remove(&pb.Removals{Namespaces: []string{"red"}})
	if _, err := feed.Flush(ctx); err != nil {
		t.Fatal(err)
	}
	if namespaces, err = client.ListNamespaces(ctx, &pb.ListNamespacesRequest{}); err != nil || len(namespaces.GetNamespaces()) != 0 {
		t.Fatal(namespaces, err)
	}
}
