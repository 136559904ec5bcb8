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
	"log/slog"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/muster-fleet/muster/agent/download"
	"github.com/muster-fleet/muster/packaging/disk"
	"github.com/muster-fleet/muster/packaging/manifest"
	"github.com/muster-fleet/muster/packaging/trust"
	"github.com/muster-fleet/muster/server/agentapi"
	"github.com/muster-fleet/muster/watcher/marker"
)

const (
	// WatcherReady is how long a watcher may take from its start to its line
	// "watching": it has to read one small file and take a lock.
	WatcherReady = 30 * time.Second
	// HandshakeTimeout is how long a watcher may take to say which marker it
	// understands.
	HandshakeTimeout = 5 * time.Second

	archiveFormat = "tar.gz"
	downloadsDir  = "data/downloads"
	watcherName   = "muster-watcher"
	agentName     = "muster-agent"
)

// Downloader fetches files; see download.Fetcher.
type Downloader interface {
	Small(ctx context.Context, url string) ([]byte, error)
	Fetch(ctx context.Context, url, dir, name string, report func(download.Progress)) error
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
	Running marker.Install
	// Verifier decides what may be installed; nil refuses everything.
	Verifier   trust.Verifier
	Downloader Downloader
	Watchers   Watchers
	// Source is the base URL of packages where an action names none.
	Source string
	// Rules and Restart go into the marker.
	Rules   marker.Rules
	Restart marker.Restart
	// HandOver replaces the running process by the new version, whose home is
	// given. It returns only if that failed.
	HandOver func(ctx context.Context, r Request, home string) error
	// Report is told about every phase, and about progress within one.
	Report func(d agentapi.UpgradeDetails, progress bool)
	Log    *slog.Logger

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
}

// ParseRequest reads an UPGRADE action's data.
func ParseRequest(id, actionID string, data json.RawMessage) (Request, error) {
	var d agentapi.UpgradeData
	if err := json.Unmarshal(data, &d); err != nil {
		return Request{ID: id, ActionID: actionID}, fmt.Errorf("action data: %w", err)
	}
	r := Request{ID: id, ActionID: actionID, Version: d.Version, SourceURI: d.SourceURI, Force: d.Force}
	if _, err := manifest.ParseVersion(d.Version); err != nil {
		return r, fmt.Errorf("action data.version: %w", err)
	}
	if d.Rollback {
		return r, errors.New("action data.rollback: this agent goes back only on the watcher's word; upgrade to the older version instead")
	}
	return r, nil
}

var (
	// ErrCancelled is the cause of an upgrade the operator stopped.
	ErrCancelled = errors.New("cancelled")
	// ErrStopping is the cause of an upgrade that the end of the agent
	// interrupted. It goes on when the agent starts again.
	ErrStopping = errors.New("the agent is stopping")
	// ErrBusy says that a switch is still being watched.
	ErrBusy = errors.New("the last upgrade is still being watched")
)

// Failure is an upgrade that did not happen. The host is as before.
type Failure struct {
	// State is the phase it failed in, Step the part of it.
	State agentapi.UpgradeState
	Step  string
	Err   error
}

func (f *Failure) Error() string { return f.Err.Error() }
func (f *Failure) Unwrap() error { return f.Err }

// Upgrade carries out r. It does not return when it succeeds in a process that
// can be replaced; where HandOver returns nil it returns nil. Otherwise the error
// is a *Failure, or ErrStopping if the upgrade is to be begun again later.
func (e *Executor) Upgrade(ctx context.Context, r Request) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	e.setRunning(r.ID, cancel)
	defer e.setRunning("", nil)

	err := e.preflight(r)
	if err == nil {
		err = errors.Join(marker.RemoveOutcome(e.Disk, e.Top), removeFailure(e.Disk, e.Top))
	}
	if err != nil {
		return e.Refuse(r, err)
	}
	j := &journal{Request: r, From: e.Running, Archive: manifest.ArchiveName(r.Version, e.GOOS, e.GOARCH, archiveFormat)}
	w := &work{Executor: e, j: j}
	var phase agentapi.UpgradeState
	for _, s := range steps {
		if s.phase != phase {
			phase = s.phase
			e.report(r, phase, agentapi.UpgradeMetadata{}, false)
		}
		if err := w.step(ctx, s); err != nil {
			// The watcher goes before anything is undone: a pointer moved back
			// under its eyes would look like a rollback to it.
			err = errors.Join(err, w.stopWatcher())
			return e.fail(j, &Failure{State: s.phase, Step: s.name, Err: err})
		}
	}
	return nil
}

// Refuse ends an upgrade that cannot begin; it is reported like any other that
// failed.
func (e *Executor) Refuse(r Request, why error) error {
	return e.fail(&journal{Request: r, From: e.Running}, &Failure{State: agentapi.UpgradeRequested, Step: "preflight", Err: why})
}

// step does one step, unless ctx has ended or the step has nothing to do.
func (w *work) step(ctx context.Context, s step) error {
	if s.final {
		// From here on the operator cannot cancel: the marker is about to be
		// acted on.
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
	err := s.do(ctx, w)
	if err != nil && ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return err
}

func (w *work) stopWatcher() error {
	if w.watcher == nil {
		return nil
	}
	if err := w.watcher.Stop(); err != nil {
		return fmt.Errorf("stop watcher: %w", err)
	}
	return nil
}

// fail undoes what j has begun, and stores the failure for the server. It
// returns f, with what could not be undone added.
func (e *Executor) fail(j *journal, f *Failure) error {
	stopping := errors.Is(f.Err, ErrStopping)
	keepDownload := stopping || (f.Step == stepDownload && download.Kept(f.Err) && !errors.Is(f.Err, ErrCancelled))
	j.Undoing, j.KeepDownload = true, keepDownload
	j.FailedState, j.FailedStep, j.FailedError = f.State, f.Step, f.Err.Error()
	if len(j.Begun) > 0 {
		if err := j.write(e.Disk, e.Top); err != nil {
			e.log().Warn("the undoing of an upgrade was not written down first", "error", err)
		}
	}
	uerr := e.undo(j)
	if uerr != nil {
		// The journal stays: the next start tries again.
		f.Err = fmt.Errorf("%w; and the host could not be put back as it was: %w; the agent tries again when it starts", f.Err, uerr)
	}
	if uerr == nil && stopping {
		uerr = removeJournal(e.Disk, e.Top)
	}
	if stopping {
		return errors.Join(ErrStopping, uerr)
	}
	details := e.details(j.Request, agentapi.UpgradeFailed, agentapi.UpgradeMetadata{FailedState: f.State, ErrorMsg: f.Err.Error()})
	if err := saveFailure(e.Disk, e.Top, details); err != nil {
		e.log().Warn("the failure of an upgrade was not stored", "error", err)
	}
	if uerr == nil && len(j.Begun) > 0 {
		if err := removeJournal(e.Disk, e.Top); err != nil {
			e.log().Warn("the journal of a failed upgrade was not removed", "error", err)
		}
	}
	e.Report(details, false)
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

// Cancel stops the upgrade with the given id, if it runs and can be stopped.
func (e *Executor) Cancel(id string) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.running != id || e.cancel == nil {
		return false
	}
	e.cancel(ErrCancelled)
	return true
}

func (e *Executor) setRunning(id string, cancel context.CancelCauseFunc) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.running, e.cancel = id, cancel
}

// preflight refuses what needs no download to be refused.
func (e *Executor) preflight(r Request) error {
	m, err := marker.Read(e.Disk, e.Top)
	if err != nil {
		e.log().Warn("an unreadable upgrade marker is passed over", "error", err)
	}
	if m != nil {
		return fmt.Errorf("%w (to %s)", ErrBusy, fullVersion(m.To.Identity))
	}
	if e.Running.Home == "" {
		return errors.New("this is a development build, not an installed version: run muster-agent install first")
	}
	version, snapshot := manifest.SplitSnapshot(r.Version)
	// Builds of one snapshot differ by hash, which only the package tells.
	if !snapshot && !e.Running.Snapshot && version == e.Running.Version && !r.Force {
		return fmt.Errorf("version %s already runs here", r.Version)
	}
	if e.Verifier == nil {
		return fmt.Errorf("%w: enrol this host with --trust-key to let it upgrade", trust.ErrNoKeys)
	}
	if !snapshot && !r.Force {
		return refuseFailed(e.Disk, e.Top, func(id manifest.Identity) bool { return fullVersion(id) == r.Version })
	}
	return nil
}

func (e *Executor) sourceURL(r Request, name string) string {
	base := e.Source
	if r.SourceURI != "" {
		base = r.SourceURI
	}
	return strings.TrimRight(base, "/") + "/" + name
}

func (e *Executor) report(r Request, state agentapi.UpgradeState, m agentapi.UpgradeMetadata, progress bool) {
	e.Report(e.details(r, state, m), progress)
}

func (e *Executor) details(r Request, state agentapi.UpgradeState, m agentapi.UpgradeMetadata) agentapi.UpgradeDetails {
	return agentapi.UpgradeDetails{TargetVersion: r.Version, ActionID: r.ActionID, State: state, Metadata: m}
}

func (e *Executor) path(rel string) string { return filepath.Join(e.Top, filepath.FromSlash(rel)) }

func (e *Executor) log() *slog.Logger {
	if e.Log != nil {
		return e.Log
	}
	return slog.New(slog.DiscardHandler)
}

func fullVersion(id manifest.Identity) string {
	return manifest.Package{Version: id.Version, Snapshot: id.Snapshot}.FullVersion()
}
