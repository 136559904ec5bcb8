// Package beacon handles what the watchers of hosts report while they judge a new
// version. They have a credential of their own, so that their reports arrive also when
// the agent is what is broken. The rules are fleet's; here they meet the store and the
// stream.
package beacon

import (
	"context"

	"github.com/muster-fleet/muster/server/agentapi"
	"github.com/muster-fleet/muster/server/clock"
	"github.com/muster-fleet/muster/server/event"
	"github.com/muster-fleet/muster/server/fleet"
	"github.com/muster-fleet/muster/server/store"
)

// Service handles beacons.
type Service struct {
	Agents store.Agents
	Events *event.Stream
	Now    clock.Clock
}

// Handle applies a beacon of an authenticated watcher. agent is as the authentication
// read it. A sound beacon that comes too late is no error: its sender could do nothing
// about it.
func (s *Service) Handle(ctx context.Context, agent fleet.Agent, b agentapi.Beacon) error {
	if err := fleet.CheckBeacon(b); err != nil {
		return err
	}
	now := s.Now.UTC()
	events, err := store.ApplyReport(ctx, s.Agents, agent, now, func(a *fleet.Agent) store.Report {
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
	if events {
		s.Events.Wake()
	}
	return err
}
