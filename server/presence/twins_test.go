package presence

import (
	"context"
	"fmt"
	"maps"
	"path/filepath"
	"strconv"
	"sync"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/muster-fleet/muster/server/fleet"
	"github.com/muster-fleet/muster/server/store"
	"github.com/muster-fleet/muster/server/store/sqlite"
	"github.com/muster-fleet/muster/server/store/sqlite/sqlitetest"
)

// twin is one of two servers on one file.
type twin struct {
	db       *sqlite.Store
	agents   store.Agents
	registry *Registry
	keeps    []func() // check-ins that were read and have not been kept yet
}

func newTwins(t testing.TB) [2]*sqlite.Store {
	t.Helper()
	path := filepath.Join(t.TempDir(), "muster.db")
	var out [2]*sqlite.Store
	for i := range out {
		out[i] = sqlitetest.Open(t, path)
	}
	return out
}

// twinWord is what an agent says of a version and a status; of the agent's key is its
// proof.
func twinWord(a *fleet.Agent) Word {
	return Word{AgentID: a.ID, Proof: DigestOf([]byte(a.AccessKeyID)), Said: DigestOf([]byte(a.Version + a.Last.Status))}
}

// Whatever two servers write of the same agents, in whatever order: a look later each
// knows of them by heart what fits what is in the store, and counts what is there.
func TestWhatIsKnownIsOneLookOld(t *testing.T) {
	dbs := newTwins(t)
	ctx := context.Background()
	ids := []string{"a", "b", "7f3c2a10-9b1e-4c55-8d60-0123456789ab"}
	start := time.Date(2026, 3, 3, 10, 0, 0, 0, time.UTC)
	knew := 0
	rapid.Check(t, func(t *rapid.T) {
		var twins [2]*twin
		now := start
		for i, db := range dbs {
			r := testRegistry(db)
			r.roster.pause = 0
			twins[i] = &twin{db: db, registry: r, agents: Store{Store: db, Registry: r}.Agents()}
		}
		get := func(id string) (fleet.Agent, bool) {
			a, err := dbs[0].Agents().Get(ctx, id)
			if err != nil && fleet.KindOf(err) != fleet.NotFound {
				t.Fatal(err)
			}
			return a, err == nil
		}
		must := func(err error) {
			if err != nil {
				t.Fatal(err)
			}
		}
		var made sync.WaitGroup // together, in few transactions
		for _, id := range ids {
			made.Go(func() {
				_ = dbs[0].Agents().Delete(ctx, id)
				_ = dbs[0].Agents().Create(ctx, fleet.Agent{ID: id, Active: true, AccessKeyID: "key " + id, Version: "1", LastHealthyVersion: "1", EnrolledAt: now})
			})
		}
		made.Wait()
		for _, w := range twins {
			w.registry.look(ctx)
		}
		who := func() *twin { return rapid.SampledFrom(twins[:]).Draw(t, "server") }
		id := func() string { return rapid.SampledFrom(ids).Draw(t, "agent") }
		// changes are what becomes of a document.
		changes := map[string]func(*fleet.Agent){
			"version": func(a *fleet.Agent) {
				v := strconv.Itoa(rapid.IntRange(1, 2).Draw(t, "version"))
				a.Version, a.LastHealthyVersion = v, v
			},
			"tags": func(a *fleet.Agent) { a.Tags = append(a.Tags, "tag") },
			"key": func(a *fleet.Agent) {
				a.AccessKeyID = fmt.Sprintf("key %d of %s", rapid.IntRange(1, 2).Draw(t, "key"), a.ID)
			},
			"unenrolment":   func(a *fleet.Agent) { a.Active = !a.Active },
			"upgrade":       func(a *fleet.Agent) { a.BeginUpgrade("action", "9", now) },
			"upgrade's end": func(a *fleet.Agent) { a.CancelUpgrade("action") },
		}
		// check looks at one server and wants what the store says.
		check := func(w *twin, counts bool) {
			w.registry.look(ctx)
			for _, id := range ids {
				is, there := get(id)
				for _, version := range []string{"1", "2"} {
					for _, status := range []string{"", "online", "error"} {
						for _, key := range []string{"key " + id, "key 1 of " + id, "key 2 of " + id} {
							a := fleet.Agent{ID: id, Version: version, AccessKeyID: key, Last: fleet.LastSeen{Status: status}}
							known, ok := w.registry.Repeats(twinWord(&a), now)
							if _, settled := w.registry.Settled(id, twinWord(&a).Proof); settled && (!there || !is.Active || is.AccessKeyID != key) {
								t.Fatalf("agent %s with %q counts as settled; it is %+v", id, key, is)
							}
							if !ok {
								continue
							}
							knew++
							if !there || !is.Active || !is.Settled() || is.Version != version || is.Last.Status != status || is.AccessKeyID != key || known.After != int64(is.Version[0]) {
								t.Fatalf("of agent %s version %s, status %q and %q are known; it is %+v", id, version, status, key, is)
							}
						}
					}
				}
			}
			if !counts {
				return // that is most of the work
			}
			want, err := store.CountStatuses(ctx, w.db.Agents(), store.AgentFilter{}, nil, now)
			must(err)
			got, ok := w.agents.(store.StatusCounter).CountStatuses(ctx, store.AgentFilter{}, nil, now)
			if !ok || !maps.Equal(got, want) {
				t.Fatalf("it counts, %t, %v; the store %v", ok, got, want)
			}
		}
		write := func(*rapid.T) {
			w, id := who(), id()
			now = now.Add(time.Second)
			a, ok := get(id)
			if !ok {
				must(w.agents.Create(ctx, fleet.Agent{ID: id, Active: true, AccessKeyID: "key " + id, Version: "1", LastHealthyVersion: "1", EnrolledAt: now}))
				return
			}
			status := rapid.SampledFrom([]string{"online", "error"}).Draw(t, "status")
			kinds := []string{"update", "update many", "report", "status", "touch", "delete"}
			kind := rapid.SampledFrom(kinds).Draw(t, "kind")
			if kind != "status" && kind != "touch" && kind != "delete" {
				rapid.SampledFrom([]func(*fleet.Agent){
					changes["version"], changes["tags"], changes["key"], changes["unenrolment"], changes["upgrade"], changes["upgrade's end"],
				}).Draw(t, "change")(&a)
			}
			var err error
			switch kind {
			case "update":
				_, err = w.agents.Update(ctx, a)
			case "update many":
				_, err = w.agents.UpdateMany(ctx, []fleet.Agent{a})
			case "report":
				_, err = w.agents.Report(ctx, store.Report{Agent: &a, Seen: &fleet.Touch{AgentID: id, At: now, Status: status}})
			case "status":
				_, err = w.agents.Report(ctx, store.Report{Seen: &fleet.Touch{AgentID: id, At: now, Status: status}})
			case "touch":
				err = w.agents.Touch(ctx, []fleet.Touch{{AgentID: id, At: now, Status: a.Last.Status, ActionSeq: 1}})
			case "delete":
				err = w.agents.Delete(ctx, id)
			}
			must(err)
		}
		t.Repeat(map[string]func(*rapid.T){
			"read": func(*rapid.T) {
				w, id := who(), id()
				mark := Mark{Ticket: w.registry.Ticket(id)}
				a, ok := get(id)
				if !ok || !a.Active || !a.Settled() {
					return
				}
				mark.Word = twinWord(&a)
				w.keeps = append(w.keeps, func() { w.registry.Keep(mark, &a, Known{After: int64(a.Version[0])}, now) })
			},
			"keep": func(*rapid.T) {
				if w := who(); len(w.keeps) > 0 {
					w.keeps[0]()
					w.keeps = w.keeps[1:]
				}
			},
			"write": write, "write more": write,
			"look":  func(*rapid.T) { who().registry.look(ctx) },
			"check": func(*rapid.T) { check(who(), rapid.IntRange(0, 3).Draw(t, "counts") == 0) },
		})
		for _, w := range twins {
			check(w, true)
		}
	})
	if knew == 0 {
		t.Error("nothing was ever known")
	}
}

// A fleet at one server that is told, seen and upgraded leaves another server's in
// peace.
func TestOnesWritesDoNotMakeAnotherForget(t *testing.T) {
	dbs := newTwins(t)
	ctx := t.Context()
	now := time.Now().UTC()
	here := testRegistry(dbs[0])
	there := Store{Store: dbs[1], Registry: testRegistry(dbs[1])}.Agents()
	const fleetSize = 40
	id := func(server, i int) string { return fmt.Sprintf("agent %d of %d", i, server) }
	for server := range dbs {
		for i := range fleetSize {
			a := fleet.Agent{ID: id(server, i), Active: true, AccessKeyID: id(server, i), Version: "1", LastHealthyVersion: "1", EnrolledAt: now}
			if err := there.Create(ctx, a); err != nil {
				t.Fatal(err)
			}
		}
	}
	here.look(ctx)
	list := func(server int) []fleet.Agent {
		ids := make([]string, fleetSize)
		for i := range ids {
			ids[i] = id(server, i)
		}
		out, err := dbs[0].Agents().GetMany(ctx, ids)
		if err != nil {
			t.Fatal(err)
		}
		return out
	}
	for _, a := range list(0) {
		here.Keep(Mark{Word: twinWord(&a), Ticket: here.Ticket(a.ID)}, &a, Known{}, now)
	}
	known := func() (n int) {
		for _, a := range list(0) {
			if _, ok := here.Repeats(twinWord(&a), now); ok {
				n++
			}
		}
		return n
	}
	update := func(server int, change func(*fleet.Agent)) error {
		agents := list(server)
		for i := range agents {
			change(&agents[i])
		}
		_, err := there.UpdateMany(ctx, agents)
		return err
	}
	for _, c := range []struct {
		what  string
		write func() error
		known int
	}{
		{"nothing", func() error { return nil }, fleetSize},
		{"the last-seen times of the other's agents", func() error {
			var touches []fleet.Touch
			for i := range fleetSize {
				touches = append(touches, fleet.Touch{AgentID: id(1, i), At: now, Status: "online", ActionSeq: 3})
			}
			return there.Touch(ctx, touches)
		}, fleetSize},
		{"an upgrade of the other's agents", func() error {
			return update(1, func(a *fleet.Agent) { a.Version, a.LastHealthyVersion = "2", "2" })
		}, fleetSize},
		{"an order for all, given at the other", func() error {
			return update(0, func(a *fleet.Agent) { a.BeginUpgrade("action", "2", now) })
		}, fleetSize},
		{"an unenrolment of one, at the other", func() error {
			a := list(0)[7]
			a.Active = false
			_, err := there.Update(ctx, a)
			return err
		}, fleetSize - 1},
		{"other documents of all, from the other", func() error {
			return update(0, func(a *fleet.Agent) { a.PolicyID = "another" })
		}, 0},
	} {
		if err := c.write(); err != nil {
			t.Fatalf("%s: %v", c.what, err)
		}
		here.look(ctx)
		if n := known(); n != c.known {
			t.Errorf("after %s %d of %d agents are known, want %d", c.what, n, fleetSize, c.known)
		}
	}
}
