package incident

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/muster-fleet/muster/packaging/pkg/manifest"
	"github.com/muster-fleet/muster/server/fleet"
	"github.com/muster-fleet/muster/server/kql"
	"github.com/muster-fleet/muster/server/store"
	"github.com/muster-fleet/muster/server/wire/agentapi"
)

const (
	// rollbacksMin is how many hosts rolled back from one version open an incident: one
	// may be the host's own fault.
	rollbacksMin = 2
	// rollbacksShown is how many of them an incident names.
	rollbacksShown = 10
	// readAtOnce bounds the agents that are read when the server starts, and for a version of
	// a component: a query finds more of them than were rolled back from it.
	readAtOnce = 1000
	// watchedVersions bounds the versions of which recent rollbacks are remembered. The
	// store has the others a second later.
	watchedVersions = 100
	// A check that the store refuses is tried again; the next rollback repeats it too.
	rollbackTries = 3
	rollbackPause = time.Second
)

// release is a version of a component, or of the agents if none is named.
type release struct{ component, version string }

func (r release) String() string { return strings.TrimSpace(r.component + " " + r.version) }

// incident returns the incident of the release, without a text.
func (r release) incident() fleet.Incident {
	return fleet.Incident{Category: fleet.IncidentVersionRolledBack, Component: r.component, Version: r.version}
}

// Run opens an incident for each version of the agents or of a component from which several
// hosts were rolled back, for each component whose upgrade failed and could not be undone, and for
// each agent whose identity several hosts have, until ctx ends. It follows the events of all servers, which may all run it.
func (s *Service) Run(ctx context.Context) {
	recent := map[release]map[string]bool{} // agents that events named
	begun := func(int64) {
		s.attempt(ctx, "hosts rolled back before the start", func() error { return s.rolledBackBefore(ctx) })
		s.attempt(ctx, "components broken before the start", func() error { return s.brokenBefore(ctx) })
	}
	s.Events.Follow(ctx, begun, func(events []fleet.Event) {
		named := map[release]bool{}
		for _, e := range events {
			if e.Type == fleet.EventAgentShared || e.Type == fleet.EventAgentUnenrolled {
				s.attempt(ctx, "the identity of agent "+e.Subject, func() error { return s.sharedIdentity(ctx, e.Subject) })
			}
			if b, ok := brokenBy(e); ok {
				s.attempt(ctx, "component "+b.component+" of agent "+b.agentID, func() error { return s.openBroken(ctx, b) })
			}
			r, ok := rolledBackFrom(e)
			if !ok {
				continue
			}
			if recent[r] == nil {
				if len(recent) >= watchedVersions {
					clear(recent)
				}
				recent[r] = map[string]bool{}
			}
			if len(recent[r]) < rollbacksShown {
				recent[r][e.Subject] = true
			}
			named[r] = true
		}
		for r := range named {
			s.attempt(ctx, "hosts rolled back from "+r.String(), func() error { return s.rolledBack(ctx, r, recent[r]) })
		}
	})
}

func (s *Service) attempt(ctx context.Context, what string, do func() error) {
	for try := 1; ctx.Err() == nil; try++ {
		err := do()
		if err == nil {
			return
		}
		if try == rollbackTries {
			s.Log.Warn("incidents of rollbacks not checked", "what", what, "error", err)
			return
		}
		select {
		case <-ctx.Done():
		case <-time.After(rollbackPause):
		}
	}
}

// rolledBackFrom returns the release from which the event says a host was rolled back; ok
// is false if it says no such thing, or if the rollback says nothing of the release.
func rolledBackFrom(e fleet.Event) (r release, ok bool) {
	if e.Type != fleet.EventAgentUpgrade && e.Type != fleet.EventAgentComponent || !bytes.Contains(e.Data, []byte(fleet.UpgradeRolledBack)) {
		return r, false // most events
	}
	var d struct {
		Component string                   `json:"component"`
		Status    fleet.UpgradeStatus      `json:"upgrade_status"`
		Target    string                   `json:"target_version"`
		Details   *agentapi.UpgradeDetails `json:"upgrade_details"`
	}
	if json.Unmarshal(e.Data, &d) != nil || d.Status != fleet.UpgradeRolledBack || d.Details == nil || !agentapi.IsFault(d.Details.Metadata.ReasonCode) {
		return r, false
	}
	_, err := manifest.ParseVersion(d.Target)
	return release{d.Component, d.Target}, err == nil
}

// rolledBack opens the incident of a release if enough hosts were rolled back from it.
// recent are agents whose documents the store's search may not find yet.
func (s *Service) rolledBack(ctx context.Context, r release, recent map[string]bool) error {
	// Nearly all checks end here: of a bad version, thousands of hosts may be rolled back.
	i := r.incident()
	if old, err := s.Store.Get(ctx, idOf(&i)); err == nil && old.State != fleet.IncidentResolved {
		return nil
	}
	hosts, err := s.findRolledBack(ctx, r)
	if err != nil {
		return err
	}
	var ids []string
	for id := range recent {
		if !slices.ContainsFunc(hosts, func(a fleet.Agent) bool { return a.ID == id }) {
			ids = append(ids, id)
		}
	}
	slices.Sort(ids)
	more, err := s.Agents.GetMany(ctx, ids)
	if err != nil {
		return err
	}
	return s.openRolledBack(ctx, r, append(hosts, more...))
}

// findRolledBack returns some of the agents that may be as their watchers left them after they had put
// the release back.
func (s *Service) findRolledBack(ctx context.Context, r release) ([]fleet.Agent, error) {
	query, limit := agentsRolledBack+fmt.Sprintf(" and upgrade_details.target_version: %q", r.version), rollbacksShown
	if r.component != "" {
		query, limit = componentsRolledBack+fmt.Sprintf(" and components.name: %q and components.upgrade_details.target_version: %q", r.component, r.version), readAtOnce
	}
	return s.find(ctx, query, limit)
}

// rolledBackBefore opens the incidents that a server would have opened that stopped
// between a rollback and its check.
func (s *Service) rolledBackBefore(ctx context.Context) error {
	hosts := map[release][]fleet.Agent{}
	found, err := s.find(ctx, agentsRolledBack, readAtOnce)
	if err != nil {
		return err
	}
	for _, a := range found {
		r := release{"", a.UpgradeTo}
		hosts[r] = append(hosts[r], a)
	}
	if found, err = s.find(ctx, componentsRolledBack, readAtOnce); err != nil {
		return err
	}
	for _, a := range found {
		for name, u := range a.ComponentUpgrades {
			r := release{name, u.UpgradeTo}
			hosts[r] = append(hosts[r], a)
		}
	}
	for r, of := range hosts {
		if err := s.openRolledBack(ctx, r, of); err != nil {
			return err
		}
	}
	return nil
}

// openRolledBack opens the incident of a release unless it is open, or was resolved after
// the last of the rollbacks. It leaves out the hosts that were not rolled back from it.
func (s *Service) openRolledBack(ctx context.Context, r release, hosts []fleet.Agent) error {
	var names []string
	var reason string
	var last time.Time
	for i := range hosts {
		of := hosts[i].Of(r.component)
		f, ok := of.FailedBefore(r.version)
		if !ok || of.UpgradeStatus != fleet.UpgradeRolledBack || of.UpgradeTo != r.version {
			continue // it has gone on since
		}
		names = append(names, of.Agent.Hostname())
		reason = cmp.Or(reason, f.Reason)
		if f.At.After(last) {
			last = f.At
		}
	}
	if len(names) < rollbacksMin {
		return nil
	}
	i := r.incident()
	switch old, err := s.Store.Get(ctx, idOf(&i)); {
	case err != nil && fleet.KindOf(err) != fleet.NotFound:
		return err
	case err == nil && (old.State != fleet.IncidentResolved || old.Resolved != nil && !last.After(old.Resolved.At)):
		return nil
	}
	slices.Sort(names)
	who := "watchers"
	if r.component != "" {
		who = "agents"
	}
	i.Text = fmt.Sprintf("Their %s put the previous version back on %s: %s. Bring it to no further host before the cause is known.",
		who, strings.Join(names[:min(len(names), rollbacksShown)], ", "), strings.TrimSuffix(cmp.Or(reason, "no reason is known"), "."))
	return s.Open(ctx, i)
}

// The queries of the agents that were rolled back, and of those of which a component may have
// been: two conditions on components may match two of them.
var (
	agentsRolledBack = "upgrade_details.state: " + string(agentapi.UpgradeRollback) +
		" and not upgrade_details.metadata.reason_code: (" + strings.Join(agentapi.NoFaults(), " or ") + ")"
	componentsRolledBack = "components.upgrade_details.state: " + string(agentapi.UpgradeFailed) +
		" and components.upgrade_details.metadata.failed_state: (" + string(agentapi.UpgradeRestarting) + " or " + string(agentapi.UpgradeWatching) + ")"
)

// find returns some of the agents that a query selects.
func (s *Service) find(ctx context.Context, query string, limit int) ([]fleet.Agent, error) {
	filter, err := kql.Compile(query, fleet.AgentSchema(nil), s.Now.UTC())
	if err != nil {
		return nil, err
	}
	found, _, err := s.Agents.List(ctx, store.AgentQuery{AgentFilter: store.AgentFilter{ActiveOnly: true, Query: filter}, Limit: limit})
	return found, err
}
