package preview

import (
	"fmt"
	"slices"

	"github.com/muster-fleet/muster/server/fleet"
	"github.com/muster-fleet/muster/server/rollout/plan"
)

// refuse adds why a start would be refused now, as far as the fleet decides. A start previews again
// and returns the first refusal, so preview and start cannot differ.
func (s *builder) refuse(pre *fleet.Preview, picks []*pick) error {
	if len(picks) == 0 {
		text := "none matches the plan's select"
		if len(pre.Skipped) > 0 {
			text = LeftOut(pre.Skipped)
		}
		pre.Refusals = append(pre.Refusals, fleet.StartRefusal{Text: "no agent would be upgraded: " + text})
	}
	behind, err := plan.Of(s.plan).Behind(s.plan, s.fleet.Agents, s.fleet.Timeouts, s.now)
	if err != nil {
		return err
	}
	pre.Refusals = append(pre.Refusals, behind...)
	if plan.Together(s.plan.Strategy.Kind) && len(picks) > 0 {
		pre.Refusals = append(pre.Refusals, s.notTogether(picks)...)
	}
	return nil
}

// notTogether refuses to start in lockstep what would not begin, by the same verdicts. A plan that
// stages the version ahead is verified only after that, so what passes by itself until then is
// not refused.
func (s *builder) notTogether(picks []*pick) []fleet.StartRefusal {
	p, ahead := s.plan, s.plan.Stage == fleet.StageAhead
	var faults, unstaged []string
	policies := map[string]bool{}
	targets := make(map[string]bool, len(picks))
	for _, t := range picks {
		targets[t.ID], policies[t.PolicyID] = true, true
		subject := t.Of(p.Component)
		code, text := plan.Verdict(p, plan.Pending, t.Agent, s.fleet.Connections.Of(t.Agent), s.between(subject.Version), s.now)
		switch {
		case code == "", code == fleet.WhySame:
			continue
		case code == fleet.WhyAway && (ahead || p.Strategy.Away == fleet.AwayExclude):
			continue
		case (code == fleet.WhyNotStaged || code == fleet.WhyBusy) && ahead:
			continue
		case code == fleet.WhyNotStaged:
			unstaged = append(unstaged, t.Hostname())
		}
		faults = append(faults, plan.NotReady(t.Hostname(), code, text))
	}
	var out []fleet.StartRefusal
	if len(faults) > 0 {
		text := fmt.Sprintf("%d of %s not ready to go in lockstep: %s", len(faults), plan.Count(len(picks), "target is", "targets are"), plan.Few(faults, len(faults)))
		if len(unstaged) > 0 {
			text += fmt.Sprintf("; stage the version first (`%s`), or let the rollout do it (stage: ahead, --stage-ahead)", plan.StageCommand(p, unstaged))
		}
		out = append(out, fleet.StartRefusal{Code: ErrNotReady, Text: text})
	}
	var apart []string
	for i := range s.fleet.Agents {
		a := &s.fleet.Agents[i]
		c, listed := s.fleet.Components[a.PolicyID]
		if !listed || targets[a.ID] || !a.Active {
			continue
		}
		subject := a.Of(p.Component)
		// Those that match and are no targets are left out by the preview.
		if plan.Apart(p, &c, &subject, policies[a.PolicyID], true, s.disconnected(a), nil) && !subject.StartWithheldBy(c) {
			apart = append(apart, a.Hostname())
		}
	}
	if len(apart) > 0 {
		slices.Sort(apart)
		text := fmt.Sprintf("hosts of a policy must not run mixed versions of %s, and %s another version without being a target: %s; select them too, or see why they are left out",
			p.Component, plan.Count(len(apart), "of its hosts runs", "of its hosts run"), plan.Few(apart, len(apart)))
		out = append(out, fleet.StartRefusal{Code: ErrNotReady, Text: text})
	}
	return out
}

// ErrNotReady is the code of the refusal of a rollout in lockstep whose targets are not ready.
const ErrNotReady = "rollout_not_ready"
