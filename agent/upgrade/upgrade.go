// Package upgrade moves a host to another version: it fetches a package, asks
// package trust whether it may be installed, unpacks it beside the running
// version, writes the marker, moves the pointer, starts the watcher and hands
// over. The daemon calls it and tells it how to restart; the watcher judges the
// result. See DESIGN.md beside this file for the order of the steps.
//
// Until the pointer moves, whatever fails is undone and the host is as before.
// Undoing reads the journal only, so that it is the same work after an error and
// after a crash.
package upgrade

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"sync"
	"syscall"
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

const (
	// WatcherReady is how long a watcher may take from its start to its line
	// "watching": it has to read one small file and take a lock.
	WatcherReady = 30 * time.Second
	// HandshakeTimeout is how long a program of a package may take to say which
	// marker it understands, or that it can be started at all.
	HandshakeTimeout = 5 * time.Second

	archiveFormat = "tar.gz"
	watcherName   = layout.WatcherLink
	agentName     = layout.AgentLink
)

// Downloader fetches files, from the first of several URLs that has them; see
// download.Fetcher.
type Downloader interface {
	Stat(ctx context.Context, urls []string) (download.Info, error)
	Small(ctx context.Context, urls []string) ([]byte, error)
	Fetch(ctx context.Context, urls []string, dir, name string, want download.Want, report func(download.Progress)) error
}

// Watcher is a watcher that has been started.
type Watcher interface {
	PID() int
	// Stop ends it, and returns when it is gone.
	Stop() error
}

// Watchers starts watchers and asks them what they understand.
type Watchers interface {
	// MarkerVersion asks the program at path.
	MarkerVersion(ctx context.Context, path string) (int, error)
	// Start runs the watcher of the host under top, detached, and returns once
	// it watches.
	Start(ctx context.Context, path, top string) (Watcher, error)
}

// Executor carries out upgrades, one at a time.
type Executor struct {
	Disk disk.Disk
	// Top is the host's top folder, absolute.
	Top          string
	GOOS, GOARCH string
	// Running is the version that runs this code.
	Running handoff.Install
	// Trust decides what may be installed; nil refuses everything.
	Trust      trust.Authority
	Downloader Downloader
	Watchers   Watchers
	// Startable runs a kept agent's program, far enough to know that it starts;
	// nil asks nobody.
	Startable func(ctx context.Context, program string) error
	// Sources are base URLs of packages in the order they are tried. What an
	// action names comes before them.
	Sources []string
	// Rules and Restart go into the marker.
	Rules   handoff.Rules
	Restart handoff.Restart
	// RollbackWindow is how long the version before is kept.
	RollbackWindow time.Duration
	// HandOver replaces the running process by the new version, whose home is
	// given. It returns only if that failed.
	HandOver func(ctx context.Context, r Request, home string) error
	// Report is told about every phase, and about progress within one.
	Report func(d agentapi.UpgradeDetails, progress bool)
	Log    *slog.Logger

	watcher Watcher // started by the upgrade under way, nil if none

	mu      sync.Mutex
	running string // id of the request under way
	cancel  context.CancelCauseFunc
}

// Request is one upgrade.
type Request struct {
	// ID is the queue's id; ActionID the server's, empty for a local request.
	ID        string `json:"id"`
	ActionID  string `json:"action_id,omitempty"`
	Version   string `json:"version"` // full version
	SourceURI string `json:"source_uri,omitempty"`
	// Force installs a version although it was rolled back here before.
	Force bool `json:"force,omitempty"`
	// Rollback goes back to the version that is kept on the host. Version may
	// then be empty.
	Rollback bool `json:"rollback,omitempty"`
}

// ParseRequest reads an UPGRADE action's data.
func ParseRequest(id, actionID string, data json.RawMessage) (Request, error) {
	var d agentapi.UpgradeData
	if err := json.Unmarshal(data, &d); err != nil {
		return Request{ID: id, ActionID: actionID}, fmt.Errorf("action data: %w", err)
	}
	r := Request{ID: id, ActionID: actionID, Version: d.Version, SourceURI: d.SourceURI, Force: d.Force, Rollback: d.Rollback}
	if d.Rollback && d.Version == "" {
		return r, nil
	}
	if _, err := manifest.ParseVersion(d.Version); err != nil {
		return r, fmt.Errorf("action data.version: %w", err)
	}
	return r, nil
}

var (
	// ErrCancelled is the cause of an upgrade that was stopped by its operator,
	// or by a newer one.
	ErrCancelled = errors.New("cancelled")
	// ErrStopping is the cause of an upgrade that the end of the agent
	// interrupted. It goes on when the agent starts again.
	ErrStopping = errors.New("the agent is stopping")
	// ErrBusy says that a switch is still being watched.
	ErrBusy = errors.New("the last upgrade is still being watched")
	// ErrNoSpace says that the package does not fit on the disk.
	ErrNoSpace = errors.New("not enough disk space")
	// ErrStepTimeout says that a step did not end.
	ErrStepTimeout = errors.New("timeout")
)

// stopped is ErrCancelled with the reason for it.
type stopped string

func (s stopped) Error() string        { return string(s) }
func (s stopped) Is(target error) bool { return target == ErrCancelled }

// Failure is an upgrade that did not happen. The host is as before.
type Failure struct {
	// State is the phase it failed in, Step the part of it.
	State agentapi.UpgradeState
	Step  string
	Err   error
	// Temporary: the same upgrade may succeed later.
	Temporary bool
}

func (f *Failure) Error() string { return f.Err.Error() }
func (f *Failure) Unwrap() error { return f.Err }

// Upgrade carries out r. It does not return when it succeeds in a process that
// can be replaced; where HandOver returns nil it returns nil. Otherwise the error
// is a *Failure, or ErrStopping if the upgrade is to be begun again later. The
// caller tells the server, with [Executor.Conclude], once it will not try again.
func (e *Executor) Upgrade(ctx context.Context, r Request) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	e.setRunning(r.ID, cancel)
	defer e.setRunning("", nil)

	if err := e.undoLeftover(); err != nil {
		return &Failure{State: agentapi.UpgradeRequested, Step: stepPreflight, Err: err, Temporary: true}
	}
	e.watcher = nil
	j := &journal{Request: r, From: e.Running, Archive: manifest.ArchiveName(r.Version, e.GOOS, e.GOARCH, archiveFormat)}
	w := &work{Executor: e, j: j}
	phase := agentapi.UpgradeRequested // told by whoever took the request
	for _, s := range steps {
		if s.fetches && r.Rollback {
			continue
		}
		if s.phase != phase {
			phase = s.phase
			e.report(j.Request, phase, agentapi.UpgradeMetadata{}, false)
		}
		if err := w.step(ctx, s); err != nil {
			return e.fail(j, &Failure{State: s.phase, Step: s.name, Err: err, Temporary: temporary(s.name, err)})
		}
	}
	return nil
}

// undoLeftover finishes the undoing of an earlier upgrade that could not be
// finished then, on a full disk say. Its journal must not be written over.
func (e *Executor) undoLeftover() error {
	j, err := readJournal(e.Disk, e.Top)
	if errors.Is(err, disk.ErrDamaged) {
		return nil
	}
	if err != nil || j == nil {
		return err
	}
	if err := e.undo(j); err != nil {
		return fmt.Errorf("an earlier upgrade to %s could not be undone: %w", j.Request.Version, err)
	}
	return removeJournal(e.Disk, e.Top)
}

// Refuse is the failure of an upgrade that cannot begin.
func Refuse(why error) *Failure {
	return &Failure{State: agentapi.UpgradeRequested, Step: stepPreflight, Err: why}
}

// Conclude stores a failure that is final, and reports it until the next upgrade
// begins.
func (e *Executor) Conclude(r Request, f *Failure) {
	details := e.details(r, agentapi.UpgradeFailed, agentapi.UpgradeMetadata{FailedState: f.State, ErrorMsg: f.Err.Error()})
	if err := saveFailure(e.Disk, e.Top, details); err != nil {
		e.log().Warn("the failure of an upgrade was not stored", "error", err)
	}
	e.Report(details, false)
}

// temporary says whether an upgrade that failed so may succeed when it is tried
// again: the link, the server, a disk that is full or busy, a host under load.
func temporary(step string, err error) bool {
	var refused *install.RefusedError
	var onDisk *disk.Error
	switch {
	case errors.Is(err, ErrCancelled), errors.As(err, &refused), errors.Is(err, fs.ErrPermission), errors.Is(err, syscall.EROFS),
		errors.Is(err, fs.ErrNotExist): // something the package should hold
		return false
	case errors.Is(err, ErrStepTimeout), errors.Is(err, ErrNoSpace), errors.Is(err, install.ErrNoSpace), errors.As(err, &onDisk):
		return true
	}
	var passing *passingError
	return errors.As(err, &passing) || step == stepWatcher
}

// passingError may be gone when the upgrade is tried again.
type passingError struct{ err error }

func (e *passingError) Error() string { return e.err.Error() }
func (e *passingError) Unwrap() error { return e.err }

// ForNow marks an error that may be gone when the upgrade is tried again.
func ForNow(err error) error {
	if err == nil {
		return nil
	}
	return &passingError{err}
}

// fromLink marks an error of the downloader, if another try may help.
func fromLink(err error) error {
	if download.Temporary(err) {
		return ForNow(err)
	}
	return err
}

// step does one step, unless ctx has ended or the step has nothing to do.
func (w *work) step(ctx context.Context, s step) error {
	if s.final {
		// From here on the operator cannot cancel: the pointer is about to move.
		w.setRunning(w.j.Request.ID, nil)
	}
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	// Written before the step acts: a crash in the middle of it must find it
	// named.
	w.j.Begun = append(w.j.Begun, s.name)
	if err := w.j.write(w.Disk, w.Top); err != nil {
		return err
	}
	if s.done != nil && s.done(w) {
		return nil
	}
	w.log().Info("upgrade step", "step", s.name, "version", w.j.Request.Version)
	limited, cancel := context.WithTimeoutCause(ctx, s.timeout, fmt.Errorf("%w: %s took longer than %s", ErrStepTimeout, s.name, s.timeout))
	defer cancel()
	err := s.do(limited, w)
	if err != nil && limited.Err() != nil {
		return context.Cause(limited)
	}
	return err
}

// fail undoes what j has begun. It returns f, with what could not be undone
// added, or ErrStopping.
func (e *Executor) fail(j *journal, f *Failure) error {
	stopping := errors.Is(f.Err, ErrStopping)
	j.Undoing, j.KeepDownload = true, stopping || f.Temporary
	j.FailedState, j.FailedStep, j.FailedError, j.FailedForNow = f.State, f.Step, f.Err.Error(), f.Temporary
	if err := j.write(e.Disk, e.Top); err != nil {
		e.log().Warn("the undoing of an upgrade was not written down first", "error", err)
	}
	err := e.undo(j)
	if err == nil {
		err = removeJournal(e.Disk, e.Top)
	}
	if err != nil {
		// The journal stays: the next upgrade, or the next start, tries again.
		f.Err = fmt.Errorf("%w; and the host could not be put back as it was: %w", f.Err, err)
	}
	if stopping {
		return errors.Join(ErrStopping, err)
	}
	return f
}

// undo reverts the begun steps, last first. Every undo copes with a step that
// was done, half done, or not done at all.
func (e *Executor) undo(j *journal) error {
	for i := len(j.Begun) - 1; i >= 0; i-- {
		for _, s := range steps {
			if s.name != j.Begun[i] || s.undo == nil {
				continue
			}
			if err := s.undo(e, j); err != nil {
				// What comes before may be needed by what could not be undone.
				return fmt.Errorf("undo %s: %w", s.name, err)
			}
		}
	}
	return nil
}

// Cancel stops the upgrade with the given id, if it runs and can be stopped. Its
// failure then says why.
func (e *Executor) Cancel(id, why string) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.running != id || e.cancel == nil {
		return false
	}
	e.cancel(stopped(why))
	return true
}

func (e *Executor) setRunning(id string, cancel context.CancelCauseFunc) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.running, e.cancel = id, cancel
}

func (e *Executor) report(r Request, state agentapi.UpgradeState, m agentapi.UpgradeMetadata, progress bool) {
	e.Report(e.details(r, state, m), progress)
}

func (e *Executor) details(r Request, state agentapi.UpgradeState, m agentapi.UpgradeMetadata) agentapi.UpgradeDetails {
	return agentapi.UpgradeDetails{TargetVersion: r.Version, ActionID: r.ActionID, State: state, Metadata: m}
}

func (e *Executor) path(name string) string { return layout.Path(e.Top, name) }

func (e *Executor) log() *slog.Logger {
	if e.Log != nil {
		return e.Log
	}
	return slog.New(slog.DiscardHandler)
}

func fullVersion(id manifest.Identity) string {
	return manifest.Package{Version: id.Version, Snapshot: id.Snapshot}.FullVersion()
}
