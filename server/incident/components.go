package incident

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"

	"github.com/muster-fleet/muster/server/agentapi"
	"github.com/muster-fleet/muster/server/fleet"
)

// brokenComponent is a component whose upgrade failed and could not be undone. Its host does
// nothing more with it.
type brokenComponent struct {
	agentID, component, version, text string
}

// brokenBy returns the component that an event says is broken. The reconciler opens the
// incidents of rollouts, which know the recovery plan.
func brokenBy(e fleet.Event) (b brokenComponent, ok bool) {
	if e.Type != fleet.EventAgentComponent || !bytes.Contains(e.Data, []byte(agentapi.FailedRollback)) {
		return b, false // most events
	}
	var d struct {
		Component string                   `json:"component"`
		Details   *agentapi.UpgradeDetails `json:"upgrade_details"`
	}
	if json.Unmarshal(e.Data, &d) != nil || d.Details == nil || d.Details.Metadata.ReasonCode != agentapi.FailedRollback || fleet.RolloutOf(d.Details.ActionID) != "" {
		return b, false
	}
	return brokenComponent{e.Subject, d.Component, d.Details.TargetVersion, d.Details.Metadata.ErrorMsg}, true
}

// openBroken opens the incident of a broken component.
func (s *Service) openBroken(ctx context.Context, b brokenComponent) error {
	agents, err := s.Agents.GetMany(ctx, []string{b.agentID})
	if err != nil || len(agents) == 0 {
		return err
	}
	host := agents[0].Hostname()
	return s.Open(ctx, fleet.Incident{
		Category: fleet.IncidentUpgradeFailed, AgentID: b.agentID, Hostname: host, Component: b.component, Text: b.text,
		Title: fmt.Sprintf("%s on %s failed to upgrade to %s, and could not go back", b.component, host, b.version),
	})
}
