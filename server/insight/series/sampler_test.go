package series_test

import (
	"context"
	"log/slog"
	"path/filepath"
	"testing"
	"time"

	"github.com/muster-fleet/muster/server/fleet"
	"github.com/muster-fleet/muster/server/insight/series"
	"github.com/muster-fleet/muster/server/store"
	"github.com/muster-fleet/muster/server/store/lease"
	"github.com/muster-fleet/muster/server/store/sqlite/sqlitetest"
)

type world struct {
	t     *testing.T
	store store.Store
	now   time.Time
}

func (w *world) server(name string) *series.Service {
	clock := func() time.Time { return w.now }
	return &series.Service{
		Agents: w.store.Agents(), Samples: w.store.Samples(),
		Timeouts: func(context.Context) (map[string]time.Duration, error) { return nil, nil },
		Lease:    &lease.Owner{Leases: w.store.Leases(), Name: name, Now: clock}, Log: slog.New(slog.DiscardHandler), Now: clock,
	}
}

func (w *world) round(s *series.Service) {
	w.t.Helper()
	if err := s.Round(w.t.Context()); err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) samples() []fleet.Sample {
	w.t.Helper()
	list, _, err := w.store.Samples().List(w.t.Context(), 0, 0)
	if err != nil {
		w.t.Fatal(err)
	}
	return list
}

func (w *world) enrol(id, version, status string, seen time.Time) {
	w.t.Helper()
	a := fleet.Agent{
		ID: id, Active: true, PolicyID: "default", PolicyRev: 1, Version: version, AccessKeyID: "k" + id, EnrolledAt: seen,
		Last: fleet.LastSeen{At: &seen, Status: status},
	}
	if err := w.store.Agents().Create(w.t.Context(), a); err != nil {
		w.t.Fatal(err)
	}
}

func newWorld(t *testing.T) *world {
	t.Helper()
	return &world{t: t, store: sqlitetest.Open(t, filepath.Join(t.TempDir(), "muster.db")), now: time.Date(2026, time.March, 3, 10, 1, 0, 0, time.UTC)}
}

func TestOneOfSeveralServersTakesOneSampleInEachInterval(t *testing.T) {
	w := newWorld(t)
	w.enrol("a", "1.0.0", "online", w.now)
	w.enrol("b", "1.0.0", "degraded", w.now)
	w.enrol("c", "1.1.0", "online", w.now.Add(-time.Hour))
	first, second := w.server("first"), w.server("second")
	w.round(first)
	w.round(first)
	w.round(second)
	got := w.samples()
	if len(got) != 1 || !got[0].At.Equal(w.now) {
		t.Fatalf("the samples are %v, want one of the start", got)
	}
	if c := got[0].Counts; c["1.0.0"][fleet.HealthHealthy] != 1 || c["1.0.0"][fleet.HealthDegraded] != 1 || c["1.1.0"][fleet.HealthOffline] != 1 || len(c) != 2 {
		t.Errorf("the sample is %v", c)
	}
	// The next interval begins at 10:05. The first server has died; the second takes its lease.
	w.now = w.now.Add(3 * time.Minute)
	w.round(second)
	w.now = w.now.Add(time.Minute)
	w.round(second)
	w.now = w.now.Add(lease.DefaultTTL)
	w.round(second)
	w.round(second)
	if got := w.samples(); len(got) != 2 || got[0].ID != "2026-03-03T10:05:00Z" {
		t.Errorf("the samples are %v, want a second one", got)
	}
	s, err := second.Over(t.Context(), series.Windows["24h"])
	if err != nil {
		t.Fatal(err)
	}
	if n := len(s.Times); n != 288 || s.Versions[0].Name != "1.0.0" || s.Versions[0].Values[n-2] == nil || s.Versions[0].Values[n-3] != nil {
		t.Errorf("the series has %d times, and the versions %v", n, s.Versions)
	}
}

func TestOldSamplesAreRemoved(t *testing.T) {
	w := newWorld(t)
	s := w.server("s")
	for _, age := range []time.Duration{40 * 24 * time.Hour, 8 * 24 * time.Hour, 8*24*time.Hour - 30*time.Minute, time.Hour} {
		at := w.now.Add(-age)
		if err := w.store.Samples().Create(t.Context(), fleet.Sample{ID: at.Format(time.RFC3339), At: at}); err != nil {
			t.Fatal(err)
		}
	}
	w.round(s)
	var ages []time.Duration
	for _, sample := range w.samples() {
		ages = append(ages, w.now.Sub(sample.At))
	}
	if len(ages) != 3 || ages[0] != 0 || ages[1] != time.Hour || ages[2] != 8*24*time.Hour {
		t.Errorf("the samples are %v old", ages)
	}
}
