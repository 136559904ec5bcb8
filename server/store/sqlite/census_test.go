package sqlite

import (
	"database/sql"
	"encoding/json"
	"fmt"
	"path/filepath"
	"reflect"
	"testing"
	"time"

	"github.com/muster-fleet/muster/server/fleet"
	"github.com/muster-fleet/muster/server/store"
)

// oldFile makes a file as the first schema was, with agents as they were written
// then.
func oldFile(t *testing.T, agents ...fleet.Agent) (path string) {
	t.Helper()
	path = filepath.Join(t.TempDir(), "muster.db")
	db, err := sql.Open("sqlite", uri(path))
	if err != nil {
		t.Fatal(err)
	}
	schema, err := migrationFor(1)
	if err != nil {
		t.Fatal(err)
	}
	exec := func(statement string, args ...any) {
		t.Helper()
		if _, err := db.ExecContext(t.Context(), statement, args...); err != nil {
			t.Fatal(err)
		}
	}
	exec(schema)
	exec(`PRAGMA user_version = 1`)
	exec(fmt.Sprintf(`PRAGMA application_id = %d`, applicationID))
	for i, a := range agents {
		doc, err := json.Marshal(a)
		if err != nil {
			t.Fatal(err)
		}
		exec(`INSERT INTO agents (rid, id, rev, access_key_id, doc) VALUES (?, ?, 1, ?, ?)`, i+1, a.ID, a.AccessKeyID, string(doc))
		exec(`INSERT INTO hot (rid, last_checkin, status, message) VALUES (?, ?, 'online', '')`, i+1, fromTimePtr(a.Last.At))
		exec(`INSERT INTO facts (rid, id, active, unenrolling, enrolled_at, policy_id, audit_unenrolled, hostname, version_key) VALUES (?, ?, ?, 0, ?, ?, '', ?, ?)`,
			i+1, a.ID, a.Active, fromTime(a.EnrolledAt), a.PolicyID, a.Hostname(), fleet.VersionKey(a.Version))
	}
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestAFleetOfTheFirstSchemaIsInTheCensus(t *testing.T) {
	start := time.Date(2026, time.March, 3, 10, 0, 0, 0, time.UTC)
	seen := start.Add(time.Hour)
	old := fleet.Agent{
		ID: "a", AccessKeyID: "k", Active: true, PolicyID: "edge", Version: "1.0.0", Tags: []string{"site=Zürich & co", "prod"}, EnrolledAt: start,
		LocalMetadata: []byte(`{"os":{"type":"linux","platform":"debian"},"host":{"architecture":"x86_64"}}`), Last: fleet.LastSeen{At: &seen},
	}
	bare := fleet.Agent{ID: "b", AccessKeyID: "k2", Active: true, EnrolledAt: start} // which never said its version
	s := mustOpen(t, oldFile(t, old, bare, fleet.Agent{ID: "gone", AccessKeyID: "k3"}))
	census := func() map[string]fleet.Census {
		t.Helper()
		all := map[string]fleet.Census{}
		if err := s.Agents().Census(t.Context(), func(c fleet.Census) { all[c.ID] = c }); err != nil {
			t.Fatal(err)
		}
		return all
	}
	want := map[string]fleet.Census{
		"a": {ID: "a", PolicyID: "edge", Active: true, Version: "1.0.0", LastCheckin: &seen, Labels: fleet.EncodeLabels(old.Labels())},
		"b": {ID: "b", Active: true, Labels: fleet.EncodeLabels(bare.Labels())},
	}
	if got := census(); !reflect.DeepEqual(got, want) {
		t.Fatalf("the census is  %+v\nwant %+v", got, want)
	}
	if site := fleet.DecodeLabel(census()["a"].Labels, "site"); site != "Zürich & co" {
		t.Errorf("the site is %q", site)
	}

	// The next write of any kind puts the labels in their place.
	_, err := store.UpdateAgent(t.Context(), s.Agents(), "a", func(a *fleet.Agent) bool { a.ActionSeq++; return true })
	if err != nil {
		t.Fatal(err)
	}
	if got := census(); !reflect.DeepEqual(got, want) {
		t.Errorf("after a write the census is  %+v\nwant %+v", got, want)
	}
	for id, written := range map[string]bool{"a": true, "b": false} {
		var labels sql.NullString
		if err := s.get(t.Context(), `SELECT labels FROM facts WHERE id = ?`, []any{id}, &labels); err != nil || labels.Valid != written {
			t.Errorf("the labels of agent %s are %+v: %v", id, labels, err)
		}
	}
}

func TestADocumentThatCannotBeReadEndsAnEach(t *testing.T) {
	s, ctx := fresh(t), t.Context()
	const n = 3 * documentsAhead / 2
	list := make([]fleet.Target, n)
	for i := range list {
		list[i] = fleet.Target{RolloutID: "r", AgentID: fmt.Sprint(i), Order: i}
	}
	if err := s.Targets().Create(ctx, list); err != nil {
		t.Fatal(err)
	}
	if err := s.write(ctx, "spoil", func(t *tx) error {
		_, err := t.exec(`UPDATE targets SET doc = '{"order":"no number"}' WHERE place = ?`, documentsAhead+5)
		return err
	}); err != nil {
		t.Fatal(err)
	}
	next := 0
	err := s.Targets().Each(ctx, "r", func(v fleet.Target) {
		if v.Order != next {
			t.Fatalf("target %d comes with order %d", next, v.Order)
		}
		next++
	})
	if fleet.KindOf(err) != fleet.Internal || next != documentsAhead {
		t.Errorf("it ended after %d targets: %v", next, err)
	}
}
