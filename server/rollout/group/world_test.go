package group_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/muster-fleet/muster/server/action"
	"github.com/muster-fleet/muster/server/agentapi"
	"github.com/muster-fleet/muster/server/agentcache"
	"github.com/muster-fleet/muster/server/checkin"
	"github.com/muster-fleet/muster/server/checkin/parktest"
	"github.com/muster-fleet/muster/server/event"
	"github.com/muster-fleet/muster/server/fleet"
	"github.com/muster-fleet/muster/server/lease"
	"github.com/muster-fleet/muster/server/rollout"
	"github.com/muster-fleet/muster/server/rollout/group"
	"github.com/muster-fleet/muster/server/rollout/reconcile"
	"github.com/muster-fleet/muster/server/store"
	"github.com/muster-fleet/muster/server/store/sqlite/sqlitetest"
	"github.com/muster-fleet/muster/server/storehealth"
)

var kim = rollout.Request{Actor: "kim", Why: "release day"}

// world is a server with its store, action, check-in and rollout services and a small
// fleet, which share a clock.
type world struct {
	t        *testing.T
	db       store.Store
	now      time.Time
	groups   *group.Service
	rollouts *rollout.Service
	loop     *reconcile.Reconciler
	checkin  *checkin.Service
	actions  *action.Service
	flush    func(context.Context)
	hosts    map[string]*host
	order    []string
}

// host is a simulated agent.
type host struct {
	id, version, token string
	bad                bool // cannot install what it is offered
	action             *agentapi.Action
	details            *agentapi.UpgradeDetails
}

// newWorld returns a fleet that runs 1.0.0. The names of hosts are policy/agent.
func newWorld(t *testing.T, names ...string) *world {
	t.Helper()
	w := &world{t: t, now: time.Date(2026, 3, 3, 10, 0, 0, 0, time.UTC), hosts: map[string]*host{}}
	w.db = sqlitetest.Open(t, filepath.Join(t.TempDir(), "muster.db"))
	for _, v := range []string{"1.0.0", "1.1.0"} {
		w.must(w.db.Packages().Create(t.Context(), fleet.Package{
			File: "muster-agent-" + v + "-linux-amd64.tar.gz", Version: v, OS: "linux", Arch: "amd64", SHA512: strings.Repeat("ab", 64), Size: 1 << 20,
		}))
	}
	for _, name := range names {
		policy, id, _ := strings.Cut(name, "/")
		w.enrol(policy, id)
	}
	log := slog.New(slog.DiscardHandler)
	clock := func() time.Time { return w.now }
	health := &storehealth.Monitor{}
	cache := agentcache.New(w.db.OnAgentChange, health.Away)
	events := &event.Stream{Store: w.db.Events(), Log: log, Now: clock}
	feed, err := action.NewFeed(t.Context(), w.db.Actions(), func(...string) {}, health, log)
	w.must(err)
	w.actions = &action.Service{Store: w.db, Health: health, Feed: feed, Events: events, Log: log, Now: clock, Locks: rollout.Locks{Store: w.db}, Guards: rollout.Guards{Store: w.db}}
	lastSeen := &checkin.LastSeen{Agents: w.db.Agents(), Parker: parktest.AtOnce{}, Cache: cache, Health: health, Log: log}
	w.flush = lastSeen.Flush
	w.checkin = &checkin.Service{
		Agents: w.db.Agents(), Actions: w.db.Actions(), Results: w.db.Results(), Pending: parktest.PendingSource{Actions: w.db.Actions()}, Parker: parktest.AtOnce{},
		LastSeen: lastSeen, Cache: cache, Health: health, Events: events, Log: log, Now: clock,
	}
	w.loop = reconcile.New(reconcile.Config{Store: w.db, Actions: w.actions, Events: events, Log: log, Now: clock, Holder: "here", Health: health})
	w.serve(w.db, "first")
	return w
}

// serve starts the process that executes groups, on a store.
func (w *world) serve(db store.Store, name string) {
	log, clock := slog.New(slog.DiscardHandler), func() time.Time { return w.now }
	events := &event.Stream{Store: w.db.Events(), Log: log, Now: clock}
	w.rollouts = &rollout.Service{Store: db, Actions: w.actions, Events: events, Log: log, Now: clock}
	w.groups = group.New(group.Config{
		Store: db, Rollouts: w.rollouts, Lease: &lease.Holder{Leases: w.db.Leases(), Name: name, Now: clock}, Events: events, Log: log, Now: clock,
	})
}

func (w *world) must(err error) {
	w.t.Helper()
	if err != nil {
		w.t.Fatal(err)
	}
}

func meta(id, version string) json.RawMessage {
	return json.RawMessage(fmt.Sprintf(`{"elastic":{"agent":{"version":%q,"upgradeable":true}},"host":{"hostname":"host-%s","architecture":"x86_64"},"os":{"type":"linux"}}`, version, id))
}

func (w *world) enrol(policy, id string) {
	w.t.Helper()
	w.must(w.db.Agents().Create(w.t.Context(), fleet.Agent{
		ID: id, Type: "PERMANENT", Active: true, PolicyID: policy, PolicyRev: 1, AccessKeyID: "key-" + id, AccessKeyHash: "hash", EnrolledAt: w.now,
		Version: "1.0.0", LocalMetadata: meta(id, "1.0.0"), Tags: []string{}, Last: fleet.LastSeen{At: &w.now, Status: "online"},
	}))
	w.hosts[id] = &host{id: id, version: "1.0.0"}
	w.order = append(w.order, id)
}

// live does what happens on a host in one tick: it takes an upgrade, and installs it in the
// next.
func (w *world) live(h *host) {
	w.t.Helper()
	agent, err := w.db.Agents().Get(w.t.Context(), h.id)
	w.must(err)
	switch {
	case h.action == nil:
		h.details = nil
	case h.bad:
		h.details.State, h.details.Metadata = agentapi.UpgradeFailed, agentapi.UpgradeMetadata{ErrorMsg: "the disk is full", FailedState: agentapi.UpgradeDownloading}
		w.actions.Ack(w.t.Context(), agent, []agentapi.AckEvent{{ActionID: h.action.ID, AgentID: h.id, Error: "the disk is full"}})
		h.action = nil
	default:
		h.version = h.details.TargetVersion
		w.actions.Ack(w.t.Context(), agent, []agentapi.AckEvent{{ActionID: h.action.ID, AgentID: h.id}})
		h.action, h.details = nil, nil
	}
	req := agentapi.CheckinRequest{Status: "online", AckToken: h.token, LocalMeta: meta(h.id, h.version), UpgradeDetails: h.details}
	rec := httptest.NewRecorder()
	w.must(w.checkin.Handle(rec, httptest.NewRequest(http.MethodPost, "/", http.NoBody), agent, req, checkin.Received{}))
	var resp agentapi.CheckinResponse
	w.must(json.Unmarshal(rec.Body.Bytes(), &resp))
	if resp.AckToken != "" {
		h.token = resp.AckToken
	}
	for _, a := range resp.Actions {
		switch a.Type {
		case agentapi.ActionUpgrade:
			var d agentapi.UpgradeData
			w.must(json.Unmarshal(a.Data, &d))
			h.action, h.details = &a, &agentapi.UpgradeDetails{TargetVersion: d.Version, ActionID: a.ID, State: agentapi.UpgradeDownloading}
		case agentapi.ActionCancel:
			w.actions.Ack(w.t.Context(), agent, []agentapi.AckEvent{{ActionID: a.ID, AgentID: h.id}})
		}
	}
}

// turn lets ten seconds pass. The error is that of the groups' loop.
func (w *world) turn() error {
	w.t.Helper()
	w.now = w.now.Add(10 * time.Second)
	for _, id := range w.order {
		w.live(w.hosts[id])
	}
	w.flush(w.t.Context())
	w.must(w.loop.Round(w.t.Context()))
	return w.groups.Round(w.t.Context())
}

func (w *world) group(id string) fleet.RolloutGroup {
	w.t.Helper()
	g, err := w.db.RolloutGroups().Get(w.t.Context(), id)
	w.must(err)
	return g
}

// until lets time pass until the condition holds.
func (w *world) until(id string, ok func(fleet.RolloutGroup) bool) fleet.RolloutGroup {
	w.t.Helper()
	for range 1_000 {
		w.must(w.turn())
		if g := w.group(id); ok(g) {
			return g
		}
	}
	st, err := w.groups.Status(w.t.Context(), id)
	w.t.Fatalf("it stays %s, stopped by %+v, waiting: %s, %v: %+v", st.State, st.Stop, st.Waiting, err, st.Progress)
	return fleet.RolloutGroup{}
}

func over(g fleet.RolloutGroup) bool { return g.State.Ended() }

func paused(g fleet.RolloutGroup) bool { return g.State == fleet.GroupPaused }

// dbThenApp returns a plan for the agents of two policies, one after the other.
func dbThenApp(policy fleet.FailurePolicy) fleet.GroupPlan {
	one := 1
	member := func(name string) fleet.GroupMemberPlan {
		return fleet.GroupMemberPlan{Name: name, Plan: fleet.Plan{
			Select: fleet.Selector{Policies: []string{name}}, Strategy: fleet.Strategy{Kind: fleet.Rolling, BatchSize: 1},
			Failure: fleet.FailureRule{Count: &one}, Health: fleet.HealthRule{Wait: fleet.Duration(20 * time.Second)},
		}}
	}
	return fleet.GroupPlan{
		Name: "spring", FailurePolicy: policy, DesiredVersions: map[string]string{"db": "1.1.0", "app": "1.1.0"},
		Members: []fleet.GroupMemberPlan{member("db"), member("app")},
	}
}

// start starts a group as previewed.
func (w *world) start(p fleet.GroupPlan) fleet.RolloutGroup {
	w.t.Helper()
	g, err := w.groups.Create(w.t.Context(), p, kim)
	w.must(err)
	pre, err := w.groups.Preview(w.t.Context(), g.ID)
	w.must(err)
	g, err = w.groups.Start(w.t.Context(), g.ID, pre.Hash, false, kim)
	w.must(err)
	return g
}

func (w *world) members(g fleet.RolloutGroup) string {
	var words []string
	for _, m := range g.Members {
		words = append(words, m.Name+"="+string(m.State))
	}
	return strings.Join(words, " ")
}

// versions returns what the hosts run, in the order of their names.
func (w *world) versions() string {
	var words []string
	for _, id := range slices.Sorted(slices.Values(w.order)) {
		words = append(words, id+"="+w.hosts[id].version)
	}
	return strings.Join(words, " ")
}

func (w *world) rollout(id string) fleet.Rollout {
	w.t.Helper()
	r, err := w.db.Rollouts().Get(w.t.Context(), id)
	w.must(err)
	return r
}

// events returns the types of the group's events.
func (w *world) events(id string) []string {
	w.t.Helper()
	list, err := w.db.Events().After(w.t.Context(), 0, 10_000)
	w.must(err)
	var types []string
	for _, e := range list {
		if e.Subject == id {
			types = append(types, e.Type)
		}
	}
	return types
}

func (w *world) wantError(err error, kind fleet.Kind, code, field, text string) {
	w.t.Helper()
	var e *fleet.Error
	if !errors.As(err, &e) || e.Kind != kind || e.Code != code || e.Field != field || !strings.Contains(e.Message, text) {
		w.t.Errorf("error is %+v, want %s %s about %s that says %q", err, kind, code, field, text)
	}
}
