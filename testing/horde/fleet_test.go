package horde

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/muster-fleet/muster/server/action"
	"github.com/muster-fleet/muster/server/agentapi"
	"github.com/muster-fleet/muster/server/agentcache"
	"github.com/muster-fleet/muster/server/beacon"
	"github.com/muster-fleet/muster/server/checkin"
	"github.com/muster-fleet/muster/server/checkin/parktest"
	"github.com/muster-fleet/muster/server/clock"
	"github.com/muster-fleet/muster/server/event"
	"github.com/muster-fleet/muster/server/fleet"
	"github.com/muster-fleet/muster/server/store"
	"github.com/muster-fleet/muster/server/storehealth"
)

// Fleet is the agents and the server parts they talk to. Check-ins,
// acknowledgements and beacons go through the services that take in those of real
// hosts. Time passes for it only in Step, so the same script gives the same story.
type Fleet struct {
	Store   store.Store
	Events  *event.Stream
	Actions *action.Service
	Log     *slog.Logger
	Now     clock.Clock

	checkins *checkin.Service
	beacons  *beacon.Service
	lastSeen *checkin.LastSeen
	agents   []*Agent
	byID     map[string]*Agent
	seq      int64     // actions up to here have been looked at
	touched  time.Time // when parked agents were last noted as seen
	settled  time.Time
}

// newFleet makes a fleet without agents in front of a store.
func newFleet(ctx context.Context, s store.Store, log *slog.Logger, now clock.Clock) (*Fleet, error) {
	f := &Fleet{Store: s, Log: log, Now: now, byID: map[string]*Agent{}, Events: &event.Stream{Store: s.Events(), Log: log, Now: now}}
	health := &storehealth.Monitor{}
	cache := agentcache.New(s.OnAgentChange, health.Away)
	feed, err := action.NewFeed(ctx, s.Actions(), func(...string) {}, health, log) // Step looks for new actions itself
	if err != nil {
		return nil, err
	}
	f.Actions = &action.Service{Store: s, Health: health, Feed: feed, Events: f.Events, Log: log, Now: now}
	f.lastSeen = &checkin.LastSeen{Agents: s.Agents(), Parker: parktest.AtOnce{}, Cache: cache, Health: health, Log: log}
	f.checkins = &checkin.Service{Agents: s.Agents(), Actions: s.Actions(), Results: s.Results(), Inbox: parktest.Inbox{Actions: s.Actions()}, Parker: parktest.AtOnce{}, LastSeen: f.lastSeen, Cache: cache, Health: health, Events: f.Events, Log: log, Now: now}
	f.beacons = &beacon.Service{Agents: s.Agents(), Events: f.Events, Now: now}
	return f, nil
}

// Host is what an agent tells of its host when it enrols.
type Host struct {
	ID      string
	Policy  string // empty: the default one
	Version string
	OS      string
	Arch    string
	Tags    []string
}

// atATime is how many hosts do something side by side: the store writes together
// what comes together. What they do depends on none of the others.
const atATime = 64

// Enrol adds agents that are online. Their keys are of no use: they reach the
// services behind the authentication.
func (f *Fleet) Enrol(ctx context.Context, hosts ...Host) error {
	first := len(f.agents)
	for _, h := range hosts {
		if h.Policy == "" {
			h.Policy = fleet.DefaultPolicyID
		}
		a := &Agent{fleet: f, Host: h, version: h.Version, status: "online", Behave: map[string]Behaviour{}}
		f.agents = append(f.agents, a)
		f.byID[h.ID] = a
	}
	return together(f.agents[first:], func(a *Agent) error {
		err := f.Store.Agents().Create(ctx, fleet.Agent{
			ID: a.ID, Type: "PERMANENT", Active: true, PolicyID: a.Policy, AccessKeyID: "key-" + a.ID, EnrolledAt: f.Now.UTC(),
			Version: a.version, LocalMetadata: a.metadata(), Tags: append([]string{}, a.Tags...),
		})
		if err != nil {
			return err
		}
		return a.checkin(ctx)
	})
}

// Agents are all agents, in the order of their enrolment.
func (f *Fleet) Agents() []*Agent { return f.agents }

// Agent finds one by its id, nil if there is none.
func (f *Fleet) Agent(id string) *Agent { return f.byID[id] }

// Step lets every agent do what is due now, and the server the part of its loops
// that is.
func (f *Fleet) Step(ctx context.Context) error {
	now := f.Now.UTC()
	if err := f.wake(ctx); err != nil {
		return err
	}
	var due []*Agent
	for _, a := range f.agents {
		if len(a.steps) > 0 && !a.steps[0].at.After(now) {
			due = append(due, a)
		}
	}
	if err := together(due, func(a *Agent) error { return a.step(ctx, now) }); err != nil {
		return err
	}
	if now.Sub(f.touched) >= checkin.RetouchInterval {
		f.touched = now
		for _, a := range f.agents {
			if a.heard() {
				f.lastSeen.Seen(fleet.Touch{AgentID: a.ID, At: now})
			}
		}
	}
	f.lastSeen.Flush(ctx)
	if now.Sub(f.settled) >= action.SettleInterval {
		f.settled = now
		return f.Actions.SettleOnce(ctx)
	}
	return nil
}

// together does something on each agent, some at a time, and gives the first error.
func together(agents []*Agent, do func(*Agent) error) error {
	var group errgroup.Group
	group.SetLimit(atATime)
	for _, a := range agents {
		group.Go(func() error {
			if err := do(a); err != nil {
				return fmt.Errorf("agent %s: %w", a.ID, err)
			}
			return nil
		})
	}
	return group.Wait()
}

// wake makes the agents of every new action poll, as the feed does.
func (f *Fleet) wake(ctx context.Context) error {
	const batch = 100
	for {
		actions, err := f.Store.Actions().After(ctx, f.seq, batch)
		if err != nil {
			return err
		}
		for _, act := range actions {
			f.seq = act.Seq
			var woken []*Agent
			for _, id := range act.Agents {
				if a := f.byID[id]; a != nil && a.heard() {
					woken = append(woken, a)
				}
			}
			if err := together(woken, func(a *Agent) error { return a.checkin(ctx) }); err != nil {
				return err
			}
		}
		if len(actions) < batch {
			return nil
		}
	}
}

// Next is when an agent has something to do next, zero when none has.
func (f *Fleet) Next() time.Time {
	var next time.Time
	for _, a := range f.agents {
		if len(a.steps) > 0 && (next.IsZero() || a.steps[0].at.Before(next)) {
			next = a.steps[0].at
		}
	}
	return next
}

// Publish makes a version installable everywhere.
func (f *Fleet) Publish(ctx context.Context, version string, size int64) error {
	const sum = "4f53cda18c2baa0c0354bb5f9a3ecbe5ed12ab4d8e11ba873c2f11161202b945"
	return f.Store.Packages().Create(ctx, fleet.Package{
		File: "muster-agent-" + version + ".tar.gz", Version: version, Size: size, SHA256: sum, SHA512: sum + sum, PushedAt: f.Now.UTC(), PushedBy: "ann",
	})
}

// Versions counts the agents by what they run, whatever the server believes.
func (f *Fleet) Versions() map[string]int {
	out := map[string]int{}
	for _, a := range f.agents {
		out[a.version]++
	}
	return out
}

// checkin sends what the agent has to say and takes what it is answered.
func (a *Agent) checkin(ctx context.Context) error {
	doc, err := a.fleet.Store.Agents().Get(ctx, a.ID) // as the authentication reads it
	if err != nil || !doc.Active {
		return err
	}
	req := agentapi.CheckinRequest{Status: a.status, Message: a.message, AckToken: a.token, LocalMeta: a.metadata(), UpgradeDetails: a.details, Upgrade: &agentapi.CheckinUpgrade{}}
	if a.kept != "" {
		req.Upgrade.Rollbacks = []agentapi.Rollback{{Version: a.kept, ValidUntil: a.keptUntil}}
	}
	rec := httptest.NewRecorder()
	r := httptest.NewRequest(http.MethodPost, "/", http.NoBody).WithContext(ctx)
	if err := a.fleet.checkins.Handle(rec, r, doc, req, checkin.Received{}); err != nil {
		return err
	}
	var resp agentapi.CheckinResponse
	if err := json.Unmarshal(rec.Body.Bytes(), &resp); err != nil {
		return err
	}
	if resp.AckToken != "" {
		a.token = resp.AckToken
	}
	for _, act := range resp.Actions {
		if err := a.take(ctx, act); err != nil {
			return err
		}
	}
	return nil
}

// ack tells the result of an action.
func (a *Agent) ack(ctx context.Context, actionID, errText string) error {
	doc, err := a.fleet.Store.Agents().Get(ctx, a.ID)
	if err != nil {
		return err
	}
	items := a.fleet.Actions.Ack(ctx, doc, []agentapi.AckEvent{{
		Type: agentapi.AckType, Subtype: agentapi.AckSubtype, AgentID: a.ID, ActionID: actionID, Error: errText, Timestamp: a.fleet.Now.UTC(),
	}})
	if i := slices.IndexFunc(items, func(i agentapi.AckItem) bool { return i.Status != http.StatusOK }); i >= 0 {
		return fmt.Errorf("acknowledging %s: %d %s", actionID, items[i].Status, items[i].Message)
	}
	return nil
}

// beacon is what the host's watcher says.
func (a *Agent) beacon(ctx context.Context, stage agentapi.BeaconStage, cause *agentapi.BeaconCause) error {
	doc, err := a.fleet.Store.Agents().Get(ctx, a.ID)
	if err != nil {
		return err
	}
	w := a.watch
	b := agentapi.Beacon{ActionID: w.action, From: w.from, To: w.to, Stage: stage, Reason: cause, At: a.fleet.Now.UTC()}
	b.Agent = agentapi.BeaconAgent{Alive: !a.down, Crashes: w.crashes}
	if !a.down {
		b.Agent.State, b.Agent.Version = a.health, a.version
	}
	return a.fleet.beacons.Handle(ctx, doc, b)
}

// metadata is what the agent says of its host. Its hostname is its id.
func (a *Agent) metadata() json.RawMessage {
	os, arch := a.OS, a.Arch
	if os == "" {
		os = "linux"
	}
	if arch == "" {
		arch = "amd64"
	}
	return event.Data(map[string]any{
		"elastic": map[string]any{"agent": map[string]any{"version": a.version, "upgradeable": true}},
		"host":    map[string]any{"hostname": a.ID, "architecture": arch},
		"os":      map[string]any{"type": os, "platform": os},
	})
}
