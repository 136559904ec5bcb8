package sqlite

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/muster-fleet/muster/server/fleet"
)

type results struct{ s *Store }

// resultRow is a result as it goes into the tables.
type resultRow struct {
	fleet.Result
	doc   string
	event string // the document of what tells of it
}

func newResultRows(list []fleet.Result) ([]resultRow, error) {
	rows := make([]resultRow, len(list))
	for i, res := range list {
		id := fleet.ResultID(res.ActionID, res.AgentID)
		doc, err := encode("result", id, res)
		if err != nil {
			return nil, err
		}
		event, err := encode("event of result", id, res.Event())
		if err != nil {
			return nil, err
		}
		rows[i] = resultRow{res, doc, event}
	}
	return rows, nil
}

func (r results) Put(ctx context.Context, list []fleet.Result) ([]bool, error) {
	rows, err := newResultRows(list)
	if err != nil {
		return nil, err
	}
	return apply(ctx, r.s, "store results", func(t *tx) ([]bool, error) { return putResults(t, rows) })
}

func putResults(t *tx, rows []resultRow) ([]bool, error) {
	changed := make([]bool, len(rows))
	for i, row := range rows {
		var err error
		if changed[i], err = putResult(t, row.Result, row.doc); err != nil {
			return nil, err
		}
	}
	return changed, nil
}

func putResult(t *tx, res fleet.Result, doc string) (bool, error) {
	at := fromTime(res.Timestamp)
	var rid int64
	var earlier string
	err := t.get(`SELECT rid, doc FROM results WHERE action_id = ? AND agent_id = ?`, []any{res.ActionID, res.AgentID}, &rid, &earlier)
	if errors.Is(err, sql.ErrNoRows) {
		if _, err := t.exec(`INSERT INTO results (action_id, agent_id, rev, failed, at, doc) VALUES (?, ?, 1, ?, ?, ?)`,
			res.ActionID, res.AgentID, res.Error != "", at, doc); err != nil {
			return false, err
		}
		return true, countResult(t, res, nil)
	}
	if err != nil {
		return false, err
	}
	var old fleet.Result
	if err := decode("result", fleet.ResultID(res.ActionID, res.AgentID), earlier, &old); err != nil {
		return false, err
	}
	if !res.Supersedes(old) {
		return false, nil
	}
	if _, err := t.exec(`UPDATE results SET rev = rev + 1, failed = ?, at = ?, doc = ? WHERE rid = ?`, res.Error != "", at, doc, rid); err != nil {
		return false, err
	}
	return true, countResult(t, res, &old)
}

// countResult counts res, and no longer what it replaced.
func countResult(t *tx, res fleet.Result, replaced *fleet.Result) error {
	var acked, failed int
	count := func(r fleet.Result, n int) {
		if r.Error == "" {
			acked += n
		} else {
			failed += n
		}
	}
	count(res, 1)
	if replaced != nil {
		count(*replaced, -1)
	}
	_, err := t.exec(`INSERT INTO result_counts (action_id, acked, failed, last) VALUES (?1, ?2, ?3, ?4)
		ON CONFLICT DO UPDATE SET acked = acked + ?2, failed = failed + ?3, last = max(last, ?4)`,
		res.ActionID, acked, failed, fromTime(res.Timestamp))
	return err
}

func (r results) Get(ctx context.Context, actionID, agentID string) (fleet.Result, error) {
	list, err := r.many(ctx, `SELECT rid, rev, doc FROM results WHERE action_id = ? AND agent_id = ?`, actionID, agentID)
	switch {
	case err != nil:
		return fleet.Result{}, err
	case len(list) == 0:
		return fleet.Result{}, missing("result", fleet.ResultID(actionID, agentID))
	}
	return list[0], nil
}

func (r results) Answered(ctx context.Context, actionID string, agentIDs []string) (map[string]bool, error) {
	ids, err := json.Marshal(agentIDs)
	if err != nil {
		return nil, err
	}
	there := map[string]bool{}
	return there, r.s.each(ctx, `SELECT r.agent_id FROM json_each(?) j CROSS JOIN results r ON r.action_id = ? AND r.agent_id = j.value`,
		[]any{string(ids), actionID}, func(scan scan) error {
			var id string
			err := scan(&id)
			there[id] = true
			return err
		})
}

func (r results) Errors(ctx context.Context, actionID string, limit int) ([]fleet.Result, error) {
	return r.many(ctx, `SELECT rid, rev, doc FROM results WHERE action_id = ? AND failed ORDER BY at DESC, agent_id LIMIT ? + 0`, actionID, max(limit, 0))
}

func (r results) many(ctx context.Context, query string, args ...any) ([]fleet.Result, error) {
	out := []fleet.Result{}
	err := r.s.each(ctx, query, args, func(scan scan) error {
		read, err := resultDocument(scan)
		if err != nil {
			return err
		}
		res, err := read()
		out = append(out, res)
		return err
	})
	if err != nil {
		return nil, err
	}
	return out, nil
}

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
		err = eachDocument(rows, resultDocument, f)
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
