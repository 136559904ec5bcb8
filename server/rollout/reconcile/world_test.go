package reconcile_test

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/muster-fleet/muster/server/agents/agentcache"
	"github.com/muster-fleet/muster/server/agents/beacon"
	"github.com/muster-fleet/muster/server/agents/checkin"
	"github.com/muster-fleet/muster/server/agents/checkin/parktest"
	"github.com/muster-fleet/muster/server/agents/policy"
	"github.com/muster-fleet/muster/server/clock"
	"github.com/muster-fleet/muster/server/fleet"
	"github.com/muster-fleet/muster/server/rollout/action"
	"github.com/muster-fleet/muster/server/rollout/plan"
	"github.com/muster-fleet/muster/server/rollout/preview"
	"github.com/muster-fleet/muster/server/rollout/reconcile"
	"github.com/muster-fleet/muster/server/store"
	"github.com/muster-fleet/muster/server/store/event"
	"github.com/muster-fleet/muster/server/store/sqlite"
	"github.com/muster-fleet/muster/server/store/sqlite/sqlitetest"
	"github.com/muster-fleet/muster/server/store/storehealth"
	"github.com/muster-fleet/muster/server/store/storetest"
	"github.com/muster-fleet/muster/server/wire/agentapi"
)

// world is a server and its fleet with a clock of their own: the real store, action and
// check-in services, and scripted hosts.
type world struct {
	t       testing.TB
	path    string
	store   store.Store
	now     time.Time
	server  *server
	hosts   map[string]*host
	order   []string
	tick    time.Duration
	last    int64 // the last action
	reports []fleet.Incident
	// heard is the last event that the loop has got; 0: it gets none, and assesses all in each round.
	heard int64
	// beforeInForce is called after a policy was read, before its version in force is decided.
	beforeInForce func()
}

// server is one process: the state that a crash loses.
type server struct {
	store   store.Store
	actions *action.Service
	checkin *checkin.Service
	beacons *beacon.Service
	loop    *reconcile.Reconciler
	flush   func(context.Context)
}

var starts atomic.Int64 // makes the names of processes unique

// emptyStore is the file of a store without documents. Creating its schema for each of
// the hundreds of stores here would take longer than most tests need.
var emptyStore = sync.OnceValues(func() (_ []byte, err error) {
	dir, err := os.MkdirTemp("", "rollout")
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	path := filepath.Join(dir, "muster.db")
	s, err := sqlite.Open(context.Background(), path, sqlite.Options{})
	if err != nil {
		return nil, err
	}
	if err := s.Close(); err != nil {
		return nil, err
	}
	return os.ReadFile(path)
})

func openStore(t testing.TB, path string) *sqlite.Store {
	t.Helper()
	file, err := emptyStore()
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, file, 0o600); err != nil {
		t.Fatal(err)
	}
	return sqlitetest.Open(t, path)
}

func newWorld(t testing.TB, agents int) *world {
	t.Helper()
	w := &world{t: t, path: filepath.Join(t.TempDir(), "muster.db"), now: time.Date(2026, 3, 3, 10, 0, 0, 0, time.UTC), hosts: map[string]*host{}, tick: 10 * time.Second}
	s := openStore(t, w.path)
	w.store = s
	for _, v := range []string{"1.0.0", "1.1.0"} {
		w.must(s.Packages().Create(t.Context(), fleet.Package{
			File: "muster-agent-" + v + "-linux-amd64.tar.gz", Version: v, OS: "linux", Arch: "amd64", SHA512: strings.Repeat("ab", 64), Size: 1 << 20,
		}))
	}
	for i := range agents {
		w.enrol(fmt.Sprintf("agent-%03d", i))
	}
	w.server = w.process(s)
	return w
}

// process starts a server on a store.
func (w *world) process(s store.Store) *server {
	return w.processAt(s, func() time.Time { return w.now })
}

func (w *world) processAt(s store.Store, now clock.Clock) *server {
	w.t.Helper()
	log := slog.New(slog.DiscardHandler)
	events := &event.Stream{Store: s.Events(), Log: log, Now: now}
	health := &storehealth.Monitor{}
	cache := agentcache.New(s.OnAgentChange, health.Away)
	feed, err := action.NewFeed(context.Background(), s.Actions(), func(...string) {}, health, log)
	w.must(err)
	p := &server{store: s}
	p.actions = &action.Service{Store: s, Health: health, Feed: feed, Events: events, Log: log, Now: now}
	lastSeen := &checkin.LastSeen{Agents: s.Agents(), Parker: parktest.AtOnce{}, Cache: cache, Health: health, Log: log}
	p.flush = lastSeen.Flush
	p.checkin = &checkin.Service{Agents: s.Agents(), Actions: s.Actions(), Results: s.Results(), Pending: parktest.PendingSource{Actions: s.Actions()}, Parker: parktest.AtOnce{}, LastSeen: lastSeen, Cache: cache, Health: health, Events: events, Log: log, Now: now}
	p.beacons = &beacon.Service{Agents: s.Agents(), Events: events, Now: now}
	p.loop = reconcile.New(reconcile.Config{
		Store: s, Actions: p.actions, Events: events, Log: log, Now: now, LeaseOwner: fmt.Sprintf("process-%d", starts.Add(1)), Incidents: w, Health: health,
		Policies: latePolicies{&policy.Service{Store: s, Events: events, Now: now}, w},
	})
	return p
}

// Open records the incident.
func (w *world) Open(_ context.Context, i fleet.Incident) error {
	w.reports = append(w.reports, i)
	return nil
}

func (w *world) must(err error) {
	w.t.Helper()
	if err != nil {
		w.t.Fatal(err)
	}
}

// host is a simulated agent with its watcher.
type host struct {
	id, version string
	arch        string // empty: x86_64
	from        string // the version that ran before
	away        bool
	bad         string // what is wrong with the version it is offered: "", download, crash, silent, sick, stuck, deaf
	status      string
	components  string
	token       string
	action      *agentapi.Action
	state       agentapi.UpgradeState
	since       time.Time
	details     *agentapi.UpgradeDetails
	upgrades    int    // how often a new version was started
	slow        bool   // stays where it downloads
	stubborn    bool   // neither acknowledges a CANCEL nor stops for it, as Elastic's agents
	failed      string // the version that it has put back, and refuses unless it is forced
	seen        time.Time
	seq         int64 // the last action when it checked in
	// staged is what the host has staged; nil: it cannot stage versions. failsStage fails to.
	staged     []string
	failsStage bool
	// inLockstep is what the host does in lockstep; see lockstep_test.go.
	inLockstep inLockstep
	// web is the version of the component web, which is upgraded instead of the agent; empty:
	// the host has none.
	web string
}

// report is what the host says of its component.
func (h *host) report(w *world) json.RawMessage {
	b, err := json.Marshal([]agentapi.Component{{
		ID: "component-web", Status: "HEALTHY", ComponentReport: agentapi.ComponentReport{Name: "web", Runtime: "process", Version: h.web, UpgradeDetails: h.details, Lockstep: h.inLockstep.can, StartWithheld: h.inLockstep.held},
	}})
	w.must(err)
	return b
}

// runWeb gives all hosts the component web in version 1.0.0, and publishes 1.1.0.
func (w *world) runWeb() {
	w.t.Helper()
	w.must(w.store.Packages().Create(w.t.Context(), fleet.Package{
		File: "muster-component-web-1.1.0-linux-amd64.tar.gz", Version: "1.1.0", OS: "linux", Arch: "amd64", SHA512: strings.Repeat("cd", 64), Size: 1 << 20,
		Component: "web", Runtime: "process",
	}))
	for _, h := range w.hosts {
		h.web = "1.0.0"
		w.checkin(h)
	}
}

// liveWeb is what happens in one tick of an upgrade of the component that is no download.
func (w *world) liveWeb(h *host) {
	switch {
	case h.state == agentapi.UpgradeReplacing:
		h.upgrades++
		h.enter(w, agentapi.UpgradeWatching)
	case h.bad == "crash":
		h.details = w.details(h, *h.action, agentapi.UpgradeFailed)
		h.details.Metadata.ErrorMsg, h.details.Metadata.FailedState = "it ended twice", agentapi.UpgradeWatching
		w.ack(h, h.action.ID, "it ended twice")
		h.action, h.state = nil, ""
	case w.now.Sub(h.since) >= 20*time.Second:
		h.web = h.details.TargetVersion
		w.ack(h, h.action.ID, "")
		h.action, h.state, h.details = nil, "", nil
	}
	w.checkin(h)
}

func meta(id, version string) string {
	return fmt.Sprintf(`{"elastic":{"agent":{"version":%q,"upgradeable":true}},"host":{"hostname":"host-%s","architecture":"x86_64"},"os":{"type":"linux"}}`, version, id)
}

func (w *world) enrol(id string, tags ...string) *host {
	w.t.Helper()
	w.must(w.store.Agents().Create(w.t.Context(), fleet.Agent{
		ID: id, Type: "PERMANENT", Active: true, PolicyID: "default", PolicyRev: 1, AccessKeyID: "key-" + id, AccessKeyHash: "hash", EnrolledAt: w.now,
		Version: "1.0.0", LocalMetadata: json.RawMessage(meta(id, "1.0.0")), Tags: append([]string{}, tags...), Last: fleet.LastSeen{At: &w.now, Status: "online"},
	}))
	h := &host{id: id, version: "1.0.0", status: "online"}
	w.hosts[id] = h
	w.order = append(w.order, id)
	return h
}

// checkin does one check-in of a host, which executes the actions that it receives.
func (w *world) checkin(h *host) {
	w.t.Helper()
	p := w.server
	agent, err := w.store.Agents().Get(w.t.Context(), h.id)
	w.must(err)
	req := agentapi.CheckinRequest{Status: h.status, AckToken: h.token, LocalMeta: json.RawMessage(strings.ReplaceAll(meta(h.id, h.version), "x86_64", cmp.Or(h.arch, "x86_64"))), UpgradeDetails: h.details}
	req.StagedVersions = h.staged
	if h.web != "" {
		req.Components, req.UpgradeDetails = h.report(w), nil
	}
	if h.components != "" {
		req.Components = json.RawMessage(h.components)
	}
	rec := httptest.NewRecorder()
	if err := p.checkin.Handle(rec, httptest.NewRequest(http.MethodPost, "/", http.NoBody), agent, req, checkin.Received{}); err != nil || rec.Code != http.StatusOK {
		return // the server is dying: the host retries
	}
	var resp agentapi.CheckinResponse
	w.must(json.Unmarshal(rec.Body.Bytes(), &resp))
	if resp.AckToken != "" {
		h.token = resp.AckToken
	}
	for _, a := range resp.Actions {
		w.take(h, a)
	}
}

func (w *world) ack(h *host, actionID, errText string) {
	agent, err := w.store.Agents().Get(w.t.Context(), h.id)
	w.must(err)
	w.server.actions.Ack(w.t.Context(), agent, []agentapi.AckEvent{{ActionID: actionID, AgentID: h.id, Error: errText}})
}

func (w *world) take(h *host, a agentapi.Action) {
	switch a.Type {
	case agentapi.ActionProceed:
		w.proceed(h, a)
	case agentapi.ActionUpgrade:
		if w.beginLockstep(h, a) {
			return
		}
		if h.bad == "deaf" {
			h.away = true // it dies after it received the action
			h.details = w.details(h, a, agentapi.UpgradeRequested)
			h.bad = ""
			return
		}
		h.action = &a
		var d agentapi.UpgradeData
		if w.must(json.Unmarshal(a.Data, &d)); d.Version == h.failed && !d.Force {
			text := "version " + d.Version + " " + agentapi.FailedBefore
			h.details = w.details(h, a, agentapi.UpgradeFailed)
			h.details.Metadata.ErrorMsg, h.details.Metadata.FailedState = text, agentapi.UpgradeRequested
			w.ack(h, a.ID, text)
			h.action, h.state = nil, ""
			return
		}
		h.enter(w, agentapi.UpgradeDownloading)
	case agentapi.ActionStage:
		if h.failsStage {
			w.ack(h, a.ID, "no space")
			return
		}
		var d agentapi.UpgradeData
		w.must(json.Unmarshal(a.Data, &d))
		h.staged = append(h.staged, d.Version)
		w.ack(h, a.ID, "")
	case agentapi.ActionCancel:
		var d agentapi.CancelData
		w.must(json.Unmarshal(a.Data, &d))
		if h.stubborn {
			return
		}
		if h.action != nil && h.action.ID == d.TargetID && fleet.HostChanging(h.state) {
			w.ack(h, a.ID, "it can no longer be cancelled")
			return
		}
		w.ack(h, a.ID, "")
		if h.action != nil && h.action.ID == d.TargetID && !fleet.HostChanging(h.state) {
			w.ack(h, d.TargetID, agentapi.Cancelled)
			h.details = w.details(h, *h.action, agentapi.UpgradeFailed)
			h.details.Metadata.ErrorMsg = agentapi.Cancelled
			h.action, h.state = nil, ""
		}
	}
}

func (w *world) details(h *host, a agentapi.Action, s agentapi.UpgradeState) *agentapi.UpgradeDetails {
	var d agentapi.UpgradeData
	w.must(json.Unmarshal(a.Data, &d))
	return &agentapi.UpgradeDetails{TargetVersion: d.Version, ActionID: a.ID, State: s}
}

func (h *host) enter(w *world, s agentapi.UpgradeState) {
	h.state, h.since, h.details = s, w.now, w.details(h, *h.action, s)
}

func (w *world) beacon(h *host, phase agentapi.BeaconPhase, crashes int, reason string) {
	agent, err := w.store.Agents().Get(w.t.Context(), h.id)
	w.must(err)
	b := agentapi.Beacon{ActionID: h.action.ID, From: h.from, To: h.details.TargetVersion, Phase: phase, At: w.now, Agent: agentapi.BeaconAgent{Alive: crashes == 0, Crashes: crashes}}
	if reason != "" {
		b.Reason = &agentapi.BeaconCause{Code: "crash_loop", Text: reason}
	}
	w.must(w.server.beacons.Handle(w.t.Context(), agent, b))
}

// parked reports whether nothing wakes the host's poll in this tick.
func (h *host) parked(w *world) bool {
	if h.action == nil && h.details == nil && h.seq == w.last && w.now.Sub(h.seen) < checkin.RetouchInterval {
		return true
	}
	h.seq, h.seen = w.last, w.now
	return false
}

// live does what happens on a host in one tick.
func (w *world) live(h *host) {
	if h.inLockstep.can {
		w.liveInLockstep(h)
		return
	}
	if h.away || h.parked(w) {
		return
	}
	if h.action == nil {
		w.checkin(h)
		if h.action == nil && h.details != nil && h.details.State.Ended() && h.details.Metadata.ErrorMsg == agentapi.Cancelled {
			w.checkin(h) // reports that it was cancelled
			h.details = nil
			w.checkin(h)
		}
		if h.action == nil {
			return
		}
	}
	if h.web != "" && h.state != agentapi.UpgradeDownloading {
		w.liveWeb(h)
		return
	}
	switch h.state {
	case agentapi.UpgradeDownloading:
		switch {
		case h.slow:
		case h.bad == "download":
			h.details = w.details(h, *h.action, agentapi.UpgradeFailed)
			h.details.Metadata.ErrorMsg, h.details.Metadata.FailedState = "the disk is full", agentapi.UpgradeDownloading
			w.ack(h, h.action.ID, "the disk is full")
			w.checkin(h)
			h.action, h.state = nil, ""
			return
		case w.now.After(h.since):
			h.enter(w, agentapi.UpgradeReplacing)
		}
		w.checkin(h)
	case agentapi.UpgradeReplacing:
		h.upgrades++
		h.from = h.version
		switch h.bad {
		case "crash", "stuck":
			h.state = agentapi.UpgradeRestarting
			w.beacon(h, agentapi.BeaconWatching, 1, "")
			return
		}
		h.version = h.details.TargetVersion
		h.enter(w, agentapi.UpgradeWatching)
		w.beacon(h, agentapi.BeaconWatching, 0, "")
		w.ack(h, h.action.ID, "")
		if h.bad == "sick" {
			h.components = `[{"id":"log","type":"log","status":"FAILED","message":"cannot open"}]`
		}
		w.checkin(h)
		if h.bad == "silent" {
			h.away = true
		}
	case agentapi.UpgradeRestarting:
		if h.bad == "stuck" {
			w.beacon(h, agentapi.BeaconRollbackFailed, 2, "the disk is gone")
			h.away = true
			return
		}
		w.beacon(h, agentapi.BeaconRolledBack, 2, "it ended twice")
		h.version = h.from
		h.details = w.details(h, *h.action, agentapi.UpgradeRollback)
		h.failed = h.details.TargetVersion
		h.details.Metadata.Reason = "it ended twice"
		w.checkin(h)
		h.action, h.state = nil, ""
	case agentapi.UpgradeWatching:
		if w.now.Sub(h.since) >= 20*time.Second {
			w.beacon(h, agentapi.BeaconCommitted, 0, "")
			h.action, h.state, h.details = nil, "", nil
		} else {
			w.beacon(h, agentapi.BeaconWatching, 0, "")
		}
		w.checkin(h)
	}
}

// pass lets time pass: in every tick the hosts live and the loop does a round.
func (w *world) pass(d time.Duration) {
	w.t.Helper()
	for end := w.now.Add(d); w.now.Before(end); {
		w.must(w.turn())
	}
}

// turn does one tick. The error is the loop's.
func (w *world) turn() error {
	w.t.Helper()
	w.now = w.now.Add(w.tick)
	var err error
	w.last, err = w.store.Actions().LastSeq(w.t.Context()) // hosts create no actions
	w.must(err)
	for _, id := range w.order {
		w.live(w.hosts[id])
		w.checkVersions()
	}
	w.server.flush(w.t.Context())
	for w.heard > 0 {
		list, err := w.store.Events().After(w.t.Context(), w.heard, 1_000)
		w.must(err)
		if len(list) == 0 {
			break
		}
		w.server.loop.Heard(list)
		w.heard = list[len(list)-1].Seq
	}
	return w.server.loop.Round(w.t.Context())
}

// until lets time pass until the condition holds.
func (w *world) until(id string, limit time.Duration, ok func(fleet.Rollout) bool) fleet.Rollout {
	w.t.Helper()
	for end := w.now.Add(limit); ; {
		w.must(w.turn())
		r := w.rollout(id)
		if ok(r) {
			return r
		}
		if w.now.After(end) {
			w.t.Fatalf("after %s the rollout is %s with %+v, stopped by %+v, waiting for %+v", limit, r.State, r.Counts, r.Stop, r.Waiting)
		}
	}
}

func over(r fleet.Rollout) bool { return r.State.Ended() }

func stopped(r fleet.Rollout) bool { return r.State == fleet.RolloutPaused }

func (w *world) rollout(id string) fleet.Rollout {
	w.t.Helper()
	r, err := w.store.Rollouts().Get(w.t.Context(), id)
	w.must(err)
	return r
}

func (w *world) target(id, agent string) fleet.Target {
	w.t.Helper()
	t, err := w.store.Targets().Get(w.t.Context(), id, agent)
	w.must(err)
	return t
}

func (w *world) agent(id string) fleet.Agent {
	w.t.Helper()
	a, err := w.store.Agents().Get(w.t.Context(), id)
	w.must(err)
	return a
}

// change changes the document as an operator's command does.
func (w *world) change(id string, f func(*fleet.Rollout)) {
	w.t.Helper()
	r := w.rollout(id)
	f(&r)
	r.Generation++
	storetest.Update(w.t, w.store.Rollouts(), r)
}

func rolling(change func(*fleet.Plan)) fleet.Plan {
	p := fleet.Plan{
		Name: "Tuesday", Version: "1.1.0", Select: fleet.Selector{All: true},
		Strategy: fleet.Strategy{Kind: fleet.Rolling, BatchSize: 10},
		Health:   fleet.HealthRule{Wait: fleet.Duration(time.Minute)},
	}
	if change != nil {
		change(&p)
	}
	return p
}

// start starts a rollout over the current fleet.
func (w *world) start(id string, p fleet.Plan) fleet.Rollout {
	w.t.Helper()
	ctx := w.t.Context()
	catalog, err := w.server.actions.CatalogOf(ctx, p.Component)
	w.must(err)
	w.must(plan.Resolve(&p, nil, catalog))
	w.must(plan.Check(&p))
	r := fleet.Rollout{ID: id, State: fleet.RolloutRunning, Plan: p, Generation: 1, CreatedAt: w.now, StartedAt: &w.now, Policies: []string{"default"}}
	var agents []fleet.Agent
	w.must(w.store.Agents().Each(ctx, store.AgentFilter{ActiveOnly: true}, func(a fleet.Agent) { agents = append(agents, a) }))
	pre, err := preview.Compute(&r, preview.Fleet{Agents: agents, Catalog: catalog, Components: map[string]agentapi.PolicyComponent{"default": {Name: p.Component, Runtime: "process"}}}, w.now)
	w.must(err)
	w.adopt(&r, pre)
	return r
}

// adopt stores a rollout with the targets of a preview.
func (w *world) adopt(r *fleet.Rollout, pre fleet.Preview) {
	w.t.Helper()
	var targets []fleet.Target
	for i, t := range pre.Targets {
		targets = append(targets, fleet.Target{
			RolloutID: r.ID, AgentID: t.AgentID, Hostname: t.Hostname, Batch: t.Batch, Place: i, Ring: t.Ring, State: fleet.TargetPending,
			From: t.From, To: t.To, Rollback: t.Rollback, Values: t.Values, Site: t.Site,
		})
		r.Counts.Add(fleet.TargetPending)
	}
	for _, b := range pre.Batches {
		r.Batches = append(r.Batches, fleet.Batch{Index: b.Index, Kind: b.Kind, Ring: b.Ring, Counts: fleet.Counts{Total: b.Size, Pending: b.Size}})
	}
	w.must(w.store.Targets().Create(w.t.Context(), targets))
	w.must(w.store.Rollouts().Create(w.t.Context(), *r))
	w.must(w.store.PolicyLocks().Create(w.t.Context(), fleet.PolicyLock{PolicyID: "default", Component: r.Plan.Component, RolloutID: r.ID, At: w.now}))
}

// running returns the hosts that run a version.
func (w *world) running(version string) (ids []string) {
	for _, id := range w.order {
		if w.hosts[id].version == version {
			ids = append(ids, id)
		}
	}
	return ids
}

// events returns the events of some types.
func (w *world) events(types ...string) (found []fleet.Event) {
	w.t.Helper()
	for after := int64(0); ; {
		list, err := w.store.Events().After(w.t.Context(), after, 1_000)
		w.must(err)
		if len(list) == 0 {
			return found
		}
		for _, e := range list {
			if slices.Contains(types, e.Type) {
				found = append(found, e)
			}
			after = e.Seq
		}
	}
}

// checkCounts reports whether the rollout's counts are those of its targets.
func (w *world) checkCounts(r fleet.Rollout) {
	w.t.Helper()
	var want fleet.Counts
	w.must(w.store.Targets().Each(w.t.Context(), r.ID, func(t fleet.Target) { plan.AddTo(&want, &t) }))
	if r.Counts != want {
		w.t.Errorf("the rollout counts %+v, its targets are %+v", r.Counts, want)
	}
}
