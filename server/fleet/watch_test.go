package fleet

import (
	"reflect"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/muster-fleet/muster/server/wire/agentapi"
)

// beacon sends a beacon about the upgrade act from 1.0.0 to 1.1.0.
func (h *host) beacon(phase agentapi.BeaconPhase, change ...func(*agentapi.Beacon)) BeaconChange {
	h.Helper()
	b := agentapi.Beacon{
		ActionID: "act", From: "1.0.0", To: "1.1.0", Phase: phase, At: h.now,
		Agent: agentapi.BeaconAgent{Alive: true, State: "healthy", Version: "1.1.0"},
	}
	if endsBadly(phase) {
		b.Reason = &agentapi.BeaconCause{Code: "crash_loop", Text: "it crashed 3 times"}
	}
	for _, f := range change {
		f(&b)
	}
	if err := CheckBeacon(b); err != nil {
		h.Fatal(err)
	}
	return h.ObserveBeacon(b, h.now)
}

func of(actionID string) func(*agentapi.Beacon) {
	return func(b *agentapi.Beacon) { b.ActionID = actionID }
}

func dead(b *agentapi.Beacon) { b.Agent = agentapi.BeaconAgent{Crashes: 3} }

// rolledBackReport is the report of an agent that knows why it was rolled back.
func (h *host) rolledBackReport() {
	h.ObserveUpgrade("1.0.0", &agentapi.UpgradeDetails{
		TargetVersion: "1.1.0", ActionID: "act", State: agentapi.UpgradeRollback,
		Metadata: agentapi.UpgradeMetadata{Reason: "in the agent's words", ReasonCode: "crash_loop", ErrorMsg: "in the agent's words"},
	}, h.now)
}

func (h *host) wantRolledBack(reason string) {
	h.Helper()
	h.want(UpgradeRolledBack, false)
	d := h.UpgradeDetails
	if d == nil || d.State != agentapi.UpgradeRollback || d.ActionID != h.UpgradeActionID || d.TargetVersion != "1.1.0" || d.Metadata.Reason != reason || d.Metadata.ReasonCode != "crash_loop" {
		h.Fatalf("details are %+v, want ROLLBACK with %q", d, reason)
	}
	if h.UpgradedAt != nil || h.UpgradeStartedAt != nil {
		h.Fatalf("upgraded at %v, started at %v", h.UpgradedAt, h.UpgradeStartedAt)
	}
	if r, ok := h.UpgradeResult("", h.now); h.UpgradeActionID != "" && (!ok || r.Error != reason) {
		h.Fatalf("the result is %+v, %v", r, ok)
	}
}

func TestWatcherReportsRollbackOfSilentAgent(t *testing.T) {
	for _, phase := range []agentapi.BeaconPhase{agentapi.BeaconRollingBack, agentapi.BeaconRolledBack} {
		for name, came := range map[string]agentapi.UpgradeState{"never seen with the new version": agentapi.UpgradeRestarting, "seen with it": agentapi.UpgradeWatching} {
			t.Run(string(phase)+", "+name, func(t *testing.T) {
				h := begun(t)
				version := map[agentapi.UpgradeState]string{agentapi.UpgradeRestarting: "1.0.0", agentapi.UpgradeWatching: "1.1.0"}[came]
				h.checkin(version, came)
				h.after(time.Minute).beacon(agentapi.BeaconWatching)
				if change := h.after(time.Minute).beacon(phase, dead); !change.Upgrade || !change.Phase || !change.Write {
					t.Errorf("the change is %+v", change)
				}
				h.wantRolledBack("it crashed 3 times")
				if change := h.beacon(phase, dead); change != (BeaconChange{}) {
					t.Errorf("repeated: %+v", change)
				}
			})
		}
	}
}

func TestFailedRollbackFailsUpgrade(t *testing.T) {
	h := begun(t)
	h.checkin("1.0.0", agentapi.UpgradeRestarting)
	h.beacon(agentapi.BeaconRollingBack, dead)
	h.after(time.Second).beacon(agentapi.BeaconRollbackFailed, dead)
	h.wantFailed(UpgradeFailed, "going back to 1.0.0 failed: it crashed 3 times")
	if got := h.UpgradeDetails.Metadata.FailedState; got != agentapi.UpgradeRollback {
		t.Errorf("failed in %s", got)
	}
	// The new version, which could not be rolled back, checks in. That is no success.
	h.after(time.Minute).checkin("1.1.0", "")
	h.wantFailed(UpgradeFailed, "going back")
	// The host starts, and its watcher retries.
	h.after(time.Hour).beacon(agentapi.BeaconRolledBack)
	h.wantRolledBack("it crashed 3 times")
}

// The order of arrival does not matter.
func TestAgentReportTakesPrecedenceOverBeacon(t *testing.T) {
	watcher := func(h *host) { h.beacon(agentapi.BeaconRolledBack) }
	agent := (*host).rolledBackReport
	silent := func(h *host) { // rolled back, reason not known yet
		h.ObserveUpgrade("1.0.0", &agentapi.UpgradeDetails{TargetVersion: "1.1.0", ActionID: "act", State: agentapi.UpgradeRollback}, h.now)
	}
	forgets := func(h *host) { h.checkin("1.0.0", "") } // the old version has no details
	late := func(h *host) { h.checkin("1.1.0", agentapi.UpgradeWatching) }
	ack := func(h *host) { h.ObserveAck("act", "rolled back", false, h.now) }
	for name, row := range map[string]struct {
		order  []func(*host)
		reason string
	}{
		"watcher, agent":                      {[]func(*host){watcher, agent}, "in the agent's words"},
		"agent, watcher":                      {[]func(*host){agent, watcher}, "in the agent's words"},
		"watcher, agent, watcher":             {[]func(*host){watcher, agent, watcher}, "in the agent's words"},
		"watcher, agent without a reason":     {[]func(*host){watcher, silent}, "it crashed 3 times"},
		"agent without a reason, watcher":     {[]func(*host){silent, watcher}, "it crashed 3 times"},
		"all three":                           {[]func(*host){silent, watcher, agent}, "in the agent's words"},
		"watcher, agent that forgets":         {[]func(*host){watcher, forgets}, "it crashed 3 times"},
		"agent that forgets, watcher":         {[]func(*host){forgets, watcher}, "it crashed 3 times"},
		"watcher, a late report":              {[]func(*host){watcher, late}, "it crashed 3 times"},
		"watcher, a late report, agent":       {[]func(*host){watcher, late, agent}, "in the agent's words"},
		"acknowledged with an error, watcher": {[]func(*host){ack, watcher}, "it crashed 3 times"},
		"watcher, acknowledged with an error": {[]func(*host){watcher, ack}, "it crashed 3 times"},
		"agent, then a rollback that begins":  {[]func(*host){agent, func(h *host) { h.beacon(agentapi.BeaconRollingBack) }}, "in the agent's words"},
	} {
		t.Run(name, func(t *testing.T) {
			h := begun(t)
			h.checkin("1.0.0", agentapi.UpgradeRestarting)
			for _, report := range row.order {
				report(h.after(time.Second))
			}
			h.wantRolledBack(row.reason)
			before := *h.UpgradeDetails
			for _, report := range row.order {
				report(h) // everything repeated
			}
			h.wantRolledBack(row.reason)
			if !reflect.DeepEqual(*h.UpgradeDetails, before) {
				t.Errorf("repetition changed the details: %+v", h.UpgradeDetails)
			}
		})
	}
}

func TestLateBeaconIsIgnored(t *testing.T) {
	t.Run("of the same watch", func(t *testing.T) {
		h := begun(t)
		h.beacon(agentapi.BeaconRolledBack)
		for _, phase := range []agentapi.BeaconPhase{agentapi.BeaconWatching, agentapi.BeaconRollingBack, agentapi.BeaconRollbackFailed} {
			if change := h.after(time.Hour).beacon(phase); change != (BeaconChange{}) {
				t.Errorf("%s: %+v", phase, change)
			}
		}
		h.wantRolledBack("it crashed 3 times")
		if h.Watch.Phase != agentapi.BeaconRolledBack {
			t.Errorf("phase is %s", h.Watch.Phase)
		}
	})
	t.Run("of an earlier action", func(t *testing.T) {
		h := begun(t)
		h.beacon(agentapi.BeaconWatching)
		h.BeginUpgrade("again", "1.1.0", h.after(time.Hour).now)
		if change := h.beacon(agentapi.BeaconRolledBack); change.Upgrade || h.UpgradeStatus != UpgradeStarted {
			t.Errorf("it ended the newer upgrade: %+v", change)
		}
		h.after(time.Minute).beacon(agentapi.BeaconWatching, of("again"))
		if change := h.beacon(agentapi.BeaconRollbackFailed); change != (BeaconChange{}) || h.Watch.ActionID != "again" {
			t.Errorf("it took the newer one's place: %+v", change)
		}
		h.want(UpgradeStarted, true)
	})
	t.Run("of an earlier watch of the host's own", func(t *testing.T) {
		h := newHost(t)
		early := h.now
		h.after(time.Hour).beacon(agentapi.BeaconWatching, of(""), func(b *agentapi.Beacon) { b.To = "1.2.0" })
		change := h.beacon(agentapi.BeaconRolledBack, of(""), func(b *agentapi.Beacon) { b.At = early })
		if change != (BeaconChange{}) || h.Watch.To != "1.2.0" || h.UpgradeStatus != UpgradeNone {
			t.Errorf("it took the newer one's place: %+v", change)
		}
	})
	t.Run("of an action nobody knows", func(t *testing.T) {
		h := newHost(t)
		if change := h.beacon(agentapi.BeaconRolledBack, of("forged")); change.Upgrade || h.UpgradeStatus != UpgradeNone {
			t.Errorf("it ended an upgrade: %+v", change)
		}
	})
}

func TestBeaconsOfUpgradeStartedOnHost(t *testing.T) {
	h := newHost(t)
	// The agent never reported it.
	h.beacon(agentapi.BeaconWatching, of(""))
	h.want(UpgradeNone, false)
	h.after(time.Minute).beacon(agentapi.BeaconRolledBack, of(""), dead)
	h.wantRolledBack("it crashed 3 times")
	h.checkinOf("", "1.0.0", agentapi.UpgradeRollback)
	h.want(UpgradeRolledBack, false)

	// The same upgrade again: a second watch, which ends well.
	h.after(time.Hour).checkinOf("", "1.0.0", agentapi.UpgradeReplacing)
	h.want(UpgradeStarted, true)
	if change := h.after(time.Minute).beacon(agentapi.BeaconWatching, of("")); !change.Phase {
		t.Errorf("the second watch is taken for a late beacon of the first: %+v", change)
	}
	h.checkinOf("", "1.1.0", agentapi.UpgradeWatching)
	h.after(time.Minute).beacon(agentapi.BeaconCommitted, of(""))
	h.checkinOf("", "1.1.0", "")
	h.want(UpgradeNone, false)
	if h.UpgradedAt == nil || h.Watch.Phase != agentapi.BeaconCommitted {
		t.Errorf("upgraded at %v, watch %+v", h.UpgradedAt, h.Watch)
	}

	// An upgrade started on the host does not end the action's upgrade.
	h = begun(t)
	if change := h.beacon(agentapi.BeaconRolledBack, of("")); change.Upgrade {
		t.Errorf("it ended the action's upgrade: %+v", change)
	}
	h.want(UpgradeStarted, true)
}

func TestUnchangedBeaconIsWrittenEveryBeaconWrite(t *testing.T) {
	h := begun(t)
	if change := h.beacon(agentapi.BeaconWatching); change != (BeaconChange{Write: true, Phase: true}) {
		t.Errorf("the first: %+v", change)
	}
	writes := 0
	for range 30 { // two minutes and a half
		checkin := h.after(5 * time.Second).now
		change := h.beacon(agentapi.BeaconWatching, func(b *agentapi.Beacon) { b.Agent.LastCheckin, b.Waiting = &checkin, checkin.String() })
		if change.Phase || change.Upgrade {
			t.Fatalf("it was a change: %+v", change)
		}
		if change.Write {
			writes++
			if !h.Watch.ReceivedAt.Equal(h.now) || h.Watch.Waiting != checkin.String() {
				t.Fatalf("written is %+v", h.Watch)
			}
		}
	}
	if writes != 5 {
		t.Errorf("written %d times, want every %s", writes, BeaconWrite)
	}
	for name, change := range map[string]func(*agentapi.Beacon){
		"its process is gone": func(b *agentapi.Beacon) { b.Agent.Alive = false },
		"it does not answer":  func(b *agentapi.Beacon) { b.Agent.State = "" },
		"another answers":     func(b *agentapi.Beacon) { b.Agent.Version = "1.0.0" },
		"it crashed":          func(b *agentapi.Beacon) { b.Agent.Crashes = 1 },
	} {
		h.beacon(agentapi.BeaconWatching)
		if got := h.beacon(agentapi.BeaconWatching, change); got != (BeaconChange{Write: true}) {
			t.Errorf("%s: %+v", name, got)
		}
	}
}

func TestDiagnose(t *testing.T) {
	gone := func(b *agentapi.Beacon) { b.Agent = agentapi.BeaconAgent{Crashes: 2} }
	hung := func(b *agentapi.Beacon) { b.Agent.State = "" }
	fine := func(*agentapi.Beacon) {}
	for _, row := range []struct {
		name      string
		phase     agentapi.BeaconPhase // "" for no beacon ever
		sees      func(*agentapi.Beacon)
		beaconAge time.Duration
		seenAge   time.Duration // since the last check-in
		want      Diagnosis
		says      string
	}{
		{"no watcher", "", fine, 0, time.Hour, DiagnosisNone, ""},
		{"it checks in", agentapi.BeaconWatching, fine, 0, time.Minute, DiagnosisNone, ""},
		{"it checks in, and the watcher is silent", agentapi.BeaconWatching, fine, time.Hour, time.Minute, DiagnosisNone, ""},
		{"its process is gone", agentapi.BeaconWatching, gone, time.Minute, 2 * time.Minute, DiagnosisAgentDown, "it ended 2 times"},
		{"it hangs", agentapi.BeaconWatching, hung, time.Minute, 2 * time.Minute, DiagnosisAgentDown, "does not answer"},
		{"it runs and does not come through", agentapi.BeaconWatching, fine, BeaconFresh, 2 * time.Minute, DiagnosisAgentCutOff, "has not checked in since 2026-03-03T09:58:00Z"},
		{"while it is rolled back", agentapi.BeaconRollingBack, gone, time.Second, 2 * time.Minute, DiagnosisAgentDown, ""},
		{"neither is heard of", agentapi.BeaconWatching, fine, BeaconFresh + 1, time.Hour, DiagnosisNoSign, "network or power"},
		{"nor while it is rolled back", agentapi.BeaconRollingBack, fine, time.Hour, 2 * time.Hour, DiagnosisNoSign, "since 2026-03-03T09:00:00Z"},
		{"rolled back, and silent since", agentapi.BeaconRolledBack, fine, time.Hour, 2 * time.Hour, DiagnosisRolledBack, "rolled back to 1.0.0 (it crashed 3 times)"},
		{"rolled back, came back, silent later", agentapi.BeaconRolledBack, fine, 3 * time.Hour, 2 * time.Hour, DiagnosisNone, ""},
		{"could not be rolled back", agentapi.BeaconRollbackFailed, gone, time.Hour, 2 * time.Hour, DiagnosisRollbackFailed, "needs manual repair"},
		{"good, and silent later", agentapi.BeaconCommitted, fine, time.Hour, 2 * time.Hour, DiagnosisNone, ""},
	} {
		t.Run(row.name, func(t *testing.T) {
			h := begun(t)
			if row.phase != "" {
				h.now = now.Add(-row.beaconAge)
				h.beacon(row.phase, row.sees)
			}
			h.Last.At = ago(row.seenAge)
			got, text := h.Diagnose(now)
			if got != row.want || !strings.Contains(text, row.says) || (text == "") != (got == DiagnosisNone) {
				t.Errorf("it is %q: %s", got, text)
			}
		})
	}
}

func TestCheckBeaconNamesInvalidField(t *testing.T) {
	good := agentapi.Beacon{From: "1.0.0", To: "1.1.0-SNAPSHOT", Phase: agentapi.BeaconWatching, At: now}
	if err := CheckBeacon(good); err != nil {
		t.Fatal(err)
	}
	for field, change := range map[string]func(*agentapi.Beacon){
		"body.stage":         func(b *agentapi.Beacon) { b.Phase = "hoping" },
		"body.from":          func(b *agentapi.Beacon) { b.From = "" },
		"body.to":            func(b *agentapi.Beacon) { b.To = "next" },
		"body.at":            func(b *agentapi.Beacon) { b.At = time.Time{} },
		"body.agent.crashes": func(b *agentapi.Beacon) { b.Agent.Crashes = -1 },
		"body.reason":        func(b *agentapi.Beacon) { b.Phase = agentapi.BeaconRolledBack },
	} {
		b := good
		change(&b)
		if err := CheckBeacon(b); err == nil || KindOf(err) != Invalid || !strings.Contains(err.Error(), "[request "+field+"]") {
			t.Errorf("%s: %v", field, err)
		}
	}
	for _, r := range []agentapi.BeaconCause{{Code: "crash_loop"}, {Text: "it crashed"}} {
		b := good
		b.Reason = &r
		if err := CheckBeacon(b); err == nil || !strings.Contains(err.Error(), "[request body.reason]") {
			t.Errorf("half a reason %+v: %v", r, err)
		}
	}
}

// However the reports of agent and watcher about one rolled back upgrade are ordered
// and repeated, the document ends the same.
func TestReportsEndTheSameInAnyOrder(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		h := begun(t)
		h.checkin("1.0.0", agentapi.UpgradeRestarting)
		reports := []func(){
			func() { h.beacon(agentapi.BeaconWatching) },
			func() { h.beacon(agentapi.BeaconRollingBack, dead) },
			func() { h.beacon(agentapi.BeaconRolledBack) },
			func() { h.checkin("1.0.0", "") },
			func() { h.checkin("1.1.0", agentapi.UpgradeWatching) },
			func() { h.ObserveAck("act", "rolled back", false, h.now) },
			h.rolledBackReport,
		}
		order := rapid.Permutation(append(reports, reports...)).Draw(rt, "order")
		for _, report := range order {
			h.after(time.Second)
			report()
		}
		if d := h.UpgradeDetails; h.UpgradeStatus != UpgradeRolledBack || d == nil || d.State != agentapi.UpgradeRollback || d.Metadata.Reason != "in the agent's words" {
			rt.Fatalf("it ended %q with %+v", h.UpgradeStatus, d)
		}
		if r, ok := h.UpgradeResult("", h.now); !ok || r.Error != "in the agent's words" {
			rt.Fatalf("its result is %+v, %v", r, ok)
		}
	})
}
