package sqlite

import (
	"fmt"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/muster-fleet/muster/server/fleet"
)

// However an agent changes, its row in facts is that of one that is created so.
func TestFactsFollowTheDocument(t *testing.T) {
	s := fresh(t)
	ctx := t.Context()
	if err := s.Agents().Create(ctx, fleet.Agent{ID: "a"}); err != nil {
		t.Fatal(err)
	}
	rapid.Check(t, func(t *rapid.T) {
		a, err := s.Agents().Get(ctx, "a")
		if err != nil {
			t.Fatal(err)
		}
		at := func() *time.Time {
			if rapid.Bool().Draw(t, "none") {
				return nil
			}
			v := recordStart.Add(time.Duration(rapid.IntRange(0, 3).Draw(t, "hours")) * time.Hour)
			return &v
		}
		text := func() string { return rapid.SampledFrom([]string{"", "x", "y"}).Draw(t, "text") }
		for range rapid.IntRange(0, 3).Draw(t, "changes") {
			rapid.SampledFrom([]func(){
				func() { a.Active = !a.Active },
				func() { a.PolicyID = text() },
				func() { a.AccessKeyID = text() },
				func() {
					a.EnrolledAt = recordStart.Add(time.Duration(rapid.IntRange(0, 3).Draw(t, "enrolled")) * time.Hour)
				},
				func() {
					a.LocalMetadata = fmt.Appendf(nil, `{"host":{"hostname":%q,"architecture":%q}}`, text(), text())
				},
				func() { a.Version, a.VersionSince = "1."+text(), at() },
				func() { a.HealthySince = at() },
				func() { a.BeginUpgrade(text(), "2.0.0", recordStart) },
				func() { a.UpgradeStartedAt, a.UpgradedAt = at(), at() },
				func() { a.UnenrollmentStartedAt = at() },
				func() { a.AuditUnenrolledReason = text() },
				func() { a.Tags = []string{text()} },
			}).Draw(t, "change")()
		}
		rev, err := s.Agents().Update(ctx, a)
		if err != nil {
			t.Fatal(err)
		}
		got, err := s.Agents().Get(ctx, "a")
		if err != nil || got.Revision != rev || got.AccessKeyID != a.AccessKeyID {
			t.Fatalf("revision %d, want %d; access key %q, want %q: %v", got.Revision, rev, got.AccessKeyID, a.AccessKeyID, err)
		}
		want, err := newAgentRow(&a)
		if err != nil {
			t.Fatal(err)
		}
		var values [factCount]any
		dest := make([]any, factCount)
		for i := range dest {
			dest[i] = &values[i]
		}
		if err := s.get(ctx, `SELECT `+factColumns+` FROM facts WHERE id = ?`, []any{"a"}, dest...); err != nil {
			t.Fatal(err)
		}
		for i, v := range want.facts {
			if b, ok := v.(bool); ok {
				if v = int64(0); b {
					v = int64(1)
				}
			}
			if values[i] != v {
				t.Fatalf("column %d of %s is %v, want %v", i, factColumns, values[i], v)
			}
		}
		var there int
		if err := s.get(ctx, `SELECT count(*) FROM agents INDEXED BY agents_access_key WHERE access_key_id <> '' AND access_key_id = ?`, []any{a.AccessKeyID}, &there); err != nil || (there == 1) != (a.AccessKeyID != "") {
			t.Fatalf("%d agents have the access key %q: %v", there, a.AccessKeyID, err)
		}
	})
}
