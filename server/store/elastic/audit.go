package elastic

import (
	"context"

	"github.com/muster-fleet/muster/server/fleet"
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
			"@timestamp": e.At, "subject": text(e.Subject), "actor": text(e.Actor), "verb": text(e.Verb),
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
	out := make([]fleet.AuditEntry, 0, len(hits))
	for _, h := range hits {
		e, err := entryOf(h)
		if err != nil {
			return nil, 0, err
		}
		out = append(out, e)
	}
	return out, total, nil
}

func entryOf(h hit) (e fleet.AuditEntry, err error) {
	var p packed
	if err := decodeSource("audit entry", h.ID, h.Source, &p); err != nil {
		return e, err
	}
	return e, p.unpack("audit entry", h.ID, &e)
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
