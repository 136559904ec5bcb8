package incident

import (
	"context"

	"github.com/muster-fleet/muster/server/fleet"
)

// sharedIdentity opens the incident of an agent whose identity several hosts have, and resolves it
// once they no longer do.
func (s *Service) sharedIdentity(ctx context.Context, agentID string) error {
	a, err := s.Agents.Get(ctx, agentID)
	if err != nil && fleet.KindOf(err) != fleet.NotFound {
		return err
	}
	if text := a.SharedText(); text != "" && a.Active {
		return s.Open(ctx, fleet.Incident{
			Category: fleet.IncidentSharedIdentity, AgentID: agentID, Hostname: a.Hostname(),
			Text: fleet.Sentence(text) + " It gets no orders meanwhile, since nobody knows which of them would follow. " + fleet.SharedRemedy,
		})
	}
	id := ID(fleet.IncidentSharedIdentity, "", agentID)
	switch i, err := s.Store.Get(ctx, id); {
	case err != nil && fleet.KindOf(err) == fleet.NotFound:
		return nil
	case err != nil:
		return err
	case i.State == fleet.IncidentResolved:
		return nil
	}
	_, err = s.Resolve(ctx, id, System, "only one host checks in as the agent now, or it was unenrolled")
	return err
}
