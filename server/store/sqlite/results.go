package sqlite

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"

	"github.com/muster-fleet/muster/server/fleet"
	"github.com/muster-fleet/muster/server/store"
)

type results struct{ s *Store }

// resultEvent is the event of a result, with data that is not encoded yet: Event.Data would
// be encoded twice.
type resultEvent struct {
	fleet.Event
	Data fleet.ResultData `json:"data"` // shadows Event.Data
}

func encodeResultEvent(r fleet.Result) (string, error) {
	var e resultEvent
	e.Event, e.Data = r.EventData()
	return encode("event of the result of agent", r.AgentID, &e)
}

func (r results) Put(ctx context.Context, list []fleet.Result) ([]bool, error) {
	rec := &records{results: slices.Clone(list), noResultEvents: true}
	if err := r.s.record(ctx, "store results", rec); err != nil {
		return nil, err
	}
	return rec.changed, nil
}

// insertResults ignores results that exist. With OR FAIL, SQLite keeps no statement journal
// to undo the rows before a failed one; the caller rolls back the transaction or the
// savepoint instead.
var insertResults = newInsert(`INSERT OR FAIL INTO results (action_id, agent_id, rev, failed, at, doc) VALUES `, `(?, ?, 1, ?, ?, ?)`, ` ON CONFLICT DO NOTHING`)

// putResults stores results and reports, at the index of each, whether it was a change.
func putResults(t *tx, list []fleet.Result) ([]bool, error) {
	docs := make([]string, len(list))
	for i := range list {
		var err error
		if docs[i], err = encode("result of agent", list[i].AgentID, &list[i]); err != nil {
			return nil, err
		}
	}
	var last int64
	if len(list) > 1 {
		if err := t.get(`SELECT coalesce(max(rid), 0) FROM results`, nil, &last); err != nil {
			return nil, err
		}
	}
	n, err := t.insert(insertResults, len(list), func(args []any, i int) []any {
		r := &list[i]
		return append(args, r.ActionID, r.AgentID, r.Error != "", fromTime(r.Timestamp), docs[i])
	})
	if err != nil {
		return nil, err
	}
	inserted := func(*fleet.Result) bool { return true }
	switch {
	case n == int64(len(list)):
	case n == 0:
		inserted = func(*fleet.Result) bool { return false }
	default:
		if inserted, err = insertedAfter(t, last); err != nil {
			return nil, err
		}
	}
	changed := make([]bool, len(list))
	counts := countChanges{}
	for i := range list {
		if r := &list[i]; inserted(r) {
			counts.add(*r, 1)
			changed[i] = true
		} else if changed[i], err = supersede(t, *r, docs[i], counts); err != nil {
			return nil, err
		}
	}
	return changed, counts.write(t)
}

// insertedAfter returns a function that reports whether a result was inserted with a rid
// above last. Of several results of one action and agent, that is the first one it is
// called with.
func insertedAfter(t *tx, last int64) (func(*fleet.Result) bool, error) {
	type key struct{ action, agent string }
	inserted := map[key]bool{}
	err := t.each(`SELECT action_id, agent_id FROM results WHERE rid > ?`, []any{last}, func(scan scan) error {
		var k key
		err := scan(&k.action, &k.agent)
		inserted[k] = true
		return err
	})
	return func(r *fleet.Result) bool {
		k := key{r.ActionID, r.AgentID}
		first := inserted[k]
		delete(inserted, k)
		return first
	}, err
}

// supersede replaces the stored result if r supersedes it, and reports whether it does.
func supersede(t *tx, r fleet.Result, doc string, counts countChanges) (bool, error) {
	var rid int64
	var failed bool
	var earlier string
	if err := t.get(`SELECT rid, failed, doc FROM results WHERE action_id = ? AND agent_id = ?`, []any{r.ActionID, r.AgentID}, &rid, &failed, &earlier); err != nil {
		return false, err
	}
	var old fleet.Result
	if err := decode("result", fleet.ResultID(r.ActionID, r.AgentID), earlier, &old); err != nil {
		old = fleet.Result{ActionID: r.ActionID, AgentID: r.AgentID} // it is replaced, and was counted by the column
		if failed {
			old.Error = err.Error()
		}
	} else if !r.Supersedes(old) {
		return false, nil
	}
	if _, err := t.exec(`UPDATE results SET rev = rev + 1, failed = ?, at = ?, doc = ? WHERE rid = ?`,
		r.Error != "", fromTime(r.Timestamp), doc, rid); err != nil {
		return false, err
	}
	counts.add(r, 1)
	counts.add(old, -1)
	return true, nil
}

// countChanges holds the changes that a transaction makes to the counts of each action.
type countChanges map[string]*countChange

type countChange struct {
	acked, failed int
	last          int64
}

func (c countChanges) add(r fleet.Result, n int) {
	k := c[r.ActionID]
	if k == nil {
		k = &countChange{last: fromTime(r.Timestamp)}
		c[r.ActionID] = k
	}
	k.last = max(k.last, fromTime(r.Timestamp))
	if r.Error == "" {
		k.acked += n
	} else {
		k.failed += n
	}
}

func (c countChanges) write(t *tx) error {
	for action, k := range c {
		if _, err := t.exec(`INSERT INTO result_counts (action_id, acked, failed, last) VALUES (?1, ?2, ?3, ?4)
			ON CONFLICT DO UPDATE SET acked = acked + ?2, failed = failed + ?3, last = max(last, ?4)`,
			action, k.acked, k.failed, k.last); err != nil {
			return err
		}
	}
	return nil
}

func (r results) Get(ctx context.Context, actionID, agentID string) (fleet.Result, error) {
	return one(ctx, r.s, store.Missing("result", fleet.ResultID(actionID, agentID)), resultDocument,
		`SELECT rid, rev, doc FROM results WHERE action_id = ? AND agent_id = ?`, actionID, agentID)
}

func (r results) Answered(ctx context.Context, actionID string, agentIDs []string) (map[string]bool, error) {
	ids, err := json.Marshal(agentIDs)
	if err != nil {
		return nil, err
	}
	answered := map[string]bool{}
	return answered, r.s.each(ctx, `SELECT r.agent_id FROM json_each(?) j CROSS JOIN results r ON r.action_id = ? AND r.agent_id = j.value`,
		[]any{string(ids), actionID}, func(scan scan) error {
			var id string
			err := scan(&id)
			answered[id] = true
			return err
		})
}

func (r results) OfAction(ctx context.Context, actionID string, agentIDs []string, f func(fleet.Result)) error {
	query, args := `SELECT rid, rev, doc FROM results WHERE action_id = ?`, []any{actionID}
	if agentIDs != nil {
		ids, err := encode("ids of", "agents", agentIDs)
		if err != nil {
			return err
		}
		query, args = `SELECT r.rid, r.rev, r.doc FROM json_each(?) j CROSS JOIN results r ON r.action_id = ? AND r.agent_id = j.value`, []any{ids, actionID}
	}
	return r.each(ctx, query, args, f)
}

func (r results) Errors(ctx context.Context, actionID string, limit int) ([]fleet.Result, error) {
	return r.many(ctx, `SELECT rid, rev, doc FROM results WHERE action_id = ? AND failed ORDER BY at DESC, agent_id LIMIT ? + 0`, actionID, max(limit, 0))
}

func (r results) many(ctx context.Context, query string, args ...any) ([]fleet.Result, error) {
	out := []fleet.Result{}
	if err := r.each(ctx, query, args, func(res fleet.Result) { out = append(out, res) }); err != nil {
		return nil, err
	}
	return out, nil
}

func (r results) each(ctx context.Context, query string, args []any, f func(fleet.Result)) error {
	return r.s.each(ctx, query, args, func(scan scan) error {
		read, err := resultDocument(scan)
		if err != nil {
			return err
		}
		res, err := read()
		if err == nil {
			f(res)
		}
		return err
	})
}

// resultDocument reads a row for eachDocument.
func resultDocument(scan scan) (read func() (fleet.Result, error), err error) {
	var (
		rid, rev int64
		doc      string
	)
	err = scan(&rid, &rev, &doc)
	return func() (res fleet.Result, err error) {
		err = decode("result", fmt.Sprintf("in row %d", rid), doc, &res)
		res.Revision = revision(rid, rev)
		return res, err
	}, err
}

func (r results) Each(ctx context.Context, f func(fleet.Result)) error {
	st, err := r.s.stmt(ctx, `SELECT rid, rev, doc FROM results`)
	if err != nil {
		return r.s.fault("read results", err)
	}
	rows, err := st.QueryContext(ctx)
	if err == nil {
		err = eachDocument(r.s, rows, resultDocument, f)
	}
	return r.s.fault("read results", err)
}

func (r results) Counts(ctx context.Context, actionIDs []string) (map[string]fleet.ResultCounts, error) {
	ids, err := json.Marshal(actionIDs)
	if err != nil {
		return nil, err // strings can be encoded
	}
	out := make(map[string]fleet.ResultCounts, len(actionIDs))
	err = r.s.each(ctx, `SELECT c.action_id, c.acked, c.failed, c.last FROM json_each(?) j CROSS JOIN result_counts c ON c.action_id = j.value`,
		[]any{string(ids)}, func(scan scan) error {
			var (
				id   string
				c    fleet.ResultCounts
				last int64
			)
			err := scan(&id, &c.Acked, &c.Failed, &last)
			c.Last = toTime(last)
			out[id] = c
			return err
		})
	if err != nil {
		return nil, err
	}
	return out, nil
}
