package pumice

import (
	"os"
	"os/exec"
	"regexp"
	"strings"
	"testing"

	"github.com/pumice-scheduler/pumice/clients/go/internal/vectors"
)

// TestTwoCommandsToAFirstDecision runs the commands of the README as written.
func TestTwoCommandsToAFirstDecision(t *testing.T) {
	readme, err := os.ReadFile("README.md")
	if err != nil {
		t.Fatal(err)
	}
	blocks := regexp.MustCompile("(?s)```console\n(.*?)```").FindAllSubmatch(readme, -1)
	if len(blocks) != 2 {
		t.Fatalf("%d blocks", len(blocks))
	}
	commands := strings.ReplaceAll(string(blocks[0][1]), "$ ", "")
	if strings.Count(commands, "\n") != 2 {
		t.Fatal(commands)
	}
	address, _ := serve(t)
	shell := exec.Command("bash", "-e", "-c", commands)
	shell.Dir = vectors.Root()
	shell.Env = append(os.Environ(), "PUMICE_SERVER="+address)
	said, err := shell.Output()
	if err != nil || string(said) != string(blocks[1][1]) {
		t.Fatalf("%v: %s", err, said)
	}
}

// TestTheExampleOfASchedulerPlacesAGang runs a cycle.
func TestTheExampleOfASchedulerPlacesAGang(t *testing.T) {
	client := loaded(t, Options{})
	run := exec.Command("go", "run", "./examples/scheduler")
	run.Env = append(os.Environ(), "PUMICE_SERVER="+client.Connection().Target())
	said, err := run.Output()
	if err != nil || string(said) != "default/gang-0 -> n2\ndefault/gang-1 -> n3\n" {
		t.Fatalf("%v: %s", err, said)
	}
}
