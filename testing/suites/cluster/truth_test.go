package cluster

import (
	"context"
	"fmt"
	"strings"

	"github.com/muster-fleet/muster/server/fleet"
	"github.com/muster-fleet/muster/server/store"
	"github.com/muster-fleet/muster/server/wire/agentapi"
)

// maxActions bounds how many actions are read from the store at the end.
const maxActions = 2_000

// Complete adds to a history the actions that its calls created, and their CANCELs.
func (c *Cluster) Complete(ctx context.Context, h History) (History, error) {
	named := map[string]bool{}
	for _, o := range h.Ops {
		named[o.Name] = true
	}
	var err error
	h.Actions, err = c.actions(ctx, func(a fleet.Action) string {
		if op, ok := strings.CutPrefix(a.Upgrade().SourceURI, opURI); ok && named[op] {
			return op
		}
		return ""
	})
	return h, err
}

// CompleteRollout adds the offers of a rollout to a history, as upgrades with an unknown
// outcome.
func (c *Cluster) CompleteRollout(ctx context.Context, h History, rolloutID string) (History, error) {
	var err error
	h.Actions, err = c.actions(ctx, func(a fleet.Action) string {
		if strings.HasPrefix(a.ID, rolloutID+"-") {
			return a.ID
		}
		return ""
	})
	for _, a := range h.Actions {
		h.Ops = append(h.Ops, Op{Name: a.ID, Kind: Upgrade, Agents: a.Agents})
	}
	return h, err
}

// actions returns the actions in the store for which op returns a name, and their CANCELs.
func (c *Cluster) actions(ctx context.Context, op func(fleet.Action) string) ([]Action, error) {
	list, err := c.Store.Actions().List(ctx, store.ActionQuery{Limit: maxActions})
	if err != nil {
		return nil, err
	}
	if len(list) == maxActions {
		return nil, fmt.Errorf("there are %d actions or more: bound the test", maxActions)
	}
	var out []Action
	var ids []string
	ours, partial := map[string]bool{}, map[string]bool{}
	for i := len(list) - 1; i >= 0; i-- { // oldest first: a CANCEL follows its target
		a := list[i]
		name := op(a)
		if a.Type == agentapi.ActionCancel {
			name = ""
		}
		if name == "" && !ours[a.Cancels()] {
			continue
		}
		ours[a.ID], partial[a.ID] = true, a.Actioned > len(a.Agents)
		ids = append(ids, a.ID)
		out = append(out, Action{ID: a.ID, Op: name, Cancels: a.Cancels(), Seq: a.Seq, Agents: a.Agents, Cancelled: a.CancelledAt != nil})
	}
	counts, err := c.Store.Results().Counts(ctx, ids)
	if err != nil {
		return nil, err
	}
	for i := range out {
		a := &out[i]
		a.Acked, a.Failed = counts[a.ID].Acked, counts[a.ID].Failed
		if !partial[a.ID] {
			continue // for all agents that were named: none was refused
		}
		if a.Refused, err = c.refused(ctx, a); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// refused returns the agents that have a result of an action that is not for them.
func (c *Cluster) refused(ctx context.Context, a *Action) ([]string, error) {
	failed, err := c.Store.Results().Errors(ctx, a.ID, maxActions)
	if err != nil || len(failed) == 0 {
		return nil, err
	}
	isFor := map[string]bool{}
	for _, id := range a.Agents {
		isFor[id] = true
	}
	var out []string
	for _, r := range failed {
		if !isFor[r.AgentID] {
			out = append(out, r.AgentID)
		}
	}
	return out, nil
}
