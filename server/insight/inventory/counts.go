package inventory

import (
	"context"
	"time"

	"github.com/muster-fleet/muster/server/fleet"
	"github.com/muster-fleet/muster/server/kql"
	"github.com/muster-fleet/muster/server/store"
	"github.com/muster-fleet/muster/server/wire/agentapi"
)

// Counts counts the agents of a selection without With by their status. The counts are some seconds
// old at most, and shared: do not change them.
func (s *Service) Counts(ctx context.Context, sel Selection) (map[fleet.Status]int, error) {
	found, err := s.Find(ctx, sel)
	if err != nil {
		return nil, err
	}
	return s.countsOf(ctx, found, sel.key(found.Timeouts))
}

func (s *Service) countsOf(ctx context.Context, found Found, key string) (map[fleet.Status]int, error) {
	return s.counts.Get(ctx, key, found.Now, func(ctx context.Context, now time.Time) (map[fleet.Status]int, error) {
		return store.CountStatuses(ctx, s.Store.Agents(), found.Filter, found.Timeouts, now)
	})
}

// Tally has the counts of agents by facet: the classes of health, then those of progress, and the
// values of FieldFacets.
type Tally = store.Tally

// FieldFacet is a facet that is a field of agents. Queries have its name as a short name of the
// field.
type FieldFacet struct {
	Name  string
	Field store.TallyField
}

// FieldFacets are the facets that are fields. health and progress are derived.
var FieldFacets = []FieldFacet{
	{"version", store.TallyField{Field: fleet.FieldVersion}},
	{"policy", store.TallyField{Field: fleet.FieldPolicyID}},
	{"tag", store.TallyField{Field: fleet.FieldTags}},
	{"os", store.TallyField{Field: fleet.FieldOS}},
	{"site", store.TallyField{Field: fleet.FieldTags, Prefix: fleet.SiteLabel + "=", ByClass: true}},
}

// Tally counts the agents of a selection by all facets, in one pass: browsers ask for all of them.
// Counts that are older than an event would stay in a browser, which reads them again after the
// event and not once more.
func (s *Service) Tally(ctx context.Context, sel Selection) (Tally, error) {
	found, err := s.Find(ctx, sel)
	if err != nil {
		return Tally{}, err
	}
	return s.tallies.Get(ctx, sel.key(found.Timeouts), found.Now, func(ctx context.Context, now time.Time) (Tally, error) {
		q := store.TallyQuery{Classes: [][]kql.Filter{fleet.HealthClasses(found.Timeouts, now).Filters, fleet.ProgressClasses(now).Filters}}
		for _, f := range FieldFacets {
			q.Fields = append(q.Fields, f.Field)
		}
		return s.Store.Agents().Tally(ctx, found.Filter, q)
	})
}

// replacing are the phases of an upgrade from which an agent that stays silent may need help.
var replacing = []agentapi.UpgradeState{agentapi.UpgradeReplacing, agentapi.UpgradeRestarting, agentapi.UpgradeWatching}

// Silent counts the agents that are offline since their upgrade replaced the version.
func (s *Service) Silent(ctx context.Context, now time.Time) (int, error) {
	var in kql.AnyOf
	for _, state := range replacing {
		in = append(in, kql.Equals{Field: fleet.FieldUpgradeState, Value: string(state)})
	}
	return s.withHealth(ctx, in, fleet.HealthOffline, now)
}

// Unwritable counts the agents that are online and whose host cannot write to its disk.
func (s *Service) Unwritable(ctx context.Context, now time.Time) (int, error) {
	query, err := kql.Compile(fleet.UnwritableHosts, fleet.AgentSchema(nil), now)
	if err != nil {
		return 0, err
	}
	return s.withHealth(ctx, query, fleet.HealthDegraded, now)
}

func (s *Service) withHealth(ctx context.Context, query kql.Filter, health fleet.Health, now time.Time) (int, error) {
	timeouts, err := s.Timeouts(ctx)
	if err != nil {
		return 0, err
	}
	counts, err := store.CountHealth(ctx, s.Store.Agents(), store.AgentFilter{ActiveOnly: true, Query: query}, timeouts, now)
	return counts[health], err
}

// maxStalledRead bounds the agents that are searched for upgrades that do not move, oldest upgrades
// first: some 100 ms of a store.
const maxStalledRead = 1_000

// Stalled counts the agents that are online, and whose upgrade, or that of a component, does not
// move.
func (s *Service) Stalled(ctx context.Context, now time.Time) (int, error) {
	agents, err := s.Store.Agents().Upgrading(ctx, store.UpgradingSince{}, maxStalledRead)
	if err != nil {
		return 0, err
	}
	components, _, err := s.Store.Agents().List(ctx, store.AgentQuery{
		AgentFilter: store.AgentFilter{ActiveOnly: true, Query: kql.Exists{Field: fleet.FieldComponentsSince}},
		Sort:        store.AgentSort(fleet.FieldComponentsSince.Name), Limit: maxStalledRead,
	})
	if err != nil {
		return 0, err
	}
	stalled := map[string]bool{}
	for _, a := range agents {
		of := a.Of("")
		if _, is := of.Stalled(now); is {
			stalled[a.ID] = true
		}
	}
	for _, a := range components {
		for _, action := range a.ComponentActions {
			of := a.Of(a.ComponentOf(action))
			if _, is := of.Stalled(now); is {
				stalled[a.ID] = true
			}
		}
	}
	return len(stalled), nil
}
