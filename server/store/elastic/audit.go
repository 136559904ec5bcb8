package elastic

import (
	"context"

	"github.com/muster-fleet/muster/server/fleet"
	"github.com/muster-fleet/muster/server/kql"
	"github.com/muster-fleet/muster/server/store"
)

type audit struct{ s *Store }

func (a audit) Append(ctx context.Context, list []fleet.AuditEntry) error {
	writes := make([]write, len(list))
	for i, e := range list {
		p, err := pack("audit entry", e.ID, e)
		if err != nil {
			return err
		}
		writes[i] = write{verb: create, key: key{indexAudit, e.ID}, body: withPacked(map[string]any{
			"@timestamp": e.At, "subject": text(e.Subject), "actor": text(e.Actor), "verb": text(e.Verb), "words": store.AuditText(e),
		}, p)}
	}
	_, err := a.s.c.write(ctx, "append to the audit trail", writes...) // a conflict means that the entry exists
	return err
}

func (a audit) List(ctx context.Context, q store.AuditQuery) ([]fleet.AuditEntry, int, error) {
	filter := []any{}
	if q.Subject != "" {
		filter = append(filter, body{"term": body{"subject": q.Subject}})
	}
	if q.Actor != "" {
		filter = append(filter, body{"term": body{"actor": q.Actor}})
	}
	if q.People {
		filter = append(filter, body{"bool": body{"must_not": body{"term": body{"actor": fleet.System}}}})
	}
	if q.Verb != "" {
		filter = append(filter, body{"bool": body{"should": []any{body{"term": body{"verb": q.Verb}}, body{"wildcard": body{"verb": body{"value": pattern(kql.Wildcard{q.Verb + ".", ""})}}}}}})
	}
	for _, word := range q.Words {
		filter = append(filter, body{"wildcard": body{"words": body{"value": pattern(kql.Wildcard{"", word, ""})}}})
	}
	if q.Since != nil {
		filter = append(filter, body{"range": body{"@timestamp": body{"gte": millis(*q.Since)}}})
	}
	if q.Until != nil {
		filter = append(filter, body{"range": body{"@timestamp": body{"lte": millis(*q.Until)}}})
	}
	hits, total, err := a.s.c.page(ctx, "list the audit trail", indexAudit, body{
		"query": body{"bool": body{"filter": filter}}, "_source": packedFields,
		// Of entries with equal times, the one written later is newer.
		"sort": []any{body{"@timestamp": "desc"}, body{"_seq_no": "desc"}},
	}, q.Offset, max(q.Limit, 0), documentsPage)
	if err != nil {
		return nil, 0, err
	}
	out, err := valuesOf(a.s.c, hits, entryOf)
	return out, total, err
}

func entryOf(h hit) (e fleet.AuditEntry, err error) {
	var p packed
	if err := decodeSource("audit entry", h.ID, h.Source, &p); err != nil {
		return e, err
	}
	return e, unpack(p, "audit entry", h.ID, &e)
}

// auditPage is how many entries one request reads. An entry has some KB at most.
const auditPage = 2_000

func (a audit) Each(ctx context.Context, f func(fleet.AuditEntry)) error {
	return a.s.c.walk(ctx, "read the audit trail", indexAudit, body{
		"_source": packedFields, "sort": []any{body{"@timestamp": "asc"}, body{"_seq_no": "asc"}},
	}, auditPage, func(h hit) error {
		e, err := entryOf(h)
		if err == nil {
			f(e)
		}
		return err
	})
}

func (a audit) Trim(ctx context.Context, t store.AuditTrim) (int, error) {
	const op = "trim the audit trail"
	limit := min(t.Limit, store.MaxAuditTrim)
	old := []any{body{"range": body{"@timestamp": body{"lt": millis(t.Before)}}}}
	removed, err := a.trim(ctx, op, old, t.Except, limit)
	if err != nil || removed >= limit {
		return removed, err
	}
	a.s.c.fresh[indexAudit].noteWrite() // count what is left
	_, total, err := a.List(ctx, store.AuditQuery{})
	if err != nil || total <= t.Keep {
		return removed, err
	}
	more, err := a.trim(ctx, op, []any{}, t.Except, min(limit-removed, total-t.Keep))
	return removed + more, err
}

func (a audit) trim(ctx context.Context, op string, filter []any, except []string, limit int) (int, error) {
	if limit <= 0 {
		return 0, nil
	}
	res, err := a.s.c.search(ctx, op, indexAudit, body{
		"query": body{"bool": body{"filter": filter, "must_not": []any{body{"terms": body{"subject": append([]string{}, except...)}}}}},
		"sort":  []any{body{"@timestamp": "asc"}, body{"_seq_no": "asc"}}, "size": limit, "_source": false, "track_total_hits": false,
	})
	if err != nil || len(res.Hits.Hits) == 0 {
		return 0, err
	}
	return len(res.Hits.Hits), a.s.c.remove(ctx, op, indexAudit, res.Hits.Hits)
}
