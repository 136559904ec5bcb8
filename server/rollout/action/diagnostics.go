package action

import (
	"context"

	"github.com/muster-fleet/muster/server/fleet"
	"github.com/muster-fleet/muster/server/store/event"
	"github.com/muster-fleet/muster/server/wire/agentapi"
)

// DiagnosticsOrder asks agents for their diagnostics.
type DiagnosticsOrder struct {
	AgentIDs []string
	Selected bool // as in UpgradeOrder
	Single   bool // as in UpgradeOrder
	agentapi.RequestDiagnosticsData
	// Actor is the name of the admin key.
	Actor string
}

// RequestDiagnostics creates one REQUEST_DIAGNOSTICS action, which expires earlier than
// others. Agents that cannot answer it become error results of it, unless the order is
// Single.
func (s *Service) RequestDiagnostics(ctx context.Context, o DiagnosticsOrder) (fleet.Action, error) {
	until := s.Now.UTC().Add(fleet.DiagnosticsExpiration)
	return s.Create(ctx, Order{
		Type: agentapi.ActionRequestDiagnostics, Data: event.Data(o.RequestDiagnosticsData), Expiration: &until,
		AgentIDs: o.AgentIDs, Selected: o.Selected, Single: o.Single, Actor: o.Actor,
	})
}
