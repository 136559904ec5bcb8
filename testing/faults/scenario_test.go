package faults

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/muster-fleet/muster/server/agentapi"
	"github.com/muster-fleet/muster/testing/fakeserver"
	"github.com/muster-fleet/muster/watcher/handoff"
)

// scenario is an upgrade or rollback whose every call is interrupted.
type scenario struct {
	name  string
	about string // a line for the table
	// agent and watcher are the behaviour of the next version's programs.
	agent, watcher life
	// kept means that the next version's home is already on the host.
	kept bool
	// back means a manual rollback after a good upgrade.
	back bool
	// ends is the only good end, with and without a fault.
	ends end
	// reasons are the reasons with which the host may end with the old version.
	reasons []reason
}

// reason is why a host ended with the old version, as its server was told: the reason code
// of a rollback, or the phase in which the upgrade failed.
type reason string

// afterSwitch are the reasons of a version that never starts. Which one depends on whether
// its process was seen.
var afterSwitch = []reason{reason(handoff.ReasonCrashLoop), reason(handoff.ReasonNotStarted)}

func failedIn(phase agentapi.UpgradeState) reason { return "failed in " + reason(phase) }

var scenarios = []scenario{
	{name: "good_upgrade", agent: good, watcher: good, ends: endNew, about: "a good version is installed, watched and kept"},
	{name: "kept_home", agent: good, watcher: good, kept: true, ends: endNew, about: "likewise, and its files are on the host already"},
	{
		name: "cannot_start", agent: exits, watcher: good, ends: endOld, reasons: afterSwitch,
		about: "the new version ends at once whenever it is started, and is rolled back",
	},
	{
		name: "crash_loop", agent: crashes, watcher: good, ends: endOld, reasons: []reason{reason(handoff.ReasonCrashLoop)},
		about: "the new version comes up, says that it is there, and crashes, again and again",
	},
	{
		name: "component_failed", agent: unhealthy, watcher: good, ends: endOld, reasons: []reason{reason(handoff.ReasonComponentFailed)},
		about: "the new version runs, and what it is to run has failed",
	},
	{
		name: "old_watcher", agent: exits, watcher: garbage, ends: endOld, reasons: afterSwitch,
		about: "the new version cannot start, and its watcher cannot either: the old one watches",
	},
	{
		name: "failed_exec", agent: garbage, watcher: good, ends: endOld, reasons: append(afterSwitch, failedIn(agentapi.UpgradeRestarting)),
		about: "the new version's program cannot be executed, and everything is undone",
	},
	{name: "manual_rollback", agent: good, watcher: good, back: true, ends: endNew, about: "a rollback by hand after a good upgrade"},
}

// named returns a scenario of the proof.
func named(name string) scenario {
	return scenarios[slices.IndexFunc(scenarios, func(s scenario) bool { return s.name == name })]
}

const (
	firstAction  = "upgrade-1"
	backAction   = "rollback-1"
	secondAction = "upgrade-2"
)

// begin returns the snapshot before the scenario, and how it may end.
func (s scenario) begin(t *testing.T, k *kit) (snapshot, expectation) {
	t.Helper()
	old, next := k.release(t, "1.0.0", good, good), k.release(t, "1.1.0", s.agent, s.watcher)
	w := k.installed(t, old, next, k.further(t).release)
	if s.kept {
		must(t, unpack(w.fs.View(noHook), next))
		w.fs.SyncAll()
	}
	w = w.ask(firstAction, agentapi.UpgradeData{Version: next.install.Version})
	e := expectation{action: firstAction, old: old, new: next, end: s.ends, reasons: s.reasons}
	if !s.back {
		return w, e
	}
	w = w.after(t, e)
	e = expectation{action: backAction, old: next, new: old, end: endNew}
	return w.ask(backAction, agentapi.UpgradeData{Version: old.install.Version, Rollback: true}), e
}

// further returns the upgrade that must work on a host that has recovered from a fault.
func (k *kit) further(t testing.TB) further {
	t.Helper()
	return further{release: k.release(t, "1.2.0", good, good), action: secondAction}
}

// ask lets the server send an UPGRADE to its agent.
func (w snapshot) ask(id string, d agentapi.UpgradeData) snapshot {
	data, err := json.Marshal(d)
	if err != nil {
		panic("faults: a struct of texts cannot fail to encode: " + err.Error())
	}
	s := fakeserver.NewHandler(w.server)
	s.Send(agentapi.Action{ID: id, Type: agentapi.ActionUpgrade, CreatedAt: time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC), Data: data})
	w.server = s.State()
	return w
}

// after returns the snapshot after a run without faults, with the host switched off.
func (w snapshot) after(t *testing.T, e expectation) snapshot {
	t.Helper()
	w.fs = w.fs.Clone()
	runHost(t, w, quiet, nil, func(h *host) {
		if r := h.converge(e); r.end == endBad {
			t.Errorf("the upgrade before the rollback does not end well:\n%s", strings.Join(r.wrong, "\n"))
		}
		w.server, w.at = h.server.State(), elapsed()
	})
	w.fs = w.fs.Killed()
	w.at += offFor
	return w
}
