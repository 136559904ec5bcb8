package reconcile_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/muster-fleet/muster/server/rollout/fleettest"
	"github.com/muster-fleet/muster/server/rollout/spec"
	"github.com/muster-fleet/muster/testing/kit/require"
)

// story changes the spec while a rollout is under way, pauses, and lets an agent join. Its steps are
// taken when what they wait for has happened.
var story = []struct {
	when func(w *world, f *spec.Fleet) bool
	do   func(w *world)
}{
	{
		func(w *world, _ *spec.Fleet) bool { return strings.Contains(w.Versions(), "1.1.0") },
		func(w *world) { w.change("edge", version("1.2.0")) },
	},
	{
		func(w *world, _ *spec.Fleet) bool { return strings.Contains(w.Versions(), "1.2.0") },
		func(w *world) {
			w.change("edge", func(f *spec.Fleet) { f.Spec.Paused, f.Spec.Limits.MaxParallel = true, 3 })
		},
	},
	{
		func(_ *world, f *spec.Fleet) bool { return stalled(f) },
		func(w *world) { w.change("edge", func(f *spec.Fleet) { f.Spec.Paused = false }) },
	},
	{
		func(_ *world, f *spec.Fleet) bool { return ready(f) },
		func(w *world) { w.Enrol("web", "a4") },
	},
	{
		func(w *world, f *spec.Fleet) bool { return ready(f) && f.Status.Versions["agent"]["1.2.0"] == 4 },
		nil,
	},
}

// liveAndDie lets the story happen on a server that dies at its nth write, and returns how it ends.
// Another server takes over.
func liveAndDie(t *testing.T, at int, after bool) (end string, writes int) {
	w := newWorld(t, hosts...)
	w.declare("edge", nil)
	m := fleettest.NewMortal(w.DB, at, after)
	w.serve(m, "mortal")
	for step, turn := 0, 0; ; turn++ {
		if err := w.turn(); err != nil && !errors.Is(err, fleettest.ErrDead) {
			t.Fatal(err)
		}
		if m.Dead() {
			writes, m = m.Writes(), fleettest.NewMortal(w.DB, 0, false)
			w.serve(m, "next")
		}
		if f := w.object("edge"); story[step].when(w, &f) {
			if story[step].do == nil {
				break
			}
			story[step].do(w)
			step++
		}
		if turn == 500 {
			f := w.object("edge")
			t.Fatalf("killed at write %d, it stays before step %d: %+v\n%s", at, step, f.Status, w.states())
		}
	}
	end = w.Versions() + "\n"
	for _, r := range w.rollouts() {
		end += fmt.Sprintf("%s to %s is %s, max_parallel %d\n", r.ID, r.Plan.Version, r.State, r.Plan.Limits.MaxParallel)
	}
	return end, writes + m.Writes()
}

func TestLoopKilledAtAnyWriteReachesTheSameEnd(t *testing.T) {
	t.Parallel()
	require.Time(t, "kills the loop at every write")
	want, writes := liveAndDie(t, 0, false)
	if writes < 20 {
		t.Fatalf("only %d writes", writes)
	}
	// Twice as many as writes: each is made before the server dies, or is not.
	for n := 1; n < 2*(writes+1); n++ {
		at, after := (n+1)/2, n%2 == 0
		t.Run(fmt.Sprint(at, after), func(t *testing.T) {
			t.Parallel()
			if got, _ := liveAndDie(t, at, after); got != want {
				t.Errorf("killed at write %d, which was made %v:\n%s\nwant\n%s", at, after, got, want)
			}
		})
	}
}
