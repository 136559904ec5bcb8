package watch

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/muster-fleet/muster/packaging/pkg/manifest"
	"github.com/muster-fleet/muster/watcher/handoff"
)

// untriedLimit is how much longer than its limit a watch waits for a check that was not
// tried yet because the agent has just come back: the longest try, and the one it waits for.
const untriedLimit = 2 * manifest.MaxCheckTimeout

// Try is a finished try of a check of the package.
type Try struct {
	Check int    // its index in the rules
	Life  int    // History.Life when it began
	Err   string // why it failed; empty when it passed
}

// checkState is the state of a check in the current life of the agent.
type checkState struct {
	passed   bool // at least once
	failures int  // in a row, up to the last try
	err      string
}

func (c checkState) tried() bool { return c.passed || c.failures > 0 }
func (c checkState) well() bool  { return c.passed && c.failures == 0 }

// countTries counts the tries of a sample. It ignores tries of an earlier life. It copies the
// list, since histories share no memory.
func (h *History) countTries(m handoff.Marker, s Sample) {
	if h.cond.kind != running || len(s.Tries) == 0 {
		return
	}
	h.checks = slices.Clone(h.checks)
	if h.checks == nil {
		h.checks = make([]checkState, len(m.Rules.Checks))
	}
	for _, t := range s.Tries {
		if t.Life != h.life || t.Check < 0 || t.Check >= len(h.checks) {
			continue
		}
		c := &h.checks[t.Check]
		if t.Err == "" {
			*c = checkState{passed: true}
			continue
		}
		c.failures++
		c.err = t.Err
	}
}

func (h History) check(i int) checkState {
	if i >= len(h.checks) {
		return checkState{}
	}
	return h.checks[i]
}

// failedCheck returns the reason if a check of the package has failed as often as its
// threshold, or nil. A check that has not passed yet gets FailedFor first, because what it
// checks starts after the control socket.
func failedCheck(m handoff.Marker, h History) *handoff.Reason {
	for i, c := range m.Rules.Checks {
		s := h.check(i)
		switch {
		case s.failures < c.WithDefaults().Threshold:
		case s.passed:
			return checkReason("Check %q of %s failed %d times in a row%s.", c.Name, m.To, s.failures, because(s.err))
		case h.answering >= time.Duration(m.Rules.FailedFor):
			return checkReason("Check %q of %s did not pass once in %s, %d tries failed%s.", c.Name, m.To, round(h.answering), s.failures, because(s.err))
		}
	}
	return nil
}

// maxBecause bounds a check's error in a reason in bytes. It quotes a program's output, so
// it is more than for an agent's message.
const maxBecause = 600

func because(err string) string {
	err = strings.TrimSuffix(strings.TrimSpace(err), ".")
	if err == "" {
		return ""
	}
	if len(err) > maxBecause {
		err = strings.ToValidUTF8(err[:maxBecause], "") + "…"
	}
	return ": " + err
}

func checkReason(format string, args ...any) *handoff.Reason {
	return &handoff.Reason{Code: handoff.ReasonCheckFailed, Text: fmt.Sprintf(format, args...)}
}

// openCheck returns a check that has not passed, preferably one that was not tried.
func openCheck(m handoff.Marker, h History) (c manifest.Check, s checkState, found bool) {
	for i := range m.Rules.Checks {
		now := h.check(i)
		if now.well() {
			continue
		}
		if !found || !now.tried() {
			c, s, found = m.Rules.Checks[i], now, true
		}
	}
	return c, s, found
}

// failingChecks lists the checks whose last try failed.
func failingChecks(m handoff.Marker, h History) string {
	var names []string
	for i, c := range m.Rules.Checks {
		if h.check(i).failures > 0 {
			names = append(names, c.Name)
		}
	}
	return strings.Join(names, ", ")
}
