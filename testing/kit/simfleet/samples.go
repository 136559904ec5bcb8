package simfleet

import (
	"context"
	"math"
	"time"

	"github.com/muster-fleet/muster/server/fleet"
	"github.com/muster-fleet/muster/server/insight/series"
	"github.com/muster-fleet/muster/server/store"
)

// seedSamples writes the numbers of hosts by version and health of the last month, which end
// near what the fleet is now.
func seedSamples(ctx context.Context, s store.Store, hosts []*host, now time.Time) error {
	end := map[string]int{}
	for _, h := range hosts {
		if h.health != unenrolled {
			end[h.version()]++
		}
	}
	for _, at := range sampleTimes(now) {
		sample := fleet.Sample{ID: at.Format(time.RFC3339), At: at, Counts: countsAt(len(hosts), end, now.Sub(at))}
		if err := s.Samples().Create(ctx, sample); err != nil {
			return err
		}
	}
	return nil
}

// sampleTimes are those of the samples that a server keeps.
func sampleTimes(now time.Time) []time.Time {
	var out []time.Time
	for _, part := range []struct{ from, to, step time.Duration }{
		{30 * 24 * time.Hour, 7 * 24 * time.Hour, 2 * time.Hour}, {7 * 24 * time.Hour, 24 * time.Hour, 30 * time.Minute}, {24 * time.Hour, 0, series.Interval},
	} {
		for t := now.Add(-part.from).Truncate(part.step); t.Before(now.Add(-part.to).Truncate(part.step)); t = t.Add(part.step) {
			out = append(out, t)
		}
	}
	return out
}

// countsAt returns the numbers of hosts at a time before now: versions replace each other in
// waves, and a part of the hosts is not healthy, more of them around the broken version.
func countsAt(all int, end map[string]int, ago time.Duration) map[string]map[fleet.Health]int {
	days := ago.Hours() / 24
	wave := func(at, width float64) float64 { return 1 / (1 + math.Exp((days-at)/width)) } // 0 before, 1 after
	total := float64(all) * (1 - 0.06*days/30)
	share := map[string]float64{}
	rest := total
	// From the newest to the oldest: each takes its final part of what the newer ones leave.
	take := func(version string, grown float64) {
		n := min(rest, float64(end[version])*grown)
		share[version], rest = n, rest-n
	}
	take(newest, wave(1.4, 0.05))
	off := (days - 0.6) / 0.03
	share[broken] = float64(all) * 0.03 * math.Exp(-off*off)
	rest -= share[broken]
	upgraded := wave(7.7, 0.2)
	currentN := min(rest, (float64(end[current])+0)*upgraded)
	share[current], rest = currentN, rest-currentN
	olderN := rest * wave(23.8, 0.2)
	share[older], share[oldest] = olderN, rest-olderN
	if n := float64(end[oldest]); share[oldest] < n {
		share[older], share[oldest] = share[older]-n+share[oldest], n
	}
	out := map[string]map[fleet.Health]int{}
	for version, n := range share {
		if n < 0.5 {
			continue
		}
		noise := 0.004 * (1 + math.Sin(days*9.1+float64(len(version))) + math.Sin(days*31))
		bad := 0.012 + noise
		if version == broken {
			bad = 0.6
		}
		offline := 0.03 + 0.015*math.Max(0, math.Sin(days*2*math.Pi)) // fewer at night
		counts := map[fleet.Health]int{
			fleet.HealthDegraded: int(n * bad * 0.7), fleet.HealthFailed: int(n * bad * 0.3), fleet.HealthOffline: int(n * offline),
		}
		counts[fleet.HealthHealthy] = int(math.Round(n)) - counts[fleet.HealthDegraded] - counts[fleet.HealthFailed] - counts[fleet.HealthOffline]
		out[version] = counts
	}
	return out
}
