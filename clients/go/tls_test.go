package pumice

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"io"
	mathbig "math/big"
	"net"
	"testing"
	"time"

	pb "github.com/pumice-scheduler/pumice/clients/go/pumicev1"
)

// authority signs certificates.
type authority struct {
	t           *testing.T
	certificate *x509.Certificate
	key         *ecdsa.PrivateKey
}

func newAuthority(t *testing.T) *authority {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	made := &authority{t: t, key: key, certificate: &x509.Certificate{
		SerialNumber: mathbig.NewInt(1), Subject: pkix.Name{CommonName: "tests"}, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}}
	text, err := x509.CreateCertificate(rand.Reader, made.certificate, made.certificate, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	made.certificate, err = x509.ParseCertificate(text)
	if err != nil {
		t.Fatal(err)
	}
	return made
}

func (authority *authority) pool() *x509.CertPool {
	pool := x509.NewCertPool()
	pool.AddCert(authority.certificate)
	return pool
}

func (authority *authority) sign(use x509.ExtKeyUsage) tls.Certificate {
	authority.t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		authority.t.Fatal(err)
	}
	text, err := x509.CreateCertificate(rand.Reader, &x509.Certificate{
		SerialNumber: mathbig.NewInt(2), NotBefore: authority.certificate.NotBefore, NotAfter: authority.certificate.NotAfter,
		DNSNames: []string{"pumice.test"}, KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{use},
	}, authority.certificate, &key.PublicKey, authority.key)
	if err != nil {
		authority.t.Fatal(err)
	}
	return tls.Certificate{Certificate: [][]byte{text}, PrivateKey: key}
}

// ends is a proxy that ends TLS in front of a server without TLS.
func ends(t *testing.T, behind string, settings *tls.Config) string {
	t.Helper()
	settings.NextProtos = []string{"h2"}
	listener, err := tls.Listen("tcp", "127.0.0.1:0", settings)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = listener.Close() })
	go func() {
		for {
			outer, err := listener.Accept()
			if err != nil {
				return
			}
			inner, err := net.Dial("tcp", behind)
			if err != nil {
				_ = outer.Close()
				continue
			}
			pass := func(into, from net.Conn) {
				_, _ = io.Copy(into, from)
				_ = into.Close()
			}
			go pass(outer, inner)
			go pass(inner, outer)
		}
	}()
	return listener.Addr().String()
}

func TestTheConnectionIsEncryptedAndBothSidesAreKnown(t *testing.T) {
	own, other := newAuthority(t), newAuthority(t)
	behind, _ := serve(t)
	server, client := own.sign(x509.ExtKeyUsageServerAuth), own.sign(x509.ExtKeyUsageClientAuth)
	open := ends(t, behind, &tls.Config{Certificates: []tls.Certificate{server}})
	mutual := ends(t, behind, &tls.Config{Certificates: []tls.Certificate{server}, ClientCAs: own.pool(), ClientAuth: tls.RequireAndVerifyClientCert})
	for _, test := range []struct {
		name, target string
		settings     *tls.Config
		reached      bool
	}{
		{"known authority", open, &tls.Config{RootCAs: own.pool(), ServerName: "pumice.test"}, true},
		{"the same as https", "https://" + open, &tls.Config{RootCAs: own.pool(), ServerName: "pumice.test"}, true},
		{"another authority", open, &tls.Config{RootCAs: other.pool(), ServerName: "pumice.test"}, false},
		{"another name", open, &tls.Config{RootCAs: own.pool(), ServerName: "other.test"}, false},
		{"the name of the address", open, &tls.Config{RootCAs: own.pool()}, false},
		{"the system's authorities", "https://" + open, nil, false},
		{"not encrypted", open, nil, false},
		{"not encrypted behind", behind, &tls.Config{RootCAs: own.pool(), ServerName: "pumice.test"}, false},
		{"own certificate", mutual, &tls.Config{RootCAs: own.pool(), ServerName: "pumice.test", Certificates: []tls.Certificate{client}}, true},
		{"no own certificate", mutual, &tls.Config{RootCAs: own.pool(), ServerName: "pumice.test"}, false},
		{"one of another authority", mutual, &tls.Config{
			RootCAs: own.pool(), ServerName: "pumice.test", Certificates: []tls.Certificate{other.sign(x509.ExtKeyUsageClientAuth)},
		}, false},
		{"a server's certificate", mutual, &tls.Config{RootCAs: own.pool(), ServerName: "pumice.test", Certificates: []tls.Certificate{server}}, false},
	} {
		timeout := time.Minute
		if !test.reached {
			timeout = time.Second
		}
		_, err := dial(t, test.target, Options{TLS: test.settings, Timeout: timeout, Attempts: 1}).GetServerInfo(within(t))
		var failure *Error
		if test.reached != (err == nil) || (err != nil && (!errors.As(err, &failure) || !failure.Unavailable())) {
			t.Errorf("%s: %v", test.name, err)
		}
	}
}

func TestAmongSeveralAddressesEachHasItsOwnWay(t *testing.T) {
	own := newAuthority(t)
	behind, socket := serve(t)
	open := ends(t, behind, &tls.Config{Certificates: []tls.Certificate{own.sign(x509.ExtKeyUsageServerAuth)}})
	settings := &tls.Config{RootCAs: own.pool(), ServerName: "pumice.test"}
	client := dial(t, "https://"+open+", unix:"+socket+", http://"+behind, Options{TLS: settings})
	for _, server := range client.servers.all {
		_, err := callAt(within(t), client, server, "WhoAmI", repeatable, states(pb.StateServiceClient.WhoAmI), &pb.WhoAmIRequest{})
		if err != nil {
			t.Error(server.target, err)
		}
	}
	// An address whose certificate is not trusted is passed over, and nothing is sent to it.
	other := dial(t, open+", unix:"+socket, Options{TLS: &tls.Config{RootCAs: newAuthority(t).pool(), ServerName: "pumice.test"}})
	if _, err := other.ReloadPolicy(within(t), &pb.ReloadPolicyRequest{Document: spread}); err != nil || other.Address() != "unix:"+socket {
		t.Error(other.Address(), err)
	}
}
