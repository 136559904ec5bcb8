package upgrade

import (
	"context"
	"errors"
	"io/fs"
	"net/http"
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
	"github.com/muster-fleet/muster/packaging/pkg/manifest"
	"github.com/muster-fleet/muster/packaging/pkg/trust"
	"github.com/muster-fleet/muster/server/wire/agentapi"
	"github.com/muster-fleet/muster/testing/kit/require"
	"github.com/muster-fleet/muster/watcher/handoff"
)

var (
	ahead    = request.Request{ID: "s1", Local: true, Version: "1.1.0"}
	switchTo = request.Request{ID: "w1", Local: true, Version: "1.1.0", Rollback: true}
)

// staging returns a host on which 1.1.0 is staged.
func staging(t *testing.T, d disk.Disk) (*source, *testHost) {
	t.Helper()
	s := newSource(t)
	s.publish(t, "1.1.0", pkg("1.1.0", "bbbbbb"))
	h := newHost(t, s, d)
	must(t, h.executor.Stage(t.Context(), ahead))
	return s, h
}

// onHost returns the versions on the host besides the one that runs, the newest first.
func (h *testHost) onHost(t *testing.T) string {
	t.Helper()
	var out []string
	for _, v := range h.executor.Versions(t.Context(), nil) {
		if v.Problem != "" {
			t.Errorf("%s: %s", v.FullVersion(), v.Problem)
		}
		out = append(out, v.FullVersion())
	}
	return strings.Join(out, " ")
}

// records are the files that a stage writes beside the home.
var records = []string{layout.VersionsFile}

func TestStageChangesNothingThatRuns(t *testing.T) {
	s := newSource(t)
	s.publish(t, "1.1.0", pkg("1.1.0", "bbbbbb"))
	h := newHost(t, s, disk.OS{})
	must(t, handoff.WriteOutcome(disk.OS{}, h.top, handoff.Outcome{ActionID: "a0", Result: handoff.Committed}))
	var states []agentapi.UpgradeState
	h.executor.Staging = func(u agentapi.UpgradeDetails, _ bool) { states = append(states, u.State) }
	before := h.tree(t)
	must(t, h.executor.Stage(t.Context(), ahead))
	home := version("1.1.0", "bbbbbb").Home
	sameTree(t, before, h.tree(t, append(records, home)...))
	if len(h.reports) > 0 {
		t.Errorf("it reports an upgrade: %+v", h.reports)
	}
	if got := slices.Compact(states); !slices.Equal(got, []agentapi.UpgradeState{agentapi.UpgradeDownloading, agentapi.UpgradeExtracting}) {
		t.Errorf("phases %v", got)
	}
	v, err := handoff.ReadVersions(disk.OS{}, h.top)
	list := v.OnHost
	if err != nil || len(list) != 1 || list[0].Install != version("1.1.0", "bbbbbb") || !list[0].Staged() || list[0].StagedAt.IsZero() || list[0].Archive == "" {
		t.Fatalf("recorded %+v, %v", list, err)
	}
	if bytes, err := disk.Size(disk.OS{}, "test", filepath.Join(h.top, home)); err != nil || list[0].Bytes != bytes || bytes == 0 {
		t.Errorf("%d bytes are recorded, it has %d (%v)", list[0].Bytes, bytes, err)
	}
	// Staged again, it is there.
	h.executor.Disk = neverFetched{OS: disk.OS{}, t: t, archive: manifest.ArchiveName("1.1.0", "linux", "amd64", archiveFormat)}
	before = h.tree(t)
	must(t, h.executor.Stage(t.Context(), ahead))
	sameTree(t, before, h.tree(t))
}

// neverFetched fails the test if an archive is written.
type neverFetched struct {
	disk.OS
	t       *testing.T
	archive string
}

func (d neverFetched) OpenFile(op, path string, flag int, perm os.FileMode) (disk.File, error) {
	if strings.HasPrefix(filepath.Base(path), d.archive) {
		d.t.Errorf("%s: %s is opened", op, path)
	}
	return d.OS.OpenFile(op, path, flag, perm)
}

func TestUpgradeToAStagedVersionDownloadsNothing(t *testing.T) {
	for name, r := range map[string]request.Request{"ordered by the server": wanted, "switched to on the host": switchTo} {
		t.Run(name, func(t *testing.T) {
			s, h := staging(t, disk.OS{})
			archive := manifest.ArchiveName("1.1.0", "linux", "amd64", archiveFormat)
			delete(s.files, archive) // the statement about it is still there
			if r.Rollback {
				s.files = nil
			}
			h.executor.Disk = neverFetched{OS: disk.OS{}, t: t, archive: archive}
			must(t, h.executor.Upgrade(t.Context(), r))
			m, err := handoff.ReadMarker(disk.OS{}, h.top)
			if err != nil || m == nil || m.To != version("1.1.0", "bbbbbb") || m.Archive == "" || m.Rules.Keep != h.executor.Keep {
				t.Errorf("marker %+v, %v", m, err)
			}
			if got := h.pointsAt(t); got != m.To.Home {
				t.Errorf("pointer at %s", got)
			}
			if first := h.reports[0].State; first != agentapi.UpgradeReplacing {
				t.Errorf("first reported %s", first)
			}
		})
	}
}

func TestFailedUpgradeLeavesTheStagedVersion(t *testing.T) {
	_, h := staging(t, disk.OS{})
	h.watchers.startErr = errors.New("no")
	run := filepath.Join(version("1.1.0", "bbbbbb").Home, layout.RunDir)
	before := h.tree(t, run)
	for _, r := range []request.Request{wanted, switchTo} {
		if err := h.executor.Upgrade(t.Context(), r); err == nil {
			t.Fatal("succeeded without a watcher")
		}
		sameTree(t, before, h.tree(t, run))
	}
	if got := h.onHost(t); got != "1.1.0" {
		t.Errorf("on the host: %s", got)
	}
}

// What held when the version was staged is checked again when it is switched to.
func TestStagedVersionIsCheckedAgainBeforeTheSwitch(t *testing.T) {
	failed := func(t *testing.T, h *testHost) { h.remember(t) }
	committed := func(t *testing.T, h *testHost) {
		v, err := handoff.ReadVersions(disk.OS{}, h.top)
		must(t, err)
		v.Highest = "1.5.0"
		must(t, handoff.WriteVersions(disk.OS{}, h.top, v))
	}
	for _, c := range []struct {
		name    string
		prepare func(*testing.T, *testHost)
		expect  trust.Expectation
		request request.Request
		want    string // "" if it succeeds
	}{
		{name: "nothing has changed"},
		{name: "below the floor", expect: trust.Expectation{Floor: "1.2.0"}, want: "version 1.1.0 is below 1.2.0"},
		{name: "below the floor, with force", expect: trust.Expectation{Floor: "1.2.0"}, request: request.Request{Force: true}, want: "version 1.1.0 is below 1.2.0"},
		{name: "it failed here", prepare: failed, want: "failed here before"},
		{name: "it failed here, with force", prepare: failed, request: request.Request{Force: true}},
		{name: "a higher version was committed", prepare: committed, want: "is older than 1.5.0"},
		{name: "a higher version was committed, with force", prepare: committed, request: request.Request{Force: true}},
		{name: "likewise, by the server", prepare: committed, request: request.Request{Force: true, ActionID: "a1"}, want: "is older than 1.5.0"},
		{name: "its publishers allow to go back to it", prepare: committed, expect: trust.Expectation{Downgrade: true}},
		{name: "they allow another build", prepare: committed, expect: trust.Expectation{Downgrade: true, Archive: "another"}, want: "is older than 1.5.0"},
	} {
		t.Run(c.name, func(t *testing.T) {
			s, h := staging(t, disk.OS{})
			if c.prepare != nil {
				c.prepare(t, h)
			}
			h.executor.Trust = publisher{s.repo.Authority(), c.expect}
			r := switchTo
			r.Force, r.ActionID, r.Local = c.request.Force, c.request.ActionID, c.request.ActionID == ""
			err := h.executor.Upgrade(t.Context(), r)
			if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
				t.Errorf("error %v, want %q", err, c.want)
			}
		})
	}
}

func TestSwitchNamesWhatIsOnTheHost(t *testing.T) {
	_, h := staging(t, disk.OS{})
	for asked, want := range map[string]string{
		"1.2.0": "version 1.2.0 is neither staged nor kept on this host, which has 1.1.0: stage it first with `muster-agent versions stage 1.2.0`",
		"":      "no earlier version is kept on this host", // a staged one is none
	} {
		r := switchTo
		r.Version = asked
		if err := h.executor.Upgrade(t.Context(), r); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v, want %q", err, want)
		}
	}
}

func TestDamagedStagedVersionIsFetchedAgain(t *testing.T) {
	damage := func(t *testing.T, h *testHost) {
		must(t, os.WriteFile(filepath.Join(h.top, version("1.1.0", "bbbbbb").Home, agentName), []byte("zeros"), 0o755))
	}
	for name, again := range map[string]func(*Executor) error{
		"by a stage":    func(e *Executor) error { return e.Stage(t.Context(), ahead) },
		"by an upgrade": func(e *Executor) error { return e.Upgrade(t.Context(), wanted) },
	} {
		t.Run(name, func(t *testing.T) {
			_, h := staging(t, disk.OS{})
			damage(t, h)
			if v := h.executor.Versions(t.Context(), nil); len(v) != 1 || !strings.Contains(v[0].Problem, "is not what was installed") {
				t.Errorf("on the host: %+v", v)
			}
			if err := h.executor.Upgrade(t.Context(), switchTo); err == nil || !strings.Contains(err.Error(), "cannot be started: ") {
				t.Errorf("switched to a damaged version: %v", err)
			}
			must(t, again(h.executor))
			h.executor.Running = version("0.0.1", "eeeeee") // of neither
			must(t, handoff.RemoveMarker(disk.OS{}, h.top))
			if got := h.onHost(t); got != "1.1.0" {
				t.Errorf("on the host: %s", got)
			}
		})
	}
}

func TestStagedVersionsAreBounded(t *testing.T) {
	s, h := staging(t, disk.OS{})
	stage := func(number string) error {
		s.publish(t, number, pkg(number, "dddddd"))
		return h.executor.Stage(t.Context(), request.Request{ID: "s", Local: true, Version: number})
	}
	must(t, stage("1.2.0"))
	must(t, stage("1.3.0"))
	if got := h.onHost(t); got != "1.3.0 1.2.0" {
		t.Errorf("on the host: %s", got)
	}
	if _, err := os.Lstat(filepath.Join(h.top, version("1.1.0", "bbbbbb").Home)); !os.IsNotExist(err) {
		t.Errorf("the one that had to make room is there: %v", err)
	}
	h.executor.Keep.Bytes = 1
	if err := stage("1.4.0"); err == nil || !strings.Contains(err.Error(), "and upgrade.keep.size leaves 1B: remove a version (`muster-agent versions list`), or raise it") {
		t.Errorf("over the size: %v", err)
	}
	h.executor.Keep.Bytes, h.executor.Keep.Staged = 0, 0
	if err := stage("1.4.0"); err == nil || !strings.Contains(err.Error(), "raise upgrade.keep.staged") {
		t.Errorf("none may be staged: %v", err)
	}
	if got := h.onHost(t); got != "1.3.0 1.2.0" {
		t.Errorf("on the host: %s", got)
	}
	must(t, h.executor.DropSurplus(time.Now())) // the setting was changed
	if got := h.onHost(t); got != "" {
		t.Errorf("on the host: %s", got)
	}
}

func TestStageOfAVersionThatRanKeepsItsWindow(t *testing.T) {
	s := newSource(t)
	h := newHost(t, s, disk.OS{})
	h.keep(t, s, "0.9.0", "cccccc")
	r := ahead
	r.Version = "0.9.0"
	must(t, h.executor.Stage(t.Context(), r))
	if v := h.executor.Versions(t.Context(), nil); len(v) != 1 || v[0].Staged() || v[0].Archive == "" || v[0].ValidUntil.IsZero() {
		t.Errorf("on the host: %+v", v)
	}
}

// A rebuild of the version that runs is kept: both are 1.0.0.
func TestBuildsOfOneVersionAreToldApart(t *testing.T) {
	s := newSource(t)
	h := newHost(t, s, disk.OS{})
	running := h.executor.Running
	v := h.keep(t, s, running.Version, "012345")
	for _, name := range []string{"", running.FullVersion(), "1.0.0-012345"} {
		if found, err := h.executor.Find(name); err != nil || found.Install != v {
			t.Errorf("%q is %+v, %v", name, found, err)
		}
	}
	if found, err := h.executor.Find(running.Identity.String()); err == nil {
		t.Errorf("the one that runs is %+v", found)
	}
	if name := h.executor.NameOf(v); name != "1.0.0-012345" {
		t.Errorf("it is called %s", name)
	}
	r, err := request.Parse("r1", true, []byte(`{"version":"1.0.0-012345","rollback":true}`))
	must(t, err)
	must(t, h.executor.Upgrade(t.Context(), r))
	if got := h.pointsAt(t); got != v.Home {
		t.Errorf("pointer at %s", got)
	}

	h = newHost(t, s, disk.OS{})
	v = h.keep(t, s, running.Version, "012345")
	if err := h.executor.RemoveVersion(running.Identity.String()); err == nil || !strings.Contains(err.Error(), "is the one that runs") {
		t.Errorf("the one that runs: %v", err)
	}
	must(t, h.executor.RemoveVersion("1.0.0-012345"))
	if got := h.onHost(t); got != "" {
		t.Errorf("on the host: %s", got)
	}
	if name := h.executor.NameOf(running); name != running.FullVersion() {
		t.Errorf("alone on the host it is called %s", name)
	}
}

func TestRemoveVersion(t *testing.T) {
	s, h := staging(t, disk.OS{})
	v := h.keep(t, s, "0.9.0", "cccccc")
	for asked, want := range map[string]string{
		"1.0.0": "version 1.0.0 is the one that runs: switch to another one before you remove it",
		"1.2.0": "version 1.2.0 is not on this host, which has 1.1.0, 0.9.0 and 1.0.0",
	} {
		if err := h.executor.RemoveVersion(asked); err == nil || err.Error() != want {
			t.Errorf("error %v, want %q", err, want)
		}
	}
	must(t, handoff.WriteMarker(disk.OS{}, h.top, handoff.Marker{From: v, To: h.executor.Running, Rules: handoff.DefaultRules()}))
	if err := h.executor.RemoveVersion("1.1.0"); !errors.Is(err, request.ErrBusy) {
		t.Errorf("during a watch: %v", err)
	}
	must(t, handoff.RemoveMarker(disk.OS{}, h.top))
	must(t, h.executor.RemoveVersion("0.9.0"))
	if got := h.onHost(t); got != "1.1.0" {
		t.Errorf("on the host: %s", got)
	}
	// What changes the versions briefly, such as the count of how long they are kept, is waited for.
	h.executor.changing.Lock()
	time.AfterFunc(10*time.Millisecond, h.executor.changing.Unlock)
	must(t, h.executor.RemoveVersion("1.1.0"))
	if got := h.onHost(t); got != "" {
		t.Errorf("on the host: %s", got)
	}
	for _, home := range []string{v.Home, version("1.1.0", "bbbbbb").Home} {
		if _, err := os.Lstat(filepath.Join(h.top, home)); !os.IsNotExist(err) {
			t.Errorf("%s is still there: %v", home, err)
		}
	}
}

// held is a disk whose first unpacking waits until the test has done something.
type held struct {
	disk.OS
	meanwhile func()
}

func (d *held) OpenRoot(op, path string) (disk.Root, error) {
	if f := d.meanwhile; f != nil {
		d.meanwhile = nil
		f()
	}
	return d.OS.OpenRoot(op, path)
}

func TestCancelledStageIsNotTriedAgainAndLeavesNothing(t *testing.T) {
	for _, method := range []string{http.MethodHead, http.MethodGet} { // before the download, and in it
		t.Run(method, func(t *testing.T) {
			s := newSource(t)
			s.publish(t, "1.1.0", pkg("1.1.0", "bbbbbb"))
			h := newHost(t, s, disk.OS{})
			ctx, cancel := context.WithCancelCause(t.Context())
			s.hangs = func(r *http.Request) bool {
				if r.Method != method {
					return false
				}
				time.AfterFunc(100*time.Millisecond, func() { cancel(steps.ErrCancelled) }) // some bytes have arrived
				return true
			}
			err := h.executor.Stage(ctx, ahead)
			var f *request.Failure
			if !errors.As(err, &f) || !errors.Is(err, steps.ErrCancelled) || f.Transient {
				t.Errorf("it ended with %#v", err)
			}
			if left, _ := os.ReadDir(filepath.Join(h.top, layout.DownloadsDir)); len(left) > 0 {
				t.Errorf("it left %v", left)
			}
		})
	}
}

func TestUpgradeEndsARunningStage(t *testing.T) {
	s := newSource(t)
	s.publish(t, "1.1.0", pkg("1.1.0", "bbbbbb"))
	s.publish(t, "1.2.0", pkg("1.2.0", "dddddd"))
	d := &held{}
	h := newHost(t, s, d)
	upgraded := make(chan error, 1)
	d.meanwhile = func() {
		if err := h.executor.RemoveVersion("1.3.0"); !errors.Is(err, errUnderWay) {
			t.Errorf("removed during a stage: %v", err)
		}
		if err := h.executor.UndoLeftover(); !errors.Is(err, errUnderWay) {
			t.Errorf("undone during a stage: %v", err)
		}
		go func() {
			upgraded <- h.executor.Upgrade(context.WithoutCancel(t.Context()), request.Request{ID: "a2", ActionID: "a2", Version: "1.2.0"})
		}()
		for begun := false; !begun; time.Sleep(time.Millisecond) {
			h.executor.mu.Lock()
			begun = h.executor.running == "a2"
			h.executor.mu.Unlock()
		}
	}
	err := h.executor.Stage(t.Context(), ahead)
	if !errors.Is(err, steps.ErrCancelled) || err.Error() != "ended by an upgrade that began" {
		t.Errorf("the stage ended with %v", err)
	}
	must(t, <-upgraded)
	if got := h.pointsAt(t); got != version("1.2.0", "dddddd").Home {
		t.Errorf("pointer at %s", got)
	}
	if _, err := os.Lstat(filepath.Join(h.top, version("1.1.0", "bbbbbb").Home)); !os.IsNotExist(err) {
		t.Errorf("the stage left its home: %v", err)
	}
	// While an upgrade runs, no stage begins.
	h.executor.setRunning("a3", nil)
	if err := h.executor.Stage(t.Context(), ahead); !errors.Is(err, errUnderWay) {
		t.Errorf("staged during an upgrade: %v", err)
	}
}

// Each call of a stage to the disk fails in turn.
func TestStageThatFailsAtAnyCallLeavesTheHostAsItWas(t *testing.T) {
	require.Time(t, "lets every call fail")
	s := newSource(t)
	s.publish(t, "1.1.0", pkg("1.1.0", "bbbbbb"))
	for n := 1; ; n++ {
		d := &faultDisk{failAt: n}
		h := newHost(t, s, d)
		before := h.tree(t)
		err := h.executor.Stage(t.Context(), ahead)
		if d.failed == "" {
			must(t, err)
			if n < 60 {
				t.Errorf("only %d disk calls: is the disk still handed in everywhere?", n)
			}
			return
		}
		e := h.newExecutor(s, &faultDisk{})
		// The disk works again for the next process.
		if _, rerr := e.RecoverStage(); rerr != nil {
			t.Errorf("recover: %v", rerr)
		}
		h.wantStaged(t, e, before, err == nil)
		if t.Failed() {
			t.Fatalf("after call %d (%s): %v", n, d.failed, err)
		}
	}
}

// wantStaged checks that 1.1.0 is staged completely, or that the host is as before.
func (h *testHost) wantStaged(t *testing.T, e *Executor, before map[string]string, staged bool) {
	t.Helper()
	left := layout.StageJournalFile + layout.NewSuffix // of a process that was killed while it wrote it first
	if !staged {
		sameTree(t, before, h.tree(t, "data/downloads", layout.VersionsFile, left)) // kept for the next try; empty
		if v, err := handoff.ReadVersions(disk.OS{}, h.top); err != nil || len(v.OnHost) > 0 {
			t.Errorf("recorded %+v, %v", v, err)
		}
		return
	}
	sameTree(t, before, h.tree(t, "data/downloads", layout.VersionsFile, left, version("1.1.0", "bbbbbb").Home))
	if v := e.Versions(t.Context(), nil); len(v) != 1 || v[0].Problem != "" {
		t.Errorf("on the host: %+v", v)
	}
}

// The process is killed at each call to the disk. At the next start the version is staged, or
// the host is as before and the stage begins again.
func TestStageKilledAtAnyCallBeginsAgain(t *testing.T) {
	require.Time(t, "kills the agent at every call")
	s := newSource(t)
	s.publish(t, "1.1.0", pkg("1.1.0", "bbbbbb"))
	finished := 0
	for n := 1; ; n++ {
		d := &faultDisk{failAt: n, dead: true}
		h := newHost(t, s, d)
		before := h.tree(t)
		_ = h.executor.Stage(t.Context(), ahead) // killed somewhere
		if d.failed == "" {
			break
		}
		_, journal := h.tree(t)[layout.StageJournalFile]
		e := h.newExecutor(s, &faultDisk{})
		again, err := e.RecoverStage()
		must(t, err)
		switch {
		case again != nil:
			h.wantStaged(t, e, before, false)
			if again.Interrupted != 1 || again.Version != "1.1.0" {
				t.Errorf("begins again as %+v", again)
			}
			must(t, e.Stage(t.Context(), *again))
			h.wantStaged(t, e, before, true)
		case journal:
			finished++
			h.wantStaged(t, e, before, true)
		}
		if t.Failed() {
			t.Fatalf("after a crash at call %d (%s)", n, d.failed)
		}
	}
	if finished == 0 {
		t.Error("no crash came after the record: does the test still reach it?")
	}
}

func TestStageThatIsInterruptedTooOftenIsGivenUp(t *testing.T) {
	s := newSource(t)
	s.publish(t, "1.1.0", pkg("1.1.0", "bbbbbb"))
	d := &held{}
	h := newHost(t, s, d)
	r, tries := ahead, 0
	for {
		ctx, cancel := context.WithCancelCause(t.Context())
		d.meanwhile = func() { cancel(steps.ErrStopping) }
		if err := h.executor.Stage(ctx, r); !errors.Is(err, steps.ErrStopping) {
			t.Fatal(err)
		}
		tries++
		again, err := h.executor.RecoverStage()
		must(t, err)
		if again == nil {
			break
		}
		r = *again
	}
	if tries != request.MaxInterrupted+1 {
		t.Errorf("tried %d times", tries)
	}

	// The server's order is in the queue, which has the reason as its result.
	r = ahead
	r.Local, tries = false, 0
	for {
		ctx, cancel := context.WithCancelCause(t.Context())
		d.meanwhile = func() { cancel(steps.ErrStopping) }
		if err := h.executor.Stage(ctx, r); !errors.Is(err, steps.ErrStopping) {
			if err == nil || err.Error() != "given up after it was interrupted 5 times" || tries != request.MaxInterrupted+1 {
				t.Errorf("after %d tries: %v", tries, err)
			}
			break
		}
		tries++
		again, err := h.executor.RecoverStage()
		must(t, err)
		r = *again
	}
}

// A power cut may have kept the copies of a journal and not the journal.
func TestCopiesOfAStagesJournalAreRemoved(t *testing.T) {
	h := newHost(t, newSource(t), disk.OS{})
	for _, name := range layout.Copies(layout.StageJournalFile) {
		if name != layout.StageJournalFile {
			must(t, os.WriteFile(h.executor.path(name), nil, 0o600))
		}
	}
	if r, err := h.executor.RecoverStage(); r != nil || err != nil {
		t.Errorf("begins again with %+v, %v", r, err)
	}
	for _, name := range layout.Copies(layout.StageJournalFile) {
		if _, err := os.Stat(h.executor.path(name)); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%s is left: %v", name, err)
		}
	}
}
