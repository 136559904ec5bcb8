package reconcile

import (
	"cmp"
	"fmt"
	"strings"

	"github.com/muster-fleet/muster/server/fleet"
	"github.com/muster-fleet/muster/server/rollout/plan"
	"github.com/muster-fleet/muster/server/rollout/sequence"
	"github.com/muster-fleet/muster/server/rollout/spec"
)

// Reasons of several conditions.
const (
	agentsFailed  = "AgentsFailed"
	agentsRefused = "AgentsRefused"
	nextWaits     = "NextWaits"
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
	return fmt.Sprintf("rollout %s of %s to %s", r.ID, cmp.Or(r.Component, "the agents"), plan.VersionText(r.Version))
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
	case d.out.Act == sequence.Begin && d.seen.Refused == "":
		return is("RolloutStarting", "%s begins", d.what())
	}
	return not("NothingUnderWay", "no rollout is under way")
}

func (d *decider) promoting() verdict {
	if r := d.active(); r != nil && plan.Promoting(r) {
		if d.hash != d.st.RequestedRolloutHash {
			return is(nextWaits, "%s is past its canaries: what the spec says now begins when it has ended", d.what())
		}
		return is("PastCanaries", "%s is past its canaries, and is not disturbed by a change of the spec", d.what())
	}
	return not("NotPromoting", "a change of the spec is carried out at once")
}

func (d *decider) degraded() verdict {
	if m := d.members(); m != nil {
		for i := range m.Parts {
			if p := &m.Parts[i]; p.Lacking[LackFailed] > 0 {
				return is(agentsFailed, "%s failed to reach %s: %s. %s",
					plan.Count(p.Lacking[LackFailed], "agent", "agents"), p.what(), p.names(LackFailed), d.again())
			}
		}
	} else if old := d.f.Status.Condition(spec.Degraded); old != nil {
		return verdict{old.Status, old.Reason, old.Message} // until the agents are counted
	}
	if r := d.seen.Rollout; r != nil && d.mine() && r.Counts.Bad() > 0 && !plan.Tolerated(r) {
		return is(agentsFailed, "%s of %s failed", plan.Count(r.Counts.Bad(), "agent", "agents"), d.what())
	}
	return not("NoFailures", "no agent failed to reach a version")
}

// again says how failed agents are retried.
func (d *decider) again() string {
	return fmt.Sprintf("Look at them; then give the annotation %s another value to try them again, or desire another version", spec.ForceRolloutAnnotation)
}

// members are those that were counted for the spec as it is now, nil if they have not been counted.
func (d *decider) members() *Members {
	if m := d.seen.Members; m != nil && m.Generation == d.f.Metadata.Generation {
		return m
	}
	return nil
}

func (d *decider) stalled() verdict {
	st, r := &d.st, d.active()
	// A rollout of an earlier hash that is not promoting is replaced, whatever it waits for.
	if r != nil && !d.mine() && !plan.Promoting(r) && d.seen.Refused == "" {
		r = nil
	}
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
	case d.active() != nil:
	case d.problem() != "":
		return is("CannotStart", "%s", d.problem())
	case d.hash != st.RequestedRolloutHash: // it is requested once the agents are counted
	case st.LastCompletedRolloutHash == st.RequestedRolloutHash:
		return d.leftToPeople()
	case !d.mine() || st.Rollout.Number > 0:
	case st.Rollout.State == fleet.RolloutCancelled, st.Rollout.State == fleet.RolloutRolledBack:
		return is("RolloutCancelled", "%s was ended by an operator: change the spec, or its annotation %s", d.what(), spec.ForceRolloutAnnotation)
	case st.Rollout.State == fleet.RolloutFailed && !d.passed():
		return is("RolloutFailed", "%s failed%s. %s", d.what(), d.failedNames(), d.again())
	}
	return not("NotStalled", "nothing waits for a person")
}

// leftToPeople says which agents no rollout brings to a version of an object that is rolled out.
func (d *decider) leftToPeople() verdict {
	st, m := &d.st, d.members()
	none := not("NotStalled", "nothing waits for a person")
	switch old := d.f.Status.Condition(spec.Stalled); {
	case st.Rollout != nil && !st.Rollout.State.Ended():
		return none
	case m == nil && old != nil && old.ObservedGeneration == d.f.Metadata.Generation && (old.Reason == agentsFailed || old.Reason == agentsRefused):
		return verdict{old.Status, old.Reason, old.Message} // until the agents are counted
	case m == nil:
		return none
	}
	for i := range m.Parts {
		p := &m.Parts[i]
		if p.Lacking[LackFailed] > 0 {
			return is(agentsFailed, "%s. %s", d.lacking(p), d.again())
		}
		if p.Lacking[LackRefused] > 0 {
			return is(agentsRefused, "%s. Mend that, or leave them out of the selector", d.lacking(p))
		}
	}
	return none
}

// failedNames names the agents on which the part of the last rollout failed, after a colon.
func (d *decider) failedNames() string {
	m := d.members()
	if m == nil {
		return ""
	}
	if p := m.part(d.st.Rollout.Component); p != nil && p.Lacking[LackFailed] > 0 {
		return ": " + p.names(LackFailed)
	}
	return ""
}

// lacking says how many agents do not run the version of a part, and names some with the reason.
// Agents that are away do not count if the owner has said how long they are waited for.
func (d *decider) lacking(p *PartMembers) string {
	n, named := 0, make([]Lack, 0, lacks)
	for l := range lacks {
		if d.counts(l) && p.Lacking[l] > 0 {
			n += p.Lacking[l]
			named = append(named, l)
		}
	}
	return fmt.Sprintf("%s not run %s: %s", plan.Count(n, "agent does", "agents do"), p.what(), p.names(named...))
}

// counts reports whether agents that lack a version for a reason keep the object from being ready.
// The owner says that those that are away do not by giving pace.offer_for, which is how long they
// are waited for; the default is the server's word, not the owner's.
func (d *decider) counts(l Lack) bool { return l != LackAway || d.f.Spec.Pace.OfferFor == 0 }

// notRunning returns how many agents of a part keep the object from being ready.
func (d *decider) notRunning(p *PartMembers) (n int) {
	for l := range lacks {
		if d.counts(l) {
			n += p.Lacking[l]
		}
	}
	return n
}

// names names agents that lack the version for some reasons, at most maxNamed, and how many more
// there are.
func (p *PartMembers) names(of ...Lack) string {
	var words []string
	n := 0
	for _, l := range of {
		n += p.Lacking[l]
		for _, a := range p.Named[l] {
			if len(words) < maxNamed {
				words = append(words, a.Host+" "+a.Why)
			}
		}
	}
	if more := n - len(words); more > 0 {
		words = append(words, fmt.Sprintf("and %d more", more))
	}
	return strings.Join(words, "; ")
}

func waitsForApproval(r *fleet.Rollout) bool {
	return len(r.Waiting) > 0 && r.Waiting[0].Code == fleet.WhyApproval
}

func (d *decider) ready(v map[spec.ConditionType]verdict) verdict {
	st := &d.st
	if s := v[spec.Stalled]; s.status == spec.True {
		return not(s.reason, "%s", s.message)
	}
	if p := v[spec.Promoting]; p.reason == nextWaits {
		return not(p.reason, "%s", p.message)
	}
	if p := v[spec.Progressing]; p.status == spec.True {
		return not(p.reason, "%s", p.message)
	}
	m := d.members()
	if st.LastCompletedRolloutHash != d.hash || m == nil {
		if old := d.f.Status.Condition(spec.Ready); old != nil && st.LastCompletedRolloutHash == d.hash {
			return verdict{old.Status, old.Reason, old.Message} // until the agents are counted
		}
		return not("NotRolledOut", "the spec is not rolled out yet")
	}
	away, leftOut := 0, 0
	for i := range m.Parts {
		p := &m.Parts[i]
		if d.notRunning(p) == p.Lacking[LackAway] && p.Lacking[LackAway] > 0 && d.counts(LackAway) {
			return not("AgentsAway", "%s. They get it when they come back; to be ready without agents that are away, say in pace.offer_for how long to wait for them", d.lacking(p))
		}
		if d.notRunning(p) > 0 {
			return not("AgentsBehind", "%s", d.lacking(p))
		}
		away, leftOut = max(away, p.Lacking[LackAway]), max(leftOut, p.LeftOut)
	}
	switch {
	case m.Agents == 0:
		return is("RolledOut", "the selector matches no agent that could run what the spec says")
	case away > 0:
		return is("RolledOut", "all agents that are connected run what the spec says; %s away for longer than pace.offer_for may wait, and get it when they come back", plan.Count(away, "agent is", "agents are"))
	case leftOut > 0:
		return is("RolledOut", "all agents run what the spec says, without %s that are inactive or leaving", plan.Count(leftOut, "agent", "agents"))
	}
	return is("RolledOut", "all agents run what the spec says")
}
