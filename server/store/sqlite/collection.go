package sqlite

import (
	"context"
	"database/sql"
	"errors"
)

// collection implements store.Collection for one noun of the table documents.
type collection[T any] struct {
	s    *Store
	noun string
	// head returns the id of a value and a pointer to its revision.
	head func(*T) (id string, revision *int64)
}

func (c collection[T]) Create(ctx context.Context, v T) error {
	id, _ := c.head(&v)
	doc, err := encode(c.noun, id, v)
	if err != nil {
		return err
	}
	return c.s.write(ctx, "create "+c.noun, func(t *tx) error {
		n, err := t.exec(`INSERT INTO documents (noun, id, rev, doc) VALUES (?, ?, 1, ?) ON CONFLICT DO NOTHING`, c.noun, id, doc)
		if err == nil && n == 0 {
			err = exists(c.noun, id)
		}
		return err
	})
}

func (c collection[T]) Get(ctx context.Context, id string) (T, error) {
	var rid, rev int64
	var doc string
	err := c.s.get(ctx, `SELECT rid, rev, doc FROM documents WHERE noun = ? AND id = ?`, []any{c.noun, id}, &rid, &rev, &doc)
	if errors.Is(err, sql.ErrNoRows) {
		err = missing(c.noun, id)
	}
	if err != nil {
		return *new(T), err
	}
	return c.value(id, rid, rev, doc)
}

func (c collection[T]) value(id string, rid, rev int64, doc string) (T, error) {
	var v T
	if err := decode(c.noun, id, doc, &v); err != nil {
		return *new(T), err
	}
	_, at := c.head(&v)
	*at = revision(rid, rev)
	return v, nil
}

func (c collection[T]) Update(ctx context.Context, v T) (int64, error) {
	id, at := c.head(&v)
	want := *at
	doc, err := encode(c.noun, id, v)
	if err != nil {
		return 0, err
	}
	return apply(ctx, c.s, "update "+c.noun, func(t *tx) (int64, error) {
		var rid, rev int64
		err := t.get(`SELECT rid, rev FROM documents WHERE noun = ? AND id = ?`, []any{c.noun, id}, &rid, &rev)
		switch {
		case errors.Is(err, sql.ErrNoRows):
			return 0, missing(c.noun, id)
		case err != nil:
			return 0, err
		case revision(rid, rev) != want:
			return 0, changed(c.noun, id)
		}
		_, err = t.exec(`UPDATE documents SET rev = rev + 1, doc = ? WHERE rid = ?`, doc, rid)
		return revision(rid, rev+1), err
	})
}

func (c collection[T]) Delete(ctx context.Context, id string) error {
	return c.s.write(ctx, "delete "+c.noun, func(t *tx) error {
		_, err := t.exec(`DELETE FROM documents WHERE noun = ? AND id = ?`, c.noun, id)
		c.s.unreadable.Forget(c.noun, id)
		return err
	})
}

func (c collection[T]) List(ctx context.Context, offset, limit int) ([]T, int, error) {
	if limit == 0 {
		limit = -1 // SQLite's "no limit"
	}
	// Every row has the total, and an empty page has one row for it, so that one statement,
	// and thus one snapshot, returns both.
	out, total := []T{}, 0
	err := c.s.each(ctx, `WITH page AS (SELECT rid, id, rev, doc FROM documents WHERE noun = ?1 ORDER BY rid DESC LIMIT ?2 + 0 OFFSET ?3 + 0)
		SELECT n.total, page.rid, page.id, page.rev, page.doc FROM (SELECT count(*) AS total FROM documents WHERE noun = ?1) n
		LEFT JOIN page ORDER BY page.rid DESC`, []any{c.noun, limit, max(offset, 0)}, func(scan scan) error {
		var rid, rev sql.NullInt64
		var id, doc sql.NullString
		if err := scan(&total, &rid, &id, &rev, &doc); err != nil || !rid.Valid {
			return err
		}
		v, err := c.value(id.String, rid.Int64, rev.Int64, doc.String)
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
