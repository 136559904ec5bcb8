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

	"github.com/muster-fleet/muster/packaging/manifest"
	"github.com/muster-fleet/muster/server/agentapi"
	"github.com/muster-fleet/muster/server/fleet"
	"github.com/muster-fleet/muster/server/kql"
	"github.com/muster-fleet/muster/server/store"
)

const (
	// rollbacksMin is how many hosts rolled back from one version open an incident: one
	// may be the host's own fault.
	rollbacksMin = 2
	// rollbacksShown is how many of them an incident names.
	rollbacksShown = 10
	// rollbacksAtStart bounds the agents that are read when the server starts.
	rollbacksAtStart = 1000
	// watchedVersions bounds the versions of which recent rollbacks are remembered. The
	// store has the others a second later.
	watchedVersions = 100
	// A check that the store refuses is tried again; the next rollback repeats it too.
	rollbackTries = 3
	rollbackPause = time.Second
)

// Run opens an incident for each version from which several hosts were rolled back, and for
// each component whose upgrade failed and could not be undone, until ctx ends. It follows the events of all servers, which may all run it.
func (s *Service) Run(ctx context.Context) {
	recent := map[string]map[string]bool{} // agents that events named, by version
	begun := func(int64) {
		s.attempt(ctx, "hosts rolled back before the start", func() error { return s.rolledBackBefore(ctx) })
	}
	s.Events.Follow(ctx, begun, func(events []fleet.Event) {
		versions := map[string]bool{}
		for _, e := range events {
			if b, ok := brokenBy(e); ok {
				s.attempt(ctx, "component "+b.component+" of agent "+b.agentID, func() error { return s.openBroken(ctx, b) })
			}
			version, ok := rolledBackFrom(e)
			if !ok {
				continue
			}
			if recent[version] == nil {
				if len(recent) >= watchedVersions {
					clear(recent)
				}
				recent[version] = map[string]bool{}
			}
			if len(recent[version]) < rollbacksShown {
				recent[version][e.Subject] = true
			}
			versions[version] = true
		}
		for version := range versions {
			s.attempt(ctx, "hosts rolled back from "+version, func() error { return s.rolledBack(ctx, version, recent[version]) })
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

// rolledBackFrom returns the version from which the event says a host was rolled back; ok
// is false if it says no such thing, or if somebody asked for the rollback.
func rolledBackFrom(e fleet.Event) (version string, ok bool) {
	if e.Type != fleet.EventAgentUpgrade || !bytes.Contains(e.Data, []byte(fleet.UpgradeRolledBack)) {
		return "", false // most events
	}
	var d struct {
		Status  fleet.UpgradeStatus      `json:"upgrade_status"`
		Target  string                   `json:"target_version"`
		Details *agentapi.UpgradeDetails `json:"upgrade_details"`
	}
	if json.Unmarshal(e.Data, &d) != nil || d.Status != fleet.UpgradeRolledBack || d.Details == nil || d.Details.Metadata.ReasonCode == agentapi.ReasonManual {
		return "", false
	}
	_, err := manifest.ParseVersion(d.Target)
	return d.Target, err == nil
}

// rolledBack opens the incident of a version if enough hosts were rolled back from it.
// recent are agents whose documents the store's search may not find yet.
func (s *Service) rolledBack(ctx context.Context, version string, recent map[string]bool) error {
	// Nearly all checks end here: of a bad version, thousands of hosts may be rolled back.
	if old, err := s.Store.Get(ctx, rolledBackID(version)); err == nil && old.State != fleet.IncidentResolved {
		return nil
	}
	hosts, err := s.findRolledBack(ctx, fmt.Sprintf(" and upgrade_details.target_version: %q", version), rollbacksShown)
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
	return s.openRolledBack(ctx, version, append(hosts, more...))
}

// rolledBackBefore opens the incidents that a server would have opened that stopped
// between a rollback and its check.
func (s *Service) rolledBackBefore(ctx context.Context) error {
	found, err := s.findRolledBack(ctx, "", rollbacksAtStart)
	if err != nil {
		return err
	}
	hosts := map[string][]fleet.Agent{}
	for _, a := range found {
		hosts[a.UpgradeTarget] = append(hosts[a.UpgradeTarget], a)
	}
	for version, of := range hosts {
		if err := s.openRolledBack(ctx, version, of); err != nil {
			return err
		}
	}
	return nil
}

func rolledBackID(version string) string {
	return idOf(&fleet.Incident{Category: fleet.IncidentVersionRolledBack, Version: version})
}

// openRolledBack opens the incident of a version unless it is open, or was resolved after
// the last of the rollbacks.
func (s *Service) openRolledBack(ctx context.Context, version string, hosts []fleet.Agent) error {
	var names []string
	var reason string
	var last time.Time
	for i := range hosts {
		a := &hosts[i]
		f, ok := a.FailedBefore(version)
		if !ok || a.UpgradeStatus != fleet.UpgradeRolledBack || a.UpgradeTarget != version {
			continue // it has gone on since
		}
		names = append(names, a.Hostname())
		reason = cmp.Or(reason, f.Reason)
		if f.At.After(last) {
			last = f.At
		}
	}
	if len(names) < rollbacksMin {
		return nil
	}
	switch old, err := s.Store.Get(ctx, rolledBackID(version)); {
	case err != nil && fleet.KindOf(err) != fleet.NotFound:
		return err
	case err == nil && (old.State != fleet.IncidentResolved || old.Resolved != nil && !last.After(old.Resolved.At)):
		return nil
	}
	slices.Sort(names)
	return s.Open(ctx, fleet.Incident{
		Category: fleet.IncidentVersionRolledBack, Version: version,
		Text: fmt.Sprintf("Their watchers put the previous version back on %s: %s. Bring it to no further host before the cause is known.",
			strings.Join(names[:min(len(names), rollbacksShown)], ", "), strings.TrimSuffix(cmp.Or(reason, "no reason is known"), ".")),
	})
}

// findRolledBack returns some of the agents that their watchers have rolled back.
func (s *Service) findRolledBack(ctx context.Context, and string, limit int) ([]fleet.Agent, error) {
	query := fmt.Sprintf("upgrade_details.state: %s and not upgrade_details.metadata.reason_code: %s%s", agentapi.UpgradeRollback, agentapi.ReasonManual, and)
	filter, err := kql.Compile(query, fleet.AgentSchema(nil), s.Now.UTC())
	if err != nil {
		return nil, err
	}
	found, _, err := s.Agents.List(ctx, store.AgentQuery{AgentFilter: store.AgentFilter{ActiveOnly: true, Query: filter}, Limit: limit})
	return found, err
}
