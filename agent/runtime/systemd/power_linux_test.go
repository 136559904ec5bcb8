package systemd

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/muster-fleet/muster/agent/runtime"
)

// The power is cut while Install replaces the unit by another one, and after the upgrade.
func TestPowerCutInInstallIsCompletedOrUndone(t *testing.T) {
	if phase := os.Getenv(phaseVariable); phase != "" {
		inPhase(t, phase)
		return
	}
	for _, row := range []struct{ links, before, after string }{
		{"other links", "upgrade and die in disable", "find A component, and restore"},
		{"other links", "upgrade and die in rename", "find nothing, and install"},
		{"other links", "upgrade and die in enable", "find nothing, and restore"},
		{"other links", "upgrade and die in reload", "find version 2, and restore"}, // without the program of it
		{"other links", "upgrade and die in nothing", "find version 2, and remove"},
		{"other links", "upgrade and die in enable, and install", "find version 2, and restore"},
		{"same links", "upgrade and die in rename", "find A component, and install"},
		{"same links", "upgrade and die in reload", "find version 2, and restore"},
	} {
		phases(t, row.links+": "+row.before, row.links+": "+row.after)
	}
}

func inPhase(t *testing.T, phase string) {
	a := newAdapter()
	v1 := component{t, "web", plainUnit}.release("1.0.0", runsForEver)
	links, phase, _ := strings.Cut(phase, ": ")
	unit := strings.Replace(plainUnit, "A component", "version 2", 1)
	if links == "other links" {
		unit += "Alias=site.service\n"
	}
	v2 := component{t, "web", unit}.release("2.0.0", runsForEver)
	start := func(r *runtime.Release) {
		t.Helper()
		point(t, r)
		check(t, a.ReloadDaemon(t.Context(), r))
		check(t, a.Start(t.Context(), r))
	}
	if call, ok := strings.CutPrefix(phase, "upgrade and die in "); ok {
		call, install := strings.CutSuffix(call, ", and install")
		upgrade(t, a, v1, nil)
		check(t, a.Start(t.Context(), v1))
		run(t, "sync")
		check(t, a.Stop(t.Context(), v1))
		dying, _ := dyingAt(func(c string) bool { return c == call })
		if err := dying.Install(t.Context(), v2, v1); err == nil {
			start(v2)
		} else if !errors.Is(err, errDied) {
			t.Error(err)
		}
		if install {
			// As after an agent that was killed before it synced the links.
			run(t, "systemctl", "enable", "--no-reload", filepath.Join(v2.Dir, unitDir, "web.service"))
			check(t, a.Install(t.Context(), v2, v1))
		}
		return
	}
	found, then, _ := strings.Cut(strings.TrimPrefix(phase, "find "), ", and ")
	// Only an upgrade that was complete had started it again.
	if got := show(t, "web.service", "Description"); status(t, a, v1).Running != (then == "remove") || found != "nothing" && got != found {
		t.Errorf("after the boot there is %s: %+v, want %s", got, status(t, a, v1), found)
	}
	want := "A component"
	switch then {
	case "install":
		check(t, a.Install(t.Context(), v2, v1))
		start(v2)
		want = "version 2"
	case "restore":
		check(t, a.Restore(t.Context(), v2, v1, ""))
		start(v1)
	}
	if there, err := a.exists(opLink, linkDir+"/site.service"); err != nil || there != (want == "version 2" && links == "other links" || then == "remove") {
		t.Errorf("the link of version 2 is there: %v, %v", there, err)
	}
	if got := show(t, "web.service", "Description"); then != "remove" && (got != want || !status(t, a, v1).Ready) {
		t.Errorf("%s runs, want %s", got, want)
	}
	check(t, a.Remove(t.Context(), v2))
	run(t, "sync")
}

// A unit that is held at boot is started again after a crash, and not by a boot, before and after
// the agent has started it again.
func TestUnitWithheldAtBoot(t *testing.T) {
	switch phase := os.Getenv(phaseVariable); phase {
	case "":
		phases(t, "install it", "find it stopped, and start it")
		phases(t, "let it run", "find it stopped, and start it")
		phases(t, "replace it by one that is not held", "find it started, and remove it")
	default:
		heldInPhase(t, phase)
	}
}

func heldInPhase(t *testing.T, phase string) {
	a := newAdapter()
	held := component{t, "web", plainUnit}.release("1.0.0", runsForEver)
	held.WithheldAtBoot = true
	free := component{t, "web", plainUnit}.release("2.0.0", runsForEver)
	restarts := func() {
		t.Helper()
		before := status(t, a, held)
		check(t, syscall.Kill(before.PID, syscall.SIGKILL))
		eventually(t, "that systemd starts it again", func() bool {
			s := status(t, a, held)
			return s.Ready && s.PID != before.PID && s.Restarts == before.Restarts+1
		})
	}
	switch phase {
	case "install it":
		upgrade(t, a, held, nil)
		check(t, a.Start(t.Context(), held))
		restarts()
	case "find it stopped, and start it":
		if s := status(t, a, held); s.Running {
			t.Errorf("the boot has started it: %+v", s)
		}
		run(t, "systemctl", "start", "web.service") // neither does anybody else
		if s := status(t, a, held); s.Running {
			t.Errorf("systemctl has started it: %+v", s)
		}
		check(t, a.Start(t.Context(), held))
		restarts()
	case "let it run":
		restarts()
	case "replace it by one that is not held":
		check(t, a.Stop(t.Context(), held))
		upgrade(t, a, free, held)
		check(t, a.Start(t.Context(), free))
	default:
		eventually(t, "that the boot starts it", func() bool { return status(t, a, free).Ready })
		check(t, a.Remove(t.Context(), free))
	}
	run(t, "sync")
}
