package store_test

import (
	"context"
	"errors"
	"path/filepath"
	"slices"
	"testing"

	"github.com/muster-fleet/muster/server/fleet"
	"github.com/muster-fleet/muster/server/store"
	"github.com/muster-fleet/muster/server/store/sqlite/sqlitetest"
)

// policies counts writes, and calls meddle ahead of each.
type policies struct {
	store.Collection[fleet.Policy]
	meddle func()
	writes int
}

func (p *policies) before() {
	if p.writes++; p.meddle != nil {
		p.meddle()
	}
}

func (p *policies) Create(ctx context.Context, v fleet.Policy) error {
	p.before()
	return p.Collection.Create(ctx, v)
}

func (p *policies) Update(ctx context.Context, v fleet.Policy) (int64, error) {
	p.before()
	return p.Collection.Update(ctx, v)
}

func openPolicies(t *testing.T) *policies {
	t.Helper()
	p := &policies{Collection: sqlitetest.Open(t, filepath.Join(t.TempDir(), "muster.db")).Policies()}
	if err := p.Collection.Create(t.Context(), fleet.Policy{ID: "p", Name: "one", SpaceIDs: []string{"a", "b"}}); err != nil {
		t.Fatal(err)
	}
	return p
}

// rename changes the policy as another writer would.
func (p *policies) rename(t *testing.T, name string) {
	t.Helper()
	v, err := p.Get(t.Context(), "p")
	if err == nil {
		v.Name = name
		_, err = p.Collection.Update(t.Context(), v)
	}
	if err != nil {
		t.Error(err)
	}
}

func TestChangeComparesWhatIsStored(t *testing.T) {
	p := openPolicies(t)
	first := func(_, _ fleet.Policy) error { t.Error("an audit entry of nothing"); return nil }
	v, written, err := store.Change(t.Context(), p, "p", func(v fleet.Policy) (fleet.Policy, error) {
		v.SpaceIDs = slices.Clone(v.SpaceIDs)
		v.Revision = 7 // is none of the document
		return v, nil
	}, first)
	stored, _ := p.Get(t.Context(), "p")
	if err != nil || written || p.writes != 0 || v.Revision != stored.Revision {
		t.Fatalf("the same document: %d writes, %v, revision %d of %d", p.writes, err, v.Revision, stored.Revision)
	}
	v, written, err = store.Change(t.Context(), p, "p", func(v fleet.Policy) (fleet.Policy, error) {
		v.SpaceIDs[0] = "c" // in the list of the document that was read
		return v, nil
	})
	if stored, _ = p.Get(t.Context(), "p"); err != nil || !written || stored.SpaceIDs[0] != "c" || v.Revision != stored.Revision {
		t.Fatalf("another document: %v, stored is %v", err, stored.SpaceIDs)
	}
}

func TestChangeIsRecordedOnceAndBeforeItIsWritten(t *testing.T) {
	p := openPolicies(t)
	names, recorded := []string{"two", "three"}, 0
	p.meddle = func() {
		if recorded != 1 {
			t.Errorf("%d entries when it is written", recorded)
		}
		if len(names) > 0 {
			p.rename(t, names[0])
			names = names[1:]
		}
	}
	describe := func(v fleet.Policy) (fleet.Policy, error) { v.Description += "x"; return v, nil }
	v, _, err := store.Change(t.Context(), p, "p", describe, func(was, next fleet.Policy) error {
		if recorded++; was.Name != "one" || was.Description != "" || next.Description != "x" {
			t.Errorf("recorded is the change from %+v to %+v", was, next)
		}
		return nil
	})
	if err != nil || p.writes != 3 || recorded != 1 || v.Name != "three" || v.Description != "x" {
		t.Fatalf("%d writes, %d entries, %+v: %v", p.writes, recorded, v, err)
	}
	full := errors.New("the disk is full")
	v, written, err := store.Change(t.Context(), p, "p", describe, func(_, _ fleet.Policy) error { return full })
	if !errors.Is(err, full) || written || v.ID != "" || p.writes != 3 {
		t.Fatalf("a change without an entry was written: %v", err)
	}
}

func TestChangeDoesNotRepeatAnEditThatRefuses(t *testing.T) {
	p := openPolicies(t)
	edits := 0
	v, written, err := store.Change(t.Context(), p, "p", func(v fleet.Policy) (fleet.Policy, error) {
		edits++
		return v, fleet.Errorf(fleet.Conflict, "it is in use")
	})
	if fleet.KindOf(err) != fleet.Conflict || edits != 1 || written || v.ID != "" || p.writes != 0 {
		t.Fatalf("%d edits, %d writes, %+v: %v", edits, p.writes, v, err)
	}
}

func TestPutCreatesOrReplaces(t *testing.T) {
	p := openPolicies(t)
	name := func(id, name string) (fleet.Policy, bool, error) {
		return store.Put(t.Context(), p, id, func(was *fleet.Policy) (fleet.Policy, error) {
			if (was == nil) == (id == "p") {
				t.Errorf("%s was %v", id, was)
			}
			return fleet.Policy{ID: id, Name: name}, nil
		})
	}
	for _, c := range []struct {
		id, name string
		writes   int
	}{{"p", "two", 1}, {"q", "three", 1}, {"p", "two", 0}} {
		p.writes = 0
		if _, written, err := name(c.id, c.name); err != nil || p.writes != c.writes || written != (c.writes > 0) {
			t.Fatalf("%+v: %d writes, %v", c, p.writes, err)
		}
		if v, err := p.Get(t.Context(), c.id); err != nil || v.Name != c.name {
			t.Fatalf("%+v: stored is %q, %v", c, v.Name, err)
		}
	}
	// Deleted before the update, and created by another before the creation.
	meddles := []func(){
		func() { _ = p.Delete(t.Context(), "p") },
		func() { _ = p.Collection.Create(t.Context(), fleet.Policy{ID: "p", Name: "other"}) },
	}
	p.meddle, p.writes = func() {
		if len(meddles) > 0 {
			meddles[0]()
			meddles = meddles[1:]
		}
	}, 0
	var found []bool
	_, written, err := store.Put(t.Context(), p, "p", func(was *fleet.Policy) (fleet.Policy, error) {
		found = append(found, was != nil)
		return fleet.Policy{ID: "p", Name: "mine"}, nil
	})
	if v, _ := p.Get(t.Context(), "p"); err != nil || !written || v.Name != "mine" || !slices.Equal(found, []bool{true, false, true}) {
		t.Fatalf("stored is %q, found %v: %v", v.Name, found, err)
	}
	// Change leaves a deleted document deleted.
	p.meddle = func() { _ = p.Delete(t.Context(), "p") }
	_, _, err = store.Change(t.Context(), p, "p", func(v fleet.Policy) (fleet.Policy, error) { v.Name = "again"; return v, nil })
	if fleet.KindOf(err) != fleet.NotFound {
		t.Fatalf("a deleted document was changed: %v", err)
	}
}
