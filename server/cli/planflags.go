package cli

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/muster-fleet/muster/server/fleet"
	"github.com/muster-fleet/muster/server/rollout/plan"
)

// planFlags are the flags that describe a plan. They override the plan file, if there is
// one.
type planFlags struct {
	file     string
	settings []setting
}

// setting is a flag that sets something in a plan.
type setting struct {
	flag string
	set  func(*fleet.Plan) error
}

// sets adds a flag, by a method of a pflag.FlagSet for its type, whose value goes into a plan.
func sets[T any](p *planFlags, add func(name string, value T, usage string) *T, name, usage string, set func(plan *fleet.Plan, v T)) {
	parses(p, add, name, usage, func(plan *fleet.Plan, v T) error { set(plan, v); return nil })
}

// parses is sets for a value that may be wrong.
func parses[T any](p *planFlags, add func(name string, value T, usage string) *T, name, usage string, set func(plan *fleet.Plan, v T) error) {
	var zero T
	v := add(name, zero, usage)
	p.settings = append(p.settings, setting{name, func(plan *fleet.Plan) error { return set(plan, *v) }})
}

func (p *planFlags) register(f *pflag.FlagSet) {
	f.StringVarP(&p.file, "file", "f", "", "plan file (YAML), - for standard input; flags override it")
	sets(p, f.String, "name", "name of the rollout (default: made from the version)", func(to *fleet.Plan, v string) { to.Name = v })
	sets(p, f.String, "description", "description of the rollout", func(to *fleet.Plan, v string) { to.Description = v })
	sets(p, f.String, "component", "upgrade this component, and install it where no version of it is (default: the agents themselves)", func(to *fleet.Plan, v string) { to.Component = v })
	sets(p, f.String, "version", "version to upgrade to", func(to *fleet.Plan, v string) { to.Version = v })
	sets(p, f.String, "source-version", "select only agents that run this version", func(to *fleet.Plan, v string) { to.SourceVersion = v })
	sets(p, f.String, "profile", "profile of the upgrade manifest, with --upgrade-id", func(to *fleet.Plan, v string) { to.Profile = v })
	sets(p, f.String, "upgrade-id", "upgrade manifest that names version, artifacts and migration, with --profile", func(to *fleet.Plan, v string) { to.UpgradeID = v })
	p.registerSelection(f)
	sets(p, f.Bool, "force", "also move agents that run a later version down (hosts go back only to the version they keep, or that muster package allow-downgrade allows)", func(to *fleet.Plan, v bool) { to.Force = v })
	p.registerStrategy(f)
	p.registerRules(f)
	sets(p, f.Bool, "acknowledge-state-risk", "accept that a breaking migration may leave state which cannot be rolled back", func(to *fleet.Plan, v bool) { to.Migration.AcknowledgeStateRisk = v })
	sets(p, f.Bool, "join", "also upgrade agents that match only after the start", func(to *fleet.Plan, v bool) {
		to.LateJoiners = fleet.LateIgnore
		set(v, &to.LateJoiners, fleet.LateJoin)
	})
	sets(p, f.Bool, "stage-ahead", "have all targets load the version before the first is upgraded", func(to *fleet.Plan, v bool) {
		to.Stage = ""
		set(v, &to.Stage, fleet.StageAhead)
	})
}

func (p *planFlags) registerSelection(f *pflag.FlagSet) {
	sets(p, f.StringSlice, "policy", "select agents with these policies", func(to *fleet.Plan, v []string) { to.Select.Policies = v })
	sets(p, f.StringSlice, "agents", "select these agents, by id or host name", func(to *fleet.Plan, v []string) { to.Select.Agents = v })
	sets(p, f.StringSlice, "exclude-agents", "exclude these agents, by id or host name", func(to *fleet.Plan, v []string) { to.Select.ExcludeAgents = v })
	parses(p, f.StringArray, "label", "select agents with this label, such as site=fra; repeat it for more values of a label, or for more labels", func(to *fleet.Plan, v []string) (err error) {
		to.Select.Labels, err = parseLabels("label", v)
		return err
	})
	parses(p, f.StringArray, "exclude", "exclude agents with this label, such as site=fra", func(to *fleet.Plan, v []string) (err error) {
		to.Select.Exclude, err = parseLabels("exclude", v)
		return err
	})
	sets(p, f.String, "kuery", "select agents that match this KQL query", func(to *fleet.Plan, v string) { to.Select.Kuery = v })
	sets(p, f.Bool, "all", "select all agents", func(to *fleet.Plan, v bool) { to.Select.All = v })
}

func parseLabels(flag string, words []string) (map[string][]string, error) {
	labels := map[string][]string{}
	for _, one := range words {
		name, value, ok := strings.Cut(one, "=")
		if !ok || name == "" {
			return nil, fmt.Errorf("--%s is %q, want a label and its value such as site=fra", flag, one)
		}
		labels[name] = append(labels[name], value)
	}
	return labels, nil
}

func (p *planFlags) registerStrategy(f *pflag.FlagSet) {
	sets(p, f.String, "strategy", plan.KindList()+" (default: the one that other flags imply, else rolling)", func(to *fleet.Plan, v string) { to.Strategy.Kind = fleet.StrategyKind(v) })
	// The two sizes of a batch exclude each other: the one that is given drops that of the file.
	sets(p, f.Int, "batch-size", "number of agents in a batch", func(to *fleet.Plan, v int) {
		to.Strategy.BatchSize = v
		set(!f.Changed("batch-percent"), &to.Strategy.BatchPercent, 0)
	})
	sets(p, f.Float64, "batch-percent", "size of a batch as a percentage of all agents of the rollout (default: the server's, usually 10)", func(to *fleet.Plan, v float64) {
		to.Strategy.BatchPercent = v
		set(!f.Changed("batch-size"), &to.Strategy.BatchSize, 0)
	})
	parses(p, f.String, "canary", "number or share of agents to upgrade and watch first, such as 5 or 2%", func(to *fleet.Plan, v string) error {
		text, percent := strings.CutSuffix(v, "%")
		n, err := strconv.ParseFloat(text, 64)
		if err != nil || n <= 0 || !percent && n != float64(int(n)) {
			return fmt.Errorf("--canary is %q, want how many such as 5, or a share such as 2%%", v)
		}
		rule := canaryOf(to)
		rule.Size, rule.Percent = 0, 0
		set(percent, &rule.Percent, n)
		set(!percent, &rule.Size, int(n))
		return nil
	})
	sets(p, f.String, "canary-pick", "how to pick canaries: random, or stratified to cover the fleet's variety", func(to *fleet.Plan, v string) { canaryOf(to).Pick = fleet.CanaryPick(v) })
	sets(p, f.StringSlice, "canary-over", "labels whose combinations stratified covers (default os,arch,version)", func(to *fleet.Plan, v []string) { canaryOf(to).Over = v })
	sets(p, f.Bool, "canary-approval", "after the canaries wait for muster rollouts approve", func(to *fleet.Plan, v bool) { canaryOf(to).Approval = v })
	sets(p, f.IntSlice, "rings", "upgrade only these rings, such as 0,1", func(to *fleet.Plan, v []int) { ringsOf(to).Only = v })
	sets(p, f.String, "ring-by", "label whose value is the ring (default ring)", func(to *fleet.Plan, v string) { ringsOf(to).By = v })
	sets(p, f.Bool, "force-rings", "upgrade a ring although lower rings do not run the version", func(to *fleet.Plan, v bool) { ringsOf(to).Force = v })
	sets(p, f.Bool, "force-continue", "with all_at_once: never stop because of failures", func(to *fleet.Plan, v bool) { to.Strategy.ForceContinue = v })
	sets(p, f.Bool, "skip-validation", "with all_at_once: count an agent as done once it runs the version, without watching its health", func(to *fleet.Plan, v bool) { to.Strategy.SkipValidation = v })
	parses(p, f.String, "deadline", "with all_at_once: offer nothing after this time", func(to *fleet.Plan, v string) error {
		t, err := parseTime(v, time.Now())
		if err != nil {
			return fmt.Errorf("--deadline %w", err)
		}
		to.Strategy.Deadline = &t
		return nil
	})
	sets(p, f.String, "away", "with lockstep: refuse to begin while targets are offline (default), or exclude them", func(to *fleet.Plan, v string) { to.Strategy.Away = fleet.AwayMode(v) })
	sets(p, f.Duration, "patience", "with lockstep: how long each phase may take (default 10m)", func(to *fleet.Plan, v time.Duration) { to.Strategy.Patience = fleet.Duration(v) })
}

func canaryOf(p *fleet.Plan) *fleet.CanaryRule {
	set(p.Strategy.Canary == nil, &p.Strategy.Canary, &fleet.CanaryRule{})
	return p.Strategy.Canary
}

func ringsOf(p *fleet.Plan) *fleet.RingRule {
	set(p.Strategy.Rings == nil, &p.Strategy.Rings, &fleet.RingRule{})
	return p.Strategy.Rings
}

// registerRules registers the flags of what may change while a rollout is under way.
func (p *planFlags) registerRules(f *pflag.FlagSet) {
	sets(p, f.Int, "max-parallel", "maximum number of agents upgrading at one time (default: the server's, usually 500)", func(to *fleet.Plan, v int) { to.Limits.MaxParallel = v })
	parses(p, f.StringArray, "max-per", "maximum number for each value of a label, such as site=5", func(to *fleet.Plan, v []string) error {
		to.Limits.Per = nil
		for _, one := range v {
			label, text, _ := strings.Cut(one, "=")
			n, err := strconv.Atoi(text)
			if err != nil || label == "" {
				return fmt.Errorf("--max-per is %q, want a label and a number such as site=5", one)
			}
			to.Limits.Per = append(to.Limits.Per, fleet.LabelLimit{Label: label, Max: n})
		}
		return nil
	})
	sets(p, f.Int, "max-failures", "pause at this many failures (default: the server's, usually 3)", func(to *fleet.Plan, v int) { to.Failure.Count = &v })
	sets(p, f.Float64, "max-failure-percent", "pause above this percentage of failures", func(to *fleet.Plan, v float64) { to.Failure.Percent = &v })
	sets(p, f.Int, "retries", "how often to retry an agent whose upgrade failed without harm", func(to *fleet.Plan, v int) { to.Failure.Retries = v })
	sets(p, f.Duration, "health-wait", "how long an upgraded agent must stay healthy (default: the server's, usually 10m)", func(to *fleet.Plan, v time.Duration) { to.Health.Wait = fleet.Duration(v) })
	sets(p, f.Duration, "soak", "time to wait between batches", func(to *fleet.Plan, v time.Duration) { to.Pace.Soak = fleet.Duration(v) })
	sets(p, f.Bool, "pause-on-success", "pause after each batch", func(to *fleet.Plan, v bool) { to.Pace.PauseOnSuccess = v })
	sets(p, f.Bool, "emergency", "skip soak, windows, freezes and the canaries' observation", func(to *fleet.Plan, v bool) { to.Pace.Emergency = v })
}

// given returns the name of a flag of a plan that is given; empty: none is.
func (p *planFlags) given(f *pflag.FlagSet) string {
	for _, s := range append(p.settings, setting{flag: "file"}) {
		if f.Changed(s.flag) {
			return s.flag
		}
	}
	return ""
}

// plan returns the plan of the file, if there is one, changed by the flags.
func (p *planFlags) plan(cmd *cobra.Command) (planFile, error) {
	var f planFile
	if p.file != "" {
		var err error
		if f, err = readPlanFile(cmd, p.file); err != nil {
			return f, err
		}
	}
	if err := p.override(cmd.Flags(), &f.plan); err != nil {
		return f, &usageError{err}
	}
	if f.plan.Name == "" && f.plan.Version != "" {
		f.plan.Name = "upgrade to " + f.plan.What(f.plan.Version)
	}
	if f.plan.Name == "" && f.plan.UpgradeID != "" {
		f.plan.Name = f.plan.Profile + " " + f.plan.UpgradeID
	}
	return f, nil
}

// override sets in a plan what the given flags say. Flags for canaries, rings and lockstep imply their
// strategy, unless the file or --strategy names one.
func (p *planFlags) override(f *pflag.FlagSet, to *fleet.Plan) error {
	// A plan without these values has defaults, so that their zero is refused as everything that decodes
	// plans does; see package strict.
	for _, name := range []string{"batch-size", "batch-percent", "max-parallel", "health-wait", "patience"} {
		if flag := f.Lookup(name); flag != nil && flag.Changed && flag.Value.String() == flag.DefValue {
			return fmt.Errorf("--%s is %v, want more than that: leave it out for the default", name, flag.Value)
		}
	}
	for _, s := range p.settings {
		if f.Changed(s.flag) {
			if err := s.set(to); err != nil {
				return err
			}
		}
	}
	switch s := &to.Strategy; {
	case s.Kind != "":
	case f.Changed("away") || f.Changed("patience"):
		s.Kind = fleet.LockstepStrategy
	case s.Rings != nil:
		s.Kind = fleet.Rings
	case s.Canary != nil:
		s.Kind = fleet.Canary
	default:
		s.Kind = fleet.Rolling
	}
	return nil
}

func set[T any](given bool, field *T, v T) {
	if given {
		*field = v
	}
}

// parseTime parses a time: a date with or without a time of day, a time of today, or a
// duration such as "2h ago".
func parseTime(s string, now time.Time) (time.Time, error) {
	if t, err := time.Parse(time.RFC3339, s); err == nil {
		return t, nil
	}
	for _, layout := range []string{time.DateTime, "2006-01-02 15:04", time.DateOnly} {
		if t, err := time.ParseInLocation(layout, s, now.Location()); err == nil {
			return t, nil
		}
	}
	if t, err := time.ParseInLocation("15:04", s, now.Location()); err == nil {
		y, m, d := now.Date()
		return time.Date(y, m, d, t.Hour(), t.Minute(), 0, 0, now.Location()), nil
	}
	if text, ok := strings.CutSuffix(s, " ago"); ok {
		if d, err := time.ParseDuration(text); err == nil {
			return now.Add(-d), nil
		}
	}
	return time.Time{}, fmt.Errorf("is %q, want a time such as 2026-01-31T12:00:00Z, \"2026-01-31 12:00\", 12:00 or \"2h ago\"", s)
}

// planFile is a plan in YAML.
type planFile struct {
	yamlFile
	plan fleet.Plan
}

func newPlanFile(name string) planFile {
	return planFile{yamlFile: yamlFile{
		name: name, what: "plan", field: "plan", example: "muster rollouts example", tooLong: ": select agents by labels or policies instead of one by one",
	}}
}

func readPlanFile(cmd *cobra.Command, name string) (planFile, error) {
	f := newPlanFile(name)
	return f, f.read(cmd, &f.plan)
}
