package component

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/muster-fleet/muster/agent/runtime"
	"github.com/muster-fleet/muster/packaging/pkg/manifest"
	"github.com/muster-fleet/muster/server/wire/agentapi"
	"github.com/muster-fleet/muster/watcher/probe"
)

// Defaults of the observation after an upgrade.
const (
	// DefaultMaxRestarts tolerates a component that waits for another one at its start.
	DefaultMaxRestarts = 2
	// downTolerance is how long a component may be down within the wait: a restart by the
	// service manager takes a few seconds.
	downTolerance = 15 * time.Second
	// silentTolerance is how long a runtime may not answer while a new version is observed: an
	// engine that is upgraded or was killed is back within a minute. It is shorter than
	// agentapi.ComponentWaitSlack, so that the runtime is named and not the time.
	silentTolerance = 90 * time.Second
	// restartWindow is how far back the restarts of a component count that is not new. Runtimes
	// wait at most a minute before one, so a crash loop always shows, and a program that has
	// not ended within it runs steadily.
	restartWindow = 5 * time.Minute
)

// Rules are how a new version is observed.
type Rules struct {
	Wait        time.Duration
	MaxRestarts int
	Checks      []manifest.Check // with defaults
	// Signed is how many of Checks, from the first on, are those of the package. The others are
	// the policy's, and are run as such.
	Signed int
}

// newRules joins the checks of a package with what the policy adds, which checkHealth has
// accepted.
func newRules(checks []manifest.Check, h agentapi.ComponentHealth) Rules {
	r := Rules{Wait: h.Wait(), MaxRestarts: DefaultMaxRestarts, Signed: len(checks)}
	if h.MaxRestarts != nil {
		r.MaxRestarts = *h.MaxRestarts
	}
	for _, c := range checks {
		r.Checks = append(r.Checks, c.WithDefaults())
	}
	for _, c := range h.Checks {
		r.Checks = append(r.Checks, policyCheck(c).WithDefaults())
	}
	return r
}

func policyCheck(c agentapi.ComponentCheck) manifest.Check {
	return manifest.Check{Name: c.Name, HTTP: c.HTTP, TCP: c.TCP, Timeout: time.Duration(c.TimeoutSeconds) * time.Second, Threshold: c.Threshold}
}

// checkHealth returns an error if a policy, alone or with what an action adds, asks for more than
// the server accepts from its operators: a host does not count on its server having checked.
func checkHealth(h agentapi.ComponentHealth) error {
	field, err := h.Check(manifest.MaxChecks, manifest.MaxCheckTimeout, func(c agentapi.ComponentCheck) error { return policyCheck(c).Validate() })
	if err != nil {
		return fmt.Errorf("health.%s: %w", field, err)
	}
	return nil
}

// sample is one look at a component.
type sample struct {
	at     time.Time
	status runtime.Status
	// unknown means that the runtime did not answer, or that it has just been asked to start the
	// component again; err is why.
	unknown bool
	err     error
	// checks are the results of the checks, in the order of the rules; nil: passed. There
	// are none while the component does not run.
	checks []error
}

// checked is what is known of one check.
type checked struct {
	failures int   // in a row
	passed   bool  // at least once since the start
	err      error // of the last try
}

// observation is what the samples since the start of a version have shown.
type observation struct {
	began    time.Time
	last     sample
	downFrom time.Time // zero while it runs, or is not known to be down
	// silentFrom is since when the runtime has not answered; zero: it has.
	silentFrom time.Time
	checks     []checked
	// counter is that of the runtime; nil: not known yet. restarts are those since began,
	// recent those within restartWindow, oldest first.
	counter  *int
	restarts int
	recent   []restarted
	ended    string // how it ended before its last restart
}

// restarted is how many restarts a sample has shown.
type restarted struct {
	at    time.Time
	times int
}

// verdict is what an observation leads to.
type verdict int

const (
	undecided verdict = iota
	good
	bad
)

// add adds a sample. Samples come in the order of their times.
func (o *observation) add(s sample, rules *Rules) {
	if !o.looked() {
		o.checks = make([]checked, len(rules.Checks))
	}
	o.last = s
	if !s.unknown {
		o.count(s)
	}
	switch {
	case !s.unknown:
		o.silentFrom = time.Time{}
	case o.silentFrom.IsZero():
		o.silentFrom = s.at
	}
	switch {
	case s.status.Running, s.unknown:
		o.downFrom = time.Time{}
	case o.downFrom.IsZero():
		o.downFrom = s.at
	}
	for i, err := range s.checks {
		c := &o.checks[i]
		c.err = err
		if err == nil {
			c.failures, c.passed = 0, true
		} else {
			c.failures++
		}
	}
}

// looked reports whether there was a sample.
func (o *observation) looked() bool { return !o.last.at.IsZero() }

// count counts the restarts that nobody asked for. Runtimes count from zero again when somebody
// has restarted the component.
func (o *observation) count(s sample) {
	is, was := s.status.Restarts, s.status.Restarts
	if o.counter != nil {
		was = *o.counter
	}
	o.counter = &is
	if is < was {
		was = 0
	}
	if is > was {
		o.restarts += is - was
		o.recent = append(o.recent, restarted{s.at, is - was})
	}
	o.recent = slices.DeleteFunc(o.recent, func(r restarted) bool { return s.at.Sub(r.at) >= restartWindow })
	if s.status.Ended != "" {
		o.ended = s.status.Ended
	}
}

// restartedWithin returns how often it was restarted within restartWindow.
func (o *observation) restartedWithin(now time.Time) (times int) {
	for _, r := range o.recent {
		if now.Sub(r.at) < restartWindow {
			times += r.times
		}
	}
	return times
}

// steadyAfter is after how long without a restart a component that was restarted too often counts as
// running again. A component that a broken agent or package keeps from running ends sooner.
const steadyAfter = 30 * time.Second

// failedSince returns since when the component has failed, or zero: it does not run, or was restarted more
// often than a new version may be and still is. What somebody has stopped has not failed, and what a runtime
// that does not answer does is not known.
func (o *observation) failedSince(rules *Rules, now time.Time) time.Time {
	st := o.last.status
	switch {
	case !o.looked(), o.last.unknown, st.Stopped:
		return time.Time{}
	case o.restartedWithin(now) > rules.MaxRestarts && now.Sub(o.recent[len(o.recent)-1].at) < steadyAfter:
		return o.recent[0].at
	}
	return o.downFrom
}

// unanswered returns since when the runtime has not answered, and its error; nil: it has.
func (o *observation) unanswered() (since time.Time, err error) {
	if !o.looked() || !o.last.unknown {
		return time.Time{}, nil
	}
	return o.silentFrom, o.last.err
}

func times(n int) string {
	if n == 1 {
		return "once"
	}
	return fmt.Sprintf("%d times", n)
}

// unhealthy is why a version is bad. It is the zero value if it is not.
type unhealthy struct{ code, text string }

func (p unhealthy) Error() string      { return p.text }
func (p unhealthy) ReasonCode() string { return p.code }

// errSilent is why a version is bad of which nothing is known, since its runtime did not answer.
type errSilent struct {
	unhealthy
	err error // the runtime's
}

func (e errSilent) Unwrap() []error { return []error{e.unhealthy, e.err} }

// judge decides whether the version stays. A runtime that does not answer says nothing about it,
// until that has lasted for silentTolerance. Until the wait is over only what cannot get better
// is bad: too many restarts, a component that stays down, a check that passed and fails
// again. At its end everything has to be right; a check that has passed before may still fail
// less often in a row than its threshold, and then its next tries decide.
func (o *observation) judge(rules *Rules, now time.Time) (verdict, unhealthy) {
	if !o.looked() {
		return undecided, unhealthy{}
	}
	st := o.last.status
	if o.restarts > rules.MaxRestarts {
		return bad, unhealthy{agentapi.ReasonCrashLoop, fmt.Sprintf("crash loop: it was restarted %s within %s%s", times(o.restarts), now.Sub(o.began).Round(time.Second), because(cmp.Or(o.ended, st.Message)))}
	}
	over := now.Sub(o.began) >= rules.Wait
	if o.last.unknown {
		if silent := now.Sub(o.silentFrom); silent >= silentTolerance {
			return bad, unhealthy{agentapi.ReasonNotRunning, fmt.Sprintf("its runtime has not answered for %s%s", silent.Round(time.Second), because(st.Message))}
		}
		return undecided, unhealthy{}
	}
	if !st.Running {
		if down := now.Sub(o.downFrom); over || down >= downTolerance {
			return bad, unhealthy{agentapi.ReasonNotRunning, "it does not run" + because(st.Message)}
		}
		return undecided, unhealthy{}
	}
	waits := false
	for i, c := range o.checks {
		failing := c.failures >= rules.Checks[i].Threshold
		switch {
		case failing && (c.passed || over), over && c.err != nil && !c.passed:
			return bad, unhealthy{agentapi.ReasonCheckFailed, fmt.Sprintf("check %s fails: %v", rules.Checks[i].Name, c.err)}
		case c.err != nil:
			waits = true // a single failure is no verdict: the next looks decide
		}
	}
	switch {
	case !over || waits:
		return undecided, unhealthy{}
	case !st.Ready:
		return bad, unhealthy{agentapi.ReasonNotReady, "it is not ready" + because(st.Message)}
	case len(o.last.checks) < len(rules.Checks):
		return undecided, unhealthy{} // the checks of this sample have not run yet
	}
	return good, unhealthy{}
}

// pending says what an observation still waits for.
func (o *observation) pending(rules *Rules, now time.Time) string {
	left := max(0, rules.Wait-now.Sub(o.began)).Round(time.Second)
	if o.last.unknown {
		return fmt.Sprintf("observed for another %s; its runtime does not answer%s", left, because(o.last.status.Message))
	}
	for i, c := range o.checks {
		if c.err != nil {
			return fmt.Sprintf("observed for another %s; check %s does not pass yet: %v", left, rules.Checks[i].Name, c.err)
		}
	}
	return fmt.Sprintf("observed for another %s", left)
}

func because(message string) string {
	if message == "" {
		return ""
	}
	return ": " + strings.TrimSpace(message)
}

// health returns the state of a component that is not being upgraded, by its samples. One that
// is restarted more often than a new version may be is degraded until it has run for longer.
func (o *observation) health(rules *Rules, now time.Time) (probe.State, string) {
	if !o.looked() {
		return probe.Starting, "not looked at yet"
	}
	st := o.last.status
	if o.last.unknown {
		return probe.Failed, "whether it runs is not known" + because(st.Message)
	}
	if !st.Running {
		return probe.Failed, "it does not run" + because(st.Message)
	}
	if n := o.restartedWithin(now); n > rules.MaxRestarts {
		return probe.Degraded, fmt.Sprintf("it was restarted %s in the last %.0f min%s", times(n), restartWindow.Minutes(), because(cmp.Or(o.ended, st.Message)))
	}
	for i, c := range o.checks {
		if c.failures >= rules.Checks[i].Threshold {
			return probe.Degraded, fmt.Sprintf("check %s fails: %v", rules.Checks[i].Name, c.err)
		}
	}
	if !st.Ready {
		return probe.Starting, strings.TrimSpace(st.Message)
	}
	return probe.Healthy, strings.TrimSpace(st.Message)
}
