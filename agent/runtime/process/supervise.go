package process

import (
	"context"
	"crypto/rand"
	"path/filepath"
	"sync"
	"time"

	"github.com/muster-fleet/muster/agent/backoff"
	"github.com/muster-fleet/muster/agent/logfile"
	"github.com/muster-fleet/muster/agent/runtime"
)

const (
	// restartBase and restartCap bound the wait before a restart. A program that ends at
	// once, as one whose port is taken, is tried some fifty times in the first hour, and is
	// back at most a minute after its cause is gone.
	restartBase = time.Second
	restartCap  = time.Minute
	// steadyAfter is how long a program has to run for its next end to be the first again.
	// It is longer than restartCap, so that one which fails after a minute still waits.
	steadyAfter = 5 * time.Minute
	// tick is how often a component's output is bounded, and an adopted process that is not
	// the agent's child is looked for. A component can write some hundred megabytes in it.
	tick = time.Second
)

// restarts decides when a program that has ended is started again.
type restarts struct{ backoff.Backoff }

func newRestarts(random func() float64) *restarts {
	// Half, so that the wait grows: one host has no herd to spread.
	return &restarts{backoff.Backoff{Base: restartBase, Cap: restartCap, Half: true, Rand: random}}
}

// after returns the wait after a program that ran for a time, or could not be started.
func (r *restarts) after(ran time.Duration) time.Duration {
	if ran >= steadyAfter {
		r.Reset()
	}
	return r.Next()
}

// ranFor returns how long a process has run. Its start is from a record, and the clock may have been
// set back since.
func ranFor(since, now time.Time) time.Duration { return max(0, now.Sub(since)) }

// component is one that this agent supervises. Either its goroutine or a call that has
// halted it changes the record.
type component struct {
	mu sync.Mutex
	// rec is nil if the component is not supervised; the record on disk then counts.
	rec     *record
	message string
	ended   string // how its process ended the last time
	cancel  context.CancelFunc
	done    chan struct{}
}

func (c *component) snapshot() (rec *record, message, ended string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.rec == nil {
		return nil, "", ""
	}
	is := *c.rec
	return &is, c.message, c.ended
}

func (c *component) set(rec record, message string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.rec, c.message = &rec, message
}

func (c *component) setEnded(status string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.ended = status
}

// halt ends the supervision and waits for that. The process stays.
func (c *component) halt() {
	c.mu.Lock()
	cancel, done := c.cancel, c.done
	c.rec, c.message, c.ended, c.cancel, c.done = nil, "", "", nil, nil
	c.mu.Unlock()
	if cancel != nil {
		cancel()
		<-done
	}
	c.mu.Lock()
	c.rec = nil // what the goroutine has set last
	c.mu.Unlock()
}

// supervise begins the supervision of what the record says.
func (c *component) supervise(a *Adapter, r *runtime.Release, s settings, rec record) {
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	c.mu.Lock()
	c.rec, c.message, c.ended, c.cancel, c.done = &rec, "", "", cancel, done
	c.mu.Unlock()
	release := *r
	go func() {
		defer close(done)
		a.run(ctx, c, &release, s, rec)
	}()
}

// Resume supervises a component that is to run: it adopts its process, or starts it, and
// tries that again as after a crash. A component that was stopped stays so, and one that is held
// at boot is only adopted. The agent calls it when it starts, for each component that is
// installed, and after a Detach that no re-execution followed.
func (a *Adapter) Resume(_ context.Context, r *runtime.Release) error {
	s, err := decode(r)
	if err != nil {
		return err
	}
	c := a.component(r)
	c.halt()
	rec, err := a.readRecord(r)
	if err != nil || !rec.Wanted || r.WithheldAtBoot && (rec.Process == nil || !runs(*rec.Process)) {
		return err
	}
	c.supervise(a, r, s, rec)
	return nil
}

// Detach ends the supervision of all components. Their processes stay, for the next agent.
func (a *Adapter) Detach() {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, c := range a.components {
		c.halt()
	}
}

// run supervises a component until ctx ends.
func (a *Adapter) run(ctx context.Context, c *component, r *runtime.Release, s settings, rec record) {
	again := newRestarts(a.o.Rand)
	if rec.Process == nil || !runs(*rec.Process) {
		// The agent starts, and the component does not run.
		counts := rec.Process != nil && rec.Process.Boot == bootID()
		if !a.tryRestart(ctx, c, r, s, &rec, counts) && !a.restart(ctx, c, r, s, &rec, again, 0) {
			return
		}
	}
	for {
		if !a.watch(ctx, r, rec) {
			return
		}
		ran := ranFor(rec.Since, time.Now())
		status, err := a.kill(ctx, r, &rec) // its children go with it
		if ctx.Err() != nil {
			return
		}
		message := "its process ended by itself"
		if status != "" {
			message += ": " + status
		}
		a.o.Log.Warn("component ended by itself", "component", r.Name, "pid", rec.Process.PID, "status", status, "ran", ran.String(), "error", err)
		c.setEnded(status)
		c.set(rec, message)
		if !a.restart(ctx, c, r, s, &rec, again, ran) {
			return
		}
	}
}

// watch bounds the output of a process until it ends, and returns false if ctx ends first.
func (a *Adapter) watch(ctx context.Context, r *runtime.Release, rec record) bool {
	ended := make(chan bool, 1)
	go func() { ended <- awaitChild(rec.Process.PID) }()
	every := time.NewTicker(tick)
	defer every.Stop()
	for child := true; ; {
		select {
		case <-ctx.Done():
			return false
		case child = <-ended:
		case <-every.C:
			if err := logfile.Bound(a.o.Disk, filepath.Join(r.Dir, outputFile), a.o.MaxOutput); err != nil {
				a.o.Log.Warn("a component's output lost its older lines", "component", r.Name, "error", err)
			}
			if child {
				continue
			}
		}
		if !runs(*rec.Process) {
			return true
		}
	}
}

// restart waits and starts the program until that succeeds. It returns false if ctx ends
// first.
func (a *Adapter) restart(ctx context.Context, c *component, r *runtime.Release, s settings, rec *record, again *restarts, ran time.Duration) bool {
	for {
		if backoff.Sleep(ctx, again.after(ran)) != nil {
			return false
		}
		if a.tryRestart(ctx, c, r, s, rec, true) {
			return true
		}
		ran = 0
	}
}

// tryRestart starts the program once, after what may be left of an earlier run has ended.
func (a *Adapter) tryRestart(ctx context.Context, c *component, r *runtime.Release, s settings, rec *record, counts bool) bool {
	if ctx.Err() != nil {
		return false
	}
	next := *rec
	_, err := a.kill(ctx, r, rec)
	if err == nil {
		next.Home, err = a.currentHome(r)
	}
	if err == nil {
		if counts {
			next.Restarts++
		}
		next.Process, next.Since = nil, time.Time{}
		if next.Run == "" { // a damaged record had none
			next.Run = rand.Text()
		}
		err = a.launch(r, s, &next)
	}
	if err != nil {
		a.o.Log.Warn("component does not start", "component", r.Name, "error", err)
		c.set(*rec, err.Error())
		return false
	}
	if err := a.writeRecord(r, next); err != nil {
		// The component matters more: another agent would find the run's id in it, and
		// start it again.
		a.o.Log.Warn("the record of a component's process cannot be written", "component", r.Name, "error", err)
	}
	*rec = next
	c.set(*rec, "")
	return true
}
