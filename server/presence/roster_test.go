package presence

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"path/filepath"
	"runtime"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/muster-fleet/muster/server/fleet"
	"github.com/muster-fleet/muster/server/kql"
	"github.com/muster-fleet/muster/server/store"
	"github.com/muster-fleet/muster/server/store/sqlite"
)

var rosterStart = time.Date(2026, 3, 3, 10, 0, 0, 0, time.UTC)

func testRegistry(watched store.Watched) *Registry {
	return New(watched, slog.New(slog.DiscardHandler))
}

// quiet is a store that nobody else writes.
type quiet struct{}

func (quiet) ChangesElsewhere(context.Context, int64) (store.Changes, error) {
	return store.Changes{}, nil
}

func (quiet) FactsOf(context.Context, []string, func(string, fleet.StatusFacts)) error { return nil }

// flight is a write that is under way. A test says when it is made, and when it ends.
type flight struct {
	outcome               outcome
	arrived, commit, made chan struct{}
	end, done             chan struct{}
	committed             bool
	late                  func() error // what is still to be made after its end
}

type outcome int

const (
	asItComes     outcome = iota
	madeButFailed         // its caller is given an error
	notMade
	madeLater // after its caller was given an error
)

type flightKey struct{}

var errUnknown = fleet.Errorf(fleet.Unavailable, "what became of the write is not known")

// gate is a store in which writes wait for the test, and in which the test can do more
// after agents were read, and before the reader has them.
type gate struct {
	store.Agents
	store.Watched
	between func()
	torn    bool // the next reading of all fails at its end
}

func (g *gate) run(ctx context.Context, do func() error) error {
	f := ctx.Value(flightKey{}).(*flight)
	close(f.arrived)
	<-f.commit
	var err error
	if f.outcome == asItComes || f.outcome == madeButFailed {
		err = do()
	}
	if f.outcome == madeLater {
		f.late = do
	}
	close(f.made)
	<-f.end
	if f.outcome != asItComes {
		return errUnknown
	}
	return err
}

func (g *gate) Create(ctx context.Context, a fleet.Agent) error {
	return g.run(ctx, func() error { return g.Agents.Create(ctx, a) })
}

func (g *gate) Update(ctx context.Context, a fleet.Agent) (int64, error) {
	return 0, g.run(ctx, func() error { _, err := g.Agents.Update(ctx, a); return err })
}

func (g *gate) UpdateMany(ctx context.Context, list []fleet.Agent) (errs []error, err error) {
	err = g.run(ctx, func() (err error) { errs, err = g.Agents.UpdateMany(ctx, list); return err })
	return errs, err
}

func (g *gate) Report(ctx context.Context, r store.Report) (int64, error) {
	return 0, g.run(ctx, func() error { _, err := g.Agents.Report(ctx, r); return err })
}

func (g *gate) Delete(ctx context.Context, id string) error {
	return g.run(ctx, func() error { return g.Agents.Delete(ctx, id) })
}

func (g *gate) Touch(ctx context.Context, touches []fleet.Touch) error {
	if ctx.Value(flightKey{}) == nil {
		return g.Agents.Touch(ctx, touches)
	}
	return g.run(ctx, func() error { return g.Agents.Touch(ctx, touches) })
}

func (g *gate) FactsOf(ctx context.Context, ids []string, f func(string, fleet.StatusFacts)) error {
	read := map[string]fleet.StatusFacts{}
	err := g.Watched.FactsOf(ctx, ids, func(id string, facts fleet.StatusFacts) { read[id] = facts })
	g.between()
	for id, facts := range read {
		f(id, facts)
	}
	return err
}

func (g *gate) Facts(ctx context.Context, filter store.AgentFilter, f func(string, fleet.StatusFacts)) error {
	read := map[string]fleet.StatusFacts{}
	err := g.Agents.Facts(ctx, filter, func(id string, facts fleet.StatusFacts) { read[id] = facts })
	left := len(read) / 2
	for id, facts := range read {
		if left == 0 {
			g.between()
		}
		left--
		f(id, facts)
	}
	if len(read) == 0 {
		g.between()
	}
	if g.torn {
		return errUnknown
	}
	return err
}

// rosterWorld is a fleet of three that many write at once, most of them one agent.
type rosterWorld struct {
	*rapid.T
	ctx      context.Context
	plain    store.Agents
	other    store.Agents // of another process
	gate     *gate
	registry *Registry
	agents   store.Agents
	now      time.Time
	// faulty says that writes fail. After that an agent is read again at each query,
	// whatever else is wrong with its row.
	faulty  bool
	flights []*flight
	late    []func() error
	// creating says that a new agent may be made that is older than what is written
	// meanwhile: by no clock there is.
	creating bool
	// signs are those the store may not have: a ledger brings it them.
	signs []fleet.Touch
}

var rosterIDs = []string{"a", "b", "c"}

func (w *rosterWorld) id() string {
	return rapid.SampledFrom([]string{"a", "a", "a", "b", "c"}).Draw(w.T, "agent")
}

func (w *rosterWorld) pass() time.Time {
	w.now = w.now.Add(time.Duration(rapid.SampledFrom([]int{1, 1, 1, 60, 301, 3601}).Draw(w.T, "seconds")) * time.Second)
	return w.now
}

func (w *rosterWorld) touch() fleet.Touch {
	t := fleet.Touch{AgentID: w.id(), At: w.pass(), Status: rapid.SampledFrom([]string{"", "online", "degraded", "error"}).Draw(w.T, "status")}
	if rapid.IntRange(0, 3).Draw(w.T, "kept") == 0 { // by an outage, say
		t.At = t.At.Add(-10 * time.Second)
	}
	if rapid.Bool().Draw(w.T, "heard of") {
		w.registry.Seen(t.AgentID, t.At)
	}
	w.signs = append(w.signs, fleet.Touch{AgentID: t.AgentID, At: t.At})
	return t
}

// changed is an agent as it is, or as it was, but for one change.
func (w *rosterWorld) changed(id string) (fleet.Agent, bool) {
	a, err := w.plain.Get(w.ctx, id)
	if err != nil {
		if fleet.KindOf(err) != fleet.NotFound {
			w.Fatal(err)
		}
		return a, false
	}
	now := w.pass()
	a.Last = fleet.LastSeen{} // what is here must not matter
	switch rapid.IntRange(0, 6).Draw(w.T, "change") {
	case 0:
		a.Active = !a.Active
	case 1:
		a.PolicyID = rapid.SampledFrom([]string{"p", "q"}).Draw(w.T, "policy")
	case 2:
		a.UpgradeStartedAt, a.UpgradedAt = &now, nil
	case 3:
		a.UpgradedAt = &now
	case 4:
		a.UnenrollmentStartedAt = &now
	case 5:
		a.AuditUnenrolledReason = rapid.SampledFrom([]string{"", "uninstall", "orphaned", "other"}).Draw(w.T, "reason")
	case 6:
		a.Tags = append(a.Tags, "tag")
	}
	return a, true
}

// begin begins some write, and returns once it is about to be made.
func (w *rosterWorld) begin(*rapid.T) {
	f := &flight{
		arrived: make(chan struct{}), commit: make(chan struct{}), made: make(chan struct{}), end: make(chan struct{}), done: make(chan struct{}),
	}
	if w.faulty {
		f.outcome = rapid.SampledFrom([]outcome{asItComes, asItComes, asItComes, madeButFailed, notMade, madeLater}).Draw(w.T, "outcome")
	}
	ctx := context.WithValue(w.ctx, flightKey{}, f)
	var write func()
	switch kind := rapid.SampledFrom([]string{"create", "update", "update many", "report", "touch", "delete"}).Draw(w.T, "write"); kind {
	case "create":
		a := fleet.Agent{ID: w.id(), Active: true, AccessKeyID: fleet.NewID(), PolicyID: "p", EnrolledAt: w.pass()}
		if rapid.Bool().Draw(w.T, "has checked in") {
			a.Last = fleet.LastSeen{At: &a.EnrolledAt, Status: "degraded"}
		}
		write = func() { _ = w.agents.Create(ctx, a) }
		w.creating = true
	case "update", "update many", "report":
		a, ok := w.changed(w.id())
		b, both := w.changed(w.id())
		if !ok {
			return // there is no such agent
		}
		switch kind {
		case "update":
			write = func() { _, _ = w.agents.Update(ctx, a) }
		case "update many":
			list := []fleet.Agent{a}
			if both {
				list = append(list, b)
			}
			write = func() { _, _ = w.agents.UpdateMany(ctx, list) }
		default:
			r := store.Report{Agent: &a}
			if rapid.Bool().Draw(w.T, "with a check-in") {
				seen := w.touch()
				seen.AgentID = a.ID
				w.signs = append(w.signs, fleet.Touch{AgentID: a.ID, At: seen.At})
				r.Seen = &seen
			}
			write = func() { _, _ = w.agents.Report(ctx, r) }
		}
	case "touch":
		touches := []fleet.Touch{w.touch(), w.touch()}
		write = func() { _ = w.agents.Touch(ctx, touches) }
	case "delete":
		id := w.id()
		write = func() { _ = w.agents.Delete(ctx, id) }
	}
	go func() { write(); close(f.done) }()
	<-f.arrived
	w.flights = append(w.flights, f)
}

func (w *rosterWorld) make(f *flight) {
	if !f.committed {
		f.committed = true
		close(f.commit)
		<-f.made
	}
}

func (w *rosterWorld) commit(*rapid.T) {
	if len(w.flights) == 0 {
		w.Skip("nobody writes")
	}
	w.make(rapid.SampledFrom(w.flights).Draw(w.T, "who"))
}

func (w *rosterWorld) finish(i int) {
	f := w.flights[i]
	w.make(f)
	close(f.end)
	<-f.done
	w.flights = append(w.flights[:i], w.flights[i+1:]...)
	if f.late != nil {
		w.late = append(w.late, f.late)
	}
}

func (w *rosterWorld) end(*rapid.T) {
	if len(w.flights) == 0 {
		w.Skip("nobody writes")
	}
	w.finish(rapid.IntRange(0, len(w.flights)-1).Draw(w.T, "who"))
}

func (w *rosterWorld) land(*rapid.T) {
	if len(w.late) == 0 {
		w.Skip("nothing is late")
	}
	_ = w.late[0]()
	w.late = w.late[1:]
}

func (w *rosterWorld) sign(*rapid.T) {
	t := fleet.Touch{AgentID: w.id(), At: w.pass()}
	w.registry.Seen(t.AgentID, t.At)
	w.signs = append(w.signs, t)
}

// ask asks while others go on; what it is told may be of before or after.
func (w *rosterWorld) ask(t *rapid.T) {
	w.gate.torn = rapid.IntRange(0, 4).Draw(t, "torn") == 0
	steps := map[string]func(*rapid.T){"begin": w.begin, "commit": w.commit, "end": w.end, "land": w.land, "sign": w.sign, "forget": w.forget, "elsewhere": w.elsewhere, "look": w.look}
	names := []string{"begin", "commit", "commit", "end", "end", "land", "sign", "forget", "elsewhere", "look"}
	w.gate.between = func() {
		for range rapid.IntRange(0, 4).Draw(t, "steps between") {
			name := rapid.SampledFrom(names).Draw(t, "step between")
			// These skip where there is nothing to do, and may not skip from here.
			if (name == "commit" || name == "end") && len(w.flights) == 0 || name == "land" && len(w.late) == 0 {
				continue
			}
			steps[name](t)
		}
	}
	_, _ = w.counter().CountStatuses(w.ctx, store.AgentFilter{}, nil, w.now)
	w.gate.torn, w.gate.between = false, func() {}
}

func (w *rosterWorld) forget(*rapid.T) { w.registry.forget() }

// elsewhere is a write of another process. This one learns of it by a look.
func (w *rosterWorld) elsewhere(*rapid.T) {
	w.creating = w.creating && len(w.flights)+len(w.late) > 0
	kinds := []string{"create", "update", "report", "delete", "touch", "touch"}
	if w.creating {
		kinds = kinds[:4]
	}
	var err error
	switch rapid.SampledFrom(kinds).Draw(w.T, "write elsewhere") {
	case "create":
		err = w.other.Create(w.ctx, fleet.Agent{ID: w.id(), Active: true, AccessKeyID: fleet.NewID(), PolicyID: "q", EnrolledAt: w.pass()})
	case "update":
		if a, ok := w.changed(w.id()); ok {
			_, err = w.other.UpdateMany(w.ctx, []fleet.Agent{a})
		}
	case "report":
		if a, ok := w.changed(w.id()); ok {
			r := store.Report{Agent: &a}
			if !w.creating && rapid.Bool().Draw(w.T, "with a check-in") {
				r.Seen = &fleet.Touch{AgentID: a.ID, At: w.pass(), Status: "error"}
			}
			_, err = w.other.Report(w.ctx, r)
		}
	case "delete":
		err = w.other.Delete(w.ctx, w.id())
	case "touch":
		at := w.pass()
		status := rapid.SampledFrom([]string{"", "", "online", "error"}).Draw(w.T, "status")
		err = w.other.Touch(w.ctx, []fleet.Touch{{AgentID: w.id(), At: at, Status: status}, {AgentID: w.id(), At: at}})
	}
	if err != nil && fleet.KindOf(err) != fleet.Conflict {
		w.Fatal(err)
	}
}

func (w *rosterWorld) look(*rapid.T) { w.registry.look(w.ctx) }

func (w *rosterWorld) counter() store.StatusCounter { return w.agents.(store.StatusCounter) }

// compare ends the writes that were begun, and wants what the store says.
func (w *rosterWorld) compare(t *rapid.T) {
	for len(w.flights) > 0 {
		w.commit(t)
		w.end(t)
	}
	if err := w.agents.Touch(w.ctx, w.signs); err != nil {
		w.Fatal(err)
	}
	w.signs = nil
	w.look(t)
	timeouts := map[string]time.Duration{"p": time.Hour}
	later := rapid.SampledFrom([]time.Duration{0, fleet.OfflineAfter, 30 * time.Minute, time.Hour}).Draw(t, "later")
	now := w.now.Add(later + time.Second)
	for _, filter := range []store.AgentFilter{{}, {PolicyID: "p"}, {PolicyID: "q", ActiveOnly: true, Query: kql.Everything{}}, {PolicyID: "none"}} {
		want, err := store.CountStatuses(w.ctx, w.plain, filter, timeouts, now)
		if err != nil {
			w.Fatal(err)
		}
		got, ok := w.counter().CountStatuses(w.ctx, filter, timeouts, now)
		if !ok || !maps.Equal(got, want) {
			w.Fatalf("of %+v after %s it knows, %t, %v; the store %v", filter, later, ok, got, want)
		}
	}
	w.compareRows()
}

// compareRows finds what no count shows now.
func (w *rosterWorld) compareRows() {
	r := w.registry.roster
	for _, id := range rosterIDs {
		k := r.keyOf(id)
		is, known := r.of(k).rows[k]
		a, err := w.plain.Get(w.ctx, id)
		if err != nil && fleet.KindOf(err) != fleet.NotFound {
			w.Fatal(err)
		}
		facts := a.Facts()
		if want, _ := r.row(&facts); known != (err == nil) || known && is != want {
			w.Fatalf("of agent %s it knows, %t, %+v; the store %+v, %v", id, known, is, want, err)
		}
	}
}

// Whoever writes which agents in whatever order, side by side, and with whatever
// outcome: the statuses that are known are those of the store.
func TestStatusesAreThoseOfTheStore(t *testing.T) {
	db, err := sqlite.Open(t.Context(), filepath.Join(t.TempDir(), "muster.db"), sqlite.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	other, err := sqlite.Open(t.Context(), db.Path(), sqlite.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close()
	rapid.Check(t, func(t *rapid.T) {
		g := &gate{Agents: db.Agents(), Watched: db, between: func() {}}
		w := &rosterWorld{T: t, ctx: context.Background(), plain: db.Agents(), other: other.Agents(), gate: g, registry: testRegistry(g), now: rosterStart}
		for _, id := range rosterIDs {
			if err := w.plain.Delete(w.ctx, id); err != nil {
				t.Fatal(err)
			}
		}
		for _, id := range rosterIDs[1:] {
			if err := w.plain.Create(w.ctx, fleet.Agent{ID: id, Active: true, AccessKeyID: fleet.NewID(), PolicyID: "p", EnrolledAt: w.now}); err != nil {
				t.Fatal(err)
			}
		}
		w.faulty = rapid.IntRange(0, 2).Draw(t, "faulty") == 2
		w.registry.roster.pause = 0
		w.look(t) // the first finds nothing to compare with
		w.agents = agents{w.gate, w.registry}
		defer func() { // also when it has failed: nobody is left waiting
			for len(w.flights) > 0 {
				w.finish(0)
			}
		}()
		t.Repeat(map[string]func(*rapid.T){
			"begin": w.begin, "begin another": w.begin, "begin a third": w.begin, "commit": w.commit, "end": w.end, "land": w.land,
			"sign": w.sign, "ask": w.ask, "forget": w.forget, "compare": w.compare,
			"elsewhere": w.elsewhere, "elsewhere again": w.elsewhere, "look": w.look,
		})
		w.compare(t)
	})
}

// countedStore holds agents in memory, and counts what it is asked.
type countedStore struct {
	store.Agents
	quiet
	mu     sync.Mutex
	agents map[string]fleet.Agent
	failed error // of the next writes
	// read is called once when agents were read by their ids.
	read  func()
	asked map[string]int
}

func countedID(i int) string { return fmt.Sprintf("%08x-0000-4000-8000-%012x", i*2654435761, i) }

// newCountedStore has n agents, seen 0 to 599 s ago.
func newCountedStore(n int) *countedStore {
	s := &countedStore{agents: make(map[string]fleet.Agent, n), asked: map[string]int{}}
	for i := range n {
		seen := rosterStart.Add(-time.Duration(i%600) * time.Second)
		a := fleet.Agent{
			ID: countedID(i), Active: i%50 != 0, PolicyID: fmt.Sprintf("policy-%d", i%10), EnrolledAt: rosterStart.Add(-time.Hour),
			Last: fleet.LastSeen{At: &seen, Status: "online"},
		}
		if i%7 == 0 {
			a.Last.Status = "degraded"
		}
		s.agents[a.ID] = a
	}
	return s
}

// call notes a call, until it returns.
func (s *countedStore) call(name string) func() {
	s.mu.Lock()
	s.asked[name]++
	return s.mu.Unlock
}

func (s *countedStore) Facts(ctx context.Context, _ store.AgentFilter, f func(string, fleet.StatusFacts)) error {
	defer s.call("Facts")()
	for id, a := range s.agents {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		f(id, a.Facts())
	}
	return nil
}

func (s *countedStore) FactsOf(_ context.Context, ids []string, f func(string, fleet.StatusFacts)) error {
	if read := s.read; read != nil {
		s.read = nil
		defer read()
	}
	defer s.call("FactsOf")()
	for _, id := range ids {
		if a, ok := s.agents[id]; ok {
			f(id, a.Facts())
		}
	}
	return nil
}

func (s *countedStore) CountFirst(_ context.Context, _ store.AgentFilter, queries []kql.Filter) ([]int, error) {
	defer s.call("CountFirst")()
	return make([]int, len(queries)+1), nil
}

func (s *countedStore) Create(_ context.Context, a fleet.Agent) error {
	defer s.call("Create")()
	s.agents[a.ID] = a
	return nil
}

func (s *countedStore) Update(_ context.Context, a fleet.Agent) (int64, error) {
	defer s.call("Update")()
	if s.failed == nil {
		a.Last = s.agents[a.ID].Last
		s.agents[a.ID] = a
	}
	return 0, s.failed
}

func (s *countedStore) Touch(_ context.Context, touches []fleet.Touch) error {
	defer s.call("Touch")()
	for _, t := range touches {
		if a, ok := s.agents[t.AgentID]; ok && s.failed == nil && !t.At.Before(*a.Last.At) {
			a.Last = fleet.LastSeen{At: &t.At, Status: t.Status}
			s.agents[t.AgentID] = a
		}
	}
	return s.failed
}

// crowd is a store of n agents of which nothing more is wanted.
type crowd struct {
	*countedStore
	n int
}

func (s crowd) Facts(ctx context.Context, _ store.AgentFilter, f func(string, fleet.StatusFacts)) error {
	defer s.call("Facts")()
	for i := range s.n {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		f(strconv.Itoa(i), fleet.StatusFacts{})
	}
	return nil
}

func (s *countedStore) wantAsked(t *testing.T, what string, want map[string]int) {
	t.Helper()
	if !maps.Equal(s.asked, want) {
		t.Errorf("%s: the store was asked %v, want %v", what, s.asked, want)
	}
	clear(s.asked)
}

// queryStatuses is a status query.
func queryStatuses(t testing.TB, agents store.Agents, filter store.AgentFilter) map[fleet.Status]int {
	t.Helper()
	counts, err := store.CountStatuses(t.Context(), agents, filter, map[string]time.Duration{"policy-1": time.Minute}, rosterStart)
	if err != nil {
		t.Fatal(err)
	}
	return counts
}

func TestStatusQueriesLeaveTheStoreAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newCountedStore(1000)
		r := testRegistry(s)
		known := agents{s, r}
		none, once, counted := map[string]int{}, map[string]int{"Facts": 1}, map[string]int{"CountFirst": 1}
		query := func(f store.AgentFilter) map[fleet.Status]int { t.Helper(); return queryStatuses(t, known, f) }

		all := query(store.AgentFilter{})
		s.wantAsked(t, "the first query", once)
		for range 3 {
			for _, f := range []store.AgentFilter{{}, {PolicyID: "policy-3"}, {ActiveOnly: true}, {Query: kql.Everything{}}} {
				query(f)
			}
		}
		s.wantAsked(t, "the queries behind it", none)
		if of3 := query(store.AgentFilter{PolicyID: "policy-3"}); of3[fleet.StatusDegraded] >= all[fleet.StatusDegraded] || of3[fleet.StatusDegraded] == 0 {
			t.Errorf("a policy has %v, all %v", of3, all)
		}
		for _, f := range []store.AgentFilter{
			{Query: kql.Nothing{}}, {SeenSince: map[string]time.Time{"policy-3": rosterStart}}, {VersionBelow: "9.0.0"},
		} {
			query(f)
			s.wantAsked(t, fmt.Sprintf("a query for %+v", f), counted)
		}

		// What is written, and who is there, is known without a look.
		gone := s.agents[countedID(1)]
		gone.Active = false
		if _, err := known.Update(t.Context(), gone); err != nil {
			t.Fatal(err)
		}
		for id := range s.agents {
			r.Seen(id, rosterStart)
		}
		clear(s.asked)
		after := query(store.AgentFilter{})
		if after[fleet.StatusUnenrolled] != all[fleet.StatusUnenrolled]+1 || after[fleet.StatusOffline]+after[fleet.StatusInactive] != 0 {
			t.Errorf("after an unenrolment and a sign of everybody it is %v, before %v", after, all)
		}
		s.wantAsked(t, "a query after changes", none)

		// A write of which it is not known whether it was made is looked after, until
		// it cannot come any more.
		s.failed = errUnknown
		if _, err := known.Update(t.Context(), s.agents[countedID(599)]); err == nil {
			t.Fatal("the write has not failed")
		}
		s.failed = nil
		clear(s.asked)
		again := map[string]int{"FactsOf": 1}
		if got := query(store.AgentFilter{}); !maps.Equal(got, after) {
			t.Errorf("signs of agents are lost: it is %v, was %v", got, after)
		}
		s.wantAsked(t, "a query after a failed write", again)
		time.Sleep(lateWrite)
		query(store.AgentFilter{})
		s.wantAsked(t, "a query after the time of that write", again)
		query(store.AgentFilter{})
		s.wantAsked(t, "the query behind that", none)

		// Others write all the time: that does not make it read all the time.
		r.forget()
		query(store.AgentFilter{})
		s.wantAsked(t, "a query after others have written", once)
		r.forget()
		query(store.AgentFilter{})
		s.wantAsked(t, "a query after they have again", counted)
		time.Sleep(fillPause)
		query(store.AgentFilter{})
		s.wantAsked(t, "a query some time later", once)
		r.blind.Store(true)
		query(store.AgentFilter{})
		s.wantAsked(t, "a query while others cannot be heard of", counted)
	})
}

// What seldom comes by chance.
func TestStatusesAfterRareTurns(t *testing.T) {
	ctx := t.Context()
	for _, c := range []struct {
		name   string
		turns  func(s *countedStore, known agents)
		status fleet.Status // that one agent more has afterwards
	}{
		{"a write ends while its agent is read again", func(s *countedStore, known agents) {
			a := s.agents[countedID(1)]
			s.failed = fleet.Errorf(fleet.Conflict, "another was first")
			_, _ = known.Update(ctx, a)
			s.failed = nil
			s.read = func() {
				a.Active = false
				_, _ = known.Update(ctx, a)
			}
			queryStatuses(t, known, store.AgentFilter{})
		}, fleet.StatusUnenrolled},
		{"a check-in is written late, of an agent that was not there yet", func(s *countedStore, known agents) {
			seen := rosterStart
			a := fleet.Agent{ID: "new", Active: true, PolicyID: "policy-2", EnrolledAt: seen, Last: fleet.LastSeen{At: &seen, Status: "online"}}
			s.failed = errUnknown
			_ = known.Touch(ctx, []fleet.Touch{{AgentID: "new", At: seen, Status: "error"}})
			s.failed = nil
			_ = known.Create(ctx, a)
			queryStatuses(t, known, store.AgentFilter{})
			a.Last.Status = "error"
			s.agents["new"] = a
		}, fleet.StatusError},
		{"a check-in comes behind a later one", func(s *countedStore, known agents) {
			later := fleet.Touch{AgentID: countedID(7), At: rosterStart, Status: "error"} // was degraded
			_ = known.Touch(ctx, []fleet.Touch{later})
			_ = known.Touch(ctx, []fleet.Touch{{AgentID: later.AgentID, At: rosterStart.Add(-time.Second), Status: "degraded"}})
		}, fleet.StatusError},
		{"a write is heard of after another process's, which came behind it", func(s *countedStore, known agents) {
			ours := s.agents[countedID(1)]
			theirs := ours
			theirs.Active = false
			c := update(&ours)
			known.roster().begin(&c)
			_, _ = s.Update(ctx, ours)
			_, _ = s.Update(ctx, theirs)
			known.roster().elsewhere(&store.AgentChange{AgentID: theirs.ID, Stance: 1})
			queryStatuses(t, known, store.AgentFilter{})
			known.roster().end(&c, nil)
		}, fleet.StatusUnenrolled},
		{"another process writes while its agent is read again", func(s *countedStore, known agents) {
			theirs := &store.AgentChange{AgentID: countedID(1)}
			known.roster().elsewhere(theirs)
			s.read = func() {
				a := s.agents[theirs.AgentID]
				a.Active = false
				_, _ = s.Update(ctx, a)
				known.roster().elsewhere(theirs)
			}
			queryStatuses(t, known, store.AgentFilter{})
		}, fleet.StatusUnenrolled},
		{"another process makes an agent anew, and it is written here before that is heard of", func(s *countedStore, known agents) {
			a := s.agents[countedID(1)] // seen a second ago
			a.EnrolledAt, a.Last = rosterStart, fleet.LastSeen{}
			s.agents[a.ID] = a
			_, _ = known.Update(ctx, a)
		}, fleet.StatusEnrolling},
	} {
		s := newCountedStore(100)
		known := agents{s, testRegistry(s)}
		before := queryStatuses(t, known, store.AgentFilter{})
		c.turns(s, known)
		if after := queryStatuses(t, known, store.AgentFilter{}); after[c.status] != before[c.status]+1 {
			t.Errorf("%s: want one more %s agent, it is %v, was %v", c.name, c.status, after, before)
		}
	}
}

func TestTheRosterIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		once, counted := map[string]int{"Facts": 1}, map[string]int{"CountFirst": 1}

		// A flush of last-seen writes that failed: too much to be read again one by one.
		s := newCountedStore(maxDoubts + 1000)
		r := testRegistry(s)
		known := agents{s, r}
		queryStatuses(t, known, store.AgentFilter{})
		var touches []fleet.Touch
		for i := range maxDoubts + 1 {
			touches = append(touches, fleet.Touch{AgentID: countedID(i), At: rosterStart, Status: "error"})
		}
		s.failed = errUnknown
		if err := known.Touch(t.Context(), touches); err == nil {
			t.Fatal("the write has not failed")
		}
		s.failed = nil
		clear(s.asked)
		queryStatuses(t, known, store.AgentFilter{})
		s.wantAsked(t, "a query while the writes may yet be made", counted)
		time.Sleep(lateWrite)
		queryStatuses(t, known, store.AgentFilter{})
		s.wantAsked(t, "a query afterwards", once)

		// A fleet that is too large.
		s = newCountedStore(0)
		r = testRegistry(s)
		known = agents{crowd{s, 2 * maxAgents}, r}
		queryStatuses(t, known, store.AgentFilter{})
		s.wantAsked(t, "the first query for too many", map[string]int{"Facts": 1, "CountFirst": 1})
		time.Sleep(fillPause)
		queryStatuses(t, known, store.AgentFilter{})
		s.wantAsked(t, "the next query for too many", counted)
	})
}

// Everybody at once: whatever is answered counts each agent, and counts it once.
func TestNobodyIsCountedTwice(t *testing.T) {
	const n = 300
	s := newCountedStore(n)
	r := testRegistry(s)
	r.roster.pause = 0
	known := agents{s, r}
	ctx, stop := context.WithTimeout(t.Context(), time.Minute)
	defer stop()
	var working sync.WaitGroup
	defer working.Wait()
	defer stop()
	for worker := range 3 {
		working.Go(func() {
			for i := worker; ctx.Err() == nil; i++ {
				at := rosterStart.Add(time.Duration(i) * time.Millisecond)
				r.Seen(countedID(i%n), at)
				_ = known.Touch(ctx, []fleet.Touch{{AgentID: countedID(i * 7 % n), At: at, Status: "degraded"}})
				_, _ = known.Update(ctx, fleet.Agent{ID: countedID(i * 5 % n), Active: i%3 != 0, PolicyID: fmt.Sprintf("policy-%d", i%20), EnrolledAt: rosterStart})
				if i%100 == 0 {
					r.forget()
				}
			}
		})
	}
	for answered := 0; answered < 200 && ctx.Err() == nil; {
		counts, ok := known.CountStatuses(ctx, store.AgentFilter{}, nil, rosterStart)
		if !ok {
			continue
		}
		answered++
		all := 0
		for _, n := range counts {
			all += n
		}
		if all != n {
			t.Fatalf("it counts %d of %d agents: %v", all, n, counts)
		}
	}
	if ctx.Err() != nil {
		t.Error("hardly a query was answered in a minute")
	}
}

// BenchmarkCountStatuses is what every open browser asks for every few seconds.
func BenchmarkCountStatuses(b *testing.B) {
	const n = 100_000
	s := newCountedStore(n)
	r := testRegistry(s)
	known := agents{s, r}
	timeouts := map[string]time.Duration{"policy-1": time.Hour}
	heap := func() int64 {
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return int64(m.HeapAlloc)
	}
	before := heap()
	began := time.Now()
	if _, ok := known.CountStatuses(b.Context(), store.AgentFilter{}, timeouts, rosterStart); !ok {
		b.Fatal("it does not answer")
	}
	filled := time.Since(began)
	perAgent := float64(heap()-before) / n
	b.ResetTimer()
	for b.Loop() {
		counts, ok := known.CountStatuses(b.Context(), store.AgentFilter{}, timeouts, rosterStart)
		all := 0
		for _, n := range counts {
			all += n
		}
		if !ok || all != n {
			b.Fatal(all, ok)
		}
	}
	b.ReportMetric(perAgent, "B/agent")
	b.ReportMetric(float64(filled.Microseconds())/1000, "ms-to-fill")
	runtime.KeepAlive(s)
}

// BenchmarkTouch is what it costs to hear of some two seconds' last-seen writes.
func BenchmarkTouch(b *testing.B) {
	s := newCountedStore(100_000)
	r := testRegistry(s)
	known := agents{noTouch{s}, r}
	queryStatuses(b, known, store.AgentFilter{})
	var touches []fleet.Touch
	for i := range 7000 {
		touches = append(touches, fleet.Touch{AgentID: countedID(i), At: rosterStart, Status: "online"})
	}
	for b.Loop() {
		if err := known.Touch(b.Context(), touches); err != nil {
			b.Fatal(err)
		}
	}
}

type noTouch struct{ store.Agents }

func (noTouch) Touch(context.Context, []fleet.Touch) error { return nil }
