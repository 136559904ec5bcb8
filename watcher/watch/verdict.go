package watch

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/muster-fleet/muster/watcher/handoff"
	"github.com/muster-fleet/muster/watcher/probe"
)

const (
	// minHealthy is how many healthy answers a version must have given, and how many of
	// the last answers must be well: one may be chance.
	minHealthy = 3

	// mixFactor bounds, in multiples of FailedFor, a time that is bad throughout while
	// no single fault lasts: one FailedFor each for a missing process, one that does
	// not answer, and FAILED.
	mixFactor = 3

	// componentFactor is how long a component that was healthy before must have failed, in multiples of
	// FailedFor. It is longer than for the agent, since what else happens on a host fails components too: a
	// restart of what they depend on, or an operator at work, is over by then.
	componentFactor = 3

	// limitFactor bounds, in multiples of Grace, the watch of a version that is neither
	// good nor bad for long; after it the last answer decides. lostFactor times
	// FailedFor is added, so that a short Grace leaves time for every fault.
	limitFactor = 2

	// switchTimeout is how long the previous version may still answer, or the pointer
	// still lead to it, before the new one counts as never started. An agent stops its
	// components before it re-executes.
	switchTimeout = 30 * time.Second
)

// Kind is what to do about the new version.
type Kind int

// The verdicts.
const (
	Wait Kind = iota
	Commit
	RollBack
)

func (k Kind) String() string { return [...]string{"wait", "good", "roll back"}[k] }

// Verdict is the verdict on the new version. Reason is set for RollBack.
type Verdict struct {
	Kind   Kind
	Reason handoff.Reason
}

// Judge returns the verdict on the samples in h. A verdict other than Wait is final.
func Judge(h History) Verdict { return h.verdict }

func judge(m handoff.Marker, h History) Verdict {
	if r := fault(m, h); r != nil {
		return Verdict{Kind: RollBack, Reason: *r}
	}
	grace := time.Duration(m.Rules.Grace)
	check, state, open := openCheck(m, h)
	if h.watched >= grace && h.healthy >= minHealthy && h.wellRun >= minHealthy && !open && !h.connection.losing() {
		return Verdict{Kind: Commit}
	}
	limit := limitFactor*grace + lostFactor*time.Duration(m.Rules.FailedFor)
	if h.total < limit || h.cond.kind == unknown || h.switching() {
		return Verdict{}
	}
	if h.cond.well() {
		switch {
		case !open:
			return Verdict{Kind: Commit}
		case !state.tried() && h.total < limit+untriedLimit:
			return Verdict{}
		}
		return Verdict{Kind: RollBack, Reason: *checkReason("%s did not become healthy within %s; at the end check %q did not pass%s.",
			m.To, round(h.total), check.Name, because(state.err))}
	}
	return Verdict{Kind: RollBack, Reason: blame(h,
		fmt.Sprintf("%s did not become healthy within %s", m.To, round(h.total)))}
}

// switching reports whether the previous version still answers within the switchTimeout.
func (h History) switching() bool {
	return h.cond.kind == previous && !h.arrived && h.previous < switchTimeout
}

// untried reports whether the previous version went on in place of the new one, as when a
// full disk keeps an agent from restarting. Then the new version is not known to be bad, and
// its home stays: in a manual rollback it is the version to go back to.
func (h History) untried() bool { return h.cond.kind == previous && !h.arrived }

// fault returns the reason to roll back now, or nil.
func fault(m handoff.Marker, h History) *handoff.Reason {
	lasts := func(d time.Duration) bool { return d >= time.Duration(m.Rules.FailedFor) }
	reason := func(code handoff.ReasonCode, format string, args ...any) *handoff.Reason {
		return &handoff.Reason{Code: code, Text: fmt.Sprintf(format, args...)}
	}
	switch {
	case h.crashes() > m.Rules.MaxCrashes:
		return reason(handoff.ReasonCrashLoop, "The process of %s ended %d times within %s; %d are allowed.",
			m.To, h.crashes(), round(h.total), m.Rules.MaxCrashes)
	case lasts(h.gone) && !h.arrived:
		return reason(handoff.ReasonNotStarted, "%s did not start: no process was there for %s.", m.To, round(h.gone))
	case lasts(h.gone):
		return reason(handoff.ReasonCrashLoop, "The process of %s ended and nothing started it again for %s.", m.To, round(h.gone))
	case !h.arrived && h.previous >= switchTimeout:
		return reason(handoff.ReasonNotStarted, "%s was never started: %s still answered after %s.", m.To, m.From, round(h.previous))
	case h.arrived && lasts(h.previous):
		return reason(handoff.ReasonWrongVersion, "%s answered for %s in place of %s.", m.From, round(h.previous), m.To)
	case lasts(h.foreign):
		return reason(handoff.ReasonWrongVersion, "%s answered for %s in place of %s.", h.cond.health.Identity, round(h.foreign), m.To)
	case lasts(h.silent):
		return reason(handoff.ReasonControlLost, "%s runs but did not answer on its control socket for %s: %s.",
			m.To, round(h.silent), cause(h.cond.err))
	}
	for _, w := range h.cond.failed {
		if d := h.components[w.Name]; d >= componentFactor*time.Duration(m.Rules.FailedFor) {
			return reason(handoff.ReasonComponentFailed, "Component %s has failed for %s under %s, and was healthy under %s%s.",
				w.Name, round(d), m.To, m.From, quote(w.Message))
		}
	}
	if lasts(h.agentFailed) {
		return reason(handoff.ReasonAgentFailed, "%s reported FAILED for %s%s.", m.To, round(h.agentFailed), quote(h.cond.health.Message))
	}
	// Checks of the package come after the agent's own, which say more.
	if r := failedCheck(m, h); r != nil {
		return r
	}
	if r := lostCheckins(m, h); r != nil {
		return r
	}
	if h.bad >= mixFactor*time.Duration(m.Rules.FailedFor) {
		r := blame(h, fmt.Sprintf("%s was not well at any time for %s", m.To, round(h.bad)))
		return &r
	}
	return nil
}

// explain adds what the host shows to the reason of a verdict. If the host itself keeps versions from
// running, its code replaces that of the symptom, and the version does not count as bad.
func explain(r handoff.Reason, d Diagnosis) handoff.Reason {
	switch r.Code {
	case handoff.ReasonCrashLoop, handoff.ReasonNotStarted, handoff.ReasonControlLost:
		if output := quoted(d.Output); output != "" {
			r.Text += " Its last output: " + output + "."
		}
	}
	if d.Own != nil && r.Code != handoff.ReasonManual && !strings.Contains(r.Text, d.Own.Text) {
		r.Code, r.Text = d.Own.Code, r.Text+" "+d.Own.Text
	}
	return r
}

// blame returns a reason according to the last condition of the agent.
func blame(h History, what string) handoff.Reason {
	c := h.cond
	switch {
	case c.kind == gone && !h.arrived:
		return handoff.Reason{Code: handoff.ReasonNotStarted, Text: what + "; at the end no process was there."}
	case c.kind == gone:
		return handoff.Reason{Code: handoff.ReasonCrashLoop, Text: what + "; at the end its process was gone."}
	case c.kind == silent:
		return handoff.Reason{Code: handoff.ReasonControlLost, Text: fmt.Sprintf("%s; at the end it did not answer: %s.", what, cause(c.err))}
	case c.kind == previous || c.kind == foreign:
		return handoff.Reason{Code: handoff.ReasonWrongVersion, Text: fmt.Sprintf("%s; at the end %s answered.", what, c.health.Identity)}
	case len(c.failed) > 0 && !c.agentFailed:
		return handoff.Reason{Code: handoff.ReasonComponentFailed, Text: fmt.Sprintf("%s; at the end component %s had failed%s.",
			what, c.failed[0].Name, quote(c.failed[0].Message))}
	}
	return handoff.Reason{Code: handoff.ReasonAgentFailed, Text: fmt.Sprintf("%s; at the end it reported %s%s.",
		what, strings.ToUpper(string(c.health.State)), quote(c.health.Message))}
}

// Waiting returns a sentence on what the watch still waits for.
func Waiting(m handoff.Marker, h History) string {
	switch {
	case h.cond.kind == previous:
		return fmt.Sprintf("%s still answers, waiting for %s", m.From, m.To)
	case !h.arrived:
		return fmt.Sprintf("waiting for %s to answer (%d ends of its process so far)", m.To, h.crashes())
	case h.cond.bad():
		return fmt.Sprintf("%s has not been well for %s", m.To, round(h.bad))
	}
	state := h.cond.health.State
	if h.cond.kind != running {
		state = probe.Starting
	}
	check, c, open := openCheck(m, h)
	switch {
	case open && c.failures > 0:
		return fmt.Sprintf("check %q of %s has failed %d times of %d%s", check.Name, m.To, c.failures, check.WithDefaults().Threshold, because(c.err))
	case open && h.watched >= time.Duration(m.Rules.Grace):
		return fmt.Sprintf("waiting for check %q of %s to pass", check.Name, m.To)
	case h.connection.losing() && h.connection.lost > 0:
		return fmt.Sprintf("%s has not reached its server for %s, but the watcher has", m.To, round(h.connection.lost))
	}
	return fmt.Sprintf("%s is %s: watched %s of %s, %d healthy answers (at least %d)",
		m.To, state, round(h.watched), m.Rules.Grace, h.healthy, minHealthy)
}

// maxQuote bounds an agent's message in a reason in bytes, since the server stores the
// reason.
const maxQuote = 300

func quote(message string) string {
	if message = quoted(message); message == "" {
		return ""
	}
	return " (" + message + ")"
}

// quoted returns "" for an empty message.
func quoted(message string) string {
	message = strings.TrimSpace(message)
	if message == "" {
		return ""
	}
	if len(message) > maxQuote {
		message = strings.ToValidUTF8(message[:maxQuote], "") + "…"
	}
	return strconv.Quote(message)
}

func cause(err error) string {
	if err == nil {
		return "no answer"
	}
	return strings.TrimSuffix(strings.TrimSpace(err.Error()), ".")
}

// round rounds a duration for messages, also under rules of milliseconds.
func round(d time.Duration) time.Duration {
	if d < time.Minute {
		return d.Round(10 * time.Millisecond)
	}
	return d.Round(time.Second)
}
