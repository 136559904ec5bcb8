package storetest

import (
	"context"
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"sync"
	"testing"

	"github.com/muster-fleet/muster/server/fleet"
	"github.com/muster-fleet/muster/server/store"
)

func testCollections(t *testing.T, cfg Config) {
	eachCollection(func(k collected) { k.test(t, cfg) })

	t.Run("documents of different kinds may have the same id", func(t *testing.T) {
		ctx, s := t.Context(), cfg.open(t)
		must(t, s.AdminKeys().Create(ctx, fleet.AdminKey{ID: "same"}))
		must(t, s.EnrollmentKeys().Create(ctx, fleet.EnrollmentKey{ID: "same"}))
		must(t, s.AdminKeys().Delete(ctx, "same"))
		value(s.EnrollmentKeys().Get(ctx, "same"))(t)
	})

	t.Run("the values of a collection have their revision", func(t *testing.T) {
		ctx, c := t.Context(), cfg.open(t).Webhooks()
		must(t, c.Create(ctx, fleet.Webhook{ID: "h"}))
		h := value(c.Get(ctx, "h"))(t)
		h.Name = "n"
		revision := value(c.Update(ctx, h))(t)
		cfg.eventually(t, func() error {
			list, n, err := c.List(ctx, 0, 0)
			if err != nil || n != 1 || len(list) != 1 || list[0].Revision != revision || list[0].Name != "n" {
				return fmt.Errorf("there are %+v: %w", list, err)
			}
			return nil
		})
	})

	t.Run("Contents counts the documents of every kind", func(t *testing.T) {
		ctx, s := t.Context(), cfg.open(t)
		must(t, Fill(ctx, s, 9))
		cfg.eventually(t, func() error {
			got, err := s.Contents(ctx)
			if err != nil {
				return err
			}
			for _, k := range store.Kinds() {
				if k == store.KindPackageData {
					continue // of the packages of this suite there are no bytes
				}
				want := got[k.Name]
				switch {
				case k.Collected():
					want, err = s.Documents(k).List(ctx, 0, 1, func(int64, func(any) error) error { return nil })
				case k == store.KindAgents:
					want = 9
				case k == store.KindEvents:
					want = 20
				}
				if n := got[k.Name]; err != nil || n == 0 || n != want {
					return fmt.Errorf("of %s it counts %d, want %d: %w", k.Plural, n, want, err)
				}
				delete(got, k.Name)
			}
			return differs(got, map[string]int{})
		})
	})
}

// eachCollection calls f with every kind that is Collected, except rollouts, which have tests of
// their own.
func eachCollection(f func(k collected)) {
	for _, kind := range store.Kinds() {
		if kind.Collected() && kind != store.KindRollouts.Info {
			f(collected{kind})
		}
	}
}

// get returns the value of a document with its revision.
func (k collected) get(ctx context.Context, c store.Documents, id string) (v any, err error) {
	v = k.New()
	_, at := k.Head(v)
	*at, err = c.Get(ctx, id, v)
	return v, err
}

// update updates the document of a value.
func (k collected) update(ctx context.Context, c store.Documents, v any) (int64, error) {
	id, at := k.Head(v)
	return c.Update(ctx, id, *at, v)
}

// list returns values with their revisions.
func (k collected) list(ctx context.Context, c store.Documents, offset, limit int) (list []any, total int, err error) {
	total, err = c.List(ctx, offset, limit, func(revision int64, decode func(any) error) error {
		v := k.New()
		if err := decode(v); err != nil {
			return err
		}
		_, at := k.Head(v)
		*at = revision
		list = append(list, v)
		return nil
	})
	return list, total, err
}

func (k collected) revision(v any) int64 { _, r := k.Head(v); return *r }

func (k collected) test(t *testing.T, cfg Config) {
	ctx := t.Context()

	t.Run(k.Plural+" are created, updated and deleted", func(t *testing.T) {
		c := cfg.open(t).Documents(k.Info)
		want := k.make(1)
		id, read := k.id(want), k.New()
		if err := json.Unmarshal([]byte(asText(want)), read); err != nil || id == "" || id == k.id(k.make(2)) {
			t.Fatalf("the value %s of the suite, with the id %q, is not one of this kind: %v", asText(want), id, err)
		}
		equal(t, read, want) // the suite can tell what a store has lost
		_, err := k.get(ctx, c, id)
		wantKind(t, err, fleet.NotFound)
		_, err = k.update(ctx, c, want)
		wantKind(t, err, fleet.NotFound)
		must(t, c.Create(ctx, id, want))
		wantKind(t, c.Create(ctx, id, want), fleet.Conflict)

		scribble(reflect.ValueOf(want))
		want = k.make(1)
		got := value(k.get(ctx, c, id))(t)
		equal(t, got, want)
		scribble(reflect.ValueOf(got))
		got = value(k.get(ctx, c, id))(t)
		equal(t, got, want)

		old := k.copyOf(got)
		k.change(got, 7)
		first := value(k.update(ctx, c, got))(t)
		equal(t, value(k.get(ctx, c, id))(t), got)
		k.change(old, 8)
		_, err = k.update(ctx, c, old)
		wantKind(t, err, fleet.Conflict)
		equal(t, value(k.get(ctx, c, id))(t), got)

		_, revision := k.Head(got)
		*revision = first
		second := value(k.update(ctx, c, got))(t) // a write that changes nothing has a revision, too
		now := value(k.get(ctx, c, id))(t)
		if second == first || k.revision(now) != second {
			t.Fatalf("two updates returned the revisions %d and %d, Get returns %d", first, second, k.revision(now))
		}
		must(t, c.Delete(ctx, id))
		must(t, c.Delete(ctx, id))
		_, err = k.get(ctx, c, id)
		wantKind(t, err, fleet.NotFound)
		must(t, c.Create(ctx, id, k.make(1)))
		_, err = k.update(ctx, c, now)
		wantKind(t, err, fleet.Conflict) // the revision is that of the deleted one
	})

	t.Run(k.Plural+" are listed newest first, in pages", func(t *testing.T) {
		c := cfg.open(t).Documents(k.Info)
		list, total, err := k.list(ctx, c, 0, 0)
		must(t, err)
		if len(list) != 0 || total != 0 {
			t.Fatalf("an empty store lists %d of %d", len(list), total)
		}
		want := []string{}
		for i := range 7 {
			v := k.make(i)
			must(t, c.Create(ctx, k.id(v), v))
			want = append(want, k.id(v))
		}
		slices.Reverse(want)
		for _, page := range []struct{ offset, limit, from, to int }{
			{0, 0, 0, 7}, {0, 3, 0, 3}, {3, 3, 3, 6}, {6, 3, 6, 7}, {7, 3, 7, 7}, {5, 0, 5, 7}, {9, 0, 7, 7},
		} {
			cfg.eventually(t, func() error {
				list, total, err := k.list(ctx, c, page.offset, page.limit)
				if err != nil || total != 7 {
					return fmt.Errorf("total is %d, want 7: %w", total, err)
				}
				got := []string{}
				for _, v := range list {
					got = append(got, k.id(v))
				}
				return differs(got, want[page.from:page.to])
			})
		}
		// The revision of a listed value can be used for an update.
		list, _, err = k.list(ctx, c, 0, 1)
		must(t, err)
		if alone := value(k.get(ctx, c, k.id(list[0])))(t); k.revision(list[0]) != k.revision(alone) {
			t.Fatalf("List returns revision %d, Get returns %d", k.revision(list[0]), k.revision(alone))
		}
		k.change(list[0], 9)
		value(k.update(ctx, c, list[0]))(t)
	})

	t.Run("one of several concurrent updates of "+k.Plural+" succeeds", func(t *testing.T) {
		stores := cfg.openTwice(t)
		v := k.make(1)
		id := k.id(v)
		must(t, stores[0].Documents(k.Info).Create(ctx, id, v))
		start := value(k.get(ctx, stores[0].Documents(k.Info), id))(t)
		var all sync.WaitGroup
		results := make([]error, 6)
		for w := range results {
			mine := k.copyOf(start)
			k.change(mine, 100+w)
			all.Go(func() { _, results[w] = k.update(ctx, stores[w%2].Documents(k.Info), mine) })
		}
		all.Wait()
		won := 0
		for w, err := range results {
			if err != nil {
				wantKind(t, err, fleet.Conflict)
				continue
			}
			won++
			want := k.copyOf(start)
			k.change(want, 100+w)
			for _, s := range stores {
				equal(t, value(k.get(ctx, s.Documents(k.Info), id))(t), want)
			}
		}
		if won != 1 {
			t.Fatalf("%d updates succeeded, want 1", won)
		}
	})
}
