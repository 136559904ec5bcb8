package upgrade

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"time"

	"github.com/muster-fleet/muster/agent/download"
	"github.com/muster-fleet/muster/packaging/disk"
	"github.com/muster-fleet/muster/packaging/install"
	"github.com/muster-fleet/muster/packaging/layout"
	"github.com/muster-fleet/muster/packaging/manifest"
	"github.com/muster-fleet/muster/packaging/trust"
	"github.com/muster-fleet/muster/server/agentapi"
	"github.com/muster-fleet/muster/watcher/handoff"
)

// Names of the steps, as journals and messages carry them.
const (
	stepPreflight   = "preflight"
	stepDownload    = "download"
	stepVerify      = "verify"
	stepRead        = "read package"
	stepUnpack      = "unpack"
	stepState       = "copy state"
	stepMarker      = "marker"
	stepWatcherLink = "watcher link"
	stepPointer     = "pointer"
	stepCommit      = "active commit"
	stepWatcher     = "start watcher"
	stepRestart     = "restart"
)

// step is one part of an upgrade.
type step struct {
	name  string
	phase agentapi.UpgradeState
	// timeout bounds do. Where do waits for the disk alone it is noticed only
	// once the disk has answered.
	timeout time.Duration
	// fetches: not done by a rollback, whose version is on the host.
	fetches bool
	// final steps can no longer be cancelled by the operator.
	final bool
	// done, where set, says that there is nothing to do.
	done func(*work) bool
	do   func(context.Context, *work) error
	// undo brings back what was before do, also when do did half its work or
	// none. nil: do leaves nothing behind.
	undo func(*Executor, *journal) error
}

// Timeouts of the steps, each for the slowest host that should still succeed.
const (
	// preflightTimeout: a few small files over a link with several attempts.
	preflightTimeout = 10 * time.Minute
	// downloadTimeout: the largest package over a link of 25 kB/s. A link on
	// which nothing comes is given up long before.
	downloadTimeout = 24 * time.Hour
	// readTimeout: 2 GB from a disk that gives 4 MB/s.
	readTimeout = 10 * time.Minute
	// unpackTimeout: 4 GB written and synced at the same rate.
	unpackTimeout = 30 * time.Minute
	// linkTimeout: a few small files, on a disk that others keep busy.
	linkTimeout = time.Minute
)

// steps in their order. The marker and the watcher come before the pointer, so
// that there is no moment in which a new version could start unwatched: a process
// killed right after the pointer moved comes back as a version that may not start
// at all, and then a watcher is all there is.
var steps = []step{
	{name: stepPreflight, phase: agentapi.UpgradeRequested, timeout: preflightTimeout, do: doPreflight, undo: undoPreflight},
	{name: stepDownload, phase: agentapi.UpgradeDownloading, timeout: downloadTimeout, fetches: true, do: doDownload, undo: undoDownload},
	{name: stepVerify, phase: agentapi.UpgradeExtracting, timeout: readTimeout, fetches: true, do: doVerify},
	{name: stepRead, phase: agentapi.UpgradeExtracting, timeout: readTimeout, fetches: true, do: doRead},
	{name: stepUnpack, phase: agentapi.UpgradeExtracting, timeout: unpackTimeout, fetches: true, done: homeReused, do: doUnpack, undo: undoUnpack},
	{name: stepState, phase: agentapi.UpgradeReplacing, timeout: readTimeout, do: doState},
	{name: stepMarker, phase: agentapi.UpgradeReplacing, timeout: linkTimeout, do: doMarker, undo: undoMarker},
	{name: stepWatcherLink, phase: agentapi.UpgradeReplacing, timeout: linkTimeout, do: doWatcherLink, undo: undoWatcherLink},
	{name: stepWatcher, phase: agentapi.UpgradeReplacing, timeout: WatcherReady, do: doWatcher, undo: undoWatcher},
	{name: stepPointer, phase: agentapi.UpgradeReplacing, timeout: linkTimeout, final: true, do: doPointer, undo: undoPointer},
	{name: stepCommit, phase: agentapi.UpgradeReplacing, timeout: linkTimeout, final: true, do: doCommit, undo: undoCommit},
	{name: stepRestart, phase: agentapi.UpgradeRestarting, timeout: linkTimeout, final: true, do: doRestart},
}

// work is what one upgrade knows beyond its journal.
type work struct {
	*Executor
	j      *journal
	expect *trust.Expectation
	checks []manifest.Check
}

func doDownload(ctx context.Context, w *work) error {
	if err := w.pruneDownloads(); err != nil {
		return err
	}
	r := w.j.Request
	want := download.Want{Size: w.expect.Size, SHA512: w.expect.SHA512}
	return fromLink(w.Downloader.Fetch(ctx, w.urls(w.j.Archive), w.path(layout.DownloadsDir), w.j.Archive, want, func(p download.Progress) {
		m := agentapi.UpgradeMetadata{DownloadPercent: p.Percent, DownloadRate: agentapi.Rate(p.BytesPerSecond), RetryErrorMsg: p.Retry}
		if !p.RetryAt.IsZero() {
			m.RetryUntil = &p.RetryAt
		}
		w.report(r, agentapi.UpgradeDownloading, m, true)
	}))
}

func undoDownload(e *Executor, j *journal) error {
	if j.KeepDownload {
		return nil
	}
	dir := e.path(layout.DownloadsDir)
	if err := download.Discard(e.Disk, dir, j.Archive); err != nil {
		return err
	}
	// Only an empty folder goes: another version's download may lie there.
	entries, err := e.Disk.ReadDir(opJournal, dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil || len(entries) > 0 {
		return err
	}
	return e.Disk.Remove(opJournal, dir)
}

func doVerify(_ context.Context, w *work) error {
	f, err := w.Disk.OpenFile("verify", w.archive(), os.O_RDONLY, 0)
	if err != nil {
		return err
	}
	defer f.Close()
	s, err := w.expect.Verify(f)
	if err != nil {
		return err
	}
	w.log().Info("package is from a trusted publisher", "archive", w.j.Archive, "key", s.KeyID)
	return nil
}

func doRead(ctx context.Context, w *work) error {
	c, err := install.InspectOn(ctx, w.Disk, w.archive())
	if err != nil {
		return err
	}
	p := c.Manifest.Package
	if err := p.Fits(w.GOOS, w.GOARCH); err != nil {
		return err
	}
	if p.FullVersion() != w.j.Request.Version {
		return fmt.Errorf("package holds version %s, %s was asked for", p.FullVersion(), w.j.Request.Version)
	}
	if p.Identity() == w.Running.Identity {
		return fmt.Errorf("version %s already runs here", p.Identity())
	}
	if !w.j.Request.Force {
		if err := refuseFailed(w.Disk, w.Top, func(id manifest.Identity) bool { return id == p.Identity() }); err != nil {
			return err
		}
	}
	w.checks = p.Checks
	w.j.To = handoff.Install{Identity: p.Identity(), Home: p.Home()}
	if w.j.To.Home == w.Running.Home {
		return fmt.Errorf("package would unpack over the running version in %s", w.Running.Home)
	}
	return w.findReusable(ctx, p)
}

// findReusable looks for the home on the host: the watcher keeps the previous
// version, and homes are whole or absent. It is written into the journal before
// unpacking begins, so that undoing never takes it away. What a disk has damaged
// since is removed, and unpacked again.
func (w *work) findReusable(ctx context.Context, p manifest.Package) error {
	there, err := install.CheckIntact(ctx, w.Disk, w.Top, p.Home())
	if errors.Is(err, fs.ErrNotExist) && !errors.Is(err, install.ErrDamagedHome) {
		return nil
	}
	if errors.Is(err, install.ErrDamagedHome) {
		w.log().Warn("a damaged version on the host is replaced", "home", p.Home(), "error", err)
		return disk.RemoveHome(w.Disk, w.Top, p.Home())
	}
	if err != nil {
		return err
	}
	if there.Identity() != p.Identity() {
		return fmt.Errorf("%s holds something else than version %s: remove that folder and upgrade again", w.path(p.Home()), p.Identity())
	}
	w.j.Reused = true
	return nil
}

func homeReused(w *work) bool { return w.j.Reused }

func doUnpack(ctx context.Context, w *work) error {
	_, err := install.Unpack(ctx, w.Disk, w.archive(), w.Top)
	return err
}

func undoUnpack(e *Executor, j *journal) error {
	if j.Reused {
		return nil
	}
	staging := e.path(layout.Staging(j.To.Home))
	return errors.Join(e.Disk.RemoveAll(stepUnpack, staging), disk.RemoveHome(e.Disk, e.Top, j.To.Home))
}

func doState(_ context.Context, w *work) error {
	return disk.CopyTree(w.Disk, stepState, w.path(path.Join(w.Running.Home, layout.RunDir)), w.path(path.Join(w.j.To.Home, layout.RunDir)))
}

func doMarker(_ context.Context, w *work) error {
	// One that is left over from another watch must not end this one.
	if err := handoff.RemoveRequest(w.Disk, w.Top); err != nil {
		return err
	}
	rules := w.Rules
	// Those of the version that comes: it knows what it has to do.
	rules.Checks = w.checks
	return handoff.WriteMarker(w.Disk, w.Top, handoff.Marker{
		ActionID: w.j.Request.ActionID, From: w.j.From, To: w.j.To,
		CreatedAt: time.Now().UTC(), Rules: rules, Restart: w.Restart,
	})
}

func undoMarker(e *Executor, _ *journal) error {
	return errors.Join(e.Disk.Remove(stepMarker, e.path(layout.MarkerFile)+layout.NewSuffix), handoff.RemoveMarker(e.Disk, e.Top))
}

// doWatcherLink picks the watcher: the new version's if it understands our
// marker, since it knows the new version best; else the one that is there.
func doWatcherLink(ctx context.Context, w *work) error {
	old, err := readlink(w.Disk, stepWatcherLink, w.path(layout.WatcherLink))
	if err != nil {
		return err
	}
	rel := path.Join(w.j.To.Home, watcherName)
	if why := w.watcherUnfit(ctx, w.path(rel)); why != nil {
		w.log().Info("the previous watcher watches: the new version's cannot", "why", why)
		if old == "" {
			return fmt.Errorf("no watcher: the package's cannot be used (%w) and there is none at %s", why, w.path(layout.WatcherLink))
		}
		return nil
	}
	return w.point(stepWatcherLink, rel, layout.WatcherLink, &w.j.OldWatcher, old)
}

func (w *work) watcherUnfit(ctx context.Context, program string) error {
	if _, err := w.Disk.Lstat(stepWatcherLink, program); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, HandshakeTimeout)
	defer cancel()
	version, err := w.Watchers.MarkerVersion(ctx, program)
	if err == nil && version < handoff.MarkerVersion {
		err = fmt.Errorf("it understands markers up to version %d, this one is %d", version, handoff.MarkerVersion)
	}
	return err
}

func undoWatcherLink(e *Executor, j *journal) error {
	return e.pointBack(stepWatcherLink, j.OldWatcher, layout.WatcherLink)
}

func doPointer(_ context.Context, w *work) error {
	old, err := readlink(w.Disk, stepPointer, w.path(layout.AgentLink))
	if err != nil {
		return err
	}
	return w.point(stepPointer, path.Join(w.j.To.Home, agentName), layout.AgentLink, &w.j.OldPointer, old)
}

func undoPointer(e *Executor, j *journal) error {
	return e.pointBack(stepPointer, j.OldPointer, layout.AgentLink)
}

// point moves a link after noting in the journal where it led.
func (w *work) point(op, target, link string, note *string, old string) error {
	*note = old
	if err := w.j.write(w.Disk, w.Top); err != nil {
		return err
	}
	return disk.Point(w.Disk, op, filepath.FromSlash(target), w.path(link))
}

// pointBack restores a link. Nothing noted means that it was not touched. The
// left-over of an interrupted move goes too: it would lead into the home that is
// about to be removed.
func (e *Executor) pointBack(op, old, link string) error {
	if err := e.Disk.Remove(op, e.path(link)+layout.NewSuffix); err != nil {
		return err
	}
	now, err := readlink(e.Disk, op, e.path(link))
	if err != nil || old == "" || now == old {
		return err
	}
	return disk.Point(e.Disk, op, old, e.path(link))
}

// readlink returns "" for a link that is not there.
func readlink(d disk.Disk, op, link string) (string, error) {
	target, err := d.Readlink(op, link)
	if errors.Is(err, fs.ErrNotExist) {
		return "", nil
	}
	return target, err
}

func doCommit(_ context.Context, w *work) error {
	old, err := w.Disk.ReadFile(stepCommit, w.path(layout.ActiveCommitFile))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	w.j.OldCommit = string(old)
	if err := w.j.write(w.Disk, w.Top); err != nil {
		return err
	}
	return disk.WriteFile(w.Disk, stepCommit, w.path(layout.ActiveCommitFile), []byte(w.j.To.Hash+"\n"), 0o644)
}

func undoCommit(e *Executor, j *journal) error {
	file := e.path(layout.ActiveCommitFile)
	if err := e.Disk.Remove(stepCommit, file+layout.NewSuffix); err != nil {
		return err
	}
	now, err := e.Disk.ReadFile(stepCommit, file)
	switch {
	case errors.Is(err, fs.ErrNotExist) && j.OldCommit == "":
		return nil
	case err == nil && string(now) == j.OldCommit, err == nil && string(now) != j.To.Hash+"\n":
		return nil
	case j.OldCommit == "":
		return e.Disk.Remove(stepCommit, file)
	}
	return disk.WriteFile(e.Disk, stepCommit, file, []byte(j.OldCommit), 0o644)
}

func doWatcher(ctx context.Context, w *work) error {
	// The last moment to refuse what nobody could start.
	if err := w.executable(w.j.To.Home, agentName); err != nil {
		return err
	}
	watcher, err := w.Watchers.Start(ctx, w.path(layout.WatcherLink), w.Top)
	if err != nil {
		return fmt.Errorf("watcher: %w", err)
	}
	w.watcher = watcher
	w.j.WatcherPID = watcher.PID()
	return nil
}

// undoWatcher stops the watcher this process has started. It comes after the
// pointer has gone back: until then somebody must be there to put it back. One
// that an earlier process started leaves when the marker goes.
func undoWatcher(e *Executor, _ *journal) error {
	if e.watcher == nil {
		return nil
	}
	if err := e.watcher.Stop(); err != nil {
		return fmt.Errorf("stop watcher: %w", err)
	}
	e.watcher = nil
	return nil
}

func doRestart(ctx context.Context, w *work) error {
	err := w.HandOver(ctx, w.j.Request, w.path(w.j.To.Home))
	if err == nil {
		return nil
	}
	return fmt.Errorf("start version %s in place: %w", w.j.Request.Version, err)
}
