package declare_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/muster-fleet/muster/server/fleet"
	"github.com/muster-fleet/muster/server/rollout"
	"github.com/muster-fleet/muster/server/rollout/spec"
)

// command returns one command of the object web.
func (w *world) command(name string) fleet.Command {
	w.t.Helper()
	list, err := w.Commands(w.t.Context(), "web")
	if err != nil {
		w.t.Fatal(err)
	}
	for i, c := range list {
		if c.Primary && (i != 0 || !c.Allowed) || c.Allowed == (c.Reason != "") {
			w.t.Errorf("the list has %+v", list)
		}
	}
	return list[slices.IndexFunc(list, func(c fleet.Command) bool { return c.Name == name })]
}

// observe writes a status as the loop does.
func (w *world) observe(edit func(*spec.Status)) {
	w.t.Helper()
	o, err := w.Get(w.t.Context(), "web")
	if err != nil {
		w.t.Fatal(err)
	}
	edit(&o.Status)
	if _, err := w.UpdateStatus(w.t.Context(), &o.Fleet, o.Status); err != nil {
		w.t.Fatal(err)
	}
}

func TestFleetCommandsThatArePossibleAreAccepted(t *testing.T) {
	paused := strings.Replace(object("web", "1.0.0"), "spec: {", "spec: {paused: true, ", 1)
	give := map[string]func(*world) (changed bool, err error){
		"resume": func(w *world) (bool, error) {
			_, err := w.Resume(t.Context(), "web", kim)
			return err == nil, err
		},
		"pause":   func(w *world) (bool, error) { return !w.apply(paused).Same, nil },
		"unpause": func(w *world) (bool, error) { return !w.apply(object("web", "1.0.0")).Same, nil },
		"delete": func(w *world) (bool, error) {
			_, err := w.Delete(t.Context(), "web", false, kim)
			return err == nil, err
		},
	}
	for _, body := range []string{object("web", "1.0.0"), paused} {
		for _, suspended := range []bool{false, true} {
			for name, do := range give {
				w := newWorld(t)
				w.apply(body)
				if suspended {
					w.observe(func(s *spec.Status) { s.Suspended = &fleet.Decision{By: "kim", At: noon} })
				}
				c := w.command(name)
				if changed, err := do(w); changed != c.Allowed {
					t.Errorf("%s of %s (suspended: %t): it is changed: %t (%v), the list has %+v", name, body, suspended, changed, err, c)
				}
			}
		}
	}
}

// The loop promotes the rollout of an object through the service of rollouts.
func TestPromotionIsPossibleIfTheRolloutAcceptsIt(t *testing.T) {
	hash := strings.Repeat("a", 64)
	for _, state := range []fleet.RolloutState{
		fleet.RolloutRunning, fleet.RolloutPaused, fleet.RolloutCancelling, fleet.RolloutCompleted, fleet.RolloutFailed, fleet.RolloutCancelled, fleet.RolloutRolledBack,
	} {
		for _, kind := range []fleet.StrategyKind{fleet.Canary, fleet.LockstepStrategy} {
			for _, promoted := range []*fleet.Decision{nil, {By: "kim", At: noon}} {
				w := newWorld(t)
				w.apply(object("web", "1.0.0"))
				if c := w.command("promote"); c.Allowed || !c.Danger {
					t.Errorf("without a rollout: %+v", c)
				}
				r := fleet.Rollout{
					ID: "r", State: state, Fleet: "web", StartedAt: &noon, Promoted: promoted,
					Plan: fleet.Plan{Name: "fleet web", Version: "1.0.0", Strategy: fleet.Strategy{Kind: kind}},
				}
				if err := w.db.Rollouts().Create(t.Context(), r); err != nil {
					t.Fatal(err)
				}
				w.observe(func(s *spec.Status) {
					s.RequestedRolloutHash, s.Rollout = hash, &spec.RolloutStatus{ID: "r", State: state}
				})
				c := w.command("promote")
				before := generation(t, w, "r")
				_, err := w.Rollouts.Promote(t.Context(), "r", rollout.Request{Actor: "fleet web", Why: "spec.forcePromote names its hash"})
				if accepted := err == nil && generation(t, w, "r") > before; accepted != c.Allowed {
					t.Errorf("of a %s rollout (%s, promoted: %t): accepted is %t (%v), the list has %+v", state, kind, promoted != nil, accepted, err, c)
				}
				if !c.Allowed && !strings.HasPrefix(c.Reason, "Its rollout ") {
					t.Errorf("the reason is %q", c.Reason)
				}
				w.apply(strings.Replace(object("web", "1.0.0"), "spec: {", "spec: {forcePromote: "+hash+", ", 1))
				if c := w.command("promote"); c.Allowed {
					t.Errorf("with the hash in the spec: %+v", c)
				}
			}
		}
	}
}

func generation(t *testing.T, w *world, id string) int64 {
	t.Helper()
	r, err := w.db.Rollouts().Get(t.Context(), id)
	if err != nil {
		t.Fatal(err)
	}
	return r.Generation
}

func TestCommandsOfAnUnknownFleetAreNotFound(t *testing.T) {
	w := newWorld(t)
	if _, err := w.Commands(t.Context(), "none"); fleet.KindOf(err) != fleet.NotFound {
		t.Errorf("the error is %v", err)
	}
}
