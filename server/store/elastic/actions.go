package elastic

import (
	"context"
	"time"

	"github.com/muster-fleet/muster/server/fleet"
	"github.com/muster-fleet/muster/server/store"
	"github.com/muster-fleet/muster/server/wire/agentapi"
)

type actions struct{ s *Store }

// actionSource is the source of an action. It never changes, because a write would give it
// another number. Cancellations are documents of their own.
type actionSource struct {
	ID         string     `json:"action_id"`
	Type       string     `json:"type"`
	Agents     []string   `json:"agents"` // not in packed as well: 100,000 of them have 4 MB
	At         any        `json:"@timestamp"`
	By         any        `json:"user_id"`
	Start      *time.Time `json:"start_time"`
	Seconds    int        `json:"rollout_duration_seconds"`
	Expiration *time.Time `json:"expiration"`
	Nonce      string     `json:"nonce"`
	packed
}

// newActionSource returns the source of an action, without CancelledAt.
func newActionSource(a fleet.Action) (actionSource, error) {
	source := actionSource{
		ID: a.ID, Type: string(a.Type), Agents: a.Agents, At: when(a.CreatedAt), By: text(a.CreatedBy),
		Start: a.StartTime, Seconds: a.RolloutSeconds, Expiration: a.Expiration, Nonce: newNonce(),
	}
	a.Agents, a.CancelledAt = nil, nil
	var err error
	source.packed, err = pack("action", a.ID, a)
	return source, err
}

func (c actions) Create(ctx context.Context, a fleet.Action) (int64, error) {
	source, err := newActionSource(a)
	if err != nil {
		return 0, err
	}
	cancelled := a.CancelledAt
	out, err := c.s.c.write1(ctx, "create action", write{verb: create, key: key{indexActions, a.ID}, body: source, nonce: source.Nonce})
	c.s.actionSequence.noteWrite()
	switch {
	case err != nil:
		return 0, err
	case out.conflict:
		return 0, store.Exists("action", a.ID)
	}
	if cancelled != nil {
		if err := c.Cancel(ctx, a.ID, *cancelled); err != nil {
			return 0, err
		}
	}
	return number(out.guard.seq), nil
}

// cancellation is the document that records when an action was cancelled. It has the id of
// the action.
type cancellation struct {
	ActionID string    `json:"action_id"`
	At       time.Time `json:"at"`
	Revision int64     `json:"-"`
}

var cancellationKind = store.OwnKind("cancellation", func(v *cancellation) (string, *int64) { return v.ActionID, &v.Revision })

func (c actions) cancellations() store.Collection[cancellation] { return own(c.s, cancellationKind) }

func (c actions) Cancel(ctx context.Context, id string, at time.Time) error {
	if _, err := c.Get(ctx, id); err != nil {
		return err
	}
	err := c.cancellations().Create(ctx, cancellation{ActionID: id, At: at})
	if err != nil && fleet.KindOf(err) == fleet.Conflict {
		return nil // the first cancellation stays
	}
	return err
}

func (c actions) Get(ctx context.Context, id string) (fleet.Action, error) {
	return c.one(ctx, id, c.whole())
}

func (c actions) For(ctx context.Context, id string, agentIDs ...string) (list []fleet.Action, err error) {
	// The action for an agent that does not exist gets the fields that many sets, which are
	// then copied to the others.
	split := func(reduced []fleet.Action) fleet.Action {
		list = reduced[1:]
		return reduced[0]
	}
	agents := append([]string{""}, agentIDs...)
	head, err := c.one(ctx, id, view{
		func(id string) (fleet.Action, bool) {
			reduced, ok := c.s.actions.For(id, agents)
			if !ok {
				return fleet.Action{}, false
			}
			return split(reduced), true
		},
		func(a fleet.Action) fleet.Action { return split(store.ActionFor(a, agents)) },
	})
	if err != nil {
		return nil, err
	}
	for i := range list {
		list[i].CancelledAt, list[i].Revision = head.CancelledAt, head.Revision
	}
	return list, nil
}

func (c actions) one(ctx context.Context, id string, as view) (fleet.Action, error) {
	list, err := c.many(ctx, []string{id}, as)
	switch {
	case err != nil:
		return fleet.Action{}, err
	case len(list) == 0:
		return fleet.Action{}, store.Missing("action", id)
	}
	return list[0], nil
}

func (c actions) Pending(ctx context.Context, agentID string, after int64, now time.Time, limit int) ([]fleet.Action, error) {
	if agentID == "" || limit <= 0 {
		return []fleet.Action{}, nil
	}
	// It includes all actions that After has returned in this process, so that an agent that
	// is woken for an action finds it.
	upTo, err := c.s.actionSequence.recent(ctx)
	if err != nil {
		return nil, err
	}
	out := []fleet.Action{}
	for after < upTo && len(out) < limit {
		n := min(limit-len(out), maxResultWindow)
		res, err := c.s.c.searchNow(ctx, "read pending actions", indexActions, body{
			"query": body{"bool": body{
				"filter":   []any{body{"term": body{"agents": agentID}}, between(after, upTo)},
				"must_not": []any{body{"range": body{"expiration": body{"lte": millis(now)}}}},
			}},
			"sort": []any{body{"_seq_no": "asc"}}, "size": n, "_source": false, "track_total_hits": false, "seq_no_primary_term": true,
		})
		if err != nil {
			return nil, err
		}
		list, err := c.ofHits(ctx, res.Hits.Hits)
		if err != nil {
			return nil, err
		}
		out = append(out, list...)
		if len(res.Hits.Hits) < n {
			break
		}
		after = number(res.Hits.Hits[n-1].Seq)
	}
	return out, nil
}

func (c actions) After(ctx context.Context, after int64, limit int) ([]fleet.Action, error) {
	return store.SkipUnreadable(after, func(after int64) ([]fleet.Action, int64, error) {
		hits, err := c.s.actionSequence.after(ctx, "read new actions", after, limit, false)
		if err != nil {
			return nil, 0, err
		}
		out, err := c.ofHits(ctx, hits)
		return out, lastOf(hits, after), err
	})
}

func (c actions) LastSeq(ctx context.Context) (int64, error) {
	upTo, err := c.s.actionSequence.advance(ctx)
	if err != nil || upTo == 0 {
		return 0, err
	}
	return c.s.actionSequence.end(ctx, "desc", upTo)
}

func (c actions) List(ctx context.Context, q store.ActionQuery) ([]fleet.Action, error) {
	if q.Limit <= 0 {
		return []fleet.Action{}, nil
	}
	upTo, err := c.s.actionSequence.advance(ctx)
	if err != nil {
		return nil, err
	}
	filter := []any{between(0, upTo)}
	if q.From != nil {
		filter = append(filter, body{"range": body{"@timestamp": body{"gte": millis(*q.From)}}})
	}
	if q.Until != nil {
		filter = append(filter, body{"range": body{"@timestamp": body{"lte": millis(*q.Until)}}})
	}
	except := append([]agentapi.ActionType{}, q.Except...)
	hits, _, err := c.s.c.page(ctx, "list actions", indexActions, body{
		"query": body{"bool": body{"filter": filter, "must_not": []any{body{"terms": body{"type": except}}}}},
		"sort":  []any{body{"_seq_no": "desc"}}, "_source": false,
	}, q.Offset, q.Limit, maxResultWindow)
	if err != nil {
		return nil, err
	}
	return c.ofHits(ctx, hits)
}

func (c actions) ofHits(ctx context.Context, hits []hit) ([]fleet.Action, error) {
	ids := make([]string, len(hits))
	for i, h := range hits {
		ids[i] = h.ID
	}
	list, err := c.many(ctx, ids, c.whole())
	if len(ids) == 1 && c.s.c.unreadable.Skip(err) { // many fails for one, as Get does
		return []fleet.Action{}, nil
	}
	return list, err
}

// view determines how many returns an action: from the cache, or from one that was read.
type view struct {
	cached func(id string) (fleet.Action, bool)
	read   func(fleet.Action) fleet.Action
}

func (c actions) whole() view { return view{c.s.actions.Get, fleet.Action.Clone} }

// many returns the actions that exist, in the order of ids. It reads documents that are not
// cached, and all cancellations.
func (c actions) many(ctx context.Context, ids []string, as view) ([]fleet.Action, error) {
	known := make([]*fleet.Action, len(ids))
	cancellations := c.s.documents(cancellationKind.Info)
	var keys []key
	for _, id := range ids {
		keys = append(keys, cancellations.key(id))
	}
	var unknown []int
	for i, id := range ids {
		if a, ok := as.cached(id); ok {
			known[i] = &a
			continue
		}
		unknown = append(unknown, i)
		keys = append(keys, key{indexActions, id})
	}
	got, err := c.s.c.gets(ctx, "read actions", keys)
	if err != nil {
		return nil, err
	}
	for n, i := range unknown {
		f := got[len(ids)+n]
		if !f.exists {
			continue
		}
		var source actionSource
		err := decodeSource("action", ids[i], f.source, &source)
		a := fleet.Action{}
		if err == nil {
			err = unpack(source.packed, "action", ids[i], &a)
		}
		if err != nil && len(ids) > 1 && c.s.c.unreadable.Skip(err) {
			continue
		}
		if err != nil {
			return nil, err
		}
		a.Agents, a.Seq = source.Agents, number(f.guard.seq)
		a.Revision = f.guard.revision()
		c.s.actions.Put(a.ID, a, len(f.source))
		viewed := as.read(a)
		known[i] = &viewed
	}
	out := make([]fleet.Action, 0, len(ids))
	for i, a := range known {
		if a == nil {
			continue
		}
		if f := got[i]; f.exists {
			var v cancellation
			if err := cancellations.decode(ids[i], f.source, &v); err != nil {
				return nil, err
			}
			a.CancelledAt = &v.At
		}
		out = append(out, *a)
	}
	return out, nil
}

// Delete removes the results first: if it is interrupted, the action still exists and can
// be deleted again.
func (c actions) Delete(ctx context.Context, id string) error {
	const op = "delete action"
	a, err := c.Get(ctx, id)
	if fleet.KindOf(err) == fleet.NotFound && err != nil {
		return nil
	}
	if err != nil {
		return err
	}
	last, err := c.LastSeq(ctx)
	if err != nil {
		return err
	}
	if a.Seq >= last {
		return fleet.Errorf(fleet.Conflict, "action %s is the newest: it marks the number up to which agents have received actions", id)
	}
	// Forces a refresh, to find results that another process has just stored.
	c.s.c.fresh[indexResults].noteWrite()
	b := body{"query": body{"bool": body{"filter": []any{body{"term": body{"action_id": id}}}}}, "_source": false}
	if err := c.s.c.removeAll(ctx, op, indexResults, b); err != nil {
		return err
	}
	if err := c.cancellations().Delete(ctx, id); err != nil {
		return err
	}
	if _, err := c.s.c.write1(ctx, op, write{verb: remove, key: key{indexActions, id}}); err != nil {
		return err
	}
	c.s.actions.Drop(id)
	return nil
}
