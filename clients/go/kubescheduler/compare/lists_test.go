package compare

import (
	"context"
	"maps"
	"reflect"
	"slices"
	"strings"
	"testing"

	pumice "github.com/pumice-scheduler/pumice/clients/go"
	"github.com/pumice-scheduler/pumice/clients/go/derive"
	"github.com/pumice-scheduler/pumice/clients/go/internal/testserver"
	"github.com/pumice-scheduler/pumice/clients/go/kubescheduler"
	pb "github.com/pumice-scheduler/pumice/clients/go/pumicev1"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kubev1 "k8s.io/kube-scheduler/config/v1"
	schedulerapi "k8s.io/kubernetes/pkg/scheduler/apis/config"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/names"
)

// What some release has and another one has not.
var (
	laterPlugins = []string{"DeferredPodScheduling"}
	laterPoints  = []string{"podGroupPostFilter"}
)

// pointsOfRelease are the extension points that this release's configuration has.
func pointsOfRelease() map[string]bool {
	points := map[string]bool{}
	list := reflect.TypeFor[kubev1.Plugins]()
	for at := range list.NumField() {
		name, _, _ := strings.Cut(list.Field(at).Tag.Get("json"), ",")
		points[name] = true
	}
	return points
}

// union has the names of this release and of others.
func union[T any](own map[string]T, others []string) []string {
	return slices.Compact(slices.Sorted(slices.Values(append(slices.Collect(maps.Keys(own)), others...))))
}

// takesPart says at which of the points that Filter and Score serve a plugin works, placements of groups included.
func takesPart(t *testing.T, plugin string) (filters, scores bool) {
	t.Helper()
	listed := newKube(t, alone(plugin), nil).framework.ListPlugins()
	at := func(sets ...schedulerapi.PluginSet) bool {
		return slices.ContainsFunc(sets, func(set schedulerapi.PluginSet) bool { return has(set.Enabled, plugin) })
	}
	return at(listed.Filter, listed.PlacementGenerate), at(listed.Score, listed.PlacementScore)
}

// alone is a document with one plugin.
func alone(plugin string) string {
	return head + "profiles: [{plugins: {multiPoint: {disabled: [{name: '*'}], enabled: [{name: " + plugin + "}]}}}]\n"
}

// misses are the decisions, Filter and Score, in which Pumice says that the plugin is missing.
func misses(t *testing.T, client *pumice.Client, plugin string) (filters, scores bool) {
	t.Helper()
	task, err := pumice.TaskRecord(&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "p", Namespace: "default", UID: "p"}}, derive.AsKubernetes)
	if err != nil {
		t.Fatal(err)
	}
	document := alone(plugin) + "pumice: {compatibility: " + kubescheduler.Release + "}\n"
	snapshot := &pb.InlineSnapshot{Cluster: &pb.Cluster{Nodes: []*pb.Node{{Name: "n"}}}, PolicyDocument: document}
	against, tasks := &pb.EvaluationRef{Target: &pb.EvaluationRef_Inline{Inline: snapshot}}, []*pb.Task{task}
	filtered, err := client.Filter(context.Background(), &pb.FilterRequest{Against: against, Tasks: tasks})
	if err != nil {
		t.Fatal(err)
	}
	scored, err := client.Score(context.Background(), &pb.ScoreRequest{Against: against, Tasks: tasks})
	if err != nil {
		t.Fatal(err)
	}
	named := func(missing []*pb.NotEvaluated) bool {
		return slices.ContainsFunc(missing, func(one *pb.NotEvaluated) bool { return one.GetName() == plugin })
	}
	return named(filtered.Response.GetMetadata().GetNotEvaluated()), named(scored.Response.GetMetadata().GetNotEvaluated())
}

// TestListsAreThoseOfTheRelease: a document may name what this release has and nothing else, and a plugin that is not served is missing
// where it would take part.
func TestListsAreThoseOfTheRelease(t *testing.T) {
	server := testserver.Start(t)
	client, err := pumice.Dial(server.Address, pumice.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = client.Close() })
	load := func(document string) (*pb.PolicyReport, error) {
		response, err := client.ReloadPolicy(context.Background(), &pb.ReloadPolicyRequest{
			Name: "lists", Document: document, DryRun: true, Compatibility: kubescheduler.Release,
		})
		return response.GetReport(), err
	}
	points := pointsOfRelease()
	for _, point := range union(points, laterPoints) {
		_, err := load(head + "profiles: [{plugins: {" + point + ": {disabled: [{name: NodeName}]}}}]\n")
		if (err == nil) != points[point] {
			t.Errorf("extension point %s: %v", point, err)
		}
	}
	registry := plugins.NewInTreeRegistry()
	for _, plugin := range union(registry, laterPlugins) {
		_, known := registry[plugin]
		report, err := load(alone(plugin))
		if (err == nil) != known {
			t.Errorf("plugin %s: %v", plugin, err)
		}
		// A pod that waits for a node names none.
		if err != nil || !slices.Contains(report.GetUnservedPlugins(), plugin) || plugin == names.NodeName {
			continue
		}
		filters, scores := takesPart(t, plugin)
		if missedFilters, missedScores := misses(t, client, plugin); missedFilters != filters || missedScores != scores {
			t.Errorf("plugin %s filters %v and scores %v, and is missing %v and %v", plugin, filters, scores, missedFilters, missedScores)
		}
	}
}
