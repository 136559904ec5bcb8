package preview

import (
	"cmp"
	"fmt"

	"github.com/muster-fleet/muster/server/fleet"
	"github.com/muster-fleet/muster/server/rollout/plan"
)

// causes are the codes of reasons that orders without a rollout name otherwise.
var causes = map[fleet.ReasonCode]fleet.Cause{
	fleet.WhyGone: fleet.CauseUnenrolled, fleet.WhySame: fleet.CauseRunning, fleet.WhyLocked: fleet.CauseRollout, fleet.WhyRefused: fleet.CauseOther,
}

// Causes counts the agents of a preview by why they are left out, and the targets by what to know
// of them.
func Causes(pre *fleet.Preview, p *fleet.Plan) []fleet.CauseCount {
	var counts fleet.CauseCounts
	for i := range pre.Skipped {
		out := &pre.Skipped[i]
		one := fleet.CauseCount{Code: cmp.Or(string(out.Cause), string(causes[out.Code]), string(out.Code)), Text: fleet.Sentence(plan.ReasonText(out.Code))}
		if out.Code == fleet.WhyRefused { // the text says more
			one.Text = out.Cause.General(out.Text, "agent "+out.AgentID, out.AgentID)
		}
		if out.Forceable {
			one.Choice = fleet.ChoiceForce
		}
		counts.Add(one, 1, cmp.Or(out.Hostname, out.AgentID))
	}
	away := fleet.CauseCount{Code: string(fleet.CauseOffline), Will: true, Text: "The agent is offline: it gets the version when it returns."}
	if p.Pace.OfferFor > 0 {
		away.Text = fmt.Sprintf("The agent is offline: its offer waits for %s.", plan.Span(p.Pace.OfferFor))
	}
	for i := range pre.Targets {
		if t := &pre.Targets[i]; !t.Online {
			counts.Add(away, 1, cmp.Or(t.Hostname, t.AgentID))
		}
	}
	return counts.List()
}
