// Package process runs components as processes that the agent supervises itself: it starts
// their program, starts it again when it ends, and keeps their output in a bounded file. It
// is the adapter "process" of package runtime.
//
// Processes outlive the agent that started them. An agent that starts calls
// [Adapter.Resume] for each component, which adopts what runs or starts what is to run;
// before an agent ends or re-executes itself it calls [Adapter.Detach]. DESIGN.md says what
// is guaranteed on which host.
package process

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/muster-fleet/muster/agent/logfile"
	"github.com/muster-fleet/muster/agent/runtime"
	"github.com/muster-fleet/muster/packaging/host/disk"
)

const (
	// killTimeout bounds the wait for killed processes, which only the kernel can delay.
	killTimeout = 5 * time.Second
	// groupTimeout bounds the wait for an empty control group, which only costs a folder if
	// it stays.
	groupTimeout = time.Second
	// stopPoll is how often a stop looks for the end of what it stops.
	stopPoll = 20 * time.Millisecond
)

// Options are what an adapter depends on. Disk is required.
type Options struct {
	Disk disk.Disk
	// Groups is the folder of the control group below which each component gets one of
	// its own; see [OwnGroup]. Empty: none does.
	Groups string
	// MaxOutput bounds the file with a component's output in bytes, and the older one; 0
	// means logfile.DefaultMaxBytes.
	MaxOutput int64
	// Rand returns a number in [0,1); nil means math/rand.
	Rand func() float64
	Log  *slog.Logger
}

// Adapter runs components as processes. It is safe for concurrent use.
type Adapter struct {
	o Options

	mu         sync.Mutex
	components map[string]*component // by folder
}

var _ runtime.Adapter = (*Adapter)(nil)

// New returns an adapter. Nothing is supervised until Resume or Start.
func New(o Options) *Adapter {
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	if o.MaxOutput <= 0 {
		o.MaxOutput = logfile.DefaultMaxBytes
	}
	return &Adapter{o: o, components: map[string]*component{}}
}

func (a *Adapter) component(r *runtime.Release) *component {
	a.mu.Lock()
	defer a.mu.Unlock()
	c := a.components[r.Dir]
	if c == nil {
		c = &component{}
		a.components[r.Dir] = c
	}
	return c
}

// Check returns an error if the settings are invalid, the package lacks the program, or
// the agent may not start it as the user.
func (a *Adapter) Check(_ context.Context, r *runtime.Release) error {
	if err := supported(); err != nil {
		return err
	}
	s, err := decode(r)
	if err != nil {
		return err
	}
	if err := a.checkProgram(r, s); err != nil {
		return err
	}
	if dir := s.workingDir(r.Home); s.WorkingDir != "" {
		fi, err := a.o.Disk.Lstat("working_dir", dir)
		if err == nil && !fi.IsDir() && fi.Mode()&fs.ModeSymlink == 0 {
			err = errors.New("it is no folder")
		}
		if err != nil {
			return fmt.Errorf("component %s: working_dir %s: %w: create it, or choose another one", r.Name, dir, err)
		}
	}
	if dir := r.Component.DataDir; dir != "" && readOnly(dir) {
		return fmt.Errorf("component %s: %w: data-dir %s is read-only for the agent, and so for what it starts: add ReadWritePaths=%s to the agent's unit, or run the component as a unit of its own with the runtime systemd",
			r.Name, runtime.ErrUnavailable, dir, dir)
	}
	account, err := s.account()
	if err != nil {
		return fmt.Errorf("component %s: %w", r.Name, err)
	}
	if err := account.mayRun(filepath.Join(r.Home, filepath.FromSlash(s.Program))); err != nil {
		return fmt.Errorf("component %s: %w", r.Name, err)
	}
	return nil
}

// checkProgram opens the program below the home, which no link leaves.
func (a *Adapter) checkProgram(r *runtime.Release, s settings) error {
	fail := func(err error) error {
		return fmt.Errorf("component %s: program %s of the package %s: %w", r.Name, s.Program, r.Identity, err)
	}
	home, err := a.o.Disk.OpenRoot("program", r.Home)
	if err != nil {
		return fail(err)
	}
	defer home.Close()
	f, err := home.OpenFile(filepath.FromSlash(s.Program), os.O_RDONLY, 0)
	if err != nil {
		return fail(err)
	}
	defer f.Close()
	fi, err := f.Stat()
	if err != nil {
		return fail(err)
	}
	if !fi.Mode().IsRegular() || fi.Mode()&0o111 == 0 {
		return fail(fmt.Errorf("has the mode %s, want a file that may be executed", fi.Mode()))
	}
	return nil
}

// Acquire does nothing: the package holds all that runs.
func (a *Adapter) Acquire(_ context.Context, _ *runtime.Release, report func(float64)) error {
	report(100)
	return nil
}

// Acquired reports true.
func (a *Adapter) Acquired(context.Context, *runtime.Release) (bool, error) { return true, nil }

// Discard does nothing.
func (a *Adapter) Discard(context.Context, *runtime.Release) error { return nil }

// Verify returns an error unless the home has the program.
func (a *Adapter) Verify(_ context.Context, r *runtime.Release) error {
	s, err := decode(r)
	if err != nil {
		return err
	}
	return a.checkProgram(r, s)
}

// Backup does nothing: going back is a matter of the link alone.
func (a *Adapter) Backup(context.Context, *runtime.Release, string) error { return nil }

// Install stops the component, since Start starts what the link leads to: one that waits for
// its restart does not run, and would be started while its files are changed.
func (a *Adapter) Install(ctx context.Context, to, _ *runtime.Release) error { return a.Stop(ctx, to) }

// Installed reports whether the link leads to the release.
func (a *Adapter) Installed(_ context.Context, to *runtime.Release) (bool, error) {
	home, err := a.currentHome(to)
	return home == to.Home, err
}

// Restore does nothing.
func (a *Adapter) Restore(context.Context, *runtime.Release, *runtime.Release, string) error {
	return nil
}

// Keep does nothing.
func (a *Adapter) Keep(context.Context, *runtime.Release, *runtime.Release) error { return nil }

// ReloadDaemon does nothing: there is no service manager.
func (a *Adapter) ReloadDaemon(context.Context, *runtime.Release) error { return nil }

// currentHome returns the home that the link leads to, or "" if there is no link.
func (a *Adapter) currentHome(r *runtime.Release) (string, error) {
	target, err := a.o.Disk.Readlink("current", r.Current())
	if errors.Is(err, fs.ErrNotExist) {
		return "", nil
	}
	if err != nil {
		return "", err
	}
	if filepath.IsAbs(target) {
		return filepath.Clean(target), nil
	}
	return filepath.Join(r.Dir, target), nil
}

// Status returns what runs, also if another agent started it.
func (a *Adapter) Status(_ context.Context, r *runtime.Release) (runtime.Status, error) {
	rec, message, ended := a.component(r).snapshot()
	if rec == nil {
		read, err := a.readRecord(r)
		if err != nil {
			return runtime.Status{}, err
		}
		rec = &read
	}
	if rec.Process != nil && runs(*rec.Process) {
		return runtime.Status{Running: true, Ready: true, Home: rec.Home, PID: rec.Process.PID, Since: rec.Since, Restarts: rec.Restarts, Ended: ended}, nil
	}
	home, err := a.currentHome(r)
	s := runtime.Status{Waits: rec.Wanted, Stopped: !rec.Wanted, Home: home, Restarts: rec.Restarts, Ended: ended, Message: message}
	if rec.Wanted && s.Message == "" {
		s.Message = "its process has ended"
	}
	return s, err
}

// Start starts what the link current leads to, unless it runs.
func (a *Adapter) Start(ctx context.Context, r *runtime.Release) error {
	s, err := decode(r)
	if err != nil {
		return err
	}
	home, err := a.currentHome(r)
	if err != nil {
		return err
	}
	if home == "" {
		return fmt.Errorf("component %s: no version is installed", r.Name)
	}
	c := a.component(r)
	c.halt()
	rec, err := a.readRecord(r)
	if err != nil {
		return err
	}
	if !rec.Wanted || rec.Home != home || rec.Process == nil || !runs(*rec.Process) {
		if rec, err = a.startAnew(ctx, r, s, rec, home); err != nil {
			return err
		}
	}
	c.supervise(a, r, s, rec)
	return nil
}

// startAnew ends what is left of the run before, and starts and records another one, or
// leaves nothing behind. A process may be left by a stop that was interrupted, by another
// version, or by an agent that was killed before it could record what it had started.
func (a *Adapter) startAnew(ctx context.Context, r *runtime.Release, s settings, rec record, home string) (record, error) {
	if err := a.end(ctx, r, s, &rec); err != nil {
		return rec, err
	}
	if err := a.o.Disk.RemoveAll("temporary files", filepath.Join(r.Dir, temporaryDir)); err != nil {
		return rec, err
	}
	rec = record{Wanted: true, Run: rand.Text(), Home: home, Group: groupFolder(a.o.Groups, r)}
	err := a.writeRecord(r, rec)
	if err != nil {
		return rec, err
	}
	if err = a.launch(r, s, &rec); err == nil {
		if err = a.writeRecord(r, rec); err == nil {
			return rec, nil
		}
		_, kerr := a.kill(ctx, r, &rec)
		err = errors.Join(err, kerr)
	}
	rec.Wanted = false
	return rec, errors.Join(err, a.writeRecord(r, rec))
}

// launch starts the program. The caller writes the record.
func (a *Adapter) launch(r *runtime.Release, s settings, rec *record) error {
	id, err := a.spawn(r, s, rec)
	if err != nil {
		return fmt.Errorf("start component %s: %w", r.Name, err)
	}
	rec.Process, rec.Since = &id, time.Now()
	a.o.Log.Info("component started", "component", r.Name, "pid", id.PID, "home", rec.Home)
	return nil
}

// Stop ends the component with all of its processes, and records that it is not to run.
func (a *Adapter) Stop(ctx context.Context, r *runtime.Release) error {
	s, err := decode(r)
	if err != nil {
		return err
	}
	a.component(r).halt()
	rec, err := a.readRecord(r)
	if err != nil {
		return err
	}
	if rec.Wanted {
		// First, so that no agent that starts in the middle starts it again.
		rec.Wanted = false
		if err := a.writeRecord(r, rec); err != nil {
			return err
		}
	}
	return a.end(ctx, r, s, &rec)
}

// end ends all processes of a run: it sends them the signal to stop, and kills what has not
// ended after the timeout. It returns early only when ctx ends, and may then be repeated.
func (a *Adapter) end(ctx context.Context, r *runtime.Release, s settings, rec *record) error {
	if rec.Process != nil && runs(*rec.Process) {
		list, err := members(*rec)
		if err != nil {
			return fmt.Errorf("stop component %s: %w", r.Name, err)
		}
		for _, id := range list {
			if err := send(id, s.StopSignal); err != nil {
				a.o.Log.Warn("a process of a component does not get the signal to stop", "component", r.Name, "pid", id.PID, "error", err)
			}
		}
		// Children may outlive the program by a moment. Listing them reads all processes of
		// the host, so they are listed once; kill lists them again.
		var children []identity
		listed := false
		ended, err := waitFor(ctx, s.StopAfter, func() (bool, error) {
			if runs(*rec.Process) {
				return false, nil
			}
			if !listed {
				if children, err = members(*rec); err != nil {
					return false, err
				}
				listed = true
			}
			children = slices.DeleteFunc(children, func(id identity) bool { return !runs(id) })
			return len(children) == 0, nil
		})
		if err != nil {
			return fmt.Errorf("stop component %s: %w", r.Name, err)
		}
		if !ended {
			a.o.Log.Warn("component did not end in time and is killed", "component", r.Name, "timeout", s.StopAfter.String())
		}
	}
	_, err := a.kill(ctx, r, rec)
	return err
}

// kill kills what is left of a run. Then it collects the program and returns its status: as
// long as the program is not collected, no other process gets its id, nor its session's.
func (a *Adapter) kill(ctx context.Context, r *runtime.Release, rec *record) (status string, err error) {
	var left []identity
	gone, err := waitFor(ctx, killTimeout, func() (bool, error) {
		var err error
		left, err = members(*rec)
		for _, id := range left {
			_ = send(id, "KILL") // what does not get it is found again
		}
		return len(left) == 0, err
	})
	if err != nil {
		return "", fmt.Errorf("kill component %s: %w", r.Name, err)
	}
	if !gone {
		var pids []int
		for _, id := range left {
			pids = append(pids, id.PID)
		}
		return "", fmt.Errorf("kill component %s: processes %v do not end within %s: end them by hand", r.Name, pids, killTimeout)
	}
	if rec.Process != nil {
		status = reap(*rec.Process)
	}
	// The kernel needs a moment to let go of what was killed.
	removed, err := waitFor(ctx, groupTimeout, func() (bool, error) { return removeGroup(rec.Group), nil })
	if err == nil && !removed {
		a.o.Log.Warn("the control group of a component stays", "component", r.Name, "group", rec.Group)
	}
	return status, nil
}

// waitFor waits until done, at most d.
func waitFor(ctx context.Context, d time.Duration, done func() (bool, error)) (bool, error) {
	tick := time.NewTicker(stopPoll)
	defer tick.Stop()
	for deadline := time.Now().Add(d); ; {
		if is, err := done(); is || err != nil {
			return is && err == nil, err
		}
		if !time.Now().Before(deadline) {
			return false, nil
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return false, context.Cause(ctx)
		}
	}
}

// Reload sends the program the signal to read its configuration again.
func (a *Adapter) Reload(_ context.Context, r *runtime.Release) error {
	s, err := decode(r)
	if err != nil {
		return err
	}
	rec, _, _ := a.component(r).snapshot()
	if rec == nil {
		read, err := a.readRecord(r)
		if err != nil {
			return err
		}
		rec = &read
	}
	if rec.Process == nil || !runs(*rec.Process) {
		return fmt.Errorf("reload component %s: it does not run", r.Name)
	}
	if err := send(*rec.Process, s.ReloadSignal); err != nil {
		return fmt.Errorf("reload component %s: %w", r.Name, err)
	}
	return nil
}

// Remove stops the component and removes its record and its temporary files. Its output
// stays in its folder.
func (a *Adapter) Remove(ctx context.Context, r *runtime.Release) error {
	if err := a.Stop(ctx, r); err != nil {
		return err
	}
	if err := a.o.Disk.RemoveAll("temporary files", filepath.Join(r.Dir, temporaryDir)); err != nil {
		return err
	}
	return disk.RemoveRecord(a.o.Disk, opRecord, filepath.Join(r.Dir, recordFile))
}

// Logs returns the last lines of what the component's processes have printed.
func (a *Adapter) Logs(_ context.Context, r *runtime.Release, lines int) ([]string, error) {
	return logfile.Tail(a.o.Disk, filepath.Join(r.Dir, outputFile), lines)
}
