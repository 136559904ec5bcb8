package sqlite

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"strings"

	"github.com/muster-fleet/muster/server/fleet"
	"github.com/muster-fleet/muster/server/store"
)

type targets struct{ s *Store }

// targetRow is a target in the form the table stores, built before the transaction like
// agentRow. place is its Order.
type targetRow struct {
	rollout, agent string
	revision       int64
	place, batch   int
	state          string
	doc            string
}

func newTargetRows(list []fleet.Target) ([]targetRow, error) {
	rows := make([]targetRow, len(list))
	for i := range list {
		t := &list[i]
		doc, err := encode("target", t.RolloutID+":"+t.AgentID, t)
		if err != nil {
			return nil, err
		}
		rows[i] = targetRow{t.RolloutID, t.AgentID, t.Revision, t.Place, t.Batch, string(t.State), doc}
	}
	return rows, nil
}

func (g targets) Create(ctx context.Context, list []fleet.Target) error {
	rows, err := newTargetRows(list)
	if err != nil {
		return err
	}
	return g.s.write(ctx, "create targets", func(t *tx) error {
		lists := targetLists{}
		for rest := rows; len(rest) > 0; {
			n := 1
			if len(rest) >= targetsPerInsert {
				n = targetsPerInsert
			}
			if err := createTargets(t, lists, rest[:n]); err != nil {
				return err
			}
			rest = rest[n:]
		}
		return nil
	})
}

// targetsPerInsert is how many targets one INSERT creates if as many are left. Inserting
// them one by one takes half as long again.
const targetsPerInsert = 50

// createTarget creates one target, createTargetGroup creates targetsPerInsert.
const createTarget = `INSERT INTO targets (list, agent_id, rev, place, batch, state, doc) VALUES ` + targetValues + ` ON CONFLICT DO NOTHING`

const targetValues = `(?, ?, 1, ?, ?, ?, ?)`

var createTargetGroup = strings.Replace(createTarget, targetValues, targetValues+strings.Repeat(`, `+targetValues, targetsPerInsert-1), 1)

func createTargets(t *tx, lists targetLists, rows []targetRow) error {
	statement := createTarget
	if len(rows) > 1 {
		statement = createTargetGroup
	}
	args := make([]any, 0, 6*len(rows))
	for _, r := range rows {
		list, err := lists.number(t, r.rollout)
		if errors.Is(err, sql.ErrNoRows) {
			list, err = lists.begin(t, r.rollout)
		}
		if err != nil {
			return err
		}
		args = append(args, list, r.agent, r.place, r.batch, r.state, r.doc)
	}
	_, err := t.exec(statement, args...)
	return err
}

// targetLists caches the list numbers of rollouts during a transaction.
type targetLists map[string]int64

// number returns the list number of a rollout, or sql.ErrNoRows if it has no targets yet.
func (l targetLists) number(t *tx, rolloutID string) (int64, error) {
	if list, ok := l[rolloutID]; ok {
		return list, nil
	}
	var list int64
	err := t.get(`SELECT list FROM target_lists WHERE rollout_id = ?`, []any{rolloutID}, &list)
	if err == nil {
		l[rolloutID] = list
	}
	return list, err
}

func (l targetLists) begin(t *tx, rolloutID string) (list int64, err error) {
	err = t.get(`INSERT INTO target_lists (rollout_id) VALUES (?) RETURNING list`, []any{rolloutID}, &list)
	l[rolloutID] = list
	return list, err
}

// ofRollout selects the list number of a rollout, NULL if it has no targets.
const ofRollout = `(SELECT list FROM target_lists WHERE rollout_id = ?)`

func (g targets) scan(scan scan) (fleet.Target, error) {
	read, err := g.document(scan)
	if err != nil {
		return fleet.Target{}, err
	}
	return read()
}

// document reads a row for eachDocument.
func (g targets) document(scan scan) (read func() (fleet.Target, error), err error) {
	var (
		rid, rev int64
		doc      string
	)
	err = scan(&rid, &rev, &doc)
	return func() (v fleet.Target, err error) {
		err = g.s.decode("target", fmt.Sprintf("in row %d", rid), doc, &v)
		v.Revision = revision(rid, rev)
		return v, err
	}, err
}

func (g targets) Get(ctx context.Context, rolloutID, agentID string) (fleet.Target, error) {
	return one(ctx, g.s, store.MissingTarget(rolloutID, agentID), g.document,
		`SELECT rid, rev, doc FROM targets WHERE list = `+ofRollout+` AND agent_id = ?`, rolloutID, agentID)
}

func (g targets) GetMany(ctx context.Context, rolloutID string, agentIDs []string) ([]fleet.Target, error) {
	ids, err := json.Marshal(agentIDs)
	if err != nil {
		return nil, err // strings can be encoded
	}
	return g.many(ctx, `SELECT t.rid, t.rev, t.doc FROM json_each(?) j CROSS JOIN targets t ON t.agent_id = j.value AND t.list = `+ofRollout+` ORDER BY j.id`,
		string(ids), rolloutID)
}

func (g targets) ByAgent(ctx context.Context, agentID string, limit int) ([]fleet.Target, error) {
	return g.many(ctx, `SELECT rid, rev, doc FROM targets WHERE agent_id = ? ORDER BY list DESC LIMIT ? + 0`, agentID, max(limit, 0))
}

func (g targets) many(ctx context.Context, query string, args ...any) ([]fleet.Target, error) {
	out := []fleet.Target{}
	err := g.s.each(ctx, query, args, func(scan scan) error {
		v, err := g.scan(scan)
		if err == nil {
			out = append(out, v)
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	return out, nil
}

func (g targets) Rollouts(ctx context.Context) ([]string, error) {
	out := []string{}
	err := g.s.each(ctx, `SELECT rollout_id FROM target_lists ORDER BY list`, nil, func(scan scan) error {
		var id string
		err := scan(&id)
		out = append(out, id)
		return err
	})
	if err != nil {
		return nil, err
	}
	return out, nil
}

func (g targets) UpdateMany(ctx context.Context, list []fleet.Target) ([]int64, []error, error) {
	rows, err := newTargetRows(list)
	if err != nil {
		return nil, nil, err
	}
	type outcome struct {
		revisions []int64
		errs      []error
	}
	out, err := apply(ctx, g.s, "update targets", func(t *tx) (outcome, error) {
		o := outcome{make([]int64, len(rows)), make([]error, len(rows))}
		lists := targetLists{}
		for i, r := range rows {
			rev, err := updateTarget(t, lists, r)
			if refusal := (*fleet.Error)(nil); err != nil && !errors.As(err, &refusal) {
				return o, err
			}
			o.revisions[i], o.errs[i] = rev, err
		}
		return o, nil
	})
	return out.revisions, out.errs, err
}

// updateTarget has changed nothing if it returns a fleet.Error.
func updateTarget(t *tx, lists targetLists, r targetRow) (int64, error) {
	list, err := lists.number(t, r.rollout)
	if errors.Is(err, sql.ErrNoRows) {
		return 0, store.MissingTarget(r.rollout, r.agent)
	}
	if err != nil {
		return 0, err
	}
	if r.doc, err = kept(t, reflect.TypeFor[fleet.Target](), "targets", r.revision>>32, r.doc); err != nil {
		return 0, err
	}
	// The revision contains the rid, so that usually one statement suffices.
	n, err := t.exec(`UPDATE targets SET rev = rev + 1, place = ?, batch = ?, state = ?, doc = ? WHERE rid = ? AND rev = ? AND agent_id = ? AND list = ?`,
		r.place, r.batch, r.state, r.doc, r.revision>>32, r.revision&(1<<32-1), r.agent, list)
	if err != nil {
		return 0, err
	}
	if n == 1 {
		return r.revision + 1, nil
	}
	var found int
	err = t.get(`SELECT 1 FROM targets WHERE agent_id = ? AND list = ?`, []any{r.agent, list}, &found)
	if errors.Is(err, sql.ErrNoRows) {
		return 0, store.MissingTarget(r.rollout, r.agent)
	}
	if err == nil {
		err = store.Changed("target", r.rollout+":"+r.agent)
	}
	return 0, err
}

func (g targets) Each(ctx context.Context, rolloutID string, f func(fleet.Target)) error {
	st, err := g.s.stmt(ctx, `SELECT rid, rev, doc FROM targets WHERE list = `+ofRollout+` ORDER BY place`)
	if err != nil {
		return g.s.fault("read targets", err)
	}
	rows, err := st.QueryContext(ctx, rolloutID)
	if err == nil {
		err = eachDocument(g.s, rows, g.document, f)
	}
	return g.s.fault("read targets", err)
}

// targetFilter takes the rollout, the batch or NULL, and a JSON list of states or NULL. The
// index targets_place contains all its columns.
const targetFilter = ` FROM targets WHERE list = (SELECT list FROM target_lists WHERE rollout_id = ?1)
	AND (?2 IS NULL OR batch = ?2) AND (?3 IS NULL OR state IN (SELECT value FROM json_each(?3) j))`

// The queries of List. targetPage also takes the limit and the offset.
const (
	targetCount = `SELECT count(*)` + targetFilter
	targetPage  = `SELECT t.rid, t.rev, t.doc FROM (SELECT rid, place` + targetFilter + ` ORDER BY place LIMIT ?4 + 0 OFFSET ?5 + 0) p
		CROSS JOIN targets t ON t.rid = p.rid ORDER BY p.place`
)

func (g targets) List(ctx context.Context, q store.TargetQuery) ([]fleet.Target, int, error) {
	var batch, states any
	if q.Batch != nil {
		batch = *q.Batch
	}
	if len(q.States) > 0 {
		list, err := json.Marshal(q.States)
		if err != nil {
			return nil, 0, err // strings can be encoded
		}
		states = string(list)
	}
	out := []fleet.Target{}
	total, err := g.s.page(ctx, "list targets", targetCount, targetPage, []any{q.RolloutID, batch, states}, q.Offset, max(q.Limit, 0), func(scan scan) error {
		v, err := g.scan(scan)
		if err == nil {
			out = append(out, v)
		}
		return err
	})
	if err != nil {
		return nil, 0, err
	}
	return out, total, nil
}
