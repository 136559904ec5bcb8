package attack

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/muster-fleet/muster/agent/config"
	"github.com/muster-fleet/muster/agent/control"
	"github.com/muster-fleet/muster/agent/daemon"
	"github.com/muster-fleet/muster/agent/gateway"
	"github.com/muster-fleet/muster/agent/host"
	"github.com/muster-fleet/muster/agent/identity"
	"github.com/muster-fleet/muster/agent/upgrade"
	"github.com/muster-fleet/muster/packaging/host/disk"
	"github.com/muster-fleet/muster/packaging/host/layout"
	"github.com/muster-fleet/muster/packaging/pkg/build"
	"github.com/muster-fleet/muster/packaging/pkg/install"
	"github.com/muster-fleet/muster/packaging/pkg/manifest"
	"github.com/muster-fleet/muster/packaging/pkg/trust"
	"github.com/muster-fleet/muster/packaging/pkg/trust/tuf"
	"github.com/muster-fleet/muster/packaging/pkg/trust/tuf/tuftest"
	"github.com/muster-fleet/muster/server/wire/agentapi"
	"github.com/muster-fleet/muster/testing/kit/fakeserver"
	"github.com/muster-fleet/muster/watcher/handoff"
)

// victim is a host whose server the attacker has stolen: the attacker chooses every action
// and serves every file, and has the publishers' packages, but not the publishers' keys.
type victim struct {
	t      *testing.T
	top    string
	server *fakeserver.Server
	repo   *tuftest.Repo
	config config.Config
	roots  *x509.CertPool // of mirrors
	// moved is where the attacker has moved the host; empty if nowhere.
	moved string
}

func newVictim(t *testing.T, version string) *victim {
	t.Helper()
	top, err := os.MkdirTemp("", "v") // short, for the path of the control socket
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(top) })
	v := &victim{t: t, top: top, server: fakeserver.New(t), repo: tuftest.New(t), config: config.Default(), roots: x509.NewCertPool()}
	if err := tuf.Pin(disk.OS{}, layout.Path(top, layout.TrustDir), v.repo.State.Root()); err != nil {
		t.Fatal(err)
	}
	if err := os.MkdirAll(layout.Path(top, layout.DataDir), 0o755); err != nil {
		t.Fatal(err)
	}
	home := v.unpack(version)
	for _, link := range []string{layout.AgentLink, layout.WatcherLink} {
		if err := os.Symlink(filepath.Join(home, link), filepath.Join(top, link)); err != nil {
			t.Fatal(err)
		}
	}
	return v
}

// publish signs a package, serves it, and returns a folder that holds it.
func (v *victim) publish(version string) string {
	v.t.Helper()
	dir := v.t.TempDir()
	spec := build.Spec{Manifest: manifest.Package{Version: version, OS: "linux", Arch: "amd64"}}
	for _, name := range []string{layout.AgentLink, layout.WatcherLink} {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(name+version), 0o755); err != nil {
			v.t.Fatal(err)
		}
		spec.Files = append(spec.Files, build.File{Name: name, Path: path, Mode: 0o755})
	}
	var archive bytes.Buffer
	if _, err := build.Build(v.t.Context(), spec, &archive); err != nil {
		v.t.Fatal(err)
	}
	name := archiveName(version)
	if err := os.WriteFile(filepath.Join(dir, name), archive.Bytes(), 0o600); err != nil {
		v.t.Fatal(err)
	}
	v.server.Publish(name, archive.Bytes())
	v.sign(filepath.Join(dir, name))
	return dir
}

// sign signs a package, and has the server serve the signed metadata.
func (v *victim) sign(archive string) {
	v.t.Helper()
	v.repo.SignFile(archive)
	v.serveMetadata()
}

func (v *victim) serveMetadata() {
	for name, data := range v.repo.Served() {
		v.server.PublishTrust(name, data)
	}
}

// trust returns the host's authority.
func (v *victim) trust(server *http.Client) trust.Authority {
	return daemon.PinnedTrust(disk.OS{}, layout.Path(v.top, layout.TrustDir), &gateway.Client{HTTP: server, URL: v.server.URL}, slog.New(slog.DiscardHandler))
}

func archiveName(version string) string {
	return manifest.ArchiveName(version, "linux", "amd64", "tar.gz")
}

func (v *victim) unpack(version string) (home string) {
	v.t.Helper()
	p, err := install.Unpack(v.t.Context(), disk.OS{}, filepath.Join(v.publish(version), archiveName(version)), v.top)
	if err != nil {
		v.t.Fatal(err)
	}
	return p.Home()
}

func (v *victim) running() handoff.Install {
	v.t.Helper()
	exe, err := filepath.EvalSymlinks(layout.Path(v.top, layout.AgentLink))
	if err != nil {
		v.t.Fatal(err)
	}
	running, err := daemon.RunningVersion(disk.OS{}, v.top, exe, "dev")
	if err != nil {
		v.t.Fatal(err)
	}
	return running
}

// MarkerVersion and the other methods stand for watchers.
func (v *victim) MarkerVersion(context.Context, string) (int, error) {
	return handoff.MarkerVersion, nil
}
func (v *victim) PID() int                   { return 0 }
func (v *victim) Stop(context.Context) error { return nil }
func (v *victim) Start(context.Context, string, string) (upgrade.Watcher, error) {
	return v, nil
}

// start runs the agent until the test ends.
func (v *victim) start() {
	v.t.Helper()
	id := identity.Identity{AgentID: "agent-1", APIKey: "key-agent-1", ServerURL: v.server.URL, CAFingerprint: v.server.CAPin}
	if v.moved != "" {
		id.ServerURL, id.EnrolledURL = v.moved, v.server.URL
	}
	link, err := gateway.Trust{Fingerprint: v.server.CAPin}.Switch(id.ServerURL)
	if err != nil {
		v.t.Fatal(err)
	}
	client := link.Client()
	other := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: v.roots}}}
	socket, err := control.Listen(v.top)
	if err != nil {
		v.t.Fatal(err)
	}
	o := daemon.Options{
		Top: v.top, Running: v.running(), GOOS: "linux", GOARCH: "amd64", PID: os.Getpid(), Config: v.config,
		Identity: &id, Switch: link, Rand: func() float64 { return 0 }, // it asks at home at once
		Host: host.Info{Hostname: "h"}, Disk: disk.OS{}, Muster: true, HTTP: client, Other: other, Trust: v.trust(client),
		Lock: daemon.FileLock, Watchers: v, Control: socket, Exec: func() error { return nil },
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- daemon.Agent{Options: o}.Run(ctx) }()
	v.t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil && !errors.Is(err, daemon.ErrReplaced) {
			v.t.Errorf("agent ended with %v", err)
		}
		client.CloseIdleConnections()
		other.CloseIdleConnections()
	})
}

// order sends an UPGRADE, and returns the state in which the host's upgrade ends, or in which
// it leaves the version that ran, and the failure.
func (v *victim) order(id string, d agentapi.UpgradeData) (state agentapi.UpgradeState, failure string) {
	v.t.Helper()
	data, err := json.Marshal(d)
	if err != nil {
		v.t.Fatal(err)
	}
	v.server.Send(agentapi.Action{ID: id, Type: agentapi.ActionUpgrade, CreatedAt: time.Now(), Data: data})
	v.server.Wait(v.t, "the host ends "+id, 10*time.Second, func() bool {
		// An action that cannot be read is refused when it arrives: there is no upgrade to report.
		for _, ack := range v.server.Acks() {
			if ack.ActionID == id && ack.Error != "" {
				state, failure = agentapi.UpgradeFailed, ack.Error
				return true
			}
		}
		all := v.server.Checkins()
		if len(all) == 0 {
			return false
		}
		u := all[len(all)-1].UpgradeDetails
		if u == nil || u.ActionID != id || u.State != agentapi.UpgradeFailed && u.State != agentapi.UpgradeReplacing && u.State != agentapi.UpgradeRestarting {
			return false
		}
		state, failure = u.State, u.Metadata.ErrorMsg
		return true
	})
	return state, failure
}

// visits records the requests to a server.
type visits struct {
	mu   sync.Mutex
	seen []*http.Request
}

func (v *visits) add(r *http.Request) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.seen = append(v.seen, r)
}

func (v *visits) all() []*http.Request {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.seen
}

// TestStolenServerCannotChooseWhatAHostReads orders upgrades from places that a host must not
// read: services and files that only the host can reach.
func TestStolenServerCannotChooseWhatAHostReads(t *testing.T) {
	v := newVictim(t, "1.0.0")
	folder := v.publish("1.1.0")
	v.repo.Sign(archiveName("9.9.9"), []byte("x")) // it is only where the attacker says
	v.serveMetadata()

	var internal, mirror visits
	service := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { internal.add(r) }))
	defer service.Close()
	redirects := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		mirror.add(r)
		http.Redirect(w, r, service.URL+"/admin", http.StatusTemporaryRedirect)
	}))
	defer redirects.Close()
	sound := httptest.NewTLSServer(http.FileServer(http.Dir(folder)))
	defer sound.Close()
	v.roots.AddCert(redirects.Certificate())
	v.roots.AddCert(sound.Certificate())
	v.start()

	address := strings.TrimPrefix(service.URL, "http://")
	for name, c := range map[string]struct{ source, want string }{
		"http":                   {service.URL, "is not https"},
		"http by a name":         {"http://localhost:" + address[strings.LastIndex(address, ":")+1:], "is not https"},
		"file":                   {"file://" + folder, "is a folder of the host"},
		"file of another host":   {"file://" + address + "/share", "is a folder of the host"},
		"gopher":                 {"gopher://" + address, "want https"},
		"no scheme":              {"//" + address, "want https"},
		"opaque":                 {"https:" + address, "want https"},
		"credentials":            {"https://user:secret@" + strings.TrimPrefix(redirects.URL, "https://"), "holds a user or a password"},
		"https that is no https": {redirects.URL, "redirects from https to http"},
	} {
		state, failure := v.order(name, agentapi.UpgradeData{Version: "9.9.9", SourceURI: c.source, Force: true})
		if state != agentapi.UpgradeFailed || !strings.Contains(failure, c.want) || strings.Contains(failure, "secret") {
			t.Errorf("%s: %s %q, want a refusal that says %q", name, state, failure, c.want)
		}
	}
	if seen := internal.all(); len(seen) > 0 {
		t.Errorf("%d requests came to the internal service; the first is %s %s", len(seen), seen[0].Method, seen[0].URL)
	}
	if len(mirror.all()) == 0 {
		t.Error("the https mirror was never asked")
	}
	for _, r := range mirror.all() {
		if r.Header.Get("Authorization") != "" {
			t.Errorf("the mirror was sent %q", r.Header.Get("Authorization"))
		}
	}

	// The same host takes a sound package from an https mirror.
	if state, failure := v.order("sound", agentapi.UpgradeData{Version: "1.1.0", SourceURI: sound.URL}); state == agentapi.UpgradeFailed {
		t.Errorf("from an https mirror: %s", failure)
	}
}

// TestHTTPSourceNeedsTheHostsConsent lists the mirror's address on the host.
func TestHTTPSourceNeedsTheHostsConsent(t *testing.T) {
	v := newVictim(t, "1.0.0")
	v.config.Upgrade.Download.AllowHTTP = []string{"127.0.0.0/8"}
	folder := v.publish("1.1.0")
	mirror := httptest.NewServer(http.FileServer(http.Dir(folder)))
	defer mirror.Close()
	v.start()
	if state, failure := v.order("a", agentapi.UpgradeData{Version: "1.1.0", SourceURI: mirror.URL}); state == agentapi.UpgradeFailed {
		t.Errorf("from an allowed http mirror: %s", failure)
	}
}

// TestStolenServerCannotMoveAHostBack orders a version with known faults, whose signature is
// valid, in every way that the protocol has. The host has committed 1.5.0 and runs 1.2.0.
func TestStolenServerCannotMoveAHostBack(t *testing.T) {
	v := newVictim(t, "1.2.0")
	v.publish("1.0.0")
	v.publish("1.4.0")
	v.publish("1.6.0")
	if err := handoff.WriteVersions(disk.OS{}, v.top, handoff.Versions{Highest: "1.5.0"}); err != nil {
		t.Fatal(err)
	}
	v.start()
	for name, c := range map[string]struct {
		order agentapi.UpgradeData
		want  string
	}{
		"an old version":            {agentapi.UpgradeData{Version: "1.0.0"}, "is older than 1.5.0"},
		"an old version, forced":    {agentapi.UpgradeData{Version: "1.0.0", Force: true}, "is older than 1.5.0"},
		"one above what runs":       {agentapi.UpgradeData{Version: "1.4.0", Force: true}, "is older than 1.5.0"},
		"a rollback to it":          {agentapi.UpgradeData{Version: "1.0.0", Rollback: true, Force: true}, "version 1.0.0 is neither staged nor kept on this host"},
		"a version that is no text": {agentapi.UpgradeData{Version: "1.0.0\x00"}, "want three numbers"},
	} {
		state, failure := v.order(name, c.order)
		if state != agentapi.UpgradeFailed || !strings.Contains(failure, c.want) {
			t.Errorf("%s: %s %q, want a refusal that says %q", name, state, failure, c.want)
		}
	}
	if got := v.running().Version; got != "1.2.0" {
		t.Errorf("the host runs %s", got)
	}
	if state, failure := v.order("new", agentapi.UpgradeData{Version: "1.6.0"}); state == agentapi.UpgradeFailed {
		t.Errorf("to a new version: %s", failure)
	}
}

// visitsByHost counts check-ins by the address at which the agent makes them: the server of the test is
// the owner's at 127.0.0.1 and the thief's at localhost, with certificates of one CA.
type visitsByHost struct {
	mu       sync.Mutex
	checkins map[string]int
	asked    int
}

func (v *visitsByHost) before(w http.ResponseWriter, r *http.Request) bool {
	v.mu.Lock()
	defer v.mu.Unlock()
	name, _, _ := strings.Cut(r.Host, ":")
	switch {
	case strings.HasSuffix(r.URL.Path, "/checkin"):
		v.checkins[name]++
	case strings.HasSuffix(r.URL.Path, "/home") && name == "127.0.0.1":
		v.asked++
		_, _ = w.Write([]byte(`{"hosts":[]}`))
		return true
	}
	return false
}

func (v *visitsByHost) count(name string) int {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.checkins[name]
}

// TestMovedHostComesHome has the thief's server answer every check-in well, and name itself in the policy
// whenever the host asks, while the owner has got the stolen server back.
func TestMovedHostComesHome(t *testing.T) {
	v := newVictim(t, "1.0.0")
	v.moved = strings.Replace(v.server.URL, "127.0.0.1", "localhost", 1)
	seen := &visitsByHost{checkins: map[string]int{}}
	v.server.Before = seen.before
	v.start()
	v.server.Wait(t, "the host checks in at home", 30*time.Second, func() bool { return seen.count("127.0.0.1") > 0 })
	v.server.Wait(t, "home is stored", 10*time.Second, func() bool {
		id, err := identity.Load(disk.OS{}, v.top)
		return err == nil && id.ServerURL == v.server.URL && id.EnrolledURL == "" && id.APIKey == "key-agent-1"
	})
}

// TestUnenrolledHostComesBack sends a host away, as a thief does to all. The host asks at home; the
// owner, who has a backup, wants it.
func TestUnenrolledHostComesBack(t *testing.T) {
	v := newVictim(t, "1.0.0")
	seen := &visitsByHost{checkins: map[string]int{}}
	v.server.Before = seen.before
	v.server.Send(agentapi.Action{ID: "away", Type: agentapi.ActionUnenroll, CreatedAt: time.Now()})
	v.start()
	v.server.Wait(t, "the host leaves", 30*time.Second, func() bool { return len(v.server.Acks()) > 0 })
	v.publish("1.1.0")
	if state, failure := v.order("again", agentapi.UpgradeData{Version: "1.1.0"}); state == agentapi.UpgradeFailed {
		t.Errorf("an upgrade of the host that is back: %s", failure)
	}
	if seen.mu.Lock(); seen.asked == 0 {
		t.Error("the host never asked")
	}
	seen.mu.Unlock()
}
