package plan

import (
	"fmt"
	"slices"
	"strings"
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

func checkStrategy(p *fleet.Plan) error {
	st := &p.Strategy
	switch {
	case st.Kind.Known():
	case st.Kind == "":
		return fleet.FieldError(field("strategy.kind"), "is missing: say rolling, canary, rings, all_at_once or lockstep")
	default:
		return fleet.FieldError(field("strategy.kind"), "is %q, want rolling, canary, rings, all_at_once or lockstep", st.Kind)
	}
	if err := checkBatches(st); err != nil {
		return err
	}
	if err := checkStrategyFields(p); err != nil {
		return err
	}
	if err := checkCanary(st); err != nil {
		return err
	}
	return checkRingRule(st)
}

// strategyField is a field of plans that not every strategy has.
type strategyField struct {
	path string // as in strategy.batch_size
	only []fleet.StrategyKind
	// not has the strategies that refuse the field, with the reason.
	not map[fleet.StrategyKind]string
}

// strategyFields are all of them. Check refuses a plan that gives one that its strategy does not
// have; the server's default of such a field is left out.
var strategyFields = []strategyField{
	{path: "strategy.force_continue", only: []fleet.StrategyKind{fleet.AllAtOnce}},
	{path: "strategy.skip_validation", only: []fleet.StrategyKind{fleet.AllAtOnce}},
	{path: "strategy.deadline", only: []fleet.StrategyKind{fleet.AllAtOnce}},
	{path: "strategy.canary", only: []fleet.StrategyKind{fleet.Canary, fleet.Rings}},
	{path: "strategy.rings", only: []fleet.StrategyKind{fleet.Rings}},
	{path: "strategy.away", only: []fleet.StrategyKind{fleet.LockstepStrategy}},
	{path: "strategy.patience", only: []fleet.StrategyKind{fleet.LockstepStrategy}},
	notIn("strategy.batch_size", "there is one batch", fleet.AllAtOnce),
	notIn("strategy.batch_percent", "there is one batch", fleet.AllAtOnce),
	notIn("limits.max_parallel", "all targets go together"),
	notIn("limits.per", "all targets go together"),
	notIn("failure.count", "the first failure undoes everything, or comes too late for that"),
	notIn("failure.percent", "the first failure undoes everything, or comes too late for that"),
	notIn("failure.retries", "a target cannot try again by itself"),
	notIn("pace.soak", "there is one batch"),
	notIn("pace.pause_on_success", "there is one batch"),
	notIn("pace.offer_for", "targets that are away are refused or excluded (strategy.away)"),
	notIn("pace.wait_for", "strategy.patience bounds each phase"),
}

// notIn returns a field that lockstep does not have, and why, nor the other strategies.
func notIn(path, lockstep string, others ...fleet.StrategyKind) strategyField {
	f := strategyField{path: path, not: map[fleet.StrategyKind]string{
		fleet.LockstepStrategy: "does not go with lockstep, in which " + lockstep + ": leave it out",
	}}
	for _, kind := range others {
		f.not[kind] = fmt.Sprintf("does nothing in %s: leave it out, or bound max_parallel in limits", kind)
	}
	return f
}

// refusal returns why a strategy does not have the field; empty: it has it.
func (f strategyField) refusal(kind fleet.StrategyKind) string {
	if len(f.only) == 0 || slices.Contains(f.only, kind) {
		return f.not[kind]
	}
	names := make([]string, len(f.only))
	for i, k := range f.only {
		names[i] = string(k)
	}
	return fmt.Sprintf("belongs to %s, the strategy is %s", strings.Join(names, " and "), kind)
}

// checkStrategyFields refuses fields that the plan's strategy does not have.
func checkStrategyFields(p *fleet.Plan) error {
	for _, f := range strategyFields {
		if refusal := f.refusal(p.Strategy.Kind); refusal != "" && valueAt(p, f.path) != nil {
			return fleet.FieldError(field("%s", f.path), "%s", refusal)
		}
	}
	return nil
}

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

func checkCanary(st *fleet.Strategy) error {
	c := st.Canary
	switch {
	case c == nil && st.Kind == fleet.Canary:
		return fleet.FieldError(field("strategy.canary"), "is missing: say how many canaries go first")
	case c == nil:
		return nil
	case c.Size < 0:
		return fleet.FieldError(field("strategy.canary.size"), "is %d, want 1 or more", c.Size)
	case !isPercent(c.Percent):
		return fleet.FieldError(field("strategy.canary.percent"), "is %v, want more than 0 and at most 100", c.Percent)
	case c.Size > 0 && c.Percent > 0:
		return fleet.FieldError(field("strategy.canary.percent"), "conflicts with size: give only one of them")
	case !slices.Contains([]fleet.CanaryPick{"", fleet.PickRandom, fleet.PickStratified}, c.Pick):
		return fleet.FieldError(field("strategy.canary.pick"), "is %q, want random or stratified", c.Pick)
	case len(c.Over) > maxOver:
		return fleet.FieldError(field("strategy.canary.over"), "has %d labels, want at most %d: each multiplies the combinations", len(c.Over), maxOver)
	}
	return checkNames("strategy.canary.over", c.Over)
}

// maxOver bounds the labels that canaries are spread over: with more, hardly two agents
// share all values.
const maxOver = 8

func checkRingRule(st *fleet.Strategy) error {
	rule := st.Rings
	switch {
	case rule == nil:
		return nil
	case rule.Default < 0 || rule.Default > MaxRing:
		return fleet.FieldError(field("strategy.rings.default"), "is %d, want 0 to %d", rule.Default, MaxRing)
	}
	for i, ring := range rule.Only {
		if ring < 0 || ring > MaxRing {
			return fleet.FieldError(field("strategy.rings.only[%d]", i), "is %d, want 0 to %d", ring, MaxRing)
		}
		if slices.Contains(rule.Only[:i], ring) {
			return fleet.FieldError(field("strategy.rings.only[%d]", i), "is ring %d again", ring)
		}
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
	return CheckWindows(field("pace.windows"), c.Windows)
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

// CheckWindows returns what is wrong with windows; at is their field, for errors.
func CheckWindows(at string, windows []fleet.Window) error {
	if len(windows) > maxValues {
		return fleet.FieldError(at, "has %d windows, want at most %d", len(windows), maxValues)
	}
	for i, w := range windows {
		if _, err := readWindow(fmt.Sprintf("%s[%d]", at, i), w); err != nil {
			return err
		}
	}
	return nil
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
