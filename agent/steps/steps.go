// Package steps carries out work on a host as a list of steps that survives a
// crash. The caller declares the steps; a [Run] does them in order, and writes
// each into a journal on the disk before it acts. When a step fails, what has
// begun is undone in reverse. After a crash the caller reads the journal, makes
// the same Run from it, and undoes it. The package knows nothing of what the
// steps do: agent/upgrade declares those of an upgrade.
package steps

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"github.com/muster-fleet/muster/packaging/disk"
)

// ErrTimeout says that a step did not end in time.
var ErrTimeout = errors.New("timeout")

// Step is one part of a run.
type Step struct {
	// Name is unique among the steps of a run. It is in journals that another
	// version may read, so it never changes.
	Name string
	// Timeout bounds Do, through its context.
	Timeout time.Duration
	// Done says that there is nothing left to do; nil means that there is.
	Done func() bool
	Do   func(context.Context) error
	// Undo restores what was before Do. It may use nothing but the journal and
	// the host, since after a crash there is nothing else, and it must cope with
	// a Do that was finished, half finished or not begun. nil means that Do
	// leaves nothing behind.
	Undo func() error
}

// Progress is the part of a journal that this package keeps.
type Progress struct {
	// Begun names the steps that have begun, in their order.
	Begun []string `json:"begun"`
	// Undoing is set before the first Undo acts, with the step that failed and
	// why.
	Undoing     bool   `json:"undoing,omitempty"`
	FailedStep  string `json:"failed_step,omitempty"`
	FailedError string `json:"failed_error,omitempty"`
}

// HasBegun says whether a step has begun.
func (p *Progress) HasBegun(step string) bool { return slices.Contains(p.Begun, step) }

func (p *Progress) progress() *Progress { return p }

// Journal is a pointer to a struct that embeds [Progress]. Its other fields are
// what the steps need to be undone; a step that changes one before it acts calls
// [Run.Save].
type Journal interface{ progress() *Progress }

// File is where a journal lies; see disk.WriteRecord.
type File struct {
	Disk     disk.Disk
	Op, Path string
	Kind     string
	Version  int
}

// Read returns the journal that an earlier process left, of the type that J
// points to, or nil when there is none.
func Read[J any](f File) (*J, error) {
	return disk.FindRecord[J](f.Disk, f.Op, f.Path, f.Kind, f.Version)
}

// Remove removes the journal.
func (f File) Remove() error { return disk.RemoveRecord(f.Disk, f.Op, f.Path) }

// Run does steps, and undoes them. Every field is required but Begins.
type Run struct {
	Steps   []Step
	Journal Journal
	File    File
	// Begins is called before a step is written down. From its return until the
	// next step, ending the context of Do ends the step.
	Begins func(Step)
	Log    *slog.Logger
}

// Do does the steps in their order. It stops at the first that fails, and names
// it. The journal stays, for [Run.Fail] or a later process.
func (r *Run) Do(ctx context.Context) (failed string, err error) {
	for _, s := range r.Steps {
		if r.Begins != nil {
			r.Begins(s)
		}
		if err := r.do(ctx, s); err != nil {
			return s.Name, err
		}
	}
	return "", nil
}

func (r *Run) do(ctx context.Context, s Step) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	// Written before the step acts: a crash in the middle of it must find it
	// named.
	p := r.Journal.progress()
	p.Begun = append(p.Begun, s.Name)
	if err := r.Save(); err != nil {
		return err
	}
	if s.Done != nil && s.Done() {
		return nil
	}
	r.Log.Info("step begins", "step", s.Name)
	limited, cancel := context.WithTimeoutCause(ctx, s.Timeout, fmt.Errorf("%w: %s took longer than %s", ErrTimeout, s.Name, s.Timeout))
	defer cancel()
	err := s.Do(limited)
	if err != nil && limited.Err() != nil {
		return context.Cause(limited)
	}
	return err
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
		r.Log.Warn("undoing without a note of why: the journal cannot be written", "error", err)
	}
	return r.Undo()
}

// Undo undoes the steps that have begun, the last first, and removes the
// journal. If one cannot be undone the journal stays, and Undo may be called
// again, by this process or a later one.
func (r *Run) Undo() error {
	for _, name := range slices.Backward(r.Journal.progress().Begun) {
		i := slices.IndexFunc(r.Steps, func(s Step) bool { return s.Name == name })
		if i < 0 || r.Steps[i].Undo == nil {
			continue
		}
		if err := r.Steps[i].Undo(); err != nil {
			// What could not be undone may need what earlier steps have made.
			return fmt.Errorf("undo %s: %w", name, err)
		}
	}
	return r.File.Remove()
}
