package cluster

import (
	"context"
	"fmt"
	"testing"
	"time"
)

const (
	deliveryAgents = 90 // 30 at each replica
	// reach is what is promised: so long after an operator was answered, every
	// agent that is parked at any replica has the action.
	reach = time.Second
	// usualRead is how long a node takes to read one document on a machine that does
	// nothing besides; where it takes longer, everything does.
	usualRead = 5 * time.Millisecond
	// reads are taken for that, before each round.
	reads = 9
)

// An action is created at each replica in turn, for everybody.
func anActionReachesAgentsAtEveryReplicaWithinASecond(t *testing.T, c *Cluster) {
	var r Recorder
	var present presence
	f := c.Enrol(t, deliveryAgents, &r, present.watch())
	var others, own, worst []time.Duration
	for replica := range Replicas {
		o := c.Operator(t, replica, &r)
		present.allOpen(t, deliveryAgents)
		busy := busyness(t, c)
		op, err := o.Upgrade(t.Context(), fmt.Sprintf("delivery-%d", replica), f.IDs, true)
		check(t, err)
		slowest := time.Duration(0)
		for agent, at := range received(t, &r, op.ActionID, deliveryAgents) {
			took := at.Sub(op.Returned)
			if f.Home(agent) == replica {
				own = append(own, took)
				continue
			}
			others = append(others, took)
			slowest = max(slowest, took)
		}
		worst = append(worst, time.Duration(float64(slowest)/busy))
		t.Logf("created at %s on a machine that is %.1f times as slow as usual: the last agent at another replica had it after %s", c.Name(replica), busy, slowest.Round(time.Millisecond))
	}
	t.Logf("%d agents at other replicas than the action's: p50 %s, max %s; at the same: p50 %s, max %s", len(others),
		percentile(others, 50).Round(time.Millisecond), percentile(others, 100).Round(time.Millisecond),
		percentile(own, 50).Round(time.Millisecond), percentile(own, 100).Round(time.Millisecond))
	// The middle one: in any second the machine may do something else.
	if middle := percentile(worst, 50); middle > reach {
		t.Errorf("the last agent at another replica had the action after %s (for a machine as fast as usual), want %s", middle, reach)
	}
	present.allOpen(t, deliveryAgents)
	sound(t, &r, c.Complete)
}

// busyness is how many times slower than usual the machine is now, 1 at least.
func busyness(t *testing.T, c *Cluster) float64 {
	t.Helper()
	var took []time.Duration
	for range reads {
		began := time.Now()
		check(t, c.Store.Ping(t.Context()))
		took = append(took, time.Since(began))
	}
	return max(1, float64(percentile(took, 50))/float64(usualRead))
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
