package sqlite

import (
	"context"
	"slices"
	"strings"

	"github.com/muster-fleet/muster/server/fleet"
)

// records are a write of nothing but results and events: what an acknowledgement
// is. No two of them disturb each other, so those of several callers can be written
// by the same few statements; see writer.runRecords.
type records struct {
	results []fleet.Result
	events  []fleet.Event // behind them come those of the results that were a change
	untold  bool          // no events of the results
	changed []bool        // at the index of its result, once they are written
}

// record returns nil once all of rec is durable. Until then, and after an error,
// rec is not the caller's.
func (s *Store) record(ctx context.Context, op string, rec *records) error {
	return s.fault(op, s.writer.enqueue(ctx, &write{ctx: ctx, records: rec, do: func(t *tx) error { return putRecords(t, []*records{rec}) }}))
}

// putRecords writes those of several callers, each as if it came alone, in their
// order. It encodes them, too: hundreds in a row take a quarter less than each does
// between a request's other work, for which the processor has other code at hand.
func putRecords(t *tx, list []*records) error {
	all := list[0].results
	if len(list) > 1 {
		all = nil
		for _, rec := range list {
			all = append(all, rec.results...)
		}
	}
	changed, err := putResults(t, all)
	if err != nil {
		return err
	}
	var events []string
	for _, rec := range list {
		n := len(rec.results)
		rec.changed, changed = changed[:n:n], changed[n:]
		docs, err := encodeEvents(rec.events)
		if err != nil {
			return err
		}
		events = append(events, docs...)
		for i, r := range rec.results {
			if !rec.changed[i] || rec.untold {
				continue
			}
			doc, err := encodeResultEvent(r)
			if err != nil {
				return err
			}
			events = append(events, doc)
		}
	}
	return appendEvents(t, events)
}

// insertSizes are how many rows one INSERT takes. Prepared statements stay in
// memory, so there is not one for every number of rows. More than 64 gain nothing.
var insertSizes = [...]int{64, 8, 1}

// insert is the text of an INSERT for each of insertSizes.
type insert [len(insertSizes)]string

func newInsert(head, row, tail string) insert {
	var texts insert
	for i, size := range insertSizes {
		texts[i] = head + strings.Join(slices.Repeat([]string{row}, size), ", ") + tail
	}
	return texts
}

// insert inserts n rows, whose arguments row appends to args, in their order, and
// returns how many there are more.
func (t *tx) insert(texts insert, n int, row func(args []any, i int) []any) (int64, error) {
	var (
		args  []any
		added int64
		i     int
	)
	for k, size := range insertSizes {
		for ; i+size <= n; i += size {
			args = args[:0]
			for j := range size {
				args = row(args, i+j)
			}
			more, err := t.exec(texts[k], args...)
			if err != nil {
				return 0, err
			}
			added += more
		}
	}
	return added, nil
}
