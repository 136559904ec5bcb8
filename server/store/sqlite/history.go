package sqlite

import (
	"context"
	"math"

	"github.com/muster-fleet/muster/server/fleet"
	"github.com/muster-fleet/muster/server/store"
)

type history struct{ s *Store }

// historyRow is a record in the form the table stores.
type historyRow struct {
	id, agent, component, action, state, code string
	at, ended                                 int64
	doc                                       string
}

func historyRows(records []fleet.HistoryRecord) ([]historyRow, error) {
	if len(records) == 0 {
		return nil, nil
	}
	rows := make([]historyRow, len(records))
	for i, r := range records {
		doc, err := encode("history record", r.ID, r)
		if err != nil {
			return nil, err
		}
		rows[i] = historyRow{r.ID, r.AgentID, r.Component, r.ActionID, string(r.State), r.Code, fromTime(r.At), fromTime(r.Ended()), doc}
	}
	return rows, nil
}

func putHistory(t *tx, rows []historyRow) error {
	for _, r := range rows {
		if _, err := t.exec(`INSERT INTO history (id, agent_id, component, action_id, state, code, at, ended, doc) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)
			ON CONFLICT (id) DO UPDATE SET (state, code, at, ended, doc) = (excluded.state, excluded.code, excluded.at, excluded.ended, excluded.doc)`,
			r.id, r.agent, r.component, r.action, r.state, r.code, r.at, r.ended, r.doc); err != nil {
			return err
		}
	}
	return nil
}

func (h history) Put(ctx context.Context, records []fleet.HistoryRecord) error {
	rows, err := historyRows(records)
	if err != nil {
		return err
	}
	return h.s.write(ctx, "write the history of agents", func(t *tx) error { return putHistory(t, rows) })
}

// historyQuery returns the query for a page and its arguments.
func historyQuery(q store.HistoryQuery) (string, []any) {
	query, args := `SELECT id, doc FROM history WHERE agent_id = ?`, []any{q.AgentID}
	if q.Component != nil {
		query += ` AND component = ?`
		args = append(args, *q.Component)
	}
	if q.Before != (store.HistoryPosition{}) {
		query += ` AND (at, id) < (?, ?)`
		args = append(args, fromTime(q.Before.At), q.Before.ID)
	}
	return query + ` ORDER BY at DESC, id DESC LIMIT ? + 0`, append(args, max(q.Limit, 0))
}

func (h history) List(ctx context.Context, q store.HistoryQuery) ([]fleet.HistoryRecord, error) {
	out := []fleet.HistoryRecord{}
	query, args := historyQuery(q)
	err := h.s.each(ctx, query, args, func(scan scan) error {
		r, err := scanHistory(scan)
		if err == nil {
			out = append(out, r)
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	return out, nil
}

func scanHistory(scan scan) (r fleet.HistoryRecord, err error) {
	var id, doc string
	if err := scan(&id, &doc); err != nil {
		return r, err
	}
	return r, decode("history record", id, doc, &r)
}

func (h history) CountEnds(ctx context.Context, actionIDs []string) (map[string]map[fleet.End]int, error) {
	list, err := encode("ids of", "actions", append([]string{}, actionIDs...))
	if err != nil {
		return nil, err
	}
	out := map[string]map[fleet.End]int{}
	err = h.s.each(ctx, `SELECT action_id, state, code, count(*) FROM json_each(?) j CROSS JOIN history h ON h.action_id = j.value AND h.action_id <> '' GROUP BY action_id, state, code`,
		[]any{list}, func(scan scan) error {
			var id string
			var end fleet.End
			var n int
			if err := scan(&id, &end.State, &end.Code, &n); err != nil {
				return err
			}
			if out[id] == nil {
				out[id] = map[fleet.End]int{}
			}
			out[id][end] = n
			return nil
		})
	return out, err
}

func (h history) OfAction(ctx context.Context, q store.ActionHistory, f func(fleet.HistoryRecord)) error {
	query, args := `SELECT h.id, h.doc FROM history h WHERE h.action_id = ? AND h.action_id <> ''`, []any{q.ActionID}
	if q.AgentIDs != nil { // by the index of agents, since an action may have 100,000 records
		ids, err := encode("ids of", "agents", q.AgentIDs)
		if err != nil {
			return err
		}
		query, args = `SELECT h.id, h.doc FROM json_each(?) j CROSS JOIN history h ON h.agent_id = j.value AND +h.action_id = ? AND h.action_id <> ''`, []any{ids, q.ActionID}
	}
	if q.States != nil {
		states, err := encode("states of", "upgrades", q.States)
		if err != nil {
			return err
		}
		query += ` AND h.state IN (SELECT value FROM json_each(?))`
		args = append(args, states)
	}
	return h.s.each(ctx, query, args, func(scan scan) error {
		r, err := scanHistory(scan)
		if err == nil {
			f(r)
		}
		return err
	})
}

func (h history) Count(ctx context.Context) (n int, err error) {
	err = h.s.each(ctx, `SELECT count(*) FROM history`, nil, func(scan scan) error { return scan(&n) })
	return n, err
}

func (h history) Each(ctx context.Context, f func(fleet.HistoryRecord)) error {
	return h.s.each(ctx, `SELECT id, doc FROM history ORDER BY seq`, nil, func(scan scan) error {
		r, err := scanHistory(scan)
		if err == nil {
			f(r)
		}
		return err
	})
}

func (h history) Trim(ctx context.Context, t store.HistoryTrim) (int, error) {
	limit := int64(max(min(t.Limit, store.MaxHistoryTrim), 0))
	return apply(ctx, h.s, "trim the history of agents", func(tx *tx) (int, error) {
		old, err := tx.exec(`DELETE FROM history WHERE seq IN (SELECT seq FROM history WHERE ended < ? ORDER BY ended, seq LIMIT ? + 0)`, fromTime(t.Before), limit)
		if err != nil || old >= limit {
			return int(old), err
		}
		var total int64
		if err := tx.get(`SELECT count(*) FROM history`, nil, &total); err != nil {
			return 0, err
		}
		more, err := tx.exec(`DELETE FROM history WHERE seq IN (SELECT seq FROM history WHERE ended >= ? ORDER BY ended, seq LIMIT ? + 0)`,
			int64(math.MinInt64), max(0, min(limit-old, total-int64(t.Keep))))
		return int(old + more), err
	})
}
