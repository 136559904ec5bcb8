package watch

import (
	"time"

	"github.com/muster-fleet/muster/watcher/handoff"
	"github.com/muster-fleet/muster/watcher/probe"
)

// Sample is an observation of the agent at one moment. Health and Err are both nil if its
// health was not requested.
type Sample struct {
	At time.Time
	// Alive means that the agent's process runs. PID is 0 if unknown.
	Alive bool
	PID   int
	// Exits is how many exits of the agent's process the host has counted since the
	// watch began, also between two samples. It stays 0 on a host that does not count
	// them.
	Exits int
	// Stops is how many orderly stops of the agent are counted on the host, also from before the watch;
	// see handoff.CountStop.
	Stops  int
	Health *probe.Health
	Err    error
	// Tries are the tries of the package's checks, and Server the results of the
	// watcher's reports, since the last sample.
	Tries  []Try
	Server Contact
}

// kind is the state of the agent according to the samples.
type kind int

const (
	unknown  kind = iota // a process runs that was not asked yet
	gone                 // no process
	silent               // a process that does not answer
	previous             // the version upgraded from answers
	foreign              // some third version answers
	running              // the new version answers
)

// condition is a kind with the answer or error it is based on. It holds until a sample
// changes it, since most samples have no health.
type condition struct {
	kind   kind
	health probe.Health // for previous, foreign and running
	err    error        // for silent
	// agentFailed and failed compare the health of the new version with that before the switch; see
	// before.go.
	agentFailed bool
	failed      []probe.Workload
}

// next returns the condition after s. newProcess means that the process is another one than
// before, so that the last answer no longer holds.
func (c condition) next(m handoff.Marker, s Sample, newProcess bool) condition {
	switch {
	case s.Health != nil:
		return answered(m, *s.Health)
	case !s.Alive:
		return condition{kind: gone}
	case s.Err != nil:
		return condition{kind: silent, err: s.Err}
	case newProcess || c.kind == gone:
		return condition{}
	}
	return c
}

func answered(m handoff.Marker, h probe.Health) condition {
	// Compared as in folder names, since one side may have a shorter hash.
	switch h.Identity.String() {
	case m.To.Identity.String():
		return condition{kind: running, health: h, agentFailed: agentFailed(m.Before, h), failed: failedComponents(m.Before, h)}
	case m.From.Identity.String():
		return condition{kind: previous, health: h}
	}
	return condition{kind: foreign, health: h}
}

// well reports whether the new version answers and neither it nor a component has failed since the
// switch. It ignores the link to the server and the DEGRADED that a lost link causes, since the server
// may be at fault.
func (c condition) well() bool {
	if c.kind != running || c.agentFailed || len(c.failed) > 0 {
		return false
	}
	switch c.health.State {
	case probe.Healthy, probe.Degraded, probe.Failed: // the last as before the switch
		return true
	}
	return false
}

func (c condition) healthy() bool { return c.well() && c.health.State == probe.Healthy }

// bad reports whether the condition rolls back if it lasts. Starting and stopping are
// neither well nor bad.
func (c condition) bad() bool {
	switch c.kind {
	case gone, silent, foreign:
		return true
	case running:
		return c.agentFailed || len(c.failed) > 0
	}
	return false
}
