// Package beacon takes in what the watchers of hosts tell while they judge a new
// version, with a credential of their own: it is heard also when the agent is
// what is broken. The rules are fleet's; here they meet the store and the stream.
package beacon

import (
	"context"
	"time"

	"github.com/muster-fleet/muster/server/agentapi"
	"github.com/muster-fleet/muster/server/clock"
	"github.com/muster-fleet/muster/server/event"
	"github.com/muster-fleet/muster/server/fleet"
	"github.com/muster-fleet/muster/server/store"
)

// Service takes in beacons.
type Service struct {
	Agents  store.Agents
	Results store.Results
	Events  *event.Stream
	Now     clock.Clock
}

// Take takes in a beacon of an authenticated watcher. agent is as the
// authentication read it. A sound beacon that comes too late is no error: its
// sender could do nothing about it.
func (s *Service) Take(ctx context.Context, agent fleet.Agent, b agentapi.Beacon) error {
	if err := fleet.CheckBeacon(b); err != nil {
		return err
	}
	now := s.Now.UTC()
	first := agent
	news := first.ObserveBeacon(b, now)
	if !news.Write {
		return nil // most beacons end here, without a write
	}
	var told []fleet.Event
	if news.Upgrade {
		var err error
		if told, err = s.putResults(ctx, first, now); err != nil {
			return err
		}
	}
	stored, err := store.UpdateAgent(ctx, s.Agents, agent.ID, func(a *fleet.Agent) bool {
		news = a.ObserveBeacon(b, now)
		return news.Write
	})
	if err != nil {
		return err
	}
	if news.Stage {
		told = append(told, stored.WatchEvent())
	}
	if news.Upgrade {
		told = append(told, stored.UpgradeEvent())
	}
	s.Events.Publish(ctx, told...)
	return nil
}

// putResults writes what the end of the upgrade means for its action. It comes
// before the document, as at a check-in: a crash in between is made good by the
// beacon that is sent again.
func (s *Service) putResults(ctx context.Context, agent fleet.Agent, now time.Time) ([]fleet.Event, error) {
	results := agent.UpgradeResults(now)
	if len(results) == 0 {
		return nil, nil
	}
	changed, err := s.Results.Put(ctx, results)
	return fleet.ResultEvents(results, changed), err
}
