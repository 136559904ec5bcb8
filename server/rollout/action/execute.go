package action

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/muster-fleet/muster/server/fleet"
	"github.com/muster-fleet/muster/server/store/event"
	"github.com/muster-fleet/muster/server/wire/agentapi"
)

// newAction returns an action that expires after fleet.DefaultExpiration.
func newAction(kind agentapi.ActionType, actor string, now time.Time) fleet.Action {
	expiration := now.Add(fleet.DefaultExpiration)
	return fleet.Action{ID: fleet.NewID(), Type: kind, CreatedAt: now, CreatedBy: actor, Expiration: &expiration}
}

// step is what an action does to the document of each agent.
type step struct {
	// check reports why an agent cannot follow. It is called again for an agent that has
	// changed meanwhile.
	check func(*fleet.Agent) error
	// begin marks the document; nil if it stays as it is.
	begin func(*fleet.Agent)
	// begun reports whether begin has marked the document. It is asked if the order is resumed;
	// nil: begin can be repeated, and check permits that.
	begun   func(*fleet.Agent) bool
	resumed bool // another process may have begun the order
	// locked permits agents of a running rollout, or of one of the component; otherwise hint
	// is appended to their refusal.
	locked    bool
	component string
	hint      string
	// single makes the order fail with the first refusal.
	single bool
	// why is the operator's reason, and override the guard rails that the order overrides,
	// for the audit trail.
	why      string
	override []string
	// done is the result's message if begin completes the action; empty if agents have
	// to answer.
	done string
}

// order carries an order out, so that its action has the agents that follow and error results of
// the others. The order of a Single agent is over when the caller gets the answer; others are
// accepted first.
func (s *Service) order(ctx context.Context, a fleet.Action, agentIDs []string, do step, key, kind string, t terms) (fleet.Action, error) {
	if !do.single {
		done, err := s.accept(ctx, []fleet.AcceptedOrder{{
			ID: key, Kind: kind, Terms: event.Data(t), Action: a, AgentIDs: agentIDs, Entry: entryOf(ctx, a, agentIDs, do),
		}}, []step{do})
		if err != nil {
			return fleet.Action{}, err
		}
		return done[0], nil
	}
	ctx = context.WithoutCancel(ctx) // of one agent, it takes less than a caller who goes away could save
	a, err := s.execute(ctx, a, agentIDs, do, func(int) error { return nil })
	if err == nil {
		s.publishCreated(ctx, a, a.Actioned-len(a.Agents))
	}
	return a, err
}

// ordered returns the key of an order, and the action of the same order if that is being carried
// out: the caller has asked again. Orders of a Single agent are not accepted, and have no key.
func (s *Service) ordered(ctx context.Context, single bool, kind string, t terms, data []byte, actor string, agentIDs []string) (key string, earlier *fleet.Action, err error) {
	if single {
		return "", nil, nil
	}
	key = keyOf(kind, t, data, actor, agentIDs)
	actions, found, err := s.again(ctx, key)
	if err != nil || !found {
		return key, nil, err
	}
	return key, &actions[0], nil
}

func deref(a *fleet.Action) fleet.Action {
	if a == nil {
		return fleet.Action{}
	}
	return *a
}

// execute marks the agents and creates the action. The refusals of agents become error results of
// it. After each page execute calls handled with the number of its agents.
func (s *Service) execute(ctx context.Context, a fleet.Action, agentIDs []string, do step, handled func(n int) error) (fleet.Action, error) {
	a.Agents, a.Actioned = nil, len(agentIDs)
	ids, err := s.Store.Agents().Sorted(ctx, agentIDs)
	if err != nil {
		return fleet.Action{}, err
	}
	err = s.eachPage(ctx, ids, do, func(page []Verdict) error {
		open, err := s.withoutAnswered(ctx, &a, page, do)
		if err != nil {
			return err
		}
		if do.single && open[0].Err == nil {
			if err := s.Store.Audit().Append(ctx, []fleet.AuditEntry{entryOf(ctx, a, agentIDs, do)}); err != nil {
				return err
			}
		}
		marked := len(a.Agents)
		more, err := s.mark(ctx, &a, open, do)
		if err != nil {
			return err
		}
		refused := make([]fleet.Result, len(more))
		for i, v := range more {
			if do.single && !errors.As(v.Err, new(noPackage)) {
				return Refused{v}
			}
			refused[i] = fleet.Result{ActionID: a.ID, AgentID: v.Agent.ID, Hostname: v.Agent.Hostname(), Error: v.Err.Error(), Timestamp: a.CreatedAt}
		}
		if len(refused) > 0 {
			if _, err := s.Store.Results().Put(ctx, refused); err != nil {
				return err
			}
		}
		if do.done != "" {
			if err := s.finish(ctx, a, a.Agents[marked:], open, do.done); err != nil {
				return err
			}
		}
		return handled(len(page))
	})
	if err != nil {
		return fleet.Action{}, err
	}
	a.Agents = inOrderOf(agentIDs, a.Agents)
	err = s.create(ctx, &a)
	if err != nil && fleet.KindOf(err) == fleet.Conflict && !do.single { // an earlier try has created it
		return s.Store.Actions().Get(ctx, a.ID)
	}
	return a, err
}

// withoutAnswered returns the verdicts of the agents that have no result yet of an order that is
// resumed. It adds those with a good result to the action.
func (s *Service) withoutAnswered(ctx context.Context, a *fleet.Action, page []Verdict, do step) ([]Verdict, error) {
	if !do.resumed {
		return page, nil
	}
	ids := make([]string, len(page))
	for i := range page {
		ids[i] = page[i].Agent.ID
	}
	failed := map[string]bool{}
	if err := s.Store.Results().OfAction(ctx, a.ID, ids, func(r fleet.Result) { failed[r.AgentID] = r.Error != "" }); err != nil {
		return nil, err
	}
	return slices.DeleteFunc(page, func(v Verdict) bool {
		refused, answered := failed[v.Agent.ID]
		if answered && !refused {
			a.Agents = append(a.Agents, v.Agent.ID)
		}
		return answered
	}), nil
}

// inOrderOf returns some in the order of ids. An agent's position in the action decides
// when its upgrade starts if the upgrades are spread over time.
func inOrderOf(ids, some []string) []string {
	if len(some) == len(ids) {
		return slices.Clone(ids)
	}
	has := make(map[string]bool, len(some))
	for _, id := range some {
		has[id] = true
	}
	return slices.DeleteFunc(slices.Clone(ids), func(id string) bool { return !has[id] })
}

// finish writes the results of an action that agents do not have to answer. They are
// written before the action, so that no check-in delivers it.
func (s *Service) finish(ctx context.Context, a fleet.Action, ids []string, page []Verdict, message string) error {
	if len(ids) == 0 {
		return nil
	}
	hosts := make(map[string]string, len(page))
	for i := range page {
		hosts[page[i].Agent.ID] = page[i].Agent.Hostname()
	}
	results := make([]fleet.Result, len(ids))
	for i, id := range ids {
		results[i] = fleet.Result{ActionID: a.ID, AgentID: id, Hostname: hosts[id], Message: message, Timestamp: a.CreatedAt}
	}
	_, err := s.Store.Results().Put(ctx, results)
	return err
}

// markTries bounds how often the mark of an agent is tried again after a conflict.
const markTries = 4

// mark applies do.begin to every agent that can follow, writes it, and adds the agent to
// the action. It returns the others.
func (s *Service) mark(ctx context.Context, a *fleet.Action, verdicts []Verdict, do step) ([]Verdict, error) {
	var refused []Verdict
	refuse := func(agent fleet.Agent, err error) { refused = append(refused, Verdict{Agent: agent, Err: err}) }
	todo := make([]fleet.Agent, 0, len(verdicts))
	for i := range verdicts {
		switch v := &verdicts[i]; {
		case v.Err != nil:
			refuse(v.Agent, v.Err)
		case v.begun:
			a.Agents = append(a.Agents, v.Agent.ID)
		default:
			todo = append(todo, v.Agent)
		}
	}
	if do.begin == nil {
		for i := range todo {
			a.Agents = append(a.Agents, todo[i].ID)
		}
		return refused, nil
	}
	for try := 1; len(todo) > 0; try++ {
		for i := range todo {
			do.begin(&todo[i])
		}
		errs, err := s.Store.Agents().UpdateMany(ctx, todo)
		if err != nil {
			return nil, err
		}
		var again []string
		for i, err := range errs {
			switch {
			case err == nil:
				a.Agents = append(a.Agents, todo[i].ID)
			case fleet.KindOf(err) == fleet.Conflict && try < markTries:
				again = append(again, todo[i].ID)
			default:
				refuse(todo[i], err)
			}
		}
		if len(again) == 0 {
			break
		}
		fresh, err := s.Store.Agents().GetMany(ctx, again)
		if err != nil {
			return nil, err
		}
		for _, id := range again {
			if !slices.ContainsFunc(fresh, func(a fleet.Agent) bool { return a.ID == id }) {
				refuse(notFound(id))
			}
		}
		todo = todo[:0:0]
		for _, agent := range fresh {
			if err := do.check(&agent); err != nil {
				refuse(agent, err)
				continue
			}
			todo = append(todo, agent)
		}
	}
	return refused, nil
}

func (s *Service) create(ctx context.Context, a *fleet.Action) error {
	seq, err := s.Store.Actions().Create(ctx, *a)
	if err != nil {
		return err
	}
	a.Seq = seq
	s.Feed.Signal()
	return nil
}
