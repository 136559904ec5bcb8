package fleet_test

import (
	"testing"
	"time"

	"github.com/muster-fleet/muster/server/fleet"
	"github.com/muster-fleet/muster/server/wire/agentapi"
)

func TestObserveHealth(t *testing.T) {
	start := time.Date(2026, 3, 3, 10, 0, 0, 0, time.UTC)
	type step struct {
		after   time.Duration
		status  string
		version string
		details *agentapi.UpgradeDetails
		begin   bool // an upgrade to 1.1.0 is ordered before
		writes  bool
	}
	details := func(s agentapi.UpgradeState) *agentapi.UpgradeDetails {
		return &agentapi.UpgradeDetails{ActionID: "act", TargetVersion: "1.1.0", State: s}
	}
	online := step{after: 30 * time.Second, status: "online", version: "1.0.0"}
	first := step{status: "online", version: "1.0.0", writes: true}
	for _, c := range []struct {
		name         string
		steps        []step
		versionSince time.Duration
		healthySince time.Duration // -1: nil
		lastHealthy  string
		usualGap     time.Duration
	}{
		{name: "the first check-in fills in what was not known", steps: []step{first}, lastHealthy: "1.0.0"},
		{name: "ordinary check-ins write nothing", steps: []step{first, online, online, online}, lastHealthy: "1.0.0"},
		{
			name: "a degraded agent is not healthy", healthySince: -1, lastHealthy: "1.0.0",
			steps: []step{first, {after: time.Minute, status: "degraded", version: "1.0.0", writes: true}, {after: time.Minute, status: "degraded", version: "1.0.0"}},
		},
		{
			name: "a recovered agent is healthy since its recovery", healthySince: 3 * time.Minute, lastHealthy: "1.0.0",
			steps: []step{first, {after: time.Minute, status: "error", version: "1.0.0", writes: true}, {after: 2 * time.Minute, status: "healthy", version: "1.0.0", writes: true}},
		},
		{
			name: "a watched version is not the last healthy one", versionSince: time.Minute, healthySince: time.Minute, lastHealthy: "1.0.0",
			steps: []step{
				first,
				{after: time.Minute, begin: true, status: "online", version: "1.1.0", details: details(agentapi.UpgradeWatching), writes: true},
				{after: time.Minute, status: "online", version: "1.1.0", details: details(agentapi.UpgradeWatching)},
			},
		},
		{
			name: "a version is the last healthy one once its watch has ended", versionSince: time.Minute, healthySince: time.Minute, lastHealthy: "1.1.0",
			steps: []step{
				first,
				{after: time.Minute, begin: true, status: "online", version: "1.1.0", details: details(agentapi.UpgradeWatching), writes: true},
				{after: 10 * time.Minute / 3, status: "online", version: "1.1.0", writes: true},
			},
		},
		{
			name: "after a rollback the last healthy version is the restored one", versionSince: 2 * time.Minute, healthySince: 2 * time.Minute, lastHealthy: "1.0.0",
			steps: []step{
				first,
				{after: time.Minute, begin: true, status: "online", version: "1.1.0", details: details(agentapi.UpgradeWatching), writes: true},
				{after: time.Minute, status: "online", version: "1.0.0", details: details(agentapi.UpgradeRollback), writes: true},
			},
		},
		{
			name: "a night's absence becomes the usual gap", healthySince: 9 * time.Hour, lastHealthy: "1.0.0", usualGap: 9 * time.Hour,
			steps: []step{first, {after: 9 * time.Hour, status: "online", version: "1.0.0", writes: true}, online},
		},
		{
			name: "the usual gap decays slowly", healthySince: 9*time.Hour + 20*time.Minute, lastHealthy: "1.0.0", usualGap: 9 * time.Hour / 4 * 3,
			steps: []step{first, {after: 9 * time.Hour, status: "online", version: "1.0.0", writes: true}, {after: 20 * time.Minute, status: "online", version: "1.0.0", writes: true}},
		},
		{
			name: "the usual gap is a week at most", healthySince: 60 * 24 * time.Hour, lastHealthy: "1.0.0", usualGap: fleet.MaxUsualGap,
			steps: []step{first, {after: 60 * 24 * time.Hour, status: "online", version: "1.0.0", writes: true}},
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			a := fleet.Agent{ID: "a", Version: "1.0.0"}
			now := start
			for i, s := range c.steps {
				now = now.Add(s.after)
				if s.begin {
					a.BeginUpgrade("act", "1.1.0", now)
				}
				gap := a.Last.Gap(start, now)
				changed := a.ObserveUpgrade(s.version, s.details, now)
				if changed = a.ObserveHealth(s.status, gap, now) || changed; changed != s.writes {
					t.Errorf("step %d: changed is %v", i, changed)
				}
				a.Last = fleet.LastSeen{At: &now, Status: s.status}
				at := now
				a.Last.At = &at
			}
			if !a.VersionSince.Equal(start.Add(c.versionSince)) || a.LastHealthyVersion != c.lastHealthy || a.UsualGap.D() != c.usualGap {
				t.Errorf("runs %s since %s, last healthy %q, usual gap %s", a.Version, a.VersionSince, a.LastHealthyVersion, a.UsualGap)
			}
			if (c.healthySince < 0) != (a.HealthySince == nil) || a.HealthySince != nil && !a.HealthySince.Equal(start.Add(c.healthySince)) {
				t.Errorf("healthy since %v", a.HealthySince)
			}
		})
	}
}

func TestGapExcludesServerDowntime(t *testing.T) {
	start := time.Date(2026, 3, 3, 10, 0, 0, 0, time.UTC)
	seen := fleet.LastSeen{At: &start}
	now := start.Add(3 * time.Hour)
	if gap := seen.Gap(now.Add(-time.Minute), now); gap != time.Minute {
		t.Errorf("a server that has listened for a minute takes the gap for %s", gap)
	}
	if gap := seen.Gap(start.Add(-time.Hour), now); gap != 3*time.Hour {
		t.Errorf("one that has always listened takes it for %s", gap)
	}
	if gap := (fleet.LastSeen{}).Gap(start, now); gap != 0 {
		t.Errorf("one that never checked in has the gap %s", gap)
	}
}
