package elastic

import (
	"context"
	"reflect"

	"github.com/muster-fleet/muster/server/fleet"
	"github.com/muster-fleet/muster/server/store"
)

type targets struct{ s *Store }

// targetPage is how many targets one request reads. A target has some KB.
const targetPage = 2_000

func targetKey(rolloutID, agentID string) key {
	return key{indexTargets, rolloutID + ":" + agentID}
}

func targetSource(v *fleet.Target) (map[string]any, error) {
	p, err := pack("target", v.RolloutID+":"+v.AgentID, v)
	if err != nil {
		return nil, err
	}
	return withPacked(map[string]any{
		"rollout_id": v.RolloutID, "agent_id": v.AgentID, "hostname": text(v.Hostname), "batch": v.Batch, "order": v.Place,
		"state": text(string(v.State)), "site": text(v.Site), "error": text(v.Error), "action_id": text(v.ActionID),
	}, p), nil
}

func (g targets) value(id string, source []byte, at guard) (fleet.Target, error) {
	var (
		p packed
		v fleet.Target
	)
	if err := decodeSource("target", id, source, &p); err != nil {
		return v, err
	}
	if err := g.s.c.unpack(p, "target", id, &v); err != nil {
		return v, err
	}
	v.Revision = at.revision()
	return v, nil
}

func (g targets) of(hits []hit) ([]fleet.Target, error) {
	return valuesOf(g.s.c, hits, func(h hit) (fleet.Target, error) { return g.value(h.ID, h.Source, h.guard()) })
}

func (g targets) Create(ctx context.Context, list []fleet.Target) error {
	writes := make([]write, len(list))
	lists := map[string]int64{}
	for i := range list {
		v := &list[i]
		n, ok := lists[v.RolloutID]
		if !ok {
			var err error
			if n, err = g.list(ctx, v.RolloutID); err != nil {
				return err
			}
			lists[v.RolloutID] = n
		}
		source, err := targetSource(v)
		if err != nil {
			return err
		}
		source["list"] = n
		writes[i] = write{verb: create, key: targetKey(v.RolloutID, v.AgentID), body: source}
	}
	_, err := g.s.c.write(ctx, "create targets", writes...) // a conflict means that the target exists
	return err
}

// targetList is the document that records the first targets of a rollout.
type targetList struct {
	RolloutID string `json:"rollout_id"`
	Revision  int64  `json:"-"`
}

var targetListKind = store.OwnKind("target list", func(v *targetList) (string, *int64) { return v.RolloutID, &v.Revision })

func (g targets) lists() store.Collection[targetList] { return own(g.s, targetListKind) }

// list returns the list number of a rollout, creating it if there is none. Numbers are in the
// order in which rollouts got their first targets. The number is the revision of the
// targetList, which never changes.
func (g targets) list(ctx context.Context, rolloutID string) (int64, error) {
	lists := g.lists()
	if err := lists.Create(ctx, targetList{RolloutID: rolloutID}); err != nil && fleet.KindOf(err) != fleet.Conflict {
		return 0, err
	}
	mark, err := lists.Get(ctx, rolloutID)
	return mark.Revision, err
}

func (g targets) Get(ctx context.Context, rolloutID, agentID string) (fleet.Target, error) {
	list, err := g.GetMany(ctx, rolloutID, []string{agentID})
	switch {
	case err != nil:
		return fleet.Target{}, err
	case len(list) == 0:
		return fleet.Target{}, store.MissingTarget(rolloutID, agentID)
	}
	return list[0], nil
}

func (g targets) GetMany(ctx context.Context, rolloutID string, agentIDs []string) ([]fleet.Target, error) {
	keys := make([]key, len(agentIDs))
	for i, id := range agentIDs {
		keys[i] = targetKey(rolloutID, id)
	}
	got, err := g.s.c.gets(ctx, "read targets", keys, packedFields...)
	if err != nil {
		return nil, err
	}
	out := make([]fleet.Target, 0, len(keys))
	for i, f := range got {
		if !f.exists {
			continue
		}
		v, err := g.value(keys[i].id, f.source, f.guard)
		if err != nil {
			return nil, err
		}
		out = append(out, v)
	}
	return out, nil
}

func (g targets) UpdateMany(ctx context.Context, list []fleet.Target) ([]int64, []error, error) {
	revisions, errs := make([]int64, len(list)), make([]error, len(list))
	var writes []write
	var indices []int
	for i := range list {
		v := &list[i]
		guard := guardOf(v.Revision)
		if guard.term < 1 {
			// The target was never read. The error depends on whether it exists.
			_, errs[i] = g.s.c.updateGuarded(ctx, "target", v.RolloutID+":"+v.AgentID, targetKey(v.RolloutID, v.AgentID), guard, nil, nil)
			if kind := fleet.KindOf(errs[i]); kind != fleet.NotFound && kind != fleet.Conflict {
				return nil, nil, errs[i]
			}
			continue
		}
		source, err := targetSource(v)
		if err != nil {
			return nil, nil, err
		}
		writes = append(writes, withNonce(write{verb: update, key: targetKey(v.RolloutID, v.AgentID), guard: guard, replaces: reflect.TypeFor[fleet.Target]()}, source))
		indices = append(indices, i)
	}
	outcomes, err := g.s.c.write(ctx, "update targets", writes...)
	if err != nil {
		return nil, nil, err
	}
	for n, i := range indices {
		switch v := &list[i]; {
		case outcomes[n].missing:
			errs[i] = store.MissingTarget(v.RolloutID, v.AgentID)
		case outcomes[n].conflict:
			errs[i] = store.Changed("target", v.RolloutID+":"+v.AgentID)
		default:
			revisions[i] = outcomes[n].guard.revision()
		}
	}
	return revisions, errs, nil
}

// ofRollout returns the search for the targets of a rollout, sorted by Order.
func ofRollout(rolloutID string, more ...any) body {
	return body{
		"query": body{"bool": body{"filter": append([]any{body{"term": body{"rollout_id": rolloutID}}}, more...)}},
		"sort":  []any{body{"order": "asc"}, body{"agent_id": "asc"}}, "_source": packedFields, "seq_no_primary_term": true,
	}
}

func (g targets) Each(ctx context.Context, rolloutID string, f func(fleet.Target)) error {
	return g.s.c.walk(ctx, "read targets", indexTargets, ofRollout(rolloutID), targetPage, func(h hit) error {
		v, err := g.value(h.ID, h.Source, h.guard())
		if err == nil {
			f(v)
		}
		return err
	})
}

func (g targets) List(ctx context.Context, q store.TargetQuery) ([]fleet.Target, int, error) {
	var more []any
	if q.Batch != nil {
		more = append(more, body{"term": body{"batch": *q.Batch}})
	}
	if len(q.States) > 0 {
		more = append(more, body{"terms": body{"state": q.States}})
	}
	hits, total, err := g.s.c.page(ctx, "list targets", indexTargets, ofRollout(q.RolloutID, more...), q.Offset, max(q.Limit, 0), targetPage)
	if err != nil {
		return nil, 0, err
	}
	out, err := g.of(hits)
	return out, total, err
}

func (g targets) ByAgent(ctx context.Context, agentID string, limit int) ([]fleet.Target, error) {
	hits, _, err := g.s.c.page(ctx, "list the targets of an agent", indexTargets, body{
		"query": body{"bool": body{"filter": []any{body{"term": body{"agent_id": agentID}}}}},
		"sort":  []any{body{"list": "desc"}}, "_source": packedFields, "seq_no_primary_term": true,
	}, 0, max(limit, 0), targetPage)
	if err != nil {
		return nil, err
	}
	return g.of(hits)
}

func (g targets) Rollouts(ctx context.Context) ([]string, error) {
	lists := g.s.documents(targetListKind.Info)
	hits, _, err := g.s.c.page(ctx, "list the rollouts with targets", lists.index, body{
		// The order of list numbers; see list.
		"query": body{"term": body{"noun": lists.noun}}, "sort": []any{body{"_seq_no": "asc"}}, "_source": packedFields,
	}, 0, all, documentsPage)
	if err != nil {
		return nil, err
	}
	return valuesOf(g.s.c, hits, func(h hit) (string, error) {
		var mark targetList
		err := lists.decode(h.ID, h.Source, &mark)
		return mark.RolloutID, err
	})
}

// deleteAll deletes the targets of a rollout.
func (g targets) deleteAll(ctx context.Context, rolloutID string) error {
	const op = "delete targets"
	// Forces a refresh, to find targets that another process has just created.
	g.s.c.fresh[indexTargets].noteWrite()
	b := ofRollout(rolloutID)
	b["_source"] = false
	if err := g.s.c.removeAll(ctx, op, indexTargets, b); err != nil {
		return err
	}
	return g.lists().Delete(ctx, rolloutID)
}

// removeAll deletes the documents that a search finds, in requests of bounded size.
func (c *client) removeAll(ctx context.Context, op, index string, b body) error {
	return c.withPointInTime(ctx, op, index, b, func(next func(body) ([]hit, error)) error {
		for {
			hits, err := next(body{"size": maxBulkItems})
			if err != nil || len(hits) == 0 {
				return err
			}
			if err := c.remove(ctx, op, index, hits); err != nil {
				return err
			}
		}
	})
}

func (c *client) remove(ctx context.Context, op, index string, hits []hit) error {
	writes := make([]write, len(hits))
	for i, h := range hits {
		writes[i] = write{verb: remove, key: key{index, h.ID}}
	}
	_, err := c.write(ctx, op, writes...)
	return err
}
