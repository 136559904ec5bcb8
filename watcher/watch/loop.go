// Package watch judges the version a host was just moved to, and keeps it or
// puts the previous one back. The program muster-watcher runs one [Watch]; what
// it knows of the upgrade comes from the marker, what it learns of the agent
// through a [Host].
//
// The verdict is a pure function of the samples taken (verdict.go, history.go).
// The loop takes one sample a second and asks for the verdict; rollback.go and
// commit.go carry it out in steps that may be repeated after a crash.
package watch

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"github.com/muster-fleet/muster/packaging/disk"
	"github.com/muster-fleet/muster/packaging/layout"
	"github.com/muster-fleet/muster/packaging/manifest"
	"github.com/muster-fleet/muster/watcher/handoff"
	"github.com/muster-fleet/muster/watcher/probe"
)

const (
	// tick is the time between two looks at the agent's process, and between
	// two questions while something is wrong: a crash loop is decided in
	// seconds whatever the interval of the rules. A look costs two file reads.
	tick = time.Second

	// verdictAttempts bounds how often a verdict is tried to be carried out,
	// with verdictPause before the second attempt and twice as long before each
	// further one: a disk that is full or busy for half a minute is outlasted.
	verdictAttempts = 6
	verdictPause    = time.Second
)

// Host is the agent as the watcher can reach it.
type Host interface {
	// Agent looks at the agent's process, without asking it.
	Agent() Process
	// Health asks the agent; see probe.Client, which bounds the question.
	Health(ctx context.Context) (probe.Health, error)
	// Start starts what the pointer leads to, for a host where no service
	// manager does. It returns when the process was started.
	Start() error
	// Restart ends the agent that runs, if one does, and has the one started
	// that the pointer leads to. It returns within a bounded time; that the
	// agent runs is not known by then.
	Restart() error
	// Check tries a check of the package whose versioned home is home, once: nil
	// if it passes, else why not. It returns within a second of ctx's end and
	// leaves nothing running. Several may be under way at once.
	Check(ctx context.Context, home string, c manifest.Check) error
}

// Process is the agent's process.
type Process struct {
	Alive bool
	PID   int    // 0 if the host cannot tell
	Home  string // versioned home its program lies in, "" if the host cannot tell
	Exits int    // see Sample
}

// Watch is the watch of one host. Every field but Server is required.
type Watch struct {
	Top  string // absolute
	Disk disk.Disk
	Host Host
	Log  *slog.Logger
	// Server receives the reports of the watch; nil where the watcher has no
	// credential. The last report may still be on its way when Run returns.
	Server Server

	refused string // home a request was refused for, see requested
	exits   int    // the host's count when the marker being watched was found
}

// plan is what to do with the host.
type plan struct {
	do     action
	reason handoff.Reason // of a rollback, or why the host is left alone
	keep   keepHome
	seen   History // of the agent, by the watch that came to this plan
}

type action int

const (
	goOnWatching action = iota
	awaitSwitch         // the pointer does not lead to the new version yet
	keepNew
	putBack
	leaveAlone
	watchNext // the marker has made room for another one
)

// maxMarkers bounds how many markers one watcher follows. The agent writes a new
// one when it begins again after a crash, which it does a handful of times; a
// later watcher goes on.
const maxMarkers = 10

// Run watches the upgrade the marker on the host tells of, until it is kept or
// rolled back, and returns the outcome. The outcome is nil when there is nothing
// to watch or the host is left alone. When ctx ends before the verdict Run
// returns its error and the marker stays for the next watcher; after the verdict
// Run finishes first.
func (w *Watch) Run(ctx context.Context) (*handoff.Outcome, error) {
	for range maxMarkers {
		m, err := handoff.ReadMarker(w.Disk, w.Top)
		if err != nil {
			w.Log.Warn("the upgrade marker cannot be read and counts as none", "error", err)
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
		// The ends so far are not the next version's.
		w.exits = w.Host.Agent().Exits
	}
	return nil, fmt.Errorf("the upgrade marker changed %d times in one watch", maxMarkers)
}

// carryOut does what was decided.
func (w *Watch) carryOut(ctx context.Context, m handoff.Marker, p plan) (o *handoff.Outcome, err error) {
	switch p.do {
	case keepNew:
		o, err = w.retry(ctx, func(context.Context) (handoff.Outcome, error) { return w.commit(m) })
	case putBack:
		w.Log.Warn("rolling back", "from", m.To.String(), "to", m.From.String(), "code", p.reason.Code, "reason", p.reason.Text)
		w.announce(ctx, m, p.seen, p.reason)
		o, err = w.retry(ctx, func(ctx context.Context) (handoff.Outcome, error) {
			return w.rollBack(ctx, m, p.reason, p.keep)
		})
	default:
		w.Log.Warn("the host is left as it is", "reason", p.reason.Text)
	}
	if o != nil {
		w.conclusion(ctx, m, p.seen, *o)
	}
	return o, err
}

func (w *Watch) plan(ctx context.Context, m handoff.Marker) (plan, error) {
	d, err := handoff.ReadDecision(w.Disk, w.Top, m)
	if err != nil {
		w.Log.Warn("an earlier decision cannot be read and counts as none", "error", err)
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
	if p.do == goOnWatching {
		return w.watch(ctx, m)
	}
	return p, nil
}

// resume decides what a watcher that starts has to do, from the decision an
// earlier one may have left and from where the pointer leads.
func resume(m handoff.Marker, d *handoff.Decision, home string) plan {
	switch {
	case home != "" && home != m.To.Home && home != m.From.Home:
		return plan{do: leaveAlone, reason: handoff.Reason{Text: fmt.Sprintf(
			"the pointer %s leads to %s, which is neither %s nor %s of the marker: someone else switched this host",
			layout.AgentLink, home, m.To.Home, m.From.Home)}}
	case d != nil && d.Result == handoff.RolledBack && d.Reason != nil:
		return plan{do: putBack, reason: *d.Reason}
	case d != nil && d.Result == handoff.Committed && home == m.To.Home:
		return plan{do: keepNew}
	case d != nil && d.Result == handoff.Committed && home == m.From.Home:
		return plan{do: putBack, reason: movedBack(m)}
	case home == m.From.Home:
		return plan{do: awaitSwitch}
	}
	return plan{do: goOnWatching}
}

func movedBack(m handoff.Marker) handoff.Reason {
	return handoff.Reason{Code: handoff.ReasonManual, Text: fmt.Sprintf(
		"The pointer was moved from %s back to %s by someone else while it was watched.", m.To, m.From)}
}

// awaitSwitch waits for the agent that wrote the marker to move the pointer: a
// watcher started by the marker's mere presence comes between the two.
func (w *Watch) awaitSwitch(ctx context.Context, m handoff.Marker) (plan, error) {
	w.Log.Info("waiting for the agent to switch", "to", m.To.String(), "at_most", handOver)
	w.send(History{}.report(m, Watching))
	for waited := time.Duration(0); waited < handOver; waited += tick {
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
	// The new home stays: an agent that is only slow may still move the pointer
	// to it. If not, its journal or the next commit removes it.
	p := plan{do: putBack, keep: keepBad, reason: handoff.Reason{Code: handoff.ReasonNotStarted, Text: fmt.Sprintf(
		"%s was never started: %s after the upgrade began the pointer still led to %s.", m.To, handOver, m.From)}}
	if r := w.requested(m); r != nil {
		p.reason = *r
	}
	return p, nil
}

// withdrawn returns a plan if the marker is no longer the one being watched: the
// agent took it back, or the agent is being uninstalled. A marker that cannot be
// read in the middle of a watch changes nothing, it was read before.
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

// state is what the loop carries from round to round.
type state struct {
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
	s := state{checker: newChecker(w.Host, m)}
	defer s.checker.stop()
	for {
		if p := w.round(ctx, m, &s); p.do != goOnWatching {
			p.seen = s.history
			return p, nil
		}
		if err := pause(ctx, min(tick, time.Duration(m.Rules.Interval))); err != nil {
			w.Log.Info("stopping before a verdict, the next watcher goes on", "waiting", Waiting(m, s.history))
			return plan{}, err
		}
	}
}

// round takes one look and decides.
func (w *Watch) round(ctx context.Context, m handoff.Marker, s *state) plan {
	if p := w.withdrawn(m); p != nil {
		return *p
	}
	if p, ok := w.pointerMoved(m, s); !ok {
		return p
	}
	if r := w.requested(m); r != nil {
		return plan{do: putBack, reason: *r}
	}
	due := s.history.NeedsAnswer() || time.Since(s.asked) >= time.Duration(m.Rules.Interval)
	sample := w.sample(ctx, due)
	if ctx.Err() != nil {
		// The question was cut short: that is not the agent's silence.
		return plan{}
	}
	if sample.Health != nil || sample.Err != nil {
		s.asked = sample.At
	}
	sample.Tries, sample.Server = s.checker.collect(), w.contact()
	s.history = s.history.Add(m, sample)
	switch v := Judge(s.history); v.Kind {
	case Good:
		w.Log.Info("the new version is good", "waiting", Waiting(m, s.history))
		return plan{do: keepNew}
	case RollBack:
		return plan{do: putBack, reason: v.Reason}
	}
	w.reportStatus(m, s)
	w.supervise(m, s.history)
	s.checker.start(ctx, s.history)
	return plan{}
}

// pointerMoved returns ok as long as the pointer leads to the new version. One
// that is missing is waited for as a failure is: an agent being uninstalled takes
// the marker along within moments.
func (w *Watch) pointerMoved(m handoff.Marker, s *state) (p plan, ok bool) {
	home, err := w.linkHome(opPointer, layout.AgentLink)
	if err != nil || home == m.To.Home {
		s.missing = 0
		return plan{}, true
	}
	if home == m.From.Home {
		return plan{do: putBack, reason: movedBack(m)}, false
	}
	if home != "" {
		return resume(m, nil, home), false
	}
	if s.missing += min(tick, time.Duration(m.Rules.Interval)); s.missing < time.Duration(m.Rules.FailedFor) {
		return plan{}, false
	}
	return plan{do: putBack, reason: handoff.Reason{Code: handoff.ReasonNotStarted, Text: fmt.Sprintf(
		"The pointer %s was missing for %s, so nothing could start %s.", layout.AgentLink, s.missing, m.To)}}, false
}

// sample looks at the process and, if ask says so or the process is not where it
// was last seen, asks for health. An answer proves a process where none is seen.
func (w *Watch) sample(ctx context.Context, ask bool) Sample {
	p := w.Host.Agent()
	s := Sample{At: time.Now(), Alive: p.Alive, PID: p.PID, Exits: max(0, p.Exits-w.exits)}
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

// supervise starts the agent again where no service manager does it. The second
// look in a row that finds no process decides: an agent that replaces itself in
// place may be between its two programs in the first.
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

func (w *Watch) reportStatus(m handoff.Marker, s *state) {
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

// retry calls act until a verdict is carried out. It no longer follows ctx: half a
// rollback is worse than a late end.
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
			return nil, fmt.Errorf("the verdict could not be carried out in %d attempts, run muster-watcher again to go on: %w", attempt, err)
		}
		w.Log.Warn("the verdict could not be carried out yet", "attempt", attempt, "of", verdictAttempts, "error", err)
		if err := pause(ctx, wait); err != nil {
			return nil, err
		}
		wait *= 2
	}
}
