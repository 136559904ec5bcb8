package watch

import (
	"time"

	"github.com/muster-fleet/muster/watcher/handoff"
	"github.com/muster-fleet/muster/watcher/probe"
)

// Sample is what the watcher saw of the agent at one moment. Health and Err are
// both nil when only liveness was looked at: the agent was not asked.
type Sample struct {
	At time.Time
	// Alive says that the agent's process is there; PID is 0 where the host
	// cannot tell.
	Alive bool
	PID   int
	// Exits is how many ends of the agent's process the host itself counted
	// since the watch began. It sees the ones that fall between two samples;
	// it stays 0 where nobody counts.
	Exits  int
	Health *probe.Health
	Err    error
	// Tries are those of the package's checks that have ended since the last
	// sample, and Server what the watcher's own reports have met in that time.
	Tries  []Try
	Server Contact
}

// kind is the watcher's belief about the agent after a sample.
type kind int

const (
	unknown  kind = iota // a process is there that was not asked yet
	gone                 // no process
	silent               // a process that does not answer
	previous             // the version upgraded from answers
	foreign              // some third version answers
	running              // the new version answers
)

// condition is a kind with the answer or error it rests on. It holds until a
// sample says otherwise: most samples look at liveness alone.
type condition struct {
	kind   kind
	health probe.Health // for previous, foreign and running
	err    error        // for silent
}

// next is the condition after s. newProcess says that another process than
// before is there, so that what the last one answered no longer holds.
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
	// Compared as they stand in folder names: one side may know a shorter hash.
	switch h.Identity.String() {
	case m.To.Identity.String():
		return condition{kind: running, health: h}
	case m.From.Identity.String():
		return condition{kind: previous, health: h}
	}
	return condition{kind: foreign, health: h}
}

func (c condition) agentFailed() bool { return c.kind == running && c.health.State == probe.Failed }

func (c condition) failedComponents() []probe.Component {
	if c.kind != running {
		return nil
	}
	var failed []probe.Component
	for _, comp := range c.health.Components {
		if comp.State == probe.Failed {
			failed = append(failed, comp)
		}
	}
	return failed
}

// well says that the new version answers and nothing it answers speaks against
// it. The link to the server is left out: the server's troubles, and the
// DEGRADED they cause, are not the new version's.
func (c condition) well() bool {
	return c.kind == running && len(c.failedComponents()) == 0 &&
		(c.health.State == probe.Healthy || c.health.State == probe.Degraded)
}

func (c condition) healthy() bool { return c.well() && c.health.State == probe.Healthy }

// bad says that the condition, if it lasts, rolls back. Starting and stopping
// are neither well nor bad.
func (c condition) bad() bool {
	switch c.kind {
	case gone, silent, foreign:
		return true
	case running:
		return c.agentFailed() || len(c.failedComponents()) > 0
	}
	return false
}
