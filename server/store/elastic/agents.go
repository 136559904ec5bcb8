package elastic

import (
	"context"
	"slices"
	"time"

	"github.com/muster-fleet/muster/server/fleet"
	"github.com/muster-fleet/muster/server/store"
)

type agents struct{ s *Store }

// InOrder returns the ids as they are: no order costs less than another.
func (g agents) InOrder(_ context.Context, ids []string) ([]string, error) { return ids, nil }

// agentHead is what a write must know of the document that is there.
type agentHead struct {
	// Rev counts the changes of the document, but for touches. It is not the guard
	// of the last write, which a touch moves too.
	Rev         int64      `json:"rev"`
	AccessKeyID string     `json:"access_api_key_id"`
	EnrolledAt  time.Time  `json:"enrolled_at"`
	At          *time.Time `json:"last_checkin"`
	Status      string     `json:"last_checkin_status"`
	Message     string     `json:"last_checkin_message"`
	// ActionSeq is absent from documents of the first schema, whose number stands in
	// the packed document; of an agent that was read it is never nil.
	ActionSeq *int64 `json:"action_seq_no"`
}

var agentHeadFields = []string{"rev", "access_api_key_id", "enrolled_at", "last_checkin", "last_checkin_status", "last_checkin_message", "action_seq_no"}

func (h agentHead) last() fleet.LastSeen {
	last := fleet.LastSeen{Status: h.Status, Message: h.Message}
	if h.At != nil {
		last.At = new(*h.At)
	}
	if h.ActionSeq != nil {
		last.ActionSeq = *h.ActionSeq
	}
	return last
}

func (h *agentHead) seen(last fleet.LastSeen) {
	h.At, h.Status, h.Message, h.ActionSeq = last.At, last.Status, last.Message, new(last.ActionSeq)
}

// agentFields are those of the source that an agent is read from.
var agentFields = append(slices.Clone(packedFields), agentHeadFields...)

// agentValue reads an agent from its source.
func agentValue(id string, source []byte) (fleet.Agent, agentHead, error) {
	var (
		s struct {
			agentHead
			packed
		}
		doc struct {
			fleet.Agent
			ActionSeq int64 `json:"action_seq_no"` // of the first schema
		}
	)
	if err := decodeSource("agent", id, source, &s); err != nil {
		return fleet.Agent{}, s.agentHead, err
	}
	if err := s.unpack("agent", id, &doc); err != nil {
		return fleet.Agent{}, s.agentHead, err
	}
	if s.ActionSeq == nil {
		s.ActionSeq = &doc.ActionSeq
	}
	a := doc.Agent
	a.Last, a.Revision = s.last(), s.Rev
	return a, s.agentHead, nil
}

func (g agents) Create(ctx context.Context, a fleet.Agent) error {
	source, err := agentSource(&a, newRevision(), a.Last)
	if err != nil {
		return err
	}
	if err := g.claim(ctx, a.AccessKeyID, a.ID); err != nil {
		return err
	}
	out, err := g.s.c.write1(ctx, "create agent", own(write{verb: create, key: key{indexAgents, a.ID}}, source))
	if err != nil || !out.conflict {
		return err
	}
	// The key is given back, unless it is that of the agent that is there.
	there, err := g.read(ctx, a.ID)
	if err != nil {
		return err
	}
	if !there.there || there.AccessKeyID != a.AccessKeyID {
		if err := g.release(ctx, a.AccessKeyID, a.ID); err != nil {
			return err
		}
	}
	return exists("agent", a.ID)
}

// heldAgent is an agent's head with the guard it was read at.
type heldAgent struct {
	there bool
	guard guard
	agentHead
}

// read reads the head of an agent.
func (g agents) read(ctx context.Context, id string) (heldAgent, error) {
	list, err := g.readMany(ctx, []string{id})
	if err != nil {
		return heldAgent{}, err
	}
	return list[0], nil
}

func (g agents) readMany(ctx context.Context, ids []string) ([]heldAgent, error) {
	keys := make([]key, len(ids))
	for i, id := range ids {
		keys[i] = key{indexAgents, id}
	}
	got, err := g.s.c.gets(ctx, "read agents", keys, agentHeadFields...)
	if err != nil {
		return nil, err
	}
	out := make([]heldAgent, len(ids))
	var older []int // of the first schema
	for i, f := range got {
		if !f.there {
			continue
		}
		out[i] = heldAgent{there: true, guard: f.guard}
		if err := decodeSource("agent", ids[i], f.source, &out[i].agentHead); err != nil {
			return nil, err
		}
		if out[i].ActionSeq == nil {
			older = append(older, i)
		}
	}
	for part := range slices.Chunk(older, maxGet) { // whole documents: not all of a fleet's at once
		if err := g.readWhole(ctx, keys, part, out); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// readWhole reads the heads of some of the keys again, with what stands in the
// documents alone.
func (g agents) readWhole(ctx context.Context, keys []key, places []int, out []heldAgent) error {
	asked := make([]key, len(places))
	for n, i := range places {
		asked[n] = keys[i]
	}
	got, err := g.s.c.gets(ctx, "read agents", asked, agentFields...)
	if err != nil {
		return err
	}
	for n, i := range places {
		if out[i] = (heldAgent{}); !got[n].there {
			continue
		}
		_, head, err := agentValue(keys[i].id, got[n].source)
		if err != nil {
			return err
		}
		out[i] = heldAgent{true, got[n].guard, head}
	}
	return nil
}

func (g agents) Get(ctx context.Context, id string) (fleet.Agent, error) {
	list, err := g.GetMany(ctx, []string{id})
	switch {
	case err != nil:
		return fleet.Agent{}, err
	case len(list) == 0:
		return fleet.Agent{}, missing("agent", id)
	}
	return list[0], nil
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
		if !f.there {
			continue
		}
		a, head, err := agentValue(ids[i], f.source)
		if err != nil {
			return nil, err
		}
		g.s.held.put(ids[i], heldAgent{true, f.guard, head})
		out = append(out, a)
	}
	return out, nil
}

func (g agents) Update(ctx context.Context, a fleet.Agent) (int64, error) {
	return g.write(ctx, &a, nil)
}

// write replaces the document, but for what touches write, and adds a touch if
// there is one. It returns the new revision.
func (g agents) write(ctx context.Context, a *fleet.Agent, seen *fleet.Touch) (int64, error) {
	// What was read with the revision the caller has is most often still so.
	now, known := g.s.held.get(a.ID)
	known = known && now.Rev == a.Revision
	for range writeTries {
		if !known {
			var err error
			if now, err = g.read(ctx, a.ID); err != nil {
				return 0, err
			}
		}
		known = false
		switch {
		case !now.there:
			return 0, missing("agent", a.ID)
		case now.Rev != a.Revision:
			return 0, changed("agent", a.ID)
		}
		rev, done, err := g.replace(ctx, a, now, seen)
		if err != nil || done {
			return rev, err
		}
		// A touch came between, or another change, which the next look shows.
	}
	return 0, changed("agent", a.ID)
}

// replace writes the document over what was read; not done: it is another one now.
func (g agents) replace(ctx context.Context, a *fleet.Agent, now heldAgent, seen *fleet.Touch) (rev int64, done bool, err error) {
	head := now.agentHead
	moved := head.AccessKeyID != a.AccessKeyID
	if moved {
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
	g.s.held.drop(a.ID)
	out, err := g.s.c.write1(ctx, "update agent", own(write{verb: put, key: key{indexAgents, a.ID}, guard: now.guard}, source))
	if err != nil {
		return 0, false, err
	}
	if out.conflict {
		if moved {
			return 0, false, g.release(ctx, a.AccessKeyID, a.ID)
		}
		return 0, false, nil
	}
	if !out.repeated {
		now := heldAgent{true, out.guard, agentHead{Rev: rev, AccessKeyID: a.AccessKeyID, EnrolledAt: a.EnrolledAt}}
		now.seen(last)
		g.s.held.put(a.ID, now)
	}
	if moved {
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
		for n, i := range open {
			a, now := &list[i], heads[n]
			switch {
			case !now.there:
				errs[i] = missing("agent", a.ID)
			case now.Rev != a.Revision || try == writeTries:
				errs[i] = changed("agent", a.ID)
			case now.AccessKeyID != a.AccessKeyID:
				// Rare, and more than one write.
				_, errs[i] = g.write(ctx, a, nil)
				if kind := fleet.KindOf(errs[i]); errs[i] != nil && kind != fleet.Conflict && kind != fleet.NotFound {
					return nil, errs[i]
				}
			default:
				source, err := agentSource(a, now.Rev+1, now.last())
				if err != nil {
					return nil, err
				}
				g.s.held.drop(a.ID)
				writes = append(writes, own(write{verb: put, key: key{indexAgents, a.ID}, guard: now.guard}, source))
				writing = append(writing, i)
			}
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
	told := fleet.ResultEvents(r.Results, changed)
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
			// The results are there, and the next report will not find them changed:
			// what tells of them is told now.
			if kind := fleet.KindOf(err); kind == fleet.Conflict || kind == fleet.NotFound {
				if lost := g.s.Events().Append(ctx, told); lost != nil {
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
	return rev, g.s.Events().Append(ctx, slices.Concat(r.Events, told))
}

func (g agents) Delete(ctx context.Context, id string) error {
	now, err := g.read(ctx, id)
	if err != nil || !now.there {
		return err
	}
	g.s.held.drop(id)
	if _, err := g.s.c.write1(ctx, "delete agent", write{verb: remove, key: key{indexAgents, id}}); err != nil {
		return err
	}
	return g.release(ctx, now.AccessKeyID, id)
}
