package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"reflect"

	"github.com/muster-fleet/muster/server/fleet"
	"github.com/muster-fleet/muster/server/store"
)

// rollouts implements store.Rollouts.
type rollouts struct {
	store.Collection[fleet.Rollout]
	s *Store
}

// rolloutDocuments implements store.Documents in the table rollouts.
type rolloutDocuments struct{ s *Store }

func (r rolloutDocuments) Create(ctx context.Context, id string, v any) error {
	doc, err := encode("rollout", id, v)
	if err != nil {
		return err
	}
	active := v.(*fleet.Rollout).State.Active()
	return r.s.write(ctx, "create rollout", func(t *tx) error {
		n, err := t.exec(`INSERT INTO rollouts (id, rev, active, doc) VALUES (?, 1, ?, ?) ON CONFLICT DO NOTHING`, id, active, doc)
		if err == nil && n == 0 {
			err = store.Exists("rollout", id)
		}
		return err
	})
}

func (r rolloutDocuments) Get(ctx context.Context, id string, v any) (int64, error) {
	var rid, rev int64
	var doc string
	err := r.s.get(ctx, `SELECT rid, rev, doc FROM rollouts WHERE id = ?`, []any{id}, &rid, &rev, &doc)
	if errors.Is(err, sql.ErrNoRows) {
		err = store.Missing("rollout", id)
	}
	if err != nil {
		return 0, err
	}
	return revision(rid, rev), r.decode(rid, doc, v)
}

func (r rolloutDocuments) decode(rid int64, doc string, v any) error {
	return r.s.decode("rollout", fmt.Sprintf("in row %d", rid), doc, v)
}

func (r rolloutDocuments) Update(ctx context.Context, id string, want int64, v any) (int64, error) {
	doc, err := encode("rollout", id, v)
	if err != nil {
		return 0, err
	}
	active := v.(*fleet.Rollout).State.Active()
	return apply(ctx, r.s, "update rollout", func(t *tx) (int64, error) {
		var rid, rev int64
		err := t.get(`SELECT rid, rev FROM rollouts WHERE id = ?`, []any{id}, &rid, &rev)
		switch {
		case errors.Is(err, sql.ErrNoRows):
			return 0, store.Missing("rollout", id)
		case err != nil:
			return 0, err
		case revision(rid, rev) != want:
			return 0, store.Changed("rollout", id)
		}
		doc, err := kept(t, reflect.TypeFor[fleet.Rollout](), "rollouts", rid, doc)
		if err != nil {
			return 0, err
		}
		_, err = t.exec(`UPDATE rollouts SET rev = rev + 1, active = ?, doc = ? WHERE rid = ?`, active, doc, rid)
		return revision(rid, rev+1), err
	})
}

func (r rolloutDocuments) Delete(ctx context.Context, id string) error {
	// The targets come first, in small transactions: other writers would wait for those of a large
	// rollout for half a second.
	for {
		n, err := apply(ctx, r.s, "delete targets", func(t *tx) (int64, error) {
			return t.exec(`DELETE FROM targets WHERE rid IN (SELECT rid FROM targets WHERE list = (SELECT list FROM target_lists WHERE rollout_id = ?) LIMIT ? + 0)`, id, trimBatch)
		})
		if err != nil {
			return err
		}
		if n < trimBatch {
			break
		}
	}
	return r.s.write(ctx, "delete rollout", func(t *tx) error {
		for _, statement := range []string{
			`DELETE FROM targets WHERE list = (SELECT list FROM target_lists WHERE rollout_id = ?)`,
			`DELETE FROM target_lists WHERE rollout_id = ?`,
			`DELETE FROM rollouts WHERE id = ?`,
		} {
			if _, err := t.exec(statement, id); err != nil {
				return err
			}
		}
		return nil
	})
}

const rolloutPage = `SELECT rid, rev, doc FROM rollouts ORDER BY rid DESC LIMIT ? + 0 OFFSET ? + 0`

func (r rolloutDocuments) List(ctx context.Context, offset, limit int, f func(revision int64, decode func(v any) error) error) (total int, err error) {
	if limit == 0 {
		limit = -1 // SQLite's "no limit"
	}
	return r.s.page(ctx, "list rollouts", `SELECT count(*) FROM rollouts`, rolloutPage, nil, offset, limit, func(scan scan) error {
		var rid, rev int64
		var doc string
		if err := scan(&rid, &rev, &doc); err != nil {
			return err
		}
		return f(revision(rid, rev), func(v any) error { return r.decode(rid, doc, v) })
	})
}

func (r rollouts) Active(ctx context.Context) ([]store.RolloutHead, error) {
	out := []store.RolloutHead{}
	err := r.s.each(ctx, `SELECT rid, rev, id FROM rollouts WHERE active ORDER BY rid`, nil, func(scan scan) error {
		var rid, rev int64
		var head store.RolloutHead
		err := scan(&rid, &rev, &head.ID)
		head.Revision = revision(rid, rev)
		out = append(out, head)
		return err
	})
	if err != nil {
		return nil, err
	}
	return out, nil
}
