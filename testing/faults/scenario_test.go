package faults

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/muster-fleet/muster/server/agentapi"
	"github.com/muster-fleet/muster/testing/fakeserver"
)

// scenario is one story whose every call is interrupted.
type scenario struct {
	name  string
	about string // a line for the table
	// agent and watcher are how the programs of the next version fare.
	agent, watcher life
	// kept has the next version's home on the host before the story begins.
	kept bool
	// back is a rollback by hand, after a good upgrade.
	back bool
	// undisturbed is how the story ends if nothing happens; empty if that is not
	// fixed.
	undisturbed end
}

var scenarios = []scenario{
	{name: "good_upgrade", agent: good, watcher: good, undisturbed: endNew, about: "a good version is installed, watched and kept"},
	{name: "kept_home", agent: good, watcher: good, kept: true, undisturbed: endNew, about: "likewise, and its files are on the host already"},
	{name: "cannot_start", agent: exits, watcher: good, undisturbed: endOld, about: "the new version ends at once whenever it is started, and is rolled back"},
	{name: "crash_loop", agent: crashes, watcher: good, undisturbed: endOld, about: "the new version comes up, says that it is there, and crashes, again and again"},
	{name: "component_failed", agent: sickly, watcher: good, undisturbed: endOld, about: "the new version runs, and what it is to run has failed"},
	{name: "old_watcher", agent: exits, watcher: garbage, undisturbed: endOld, about: "the new version cannot start, and its watcher cannot either: the old one watches"},
	{name: "failed_hand_over", agent: garbage, watcher: good, undisturbed: endOld, about: "the new version's program cannot be executed, and everything is undone"},
	{name: "manual_rollback", agent: good, watcher: good, back: true, undisturbed: endNew, about: "a rollback by hand after a good upgrade"},
}

const (
	firstAction  = "upgrade-1"
	backAction   = "rollback-1"
	secondAction = "upgrade-2"
)

// begin is the world before the story, and what it may end as.
func (s scenario) begin(t *testing.T, k *kit) (world, expectation) {
	t.Helper()
	old, next := k.release(t, "1.0.0", good, good), k.release(t, "1.1.0", s.agent, s.watcher)
	w := k.installed(t, old, next, k.further(t).release)
	if s.kept {
		must(t, unpack(w.fs.View(noHook), next))
		w.fs.Settle()
	}
	w = w.ask(firstAction, agentapi.UpgradeData{Version: next.install.Version})
	e := expectation{action: firstAction, old: old, new: next, mayKeep: s.agent == good}
	if !s.back {
		return w, e
	}
	w = w.after(t, e)
	e = expectation{action: backAction, old: next, new: old, mayKeep: true}
	return w.ask(backAction, agentapi.UpgradeData{Version: old.install.Version, Rollback: true}), e
}

// further is the upgrade that must work on a host that came out of a fault.
func (k *kit) further(t testing.TB) further {
	t.Helper()
	return further{release: k.release(t, "1.2.0", good, good), action: secondAction}
}

// ask has the server tell its agent to upgrade.
func (w world) ask(id string, d agentapi.UpgradeData) world {
	data, err := json.Marshal(d)
	if err != nil {
		panic("faults: a struct of texts cannot fail to encode: " + err.Error())
	}
	s := fakeserver.NewHandler(w.memory)
	s.Send(agentapi.Action{ID: id, Type: agentapi.ActionUpgrade, CreatedAt: time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC), Data: data})
	w.memory = s.Memory()
	return w
}

// after is the world after its story was told undisturbed, and the host switched
// off.
func (w world) after(t *testing.T, e expectation) world {
	t.Helper()
	w.fs = w.fs.Clone()
	story(t, w, quiet, nil, func(h *host) {
		if how, wrong := h.converge(e); how == endBad {
			t.Errorf("the story before the story does not end well:\n%s", strings.Join(wrong, "\n"))
		}
		w.memory, w.at = h.server.Memory(), elapsed()
	})
	w.fs = w.fs.Killed()
	w.at += offFor
	return w
}
