package simulation

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"slices"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/muster-fleet/muster/server/agents/agentcache"
	"github.com/muster-fleet/muster/server/agents/beacon"
	"github.com/muster-fleet/muster/server/agents/checkin"
	"github.com/muster-fleet/muster/server/agents/checkin/parktest"
	"github.com/muster-fleet/muster/server/clock"
	"github.com/muster-fleet/muster/server/fleet"
	"github.com/muster-fleet/muster/server/rollout"
	"github.com/muster-fleet/muster/server/rollout/action"
	"github.com/muster-fleet/muster/server/store"
	"github.com/muster-fleet/muster/server/store/event"
	"github.com/muster-fleet/muster/server/store/storehealth"
	"github.com/muster-fleet/muster/server/wire/agentapi"
	"github.com/muster-fleet/muster/watcher/handoff"
)

// Fleet is the agents and the parts of the server that they talk to: check-ins,
// acknowledgements and beacons go through the same services as those of real hosts.
// Agents act only in Step, so the same script has the same result.
type Fleet struct {
	Store   store.Store
	Events  *event.Stream
	Actions *action.Service
	Log     *slog.Logger
	Now     clock.Clock

	checkins   *checkin.Service
	beacons    *beacon.Service
	lastSeen   *checkin.LastSeen
	agents     []*Agent
	byID       map[string]*Agent
	seq        int64     // the last action whose agents were woken
	touched    time.Time // when parked agents were last marked as seen
	reconciled time.Time
}

// newFleet returns a fleet without agents.
func newFleet(ctx context.Context, s store.Store, log *slog.Logger, now clock.Clock) (*Fleet, error) {
	f := &Fleet{Store: s, Log: log, Now: now, byID: map[string]*Agent{}, Events: &event.Stream{Store: s.Events(), Log: log, Now: now}}
	health := &storehealth.Monitor{}
	cache := agentcache.New(s.OnAgentChange, health.Away)
	feed, err := action.NewFeed(ctx, s.Actions(), func(...string) {}, health, log) // Step reads new actions itself
	if err != nil {
		return nil, err
	}
	f.Actions = &action.Service{Store: s, Locks: rollout.Locks{Store: s}, Guards: rollout.Guards{Store: s}, Health: health, Feed: feed, Events: f.Events, Log: log, Now: now}
	f.lastSeen = &checkin.LastSeen{Agents: s.Agents(), Parker: parktest.AtOnce{}, Cache: cache, Health: health, Log: log}
	f.checkins = &checkin.Service{Agents: s.Agents(), Actions: s.Actions(), Results: s.Results(), Pending: parktest.PendingSource{Actions: s.Actions()}, Parker: parktest.AtOnce{}, LastSeen: f.lastSeen, Cache: cache, Health: health, Events: f.Events, Log: log, Now: now}
	f.beacons = &beacon.Service{Agents: s.Agents(), Events: f.Events, Now: now}
	return f, nil
}

// Host is what an agent reports about its host when it enrols.
type Host struct {
	ID      string
	Policy  string // empty means the default policy
	Version string
	OS      string
	Arch    string
	Tags    []string
}

// parallelAgents is how many agents act at the same time, so that the store can commit
// their writes together. Agents do not depend on each other.
const parallelAgents = 64

// Enrol adds online agents. Their keys are not valid: they call the services behind the
// authentication.
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
	return forEach(f.agents[first:], func(a *Agent) error {
		err := f.Store.Agents().Create(ctx, fleet.Agent{
			ID: a.ID, Type: "PERMANENT", Active: true, PolicyID: a.Policy, PolicyRev: 1, AccessKeyID: "key-" + a.ID, EnrolledAt: f.Now.UTC(),
			Version: a.version, LocalMetadata: a.metadata(), Tags: append([]string{}, a.Tags...),
		})
		if err != nil {
			return err
		}
		return a.checkin(ctx)
	})
}

// Agents returns all agents in the order of their enrolment.
func (f *Fleet) Agents() []*Agent { return f.agents }

// Agent returns the agent with an id, or nil.
func (f *Fleet) Agent(id string) *Agent { return f.byID[id] }

// Step performs what is due for every agent, and the server's periodic work that is due.
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
	if err := forEach(due, func(a *Agent) error { return a.step(ctx, now) }); err != nil {
		return err
	}
	if now.Sub(f.touched) >= checkin.RetouchInterval {
		f.touched = now
		for _, a := range f.agents {
			if a.connected() {
				f.lastSeen.Seen(fleet.Touch{AgentID: a.ID, At: now})
			}
		}
	}
	f.lastSeen.Flush(ctx)
	if now.Sub(f.reconciled) >= action.ReconcileInterval {
		f.reconciled = now
		return f.Actions.ReconcileUpgradesOnce(ctx)
	}
	return nil
}

// forEach calls do for each agent, up to parallelAgents at a time, and returns the first error.
func forEach(agents []*Agent, do func(*Agent) error) error {
	var group errgroup.Group
	group.SetLimit(parallelAgents)
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

// wake lets the agents of every new action check in, as the feed does.
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
				if a := f.byID[id]; a != nil && a.connected() {
					woken = append(woken, a)
				}
			}
			if err := forEach(woken, func(a *Agent) error { return a.checkin(ctx) }); err != nil {
				return err
			}
		}
		if len(actions) < batch {
			return nil
		}
	}
}

// Next returns the time of the next step of any agent, or the zero time.
func (f *Fleet) Next() time.Time {
	var next time.Time
	for _, a := range f.agents {
		if len(a.steps) > 0 && (next.IsZero() || a.steps[0].at.Before(next)) {
			next = a.steps[0].at
		}
	}
	return next
}

// Publish adds a package of a version for every platform.
func (f *Fleet) Publish(ctx context.Context, version string, size int64) error {
	const sum = "4f53cda18c2baa0c0354bb5f9a3ecbe5ed12ab4d8e11ba873c2f11161202b945"
	return f.Store.Packages().Create(ctx, fleet.Package{
		File: "muster-agent-" + version + ".tar.gz", Version: version, Size: size, SHA256: sum, SHA512: sum + sum, PushedAt: f.Now.UTC(), PushedBy: "ann",
	})
}

// Versions counts the agents by the version that really runs.
func (f *Fleet) Versions() map[string]int {
	out := map[string]int{}
	for _, a := range f.agents {
		out[a.version]++
	}
	return out
}

// checkin sends a check-in and handles the answer.
func (a *Agent) checkin(ctx context.Context) error {
	doc, err := a.fleet.Store.Agents().Get(ctx, a.ID) // as the authentication does
	if err != nil || !doc.Active {
		return err
	}
	req := agentapi.CheckinRequest{Status: a.status, Message: a.message, AckToken: a.token, LocalMeta: a.metadata(), UpgradeDetails: a.details, Upgrade: &agentapi.CheckinUpgrade{}, Components: a.reportComponents(), StagedVersions: a.staged}
	req.UpgradesIdle = a.job == nil && a.details == nil && a.watch == nil && len(a.steps) == 0
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
		if err := a.handle(ctx, act); err != nil {
			return err
		}
	}
	return nil
}

// ack acknowledges an action.
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

// beacon sends a beacon of the host's watcher.
func (a *Agent) beacon(ctx context.Context, phase agentapi.BeaconPhase, cause *agentapi.BeaconCause) error {
	doc, err := a.fleet.Store.Agents().Get(ctx, a.ID)
	if err != nil {
		return err
	}
	w := a.watch
	b := agentapi.Beacon{ActionID: w.action, From: w.from, To: w.to, Phase: phase, Reason: cause, At: a.fleet.Now.UTC()}
	b.Agent = agentapi.BeaconAgent{Alive: !a.down, Crashes: w.crashes}
	if !a.down {
		b.Agent.State, b.Agent.Version = a.health, a.version
	}
	return a.fleet.beacons.Handle(ctx, doc, b)
}

// metadata returns the agent's local_metadata. The hostname is the agent's id.
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

func TestDefaultWatchIsTheHosts(t *testing.T) {
	if fleet.DefaultWatch != handoff.DefaultGrace || WatchTime != handoff.DefaultGrace {
		t.Errorf("the server takes %s for the default, the simulation %s, and hosts watch for %s", fleet.DefaultWatch, WatchTime, handoff.DefaultGrace)
	}
}
