// Package upgrade switches a host to another version: it fetches a package, verifies
// it with package trust, unpacks it beside the running version, writes the marker,
// starts the watcher, moves the pointer and re-executes the agent. The daemon calls
// it; the watcher decides whether the new version stays. DESIGN.md describes the
// steps; package steps runs them.
//
// A failed upgrade is undone, and the host is as before. Undoing depends only on the
// journal and the host, so it is the same after an error and after a crash.
package upgrade

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/muster-fleet/muster/agent/download"
	"github.com/muster-fleet/muster/agent/request"
	"github.com/muster-fleet/muster/agent/steps"
	"github.com/muster-fleet/muster/packaging/host/disk"
	"github.com/muster-fleet/muster/packaging/host/layout"
	"github.com/muster-fleet/muster/packaging/pkg/manifest"
	"github.com/muster-fleet/muster/packaging/pkg/trust"
	"github.com/muster-fleet/muster/server/wire/agentapi"
	"github.com/muster-fleet/muster/watcher/handoff"
)

const (
	// WatcherReady is how long a watcher may take from its start to its line
	// "watching": it reads one small file and acquires a lock.
	WatcherReady = 30 * time.Second
	// HandshakeTimeout is how long a package's program may take to print the marker
	// version it understands, or its own version.
	HandshakeTimeout = 5 * time.Second

	archiveFormat = "tar.gz"
	windowsFormat = "zip" // of the packages for Windows, which people open without other programs
	watcherName   = layout.WatcherLink
	agentName     = layout.AgentLink
)

// Downloader fetches a file from the first of several URLs that has it; see
// download.Fetcher.
type Downloader interface {
	Find(ctx context.Context, urls []string) error
	Small(ctx context.Context, urls []string, limit int64) ([]byte, error)
	// CheckNamed returns an error unless the server may name uri as a source.
	CheckNamed(uri string) error
	Fetch(ctx context.Context, urls []string, dir, name string, want download.Want, report func(download.Progress)) error
}

// Watcher is a running watcher.
type Watcher interface {
	PID() int
	// Stop ends the watcher and waits for its process to exit, at most until ctx ends.
	Stop(ctx context.Context) error
}

// Watchers starts watchers.
type Watchers interface {
	// MarkerVersion returns the marker version that the program at path understands.
	MarkerVersion(ctx context.Context, path string) (int, error)
	// Start starts the watcher of the host under top as a detached process, and
	// returns once it watches.
	Start(ctx context.Context, path, top string) (Watcher, error)
}

// Executor runs upgrades and stages, one at a time.
type Executor struct {
	Disk disk.Disk
	// Top is the host's top folder, absolute.
	Top string
	// Links is the folder of the pointer and the watcher's link if it is not Top; see
	// [layout.Roots].
	Links        string
	GOOS, GOARCH string
	// Running is the version that runs this code.
	Running handoff.Install
	// Trust decides which packages may be installed; nil refuses all.
	Trust      trust.Authority
	Downloader Downloader
	Watchers   Watchers
	// Startable returns an error if an agent's program does not start; nil skips
	// the check.
	Startable func(ctx context.Context, program string) error
	// ReadsStart returns an error if this version would not start again, or not with the
	// configuration that is on the disk; nil skips the check. CheckStart asks another version's
	// program the same, which may know other keys, and returns an error that is [request.ErrSettings].
	ReadsStart func() error
	CheckStart func(ctx context.Context, program, top string) error
	// Sources are base URLs of packages, in the order in which they are tried. The
	// source that an action names comes first.
	Sources []string
	// PolicySource returns the base URL that the policy names, or "": it is tried before
	// the last of Sources, the agent's own server. nil means none.
	PolicySource func() string
	// Rules and Restart are written into the marker.
	Rules   handoff.Rules
	Restart handoff.Restart
	// Before returns what is written into the marker too; nil: nothing is known.
	Before func() handoff.Before
	// Keep bounds the versions on the host besides the one that runs.
	Keep handoff.Limits
	// PauseStops waits until no component is stopped for its own upgrade, and keeps others from
	// being stopped until resume is called: nothing starts a component again while the
	// agent restarts. nil: there are no components.
	PauseStops func(ctx context.Context) (resume func(), err error)
	// Reexec replaces the running process by the version in home. It returns only
	// if that fails.
	Reexec func(ctx context.Context, r request.Request, home string) error
	// Report receives every phase, and the progress within one.
	Report func(d agentapi.UpgradeDetails, progress bool)
	// Staging is Report for stages; nil ignores them.
	Staging func(d agentapi.UpgradeDetails, progress bool)
	Log     *slog.Logger

	// changing is held by what changes the versions on the host, and recording by what changes their
	// record: the end of a watch is recorded whatever is changing.
	changing  lock
	recording sync.Mutex
	watcher   Watcher // started by the running upgrade, or nil
	resume    func()  // of PauseStops, or nil

	mu       sync.Mutex
	running  string // id of the running request
	cancel   context.CancelCauseFunc
	early    earlyCancel
	ended    string                  // id of the last request that ran
	counted  map[string]time.Time    // when this process counted the versions, by home; see Executor.count
	endStage context.CancelCauseFunc // of the running stage, or nil
}

// errUnderWay is returned for what must wait for an upgrade or a stage to end.
var errUnderWay = fmt.Errorf("%w: a version is being installed on this host", request.ErrBusy)

// Upgrade runs r. If it succeeds, Reexec has replaced the process and Upgrade does not
// return; it returns nil if Reexec does. Otherwise the error is a [*request.Failure], or
// [steps.ErrStopping] if the upgrade is to begin again later. The caller calls
// [Executor.Conclude] for a failure that it will not retry.
func (e *Executor) Upgrade(ctx context.Context, r request.Request) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	e.begin(r.ID, cancel)
	defer e.end(r.ID)
	e.changing.Lock()
	defer e.changing.Unlock()
	_, err := e.do(ctx, r)
	return err
}

// do does the steps of r, and undoes them if one fails.
func (e *Executor) do(ctx context.Context, r request.Request) (*work, error) {
	if err := e.undoLeftovers(); err != nil {
		return nil, &request.Failure{State: agentapi.UpgradeRequested, Step: stepPreflight, Err: err, Transient: true}
	}
	e.watcher = nil
	w := e.newWork(&journal{Request: r, From: e.Running, Archive: e.archiveName(r.Version)})
	step, err := w.run.Do(ctx)
	_ = w.pkg.Close() // it was only read; undoing may remove it
	if r.Stage && errors.Is(err, steps.ErrStopping) {
		// Only the journal knows of it: the next start undoes it and begins again.
		return w, steps.ErrStopping
	}
	if err != nil {
		return w, w.fail(&request.Failure{State: phases[step], Step: step, Err: err, Transient: transient(step, err)})
	}
	return w, nil
}

// archiveName returns the file name of a version's archive.
func (e *Executor) archiveName(version string) string {
	format := archiveFormat
	if e.GOOS == "windows" {
		format = windowsFormat
	}
	return manifest.ArchiveName(version, e.GOOS, e.GOARCH, format)
}

// UndoLeftover undoes an earlier upgrade or stage whose undoing failed, for instance on a full
// disk. Its journal must not be overwritten before. It returns [request.ErrBusy] while an upgrade or
// a stage runs, which has begun with this itself.
func (e *Executor) UndoLeftover() error {
	if !e.changing.TryLock() {
		return errUnderWay
	}
	defer e.changing.Unlock()
	return e.undoLeftovers()
}

// undoLeftovers is UndoLeftover with changing locked.
func (e *Executor) undoLeftovers() error {
	for _, file := range []steps.File{e.journalFile(), e.stageFile()} {
		j, err := steps.Read[journal](file)
		if errors.Is(err, disk.ErrDamaged) {
			continue
		}
		if err != nil {
			return err
		}
		if j == nil {
			continue
		}
		if e.isStaged(j) {
			err = e.concludeStage(j)
		} else {
			err = e.newWork(j).run.Undo()
		}
		if err != nil {
			return fmt.Errorf("an earlier upgrade to %s could not be undone: %w", j.Request.Version, err)
		}
	}
	return nil
}

// Refuse returns the failure of an upgrade that cannot begin.
func Refuse(why error) *request.Failure {
	return &request.Failure{State: agentapi.UpgradeRequested, Step: stepPreflight, Err: why}
}

// Conclude stores and reports a final failure. It stays reported until the next upgrade
// begins.
func (e *Executor) Conclude(r request.Request, f *request.Failure) {
	details := f.Details(r)
	if err := saveFailure(e.Disk, e.Top, details); err != nil {
		e.log().Warn("the failure of an upgrade was not stored", "error", err)
	}
	e.Report(details, false)
}

// transient reports whether a retry may succeed: on a loaded host a step takes longer, and a watcher does not start.
func transient(step string, err error) bool {
	return request.Transient(err, errors.Is(err, steps.ErrTimeout) || step == stepWatcher)
}

// fail undoes the upgrade. It returns f, joined with the error of an undo that failed,
// or [steps.ErrStopping].
func (w *work) fail(f *request.Failure) error {
	stopping := errors.Is(f.Err, steps.ErrStopping)
	// The upgrade that ends a stage may be to the same version.
	w.j.KeepDownload = stopping || f.Transient || errors.Is(f.Err, request.ErrOvertaken)
	w.j.FailedState, w.j.FailedTransient = f.State, f.Transient
	err := w.run.Fail(f.Step, f.Err)
	if err != nil {
		// The journal stays. The daemon tries again, as do the next upgrade and the next start.
		f.Err = fmt.Errorf("%w; and the host could not be restored: %w", f.Err, err)
	}
	if stopping {
		return errors.Join(steps.ErrStopping, err)
	}
	return f
}

// Cancel stops the upgrade with the given id and reports whether it could: it must be
// running, and its pointer not moved yet, or be about to run. The upgrade fails with the
// reason why.
func (e *Executor) Cancel(id, why string) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	switch {
	case e.running == "" && e.ended != id:
		// The queue has begun the upgrade, and Upgrade was not called yet.
		e.early = earlyCancel{id, steps.Cancelled(why)}
		return true
	case e.running != id || e.cancel == nil:
		return false
	}
	e.cancel(steps.Cancelled(why))
	return true
}

// earlyCancel is a Cancel before the upgrade runs.
type earlyCancel struct {
	id  string
	why error
}

// begin is setRunning for an upgrade that may have been cancelled already. It ends a stage.
func (e *Executor) begin(id string, cancel context.CancelCauseFunc) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.running, e.cancel = id, cancel
	if e.early.id == id && e.early.why != nil {
		cancel(e.early.why)
	}
	e.early = earlyCancel{}
	if e.endStage != nil {
		e.endStage(request.ErrOvertaken)
	}
}

func (e *Executor) end(id string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.running, e.cancel, e.ended = "", nil, id
}

func (e *Executor) setRunning(id string, cancel context.CancelCauseFunc) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.running, e.cancel = id, cancel
}

func (e *Executor) report(r request.Request, state agentapi.UpgradeState, m agentapi.UpgradeMetadata, progress bool) {
	to := e.Report
	if r.Stage {
		to = e.Staging
	}
	if to != nil {
		to(agentapi.UpgradeDetails{TargetVersion: r.Version, ActionID: r.ActionID, State: state, Metadata: m}, progress)
	}
}

// marker returns the marker of an upgrade that is being watched, or nil.
func (e *Executor) marker() *handoff.Marker {
	m, err := handoff.ReadMarker(e.Disk, e.Top)
	if err != nil {
		e.log().Warn("an unreadable upgrade marker is ignored", "error", err)
	}
	return m
}

func (e *Executor) path(name string) string { return layout.Path(e.Top, name) }

func (e *Executor) roots() layout.Roots { return layout.Roots{Top: e.Top, Links: e.Links} }

func (e *Executor) log() *slog.Logger {
	if e.Log != nil {
		return e.Log
	}
	return slog.New(slog.DiscardHandler)
}
