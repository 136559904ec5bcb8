package reconcile_test

import (
	"strings"
	"testing"

	"github.com/muster-fleet/muster/server/fleet"
	"github.com/muster-fleet/muster/server/rollout/spec"
)

// returnWait is how long a declared fleet waits for agents that are away.
const returnWait = fleet.Duration(15 * 60e9)

var hosts = []string{"web/a1", "web/a2", "web/a3", "db/b1"}

func TestSpecIsRolledOutAndStaysSo(t *testing.T) {
	t.Parallel()
	w := newWorld(t, hosts...)
	w.declare("edge", nil)
	f := w.until("edge", ready)
	w.wantStates("uid-edge-1-0-0 to 1.1.0: completed, 3 of 3 succeeded")
	if got := w.Versions(); got != "a1=1.1.0 a2=1.1.0 a3=1.1.0 b1=1.0.0" {
		t.Errorf("hosts run %s", got)
	}
	st := f.Status
	if hash := spec.Hash(&f); st.RequestedRolloutHash != hash || st.LastCompletedRolloutHash != hash || st.Agents != 3 || st.Versions["agent"]["1.1.0"] != 3 {
		t.Errorf("the status is %+v", st)
	}
	before := f.Metadata.ResourceVersion
	for range 30 {
		w.Must(w.turn())
	}
	if f := w.object("edge"); f.Metadata.ResourceVersion != before || len(w.rollouts()) != 1 {
		t.Errorf("nothing is to do, and it was written: %+v\n%s", f.Status, w.states())
	}
}

func TestChangeWhileARolloutHasNotPromotedReplacesIt(t *testing.T) {
	t.Parallel()
	w := newWorld(t, hosts...)
	w.declare("edge", nil)
	w.until("edge", func(*spec.Fleet) bool { return strings.Contains(w.Versions(), "1.1.0") })
	w.change("edge", version("1.2.0"))
	w.until("edge", ready)
	list := w.rollouts()
	if len(list) != 2 || list[0].State != fleet.RolloutCancelled || list[1].State != fleet.RolloutCompleted || list[1].ID != "uid-edge-2-0-0" {
		t.Errorf("the rollouts are\n%s", w.states())
	}
	if got := w.Versions(); got != "a1=1.2.0 a2=1.2.0 a3=1.2.0 b1=1.0.0" {
		t.Errorf("hosts run %s", got)
	}
}

func TestChangeWhileARolloutPromotesWaitsForItsEnd(t *testing.T) {
	t.Parallel()
	w := newWorld(t, hosts...)
	w.declare("edge", canary)
	old := w.until("edge", func(f *spec.Fleet) bool { return holds(f, spec.Promoting) })
	w.change("edge", version("1.2.0"))
	f := w.until("edge", func(f *spec.Fleet) bool { return f.Status.ObservedGeneration == 2 })
	if f.Status.RequestedRolloutHash != old.Status.RequestedRolloutHash || !strings.Contains(why(&f, spec.Promoting), "NextWaits") ||
		!strings.HasPrefix(why(&f, spec.Ready), "False NextWaits: ") {
		t.Errorf("the rollout is promoting, and the status is %+v", f.Status)
	}
	w.until("edge", ready)
	w.wantStates("uid-edge-1-0-0 to 1.1.0: completed, 3 of 3 succeeded", "uid-edge-2-0-0 to 1.2.0: completed, 3 of 3 succeeded")
}

func TestForcePromoteSkipsWhatTheRolloutWaitsFor(t *testing.T) {
	t.Parallel()
	w := newWorld(t, hosts...)
	w.declare("edge", func(f *spec.Fleet) {
		canary(f)
		f.Spec.Strategy.Canary.Approval = true
	})
	f := w.until("edge", func(f *spec.Fleet) bool { return strings.Contains(why(f, spec.Stalled), "WaitsForApproval") })
	w.change("edge", func(f *spec.Fleet) { f.Spec.ForcePromote = strings.Repeat("0", 64) })
	for range 20 {
		w.Must(w.turn())
	}
	if got := w.object("edge"); holds(&got, spec.Promoting) || got.Status.LastCompletedRolloutHash != "" {
		t.Errorf("another hash promoted it: %+v", got.Status)
	}
	w.change("edge", func(c *spec.Fleet) { c.Spec.ForcePromote = f.Status.RequestedRolloutHash })
	w.until("edge", ready)
	w.wantStates("uid-edge-1-0-0 to 1.1.0: completed, 3 of 3 succeeded")
}

func TestAgentThatJoinsIsBroughtToTheSpecAlone(t *testing.T) {
	t.Parallel()
	w := newWorld(t, hosts...)
	w.declare("edge", nil)
	w.until("edge", ready)
	w.Enrol("web", "a4")
	w.until("edge", func(f *spec.Fleet) bool { return ready(f) && f.Status.Versions["agent"]["1.1.0"] == 4 })
	w.wantStates("uid-edge-1-0-0 to 1.1.0: completed, 3 of 3 succeeded", "uid-edge-1-0-1 to 1.1.0: completed, 1 of 1 succeeded")
}

func TestAgentThatWasAwayIsBroughtToTheSpecWhenItComesBack(t *testing.T) {
	t.Parallel()
	w := newWorld(t, hosts...)
	w.Hosts["a3"].Away = true
	w.declare("edge", nil)
	f := w.until("edge", func(f *spec.Fleet) bool { return strings.Contains(why(f, spec.Ready), "AgentsAway") })
	if got := why(&f, spec.Ready); !strings.Contains(got, "1 agent does not run 1.1.0: host-a3 is away") || stalled(&f) {
		t.Errorf("it says %s", got)
	}
	// Who says how long to wait for agents that are away leaves them out afterwards.
	w.change("edge", func(f *spec.Fleet) { f.Spec.Pace.OfferFor = returnWait })
	f = w.until("edge", ready)
	if got := why(&f, spec.Ready); !strings.Contains(got, "1 agent is away") {
		t.Errorf("it is ready: %s", got)
	}
	w.Hosts["a3"].Away = false
	w.until("edge", func(f *spec.Fleet) bool { return ready(f) && f.Status.Versions["agent"]["1.1.0"] == 3 })
}

func TestExcludedFieldsChangeTheRolloutUnderWay(t *testing.T) {
	t.Parallel()
	w := newWorld(t, hosts...)
	w.declare("edge", func(f *spec.Fleet) { f.Spec.Pace.Soak = fleet.Duration(10 * 24 * 3600e9) })
	w.until("edge", func(f *spec.Fleet) bool { return strings.Contains(why(f, spec.Progressing), "RolloutWaiting") })
	w.change("edge", func(f *spec.Fleet) { f.Spec.Pace.Soak, f.Spec.Limits.MaxParallel = 0, 7 })
	w.until("edge", ready)
	w.wantStates("uid-edge-1-0-0 to 1.1.0: completed, 3 of 3 succeeded")
	if got := w.rollouts()[0].Plan.Limits.MaxParallel; got != 7 {
		t.Errorf("its limit is %d", got)
	}
}

func TestPausedSpecPausesTheRolloutAndResumesIt(t *testing.T) {
	t.Parallel()
	w := newWorld(t, hosts...)
	w.declare("edge", nil)
	w.until("edge", func(*spec.Fleet) bool { return strings.Contains(w.Versions(), "1.1.0") })
	w.change("edge", func(f *spec.Fleet) { f.Spec.Paused = true })
	w.until("edge", func(f *spec.Fleet) bool { return f.Status.Rollout.State == fleet.RolloutPaused && stalled(f) })
	// While it is paused, another hash starts nothing.
	w.change("edge", version("1.2.0"))
	for range 20 {
		w.Must(w.turn())
	}
	if len(w.rollouts()) != 1 {
		t.Errorf("the rollouts are\n%s", w.states())
	}
	w.change("edge", version("1.1.0"))
	w.change("edge", func(f *spec.Fleet) { f.Spec.Paused = false })
	w.until("edge", ready)
	w.wantStates("uid-edge-1-0-0 to 1.1.0: completed, 3 of 3 succeeded")
}

func TestFailedRolloutStallsUntilTheSpecChanges(t *testing.T) {
	t.Parallel()
	w := newWorld(t, hosts...)
	one := 1
	for _, h := range w.Hosts {
		h.Bad = true
	}
	w.declare("edge", func(f *spec.Fleet) { f.Spec.Failure.Count = &one })
	f := w.until("edge", stalled)
	if !holds(&f, spec.Degraded) || holds(&f, spec.Ready) || !strings.Contains(why(&f, spec.Stalled), "RolloutPaused") {
		t.Errorf("the conditions are %+v", f.Status.Conditions)
	}
	for _, h := range w.Hosts {
		h.Bad = false
	}
	w.change("edge", version("1.2.0")) // forward, past the failure
	w.until("edge", ready)
	if got := w.Versions(); got != "a1=1.2.0 a2=1.2.0 a3=1.2.0 b1=1.0.0" {
		t.Errorf("hosts run %s", got)
	}
}

func TestAgentThatFailedKeepsAFleetFromBeingReadyUntilItIsForced(t *testing.T) {
	t.Parallel()
	for name, harm := range map[string]func(w *world){
		"fails":      func(w *world) { w.Hosts["a2"].Bad = true },
		"rolls back": func(w *world) { w.Hosts["a2"].RollsBack = true },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, append([]string{"web/a4"}, hosts...)...)
			harm(w)
			w.declare("edge", nil)
			f := w.until("edge", stalled)
			if got := why(&f, spec.Stalled); ready(&f) || !holds(&f, spec.Degraded) || !strings.Contains(got, "host-a2 failed to reach 1.1.0 (") || !strings.Contains(got, spec.ForceRolloutAnnotation) {
				t.Errorf("ready is %s, stalled is %s", why(&f, spec.Ready), got)
			}
			for range 30 {
				w.Must(w.turn())
			}
			if f := w.object("edge"); ready(&f) || !stalled(&f) || len(w.rollouts()) != 1 {
				t.Errorf("ready is %s\n%s", why(&f, spec.Ready), w.states())
			}
			w.Hosts["a2"].Bad, w.Hosts["a2"].RollsBack = false, false
			w.change("edge", func(f *spec.Fleet) { f.Metadata.Annotations = map[string]string{spec.ForceRolloutAnnotation: "again"} })
			f = w.until("edge", ready)
			if got := w.Versions(); got != "a1=1.1.0 a2=1.1.0 a3=1.1.0 a4=1.1.0 b1=1.0.0" || holds(&f, spec.Degraded) {
				t.Errorf("hosts run %s, degraded is %s", got, why(&f, spec.Degraded))
			}
			w.wantStates("uid-edge-1-0-0 to 1.1.0: failed, 3 of 4 succeeded", "uid-edge-2-0-0 to 1.1.0: completed, 1 of 1 succeeded")
		})
	}
}

func TestStallEndsWithTheChangeThatItAsksFor(t *testing.T) {
	t.Parallel()
	w := newWorld(t, hosts...)
	for _, h := range w.Hosts {
		h.RollsBack = true
	}
	w.declare("edge", nil)
	w.until("edge", stalled)
	w.change("edge", func(f *spec.Fleet) { f.Metadata.Annotations = map[string]string{spec.ForceRolloutAnnotation: "again"} })
	// Whoever waits for the change must not see the stall of what was before.
	for range 3 {
		w.Must(w.turn())
		if f := w.object("edge"); f.Status.ObservedGeneration == 2 && stalled(&f) && !strings.Contains(why(&f, spec.Stalled), "RolloutPaused") {
			t.Fatalf("it is stalled: %s\n%s", why(&f, spec.Stalled), w.states())
		}
	}
}

func TestAgentsWithoutAPackageKeepAFleetFromBeingReady(t *testing.T) {
	t.Parallel()
	w := newWorld(t, hosts...)
	p, err := w.DB.Packages().Get(t.Context(), "muster-agent-1.2.0-linux-amd64.tar.gz")
	w.Must(err)
	p.File, p.Version, p.OS = "muster-agent-1.3.0-windows-amd64.zip", "1.3.0", "windows"
	w.Must(w.DB.Packages().Create(t.Context(), p))
	w.declare("edge", version("1.3.0"))
	f := w.until("edge", stalled)
	if got := why(&f, spec.Ready); ready(&f) || !strings.Contains(got, "3 agents do not run 1.3.0: host-a1 cannot be upgraded: ") {
		t.Errorf("ready is %s, stalled is %s", got, why(&f, spec.Stalled))
	}
	p.File, p.OS = "muster-agent-1.3.0-linux-amd64.tar.gz", "linux"
	w.Must(w.DB.Packages().Create(t.Context(), p))
	w.until("edge", ready)
	if got := w.Versions(); got != "a1=1.3.0 a2=1.3.0 a3=1.3.0 b1=1.0.0" {
		t.Errorf("hosts run %s", got)
	}
}

func TestRevertedSpecGoesBack(t *testing.T) {
	t.Parallel()
	w := newWorld(t, hosts...)
	w.declare("edge", nil)
	first := w.until("edge", ready)
	w.change("edge", version("1.2.0"))
	w.until("edge", ready)
	w.change("edge", version("1.1.0"))
	back := w.until("edge", ready)
	if back.Status.RequestedRolloutHash != first.Status.RequestedRolloutHash || w.Versions() != "a1=1.1.0 a2=1.1.0 a3=1.1.0 b1=1.0.0" {
		t.Errorf("hosts run %s, and the status is %+v", w.Versions(), back.Status)
	}
}

func TestForceRolloutAnnotationStartsARolloutWithNothingToDo(t *testing.T) {
	t.Parallel()
	w := newWorld(t, hosts...)
	w.declare("edge", nil)
	before := w.until("edge", ready)
	w.change("edge", func(f *spec.Fleet) { f.Metadata.Annotations = map[string]string{spec.ForceRolloutAnnotation: "again"} })
	f := w.until("edge", ready)
	if f.Status.LastCompletedRolloutHash == before.Status.LastCompletedRolloutHash || len(w.rollouts()) != 1 {
		t.Errorf("all agents run the version: %+v\n%s", f.Status, w.states())
	}
}

func TestYoungerObjectThatSelectsTheSameAgentsStalls(t *testing.T) {
	t.Parallel()
	w := newWorld(t, hosts...)
	w.declare("old", nil)
	w.Now = w.Now.Add(1e9)
	w.declare("young", version("1.2.0"))
	f := w.until("young", stalled)
	if got := why(&f, spec.Stalled); !strings.Contains(got, "3 agents belong to the older fleet old") {
		t.Errorf("it says %s", got)
	}
	w.until("old", ready)
	w.change("young", func(f *spec.Fleet) { f.Spec.Selector.Policies = []string{"db"} })
	w.until("young", ready)
	if got := w.Versions(); got != "a1=1.1.0 a2=1.1.0 a3=1.1.0 b1=1.2.0" {
		t.Errorf("hosts run %s", got)
	}
}

func TestVersionThatIsNotPublishedYetStallsUntilItIs(t *testing.T) {
	t.Parallel()
	w := newWorld(t, hosts...)
	w.declare("edge", version("1.3.0"))
	f := w.until("edge", stalled)
	if got := why(&f, spec.Stalled); !strings.Contains(got, "no package of 1.3.0 is published") {
		t.Errorf("it says %s", got)
	}
	p, err := w.DB.Packages().Get(t.Context(), "muster-agent-1.2.0-linux-amd64.tar.gz")
	w.Must(err)
	p.File, p.Version = "muster-agent-1.3.0-linux-amd64.tar.gz", "1.3.0"
	w.Must(w.DB.Packages().Create(t.Context(), p))
	w.until("edge", ready)
}

func TestAgentsTakenOverAreLeftAloneUntilTheSpecChanges(t *testing.T) {
	t.Parallel()
	w := newWorld(t, hosts...)
	w.declare("edge", nil)
	f := w.until("edge", ready)
	d := kim
	f.Status.Suspended = &fleet.Decision{By: d.Actor, At: w.Now, Why: d.Why}
	_, err := objects{w.DB}.put(t.Context(), f)
	w.Must(err)
	w.Enrol("web", "a4")
	for range 30 {
		w.Must(w.turn())
	}
	f = w.object("edge")
	if len(w.rollouts()) != 1 || !strings.Contains(why(&f, spec.Stalled), "Suspended: kim took its agents over: a test") {
		t.Errorf("it is suspended: %s\n%s", why(&f, spec.Stalled), w.states())
	}
	w.change("edge", version("1.2.0"))
	w.until("edge", ready)
}
