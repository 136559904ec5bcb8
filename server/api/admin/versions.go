package admin

import (
	"context"

	"github.com/muster-fleet/muster/server/api/adminapi"
	"github.com/muster-fleet/muster/server/fleet"
)

// addVersions adds to rendered agents and their components the desired version and the
// rollout. The number of reads does not depend on the number of agents.
func (h *Handlers) addVersions(ctx context.Context, agents []fleet.Agent, out []adminapi.Agent) error {
	of, err := h.inRollouts(ctx, "", agents)
	if err != nil {
		return err
	}
	for i := range agents {
		a := &agents[i]
		version := of[a.ID].desired
		if version == "" && a.Upgrading() {
			version = a.UpgradeTo
		}
		if version == "" {
			version = a.Version
		}
		out[i].DesiredVersion, out[i].LastHealthyVersion = ptr(version), ptr(a.LastHealthyVersion)
		out[i].Rollout = of[a.ID].rollout
	}
	names, err := h.Locks.Components(ctx)
	if err != nil {
		return err
	}
	for _, name := range names {
		if of, err = h.inRollouts(ctx, name, agents); err != nil {
			return err
		}
		for i := range agents {
			in, ok := of[agents[i].ID]
			if !ok {
				continue
			}
			for k := range out[i].Components {
				c := &out[i].Components[k]
				if c.Name == nil || *c.Name != name {
					continue
				}
				c.Rollout = in.rollout
				if in.desired != "" {
					c.DesiredVersion = ptr(in.desired)
				}
			}
		}
	}
	return nil
}

// inRollout is the active rollout of an agent, or of its component.
type inRollout struct {
	rollout *adminapi.RolloutRef
	desired string // empty if its target has ended
}

// inRollouts returns the active rollout of the agents, or of their component, by agent.
func (h *Handlers) inRollouts(ctx context.Context, component string, agents []fleet.Agent) (map[string]inRollout, error) {
	holders, err := h.Locks.OfAgents(ctx, component, agents)
	if err != nil {
		return nil, err
	}
	of := map[string]inRollout{}
	members := map[string][]string{} // rollout to its agents
	for _, a := range agents {
		if r, ok := holders[a.ID]; ok {
			members[r.ID] = append(members[r.ID], a.ID)
			of[a.ID] = inRollout{rollout: &adminapi.RolloutRef{ID: r.ID, Name: r.Name}}
		}
	}
	for rolloutID, ids := range members {
		targets, err := h.Rollouts.TargetsOf(ctx, rolloutID, ids...)
		if err != nil {
			return nil, err
		}
		for _, t := range targets {
			if in := of[t.AgentID]; !t.State.Ended() {
				in.desired = t.To
				of[t.AgentID] = in
			}
		}
	}
	return of, nil
}
