// Package beacon takes in what the watchers of hosts tell while they judge a new
// version, with a credential of their own: it is heard also when the agent is
// what is broken. The rules are fleet's; here they meet the store and the stream.
package beacon

import (
	"context"
	"encoding/json"
	"time"

	"github.com/muster-fleet/muster/server/agentapi"
	"github.com/muster-fleet/muster/server/clock"
	"github.com/muster-fleet/muster/server/event"
	"github.com/muster-fleet/muster/server/fleet"
	"github.com/muster-fleet/muster/server/outage"
	"github.com/muster-fleet/muster/server/store"
)

// Service takes in beacons.
type Service struct {
	Agents store.Agents
	Events *event.Stream
	Now    clock.Clock
	// Outage keeps beacons while the store is away; nil keeps nothing.
	Outage *outage.Keeper
}

// Take takes in a beacon of an authenticated watcher. agent is as the
// authentication read it. A sound beacon that comes too late is no error: its
// sender could do nothing about it.
func (s *Service) Take(ctx context.Context, agent fleet.Agent, b agentapi.Beacon) error {
	if err := fleet.CheckBeacon(b); err != nil {
		return err
	}
	now := s.Now.UTC()
	_, err := s.Outage.Take(ctx, outage.Word{Agent: agent, Kind: outage.Beacon, At: now, Body: b, Gist: gist(b)}, func(ctx context.Context) error {
		return s.write(ctx, agent, b, now)
	})
	return err
}

// gist is what of a beacon must be kept while the store is away: not that time goes
// by. The last word of a watch always is.
func gist(b agentapi.Beacon) any {
	if b.Stage.Over() {
		return nil
	}
	b.At, b.Waiting, b.Agent.LastCheckin = time.Time{}, "", nil
	return b
}

// WriteKept writes a beacon that was kept while the store was away. agent has just
// been read.
func (s *Service) WriteKept(ctx context.Context, agent fleet.Agent, m outage.Message) error {
	var b agentapi.Beacon
	if err := json.Unmarshal(m.Body, &b); err != nil {
		return fleet.Errorf(fleet.Invalid, "the beacon that was kept cannot be read: %w", err)
	}
	return s.write(ctx, agent, b, m.Received)
}

func (s *Service) write(ctx context.Context, agent fleet.Agent, b agentapi.Beacon, now time.Time) error {
	return s.Events.Tell(ctx, s.Agents, agent, func(a *fleet.Agent) store.Report {
		news := a.ObserveBeacon(b, now)
		if !news.Write {
			return store.Report{} // most beacons end here, without a write
		}
		r := store.Report{Agent: a}
		if news.Stage {
			r.Events = append(r.Events, a.WatchEvent())
		}
		if news.Upgrade {
			r.Results = a.UpgradeResults(now)
			r.Events = append(r.Events, a.UpgradeEvent())
		}
		return r
	})
}
