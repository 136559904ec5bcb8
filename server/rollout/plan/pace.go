package plan

import (
	"fmt"
	"slices"
	"time"

	"github.com/muster-fleet/muster/server/fleet"
)

const (
	// maxSpan bounds every duration of a plan to a quarter of a year: people forget a
	// longer wait.
	maxSpan = fleet.Duration(92 * 24 * time.Hour)
	// maxRetries bounds attempts: a host that needs more needs manual repair.
	maxRetries = 10
)

func checkBatches(st *fleet.Strategy) error {
	switch {
	case st.BatchSize < 0:
		return fleet.FieldError(field("strategy.batch_size"), "is %d, want 1 or more", st.BatchSize)
	case !isPercent(st.BatchPercent):
		return fleet.FieldError(field("strategy.batch_percent"), "is %v, want more than 0 and at most 100", st.BatchPercent)
	case st.BatchSize > 0 && st.BatchPercent > 0:
		return fleet.FieldError(field("strategy.batch_percent"), "conflicts with batch_size: give only one of them")
	}
	return nil
}

// checkNames refuses empty and repeated names.
func checkNames(list string, names []string) error {
	for i, name := range names {
		if name == "" {
			return fleet.FieldError(field("%s[%d]", list, i), "is empty")
		}
		if slices.Contains(names[:i], name) {
			return fleet.FieldError(field("%s[%d]", list, i), "is %s again", name)
		}
	}
	return nil
}

func checkLimits(p *fleet.Plan) error {
	l := &p.Limits
	if l.MaxParallel < 0 {
		return fleet.FieldError(field("limits.max_parallel"), "is %d, want 1 or more", l.MaxParallel)
	}
	if len(l.Per) > fleet.MaxLabelLimits {
		return fleet.FieldError(field("limits.per"), "has %d limits, want at most %d", len(l.Per), fleet.MaxLabelLimits)
	}
	labels := make([]string, 0, len(l.Per))
	for i, per := range l.Per {
		switch {
		case per.Label == "" || per.Label == "tag:":
			return fleet.FieldError(field("limits.per[%d].label", i), "is missing: name a label, such as site")
		case slices.Contains(labels, per.Label):
			return fleet.FieldError(field("limits.per[%d].label", i), "is %s again: give each label one limit", per.Label)
		case per.Max < 1:
			return fleet.FieldError(field("limits.per[%d].max", i), "is %d, want 1 or more", per.Max)
		}
		labels = append(labels, per.Label)
	}
	return nil
}

func checkFailure(p *fleet.Plan) error {
	f := &p.Failure
	switch {
	case f.Count != nil && *f.Count < 0:
		return fleet.FieldError(field("failure.count"), "is %d, want 0 or more", *f.Count)
	case f.Percent != nil && !isPercent(*f.Percent):
		return fleet.FieldError(field("failure.percent"), "is %v, want 0 to 100", *f.Percent)
	case f.Retries < 0 || f.Retries > maxRetries:
		return fleet.FieldError(field("failure.retries"), "is %d, want 0 to %d", f.Retries, maxRetries)
	}
	return nil
}

func checkHealth(p *fleet.Plan) error {
	h := &p.Health
	if h.MaxCrashes < 0 {
		return fleet.FieldError(field("health.max_crashes"), "is %d, want 1 or more", h.MaxCrashes)
	}
	return checkSpans([]bounded{{"health.wait", h.Wait}, {"health.stale_after", h.StaleAfter}, {"health.silent_after", h.SilentAfter}})
}

func checkPace(p *fleet.Plan) error {
	c := &p.Pace
	if err := checkSpans([]bounded{{"pace.soak", c.Soak}, {"pace.offer_for", c.OfferFor}, {"pace.wait_for", c.WaitFor}}); err != nil {
		return err
	}
	if err := CheckWaitFor(p, 0); err != nil {
		return err
	}
	return fleet.CheckWindows(field("pace.windows"), c.Windows)
}

// CheckWaitFor returns an error if each batch would take longer than the plan waits for it, since
// its targets are verified for longer. Hosts observe the version for a time, 0 if they do not.
func CheckWaitFor(p *fleet.Plan, observes time.Duration) error {
	need := VerifyTime(p, observes)
	if long := p.Pace.WaitFor.D(); long == 0 || long > need || len(p.Pace.Windows) > 0 { // windows lengthen it
		return nil
	}
	why := "health.wait is " + Span(fleet.Duration(HealthWait(p)))
	if observes == need {
		why = fmt.Sprintf("hosts observe %s for %s", p.Component, Span(fleet.Duration(observes)))
	}
	return fleet.FieldError(field("pace.wait_for"), "is %s, and each batch takes longer, since %s: want more than %s", Span(p.Pace.WaitFor), why, Span(fleet.Duration(need)))
}

// bounded is a duration of the plan.
type bounded struct {
	name string
	d    fleet.Duration
}

func checkSpans(spans []bounded) error {
	for _, s := range spans {
		if s.d < 0 || s.d > maxSpan {
			return fleet.FieldError(field("%s", s.name), "is %s, want 0 to %s", Span(s.d), Span(maxSpan))
		}
	}
	return nil
}

func isPercent(v float64) bool { return v >= 0 && v <= 100 }
