package e2e

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/muster-fleet/muster/server/api/adminapi"
	"github.com/muster-fleet/muster/server/fleet"
	"github.com/muster-fleet/muster/testing/kit/harness"
)

// peer is a component that refuses to run beside another version of itself: it looks at the peers
// of all hosts ten times a second, and ends if one has another version. Its state has the form of
// its version. Each of its hooks takes a second, so that a test sees the phases. On the host whose
// folder is in peers.damage, drain damages the staged version 1.2.0.
const peer = `#!/bin/sh
here=$(cd -P "$(dirname "$0")/../../.." && pwd)
all=%[1]s/peers
case $1 in
drain)
	case $here in "$(cat "$all.damage" 2>/dev/null || echo nowhere)"/*)
		for f in "$here"/data/web-1.2.0-*/bin/run; do echo damaged > $f; done ;;
	esac
	sleep 1; exit ;;
migrate)
	sleep 1; echo $2 > "$here/form"; exit ;;
backup)
	sleep 1; cp "$here/form" "$MUSTER_BACKUP/form"; exit ;;
undrain)
	exit ;;
esac
test -e "$here/form" || echo %[2]s > "$here/form"
test "$(cat "$here/form")" = %[2]s || { echo "%[2]s found state of $(cat "$here/form")" >> $all.wrong; exit 4; }
mkdir -p $all
echo %[2]s > $all/$$.new && mv $all/$$.new $all/$$
trap 'sleep 1; rm -f $all/$$; exit' TERM
while :; do
	for other in $all/*; do
		kill -0 ${other##*/} 2>/dev/null || continue
		version=$(cat $other 2>/dev/null) || continue
		test "$version" = %[2]s || { echo "%[2]s met $version" >> $all.wrong; rm -f $all/$$; exit 3; }
	done
	sleep 0.1
done
`

// peers publishes the versions 1.0.0, 1.1.0 and 1.2.0 of the component, and installs the first on
// all hosts.
func (w *world) peers() {
	w.Helper()
	var archives []string
	for minor := range 3 {
		form := fmt.Sprintf("1.%d", minor)
		description := "{name: web, runtime: process, settings: {program: bin/run}, hooks: {drain: {exec: [bin/run, drain]}, undrain: {exec: [bin/run, undrain]}, backup: {exec: [bin/run, backup]}}, migrations: ["
		for m := 1; m <= minor; m++ {
			description += fmt.Sprintf(`{version: 1.%d.0, up: {exec: [bin/run, migrate, "1.%d"]}, down: {exec: [bin/run, migrate, "1.%d"]}}, `, m, m, m-1)
		}
		program := filepath.Join(w.Dir, form+".sh")
		check(w, os.WriteFile(program, fmt.Appendf(nil, peer, w.Dir, form), 0o755))
		archive, err := w.Publisher.Component(w.Context(), "web", form+".0", description+"]}", "bin/run="+program)
		check(w, err)
		archives = append(archives, archive)
	}
	check(w, w.Server.Publish(w.Context(), w.Publisher, archives...))
	w.inPolicy("web")
	w.rollOut(w.plan("1.0.0", "component: web\nselect: {all: true}\nstrategy: {kind: all_at_once}\nhealth: {wait: 3s}\n"), exitCompleted)
	w.allRun("1.0.0")
}

// allRun checks that all hosts run a version, and that no two versions ever met.
func (w *world) allRun(version string) {
	w.Helper()
	for _, h := range w.Hosts {
		w.Wait(h, "runs web "+version, func(a adminapi.Agent) bool {
			return text(web(a).Version) == version && web(a).Status == "HEALTHY" && web(a).UpgradeStartedAt == nil
		})
	}
	if wrong, err := os.ReadFile(filepath.Join(w.Dir, "peers.wrong")); err == nil {
		w.Errorf("mixed versions ran:\n%s", wrong)
	}
	if got := w.versions("web"); !maps.Equal(got, map[string]int{version: len(w.Hosts)}) {
		w.Errorf("the hosts run %v, want %s", got, version)
	}
}

// lockstep writes a plan for all hosts, with more lines.
func (w *world) lockstep(version, more string) string {
	return w.plan(version, "component: web\nselect: {all: true}\nhealth: {wait: 3s}\nstrategy:\n  kind: lockstep\n"+more)
}

func TestComponentsAreUpgradedAndBroughtBackInLockstep(t *testing.T) {
	w := newWorld(t, harness.HostOptions{}, "web-01", "web-02", "web-03")
	w.peers()
	w.rollOut(w.lockstep("1.1.0", "stage: ahead\n"), exitCompleted)
	w.allRun("1.1.0")
	w.rollOut(w.lockstep("1.0.0", "force: true\n"), exitCompleted)
	w.allRun("1.0.0")

	// One host loses its staged version when all have verified it.
	lost := w.Hosts[1]
	check(t, os.WriteFile(filepath.Join(w.Dir, "peers.damage"), []byte(lost.Top), 0o600))
	r := w.rollOut(w.lockstep("1.2.0", "stage: ahead\n"), exitFailed)
	if l := r.Lockstep; l == nil || l.Undo == nil || l.CommittedAt != nil || !strings.Contains(l.Undo.Why, lost.Name) {
		t.Errorf("it ended with %+v", l)
	}
	w.allRun("1.0.0")
	check(t, os.Remove(filepath.Join(w.Dir, "peers.damage")))

	// Another one is not there. It comes back after everything was undone.
	away := w.Hosts[2]
	check(t, away.Stop())
	r = w.rollOut(w.lockstep("1.1.0", "  patience: 1m\n"), exitFailed)
	if l := r.Lockstep; l == nil || l.Undo == nil || !strings.Contains(l.Undo.Why, away.Name) {
		t.Errorf("it ended with %+v", l)
	}
	check(t, away.Start())
	w.allRun("1.0.0")
}

// The server is killed in each phase, and the next one goes on by itself.
func TestLockstepContinuesAfterTheServerIsKilled(t *testing.T) {
	w := newWorld(t, harness.HostOptions{}, "web-01", "web-02", "web-03")
	w.peers()
	code, said := w.command("rollouts", "create", "--file", w.lockstep("1.2.0", "stage: ahead\n"), "--start", "--yes")
	if code != 0 {
		t.Fatalf("it ended with %d:\n%s", code, said)
	}
	left := []adminapi.LockstepPhase{fleet.LockstepDrain, fleet.LockstepStop, fleet.LockstepBackup, fleet.LockstepSwitch, fleet.LockstepStart}
	for len(left) > 0 {
		harness.Eventually(t, fmt.Sprintf("the rollout is in the phase %s", left[0]), func() error {
			r := w.newestRollout()
			if l := r.Lockstep; l == nil || l.Phase != left[0] {
				return fmt.Errorf("it is %s, in lockstep %+v", r.State, l)
			}
			return nil
		})
		check(t, w.Server.Kill())
		time.Sleep(time.Second) // the hosts go on meanwhile as far as they may
		check(t, w.Server.Start(t.Context()))
		left = left[1:]
	}
	harness.Eventually(t, "the rollout is done", func() error {
		if r := w.newestRollout(); r.State != fleet.RolloutCompleted {
			return fmt.Errorf("it is %s, in lockstep %+v", r.State, r.Lockstep)
		}
		return nil
	})
	w.allRun("1.2.0")
}
