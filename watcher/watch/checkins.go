package watch

import (
	"fmt"
	"strings"
	"time"

	"github.com/muster-fleet/muster/watcher/handoff"
	"github.com/muster-fleet/muster/watcher/probe"
)

const (
	// lostFactor is how long, in multiples of FailedFor, an agent may not reach its
	// server while the watcher does: three minutes by default. An agent tries again
	// within a minute, so this is at least three tries.
	lostFactor = 6

	// minReports is how many of the watcher's reports must have reached the server in
	// that time, without a failure.
	minReports = 3

	// minTries is how many check-ins of the agent must have failed in that time. An
	// agent that waits for its next try after an outage has not lost its server.
	minTries = 3

	// staleFactor is the age, in multiples of reportEvery, after which the last report
	// no longer proves that the server can be reached.
	staleFactor = 3
)

// Contact counts the results of the watcher's reports to the server since the last sample.
// Without a credential of the watcher it is zero, and check-ins do not affect the verdict.
type Contact struct {
	URL  string // base URL of the server
	Good int    // accepted reports
	Bad  int    // reports that were refused or not answered
}

// connection compares the agent's connection to its server with the watcher's.
type connection struct {
	accepted bool          // the server accepted the watcher's last report
	age      time.Duration // since that report
	reached  bool          // accepted, and no jump in time since

	known   int        // the agent's failed tries in a row, in its last answer
	checkin *time.Time // its last check-in, in its last answer
	untried bool       // it has not tried at all, in its last answer
	offline bool       // it does not reach its server

	// While the agent is offline and the watcher reaches the server:
	lost    time.Duration
	reports int // accepted
	tries   int // of the agent, all failed
}

// next returns the connection after a sample. A jump in time restarts the comparison, because
// after a sleep connections are dead and the network is not back at once.
func (l connection) next(m handoff.Marker, h History, s Sample, gap time.Duration, jumped bool) connection {
	was := l
	l.report(m, s.Server, gap, jumped)
	tries, succeeded := l.observe(h, s)
	l.offline = !succeeded && offline(h.cond, s.Server.URL)
	if !l.offline || !was.reached || !l.reached {
		l.lost, l.reports, l.tries = 0, 0, 0
		return l
	}
	l.tries += tries
	if was.offline {
		l.lost += gap
		l.reports += s.Server.Good
	}
	return l
}

// report updates the connection with the results of the watcher's reports.
func (l *connection) report(m handoff.Marker, c Contact, gap time.Duration, jumped bool) {
	l.age += gap
	switch {
	case c.Bad > 0 || c.URL == "" || (c.Good == 0 && l.age > staleFactor*reportEvery(m)):
		l.accepted, l.reached = false, false
	case c.Good > 0:
		l.accepted, l.reached, l.age = true, true, 0
	}
	if jumped {
		l.reached = false
	}
}

// observe updates the connection with the agent's answer. It returns how many check-ins have
// failed since the last answer, and whether one has succeeded.
func (l *connection) observe(h History, s Sample) (tries int, succeeded bool) {
	if h.cond.kind != running {
		l.known, l.checkin, l.untried = 0, nil, false
		return 0, true
	}
	if s.Health == nil {
		return 0, false
	}
	f := s.Health.Fleet
	succeeded = f.LastCheckin != nil && (l.checkin == nil || !f.LastCheckin.Equal(*l.checkin))
	if f.FailedTries < l.known {
		l.known = 0
	}
	tries = f.FailedTries - l.known
	l.known, l.checkin = f.FailedTries, f.LastCheckin
	l.untried = f.State == probe.Starting && f.FailedTries == 0 && f.LastCheckin == nil
	return tries, succeeded
}

// offline reports whether the agent does not reach the server at url for a reason other than
// the server's state. An open poll counts as reaching it, however old it is.
func offline(c condition, url string) bool {
	f := c.health.Fleet
	return c.kind == running && f.State != probe.Healthy && f.URL != "" &&
		strings.TrimRight(f.URL, "/") == strings.TrimRight(url, "/") && !serverAtFault(f.LastStatus)
}

// serverAtFault reports whether a status is about the server's state and not the agent.
func serverAtFault(status int) bool {
	return status >= 500 || status == 429 || status == 408
}

// losing reports whether the version may have lost its server, so that it must not be
// committed yet, even after a jump in time.
func (l connection) losing() bool { return l.accepted && l.offline && (l.known > 0 || l.untried) }

func lostCheckins(m handoff.Marker, h History) *handoff.Reason {
	l := h.connection
	if l.lost < lostFactor*time.Duration(m.Rules.FailedFor) || l.reports < minReports || (l.tries < minTries && !l.untried) {
		return nil
	}
	how := fmt.Sprintf("%d check-ins failed%s", l.tries, quote(h.cond.health.Fleet.Error))
	if l.untried {
		how = "it did not try"
	}
	return &handoff.Reason{Code: handoff.ReasonCheckinLost, Text: fmt.Sprintf(
		"%s has not reached its server for %s, while the watcher reached it %d times: %s.", m.To, round(l.lost), l.reports, how)}
}
