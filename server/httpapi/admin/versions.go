package admin

import (
	"context"

	"github.com/muster-fleet/muster/server/adminapi"
	"github.com/muster-fleet/muster/server/fleet"
)

// addVersions adds to rendered agents their desired version and their rollout. The number
// of reads does not depend on the number of agents.
func (h *Handlers) addVersions(ctx context.Context, agents []fleet.Agent, out []adminapi.Agent) error {
	holders, err := h.Locks.Holders(ctx, "", agents)
	if err != nil {
		return err
	}
	of := map[string][]string{} // rollout to its agents
	for _, a := range agents {
		if r, ok := holders[a.ID]; ok {
			of[r.ID] = append(of[r.ID], a.ID)
		}
	}
	desired := map[string]string{}
	for rolloutID, ids := range of {
		targets, err := h.Store.Targets().GetMany(ctx, rolloutID, ids)
		if err != nil {
			return err
		}
		for _, t := range targets {
			if !t.State.Ended() {
				desired[t.AgentID] = t.To
			}
		}
	}
	for i := range agents {
		a := &agents[i]
		version := desired[a.ID]
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
