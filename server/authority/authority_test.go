package authority_test

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/muster-fleet/muster/packaging/disk"
	"github.com/muster-fleet/muster/server/agentapi/capin"
	"github.com/muster-fleet/muster/server/authority"
)

func open(t *testing.T, dir string, now func() time.Time, names ...string) *authority.Authority {
	t.Helper()
	a, err := authority.Open(disk.OS{}, dir, names, now)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

func leaf(t *testing.T, a *authority.Authority) *x509.Certificate {
	t.Helper()
	pair, err := a.TLS().GetCertificate(nil)
	if err != nil {
		t.Fatal(err)
	}
	if len(pair.Certificate) != 2 || capin.Of(pair.Certificate[1]) != a.Pin() {
		t.Fatalf("the chain has %d certificates, want the leaf and the pinned CA", len(pair.Certificate))
	}
	return pair.Leaf
}

func TestTheAuthorityIsMadeOnce(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "tls")
	first := open(t, dir, nil, "muster.example")
	again := open(t, dir, nil, "muster.example")
	if first.Pin() != again.Pin() || !bytes.Equal(first.PEM(), again.PEM()) {
		t.Errorf("pins are %s and %s", first.Pin(), again.Pin())
	}
	block, _ := pem.Decode(first.PEM())
	if block == nil || capin.Of(block.Bytes) != first.Pin() {
		t.Errorf("the certificate %s does not have the pin %s", first.PEM(), first.Pin())
	}
	file, err := os.ReadFile(filepath.Join(dir, "ca.crt"))
	if err != nil || !bytes.Equal(file, first.PEM()) {
		t.Errorf("ca.crt is %s, %v", file, err)
	}
	for name, mode := range map[string]os.FileMode{"ca.key": 0o600, "ca.crt": 0o644} {
		if fi, err := os.Stat(filepath.Join(dir, name)); err != nil || fi.Mode().Perm() != mode {
			t.Errorf("%s: %v, %v, want mode %o", name, fi, err, mode)
		}
	}
	if other := open(t, t.TempDir(), nil); other.Pin() == first.Pin() {
		t.Error("two servers have one CA")
	}
}

// The server dies between the key and the certificate.
func TestAKeyWithoutItsCertificateIsMadeAnew(t *testing.T) {
	dir := t.TempDir()
	open(t, dir, nil)
	if err := os.Remove(filepath.Join(dir, "ca.crt")); err != nil {
		t.Fatal(err)
	}
	if a := open(t, dir, nil, "localhost"); leaf(t, a).CheckSignatureFrom(ca(t, a)) != nil {
		t.Error("the new CA does not sign")
	}
}

func ca(t *testing.T, a *authority.Authority) *x509.Certificate {
	t.Helper()
	block, _ := pem.Decode(a.PEM())
	c, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func TestAnAuthorityThatIsNotWholeIsNotReplaced(t *testing.T) {
	for name, damage := range map[string]func(dir string) error{
		"its key is missing": func(dir string) error { return os.Remove(filepath.Join(dir, "ca.key")) },
		"restore ca.crt and ca.key from a backup": func(dir string) error {
			return os.WriteFile(filepath.Join(dir, "ca.crt"), []byte("nothing"), 0o600)
		},
		"private key does not match": func(dir string) error {
			other := t.TempDir()
			open(t, other, nil)
			key, err := os.ReadFile(filepath.Join(other, "ca.key"))
			return errors.Join(err, os.WriteFile(filepath.Join(dir, "ca.key"), key, 0o600))
		},
	} {
		dir := t.TempDir()
		open(t, dir, nil)
		if err := damage(dir); err != nil {
			t.Fatal(err)
		}
		before, _ := os.ReadFile(filepath.Join(dir, "ca.crt"))
		_, err := authority.Open(disk.OS{}, dir, nil, nil)
		if err == nil || !strings.Contains(err.Error(), name) || !strings.Contains(err.Error(), dir) {
			t.Errorf("error is %v, want one that names %s and says %q", err, dir, name)
		}
		if after, _ := os.ReadFile(filepath.Join(dir, "ca.crt")); !bytes.Equal(before, after) {
			t.Errorf("%s: ca.crt was replaced, and with it every agent's pin", name)
		}
	}
}

func TestTheLeafIsRenewedBeforeItsEnd(t *testing.T) {
	now := time.Date(2026, 3, 3, 10, 0, 0, 0, time.UTC)
	a := open(t, t.TempDir(), func() time.Time { return now }, "muster.example", "10.0.0.7", "::1")
	first := leaf(t, a)
	if !slices.Equal(first.DNSNames, []string{"muster.example"}) || len(first.IPAddresses) != 2 {
		t.Errorf("names are %v and %v", first.DNSNames, first.IPAddresses)
	}
	if life := first.NotAfter.Sub(first.NotBefore); life > 398*24*time.Hour {
		t.Errorf("it lasts %s, more than browsers accept", life)
	}
	if !first.NotBefore.Before(now) {
		t.Error("a host whose clock is behind would refuse it")
	}
	now = first.NotAfter.Add(-31 * 24 * time.Hour)
	if leaf(t, a) != first {
		t.Error("renewed too early")
	}
	now = first.NotAfter.Add(-29 * 24 * time.Hour)
	next := leaf(t, a)
	if next.NotAfter.Sub(now) < 300*24*time.Hour || next.SerialNumber.Cmp(first.SerialNumber) == 0 {
		t.Errorf("at %s the leaf ends at %s", now, next.NotAfter)
	}
	roots := x509.NewCertPool()
	roots.AddCert(ca(t, a))
	if _, err := next.Verify(x509.VerifyOptions{Roots: roots, DNSName: "muster.example", CurrentTime: now}); err != nil {
		t.Errorf("the new leaf: %v", err)
	}
}

func TestNames(t *testing.T) {
	names := authority.Names("muster.example", "", "localhost")
	for _, want := range []string{"localhost", "127.0.0.1", "::1", "muster.example"} {
		if !slices.Contains(names, want) {
			t.Errorf("%s is missing in %v", want, names)
		}
	}
	if slices.Contains(names, "") || len(slices.Compact(slices.Clone(names))) != len(names) {
		t.Errorf("names are %q", names)
	}
}

// Both parts together: a host that knows only the pin reaches its server.
func TestAHostThatKnowsThePinConnects(t *testing.T) {
	a := open(t, t.TempDir(), nil, "127.0.0.1", "localhost")
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "hello") }))
	server.Config.ErrorLog = log.New(io.Discard, "", 0)
	// Not StartTLS, which shows a certificate of its own to hosts that ask for
	// an address.
	server.Listener = tls.NewListener(server.Listener, a.TLS())
	server.Start()
	defer server.Close()
	serverURL := strings.Replace(server.URL, "http:", "https:", 1)
	u, err := url.Parse(serverURL)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	got, err := capin.Fetch(ctx, serverURL, strings.ToUpper(a.Pin()))
	if err != nil || got != string(a.PEM()) {
		t.Errorf("fetched %s, %v", got, err)
	}
	other := open(t, t.TempDir(), nil)
	if _, err := capin.Fetch(ctx, serverURL, other.Pin()); !errors.Is(err, capin.ErrMismatch) {
		t.Errorf("with the pin of another CA: %v", err)
	}
	config, err := capin.TLSConfig(a.Pin(), u.Hostname())
	if err != nil {
		t.Fatal(err)
	}
	client := &http.Client{Transport: &http.Transport{TLSClientConfig: config}}
	defer client.CloseIdleConnections()
	resp, err := client.Get(serverURL)
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
}

func TestAnOperatorsOwnCertificate(t *testing.T) {
	a := open(t, t.TempDir(), nil, "muster.example")
	pair, err := a.TLS().GetCertificate(nil)
	if err != nil {
		t.Fatal(err)
	}
	key, err := x509.MarshalPKCS8PrivateKey(pair.PrivateKey)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	certFile, keyFile := filepath.Join(dir, "server.crt"), filepath.Join(dir, "server.key")
	write := func(path, kind string, ders ...[]byte) {
		var text []byte
		for _, der := range ders {
			text = append(text, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der})...)
		}
		if err := os.WriteFile(path, text, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write(keyFile, "PRIVATE KEY", key)
	write(certFile, "CERTIFICATE", pair.Certificate...)
	config, pin, err := authority.Files(certFile, keyFile)
	if err != nil || pin != a.Pin() || len(config.Certificates) != 1 || config.MinVersion != tls.VersionTLS12 {
		t.Errorf("pin is %s, %v", pin, err)
	}
	if _, _, err := authority.Files(filepath.Join(dir, "absent"), keyFile); err == nil || !strings.Contains(err.Error(), "tls.certificate") {
		t.Errorf("error is %v, want the keys of the configuration in it", err)
	}
}
