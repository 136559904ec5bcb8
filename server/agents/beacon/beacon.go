// Package beacon handles the reports of hosts' watchers while a new version is watched.
// Watchers have a credential of their own, so that their reports arrive even if the
// agent is broken. Package fleet has the rules.
package beacon

import (
	"context"

	"github.com/muster-fleet/muster/packaging/host/terminal"
	"github.com/muster-fleet/muster/server/clock"
	"github.com/muster-fleet/muster/server/fleet"
	"github.com/muster-fleet/muster/server/store"
	"github.com/muster-fleet/muster/server/store/event"
	"github.com/muster-fleet/muster/server/wire/agentapi"
)

// Service handles beacons.
type Service struct {
	Agents store.Agents
	Events *event.Stream
	Now    clock.Clock
}

// Handle applies a beacon of an authenticated watcher. agent is the document read
// during authentication. A valid beacon that arrives late is no error, because its
// sender could do nothing about it.
func (s *Service) Handle(ctx context.Context, agent fleet.Agent, b agentapi.Beacon) error {
	if err := fleet.CheckBeacon(b); err != nil {
		return err
	}
	b = escaped(b)
	now := s.Now.UTC()
	events, err := store.ApplyReport(ctx, s.Agents, agent, now, func(a *fleet.Agent) store.Report {
		change := a.ObserveBeacon(b, now)
		if !change.Write {
			return store.Report{} // most beacons end here, without a write
		}
		r := store.Report{Agent: a}
		if change.Phase {
			r.Events = append(r.Events, a.WatchEvent())
		}
		if change.Upgrade {
			r.Results = a.UpgradeResults("", now)
			r.Events = append(r.Events, a.UpgradeEvent(""))
		}
		return r
	})
	if events {
		s.Events.Wake()
	}
	return err
}

// escaped returns a beacon without characters that act on the terminal of whoever reads it.
func escaped(b agentapi.Beacon) agentapi.Beacon {
	b.ActionID, b.Waiting = terminal.EscapeLine(b.ActionID), terminal.Escape(b.Waiting)
	b.Agent.State, b.Agent.Version = terminal.EscapeLine(b.Agent.State), terminal.EscapeLine(b.Agent.Version)
	if b.Reason != nil {
		b.Reason = &agentapi.BeaconCause{Code: terminal.EscapeLine(b.Reason.Code), Text: terminal.Escape(b.Reason.Text)}
	}
	return b
}
