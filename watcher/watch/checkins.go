package watch

import (
	"fmt"
	"strings"
	"time"

	"github.com/muster-fleet/muster/watcher/handoff"
	"github.com/muster-fleet/muster/watcher/probe"
)

const (
	// lostFactor is how long, in FailedFor, an agent may not hear its server
	// although the watcher does: three minutes by default. An agent that lost
	// its server tries again within a minute, so this is three tries and more.
	lostFactor = 6

	// minReports is how many of the watcher's own reports must have reached the
	// server in that time, none failing. With the pace of reports it is six.
	minReports = 3

	// minTries is how many check-ins of the agent must have failed in that time:
	// one that waits to try again after the server was away has lost nothing.
	minTries = 3

	// staleFactor is after how many of the times between two reports the last
	// one proves nothing any more.
	staleFactor = 3
)

// Contact is what the watcher's own reports to the server have met since the last
// sample. Without a credential of the watcher it is zero, and no version is
// judged by its check-ins.
type Contact struct {
	URL  string // base URL of the server
	Good int    // reports it took
	Bad  int    // those it did not answer, or refused
}

// line compares the agent's way to its server with the watcher's.
type line struct {
	taken   bool          // the watcher's last report got to the server
	age     time.Duration // since that report
	reached bool          // taken, and no jump in time since

	known   int        // the agent's failed tries in a row, as it last told them
	checkin *time.Time // when it last heard its server, likewise
	untried bool       // it has not tried at all, likewise
	deaf    bool       // it does not hear its server

	// While the agent is deaf and the watcher reaches the server:
	lost    time.Duration
	reports int // that got there
	tries   int // of the agent, all failed
}

// next is the line after a sample. A jump in time begins the comparison anew:
// after a sleep connections are dead and the network is not back at once.
func (l line) next(m handoff.Marker, h History, s Sample, gap time.Duration, jumped bool) line {
	was := l
	l.report(m, s.Server, gap, jumped)
	tries, heard := l.listen(h, s)
	l.deaf = !heard && deaf(h.cond, s.Server.URL)
	if !l.deaf || !was.reached || !l.reached {
		l.lost, l.reports, l.tries = 0, 0, 0
		return l
	}
	l.tries += tries
	if was.deaf {
		l.lost += gap
		l.reports += s.Server.Good
	}
	return l
}

// report takes in what the watcher's own reports have met. One that was taken
// may be from before a jump.
func (l *line) report(m handoff.Marker, c Contact, gap time.Duration, jumped bool) {
	l.age += gap
	switch {
	case c.Bad > 0 || c.URL == "" || (c.Good == 0 && l.age > staleFactor*reportEvery(m)):
		l.taken, l.reached = false, false
	case c.Good > 0:
		l.taken, l.reached, l.age = true, true, 0
	}
	if jumped {
		l.reached = false
	}
}

// listen takes in what an answer says of the server: the tries that have failed
// since the last answer, and whether the server was heard in between.
func (l *line) listen(h History, s Sample) (tries int, heard bool) {
	if h.cond.kind != running {
		l.known, l.checkin, l.untried = 0, nil, false
		return 0, true
	}
	if s.Health == nil {
		return 0, false
	}
	f := s.Health.Fleet
	heard = f.LastCheckin != nil && (l.checkin == nil || !f.LastCheckin.Equal(*l.checkin))
	if f.FailedTries < l.known {
		l.known = 0
	}
	tries = f.FailedTries - l.known
	l.known, l.checkin = f.FailedTries, f.LastCheckin
	l.untried = f.State == probe.Starting && f.FailedTries == 0 && f.LastCheckin == nil
	return tries, heard
}

// deaf says that the agent does not hear the server at url, for a reason that is
// not the server's. A parked poll, however old, is heard: the agent says healthy.
func deaf(c condition, url string) bool {
	f := c.health.Fleet
	return c.kind == running && f.State != probe.Healthy && f.URL != "" &&
		strings.TrimRight(f.URL, "/") == strings.TrimRight(url, "/") && !serversTrouble(f.LastStatus)
}

// serversTrouble says that a refusal is about the server's state, not the agent.
func serversTrouble(status int) bool {
	return status >= 500 || status == 429 || status == 408
}

// losing says that the version may be about to be found to have lost its server:
// then it is not good yet, whatever time has jumped.
func (l line) losing() bool { return l.taken && l.deaf && (l.known > 0 || l.untried) }

func lostCheckins(m handoff.Marker, h History) *handoff.Reason {
	l := h.line
	if l.lost < lostFactor*time.Duration(m.Rules.FailedFor) || l.reports < minReports || (l.tries < minTries && !l.untried) {
		return nil
	}
	how := fmt.Sprintf("%d check-ins failed%s", l.tries, quote(h.cond.health.Fleet.Error))
	if l.untried {
		how = "it did not try"
	}
	return &handoff.Reason{Code: handoff.ReasonCheckinLost, Text: fmt.Sprintf(
		"%s has not heard its server for %s, while the watcher reached it %d times: %s.", m.To, round(l.lost), l.reports, how)}
}
