package authority_test

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/muster-fleet/muster/packaging/host/disk"
	"github.com/muster-fleet/muster/server/node/authority"
	"github.com/muster-fleet/muster/server/wire/agentapi/capin"
)

func issued(t *testing.T, ca string, life time.Duration, now time.Time, names ...string) []byte {
	t.Helper()
	data, err := authority.Issue(disk.OS{}, ca, names, life, now)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

func install(t *testing.T, dir string, data []byte, now time.Time) {
	t.Helper()
	if _, err := authority.Install(disk.OS{}, dir, data, now); err != nil {
		t.Fatal(err)
	}
}

// accepted returns the error of a host that pins the CA, and expects a name at a time.
func accepted(t *testing.T, a *authority.Authority, pin, name string, now time.Time) error {
	t.Helper()
	pair, err := a.TLS().GetCertificate(nil)
	if err != nil {
		t.Fatal(err)
	}
	var root *x509.Certificate
	for _, der := range pair.Certificate {
		if capin.Of(der) == pin {
			if root, err = x509.ParseCertificate(der); err != nil {
				t.Fatal(err)
			}
		}
	}
	if root == nil {
		t.Fatal("the server does not send the CA that the host pins")
	}
	roots := x509.NewCertPool()
	roots.AddCert(root)
	_, err = pair.Leaf.Verify(x509.VerifyOptions{Roots: roots, DNSName: name, CurrentTime: now})
	return err
}

// An installation that has run with its CA's key moves it away: hosts go on, and a certificate that is
// installed later is used without a restart.
func TestServerWithoutTheKeyOfItsCAUsesInstalledCertificates(t *testing.T) {
	now := time.Date(2026, 3, 3, 10, 0, 0, 0, time.UTC)
	clock := func() time.Time { return now }
	dir, away := filepath.Join(t.TempDir(), "tls"), t.TempDir()
	pin := open(t, dir, clock, "fleet.example").Pin()
	for _, name := range []string{"ca.crt", "ca.key"} {
		data, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(away, name), data, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	install(t, dir, issued(t, away, 30*24*time.Hour, now, "fleet.example", "10.0.0.7"), now)
	if err := os.Remove(filepath.Join(dir, "ca.key")); err != nil {
		t.Fatal(err)
	}
	a := open(t, dir, clock, "another.example")
	var log bytes.Buffer
	a.Log = slog.New(slog.NewTextHandler(&log, nil))
	if err := accepted(t, a, pin, "fleet.example", now); err != nil || a.Pin() != pin {
		t.Fatalf("pin %s, %v", a.Pin(), err)
	}
	if _, err := a.Tickets(); err != nil {
		t.Errorf("tickets: %v", err)
	}
	if accepted(t, a, pin, "another.example", now) == nil {
		t.Error("a server without the key has a certificate for another name")
	}
	if _, err := authority.Issue(disk.OS{}, dir, []string{"thief.example"}, time.Hour*24, now); err == nil || !strings.Contains(err.Error(), "where ca.key is") {
		t.Errorf("the server issues a certificate: %v", err)
	}
	if log.Len() > 0 {
		t.Errorf("warned at once: %s", log.String())
	}
	now = now.Add(21 * 24 * time.Hour) // the last third
	for range 2 {
		now = now.Add(time.Minute)
		_ = accepted(t, a, pin, "fleet.example", now)
	}
	if got := strings.Count(log.String(), "muster ca install"); got != 1 {
		t.Errorf("%d warnings: %s", got, log.String())
	}
	if c := a.RenewedElsewhere(); c == nil || now.Before(authority.WarnFrom(c)) {
		t.Errorf("the operators are not warned of %v", c)
	}

	other := t.TempDir()
	if _, err := authority.Create(disk.OS{}, other, now); err != nil {
		t.Fatal(err)
	}
	for name, bad := range map[string][]byte{
		"of another CA": issued(t, other, 30*24*time.Hour, now, "fleet.example"),
		"no PEM":        []byte("x"),
		"ended":         issued(t, away, 24*time.Hour, now.Add(-48*time.Hour), "fleet.example"),
	} {
		if _, err := authority.Install(disk.OS{}, dir, bad, now); err == nil {
			t.Errorf("%s: installed", name)
		}
		if err := os.WriteFile(filepath.Join(dir, "server.pem"), bad, 0o600); err != nil {
			t.Fatal(err)
		}
		now = now.Add(time.Minute)
		if err := accepted(t, a, pin, "fleet.example", now); err != nil {
			t.Errorf("%s: the server does not go on with the certificate before: %v", name, err)
		}
	}
	install(t, dir, issued(t, away, 30*24*time.Hour, now, "fleet.example"), now)
	now = now.Add(20 * 24 * time.Hour)
	if err := accepted(t, a, pin, "fleet.example", now); err != nil {
		t.Errorf("the new certificate is not used: %v", err)
	}
	if key, err := a.TLS().GetCertificate(nil); err != nil || len(key.Certificate) != 2 {
		t.Errorf("%v, %v", key, err)
	}
}

// The CA's key was never on the server.
func TestCAIsMadeAwayFromTheServer(t *testing.T) {
	now := time.Now()
	away, dir := filepath.Join(t.TempDir(), "ca"), filepath.Join(t.TempDir(), "data", "tls")
	pin, err := authority.Create(disk.OS{}, away, now)
	if err != nil {
		t.Fatal(err)
	}
	if got := files(t, away); len(got) != 2 || got[0] != "ca.crt" || got[1] != "ca.key" {
		t.Errorf("the folder has %v", got)
	}
	if _, err := authority.Create(disk.OS{}, away, now); err == nil || !strings.Contains(err.Error(), "name another folder") {
		t.Errorf("a second CA in the folder: %v", err)
	}
	for _, bad := range []struct {
		life  time.Duration
		names []string
	}{{time.Hour, []string{"a"}}, {366 * 24 * time.Hour, []string{"a"}}, {48 * time.Hour, nil}} {
		if _, err := authority.Issue(disk.OS{}, away, bad.names, bad.life, now); err == nil {
			t.Errorf("issued %+v", bad)
		}
	}
	install(t, dir, issued(t, away, 48*time.Hour, now, "fleet.example"), now)
	a := open(t, dir, nil)
	if err := accepted(t, a, pin, "fleet.example", now); err != nil || a.Pin() != pin {
		t.Errorf("pin %s, want %s; %v", a.Pin(), pin, err)
	}
	info, err := authority.Read(disk.OS{}, dir)
	if err != nil || info.Pin != pin || info.HasKey || info.Server == nil || info.Server.NotAfter.Sub(now).Round(time.Hour) != 48*time.Hour {
		t.Errorf("%+v, %v", info, err)
	}
	if fi, err := os.Stat(filepath.Join(dir, "server.pem")); err != nil || fi.Mode().Perm() != 0o600 {
		t.Errorf("%v, %v", fi, err)
	}
}

// Whoever holds a server's certificate cannot issue others with it, whatever it is made of.
func TestNoAuthorityBelowTheCAIsAccepted(t *testing.T) {
	now := time.Now()
	away := t.TempDir()
	if _, err := authority.Create(disk.OS{}, away, now); err != nil {
		t.Fatal(err)
	}
	data, err := os.ReadFile(filepath.Join(away, "ca.crt"))
	if err != nil {
		t.Fatal(err)
	}
	block, _ := pem.Decode(data)
	ca, err := x509.ParseCertificate(block.Bytes)
	if err != nil || !ca.IsCA || ca.MaxPathLen != 0 || !ca.MaxPathLenZero {
		t.Errorf("path length %d, %v", ca.MaxPathLen, err)
	}
	pair, err := tls.X509KeyPair(issued(t, away, 48*time.Hour, now, "a"), issued(t, away, 48*time.Hour, now, "a"))
	if err == nil {
		t.Errorf("the key of one certificate is that of another: %v", pair.Leaf.Subject)
	}
	leaf, err := tls.X509KeyPair(twice(issued(t, away, 48*time.Hour, now, "a")))
	if err != nil || leaf.Leaf.IsCA || leaf.Leaf.KeyUsage&x509.KeyUsageCertSign != 0 {
		t.Errorf("%v, %v", leaf.Leaf, err)
	}
}

func twice(b []byte) (cert, key []byte) { return b, b }
