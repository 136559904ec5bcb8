package selfupgrade

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/muster-fleet/muster/server/fleet"
)

// Bounds of the phases. Before the commit point the upgrade is undone when one has passed;
// after it the others go on without the servers that are late.
const (
	// checkTime: a server reads the upgrade within two seconds, and runs a program that
	// prints its version within ten.
	checkTime = 30 * time.Second
	holdTime  = 15 * time.Second
	// stopTime is several times what a server takes to answer its agents and to let
	// requests finish, and enough for one that a service manager starts again.
	stopTime = time.Minute
	// switchTime is long enough for a server that died to be started again. The others wait
	// for it without serving.
	switchTime = 30 * time.Second
	startTime  = 30 * time.Second
	// verifyTime is how long agents take to come back: they wait for up to a minute before
	// they connect again.
	verifyTime = 90 * time.Second
	undoTime   = time.Minute
)

// Me is what a server knows of itself.
type Me struct {
	ID, Host, Version string
	// Serving means that its listeners are open.
	Serving bool
	// Record is its own record of an upgrade, zero if there is none.
	Record Record
}

// Step is what a server does for an upgrade of the servers.
type Step string

// The steps. After Serve and Replace the server is another one: it follows the upgrade anew.
const (
	Wait    Step = ""
	Check   Step = "check"
	Hold    Step = "hold"
	Stop    Step = "stop"
	Stopped Step = "stopped"
	Recheck Step = "check_again"
	Failed  Step = "failed" // reports that the schema could not be changed
	Replace Step = "replace"
	Runs    Step = "runs"
	Serve   Step = "serve"
	Serves  Step = "serves"
	Verify  Step = "verify"
	Undo    Step = "undo"
	Forget  Step = "forget"
)

// Own returns what a server does next. u is nil if there was no upgrade.
func Own(u *fleet.ServerUpgrade, me Me) Step {
	if u == nil || u.Phase.Ended() {
		return afterwards(u, me)
	}
	reached := func(p fleet.ServerPhase) bool {
		s := u.Server(me.ID)
		return s != nil && s.Reached.AtLeast(p)
	}
	// What was found in a check is reported once, and ends the upgrade.
	checked := func(p fleet.ServerPhase) bool {
		return reached(p) || u.Server(me.ID) != nil && u.Server(me.ID).Problem != ""
	}
	switch u.Phase {
	case fleet.ServerCheck, fleet.ServerHold:
		switch {
		case !me.Serving:
			return Serve
		case !checked(fleet.ServerCheck):
			return Check
		case u.Phase == fleet.ServerHold && !reached(fleet.ServerHold):
			return Hold
		}
	case fleet.ServerStop, fleet.ServerRecheck, fleet.ServerBackup, fleet.ServerMigrate:
		switch {
		case me.Serving:
			return Stop
		case !reached(fleet.ServerStop):
			return Stopped
		case u.Phase != fleet.ServerStop && !checked(fleet.ServerRecheck):
			return Recheck
		case u.Phase == fleet.ServerMigrate && me.Record.Run == u.Run && me.Record.Failed != "" && u.Server(me.ID).Problem == "":
			return Failed
		}
	case fleet.ServerSwitch, fleet.ServerStart, fleet.ServerVerify:
		return forward(u, me, reached)
	case fleet.ServerUndo:
		switch {
		case !me.Serving:
			return Serve
		case !reached(fleet.ServerUndo):
			return Undo
		}
	}
	return Wait
}

// forward is Own after the schema has changed.
func forward(u *fleet.ServerUpgrade, me Me, reached func(fleet.ServerPhase) bool) Step {
	switch {
	case me.Version != u.To && me.Serving:
		return Stop
	case me.Version != u.To:
		return Replace
	case !reached(fleet.ServerSwitch):
		return Runs
	case u.Phase == fleet.ServerSwitch:
	case !me.Serving:
		return Serve
	case !reached(fleet.ServerStart):
		return Serves
	case u.Phase == fleet.ServerVerify:
		return Verify
	}
	return Wait
}

// afterwards is Own when no upgrade is under way. A server that was down in the meantime
// follows the upgrade that it has recorded.
func afterwards(u *fleet.ServerUpgrade, me Me) Step {
	late := u != nil && u.Phase == fleet.ServerDone && me.Record.Run == u.Run && me.Version != u.To
	switch {
	case late && me.Serving:
		return Stop
	case late:
		return Replace
	case !me.Serving:
		return Serve
	case me.Record.Run != "":
		return Forget
	}
	return Wait
}

// Refuses returns why a server takes no orders of operators, empty if it does: from when the
// upgrade is intended until all servers serve again.
func Refuses(u *fleet.ServerUpgrade) string {
	if u == nil || !u.Phase.AtLeast(fleet.ServerHold) || u.Phase.AtLeast(fleet.ServerVerify) {
		return ""
	}
	return fmt.Sprintf("the servers are being upgraded from %s to %s, and take no orders meanwhile: try again in a minute. `muster server upgrade --status`, on a server's machine, says how far it is", u.From, u.To)
}

// Move is what the server does that owns the lease of the upgrade.
type Move struct {
	// Phase is the phase to write; empty if there is none.
	Phase fleet.ServerPhase
	// Problem is why, if something is wrong.
	Problem string
	// Work is ServerBackup or ServerMigrate if that is to be done now.
	Work fleet.ServerPhase
	// Waits is what the upgrade waits for.
	Waits string
}

// Next returns how an upgrade that is under way goes on. running are the servers of the
// installation that are not away.
func Next(u *fleet.ServerUpgrade, me Me, running []fleet.Server, now time.Time) Move {
	switch u.Phase {
	case fleet.ServerCheck:
		return before(u, fleet.ServerHold, checkTime, nil, now)
	case fleet.ServerHold:
		return before(u, fleet.ServerStop, holdTime, nil, now)
	case fleet.ServerStop:
		return before(u, fleet.ServerRecheck, stopTime, nil, now)
	case fleet.ServerRecheck:
		return before(u, fleet.ServerBackup, checkTime, others(u, running), now)
	case fleet.ServerBackup:
		if u.Backup != "" || u.WithoutBackup {
			return Move{Phase: fleet.ServerMigrate}
		}
		return Move{Work: fleet.ServerBackup}
	case fleet.ServerMigrate:
		switch problems := u.Problems(); {
		case me.Version == u.To: // it has opened the store, so the schema is that of its version
			return Move{Phase: fleet.ServerSwitch}
		case problems != "": // a server of the old version has opened the store, so the schema is as it was
			return Move{Phase: fleet.ServerUndo, Problem: problems}
		}
		return Move{Work: fleet.ServerMigrate}
	case fleet.ServerSwitch:
		// Without any server that runs the version nothing could serve.
		m := after(u, fleet.ServerStart, switchTime, now)
		if m.Phase != "" && len(u.Missing(fleet.ServerSwitch)) == len(u.Servers) {
			m = Move{Waits: waitsFor(u)}
		}
		return m
	case fleet.ServerStart:
		return after(u, fleet.ServerVerify, startTime, now)
	case fleet.ServerVerify:
		m := after(u, fleet.ServerDone, verifyTime, now)
		if had, has := u.Agents(); m.Phase != "" && has < had {
			text := fmt.Sprintf("%d of %d agents are connected again", has, had)
			if now.Sub(u.Since) < verifyTime {
				return Move{Waits: text}
			}
			m.Problem = join(m.Problem, text)
		}
		return m
	case fleet.ServerUndo:
		m := after(u, fleet.ServerUndone, undoTime, now)
		m.Problem = u.Problem
		return m
	}
	return Move{}
}

// before is Next before the commit point, when all servers have to take part.
func before(u *fleet.ServerUpgrade, next fleet.ServerPhase, bound time.Duration, others []string, now time.Time) Move {
	undo := fleet.ServerUndo
	if u.Phase == fleet.ServerCheck { // nothing has changed
		undo = fleet.ServerUndone
	}
	if problems := u.Problems(); problems != "" {
		return Move{Phase: undo, Problem: problems}
	}
	missing := slices.Concat(u.Missing(u.Phase), others)
	switch {
	case len(missing) == 0:
		return Move{Phase: next}
	case now.Sub(u.Since) >= bound:
		return Move{Phase: undo, Problem: fmt.Sprintf("the servers on %s have not taken part within %s: check that they run, with `muster servers list`, and that their version knows `muster server upgrade`. Of one that is gone for good, remove the entry with `muster servers forget`", strings.Join(missing, ", "), bound)}
	}
	return Move{Waits: "waits for the servers on " + strings.Join(missing, ", ")}
}

// after is Next after the commit point, when servers that are late follow by themselves.
func after(u *fleet.ServerUpgrade, next fleet.ServerPhase, bound time.Duration, now time.Time) Move {
	missing := u.Missing(u.Phase)
	switch {
	case len(missing) == 0:
		return Move{Phase: next}
	case now.Sub(u.Since) >= bound:
		return Move{Phase: next, Problem: join(u.Problems(), fmt.Sprintf("the servers on %s are late: each goes on when it is started", strings.Join(missing, ", ")))}
	}
	return Move{Waits: waitsFor(u)}
}

func waitsFor(u *fleet.ServerUpgrade) string {
	return join("waits for the servers on "+strings.Join(u.Missing(u.Phase), ", "), u.Problems())
}

func join(parts ...string) string {
	return strings.Join(slices.DeleteFunc(parts, func(s string) bool { return s == "" }), "; ")
}

// others returns the hosts of running servers that do not take part.
func others(u *fleet.ServerUpgrade, running []fleet.Server) []string {
	var out []string
	for i := range running {
		if u.Server(running[i].ID) == nil {
			out = append(out, running[i].Host)
		}
	}
	return out
}

// Apply makes a move in u.
func Apply(u *fleet.ServerUpgrade, m Move, now time.Time) {
	u.Phase, u.Since, u.Problem = m.Phase, now, m.Problem
	switch {
	case m.Phase == fleet.ServerHold:
		u.Intended = &now
	case m.Phase.Ended():
		u.EndedAt = &now
	}
	if m.Phase != fleet.ServerUndo && m.Phase != fleet.ServerUndone {
		return
	}
	for i := range u.Servers { // their problems are in u.Problem now
		u.Servers[i].Problem = ""
	}
}
