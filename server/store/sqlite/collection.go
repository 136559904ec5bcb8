package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"reflect"
	"strings"

	"github.com/muster-fleet/muster/server/store"
)

// documents implements store.Documents in the table documents.
type documents struct {
	s    *Store
	noun string
}

// Documents returns the documents of a kind.
func (s *Store) Documents(kind *store.Info) store.Documents {
	if kind == store.KindRollouts.Info {
		return rolloutDocuments{s}
	}
	return documents{s, kind.Name}
}

func (c documents) Create(ctx context.Context, id string, v any) error {
	doc, err := encode(c.noun, id, v)
	if err != nil {
		return err
	}
	return c.s.write(ctx, "create "+c.noun, func(t *tx) error {
		n, err := t.exec(`INSERT INTO documents (noun, id, rev, doc) VALUES (?, ?, 1, ?) ON CONFLICT DO NOTHING`, c.noun, id, doc)
		if err == nil && n == 0 {
			err = store.Exists(c.noun, id)
		}
		return err
	})
}

func (c documents) Get(ctx context.Context, id string, v any) (int64, error) {
	var rid, rev int64
	var doc string
	err := c.s.get(ctx, `SELECT rid, rev, doc FROM documents WHERE noun = ? AND id = ?`, []any{c.noun, id}, &rid, &rev, &doc)
	if errors.Is(err, sql.ErrNoRows) {
		err = store.Missing(c.noun, id)
	}
	if err != nil {
		return 0, err
	}
	return revision(rid, rev), c.s.decode(c.noun, id, doc, v)
}

func (c documents) Update(ctx context.Context, id string, want int64, v any) (int64, error) {
	doc, err := encode(c.noun, id, v)
	if err != nil {
		return 0, err
	}
	return apply(ctx, c.s, "update "+c.noun, func(t *tx) (int64, error) {
		var rid, rev int64
		err := t.get(`SELECT rid, rev FROM documents WHERE noun = ? AND id = ?`, []any{c.noun, id}, &rid, &rev)
		switch {
		case errors.Is(err, sql.ErrNoRows):
			return 0, store.Missing(c.noun, id)
		case err != nil:
			return 0, err
		case revision(rid, rev) != want:
			return 0, store.Changed(c.noun, id)
		}
		doc, err := kept(t, reflect.TypeOf(v), "documents", rid, doc)
		if err != nil {
			return 0, err
		}
		_, err = t.exec(`UPDATE documents SET rev = rev + 1, doc = ? WHERE rid = ?`, doc, rid)
		return revision(rid, rev+1), err
	})
}

func (c documents) Delete(ctx context.Context, id string) error {
	return c.s.write(ctx, "delete "+c.noun, func(t *tx) error {
		_, err := t.exec(`DELETE FROM documents WHERE noun = ? AND id = ?`, c.noun, id)
		c.s.unreadable.Forget(c.noun, id)
		return err
	})
}

func (c documents) List(ctx context.Context, offset, limit int, f func(revision int64, decode func(v any) error) error) (total int, err error) {
	if limit == 0 {
		limit = -1 // SQLite's "no limit"
	}
	// Every row has the total, and an empty page has one row for it, so that one statement,
	// and thus one snapshot, returns both.
	err = c.s.each(ctx, `WITH page AS (SELECT rid, id, rev, doc FROM documents WHERE noun = ?1 ORDER BY rid DESC LIMIT ?2 + 0 OFFSET ?3 + 0)
		SELECT n.total, page.rid, page.id, page.rev, page.doc FROM (SELECT count(*) AS total FROM documents WHERE noun = ?1) n
		LEFT JOIN page ORDER BY page.rid DESC`, []any{c.noun, limit, max(offset, 0)}, func(scan scan) error {
		var rid, rev sql.NullInt64
		var id, doc sql.NullString
		if err := scan(&total, &rid, &id, &rev, &doc); err != nil || !rid.Valid {
			return err
		}
		return f(revision(rid.Int64, rev.Int64), func(v any) error { return c.s.decode(c.noun, id.String, doc.String, v) })
	})
	return total, err
}

// tables are the kinds that have a table of their own, by its name; empty for a table that only
// belongs to another one.
var tables = map[string]*store.Info{
	"agents": store.KindAgents, "facts": nil, "agent_last_seen": nil,
	"actions": store.KindActions, "action_targets": nil, "listed_actions": nil, "action_lists": nil,
	"results": store.KindResults, "result_counts": nil,
	"rollouts": store.KindRollouts.Info, "targets": store.KindTargets, "target_lists": nil,
	"audit": store.KindAudit, "history": store.KindHistory, "events": store.KindEvents, "settings": store.KindSettings,
	"documents": nil, "sqlite_sequence": nil,
}

// Contents counts the rows of every table of the file, and those of documents by their noun.
func (s *Store) Contents(ctx context.Context) (map[string]int, error) {
	out := map[string]int{}
	note := func(scan scan) error {
		var name string
		var n int
		err := scan(&name, &n)
		if n > 0 {
			out[name] += n
		}
		return err
	}
	if err := s.each(ctx, `SELECT noun, count(*) FROM documents GROUP BY noun`, nil, note); err != nil {
		return nil, err
	}
	counts := ""
	err := s.each(ctx, `SELECT name FROM sqlite_schema WHERE type = 'table'`, nil, func(scan scan) error {
		var table string
		err := scan(&table)
		kind, known := tables[table]
		switch {
		case known && kind == nil:
			return err
		case known:
			counts += ` UNION ALL SELECT '` + kind.Name + `'`
		default:
			counts += ` UNION ALL SELECT ` + quoted(table, "'")
		}
		counts += `, (SELECT count(*) FROM ` + quoted(table, `"`) + `)`
		return err
	})
	if err != nil {
		return nil, err
	}
	rows, err := s.readers.QueryContext(ctx, strings.TrimPrefix(counts, ` UNION ALL `))
	if err != nil {
		return nil, s.fault("count documents", err)
	}
	return out, s.fault("count documents", eachRow(rows, note))
}

// quoted returns a text of SQL between quotes.
func quoted(text, quote string) string {
	return quote + strings.ReplaceAll(text, quote, quote+quote) + quote
}
