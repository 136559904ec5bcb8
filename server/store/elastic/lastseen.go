package elastic

import (
	"context"
	"time"

	"github.com/muster-fleet/muster/server/fleet"
)

// touchFields returns the fields of a source that a touch writes.
func touchFields(last fleet.LastSeen, enrolled time.Time) map[string]any {
	activity := enrolled
	if last.At != nil {
		activity = *last.At
	}
	return map[string]any{
		"last_checkin": last.At, "last_checkin_status": text(last.Status), "last_checkin_message": text(last.Message),
		"last_activity": activity, "action_seq_no": last.ActionSeq,
	}
}

// touched returns last after a touch, and whether it has changed.
func touched(last fleet.LastSeen, t fleet.Touch) (touched fleet.LastSeen, changed bool) {
	before := last
	last.ActionSeq = max(last.ActionSeq, t.ActionSeq)
	if !t.At.IsZero() && (last.At == nil || !last.At.After(t.At)) {
		last.At = new(t.At.UTC())
		if t.Status != "" {
			last.Status, last.Message = t.Status, t.Message
		}
	}
	return last, !equalLast(before, last)
}

func (g agents) Touch(ctx context.Context, touches []fleet.Touch) error {
	byAgent := map[string][]fleet.Touch{}
	var open []string
	for _, t := range touches {
		if len(byAgent[t.AgentID]) == 0 {
			open = append(open, t.AgentID)
		}
		byAgent[t.AgentID] = append(byAgent[t.AgentID], t)
	}
	for try := 0; len(open) > 0; try++ {
		if try == writeTries {
			return fleet.Errorf(fleet.Unavailable, "agent %s was changed by others %d times in a row: repeat the call", open[0], writeTries)
		}
		if err := waitAfterConflict(ctx, try); err != nil {
			return err
		}
		heads, cached, err := g.headsFor(ctx, open, try == 0)
		if err != nil {
			return err
		}
		var writes []write
		var writing []int
		var again []string
		for i, id := range open {
			if !heads[i].exists {
				continue
			}
			last, changed := heads[i].last(), false
			for _, t := range byAgent[id] {
				var one bool
				last, one = touched(last, t)
				changed = changed || one
			}
			if !changed {
				if cached[i] { // the agent may have been deleted and created again
					again = append(again, id)
				}
				continue
			}
			heads[i].setLast(last)
			writes = append(writes, write{verb: update, key: key{indexAgents, id}, guard: heads[i].guard, body: touchFields(last, heads[i].EnrolledAt)})
			writing = append(writing, i)
			g.s.heads.drop(id)
		}
		outcomes, err := g.s.c.write(ctx, "write when agents were last seen", writes...)
		if err != nil {
			return err
		}
		for n, out := range outcomes {
			id := open[writing[n]]
			if out.conflict || out.missing {
				again = append(again, id)
				continue
			}
			heads[writing[n]].guard = out.guard
			g.s.heads.put(id, heads[writing[n]])
		}
		open = again
	}
	return nil
}

// headsFor returns the heads of agents, from the cache if useCache is set. A cached head may
// be outdated, so writes based on it need a guard.
func (g agents) headsFor(ctx context.Context, ids []string, useCache bool) (heads []storedHead, cached []bool, err error) {
	heads, cached = make([]storedHead, len(ids)), make([]bool, len(ids))
	var unknown []string
	var indices []int
	for i, id := range ids {
		if useCache {
			if heads[i], cached[i] = g.s.heads.get(id); cached[i] {
				continue
			}
		}
		unknown, indices = append(unknown, id), append(indices, i)
	}
	read, err := g.readMany(ctx, unknown)
	if err != nil {
		return nil, nil, err
	}
	for n, i := range indices {
		heads[i] = read[n]
	}
	return heads, cached, nil
}
