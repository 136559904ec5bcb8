package replica_test

import (
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/muster-fleet/muster/packaging/host/disk"
	"github.com/muster-fleet/muster/server/fleet"
	"github.com/muster-fleet/muster/server/node/replica"
	"github.com/muster-fleet/muster/server/store"
	"github.com/muster-fleet/muster/server/store/sqlite/sqlitetest"
	"github.com/muster-fleet/muster/server/store/storehealth"
)

// world is several servers on one store, with a clock of their own.
type world struct {
	t     *testing.T
	store store.Store
	now   time.Time
}

func newWorld(t *testing.T) *world {
	t.Helper()
	return &world{t: t, store: sqlitetest.Open(t, filepath.Join(t.TempDir(), "muster.db")), now: time.Date(2026, 3, 3, 10, 0, 0, 0, time.UTC)}
}

func (w *world) must(err error) {
	w.t.Helper()
	if err != nil {
		w.t.Fatal(err)
	}
}

// process starts a server.
func (w *world) process(id, host string, change ...func(*replica.Config)) *replica.Service {
	c := replica.Config{
		Servers: w.store.Servers(), Audit: w.store.Audit(), Health: &storehealth.Monitor{}, Log: slog.New(slog.DiscardHandler),
		Self:   replica.Self{ID: id, Host: host, Version: "1.0.0", Schema: 4, AgentsURL: "https://" + host + ":8220", AdminURL: "https://" + host + ":8221"},
		Parked: func() int { return 7 }, Now: func() time.Time { return w.now },
	}
	for _, f := range change {
		f(&c)
	}
	return replica.New(c)
}

// beat lets each process write once, one after the other, within one interval.
func (w *world) beat(processes ...*replica.Service) {
	w.t.Helper()
	step := fleet.ServerBeat / time.Duration(len(processes))
	for _, p := range processes {
		w.must(p.Beat(w.t.Context()))
		w.now = w.now.Add(step)
	}
}

func (w *world) get(id string) fleet.Server {
	w.t.Helper()
	v, err := w.store.Servers().Get(w.t.Context(), id)
	w.must(err)
	return v
}

func TestServersDescribeThemselvesUntilTheyAreAway(t *testing.T) {
	w := newWorld(t)
	started := w.now
	one, two := w.process("one", "srv-2"), w.process("two", "srv-1")
	w.beat(one, two)
	w.beat(one, two)
	list, err := one.List(t.Context())
	w.must(err)
	if len(list) != 2 || list[0].Host != "srv-1" || list[1].Host != "srv-2" {
		t.Fatalf("the servers are %+v", list)
	}
	if got := list[1]; got.Version != "1.0.0" || got.Schema != 4 || got.Parked != 7 || got.AgentsURL != "https://srv-2:8220" || got.AdminURL != "https://srv-2:8221" ||
		!got.StartedAt.Equal(started) || !got.SeenAt.Equal(started.Add(fleet.ServerBeat)) || got.Problem() != "" {
		t.Errorf("a server is %+v", got)
	}
	err = one.Forget(t.Context(), "two", "kim", "")
	if fleet.KindOf(err) != fleet.Conflict || !strings.Contains(err.Error(), "srv-1 (two) runs") {
		t.Errorf("a running server was forgotten: %v", err)
	}

	for range fleet.ServerAway / fleet.ServerBeat {
		w.beat(one)
	}
	gone, runs := w.get("two"), w.get("one")
	if !gone.Away(w.now) || runs.Away(w.now) {
		t.Errorf("one is %+v, two is %+v at %s", runs, gone, w.now)
	}
	w.must(one.Forget(t.Context(), "two", "kim", "replaced"))
	trail, _, err := w.store.Audit().List(t.Context(), store.AuditQuery{Subject: "two", Limit: 9})
	if err != nil || len(trail) != 1 || trail[0].Verb != "server.forget" || trail[0].Why != "replaced" || trail[0].Text != "kim forgot the server on srv-1" {
		t.Errorf("the trail is %+v, %v", trail, err)
	}
	err = one.Forget(t.Context(), "two", "kim", "")
	if fleet.KindOf(err) != fleet.NotFound || !strings.Contains(err.Error(), "muster servers list") {
		t.Errorf("forgotten again: %v", err)
	}
}

func TestServersWithTheSameIDAreNoticed(t *testing.T) {
	w := newWorld(t)
	one, two := w.process("same", "srv-1"), w.process("same", "srv-2")
	problem := func() string { v := w.get("same"); return v.Problem() }
	w.beat(one)
	for range 5 {
		w.beat(one, two)
	}
	for range 4 { // whichever of them was last
		w.beat(one, two)
		if got := problem(); !strings.HasPrefix(got, "the servers on srv-2 and srv-1 have the same id") {
			t.Errorf("after srv-2 it says %q", got)
		}
		w.beat(one)
		if got := problem(); !strings.HasPrefix(got, "the servers on srv-1 and srv-2 have the same id") {
			t.Errorf("after srv-1 it says %q", got)
		}
		w.beat(two)
	}
	for range 1 + fleet.ServerAway/fleet.ServerBeat {
		w.beat(two)
	}
	if got := w.get("same"); got.Problem() != "" || got.Host != "srv-2" {
		t.Errorf("when srv-1 is stopped, srv-2 is %+v", got)
	}
}

// A process that drains still writes while its successor starts.
func TestSuccessorOfAProcessIsNotTakenForACopy(t *testing.T) {
	w := newWorld(t)
	before := w.process("same", "srv-1")
	for range 3 {
		w.beat(before)
	}
	after := w.process("same", "srv-1")
	for range 2 { // app.Drain lasts as long as two beats
		w.beat(after, before)
		if got := w.get("same"); got.SharedWith != "" {
			t.Errorf("it is %+v", got)
		}
	}
	for range 4 {
		w.beat(after)
		if got := w.get("same"); got.SharedWith != "" || got.Process == "" {
			t.Errorf("it is %+v", got)
		}
	}
}

// racing is a collection that another process writes to, once, between a read and the write
// that follows.
type racing struct {
	store.Collection[fleet.Server]
	between func()
}

func (r *racing) Update(ctx context.Context, v fleet.Server) (int64, error) {
	if f := r.between; f != nil {
		r.between = nil
		f()
	}
	return r.Collection.Update(ctx, v)
}

func TestDescriptionIsWrittenAlthoughAnotherWroteIt(t *testing.T) {
	for name, between := range map[string]func(w *world){
		"another process": func(w *world) { w.beat(w.process("one", "srv-1")) },
		"an operator":     func(w *world) { w.must(w.store.Servers().Delete(w.t.Context(), "one")) },
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			r := &racing{Collection: w.store.Servers()}
			one := w.process("one", "srv-1", func(c *replica.Config) { c.Servers, c.Parked = r, func() int { return 8 } })
			w.beat(one)
			r.between = func() { between(w) }
			w.beat(one)
			if got := w.get("one"); got.Parked != 8 || r.between != nil {
				t.Errorf("it is %+v", got)
			}
		})
	}
}

func TestIDIsMadeOnce(t *testing.T) {
	dir := t.TempDir()
	open := func() string {
		t.Helper()
		id, err := replica.OpenID(disk.OS{}, dir)
		if err != nil || len(id) != 26 {
			t.Fatalf("the id is %q, %v", id, err)
		}
		return id
	}
	first := open()
	if again := open(); again != first {
		t.Errorf("the id was %s and is %s", first, again)
	}
	for _, damaged := range []string{"", "server/../x", first + first} {
		if err := os.WriteFile(filepath.Join(dir, "server-id"), []byte(damaged), 0o600); err != nil {
			t.Fatal(err)
		}
		if id := open(); id == first || id != open() {
			t.Errorf("with %q in the file the id is %s", damaged, id)
		}
	}
}

func TestRemarks(t *testing.T) {
	now := time.Date(2026, 3, 3, 10, 0, 0, 0, time.UTC)
	server := func(host, version string) fleet.Server {
		return fleet.Server{Host: host, Version: version, SeenAt: now}
	}
	gone := server("old", "0.9.0")
	gone.SeenAt = now.Add(-fleet.ServerAway)
	shared := server("c", "1.4.0")
	shared.SharedWith = "c"
	const advice = ". Upgrade the older ones: they leave alone what only newer servers know"
	for _, row := range []struct {
		name string
		list []fleet.Server
		want []string
	}{
		{"none", nil, nil},
		{"one that is away", []fleet.Server{gone, server("a", "1.4.0")}, nil},
		{"patch levels", []fleet.Server{server("a", "1.4.0"), server("b", "1.4.2-rc.1")}, nil},
		{"minor versions", []fleet.Server{server("b", "1.4.0"), server("a", "1.3.9"), server("c", "1.4.1"), server("d", "1.10.0-SNAPSHOT")}, []string{
			"servers of several versions run: 1.10 on d; 1.4 on b, c; 1.3 on a" + advice,
		}},
		{"many", []fleet.Server{
			server("a", "1.4.0"), server("f", "1.3.0"), server("e", "1.3.0"), server("d", "1.3.0"), server("c", "1.3.0"), server("b", "1.3.0"), server("g", "1.3.0"),
		}, []string{"servers of several versions run: 1.4 on a; 1.3 on b, c, d, e, f and 1 more" + advice}},
		{"a build without a version", []fleet.Server{server("a", "1.4.0"), server("b", "dev")}, []string{"servers of several versions run: 1.4 on a; dev on b" + advice}},
		{"one id twice", []fleet.Server{shared}, []string{
			"two servers on c have the same id, because the data folder of one was copied with its file server-id: stop one of them, remove that file from its data folder, and start it again",
		}},
	} {
		if got := replica.Remarks(row.list, now); !slices.Equal(got, row.want) {
			t.Errorf("%s: %q, want %q", row.name, got, row.want)
		}
	}
}
