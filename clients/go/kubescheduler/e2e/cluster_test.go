//go:build e2e

// Package e2e schedules pods with kube-scheduler, its plugin and a real server, on a control plane of its own.
package e2e

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/hex"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"math/big"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
)

// cluster is etcd and an API server, and the programs that were started beside them.
type cluster struct {
	t      *testing.T
	folder string
	client *kubernetes.Clientset
	config string
	// api starts the API server; secrets are the tokens of its accounts, by name.
	api     func() *program
	server  *program
	address string
	etcd    string
	secrets map[string]string
	// running are the programs that go on until the end.
	running []*program
}

// startCluster brings the control plane up; everything in it ends with the test. More flags of the API server may follow.
func startCluster(t *testing.T, flags ...string) *cluster {
	made := &cluster{t: t, folder: t.TempDir()}
	made.secrets = map[string]string{}
	tokens := ""
	for name, groups := range map[string]string{"e2e": `"system:masters"`, account: "", "nobody": ""} {
		token := make([]byte, 16)
		if _, err := rand.Read(token); err != nil {
			t.Fatal(err)
		}
		made.secrets[name] = hex.EncodeToString(token)
		tokens += strings.Join([]string{made.secrets[name], name, name, groups}, ",") + "\n"
	}
	secret := made.secrets["e2e"]
	authority := made.certificates()
	made.write("tokens.csv", []byte(tokens))

	etcd, peer, api := freePort(t), freePort(t), freePort(t)
	client, member := "http://127.0.0.1:"+etcd, "http://127.0.0.1:"+peer
	made.start("etcd", "etcd", "--name", "e2e", "--data-dir", made.path("etcd"),
		"--listen-client-urls", client, "--advertise-client-urls", client,
		"--listen-peer-urls", member, "--initial-advertise-peer-urls", member, "--initial-cluster", "e2e="+member,
		"--unsafe-no-fsync", "--log-level", "warn")
	made.until("etcd is healthy", func() error { return get(http.DefaultClient, client+"/health", "") })

	made.etcd = client
	arguments := []string{"--etcd-servers", client, "--bind-address", "127.0.0.1", "--advertise-address", "127.0.0.1",
		"--secure-port", api, "--tls-cert-file", made.path("server.crt"), "--tls-private-key-file", made.path("server.key"),
		"--cert-dir", made.path("generated"), "--token-auth-file", made.path("tokens.csv"), "--anonymous-auth=false",
		"--authorization-mode", "RBAC", "--service-account-issuer", "https://kubernetes.default.svc",
		"--service-account-key-file", made.path("accounts.pub"), "--service-account-signing-key-file", made.path("accounts.key"),
		// Nobody removes the taint that every new node would get, and nobody makes accounts.
		"--service-cluster-ip-range", "10.0.0.0/24", "--disable-admission-plugins", "ServiceAccount,TaintNodesByCondition",
		"--endpoint-reconciler-type", "none", "--profiling=false"}
	arguments = append(arguments, flags...)
	made.api = func() *program { return made.start("kube-apiserver", "kube-apiserver", arguments...) }
	made.address = "https://127.0.0.1:" + api
	var err error
	made.client, err = kubernetes.NewForConfig(&rest.Config{
		Host: made.address, BearerToken: secret, TLSClientConfig: rest.TLSClientConfig{CAData: authority}, QPS: 1000, Burst: 1000,
	})
	if err != nil {
		t.Fatal(err)
	}
	made.startAPI()
	made.until("the namespace is there", func() error {
		_, err := made.client.CoreV1().Namespaces().Get(context.Background(), "default", metav1.GetOptions{})
		return err
	})
	made.config = made.kubeconfig("kubeconfig", secret)
	return made
}

// kubeconfig writes one with this token.
func (cluster *cluster) kubeconfig(name, secret string) string {
	cluster.t.Helper()
	return cluster.kubeconfigOf(name, fmt.Sprintf(`{"token": %q}`, secret))
}

// kubeconfigOf writes one with the credentials of a user.
func (cluster *cluster) kubeconfigOf(name, user string) string {
	cluster.t.Helper()
	return cluster.write(name, fmt.Appendf(nil, `{"apiVersion": "v1", "kind": "Config", "current-context": "e2e",
		"clusters": [{"name": "e2e", "cluster": {"server": %q, "certificate-authority": %q}}],
		"users": [{"name": "e2e", "user": %s}],
		"contexts": [{"name": "e2e", "context": {"cluster": "e2e", "user": "e2e", "namespace": "pumice"}}]}`, cluster.address, cluster.path("authority.crt"), user))
}

// account is the token of an account.
func (cluster *cluster) account(name string) string {
	cluster.t.Helper()
	secret, known := cluster.secrets[name]
	if !known {
		cluster.t.Fatal("no account ", name)
	}
	return secret
}

// startAPI starts the API server and waits until it answers.
func (cluster *cluster) startAPI() {
	cluster.t.Helper()
	cluster.server = cluster.api()
	cluster.until("kube-apiserver is ready", func() error {
		_, err := cluster.client.RESTClient().Get().AbsPath("/readyz").DoRaw(context.Background())
		return err
	})
}

// stopAPI ends the API server at once.
func (cluster *cluster) stopAPI() {
	cluster.server.kill()
	cluster.forget(cluster.server)
}

// forget takes a program from those that must go on.
func (cluster *cluster) forget(ended *program) {
	cluster.running = slices.DeleteFunc(cluster.running, func(program *program) bool { return program == ended })
}

// compact makes etcd forget all versions but the last one.
func (cluster *cluster) compact() {
	cluster.t.Helper()
	post := func(path, body string) []byte {
		response, err := http.Post(cluster.etcd+path, "application/json", strings.NewReader(body))
		if err != nil {
			cluster.t.Fatal(err)
		}
		defer response.Body.Close()
		text, err := io.ReadAll(response.Body)
		if err != nil || response.StatusCode != http.StatusOK {
			cluster.t.Fatalf("%s: %v %s %s", path, err, response.Status, text)
		}
		return text
	}
	var found struct{ Header struct{ Revision string } }
	if err := json.Unmarshal(post("/v3/kv/range", `{"key": "AA=="}`), &found); err != nil {
		cluster.t.Fatal(err)
	}
	post("/v3/kv/compaction", fmt.Sprintf(`{"revision": %q, "physical": true}`, found.Header.Revision))
}

// signal sends processes a signal by its name.
func signal(t *testing.T, name string, processes ...int) {
	t.Helper()
	number := map[string]syscall.Signal{"STOP": syscall.SIGSTOP, "CONT": syscall.SIGCONT}[name]
	for _, process := range processes {
		if err := syscall.Kill(process, number); err != nil {
			t.Fatal(err)
		}
	}
}

func (cluster *cluster) path(name string) string {
	return filepath.Join(cluster.folder, name)
}

func (cluster *cluster) write(name string, content []byte) string {
	cluster.t.Helper()
	if err := os.WriteFile(cluster.path(name), content, 0o600); err != nil {
		cluster.t.Fatal(err)
	}
	return cluster.path(name)
}

// certificates makes those of the API server, and the key of service accounts; it returns the authority's.
func (cluster *cluster) certificates() []byte {
	cluster.t.Helper()
	check := func(err error) {
		if err != nil {
			cluster.t.Fatal(err)
		}
	}
	encoded := func(kind string, bytes []byte) []byte {
		return pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: bytes})
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	check(err)
	authority := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "e2e"}, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(24 * time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}
	own, err := x509.CreateCertificate(rand.Reader, authority, authority, &key.PublicKey, key)
	check(err)
	serverKey, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	check(err)
	server, err := x509.CreateCertificate(rand.Reader, &x509.Certificate{
		SerialNumber: big.NewInt(2), Subject: pkix.Name{CommonName: "kube-apiserver"}, NotBefore: authority.NotBefore, NotAfter: authority.NotAfter,
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1), net.IPv4(10, 0, 0, 1)}, DNSNames: []string{"localhost"},
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}, authority, &serverKey.PublicKey, key)
	check(err)
	private, err := x509.MarshalECPrivateKey(serverKey)
	check(err)
	cluster.write("authority.crt", encoded("CERTIFICATE", own))
	cluster.write("server.crt", encoded("CERTIFICATE", server))
	cluster.write("server.key", encoded("EC PRIVATE KEY", private))
	accounts, err := rsa.GenerateKey(rand.Reader, 2048)
	check(err)
	public, err := x509.MarshalPKIXPublicKey(&accounts.PublicKey)
	check(err)
	cluster.write("accounts.key", encoded("RSA PRIVATE KEY", x509.MarshalPKCS1PrivateKey(accounts)))
	cluster.write("accounts.pub", encoded("PUBLIC KEY", public))
	return encoded("CERTIFICATE", own)
}

// program is a process that was started here, with the processes that it starts.
type program struct {
	command *exec.Cmd
	log     string
	ended   chan struct{}
}

// start starts a program of the folder E2E_BIN, or a shell command where it has none of that name.
func (cluster *cluster) start(name, program string, arguments ...string) *program {
	cluster.t.Helper()
	folder := os.Getenv("E2E_BIN")
	if folder == "" {
		cluster.t.Fatal("E2E_BIN names no folder: run make e2e")
	}
	if !strings.Contains(program, "/") {
		program = filepath.Join(folder, program)
	}
	return cluster.run(name, exec.Command(program, arguments...))
}

func (cluster *cluster) run(name string, command *exec.Cmd) *program {
	cluster.t.Helper()
	log, err := os.OpenFile(cluster.path(name+".log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		cluster.t.Fatal(err)
	}
	defer log.Close()
	command.Stdout, command.Stderr = log, log
	// A group of its own, so that what it starts ends with it.
	command.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := command.Start(); err != nil {
		cluster.t.Fatal(err)
	}
	started := &program{command, log.Name(), make(chan struct{})}
	go func() {
		_ = command.Wait()
		close(started.ended)
	}()
	cluster.running = append(cluster.running, started)
	cluster.t.Cleanup(func() {
		started.kill()
		if cluster.t.Failed() {
			cluster.t.Logf("the end of the log of %s:\n%s", name, tail(started.log))
		}
	})
	return started
}

// kill ends it at once, as kill -9 does.
func (program *program) kill() {
	_ = syscall.Kill(-program.command.Process.Pid, syscall.SIGKILL)
	<-program.ended
}

func tail(log string) string {
	text, _ := os.ReadFile(log)
	lines := strings.Split(string(bytes.TrimSpace(text)), "\n")
	return strings.Join(lines[max(0, len(lines)-25):], "\n")
}

// until waits for as long as a slow machine may need.
func (cluster *cluster) until(what string, holds func() error) {
	cluster.t.Helper()
	var err error
	for range 3000 {
		if err = holds(); err == nil {
			return
		}
		for _, program := range cluster.running {
			select {
			case <-program.ended:
				cluster.t.Fatalf("before it came that %s: %s ended", what, filepath.Base(program.log))
			case <-time.After(100 * time.Millisecond / time.Duration(len(cluster.running))):
			}
		}
	}
	cluster.t.Fatalf("it did not come that %s: %v", what, err)
}

func freePort(t *testing.T) string {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	_, port, err := net.SplitHostPort(listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	return port
}

// get reads a page, and wants some text in it.
func get(client *http.Client, address, wanted string) error {
	response, err := client.Get(address)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err == nil && (response.StatusCode != http.StatusOK || !strings.Contains(string(body), wanted)) {
		err = fmt.Errorf("%s: %s, without %q", address, response.Status, wanted)
	}
	return err
}

// trusting takes the certificate that kube-scheduler makes for itself.
func trusting() *http.Client {
	return &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}}
}
