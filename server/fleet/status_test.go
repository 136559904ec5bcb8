package fleet

import (
	"testing"
	"time"

	"github.com/muster-fleet/muster/server/wire/agentapi"
)

var now = time.Date(2026, time.March, 3, 10, 0, 0, 0, time.UTC)

func ago(d time.Duration) *time.Time { t := now.Add(-d); return &t }

// Each row also satisfies all later rules, so it passes only if its rule comes first.
func TestStatusAtFirstMatchWins(t *testing.T) {
	const day = 24 * time.Hour
	all := StatusFacts{
		EnrolledAt: *ago(30 * day), LastCheckin: ago(20 * day), LastCheckinStatus: "error",
		AuditUnenrolledReason: "uninstall", UpgradingSince: &now, Unenrolling: true,
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
		{StatusUpdating, from(func(f *StatusFacts) { f.UpgradingSince, f.NoPolicy = nil, true })},
		{StatusEnrolling, from(func(f *StatusFacts) { f.NoPolicy = false })},
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

func TestScheduledUpgradeMakesAHostUpdatingOnlyWhenItStarts(t *testing.T) {
	start := now.Add(time.Hour)
	a := Agent{ID: "a", Active: true, PolicyRev: 1, Version: "1.0.0", EnrolledAt: now}
	a.Last = LastSeen{At: &now, Status: "online"}
	a.BeginUpgrade("act", "2.0.0", start)
	want := func(at time.Time, want Status) {
		t.Helper()
		a.Last.At = &at
		if got := a.Facts().StatusAt(at, 0); got != want {
			t.Errorf("%s before its start its status is %s, want %s", start.Sub(at), got, want)
		}
	}
	want(now, StatusOnline)
	want(start.Add(-time.Second), StatusOnline)
	want(start, StatusUpdating)

	// Its own start is half an hour later, since the starts are spread.
	report := func(state agentapi.UpgradeState, at *time.Time, failed string, now time.Time) {
		a.ObserveUpgrade("1.0.0", &agentapi.UpgradeDetails{
			TargetVersion: "2.0.0", ActionID: "act", State: state, Metadata: agentapi.UpgradeMetadata{ScheduledAt: at, RetryErrorMsg: failed},
		}, now)
	}
	start = start.Add(30 * time.Minute)
	report(agentapi.UpgradeScheduled, &start, "", now)
	want(start.Add(-time.Minute), StatusOnline)
	want(start, StatusUpdating)

	retry := start.Add(10 * time.Minute)
	report(agentapi.UpgradeScheduled, &retry, "no route to host", start.Add(time.Minute))
	want(start.Add(time.Minute), StatusUpdating) // it has begun, and tries again

	a.BeginUpgrade("act", "2.0.0", start)
	report(agentapi.UpgradeDownloading, nil, "", start.Add(-time.Second))
	want(start.Add(-time.Second), StatusUpdating) // the host's clock is ahead

	never := now.Add(2 * MaxStartDelay)
	a.BeginUpgrade("act", "2.0.0", start)
	report(agentapi.UpgradeScheduled, &never, "", now)
	want(start, StatusUpdating)
}

func TestFactsMatchDocument(t *testing.T) {
	a := Agent{Active: true, PolicyID: "edge", EnrolledAt: *ago(time.Hour), AuditUnenrolledReason: "orphaned", UnenrollmentStartedAt: ago(time.Minute)}
	a.Last = LastSeen{At: ago(time.Second), Status: "degraded"}
	a.BeginUpgrade("act", "2.0.0", now)
	want := StatusFacts{
		Active: true, PolicyID: "edge", EnrolledAt: a.EnrolledAt, LastCheckin: a.Last.At, LastCheckinStatus: "degraded",
		AuditUnenrolledReason: "orphaned", UpgradingSince: a.UpgradeStartedAt, Unenrolling: true, NoPolicy: true,
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
