package elastic

import (
	"context"
	"reflect"
	"slices"
	"time"

	"github.com/muster-fleet/muster/server/fleet"
	"github.com/muster-fleet/muster/server/store"
)

type agents struct{ s *Store }

// Sorted returns ids unchanged: any sequence costs the same.
func (g agents) Sorted(_ context.Context, ids []string) ([]string, error) { return ids, nil }

// agentHead is the part of a stored agent that a write needs.
type agentHead struct {
	// Rev counts the changes of the document except touches. It is the agent's revision. The
	// guard cannot be, because touches change it as well.
	Rev         int64      `json:"rev"`
	AccessKeyID string     `json:"access_api_key_id"`
	EnrolledAt  time.Time  `json:"enrolled_at"`
	At          *time.Time `json:"last_checkin"`
	Status      string     `json:"last_checkin_status"`
	Message     string     `json:"last_checkin_message"`
	ActionSeq   int64      `json:"action_seq_no"`
}

var agentHeadFields = []string{"rev", "access_api_key_id", "enrolled_at", "last_checkin", "last_checkin_status", "last_checkin_message", "action_seq_no"}

func (h agentHead) last() fleet.LastSeen {
	last := fleet.LastSeen{Status: h.Status, Message: h.Message, ActionSeq: h.ActionSeq}
	if h.At != nil {
		last.At = new(*h.At)
	}
	return last
}

func (h *agentHead) setLast(last fleet.LastSeen) {
	h.At, h.Status, h.Message, h.ActionSeq = last.At, last.Status, last.Message, last.ActionSeq
}

var agentType = reflect.TypeFor[fleet.Agent]()

// agentFields are the fields of the source that value reads.
var agentFields = append(slices.Clone(packedFields), agentHeadFields...)

// value decodes an agent from its source.
func (g agents) value(id string, source []byte) (fleet.Agent, agentHead, error) {
	var (
		s struct {
			agentHead
			packed
		}
		a fleet.Agent
	)
	if err := decodeSource("agent", id, source, &s); err != nil {
		return fleet.Agent{}, s.agentHead, err
	}
	if err := g.s.c.unpack(s.packed, "agent", id, &a); err != nil {
		return fleet.Agent{}, s.agentHead, err
	}
	a.Last, a.Revision = s.last(), s.Rev
	return a.AsRead(), s.agentHead, nil
}

func (g agents) Create(ctx context.Context, a fleet.Agent) error {
	source, err := agentSource(&a, newRevision(), a.Last)
	if err != nil {
		return err
	}
	if err := g.claim(ctx, a.AccessKeyID, a.ID); err != nil {
		return err
	}
	out, err := g.s.c.write1(ctx, "create agent", withNonce(write{verb: create, key: key{indexAgents, a.ID}}, source))
	if err != nil || !out.conflict {
		return err
	}
	// Release the key, unless it is that of the existing agent.
	existing, err := g.read(ctx, a.ID)
	if err != nil {
		return err
	}
	if !existing.exists || existing.AccessKeyID != a.AccessKeyID {
		if err := g.release(ctx, a.AccessKeyID, a.ID); err != nil {
			return err
		}
	}
	return store.Exists("agent", a.ID)
}

// storedHead is the head of an agent with the guard at which it was read.
type storedHead struct {
	exists bool
	guard  guard
	agentHead
}

// read reads the head of an agent.
func (g agents) read(ctx context.Context, id string) (storedHead, error) {
	list, err := g.readMany(ctx, []string{id})
	if err != nil {
		return storedHead{}, err
	}
	return list[0], nil
}

func (g agents) readMany(ctx context.Context, ids []string) ([]storedHead, error) {
	keys := make([]key, len(ids))
	for i, id := range ids {
		keys[i] = key{indexAgents, id}
	}
	got, err := g.s.c.gets(ctx, "read agents", keys, agentHeadFields...)
	if err != nil {
		return nil, err
	}
	out := make([]storedHead, len(ids))
	for i, f := range got {
		if !f.exists {
			continue
		}
		out[i] = storedHead{exists: true, guard: f.guard}
		if err := decodeSource("agent", ids[i], f.source, &out[i].agentHead); err != nil {
			return nil, err
		}
	}
	return out, nil
}

func (g agents) Get(ctx context.Context, id string) (fleet.Agent, error) {
	f, err := g.s.c.get(ctx, "read agents", key{indexAgents, id}, agentFields...)
	if err == nil && !f.exists {
		err = store.Missing("agent", id)
	}
	if err != nil {
		return fleet.Agent{}, err
	}
	a, head, err := g.value(id, f.source)
	if err != nil {
		return fleet.Agent{}, err
	}
	g.s.heads.put(id, storedHead{true, f.guard, head})
	return a, nil
}

func (g agents) GetMany(ctx context.Context, ids []string) ([]fleet.Agent, error) {
	keys := make([]key, len(ids))
	for i, id := range ids {
		keys[i] = key{indexAgents, id}
	}
	got, err := g.s.c.gets(ctx, "read agents", keys, agentFields...)
	if err != nil {
		return nil, err
	}
	out := make([]fleet.Agent, 0, len(ids))
	for i, f := range got {
		if !f.exists {
			continue
		}
		a, head, err := g.value(ids[i], f.source)
		if g.s.c.unreadable.Skip(err) {
			continue
		}
		if err != nil {
			return nil, err
		}
		g.s.heads.put(ids[i], storedHead{true, f.guard, head})
		out = append(out, a)
	}
	return out, nil
}

func (g agents) Update(ctx context.Context, a fleet.Agent) (int64, error) {
	return g.write(ctx, &a, nil)
}

// write replaces the document, except for the fields that touches write, applies a touch if
// seen is not nil, and returns the new revision.
func (g agents) write(ctx context.Context, a *fleet.Agent, seen *fleet.Touch) (int64, error) {
	// A cached head with the caller's revision is usually current.
	now, known := g.s.heads.get(a.ID)
	known = known && now.Rev == a.Revision
	for try := range writeTries {
		if err := waitAfterConflict(ctx, try); err != nil {
			return 0, err
		}
		if !known {
			var err error
			if now, err = g.read(ctx, a.ID); err != nil {
				return 0, err
			}
		}
		known = false
		switch {
		case !now.exists:
			return 0, store.Missing("agent", a.ID)
		case now.Rev != a.Revision:
			return 0, store.Changed("agent", a.ID)
		}
		rev, done, err := g.replace(ctx, a, now, seen)
		if err != nil || done {
			return rev, err
		}
		// A touch or another update came first. The next iteration finds out which.
	}
	return 0, store.Changed("agent", a.ID)
}

// replace writes the document if the stored one is still the one that was read. Otherwise
// done is false.
func (g agents) replace(ctx context.Context, a *fleet.Agent, now storedHead, seen *fleet.Touch) (rev int64, done bool, err error) {
	head := now.agentHead
	keyChanged := head.AccessKeyID != a.AccessKeyID
	if keyChanged {
		if err := g.claim(ctx, a.AccessKeyID, a.ID); err != nil {
			return 0, false, err
		}
	}
	last := head.last()
	if seen != nil {
		last, _ = touched(last, *seen)
	}
	rev = head.Rev + 1
	source, err := agentSource(a, rev, last)
	if err != nil {
		return 0, false, err
	}
	if err := g.s.History().Put(ctx, a.EndedUpgrades()); err != nil {
		return 0, false, err
	}
	g.s.heads.drop(a.ID)
	out, err := g.s.c.write1(ctx, "update agent", withNonce(write{verb: put, key: key{indexAgents, a.ID}, guard: now.guard, replaces: agentType}, source))
	if err != nil {
		return 0, false, err
	}
	if out.conflict {
		if keyChanged {
			return 0, false, g.release(ctx, a.AccessKeyID, a.ID)
		}
		return 0, false, nil
	}
	if !out.repeated {
		now := storedHead{true, out.guard, agentHead{Rev: rev, AccessKeyID: a.AccessKeyID, EnrolledAt: a.EnrolledAt}}
		now.setLast(last)
		g.s.heads.put(a.ID, now)
	}
	if keyChanged {
		return rev, true, g.release(ctx, head.AccessKeyID, a.ID)
	}
	return rev, true, nil
}

func (g agents) UpdateMany(ctx context.Context, list []fleet.Agent) ([]error, error) {
	errs := make([]error, len(list))
	open := make([]int, len(list))
	for i := range list {
		open[i] = i
	}
	for try := 0; len(open) > 0; try++ {
		if err := waitAfterConflict(ctx, try); err != nil {
			return nil, err
		}
		ids := make([]string, len(open))
		for n, i := range open {
			ids[n] = list[i].ID
		}
		heads, err := g.readMany(ctx, ids)
		if err != nil {
			return nil, err
		}
		var writes []write
		var writing []int
		var ended []fleet.HistoryRecord
		for n, i := range open {
			a, now := &list[i], heads[n]
			switch {
			case !now.exists:
				errs[i] = store.Missing("agent", a.ID)
			case now.Rev != a.Revision || try == writeTries:
				errs[i] = store.Changed("agent", a.ID)
			case now.AccessKeyID != a.AccessKeyID:
				// This is rare and needs more than one write.
				_, errs[i] = g.write(ctx, a, nil)
				if kind := fleet.KindOf(errs[i]); errs[i] != nil && kind != fleet.Conflict && kind != fleet.NotFound {
					return nil, errs[i]
				}
			default:
				source, err := agentSource(a, now.Rev+1, now.last())
				if err != nil {
					return nil, err
				}
				g.s.heads.drop(a.ID)
				ended = append(ended, a.EndedUpgrades()...)
				writes = append(writes, withNonce(write{verb: put, key: key{indexAgents, a.ID}, guard: now.guard, replaces: agentType}, source))
				writing = append(writing, i)
			}
		}
		if err := g.s.History().Put(ctx, ended); err != nil {
			return nil, err
		}
		outcomes, err := g.s.c.write(ctx, "update agents", writes...)
		if err != nil {
			return nil, err
		}
		var again []int
		for n, out := range outcomes {
			if out.conflict {
				again = append(again, writing[n])
			}
		}
		open = again
	}
	return errs, nil
}

func (g agents) Report(ctx context.Context, r store.Report) (int64, error) {
	var changed []bool
	if len(r.Results) > 0 {
		var err error
		if changed, err = g.s.Results().Put(ctx, r.Results); err != nil {
			return 0, err
		}
	}
	resultEvents := fleet.ResultEvents(r.Results, changed)
	if err := g.s.History().Put(ctx, r.History); err != nil {
		return 0, err
	}
	var rev int64
	switch {
	case r.Agent != nil:
		a := *r.Agent
		seen := r.Seen
		if seen != nil && seen.AgentID != a.ID {
			seen = nil
		}
		var err error
		if rev, err = g.write(ctx, &a, seen); err != nil {
			// The results are stored. A repeated report will find them unchanged and append
			// no events for them, so they are appended now.
			if kind := fleet.KindOf(err); kind == fleet.Conflict || kind == fleet.NotFound {
				if lost := g.s.Events().Append(ctx, resultEvents); lost != nil {
					return 0, lost
				}
			}
			return 0, err
		}
		if seen == nil && r.Seen != nil {
			if err := g.Touch(ctx, []fleet.Touch{*r.Seen}); err != nil {
				return 0, err
			}
		}
	case r.Seen != nil:
		if err := g.Touch(ctx, []fleet.Touch{*r.Seen}); err != nil {
			return 0, err
		}
	}
	return rev, g.s.Events().Append(ctx, slices.Concat(r.Events, resultEvents))
}

func (g agents) Delete(ctx context.Context, id string) error {
	now, err := g.read(ctx, id)
	if err != nil || !now.exists {
		return err
	}
	g.s.heads.drop(id)
	g.s.c.unreadable.Forget("agent", id)
	if _, err := g.s.c.write1(ctx, "delete agent", write{verb: remove, key: key{indexAgents, id}}); err != nil {
		return err
	}
	return g.release(ctx, now.AccessKeyID, id)
}
