package admin

import (
	"context"

	"github.com/muster-fleet/muster/server/adminapi"
	"github.com/muster-fleet/muster/server/fleet"
)

// addVersions says of rendered agents what they shall run, and which rollout has
// them: a few reads for a page, however many agents it has.
func (h *Handlers) addVersions(ctx context.Context, agents []fleet.Agent, out []adminapi.Agent) error {
	holders, err := h.Rollouts.Lock(ctx, agents)
	if err != nil {
		return err
	}
	of := map[string][]string{} // rollout to its agents
	for _, a := range agents {
		if r, ok := holders[a.ID]; ok {
			of[r.ID] = append(of[r.ID], a.ID)
		}
	}
	wanted := map[string]string{}
	for rolloutID, ids := range of {
		targets, err := h.Store.Targets().GetMany(ctx, rolloutID, ids)
		if err != nil {
			return err
		}
		for _, t := range targets {
			if !t.State.Over() {
				wanted[t.AgentID] = t.To
			}
		}
	}
	for i := range agents {
		a := &agents[i]
		version := wanted[a.ID]
		if version == "" && a.Upgrading() {
			version = a.UpgradeTarget
		}
		if version == "" {
			version = a.Version
		}
		out[i].DesiredVersion, out[i].LastHealthyVersion = ptr(version), ptr(a.LastHealthyVersion)
		if r, ok := holders[a.ID]; ok {
			out[i].Rollout = &adminapi.RolloutRef{Id: r.ID, Name: r.Name}
		}
	}
	return nil
}
