package faults

import (
	"bytes"
	"context"
	"crypto/sha256"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"os"
	"path"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/muster-fleet/muster/agent/identity"
	"github.com/muster-fleet/muster/packaging/host/disk"
	"github.com/muster-fleet/muster/packaging/host/layout"
	"github.com/muster-fleet/muster/packaging/pkg/build"
	"github.com/muster-fleet/muster/packaging/pkg/install"
	"github.com/muster-fleet/muster/packaging/pkg/manifest"
	"github.com/muster-fleet/muster/packaging/pkg/trust/tuf"
	"github.com/muster-fleet/muster/packaging/pkg/trust/tuf/tuftest"
	"github.com/muster-fleet/muster/server/wire/agentapi"
	"github.com/muster-fleet/muster/testing/kit/fakeserver"
	"github.com/muster-fleet/muster/testing/kit/simdisk"
	"github.com/muster-fleet/muster/watcher/handoff"
	"github.com/muster-fleet/muster/watcher/probe"
)

const (
	goos, goarch = "linux", "amd64"
	agentID      = "agent-1"
	serverURL    = "http://fleet.test"
)

// settings shorten the watch of a good version to 45 s of virtual time. No verdict depends
// on them.
const settings = "upgrade:\n  watch:\n    grace: 45s\n    interval: 5s\n    failed_for: 15s\n"

// holdPoll is how long the server parks a poll, as a real one does.
const holdPoll = 5 * time.Minute

// release is one published version.
type release struct {
	install handoff.Install
	// home is the content of the complete versioned home, as returned by FS.Tree.
	home    map[string]string
	archive string // file name
	packed  []byte
}

// kit has what all hosts share: packages, built and unpacked by the real
// code.
type kit struct {
	releases map[string]*release

	mu         sync.Mutex
	recordings map[string]*recording // by scenario
}

// shared is the kit of all tests.
var shared *kit

func sharedKit(t testing.TB) *kit {
	t.Helper()
	if shared == nil { // tests begin one after another
		shared = newKit(t)
	}
	return shared
}

func newKit(t testing.TB) *kit {
	t.Helper()
	return &kit{releases: map[string]*release{}, recordings: map[string]*recording{}}
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// name identifies a release by its version and the behaviour of its programs.
func name(version string, agent, watcher life) string {
	return version + " " + string(agent) + " " + string(watcher)
}

// release builds and unpacks a version with this behaviour of agent and watcher.
func (k *kit) release(t testing.TB, version string, agent, watcher life) *release {
	t.Helper()
	if r := k.releases[name(version, agent, watcher)]; r != nil {
		return r
	}
	r := &release{archive: manifest.ArchiveName(version, goos, goarch, "tar.gz")}
	dir := t.TempDir()
	var files []build.File
	for name, text := range map[string]string{
		layout.AgentLink:   program{kind: "agent", version: version, life: agent}.text(),
		layout.WatcherLink: program{kind: "watcher", version: version, life: watcher}.text(),
	} {
		file := filepath.Join(dir, name)
		must(t, os.WriteFile(file, []byte(text), 0o600))
		files = append(files, build.File{Name: name, Path: file, Mode: 0o755})
	}
	var packed bytes.Buffer
	p := manifest.Package{Version: version, OS: goos, Arch: goarch}
	if agent == sound || agent == unsound {
		p.Checks = []manifest.Check{{Name: "work", TCP: "127.0.0.1:7070"}}
	}
	m, err := build.Build(context.Background(), build.Spec{Manifest: p, Files: files}, &packed)
	must(t, err)
	r.packed = packed.Bytes()
	r.install = handoff.Install{Identity: m.Package.Identity(), Home: m.Package.Home()}
	f := simdisk.New()
	must(t, unpack(f.View(noHook), r))
	r.home = f.Tree(path.Join(top, r.install.Home))
	k.releases[name(version, agent, watcher)] = r
	return r
}

func noHook(simdisk.Call) error { return nil }

func unpack(d disk.Disk, r *release) error {
	file := path.Join("/", r.archive)
	if err := d.MkdirAll("test", path.Join(top, layout.DataDir), 0o755); err != nil {
		return err
	}
	if err := disk.WriteFile(d, "test", file, r.packed, 0o600); err != nil {
		return err
	}
	if _, err := install.Unpack(context.Background(), d, file, top); err != nil {
		return err
	}
	return d.Remove("test", file)
}

// snapshot is what survives a boot: the disk and the state of the server.
type snapshot struct {
	fs     *simdisk.FS
	server fakeserver.State
	// at is the elapsed virtual time. Each synctest bubble begins at the same time, and
	// sleeps until then.
	at     time.Duration
	script script
	// serverSum is the hash of the server's state, which all faults at a point share;
	// nil if it is not known.
	serverSum func() [sha256.Size]byte
}

// began is when the clock of every bubble begins.
var began = time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC)

// installed returns a host on which one version is installed and enrolled, and a server
// with packages. The signed metadata are the server's, or lie beside the packages.
func (k *kit) installed(t testing.TB, beside bool, runs *release, published ...*release) snapshot {
	t.Helper()
	f := simdisk.New()
	d := f.View(noHook)
	must(t, unpack(d, runs))
	for _, link := range []string{layout.AgentLink, layout.WatcherLink} {
		must(t, disk.Point(d, "test", path.Join(runs.install.Home, link), path.Join(top, link)))
	}
	must(t, disk.WriteFile(d, "test", path.Join(top, layout.ActiveCommitFile), []byte(runs.install.Hash+"\n"), 0o644))
	must(t, disk.WriteFile(d, "test", path.Join(top, layout.ConfigFile), []byte(settings), 0o644))
	id := identity.Identity{AgentID: agentID, APIKey: "key-" + agentID, ServerURL: serverURL}
	s := fakeserver.NewHandler(fakeserver.State{})
	for _, r := range published {
		s.Publish(r.archive, r.packed)
	}
	publish := s.PublishTrust
	if beside {
		publish = s.Publish
	}
	for name, data := range pin(t, d, runs, published...) {
		publish(name, data)
	}
	must(t, identity.Save(d, top, id))
	f.SyncAll()
	return snapshot{fs: f, server: s.State()}
}

// pin pins the publishers' root on a host that has verified the version that runs. Since
// then they have published others, and a root with another key for the server. It returns
// all that the server serves.
func pin(t testing.TB, d disk.Disk, runs *release, published ...*release) map[string][]byte {
	t.Helper()
	random := rand.NewChaCha8([32]byte{2})
	repo := tuftest.NewAt(t, began, random)
	dir := path.Join(top, layout.TrustDir)
	must(t, tuf.Pin(d, dir, repo.State.Root()))
	repo.Release(runs.install.Version, string(runs.packed))
	client := &tuf.Client{Disk: d, Dir: dir, Fetch: repo.Fetch, Now: func() time.Time { return began }}
	_, err := client.Expect(t.Context(), runs.archive, nil)
	must(t, err)
	repo.Online = append(repo.Online, tuftest.KeyFrom(t, random, "new-server"))
	online := repo.Online[1].Public()
	repo.Rotate(func(s *tuf.RootSpec) { s.Snapshot, s.Timestamp = online, online })
	for _, r := range published {
		if r != runs {
			repo.Release(r.install.Version, string(r.packed))
		}
	}
	return repo.Served()
}

// script is what else happens to a host, at times since the start of the bubble.
type script struct {
	// later are the actions that the server sends later.
	later []delivery
	// closed is until when the server has no files.
	closed time.Duration
	// slow is how long an archive takes to come.
	slow time.Duration
	// stage is the version that somebody on the host wants staged, and staged means that the agent
	// has reported it as staged.
	stage  string
	staged bool
}

const (
	// asksFirst is when somebody on the host asks for a stage, after a boot, and asksEvery the
	// time until they look at the result and ask again.
	asksFirst = 5500 * time.Millisecond
	asksEvery = 30 * time.Second
)

// operate asks for a version to be staged, again and again until the agent says that it is.
func (s script) operate(h *host) {
	if s.stage == "" {
		return
	}
	for wait := asksFirst; !h.staged.Load(); wait = asksEvery {
		t := time.NewTimer(wait)
		select {
		case <-t.C:
			h.askForStage(s.stage)
		case <-h.off:
			t.Stop()
			return
		}
	}
}

// askForStage looks at the agent's versions, and asks for the stage of one that is missing.
func (h *host) askForStage(version string) {
	h.mu.Lock()
	p := h.agent
	h.mu.Unlock()
	health, err := p.socket().Health(context.Background())
	if err != nil {
		return // the agent does not run
	}
	for _, v := range health.Versions {
		if v.Version == version && v.Problem == "" {
			h.staged.Store(true)
			return
		}
	}
	// Refused while the stage, or an upgrade, is under way.
	_ = p.socket().Stage(context.Background(), probe.StageRequest{Version: version})
}

type delivery struct {
	at     time.Duration
	action agentapi.Action
}

// play plays the part of a script that has not been played yet.
func (s script) play(h *host) {
	for _, d := range s.later {
		if h.server.State().Has(d.action.ID) {
			continue
		}
		t := time.NewTimer(d.at - elapsed())
		select {
		case <-t.C:
			h.server.Send(d.action)
		case <-h.off:
			t.Stop()
			return
		}
	}
}

// serve answers a request for a file in the server's place, or delays it.
func (s script) serve(w http.ResponseWriter, r *http.Request) (answered bool) {
	archive := strings.HasPrefix(r.URL.Path, agentapi.PathArtifacts) && r.Method == http.MethodGet
	if (archive || strings.HasPrefix(r.URL.Path, agentapi.PathTrust)) && elapsed() < s.closed {
		fakeserver.Refuse(w, http.StatusServiceUnavailable, "ErrUnavailable", "starting")
		return true
	}
	if archive && s.slow > 0 {
		select {
		case <-time.After(s.slow):
		case <-r.Context().Done():
		}
	}
	return false
}

// runHost boots a host from a snapshot under virtual time, calls run, and switches the host
// off.
func runHost(t *testing.T, w snapshot, log *slog.Logger, before func(*process, simdisk.Call) error, run func(*host)) {
	t.Helper()
	synctest.Test(t, func(*testing.T) {
		time.Sleep(w.at)
		s := fakeserver.NewHandler(w.server)
		s.Hold, s.Before = holdPoll, w.script.serve
		h := boot(w.fs, s, log, before)
		h.staged.Store(w.script.staged)
		h.all.Go(func() { w.script.play(h) })
		h.all.Go(func() { w.script.operate(h) })
		defer func() {
			h.powerOff()
			h.all.Wait()
		}()
		run(h)
	})
}

// elapsed returns the virtual time since the start of the bubble.
func elapsed() time.Duration {
	return time.Since(began)
}

// relative returns a path relative to the top folder.
func relative(p string) string {
	if p == top {
		return "."
	}
	return strings.TrimPrefix(p, top+"/")
}

func describe(by string, op, call, p string) string {
	return fmt.Sprintf("%-14s %-16s %-14s %s", by, op, call, relative(p))
}
