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

// collection is a noun of which there are few. Its lists show what was created
// last first, so what is created here is created in the order it was there.
type collection[T any] struct {
	of   func(store.Store) store.Collection[T]
	head func(*T) (id string, revision *int64)
	// page is how many documents are read at once.
	page int
}

// Of the large ones 300 KB and 30 MB: rollouts with many batches, previews of many
// targets.
var pages = map[string]int{"rollouts": 20, "previews": 1}

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

// newestFirst calls f with every document.
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
	place := 0
	return c.newestFirst(ctx, s, func(id string, v *T) {
		f(id, place, v)
		place++
	})
}

// entry is what is kept in memory of a document.
type entry struct {
	id  string
	sum [sha256.Size]byte
}

// entries are those of a store, oldest first.
func (c collection[T]) entries(ctx context.Context, s store.Store) ([]entry, error) {
	var out []entry
	var broken error
	seen := map[string]bool{} // what is created meanwhile moves a document to the next page
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
	there, err := c.entries(ctx, m.to)
	if err != nil {
		return err
	}
	// What is gone goes, and so does what stands where another should: it is created
	// anew in its turn.
	same := 0
	for _, e := range there {
		if same < len(from) && from[same].id == e.id {
			there[same] = e
			same++
			continue
		}
		if err := again(ctx, func() error { return c.of(m.to).Delete(ctx, e.id) }); err != nil {
			return err
		}
		m.did(0, 0, 1)
	}
	for i, e := range from {
		if i < same && there[i].sum == e.sum {
			m.did(1, 0, 0)
			continue
		}
		err := m.load(ctx, 1, func() (int, error) { return c.put(ctx, m, e.id, i < same) })
		if err != nil {
			return err
		}
	}
	return nil
}

// put creates one, or replaces it. What has gone meanwhile the next copy removes.
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
		return 1, c.of(m.to).Update(ctx, v)
	}
	err = c.of(m.to).Create(ctx, v)
	if err != nil && fleet.KindOf(err) == fleet.Conflict {
		err = nil // a try before this one had done it
	}
	return 1, err
}

// canonical is a document as it is compared: without the store's own revision.
func canonical(v any) ([]byte, error) { return json.Marshal(v) }
