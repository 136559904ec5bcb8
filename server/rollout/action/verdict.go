package action

import (
	"cmp"
	"context"
	"slices"

	"golang.org/x/sync/errgroup"

	"github.com/muster-fleet/muster/server/fleet"
)

// MaxAgents bounds the agents of an order that names them, as in Kibana.
const MaxAgents = 10_000

// MaxSelected bounds the agents that a query selects for one order: the largest fleet
// that is a goal.
const MaxSelected = 100_000

// Verdict is whether an agent can follow an order.
type Verdict struct {
	Agent fleet.Agent
	Err   error // why it cannot; nil if it can
	// Owner is the declared fleet that decides about an agent which can follow; empty: none.
	Owner string
	begun bool // an earlier try has marked it
}

// Refused is the error of a Single order whose agent cannot follow it.
type Refused struct{ Verdict }

func (r Refused) Error() string { return r.Err.Error() }

func (r Refused) Unwrap() error { return r.Err }

// EachVerdict calls f with the verdict of an order for each agent, in the order of the
// ids. Then it returns the error about a freeze, the exposure budget or a declared fleet with which
// the order is refused as a whole. Upgrade comes to the same unless an agent has changed meanwhile. A
// version that has no package is an error, so that it is noticed before the order, except of stages.
// EachVerdict holds two pages of agents in memory at a time.
func (s *Service) EachVerdict(ctx context.Context, o UpgradeOrder, f func(Verdict)) error {
	do, catalog, err := s.upgradeStep(ctx, o)
	if err != nil {
		return err
	}
	if !o.Stages {
		if err := o.check(catalog); err != nil {
			return err
		}
	}
	_, _, checks, refused := s.guard(ctx, &o)
	if refused != nil && fleet.KindOf(refused) != fleet.Conflict {
		return refused
	}
	return cmp.Or(s.judgeAll(ctx, o.AgentIDs, do, checks, f), refused)
}

// checkLocks refuses the agents of a running rollout, which would count another upgrade
// as a failure of its own.
func (s *Service) checkLocks(ctx context.Context, verdicts []Verdict, do step) error {
	if s.Locks == nil {
		return nil
	}
	free := make([]fleet.Agent, 0, len(verdicts))
	for _, v := range verdicts {
		if v.Err == nil && !v.begun {
			free = append(free, v.Agent)
		}
	}
	if len(free) == 0 {
		return nil
	}
	locked, err := s.Locks.Locked(ctx, do.component, free)
	if err != nil {
		return err
	}
	for i := range verdicts {
		if why, ok := locked[verdicts[i].Agent.ID]; ok && verdicts[i].Err == nil && !verdicts[i].begun {
			refused := fleet.Errorf(fleet.Conflict, "%s%s", why, do.hint).Because(fleet.CauseRollout)
			refused.Forceable = do.hint != ""
			verdicts[i].Err = refused
		}
	}
	return nil
}

// checkAgents checks the number and the uniqueness of the agents of an order.
func checkAgents(agentIDs []string, selected bool) error {
	switch n := len(agentIDs); {
	case n == 0 && selected:
		return fleet.FieldError("body.agents", "is a query that selects no agents: try it in the list of agents, with inactive ones if they are meant")
	case n == 0:
		// An empty list must not mean all: that has upgraded fleets by accident.
		return fleet.FieldError("body.agents", "is empty: name at least one agent")
	case selected && n > MaxSelected:
		return fleet.FieldError("body.agents", "is a query that selects %d agents, at most %d can follow one order: ask for fewer, or make a rollout", n, MaxSelected)
	case !selected && n > MaxAgents:
		return fleet.FieldError("body.agents", "names %d agents, at most %d can be named: select them by a query", n, MaxAgents)
	}
	ids := slices.Clone(agentIDs)
	slices.Sort(ids)
	for i := 1; i < len(ids); i++ {
		if ids[i] == ids[i-1] {
			return fleet.FieldError("body.agents", "names agent %s twice", ids[i])
		}
	}
	return nil
}

// judgeSize is how many agents are read and written at once: 100,000 documents would take
// half a gigabyte.
const judgeSize = 1000

func (s *Service) pageSize() int { return cmp.Or(s.page, judgeSize) }

// eachPage calls f with the verdicts of the agents, page by page in the order of the ids.
// Agents of a running rollout are refused unless do.locked. While f handles a page the
// next one is judged, so at most two are in memory. An error of either ends both.
func (s *Service) eachPage(ctx context.Context, ids []string, do step, f func([]Verdict) error) error {
	ahead, stop := context.WithCancel(ctx)
	defer stop()
	pages := make(chan []Verdict)
	var judging errgroup.Group
	judging.Go(func() error {
		defer close(pages)
		for some := range slices.Chunk(ids, s.pageSize()) {
			page, err := s.judge(ahead, some, do)
			if err == nil && !do.locked {
				err = s.checkLocks(ahead, page, do)
			}
			if err != nil {
				return err
			}
			select {
			case pages <- page:
			case <-ahead.Done():
				return fleet.Errorf(fleet.Unavailable, "the caller stopped waiting: %w", ahead.Err())
			}
		}
		return nil
	})
	for page := range pages {
		if err := f(page); err != nil {
			stop()
			_ = judging.Wait() // it ends because stop canceled it
			return err
		}
	}
	return judging.Wait()
}

// judge returns the verdict of each agent, in the order of the ids.
func (s *Service) judge(ctx context.Context, ids []string, do step) ([]Verdict, error) {
	found, err := s.Store.Agents().GetMany(ctx, ids)
	if err != nil {
		return nil, err
	}
	verdicts := make([]Verdict, len(ids))
	for i, id := range ids {
		v := &verdicts[i]
		if len(found) == 0 || found[0].ID != id { // found is in the order of ids
			v.Agent, v.Err = notFound(id)
			continue
		}
		v.Agent, found = found[0], found[1:]
		if v.begun = do.resumed && do.begun != nil && do.begun(&v.Agent); !v.begun {
			v.Err = do.check(&v.Agent)
		}
	}
	return verdicts, nil
}

// Found returns how many of the agents exist.
func (s *Service) Found(ctx context.Context, ids []string) (n int, err error) {
	for some := range slices.Chunk(ids, s.pageSize()) {
		agents, err := s.Store.Agents().GetMany(ctx, some)
		if err != nil {
			return 0, err
		}
		n += len(agents)
	}
	return n, nil
}

func notFound(id string) (fleet.Agent, error) {
	return fleet.Agent{ID: id}, fleet.Errorf(fleet.NotFound, "Agent %s not found", id).Because(fleet.CauseNotFound)
}
