package action

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/muster-fleet/muster/server/agentapi"
	"github.com/muster-fleet/muster/server/fleet"
	"github.com/muster-fleet/muster/server/kql"
	"github.com/muster-fleet/muster/server/store"
)

const (
	// watchMax is longer than any host watches a new version, so that only the agents
	// upgraded since then are searched.
	watchMax = 24 * time.Hour
	// countedAtOnce bounds the actions that are counted in one pass over the agents.
	countedAtOnce = 6
)

// countUnended sets Unended of the upgrades among the statuses.
func (s *Service) countUnended(ctx context.Context, statuses []Status, now time.Time) error {
	var open, components []int
	for i := range statuses {
		switch st := &statuses[i]; {
		case st.Type != agentapi.ActionUpgrade || st.Counts.Acked == 0 || now.Sub(st.Counts.Last) >= watchMax:
		case st.Component() != "":
			components = append(components, i)
		default:
			open = append(open, i)
		}
	}
	compile := func(format string, args ...any) (kql.Filter, error) {
		return kql.Compile(fmt.Sprintf(format, args...), fleet.AgentSchema(nil), now)
	}
	recent, err := compile("upgraded_at >= %q or (upgrade_started_at: * and not upgraded_at: *)", now.Add(-watchMax).Format(time.RFC3339))
	if err != nil {
		return err
	}
	for part := range slices.Chunk(open, countedAtOnce) {
		var queries []kql.Filter
		for _, i := range part {
			reached, err := compile("upgrade_details.action_id: %q and not upgrade_started_at: * and not upgrade_details.state: (%s or %s)",
				statuses[i].ID, agentapi.UpgradeFailed, agentapi.UpgradeRollback)
			if err != nil {
				return err
			}
			// Not by upgrade_details, which some agents never report.
			underway, err := compile("upgrade_action_id: %q and upgrade_started_at: *", statuses[i].ID)
			if err != nil {
				return err
			}
			queries = append(queries, reached, underway)
		}
		counts, err := s.Store.Agents().CountFirst(ctx, store.AgentFilter{Query: recent}, queries)
		if err != nil {
			return err
		}
		for k, i := range part {
			statuses[i].Unended = fleet.Unended{Reached: counts[2*k], Underway: counts[2*k+1]}
		}
	}
	return s.countComponents(ctx, statuses, components, now)
}

// countComponents sets Unended of the upgrades of components at these indices.
func (s *Service) countComponents(ctx context.Context, statuses []Status, at []int, now time.Time) error {
	for _, i := range at {
		// One by one: an agent may be in several, since its components are upgraded at the
		// same time. The first condition spares the other agents' documents.
		query, err := kql.Compile(fmt.Sprintf("component_upgrade_started_at: * and component_actions: %q", statuses[i].ID), fleet.AgentSchema(nil), now)
		if err != nil {
			return err
		}
		counts, err := s.Store.Agents().CountFirst(ctx, store.AgentFilter{Query: query}, nil)
		if err != nil {
			return err
		}
		statuses[i].Unended = fleet.Unended{Underway: counts[0]}
	}
	return nil
}
