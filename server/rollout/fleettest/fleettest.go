// Package fleettest has a server with a small simulated fleet, for tests of what gives orders to
// rollouts: store, actions, check-ins, and the loop that carries rollouts out share one clock, which
// a test moves.
package fleettest

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/muster-fleet/muster/server/agents/agentcache"
	"github.com/muster-fleet/muster/server/agents/checkin"
	"github.com/muster-fleet/muster/server/agents/checkin/parktest"
	"github.com/muster-fleet/muster/server/fleet"
	"github.com/muster-fleet/muster/server/rollout"
	"github.com/muster-fleet/muster/server/rollout/action"
	"github.com/muster-fleet/muster/server/rollout/reconcile"
	"github.com/muster-fleet/muster/server/store"
	"github.com/muster-fleet/muster/server/store/event"
	"github.com/muster-fleet/muster/server/store/lease"
	"github.com/muster-fleet/muster/server/store/sqlite/sqlitetest"
	"github.com/muster-fleet/muster/server/store/storehealth"
	"github.com/muster-fleet/muster/server/wire/agentapi"
)

// Fleet is a server with its store, action, check-in and rollout services and a few hosts.
type Fleet struct {
	T       *testing.T
	DB      store.Store
	Now     time.Time
	Actions *action.Service
	Loop    *reconcile.Reconciler
	Hosts   map[string]*Host

	checkin *checkin.Service
	flush   func(context.Context)
	names   []string
}

// Host is a simulated agent.
type Host struct {
	ID, Version string
	Bad         bool // it cannot install what it is offered
	RollsBack   bool // it puts back the version before, and refuses the new one from then on unless it is forced
	Away        bool // it does not check in

	failed string // the version that it has put back

	token   string
	action  *agentapi.Action
	details *agentapi.UpgradeDetails
}

// New returns a fleet that runs 1.0.0, and a server with packages of the versions. The names of
// hosts are policy/agent.
func New(t *testing.T, versions []string, names ...string) *Fleet {
	t.Helper()
	w := &Fleet{T: t, Now: time.Date(2026, 3, 3, 10, 0, 0, 0, time.UTC), Hosts: map[string]*Host{}}
	w.DB = sqlitetest.Open(t, filepath.Join(t.TempDir(), "muster.db"))
	for _, v := range versions {
		w.Must(w.DB.Packages().Create(t.Context(), fleet.Package{
			File: "muster-agent-" + v + "-linux-amd64.tar.gz", Version: v, OS: "linux", Arch: "amd64", SHA512: strings.Repeat("ab", 64), Size: 1 << 20,
		}))
	}
	for _, name := range names {
		policy, id, _ := strings.Cut(name, "/")
		w.Enrol(policy, id)
	}
	log := slog.New(slog.DiscardHandler)
	health := &storehealth.Monitor{}
	cache := agentcache.New(w.DB.OnAgentChange, health.Away)
	events := w.Events()
	feed, err := action.NewFeed(t.Context(), w.DB.Actions(), func(...string) {}, health, log)
	w.Must(err)
	w.Actions = &action.Service{Store: w.DB, Health: health, Feed: feed, Events: events, Log: log, Now: w.Clock, Locks: rollout.Locks{Store: w.DB}, Guards: rollout.Guards{Store: w.DB}}
	lastSeen := &checkin.LastSeen{Agents: w.DB.Agents(), Parker: parktest.AtOnce{}, Cache: cache, Health: health, Log: log}
	w.flush = lastSeen.Flush
	w.checkin = &checkin.Service{
		Agents: w.DB.Agents(), Actions: w.DB.Actions(), Results: w.DB.Results(), Pending: parktest.PendingSource{Actions: w.DB.Actions()}, Parker: parktest.AtOnce{},
		LastSeen: lastSeen, Cache: cache, Health: health, Events: events, Log: log, Now: w.Clock,
	}
	w.Loop = reconcile.New(reconcile.Config{Store: w.DB, Actions: w.Actions, Events: events, Log: log, Now: w.Clock, LeaseOwner: "here", Health: health})
	return w
}

// Clock is the fleet's clock.
func (w *Fleet) Clock() time.Time { return w.Now }

// Events returns a stream of the store's events.
func (w *Fleet) Events() *event.Stream {
	return &event.Stream{Store: w.DB.Events(), Log: slog.New(slog.DiscardHandler), Now: w.Clock}
}

// Service returns a service of rollouts on a store.
func (w *Fleet) Service(db store.Store) *rollout.Service {
	return &rollout.Service{Store: db, Actions: w.Actions, Events: w.Events(), Log: slog.New(slog.DiscardHandler), Now: w.Clock}
}

// Lease returns an owner of leases for a process.
func (w *Fleet) Lease(name string) *lease.Owner {
	return &lease.Owner{Leases: w.DB.Leases(), Name: name, Now: w.Clock}
}

// Must ends the test on an error.
func (w *Fleet) Must(err error) {
	w.T.Helper()
	if err != nil {
		w.T.Fatal(err)
	}
}

func meta(id, version string) json.RawMessage {
	return json.RawMessage(fmt.Sprintf(`{"elastic":{"agent":{"version":%q,"upgradeable":true}},"host":{"hostname":"host-%s","architecture":"x86_64"},"os":{"type":"linux"}}`, version, id))
}

// Enrol adds a host that runs 1.0.0.
func (w *Fleet) Enrol(policy, id string) {
	w.T.Helper()
	w.Must(w.DB.Agents().Create(w.T.Context(), fleet.Agent{
		ID: id, Type: "PERMANENT", Active: true, PolicyID: policy, PolicyRev: 1, AccessKeyID: "key-" + id, AccessKeyHash: "hash", EnrolledAt: w.Now,
		Version: "1.0.0", LocalMetadata: meta(id, "1.0.0"), Tags: []string{}, Last: fleet.LastSeen{At: &w.Now, Status: "online"},
	}))
	w.Hosts[id] = &Host{ID: id, Version: "1.0.0"}
	w.names = append(w.names, id)
}

// refuses reports whether the host refuses what it is offered because that failed here before.
func (h *Host) refuses() bool {
	var d agentapi.UpgradeData
	return json.Unmarshal(h.action.Data, &d) == nil && d.Version == h.failed && !d.Force
}

// live does what happens on a host in one tick: it takes an upgrade, and installs it in the
// next.
func (w *Fleet) live(h *Host) {
	w.T.Helper()
	agent, err := w.DB.Agents().Get(w.T.Context(), h.ID)
	w.Must(err)
	switch {
	case h.action == nil:
		h.details = nil
	case h.Bad:
		h.details.State, h.details.Metadata = agentapi.UpgradeFailed, agentapi.UpgradeMetadata{ErrorMsg: "the disk is full", FailedState: agentapi.UpgradeDownloading}
		w.Actions.Ack(w.T.Context(), agent, []agentapi.AckEvent{{ActionID: h.action.ID, AgentID: h.ID, Error: "the disk is full"}})
		h.action = nil
	case h.refuses():
		text := "version " + h.failed + " " + agentapi.FailedBefore
		h.details.State, h.details.Metadata = agentapi.UpgradeFailed, agentapi.UpgradeMetadata{ErrorMsg: text, FailedState: agentapi.UpgradeRequested}
		w.Actions.Ack(w.T.Context(), agent, []agentapi.AckEvent{{ActionID: h.action.ID, AgentID: h.ID, Error: text}})
		h.action = nil
	case h.RollsBack:
		h.failed = h.details.TargetVersion
		h.details.State, h.details.Metadata.Reason = agentapi.UpgradeRollback, "it ended twice"
		h.action = nil
	default:
		h.Version = h.details.TargetVersion
		w.Actions.Ack(w.T.Context(), agent, []agentapi.AckEvent{{ActionID: h.action.ID, AgentID: h.ID}})
		h.action, h.details = nil, nil
	}
	req := agentapi.CheckinRequest{Status: "online", AckToken: h.token, LocalMeta: meta(h.ID, h.Version), UpgradeDetails: h.details}
	rec := httptest.NewRecorder()
	w.Must(w.checkin.Handle(rec, httptest.NewRequest(http.MethodPost, "/", http.NoBody), agent, req, checkin.Received{}))
	var resp agentapi.CheckinResponse
	w.Must(json.Unmarshal(rec.Body.Bytes(), &resp))
	if resp.AckToken != "" {
		h.token = resp.AckToken
	}
	for _, a := range resp.Actions {
		switch a.Type {
		case agentapi.ActionUpgrade:
			var d agentapi.UpgradeData
			w.Must(json.Unmarshal(a.Data, &d))
			h.action, h.details = &a, &agentapi.UpgradeDetails{TargetVersion: d.Version, ActionID: a.ID, State: agentapi.UpgradeDownloading}
		case agentapi.ActionCancel:
			w.Actions.Ack(w.T.Context(), agent, []agentapi.AckEvent{{ActionID: a.ID, AgentID: h.ID}})
		}
	}
}

// Tick lets ten seconds pass: the hosts check in, and the loop of rollouts does a round.
func (w *Fleet) Tick() {
	w.T.Helper()
	w.Now = w.Now.Add(10 * time.Second)
	for _, id := range w.names {
		if h := w.Hosts[id]; !h.Away {
			w.live(h)
		}
	}
	w.flush(w.T.Context())
	w.Must(w.Loop.Round(w.T.Context()))
}

// Versions returns what the hosts run, in the order of their names.
func (w *Fleet) Versions() string {
	var words []string
	for _, id := range slices.Sorted(slices.Values(w.names)) {
		words = append(words, id+"="+w.Hosts[id].Version)
	}
	return strings.Join(words, " ")
}

// Rollout returns a rollout.
func (w *Fleet) Rollout(id string) fleet.Rollout {
	w.T.Helper()
	r, err := w.DB.Rollouts().Get(w.T.Context(), id)
	w.Must(err)
	return r
}
