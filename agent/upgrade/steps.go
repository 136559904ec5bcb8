package upgrade

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path"
	"slices"
	"time"

	"github.com/muster-fleet/muster/agent/download"
	"github.com/muster-fleet/muster/agent/steps"
	"github.com/muster-fleet/muster/packaging/host/disk"
	"github.com/muster-fleet/muster/packaging/host/layout"
	"github.com/muster-fleet/muster/packaging/pkg/install"
	"github.com/muster-fleet/muster/packaging/pkg/manifest"
	"github.com/muster-fleet/muster/packaging/pkg/trust"
	"github.com/muster-fleet/muster/server/wire/agentapi"
	"github.com/muster-fleet/muster/watcher/handoff"
)

// Names of the steps in journals and messages. Journals hold them, so they never change.
const (
	stepPreflight   = "preflight"
	stepDownload    = "download"
	stepVerify      = "verify"
	stepRead        = "read package"
	stepUnpack      = "unpack"
	stepRecord      = "record version" // the last one of a stage
	stepHold        = "hold components"
	stepState       = "copy state"
	stepMarker      = "marker"
	stepWatcherLink = "watcher link"
	stepPointer     = "pointer"
	stepCommit      = "active commit"
	stepWatcher     = "start watcher"
	stepRestart     = "restart"
)

// Timeouts of the steps, each for the slowest host that should still succeed.
const (
	// preflightTimeout: a few small files over a link with several attempts.
	preflightTimeout = 10 * time.Minute
	// downloadTimeout: the largest package over a link of 25 kB/s. A link without
	// any bytes times out long before.
	downloadTimeout = 24 * time.Hour
	// readTimeout: 2 GB from a disk at 4 MB/s.
	readTimeout = 10 * time.Minute
	// unpackTimeout: 4 GB written and synced at the same rate.
	unpackTimeout = 30 * time.Minute
	// holdTimeout: a component takes a minute to stop, and as long again to be switched and
	// started.
	holdTimeout = 5 * time.Minute
	// restartTimeout: the queue is copied once more, and every component is stopped.
	restartTimeout = time.Minute
)

// phases maps each step to the phase that is reported during it.
var phases = map[string]agentapi.UpgradeState{
	stepPreflight:   agentapi.UpgradeRequested,
	stepDownload:    agentapi.UpgradeDownloading,
	stepVerify:      agentapi.UpgradeExtracting,
	stepRead:        agentapi.UpgradeExtracting,
	stepUnpack:      agentapi.UpgradeExtracting,
	stepRecord:      agentapi.UpgradeExtracting,
	stepHold:        agentapi.UpgradeReplacing,
	stepState:       agentapi.UpgradeReplacing,
	stepMarker:      agentapi.UpgradeReplacing,
	stepWatcherLink: agentapi.UpgradeReplacing,
	stepWatcher:     agentapi.UpgradeReplacing,
	stepPointer:     agentapi.UpgradeReplacing,
	stepCommit:      agentapi.UpgradeReplacing,
	stepRestart:     agentapi.UpgradeRestarting,
}

// change is all that undoing may use: the host and the journal.
type change struct {
	*Executor
	j *journal
}

// work is a running upgrade.
type work struct {
	change
	run    *steps.Run
	phase  agentapi.UpgradeState // the last one reported
	expect *trust.Expectation
	pkg    *install.Archive // open from the verify step on; nil before
	checks []manifest.Check
	// only is the build that the package must be; nil allows every one.
	only *manifest.Identity
	// source is trust.Expectation.Archive of the archive that To is unpacked from, as far as it is
	// known.
	source string
	// onHost means that To is on the host and intact, so that nothing is fetched.
	onHost bool
}

// newWork returns the work for j. The daemon has already reported the first phase.
func (e *Executor) newWork(j *journal) *work {
	w := &work{change: change{e, j}, phase: agentapi.UpgradeRequested}
	file := e.journalFile()
	if j.Request.Stage {
		file = e.stageFile()
	}
	w.run = &steps.Run{Steps: w.steps(), Journal: j, File: file, Begins: w.begins, Log: e.log()}
	return w
}

// steps returns the steps of the upgrade in order. The marker and the watcher come
// before the pointer, so that a new version never starts unwatched: if the process is
// killed right after the pointer has moved and the new version does not start, only a
// running watcher can put the old one back.
func (w *work) steps() []steps.Step {
	preflight := []steps.Step{
		{Name: stepPreflight, Timeout: preflightTimeout, Do: w.preflight, Undo: w.undoPreflight},
	}
	fetch := []steps.Step{
		{Name: stepDownload, Timeout: downloadTimeout, Done: w.isOnHost, Do: w.download, Undo: w.undoDownload},
		{Name: stepVerify, Timeout: readTimeout, Done: w.isOnHost, Do: w.verify},
		{Name: stepRead, Timeout: readTimeout, Done: w.isOnHost, Do: w.readPackage},
		{Name: stepUnpack, Timeout: unpackTimeout, Done: w.unpacked, Do: w.unpack, Undo: w.undoUnpack},
	}
	record := []steps.Step{
		{Name: stepRecord, Done: w.isOnHost, Do: w.record, Undo: w.undoRecord},
	}
	replace := []steps.Step{
		{Name: stepHold, Timeout: holdTimeout, Do: w.pauseStops, Undo: w.undoPauseStops},
		{Name: stepState, Timeout: readTimeout, Do: w.copyState},
		{Name: stepMarker, Do: w.writeMarker, Undo: w.undoMarker},
		{Name: stepWatcherLink, Do: w.pointWatcher, Undo: w.undoWatcherLink},
		{Name: stepWatcher, Timeout: WatcherReady, Do: w.startWatcher, Undo: w.undoWatcher},
		{Name: stepPointer, Do: w.pointAgent, Undo: w.undoPointer},
		{Name: stepCommit, Do: w.writeCommit, Undo: w.undoCommit},
		{Name: stepRestart, Timeout: restartTimeout, Do: w.restart},
	}
	if w.j.Request.Stage {
		return slices.Concat(preflight, fetch, record)
	}
	if w.j.Request.Rollback {
		fetch = nil // the version is on the host
	}
	return slices.Concat(preflight, fetch, replace)
}

// begins reports the phase. From the pointer step on an upgrade cannot be cancelled.
func (w *work) begins(s steps.Step) {
	if phase := phases[s.Name]; phase != w.phase && !(w.onHost && (phase == agentapi.UpgradeDownloading || phase == agentapi.UpgradeExtracting)) {
		w.phase = phase
		w.report(w.j.Request, phase, agentapi.UpgradeMetadata{}, false)
	}
	if s.Name == stepPointer {
		w.setRunning(w.j.Request.ID, nil)
	}
}

func (w *work) download(ctx context.Context) error {
	if err := w.pruneDownloads(); err != nil {
		return err
	}
	r := w.j.Request
	want := download.Want{Size: w.expect.Size, SHA512: w.expect.SHA512}
	return w.Fetch(ctx, w.path(layout.DownloadsDir), w.j.Archive, r.SourceURI, want, func(p download.Progress) {
		m := agentapi.UpgradeMetadata{DownloadPercent: p.Percent, DownloadRate: agentapi.Rate(p.BytesPerSecond), RetryErrorMsg: p.Retry}
		if !p.RetryAt.IsZero() {
			m.RetryUntil = &p.RetryAt
		}
		w.report(r, agentapi.UpgradeDownloading, m, true)
	})
}

func (c change) undoDownload(context.Context) error {
	if c.j.KeepDownload {
		return nil
	}
	dir := c.path(layout.DownloadsDir)
	if err := download.Discard(c.Disk, dir, c.j.Archive); err != nil {
		return err
	}
	// The folder may hold another version's download.
	entries, err := c.Disk.ReadDir(stepDownload, dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil || len(entries) > 0 {
		return err
	}
	return c.Disk.Remove(stepDownload, dir)
}

// verify opens the archive, which stays open until it is unpacked, and verifies and scans it
// in one reading.
func (w *work) verify(ctx context.Context) (err error) {
	var s trust.Statement
	w.pkg, err = install.Open(ctx, w.Disk, w.archive(), func(r io.Reader) (err error) {
		s, err = w.expect.Verify(r)
		return err
	})
	if err != nil {
		return err
	}
	w.log().Info("package is from a trusted publisher", "archive", w.j.Archive, "key", s.KeyID)
	return nil
}

func (w *work) readPackage(ctx context.Context) error {
	p := w.pkg.Manifest.Package
	if err := w.accept(p); err != nil {
		return err
	}
	return w.findReusable(ctx, p)
}

// accept checks that the package is the one that was asked for and fits the host.
func (w *work) accept(p manifest.Package) error {
	if err := errors.Join(p.CheckComponent(""), p.Fits(w.GOOS, w.GOARCH)); err != nil {
		return err
	}
	if p.FullVersion() != w.j.Request.Version {
		return fmt.Errorf("package holds version %s, %s was asked for", p.FullVersion(), w.j.Request.Version)
	}
	if w.only != nil && p.Identity() != *w.only {
		return fmt.Errorf("package holds %s, which is older than versions that were committed on this host, and not %s, which is kept for a rollback", p.Identity(), *w.only)
	}
	if p.Identity() == w.Running.Identity {
		return fmt.Errorf("version %s already runs here", p.Identity())
	}
	if err := w.j.Request.CheckFailed(w.recorded(), p.Hash, w.source); err != nil {
		return err
	}
	w.checks = p.Checks
	w.j.To = handoff.Install{Identity: p.Identity(), Home: p.Home()}
	if w.j.To.Home == w.Running.Home {
		return fmt.Errorf("package would unpack over the running version in %s", w.Running.Home)
	}
	return nil
}

// findReusable checks whether the home exists already, as that of a version that ran before.
// The journal records that before the unpack step, so that undoing never
// removes the home. A damaged home is removed and unpacked again.
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

func (w *work) unpacked(context.Context) (bool, error) { return w.j.Reused, nil }

func (w *work) isOnHost(context.Context) (bool, error) { return w.onHost, nil }

func (w *work) unpack(ctx context.Context) error {
	_, err := w.pkg.Unpack(ctx, w.Top)
	return err
}

func (c change) undoUnpack(context.Context) error {
	if c.j.Reused {
		return nil
	}
	staging := c.path(layout.Staging(c.j.To.Home))
	return errors.Join(c.Disk.RemoveAll(stepUnpack, staging), disk.RemoveHome(c.Disk, c.Top, c.j.To.Home))
}

// pauseStops has no part in the journal: it ends with the process.
func (w *work) pauseStops(ctx context.Context) (err error) {
	if w.PauseStops != nil {
		w.Executor.resume, err = w.PauseStops(ctx)
	}
	return err
}

func (c change) undoPauseStops(context.Context) error {
	if c.resume != nil {
		c.resume()
		c.Executor.resume = nil
	}
	return nil
}

func (w *work) copyState(ctx context.Context) error {
	return disk.CopyTree(ctx, w.Disk, stepState, w.path(path.Join(w.Running.Home, layout.RunDir)), w.path(path.Join(w.j.To.Home, layout.RunDir)))
}

func (w *work) writeMarker(_ context.Context) error {
	// A request left over from another watch must not end this one.
	if err := handoff.RemoveRequest(w.Disk, w.Top); err != nil {
		return err
	}
	// Before the watcher runs beside this process, which writes its journal meanwhile.
	if err := handoff.ReserveDecision(w.Disk, w.Top); err != nil {
		return err
	}
	rules := w.Rules
	// The new version's checks, from its manifest.
	rules.Checks = w.checks
	rules.Keep = w.Keep
	var before handoff.Before
	if w.Before != nil {
		before = w.Before()
	}
	return handoff.WriteMarker(w.Disk, w.Top, handoff.Marker{
		ActionID: w.j.Request.ActionID, From: w.j.From, To: w.j.To, Archive: w.source,
		CreatedAt: time.Now().UTC(), Rules: rules, Restart: w.Restart, Before: before,
	})
}

func (c change) undoMarker(context.Context) error {
	return errors.Join(c.Disk.Remove(stepMarker, c.path(layout.MarkerFile)+layout.NewSuffix), handoff.RemoveMarker(c.Disk, c.Top),
		c.Disk.Remove(stepMarker, c.path(layout.DecisionFile)+layout.NewSuffix), handoff.RemoveDecision(c.Disk, c.Top))
}

// pointWatcher selects the watcher: the new version's if it understands this version's
// marker, otherwise the one that is linked already.
func (w *work) pointWatcher(ctx context.Context) error {
	old, err := readlink(w.Disk, stepWatcherLink, w.roots().Link(layout.WatcherLink))
	if err != nil {
		return err
	}
	if why := w.watcherUnfit(ctx, w.path(path.Join(w.j.To.Home, watcherName))); why != nil {
		w.log().Info("the previous watcher watches: the new version's cannot", "why", why)
		if old == "" {
			return fmt.Errorf("no watcher: the package's cannot be used (%w) and there is none at %s", why, w.roots().Link(layout.WatcherLink))
		}
		return nil
	}
	return w.point(stepWatcherLink, layout.WatcherLink, &w.j.OldWatcher, old)
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

func (c change) undoWatcherLink(context.Context) error {
	return c.pointBack(stepWatcherLink, c.j.OldWatcher, layout.WatcherLink)
}

func (w *work) pointAgent(_ context.Context) error {
	old, err := readlink(w.Disk, stepPointer, w.roots().Link(layout.AgentLink))
	if err != nil {
		return err
	}
	return w.point(stepPointer, layout.AgentLink, &w.j.OldPointer, old)
}

func (c change) undoPointer(context.Context) error {
	return c.pointBack(stepPointer, c.j.OldPointer, layout.AgentLink)
}

// point moves a link to the new version after it has saved the old target in the journal's
// field.
func (w *work) point(op, link string, field *string, old string) error {
	*field = old
	if err := w.run.Save(); err != nil {
		return err
	}
	return disk.Point(w.Disk, op, w.roots().Target(w.j.To.Home, link), w.roots().Link(link))
}

// pointBack restores a link. An empty old means that it was not moved. It also removes
// the temporary link of an interrupted move, which may lead into the home that is about
// to be removed.
func (c change) pointBack(op, old, name string) error {
	link := c.roots().Link(name)
	if err := c.Disk.Remove(op, link+layout.NewSuffix); err != nil {
		return err
	}
	now, err := readlink(c.Disk, op, link)
	if err != nil || old == "" || now == old {
		return err
	}
	return disk.Point(c.Disk, op, old, link)
}

// readlink returns "" if the link does not exist.
func readlink(d disk.Disk, op, link string) (string, error) {
	target, err := d.Readlink(op, link)
	if errors.Is(err, fs.ErrNotExist) {
		return "", nil
	}
	return target, err
}

func (w *work) writeCommit(_ context.Context) error {
	old, err := w.Disk.ReadFile(stepCommit, w.path(layout.ActiveCommitFile))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	w.j.OldCommit = string(old)
	if err := w.run.Save(); err != nil {
		return err
	}
	return disk.WriteFile(w.Disk, stepCommit, w.path(layout.ActiveCommitFile), []byte(w.j.To.Hash+"\n"), 0o644)
}

func (c change) undoCommit(context.Context) error {
	file := c.path(layout.ActiveCommitFile)
	if err := c.Disk.Remove(stepCommit, file+layout.NewSuffix); err != nil {
		return err
	}
	now, err := c.Disk.ReadFile(stepCommit, file)
	switch {
	case errors.Is(err, fs.ErrNotExist) && c.j.OldCommit == "":
		return nil
	case err == nil && string(now) == c.j.OldCommit, err == nil && string(now) != c.j.To.Hash+"\n":
		return nil
	case c.j.OldCommit == "":
		return c.Disk.Remove(stepCommit, file)
	}
	return disk.WriteFile(c.Disk, stepCommit, file, []byte(c.j.OldCommit), 0o644)
}

func (w *work) startWatcher(ctx context.Context) error {
	// Check the new program before anything is switched.
	if err := w.executable(w.j.To.Home, agentName); err != nil {
		return err
	}
	if w.CheckStart != nil {
		check, cancel := context.WithTimeout(ctx, HandshakeTimeout)
		defer cancel()
		if err := w.CheckStart(check, w.path(path.Join(w.j.To.Home, agentName)), w.Top); err != nil {
			return fmt.Errorf("version %s: %w", w.j.Request.Version, err)
		}
	}
	watcher, err := w.Watchers.Start(ctx, w.path(layout.WatcherLink), w.Top)
	if err != nil {
		return fmt.Errorf("watcher: %w", err)
	}
	w.watcher = watcher
	w.j.WatcherPID = watcher.PID()
	return nil
}

// undoWatcher stops the watcher that this process started. It runs after undoPointer,
// because until then the watcher must be able to restore the pointer. A watcher of an
// earlier process exits when the marker is removed.
func (c change) undoWatcher(ctx context.Context) error {
	if c.watcher == nil {
		return nil
	}
	if err := c.watcher.Stop(ctx); err != nil {
		return fmt.Errorf("stop watcher: %w", err)
	}
	c.watcher = nil
	return nil
}

func (w *work) restart(ctx context.Context) error {
	err := w.Reexec(ctx, w.j.Request, w.path(w.j.To.Home))
	if err == nil {
		return nil
	}
	return fmt.Errorf("start version %s in place: %w", w.j.Request.Version, err)
}
