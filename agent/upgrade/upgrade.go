// Package upgrade moves a host to another version: it fetches a package, asks
// package trust whether it may be installed, unpacks it beside the running
// version, writes the marker, starts the watcher, moves the pointer and
// re-executes. The daemon calls it and gives it the way to re-execute; the
// watcher judges the result. See DESIGN.md beside this file for the order of the
// steps; package steps carries them out.
//
// Whatever fails is undone, and the host is as before. Undoing reads the journal
// only, so that it is the same work after an error and after a crash.
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
	"github.com/muster-fleet/muster/agent/steps"
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
	// Reexec replaces the running process by the new version, whose home is
	// given. It returns only if that failed.
	Reexec func(ctx context.Context, r Request, home string) error
	// Report receives every phase, and the progress within one.
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
	// Transient: the same upgrade may succeed later.
	Transient bool
}

func (f *Failure) Error() string { return f.Err.Error() }
func (f *Failure) Unwrap() error { return f.Err }

// Upgrade carries out r. It does not return when it succeeds in a process that
// can be replaced; where Reexec returns nil it returns nil. Otherwise the error
// is a *Failure, or ErrStopping if the upgrade is to be begun again later. The
// caller tells the server, with [Executor.Conclude], once it will not try again.
func (e *Executor) Upgrade(ctx context.Context, r Request) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	e.setRunning(r.ID, cancel)
	defer e.setRunning("", nil)

	if err := e.undoLeftover(); err != nil {
		return &Failure{State: agentapi.UpgradeRequested, Step: stepPreflight, Err: err, Transient: true}
	}
	e.watcher = nil
	j := &journal{Request: r, From: e.Running, Archive: manifest.ArchiveName(r.Version, e.GOOS, e.GOARCH, archiveFormat)}
	w := e.newWork(j)
	step, err := w.run.Do(ctx)
	if err != nil {
		return w.fail(&Failure{State: phases[step], Step: step, Err: err, Transient: transient(step, err)})
	}
	return nil
}

// undoLeftover finishes the undoing of an earlier upgrade that could not be
// finished then, on a full disk say. Its journal must not be written over.
func (e *Executor) undoLeftover() error {
	j, err := e.readJournal()
	if errors.Is(err, disk.ErrDamaged) {
		return nil
	}
	if err != nil || j == nil {
		return err
	}
	if err := e.newWork(j).run.Undo(); err != nil {
		return fmt.Errorf("an earlier upgrade to %s could not be undone: %w", j.Request.Version, err)
	}
	return nil
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

// transient says whether an upgrade that failed so may succeed when it is tried
// again: the link, the server, a disk that is full or busy, a host under load.
func transient(step string, err error) bool {
	var refused *install.RefusedError
	var onDisk *disk.Error
	switch {
	case errors.Is(err, ErrCancelled), errors.As(err, &refused), errors.Is(err, fs.ErrPermission), errors.Is(err, syscall.EROFS),
		errors.Is(err, fs.ErrNotExist): // something the package should hold
		return false
	case errors.Is(err, steps.ErrTimeout), errors.Is(err, ErrNoSpace), errors.Is(err, install.ErrNoSpace), errors.As(err, &onDisk):
		return true
	}
	var marked *transientError
	return errors.As(err, &marked) || step == stepWatcher
}

// transientError may be gone when the upgrade is tried again.
type transientError struct{ err error }

func (e *transientError) Error() string { return e.err.Error() }
func (e *transientError) Unwrap() error { return e.err }

// Transient marks an error that may be gone when the upgrade is tried again.
func Transient(err error) error {
	if err == nil {
		return nil
	}
	return &transientError{err}
}

// transientLink marks an error of the downloader, if another try may help.
func transientLink(err error) error {
	if download.Transient(err) {
		return Transient(err)
	}
	return err
}

// fail undoes what has begun. It returns f, with what could not be undone added,
// or ErrStopping.
func (w *work) fail(f *Failure) error {
	stopping := errors.Is(f.Err, ErrStopping)
	w.j.KeepDownload = stopping || f.Transient
	w.j.FailedState, w.j.FailedTransient = f.State, f.Transient
	err := w.run.Fail(f.Step, f.Err)
	if err != nil {
		// The journal stays: the next upgrade, or the next start, tries again.
		f.Err = fmt.Errorf("%w; and the host could not be put back as it was: %w", f.Err, err)
	}
	if stopping {
		return errors.Join(ErrStopping, err)
	}
	return f
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

// marker is the marker of a switch that is being watched; nil if there is none.
func (e *Executor) marker() *handoff.Marker {
	m, err := handoff.ReadMarker(e.Disk, e.Top)
	if err != nil {
		e.log().Warn("an unreadable upgrade marker is passed over", "error", err)
	}
	return m
}

func (e *Executor) path(name string) string { return layout.Path(e.Top, name) }

func (e *Executor) log() *slog.Logger {
	if e.Log != nil {
		return e.Log
	}
	return slog.New(slog.DiscardHandler)
}
