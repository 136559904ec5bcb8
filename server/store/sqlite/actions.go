package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/muster-fleet/muster/server/fleet"
	"github.com/muster-fleet/muster/server/store"
	"github.com/muster-fleet/muster/server/wire/agentapi"
)

type actions struct{ s *Store }

// listedFrom is the number of agents from which on an action's agents are stored in lists.
// Inserting the rows of as many into action_targets takes some 40 ms. Each agent looks into
// one list of every listed action, so these must be few: the batches of rollouts are
// smaller.
const listedFrom = 10_000

// listSize is the number of agents in a list: about those that fit on a page of the file.
const listSize = 90

func (c actions) Create(ctx context.Context, a fleet.Action) (int64, error) {
	doc, err := encode("action", a.ID, a)
	if err != nil {
		return 0, err
	}
	id, expiration, cancelled := a.ID, fromTimePtr(a.Expiration), fromTimePtr(a.CancelledAt)
	kind, created := string(a.Type), fromTime(a.CreatedAt)
	agents, err := newActionAgents(a)
	if err != nil {
		return 0, err
	}
	return apply(ctx, c.s, "create action", func(t *tx) (int64, error) {
		// Seq is assigned under the write lock and becomes visible with the commit, so a
		// reader never sees a later one first.
		var seq int64
		err := t.get(`INSERT INTO actions (id, rev, expiration, cancelled_at, type, created_at, doc) VALUES (?, 1, ?, ?, ?, ?, ?) ON CONFLICT DO NOTHING RETURNING seq`,
			[]any{id, expiration, cancelled, kind, created, doc}, &seq)
		if errors.Is(err, sql.ErrNoRows) {
			return 0, store.Exists("action", id)
		}
		if err != nil {
			return 0, err
		}
		return seq, agents.write(t, seq, expiration)
	})
}

// actionTargets are the agents of an action in the form the tables store: as lists if they
// are many, otherwise as one JSON list.
type actionAgents struct {
	lists []actionList
	all   string
}

type actionList struct{ first, agents string }

func newActionAgents(a fleet.Action) (actionAgents, error) {
	// Sorted as the clustered key is, so that adjacent rows share pages. Not nil, which
	// encodes as null, and json_each returns one row for it.
	ids := slices.Compact(fleet.SortedIDs(a.Agents))
	var out actionAgents
	var err error
	if len(ids) < listedFrom {
		out.all, err = encode("agents of action", a.ID, ids)
		return out, err
	}
	for chunk := range slices.Chunk(ids, listSize) {
		l := actionList{first: chunk[0]}
		if l.agents, err = encode("agents of action", a.ID, chunk); err != nil {
			return out, err
		}
		out.lists = append(out.lists, l)
	}
	return out, nil
}

func (a actionAgents) write(t *tx, seq int64, expiration any) error {
	if len(a.lists) == 0 {
		_, err := t.exec(`INSERT INTO action_targets (agent_id, seq) SELECT value, ? FROM json_each(?)`, seq, a.all)
		return err
	}
	if _, err := t.exec(`INSERT INTO listed_actions (seq, expiration) VALUES (?, ?)`, seq, expiration); err != nil {
		return err
	}
	for _, l := range a.lists {
		if _, err := t.exec(`INSERT INTO action_lists (seq, first, agents) VALUES (?, ?, ?)`, seq, l.first, l.agents); err != nil {
			return err
		}
	}
	return nil
}

func (c actions) Get(ctx context.Context, id string) (fleet.Action, error) {
	h, err := c.head(ctx, id)
	if err != nil {
		return fleet.Action{}, err
	}
	a, err := c.document(ctx, h.seq)
	h.apply(&a)
	return a, err
}

func (c actions) For(ctx context.Context, id string, agentIDs ...string) ([]fleet.Action, error) {
	h, err := c.head(ctx, id)
	if err != nil {
		return nil, err
	}
	list, ok := c.s.actions.For(h.seq, agentIDs)
	if !ok {
		a, err := c.document(ctx, h.seq)
		if err != nil {
			return nil, err
		}
		list = store.ActionFor(a, agentIDs)
	}
	for i := range list {
		h.apply(&list[i])
	}
	return list, nil
}

func (c actions) head(ctx context.Context, id string) (actionHead, error) {
	heads, err := c.heads(ctx, `SELECT seq, rev, cancelled_at FROM actions WHERE id = ?`, id)
	switch {
	case err != nil:
		return actionHead{}, err
	case len(heads) == 0:
		return actionHead{}, store.Missing("action", id)
	}
	return heads[0], nil
}

func (c actions) Cancel(ctx context.Context, id string, at time.Time) error {
	return c.s.write(ctx, "cancel action", func(t *tx) error {
		n, err := t.exec(`UPDATE actions SET rev = rev + 1, cancelled_at = ? WHERE id = ? AND cancelled_at IS NULL`, fromTime(at), id)
		if err != nil || n > 0 {
			return err
		}
		var found int
		err = t.get(`SELECT 1 FROM actions WHERE id = ?`, []any{id}, &found)
		if errors.Is(err, sql.ErrNoRows) {
			return store.Missing("action", id)
		}
		return err
	})
}

// pending takes the agent, the Seq to start after, the time, the limit, and the agent as
// JSON, as it appears in a list.
const pending = `SELECT t.seq, a.rev, a.cancelled_at FROM (
		SELECT seq FROM action_targets WHERE agent_id = ?1 AND seq > ?2
		UNION ALL
		SELECT b.seq FROM listed_actions b WHERE b.seq > ?2 AND (b.expiration IS NULL OR b.expiration > ?3)
			AND instr((SELECT l.agents FROM action_lists l WHERE l.seq = b.seq AND l.first <= ?1 ORDER BY l.first DESC LIMIT 1), ?5) > 0
	) t CROSS JOIN actions a ON a.seq = t.seq WHERE a.expiration IS NULL OR a.expiration > ?3 ORDER BY t.seq LIMIT ?4 + 0`

func (c actions) Pending(ctx context.Context, agentID string, after int64, now time.Time, limit int) ([]fleet.Action, error) {
	listed, err := encode("agent", agentID, agentID)
	if err != nil {
		return nil, err
	}
	return c.many(ctx, pending, agentID, after, fromTime(now), max(limit, 0), listed)
}

func (c actions) After(ctx context.Context, after int64, limit int) ([]fleet.Action, error) {
	return store.SkipUnreadable(after, func(after int64) (out []fleet.Action, last int64, err error) {
		heads, err := c.heads(ctx, `SELECT seq, rev, cancelled_at FROM actions WHERE seq > ? ORDER BY seq LIMIT ? + 0`, after, max(limit, 0))
		if err != nil {
			return nil, 0, err
		}
		last = after
		if n := len(heads); n > 0 {
			last = heads[n-1].seq
		}
		out, err = c.ofHeads(ctx, heads)
		return out, last, err
	})
}

func (c actions) LastSeq(ctx context.Context) (int64, error) {
	var seq int64
	err := c.s.get(ctx, `SELECT coalesce(max(seq), 0) FROM actions`, nil, &seq)
	return seq, err
}

func (c actions) List(ctx context.Context, q store.ActionQuery) ([]fleet.Action, error) {
	except, err := encode("types of", "actions", append([]agentapi.ActionType{}, q.Except...))
	if err != nil {
		return nil, err
	}
	from, until := int64(math.MinInt64), int64(math.MaxInt64)
	if q.From != nil {
		from = fromTime(*q.From)
	}
	if q.Until != nil {
		until = fromTime(*q.Until)
	}
	return c.many(ctx, `SELECT seq, rev, cancelled_at FROM actions WHERE seq IN (
			SELECT seq FROM actions INDEXED BY actions_listed
			WHERE type NOT IN (SELECT value FROM json_each(?) j) AND created_at BETWEEN ? AND ? ORDER BY seq DESC LIMIT ? + 0 OFFSET ? + 0
		) ORDER BY seq DESC`, except, from, until, max(q.Limit, 0), max(q.Offset, 0))
}

// actionHead is the mutable part of an action.
type actionHead struct {
	seq, rev  int64
	cancelled sql.NullInt64
}

func (h actionHead) apply(a *fleet.Action) {
	a.CancelledAt, a.Revision = toTimePtr(h.cancelled), revision(h.seq, h.rev)
}

func (c actions) heads(ctx context.Context, query string, args ...any) (heads []actionHead, err error) {
	err = c.s.each(ctx, query, args, func(scan scan) error {
		var h actionHead
		err := scan(&h.seq, &h.rev, &h.cancelled)
		heads = append(heads, h)
		return err
	})
	return heads, err
}

// many reads the heads of actions, and then each document, usually from the cache.
func (c actions) many(ctx context.Context, query string, args ...any) ([]fleet.Action, error) {
	heads, err := c.heads(ctx, query, args...)
	if err != nil {
		return nil, err
	}
	return c.ofHeads(ctx, heads)
}

// ofHeads returns the actions that can be read.
func (c actions) ofHeads(ctx context.Context, heads []actionHead) ([]fleet.Action, error) {
	out := make([]fleet.Action, 0, len(heads))
	for _, h := range heads {
		a, err := c.document(ctx, h.seq)
		if c.s.unreadable.Skip(err) {
			continue
		}
		if err != nil {
			return nil, err
		}
		h.apply(&a)
		out = append(out, a)
	}
	return out, nil
}

// document returns a copy of the immutable part of an action.
func (c actions) document(ctx context.Context, seq int64) (fleet.Action, error) {
	if a, ok := c.s.actions.Get(seq); ok {
		return a, nil
	}
	var doc string
	if err := c.s.get(ctx, `SELECT doc FROM actions WHERE seq = ?`, []any{seq}, &doc); err != nil {
		return fleet.Action{}, err
	}
	var a fleet.Action
	if err := decode("action", fmt.Sprintf("with the number %d", seq), doc, &a); err != nil {
		return a, err
	}
	a.Seq = seq
	c.s.actions.Put(seq, a.Clone(), len(doc))
	return a, nil
}

// Delete removes the results in small transactions first. Removing the action takes one
// pass over action_targets, whose rows refer to it and are clustered by agent: some 50 ms
// with half a million rows.
func (c actions) Delete(ctx context.Context, id string) error {
	const op = "delete action"
	h, err := c.head(ctx, id)
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
	if h.seq == last {
		return newestAction(id)
	}
	for {
		n, err := apply(ctx, c.s, op, func(t *tx) (int64, error) {
			return t.exec(`DELETE FROM results WHERE rid IN (SELECT rid FROM results WHERE action_id = ? LIMIT ? + 0)`, id, trimBatch)
		})
		if err != nil {
			return err
		}
		if n < trimBatch {
			break
		}
	}
	return c.s.write(ctx, op, func(t *tx) error {
		if _, err := t.exec(`DELETE FROM result_counts WHERE action_id = ?`, id); err != nil {
			return err
		}
		_, err := t.exec(`DELETE FROM actions WHERE id = ?`, id)
		return err
	})
}

func newestAction(id string) error {
	return fleet.Errorf(fleet.Conflict, "action %s is the newest: it marks the number up to which agents have received actions", id)
}
