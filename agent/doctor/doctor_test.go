package doctor

import (
	"context"
	"errors"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/muster-fleet/muster/agent/gateway"
	"github.com/muster-fleet/muster/packaging/host/disk"
	"github.com/muster-fleet/muster/packaging/host/doctor"
	"github.com/muster-fleet/muster/packaging/host/layout"
	"github.com/muster-fleet/muster/packaging/pkg/trust/tuf"
	"github.com/muster-fleet/muster/packaging/pkg/trust/tuf/tuftest"
)

func wants(t *testing.T, f doctor.Finding, level doctor.Level, words string) {
	t.Helper()
	if f.Level != level || !strings.Contains(f.Found+"\n"+f.Mend, words) {
		t.Errorf("found %+v, want %s with %q", f, level, words)
	}
}

// A host has the publishers' files as of its last upgrade; they expire unless people sign newer ones.
func TestPublishersOfAHost(t *testing.T) {
	repo := tuftest.New(t)
	name := repo.Release("1.0.0", "x")
	h := Host{Disk: disk.OS{}, Top: t.TempDir(), Now: func() time.Time { return repo.Now }}
	dir := layout.Path(h.Top, layout.TrustDir)

	wants(t, h.publishers(), doctor.Problem, "refuses every upgrade")

	if err := tuf.Pin(disk.OS{}, dir, repo.State.Root()); err != nil {
		t.Fatal(err)
	}
	client := tuf.Client{Disk: disk.OS{}, Dir: dir, Fetch: repo.Fetch, Now: func() time.Time { return repo.Now }}
	if _, err := client.Expect(t.Context(), name, nil); err != nil {
		t.Fatal(err)
	}
	files, err := tuf.StoredExpiries(h.Disk, dir)
	if err != nil || len(files) != 2 {
		t.Fatalf("the host has %+v, %v", files, err)
	}
	first := files[0] // root or targets, whichever expires first
	if files[1].Expires.Before(first.Expires) {
		first = files[1]
	}
	wants(t, h.publishers(), doctor.OK, "pinned root")
	h.Now = func() time.Time { return first.Expires.AddDate(0, 0, -20) }
	wants(t, h.publishers(), doctor.Warning, string(first.Role)+" version 1, which the publishers have signed, expires on")
	h.Now = func() time.Time { return first.Expires.Add(time.Hour) }
	wants(t, h.publishers(), doctor.Warning, "expired on")
	wants(t, h.publishers(), doctor.Warning, "let "+first.Who+" sign one: muster package keys")

	// The client fetches damaged targets again.
	if err := os.WriteFile(filepath.Join(dir, "targets.json"), []byte("{}"), 0o600); err != nil {
		t.Fatal(err)
	}
	h.Now = func() time.Time { return repo.Now }
	wants(t, h.publishers(), doctor.OK, "pinned root")
	for _, file := range []string{"root.json", "pinned-root.json"} {
		if err := os.WriteFile(filepath.Join(dir, file), []byte("{}"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	wants(t, h.publishers(), doctor.Problem, "enrol it again")
}

func TestServiceOfAHost(t *testing.T) {
	for state, c := range map[ServiceState]struct {
		level doctor.Level
		words string
	}{
		ServiceRuns:    {doctor.OK, "muster-agent runs under systemd"},
		ServiceStopped: {doctor.Problem, "systemctl enable --now muster-agent"},
		ServiceMissing: {doctor.Problem, "is not registered"},
		NoService:      {doctor.Warning, "muster-agent run"},
	} {
		h := Host{Manager: "systemd", Service: func() (string, ServiceState, error) { return "muster-agent", state, nil }}
		wants(t, h.service(), c.level, c.words)
	}
	h := Host{Service: func() (string, ServiceState, error) { return "", "", errors.New("no bus") }}
	wants(t, h.service(), doctor.Warning, "run this with sudo")
	wants(t, Host{Manager: "systemd", CheckServices: func() error { return nil }}.registers(), doctor.OK, "systemd can start the agent")
	wants(t, Host{CheckServices: func() error { return nil }}.registers(), doctor.Problem, "--no-service")
	wants(t, Host{CheckServices: func() error { return errors.New("its unit folder is read-only") }}.registers(), doctor.Problem, "its unit folder is read-only")
}

func TestTheFileThatExpiresFirstIsNamed(t *testing.T) {
	now := time.Now()
	root := tuf.Expiry{Role: tuf.RoleRoot, Version: 1, Expires: now.AddDate(0, 0, 20), Who: "rosa"}
	targets := tuf.Expiry{Role: tuf.RoleTargets, Version: 7, Expires: now.AddDate(0, 0, -1), Who: "ted"}
	f := signedFiles([]tuf.Expiry{root, targets}, now)
	wants(t, f, doctor.Warning, "targets version 7, which the publishers have signed, expired on")
	wants(t, f, doctor.Warning, "let ted sign one: muster package keys renew")
	targets.Expires = now.AddDate(0, 0, 25)
	wants(t, signedFiles([]tuf.Expiry{root, targets}, now), doctor.Warning, "let rosa sign one: muster package keys rotate")
}

// What stands between a host and its server differs, and each has its own remedy.
func TestServerCannotBeReached(t *testing.T) {
	answers := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusServiceUnavailable) })
	plain, secure := httptest.NewServer(answers), httptest.NewTLSServer(answers)
	t.Cleanup(plain.Close)
	t.Cleanup(secure.Close)
	silent, err := net.Listen("tcp", "127.0.0.1:0") // takes connections, and answers nothing
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = silent.Close() })
	hangUp := httptest.NewUnstartedServer(nil)
	hangUp.Config.ConnState = func(c net.Conn, _ http.ConnState) { _ = c.Close() }
	hangUp.StartTLS()
	t.Cleanup(hangUp.Close)
	_, port, _ := net.SplitHostPort(secure.Listener.Addr().String())
	_, plainPort, _ := net.SplitHostPort(plain.Listener.Addr().String())
	trust := gateway.Trust{Fingerprint: "sha256:" + strings.Repeat("ab", 32)}
	for url, words := range map[string]string{
		"https://127.0.0.1:" + plainPort:      "does not speak TLS",
		"https://127.0.0.1:" + port:           "pass that one with --ca-pin",
		"https://nowhere.invalid:8220":        "no host has the name nowhere.invalid",
		"https://127.0.0.1:1":                 "nothing listens at",
		"https://" + silent.Addr().String():   "look for a firewall",
		hangUp.URL:                            "cannot be reached: ",
		"http://fleet.example.com:8220":       "server.url in agent.yml",
		"https://127.0.0.1:" + port + "/\x7f": "name it as https://SERVER:8220",
	} {
		ctx := t.Context()
		var cancel context.CancelFunc
		if strings.Contains(words, "firewall") {
			ctx, cancel = context.WithTimeout(ctx, 200*time.Millisecond)
			defer cancel()
		}
		_, f := ask(ctx, url, trust)
		wants(t, f, doctor.Problem, words)
	}
}
