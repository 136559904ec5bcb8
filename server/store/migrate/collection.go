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

// collection copies and compares the documents of one store.Collection. Its lists are in
// order of creation, so documents are created in the order of the source.
type collection[T any] struct {
	of   func(store.Store) store.Collection[T]
	head func(*T) (id string, revision *int64)
	page int // documents per request
}

// pages are the page sizes of collections with large documents: a rollout with many batches
// has 300 KB, a preview of many targets 30 MB, and a group that names ten thousand agents
// 400 KB.
var pages = map[string]int{"rollouts": 20, "rollout groups": 20, "previews": 1, "accepted orders": 1}

func of[T any](name string, get func(store.Store) store.Collection[T], head func(*T) (string, *int64)) noun {
	c := collection[T]{of: get, head: head, page: 500}
	if n, ok := pages[name]; ok {
		c.page = n
	}
	return noun{name: name, total: c.total, copy: c.copy, each: c.each}
}

func (c collection[T]) total(ctx context.Context, s store.Store) (int, error) {
	_, n, err := c.of(s).List(ctx, 0, 1)
	return n, err
}

// newestFirst calls f with every document, newest first.
func (c collection[T]) newestFirst(ctx context.Context, s store.Store, f func(id string, v *T)) error {
	for offset := 0; ; offset += c.page {
		list, _, err := c.of(s).List(ctx, offset, c.page)
		if err != nil {
			return err
		}
		for i := range list {
			id, _ := c.head(&list[i])
			f(id, &list[i])
		}
		if len(list) < c.page {
			return nil
		}
	}
}

func (c collection[T]) each(ctx context.Context, s store.Store, _ int64, f func(string, int, any)) error {
	position := 0
	return c.newestFirst(ctx, s, func(id string, v *T) {
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
func (c collection[T]) entries(ctx context.Context, s store.Store) ([]entry, error) {
	var out []entry
	var broken error
	seen := map[string]bool{} // a document created meanwhile moves others to the next page
	err := c.newestFirst(ctx, s, func(id string, v *T) {
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

func (c collection[T]) copy(ctx context.Context, m *mover) error {
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
func (c collection[T]) put(ctx context.Context, m *mover, id string, replace bool) (int, error) {
	v, err := c.of(m.from).Get(ctx, id)
	if err != nil && fleet.KindOf(err) == fleet.NotFound {
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	_, revision := c.head(&v)
	if replace {
		old, err := c.of(m.to).Get(ctx, id)
		if err != nil {
			return 0, err
		}
		_, at := c.head(&old)
		*revision = *at
		_, err = c.of(m.to).Update(ctx, v)
		return 1, err
	}
	err = c.of(m.to).Create(ctx, v)
	if err != nil && fleet.KindOf(err) == fleet.Conflict {
		err = nil // an earlier attempt created it
	}
	return 1, err
}

// canonical returns the encoding of a document that is compared. It has no revision.
func canonical(v any) ([]byte, error) { return json.Marshal(v) }
