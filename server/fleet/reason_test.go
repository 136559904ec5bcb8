package fleet

import (
	"testing"

	"github.com/muster-fleet/muster/server/wire/agentapi"
)

// A host that is in trouble of its own reports the end of its upgrade again, and knows less.
func TestVaguerReasonNeverReplacesAnEarlierOne(t *testing.T) {
	report := func(code, text string) func(*host) {
		return func(h *host) {
			h.ObserveUpgrade("1.0.0", &agentapi.UpgradeDetails{
				TargetVersion: "1.1.0", ActionID: "act", State: agentapi.UpgradeRollback,
				Metadata: agentapi.UpgradeMetadata{Reason: text, ReasonCode: code},
			}, h.now)
		}
	}
	beacon := func(phase agentapi.BeaconPhase, code, text string) func(*host) {
		return func(h *host) {
			h.beacon(phase, func(b *agentapi.Beacon) { b.Reason = &agentapi.BeaconCause{Code: code, Text: text} })
		}
	}
	const begins, ended = agentapi.BeaconRollingBack, agentapi.BeaconRolledBack
	for name, row := range map[string]struct {
		reports    []func(*host)
		code, text string
	}{
		"agent: never started":           {[]func(*host){report("crash_loop", "crashed"), report("not_started", "was never started")}, "crash_loop", "crashed"},
		"agent: unknown":                 {[]func(*host){report("crash_loop", "crashed"), report("unknown", "nobody knows")}, "crash_loop", "crashed"},
		"agent: a text without a code":   {[]func(*host){report("unwritable", "full"), report("", "it went back")}, "unwritable", "full"},
		"agent: nothing":                 {[]func(*host){report("not_started", "was never started"), report("", "")}, "not_started", "was never started"},
		"watcher: never started":         {[]func(*host){beacon(begins, "crash_loop", "crashed"), beacon(ended, "not_started", "was never started")}, "crash_loop", "crashed"},
		"agent, watcher: never started":  {[]func(*host){report("crash_loop", "crashed"), beacon(ended, "not_started", "was never started")}, "crash_loop", "crashed"},
		"watcher, agent: never started":  {[]func(*host){beacon(ended, "crash_loop", "crashed"), report("not_started", "was never started")}, "crash_loop", "crashed"},
		"a true reason follows":          {[]func(*host){report("not_started", "was never started"), report("crash_loop", "crashed")}, "crash_loop", "crashed"},
		"the watcher's true one follows": {[]func(*host){report("not_started", "was never started"), beacon(ended, "crash_loop", "crashed")}, "crash_loop", "crashed"},
		"as true a reason follows":       {[]func(*host){report("crash_loop", "crashed"), report("settings", "a tab in line 3")}, "settings", "a tab in line 3"},
	} {
		t.Run(name, func(t *testing.T) {
			h := begun(t)
			h.checkin("1.0.0", agentapi.UpgradeRestarting)
			for _, r := range append(row.reports, row.reports[len(row.reports)-1]) {
				r(h)
			}
			h.want(UpgradeRolledBack, false)
			if m := h.UpgradeDetails.Metadata; m.ReasonCode != row.code || m.Reason != row.text || m.ErrorMsg != "" {
				t.Errorf("the reason is %s: %s (%s), want %s: %s", m.ReasonCode, m.Reason, m.ErrorMsg, row.code, row.text)
			}
			if r, ok := h.UpgradeResult("", h.now); !ok || r.Error != row.text {
				t.Errorf("the result is %+v, want %s", r, row.text)
			}
		})
	}

	h := begun(t)
	h.checkin("1.0.0", agentapi.UpgradeRestarting)
	beacon(begins, "crash_loop", "crashed")(h)
	beacon(ended, "not_started", "was never started")(h)
	if r := h.Watch.Reason; r.Code != "crash_loop" || r.Text != "crashed" {
		t.Errorf("the watch has the reason %+v", r)
	}
	h.BeginUpgrade("again", "1.1.0", h.now)
	h.checkin("1.0.0", agentapi.UpgradeRestarting)
	h.beacon(ended, of("again"), func(b *agentapi.Beacon) {
		b.Reason = &agentapi.BeaconCause{Code: "not_started", Text: "was never started"}
	})
	if m := h.UpgradeDetails.Metadata; m.ReasonCode != "not_started" || h.Watch.Reason.Code != "not_started" {
		t.Errorf("the next upgrade has the reason of the one before: %+v", m)
	}
}

func TestComponentKeepsTheReasonThatSaysMore(t *testing.T) {
	u := Subject{Component: "web", Upgrade: &Upgrade{UpgradeActionID: "act", UpgradeTo: "2.0.0", UpgradeFrom: "1.0.0"}}
	report := func(code, text string) *agentapi.UpgradeDetails {
		return &agentapi.UpgradeDetails{
			TargetVersion: "2.0.0", ActionID: "act", State: agentapi.UpgradeFailed,
			Metadata: agentapi.UpgradeMetadata{FailedState: agentapi.UpgradeWatching, ReasonCode: code, ErrorMsg: text},
		}
	}
	if !u.end(report("crash_loop", "crashed"), now) || u.end(report("", ""), now) || u.end(report("", "failed"), now) {
		t.Error("a vaguer report is a change")
	}
	if m := u.UpgradeDetails.Metadata; m.ReasonCode != "crash_loop" || m.ErrorMsg != "crashed" {
		t.Errorf("the reason is %+v", m)
	}
}
