// Package testserver runs the real server for tests.
package testserver

import (
	"bufio"
	"encoding/json"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/pumice-scheduler/pumice/clients/go/internal/vectors"
)

// Server is a process of its own.
type Server struct {
	// Address is HOST:PORT, Socket the path of the Unix socket.
	Address, Socket string

	command *exec.Cmd
}

// Binary is the program: PUMICE_BIN, or what cargo has built.
func Binary() string {
	if named := os.Getenv("PUMICE_BIN"); named != "" {
		return named
	}
	return filepath.Join(vectors.Root(), "target", "debug", "pumice")
}

// Start starts a server on free ports and waits until it serves; it ends with the test. More flags may name other ports.
func Start(t testing.TB, flags ...string) *Server {
	t.Helper()
	folder, err := os.MkdirTemp("", "pumice")
	if err != nil {
		t.Fatal(err)
	}
	server := &Server{Socket: filepath.Join(folder, "s")}
	given := strings.Join(flags, " ")
	arguments := append([]string{"serve", "--log", "info", "--log-format", "json", "--grpc-socket", server.Socket}, flags...)
	for _, flag := range []string{"--grpc-address", "--http-address"} {
		if !strings.Contains(given, flag) {
			arguments = append(arguments, flag, "127.0.0.1:0")
		}
	}
	server.command = exec.Command(Binary(), arguments...)
	log, err := server.command.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := server.command.Start(); err != nil {
		t.Fatalf("%v: run cargo build, or name the program in PUMICE_BIN", err)
	}
	t.Cleanup(func() {
		server.Kill()
		_ = os.RemoveAll(folder)
	})
	lines := bufio.NewScanner(log)
	for lines.Scan() {
		var entry struct{ Message, GRPC string }
		if json.Unmarshal(lines.Bytes(), &entry) == nil && entry.Message == "serving" {
			server.Address = entry.GRPC
			// The rest of the log is read, so that a full pipe does not hold the process up.
			go func() { _, _ = io.Copy(io.Discard, log) }()
			return server
		}
	}
	t.Fatal("the server ended before it served")
	return nil
}

// Process returns the number of the process.
func (server *Server) Process() int {
	return server.command.Process.Pid
}

// Pause stops the process where it is, as a machine does that hangs, until Resume.
func (server *Server) Pause() {
	_ = server.command.Process.Signal(syscall.SIGSTOP)
	// All of its threads have stopped then.
	var status syscall.WaitStatus
	for !status.Stopped() {
		if _, err := syscall.Wait4(server.command.Process.Pid, &status, syscall.WUNTRACED, nil); err != nil && err != syscall.EINTR {
			return
		}
	}
}

// Resume lets a paused process go on.
func (server *Server) Resume() {
	_ = server.command.Process.Signal(syscall.SIGCONT)
}

// Drain tells the process to stop, as Kubernetes does.
func (server *Server) Drain() {
	_ = server.command.Process.Signal(syscall.SIGTERM)
}

// Kill ends the process at once, as a crash does. A second time it does nothing.
func (server *Server) Kill() {
	if server.command.ProcessState == nil {
		_ = server.command.Process.Kill()
		_ = server.command.Wait()
	}
}
