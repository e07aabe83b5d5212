package verify

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/pumice-scheduler/pumice/clients/go/cycle"
	"github.com/pumice-scheduler/pumice/clients/go/internal/testserver"
	plugins "github.com/pumice-scheduler/pumice/clients/go/volcano"

	"github.com/prometheus/client_golang/prometheus"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"volcano.sh/volcano/cmd/scheduler/app/options"
	"volcano.sh/volcano/pkg/scheduler/actions/allocate"
	"volcano.sh/volcano/pkg/scheduler/conf"
	"volcano.sh/volcano/pkg/scheduler/framework"
	"volcano.sh/volcano/pkg/scheduler/uthelper"
)

// value of a metric without labels, or of all its series together.
func value(t *testing.T, name string) (sum float64) {
	t.Helper()
	families, err := prometheus.DefaultGatherer.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, family := range families {
		if family.GetName() == name {
			for _, metric := range family.GetMetric() {
				sum += metric.GetGauge().GetValue() + metric.GetCounter().GetValue() + float64(metric.GetHistogram().GetSampleCount())
			}
		}
	}
	return sum
}

// event waits for an event whose message has a text.
func event(t *testing.T, client kubernetes.Interface, text string) v1.Event {
	t.Helper()
	for range 100 {
		list, err := client.CoreV1().Events("").List(context.Background(), metav1.ListOptions{})
		if err != nil {
			t.Fatal(err)
		}
		for _, event := range list.Items {
			if strings.Contains(event.Message, text) {
				return event
			}
		}
		time.Sleep(50 * time.Millisecond)
	}
	t.Fatal("no event says", text)
	return v1.Event{}
}

// TestAMalformedAnnotationOfOneNode lets all other nodes take tasks.
func TestAMalformedAnnotationOfOneNode(t *testing.T) {
	options.Default()
	err := plugins.Configure(plugins.Settings{
		Target: testserver.Start(t).Address,
		Cycle:  cycle.Settings{PolicyMode: cycle.PushPolicy, VerifyEvery: -1, Observer: strict{t: t}},
	})
	if err != nil {
		t.Fatal(err)
	}
	before := value(t, "volcano_pumice_refused_records_total")
	made := oneGang(4, 3)
	made.nodes[1].Annotations = map[string]string{"volcano.sh/oversubscription-cpu": "abc"}
	harness := uthelper.TestCommonStruct{
		Plugins: withPumice(), Pods: made.pods, Nodes: made.nodes, PodGroups: made.groups, Queues: made.queues,
	}
	conf.EnabledActionMap = map[string]bool{"allocate": true}
	session := harness.RegisterSession(made.tiers, nil)
	harness.Run([]framework.Action{allocate.New()})
	for _, task := range session.Jobs["ns/gang"].Tasks {
		if task.NodeName == "" || task.NodeName == "n00001" {
			t.Error(task.Name, "is on", task.NodeName)
		}
	}
	if now := value(t, "volcano_pumice_refused_records"); now != 1 || value(t, "volcano_pumice_refused_records_total") != before+1 {
		t.Error(now)
	}
	if value(t, "volcano_pumice_calls_total") == 0 || value(t, "volcano_pumice_policy_version") == 0 || value(t, "volcano_pumice_open_duration_seconds") == 0 {
		t.Error("nothing is counted")
	}
	written := event(t, session.KubeClient(), "volcano.sh/oversubscription-cpu")
	if written.InvolvedObject.Kind != "Node" || written.InvolvedObject.Name != "n00001" || written.Type != v1.EventTypeWarning {
		t.Error(written)
	}
	harness.Close()
}
