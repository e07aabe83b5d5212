package kubescheduler

import (
	"fmt"
	"os"
	"regexp"
	"testing"

	"github.com/pumice-scheduler/pumice/clients/go/internal/testserver"

	corev1 "k8s.io/api/core/v1"
)

// reported is what the page says about the policy; -1: nothing.
func reported(t *testing.T, metric, label string) float64 {
	t.Helper()
	for _, family := range gathered(t) {
		for _, series := range family.GetMetric() {
			if family.GetName() == metric && series.GetLabel()[0].GetValue() == label {
				return series.GetGauge().GetValue()
			}
		}
	}
	return -1
}

func TestAPolicyOfAnotherReleaseIsReported(t *testing.T) {
	server := testserver.Start(t)
	client, pod := admin(t, server.Address), testPod("new", "", "1", 0)
	document := func(compatibility string) string {
		return fmt.Sprintf("apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\npumice: {compatibility: %s}\n", compatibility)
	}
	reload(t, client, document("corrected"))
	bench := start(t, arguments(server.Address, ""), []*corev1.Node{testNode("n", "10", 0)}, []*corev1.Pod{pod})
	other := map[string]string{"kube-scheduler-1.36": "kube-scheduler-1.37", "kube-scheduler-1.37": "kube-scheduler-1.36"}[Release]
	for _, one := range []struct {
		document string
		other    float64
	}{
		{document(other), 1},
		{document(Release), 0},
		{document(other), 1},
		{document("corrected"), 0},
		{document(other), 1},
		// It follows Volcano, whose rules are meant.
		{spread, 0},
	} {
		reload(t, client, one.document)
		if done := bench.cycle(pod); !done.status.IsSuccess() {
			t.Fatal(done.status)
		}
		eventually(t, one.document, func() bool { return reported(t, "scheduler_pumice_policy_of_other_release", "default") == one.other })
	}
	if own := reported(t, "scheduler_pumice_scheduler_release", Release); own != 1 {
		t.Fatal(own)
	}
}

// TestTheReleaseIsThatOfTheModules: the release is a constant of each build, and its modules are in a file.
func TestTheReleaseIsThatOfTheModules(t *testing.T) {
	file := "go.mod"
	if Release == "kube-scheduler-1.36" {
		file = "go.kubernetes-1.36.mod"
	}
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	found := regexp.MustCompile(`k8s\.io/kubernetes v(\d+\.\d+)\.`).FindSubmatch(text)
	if found == nil || "kube-scheduler-"+string(found[1]) != Release {
		t.Fatalf("%s, and %s", Release, found)
	}
}
