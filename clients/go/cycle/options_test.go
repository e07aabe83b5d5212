package cycle

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	pumice "github.com/pumice-scheduler/pumice/clients/go"
)

func environment(values map[string]string) func(string) string {
	return func(name string) string { return values[name] }
}

func TestOptionsComeFromEnvironmentAndArguments(t *testing.T) {
	options, err := ReadOptions(environment(nil), nil)
	if err != nil || options.Target != pumice.DefaultTarget || options.Settings.PolicyMode != FollowPolicy || options.Client.TLS != nil ||
		options.Client.BreakFor != time.Second {
		t.Fatal(options, err)
	}
	options, err = ReadOptions(environment(map[string]string{
		"PUMICE_TARGET": "https://pumice:7461", "PUMICE_POLICY_MODE": "hand", "PUMICE_FALLBACK": "abstain", "PUMICE_BUDGET_TIME": "2s",
		"PUMICE_KEEP_FOR": "-1s", "PUMICE_VERIFY_EVERY": "never", "PUMICE_TLS_SERVER_NAME": "pumice.test", "PUMICE_TIMEOUT": "1m30s",
	}), map[string]any{
		"pumice.policyMode": "check", "pumice.budgetCalls": 500, "pumice.plans": true, "pumice.budgetOpen": "1 min", "pumice.eventsEvery": "1h",
		"binpack.weight": 3, "cardUnlimitedCpuMemory": "maybe",
	})
	if err != nil {
		t.Fatal(err)
	}
	settings := options.Settings
	if options.Target != "https://pumice:7461" || settings.PolicyMode != CheckPolicy || settings.Fallback != Abstain || !settings.Plans ||
		settings.Budget != (Budget{Time: 2 * time.Second, Open: time.Minute, Calls: 500}) || settings.KeepFor >= 0 || settings.VerifyEvery != -1 ||
		settings.EventsEvery != time.Hour || options.Client.TLS.ServerName != "pumice.test" || options.Client.Timeout != 90*time.Second {
		t.Fatalf("%+v", options)
	}
}

func TestEveryWrongOptionIsNamed(t *testing.T) {
	_, err := ReadOptions(environment(map[string]string{"PUMICE_POLICY_MODE": "push", "PUMICE_BUDGET_TIME": "5", "PUMICE_ATTEMPTS": "0"}),
		map[string]any{"pumice.policymode": "hand", "pumice.verifyEvery": "often", "pumice.tlsCaFile": "/nowhere", "pumice.keepFor": 10})
	if err == nil {
		t.Fatal("wrong options were read")
	}
	for _, part := range []string{
		`PUMICE_POLICY_MODE: "push" is none of check, follow, hand`,
		`PUMICE_BUDGET_TIME: "5" is no time above 0 with a unit, such as 500ms, 30s, 5m or 2h, or unlimited`,
		`PUMICE_ATTEMPTS: "0" is no whole number above 0`,
		`pumice.policymode: is no option; the options are `,
		`pumice.verifyEvery: "often" is no whole number above 0, or never`,
		`tlsCaFile: open /nowhere`,
		`pumice.keepFor: "10" is no time`,
	} {
		if !strings.Contains(err.Error(), part) {
			t.Errorf("%s is not in %s", part, err)
		}
	}
}

func TestTimesAreReadAsPeopleWriteThem(t *testing.T) {
	for text, want := range map[string]time.Duration{
		"500ms": 500 * time.Millisecond, "30s": 30 * time.Second, " 5 min ": 5 * time.Minute, "1m30s": 90 * time.Second, "1.5h": 90 * time.Minute,
		"1d": 24 * time.Hour, "2H": 2 * time.Hour, "10 S": 10 * time.Second, "0s": 0,
	} {
		if made, err := ParseDuration(text); err != nil || made != want {
			t.Error(text, made, err)
		}
	}
	for _, text := range []string{"", "5", "s", "5 parsecs", "-5s", "1e3s", "s5", "5s5", "99999999999999d", "1.2.3s"} {
		if made, err := ParseDuration(text); err == nil {
			t.Error(text, made)
		}
	}
}

// certificate writes a certificate that is its own authority, and its key.
func certificate(t *testing.T, folder, name string, use x509.ExtKeyUsage) (certFile, keyFile string, pair tls.Certificate) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(time.Now().UnixNano()), NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		DNSNames: []string{"pumice.test"}, IsCA: true, BasicConstraintsValid: true, ExtKeyUsage: []x509.ExtKeyUsage{use},
	}
	text, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	secret, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	certFile, keyFile = filepath.Join(folder, name+".crt"), filepath.Join(folder, name+".key")
	certText := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: text})
	keyText := pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: secret})
	for file, content := range map[string][]byte{certFile: certText, keyFile: keyText} {
		if err := os.WriteFile(file, content, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if pair, err = tls.X509KeyPair(certText, keyText); err != nil {
		t.Fatal(err)
	}
	return certFile, keyFile, pair
}

func TestTheConnectionUsesTheAuthorityAndTheClientsCertificate(t *testing.T) {
	folder := t.TempDir()
	ca, _, server := certificate(t, folder, "server", x509.ExtKeyUsageServerAuth)
	certFile, keyFile, own := certificate(t, folder, "client", x509.ExtKeyUsageClientAuth)
	arguments := map[string]any{
		"pumice.tlsCaFile": ca, "pumice.tlsCertFile": certFile, "pumice.tlsKeyFile": keyFile, "pumice.tlsServerName": "pumice.test",
	}
	options, err := ReadOptions(environment(nil), arguments)
	if err != nil {
		t.Fatal(err)
	}
	// shaken returns the certificate that the server sees.
	shaken := func() []byte {
		t.Helper()
		one, other := net.Pipe()
		defer one.Close()
		defer other.Close()
		listening := tls.Server(one, &tls.Config{Certificates: []tls.Certificate{server}, ClientAuth: tls.RequireAnyClientCert})
		done := make(chan error, 1)
		go func() { done <- listening.Handshake() }()
		if err := tls.Client(other, options.Client.TLS).Handshake(); err != nil {
			t.Fatal(err)
		}
		if err := <-done; err != nil {
			t.Fatal(err)
		}
		return listening.ConnectionState().PeerCertificates[0].Raw
	}
	if string(shaken()) != string(own.Certificate[0]) {
		t.Fatal("another certificate was sent")
	}
	_, _, renewed := certificate(t, folder, "client", x509.ExtKeyUsageClientAuth)
	if string(shaken()) != string(renewed.Certificate[0]) {
		t.Fatal("a renewed certificate does not count")
	}
	delete(arguments, "pumice.tlsKeyFile")
	if _, err := ReadOptions(environment(nil), arguments); err == nil || !strings.Contains(err.Error(), "come together") {
		t.Fatal(err)
	}
}

func TestThePageOfTheAdapterListsEveryOption(t *testing.T) {
	page, err := os.ReadFile(filepath.Join("..", "volcano", "README.md"))
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range OptionNames() {
		if !strings.Contains(string(page), "`"+name+"`") {
			t.Errorf("clients/go/volcano/README.md does not list %s", name)
		}
	}
}
