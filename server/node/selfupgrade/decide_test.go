package selfupgrade

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/muster-fleet/muster/server/fleet"
)

var base = time.Date(2026, 3, 3, 10, 0, 0, 0, time.UTC)

// upgrade is one of the servers a and b, which have reached phases.
func upgrade(phase fleet.ServerPhase, a, b fleet.ServerPhase) *fleet.ServerUpgrade {
	return &fleet.ServerUpgrade{
		ID: fleet.ServerUpgradeID, Run: "r", From: "1.0.0", To: "1.1.0", Phase: phase, Since: base, StartedAt: base,
		Servers: []fleet.UpgradingServer{{ID: "a", Host: "srv-a", Version: "1.0.0", Reached: a}, {ID: "b", Host: "srv-b", Version: "1.0.0", Reached: b}},
	}
}

// Server a decides for itself.
func TestEachServerDoesWhatThePhaseSays(t *testing.T) {
	const (
		check, hold, stop, recheck, backup = fleet.ServerCheck, fleet.ServerHold, fleet.ServerStop, fleet.ServerRecheck, fleet.ServerBackup
		migrate, change, start, verify     = fleet.ServerMigrate, fleet.ServerSwitch, fleet.ServerStart, fleet.ServerVerify
		done, undo, undone                 = fleet.ServerDone, fleet.ServerUndo, fleet.ServerUndone
		old, changed                       = "1.0.0", "1.1.0"
	)
	stopped := Record{Run: "r", From: old, To: changed, Phase: stop}
	for _, c := range []struct {
		phase, reached fleet.ServerPhase
		serving        bool
		version        string
		record         Record
		want           Step
	}{
		{"", "", true, old, Record{}, Wait},
		{"", "", false, old, Record{}, Serve},
		{check, "", true, old, Record{}, Check},
		{check, check, true, old, Record{}, Wait},
		{check, "", false, old, Record{}, Serve}, // it has just started
		{hold, "", true, old, Record{}, Check},   // it has come meanwhile
		{hold, check, true, old, Record{}, Hold},
		{hold, hold, true, old, Record{}, Wait},
		{stop, hold, true, old, Record{}, Stop},
		{stop, hold, false, old, stopped, Stopped},
		{stop, "", false, old, Record{}, Stopped},
		{stop, stop, false, old, stopped, Wait},
		{recheck, stop, false, old, stopped, Recheck},
		{recheck, recheck, false, old, stopped, Wait},
		{backup, stop, false, old, stopped, Recheck},
		{backup, recheck, true, old, stopped, Stop}, // nobody serves while the store is backed up
		{backup, recheck, false, old, stopped, Wait},
		{migrate, recheck, false, old, stopped, Wait},
		{migrate, recheck, false, old, Record{Run: "r", Phase: migrate, Failed: "x"}, Failed},
		{migrate, recheck, false, old, Record{Run: "earlier", Phase: migrate, Failed: "x"}, Wait},
		{migrate, recheck, false, changed, stopped, Wait},
		{change, recheck, false, old, stopped, Replace},
		{change, recheck, true, old, Record{}, Stop},
		{change, recheck, false, changed, stopped, Runs},
		{change, change, false, changed, stopped, Wait},
		{start, recheck, false, changed, stopped, Runs},
		{start, change, false, changed, stopped, Serve},
		{start, change, true, changed, stopped, Serves},
		{start, start, true, changed, stopped, Wait},
		{start, recheck, false, old, stopped, Replace},
		{verify, start, true, changed, stopped, Verify},
		{verify, verify, true, changed, stopped, Verify}, // the number of its agents grows
		{done, verify, true, changed, stopped, Forget},
		{done, verify, true, changed, Record{}, Wait},
		{done, recheck, false, old, stopped, Replace}, // it was down
		{done, recheck, true, old, stopped, Stop},
		{done, verify, false, old, Record{}, Serve}, // an operator has gone back since, by hand
		{done, verify, false, changed, stopped, Serve},
		{undo, stop, false, old, stopped, Serve},
		{undo, stop, true, old, stopped, Undo},
		{undo, undo, true, old, Record{}, Wait},
		{undone, undo, true, old, Record{}, Wait},
		{undone, stop, true, old, stopped, Forget},
		{"of a later Muster", stop, true, old, stopped, Wait},
	} {
		var u *fleet.ServerUpgrade
		if c.phase != "" {
			u = upgrade(c.phase, c.reached, c.reached)
		}
		if got := Own(u, Me{ID: "a", Version: c.version, Serving: c.serving, Record: c.record}); got != c.want {
			t.Errorf("in phase %q, having reached %q, serving %v, in version %s, with the record %+v: %q, want %q", c.phase, c.reached, c.serving, c.version, c.record, got, c.want)
		}
	}
}

// The server that finds a problem also ends the upgrade, if no other does.
func TestProblemOfACheckIsReportedOnce(t *testing.T) {
	for _, phase := range []fleet.ServerPhase{fleet.ServerCheck, fleet.ServerRecheck} {
		u := upgrade(phase, "", "")
		u.Servers[0].Problem, u.Servers[0].Reached = "disk", fleet.ServerStop
		if phase == fleet.ServerCheck {
			u.Servers[0].Reached = ""
		}
		if got := Own(u, Me{ID: "a", Version: "1.0.0", Serving: phase == fleet.ServerCheck}); got != Wait {
			t.Errorf("in phase %s the server does %q", phase, got)
		}
	}
}

func TestUpgradeGoesOnWhenAllServersHaveReachedThePhase(t *testing.T) {
	problem := func(u *fleet.ServerUpgrade, text string) *fleet.ServerUpgrade {
		u.Servers[1].Problem = text
		return u
	}
	backedUp := upgrade(fleet.ServerBackup, fleet.ServerRecheck, fleet.ServerRecheck)
	backedUp.Backup = "/backup"
	unbacked := upgrade(fleet.ServerBackup, fleet.ServerRecheck, fleet.ServerRecheck)
	unbacked.WithoutBackup = true
	agents := upgrade(fleet.ServerVerify, fleet.ServerVerify, fleet.ServerVerify)
	agents.Servers[0].Before, agents.Servers[1].After = 1000, 999
	both := []fleet.Server{{ID: "a", Host: "srv-a"}, {ID: "b", Host: "srv-b"}}
	for _, c := range []struct {
		u       *fleet.ServerUpgrade
		version string
		running []fleet.Server
		after   time.Duration
		want    string
	}{
		{upgrade(fleet.ServerCheck, "", fleet.ServerCheck), "1.0.0", both, 0, "waits: waits for the servers on srv-a"},
		{upgrade(fleet.ServerCheck, "", fleet.ServerCheck), "1.0.0", both, checkTime, "undone: the servers on srv-a have not taken part within 30s"},
		{upgrade(fleet.ServerCheck, fleet.ServerCheck, fleet.ServerCheck), "1.0.0", both, checkTime, "hold"},
		{problem(upgrade(fleet.ServerCheck, "", ""), "disk"), "1.0.0", both, 0, "undone: server on srv-b: disk"},
		{upgrade(fleet.ServerHold, fleet.ServerHold, fleet.ServerHold), "1.0.0", both, 0, "stop"},
		{upgrade(fleet.ServerHold, fleet.ServerHold, fleet.ServerCheck), "1.0.0", both, holdTime, "undo: the servers on srv-b have not"},
		{upgrade(fleet.ServerStop, fleet.ServerStop, fleet.ServerStop), "1.0.0", nil, 0, "check_again"},
		{upgrade(fleet.ServerRecheck, fleet.ServerRecheck, fleet.ServerRecheck), "1.0.0", append(both, fleet.Server{ID: "c", Host: "srv-c"}), 0, "waits: waits for the servers on srv-c"},
		{upgrade(fleet.ServerRecheck, fleet.ServerRecheck, fleet.ServerRecheck), "1.0.0", append(both, fleet.Server{ID: "c", Host: "srv-c"}), checkTime, "undo: the servers on srv-c have not"},
		{problem(upgrade(fleet.ServerRecheck, fleet.ServerRecheck, fleet.ServerStop), "gone"), "1.0.0", both, 0, "undo: server on srv-b: gone"},
		{upgrade(fleet.ServerRecheck, fleet.ServerRecheck, fleet.ServerRecheck), "1.0.0", nil, 0, "backup"},
		{upgrade(fleet.ServerBackup, fleet.ServerRecheck, fleet.ServerRecheck), "1.0.0", nil, time.Hour, "work backup"},
		{backedUp, "1.0.0", nil, 0, "migrate"},
		{unbacked, "1.0.0", nil, 0, "migrate"},
		{upgrade(fleet.ServerMigrate, fleet.ServerRecheck, fleet.ServerRecheck), "1.0.0", nil, time.Hour, "work migrate"},
		{upgrade(fleet.ServerMigrate, fleet.ServerRecheck, fleet.ServerRecheck), "1.1.0", nil, 0, "switch"},
		{problem(upgrade(fleet.ServerMigrate, fleet.ServerRecheck, fleet.ServerRecheck), "no right"), "1.0.0", nil, 0, "undo: server on srv-b: no right"},
		{upgrade(fleet.ServerSwitch, fleet.ServerSwitch, fleet.ServerRecheck), "1.1.0", nil, 0, "waits: waits for the servers on srv-b"},
		{upgrade(fleet.ServerSwitch, fleet.ServerSwitch, fleet.ServerRecheck), "1.1.0", nil, switchTime, "start: the servers on srv-b are late"},
		{upgrade(fleet.ServerSwitch, fleet.ServerRecheck, fleet.ServerRecheck), "1.0.0", nil, time.Hour, "waits: waits for the servers on srv-a, srv-b"},
		{upgrade(fleet.ServerStart, fleet.ServerStart, fleet.ServerStart), "1.1.0", nil, 0, "verify"},
		{upgrade(fleet.ServerVerify, fleet.ServerVerify, fleet.ServerVerify), "1.1.0", nil, 0, "done"},
		{agents, "1.1.0", nil, 0, "waits: 999 of 1000 agents are connected again"},
		{agents, "1.1.0", nil, verifyTime, "done: 999 of 1000 agents are connected again"},
		{upgrade(fleet.ServerUndo, fleet.ServerUndo, fleet.ServerStop), "1.0.0", nil, 0, "waits: waits for the servers on srv-b"},
		{upgrade(fleet.ServerUndo, fleet.ServerUndo, fleet.ServerUndo), "1.0.0", nil, 0, "undone"},
	} {
		m := Next(c.u, Me{ID: "a", Version: c.version}, c.running, base.Add(c.after))
		got := string(m.Phase)
		switch {
		case m.Work != "":
			got = "work " + string(m.Work)
		case m.Phase == "":
			got = "waits: " + m.Waits
		case m.Problem != "":
			got += ": " + m.Problem
		}
		if !strings.HasPrefix(got, c.want) || c.want == string(m.Phase) && m.Problem != "" {
			t.Errorf("in phase %s, after %s: %s, want %s", c.u.Phase, c.after, got, c.want)
		}
	}
}

func TestOrdersAreRefusedWhileTheServersAreUpgraded(t *testing.T) {
	for phase, want := range map[fleet.ServerPhase]bool{
		fleet.ServerCheck: false, fleet.ServerHold: true, fleet.ServerStart: true, fleet.ServerVerify: false, fleet.ServerDone: false, fleet.ServerUndo: false, fleet.ServerUndone: false,
	} {
		if got := Refuses(upgrade(phase, "", "")); (got != "") != want {
			t.Errorf("in phase %s: %q", phase, got)
		}
	}
	if Refuses(nil) != "" {
		t.Error("without an upgrade orders are refused")
	}
}

func TestDowntimeIsFromTheFirstStopToTheLastStart(t *testing.T) {
	u := upgrade(fleet.ServerDone, "", "")
	at := func(s int) *time.Time { return new(base.Add(time.Duration(s) * time.Second)) }
	if _, ok := u.Downtime(); ok {
		t.Error("servers that did not stop have a downtime")
	}
	u.Servers[0].StoppedAt, u.Servers[0].ServedAt, u.Servers[1].StoppedAt = at(5), at(7), at(4)
	if d, ok := u.Downtime(); ok {
		t.Errorf("while one has not served again, the downtime is %s", d)
	}
	u.Servers[1].ServedAt = at(9)
	if d, ok := u.Downtime(); !ok || d != 5*time.Second {
		t.Errorf("the downtime is %s, %v", d, ok)
	}
	u.Servers[0].ServedAt, u.Servers[1].ServedAt = at(1), at(2) // the clocks were set back meanwhile
	if d, ok := u.Downtime(); !ok || d != 0 {
		t.Errorf("with other clocks the downtime is %s, %v", d, ok)
	}
	if d, ok := u.Took(); ok {
		t.Errorf("before its end it took %s", d)
	}
	for ended, want := range map[int]time.Duration{8: 7 * time.Second, -7200: 0} {
		u.StartedAt, u.EndedAt = *at(1), at(ended)
		if d, ok := u.Took(); !ok || d != want {
			t.Errorf("it took %s, %v, want %s", d, ok, want)
		}
	}
	if s := fmt.Sprint(u.Missing(fleet.ServerCheck)); s != "[srv-a srv-b]" {
		t.Errorf("missing are %s", s)
	}
}
