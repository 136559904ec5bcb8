package faults

import (
	"bytes"
	"context"
	"crypto/sha256"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"path"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/muster-fleet/muster/agent/identity"
	"github.com/muster-fleet/muster/packaging/build"
	"github.com/muster-fleet/muster/packaging/disk"
	"github.com/muster-fleet/muster/packaging/install"
	"github.com/muster-fleet/muster/packaging/layout"
	"github.com/muster-fleet/muster/packaging/manifest"
	"github.com/muster-fleet/muster/packaging/trust"
	"github.com/muster-fleet/muster/testing/fakeserver"
	"github.com/muster-fleet/muster/testing/faults/simdisk"
	"github.com/muster-fleet/muster/watcher/handoff"
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
	sig     []byte
}

// kit has what all hosts share: keys and signed packages, built and unpacked by the real
// code.
type kit struct {
	public   trust.PublicKey
	key      trust.PrivateKey
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
	// The same key each time, so that a replayed fault has the same bytes.
	public, key, err := trust.GenerateKey(rand.NewChaCha8([32]byte{1}))
	must(t, err)
	return &kit{public: public, key: key, releases: map[string]*release{}, recordings: map[string]*recording{}}
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

// release builds, signs and unpacks a version with this behaviour of agent and watcher.
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
	m, err := build.Build(context.Background(), build.Spec{
		Manifest: manifest.Package{Version: version, OS: goos, Arch: goarch}, Files: files,
	}, &packed)
	must(t, err)
	r.packed = packed.Bytes()
	r.sig, err = k.key.Sign(r.archive, bytes.NewReader(r.packed))
	must(t, err)
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
	at time.Duration
	// serverSum is the hash of the server's state, which all faults at a point share;
	// nil if it is not known.
	serverSum func() [sha256.Size]byte
}

// installed returns a host on which one version is installed and enrolled, and a server
// with packages.
func (k *kit) installed(t testing.TB, runs *release, published ...*release) snapshot {
	t.Helper()
	f := simdisk.New()
	d := f.View(noHook)
	must(t, unpack(d, runs))
	for _, link := range []string{layout.AgentLink, layout.WatcherLink} {
		must(t, disk.Point(d, "test", path.Join(runs.install.Home, link), path.Join(top, link)))
	}
	must(t, disk.WriteFile(d, "test", path.Join(top, layout.ActiveCommitFile), []byte(runs.install.Hash+"\n"), 0o644))
	must(t, disk.WriteFile(d, "test", path.Join(top, layout.ConfigFile), []byte(settings), 0o644))
	must(t, identity.Save(d, top, identity.Identity{
		AgentID: agentID, APIKey: "key-" + agentID, ServerURL: serverURL, TrustedKeys: []string{k.public.String()},
	}))
	f.SyncAll()
	s := fakeserver.NewHandler(fakeserver.State{})
	for _, r := range published {
		publish(s, r)
	}
	return snapshot{fs: f, server: s.State()}
}

func publish(s *fakeserver.Server, r *release) {
	s.Publish(r.archive, r.packed)
	s.Publish(r.archive+trust.SignatureSuffix, r.sig)
}

// runHost boots a host from a snapshot under virtual time, calls run, and switches the host
// off.
func runHost(t *testing.T, w snapshot, log *slog.Logger, before func(*process, simdisk.Call) error, run func(*host)) {
	t.Helper()
	synctest.Test(t, func(*testing.T) {
		time.Sleep(w.at)
		s := fakeserver.NewHandler(w.server)
		s.Hold = holdPoll
		h := boot(w.fs, s, log, before)
		defer func() {
			h.powerOff()
			h.all.Wait()
		}()
		run(h)
	})
}

// elapsed returns the virtual time since the start of the bubble.
func elapsed() time.Duration {
	return time.Since(time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC))
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
