package sqlite

import (
	"database/sql/driver"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/muster-fleet/muster/server/fleet"
	"github.com/muster-fleet/muster/server/store"
)

// After any sequence of updates, the row in facts equals that of an agent created with the
// same document.
func TestFactsMatchDocumentAfterUpdates(t *testing.T) {
	t.Parallel()
	s := fresh(t)
	ctx := t.Context()
	if err := s.Agents().Create(ctx, fleet.Agent{ID: "a"}); err != nil {
		t.Fatal(err)
	}
	if err := s.Agents().Create(ctx, fleet.Agent{ID: "beside"}); err != nil {
		t.Fatal(err)
	}
	beside, err := s.Agents().Get(ctx, "beside")
	if err != nil {
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
				func() { a.PolicyRev = rapid.Int64Range(0, 2).Draw(t, "revision") },
				func() { a.EnrollmentID = text() },
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
				func() {
					a.AuditUnenrolledReason = rapid.SampledFrom([]string{"", "uninstall", "key_revoked"}).Draw(t, "reason")
				},
				func() { a.OrdersEndedAt = at() },
				func() { a.Tags = []string{text()} },
			}).Draw(t, "change")()
		}
		rev := a.Revision + 1
		switch rapid.IntRange(0, 2).Draw(t, "way") {
		case 0:
			rev, err = s.Agents().Update(ctx, a)
		case 1:
			rev, err = s.Agents().Report(ctx, store.Report{Agent: &a})
		case 2:
			beside.UsualGap++ // a second agent with the same times, so that one statement writes both
			beside.UpgradeStartedAt, beside.UpgradedAt = a.UpgradeStartedAt, a.UpgradedAt
			var errs []error
			errs, err = s.Agents().UpdateMany(ctx, []fleet.Agent{a, beside})
			err = errors.Join(append(errs, err)...)
			beside.Revision++
		}
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
			if n, ok := v.(driver.Valuer); ok {
				if v, err = n.Value(); err != nil {
					t.Fatal(err)
				}
			}
			if values[i] != v {
				t.Fatalf("column %d of %s is %v, want %v", i, factColumns, values[i], v)
			}
		}
		var n int
		if err := s.get(ctx, `SELECT count(*) FROM agents INDEXED BY agents_access_key WHERE access_key_id <> '' AND access_key_id = ?`, []any{a.AccessKeyID}, &n); err != nil || (n == 1) != (a.AccessKeyID != "") {
			t.Fatalf("%d agents have the access key %q: %v", n, a.AccessKeyID, err)
		}
	})
}

func TestGetManyReturnsAgentsInRequestedOrder(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		requested := rapid.SliceOfNDistinct(rapid.StringN(1, 3, -1), 0, 8, rapid.ID).Draw(t, "requested")
		var want, found []fleet.Agent
		for _, id := range requested {
			if rapid.Bool().Draw(t, "exists") {
				want = append(want, fleet.Agent{ID: id})
			}
		}
		if found = slices.Clone(want); len(want) > 1 && rapid.Bool().Draw(t, "in another order") {
			found = rapid.Permutation(found).Draw(t, "found")
		}
		if got := sortAs(requested, found); !reflect.DeepEqual(got, want) {
			t.Fatalf("sortAs(%q) = %v, want %v", requested, got, want)
		}
	})
}
