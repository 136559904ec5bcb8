// Package watch observes the version that a host was just switched to, and commits it or
// rolls back to the previous one. The program muster-watcher runs one [Watch], which reads
// the upgrade from the marker and observes the agent through a [Host].
//
// The verdict is a pure function of the samples (verdict.go, history.go). The loop takes a
// sample every second and computes the verdict; rollback.go and commit.go carry it out in
// steps that may be repeated after a crash.
package watch

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"github.com/muster-fleet/muster/packaging/host/disk"
	"github.com/muster-fleet/muster/packaging/host/layout"
	"github.com/muster-fleet/muster/packaging/pkg/manifest"
	"github.com/muster-fleet/muster/watcher/handoff"
	"github.com/muster-fleet/muster/watcher/probe"
)

const (
	// tick is the time between two samples of the agent's process, and between two
	// health requests while something is wrong, so that a crash loop is detected
	// within seconds whatever the interval of the rules. A sample costs three file
	// reads.
	tick = time.Second

	// verdictAttempts bounds the attempts to carry out a verdict, with verdictPause
	// before the second and twice as long before each further one: long enough for a
	// disk that is full or busy for half a minute.
	verdictAttempts = 6
	verdictPause    = time.Second
)

// Host is the watcher's access to the agent.
type Host interface {
	// Agent returns the state of the agent's process.
	Agent() Process
	// Health requests the agent's health; see probe.Client, which bounds the request.
	Health(ctx context.Context) (probe.Health, error)
	// Start starts the version that the pointer leads to, on a host without a service
	// manager. It returns when the process has started.
	Start() error
	// Restart stops the agent, if it runs, and starts the version that the pointer
	// leads to. It returns within a bounded time, and does not wait until the agent
	// answers.
	Restart() error
	// Diagnose says why the version in home does not run well, as far as the host shows it. It
	// returns within seconds.
	Diagnose(ctx context.Context, home string) Diagnosis
	// Check runs a check of the package in home once and returns nil if it passes. It
	// returns within a second of ctx's end and leaves no process running. It may be
	// called concurrently.
	Check(ctx context.Context, home string, c manifest.Check) error
}

// Diagnosis is what a host shows of a version that does not run well.
type Diagnosis struct {
	// Output is the end of what its process has written since the watch began; empty if unknown.
	Output string
	// Own is what keeps every version from running well here, or nil.
	Own *handoff.Reason
}

// Process is the agent's process.
type Process struct {
	Alive bool
	PID   int    // 0 if unknown
	Home  string // versioned home of its program, "" if unknown
	Exits int    // see Sample
	Stops int    // see Sample
}

// Watch watches one host. All fields but Links and Server are required.
type Watch struct {
	Top string // absolute
	// Links is the folder of the pointer and the watcher's link if it is not Top; see
	// [layout.Roots].
	Links string
	Disk  disk.Disk
	Host  Host
	Log   *slog.Logger
	// Server receives the reports of the watch; nil if the watcher has no credential.
	// The last report may not be sent yet when Run returns.
	Server Server

	refused string // what was refused last, see refuse
	exits   int    // Process.Exits when the current marker was read
}

// plan is what to do next.
type plan struct {
	do     action
	reason handoff.Reason // of a rollback, or why the host is left alone
	keep   keepHome
	seen   History // at the end of the watch that led to this plan
}

type action int

const (
	continueWatching action = iota
	awaitSwitch             // the pointer does not lead to the new version yet
	keepNew
	restorePrevious
	leaveAlone
	watchNext // the marker was replaced by another one
)

// maxMarkers bounds how many markers one watcher follows. The agent writes a new one when it
// begins again after a crash, which it does a few times. A later watcher continues.
const maxMarkers = 10

// Run watches the upgrade in the marker until it is committed or rolled back, and returns
// the outcome. The outcome is nil if there is nothing to watch or the host is left alone. If
// ctx ends before the verdict Run returns its error and the marker stays for the next
// watcher; after the verdict Run finishes first.
func (w *Watch) Run(ctx context.Context) (*handoff.Outcome, error) {
	for range maxMarkers {
		m, err := handoff.ReadMarker(w.Disk, w.Top)
		if err != nil {
			w.Log.Warn("the upgrade marker cannot be read and is ignored", "error", err)
			return nil, nil
		}
		if m == nil {
			return nil, nil
		}
		p, err := w.plan(ctx, *m)
		if err != nil {
			return nil, err
		}
		if p.do != watchNext {
			return w.carryOut(ctx, *m, p)
		}
		w.Log.Info("watching again", "why", p.reason.Text)
		// The exits so far are not those of the next version.
		w.exits = w.Host.Agent().Exits
	}
	return nil, fmt.Errorf("the upgrade marker changed %d times in one watch", maxMarkers)
}

// carryOut carries out a plan.
func (w *Watch) carryOut(ctx context.Context, m handoff.Marker, p plan) (o *handoff.Outcome, err error) {
	switch p.do {
	case keepNew:
		o, err = w.retry(ctx, func(context.Context) (handoff.Outcome, error) { return w.commit(m) })
	case restorePrevious:
		w.Log.Warn("rolling back", "from", m.To.String(), "to", m.From.String(), "code", p.reason.Code, "reason", p.reason.Text)
		w.announce(ctx, m, p.seen, p.reason)
		o, err = w.retry(ctx, func(ctx context.Context) (handoff.Outcome, error) {
			return w.rollBack(ctx, m, p.reason, p.keep)
		})
	default:
		w.Log.Warn("the host is left as it is", "reason", p.reason.Text)
		w.dropReserved()
	}
	if o != nil {
		w.conclusion(ctx, m, p.seen, *o)
	}
	return o, err
}

func (w *Watch) plan(ctx context.Context, m handoff.Marker) (plan, error) {
	d, err := handoff.ReadDecision(w.Disk, w.Top, m)
	if err != nil {
		w.Log.Warn("an earlier decision cannot be read and is ignored", "error", err)
	}
	home, err := w.linkHome(opPointer, layout.AgentLink)
	if err != nil {
		return plan{}, err
	}
	p := resume(m, d, home)
	if p.do == awaitSwitch {
		if p, err = w.awaitSwitch(ctx, m); err != nil {
			return plan{}, err
		}
	}
	if p.do == continueWatching {
		return w.watch(ctx, m)
	}
	return p, nil
}

// resume returns the plan of a watcher that starts, from the decision of an earlier watcher
// and the pointer.
func resume(m handoff.Marker, d *handoff.Decision, home string) plan {
	switch {
	case home != "" && home != m.To.Home && home != m.From.Home:
		return plan{do: leaveAlone, reason: handoff.Reason{Text: fmt.Sprintf(
			"the pointer %s leads to %s, which is neither %s nor %s of the marker: the host was switched by other means",
			layout.AgentLink, home, m.To.Home, m.From.Home)}}
	case d != nil && d.Result == handoff.RolledBack && d.Reason != nil:
		return plan{do: restorePrevious, reason: *d.Reason, keep: keepHome(d.KeepHome)}
	case d != nil && d.Result == handoff.Committed && home == m.To.Home:
		return plan{do: keepNew}
	case d != nil && d.Result == handoff.Committed && home == m.From.Home:
		return plan{do: restorePrevious, reason: movedBack(m)}
	case home == m.From.Home:
		return plan{do: awaitSwitch}
	}
	return plan{do: continueWatching}
}

func movedBack(m handoff.Marker) handoff.Reason {
	return handoff.Reason{Code: handoff.ReasonManual, Text: fmt.Sprintf(
		"The pointer was moved from %s back to %s by other means while it was watched.", m.To, m.From)}
}

// awaitSwitch waits for the agent that wrote the marker to move the pointer. The watcher is
// started between the two.
func (w *Watch) awaitSwitch(ctx context.Context, m handoff.Marker) (plan, error) {
	w.Log.Info("waiting for the agent to switch", "to", m.To.String(), "at_most", switchTimeout)
	w.send(History{}.report(m, Watching))
	for waited := time.Duration(0); waited < switchTimeout; waited += tick {
		if err := pause(ctx, tick); err != nil {
			return plan{}, err
		}
		if p := w.withdrawn(m); p != nil {
			return *p, nil
		}
		home, err := w.linkHome(opPointer, layout.AgentLink)
		if err != nil {
			return plan{}, err
		}
		if p := resume(m, nil, home); p.do != awaitSwitch {
			return p, nil
		}
	}
	// The new home stays, because a slow agent may still move the pointer to it.
	// Otherwise the agent's journal or the next commit removes it.
	p := plan{do: restorePrevious, keep: keepBad, reason: handoff.Reason{Code: handoff.ReasonNotStarted, Text: fmt.Sprintf(
		"%s was never started: %s after the upgrade began the pointer still led to %s.", m.To, switchTimeout, m.From)}}
	if r := w.requested(m); r != nil {
		p.reason = *r
	}
	return p, nil
}

// withdrawn returns a plan if the marker was removed or replaced: the agent undid the
// upgrade, or is being uninstalled. A marker that cannot be read during the watch changes
// nothing.
func (w *Watch) withdrawn(m handoff.Marker) *plan {
	now, err := handoff.ReadMarker(w.Disk, w.Top)
	if err != nil || (now != nil && now.CreatedAt.Equal(m.CreatedAt) && now.To.Home == m.To.Home) {
		return nil
	}
	if now != nil {
		return &plan{do: watchNext, reason: handoff.Reason{Text: "the upgrade marker is now about another upgrade, to " + now.To.String()}}
	}
	return &plan{do: leaveAlone, reason: handoff.Reason{Text: "the upgrade marker was removed while the version was watched"}}
}

// watchState is the state of the loop.
type watchState struct {
	history  History
	asked    time.Time
	missing  time.Duration // how long the pointer has been missing
	logged   string        // the last status that was logged
	loggedAt time.Time
	sent     string // the last status that was sent
	sentAt   time.Time
	checker  *checker
}

func (w *Watch) watch(ctx context.Context, m handoff.Marker) (plan, error) {
	w.Log.Info("watching", "version", m.To.String(), "previous", m.From.String(), "interval", m.Rules.Interval.String(),
		"grace", m.Rules.Grace.String(), "failed_for", m.Rules.FailedFor.String(), "max_crashes", m.Rules.MaxCrashes,
		"service", m.Restart.Service)
	s := watchState{checker: newChecker(w.Host, m)}
	defer s.checker.stop()
	for {
		if p := w.step(ctx, m, &s); p.do != continueWatching {
			p.seen = s.history
			return p, nil
		}
		if err := pause(ctx, min(tick, time.Duration(m.Rules.Interval))); err != nil {
			w.Log.Info("stopping before a verdict, the next watcher continues", "waiting", Waiting(m, s.history))
			return plan{}, err
		}
	}
}

// step takes one sample and returns what to do next.
func (w *Watch) step(ctx context.Context, m handoff.Marker, s *watchState) plan {
	if p := w.withdrawn(m); p != nil {
		return *p
	}
	if p, ok := w.checkPointer(m, s); !ok {
		return p
	}
	if r := w.requested(m); r != nil {
		return plan{do: restorePrevious, reason: *r}
	}
	due := s.history.NeedsAnswer() || time.Since(s.asked) >= time.Duration(m.Rules.Interval)
	sample := w.sample(ctx, due)
	if ctx.Err() != nil {
		// The request was cancelled, so the error is not the agent's.
		return plan{}
	}
	if sample.Health != nil || sample.Err != nil {
		s.asked = sample.At
	}
	sample.Tries, sample.Server = s.checker.collect(), w.contact()
	s.history = s.history.Add(m, sample)
	switch v := Judge(s.history); v.Kind {
	case Commit:
		w.Log.Info("the new version is good", "waiting", Waiting(m, s.history))
		return plan{do: keepNew}
	case RollBack:
		return plan{do: restorePrevious, reason: explain(v.Reason, w.Host.Diagnose(ctx, m.To.Home)), keep: keepHome(s.history.untried())}
	}
	w.reportStatus(m, s)
	w.supervise(m, s.history)
	s.checker.start(ctx, s.history)
	return plan{}
}

// checkPointer returns ok if the pointer leads to the new version, and otherwise a plan. It
// waits FailedFor for a missing pointer: an uninstall removes the marker moments later.
func (w *Watch) checkPointer(m handoff.Marker, s *watchState) (p plan, ok bool) {
	home, err := w.linkHome(opPointer, layout.AgentLink)
	if err != nil || home == m.To.Home {
		s.missing = 0
		return plan{}, true
	}
	if home == m.From.Home {
		return plan{do: restorePrevious, reason: movedBack(m)}, false
	}
	if home != "" {
		return resume(m, nil, home), false
	}
	if s.missing += min(tick, time.Duration(m.Rules.Interval)); s.missing < time.Duration(m.Rules.FailedFor) {
		return plan{}, false
	}
	return plan{do: restorePrevious, reason: handoff.Reason{Code: handoff.ReasonNotStarted, Text: fmt.Sprintf(
		"The pointer %s was missing for %s, so nothing could start %s.", layout.AgentLink, s.missing, m.To)}}, false
}

// sample samples the process and requests the agent's health if ask is set or there is no
// process. An answer proves that a process runs, even if none was found.
func (w *Watch) sample(ctx context.Context, ask bool) Sample {
	p := w.Host.Agent()
	s := Sample{At: time.Now(), Alive: p.Alive, PID: p.PID, Exits: max(0, p.Exits-w.exits), Stops: p.Stops}
	if !ask && p.Alive {
		return s
	}
	h, err := w.Host.Health(ctx)
	if err != nil {
		s.Err = err
		return s
	}
	s.Health, s.Alive = &h, true
	if s.PID == 0 {
		s.PID = h.PID
	}
	return s
}

// supervise starts the agent again on a host without a service manager, when two samples in
// a row find no process: an agent that re-executes itself may be missing in one.
func (w *Watch) supervise(m handoff.Marker, h History) {
	if m.Restart.Service != "" || h.Gone() == 0 {
		return
	}
	if err := w.Host.Start(); err != nil {
		w.Log.Error("the agent could not be started", "error", err)
		return
	}
	w.Log.Warn("the agent was gone and was started again", "ends_so_far", h.crashes())
}

// logAgain is the time after which an unchanged watch is logged again.
const logAgain = time.Minute

func (w *Watch) reportStatus(m handoff.Marker, s *watchState) {
	status := s.history.status(m)
	if status != s.sent || time.Since(s.sentAt) >= reportEvery(m) {
		s.sent, s.sentAt = status, time.Now()
		w.send(s.history.report(m, Watching))
	}
	if status == s.logged && time.Since(s.loggedAt) < logAgain {
		return
	}
	s.logged, s.loggedAt = status, time.Now()
	w.Log.Info("watching", "waiting", Waiting(m, s.history))
}

// retry calls act until the verdict is carried out. It ignores the end of ctx, since a
// partial rollback is worse than a late exit.
func (w *Watch) retry(ctx context.Context, act func(context.Context) (handoff.Outcome, error)) (*handoff.Outcome, error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), rollbackDeadline)
	defer cancel()
	wait := verdictPause
	for attempt := 1; ; attempt++ {
		o, err := act(ctx)
		if err == nil {
			w.Log.Info("the watch is over", "result", o.Result, "version", o.To.String(), "previous", o.From.String())
			return &o, nil
		}
		if attempt == verdictAttempts || ctx.Err() != nil {
			return nil, fmt.Errorf("the verdict could not be carried out in %d attempts, run muster-watcher again to continue: %w", attempt, err)
		}
		w.Log.Warn("the verdict could not be carried out yet", "attempt", attempt, "of", verdictAttempts, "error", err)
		if err := pause(ctx, wait); err != nil {
			return nil, err
		}
		wait *= 2
	}
}
