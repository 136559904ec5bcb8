package component

import (
	"fmt"
	"strings"
	"time"

	"github.com/muster-fleet/muster/agent/runtime"
	"github.com/muster-fleet/muster/packaging/manifest"
	"github.com/muster-fleet/muster/server/agentapi"
	"github.com/muster-fleet/muster/watcher/probe"
)

// Defaults of the observation after an upgrade.
const (
	// DefaultWait shows most crashes at the start, and lasts for a load balancer's checks.
	DefaultWait = time.Minute
	// DefaultMaxRestarts tolerates a component that waits for another one at its start.
	DefaultMaxRestarts = 2
	// downTolerance is how long a component may be down within the wait: a restart by the
	// service manager takes a few seconds.
	downTolerance = 15 * time.Second
)

// Rules are how a new version is observed.
type Rules struct {
	Wait        time.Duration
	MaxRestarts int
	Checks      []manifest.Check // with defaults
}

// newRules joins the checks of a package with what the policy adds.
func newRules(checks []manifest.Check, h agentapi.ComponentHealth) Rules {
	r := Rules{Wait: DefaultWait, MaxRestarts: DefaultMaxRestarts}
	if h.WaitSeconds > 0 {
		r.Wait = time.Duration(h.WaitSeconds) * time.Second
	}
	if h.MaxRestarts != nil {
		r.MaxRestarts = *h.MaxRestarts
	}
	for _, c := range checks {
		r.Checks = append(r.Checks, c.WithDefaults())
	}
	for _, c := range h.Checks {
		check := manifest.Check{Name: c.Name, HTTP: c.HTTP, TCP: c.TCP, Timeout: time.Duration(c.TimeoutSeconds) * time.Second, Threshold: c.Threshold}
		r.Checks = append(r.Checks, check.WithDefaults())
	}
	return r
}

// sample is one look at a component.
type sample struct {
	at     time.Time
	status runtime.Status
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
	first    *runtime.Status
	last     sample
	downFrom time.Time // zero while it runs
	checks   []checked
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
	if o.first == nil {
		o.first = &s.status
		o.checks = make([]checked, len(rules.Checks))
	}
	o.last = s
	switch {
	case s.status.Running:
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

// judge decides whether the version stays. Until the wait is over only what cannot get better
// is bad: too many restarts, a component that stays down, a check that passed and fails
// again. At its end everything has to be right; a check that has passed before may still fail
// less often in a row than its threshold, and then its next tries decide.
func (o *observation) judge(rules *Rules, now time.Time) (verdict, string) {
	if o.first == nil {
		return undecided, ""
	}
	st := o.last.status
	if restarts := st.Restarts - o.first.Restarts; restarts > rules.MaxRestarts {
		return bad, fmt.Sprintf("crash loop: it was restarted %d times within %s%s", restarts, now.Sub(o.began).Round(time.Second), because(st.Message))
	}
	over := now.Sub(o.began) >= rules.Wait
	if !st.Running {
		if down := now.Sub(o.downFrom); over || down >= downTolerance {
			return bad, "it does not run" + because(st.Message)
		}
		return undecided, ""
	}
	waits := false
	for i, c := range o.checks {
		failing := c.failures >= rules.Checks[i].Threshold
		switch {
		case failing && (c.passed || over), over && c.err != nil && !c.passed:
			return bad, fmt.Sprintf("check %s fails: %v", rules.Checks[i].Name, c.err)
		case c.err != nil:
			waits = true // a single failure is no verdict: the next looks decide
		}
	}
	switch {
	case !over || waits:
		return undecided, ""
	case !st.Ready:
		return bad, "it is not ready" + because(st.Message)
	case len(o.last.checks) < len(rules.Checks):
		return undecided, "" // the checks of this sample have not run yet
	}
	return good, ""
}

// pending says what an observation still waits for.
func (o *observation) pending(rules *Rules, now time.Time) string {
	left := max(0, rules.Wait-now.Sub(o.began)).Round(time.Second)
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

// health returns the state of a component that is not being upgraded, by its last samples.
func (o *observation) health(rules *Rules) (probe.State, string) {
	if o.first == nil {
		return probe.Starting, "not looked at yet"
	}
	st := o.last.status
	if !st.Running {
		return probe.Failed, "it does not run" + because(st.Message)
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
