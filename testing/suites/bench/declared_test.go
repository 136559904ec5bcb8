//go:build linux

package bench

import (
	"encoding/json"
	"fmt"
	"log/slog"
	"path/filepath"
	"runtime"
	"testing"
	"time"

	"github.com/muster-fleet/muster/server/fleet"
	"github.com/muster-fleet/muster/server/rollout"
	"github.com/muster-fleet/muster/server/rollout/action"
	"github.com/muster-fleet/muster/server/rollout/spec"
	"github.com/muster-fleet/muster/server/rollout/spec/declare"
	"github.com/muster-fleet/muster/server/rollout/spec/reconcile"
	"github.com/muster-fleet/muster/server/store"
	"github.com/muster-fleet/muster/server/store/event"
	"github.com/muster-fleet/muster/server/store/lease"
	"github.com/muster-fleet/muster/server/store/sqlite"
	"github.com/muster-fleet/muster/testing/kit/processor"
	"github.com/muster-fleet/muster/testing/kit/simagent"
)

const (
	declaredFleets = 1_000
	declaredAgents = 100_000
	idleRounds     = 100
)

// BenchmarkDeclared measures the loop of declared fleets on a fleet where nothing is to do: 1,000
// objects over 100,000 agents, on the embedded store.
func BenchmarkDeclared(b *testing.B) {
	for b.Loop() {
		var t table
		for range rolloutRounds {
			t.declared(b)
			if b.Failed() {
				return
			}
		}
		t.report(b, "DECLARED.md", fmt.Sprintf("# What declared fleets cost\n\n%d objects that select %d agents, all of which run what they desire, on the embedded store. %s.\nWritten by `go tool mage bench`: the median of %d rounds, and the worst. A census is taken at most every fiftieth part of the time.\n\n", declaredFleets, declaredAgents, thisMachine(), rolloutRounds))
	}
}

func (t *table) declared(b *testing.B) {
	b.Helper()
	must := func(err error) {
		b.Helper()
		if err != nil {
			b.Fatal(err)
		}
	}
	db, err := sqlite.Open(b.Context(), filepath.Join(b.TempDir(), "muster.db"), sqlite.Options{})
	must(err)
	defer db.Close()
	now := time.Now().UTC()
	clock := func() time.Time { return now }
	must(db.Packages().Create(b.Context(), fleet.Package{File: "muster-agent-1.1.0-linux-amd64.tar.gz", Version: "1.1.0", OS: "linux", Arch: "amd64", Size: 1}))
	for i := range declaredAgents {
		id := simID(i)
		must(db.Agents().Create(b.Context(), fleet.Agent{
			ID: id, Type: "PERMANENT", Active: true, PolicyID: fmt.Sprint("policy-", i%declaredFleets), PolicyRev: 1, AccessKeyID: id, EnrolledAt: now,
			Version: "1.1.0", LocalMetadata: simagent.Metadata(id, "1.1.0"), Tags: []string{fmt.Sprint("site=s", i%10)}, Last: fleet.LastSeen{At: &now, Status: "online", Message: "Running"},
		}))
	}
	for i := range declaredFleets {
		created := now.Add(time.Duration(i) * time.Second)
		f := spec.Fleet{
			APIVersion: spec.APIVersion, Kind: spec.Kind, Metadata: spec.Metadata{Name: fmt.Sprint("fleet-", i), UID: fleet.NewID(), Generation: 1, CreationTimestamp: &created},
			Spec: spec.Spec{Selector: fleet.Selector{Policies: []string{fmt.Sprint("policy-", i)}}, Agent: &spec.Desired{Version: "1.1.0"}, Strategy: fleet.Strategy{Kind: fleet.Canary}},
		}
		doc, err := json.Marshal(f)
		must(err)
		must(db.DeclaredFleets().Create(b.Context(), fleet.DeclaredFleet{Name: f.Metadata.Name, Doc: doc}))
	}
	log := slog.New(slog.DiscardHandler)
	events := &event.Stream{Store: db.Events(), Log: log, Now: clock}
	rollouts := &rollout.Service{Store: db, Actions: &action.Service{Store: db, Events: events, Log: log, Now: clock}, Events: events, Log: log, Now: clock}
	loop := reconcile.New(reconcile.Config{
		Objects: declare.New(declare.Config{Store: db, Rollouts: rollouts, Events: events, Log: log, Now: clock}), Wake: reconcile.NewWake(), Store: db, Rollouts: rollouts,
		Lease: &lease.Owner{Leases: db.Leases(), Name: "bench", Now: clock}, Log: log, Now: clock,
	})
	// The first rounds request the hashes, find nothing to do for them, and write that down.
	for settled := false; !settled; now = now.Add(time.Minute) {
		before := processor.Spent(b)
		must(loop.Round(b.Context()))
		settled = settledNow(b, db)
		if settled {
			t.add("round with a census of the agents, nothing to do: CPU", processor.Spent(b)-before)
		}
	}
	runtime.GC() // of what the census read
	before := processor.Spent(b)
	for range idleRounds {
		must(loop.Round(b.Context())) // without time in between, no census is due
	}
	t.add("round, nothing to do: CPU", (processor.Spent(b)-before)/idleRounds)
}

// settledNow reports whether all objects are ready.
func settledNow(b *testing.B, db store.Store) bool {
	b.Helper()
	list, _, err := db.DeclaredFleets().List(b.Context(), 0, 0)
	if err != nil {
		b.Fatal(err)
	}
	for i := range list {
		var f spec.Fleet
		if err := json.Unmarshal(list[i].Doc, &f); err != nil {
			b.Fatal(err)
		}
		if c := f.Status.Condition(spec.Ready); c == nil || c.Status != spec.True {
			return false
		}
	}
	return true
}
