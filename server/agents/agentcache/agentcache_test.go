package agentcache_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/muster-fleet/muster/server/agents/agentcache"
	"github.com/muster-fleet/muster/server/agents/checkin"
	"github.com/muster-fleet/muster/server/agents/checkin/parktest"
	"github.com/muster-fleet/muster/server/fleet"
	"github.com/muster-fleet/muster/server/store"
	"github.com/muster-fleet/muster/server/store/event"
	"github.com/muster-fleet/muster/server/store/sqlite"
	"github.com/muster-fleet/muster/server/store/sqlite/sqlitetest"
	"github.com/muster-fleet/muster/server/store/storehealth"
	"github.com/muster-fleet/muster/server/wire/agentapi"
	"github.com/muster-fleet/muster/testing/kit/require"
)

var start = time.Date(2026, 3, 3, 10, 0, 0, 0, time.UTC)

var errAway = errors.New("the store is away")

func key(id string) fleet.Credential { return fleet.Credential{ID: "key-" + id, Secret: "secret"} }

func agent(id string) fleet.Agent {
	return fleet.Agent{ID: id, Active: true, AccessKeyID: key(id).ID, AccessKeyHash: key(id).Hash()}
}

func fingerprint(text string) checkin.Fingerprint {
	f, _ := checkin.FingerprintOf([]byte(text), "")
	return f
}

// changes is a store's report of changed agents.
type changes struct{ report func([]store.AgentChange) }

func (c *changes) on(f func([]store.AgentChange)) bool { c.report = f; return true }

// shared is a store that other servers write, too.
func shared(func([]store.AgentChange)) bool { return false }

// state is the CheckinState of stable agents.
const state = 7

func remember(c *agentcache.Cache, id, text string, state uint64) {
	g := c.Generation(id)
	a := agent(id)
	c.Remember(&a, g)
	c.RememberCheckin(id, checkin.LastCheckin{Fingerprint: fingerprint(text), After: 7, PollTimeout: time.Minute}, g, state, start)
}

func TestOnlyAnIdenticalCheckinOfAStableAgentIsADuplicate(t *testing.T) {
	var ch changes
	c := agentcache.New(ch.on, func() error { return nil })
	remember(c, "a", "well", state)
	remember(c, "busy", "downloading", 0)
	for _, row := range []struct {
		name, id, text string
		at             time.Duration
		want           bool
	}{
		{"the same", "a", "well", time.Minute, true},
		{"another text", "a", "ill", time.Minute, false},
		{"another agent", "b", "well", time.Minute, false},
		{"after a long silence", "a", "well", fleet.OfflineAfter, false},
		{"of an agent that time alone changes", "busy", "downloading", time.Minute, false},
	} {
		last, ok := c.IsDuplicate(row.id, fingerprint(row.text), start.Add(row.at))
		if ok != row.want || ok && (last.After != 7 || last.PollTimeout != time.Minute) {
			t.Errorf("%s: duplicate %t, last %+v", row.name, ok, last)
		}
	}
	c.Seen("a", start.Add(fleet.OfflineAfter-time.Minute)) // it is parked
	if _, ok := c.IsDuplicate("a", fingerprint("well"), start.Add(fleet.OfflineAfter)); !ok {
		t.Error("an agent that is seen counts as silent")
	}
}

func TestAgentWrittenInTheSameStateStaysInTheCache(t *testing.T) {
	var ch changes
	c := agentcache.New(ch.on, func() error { return nil })
	for _, row := range []struct {
		name            string
		before, written uint64
		want            bool
	}{
		{"the same state", state, state, true},
		{"another state", state, state + 1, false},
		{"an unknown state", state, 0, false},
		{"an agent that was not stable", 0, 0, false},
	} {
		remember(c, "a", "well", row.before)
		ch.report([]store.AgentChange{{AgentID: "a", State: row.written}})
		_, known := c.Authenticated(key("a"))
		_, duplicate := c.IsDuplicate("a", fingerprint("well"), start)
		hostname, stable := c.Stable("a")
		if known != row.want || duplicate != row.want || stable != row.want || stable && hostname != "a" {
			t.Errorf("%s: authenticated %t, duplicate %t, stable %t on host %q, want all %t", row.name, known, duplicate, stable, hostname, row.want)
		}
	}
}

func TestAuthenticated(t *testing.T) {
	var ch changes
	c := agentcache.New(ch.on, func() error { return nil })
	remember(c, "a", "well", state)
	guess := key("a")
	guess.Secret = "guess"
	if id, ok := c.Authenticated(key("a")); id != "a" || !ok {
		t.Errorf("the agent's own key is of %q, %t", id, ok)
	}
	for _, k := range []fleet.Credential{guess, key("b"), {}} {
		if _, ok := c.Authenticated(k); ok {
			t.Errorf("the key %+v is accepted", k)
		}
	}
	ch.report([]store.AgentChange{{AgentID: "a"}})
	if _, ok := c.Authenticated(key("a")); ok {
		t.Error("the key of a changed agent is accepted")
	}
	gone := agent("a")
	gone.Active = false
	c.Remember(&gone, c.Generation("a"))
	if _, ok := c.Authenticated(key("a")); ok {
		t.Error("an unenrolled agent is authenticated")
	}
	again := agent("b")
	c.Remember(&again, c.Generation("b"))
	again.AccessKeyID, again.AccessKeyHash = "another", guess.Hash()
	c.Remember(&again, c.Generation("b"))
	if _, ok := c.Authenticated(key("b")); ok {
		t.Error("the key of before the host enrolled again is accepted")
	}
}

func TestCacheOfASharedStoreIsUsedOnlyWhileTheStoreIsAway(t *testing.T) {
	var away error
	c := agentcache.New(shared, func() error { return away })
	remember(c, "a", "well", state)
	remember(c, "busy", "downloading", 0)
	for _, away = range []error{nil, errAway} {
		for id, text := range map[string]string{"a": "well", "busy": "downloading"} {
			_, known := c.Authenticated(key(id))
			_, duplicate := c.IsDuplicate(id, fingerprint(text), start.Add(time.Hour))
			if want := away != nil; known != want || duplicate != want {
				t.Errorf("away is %v, and agent %s is authenticated: %t, its check-in a duplicate: %t", away, id, known, duplicate)
			}
		}
	}
	c.ForgetCheckin("a", fingerprint("well")) // the repeated check-in failed
	if _, ok := c.IsDuplicate("a", fingerprint("well"), start); !ok {
		t.Error("a check-in that was accepted once is forgotten")
	}
	c.ForgetCheckin("a", fingerprint("ill"))
	if _, ok := c.IsDuplicate("a", fingerprint("well"), start); ok {
		t.Error("after another check-in, which may be written, the one before is a duplicate")
	}
	if _, ok := c.Authenticated(key("a")); !ok {
		t.Error("the agent is forgotten with its check-in")
	}
}

func TestCacheIsBounded(t *testing.T) {
	var ch changes
	c := agentcache.New(ch.on, func() error { return nil })
	known := func() (n int) {
		for i := range agentcache.MaxAgents + 100 {
			if _, ok := c.Authenticated(fleet.Credential{ID: fmt.Sprint("key-", i), Secret: "secret"}); ok {
				n++
			}
		}
		return n
	}
	hash := key("").Hash()
	for i := range agentcache.MaxAgents + 100 {
		id := fmt.Sprint(i)
		c.Remember(&fleet.Agent{ID: id, Active: true, AccessKeyID: "key-" + id, AccessKeyHash: hash}, c.Generation(id))
	}
	if n := known(); n != agentcache.MaxAgents {
		t.Errorf("%d agents are remembered, want %d", n, agentcache.MaxAgents)
	}
}

// world is a check-in service on an embedded store, with its callers.
type world struct {
	t       *rapid.T
	db      *sqlite.Store
	cache   *agentcache.Cache
	service *checkin.Service
	now     time.Time
}

func (w *world) must(err error) {
	if err != nil {
		w.t.Fatal(err)
	}
}

// request is a check-in in progress, with the agent that the handlers have read.
type request struct {
	body       []byte
	req        agentapi.CheckinRequest
	generation checkin.Generation
	agent      fleet.Agent
}

// However reads, check-ins and other writes interleave, a duplicate check-in would change
// nothing, and an agent that the cache authenticates is active and has that key.
func TestDuplicateCheckinWouldChangeNothing(t *testing.T) {
	require.Time(t, "tries a hundred histories")
	db := sqlitetest.Open(t, filepath.Join(t.TempDir(), "muster.db"))
	duplicates, n := 0, 0
	rapid.Check(t, func(t *rapid.T) {
		n++
		w := &world{t: t, db: db, now: start}
		health := &storehealth.Monitor{}
		w.cache = agentcache.New(db.OnAgentChange, health.Away)
		log := slog.New(slog.DiscardHandler)
		w.service = &checkin.Service{
			Agents: db.Agents(), Actions: db.Actions(), Results: db.Results(), Pending: parktest.PendingSource{Actions: db.Actions()}, Parker: parktest.AtOnce{},
			LastSeen: &checkin.LastSeen{Agents: db.Agents(), Parker: parktest.AtOnce{}, Cache: w.cache, Health: health, Log: log},
			Cache:    w.cache, Health: health, Events: &event.Stream{Store: db.Events(), Log: log}, Log: log, Now: func() time.Time { return w.now },
		}
		ctx := t.Context()
		id := fmt.Sprint("agent-", n)
		own := fleet.Credential{ID: "key-" + id, Secret: "secret"}
		w.must(db.Agents().Create(ctx, fleet.Agent{
			ID: id, Active: true, AccessKeyID: own.ID, AccessKeyHash: own.Hash(), PolicyID: "default", EnrolledAt: start, Version: "1.0.0", LastHealthyVersion: "1.0.0",
		}))
		get := func() fleet.Agent {
			a, err := db.Agents().Get(ctx, id)
			w.must(err)
			return a
		}
		var all []request
		for _, status := range []string{"online", "degraded"} {
			for _, version := range []string{"1.0.0", "2.0.0"} {
				r := request{req: agentapi.CheckinRequest{Status: status, LocalMeta: fmt.Appendf(nil, `{"elastic":{"agent":{"version":%q}}}`, version)}}
				var err error
				r.body, err = json.Marshal(r.req)
				w.must(err)
				all = append(all, r)
			}
		}
		draw := func(t *rapid.T) *request {
			r := rapid.SampledFrom(all).Draw(t, "check-in")
			return &r
		}
		// handle does what the handlers do after they have read the agent.
		handle := func(r *request) {
			w.cache.Remember(&r.agent, r.generation)
			f, token := checkin.FingerprintOf(r.body, "")
			w.must(w.service.Handle(httptest.NewRecorder(), httptest.NewRequest(http.MethodPost, "/", http.NoBody), r.agent, r.req, checkin.Received{Fingerprint: f, Token: token, Generation: r.generation}))
		}
		read := func(r *request) bool {
			r.generation = w.cache.Generation(id)
			r.agent = get()
			return r.agent.Active
		}
		var under []*request
		check := func(r *request) {
			f, _ := checkin.FingerprintOf(r.body, "")
			_, known := w.cache.Authenticated(own)
			a := get()
			if known && (!a.Active || a.AccessKeyHash != own.Hash()) {
				t.Fatal("an agent is authenticated that is unenrolled, or has another key")
			}
			if _, ok := w.cache.IsDuplicate(id, f, w.now); !ok || !known {
				return
			}
			duplicates++
			handle(&request{body: r.body, req: r.req, generation: w.cache.Generation(id), agent: a})
			if b := get(); b.Revision != a.Revision || b.Last.Status != a.Last.Status || b.Last.Message != a.Last.Message {
				t.Fatalf("a duplicate changed %+v to %+v", a, b)
			}
		}
		update := func(change func(*fleet.Agent)) {
			_, err := store.UpdateAgent(ctx, db.Agents(), id, func(a *fleet.Agent) bool { change(a); return true })
			w.must(err)
		}
		t.Repeat(map[string]func(*rapid.T){
			"read": func(t *rapid.T) {
				if r := draw(t); read(r) {
					under = append(under, r)
				}
			},
			"handle": func(t *rapid.T) {
				if len(under) == 0 {
					return
				}
				i := rapid.IntRange(0, len(under)-1).Draw(t, "which")
				handle(under[i])
				under = append(under[:i], under[i+1:]...)
			},
			"check in": func(t *rapid.T) {
				if r := draw(t); read(r) {
					handle(r)
				}
			},
			"overtake": func(t *rapid.T) {
				older := draw(t)
				if !read(older) {
					return
				}
				newer := draw(t)
				for range 2 {
					read(newer)
					handle(newer)
				}
				handle(older)
			},
			"order an upgrade": func(*rapid.T) { update(func(a *fleet.Agent) { a.BeginUpgrade("action", "2.0.0", w.now) }) },
			"end it":           func(*rapid.T) { update(func(a *fleet.Agent) { a.CancelUpgrade("action", w.now) }) },
			"unenroll":         func(*rapid.T) { update(func(a *fleet.Agent) { a.Active = !a.Active }) },
			"uninstall":        func(*rapid.T) { update(func(a *fleet.Agent) { a.AuditUnenrolledReason = "uninstall" }) },
			"change the status": func(*rapid.T) {
				w.must(db.Agents().Touch(ctx, []fleet.Touch{{AgentID: id, At: w.now, Status: "error"}}))
			},
			"flush": func(*rapid.T) { w.service.LastSeen.Flush(ctx) },
			"wait": func(t *rapid.T) {
				w.service.LastSeen.Flush(ctx) // as every two seconds, or the store would not know of a minute-old check-in
				w.now = w.now.Add(time.Duration(rapid.IntRange(1, 120).Draw(t, "seconds")) * time.Second)
			},
			"": func(*rapid.T) {
				for i := range all {
					check(&all[i])
				}
			},
		})
	})
	if duplicates == 0 {
		t.Error("no check-in was ever a duplicate")
	}
}
