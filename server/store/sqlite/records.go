package sqlite

import (
	"context"
	"slices"
	"strings"

	"github.com/muster-fleet/muster/server/fleet"
)

// records is a write of only results and events, as an acknowledgement is. Such writes do
// not conflict, so those of several callers can share statements; see writer.runRecords.
type records struct {
	results        []fleet.Result
	events         []fleet.Event // followed by one event for each result that was a change
	noResultEvents bool          // omits the events of the results
	changed        []bool        // set when written: whether the result at this index was a change
}

// record returns nil once all of rec is durable. After an error the caller must not read
// rec, since the writer may still use it.
func (s *Store) record(ctx context.Context, op string, rec *records) error {
	return s.fault(op, s.writer.enqueue(ctx, &write{ctx: ctx, records: rec, do: func(t *tx) error { return putRecords(t, []*records{rec}) }}))
}

// putRecords writes the records of several callers in their order, with the effect of
// writing each alone. It also encodes them: encoding hundreds in a row is cheaper than
// encoding each in its request, because the code stays in the processor's cache.
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
			if !rec.changed[i] || rec.noResultEvents {
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

// insertSizes are the numbers of rows of one INSERT. There is not a statement for every
// number of rows, because prepared statements stay in memory. More than 64 rows are no
// faster.
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

// insert inserts n rows in their order and returns how many were added. row appends the
// arguments of row i to args.
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
