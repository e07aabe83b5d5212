package pumice

import (
	"os"
	"path/filepath"
	"testing"
	"time"
)

func TestATokenIsReadAgain(t *testing.T) {
	path := filepath.Join(t.TempDir(), "token")
	write := func(text string) {
		t.Helper()
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("first\n")
	file, err := newFileToken(path, "127.0.0.1:7461")
	if err != nil {
		t.Fatal(err)
	}
	begin := time.Now()
	check := func(after time.Duration, expected string) {
		t.Helper()
		if token, err := file.current(begin.Add(after)); err != nil || token != expected {
			t.Errorf("after %s: %q, %v", after, token, err)
		}
	}
	write("second\n")
	check(time.Second, "first")
	check(time.Minute, "second")
	write(" \n")
	check(2*time.Minute, "second")
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	check(3*time.Minute, "second")
	if _, err := newFileToken(path, "127.0.0.1:7461"); err == nil {
		t.Error("a file that is not there is accepted")
	}
}

func TestATokenGoesOverTLSOrStaysOnTheMachine(t *testing.T) {
	path := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(path, []byte("token"), 0o600); err != nil {
		t.Fatal(err)
	}
	for target, allowed := range map[string]bool{
		"127.0.0.1:7461": true, "localhost": true, "[::1]:7461": true, "/run/pumice.sock": true,
		"https://pumice.test": true, "pumice.test:7461": false, "10.0.0.1:7461": false,
	} {
		client, err := Dial(target, Options{TokenFile: path})
		if (err == nil) != allowed {
			t.Errorf("%s: %v", target, err)
		}
		if err == nil {
			_ = client.Close()
		}
	}
}
