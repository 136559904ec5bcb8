package queue

import (
	"encoding/json"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/muster-fleet/muster/server/wire/agentapi"
)

func together(id string, created time.Duration) agentapi.Action {
	return agentapi.Action{ID: id, Type: agentapi.ActionUpgrade, CreatedAt: noon.Add(created), Data: fmt.Appendf(nil,
		`{"version":"1.1.0","component":{"name":"web","upgrade_id":"u-%s","lockstep":{"until":"drain"}}}`, id)}
}

func proceed(id, of string, until agentapi.LockstepPhase) agentapi.Action {
	return proceedAs(id, agentapi.ProceedData{Component: "web", UpgradeID: "u-" + of, Until: until})
}

func undo(id, of, why string) agentapi.Action {
	return proceedAs(id, agentapi.ProceedData{Component: "web", UpgradeID: "u-" + of, Undo: true, Reason: why})
}

func proceedAs(id string, d agentapi.ProceedData) agentapi.Action {
	data, err := json.Marshal(d)
	if err != nil {
		panic(err)
	}
	return agentapi.Action{ID: id, Type: agentapi.ActionProceed, CreatedAt: noon, Data: data}
}

// lockstepQueue has an upgrade in lockstep that has begun.
func lockstepQueue(t *testing.T) *testQueue {
	s := newTestQueue(t, t.TempDir())
	s.accept(together("a", 0))
	if err := s.Begin("a"); err != nil {
		t.Fatal(err)
	}
	return s
}

func (s *testQueue) answered(want ...string) {
	s.t.Helper()
	if got := s.results(); !slices.Equal(got, want) {
		s.t.Errorf("the results are %q, want %q", got, want)
	}
}

func TestProceedIsStoredWithItsUpgrade(t *testing.T) {
	s := lockstepQueue(t)
	is := func(until agentapi.LockstepPhase, undo string) {
		t.Helper()
		s.reopen("agent-1")
		if i := s.Lockstep(); len(i) != 1 || i[0].Until != until || i[0].Undo != undo {
			t.Errorf("in lockstep is %+v, want until %q and undo %q", i, until, undo)
		}
	}
	is("", "")
	s.accept(proceed("p1", "a", agentapi.LockstepStop), proceed("p2", "a", agentapi.LockstepBackup))
	is(agentapi.LockstepBackup, "")
	s.accept(proceed("p3", "a", agentapi.LockstepDrain)) // it comes late
	is(agentapi.LockstepBackup, "")
	s.accept(undo("p4", "a", "a host was lost"), proceed("p5", "a", agentapi.LockstepSwitch))
	is(agentapi.LockstepBackup, "undone by its rollout: a host was lost")
	s.answered("p1", "p2", "p3", "p4", "p5: the upgrade is being undone")
	if err := s.Finish("a", Result{Error: "undone"}, noon); err != nil {
		t.Fatal(err)
	}
	s.accept(undo("p6", "a", ""), proceed("p7", "a", agentapi.LockstepStop), proceed("p8", "a", "later"), proceedAs("p9", agentapi.ProceedData{Component: "db", UpgradeID: "u-a", Until: agentapi.LockstepStop}))
	if len(s.Lockstep()) > 0 {
		t.Errorf("in lockstep is %+v", s.Lockstep())
	}
	s.answered("p1", "p2", "p3", "p4", "p5: the upgrade is being undone", "a: undone", "p6",
		"p7: no upgrade u-a of component web is under way in lockstep",
		`p8: data.until: is "later", want one of ["drain" "stop" "backup" "switch" "start"]`,
		"p9: no upgrade u-a of component db is under way in lockstep")
}

func TestUpgradeThatMaySwitchIsNotUndone(t *testing.T) {
	s := lockstepQueue(t)
	s.accept(proceed("p1", "a", agentapi.LockstepSwitch), undo("p2", "a", ""))
	s.answered("p1", `p2: the upgrade can no longer be undone: it may have begun "switch"`)
	if i := s.Lockstep(); i[0].Undo != "" {
		t.Errorf("in lockstep is %+v", i)
	}
}

func TestUpgradeThatHasNotBegunIsUndoneAtOnce(t *testing.T) {
	s := newTestQueue(t, t.TempDir())
	s.accept(together("a", 0), undo("p", "a", "a host was lost"))
	s.answered("a: undone by its rollout: a host was lost", "p")
}

// Neither a newer upgrade nor a CANCEL ends an upgrade in lockstep whose server may have let the
// others go on.
func TestLockstepIsNotEndedByOthers(t *testing.T) {
	plain := upgradeTo("b", time.Minute)
	plain.Data = json.RawMessage(`{"version":"1.2.0","component":{"name":"web","upgrade_id":"u-b"}}`)
	const refused = "b: component web is being upgraded in lockstep with other hosts, by action a"

	s := lockstepQueue(t)
	s.accept(proceed("p", "a", agentapi.LockstepBackup), plain, cancelOf("c", "a"))
	if err := s.Postpone("a", noon, "the disk is full"); err != nil {
		t.Fatal(err)
	}
	s.accept(cancelOf("c2", "a"))
	const late = ": action a can no longer be cancelled by itself: other hosts are upgraded in lockstep with this one, so cancel the rollout"
	s.answered("p", refused, "c"+late, "c2"+late)

	s = lockstepQueue(t)
	var stopped []string
	err := s.Accept([]agentapi.Action{plain, cancelOf("c", "a")}, "", noon, func(id, _ string) bool {
		stopped = append(stopped, id)
		return true
	})
	if err != nil || !slices.Equal(stopped, []string{"a"}) {
		t.Errorf("stopped is %q, %v", stopped, err)
	}
	s.answered(refused, "c")

	s = newTestQueue(t, t.TempDir())
	s.accept(together("a", 0), plain)
	s.answered("a: superseded by the newer upgrade b")
}

func TestLockstepIsReleasedOnTheHost(t *testing.T) {
	s := lockstepQueue(t)
	if err := s.Release("db", true); err == nil || err.Error() != "component db is not being upgraded in lockstep" {
		t.Errorf("another component: %v", err)
	}
	if err := s.Release("web", true); err != nil || s.Lockstep()[0].Undo != "undone on the host" {
		t.Errorf("undone: %v, %+v", err, s.Lockstep())
	}
	if err := s.Release("web", false); err == nil {
		t.Error("what is being undone was let go on")
	}
	s = lockstepQueue(t)
	if err := s.Release("web", false); err != nil || s.Lockstep()[0].Until != agentapi.LockstepStart {
		t.Errorf("let go on: %v, %+v", err, s.Lockstep())
	}
	if err := s.Release("web", true); err == nil {
		t.Error("what may have begun to switch was undone")
	}
}
