package app_test

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"log/slog"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/muster-fleet/muster/packaging/host/disk"
	"github.com/muster-fleet/muster/server/app"
	"github.com/muster-fleet/muster/server/app/apptest"
	"github.com/muster-fleet/muster/server/node/authority"
)

// renew writes a new certificate of the CA in a folder, for localhost, and returns it.
func renew(t *testing.T, ca, certFile, keyFile string) []byte {
	t.Helper()
	a, err := authority.Open(disk.OS{}, ca, []string{"localhost", "127.0.0.1"}, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	pair, err := a.TLS().GetCertificate(nil)
	if err != nil {
		t.Fatal(err)
	}
	key, err := x509.MarshalPKCS8PrivateKey(pair.PrivateKey)
	if err != nil {
		t.Fatal(err)
	}
	var chain []byte
	for _, der := range pair.Certificate {
		chain = append(chain, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})...)
	}
	for file, content := range map[string][]byte{certFile: chain, keyFile: pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: key})} {
		if err := os.WriteFile(file, content, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return pair.Certificate[0]
}

// presented returns the certificate that a listener serves with.
func presented(t *testing.T, base string) []byte {
	t.Helper()
	u, err := url.Parse(base)
	if err != nil {
		t.Fatal(err)
	}
	c, err := tls.Dial("tcp", u.Host, &tls.Config{InsecureSkipVerify: true})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	return c.ConnectionState().PeerCertificates[0].Raw
}

// buffer is a log that a server writes while a test reads it.
type buffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (b *buffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.Write(p)
}

func (b *buffer) count(text string) int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return strings.Count(b.b.String(), text)
}

// An operator's certificate is renewed beside a running server, which then gets a broken one.
// Hosts still trust the server, since the chain keeps the CA that they pin.
func TestServerUsesARenewedCertificate(t *testing.T) {
	ca, dir := t.TempDir(), t.TempDir()
	certFile, keyFile := filepath.Join(dir, "server.pem"), filepath.Join(dir, "server.key")
	first := renew(t, ca, certFile, keyFile)
	var log buffer
	s := apptest.Start(t, func(o *app.Options) {
		o.Config.TLS.Certificate, o.Config.TLS.Key = certFile, keyFile
		o.Log = slog.New(slog.NewTextHandler(&log, nil))
	})
	listeners := map[string]string{"agents": s.AgentURL, "admin": s.AdminURL}
	for name, base := range listeners {
		if !bytes.Equal(presented(t, base), first) {
			t.Errorf("%s: another certificate than that of the file", name)
		}
	}

	second := renew(t, ca, certFile, keyFile)
	all := func(want []byte) func() string {
		return func() string {
			for name, base := range listeners {
				if !bytes.Equal(presented(t, base), want) {
					return name + " serves with another certificate"
				}
			}
			return ""
		}
	}
	apptest.Eventually(t, "the new certificate", all(second))
	s.Client.CloseIdleConnections()
	s.Enroll("web-01", "1.0.0") // its client trusts that CA only

	before := log.count("level=ERROR")
	if err := os.WriteFile(certFile, []byte("not a certificate"), 0o600); err != nil {
		t.Fatal(err)
	}
	apptest.Eventually(t, "the error in the log", func() string {
		if problem := all(second)(); problem != "" {
			t.Fatal(problem)
		}
		if log.count("level=ERROR") == before {
			return "nothing is logged"
		}
		return ""
	})
	apptest.Eventually(t, "the certificate after the broken one", all(renew(t, ca, certFile, keyFile)))
}
