package faults

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/muster-fleet/muster/packaging/host/disk"
	"github.com/muster-fleet/muster/server/wire/agentapi"
	"github.com/muster-fleet/muster/testing/kit/fakeserver"
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
	// beside means that the server has no signed metadata, and they lie beside the packages.
	beside bool
	// older means that the host keeps an older version than the one that runs.
	older bool
	// slow is how long the archive takes to come, and closed until when the server has
	// no files.
	slow, closed time.Duration
	// cancelled and superseded mean that the server cancels the upgrade, or sends another
	// one, while the archive comes.
	cancelled, superseded bool
	// stage means that somebody on the host has the next version staged; alone, nothing more.
	// switched means that it was staged before, and the server orders to switch to it, and
	// overtaken that the server orders the version while it is being staged.
	stage, switched, overtaken bool
	// variant means that most of its calls are those of another scenario.
	variant bool
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
	{name: "metadata_beside", variant: true, agent: good, watcher: good, beside: true, ends: endNew, about: "likewise, at a Fleet Server, which has no signed metadata: they lie beside the packages"},
	{name: "kept_home", agent: good, watcher: good, kept: true, ends: endNew, about: "a good version whose files are on the host already"},
	{
		name: "cannot_start", agent: exits, watcher: good, ends: endOld, reasons: afterSwitch,
		about: "the new version ends at once whenever it is started, and is rolled back",
	},
	{
		name: "crash_loop", agent: crashes, watcher: good, ends: endOld, reasons: []reason{reason(handoff.ReasonCrashLoop)},
		about: "the new version comes up, says that it is there, and crashes, again and again",
	},
	{
		name: "agent_failed", agent: unhealthy, watcher: good, ends: endOld, reasons: []reason{reason(handoff.ReasonAgentFailed)},
		about: "the new version runs, and fails a check of itself that the old one passes",
	},
	{
		name: "old_watcher", agent: exits, watcher: garbage, ends: endOld, reasons: afterSwitch,
		about: "the new version cannot start, and its watcher cannot either: the old one watches",
	},
	{
		name: "failed_exec", agent: garbage, watcher: good, ends: endOld, reasons: append(afterSwitch, failedIn(agentapi.UpgradeRestarting)),
		about: "the new version's program cannot be executed, and everything is undone",
	},
	{
		name: "checked", variant: true, agent: sound, watcher: good, ends: endNew,
		about: "a good version whose package brings a check, which passes",
	},
	{
		name: "check_failed", variant: true, agent: unsound, watcher: good, ends: endOld, reasons: []reason{reason(handoff.ReasonCheckFailed)},
		about: "the new version runs, and the check of its package never passes",
	},
	{
		name: "cancelled", agent: good, watcher: good, slow: downloadTakes, cancelled: true, ends: endOld,
		reasons: []reason{failedIn(agentapi.UpgradeRequested), failedIn(agentapi.UpgradeDownloading), agentapi.Cancelled},
		about:   "the server cancels the upgrade while the archive is fetched",
	},
	{
		name: "superseded", variant: true, agent: good, watcher: good, slow: downloadTakes, superseded: true, ends: endNew,
		about: "the server sends a newer upgrade while the archive is fetched",
	},
	{
		name: "retried", variant: true, agent: good, watcher: good, closed: serverReturns, ends: endNew,
		about: "the server has no files at first, and the upgrade is tried again after a minute",
	},
	{
		name: "older_generation", variant: true, agent: good, watcher: good, older: true, ends: endNew,
		about: "a good version on a host that keeps an older one, which is removed",
	},
	{
		name: "older_generation_bad", variant: true, agent: exits, watcher: good, older: true, ends: endOld, reasons: afterSwitch,
		about: "the new version cannot start, on a host that keeps an older one, which stays",
	},
	{
		name: "stage", agent: good, watcher: good, stage: true, ends: endOld,
		about: "a good version is staged on the host; once the agent says so, it stays so, and the old version runs all the time",
	},
	{
		name: "stage_then_switch", agent: good, watcher: good, stage: true, switched: true, ends: endNew,
		about: "a good version that was staged before is switched to",
	},
	{
		name: "stage_overtaken", variant: true, agent: good, watcher: good, stage: true, slow: downloadTakes, overtaken: true, ends: endNew,
		about: "the server sends an upgrade to the version whose archive is fetched to be staged",
	},
	{name: "manual_rollback", agent: good, watcher: good, back: true, ends: endNew, about: "a rollback by hand after a good upgrade"},
}

// named returns a scenario of the proof.
func named(name string) scenario {
	return scenarios[slices.IndexFunc(scenarios, func(s scenario) bool { return s.name == name })]
}

const (
	firstAction  = "upgrade-1"
	cancelAction = "cancel-1"
	newerAction  = "upgrade-1b"
	backAction   = "rollback-1"
	secondAction = "upgrade-2"
)

const (
	downloadTakes = 20 * time.Second
	// changesMind is when the server sends its second action, during the download.
	changesMind   = 10 * time.Second
	serverReturns = 30 * time.Second
)

// begin returns the snapshot before the scenario, and how it may end.
func (s scenario) begin(t *testing.T, k *kit) (snapshot, expectation) {
	t.Helper()
	old, next := k.release(t, "1.0.0", good, good), k.release(t, "1.1.0", s.agent, s.watcher)
	newer := k.release(t, "1.1.1", good, good)
	w := k.installed(t, s.beside, old, next, newer, k.further(t).release)
	w.script = script{slow: s.slow, closed: s.closed}
	if s.kept {
		must(t, unpack(w.fs.View(noHook), next))
		w.fs.SyncAll()
	}
	if s.stage {
		return s.beginStage(t, w, old, next)
	}
	w = w.ask(firstAction, agentapi.UpgradeData{Version: next.install.Version})
	e := expectation{action: firstAction, old: old, new: next, end: s.ends, reasons: s.reasons}
	switch {
	case s.older:
		e.older = k.release(t, "0.9.0", good, good)
		must(t, keep(w.fs.View(noHook), e.older, old))
		w.fs.SyncAll()
	case s.cancelled:
		w.script.later = []delivery{{changesMind, action(cancelAction, agentapi.ActionCancel, agentapi.CancelData{TargetID: firstAction})}}
	case s.superseded:
		w.script.later = []delivery{{changesMind, action(newerAction, agentapi.ActionUpgrade, agentapi.UpgradeData{Version: newer.install.Version})}}
		e.action, e.new = newerAction, newer
	}
	if !s.back {
		return w, e
	}
	w = w.after(t, e)
	e = expectation{action: backAction, old: next, new: old, end: endNew}
	return w.ask(backAction, agentapi.UpgradeData{Version: old.install.Version, Rollback: true}), e
}

// beginStage is begin for the scenarios with a stage.
func (s scenario) beginStage(t *testing.T, w snapshot, old, next *release) (snapshot, expectation) {
	t.Helper()
	w.script.stage = next.install.Version
	e := expectation{old: old, new: next, staged: next, end: endOld}
	upgrade := agentapi.UpgradeData{Version: next.install.Version}
	switch {
	case s.overtaken:
		w.script.later = []delivery{{changesMind, action(firstAction, agentapi.ActionUpgrade, upgrade)}}
	case s.switched:
		w = w.after(t, e)
		w.script, upgrade.Rollback = script{}, true
		w = w.ask(firstAction, upgrade)
	default:
		return w, e
	}
	return w, expectation{action: firstAction, old: old, new: next, end: endNew}
}

// further returns the upgrade that must work on a host that has recovered from a fault.
func (k *kit) further(t testing.TB) further {
	t.Helper()
	return further{release: k.release(t, "1.2.0", good, good), action: secondAction}
}

// ask lets the server send an UPGRADE to its agent.
func (w snapshot) ask(id string, d agentapi.UpgradeData) snapshot {
	s := fakeserver.NewHandler(w.server)
	s.Send(action(id, agentapi.ActionUpgrade, d))
	w.server = s.State()
	return w
}

func action(id string, kind agentapi.ActionType, data any) agentapi.Action {
	text, err := json.Marshal(data)
	if err != nil {
		panic("faults: a struct of texts cannot fail to encode: " + err.Error())
	}
	return agentapi.Action{ID: id, Type: kind, CreatedAt: began, Data: text}
}

// keep unpacks an older version, to which a host can be rolled back since it was upgraded.
func keep(d disk.Disk, older, runs *release) error {
	if err := unpack(d, older); err != nil {
		return err
	}
	return handoff.WriteVersions(d, top, handoff.Versions{OnHost: []handoff.Version{{Install: older.install, ReplacedAt: began}}})
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
