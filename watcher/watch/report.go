package watch

import (
	"context"
	"fmt"
	"time"

	"github.com/muster-fleet/muster/watcher/handoff"
	"github.com/muster-fleet/muster/watcher/probe"
)

const (
	// maxReportEvery is the longest time between two reports of a watch, and so the age
	// of what an operator sees.
	maxReportEvery = 30 * time.Second
	minReportEvery = time.Second

	// announceTimeout is how long a rollback waits until its reason was sent to the
	// server.
	announceTimeout = 2 * time.Second
)

// reportEvery returns the time between two reports. Under short rules it is FailedFor, so
// that minReports fit into the time after which lost check-ins roll back.
func reportEvery(m handoff.Marker) time.Duration {
	return max(min(maxReportEvery, time.Duration(m.Rules.FailedFor)), minReportEvery)
}

// Server sends the watcher's reports to the server. The verdict depends only on whether they
// are accepted.
type Server interface {
	// URL is the server's base URL.
	URL() string
	// Send sends a report in the background. It replaces a report that was not sent
	// yet.
	Send(r Report)
	// Flush waits until the newest report was sent, cannot be sent yet, or ctx ends.
	Flush(ctx context.Context)
	// Contact returns how many reports were accepted and how many failed since the
	// last call.
	Contact() (good, bad int)
}

// Phase is the phase of a watch. A watch that has ended has the name of its result.
type Phase string

// The phases before a result.
const (
	Watching    Phase = "watching"
	RollingBack Phase = "rolling_back"
)

// Report describes the host and the upgrade.
type Report struct {
	Marker  handoff.Marker
	Phase   Phase
	Alive   bool          // the agent's process runs
	Health  *probe.Health // its last answer, if it still holds
	Crashes int           // exits of its process in this watch
	Reason  *handoff.Reason
	Waiting string // a sentence; empty when the watch has ended
	At      time.Time
}

// report returns the report of h.
func (h History) report(m handoff.Marker, phase Phase) Report {
	r := Report{Marker: m, Phase: phase, Alive: h.alive, Crashes: h.crashes(), At: time.Now()}
	switch h.cond.kind {
	case running, previous, foreign:
		health := h.cond.health
		r.Health = &health
	}
	if phase == Watching {
		r.Waiting = Waiting(m, h)
	}
	return r
}

// status returns a text that changes whenever a report must be sent at once.
func (h History) status(m handoff.Marker) string {
	return fmt.Sprint(h.cond.kind, h.cond.health.State, h.cond.health.Fleet.State, h.crashes(), failingChecks(m, h))
}

func (w *Watch) send(r Report) {
	if w.Server != nil {
		w.Server.Send(r)
	}
}

// contact returns the results of the reports since the last sample.
func (w *Watch) contact() Contact {
	if w.Server == nil {
		return Contact{}
	}
	good, bad := w.Server.Contact()
	return Contact{URL: w.Server.URL(), Good: good, Bad: bad}
}

// announce reports a rollback before it begins, in case the host loses its network.
func (w *Watch) announce(ctx context.Context, m handoff.Marker, h History, reason handoff.Reason) {
	if w.Server == nil {
		return
	}
	r := h.report(m, RollingBack)
	r.Reason = &reason
	w.Server.Send(r)
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), announceTimeout)
	defer cancel()
	w.Server.Flush(ctx)
}

// conclusion sends the last report, with the state of the agent that runs now.
func (w *Watch) conclusion(ctx context.Context, m handoff.Marker, h History, o handoff.Outcome) {
	if w.Server == nil {
		return
	}
	s := w.sample(context.WithoutCancel(ctx), true)
	w.Server.Send(Report{
		Marker: m, Phase: Phase(o.Result), Alive: s.Alive, Health: s.Health, Crashes: h.crashes(), Reason: o.Reason, At: o.At,
	})
}
