package policy

import (
	"context"
	"encoding/json"
	"fmt"
	"sync"

	"github.com/muster-fleet/muster/server/clock"
	"github.com/muster-fleet/muster/server/fleet"
	"github.com/muster-fleet/muster/server/wire/agentapi"
)

// Changes returns the POLICY_CHANGE actions of agents that lack the newest revision of
// their policy. They are made here and stored nowhere. A policy is rendered and encoded
// once for each revision, and all agents share that.
type Changes struct {
	Feed   *Feed
	Render func(ctx context.Context, policyID string) (Rendered, error)
	Now    clock.Clock

	mu   sync.Mutex
	made map[string]*change // the newest of each policy
}

type change struct {
	mu       sync.Mutex // held while the policy is rendered, so that agents wait for one rendering
	revision int64
	encoded  agentapi.EncodedAction
}

// Behind reports whether there is a newer revision than the one that an agent has. It does
// not call the store.
func (c *Changes) Behind(has fleet.PolicyAt) bool { return has.Revision < c.Feed.Newest(has.ID) }

// Change returns the POLICY_CHANGE with the newest revision of a policy.
func (c *Changes) Change(ctx context.Context, policyID string) (agentapi.EncodedAction, error) {
	m := c.of(policyID)
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.revision >= c.Feed.Newest(policyID) && m.revision > 0 {
		return m.encoded, nil
	}
	r, err := c.Render(ctx, policyID)
	if err != nil {
		return agentapi.EncodedAction{}, fmt.Errorf("render policy %s: %w", policyID, err)
	}
	data, err := json.Marshal(agentapi.PolicyChangeData{Policy: r.Body})
	if err != nil {
		return agentapi.EncodedAction{}, fmt.Errorf("encode policy %s: %w", policyID, err)
	}
	m.encoded = agentapi.EncodeAction(agentapi.Action{
		ID: fleet.PolicyAt{ID: policyID, Revision: r.Revision}.ChangeID(), Type: agentapi.ActionPolicyChange, CreatedAt: c.Now.UTC(), Data: data,
	})
	m.revision = r.Revision
	return m.encoded, nil
}

func (c *Changes) of(policyID string) *change {
	c.mu.Lock()
	defer c.mu.Unlock()
	m := c.made[policyID]
	if m == nil {
		if c.made == nil {
			c.made = map[string]*change{}
		}
		// A policy that was deleted is rendered no more, and its agents are gone.
		for id := range c.made {
			if c.Feed.Newest(id) == 0 {
				delete(c.made, id)
			}
		}
		m = &change{}
		c.made[policyID] = m
	}
	return m
}
