package elastic

import (
	"context"

	"github.com/muster-fleet/muster/server/fleet"
	"github.com/muster-fleet/muster/server/store"
)

type events struct{ s *Store }

func (e events) Append(ctx context.Context, list []fleet.Event) error {
	if len(list) == 0 {
		return nil
	}
	writes := make([]write, len(list))
	for i, ev := range list {
		p, err := pack("event", ev.Type, ev.Bounded())
		if err != nil {
			return err
		}
		writes[i] = write{verb: create, key: key{index: indexEvents}, body: eventSource(ev, p)}
	}
	_, err := e.s.c.write(ctx, "append events", writes...)
	e.s.eventSequence.noteWrite()
	return err
}

func eventSource(ev fleet.Event, p packed) map[string]any {
	return withPacked(map[string]any{
		"@timestamp": when(ev.At), "type": text(ev.Type), "subject": text(ev.Subject), "actor": text(ev.Actor),
	}, p)
}

func (e events) After(ctx context.Context, after int64, limit int) ([]fleet.Event, error) {
	return store.SkipUnreadable(after, func(after int64) ([]fleet.Event, int64, error) {
		hits, err := e.s.eventSequence.after(ctx, "read events", after, limit, packedFields)
		if err != nil {
			return nil, 0, err
		}
		out, err := e.ofHits(hits)
		return out, lastOf(hits, after), err
	})
}

// lastOf returns the number of the last hit, or after if there is none.
func lastOf(hits []hit, after int64) int64 {
	if n := len(hits); n > 0 {
		return number(hits[n-1].Seq)
	}
	return after
}

func (e events) ofHits(hits []hit) ([]fleet.Event, error) {
	return valuesOf(e.s.c, hits, func(h hit) (ev fleet.Event, err error) {
		var p packed
		if err := decodeSource("event", h.ID, h.Source, &p); err != nil {
			return ev, err
		}
		err = unpack(p, "event", h.ID, &ev)
		ev.Seq = number(h.Seq)
		return ev, err
	})
}

func (e events) Bounds(ctx context.Context) (first, last int64, err error) {
	upTo, err := e.s.eventSequence.advance(ctx)
	if err != nil || upTo == 0 {
		return 0, 0, err
	}
	// Every server calls Bounds twice a second for its stream. Deletions use up sequence
	// numbers as well, so the bounds are unchanged as long as upTo is.
	cached := e.s.eventBounds.Load()
	if cached != nil && cached.upTo == upTo {
		return cached.first, cached.last, nil
	}
	if last, err = e.s.eventSequence.end(ctx, "desc", upTo); err != nil {
		return 0, 0, err
	}
	if last > 0 {
		if first, err = e.s.eventSequence.end(ctx, "asc", upTo); err != nil {
			return 0, 0, err
		}
	}
	e.s.eventBounds.Store(&bounds{upTo: upTo, first: first, last: last})
	return first, last, nil
}

// bounds are the lowest and the highest Seq of the events up to upTo.
type bounds struct{ upTo, first, last int64 }

// trimPage bounds the events that one request deletes.
const trimPage = 5_000

func (e events) Trim(ctx context.Context, keep int) error {
	const op = "trim events"
	upTo, err := e.s.eventSequence.advance(ctx)
	if err != nil {
		return err
	}
	found, err := e.s.c.searchNow(ctx, op, indexEvents, body{
		"query": body{"bool": body{"filter": []any{between(0, upTo)}}}, "size": 0, "track_total_hits": true,
	})
	if err != nil {
		return err
	}
	excess := found.Hits.Total.Value - max(keep, 0)
	if excess <= 0 {
		return nil
	}
	// At a point in time: another server that trims concurrently deletes the same events, and
	// events appended meanwhile are for the next call.
	b := body{"query": body{"bool": body{"filter": []any{between(0, upTo)}}}, "sort": []any{body{"_seq_no": "asc"}}, "_source": false}
	return e.s.c.withPointInTime(ctx, op, indexEvents, b, func(next func(body) ([]hit, error)) error {
		for excess > 0 {
			hits, err := next(body{"size": min(excess, trimPage)})
			if err != nil || len(hits) == 0 {
				return err
			}
			if err := e.s.c.remove(ctx, op, indexEvents, hits); err != nil {
				return err
			}
			excess -= len(hits)
		}
		return nil
	})
}
