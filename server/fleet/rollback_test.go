package fleet

import (
	"strings"
	"testing"
	"time"

	"github.com/muster-fleet/muster/server/wire/agentapi"
)

func kept(version string, left time.Duration) agentapi.Rollback {
	return agentapi.Rollback{Version: version, ValidUntil: now.Add(left)}
}

func TestCheckRollback(t *testing.T) {
	has := func(r ...agentapi.Rollback) func(*host) { return func(h *host) { h.Kept.Rollbacks = r } }
	watched := func(h *host) {
		h.Version = "1.0.0"
		h.BeginUpgrade("act", "1.1.0", now)
		h.checkin("1.1.0", agentapi.UpgradeWatching)
	}
	for _, row := range []struct {
		name    string
		prepare func(*host)
		to      string // "" for a refusal
		until   time.Time
		says    string
	}{
		{"a kept version", has(kept("1.0.0", time.Hour)), "1.0.0", now.Add(time.Hour), ""},
		{"the one kept last", has(kept("0.9.0", time.Hour), kept("1.0.0", 2*time.Hour), kept("0.8.0", -1)), "1.0.0", now.Add(2 * time.Hour), ""},
		{"not the one that runs", has(kept("1.1.0", 2*time.Hour), kept("1.0.0", time.Hour)), "1.0.0", now.Add(time.Hour), ""},
		{"nothing is kept", has(), "", time.Time{}, "upgrade rollback not available for agent"},
		{"only what runs", has(kept("1.1.0", time.Hour)), "", time.Time{}, "upgrade rollback not available for agent"},
		{"too late", has(kept("1.0.0", 0)), "", time.Time{}, "upgrade rollback window has expired: agent a kept 1.0.0 until 2026-03-03T10:00:00Z"},
		{"unenrolled", func(h *host) { has(kept("1.0.0", 1))(h); h.Active = false }, "", time.Time{}, "unenrolled"},
		{"being unenrolled", func(h *host) { has(kept("1.0.0", 1))(h); h.UnenrollmentStartedAt = &now }, "", time.Time{}, "being unenrolled"},
		{"while it is watched", watched, "1.0.0", time.Time{}, ""},
		{"while it is watched, as the watcher says", func(h *host) {
			h.BeginUpgrade("act", "1.1.0", now)
			h.UpgradeFrom = ""
			h.beacon(agentapi.BeaconWatching)
		}, "1.0.0", time.Time{}, ""},
		{"while the watcher was silent", func(h *host) {
			h.BeginUpgrade("act", "1.1.0", now)
			h.beacon(agentapi.BeaconWatching)
			h.after(BeaconFresh + 1)
		}, "", time.Time{}, "already being upgraded to 1.1.0"},
		{"amid the download", func(h *host) {
			h.BeginUpgrade("act", "1.2.0", now)
			h.checkin("1.1.0", agentapi.UpgradeDownloading)
		}, "", time.Time{}, "already being upgraded to 1.2.0: cancel that"},
		{"twice", func(h *host) { watched(h); h.BeginRollback("back", "1.0.0", now) }, "", time.Time{}, "already being rolled back to 1.0.0"},
		{"the rollback itself is watched", func(h *host) {
			h.BeginRollback("act", "1.0.0", now)
			h.ObserveUpgrade("1.0.0", &agentapi.UpgradeDetails{ActionID: "act", TargetVersion: "1.0.0", State: agentapi.UpgradeWatching}, now)
		}, "1.1.0", time.Time{}, ""},
	} {
		t.Run(row.name, func(t *testing.T) {
			h := newHost(t)
			h.Version = "1.1.0"
			row.prepare(h)
			got, err := h.CheckRollback(h.now)
			if got.Version != row.to || !got.ValidUntil.Equal(row.until) || (row.to == "") != (err != nil) {
				t.Fatalf("it goes back to %+v, %v", got, err)
			}
			if err != nil && (KindOf(err) != Invalid || !strings.Contains(err.Error(), row.says)) {
				t.Errorf("it says %q, want %q", err, row.says)
			}
		})
	}
}

// A rollback after the watch is an upgrade to the older version.
func TestRollbackAfterWatchEnded(t *testing.T) {
	h := newHost(t)
	h.Version = "1.1.0"
	h.BeginRollback("back", "1.0.0", h.now)
	h.ObserveAck("back", "", false, h.now)
	report := func(version string, state agentapi.UpgradeState) {
		h.ObserveUpgrade(version, &agentapi.UpgradeDetails{ActionID: "back", TargetVersion: "1.0.0", State: state}, h.after(time.Second).now)
	}
	report("1.1.0", agentapi.UpgradeReplacing)
	h.want(UpgradeStarted, true)
	report("1.0.0", agentapi.UpgradeWatching)
	h.wantUpgraded(h.now)
	if r := h.UpgradeResults("", h.now); len(r) != 1 || r[0].Message != "rolled back to 1.0.0" {
		t.Errorf("results are %+v", r)
	}
	// The older version fails its watch too, and the newer one is restored.
	h.ObserveUpgrade("1.1.0", &agentapi.UpgradeDetails{ActionID: "back", TargetVersion: "1.0.0", State: agentapi.UpgradeRollback, Metadata: agentapi.UpgradeMetadata{ErrorMsg: "the reason"}}, h.now)
	h.wantFailed(UpgradeRolledBack, "the reason")
}

// watchedHost returns a host whose upgrade act to 1.1.0 is being watched, and which the
// action back is to undo.
func watchedHost(t *testing.T) *host {
	h := begun(t)
	h.checkin("1.1.0", agentapi.UpgradeWatching)
	h.BeginRollback("back", "1.0.0", h.after(time.Minute).now)
	h.checkin("1.1.0", agentapi.UpgradeWatching) // repeated until the rollback begins
	h.want(UpgradeStarted, true)
	if h.UpgradeActionID != "back" || h.UpgradeTo != "1.0.0" {
		t.Fatalf("under way is %s to %s", h.UpgradeActionID, h.UpgradeTo)
	}
	return h
}

func (h *host) wantBack(undone string) {
	h.Helper()
	h.wantUpgraded(*h.UpgradedAt)
	r := h.UpgradeResults("", h.now)
	if h.UpgradeActionID != "back" || len(r) != 2 || r[0].ActionID != "back" || r[0].Error != "" || r[1].ActionID != "act" || !strings.Contains(r[1].Error, undone) {
		h.Fatalf("results are %+v, want that of act to say %q", r, undone)
	}
}

func TestRollbackDuringWatch(t *testing.T) {
	manual := func(b *agentapi.Beacon) {
		b.Reason = &agentapi.BeaconCause{Code: "manual", Text: "ann asked for it"}
		b.Agent.Version = "1.0.0"
	}
	t.Run("that the agent reports", func(t *testing.T) {
		h := watchedHost(t)
		h.ObserveAck("back", "", false, h.now)
		h.want(UpgradeStarted, true)
		h.checkin("1.0.0", agentapi.UpgradeRollback)
		h.wantBack("the reason")
		at := *h.UpgradedAt
		if h.after(time.Minute).checkin("1.0.0", agentapi.UpgradeRollback) { // repeated by the agent
			t.Error("a repeated report was a change")
		}
		h.beacon(agentapi.BeaconRolledBack, manual) // the beacon arrives late
		h.wantUpgraded(at)
	})
	t.Run("whose agent forgets the upgrade", func(t *testing.T) {
		h := watchedHost(t)
		h.checkin("1.0.0", "")
		h.wantBack("an operator rolled it back to 1.0.0")
	})
	t.Run("that the watcher reports, with the older version answering", func(t *testing.T) {
		h := watchedHost(t)
		if change := h.beacon(agentapi.BeaconRollingBack, manual); !change.Upgrade {
			t.Errorf("the reason is not recorded: %+v", change)
		}
		h.want(UpgradeStarted, true)
		h.after(time.Second).beacon(agentapi.BeaconRolledBack, manual)
		h.wantBack("ann asked for it")
		if h.Version != "1.0.0" {
			t.Errorf("version is %s", h.Version)
		}
		h.after(time.Minute).checkin("1.0.0", agentapi.UpgradeRollback)
		h.wantBack("ann asked for it")
	})
	t.Run("after which the older version never checks in", func(t *testing.T) {
		h := watchedHost(t)
		h.beacon(agentapi.BeaconRolledBack, manual, dead)
		h.want(UpgradeStarted, true)
		if h.ReconcileUpgrade(h.UpgradeActionID, &Action{ID: "back"}, nil, h.now.Add(AckGrace)) {
			t.Error("it was given up too soon")
		}
		h.ReconcileUpgrade(h.UpgradeActionID, &Action{ID: "back"}, nil, h.after(AckGrace+1).now)
		h.wantFailed(UpgradeFailed, "has not checked in since")
	})
	t.Run("that the host could not do", func(t *testing.T) {
		h := watchedHost(t)
		h.beacon(agentapi.BeaconRollbackFailed, manual)
		h.wantFailed(UpgradeFailed, "ann asked for it")
	})
	t.Run("that the watcher begins by itself meanwhile", func(t *testing.T) {
		h := watchedHost(t)
		h.beacon(agentapi.BeaconRollingBack)
		h.checkin("1.0.0", agentapi.UpgradeRollback)
		h.wantBack("it crashed 3 times")
	})
	t.Run("that the agent refuses, and then the watcher rolls back", func(t *testing.T) {
		for name, end := range map[string]func(*host){
			"reported by the agent":   func(h *host) { h.checkin("1.0.0", agentapi.UpgradeRollback) },
			"reported by the watcher": func(h *host) { h.beacon(agentapi.BeaconRolledBack) },
		} {
			h := watchedHost(t)
			h.ObserveAck("back", "not now", false, h.now)
			h.wantFailed(UpgradeFailed, "not now")
			end(h.after(time.Minute))
			h.want(UpgradeRolledBack, false)
			if h.UpgradeActionID != "act" {
				t.Errorf("%s: the upgrade is that of %s", name, h.UpgradeActionID)
			}
		}
	})
	t.Run("called off", func(t *testing.T) {
		h := watchedHost(t)
		if !h.CancelUpgrade("back", now) || h.UpgradeActionID != "act" || h.UpgradedAt == nil {
			t.Fatalf("the undone upgrade is not resumed: %+v", h.Agent)
		}
		h.checkin("1.1.0", agentapi.UpgradeWatching)
		h.checkin("1.1.0", "")
		h.wantUpgraded(*h.UpgradedAt)
	})
	t.Run("of an upgrade started on the host", func(t *testing.T) {
		h := newHost(t)
		h.checkinOf("", "1.0.0", agentapi.UpgradeReplacing)
		h.checkinOf("", "1.1.0", agentapi.UpgradeWatching)
		to, err := h.CheckRollback(h.now)
		if err != nil || to.Version != "1.0.0" {
			t.Fatalf("it goes back to %+v, %v", to, err)
		}
		h.BeginRollback("back", "1.0.0", h.now)
		h.checkinOf("", "1.0.0", agentapi.UpgradeRollback)
		h.wantUpgraded(h.now)
		if r := h.UpgradeResults("", h.now); len(r) != 1 {
			t.Errorf("results are %+v", r)
		}
	})
}

// After a rollback the host keeps the version that it has left, which is a later one.
func TestSecondRollbackSaysThatItGoesForward(t *testing.T) {
	for _, row := range []struct {
		runs, keeps string
		forward     bool
	}{
		{"1.1.0", "1.0.0", false}, {"1.0.0", "1.1.0", true}, {"1.1.0", "1.1.0+build1", true}, {"unknown", "1.1.0", false},
	} {
		a := Agent{ID: "a", Active: true, Version: row.runs, Kept: agentapi.CheckinUpgrade{Rollbacks: []agentapi.Rollback{kept(row.keeps, time.Hour)}}}
		to, err := a.CheckRollback(now)
		if err != nil {
			t.Fatal(err)
		}
		if err := a.CheckForward(to.Version); (err != nil) != row.forward || err != nil && (!strings.Contains(err.Error(), "go forward to "+row.keeps)) {
			t.Errorf("from %s to %s it says %v", row.runs, row.keeps, err)
		}
	}
}
