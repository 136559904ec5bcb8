package doctor_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/muster-fleet/muster/agent/control"
	agentdoctor "github.com/muster-fleet/muster/agent/doctor"
	"github.com/muster-fleet/muster/agent/identity"
	"github.com/muster-fleet/muster/agent/setup"
	"github.com/muster-fleet/muster/packaging/host/disk"
	"github.com/muster-fleet/muster/packaging/host/doctor"
	"github.com/muster-fleet/muster/packaging/host/layout"
	"github.com/muster-fleet/muster/packaging/pkg/build"
	"github.com/muster-fleet/muster/packaging/pkg/manifest"
	"github.com/muster-fleet/muster/packaging/pkg/trust/tuf/tuftest"
	"github.com/muster-fleet/muster/server/wire/agentapi/capin"
	"github.com/muster-fleet/muster/testing/kit/fakepkg"
	"github.com/muster-fleet/muster/testing/kit/fakeserver"
	"github.com/muster-fleet/muster/watcher/handoff"
	"github.com/muster-fleet/muster/watcher/probe"
)

// host is a host on which an agent was installed and enrolled.
type host struct {
	agentdoctor.Host
	installation setup.Installation
	version      manifest.Identity
	server       *fakeserver.Server
}

func installed(t *testing.T) *host {
	t.Helper()
	// Not t.TempDir, whose path may be too long for a socket.
	top, err := os.MkdirTemp("", "m")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(top) })
	publisher, dir := tuftest.New(t), t.TempDir()
	spec := build.Spec{Manifest: manifest.Package{Version: "1.0.0", OS: runtime.GOOS, Arch: runtime.GOARCH}}
	for _, name := range []string{layout.AgentLink, layout.WatcherLink} {
		file := filepath.Join(dir, name)
		write(t, file, "the program "+name)
		spec.Files = append(spec.Files, build.File{Name: name, Path: file, Mode: 0o755})
	}
	s := fakeserver.New(t)
	archive := fakepkg.Build(t, dir, spec)
	publisher.SignFile(archive)
	for name, data := range publisher.Served() {
		s.PublishTrust(name, data)
	}
	i := setup.Installation{
		Disk: disk.OS{}, Top: top, UnsafeTop: true, Package: archive,
		Enrollment: &setup.Enrollment{URL: s.URL, Token: fakeserver.Token, CAPin: s.CAPin, TrustRoot: publisher.TrustRoot()},
	}
	done, err := i.Run(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return &host{Host: agentdoctor.Host{Disk: disk.OS{}, Top: top, Now: time.Now}, installation: i, version: done.Version, server: s}
}

func (h *host) path(name string) string { return layout.Path(h.Top, name) }

func (h *host) home() string { return layout.Home(h.version.String()) }

// runs serves the agent's control socket.
func (h *host) runs(t *testing.T, health probe.Health) {
	t.Helper()
	l, err := control.Listen(h.Top)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- (&control.Server{Health: func() probe.Health { return health }}).Serve(ctx, l) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
}

// watches writes the marker of an upgrade between two versions.
func (h *host) watches(t *testing.T, from, to string) {
	t.Helper()
	install := func(version, home string) handoff.Install {
		return handoff.Install{Identity: manifest.Identity{Version: version, Hash: fakepkg.Hash}, Home: home}
	}
	m := handoff.Marker{From: install("1.0.0", from), To: install("1.1.0", to), CreatedAt: time.Now(), Rules: handoff.DefaultRules()}
	if err := handoff.WriteMarker(h.Disk, h.Top, m); err != nil {
		t.Fatal(err)
	}
}

func (h *host) changeIdentity(t *testing.T, change func(*identity.Identity)) {
	t.Helper()
	id, err := identity.Load(h.Disk, h.Top)
	if err != nil {
		t.Fatal(err)
	}
	change(id)
	if err := identity.Save(h.Disk, h.Top, *id); err != nil {
		t.Fatal(err)
	}
}

// finds examines a host, and compares a finding.
func finds(t *testing.T, h agentdoctor.Host, check string, level doctor.Level, words ...string) {
	t.Helper()
	found := doctor.Run(t.Context(), h.Checks())
	for _, f := range found {
		if (f.Level == doctor.OK) != (f.Mend == "") {
			t.Errorf("%+v: what mends it belongs to problems and warnings, and to each of them", f)
		}
	}
	for _, f := range found {
		if f.Check != check {
			continue
		}
		for _, w := range words {
			if f.Level != level || !strings.Contains(f.Found+"\n"+f.Mend, w) {
				t.Errorf("found %+v, want %s with %q", f, level, w)
			}
		}
		return
	}
	t.Errorf("there is no finding of %s in %+v", check, found)
}

func write(t *testing.T, file, text string) {
	t.Helper()
	if err := os.WriteFile(file, []byte(text), 0o755); err != nil {
		t.Fatal(err)
	}
}

// place copies a package.
func place(t *testing.T, archive, to string) {
	t.Helper()
	data, err := os.ReadFile(archive)
	if err != nil {
		t.Fatal(err)
	}
	write(t, to, string(data))
}

func remove(t *testing.T, file string) {
	t.Helper()
	if err := os.RemoveAll(file); err != nil {
		t.Fatal(err)
	}
}

func TestNothingIsInstalled(t *testing.T) {
	h := agentdoctor.Host{Disk: disk.OS{}, Top: filepath.Join(t.TempDir(), "opt", "muster"), Now: time.Now}
	finds(t, h, "folder", doctor.OK, filepath.Dir(filepath.Dir(h.Top))+" can be written to")
	finds(t, h, "space", doctor.OK, "an agent needs 300 MiB")
	finds(t, h, "server", doctor.Warning, "no agent is installed in "+h.Top, "muster-agent doctor --url https://SERVER:8220")

	s := fakeserver.New(t)
	h.URL, h.CAPin = s.URL, s.CAPin
	finds(t, h, "server", doctor.OK, s.URL+" answers")
	finds(t, h, "clock", doctor.OK, "the clock agrees with the server's")

	h.Disk = fullDisk{free: func() (int64, error) { return 100 << 20, nil }}
	finds(t, h, "space", doctor.Problem, "has 100 MiB free, and an agent needs 300 MiB", "df -h")
	h.Disk = fullDisk{free: func() (int64, error) { return 0, errors.ErrUnsupported }}
	finds(t, h, "space", doctor.Warning, "the free space is not known", "df -h")
}

func TestAWholeInstallationHasNoProblem(t *testing.T) {
	h := installed(t)
	h.runs(t, probe.Health{State: probe.Healthy, PID: 4711})
	h.Service = func() (string, agentdoctor.ServiceState, error) { return "muster-agent", agentdoctor.ServiceRuns, nil }
	for check, words := range map[string]string{
		"folder":     h.Top + " can be written to",
		"version":    "1.0.0 is the current version",
		"space":      "an upgrade needs",
		"settings":   "agent.yml is valid",
		"service":    "muster-agent runs",
		"agent":      "it runs as process 4711 and is healthy",
		"upgrade":    "no upgrade is under way",
		"server":     h.server.URL + " answers",
		"clock":      "the clock agrees with the server's",
		"publishers": "upgrades are verified with the pinned root of the publishers",
	} {
		finds(t, h.Host, check, doctor.OK, words)
	}
	if err := doctor.Err(doctor.Run(t.Context(), h.Checks())); err != nil {
		t.Error(err)
	}
}

func TestFindingsOfAnInstalledHost(t *testing.T) {
	const another = "data/muster-agent-0.9.0-abc123"
	for name, c := range map[string]struct {
		spoil func(*testing.T, *host)
		check string
		level doctor.Level
		words []string
	}{
		"a version without a manifest": {
			func(t *testing.T, h *host) { remove(t, h.path(h.home()+"/"+manifest.FileName)) },
			"version", doctor.Problem,
			[]string{"leads to a version that is not whole", "muster-agent uninstall, then the line"},
		},
		"a program that was damaged": {
			func(t *testing.T, h *host) { fakepkg.FlipBit(t, h.path(h.home()+"/"+layout.AgentLink)) },
			"version", doctor.Problem,
			[]string{layout.AgentLink + " is not what was installed"},
		},
		"a pointer to nothing": {
			func(t *testing.T, h *host) { remove(t, h.path(h.home())) },
			"version", doctor.Problem,
			[]string{"leads to a version that is not whole"},
		},
		"a program for a pointer": {
			func(t *testing.T, h *host) {
				remove(t, h.path(layout.AgentLink))
				write(t, h.path(layout.AgentLink), "a program")
			},
			"version", doctor.Problem,
			[]string{"muster-agent uninstall"},
		},
		"the size of a version is not known": {
			func(t *testing.T, h *host) { remove(t, h.path(h.home())) },
			"space", doctor.Warning,
			[]string{"ls -l"},
		},
		"no space for an upgrade": {
			func(t *testing.T, h *host) { h.Disk = fullDisk{free: func() (int64, error) { return 1, nil }} },
			"space", doctor.Problem,
			[]string{"an upgrade needs", "df -h"},
		},
		"no inodes for an upgrade": {
			func(t *testing.T, h *host) { h.Disk = fewInodes{} },
			"inodes", doctor.Problem,
			[]string{"has 7 inodes free, and an upgrade needs", "df -i"},
		},
		"an unknown setting": {
			func(t *testing.T, h *host) { write(t, h.path(layout.ConfigFile), "colour: red\n") },
			"settings", doctor.Problem,
			[]string{"colour", "correct the file, and restart the agent"},
		},
		"an agent that does not run": {
			func(*testing.T, *host) {},
			"agent", doctor.Problem,
			[]string{"the agent does not run", layout.AgentLogFile},
		},
		"an agent that has failed": {
			func(t *testing.T, h *host) { h.runs(t, probe.Health{State: probe.Failed, Message: "no disk"}) },
			"agent", doctor.Problem,
			[]string{"the agent is failed: no disk", "muster-agent diagnostics"},
		},
		"an agent that answers too much": {
			func(t *testing.T, h *host) { h.runs(t, probe.Health{Message: strings.Repeat("x", 2<<20)}) },
			"agent", doctor.Problem,
			[]string{"the agent does not answer", "restart its service"},
		},
		"an upgrade that is being watched": {
			func(t *testing.T, h *host) { h.watches(t, another, h.home()) },
			"upgrade", doctor.Warning,
			[]string{"the upgrade from 1.0.0 to 1.1.0 is being watched", "muster-agent status"},
		},
		"a version that was restored": {
			func(t *testing.T, h *host) { h.watches(t, h.home(), another) },
			"upgrade", doctor.Warning,
			[]string{"muster-agent status"},
		},
		"a marker of other versions": {
			func(t *testing.T, h *host) { h.watches(t, another, "data/muster-agent-0.9.1-abc124") },
			"upgrade", doctor.Problem,
			[]string{"the watcher leaves the host alone", "sudo rm "},
		},
		"a damaged marker": {
			func(t *testing.T, h *host) { write(t, h.path(layout.MarkerFile), "{}") },
			"upgrade", doctor.Warning,
			[]string{"its marker cannot be read", "sudo rm "},
		},
		"no identity": {
			func(t *testing.T, h *host) { remove(t, h.path(layout.IdentityFile)) },
			"identity", doctor.Problem,
			[]string{"this host is not enrolled", "muster keys create"},
		},
		"a damaged identity": {
			func(t *testing.T, h *host) { write(t, h.path(layout.IdentityFile), "{}") },
			"identity", doctor.Problem,
			[]string{"damaged", "enrol"},
		},
		"no publishers": {
			func(t *testing.T, h *host) { remove(t, filepath.Join(h.path(layout.TrustDir), "pinned-root.json")) },
			"publishers", doctor.Problem,
			[]string{"refuses every upgrade", "muster keys create"},
		},
		"a server with another CA": {
			func(t *testing.T, h *host) {
				h.changeIdentity(t, func(id *identity.Identity) { id.ServerURL = fakeserver.New(t).URL })
			},
			"server", doctor.Problem,
			[]string{"the server has another CA", "muster ca-pin"},
		},
		"another server in the settings": {
			func(t *testing.T, h *host) {
				write(t, h.path(layout.ConfigFile), "server:\n  url: https://nowhere.invalid:8220\n")
			},
			"server", doctor.Problem,
			[]string{"no host has the name nowhere.invalid", "server.url of agent.yml"},
		},
		"a clock that is 10 minutes off": {
			func(_ *testing.T, h *host) { h.Now = func() time.Time { return time.Now().Add(10 * time.Minute) } },
			"clock", doctor.Problem,
			[]string{"the clock differs by", "timedatectl set-ntp true"},
		},
		"a clock that is 2 minutes off": {
			func(_ *testing.T, h *host) { h.Now = func() time.Time { return time.Now().Add(-2 * time.Minute) } },
			"clock", doctor.Warning,
			[]string{"the clock differs by", "timedatectl set-ntp true"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			h := installed(t)
			c.spoil(t, h)
			finds(t, h.Host, c.check, c.level, c.words...)
		})
	}
}

func TestSourcesOfPackages(t *testing.T) {
	name := manifest.ArchiveName("1.1.0", runtime.GOOS, runtime.GOARCH, "tar.gz")
	away := httptest.NewServer(http.NotFoundHandler())
	away.Close()
	mirror := func(code int) string {
		s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(code) }))
		t.Cleanup(s.Close)
		return strings.Replace(s.URL, "://", "://user:secret@", 1) + "/packages?sig=secret"
	}
	for what, c := range map[string]struct {
		sources string // in agent.yml
		place   func(t *testing.T, h *host, drop string)
		level   doctor.Level
		words   []string
	}{
		"a package in the drop folder": {"", func(t *testing.T, h *host, drop string) {
			place(t, h.installation.Package, filepath.Join(drop, name))
		}, doctor.OK, []string{"none of its 1 newest packages is broken"}},
		"a package that was copied in part": {"", func(t *testing.T, h *host, drop string) {
			place(t, h.installation.Package, filepath.Join(drop, name))
			if err := os.Truncate(filepath.Join(drop, name), 200); err != nil {
				t.Fatal(err)
			}
		}, doctor.Warning, []string{name, "is broken, and the next source", "unexpected EOF", "sudo rm ", layout.DropDir}},
		"packages for others": {"", func(t *testing.T, _ *host, drop string) {
			write(t, filepath.Join(drop, "muster-agent-1.1.0-plan9-amd64.tar.gz"), "broken")
			write(t, filepath.Join(drop, name+".part"), "broken")
		}, doctor.OK, []string{"none of its 0 newest"}},
		"a folder that there is not":      {"file:///not/there", nil, doctor.Warning, []string{"file:///not/there cannot be read", "upgrade.download.sources of agent.yml"}},
		"a mirror that is down":           {away.URL, nil, doctor.Warning, []string{away.URL + " cannot be reached", "refused", "curl --head "}},
		"a mirror that is broken":         {mirror(502), nil, doctor.Warning, []string{"answers 502 Bad Gateway", "/packages"}},
		"a mirror that lists no packages": {mirror(403), nil, doctor.OK, []string{"/packages answers"}},
	} {
		t.Run(what, func(t *testing.T) {
			h := installed(t)
			if c.place != nil {
				drop := h.path(layout.DropDir)
				if err := os.MkdirAll(drop, 0o755); err != nil {
					t.Fatal(err)
				}
				c.place(t, h, drop)
			}
			if c.sources != "" {
				write(t, h.path(layout.ConfigFile), "upgrade:\n  download:\n    sources: ["+strconv.Quote(c.sources)+"]\n")
			}
			finds(t, h.Host, "source", c.level, c.words...)
			if found := fmt.Sprint(doctor.Run(t.Context(), h.Checks())); strings.Contains(found, "secret") {
				t.Errorf("a password is shown: %s", found)
			}
		})
	}
}

func TestAVersionThatCannotBeReadInTimeIsNotDamaged(t *testing.T) {
	h := installed(t)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	for _, c := range h.Checks() {
		if c.Name != "version" {
			continue
		}
		if f := c.Find(ctx); f.Level != doctor.Warning || !strings.Contains(f.Found, "could not be read in time") {
			t.Errorf("found %+v", f)
		}
		return
	}
	t.Error("the version is not checked")
}

// What mends a version that is not whole has to work on a host with such a version.
func TestADamagedVersionIsInstalledAgain(t *testing.T) {
	h := installed(t)
	remove(t, h.path(h.home()+"/"+manifest.FileName))
	removal := setup.Removal{
		Disk: disk.OS{}, Top: h.Top, Running: h.version,
		Lock:       func(string, string) (func() error, error) { return func() error { return nil }, nil },
		Components: func(context.Context) ([]string, error) { return nil, nil },
	}
	if out, err := removal.Run(t.Context()); err != nil || out.ReportErr != nil || len(out.Left) != 0 {
		t.Fatalf("removed %+v, %v", out, err)
	}
	if _, err := h.installation.Run(t.Context()); err != nil {
		t.Fatal(err)
	}
	finds(t, h.Host, "version", doctor.OK, "1.0.0 is the current version")
}

// certificate returns one of an authority of its own for a name and for 127.0.0.1.
func certificate(t *testing.T, name string, from, to time.Time) tls.Certificate {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	c := &x509.Certificate{SerialNumber: big.NewInt(1), DNSNames: []string{name}, NotBefore: from, NotAfter: to, IsCA: true, BasicConstraintsValid: true}
	if name == "" {
		c.DNSNames, c.IPAddresses = nil, []net.IP{net.IPv4(127, 0, 0, 1)}
	}
	der, err := x509.CreateCertificate(rand.Reader, c, c, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}
}

func TestAnswersOfServers(t *testing.T) {
	now, day := time.Now(), 24*time.Hour
	valid := certificate(t, "", now.Add(-day), now.Add(day))
	for name, c := range map[string]struct {
		status int
		cert   tls.Certificate
		level  doctor.Level
		words  []string
	}{
		"healthy":             {http.StatusOK, valid, doctor.OK, []string{"answers"}},
		"the operators' port": {http.StatusUnauthorized, valid, doctor.Problem, []string{"is not the port for agents: it answers 401", "8220"}},
		"another program":     {http.StatusNotFound, valid, doctor.Problem, []string{"is not the port for agents: it answers 404", "8220"}},
		"a proxy":             {http.StatusForbidden, valid, doctor.Problem, []string{"is not the port for agents: it answers 403", "8220"}},
		"overloaded":          {http.StatusServiceUnavailable, valid, doctor.Problem, []string{"answers 503", "muster status; journalctl --unit muster"}},
		"another name":        {http.StatusOK, certificate(t, "fleet.example.com", now.Add(-day), now.Add(day)), doctor.Problem, []string{"does not name 127.0.0.1", "tls.names"}},
		"expired":             {http.StatusOK, certificate(t, "", now.Add(-2*day), now.Add(-day)), doctor.Problem, []string{"is not valid at the time of this machine", "timedatectl"}},
	} {
		t.Run(name, func(t *testing.T) {
			s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(c.status) }))
			s.TLS = &tls.Config{Certificates: []tls.Certificate{c.cert}}
			s.StartTLS()
			t.Cleanup(s.Close)
			h := agentdoctor.Host{Disk: disk.OS{}, Top: filepath.Join(t.TempDir(), "none"), Now: time.Now, URL: s.URL, CAPin: capin.Of(c.cert.Certificate[0])}
			finds(t, h, "server", c.level, c.words...)
			for _, f := range doctor.Run(t.Context(), h.Checks()) {
				if f.Check == "clock" && c.level == doctor.Problem {
					t.Errorf("found %+v of a server that is no agents' server", f)
				}
			}
		})
	}
}

// An enrolment accepts http on the same machine, so the doctor does.
func TestHTTPOnTheSameMachine(t *testing.T) {
	s := httptest.NewServer(fakeserver.NewHandler(fakeserver.State{}))
	t.Cleanup(s.Close)
	h := agentdoctor.Host{Disk: disk.OS{}, Top: filepath.Join(t.TempDir(), "none"), Now: time.Now, URL: s.URL}
	finds(t, h, "server", doctor.OK, s.URL+" answers")
}

// fullDisk is the real disk with another free space.
type fullDisk struct {
	disk.OS
	free func() (int64, error)
}

func (d fullDisk) Free(string, string) (int64, error) { return d.free() }

// fewInodes is the real disk with room for seven files.
type fewInodes struct{ disk.OS }

func (fewInodes) FreeInodes(string, string) (int64, bool) { return 7, true }
