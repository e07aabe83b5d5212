package kubescheduler

import (
	"strings"
	"sync/atomic"
	"testing"

	"github.com/pumice-scheduler/pumice/clients/go/internal/testserver"

	corev1 "k8s.io/api/core/v1"
)

// TestScoresWithoutATableOfNodesAreNotRead: the server goes away between its response and the names of the slots in it.
func TestScoresWithoutATableOfNodesAreNotRead(t *testing.T) {
	server := testserver.Start(t)
	reload(t, admin(t, server.Address), spread)
	var away atomic.Bool
	address := between(t, server.Address, func(method string) bool {
		return away.Load() && (strings.HasSuffix(method, "/GetNodeTable") || strings.HasSuffix(method, "/Filter"))
	})
	pods := equalPods("equal", 3, 0)
	bench := start(t, arguments(address, `, "fallback": {"filter": "FailOpen"}`), []*corev1.Node{testNode("n1", "10", 0), testNode("n2", "20", 0)}, pods)
	bench.cycle(pods[0])
	// A further node: the client does not have the new table.
	profiles.plugin(bench.framework).hub.mirror.nodeSeen(testNode("n3", "10", 0))
	away.Store(true)
	if done := bench.cycle(pods[0]); !done.status.IsSuccess() {
		t.Fatal(done.status)
	}
	away.Store(false)
	for _, pod := range pods {
		if done := bench.cycle(pod); len(done.scores) != 2 || done.scores["n2"][Name] != 100 {
			t.Fatal(done.status, done.scores)
		}
	}
}
