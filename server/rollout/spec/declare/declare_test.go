package declare_test

import (
	"encoding/json"
	"fmt"
	"log/slog"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/muster-fleet/muster/server/fleet"
	"github.com/muster-fleet/muster/server/rollout"
	"github.com/muster-fleet/muster/server/rollout/action"
	"github.com/muster-fleet/muster/server/rollout/spec"
	"github.com/muster-fleet/muster/server/rollout/spec/conversion"
	"github.com/muster-fleet/muster/server/rollout/spec/declare"
	"github.com/muster-fleet/muster/server/rollout/spec/v1alpha1"
	"github.com/muster-fleet/muster/server/store"
	"github.com/muster-fleet/muster/server/store/event"
	"github.com/muster-fleet/muster/server/store/sqlite/sqlitetest"
	"github.com/muster-fleet/muster/server/store/storehealth"
)

var (
	noon = time.Date(2026, 1, 31, 12, 0, 0, 0, time.UTC)
	kim  = declare.Request{Actor: "kim", Why: "OPS-1"}
)

// world is the service on a real store.
type world struct {
	*declare.Service
	t        *testing.T
	db       store.Store
	rollouts *rollout.Service
	signals  atomic.Int32
}

func newWorld(t *testing.T) *world {
	t.Helper()
	db := sqlitetest.Open(t, filepath.Join(t.TempDir(), "muster.db"))
	clock, log := func() time.Time { return noon }, slog.New(slog.DiscardHandler)
	events := &event.Stream{Store: db.Events(), Log: log, Now: clock}
	feed, err := action.NewFeed(t.Context(), db.Actions(), func(...string) {}, &storehealth.Monitor{}, log)
	if err != nil {
		t.Fatal(err)
	}
	actions := &action.Service{Store: db, Feed: feed, Health: &storehealth.Monitor{}, Events: events, Log: log, Now: clock}
	w := &world{t: t, db: db, rollouts: &rollout.Service{Store: db, Actions: actions, Events: events, Log: log, Now: clock}}
	w.Service = declare.New(declare.Config{
		Store: db, Rollouts: w.rollouts,
		Events: events, Log: log, Now: clock, Changed: func() { w.signals.Add(1) },
	})
	return w
}

func object(name, version string) string {
	return fmt.Sprintf("{apiVersion: muster.dev/v1alpha2, kind: Fleet, metadata: {name: %s}, spec: {selector: {all: true}, agent: {version: %s}}}", name, version)
}

func (w *world) apply(body string) declare.Applied {
	w.t.Helper()
	a, err := w.Apply(w.t.Context(), "", []byte(body), declare.Options{Request: kim})
	if err != nil {
		w.t.Fatal(err)
	}
	return a
}

func TestForcePromoteThatMatchesNothingIsKeptWithAWarning(t *testing.T) {
	t.Parallel()
	const id = "9f86d081-884c-4d65-9a2f-eaa0c55ad015"
	w := newWorld(t)
	old := w.apply("{apiVersion: muster.dev/v1alpha1, kind: Fleet, metadata: {name: web}, spec: {selector: {all: true}, agentVersion: 1.0.0, forcePromote: " + id + "}}")
	if old.Spec.ForcePromote != id || !strings.Contains(strings.Join(old.Warnings, "\n"), "spec.forcePromote has no effect") {
		t.Errorf("of v1alpha1 it keeps %q, warning of %q", old.Spec.ForcePromote, old.Warnings)
	}
	for _, version := range []string{v1alpha1.APIVersion, spec.APIVersion} {
		text, err := json.Marshal(old.Fleet)
		if err != nil {
			t.Fatal(err)
		}
		if text, err = conversion.Object(text, version); err != nil || !strings.Contains(string(text), `"forcePromote":"`+id+`"`) {
			t.Errorf("in %s it is %s, %v", version, text, err)
		}
	}
	hash := spec.Hash(&old.Fleet)
	other := strings.Repeat("0", 64)
	for promote, want := range map[string]string{
		hash: "", `""`: "",
		id:                "spec.forcePromote is a UUID of muster.dev/v1alpha1, and promotes nothing: the rollout of this spec has the hash " + hash,
		`"` + other + `"`: "spec.forcePromote names no rollout of this spec, and promotes nothing: its rollout has the hash " + hash,
	} {
		a := w.apply(strings.Replace(object("web", "1.0.0"), "spec: {", "spec: {forcePromote: "+promote+", ", 1))
		got := strings.Join(a.Warnings, "\n")
		if want == "" && strings.Contains(got, "forcePromote") || !strings.Contains(got, want) {
			t.Errorf("for %s it warns of %q, want %q", promote, got, want)
		}
	}
	_, err := w.Apply(t.Context(), "", []byte(strings.Replace(object("web", "1.0.0"), "spec: {", "spec: {forcePromote: abc, ", 1)), declare.Options{Request: kim})
	if err == nil || !strings.Contains(err.Error(), "spec.forcePromote") {
		t.Errorf("what is neither is accepted: %v", err)
	}
}

// The loop writes statuses of what it has read, and of nothing else.
func TestStatusIsWrittenOnlyOverWhatWasRead(t *testing.T) {
	w := newWorld(t)
	first := w.apply(object("web", "1.0.0")).Fleet
	status := spec.Status{ObservedGeneration: 1, RequestedRolloutHash: spec.Hash(&first), Versions: map[string]map[string]int{"agent": {"1.0.0": 3}}}
	second, err := w.UpdateStatus(t.Context(), &first, status)
	if err != nil || second.Metadata.ResourceVersion == first.Metadata.ResourceVersion || second.Metadata.Generation != 1 || second.Status.RequestedRolloutHash == "" {
		t.Fatalf("the status was written as %+v (%v)", second, err)
	}
	if same, err := w.UpdateStatus(t.Context(), &second, status); err != nil || same.Metadata.ResourceVersion != second.Metadata.ResourceVersion {
		t.Errorf("the same status was written again: %+v (%v)", same.Metadata, err)
	}
	if _, err := w.UpdateStatus(t.Context(), &first, spec.Status{}); fleet.KindOf(err) != fleet.Conflict {
		t.Errorf("over an object that was changed: %v", err)
	}
	third := w.apply(object("web", "2.0.0"))
	if third.Status.RequestedRolloutHash != status.RequestedRolloutHash || third.Metadata.Generation != 2 {
		t.Errorf("a new spec has changed the status: %+v", third.Status)
	}
	if _, err := w.Delete(t.Context(), "web", false, kim); err != nil {
		t.Fatal(err)
	}
	if _, err := w.UpdateStatus(t.Context(), &third.Fleet, spec.Status{}); fleet.KindOf(err) != fleet.NotFound {
		t.Errorf("of an object that was deleted: %v", err)
	}
	w.apply(object("web", "2.0.0"))
	if _, err := w.UpdateStatus(t.Context(), &third.Fleet, spec.Status{}); fleet.KindOf(err) != fleet.Conflict {
		t.Errorf("of another object of the name: %v", err)
	}
}

func TestLoopIsSignalledAfterEveryChange(t *testing.T) {
	w := newWorld(t)
	w.apply(object("web", "1.0.0"))
	w.apply(object("web", "1.0.0")) // the same
	if n := w.signals.Load(); n != 1 {
		t.Errorf("%d signals after one change", n)
	}
	if _, err := w.Delete(t.Context(), "web", false, kim); err != nil || w.signals.Load() != 2 {
		t.Errorf("%d signals after two changes (%v)", w.signals.Load(), err)
	}
	events, err := w.db.Events().After(t.Context(), 0, 10)
	if err != nil || len(events) != 2 || events[0].Type != fleet.EventFleetChanged || events[0].Subject != "web" || !strings.Contains(string(events[1].Data), `"action":"delete"`) {
		t.Errorf("the events are %+v (%v)", events, err)
	}
}

// The loop writes statuses all the time, of which an operator must not notice anything.
func TestApplySucceedsBesideStatusWrites(t *testing.T) {
	w := newWorld(t)
	w.apply(object("web", "1.0.0"))
	for n := range 20 {
		var writing sync.WaitGroup
		writing.Go(func() {
			o, err := w.Get(t.Context(), "web")
			if err == nil {
				_, err = w.UpdateStatus(t.Context(), &o.Fleet, spec.Status{Sequence: int64(n + 1)})
			}
			if err != nil && fleet.KindOf(err) != fleet.Conflict {
				t.Error(err)
			}
		})
		w.apply(object("web", fmt.Sprintf("1.0.%d", n+1)))
		writing.Wait()
	}
	if o, err := w.Get(t.Context(), "web"); err != nil || o.Metadata.Generation != 21 || o.Spec.Agent.Version != "1.0.20" {
		t.Errorf("it is %+v (%v)", o.Fleet, err)
	}
}

// A rollout that has not proven its version yet must not go on without anybody who wants it. One
// that is promoting is never disturbed.
func TestDeletingCancelsARolloutThatIsNotPromoting(t *testing.T) {
	for _, row := range []struct {
		name     string
		promoted bool
		want     fleet.RolloutState
	}{{"before its canaries", false, fleet.RolloutCancelling}, {"promoting", true, fleet.RolloutRunning}} {
		t.Run(row.name, func(t *testing.T) {
			w := newWorld(t)
			w.apply(object("web", "1.0.0"))
			r := fleet.Rollout{
				ID: "r", State: fleet.RolloutRunning, Fleet: "web", StartedAt: &noon, RunningSince: &noon,
				Plan: fleet.Plan{Name: "fleet web", Version: "1.0.0", Strategy: fleet.Strategy{Kind: fleet.Canary, Canary: &fleet.CanaryRule{Size: 1}}},
			}
			other := r
			other.ID, other.Fleet = "other", ""
			if row.promoted {
				r.Promoted = &fleet.Decision{By: "kim", At: noon}
			}
			for _, r := range []fleet.Rollout{r, other} {
				if err := w.db.Rollouts().Create(t.Context(), r); err != nil {
					t.Fatal(err)
				}
			}
			if _, err := w.Delete(t.Context(), "web", false, kim); err != nil {
				t.Fatal(err)
			}
			got, err := w.db.Rollouts().Get(t.Context(), "r")
			if err != nil || got.State != row.want && !(row.want == fleet.RolloutCancelling && got.State == fleet.RolloutCancelled) {
				t.Errorf("its rollout is %s (%v)", got.State, err)
			}
			if got, err := w.db.Rollouts().Get(t.Context(), "other"); err != nil || got.State != fleet.RolloutRunning {
				t.Errorf("the rollout of an operator is %s (%v)", got.State, err)
			}
		})
	}
}

// An object of a newer server is neither lost nor an obstacle.
func TestObjectsOfANewerServerAreLeftAlone(t *testing.T) {
	w := newWorld(t)
	w.apply(object("web", "1.0.0"))
	doc := json.RawMessage(`{"apiVersion":"muster.dev/v2","kind":"Fleet","metadata":{"name":"new"},"spec":{"everything":"new"}}`)
	if err := w.db.DeclaredFleets().Create(t.Context(), fleet.DeclaredFleet{Name: "new", Doc: doc}); err != nil {
		t.Fatal(err)
	}
	if all, err := w.All(t.Context()); err != nil || len(all) != 1 {
		t.Errorf("the objects are %+v (%v)", all, err)
	}
	if _, err := w.Apply(t.Context(), "new", []byte(object("new", "1.0.0")), declare.Options{Request: kim}); fleet.KindOf(err) != fleet.Conflict || !strings.Contains(err.Error(), "a newer one wrote it") {
		t.Errorf("it was replaced: %v", err)
	}
	if d, err := w.db.DeclaredFleets().Get(t.Context(), "new"); err != nil || string(d.Doc) != string(doc) {
		t.Errorf("it is %s (%v)", d.Doc, err)
	}
}

func TestExportHasWhatPoliciesAndRolloutsBring(t *testing.T) {
	w := newWorld(t)
	policy := fleet.Policy{ID: "Web_Servers", Name: "Web", Namespace: "default", RequiredVersions: []fleet.RequiredVersion{{Version: "1.1.0", Percentage: 100}}}
	if err := json.Unmarshal([]byte(`[{"name":"web","version":"2.0.0"},{"name":"db","version":"3.0.0","lockstep":true},{"name":"cache"}]`), &policy.Components); err != nil {
		t.Fatal(err)
	}
	half := fleet.Policy{ID: "half", Name: "Half", Namespace: "default", RequiredVersions: []fleet.RequiredVersion{{Version: "1.1.0", Percentage: 50}}}
	for _, p := range []fleet.Policy{policy, half} {
		if err := w.db.Policies().Create(t.Context(), p); err != nil {
			t.Fatal(err)
		}
	}
	plan := fleet.Plan{Name: "To two!", Version: "2.0.0", Select: fleet.Selector{Kuery: "tags: edge"}, Strategy: fleet.Strategy{Kind: fleet.Canary, Canary: &fleet.CanaryRule{Size: 2}}}
	for id, change := range map[string]func(*fleet.Rollout){
		"own": func(r *fleet.Rollout) {}, "automatic": func(r *fleet.Rollout) { r.Automatic = true }, "back": func(r *fleet.Rollout) { r.RollbackOf = "own" }, "declared": func(r *fleet.Rollout) { r.Fleet = "web" },
	} {
		r := fleet.Rollout{ID: id, State: fleet.RolloutRunning, Plan: plan}
		change(&r)
		if err := w.db.Rollouts().Create(t.Context(), r); err != nil {
			t.Fatal(err)
		}
	}
	list, err := w.Export(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, f := range list {
		if problems := spec.Check(&f); len(problems) > 0 {
			t.Errorf("%s is refused: %v", f.Metadata.Name, problems)
		}
		text := f.Metadata.Name + ":"
		for _, p := range f.Spec.Parts() {
			text += " " + p.Name() + " " + p.Version
		}
		got = append(got, text)
	}
	want := "web-servers: agent 1.1.0 web 2.0.0, web-servers-lockstep: db 3.0.0, to-two: agent 2.0.0"
	if strings.Join(got, ", ") != want {
		t.Errorf("exported are %s\nwant %s", strings.Join(got, ", "), want)
	}
}
