package incident

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"

	"github.com/muster-fleet/muster/server/fleet"
	"github.com/muster-fleet/muster/server/wire/agentapi"
)

// brokenComponent is a component whose upgrade failed and could not be undone. Its host does
// nothing more with it.
type brokenComponent struct {
	agentID, component string
	details            *agentapi.UpgradeDetails
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
	if json.Unmarshal(e.Data, &d) != nil {
		return b, false
	}
	return brokenComponent{e.Subject, d.Component, d.Details}, isBroken(d.Details)
}

func isBroken(d *agentapi.UpgradeDetails) bool {
	return d != nil && d.Metadata.ReasonCode == agentapi.FailedRollback && fleet.RolloutOf(d.ActionID) == ""
}

// openBroken opens the incident of a broken component.
func (s *Service) openBroken(ctx context.Context, b brokenComponent) error {
	agents, err := s.Agents.GetMany(ctx, []string{b.agentID})
	if err != nil || len(agents) == 0 {
		return err
	}
	return s.Open(ctx, b.incident(&agents[0]))
}

func (b brokenComponent) incident(a *fleet.Agent) fleet.Incident {
	return fleet.Incident{
		Category: fleet.IncidentUpgradeFailed, AgentID: a.ID, Hostname: a.Hostname(), Component: b.component, Text: b.details.Metadata.ErrorMsg,
		Title: fmt.Sprintf("%s on %s failed to upgrade to %s, and could not go back", b.component, a.Hostname(), b.details.TargetVersion),
	}
}

// brokenBefore opens the incidents that a server would have opened that stopped between a
// failure and its event. One that was resolved stays so, although the component stays broken
// until its next upgrade.
func (s *Service) brokenBefore(ctx context.Context) error {
	found, err := s.find(ctx, "components.upgrade_details.metadata.reason_code: "+agentapi.FailedRollback, readAtOnce)
	if err != nil {
		return err
	}
	for i := range found {
		for _, c := range found[i].RunsComponents() {
			if !isBroken(c.UpgradeDetails) {
				continue
			}
			next := brokenComponent{found[i].ID, c.Name, c.UpgradeDetails}.incident(&found[i])
			old, err := s.Store.Get(ctx, idOf(&next))
			switch {
			case err != nil && fleet.KindOf(err) != fleet.NotFound:
				return err
			case err == nil && old.Title == next.Title:
				continue
			}
			if err := s.Open(ctx, next); err != nil {
				return err
			}
		}
	}
	return nil
}
