package preview

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/muster-fleet/muster/packaging/pkg/manifest"
	"github.com/muster-fleet/muster/server/fleet"
	"github.com/muster-fleet/muster/server/rollout/plan"
)

func (s *builder) warnf(format string, args ...any) {
	s.warnings = append(s.warnings, fmt.Sprintf(format, args...))
}

// warn adds what an operator should know before the start.
func (s *builder) warn(pre *fleet.Preview, picks []*pick) {
	p := s.plan
	if len(picks) == 0 {
		if s.matching == 0 {
			s.warnf("no agent matches select: nobody would be upgraded")
		} else {
			s.warnf("%s, and all are left out: nobody would be upgraded (%s)", plan.Count(s.matching, "agent matches", "agents match"), LeftOut(pre.Skipped))
		}
	}
	s.warnQuery()
	s.warnCanaries(pre)
	s.warnPace(pre)
	s.warnLimits(pre)
	s.warnDowngrades(picks)
	s.warnSpace(picks)
	s.warnRendered(picks)
	s.warnChecks(picks)
	s.warnings = append(s.warnings, plan.Of(p).Warnings(p, pre, membersOf(picks))...)
	switch {
	case p.Migration.Type == fleet.MigrationCompatible && p.Strategy.Canary == nil && !plan.Together(p.Strategy.Kind) && len(picks) > 1:
		s.warnf("the migration is compatible, and no canary shows first that the version before reads what %s writes: add canaries (strategy: {kind: canary}, --canary 5)", p.Version)
	case p.Migration.Type != fleet.MigrationBreaking:
	case p.Version == "": // a rollback
		s.warnf("the versions before may not read what has been written since. The recovery plan: %s", p.Migration.RecoveryPlan)
	default:
		s.warnf("there is no sure way back: the version before may not read what %s has written. The recovery plan: %s", p.Version, p.Migration.RecoveryPlan)
	}
	pre.Warnings = append(pre.Warnings, s.warnings...)
}

// LeftOut counts the reasons for which agents are left out, the most frequent first.
func LeftOut(skipped []fleet.SkippedAgent) string {
	counts, first := map[fleet.ReasonCode]int{}, map[fleet.ReasonCode]string{}
	var codes []fleet.ReasonCode
	for _, s := range skipped {
		if counts[s.Code]++; counts[s.Code] == 1 {
			codes, first[s.Code] = append(codes, s.Code), s.Text
		}
	}
	slices.SortStableFunc(codes, func(a, b fleet.ReasonCode) int { return counts[b] - counts[a] })
	parts := make([]string, len(codes))
	for i, c := range codes {
		parts[i] = fmt.Sprintf("%d because %s", counts[c], plan.ReasonText(c))
		if c == fleet.WhyRefused { // the code does not say why
			parts[i] += ", such as: " + first[c]
		}
	}
	return strings.Join(parts, ", ")
}

// warnDowngrades warns of targets that will refuse their version: hosts go back only to the
// version that they keep, and to those that the publishers allow, whether forced or not.
func (s *builder) warnDowngrades(picks []*pick) {
	type step struct{ from, to string }
	down := map[step]bool{}
	refusing, versions := 0, map[string]bool{}
	for _, p := range picks {
		if p.target.From == "" {
			continue // the first installation
		}
		t := step{p.target.From, cmp.Or(s.plan.Version, p.target.To)}
		if _, known := down[t]; !known {
			order, err := manifest.CompareVersions(t.to, t.from)
			down[t] = err == nil && order < 0 && !slices.ContainsFunc(s.fleet.Catalog, func(p fleet.Package) bool { return p.Version == t.to && p.Downgrade })
		}
		if !down[t] || p.target.Rollback {
			continue
		}
		if subject := p.Of(s.plan.Component); !subject.Keeps(t.to, s.now) {
			refusing++
			versions[t.to] = true
		}
	}
	if refusing > 0 {
		var commands []string
		for _, v := range slices.Sorted(maps.Keys(versions)) {
			commands = append(commands, "`"+plan.AllowDowngrade(s.plan, v)+"`")
		}
		s.warnf("%s to an older version without keeping it. Hosts refuse that, also with force, unless the publishers allow it (%s)",
			plan.Count(refusing, "target goes", "targets go"), strings.Join(commands, ", "))
	}
}

// warnSpace warns of targets that are included by force although their hosts report too little free
// space.
func (s *builder) warnSpace(picks []*pick) {
	wish := fleet.UpgradeRequest{Version: s.plan.Version, SourceURI: s.plan.SourceURI, Force: true}
	if s.plan.Version == "" || !s.plan.Force {
		return
	}
	n := 0
	for _, p := range picks {
		subject := p.Of(s.plan.Component)
		if cause, _ := subject.HostRefuses(wish, s.packages, s.now); cause == fleet.CauseNoSpace {
			n++
		}
	}
	if n > 0 {
		s.warnf("%s less free space than %s needs. Hosts refuse that, also with force, if it is not free then", plan.Count(n, "target reports", "targets report"), s.plan.Version)
	}
}

// warnRendered warns of targets whose rendered configuration files the plan takes away. A
// rollback puts the files of the version before back.
func (s *builder) warnRendered(picks []*pick) {
	if s.plan.Version == "" {
		return
	}
	n := 0
	for _, p := range picks {
		if subject := p.Of(s.plan.Component); subject.RenderedSHA256() != "" && p.target.Config == "" {
			n++
		}
	}
	if n > 0 {
		s.warnf("%s configuration files that the server has rendered, and this plan renders none: those of the package take their place. Make the plan from an upgrade manifest with files (profile and upgrade_id) to keep them",
			plan.Count(n, "target has", "targets have"))
	}
}

// warnChecks warns of the checks of policies that leave their hosts. Whether a host allows it is in its
// own configuration, which the server does not know.
func (s *builder) warnChecks(picks []*pick) {
	checks := map[string]bool{}
	n := 0
	for _, p := range picks {
		leaves := false
		for _, c := range s.fleet.Components[p.PolicyID].Health.Checks {
			if c.Remote {
				leaves = true
				checks[fmt.Sprintf("%s (%s)", c.Name, cmp.Or(c.HTTP, c.TCP))] = true
			}
		}
		if leaves {
			n++
		}
	}
	if n > 0 {
		s.warnf("the policy's checks %s ask other hosts, for %s: a host refuses that unless checks.allow of its agent.yml lists the address, and then goes back to the version before",
			fleet.List(slices.Sorted(maps.Keys(checks))), plan.Count(n, "target", "targets"))
	}
}

func (s *builder) warnQuery() {
	if !s.chosen.ChangesByItself(s.asked()) {
		return
	}
	if s.plan.LateJoiners == fleet.LateJoin {
		s.warnf("select.kuery asks for what changes by itself, such as a status: whoever comes to match it later joins")
		return
	}
	s.warnf("select.kuery asks for what changes by itself, such as a status: the targets are those who match it when it starts")
}

func (s *builder) warnCanaries(pre *fleet.Preview) {
	rule := s.plan.Strategy.Canary
	if rule == nil || len(pre.Batches) == 0 || pre.Batches[0].Kind != fleet.BatchCanary {
		return
	}
	canaries := pre.Batches[0]
	if canaries.Size == len(pre.Targets) {
		s.warnf("all %s canaries: nothing comes after them", plan.Count(canaries.Size, "target is", "targets are"))
	}
	if c := pre.Coverage; c != nil && c.Covered < c.Cells {
		left := len(pre.Targets) - int(c.Agents*float64(len(pre.Targets))+0.5)
		advice := "more canaries would cover them"
		if rule.Pick != fleet.PickStratified {
			advice = "stratified canaries cover more"
		}
		s.warnf("the canaries stand for %d of %d combinations of %s; %s none: %s", c.Covered, c.Cells, fleet.List(c.Over), plan.Count(left, "target has", "targets have"), advice)
	}
	switch {
	case canaries.Offline == canaries.Size:
		s.warnf("every canary is offline: unless one comes, they show nothing before the next batch begins")
	case canaries.Offline > 0:
		s.warnf("%d of %d canaries are offline and show nothing until they come", canaries.Offline, canaries.Size)
	}
	if len(pre.Batches) > 1 && (rule.Approval || s.plan.Migration.Type == fleet.MigrationBreaking) {
		s.warnf("after the canaries an operator must approve the rest, within %s; the times given do not count that", plan.Span(s.plan.Pace.WaitFor))
	}
}

func (s *builder) warnPace(pre *fleet.Preview) {
	p := s.plan
	if st := pre.Staging; st != nil && st.Cannot > 0 {
		s.warnf("%s: they download the version when they are upgraded", plan.Count(st.Cannot, "target has an agent that cannot stage versions", "targets have agents that cannot stage versions"))
	}
	if p.Pace.PauseOnSuccess && len(pre.Batches) > 1 {
		s.warnf("it pauses after each batch until somebody resumes it; the times given do not count that")
	}
	if p.Pace.Emergency {
		s.warnf("it is an emergency: soak, windows, freezes and the observation of canaries are left out")
	}
	if p.Strategy.ForceContinue {
		s.warnf("no failure stops it")
	}
	if p.Strategy.SkipValidation {
		s.warnf("an agent that reaches the version counts as well, whatever its health")
	}
	if p.Component == "" && p.Version != "" && !p.Strategy.SkipValidation && p.Health.Wait.D() < fleet.DefaultWatch {
		s.warnf("health.wait is %s: hosts watch a new version for %s by default, so later batches begin while earlier hosts can still be rolled back", plan.Span(p.Health.Wait), plan.Span(fleet.Duration(fleet.DefaultWatch)))
	}
	if wait := plan.HealthWait(p); wait > 0 && wait < s.observes {
		s.warnf("health.wait is %s, and hosts observe %s for %s: each target takes at least that", plan.Span(fleet.Duration(wait)), p.Component, plan.Span(fleet.Duration(s.observes)))
	}
	if d := p.Strategy.Deadline; d != nil {
		if !s.now.Before(*d) {
			s.warnf("its deadline has passed: nothing would be offered")
		} else if n := len(pre.Batches); n > 0 && pre.Batches[n-1].EndAt.After(*d) {
			s.warnf("it will probably not be done by its deadline, %s: raise max_parallel or begin earlier", d.UTC().Format("2006-01-02 15:04 MST"))
		}
	}
}

func (s *builder) warnLimits(pre *fleet.Preview) {
	p := s.plan
	var largest fleet.PreviewBatch
	for _, b := range pre.Batches {
		if b.Size > largest.Size {
			largest = b
		}
	}
	if largest.Size > plan.MaxParallel(p) && !plan.Together(p.Strategy.Kind) {
		s.warnf("batch %d has %d agents, of which %d are upgraded at one time", largest.Index+1, largest.Size, plan.MaxParallel(p))
	}
	for i, limit := range p.Limits.Per {
		without := 0
		for j := range pre.Targets {
			if pre.Targets[j].Values[i] == "" {
				without++
			}
		}
		switch {
		case without == 0:
		case without == len(pre.Targets):
			s.warnf("no target has the label %s: its limit bounds nothing", limit.Label)
		default:
			s.warnf("%d of %d targets have no label %s: its limit does not bound them", without, len(pre.Targets), limit.Label)
		}
	}
}
