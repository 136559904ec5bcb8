// Package steps runs a list of steps on a host and undoes them after an error or a
// crash. A [Run] does the steps in order and records each in a journal on disk before
// it acts. When a step fails, the steps that have begun are undone in reverse order.
// After a crash the caller reads the journal, builds the same Run, and undoes it, or
// continues it if the steps can tell what they have done. The package does not know what
// the steps do; package upgrade declares those of the agent's own upgrade, and package
// primitive those of a component's.
package steps

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"github.com/muster-fleet/muster/packaging/host/disk"
)

// UndoTimeout bounds the undoing of a run. Undoing removes a few folders and stops a
// process, which takes seconds; a busy disk may need minutes for a version of 4 GB. A
// call to the disk that hangs is not interrupted, but no step is undone after it.
const UndoTimeout = 10 * time.Minute

var (
	// ErrTimeout is returned if a step, or undoing, exceeds its timeout.
	ErrTimeout = errors.New("timeout")
	// ErrCancelled is the cause of a run that an operator or a newer upgrade stopped. See
	// [Cancelled].
	ErrCancelled = errors.New("cancelled")
	// ErrStopping is the cause of a run that the agent's own end interrupted. It begins again,
	// or goes on, when the agent starts. Journals hold its text.
	ErrStopping = errors.New("the agent is stopping")
)

// Cancelled returns an [ErrCancelled] with its reason, which is its text.
func Cancelled(reason string) error { return cancelled(reason) }

type cancelled string

func (c cancelled) Error() string        { return string(c) }
func (c cancelled) Is(target error) bool { return target == ErrCancelled }

// Step is one part of a run.
type Step struct {
	// Name is unique among the steps of a run. Journals hold it and another
	// version may read them, so it never changes.
	Name string
	// Timeout bounds Do, through its context. 0 means no bound: Do is a few calls to the
	// disk, which nothing can interrupt.
	Timeout time.Duration
	// When reports whether the step is part of the run, by the journal, once its turn comes.
	// nil means that it is.
	When func() bool
	// Done reports whether there is nothing to do, by the state of the host. nil means that
	// Do always runs.
	Done func(context.Context) (bool, error)
	Do   func(context.Context) error
	// Input identifies what Do works on, by a digest. A run that is continued after a crash
	// skips a step without Done if its checkpoint says that it is done for the same input.
	// nil means that the step has no checkpoint.
	Input func() string
	// Undo restores the state before Do. It may use only the journal and the host,
	// since nothing else survives a crash, and must handle a Do that was complete,
	// partial or not begun. nil means that there is nothing to undo. Its context ends
	// with UndoTimeout, which all steps of a run share.
	Undo func(context.Context) error
	// OwnTime means that Undo bounds itself, since it may take longer than UndoTimeout.
	OwnTime bool
}

// Progress is the part of a journal that a [Run] maintains.
type Progress struct {
	// Begun holds the names of the steps that have begun, in order.
	Begun []string `json:"begun"`
	// Undoing is set before the first Undo, together with the step that failed and
	// its error.
	Undoing     bool   `json:"undoing,omitempty"`
	FailedStep  string `json:"failed_step,omitempty"`
	FailedError string `json:"failed_error,omitempty"`
	// Checkpoints are those of the steps with an Input, by name.
	Checkpoints map[string]Checkpoint `json:"checkpoints,omitempty"`
}

// Checkpoint is how far a step has come.
type Checkpoint struct {
	Input string    `json:"input"`
	Done  bool      `json:"done"` // false: in progress
	At    time.Time `json:"at"`
}

// CheckpointTTL is how long a run that was interrupted is continued by its checkpoints. Later
// the host may have been changed by others, so every step is asked for its state again. The
// longest step takes five minutes.
const CheckpointTTL = 10 * time.Minute

// HasBegun reports whether a step has begun.
func (p *Progress) HasBegun(step string) bool { return slices.Contains(p.Begun, step) }

func (p *Progress) progress() *Progress { return p }

// Journal is a pointer to a struct that embeds [Progress]. Its other fields are what
// the steps need for Undo. A step that sets one calls [Run.Save] before it acts.
type Journal interface{ progress() *Progress }

// File is the record that stores a journal; see disk.WriteRecord.
type File struct {
	Disk     disk.Disk
	Op, Path string
	Kind     string
	Version  int
}

// Read returns the journal that an earlier process left, or nil if there is none.
func Read[J any](f File) (*J, error) {
	return disk.FindRecord[J](f.Disk, f.Op, f.Path, f.Kind, f.Version)
}

// Remove removes the journal.
func (f File) Remove() error { return disk.RemoveRecord(f.Disk, f.Op, f.Path) }

// RemoveCopies removes what a power cut has left of a journal that is gone. Writing the next one
// would, and there may be none.
func (f File) RemoveCopies() error { return disk.RemoveCopies(f.Disk, f.Op, f.Path) }

// Run does steps and undoes them. All fields but Begins are required.
type Run struct {
	Steps   []Step
	Journal Journal
	File    File
	// Begins is called before a step is recorded. From its return until the next
	// step, cancelling the context of Do cancels the step.
	Begins func(Step)
	Log    *slog.Logger
}

// Do does the steps in order. If one fails, Do returns its name and error. The journal
// stays, for [Run.Fail] or a later process. With the journal of an interrupted run Do
// continues it: it asks each step whether it is done, and by its checkpoint one that cannot
// tell.
func (r *Run) Do(ctx context.Context) (failed string, err error) {
	r.forgetOld(time.Now())
	for _, s := range r.Steps {
		if s.When != nil && !s.When() || r.skips(s) {
			continue
		}
		if r.Begins != nil {
			r.Begins(s)
		}
		if err := r.do(ctx, s); err != nil {
			return s.Name, err
		}
	}
	return "", nil
}

// forgetOld drops all checkpoints of a run that was interrupted too long ago.
func (r *Run) forgetOld(now time.Time) {
	p := r.Journal.progress()
	var last time.Time
	for _, c := range p.Checkpoints {
		if c.At.After(last) {
			last = c.At
		}
	}
	// A clock that was set back makes none older.
	if now.Sub(last).Abs() > CheckpointTTL {
		p.Checkpoints = nil
	}
}

func (r *Run) skips(s Step) bool {
	// The host may have changed since: a reboot starts what was stopped.
	if s.Done != nil || s.Input == nil {
		return false
	}
	c := r.Journal.progress().Checkpoints[s.Name]
	return c.Done && c.Input == s.Input()
}

// checkpoint records in memory how far a step has come.
func (r *Run) checkpoint(s Step, done bool) {
	if s.Input == nil {
		return
	}
	p := r.Journal.progress()
	if p.Checkpoints == nil {
		p.Checkpoints = map[string]Checkpoint{}
	}
	p.Checkpoints[s.Name] = Checkpoint{Input: s.Input(), Done: done, At: time.Now().UTC()}
}

func (r *Run) do(ctx context.Context, s Step) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	// The step is recorded before it acts, so that a crash during it is undone.
	p := r.Journal.progress()
	if !p.HasBegun(s.Name) {
		p.Begun = append(p.Begun, s.Name)
	}
	r.checkpoint(s, false)
	if err := r.Save(); err != nil {
		return err
	}
	if err := r.act(ctx, s); err != nil {
		return err
	}
	if s.Input == nil {
		return nil
	}
	r.checkpoint(s, true)
	return r.Save()
}

// act does a step within its timeout, unless it is done.
func (r *Run) act(ctx context.Context, s Step) error {
	limited := ctx
	if s.Timeout > 0 {
		var cancel context.CancelFunc
		limited, cancel = context.WithTimeoutCause(ctx, s.Timeout, fmt.Errorf("%w: %s took longer than %s", ErrTimeout, s.Name, s.Timeout))
		defer cancel()
	}
	err := r.unlessDone(limited, s)
	if err != nil && limited.Err() != nil {
		return context.Cause(limited)
	}
	return err
}

func (r *Run) unlessDone(ctx context.Context, s Step) error {
	if s.Done != nil {
		if done, err := s.Done(ctx); err != nil || done {
			return err
		}
	}
	r.Log.Info("step begins", "step", s.Name)
	return s.Do(ctx)
}

// Save writes the journal.
func (r *Run) Save() error {
	return disk.WriteRecord(r.File.Disk, r.File.Op, r.File.Path, r.File.Kind, r.File.Version, r.Journal)
}

// Fail undoes the run because a step failed. Why is written first, so that after
// a crash in the middle of undoing it is still known.
func (r *Run) Fail(step string, why error) error {
	p := r.Journal.progress()
	p.Undoing, p.FailedStep, p.FailedError = true, step, why.Error()
	if err := r.Save(); err != nil {
		r.Log.Warn("the reason for undoing is not recorded: the journal cannot be written", "error", err)
	}
	return r.Undo()
}

// Undo undoes the steps that have begun in reverse order and removes the journal. If
// one cannot be undone, or UndoTimeout is over, the journal stays, and this process or a
// later one may call Undo again. If the journal names a step that the run does not have,
// Undo changes nothing and returns an error, since only the version that began the step
// knows how to undo it.
func (r *Run) Undo() error {
	begun := r.Journal.progress().Begun
	for _, name := range begun {
		if r.step(name) < 0 {
			return fmt.Errorf("the journal names the step %q, which this version does not know: the version that wrote %s must undo it", name, r.File.Path)
		}
	}
	left := UndoTimeout
	for _, name := range slices.Backward(begun) {
		s := r.Steps[r.step(name)]
		if s.Undo == nil {
			continue
		}
		began := time.Now()
		err := s.undo(left)
		if !s.OwnTime {
			left -= time.Since(began)
		}
		if err != nil {
			// The earlier steps stay, since this one may depend on them.
			return fmt.Errorf("undo %s: %w", name, err)
		}
	}
	return r.File.Remove()
}

// undo undoes the step within the time that is left, unless it bounds itself.
func (s Step) undo(left time.Duration) error {
	if s.OwnTime {
		return s.Undo(context.Background())
	}
	ctx, cancel := context.WithTimeoutCause(context.Background(), left, fmt.Errorf("%w: undoing took longer than %s", ErrTimeout, UndoTimeout))
	defer cancel()
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return s.Undo(ctx)
}

// step returns the index of a step, or -1.
func (r *Run) step(name string) int {
	return slices.IndexFunc(r.Steps, func(s Step) bool { return s.Name == name })
}
