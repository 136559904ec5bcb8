package fleet

import (
	"testing"
	"time"
)

var now = time.Date(2026, time.March, 3, 10, 0, 0, 0, time.UTC)

func ago(d time.Duration) *time.Time { t := now.Add(-d); return &t }

// Each row also satisfies all later rules, so it passes only if its rule comes first.
func TestStatusAtFirstMatchWins(t *testing.T) {
	const day = 24 * time.Hour
	all := StatusFacts{
		EnrolledAt: *ago(30 * day), LastCheckin: ago(20 * day), LastCheckinStatus: "error",
		AuditUnenrolledReason: "uninstall", Upgrading: true, Unenrolling: true,
	}
	from := func(change func(*StatusFacts)) StatusFacts { change(&all); return all } // keeps what earlier rows changed
	for _, row := range []struct {
		want  Status
		facts StatusFacts
	}{
		{StatusUnenrolled, from(func(*StatusFacts) {})},
		{StatusInactive, from(func(f *StatusFacts) { f.Active = true })},
		{StatusUninstalled, from(func(f *StatusFacts) { f.LastCheckin = ago(13 * day) })},
		{StatusOrphaned, from(func(f *StatusFacts) { f.AuditUnenrolledReason = "orphaned" })},
		{StatusOffline, from(func(f *StatusFacts) { f.AuditUnenrolledReason = "key_revoked" })},
		{StatusUpdating, from(func(f *StatusFacts) { f.LastCheckin = nil; f.EnrolledAt = *ago(time.Minute) })},
		{StatusEnrolling, from(func(f *StatusFacts) { f.Upgrading = false })},
		{StatusUnenrolling, from(func(f *StatusFacts) { f.LastCheckin = ago(time.Minute) })},
		{StatusError, from(func(f *StatusFacts) { f.Unenrolling = false })},
		{StatusDegraded, from(func(f *StatusFacts) { f.LastCheckinStatus = "degraded" })},
		{StatusOnline, from(func(f *StatusFacts) { f.LastCheckinStatus = "online" })},
	} {
		if got := row.facts.StatusAt(now, 14*day); got != row.want {
			t.Errorf("status is %s, want %s, of %+v", got, row.want, row.facts)
		}
	}
}

func TestStatusAtBounds(t *testing.T) {
	f := StatusFacts{Active: true, EnrolledAt: *ago(time.Hour)}
	for _, row := range []struct {
		silent, inactivity time.Duration
		want               Status
	}{
		{OfflineAfter, 0, StatusOnline},
		{OfflineAfter + 1, 0, StatusOffline},
		{time.Hour, time.Hour, StatusOffline},
		{time.Hour + 1, time.Hour, StatusInactive},
		{1000 * time.Hour, 0, StatusOffline}, // a policy without a timeout
		{-time.Hour, 0, StatusOnline},        // the clocks of other servers may be ahead
	} {
		f.LastCheckin = ago(row.silent)
		if got := f.StatusAt(now, row.inactivity); got != row.want {
			t.Errorf("silent for %s of %s: status is %s, want %s", row.silent, row.inactivity, got, row.want)
		}
	}
}

func TestFactsMatchDocument(t *testing.T) {
	a := Agent{Active: true, PolicyID: "edge", EnrolledAt: *ago(time.Hour), AuditUnenrolledReason: "orphaned", UnenrollmentStartedAt: ago(time.Minute)}
	a.Last = LastSeen{At: ago(time.Second), Status: "degraded"}
	a.BeginUpgrade("act", "2.0.0", now)
	want := StatusFacts{
		Active: true, PolicyID: "edge", EnrolledAt: a.EnrolledAt, LastCheckin: a.Last.At, LastCheckinStatus: "degraded",
		AuditUnenrolledReason: "orphaned", Upgrading: true, Unenrolling: true,
	}
	if got := a.Facts(); got != want {
		t.Errorf("facts are %+v, want %+v", got, want)
	}
	if got := a.LastActivity(); !got.Equal(*a.Last.At) {
		t.Errorf("last activity is %s", got)
	}
	a.Last.At = nil
	if got := a.LastActivity(); !got.Equal(a.EnrolledAt) {
		t.Errorf("last activity before the first check-in is %s", got)
	}
}

func TestHostnameOfUnusualMetadata(t *testing.T) {
	for meta, want := range map[string]string{
		`{"host":{"hostname":"web-1","name":"other"}}`: "web-1",
		`{"host":{"name":"web-2"}}`:                    "web-2",
		`{"host":{"hostname":7}}`:                      "id",
		`{"host":[]}`:                                  "id",
		`not json`:                                     "id",
		``:                                             "id",
	} {
		a := Agent{ID: "id", LocalMetadata: []byte(meta)}
		if got := a.Hostname(); got != want {
			t.Errorf("hostname of %s is %q, want %q", meta, got, want)
		}
	}
}
