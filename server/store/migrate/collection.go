package migrate

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"slices"

	"github.com/muster-fleet/muster/server/fleet"
	"github.com/muster-fleet/muster/server/store"
)

// collection copies and compares the documents of a kind that is Collected. Its lists are in
// order of creation, so documents are created in the order of the source.
type collection struct{ kind *store.Info }

// Documents per request. Of large ones, a preview of many targets has 30 MB.
const (
	collectionPage = 500
	largePage      = 1
)

func (c collection) of(s store.Store) store.Documents { return s.Documents(c.kind) }

// list returns a page of documents as pointers to their values.
func (c collection) list(ctx context.Context, s store.Store, offset, limit int) (list []any, total int, err error) {
	total, err = c.of(s).List(ctx, offset, limit, func(_ int64, decode func(any) error) error {
		v := c.kind.New()
		err := decode(v)
		if err == nil {
			list = append(list, v)
		}
		return err
	})
	return list, total, err
}

func (c collection) total(ctx context.Context, s store.Store) (int, error) {
	_, n, err := c.list(ctx, s, 0, 1)
	return n, err
}

// newestFirst calls f with every document, newest first.
func (c collection) newestFirst(ctx context.Context, s store.Store, f func(id string, v any)) error {
	page := collectionPage
	if c.kind.Large {
		page = largePage
	}
	for offset, total := 0, 1; offset < total; offset += page {
		list, n, err := c.list(ctx, s, offset, page)
		if err != nil {
			return err
		}
		total = n
		for _, v := range list {
			id, _ := c.kind.Head(v)
			f(id, v)
		}
	}
	return nil
}

func (c collection) each(ctx context.Context, s store.Store, _ int64, f func(string, int, any)) error {
	position := 0
	return c.newestFirst(ctx, s, func(id string, v any) {
		f(id, position, v)
		position++
	})
}

// entry identifies the content of a document.
type entry struct {
	id  string
	sum [sha256.Size]byte
}

// entries returns the entries of a store, oldest first.
func (c collection) entries(ctx context.Context, s store.Store) ([]entry, error) {
	var out []entry
	var broken error
	seen := map[string]bool{} // a document created meanwhile moves others to the next page
	err := c.newestFirst(ctx, s, func(id string, v any) {
		if seen[id] {
			return
		}
		seen[id] = true
		b, err := canonical(v)
		if err != nil {
			broken = fmt.Errorf("%s: %w", id, err)
		}
		out = append(out, entry{id, sha256.Sum256(b)})
	})
	slices.Reverse(out)
	if err == nil {
		err = broken
	}
	return out, err
}

func (c collection) copy(ctx context.Context, m *mover) error {
	from, err := c.entries(ctx, m.from)
	if err != nil {
		return err
	}
	existing, err := c.entries(ctx, m.to)
	if err != nil {
		return err
	}
	// Documents that the source does not have are deleted, and so are those at another
	// position, which are created again below.
	same := 0
	for _, e := range existing {
		if same < len(from) && from[same].id == e.id {
			existing[same] = e
			same++
			continue
		}
		if err := retry(ctx, func() error { return c.of(m.to).Delete(ctx, e.id) }); err != nil {
			return err
		}
		m.count(0, 0, 1)
	}
	for i, e := range from {
		if i < same && existing[i].sum == e.sum {
			m.count(1, 0, 0)
			continue
		}
		err := m.load(ctx, 1, func() (int, error) { return c.put(ctx, m, e.id, i < same) })
		if err != nil {
			return err
		}
	}
	return nil
}

// put creates or replaces one document. It ignores a document that has been deleted from
// the source meanwhile; the next Copy deletes it.
func (c collection) put(ctx context.Context, m *mover, id string, replace bool) (int, error) {
	v := c.kind.New()
	_, err := c.of(m.from).Get(ctx, id, v)
	if err != nil && fleet.KindOf(err) == fleet.NotFound {
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	if replace {
		at, err := c.of(m.to).Get(ctx, id, c.kind.New())
		if err != nil {
			return 0, err
		}
		_, err = c.of(m.to).Update(ctx, id, at, v)
		return 1, err
	}
	err = c.of(m.to).Create(ctx, id, v)
	if err != nil && fleet.KindOf(err) == fleet.Conflict {
		err = nil // an earlier attempt created it
	}
	return 1, err
}

// canonical returns the encoding of a document that is compared. It has no revision.
func canonical(v any) ([]byte, error) { return json.Marshal(v) }
