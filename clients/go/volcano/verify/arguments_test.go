package verify

import (
	"context"
	"strings"
	"testing"

	pumice "github.com/pumice-scheduler/pumice/clients/go"
	"github.com/pumice-scheduler/pumice/clients/go/internal/testserver"
	pb "github.com/pumice-scheduler/pumice/clients/go/pumicev1"
	plugins "github.com/pumice-scheduler/pumice/clients/go/volcano"
)

// TestOptionsAmongArguments is the first test: once a test has called Configure, arguments of plugins are no options any more.
func TestOptionsAmongArguments(t *testing.T) {
	first, second := testserver.Start(t).Address, testserver.Start(t).Address
	t.Setenv("PUMICE_TARGET", "127.0.0.1:1")
	t.Setenv("PUMICE_POLICY_MODE", "hand")
	open := func(arguments string) error {
		session := sessionOf(t, strings.Replace(configured, "    arguments:\n", "    arguments:\n"+arguments, 1))
		made := plugins.Open(session)
		defer made.Close()
		return made.Err()
	}
	for _, target := range []string{first, second} {
		if err := open("      pumice.target: " + target + "\n      pumice.budgetTime: 10s\n"); err != nil {
			t.Fatal(err)
		}
		client, err := pumice.Dial(target, pumice.Options{})
		if err != nil {
			t.Fatal(err)
		}
		defer client.Close()
		inForce, err := client.GetPolicy(context.Background(), &pb.GetPolicyRequest{})
		if err != nil || inForce.GetPolicy().GetVersion() != 2 || strings.Contains(inForce.GetPolicy().GetDocument(), "pumice.") {
			t.Fatal(err, inForce)
		}
	}
	// Without arguments the environment counts.
	if err := open(""); err == nil || !strings.Contains(err.Error(), "127.0.0.1:1") {
		t.Fatal(err)
	}
}
