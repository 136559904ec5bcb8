package elastic

import (
	"context"
	"reflect"
	"strings"

	"github.com/muster-fleet/muster/server/fleet"
	"github.com/muster-fleet/muster/server/store"
)

const (
	// documentsPage and largePage are how many documents of some KB, and of hundreds of KB,
	// one request reads.
	documentsPage = 500
	largePage     = 10
)

// documents implements store.Documents for one kind, in an index of its own or in indexDocuments.
type documents struct {
	s      *Store
	index  string
	noun   string
	prefix string // of document ids, if kinds share the index
	page   int    // documents per request
	// fields returns the indexed fields, all of them each time, with nil for no value. It
	// may be nil.
	fields func(v any) map[string]any
}

// indexed are the kinds that are Collected and have an index of their own.
var indexed = map[*store.Info]struct {
	index  string
	fields func(v any) map[string]any
}{
	store.KindPolicies.Info: {indexPolicies, func(v any) map[string]any {
		p := v.(*fleet.Policy)
		return map[string]any{
			"policy_id": p.ID, "revision_idx": p.PolicyRev, "name": text(p.Name), "namespaces": text(p.Namespace),
			"inactivity_timeout": int64(p.InactivityTimeout.Seconds()), "@timestamp": when(p.UpdatedAt),
		}
	}},
	store.KindEnrollmentKeys.Info: {indexEnrollmentKeys, func(v any) map[string]any {
		k := v.(*fleet.EnrollmentKey)
		return map[string]any{
			"api_key_id": k.ID, "name": text(k.Name), "policy_id": text(k.PolicyID), "active": k.Active,
			"created_at": when(k.CreatedAt), "expire_at": k.ExpireAt,
		}
	}},
	store.KindRollouts.Info: {indexRollouts, func(v any) map[string]any {
		r := v.(*fleet.Rollout)
		return map[string]any{
			"id": r.ID, "state": text(string(r.State)), "active": r.State.Active(), "name": text(r.Plan.Name), "version": text(r.Plan.Version),
			"created_at": when(r.CreatedAt), "created_by": text(r.CreatedBy), "started_at": r.StartedAt, "ended_at": r.EndedAt,
		}
	}},
}

// Documents returns the documents of a kind.
func (s *Store) Documents(kind *store.Info) store.Documents {
	if kind == store.KindRollouts.Info {
		return rolloutDocuments{s.documents(kind)}
	}
	return s.documents(kind)
}

func (s *Store) documents(kind *store.Info) documents {
	d := documents{s: s, index: indexDocuments, noun: kind.Name, prefix: kind.Name + "/", page: documentsPage}
	if kind.Large {
		d.page = largePage
	}
	if own, ok := indexed[kind]; ok {
		d.index, d.fields, d.prefix = own.index, own.fields, ""
	}
	return d
}

func (c documents) key(id string) key { return key{c.index, c.prefix + id} }

func (c documents) source(id string, v any) (map[string]any, error) {
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

func (c documents) Create(ctx context.Context, id string, v any) error {
	source, err := c.source(id, v)
	if err != nil {
		return err
	}
	source["born"] = c.s.clock.next()
	out, err := c.s.c.write1(ctx, "create "+c.noun, withNonce(write{verb: create, key: c.key(id)}, source))
	if err == nil && out.conflict {
		err = store.Exists(c.noun, id)
	}
	return err
}

func (c documents) Get(ctx context.Context, id string, v any) (int64, error) {
	f, err := c.s.c.get(ctx, "read "+c.noun, c.key(id), packedFields...)
	if err == nil && !f.exists {
		err = store.Missing(c.noun, id)
	}
	if err != nil {
		return 0, err
	}
	return f.guard.revision(), c.decode(id, f.source, v)
}

func (c documents) decode(id string, source []byte, v any) error {
	var p packed
	if err := decodeSource(c.noun, id, source, &p); err != nil {
		return err
	}
	return c.s.c.unpack(p, c.noun, id, v)
}

func (c documents) Update(ctx context.Context, id string, revision int64, v any) (int64, error) {
	source, err := c.source(id, v)
	if err != nil {
		return 0, err
	}
	return c.s.c.updateGuarded(ctx, c.noun, id, c.key(id), guardOf(revision), source, reflect.TypeOf(v))
}

// updateGuarded replaces fields of a document of a type that must match the guard, and returns the
// document's new revision.
func (c *client) updateGuarded(ctx context.Context, noun, id string, k key, g guard, fields map[string]any, replaces reflect.Type) (int64, error) {
	op := "update " + noun
	if g.term < 1 || g.seq < 0 {
		// No document has this guard, and Elasticsearch would refuse it.
		f, err := c.get(ctx, op, k, "noun")
		switch {
		case err != nil:
			return 0, err
		case !f.exists:
			return 0, store.Missing(noun, id)
		}
		return 0, store.Changed(noun, id)
	}
	out, err := c.write1(ctx, op, withNonce(write{verb: update, key: k, guard: g, replaces: replaces}, fields))
	switch {
	case err != nil:
		return 0, err
	case out.missing:
		return 0, store.Missing(noun, id)
	case out.conflict:
		return 0, store.Changed(noun, id)
	}
	return out.guard.revision(), nil
}

func (c documents) Delete(ctx context.Context, id string) error {
	k := c.key(id)
	if !k.validID() {
		return nil
	}
	_, err := c.s.c.write1(ctx, "delete "+c.noun, write{verb: remove, key: k})
	c.s.c.unreadable.Forget(c.noun, id)
	return err
}

func (c documents) List(ctx context.Context, offset, limit int, f func(revision int64, decode func(v any) error) error) (int, error) {
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
		return 0, err
	}
	for _, h := range hits {
		err := f(h.guard().revision(), func(v any) error { return c.decode(strings.TrimPrefix(h.ID, c.prefix), h.Source, v) })
		if err != nil && !c.s.c.unreadable.Skip(err) {
			return 0, err
		}
	}
	return total, nil
}

// settings implements store.Settings with documents in indexDocuments.
type settings struct{ s *Store }

// setting is the value of one name.
type setting struct {
	Name     string `json:"name"`
	Value    []byte `json:"value"`
	Revision int64  `json:"-"`
}

var settingKind = store.OwnKind(store.KindSettings.Name, func(v *setting) (string, *int64) { return v.Name, &v.Revision })

func (g settings) collection() store.Collection[setting] { return own(g.s, settingKind) }

// own returns the collection of a kind that only this package knows.
func own[T any](s *Store, kind store.Kind[T]) store.Collection[T] {
	return kind.In(s.documents(kind.Info))
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
