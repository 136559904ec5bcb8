package cluster

import (
	"context"
	"fmt"
	"testing"
	"time"
)

const (
	deliveryAgents = 90 // 30 at each replica
	// warmUpRounds are not measured: nodes are slow just after their start, until their
	// code is compiled.
	warmUpRounds = 1
)

// An action for all agents is created at each server in turn, after a warm-up. The time is
// logged and not checked, since other tests share the machine. See DESIGN.md and
// testing/suites/bench/STORES.md for figures.
func actionReachesAgentsAtEveryReplica(t *testing.T, c *Cluster) {
	var r Recorder
	var polls openPolls
	f := c.Enrol(t, deliveryAgents, &r, polls.watch())
	var others, own []time.Duration
	for round := range warmUpRounds + Replicas {
		replica := round % Replicas
		o := c.Operator(t, replica, &r)
		polls.allOpen(t, deliveryAgents)
		op, err := o.Upgrade(t.Context(), fmt.Sprintf("delivery-%d", round), f.IDs, true)
		check(t, err)
		got := received(t, &r, op.ActionID, deliveryAgents)
		if round < warmUpRounds {
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
	polls.allOpen(t, deliveryAgents)
	waitConsistent(t, &r, c.Complete)
}

// received waits until n agents have received an action, and returns when each did.
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
