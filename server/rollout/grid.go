package rollout

import (
	"context"
	"slices"
	"time"

	"github.com/muster-fleet/muster/server/fleet"
	"github.com/muster-fleet/muster/server/rollout/plan"
)

// Grid has all targets of a rollout in columns of the same length, in the order of the rollout: a
// list of 100,000 objects would have four times the size.
type Grid struct {
	Generation int64                 `json:"generation"`
	AgentIDs   []string              `json:"agent_ids"`
	Hostnames  []string              `json:"hostnames"`
	Batches    []int                 `json:"batches"`
	States     []fleet.TargetState   `json:"states"`
	Progress   []fleet.ProgressState `json:"progress"`
}

// Grid returns all targets of a rollout.
func (s *Service) Grid(ctx context.Context, id string) (Grid, error) {
	r, err := s.Get(ctx, id)
	if err != nil {
		return Grid{}, err
	}
	n := r.Counts.Total
	g := Grid{
		Generation: r.Generation, AgentIDs: make([]string, 0, n), Hostnames: make([]string, 0, n), Batches: make([]int, 0, n),
		States: make([]fleet.TargetState, 0, n), Progress: make([]fleet.ProgressState, 0, n),
	}
	now := s.Now.UTC()
	var fresh []fleet.Target // may still be watched
	at := map[string]int{}
	err = s.Store.Targets().Each(ctx, id, func(t fleet.Target) {
		if mayBeWatched(&t, now) {
			t.History = nil
			at[t.AgentID], fresh = len(g.States), append(fresh, t)
		}
		g.AgentIDs, g.Hostnames, g.Batches = append(g.AgentIDs, t.AgentID), append(g.Hostnames, t.Hostname), append(g.Batches, t.Batch)
		g.States, g.Progress = append(g.States, t.State), append(g.Progress, plan.ProgressOf(&t))
	})
	if err != nil {
		return g, err
	}
	watched, err := s.watched(ctx, &r, fresh, now)
	for _, agent := range watched {
		g.Progress[at[agent]] = fleet.ProgressWatching
	}
	return g, err
}

// Progress returns how the upgrades of targets of a rollout stand.
func (s *Service) Progress(ctx context.Context, r *fleet.Rollout, targets []fleet.Target) ([]fleet.ProgressState, error) {
	now := s.Now.UTC()
	out := make([]fleet.ProgressState, len(targets))
	var fresh []fleet.Target
	for i := range targets {
		out[i] = plan.ProgressOf(&targets[i])
		if mayBeWatched(&targets[i], now) {
			fresh = append(fresh, targets[i])
		}
	}
	if len(fresh) == 0 {
		return out, nil
	}
	watched, err := s.watched(ctx, r, fresh, now)
	for i := range targets {
		if slices.Contains(watched, targets[i].AgentID) {
			out[i] = fleet.ProgressWatching
		}
	}
	return out, err
}

// mayBeWatched reports whether the host of a target that succeeded may still watch the version:
// the plan's own wait can be shorter than the host's.
func mayBeWatched(t *fleet.Target, now time.Time) bool {
	return t.State == fleet.TargetSucceeded && t.EndedAt != nil && now.Sub(*t.EndedAt) < plan.LateReportWindow
}

// watchedRead is how many agents are read at once.
const watchedRead = 1000

// watched returns the agents of those targets whose hosts still watch the version. It reads only
// those that ended within the last half an hour.
func (s *Service) watched(ctx context.Context, r *fleet.Rollout, targets []fleet.Target, now time.Time) ([]string, error) {
	var watched []string
	for some := range slices.Chunk(targets, watchedRead) {
		ids := make([]string, len(some))
		for i := range some {
			ids[i] = some[i].AgentID
		}
		agents, err := s.Store.Agents().GetMany(ctx, ids)
		if err != nil {
			return watched, err
		}
		next := 0
		for i := range agents { // in the order of ids
			for some[next].AgentID != agents[i].ID {
				next++
			}
			if plan.WatchDeadline(&some[next], &agents[i], &r.Plan).After(now) {
				watched = append(watched, agents[i].ID)
			}
		}
	}
	return watched, nil
}
