package watch

import (
	"time"

	"github.com/muster-fleet/muster/watcher/handoff"
)

// maxGap is the longest time between two samples that counts as watched. The loop samples
// every second with a timeout of one, so a longer gap means that the host was suspended, its
// clock jumped, or the watcher did not run. Nothing is known about such a gap.
const maxGap = 15 * time.Second

// History summarizes the samples so far for the verdict. It is a value of bounded size. It
// holds sums of the gaps between samples and no points in time, so that neither a suspended
// host nor a changed clock shortens a watch or lengthens a fault. The zero value is the
// beginning of a watch.
type History struct {
	begun bool
	at    time.Time // of the last sample
	alive bool
	pid   int // the last one known
	cond  condition

	arrived  bool // the new version has answered at least once
	departed bool // the process has ended once for the restart into the new version
	wentAway int  // exits seen between samples, without that one and orderly ones
	exits    int  // as counted by the host
	stops    int  // Sample.Stops
	earlier  int  // those of stops that are not of the new version
	settled  int  // Sample.Stops at the last exit that was seen between samples

	total   time.Duration // since the watch began
	watched time.Duration // since the new version arrived
	healthy int           // healthy answers
	wellRun int           // answers in a row, up to the last, that were well

	life       int          // see Life
	checks     []checkState // in this life, by their index in the rules; nil before the first try
	connection connection

	// How long each condition has lasted without interruption, up to now.
	gone, silent, answering, previous, foreign, agentFailed, bad time.Duration
	components                                                   map[string]time.Duration

	verdict Verdict
}

// Add returns the history with one more sample. It returns h unchanged after a verdict.
func (h History) Add(m handoff.Marker, s Sample) History {
	if h.verdict.Kind != Wait {
		return h
	}
	newProcess := s.PID != 0 && h.pid != 0 && s.PID != h.pid
	gap, jumped := h.gapTo(s.At)
	before := h.cond
	h.countDeparture(s, newProcess)
	h.stops = s.Stops
	h.cond = before.next(m, s, newProcess)
	h.exits = max(h.exits, s.Exits)
	if newProcess || (h.cond.kind != running && h.cond.kind != silent) {
		h.life, h.checks = h.life+1, nil
	}

	h.total += gap
	if h.arrived {
		h.watched += gap
	}
	h.gone = lasting(h.gone, gap, before.kind == gone, h.cond.kind == gone)
	h.silent = lasting(h.silent, gap, before.kind == silent, h.cond.kind == silent)
	h.answering = lasting(h.answering, gap, before.kind == running && !newProcess, h.cond.kind == running)
	h.previous = lasting(h.previous, gap, before.kind == previous, h.cond.kind == previous)
	h.foreign = lasting(h.foreign, gap, before.kind == foreign, h.cond.kind == foreign)
	h.agentFailed = lasting(h.agentFailed, gap, before.agentFailed, h.cond.agentFailed)
	h.bad = lasting(h.bad, gap, before.bad(), h.cond.bad())
	h.components = lastingComponents(h.components, gap, h.cond)

	h.countAnswer(s)
	h.countTries(m, s)
	h.connection = h.connection.next(m, h, s, gap, jumped)
	h.begun, h.at, h.alive = true, s.At, s.Alive
	if s.PID != 0 {
		h.pid = s.PID
	}
	h.verdict = judge(m, h)
	return h
}

func (h *History) gapTo(at time.Time) (gap time.Duration, jumped bool) {
	gap = at.Sub(h.at)
	if gap < 0 || gap > maxGap || !h.begun {
		return 0, h.begun
	}
	return gap, false
}

// countDeparture counts an exit of the agent's process, unless it was an orderly stop. The first one
// before the new version has answered is the old version being replaced, and not a crash.
func (h *History) countDeparture(s Sample, newProcess bool) {
	if !h.begun {
		h.earlier, h.settled = s.Stops, s.Stops
		return
	}
	if !h.alive || (s.Alive && !newProcess) {
		return
	}
	// The agent counts its stop an instant before its process ends, so samples may see that earlier.
	orderly := s.Stops > h.settled
	h.settled = s.Stops
	switch {
	case !h.arrived && !h.departed:
		h.departed, h.earlier = true, s.Stops
	case !orderly:
		h.wentAway++
	}
}

func (h *History) countAnswer(s Sample) {
	if h.cond.kind == running {
		h.arrived = true
	}
	switch {
	case !h.cond.well():
		h.wellRun = 0
	case s.Health != nil:
		h.wellRun++
	}
	if s.Health != nil && h.cond.healthy() {
		h.healthy++
	}
}

// crashes returns the number of exits that were no orderly stops. The host and the samples count the same
// exits, and each may miss some.
func (h History) crashes() int { return max(h.wentAway, h.exits-max(0, h.stops-h.earlier)) }

// NeedsAnswer reports whether to request the health at the next sample whatever the
// interval, because the condition is bad or unknown.
func (h History) NeedsAnswer() bool { return !h.cond.well() }

// Life returns a number that changes when another process of the agent may run. A try of a
// check that began in another life is ignored.
func (h History) Life() int { return h.life }

// Answering reports whether the new version runs and answers, so that its checks may run.
func (h History) Answering() bool { return h.cond.kind == running }

// Gone returns how long the agent's process has been missing, in two samples or more.
func (h History) Gone() time.Duration { return h.gone }

func lasting(sum, gap time.Duration, before, now bool) time.Duration {
	if !before || !now {
		return 0
	}
	return sum + gap
}

// lastingComponents returns a new map, since histories share no memory.
func lastingComponents(sums map[string]time.Duration, gap time.Duration, c condition) map[string]time.Duration {
	if len(c.failed) == 0 {
		return nil
	}
	next := make(map[string]time.Duration, len(c.failed))
	for _, w := range c.failed {
		if sum, ok := sums[w.Name]; ok {
			next[w.Name] = sum + gap
		} else {
			next[w.Name] = 0
		}
	}
	return next
}
