package migrate_test

import (
	"context"
	"database/sql"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/muster-fleet/muster/server/fleet"
	"github.com/muster-fleet/muster/server/store"
	"github.com/muster-fleet/muster/server/store/elastic"
	"github.com/muster-fleet/muster/server/store/migrate"
	"github.com/muster-fleet/muster/server/store/sqlite"
	"github.com/muster-fleet/muster/server/store/storetest"
	"github.com/muster-fleet/muster/testing/kit/esnode"
)

func TestMain(m *testing.M) { os.Exit(esnode.With(m).Run()) }

// migration is a filled SQLite store, and an empty Elasticsearch store to copy it to.
type migration struct {
	t     *testing.T
	path  string
	from  *sqlite.Store
	place esnode.Place
	to    *elastic.Store
}

func newMigration(t *testing.T, agents int) *migration {
	t.Helper()
	w := &migration{t: t, path: filepath.Join(t.TempDir(), "muster.db"), place: esnode.Shared(t)}
	var err error
	if w.from, err = sqlite.Open(t.Context(), w.path, sqlite.Options{}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { w.from.Close() })
	w.do(storetest.Fill(t.Context(), w.from, agents))
	if w.to, err = elastic.Open(t.Context(), w.options()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { w.to.Close() })
	return w
}

func (w *migration) options() elastic.Options {
	p := w.place
	return elastic.Options{URLs: p.URLs, Prefix: p.Prefix, Username: p.Username, Password: p.Password, APIKey: p.APIKey, CACert: p.CA, Loading: true}
}

func (w *migration) do(err error) {
	w.t.Helper()
	if err != nil {
		w.t.Fatal(err)
	}
}

func ignoreSteps(migrate.Step) {}

func (w *migration) copy() map[string]migrate.Copied {
	w.t.Helper()
	list, err := migrate.Copy(w.t.Context(), w.from, w.to, ignoreSteps)
	w.do(err)
	out := map[string]migrate.Copied{}
	for _, c := range list {
		out[c.Noun] = c
	}
	return out
}

// same fails the test unless both stores have the same documents of every noun, and at least
// one of each.
func (w *migration) same() map[string]migrate.Compared {
	w.t.Helper()
	list, err := migrate.Verify(w.t.Context(), w.from, w.to, ignoreSteps)
	w.do(err)
	out := map[string]migrate.Compared{}
	for _, c := range list {
		if !c.Same() || c.From == 0 || c.Differs != "" {
			w.t.Errorf("%+v", c)
		}
		out[c.Noun] = c
	}
	return out
}

// sql changes the file in ways that the store's interface does not allow.
func (w *migration) sql(statement string, args ...any) {
	w.t.Helper()
	db, err := sql.Open("sqlite", w.path)
	w.do(err)
	defer db.Close()
	_, err = db.ExecContext(w.t.Context(), statement, args...)
	w.do(err)
}

func (w *migration) actionSeqs(s store.Store) map[string]int64 {
	w.t.Helper()
	list, err := s.Actions().After(w.t.Context(), 0, 1000)
	w.do(err)
	out := map[string]int64{}
	for _, a := range list {
		out[a.ID] = a.Seq
	}
	return out
}

func TestCopyMovesEverythingAndThenOnlyChanges(t *testing.T) {
	const agents = 2_000
	w := newMigration(t, agents)
	ctx := t.Context()
	// Gaps in the sequence numbers.
	w.sql(`DELETE FROM actions WHERE id = 'first-3'`)
	w.sql(`UPDATE events SET seq = seq + 12345`)

	w.copy()
	got := w.same()
	if n := got["agents"].To; n != agents {
		t.Errorf("%d agents were compared", n)
	}
	from, err := store.Generation(ctx, w.from.Settings())
	w.do(err)
	w.copy()
	w.same()
	to, err := store.Generation(ctx, w.to.Settings())
	w.do(err)
	w.copy()
	if kept, err := store.Generation(ctx, w.to.Settings()); from == to || kept != to || err != nil {
		t.Errorf("the generations are %q, %q and %q: %v", from, to, kept, err)
	}
	if _, n, err := w.to.Leases().List(ctx, 0, 0); n != 0 || err != nil {
		t.Errorf("%d leases were copied, %v", n, err)
	}
	if _, n, err := w.to.Servers().List(ctx, 0, 0); n != 0 || err != nil {
		t.Errorf("%d servers were copied, %v", n, err)
	}
	seqs := w.actionSeqs(w.to)
	if seqs["first-2"] != 3 || seqs["first-4"] != 5 || len(seqs) != 9 {
		t.Errorf("Seqs of the actions are %v", seqs)
	}
	first, last, err := w.to.Events().Bounds(ctx)
	if wantFirst, wantLast, wantErr := w.from.Events().Bounds(ctx); first != wantFirst || last != wantLast || first < 12345 || err != nil || wantErr != nil {
		t.Errorf("events are from %d to %d, want from %d to %d: %v, %v", first, last, wantFirst, wantLast, err, wantErr)
	}
	a, err := w.to.Agents().ByAccessKey(ctx, "key-agent-000004")
	if err != nil || a.ID != "agent-000004" {
		t.Errorf("ByAccessKey returns %q, %v", a.ID, err)
	}

	w.do(storetest.Change(ctx, w.from))
	w.do(w.from.Actions().Delete(ctx, "first-4")) // as retention does
	copied := w.copy()
	if c := copied["actions"]; c.Removed != 1 {
		t.Errorf("one action was removed: %+v", c)
	}
	if c := copied["agents"]; c.Written != 3 || c.Removed != 1 {
		t.Errorf("three agents were changed or created, and one removed: %+v", c)
	}
	if c := copied["results"]; c.Written != 3 {
		t.Errorf("three results are new: %+v", c)
	}
	if _, err := w.to.Agents().ByAccessKey(ctx, "key-agent-000002"); fleet.KindOf(err) != fleet.NotFound {
		t.Errorf("ByAccessKey of a replaced key: %v", err)
	}

	t.Run("Verify names the first difference", func(t *testing.T) {
		_, err := store.UpdateAgent(ctx, w.to.Agents(), "agent-000011", func(a *fleet.Agent) bool { a.Version = "9.9.9"; return true })
		w.do(err)
		w.do(w.to.Agents().Touch(ctx, []fleet.Touch{{AgentID: "agent-000007", At: time.Now(), Status: "online"}}))
		w.do(w.to.Policies().Create(ctx, fleet.Policy{ID: "extra"}))
		// The order of a list matters: this one moves to the other end.
		list, _, err := w.to.Freezes().List(ctx, 0, 0)
		w.do(err)
		oldest := list[len(list)-1]
		w.do(w.to.Freezes().Delete(ctx, oldest.ID))
		w.do(w.to.Freezes().Create(ctx, oldest))
		_, err = w.to.Settings().GetOrPut(ctx, "extra", []byte("x"))
		w.do(err)
		compared, err := migrate.Verify(ctx, w.from, w.to, ignoreSteps)
		w.do(err)
		want := map[string]string{"agents": "agent-000007", "policies": "ID/<001>", "settings": "extra", "freezes": "ID/<001>"}
		for _, c := range compared {
			if c.Differs != want[c.Noun] || c.Same() != (want[c.Noun] == "") {
				t.Errorf("%+v, want %q to differ", c, want[c.Noun])
			}
		}
	})
	w.copy()
	w.same()

	// Sequence numbers and lists continue where those of the source ended.
	seq, err := w.to.Actions().Create(ctx, fleet.Action{ID: "next", Agents: []string{"late"}, CreatedAt: time.Now()})
	if before, lastErr := w.from.Actions().LastSeq(ctx); seq <= before || err != nil || lastErr != nil { // the removal took a number, too
		t.Errorf("the next action has Seq %d, the last had %d: %v, %v", seq, before, err, lastErr)
	}
	w.do(w.to.Policies().Create(ctx, fleet.Policy{ID: "newest"}))
	if list, _, err := w.to.Policies().List(ctx, 0, 1); err != nil || list[0].ID != "newest" {
		t.Errorf("the newest policy is %v, %v", list, err)
	}
}

// A kind that is in no table would be lost without a word: nothing copies it, nor compares it.
func TestVerifyFindsWhatNoKindDescribes(t *testing.T) {
	ctx := t.Context()
	open := func() (*sqlite.Store, string) {
		path := filepath.Join(t.TempDir(), "muster.db")
		s, err := sqlite.Open(ctx, path, sqlite.Options{})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { s.Close() })
		return s, path
	}
	from, path := open()
	to, _ := open()
	gadgets := store.OwnKind("gadget", func(v *fleet.View) (string, *int64) { return v.ID, &v.Revision })
	if err := gadgets.In(from.Documents(gadgets.Info)).Create(ctx, fleet.View{ID: "g"}); err != nil {
		t.Fatal(err)
	}
	w := &migration{t: t, path: path}
	w.sql(`CREATE TABLE widgets (doc TEXT)`)
	w.sql(`INSERT INTO widgets VALUES ('a'), ('b')`)
	list, err := migrate.Verify(ctx, from, to, ignoreSteps)
	w.do(err)
	got := map[string]int{}
	for _, c := range list {
		if !c.Same() {
			got[c.Noun] = c.From
		}
	}
	if want := map[string]int{"gadget": 1, "widgets": 2}; !maps.Equal(got, want) {
		t.Errorf("what differs is %v, want %v", got, want)
	}
}

func TestInterruptedCopyCanBeRepeated(t *testing.T) {
	w := newMigration(t, 40)
	id, err := migrate.ID(t.Context(), w.from)
	w.do(err)
	// Each attempt is interrupted some batches later than the one before.
	attempts := 0
	for done := false; !done; attempts++ {
		ctx, interrupt := context.WithCancel(t.Context())
		steps := 0
		_, err := migrate.Copy(ctx, w.from, w.to, func(migrate.Step) {
			if steps++; steps > 3*attempts {
				interrupt()
			}
		})
		done = err == nil
		interrupt()
		if err != nil && t.Context().Err() != nil {
			t.Fatal(err)
		}
	}
	if attempts < 15 {
		t.Errorf("it was interrupted only %d times", attempts)
	}
	w.same()
	if moved, err := migrate.ID(t.Context(), w.to); moved != id || err != nil {
		t.Errorf("ID is %s, want %s: %v", moved, id, err)
	}

	t.Run("an index with numbers out of step is filled again", func(t *testing.T) {
		ctx := t.Context()
		// A primary that dies during a write can leave unused numbers.
		for _, index := range []string{"actions", "events"} {
			status, answer, err := w.place.Do(ctx, http.MethodDelete, "/"+w.place.Prefix+index+"/_doc/none", nil)
			if err != nil || status != http.StatusNotFound {
				t.Fatalf("status %d: %s: %v", status, answer, err)
			}
		}
		w.do(storetest.Change(ctx, w.from))
		copied := w.copy()
		if c := copied["actions"]; c.Read != 20 || c.Written < c.Read {
			t.Errorf("actions: %+v", c)
		}
		w.same()
	})
}

func TestOpenRefusesAnUnfinishedMigration(t *testing.T) {
	w := newMigration(t, 0)
	ctx := t.Context()
	state := store.Migration{Source: "s", From: "/srv/muster/muster.db", StartedAt: time.Date(2026, time.May, 4, 3, 2, 1, 0, time.UTC)}
	w.do(w.to.SetMigration(ctx, state))
	server := w.options()
	server.Loading = false
	_, err := elastic.Open(ctx, server)
	if err == nil || !strings.Contains(err.Error(), "filled from /srv/muster/muster.db since 2026-05-04 03:02:01 UTC") || !strings.Contains(err.Error(), "muster store migrate") {
		t.Fatalf("Open of an unfinished store: %v", err)
	}
	found, err := elastic.Inspect(ctx, server)
	w.do(err)
	if found.Migration == nil || *found.Migration != state || found.Documents[w.place.Prefix+"documents"] != 1 {
		t.Errorf("Inspect returns %+v", found)
	}

	now := time.Now().UTC()
	state.FinishedAt = &now
	w.do(w.to.SetMigration(ctx, state))
	s, err := elastic.Open(ctx, server)
	w.do(err)
	w.do(s.Close())
	if err := elastic.RemoveUnfinished(ctx, server); fleet.KindOf(err) != fleet.Conflict {
		t.Errorf("RemoveUnfinished of a finished store: %v", err)
	}

	state.FinishedAt = nil
	w.do(w.to.SetMigration(ctx, state))
	w.do(elastic.RemoveUnfinished(ctx, server))
	found, err = elastic.Inspect(ctx, server)
	if err != nil || len(found.Documents) != 0 || found.Migration != nil {
		t.Errorf("after RemoveUnfinished, Inspect returns %+v, %v", found, err)
	}
	status, answer, err := w.place.Do(ctx, http.MethodGet, fmt.Sprintf("/_cat/indices/%s*?format=json", w.place.Prefix), nil)
	var none []any
	if err != nil || status != http.StatusOK || json.Unmarshal(answer, &none) != nil || len(none) != 0 {
		t.Errorf("indices are left: %s, %v", answer, err)
	}
}
