package pumice

import (
	"os"
	"os/exec"
	"regexp"
	"strings"
	"testing"

	"pumice/clients/go/internal/vectors"
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
