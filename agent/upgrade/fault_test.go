package upgrade

import (
	"context"
	"errors"
	"os"
	"testing"

	"github.com/muster-fleet/muster/agent/request"
	"github.com/muster-fleet/muster/packaging/host/disk"
	"github.com/muster-fleet/muster/packaging/host/layout"
	"github.com/muster-fleet/muster/testing/kit/require"
	"github.com/muster-fleet/muster/watcher/handoff"
)

var wanted = request.Request{ID: "a1", ActionID: "a1", Version: "1.1.0"}

// Each call of an upgrade to the disk fails in turn. The new program does not start
// either, so every run undoes the upgrade. What cannot be undone at once is undone at
// the next start.
func TestUpgradeThatFailsAtAnyCallLeavesTheHostAsItWas(t *testing.T) {
	require.Time(t, "lets every call fail")
	for _, place := range places {
		t.Run(place.name, func(t *testing.T) { failEverywhere(t, place) })
	}
}

// place is where a host has its version and its pointer.
type place struct {
	name   string
	system bool
	from   string // the label of the first call that is failed
	calls  int    // at least so many are
}

// The steps before the state is copied do not differ.
var places = []place{{"below one folder", false, "", 100}, {"below a prefix", true, stepState, 100}}

// install installs 1.0.0 there.
func (p place) install(t *testing.T, s *source, d *faultDisk) *testHost {
	h := newHost(t, s, d)
	if p.system {
		h.useSystem(t)
	}
	return h
}

func failEverywhere(t *testing.T, place place) {
	s := newSource(t)
	s.publish(t, "1.1.0", pkg("1.1.0", "bbbbbb"))
	total := 0
	for n := 1; ; n++ {
		d := &faultDisk{failAt: n, from: place.from}
		h := place.install(t, s, d)
		h.executor.Reexec = func(context.Context, request.Request, string) error { return errors.New("exec format error") }
		before := h.tree(t)
		err := h.executor.Upgrade(context.Background(), wanted)
		if err == nil {
			t.Fatalf("call %d (%s): the upgrade says it succeeded", n, d.failed)
		}
		// The watcher stays only if the pointer could not be restored.
		_, pending := h.tree(t)[layout.JournalFile]
		if !pending && h.watchers.started != h.watchers.stopped {
			t.Errorf("call %d (%s): a watcher is left running", n, d.failed)
		}
		// The disk works again for the next process.
		if _, err := h.newExecutor(s, &faultDisk{}).Recover(); err != nil {
			t.Errorf("call %d (%s): recover: %v", n, d.failed, err)
		}
		sameTree(t, before, h.tree(t, "data/downloads")) // kept for the next try
		if t.Failed() {
			t.Fatalf("after call %d (%s): %v", n, d.failed, err)
		}
		if d.failed == "" {
			total = n - 1
			break
		}
	}
	t.Logf("%d disk calls were failed", total)
	if total < place.calls {
		t.Errorf("only %d disk calls: is the disk still handed in everywhere?", total)
	}
}

// The process is killed at each call to the disk. At the next start the host is either
// as it was or switched with the watcher running.
func TestUpgradeKilledAtAnyCallLeavesARunnableHost(t *testing.T) {
	require.Time(t, "kills the agent at every call")
	for _, place := range places {
		t.Run("on the way "+place.name, func(t *testing.T) { crashEverywhere(t, place, nil) })
		t.Run("on the way and back "+place.name, func(t *testing.T) { crashEverywhere(t, place, errors.New("exec format error")) })
	}
}

func crashEverywhere(t *testing.T, place place, reexec error) {
	s := newSource(t)
	s.publish(t, "1.1.0", pkg("1.1.0", "bbbbbb"))
	switched := 0
	for n := 1; ; n++ {
		d := &faultDisk{failAt: n, dead: true, from: place.from}
		h := place.install(t, s, d)
		h.executor.Reexec = func(context.Context, request.Request, string) error { return reexec }
		before := h.tree(t)
		err := h.executor.Upgrade(context.Background(), wanted)
		if d.failed == "" {
			if (err != nil) != (reexec != nil) {
				t.Fatalf("the undisturbed upgrade ended with %v", err)
			}
			break
		}
		e := h.newExecutor(s, &faultDisk{})
		if h.pointsAt(t) == "data/muster-agent-1.1.0-bbbbbb" {
			e.Running = version("1.1.0", "bbbbbb") // it is the new version that starts
		}
		left, err := e.Recover()
		if err != nil {
			t.Fatalf("crash at call %d (%s): recover: %v", n, d.failed, err)
		}
		if left != nil && left.Switched {
			switched++
			m, err := handoff.ReadMarker(disk.OS{}, h.top)
			if m == nil || err != nil || m.To.Home != h.pointsAt(t) {
				t.Fatalf("crash at call %d (%s): switched to %s with marker %v, %v", n, d.failed, h.pointsAt(t), m, err)
			}
			commit, err := os.ReadFile(layout.Path(h.top, layout.ActiveCommitFile))
			if err != nil || string(commit) != "bbbbbb\n" {
				t.Fatalf("crash at call %d (%s): switched with active commit %q, %v", n, d.failed, commit, err)
			}
			continue
		}
		skip := []string{"data/downloads"} // kept for the next try
		if left == nil {
			// The process was killed while it wrote the journal for the first time.
			skip = append(skip, layout.JournalFile+layout.NewSuffix)
		}
		sameTree(t, before, h.tree(t, skip...))
		if t.Failed() {
			t.Fatalf("after a crash at call %d (%s)", n, d.failed)
		}
	}
	if switched == 0 {
		t.Error("no crash came after the switch: does the test still reach it?")
	}
}

// pointsAt returns the home that the pointer leads to, which must hold a program.
func (h *testHost) pointsAt(t *testing.T) string {
	t.Helper()
	link := h.roots().Link(agentName)
	target, err := os.Readlink(link)
	if err != nil {
		t.Fatal(err)
	}
	if fi, err := os.Stat(link); err != nil || fi.Mode()&0o100 == 0 {
		t.Fatalf("the pointer leads to %s: %v", target, err)
	}
	return h.roots().HomeOf(target)
}
