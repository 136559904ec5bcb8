package reconcile

import (
	"fmt"

	"github.com/muster-fleet/muster/server/fleet"
	"github.com/muster-fleet/muster/server/rollout/plan"
	"github.com/muster-fleet/muster/server/spec"
)

// verdict is a condition without its times.
type verdict struct {
	status  spec.ConditionStatus
	reason  string
	message string
}

func is(reason, format string, args ...any) verdict {
	return verdict{spec.True, reason, fmt.Sprintf(format, args...)}
}

func not(reason, format string, args ...any) verdict {
	return verdict{spec.False, reason, fmt.Sprintf(format, args...)}
}

// conditions returns all conditions of the new status. The time of one is that of its last change
// from true to false or back.
func (d *decider) conditions() []spec.Condition {
	verdicts := map[spec.ConditionType]verdict{
		spec.Progressing: d.progressing(), spec.Promoting: d.promoting(), spec.Degraded: d.degraded(), spec.Stalled: d.stalled(),
	}
	verdicts[spec.Ready] = d.ready(verdicts)
	out := make([]spec.Condition, 0, len(spec.ConditionTypes))
	for _, t := range spec.ConditionTypes {
		v := verdicts[t]
		c := spec.Condition{
			Type: t, Status: v.status, Reason: v.reason, Message: v.message, LastTransitionTime: d.now, ObservedGeneration: d.f.Metadata.Generation,
		}
		if old := d.f.Status.Condition(t); old != nil && old.Status == c.Status {
			c.LastTransitionTime = old.LastTransitionTime
		}
		out = append(out, c)
	}
	return out
}

// active returns the rollout under way, nil if there is none.
func (d *decider) active() *fleet.Rollout {
	if r := d.seen.Rollout; r != nil && r.State.Active() {
		return r
	}
	return nil
}

// what names the rollout of the status for a sentence.
func (d *decider) what() string {
	r := d.st.Rollout
	name := "the agents"
	if r.Component != "" {
		name = r.Component
	}
	return fmt.Sprintf("rollout %s of %s to %s", r.ID, name, plan.VersionText(r.Version))
}

func (d *decider) progressing() verdict {
	r := d.active()
	switch {
	case r != nil && r.State == fleet.RolloutPaused:
		return not("RolloutPaused", "%s is paused: %s", d.what(), d.st.Rollout.Waiting)
	case r != nil && r.State == fleet.RolloutCancelling:
		return is("RolloutEnding", "%s is cancelled; upgrades that have begun end first", d.what())
	case r != nil && d.st.Rollout.Waiting != "":
		return is("RolloutWaiting", "%s: %s", d.what(), d.st.Rollout.Waiting)
	case r != nil:
		return is("RolloutRunning", "%s is under way", d.what())
	case d.out.Act == Begin && d.seen.Refused == "":
		return is("RolloutStarting", "%s begins", d.what())
	}
	return not("NothingUnderWay", "no rollout is under way")
}

func (d *decider) promoting() verdict {
	if r := d.active(); r != nil && plan.Promoting(r) {
		if d.hash != d.st.RequestedRolloutHash {
			return is("NextWaits", "%s is past its canaries: what the spec says now begins when it has ended", d.what())
		}
		return is("PastCanaries", "%s is past its canaries, and is not disturbed by a change of the spec", d.what())
	}
	return not("NotPromoting", "a change of the spec is carried out at once")
}

func (d *decider) degraded() verdict {
	if m := d.seen.Members; m != nil {
		for _, p := range m.Parts {
			if p.Failed > 0 {
				return is("AgentsFailed", "%s failed to reach %s: look at them, then ask again with another value of the annotation %s, or desire another version",
					plan.Count(p.Failed, "agent", "agents"), fleet.What(p.Component, p.Version), spec.ForceRolloutAnnotation)
			}
		}
	} else if old := d.f.Status.Condition(spec.Degraded); old != nil {
		return verdict{old.Status, old.Reason, old.Message} // until the agents are counted
	}
	if r := d.seen.Rollout; r != nil && d.mine() && r.Counts.Bad() > 0 && !plan.Tolerated(r) {
		return is("AgentsFailed", "%s of %s failed", plan.Count(r.Counts.Bad(), "agent", "agents"), d.what())
	}
	return not("NoFailures", "no agent failed to reach a version")
}

func (d *decider) stalled() verdict {
	st, r := &d.st, d.active()
	switch {
	case st.Suspended != nil:
		return is("Suspended", "%s took its agents over: %s. It goes on after a change of the spec, or `muster fleets resume %s`", st.Suspended.By, st.Suspended.Why, d.f.Metadata.Name)
	case d.f.Spec.Paused:
		return is("Paused", "spec.paused is true")
	case r != nil && r.State == fleet.RolloutPaused && (r.Stop == nil || r.Stop.By != Actor(d.f)):
		return is("RolloutPaused", "%s is paused: %s. Change the spec, set spec.forcePromote to %s, or `muster rollouts resume %s`", d.what(), st.Rollout.Waiting, st.RequestedRolloutHash, r.ID)
	case r != nil && waitsForApproval(r):
		return is("WaitsForApproval", "%s waits for approval: `muster rollouts approve %s`, or set spec.forcePromote to %s", d.what(), r.ID, st.RequestedRolloutHash)
	case d.seen.Refused != "":
		return is("StepRefused", "%s", d.seen.Refused)
	case r != nil:
	case d.problem() != "":
		return is("CannotStart", "%s", d.problem())
	case !d.mine() || st.Rollout.Number > 0 || st.LastCompletedRolloutHash == st.RequestedRolloutHash:
	case st.Rollout.State == fleet.RolloutCancelled, st.Rollout.State == fleet.RolloutRolledBack:
		return is("RolloutCancelled", "%s was ended by an operator: change the spec, or its annotation %s", d.what(), spec.ForceRolloutAnnotation)
	case st.Rollout.State == fleet.RolloutFailed && !d.passed():
		return is("RolloutFailed", "%s failed: change the spec, or its annotation %s to try again", d.what(), spec.ForceRolloutAnnotation)
	}
	return not("NotStalled", "nothing waits for a person")
}

func waitsForApproval(r *fleet.Rollout) bool {
	return len(r.Waiting) > 0 && r.Waiting[0].Code == fleet.WhyApproval
}

func (d *decider) ready(v map[spec.ConditionType]verdict) verdict {
	st := &d.st
	if s := v[spec.Stalled]; s.status == spec.True {
		return not(s.reason, "%s", s.message)
	}
	if p := v[spec.Progressing]; p.status == spec.True {
		return not(p.reason, "%s", p.message)
	}
	if st.LastCompletedRolloutHash != d.hash || d.seen.Members == nil {
		if old := d.f.Status.Condition(spec.Ready); old != nil && st.LastCompletedRolloutHash == d.hash {
			return verdict{old.Status, old.Reason, old.Message} // until the agents are counted
		}
		return not("NotRolledOut", "the spec is not rolled out yet")
	}
	away := 0
	for _, p := range d.seen.Members.Parts {
		if n := len(p.Behind) + p.Busy; n > 0 {
			return not("AgentsBehind", "%s not run %s", plan.Count(n, "agent does", "agents do"), fleet.What(p.Component, p.Version))
		}
		away = max(away, p.Away)
	}
	if away > 0 {
		return is("RolledOut", "all agents that are connected run what the spec says; %s away, and get it when they come back", plan.Count(away, "agent is", "agents are"))
	}
	return is("RolledOut", "all agents run what the spec says")
}
