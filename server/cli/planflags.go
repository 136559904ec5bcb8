package cli

import (
	"fmt"
	"reflect"
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
	file           string
	name, about    string
	component      string
	version        string
	source         string
	profile        string
	upgradeID      string
	policies       []string
	agents         []string
	excludeAgents  []string
	labels         []string
	exclude        []string
	kuery          string
	all            bool
	force          bool
	strategy       string
	batchSize      int
	batchPercent   float64
	canary         string
	canaryPick     string
	canaryOver     []string
	canaryApproval bool
	rings          []int
	ringBy         string
	forceRings     bool
	maxParallel    int
	per            []string
	maxFailures    int
	maxFailurePct  float64
	retries        int
	healthWait     time.Duration
	soak           time.Duration
	pauseOnSuccess bool
	emergency      bool
	join           bool
	stageAhead     bool
	stateRisk      bool
	forceContinue  bool
	skipValidation bool
	deadline       string
	away           string
	patience       time.Duration
}

func (p *planFlags) register(f *pflag.FlagSet) {
	f.StringVarP(&p.file, "file", "f", "", "plan file (YAML), - for standard input; flags override it")
	f.StringVar(&p.name, "name", "", "name of the rollout (default: made from the version)")
	f.StringVar(&p.about, "description", "", "description of the rollout")
	f.StringVar(&p.component, "component", "", "upgrade this component, and install it where no version of it is (default: the agents themselves)")
	f.StringVar(&p.version, "version", "", "version to upgrade to")
	f.StringVar(&p.source, "source-version", "", "select only agents that run this version")
	f.StringVar(&p.profile, "profile", "", "profile of the upgrade manifest, with --upgrade-id")
	f.StringVar(&p.upgradeID, "upgrade-id", "", "upgrade manifest that names version, artifacts and migration, with --profile")
	f.StringSliceVar(&p.policies, "policy", nil, "select agents with these policies")
	f.StringSliceVar(&p.agents, "agents", nil, "select these agents, by id or host name")
	f.StringSliceVar(&p.excludeAgents, "exclude-agents", nil, "exclude these agents, by id or host name")
	f.StringArrayVar(&p.labels, "label", nil, "select agents with this label, such as site=fra; repeat it for more values of a label, or for more labels")
	f.StringArrayVar(&p.exclude, "exclude", nil, "exclude agents with this label, such as site=fra")
	f.StringVar(&p.kuery, "kuery", "", "select agents that match this KQL query")
	f.BoolVar(&p.all, "all", false, "select all agents")
	f.BoolVar(&p.force, "force", false, "also move agents that run a later version down (hosts go back only to the version they keep, or that muster package allow-downgrade allows)")
	f.StringVar(&p.strategy, "strategy", "", plan.KindList()+" (default: the one that other flags imply, else rolling)")
	f.IntVar(&p.batchSize, "batch-size", 0, "number of agents in a batch")
	f.Float64Var(&p.batchPercent, "batch-percent", 0, "size of a batch as a percentage of all agents of the rollout (default: the server's, usually 10)")
	f.StringVar(&p.canary, "canary", "", "number or share of agents to upgrade and watch first, such as 5 or 2%")
	f.StringVar(&p.canaryPick, "canary-pick", "", "how to pick canaries: random, or stratified to cover the fleet's variety")
	f.StringSliceVar(&p.canaryOver, "canary-over", nil, "labels whose combinations stratified covers (default os,arch,version)")
	f.BoolVar(&p.canaryApproval, "canary-approval", false, "after the canaries wait for muster rollouts approve")
	f.IntSliceVar(&p.rings, "rings", nil, "upgrade only these rings, such as 0,1")
	f.StringVar(&p.ringBy, "ring-by", "", "label whose value is the ring (default ring)")
	f.BoolVar(&p.forceRings, "force-rings", false, "upgrade a ring although lower rings do not run the version")
	p.registerRules(f)
	f.BoolVar(&p.stateRisk, "acknowledge-state-risk", false, "accept that a breaking migration may leave state which cannot be rolled back")
	f.BoolVar(&p.forceContinue, "force-continue", false, "with all_at_once: never stop because of failures")
	f.BoolVar(&p.skipValidation, "skip-validation", false, "with all_at_once: count an agent as done once it runs the version, without watching its health")
	f.BoolVar(&p.join, "join", false, "also upgrade agents that match only after the start")
	f.BoolVar(&p.stageAhead, "stage-ahead", false, "have all targets load the version before the first is upgraded")
	f.StringVar(&p.deadline, "deadline", "", "with all_at_once: offer nothing after this time")
	f.StringVar(&p.away, "away", "", "with lockstep: refuse to begin while targets are offline (default), or exclude them")
	f.DurationVar(&p.patience, "patience", 0, "with lockstep: how long each phase may take (default 10m)")
}

// registerRules registers the flags of what may change while a rollout is under way.
func (p *planFlags) registerRules(f *pflag.FlagSet) {
	f.IntVar(&p.maxParallel, "max-parallel", 0, "maximum number of agents upgrading at one time (default: the server's, usually 500)")
	f.StringArrayVar(&p.per, "max-per", nil, "maximum number for each value of a label, such as site=5")
	f.IntVar(&p.maxFailures, "max-failures", 0, "pause at this many failures (default: the server's, usually 3)")
	f.Float64Var(&p.maxFailurePct, "max-failure-percent", 0, "pause above this percentage of failures")
	f.IntVar(&p.retries, "retries", 0, "how often to retry an agent whose upgrade failed without harm")
	f.DurationVar(&p.healthWait, "health-wait", 0, "how long an upgraded agent must stay healthy (default: the server's, usually 10m)")
	f.DurationVar(&p.soak, "soak", 0, "time to wait between batches")
	f.BoolVar(&p.pauseOnSuccess, "pause-on-success", false, "pause after each batch")
	f.BoolVar(&p.emergency, "emergency", false, "skip soak, windows, freezes and the canaries' observation")
}

// given returns the name of a flag of a plan that is given; empty: none is.
func (p *planFlags) given(f *pflag.FlagSet) (name string) {
	var own pflag.FlagSet
	new(planFlags).register(&own)
	own.VisitAll(func(of *pflag.Flag) {
		if f.Changed(of.Name) && name == "" {
			name = of.Name
		}
	})
	return name
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
	if err := p.override(cmd.Flags().Changed, &f.plan); err != nil {
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

// checkZeros refuses flags that are given as zero where a plan without the value has a default,
// as everything that decodes plans does; see package strict.
func (p *planFlags) checkZeros(given func(string) bool) error {
	for _, f := range []struct {
		name string
		v    any
	}{
		{"batch-size", p.batchSize}, {"batch-percent", p.batchPercent}, {"max-parallel", p.maxParallel}, {"health-wait", p.healthWait}, {"patience", p.patience},
	} {
		if given(f.name) && reflect.ValueOf(f.v).IsZero() {
			return fmt.Errorf("--%s is %v, want more than that: leave it out for the default", f.name, f.v)
		}
	}
	return nil
}

func (p *planFlags) override(given func(string) bool, plan *fleet.Plan) error {
	if err := p.checkZeros(given); err != nil {
		return err
	}
	set(given("name"), &plan.Name, p.name)
	set(given("description"), &plan.Description, p.about)
	set(given("component"), &plan.Component, p.component)
	set(given("version"), &plan.Version, p.version)
	set(given("source-version"), &plan.SourceVersion, p.source)
	set(given("profile"), &plan.Profile, p.profile)
	set(given("upgrade-id"), &plan.UpgradeID, p.upgradeID)
	set(given("force"), &plan.Force, p.force)
	set(given("acknowledge-state-risk"), &plan.Migration.AcknowledgeStateRisk, p.stateRisk)
	set(given("force-continue"), &plan.Strategy.ForceContinue, p.forceContinue)
	set(given("skip-validation"), &plan.Strategy.SkipValidation, p.skipValidation)
	if given("join") {
		plan.LateJoiners = fleet.LateIgnore
		set(p.join, &plan.LateJoiners, fleet.LateJoin)
	}
	if given("stage-ahead") {
		plan.Stage = ""
		set(p.stageAhead, &plan.Stage, fleet.StageAhead)
	}
	if err := p.setSelection(given, &plan.Select); err != nil {
		return err
	}
	if err := p.setStrategy(given, &plan.Strategy); err != nil {
		return err
	}
	set(given("max-parallel"), &plan.Limits.MaxParallel, p.maxParallel)
	if given("max-per") {
		plan.Limits.Per = nil
	}
	for _, one := range p.per {
		label, text, _ := strings.Cut(one, "=")
		n, err := strconv.Atoi(text)
		if err != nil || label == "" {
			return fmt.Errorf("--max-per is %q, want a label and a number such as site=5", one)
		}
		plan.Limits.Per = append(plan.Limits.Per, fleet.LabelLimit{Label: label, Max: n})
	}
	if given("max-failures") {
		plan.Failure.Count = &p.maxFailures
	}
	if given("max-failure-percent") {
		plan.Failure.Percent = &p.maxFailurePct
	}
	set(given("retries"), &plan.Failure.Retries, p.retries)
	set(given("health-wait"), &plan.Health.Wait, fleet.Duration(p.healthWait))
	set(given("soak"), &plan.Pace.Soak, fleet.Duration(p.soak))
	set(given("pause-on-success"), &plan.Pace.PauseOnSuccess, p.pauseOnSuccess)
	set(given("emergency"), &plan.Pace.Emergency, p.emergency)
	return nil
}

func set[T any](given bool, field *T, v T) {
	if given {
		*field = v
	}
}

func (p *planFlags) setSelection(given func(string) bool, s *fleet.Selector) error {
	set(given("all"), &s.All, p.all)
	set(given("agents"), &s.Agents, p.agents)
	set(given("kuery"), &s.Kuery, p.kuery)
	set(given("policy"), &s.Policies, p.policies)
	set(given("exclude-agents"), &s.ExcludeAgents, p.excludeAgents)
	for flag, row := range map[string]struct {
		words []string
		field *map[string][]string
	}{"label": {p.labels, &s.Labels}, "exclude": {p.exclude, &s.Exclude}} {
		if !given(flag) {
			continue
		}
		*row.field = map[string][]string{}
		for _, one := range row.words {
			name, value, ok := strings.Cut(one, "=")
			if !ok || name == "" {
				return fmt.Errorf("--%s is %q, want a label and its value such as site=fra", flag, one)
			}
			(*row.field)[name] = append((*row.field)[name], value)
		}
	}
	return nil
}

// setStrategy sets the strategy. Flags for canaries, rings and lockstep imply theirs, unless the
// file or --strategy names one.
func (p *planFlags) setStrategy(given func(string) bool, s *fleet.Strategy) error {
	set(given("strategy"), &s.Kind, fleet.StrategyKind(p.strategy))
	set(given("batch-size"), &s.BatchSize, p.batchSize)
	set(given("batch-percent"), &s.BatchPercent, p.batchPercent)
	if given("batch-size") != given("batch-percent") { // they exclude each other: drop the one of the file
		set(given("batch-size"), &s.BatchPercent, 0)
		set(given("batch-percent"), &s.BatchSize, 0)
	}
	if given("deadline") {
		t, err := parseTime(p.deadline, time.Now())
		if err != nil {
			return fmt.Errorf("--deadline %w", err)
		}
		s.Deadline = &t
	}
	set(given("away"), &s.Away, fleet.AwayMode(p.away))
	set(given("patience"), &s.Patience, fleet.Duration(p.patience))
	canaries := given("canary") || given("canary-pick") || given("canary-over") || given("canary-approval")
	if canaries && s.Canary == nil {
		s.Canary = &fleet.CanaryRule{}
	}
	if given("canary") {
		s.Canary.Size, s.Canary.Percent = 0, 0
		text, percent := strings.CutSuffix(p.canary, "%")
		n, err := strconv.ParseFloat(text, 64)
		if err != nil || n <= 0 || !percent && n != float64(int(n)) {
			return fmt.Errorf("--canary is %q, want how many such as 5, or a share such as 2%%", p.canary)
		}
		set(percent, &s.Canary.Percent, n)
		set(!percent, &s.Canary.Size, int(n))
	}
	if canaries {
		set(given("canary-pick"), &s.Canary.Pick, fleet.CanaryPick(p.canaryPick))
		set(given("canary-over"), &s.Canary.Over, p.canaryOver)
		set(given("canary-approval"), &s.Canary.Approval, p.canaryApproval)
	}
	rings := given("rings") || given("ring-by") || given("force-rings")
	if rings && s.Rings == nil {
		s.Rings = &fleet.RingRule{}
	}
	if rings {
		set(given("rings"), &s.Rings.Only, p.rings)
		set(given("ring-by"), &s.Rings.By, p.ringBy)
		set(given("force-rings"), &s.Rings.Force, p.forceRings)
	}
	switch {
	case s.Kind != "":
	case given("away") || given("patience"):
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
