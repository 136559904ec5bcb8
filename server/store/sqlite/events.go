package sqlite

import (
	"context"
	"fmt"
	"slices"

	"github.com/muster-fleet/muster/server/fleet"
	"github.com/muster-fleet/muster/server/store"
)

type events struct{ s *Store }

func (e events) Append(ctx context.Context, list []fleet.Event) error {
	return e.s.record(ctx, "append events", &records{events: slices.Clone(list)})
}

func encodeEvents(list []fleet.Event) ([]string, error) {
	docs := make([]string, len(list))
	for i, ev := range list {
		var err error
		if docs[i], err = encode("event", ev.Type, ev.Bounded()); err != nil {
			return nil, err
		}
	}
	return docs, nil
}

var insertEvents = newInsert(`INSERT OR FAIL INTO events (doc) VALUES `, `(?)`, ``)

func appendEvents(t *tx, docs []string) error {
	_, err := t.insert(insertEvents, len(docs), func(args []any, i int) []any { return append(args, docs[i]) })
	return err
}

func (e events) After(ctx context.Context, after int64, limit int) ([]fleet.Event, error) {
	return store.SkipUnreadable(after, func(after int64) ([]fleet.Event, int64, error) { return e.page(ctx, after, limit) })
}

// page returns the events in the rows after a number, and the number of the last row.
func (e events) page(ctx context.Context, after int64, limit int) (out []fleet.Event, last int64, err error) {
	out, last = []fleet.Event{}, after
	err = e.s.each(ctx, `SELECT seq, doc FROM events WHERE seq > ? ORDER BY seq LIMIT ? + 0`, []any{after, max(limit, 0)}, func(scan scan) error {
		var seq int64
		var doc string
		if err := scan(&seq, &doc); err != nil {
			return err
		}
		last = seq
		var ev fleet.Event
		if err := decode("event", fmt.Sprint(seq), doc, &ev); err != nil {
			return err
		}
		ev.Seq = seq
		out = append(out, ev)
		return nil
	})
	if err != nil {
		return nil, 0, err
	}
	return out, last, nil
}

func (e events) Bounds(ctx context.Context) (first, last int64, err error) {
	err = e.s.get(ctx, `SELECT coalesce((SELECT min(seq) FROM events), 0), coalesce((SELECT max(seq) FROM events), 0)`, nil, &first, &last)
	return first, last, err
}

// trimBatch bounds the events that one transaction removes, and so how long other writers
// wait for it: some 10 ms.
const trimBatch = 5_000

func (e events) Trim(ctx context.Context, keep int) error {
	// last is fixed at the start: events appended meanwhile are for the next call.
	var last int64
	if err := e.s.get(ctx, `SELECT coalesce((SELECT seq FROM events ORDER BY seq DESC LIMIT 1 OFFSET ? + 0), 0)`, []any{max(keep, 0)}, &last); err != nil {
		return err
	}
	for {
		n, err := apply(ctx, e.s, "trim events", func(t *tx) (int64, error) {
			return t.exec(`DELETE FROM events WHERE seq IN (SELECT seq FROM events WHERE seq <= ? ORDER BY seq LIMIT ? + 0)`, last, trimBatch)
		})
		if err != nil || n < trimBatch {
			return err
		}
	}
}
