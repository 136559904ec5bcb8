package elastic

import (
	"context"
	"time"

	"github.com/muster-fleet/muster/server/fleet"
)

// touchFields are the last-seen part of a document; all of it is written each time.
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

// touched is when an agent was last seen, after a touch, and whether it says
// anything new.
func touched(last fleet.LastSeen, t fleet.Touch) (fleet.LastSeen, bool) {
	was := last
	last.ActionSeq = max(last.ActionSeq, t.ActionSeq)
	if !t.At.IsZero() && (last.At == nil || !last.At.After(t.At)) {
		last.At = new(t.At.UTC())
		if t.Status != "" {
			last.Status, last.Message = t.Status, t.Message
		}
	}
	return last, !sameLast(was, last)
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
	for try := range writeTries {
		if len(open) == 0 {
			return nil
		}
		heads, remembered, err := g.headsFor(ctx, open, try == 0)
		if err != nil {
			return err
		}
		var writes []write
		var writing []int
		var again []string
		for i, id := range open {
			if !heads[i].there {
				continue
			}
			last, anything := heads[i].last(), false
			for _, t := range byAgent[id] {
				var news bool
				last, news = touched(last, t)
				anything = anything || news
			}
			if !anything {
				if remembered[i] { // perhaps of an agent that was deleted and created anew
					again = append(again, id)
				}
				continue
			}
			heads[i].seen(last)
			writes = append(writes, write{verb: update, key: key{indexAgents, id}, guard: heads[i].guard, body: touchFields(last, heads[i].EnrolledAt)})
			writing = append(writing, i)
			g.s.held.drop(id)
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
			g.s.held.put(id, heads[writing[n]])
		}
		open = again
	}
	return fleet.Errorf(fleet.Unavailable, "others changed agent %s again and again: repeat the call", open[0])
}

// headsFor returns the heads of agents, from memory where that may do and is
// wanted: what is written on them is guarded.
func (g agents) headsFor(ctx context.Context, ids []string, memory bool) (heads []heldAgent, remembered []bool, err error) {
	heads, remembered = make([]heldAgent, len(ids)), make([]bool, len(ids))
	var unknown []string
	var places []int
	for i, id := range ids {
		if memory {
			if heads[i], remembered[i] = g.s.held.get(id); remembered[i] {
				continue
			}
		}
		unknown, places = append(unknown, id), append(places, i)
	}
	read, err := g.readMany(ctx, unknown)
	if err != nil {
		return nil, nil, err
	}
	for n, i := range places {
		heads[i] = read[n]
	}
	return heads, remembered, nil
}
