package kubescheduler

import (
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	pb "github.com/pumice-scheduler/pumice/clients/go/pumicev1"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	fwk "k8s.io/kube-scheduler/framework"
)

// What a groupServer does.
const (
	failing = iota
	without
	withOtherKind
	forbidding
	serving
)

// groupServer is the part of an API server that has the pod groups of Coscheduling: one of two pods, `ring`.
type groupServer struct {
	*httptest.Server
	does atomic.Int32
	// asked counts requests for the groups.
	asked atomic.Int32
}

// groupsAt starts such a server.
func groupsAt(t *testing.T, does int32) (*groupServer, *rest.Config) {
	t.Helper()
	made := &groupServer{}
	made.does.Store(does)
	made.Server = httptest.NewServer(http.HandlerFunc(made.serve))
	t.Cleanup(func() {
		made.CloseClientConnections()
		made.Close()
	})
	return made, &rest.Config{Host: made.URL}
}

func (server *groupServer) serve(writer http.ResponseWriter, request *http.Request) {
	writer.Header().Set("Content-Type", "application/json")
	does := server.does.Load()
	reply := func(code int, body any) {
		writer.WriteHeader(code)
		_ = json.NewEncoder(writer).Encode(body)
	}
	refuse := func(code int32, reason metav1.StatusReason) {
		reply(int(code), metav1.Status{TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}, Status: "Failure", Code: code, Reason: reason})
	}
	if isList := strings.HasSuffix(request.URL.Path, "/podgroups"); !isList {
		switch does {
		case failing:
			refuse(http.StatusServiceUnavailable, metav1.StatusReasonServiceUnavailable)
		case without:
			refuse(http.StatusNotFound, metav1.StatusReasonNotFound)
		default:
			name := coscheduling.Resource
			if does == withOtherKind {
				name = "elasticquotas"
			}
			reply(http.StatusOK, metav1.APIResourceList{
				TypeMeta: metav1.TypeMeta{Kind: "APIResourceList", APIVersion: "v1"}, GroupVersion: coscheduling.GroupVersion().String(),
				APIResources: []metav1.APIResource{{Name: name, Namespaced: true, Kind: "PodGroup"}},
			})
		}
		return
	}
	server.asked.Add(1)
	switch query := request.URL.Query(); {
	case does != serving:
		refuse(http.StatusForbidden, metav1.StatusReasonForbidden)
	case query.Get("sendInitialEvents") != "":
		refuse(http.StatusUnprocessableEntity, metav1.StatusReasonInvalid)
	case query.Get("watch") != "":
		writer.WriteHeader(http.StatusOK)
		writer.(http.Flusher).Flush()
		<-request.Context().Done()
	default:
		reply(http.StatusOK, map[string]any{
			"apiVersion": coscheduling.GroupVersion().String(), "kind": "PodGroupList", "metadata": map[string]any{"resourceVersion": "7"},
			"items": []any{map[string]any{
				"apiVersion": coscheduling.GroupVersion().String(), "kind": "PodGroup",
				"metadata": map[string]any{"namespace": "default", "name": "ring", "uid": "ring-1", "resourceVersion": "5"},
				"spec":     map[string]any{"minMember": 2},
			}},
		})
	}
}

// ringPods are two pods of the pod group.
func ringPods() []*corev1.Pod {
	pods := []*corev1.Pod{testPod("a", "", "1", 8), testPod("b", "", "1", 8)}
	for _, pod := range pods {
		pod.Labels = map[string]string{GroupLabel: "ring"}
	}
	return pods
}

// TestAGangIsNotTornBeforeItsGroupIsRead: a new leader may see the pods first.
func TestAGangIsNotTornBeforeItsGroupIsRead(t *testing.T) {
	address, _ := packServer(t)
	server, config := groupsAt(t, failing)
	pods := ringPods()
	bench := startAt(t, config, arguments(address, ""), emptyNodes(2), pods)
	wait := func(when string) {
		t.Helper()
		if made := bench.permit(pods[0]); made.status.Code() != fwk.UnschedulableAndUnresolvable || made.status.Message() != UnreadGroupReason {
			t.Fatal(when, ": ", made.status.Code(), made.status)
		}
	}
	wait("the API server does not say whether it has the kind")
	server.does.Store(forbidding)
	eventually(t, "the kind is found", func() bool { return server.asked.Load() > 0 })
	wait("the API server does not list the groups")
	if bench.wasActivated("default/a")() {
		t.Fatal("the pod is tried in vain")
	}
	server.does.Store(serving)
	eventually(t, "the pod is put back", bench.wasActivated("default/a"))
	attempts := []attempt{bench.permit(pods[0]), bench.permit(pods[1])}
	if !attempts[0].status.IsWait() || !attempts[1].status.IsSuccess() || attempts[0].node == attempts[1].node {
		t.Fatal(attempts[0].status, attempts[1].status)
	}
	for _, status := range bench.bind(attempts) {
		if !status.IsSuccess() {
			t.Fatal(status)
		}
	}
}

// TestAStandbyReadsPodGroups: it knows them before its first cycle, and writes nothing.
func TestAStandbyReadsPodGroups(t *testing.T) {
	address, client := packServer(t)
	_, config := groupsAt(t, serving)
	pods := ringPods()
	bench := startAt(t, config, arguments(address, ""), emptyNodes(2), pods)
	eventually(t, "the groups are read", func() bool {
		minimum, known := bench.mirror().minimumOf("default/ring")
		// Pods come by another listener.
		return known && minimum == 2 && bench.mirror().waits(pods[0].UID) && bench.mirror().waits(pods[1].UID)
	})
	if sourceOf(t, client) != nil {
		t.Fatal("a standby writes")
	}
	if made := bench.permit(pods[0]); !made.status.IsWait() {
		t.Fatal(made.status)
	}
	if task := stored(t, client, "default/b"); task.GetJob() != "default/ring" {
		t.Fatal(task)
	}
}

// TestPodsOfAGroupThatIsNotThereGoByThemselves: the API server has said so.
func TestPodsOfAGroupThatIsNotThereGoByThemselves(t *testing.T) {
	for name, does := range map[string]int32{"no such group of kinds": without, "no such kind": withOtherKind, "no such group": serving} {
		t.Run(name, func(t *testing.T) {
			address, _ := packServer(t)
			_, config := groupsAt(t, does)
			pod := testPod("a", "", "1", 8)
			pod.Labels = map[string]string{GroupLabel: "nowhere"}
			bench := startAt(t, config, arguments(address, ""), emptyNodes(2), []*corev1.Pod{pod})
			eventually(t, "the API server has said so", bench.mirror().coscheduling.isRead)
			if done := bench.cycle(pod); !done.status.IsSuccess() || len(done.scores) != 2 {
				t.Fatal(done.status, done.scores)
			}
		})
	}
}

// TestTheFirstFullSyncHasTheJobsOfPodGroups: without them the service would forget what their queues have allocated. Pods without a
// group do not wait for ever for groups that cannot be read.
func TestTheFirstFullSyncHasTheJobsOfPodGroups(t *testing.T) {
	address, client := packServer(t)
	server, config := groupsAt(t, failing)
	other := testPod("other", "", "1", 0)
	bench := startAt(t, config, arguments(address, ""), emptyNodes(2), []*corev1.Pod{other})
	done := make(chan outcome, 1)
	go func() { done <- bench.cycle(other) }()
	time.Sleep(2 * kindRetry)
	if sourceOf(t, client) != nil {
		t.Fatal("a part of the scheduler's view is sent")
	}
	server.does.Store(serving)
	if done := <-done; !done.status.IsSuccess() {
		t.Fatal(done.status)
	}
	if list, err := client.ListJobs(context.Background(), &pb.ListJobsRequest{Names: []string{"default/ring"}}); err != nil || len(list.GetJobs()) != 1 {
		t.Fatal(list, err)
	}
	kind := &groupKind{begun: time.Now()}
	if !kind.detains() {
		t.Fatal("nobody waits for the groups")
	}
	kind.begun = time.Now().Add(-kindPatience)
	if kind.detains() || kind.isRead() {
		t.Fatal("the groups are waited for without an end")
	}
}
