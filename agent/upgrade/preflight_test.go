package upgrade

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/muster-fleet/muster/agent/request"
	"github.com/muster-fleet/muster/agent/steps"
	"github.com/muster-fleet/muster/packaging/host/disk"
	"github.com/muster-fleet/muster/packaging/host/layout"
	"github.com/muster-fleet/muster/packaging/pkg/install"
	"github.com/muster-fleet/muster/packaging/pkg/manifest"
	"github.com/muster-fleet/muster/packaging/pkg/trust"
	"github.com/muster-fleet/muster/server/wire/agentapi"
	"github.com/muster-fleet/muster/testing/kit/require"
	"github.com/muster-fleet/muster/watcher/handoff"
)

// publisher is an authority that states more than another, which knows the archive.
type publisher struct {
	trust.Authority
	says trust.Expectation // floor and downgrade; archive and sizes unless they are empty
}

func (p publisher) Expect(ctx context.Context, fileName string, beside trust.Fetch) (*trust.Expectation, error) {
	e, err := p.Authority.Expect(ctx, fileName, beside)
	if err != nil {
		return nil, err
	}
	e.Floor, e.Downgrade = p.says.Floor, p.says.Downgrade
	e.Archive = cmp.Or(p.says.Archive, e.Archive)
	e.Size, e.Unpacked = cmp.Or(p.says.Size, e.Size), cmp.Or(p.says.Unpacked, e.Unpacked)
	return e, nil
}

func (p publisher) Floor(context.Context, string) string { return p.says.Floor }

// smallDisk is a disk with free bytes free.
type smallDisk struct {
	disk.OS
	free int64
}

func (d smallDisk) Free(string, string) (int64, error) { return d.free, nil }

// fewInodes is a disk that takes n more files.
type fewInodes struct {
	disk.OS
	n int64
}

func (d fewInodes) FreeInodes(string, string) (int64, bool) { return d.n, true }

// readOnly refuses to create files directly in the folder.
type readOnly struct {
	disk.OS
	folder string
}

func (d readOnly) OpenFile(op, path string, flag int, perm fs.FileMode) (disk.File, error) {
	if filepath.Dir(path) == d.folder && flag&os.O_CREATE != 0 {
		return nil, &disk.Error{Op: op, Err: &os.PathError{Op: "open", Path: path, Err: fs.ErrPermission}}
	}
	return d.OS.OpenFile(op, path, flag, perm)
}

func TestPreflightRefusesBeforeTheDownload(t *testing.T) {
	const MB = 1 << 20
	for _, c := range []struct {
		name      string
		expect    trust.Expectation
		disk      func(top string) disk.Disk
		force     bool
		want      string
		is        error
		temporary bool
	}{
		{name: "no room for archive and tree", expect: trust.Expectation{Size: 40 * MB, Unpacked: 100 * MB}, disk: func(string) disk.Disk { return smallDisk{free: 165 * MB} }, want: "needs 178.3 MB (archive 41.9 MB, unpacked 104.9 MB", is: disk.ErrNoSpace, temporary: true},
		{name: "no inodes", disk: func(string) disk.Disk { return fewInodes{n: 60} }, want: "version 1.1.0 needs 71 inodes, 60 are free", is: disk.ErrNoSpace, temporary: true},
		{name: "below the signed floor", expect: trust.Expectation{Floor: "1.2.0"}, want: "below 1.2.0, the lowest version its publishers still allow"},
		{name: "below the signed floor, forced", force: true, expect: trust.Expectation{Floor: "1.2.0"}, want: "below 1.2.0"},
		{name: "no right to move the pointer", disk: func(top string) disk.Disk { return readOnly{folder: top} }, want: "may not write in"},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := newSource(t)
			s.publish(t, "1.1.0", pkg("1.1.0", "bbbbbb"))
			h := newHost(t, s, disk.OS{})
			if c.disk != nil {
				h.executor.Disk = c.disk(h.top)
			}
			h.executor.Trust = publisher{s.repo.Authority(), c.expect}
			before := h.tree(t)
			r := wanted
			r.Force = c.force
			err := h.executor.Upgrade(context.Background(), r)
			var f *request.Failure
			if !errors.As(err, &f) || !strings.Contains(err.Error(), c.want) || (c.is != nil && !errors.Is(err, c.is)) {
				t.Fatalf("error %v, want %q / %v", err, c.want, c.is)
			}
			if f.State != agentapi.UpgradeRequested || f.Transient != c.temporary {
				t.Errorf("failed in %s, temporary %v", f.State, f.Transient)
			}
			if code := f.Details(r).Metadata.ReasonCode; (code == agentapi.ReasonNoSpace) != errors.Is(c.is, disk.ErrNoSpace) {
				t.Errorf("the code of the reason is %q", code)
			}
			for _, u := range h.reports {
				if u.State == agentapi.UpgradeDownloading {
					t.Error("it says that it downloads")
				}
			}
			sameTree(t, before, h.tree(t))
		})
	}
}

// keep installs a previous version beside the running one, as the watcher leaves it.
func (h *testHost) keep(t *testing.T, s *source, number, hash string) handoff.Install {
	t.Helper()
	v := version(number, hash)
	name := manifest.ArchiveName(number, "linux", "amd64", archiveFormat)
	if s.files[name] == nil {
		s.publish(t, number, pkg(number, hash))
	}
	archive := filepath.Join(t.TempDir(), name)
	must(t, os.WriteFile(archive, s.files[name], 0o600))
	_, err := install.Unpack(context.Background(), &faultDisk{}, archive, h.top)
	must(t, err)
	record, err := handoff.ReadVersions(disk.OS{}, h.top)
	must(t, err)
	record.Add(handoff.Version{Install: v, ReplacedAt: time.Now()})
	must(t, handoff.WriteVersions(&faultDisk{}, h.top, record))
	return v
}

var back = request.Request{ID: "r1", ActionID: "r1", Rollback: true}

func TestRollbackSwitchesToTheKeptVersionWithoutADownload(t *testing.T) {
	s := newSource(t)
	h := newHost(t, s, disk.OS{})
	v := h.keep(t, s, "0.9.0", "cccccc")
	s.files = nil // and without a server
	h.executor.Trust = nil
	if err := h.executor.Upgrade(context.Background(), back); err != nil {
		t.Fatal(err)
	}
	m, err := handoff.ReadMarker(disk.OS{}, h.top)
	if err != nil || m == nil || m.To != v || m.From != h.executor.Running || m.ActionID != "r1" {
		t.Errorf("marker %+v, %v", m, err)
	}
	if got := h.pointsAt(t); got != v.Home {
		t.Errorf("pointer at %s", got)
	}
	if h.reports[0].State != agentapi.UpgradeReplacing || h.reports[0].TargetVersion != "0.9.0" {
		t.Errorf("first reported %+v", h.reports[0])
	}
}

func TestRollbackRefusesAVersionThatDoesNotStart(t *testing.T) {
	for name, c := range map[string]struct {
		spoil func(t *testing.T, h *testHost, home string)
		want  string
	}{
		"program gone": {func(t *testing.T, _ *testHost, home string) { must(t, os.Remove(filepath.Join(home, agentName))) }, "is damaged"},
		"manifest zeroed": {func(t *testing.T, _ *testHost, home string) {
			must(t, os.WriteFile(filepath.Join(home, "manifest.yaml"), make([]byte, 200), 0o600))
		}, "manifest.yaml"},
		"does not start": {func(_ *testing.T, h *testHost, _ string) {
			h.executor.Startable = func(context.Context, string) error { return errors.New("missing library") }
		}, "missing library"},
	} {
		t.Run(name, func(t *testing.T) {
			s := newSource(t)
			h := newHost(t, s, disk.OS{})
			v := h.keep(t, s, "0.9.0", "cccccc")
			c.spoil(t, h, filepath.Join(h.top, v.Home))
			if k := h.executor.Versions(context.Background(), nil); len(k) != 1 || !strings.Contains(k[0].Problem, c.want) {
				t.Fatalf("kept %+v", k)
			}
			before := h.tree(t)
			if err := h.executor.Upgrade(context.Background(), back); err == nil || !strings.Contains(err.Error(), "cannot be started: ") {
				t.Errorf("error %v", err)
			}
			sameTree(t, before, h.tree(t))
		})
	}
}

// reads counts the programs that are opened.
type reads struct {
	disk.OS
	programs *int
}

func (d reads) OpenFile(op, path string, flag int, perm fs.FileMode) (disk.File, error) {
	if filepath.Base(path) == agentName {
		*d.programs++
	}
	return d.OS.OpenFile(op, path, flag, perm)
}

func TestFilesOfAnIntactPreviousVersionAreReadAgainOnlyByARollback(t *testing.T) {
	var programs int
	s := newSource(t)
	h := newHost(t, s, reads{programs: &programs})
	v := h.keep(t, s, "0.9.0", "cccccc")
	for i, c := range []struct {
		intact handoff.Install
		want   int
	}{{handoff.Install{}, 1}, {v, 1}, {version("0.9.1", "cccccc"), 2}} {
		k := h.executor.Versions(t.Context(), map[handoff.Install]bool{c.intact: true})
		if len(k) != 1 || k[0].Problem != "" || programs != c.want {
			t.Fatalf("check %d: %+v, %d programs were read, want %d", i, k, programs, c.want)
		}
	}
	file := filepath.Join(h.top, v.Home, agentName)
	data, err := os.ReadFile(file)
	must(t, err)
	data[0] ^= 1
	must(t, os.WriteFile(file, data, 0o700))
	if err := h.executor.Upgrade(t.Context(), back); err == nil || !strings.Contains(err.Error(), "is not what was installed") {
		t.Errorf("rollback to a damaged version: %v", err)
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func TestDropSurplusRemovesThePreviousVersionAfterItsWindow(t *testing.T) {
	s := newSource(t)
	h := newHost(t, s, disk.OS{})
	v := h.keep(t, s, "0.9.0", "cccccc")
	there := func() bool { _, err := os.Stat(filepath.Join(h.top, v.Home)); return err == nil }
	now := time.Now()
	must(t, h.executor.DropSurplus(now))
	must(t, h.executor.DropSurplus(now.Add(6*24*time.Hour)))
	// The next process finds a clock that was set to another year, and back.
	for _, jump := range []time.Duration{1e5 * time.Hour, 0} {
		h.executor = h.newExecutor(s, disk.OS{})
		must(t, h.executor.DropSurplus(now.Add(6*24*time.Hour+jump)))
		k := h.executor.Versions(context.Background(), nil)
		if len(k) != 1 || !there() {
			t.Fatal("gone too early")
		}
	}
	// It stays while an upgrade is watched, since the watcher may need it.
	must(t, handoff.WriteMarker(disk.OS{}, h.top, handoff.Marker{From: v, To: h.executor.Running, Rules: handoff.DefaultRules()}))
	must(t, h.executor.DropSurplus(now.Add(8*24*time.Hour)))
	if !there() {
		t.Fatal("gone while it may be needed")
	}
	must(t, handoff.RemoveMarker(disk.OS{}, h.top))
	must(t, h.executor.DropSurplus(now.Add(8*24*time.Hour)))
	if k := h.executor.Versions(context.Background(), nil); len(k) > 0 || there() {
		t.Errorf("kept %+v", k)
	}
}

// A rollback survives a crash at any disk call, as an upgrade does.
func TestRollbackKilledAtAnyCallLeavesARunnableHost(t *testing.T) {
	require.Time(t, "kills the agent at every call")
	s := newSource(t)
	for n := 1; ; n++ {
		h := newHost(t, s, disk.OS{})
		v := h.keep(t, s, "0.9.0", "cccccc")
		before := h.tree(t, "data/"+filepath.Base(v.Home)+"/run")
		d := &faultDisk{failAt: n, dead: true}
		h.executor.Disk = d
		_ = h.executor.Upgrade(context.Background(), back) // killed somewhere
		if d.failed == "" {
			if n < 50 {
				t.Errorf("only %d disk calls", n)
			}
			return
		}
		e := h.newExecutor(s, &faultDisk{})
		if h.pointsAt(t) == v.Home {
			e.Running = v
		}
		left, err := e.Recover()
		if err != nil {
			t.Fatalf("crash at call %d (%s): recover: %v", n, d.failed, err)
		}
		if left != nil && left.Switched {
			if m, err := handoff.ReadMarker(disk.OS{}, h.top); m == nil || err != nil || h.pointsAt(t) != v.Home {
				t.Fatalf("crash at call %d (%s): at %s with marker %v, %v", n, d.failed, h.pointsAt(t), m, err)
			}
			continue
		}
		sameTree(t, before, h.tree(t, "data/"+filepath.Base(v.Home)+"/run", layout.JournalFile+layout.NewSuffix))
		if t.Failed() {
			t.Fatalf("after a crash at call %d (%s)", n, d.failed)
		}
	}
}

func TestFailedUndoIsRepeatedBeforeTheNextUpgrade(t *testing.T) {
	s := newSource(t)
	s.publish(t, "1.1.0", pkg("1.1.0", "bbbbbb"))
	s.publish(t, "1.2.0", pkg("1.2.0", "dddddd"))
	h := newHost(t, s, disk.OS{})
	before := h.tree(t)
	h.executor.Disk = stuckPointer{OS: disk.OS{}, top: h.top, stuck: new(bool)}
	*h.executor.Disk.(stuckPointer).stuck = false
	h.executor.Reexec = func(context.Context, request.Request, string) error {
		*h.executor.Disk.(stuckPointer).stuck = true
		return errors.New("exec format error")
	}
	if err := h.executor.Upgrade(context.Background(), wanted); err == nil || !strings.Contains(err.Error(), "could not be restored") {
		t.Fatalf("error %v", err)
	}
	if got := h.pointsAt(t); got != "data/muster-agent-1.1.0-bbbbbb" {
		t.Fatalf("the test's disk let the pointer move to %s", got)
	}
	*h.executor.Disk.(stuckPointer).stuck = false
	if err := h.executor.Upgrade(context.Background(), request.Request{ID: "b", Version: "9.9.9"}); err == nil {
		t.Fatal("upgraded to a version that was not published")
	}
	sameTree(t, before, h.tree(t, "data/downloads"))
}

// stuckPointer cannot move the pointer while stuck is set.
type stuckPointer struct {
	disk.OS
	top   string
	stuck *bool
}

func (d stuckPointer) Rename(op, from, to string) error {
	if *d.stuck && to == layout.Path(d.top, layout.AgentLink) {
		return &disk.Error{Op: op, Err: errFault}
	}
	return d.OS.Rename(op, from, to)
}

func TestUpgradeCanBeCancelledUntilThePointerMoves(t *testing.T) {
	s := newSource(t)
	s.publish(t, "1.1.0", pkg("1.1.0", "bbbbbb"))
	h := newHost(t, s, disk.OS{})
	before := h.tree(t)
	h.executor.Watchers = cancelling{h}
	err := h.executor.Upgrade(context.Background(), wanted)
	var f *request.Failure
	if !errors.As(err, &f) || !errors.Is(err, steps.ErrCancelled) || err.Error() != "superseded by b" || f.Transient {
		t.Errorf("failure %+v", f)
	}
	sameTree(t, before, h.tree(t))
}

// cancelling cancels the upgrade after the marker is written and before the pointer is
// moved.
type cancelling struct{ h *testHost }

func (c cancelling) MarkerVersion(ctx context.Context, _ string) (int, error) {
	if m, err := handoff.ReadMarker(disk.OS{}, c.h.top); m == nil || err != nil {
		return 0, errors.New("no marker yet")
	}
	if !c.h.executor.Cancel(wanted.ID, "superseded by b") {
		return 0, errors.New("not heard")
	}
	<-ctx.Done()
	return 0, ctx.Err()
}

func (c cancelling) Start(context.Context, string, string) (Watcher, error) {
	return nil, errors.New("never asked")
}

// What the next start reads is checked before anything is downloaded, by this version, and before
// anything is switched, by the version that would start.
func TestUpgradeIsRefusedWhileTheNextStartWouldFail(t *testing.T) {
	const tab = "/opt/muster/agent.yml: line 2: found character that cannot start any token"
	for _, row := range []struct {
		name       string
		own, other error // what this version and the new one say
		request    func(*request.Request)
		refused    bool
		downloads  bool
	}{
		{name: "both can read it", downloads: true},
		{name: "this version cannot", own: errors.New(tab), refused: true},
		{name: "this version cannot, and the order is forced", own: errors.New(tab), request: func(r *request.Request) { r.Force = true }, refused: true},
		{name: "this version cannot, and the order is a rollback", own: errors.New(tab), request: func(r *request.Request) { r.Rollback, r.Version = true, "0.9.0" }, refused: true},
		{name: "the new version cannot", other: fmt.Errorf("%w: %s", request.ErrSettings, tab), refused: true, downloads: true},
	} {
		t.Run(row.name, func(t *testing.T) {
			s := newSource(t)
			s.publish(t, "1.1.0", pkg("1.1.0", "bbbbbb"))
			h := newHost(t, s, disk.OS{})
			h.keep(t, s, "0.9.0", "cccccc")
			h.executor.ReadsStart = func() error { return row.own }
			asked := ""
			h.executor.CheckStart = func(_ context.Context, program, top string) error {
				asked = program
				if top != h.top {
					t.Errorf("the program is asked about %s", top)
				}
				return row.other
			}
			before := h.tree(t)
			r := wanted
			if row.request != nil {
				row.request(&r)
			}
			err := h.executor.Upgrade(context.Background(), r)
			downloaded := slices.ContainsFunc(h.reports, func(u agentapi.UpgradeDetails) bool { return u.State == agentapi.UpgradeDownloading })
			if downloaded != row.downloads {
				t.Errorf("downloaded: %v, want %v", downloaded, row.downloads)
			}
			if !row.refused {
				if err != nil || !strings.Contains(asked, "data/muster-agent-1.1.0-bbbbbb/") {
					t.Errorf("error %v; asked was %q, want the new version's program", err, asked)
				}
				return
			}
			var f *request.Failure
			if !errors.As(err, &f) || !errors.Is(err, request.ErrSettings) || f.Transient || f.Details(wanted).Metadata.ReasonCode != agentapi.ReasonSettings || !strings.Contains(err.Error(), tab) {
				t.Errorf("the refusal is %v, transient %v", err, f != nil && f.Transient)
			}
			if !row.downloads {
				sameTree(t, before, h.tree(t))
			}
			if h.watchers.started != h.watchers.stopped {
				t.Errorf("%d watchers were started, %d stopped", h.watchers.started, h.watchers.stopped)
			}
		})
	}
	t.Run("a stage starts nothing", func(t *testing.T) {
		s := newSource(t)
		s.publish(t, "1.1.0", pkg("1.1.0", "bbbbbb"))
		h := newHost(t, s, disk.OS{})
		h.executor.ReadsStart = func() error { return errors.New(tab) }
		r := wanted
		r.Stage = true
		if err := h.executor.Stage(context.Background(), r); err != nil {
			t.Error(err)
		}
	})
}
