package action

import (
	"context"
	"slices"
	"time"

	"github.com/muster-fleet/muster/server/fleet"
	"github.com/muster-fleet/muster/server/store"
	"github.com/muster-fleet/muster/server/wire/agentapi"
)

const (
	// leaversInterval is how often EndOrdersOfLeavers looks: an operator who unenrols a host and then
	// looks at its orders finds them ended. The query reads an index that is nearly always empty.
	leaversInterval = 2 * time.Second
	// leaversBatch bounds the agents of one round. Each needs a search for its actions, some
	// milliseconds in Elasticsearch, so a round ends before the next is due.
	leaversBatch = 250
	// leaversSettle is how long after the first time the orders of an agent are ended once more, and
	// for good. An order that was accepted just before the agent left may get its action only then.
	leaversSettle = fleet.CreateGrace
)

// leavers are the agents whose orders were ended once, with the time, and where the next round
// continues.
type leavers struct {
	first map[string]time.Time
	after string
}

// EndOrdersOfLeavers ends what is open for agents that have left (fleet.Agent.Left), however that came about:
// an acknowledgement, a revocation, an uninstallation, a migration, or a server that died half-way. It reads
// from the store who has left, so no way to leave can forget it. It runs a round every leaversInterval until ctx
// ends. Several servers may run it at the same time.
func (s *Service) EndOrdersOfLeavers(ctx context.Context) {
	s.steadyRounds(ctx, "ends of orders of agents that have left", leaversInterval, s.EndOrdersOfLeaversOnce)
}

// EndOrdersOfLeaversOnce runs one round, over the next agents that owe ends. It must not be called
// concurrently.
func (s *Service) EndOrdersOfLeaversOnce(ctx context.Context) error {
	now, l := s.Now.UTC(), &s.leavers
	agents, err := s.Store.Agents().Leavers(ctx, l.after, leaversBatch)
	if err != nil {
		return err
	}
	for i := range agents {
		a := &agents[i]
		first, again := l.first[a.ID]
		if !again || now.Sub(first) >= leaversSettle {
			if err := s.endOrdersOf(ctx, a, again, now); err != nil {
				return err
			}
		}
		switch {
		case !again && l.first == nil:
			l.first = map[string]time.Time{a.ID: now}
		case !again:
			l.first[a.ID] = now
		case now.Sub(first) >= leaversSettle:
			delete(l.first, a.ID)
		}
	}
	if l.after = ""; len(agents) == leaversBatch {
		l.after = agents[len(agents)-1].ID
		return nil
	}
	for id, first := range l.first { // those that have returned, or that another server has finished
		if now.Sub(first) > 2*leaversSettle {
			delete(l.first, id)
		}
	}
	return nil
}

// endOrdersOf writes the results of the open actions of an agent that has left, and then ends its upgrades
// in its document. for good means that nothing can be open any more.
func (s *Service) endOrdersOf(ctx context.Context, a *fleet.Agent, forGood bool, now time.Time) error {
	left, ok := a.Left()
	if !ok {
		return nil
	}
	results, err := s.openResults(ctx, a, left, now)
	if err != nil {
		return err
	}
	return s.apply(ctx, *a, now, func(a *fleet.Agent) store.Report {
		if !a.HasPendingEnds() {
			return store.Report{} // it has returned, or another server was faster
		}
		// What its document names may have no action yet.
		r := store.Report{Results: results}
		stopped, changed := a.EndOrders(now)
		for _, id := range stopped {
			if !slices.ContainsFunc(results, func(r fleet.Result) bool { return r.ActionID == id }) {
				r.Results = append(slices.Clip(r.Results), withdrawal(id, a, left, now))
			}
		}
		if changed {
			r.Events = append(r.Events, a.UpgradeEvent(""))
			s.Log.Info("orders ended, since the agent has left", "agent", a.ID, "because", left.Text, "upgrades", stopped)
		}
		if forGood {
			a.OrdersEndedAt = &now
		}
		if changed || forGood {
			r.Agent = a
		}
		return r
	})
}

// openResults returns the results of the actions that name the agent and have none of it: an UNENROLL is
// done, and any other is stopped.
func (s *Service) openResults(ctx context.Context, a *fleet.Agent, left fleet.Departure, now time.Time) (results []fleet.Result, err error) {
	err = store.EachOpen(ctx, s.Store, a.ID, now, func(act *fleet.Action) {
		if act.Type == agentapi.ActionUnenroll || act.Type == agentapi.ActionForceUnenroll {
			results = append(results, fleet.Result{ActionID: act.ID, AgentID: a.ID, Hostname: a.Hostname(), Message: "the agent " + left.Text, Timestamp: now})
			return
		}
		results = append(results, withdrawal(act.ID, a, left, now))
	})
	return results, err
}

func withdrawal(actionID string, a *fleet.Agent, left fleet.Departure, now time.Time) fleet.Result {
	return fleet.Withdrawal(actionID, a, left.NoOutcome(), now)
}
