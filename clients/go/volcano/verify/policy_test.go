package verify

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	pumice "github.com/pumice-scheduler/pumice/clients/go"
	"github.com/pumice-scheduler/pumice/clients/go/cycle"
	"github.com/pumice-scheduler/pumice/clients/go/internal/testserver"
	pb "github.com/pumice-scheduler/pumice/clients/go/pumicev1"
	plugins "github.com/pumice-scheduler/pumice/clients/go/volcano"

	"volcano.sh/volcano/cmd/scheduler/app/options"
	"volcano.sh/volcano/pkg/scheduler"
	"volcano.sh/volcano/pkg/scheduler/conf"
	"volcano.sh/volcano/pkg/scheduler/framework"

	_ "volcano.sh/volcano/pkg/scheduler/actions"
)

// configured is a ConfigMap as Volcano's own chart writes it, with arguments.
const configured = `actions: "enqueue, allocate, backfill"
tiers:
- plugins:
  - name: priority
  - name: gang
    enablePreemptable: false
  - name: conformance
- plugins:
  - name: drf
    enablePreemptable: false
  - name: overcommit
  - name: binpack
    arguments:
      binpack.weight: 10
      binpack.resources: example.com/gpu
configurations:
- name: enqueue
  arguments:
    overcommit-factor: 1.5
metrics:
  type: prometheus
`

// sessionOf is an empty session under a configuration, as Volcano understands it.
func sessionOf(t *testing.T, text string) *framework.Session {
	t.Helper()
	options.Default()
	options.ServerOpts.SchedulerConf = filepath.Join(t.TempDir(), "volcano-scheduler.conf")
	if err := os.WriteFile(options.ServerOpts.SchedulerConf, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	actions, tiers, configurations, _, err := scheduler.UnmarshalSchedulerConf(text)
	if err != nil {
		t.Fatal(err)
	}
	conf.EnabledActionMap = map[string]bool{}
	for _, action := range actions {
		conf.EnabledActionMap[action.Name()] = true
	}
	return &framework.Session{Tiers: tiers, Configurations: configurations}
}

// otherRelease is a release that the tests are not built for.
func otherRelease() string {
	if plugins.Release() == "volcano-1.15.1" {
		return "volcano-1.14.4"
	}
	return "volcano-1.15.1"
}

// TestTheRelease compares what the adapter takes for its release with what run.sh knows from the checkout.
func TestTheRelease(t *testing.T) {
	if checkedOut := os.Getenv("RELEASE"); checkedOut != plugins.Release() {
		t.Errorf("the checkout is %s, and the adapter takes it for %s", checkedOut, plugins.Release())
	}
}

func TestTheModesOfThePolicy(t *testing.T) {
	target := testserver.Start(t).Address
	client, err := pumice.Dial(target, pumice.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	session := sessionOf(t, configured)
	opened := func(mode cycle.PolicyMode) error {
		err := plugins.Configure(plugins.Settings{Target: target, Cycle: cycle.Settings{PolicyMode: mode, KeepFor: -1}})
		if err != nil {
			t.Fatal(err)
		}
		made := plugins.Open(session)
		defer made.Close()
		return made.Err()
	}
	if err := opened(cycle.FollowPolicy); !errors.Is(err, cycle.ErrPolicyMissing) {
		t.Fatal("the built-in policy governs:", err)
	}
	if err := opened(cycle.CheckPolicy); !errors.Is(err, cycle.ErrPolicyDiffers) {
		t.Fatal(err)
	}
	push := func(text string) {
		if _, err := client.ReloadPolicy(context.Background(), &pb.ReloadPolicyRequest{Document: text}); err != nil {
			t.Fatal(err)
		}
	}
	// The very text of the ConfigMap is the policy that the scheduler's configuration makes.
	push(configured)
	for _, mode := range []cycle.PolicyMode{cycle.FollowPolicy, cycle.CheckPolicy} {
		if err := opened(mode); err != nil {
			t.Fatal(mode, err)
		}
	}
	push(strings.Replace(configured, "weight: 10", "weight: 11", 1))
	if err := opened(cycle.FollowPolicy); err != nil {
		t.Fatal(err)
	}
	if err := opened(cycle.CheckPolicy); !errors.Is(err, cycle.ErrPolicyDiffers) || !strings.Contains(err.Error(), "binpack.weight: 10") {
		t.Fatal(err)
	}
	for release, other := range map[string]float64{plugins.Release(): 0, otherRelease(): 1} {
		push("pumice: {compatibility: " + release + "}\n" + configured)
		if err := opened(cycle.FollowPolicy); err != nil {
			t.Fatal(err)
		}
		if value(t, "volcano_pumice_policy_of_other_release") != other {
			t.Error("the scheduler is of", plugins.Release(), "and the policy of", release)
		}
	}
	if err := opened(cycle.PushPolicy); err != nil {
		t.Fatal(err)
	}
	inForce, err := client.GetPolicy(context.Background(), &pb.GetPolicyRequest{})
	if err != nil || !strings.Contains(inForce.GetPolicy().GetDocument(), `"actions": "enqueue, allocate, backfill"`) {
		t.Fatal(err, inForce.GetPolicy().GetDocument())
	}
}
