package audit_test

import (
	"context"
	"errors"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"github.com/muster-fleet/muster/server/fleet"
	"github.com/muster-fleet/muster/server/store"
	"github.com/muster-fleet/muster/server/store/audit"
	"github.com/muster-fleet/muster/server/store/sqlite/sqlitetest"
)

var noon = time.Date(2026, 3, 3, 12, 0, 0, 0, time.UTC)

func open(t *testing.T) (below, watched store.Store) {
	t.Helper()
	below = sqlitetest.Open(t, filepath.Join(t.TempDir(), "muster.db"))
	return below, audit.Watch(below)
}

func entries(t *testing.T, s store.Store, subject string) []fleet.AuditEntry {
	t.Helper()
	list, _, err := s.Audit().List(t.Context(), store.AuditQuery{Subject: subject, Limit: 9})
	if err != nil {
		t.Fatal(err)
	}
	return list
}

func call(subject string) fleet.AuditEntry {
	return fleet.AuditEntry{At: noon, Actor: "kim", Verb: "thing.delete", Subject: subject, Why: "OPS-7", Text: "called DELETE /" + subject}
}

func TestEntriesOfACallGetItsReason(t *testing.T) {
	_, db := open(t)
	ctx, change := audit.BeginCall(t.Context(), call("k"))
	defer change.End()
	for i, e := range []fleet.AuditEntry{
		{Actor: "kim", Verb: "key.revoke", Subject: "k", Text: "revoked the key k"},
		{Actor: "kim", Verb: "key.revoke", Subject: "k", Text: "revoked the key k", Why: "its own reason"},
	} {
		if err := audit.Record(ctx, db.Audit(), noon.Add(time.Duration(i)*time.Second), e); err != nil {
			t.Fatal(err)
		}
	}
	if err := audit.RecordCall(ctx, db); err != nil { // the call has entries
		t.Fatal(err)
	}
	if err := audit.Record(t.Context(), db.Audit(), noon, fleet.AuditEntry{Actor: "muster", Subject: "other"}); err != nil {
		t.Fatal("outside a call:", err)
	}
	list := entries(t, db, "k")
	if len(list) != 2 || list[0].Why != "its own reason" || list[1].Why != "OPS-7" || list[1].Text != "kim revoked the key k" || list[1].ID == list[0].ID {
		t.Errorf("the trail has %+v", list)
	}
}

// writes are a write of each kind that operators know of.
func writes(s store.Store) map[string]func(context.Context) error {
	return map[string]func(context.Context) error{
		"create": func(ctx context.Context) error { return s.Views().Create(ctx, fleet.View{ID: "v"}) },
		"delete": func(ctx context.Context) error { return s.PublisherKeys().Delete(ctx, "k") },
		"update": func(ctx context.Context) error {
			_, err := s.Freezes().Update(ctx, fleet.Freeze{ID: "none"})
			if fleet.KindOf(err) == fleet.NotFound || fleet.KindOf(err) == fleet.Conflict {
				return nil
			}
			return err
		},
		"agent":   func(ctx context.Context) error { return s.Agents().Delete(ctx, "a") },
		"rollout": func(ctx context.Context) error { return s.Rollouts().Delete(ctx, "r") },
		"action":  func(ctx context.Context) error { return s.Actions().Delete(ctx, "x") },
		"setting": func(ctx context.Context) error { return s.Settings().Delete(ctx, "s") },
	}
}

func TestCallIsRecordedBeforeItChangesAnything(t *testing.T) {
	below, db := open(t)
	for name, write := range writes(db) {
		ctx, change := audit.BeginCall(t.Context(), call(name))
		for range 2 {
			if err := write(ctx); err != nil && name != "create" {
				t.Errorf("%s: %v", name, err)
			}
		}
		if got := entries(t, below, name); len(got) != 1 || got[0].Text != "kim called DELETE /"+name || got[0].Why != "OPS-7" {
			t.Errorf("%s: the trail has %+v", name, got)
		}
		change.End()
		if err := write(audit.Begin(t.Context(), "no call")); err != nil && name != "create" {
			t.Errorf("%s in no call: %v", name, err)
		}
	}
}

// fails is a store that takes no entries.
type fails struct{ store.Store }

type failingTrail struct{ store.Audit }

var errFull = errors.New("the disk is full")

func (f fails) Audit() store.Audit                                    { return failingTrail{f.Store.Audit()} }
func (failingTrail) Append(context.Context, []fleet.AuditEntry) error { return errFull }

func TestNothingIsChangedWithoutAnEntry(t *testing.T) {
	below, _ := open(t)
	if err := below.PublisherKeys().Create(t.Context(), fleet.PublisherKey{ID: "k"}); err != nil {
		t.Fatal(err)
	}
	for name, write := range writes(audit.Watch(fails{below})) {
		ctx, change := audit.BeginCall(t.Context(), call(name))
		if err := write(ctx); !errors.Is(err, errFull) {
			t.Errorf("%s: %v", name, err)
		}
		change.End()
	}
	for name, write := range writes(audit.Watch(below)) {
		caller, hangUp := context.WithCancel(t.Context())
		ctx, change := audit.BeginCall(caller, call(name))
		hangUp()
		<-ctx.Done() // nothing was recorded
		if err := write(ctx); fleet.KindOf(err) != fleet.Unavailable {
			t.Errorf("%s after its caller has hung up: %v", name, err)
		}
		if got := entries(t, below, name); len(got) > 0 {
			t.Errorf("%s: the trail has %+v", name, got)
		}
		change.End()
	}
	if _, err := below.PublisherKeys().Get(t.Context(), "k"); err != nil {
		t.Errorf("the key: %v", err)
	}
}

func TestCallThatIsRecordedGoesOnWithoutItsCaller(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		trail := audit.Watch(taking{}).Audit()
		caller, hangUp := context.WithCancel(t.Context())
		ctx, change := audit.BeginCall(caller, call("k"))
		if err := audit.Record(ctx, trail, noon, fleet.AuditEntry{Subject: "k"}); err != nil {
			t.Fatal(err)
		}
		hangUp()
		time.Sleep(time.Minute)
		if err := ctx.Err(); err != nil {
			t.Errorf("a minute after its caller has hung up: %v", err)
		}
		time.Sleep(2 * time.Minute)
		if ctx.Err() == nil {
			t.Error("the call has no end")
		}
		change.End()
	})
}

// taking is a store that takes every entry.
type taking struct{ store.Store }

type takingTrail struct{ store.Audit }

func (taking) Audit() store.Audit                                    { return takingTrail{} }
func (takingTrail) Append(context.Context, []fleet.AuditEntry) error { return nil }

// TestStoreIsWatchedWhole fails for a new kind of document that is neither watched nor named here.
func TestStoreIsWatchedWhole(t *testing.T) {
	unwatched := map[string]string{
		"result": "is what agents say", "history record": "follows from agents", "event": "follows a change", "sample": "is the server's",
		"lease": "is a server's", "package data": "comes before its package, and goes after it", "preview": "changes nothing",
		"accepted order": "holds the entry that is written for it", "agent listing": "follows an action",
		"policy lock": "follows its rollout", "target": "follows its rollout", "audit entry": "is the trail",
	}
	below, db := open(t)
	for _, kind := range store.Kinds() {
		_, is := unwatched[kind.Name]
		if kind.Inner != is {
			t.Errorf("%s: Inner is %t, want %t", kind.Name, kind.Inner, is)
		}
		if !kind.Collected() {
			continue // see writes
		}
		ctx, change := audit.BeginCall(t.Context(), call(kind.Name))
		if err := db.Documents(kind).Delete(ctx, "none"); err != nil {
			t.Errorf("%s: %v", kind.Name, err)
		}
		if n := len(entries(t, below, kind.Name)); n != 0 == is {
			t.Errorf("%s: there are %d entries of the call", kind.Name, n)
		}
		change.End()
	}
}
