package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/pumice-scheduler/pumice/clients/go/internal/testserver"
	"github.com/pumice-scheduler/pumice/clients/go/internal/vectors"
)

func runAt(t *testing.T, address string) string {
	t.Helper()
	run := exec.Command("go", "run", ".", filepath.Join(vectors.Root(), "examples", "own-scheduler", "cluster.json"))
	run.Env = append(os.Environ(), "PUMICE_SERVER="+address)
	run.Stderr = os.Stderr
	said, err := run.Output()
	if err != nil {
		t.Fatal(err)
	}
	return string(said)
}

// TestItPlacesRejectsAndReleases prints what the page shows.
func TestItPlacesRejectsAndReleases(t *testing.T) {
	server := testserver.Start(t, "--policy-file", filepath.Join(vectors.Root(), "examples", "queues", "policy.yaml"))
	page, err := os.ReadFile(filepath.Join(vectors.Root(), "docs", "guides", "own-scheduler.md"))
	if err != nil {
		t.Fatal(err)
	}
	if said := runAt(t, server.Address); !strings.Contains(string(page), "```text\n"+said+"```") {
		t.Fatal(said)
	}
}

// TestItBindsNothingWithoutAServer ends each cycle.
func TestItBindsNothingWithoutAServer(t *testing.T) {
	server := testserver.Start(t)
	server.Kill()
	lines := strings.Split(strings.TrimSpace(runAt(t, server.Address)), "\n")
	if len(lines) != 2 || !strings.HasPrefix(lines[1], "no decision, the next cycle tries again: Unavailable") {
		t.Fatal(lines)
	}
}
