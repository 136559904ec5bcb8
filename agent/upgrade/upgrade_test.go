package upgrade

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/muster-fleet/muster/agent/download"
	"github.com/muster-fleet/muster/agent/request"
	"github.com/muster-fleet/muster/agent/steps"
	"github.com/muster-fleet/muster/packaging/host/disk"
	"github.com/muster-fleet/muster/packaging/host/layout"
	"github.com/muster-fleet/muster/packaging/pkg/install"
	"github.com/muster-fleet/muster/packaging/pkg/manifest"
	"github.com/muster-fleet/muster/packaging/pkg/trust"
	"github.com/muster-fleet/muster/packaging/pkg/trust/tuf"
	"github.com/muster-fleet/muster/server/wire/agentapi"
	"github.com/muster-fleet/muster/watcher/handoff"
)

func TestUpgradeSwitchesTheHost(t *testing.T) {
	s := newSource(t)
	s.publish(t, "1.1.0", pkg("1.1.0", "bbbbbb"))
	h := newHost(t, s, disk.OS{})
	var pointed string
	h.executor.Reexec = func(_ context.Context, r request.Request, home string) error {
		pointed = h.pointsAt(t)
		if home != filepath.Join(h.top, pointed) {
			t.Errorf("re-executed from %s, the pointer leads to %s", home, pointed)
		}
		return nil
	}
	if err := h.executor.Upgrade(context.Background(), wanted); err != nil {
		t.Fatal(err)
	}
	if pointed != "data/muster-agent-1.1.0-bbbbbb" || h.watchers.started != 1 || h.watchers.stopped != 0 {
		t.Errorf("pointer at %q, %d watchers started, %d stopped", pointed, h.watchers.started, h.watchers.stopped)
	}
	after := h.tree(t)
	for _, name := range []string{"/run/queue", "/run/deep/file"} {
		if !strings.HasSuffix(after[pointed+name], after["data/muster-agent-1.0.0-aaaaaa"+name][10:]) {
			t.Errorf("state %s was not copied: %q", name, after[pointed+name])
		}
	}
	m, err := handoff.ReadMarker(disk.OS{}, h.top)
	if err != nil || m == nil || m.ActionID != "a1" || m.From != version("1.0.0", "aaaaaa") || m.To != version("1.1.0", "bbbbbb") {
		t.Errorf("marker %+v, %v", m, err)
	}
	var states []agentapi.UpgradeState
	for _, u := range h.reports {
		states = append(states, u.State)
	}
	want := []agentapi.UpgradeState{agentapi.UpgradeDownloading, agentapi.UpgradeExtracting, agentapi.UpgradeReplacing, agentapi.UpgradeRestarting}
	if got := slices.Compact(states); !slices.Equal(got, want) {
		t.Errorf("phases %v, want %v", got, want)
	}
}

func TestUpgradeRefusals(t *testing.T) {
	evil := newSource(t)
	for _, c := range []struct {
		name    string
		asked   string
		prepare func(*testing.T, *source, *testHost)
		want    string
		is      error
	}{
		{name: "running version", asked: "1.0.0", want: "already runs here"},
		{name: "it was not signed", asked: "1.1.0", is: tuf.ErrUnknownTarget},
		{
			name: "it was not published", asked: "1.1.0", want: "muster package push",
			prepare: func(_ *testing.T, s *source, _ *testHost) {
				s.repo.Sign(manifest.ArchiveName("1.1.0", "linux", "amd64", archiveFormat), []byte("archive"))
			},
		},
		{
			name: "another platform", asked: "1.1.0", want: "package is for darwin/amd64",
			prepare: func(t *testing.T, s *source, _ *testHost) {
				s.publish(t, "1.1.0", manifest.Package{Version: "1.1.0", Hash: "bbbbbb", OS: "darwin", Arch: "amd64"})
			},
		},
		{
			name: "another version inside", asked: "1.1.0", want: "holds version 0.9.0, 1.1.0 was asked for",
			prepare: func(t *testing.T, s *source, _ *testHost) { s.publish(t, "1.1.0", pkg("0.9.0", "bbbbbb")) },
		},
		{
			name: "same identity as a snapshot", asked: "1.0.0-SNAPSHOT", want: "already runs here",
			prepare: func(t *testing.T, s *source, h *testHost) {
				p := pkg("1.0.0", "aaaaaa")
				p.Snapshot = true
				s.publish(t, "1.0.0-SNAPSHOT", p)
				h.executor.Running.Snapshot = true
			},
		},
		{
			name: "an untrusted publisher", asked: "1.1.0", is: tuf.ErrUnknownTarget,
			prepare: func(t *testing.T, s *source, _ *testHost) {
				evil.publish(t, "1.1.0", pkg("1.1.0", "bbbbbb"))
				for name, data := range evil.files {
					s.files[name] = data
				}
			},
		},
		{
			name: "bytes changed after signing", asked: "1.1.0", is: download.ErrContent,
			prepare: func(t *testing.T, s *source, _ *testHost) {
				s.publish(t, "1.1.0", pkg("1.1.0", "bbbbbb"))
				s.files[manifest.ArchiveName("1.1.0", "linux", "amd64", archiveFormat)][100] ^= 1
			},
		},
		{
			name: "an older archive under a newer name", asked: "1.1.0", is: download.ErrContent,
			prepare: func(t *testing.T, s *source, _ *testHost) {
				s.publish(t, "0.9.0", pkg("0.9.0", "cccccc"))
				s.publish(t, "1.1.0", pkg("1.1.0", "bbbbbb"))
				s.files[manifest.ArchiveName("1.1.0", "linux", "amd64", archiveFormat)] = s.files[manifest.ArchiveName("0.9.0", "linux", "amd64", archiveFormat)]
			},
		},
		{
			name: "no publisher", asked: "1.1.0", is: trust.ErrNoPublisher,
			prepare: func(_ *testing.T, _ *source, h *testHost) { h.executor.Trust = nil },
		},
		{
			name: "rolled back here before", asked: "1.1.0", want: "failed here before, on 2026-01-02: it crashed",
			prepare: func(t *testing.T, _ *source, h *testHost) { h.remember(t) },
		},
		{
			name: "a component's package that was signed as an agent's", asked: "1.1.0", want: "one of component web, want an agent's",
			prepare: func(t *testing.T, s *source, _ *testHost) {
				p := pkg("1.1.0", "bbbbbb")
				p.Component = &manifest.Component{Name: "web", Runtime: "process", Settings: map[string]any{"program": "muster-agent"}}
				s.publish(t, "1.1.0", p)
			},
		},
		{
			name: "no program inside", asked: "1.1.0", want: "no program",
			prepare: func(t *testing.T, s *source, h *testHost) {
				s.publish(t, "1.1.0", pkg("1.1.0", "bbbbbb"))
				h.executor.Watchers = removeProgram{h}
			},
		},
		{
			name: "a watcher that does not come up", asked: "1.1.0", want: "watcher: it left",
			prepare: func(t *testing.T, s *source, h *testHost) {
				s.publish(t, "1.1.0", pkg("1.1.0", "bbbbbb"))
				h.watchers.startErr = errors.New("it left")
			},
		},
		{
			name: "another switch is watched", asked: "1.1.0", is: request.ErrBusy,
			prepare: func(t *testing.T, _ *source, h *testHost) {
				err := handoff.WriteMarker(disk.OS{}, h.top, handoff.Marker{From: version("1.0.0", "aaaaaa"), To: version("1.2.0", "dddddd"), Rules: handoff.DefaultRules()})
				if err != nil {
					t.Fatal(err)
				}
			},
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := newSource(t)
			h := newHost(t, s, disk.OS{})
			if c.prepare != nil {
				c.prepare(t, s, h)
			}
			before := h.tree(t)
			err := h.executor.Upgrade(context.Background(), request.Request{ID: "a1", ActionID: "a1", Version: c.asked})
			var f *request.Failure
			if !errors.As(err, &f) || !strings.Contains(err.Error(), c.want) || (c.is != nil && !errors.Is(err, c.is)) {
				t.Errorf("error %v, want %q / %v", err, c.want, c.is)
			}
			skip := "nothing"
			if f.Transient {
				skip = "data/downloads" // kept for the next try
			}
			sameTree(t, before, h.tree(t, skip))
			h.executor.Conclude(wanted, f)
			stored, err := LastFailure(disk.OS{}, h.top)
			if err != nil || stored == nil || stored.State != agentapi.UpgradeFailed || stored.Metadata.ErrorMsg == "" {
				t.Errorf("stored for the server: %+v, %v", stored, err)
			}
			code := ""
			if errors.Is(c.is, trust.ErrNoPublisher) || errors.Is(c.is, trust.ErrUntrusted) || errors.Is(c.is, download.ErrContent) {
				code = agentapi.ReasonUntrusted
			}
			if stored.Metadata.ReasonCode != code {
				t.Errorf("the code of the reason is %q, want %q", stored.Metadata.ReasonCode, code)
			}
		})
	}
}

// removeProgram removes the new program while its watcher's marker version is read.
type removeProgram struct{ h *testHost }

func (r removeProgram) MarkerVersion(_ context.Context, path string) (int, error) {
	return handoff.MarkerVersion, os.Remove(filepath.Join(filepath.Dir(path), agentName))
}

func (r removeProgram) Start(context.Context, string, string) (Watcher, error) {
	return nil, errors.New("never asked")
}

func (h *testHost) remember(t *testing.T) {
	t.Helper()
	err := h.executor.RememberFailed(handoff.FailedVersion{
		Identity: manifest.Identity{Version: "1.1.0", Hash: "bbbbbb"}, Reason: "it crashed", At: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC),
	})
	if err != nil {
		t.Fatal(err)
	}
}

func TestSnapshotThatFailedBeforeIsRefusedBeforeItsDownload(t *testing.T) {
	const name = "1.1.0-SNAPSHOT"
	p := pkg("1.1.0", "bbbbbb")
	p.Snapshot = true
	s := newSource(t)
	s.publish(t, name, p)
	h := newHost(t, s, disk.OS{})
	r := wanted
	r.Version = name
	if err := h.executor.Upgrade(t.Context(), r); err != nil {
		t.Fatal(err)
	}
	m, err := handoff.ReadMarker(disk.OS{}, h.top)
	if err != nil || m == nil || m.Archive == "" {
		t.Fatalf("marker %+v, %v", m, err)
	}
	// It is rolled back, and its home is removed.
	if err := errors.Join(h.executor.journalFile().Remove(), handoff.RemoveMarker(disk.OS{}, h.top), os.RemoveAll(filepath.Join(h.top, m.To.Home)), os.RemoveAll(filepath.Join(h.top, layout.DownloadsDir)),
		h.executor.RememberFailed(handoff.FailedVersion{Identity: m.To.Identity, Archive: m.Archive, Reason: "it crashed", At: time.Now()})); err != nil {
		t.Fatal(err)
	}
	h.reports = nil
	err = h.executor.Upgrade(t.Context(), r)
	if err == nil || !strings.Contains(err.Error(), "version 1.1.0-SNAPSHOT failed here before") {
		t.Errorf("the same build again: %v", err)
	}
	if len(h.reports) > 0 {
		t.Errorf("it reported %+v", h.reports)
	}
	// Another build of the snapshot is another version.
	p.Hash = "cccccc"
	s.publish(t, name, p)
	if err := h.executor.Upgrade(t.Context(), r); err != nil {
		t.Errorf("another build: %v", err)
	}
}

func TestForceInstallsAVersionThatFailedBefore(t *testing.T) {
	s := newSource(t)
	s.publish(t, "1.1.0", pkg("1.1.0", "bbbbbb"))
	h := newHost(t, s, disk.OS{})
	h.remember(t)
	r := wanted
	r.Force = true
	if err := h.executor.Upgrade(context.Background(), r); err != nil {
		t.Fatal(err)
	}
}

func TestKeptVersionIsReusedAndNotRemovedByUndo(t *testing.T) {
	s := newSource(t)
	s.publish(t, "1.1.0", pkg("1.1.0", "bbbbbb"))
	h := newHost(t, s, disk.OS{})
	if err := h.executor.Upgrade(context.Background(), wanted); err != nil {
		t.Fatal(err)
	}
	// The new version runs and is committed; then the host is rolled back.
	if err := errors.Join(h.executor.journalFile().Remove(), handoff.RemoveMarker(disk.OS{}, h.top)); err != nil {
		t.Fatal(err)
	}
	p := pkg("1.0.0", "aaaaaa")
	s.publish(t, "1.0.0", p)
	m := manifest.Manifest{APIVersion: manifest.APIVersion, Kind: manifest.Kind, Package: p}
	m.Package.VersionedHome = "data/muster-agent-1.0.0-aaaaaa"
	data, err := m.Encode()
	if err != nil {
		t.Fatal(err)
	}
	old := filepath.Join(h.top, "data/muster-agent-1.0.0-aaaaaa")
	if err := errors.Join(os.WriteFile(filepath.Join(old, manifest.FileName), data, 0o600), install.RecordDigests(disk.OS{}, old)); err != nil {
		t.Fatal(err)
	}
	h.executor.Running = version("1.1.0", "bbbbbb")
	must(t, handoff.WriteVersions(disk.OS{}, h.top, handoff.Versions{OnHost: []handoff.Version{{Install: version("1.0.0", "aaaaaa"), ReplacedAt: time.Now()}}}))
	h.watchers.startErr = errors.New("no")
	if err := h.executor.Upgrade(context.Background(), request.Request{ID: "b", Version: "1.0.0"}); err == nil {
		t.Fatal("succeeded without a watcher")
	}
	if got := h.pointsAt(t); got != "data/muster-agent-1.1.0-bbbbbb" {
		t.Errorf("pointer at %s", got)
	}
	if _, err := os.Stat(filepath.Join(old, agentName)); err != nil {
		t.Errorf("the kept version is gone: %v", err)
	}
	h.watchers.startErr = nil
	if err := h.executor.Upgrade(context.Background(), request.Request{ID: "c", Version: "1.0.0"}); err != nil {
		t.Fatal(err)
	}
	if got := h.pointsAt(t); got != "data/muster-agent-1.0.0-aaaaaa" {
		t.Errorf("pointer at %s", got)
	}
}

func TestOldWatcherIsUsedIfTheNewOneDoesNotUnderstandTheMarker(t *testing.T) {
	s := newSource(t)
	s.publish(t, "1.1.0", pkg("1.1.0", "bbbbbb"))
	h := newHost(t, s, disk.OS{})
	h.watchers.version = handoff.MarkerVersion - 1
	if err := h.executor.Upgrade(context.Background(), wanted); err != nil {
		t.Fatal(err)
	}
	if target, _ := os.Readlink(layout.Path(h.top, layout.WatcherLink)); !strings.Contains(target, "1.0.0") {
		t.Errorf("watcher is %s", target)
	}
}

func TestCancelledUpgradeIsUndone(t *testing.T) {
	s := newSource(t)
	s.publish(t, "1.1.0", pkg("1.1.0", "bbbbbb"))
	h := newHost(t, s, disk.OS{})
	before := h.tree(t)
	e := h.executor
	e.Report = func(u agentapi.UpgradeDetails, _ bool) {
		if u.State == agentapi.UpgradeExtracting && !e.Cancel("a1", "cancelled") {
			t.Error("refused to cancel while extracting")
		}
		if u.State == agentapi.UpgradeRestarting && e.Cancel("a1", "cancelled") {
			t.Error("cancelled while restarting")
		}
	}
	if err := e.Upgrade(context.Background(), wanted); !errors.Is(err, steps.ErrCancelled) {
		t.Errorf("error %v", err)
	}
	sameTree(t, before, h.tree(t))
	if e.Cancel("a1", "cancelled") {
		t.Error("cancelled what had ended")
	}
}

// swappingDisk puts another file under an archive's name each time it has been opened, and
// counts the bytes that are read of it.
type swappingDisk struct {
	disk.OS
	archive string
	evil    []byte
	read    int
}

func (d *swappingDisk) OpenFile(op, path string, flag int, perm fs.FileMode) (disk.File, error) {
	f, err := d.OS.OpenFile(op, path, flag, perm)
	if err != nil || path != d.archive || flag != os.O_RDONLY {
		return f, err
	}
	err = errors.Join(os.Remove(path), os.WriteFile(path, d.evil, 0o600))
	return &countedFile{f, &d.read}, err
}

type countedFile struct {
	disk.File
	read *int
}

func (f *countedFile) Read(p []byte) (int, error) {
	n, err := f.File.Read(p)
	*f.read += n
	return n, err
}

func TestUpgradeInstallsTheFileThatItHasVerified(t *testing.T) {
	s := newSource(t)
	s.publish(t, "1.1.0", pkg("1.1.0", "bbbbbb"), agentName, watcherName, "evil")
	name := manifest.ArchiveName("1.1.0", "linux", "amd64", archiveFormat)
	d := &swappingDisk{evil: s.files[name]}
	s.publish(t, "1.1.0", pkg("1.1.0", "bbbbbb"))
	h := newHost(t, s, d)
	d.archive = layout.Path(h.top, layout.DownloadsDir+"/"+name)
	if err := h.executor.Upgrade(context.Background(), wanted); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Lstat(layout.Path(h.top, "data/muster-agent-1.1.0-bbbbbb/evil")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a file of the swapped archive is installed (%v)", err)
	}
	// Each reading also reads the four bytes that determine the format.
	if size := len(s.files[name]); d.read > 2*(size+4) {
		t.Errorf("%d bytes were read of an archive of %d: more than twice", d.read, size)
	}
}

// A CANCEL may arrive after the queue has begun an upgrade and before the executor has, as
// at the start of an agent whose upgrade was interrupted.
func TestCancelJustBeforeTheUpgradeRunsStopsIt(t *testing.T) {
	s := newSource(t)
	s.publish(t, "1.1.0", pkg("1.1.0", "bbbbbb"))
	h := newHost(t, s, disk.OS{})
	before := h.tree(t)
	if !h.executor.Cancel(wanted.ID, "cancelled") {
		t.Error("refused to cancel what is about to run")
	}
	if err := h.executor.Upgrade(context.Background(), wanted); !errors.Is(err, steps.ErrCancelled) {
		t.Errorf("error %v", err)
	}
	sameTree(t, before, h.tree(t))
	if err := h.executor.Upgrade(context.Background(), wanted); err != nil {
		t.Errorf("it stays cancelled: %v", err)
	}
}

// An open file's error has no label.
func TestInputOutputErrorIsTransient(t *testing.T) {
	for _, why := range []error{syscall.EIO, syscall.ENOSPC} {
		if !transient(stepUnpack, &fs.PathError{Op: "write", Path: "f", Err: why}) {
			t.Errorf("%v is final", why)
		}
	}
	if transient(stepRestart, &fs.PathError{Op: "exec", Path: "f", Err: syscall.ENOEXEC}) {
		t.Error("a program that cannot be executed is tried again")
	}
}
