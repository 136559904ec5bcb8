package elastic

import (
	"context"
	"strings"

	"github.com/muster-fleet/muster/server/fleet"
)

const (
	// documentsPage and largePage are how many documents of some KB, and of hundreds of KB,
	// one request reads.
	documentsPage = 500
	largePage     = 10
)

// collection implements store.Collection for one noun, in an index of its own or in
// indexDocuments.
type collection[T any] struct {
	s      *Store
	index  string
	noun   string
	prefix string // of document ids, if nouns share the index
	page   int    // documents per request
	// head returns the id of a value and a pointer to its revision.
	head func(*T) (id string, revision *int64)
	// fields returns the indexed fields, all of them each time, with nil for no value. It
	// may be nil.
	fields func(*T) map[string]any
}

// small returns the collection of a noun with few documents.
func small[T any](s *Store, noun string, head func(*T) (string, *int64)) collection[T] {
	return collection[T]{s: s, index: indexDocuments, noun: noun, prefix: noun + "/", page: documentsPage, head: head}
}

func (c collection[T]) key(id string) key { return key{c.index, c.prefix + id} }

func (c collection[T]) source(id string, v *T) (map[string]any, error) {
	p, err := pack(c.noun, id, v)
	if err != nil {
		return nil, err
	}
	fields := map[string]any{}
	if c.fields != nil {
		fields = c.fields(v)
	}
	if c.prefix != "" {
		fields["noun"] = c.noun
	}
	return withPacked(fields, p), nil
}

func (c collection[T]) Create(ctx context.Context, v T) error {
	id, _ := c.head(&v)
	source, err := c.source(id, &v)
	if err != nil {
		return err
	}
	source["born"] = c.s.clock.next()
	out, err := c.s.c.write1(ctx, "create "+c.noun, withNonce(write{verb: create, key: c.key(id)}, source))
	if err == nil && out.conflict {
		err = exists(c.noun, id)
	}
	return err
}

func (c collection[T]) Get(ctx context.Context, id string) (T, error) {
	f, err := c.s.c.get(ctx, "read "+c.noun, c.key(id), packedFields...)
	if err == nil && !f.exists {
		err = missing(c.noun, id)
	}
	if err != nil {
		return *new(T), err
	}
	return c.value(id, f.source, f.guard)
}

func (c collection[T]) value(id string, source []byte, g guard) (T, error) {
	var (
		p packed
		v T
	)
	if err := decodeSource(c.noun, id, source, &p); err != nil {
		return v, err
	}
	if err := p.unpack(c.noun, id, &v); err != nil {
		return *new(T), err
	}
	_, at := c.head(&v)
	*at = g.revision()
	return v, nil
}

func (c collection[T]) Update(ctx context.Context, v T) (int64, error) {
	id, at := c.head(&v)
	source, err := c.source(id, &v)
	if err != nil {
		return 0, err
	}
	return c.s.c.updateGuarded(ctx, c.noun, id, c.key(id), guardOf(*at), source)
}

// updateGuarded replaces fields of a document that must match the guard, and returns the
// document's new revision.
func (c *client) updateGuarded(ctx context.Context, noun, id string, k key, g guard, fields map[string]any) (int64, error) {
	op := "update " + noun
	if g.term < 1 || g.seq < 0 {
		// No document has this guard, and Elasticsearch would refuse it.
		f, err := c.get(ctx, op, k, "noun")
		switch {
		case err != nil:
			return 0, err
		case !f.exists:
			return 0, missing(noun, id)
		}
		return 0, changed(noun, id)
	}
	out, err := c.write1(ctx, op, withNonce(write{verb: update, key: k, guard: g}, fields))
	switch {
	case err != nil:
		return 0, err
	case out.missing:
		return 0, missing(noun, id)
	case out.conflict:
		return 0, changed(noun, id)
	}
	return out.guard.revision(), nil
}

func (c collection[T]) Delete(ctx context.Context, id string) error {
	k := c.key(id)
	if !k.validID() {
		return nil
	}
	_, err := c.s.c.write1(ctx, "delete "+c.noun, write{verb: remove, key: k})
	c.s.c.unreadable.Forget(c.noun, id)
	return err
}

func (c collection[T]) List(ctx context.Context, offset, limit int) ([]T, int, error) {
	if limit == 0 {
		limit = all
	}
	b := body{
		"sort":                []any{body{"born": "desc"}},
		"_source":             packedFields,
		"seq_no_primary_term": true,
	}
	if c.prefix != "" {
		b["query"] = body{"term": body{"noun": c.noun}}
	}
	hits, total, err := c.s.c.page(ctx, "list "+c.noun+" documents", c.index, b, offset, limit, c.page)
	if err != nil {
		return nil, 0, err
	}
	out, err := valuesOf(c.s.c, hits, func(h hit) (T, error) { return c.value(strings.TrimPrefix(h.ID, c.prefix), h.Source, h.guard()) })
	return out, total, err
}

// settings implements store.Settings with documents in indexDocuments.
type settings struct{ s *Store }

// setting is the value of one name.
type setting struct {
	Name     string `json:"name"`
	Value    []byte `json:"value"`
	Revision int64  `json:"-"`
}

func (g settings) collection() collection[setting] {
	return small(g.s, "setting", func(v *setting) (string, *int64) { return v.Name, &v.Revision })
}

func (g settings) Get(ctx context.Context, name string) ([]byte, error) {
	stored, err := g.collection().Get(ctx, name)
	return stored.Value, err
}

func (g settings) Delete(ctx context.Context, name string) error {
	return g.collection().Delete(ctx, name)
}

func (g settings) Each(ctx context.Context, f func(name string, v []byte)) error {
	list, _, err := g.collection().List(ctx, 0, 0)
	for _, v := range list {
		f(v.Name, v.Value)
	}
	return err
}

func (g settings) GetOrPut(ctx context.Context, name string, v []byte) ([]byte, error) {
	c := g.collection()
	stored, err := c.Get(ctx, name)
	if fleet.KindOf(err) != fleet.NotFound || err == nil {
		return stored.Value, err
	}
	if err := c.Create(ctx, setting{Name: name, Value: v}); err != nil && fleet.KindOf(err) != fleet.Conflict {
		return nil, err
	}
	stored, err = c.Get(ctx, name) // another process may have been first
	return stored.Value, err
}
