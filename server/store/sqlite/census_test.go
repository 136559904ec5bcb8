package sqlite

import (
	"database/sql"
	"encoding/json"
	"fmt"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/muster-fleet/muster/server/fleet"
	"github.com/muster-fleet/muster/server/kql"
	"github.com/muster-fleet/muster/server/store"
)

// oldFile creates a file with the first schema, and agents as they were written then.
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
		doc, err := json.Marshal(struct {
			fleet.Agent
			ActionSeq int64 `json:"action_seq_no,omitempty"`
		}{a, a.Last.ActionSeq})
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

func TestCensusReadsLabelsOfTheFirstSchemaFromDocuments(t *testing.T) {
	t.Parallel()
	start := time.Date(2026, time.March, 3, 10, 0, 0, 0, time.UTC)
	seen := start.Add(time.Hour)
	old := fleet.Agent{
		ID: "a", AccessKeyID: "k", Active: true, PolicyID: "edge", Version: "1.0.0", Tags: []string{"site=Zürich & co", "prod"}, EnrolledAt: start,
		LocalMetadata: []byte(`{"os":{"type":"linux","platform":"debian"},"host":{"architecture":"x86_64"}}`), Last: fleet.LastSeen{At: &seen},
	}
	bare := fleet.Agent{ID: "b", AccessKeyID: "k2", Active: true, EnrolledAt: start} // never reported a version
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

	// Any write of the agent stores its labels.
	_, err := store.UpdateAgent(t.Context(), s.Agents(), "a", func(a *fleet.Agent) bool { a.PolicyRev++; return true })
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

// Migrations fill the columns of later schemas from the documents.
func TestQueriesOfMigratedFirstSchema(t *testing.T) {
	t.Parallel()
	start := time.Date(2026, time.March, 3, 10, 0, 0, 123, time.UTC)
	agents := []fleet.Agent{
		{ID: "a", AccessKeyID: "k", Active: true, Tags: []string{"site=Zürich", "prod"}, EnrolledAt: start, UpgradeStartedAt: &start, LocalMetadata: []byte(`{"host":{"hostname":"web-01"}}`)},
		{ID: "b", AccessKeyID: "k2", Active: true, EnrolledAt: start, UpgradeStartedAt: &start, UpgradedAt: &start, LocalMetadata: []byte(`{"host":{"hostname":["web-02","b"]}}`)},
		{ID: "c", AccessKeyID: "k3", Active: true, EnrolledAt: start, Tags: []string{}, LocalMetadata: []byte(`{"host":{"name":"web-03"}}`)},
	}
	s := mustOpen(t, oldFile(t, agents...))
	for query, want := range map[string]string{
		"tags: prod": "a", "tags: site*": "a", "not tags: *": "b c", "upgraded_at: *": "b", "upgrade_started_at: * and not upgraded_at: *": "a",
		"upgraded_at: \"2026-03-03T10:00:00.000000123Z\"": "b", "upgrade_started_at < \"2026-03-03T10:00:00\"": "",
		"local_metadata.host.hostname: web": "a b", "local_metadata.host.hostname.keyword: (web-01 or b)": "a b", "not local_metadata.host.hostname: *": "c",
	} {
		f, err := kql.Compile(query, fleet.AgentSchema(nil), start)
		if err != nil {
			t.Errorf("%s: %v", query, err)
			continue
		}
		var got []string
		if err := s.Agents().Each(t.Context(), store.AgentFilter{Query: f}, func(a fleet.Agent) { got = append(got, a.ID) }); err != nil {
			t.Fatal(err)
		}
		slices.Sort(got)
		if strings.Join(got, " ") != want {
			t.Errorf("%s finds %v, want %s", query, got, want)
		}
	}
	for id, want := range map[string]bool{"a": true, "b": false, "c": false} {
		var named bool
		if err := s.get(t.Context(), `SELECT host_named FROM facts WHERE id = ?`, []any{id}, &named); err != nil || named != want {
			t.Errorf("host_named of agent %s is %v, want %v: %v", id, named, want, err)
		}
	}
}

// The first schema had ActionSeq in the document.
func TestActionSeqOfTheFirstSchemaIsMigrated(t *testing.T) {
	t.Parallel()
	seen := time.Date(2026, time.March, 3, 10, 0, 0, 0, time.UTC)
	s := mustOpen(t, oldFile(t,
		fleet.Agent{ID: "a", AccessKeyID: "k", Last: fleet.LastSeen{At: &seen, ActionSeq: 1 << 40}},
		fleet.Agent{ID: "none", AccessKeyID: "k2"},
		fleet.Agent{ID: "b", AccessKeyID: "k3", Last: fleet.LastSeen{ActionSeq: 7}},
	))
	want := func(what string, numbers ...int64) {
		t.Helper()
		list, err := s.Agents().GetMany(t.Context(), []string{"a", "none", "b"})
		if err != nil {
			t.Fatal(err)
		}
		var got []int64
		for i := range list {
			got = append(got, list[i].Last.ActionSeq)
		}
		if !slices.Equal(got, numbers) {
			t.Errorf("%s the numbers are %v, want %v", what, got, numbers)
		}
	}
	want("when the file is opened", 1<<40, 0, 7)
	if err := s.Agents().Touch(t.Context(), []fleet.Touch{{AgentID: "a", At: seen, ActionSeq: 8}, {AgentID: "none", At: seen, ActionSeq: 8}, {AgentID: "b", At: seen}}); err != nil {
		t.Fatal(err)
	}
	want("after a touch", 1<<40, 8, 7)
	for _, id := range []string{"a", "none", "b"} {
		if _, err := store.UpdateAgent(t.Context(), s.Agents(), id, func(a *fleet.Agent) bool { a.Version = "1.1.0"; return true }); err != nil {
			t.Fatal(err)
		}
	}
	want("after a change", 1<<40, 8, 7)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	again := mustOpen(t, s.Path()) // must not migrate again
	if a, err := again.Agents().Get(t.Context(), "none"); err != nil || a.Last.ActionSeq != 8 {
		t.Errorf("opened again, the number is %d: %v", a.Last.ActionSeq, err)
	}
}

func TestEachLeavesOutAnUnreadableDocument(t *testing.T) {
	t.Parallel()
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
		if next == documentsAhead+5 {
			next++
		}
		if v.Order != next {
			t.Fatalf("target %d has order %d", next, v.Order)
		}
		next++
	})
	if left := s.Unreadable().List(time.Time{}); err != nil || next != n || len(left) != 1 || left[0].Noun != "target" {
		t.Errorf("it ended at target %d of %d, and left out %v: %v", next, n, left, err)
	}
}
