package cluster

import (
	"context"
	"fmt"
	"testing"
	"time"
)

const (
	deliveryAgents = 90 // 30 at each replica
	// practice are rounds whose times do not count: nodes are slow that have just
	// started, since they compile themselves as they run.
	practice = 1
)

// An action is created at each replica in turn, for everybody, after one that does
// not count. How long it takes is shown and not judged, since other tests use the
// machine too: within a second on one that does nothing else; see DESIGN.md, and
// testing/bench/STORES.md.
func anActionReachesAgentsAtEveryReplica(t *testing.T, c *Cluster) {
	var r Recorder
	var present presence
	f := c.Enrol(t, deliveryAgents, &r, present.watch())
	var others, own []time.Duration
	for round := range practice + Replicas {
		replica := round % Replicas
		o := c.Operator(t, replica, &r)
		present.allOpen(t, deliveryAgents)
		op, err := o.Upgrade(t.Context(), fmt.Sprintf("delivery-%d", round), f.IDs, true)
		check(t, err)
		got := received(t, &r, op.ActionID, deliveryAgents)
		if round < practice {
			continue
		}
		for agent, at := range got {
			took := at.Sub(op.Returned)
			if f.Home(agent) == replica {
				own = append(own, took)
				continue
			}
			others = append(others, took)
		}
	}
	t.Logf("%d agents at other replicas than the action's: p50 %s, max %s; at the same: p50 %s, max %s", len(others),
		percentile(others, 50).Round(time.Millisecond), percentile(others, 100).Round(time.Millisecond),
		percentile(own, 50).Round(time.Millisecond), percentile(own, 100).Round(time.Millisecond))
	present.allOpen(t, deliveryAgents)
	sound(t, &r, c.Complete)
}

// received waits until so many agents have an action, and gives when each did.
func received(t *testing.T, r *Recorder, actionID string, n int) map[string]time.Time {
	t.Helper()
	at := map[string]time.Time{}
	Eventually(t, "every agent has "+actionID, func(context.Context) error {
		for _, a := range r.History().Answers {
			for _, id := range a.Actions {
				if id == actionID {
					at[a.Agent] = a.At
				}
			}
		}
		if len(at) < n {
			return fmt.Errorf("%d of %d have", len(at), n)
		}
		return nil
	})
	return at
}
