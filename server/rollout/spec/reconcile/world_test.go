package reconcile_test

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/muster-fleet/muster/server/fleet"
	"github.com/muster-fleet/muster/server/rollout"
	"github.com/muster-fleet/muster/server/rollout/fleettest"
	"github.com/muster-fleet/muster/server/rollout/spec"
	"github.com/muster-fleet/muster/server/rollout/spec/reconcile"
	"github.com/muster-fleet/muster/server/store"
)

var kim = rollout.Request{Actor: "kim", Why: "a test"}

// objects keeps objects in a store. Package declare, which checks what users write, is not needed
// here.
type objects struct{ store store.Store }

func (o objects) All(ctx context.Context) ([]spec.Fleet, error) {
	list, _, err := o.store.DeclaredFleets().List(ctx, 0, 0)
	out := make([]spec.Fleet, len(list))
	for i := range list {
		if err := json.Unmarshal(list[i].Doc, &out[i]); err != nil {
			return nil, err
		}
		out[i].Metadata.ResourceVersion = strconv.FormatInt(list[i].Revision, 10)
	}
	return out, err
}

func (o objects) get(ctx context.Context, name string) (spec.Fleet, error) {
	var f spec.Fleet
	d, err := o.store.DeclaredFleets().Get(ctx, name)
	if err != nil {
		return f, err
	}
	err = json.Unmarshal(d.Doc, &f)
	f.Metadata.ResourceVersion = strconv.FormatInt(d.Revision, 10)
	return f, err
}

func (o objects) put(ctx context.Context, f spec.Fleet) (spec.Fleet, error) {
	revision, err := strconv.ParseInt(f.Metadata.ResourceVersion, 10, 64)
	if err != nil {
		return f, err
	}
	doc, err := json.Marshal(f)
	if err != nil {
		return f, err
	}
	if _, err := o.store.DeclaredFleets().Update(ctx, fleet.DeclaredFleet{Name: f.Metadata.Name, Doc: doc, Revision: revision}); err != nil {
		return f, err
	}
	return o.get(ctx, f.Metadata.Name)
}

func (o objects) UpdateStatus(ctx context.Context, f *spec.Fleet, status spec.Status) (spec.Fleet, error) {
	next := *f
	next.Status = status
	return o.put(ctx, next)
}

// world is a small fleet with the loop that carries out declared fleets.
type world struct {
	*fleettest.Fleet
	t    *testing.T
	loop *reconcile.Service
}

func newWorld(t *testing.T, hosts ...string) *world {
	t.Helper()
	w := &world{Fleet: fleettest.New(t, []string{"1.0.0", "1.1.0", "1.2.0"}, hosts...), t: t}
	w.serve(w.DB, "first")
	return w
}

// serve starts the process that carries out objects, on a store.
func (w *world) serve(db store.Store, name string) {
	w.loop = reconcile.New(reconcile.Config{
		Objects: objects{db}, Wake: reconcile.NewWake(), Store: db, Rollouts: w.Service(db), Lease: w.Lease(name), Log: slog.New(slog.DiscardHandler), Now: w.Clock,
	})
}

// turn lets ten seconds pass. The error is that of the loop.
func (w *world) turn() error {
	w.t.Helper()
	w.Tick()
	return w.loop.Round(w.t.Context())
}

// declare stores a new object, one host after the other to 1.1.0 unless edit says otherwise.
func (w *world) declare(name string, edit func(*spec.Fleet)) {
	w.t.Helper()
	created := w.Now
	f := spec.Fleet{
		APIVersion: spec.APIVersion, Kind: spec.Kind, Metadata: spec.Metadata{Name: name, UID: "uid-" + name, Generation: 1, CreationTimestamp: &created},
		Spec: spec.Spec{
			Selector: fleet.Selector{Policies: []string{"web"}}, Agent: &spec.Desired{Version: "1.1.0"},
			Strategy: fleet.Strategy{Kind: fleet.Rolling, BatchSize: 1}, Health: fleet.HealthRule{Wait: fleet.Duration(20 * time.Second)},
		},
	}
	if edit != nil {
		edit(&f)
	}
	doc, err := json.Marshal(f)
	w.Must(err)
	w.Must(w.DB.DeclaredFleets().Create(w.t.Context(), fleet.DeclaredFleet{Name: name, Doc: doc}))
}

// change changes the spec of an object.
func (w *world) change(name string, edit func(*spec.Fleet)) {
	w.t.Helper()
	f := w.object(name)
	edit(&f)
	f.Metadata.Generation++
	_, err := objects{w.DB}.put(w.t.Context(), f)
	w.Must(err)
}

func version(v string) func(*spec.Fleet) {
	return func(f *spec.Fleet) { f.Spec.Agent = &spec.Desired{Version: v} }
}

func canary(f *spec.Fleet) {
	f.Spec.Strategy = fleet.Strategy{Kind: fleet.Canary, BatchSize: 1, Canary: &fleet.CanaryRule{Size: 1}}
}

func (w *world) object(name string) spec.Fleet {
	w.t.Helper()
	f, err := objects{w.DB}.get(w.t.Context(), name)
	w.Must(err)
	return f
}

// until lets time pass until the condition holds.
func (w *world) until(name string, ok func(*spec.Fleet) bool) spec.Fleet {
	w.t.Helper()
	for range 500 {
		w.Must(w.turn())
		if f := w.object(name); ok(&f) {
			return f
		}
	}
	f := w.object(name)
	b, err := json.MarshalIndent(f.Status, "", " ")
	w.t.Fatalf("it stays as it is (%v), hosts run %s: %s\n%s", err, w.Versions(), b, w.states())
	return f
}

func ready(f *spec.Fleet) bool {
	return holds(f, spec.Ready) && f.Status.ObservedGeneration == f.Metadata.Generation
}
func stalled(f *spec.Fleet) bool { return holds(f, spec.Stalled) }

func holds(f *spec.Fleet, t spec.ConditionType) bool {
	c := f.Status.Condition(t)
	return c != nil && c.Status == spec.True
}

// why returns the reason and message of a condition.
func why(f *spec.Fleet, t spec.ConditionType) string {
	c := f.Status.Condition(t)
	if c == nil {
		return "none"
	}
	return string(c.Status) + " " + c.Reason + ": " + c.Message
}

// rollouts returns the rollouts there are, the oldest first.
func (w *world) rollouts() []fleet.Rollout {
	w.t.Helper()
	list, _, err := w.DB.Rollouts().List(w.t.Context(), 0, 0)
	w.Must(err)
	slices.Reverse(list)
	return list
}

// states describes the rollouts there are.
func (w *world) states() string {
	var lines []string
	for _, r := range w.rollouts() {
		lines = append(lines, fmt.Sprintf("%s to %s: %s, %d of %d succeeded", r.ID, r.Plan.Version, r.State, r.Counts.Succeeded, r.Counts.Total))
	}
	return strings.Join(lines, "\n")
}

func (w *world) wantStates(want ...string) {
	w.t.Helper()
	if got := w.states(); got != strings.Join(want, "\n") {
		w.t.Errorf("the rollouts are\n%s\nwant\n%s", got, strings.Join(want, "\n"))
	}
}
