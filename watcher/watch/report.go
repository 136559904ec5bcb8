package watch

import (
	"context"
	"fmt"
	"time"

	"github.com/muster-fleet/muster/watcher/handoff"
	"github.com/muster-fleet/muster/watcher/probe"
)

const (
	// maxReportEvery is the longest time between two reports of a watch: an
	// operator who looks at a host sees what is half a minute old at most, and
	// a report is what tells a host that is there from one that is not.
	maxReportEvery = 30 * time.Second
	minReportEvery = time.Second

	// lastWord is how long a rollback waits until the server was told why: then
	// it goes on, whatever the network does.
	lastWord = 2 * time.Second
)

// reportEvery is the time between two reports: three fit into the time after
// which lost check-ins roll back, also where rules are short.
func reportEvery(m handoff.Marker) time.Duration {
	return max(min(maxReportEvery, time.Duration(m.Rules.FailedFor)), minReportEvery)
}

// Server is the watcher's own line to the server, with a credential of its own.
// Nothing here decides about a version but whether reports get through.
type Server interface {
	// URL is the server's base URL.
	URL() string
	// Tell leaves a report to be sent and returns at once. A report that was
	// not sent yet is replaced: only the newest counts.
	Tell(r Report)
	// Flush waits until the last report was sent, cannot be sent for now, or
	// ctx has ended.
	Flush(ctx context.Context)
	// Contact is how many reports were taken, and how many not, since it was
	// last asked.
	Contact() (good, bad int)
}

// Stage is how far a watch is. A watch that has ended has its result's name.
type Stage string

// The stages before a result.
const (
	Watching    Stage = "watching"
	RollingBack Stage = "rolling_back"
)

// Report is what the watcher sees of the host and of the upgrade.
type Report struct {
	Marker  handoff.Marker
	Stage   Stage
	Alive   bool          // the agent's process is there
	Health  *probe.Health // its last answer, if it still holds
	Crashes int           // ends of its process in this watch
	Reason  *handoff.Reason
	Waiting string // a sentence; empty when the watch has ended
	At      time.Time
}

// report is what h knows.
func (h History) report(m handoff.Marker, stage Stage) Report {
	r := Report{Marker: m, Stage: stage, Alive: h.alive, Crashes: h.crashes(), At: time.Now()}
	switch h.cond.kind {
	case running, previous, foreign:
		health := h.cond.health
		r.Health = &health
	}
	if stage == Watching {
		r.Waiting = Waiting(m, h)
	}
	return r
}

// status changes with what an operator wants to know at once.
func (h History) status(m handoff.Marker) string {
	return fmt.Sprint(h.cond.kind, h.cond.health.State, h.cond.health.Fleet.State, h.crashes(), failingChecks(m, h))
}

func (w *Watch) send(r Report) {
	if w.Server != nil {
		w.Server.Tell(r)
	}
}

// contact is what the reports have met since the last sample.
func (w *Watch) contact() Contact {
	if w.Server == nil {
		return Contact{}
	}
	good, bad := w.Server.Contact()
	return Contact{URL: w.Server.URL(), Good: good, Bad: bad}
}

// announce tells the server of a rollback before it begins: if it takes the
// host's network along, the server at least knows why.
func (w *Watch) announce(ctx context.Context, m handoff.Marker, h History, reason handoff.Reason) {
	if w.Server == nil {
		return
	}
	r := h.report(m, RollingBack)
	r.Reason = &reason
	w.Server.Tell(r)
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), lastWord)
	defer cancel()
	w.Server.Flush(ctx)
}

// conclusion leaves the last report, of the agent that runs now.
func (w *Watch) conclusion(ctx context.Context, m handoff.Marker, h History, o handoff.Outcome) {
	if w.Server == nil {
		return
	}
	s := w.sample(context.WithoutCancel(ctx), true)
	w.Server.Tell(Report{
		Marker: m, Stage: Stage(o.Result), Alive: s.Alive, Health: s.Health, Crashes: h.crashes(), Reason: o.Reason, At: o.At,
	})
}
