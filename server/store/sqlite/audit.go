package sqlite

import (
	"context"
	"math"
	"unicode/utf8"

	"github.com/muster-fleet/muster/server/fleet"
	"github.com/muster-fleet/muster/server/store"
)

type audit struct{ s *Store }

func (a audit) Append(ctx context.Context, list []fleet.AuditEntry) error {
	type row struct {
		id, subject string
		at          int64
		doc         string
	}
	rows := make([]row, len(list))
	for i, e := range list {
		doc, err := encode("audit entry", e.ID, e)
		if err != nil {
			return err
		}
		rows[i] = row{e.ID, e.Subject, fromTime(e.At), doc}
	}
	return a.s.write(ctx, "append to the audit trail", func(t *tx) error {
		for _, r := range rows {
			if _, err := t.exec(`INSERT INTO audit (id, subject, at, doc) VALUES (?, ?, ?, ?) ON CONFLICT DO NOTHING`, r.id, r.subject, r.at, r.doc); err != nil {
				return err
			}
		}
		return nil
	})
}

// entryDoc is the document of an entry for JSON functions, which refuse what is no JSON.
const entryDoc = `iif(json_valid(doc), doc, '{}')`

// auditQueries returns the query for the page, which takes args, the limit and the offset,
// and the query for the total, which takes args.
func auditQueries(q store.AuditQuery) (page, total string, args []any) {
	where, args := ` FROM audit WHERE at <= ?`, []any{int64(math.MaxInt64)}
	if q.Until != nil {
		args[0] = fromTime(*q.Until)
	}
	and := func(condition string, values ...any) {
		where += ` AND ` + condition
		args = append(args, values...)
	}
	if q.Since != nil {
		and(`at >= ?`, fromTime(*q.Since))
	}
	if q.Subject != "" {
		and(`subject = ?`, q.Subject)
	}
	if q.Actor != "" {
		and(``+entryDoc+` ->> '$.actor' = ?`, q.Actor)
	}
	if q.People {
		and(``+entryDoc+` ->> '$.actor' <> ?`, fleet.System)
	}
	if q.Verb != "" {
		and(`(`+entryDoc+` ->> '$.verb' = ? OR substr(`+entryDoc+` ->> '$.verb', 1, ?) = ?)`, q.Verb, utf8.RuneCountInString(q.Verb)+1, q.Verb+".")
	}
	for _, word := range q.Words {
		and(`instr(muster_audit_text(doc), ?)`, word)
	}
	// Of entries with equal times, the one written later is newer.
	return `SELECT id, doc` + where + ` ORDER BY at DESC, seq DESC LIMIT ? + 0 OFFSET ? + 0`, `SELECT count(*)` + where, args
}

func (a audit) List(ctx context.Context, q store.AuditQuery) ([]fleet.AuditEntry, int, error) {
	page, count, args := auditQueries(q)
	out := []fleet.AuditEntry{}
	total, err := a.s.page(ctx, "list the audit trail", count, page, args, q.Offset, max(q.Limit, 0), func(scan scan) error {
		e, err := scanEntry(scan)
		if err == nil {
			out = append(out, e)
		}
		return err
	})
	if err != nil {
		return nil, 0, err
	}
	return out, total, nil
}

func scanEntry(scan scan) (e fleet.AuditEntry, err error) {
	var id, doc string
	if err := scan(&id, &doc); err != nil {
		return e, err
	}
	return e, decode("audit entry", id, doc, &e)
}

func (a audit) Each(ctx context.Context, f func(fleet.AuditEntry)) error {
	return a.s.each(ctx, `SELECT id, doc FROM audit ORDER BY at, seq`, nil, func(scan scan) error {
		e, err := scanEntry(scan)
		if err == nil {
			f(e)
		}
		return err
	})
}

func (a audit) Trim(ctx context.Context, t store.AuditTrim) (int, error) {
	except, err := encode("subjects of", "a trim", append([]string{}, t.Except...))
	if err != nil {
		return 0, err
	}
	limit := int64(min(t.Limit, store.MaxAuditTrim))
	return apply(ctx, a.s, "trim the audit trail", func(tx *tx) (int, error) {
		old, err := tx.exec(`DELETE FROM audit WHERE seq IN (SELECT seq FROM audit WHERE at < ? AND subject NOT IN (SELECT value FROM json_each(?)) ORDER BY at, seq LIMIT ? + 0)`,
			fromTime(t.Before), except, max(limit, 0))
		if err != nil || old >= limit {
			return int(old), err
		}
		var total int64
		if err := tx.get(`SELECT count(*) FROM audit`, nil, &total); err != nil {
			return 0, err
		}
		more, err := tx.exec(`DELETE FROM audit WHERE seq IN (SELECT seq FROM audit WHERE subject NOT IN (SELECT value FROM json_each(?)) ORDER BY at, seq LIMIT ? + 0)`,
			except, max(0, min(limit-old, total-int64(t.Keep))))
		return int(old + more), err
	})
}
