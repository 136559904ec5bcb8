package simfleet

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"hash/fnv"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/muster-fleet/muster/server/wire/agentapi"
	"github.com/muster-fleet/muster/testing/kit/simagent"
)

// ownConnections is how many live hosts may have connections of their own: both ends of each are
// open files of this process, and some systems allow it 20,000. In a larger fleet sharedBy hosts
// share a connection of HTTP/2, as behind a proxy.
const (
	ownConnections = 2_000
	sharedBy       = 100
)

// runAgents starts the live hosts.
func (f *Fleet) runAgents(ctx context.Context) {
	var shared *http.Client
	for _, h := range f.hosts {
		if !h.live {
			continue
		}
		l := &agent{fleet: f, host: h, components: h.components(time.Now().UTC())}
		if h.health == degraded {
			l.complains = h.complaint()
		}
		if f.options.Live > ownConnections && len(f.agents)%sharedBy == 0 {
			shared = behindProxy(f.tls)
		}
		a := simagent.New(simagent.Options{
			HTTP: shared,
			ID:   h.id, Key: h.access.Encode(), Host: h.name, Version: h.version(), Servers: []string{f.AgentURL}, TLS: f.tls,
			OnAction: l.execute, OnCheckin: l.complete,
		})
		l.sim = a
		f.agents = append(f.agents, l)
		f.running.Go(func() { a.Run(ctx) })
	}
}

// behindProxy returns a client that sends everything over one connection.
func behindProxy(config *tls.Config) *http.Client {
	protocols := new(http.Protocols)
	protocols.SetHTTP2(true)
	return &http.Client{Transport: &http.Transport{TLSClientConfig: config.Clone(), Protocols: protocols}}
}

// agent is the agent of a live host.
type agent struct {
	fleet *Fleet
	sim   *simagent.Agent
	*host

	mu         sync.Mutex
	complains  string // why it is degraded; empty: it is well
	components reported
	kept       []agentapi.Rollback
}

// complete completes a check-in.
func (l *agent) complete(a *simagent.Agent, r *agentapi.CheckinRequest) {
	l.mu.Lock()
	defer l.mu.Unlock()
	r.LocalMeta, r.Components, r.StagedVersions = l.metadata(a.Version()), l.components.encode(), []string{}
	if l.kept != nil {
		r.Upgrade = &agentapi.CheckinUpgrade{Rollbacks: l.kept}
	}
	if l.complains != "" {
		r.Status, r.Message = "degraded", l.complains
	}
}

// execute executes an action.
func (l *agent) execute(ctx context.Context, a *simagent.Agent, act agentapi.Action) {
	var data agentapi.UpgradeData
	if act.Type != agentapi.ActionUpgrade || json.Unmarshal(act.Data, &data) != nil {
		a.Ack(ctx, act.ID, "")
		return
	}
	// An order for later is acknowledged when it begins, so that it can be cancelled until then.
	if at := act.StartTime; at != nil && time.Until(*at) > 0 {
		scheduled := agentapi.UpgradeDetails{TargetVersion: data.Version, ActionID: act.ID, State: agentapi.UpgradeScheduled, Metadata: agentapi.UpgradeMetadata{ScheduledAt: at}}
		if !l.phase(ctx, a, scheduled, time.Until(*at)) {
			return
		}
	}
	a.Ack(ctx, act.ID, "")
	if data.Component != nil {
		l.upgradeComponent(ctx, a, act.ID, data)
		return
	}
	l.upgrade(ctx, a, act.ID, data)
}

// luck is a number of a host and a version, so that a run can be repeated.
func (h *host) luck(version string) int {
	hash := fnv.New32a()
	fmt.Fprintf(hash, "%s %s", h.id, version)
	return int(hash.Sum32() >> 4)
}

// endOf is how an upgrade of the host to a version ends.
func (h *host) endOf(version string) end {
	luck := h.luck(version)
	switch {
	case version == broken && luck%100 < 80:
		return rollback(luck / 100)
	case luck%100 < 2:
		return failure(luck / 100)
	case luck%100 < 4:
		return rollback(luck / 100)
	}
	return end{}
}

// wait is a time between least and most, at the fleet's pace.
func (l *agent) wait(what string, least, most time.Duration) time.Duration {
	part := float64(l.luck(what)%1000) / 1000
	return time.Duration((float64(least) + part*float64(most-least)) * l.fleet.options.Pace)
}

// phase reports a phase of an upgrade for a time. It returns false if the upgrade was cancelled
// or ctx has ended.
func (l *agent) phase(ctx context.Context, a *simagent.Agent, d agentapi.UpgradeDetails, stay time.Duration) bool {
	until := time.Now().Add(stay)
	for first := true; first || time.Until(until) > 0; first = false {
		a.Report(ctx, &d, max(time.Until(until), simagent.PhaseGap))
		if a.Cancelled(ctx, d.ActionID) {
			a.Report(ctx, &agentapi.UpgradeDetails{
				TargetVersion: d.TargetVersion, ActionID: d.ActionID, State: agentapi.UpgradeFailed, Metadata: agentapi.UpgradeMetadata{ErrorMsg: agentapi.Cancelled},
			}, simagent.PhaseGap)
			a.Report(ctx, nil, simagent.PhaseGap)
			return false
		}
		if ctx.Err() != nil {
			return false
		}
	}
	return true
}

// upgrade lets the agent upgrade itself.
func (l *agent) upgrade(ctx context.Context, a *simagent.Agent, actionID string, data agentapi.UpgradeData) {
	from, ends := a.Version(), l.endOf(data.Version)
	if data.Rollback {
		ends = end{}
	}
	report := func(s agentapi.UpgradeState, m agentapi.UpgradeMetadata, stay time.Duration) bool {
		return l.phase(ctx, a, agentapi.UpgradeDetails{TargetVersion: data.Version, ActionID: actionID, State: s, Metadata: m}, stay)
	}
	const steps = 5
	download := l.wait(actionID, 4*time.Second, 30*time.Second)
	for i := range steps {
		rate := agentapi.Rate(47e6 / download.Seconds())
		if !report(agentapi.UpgradeDownloading, agentapi.UpgradeMetadata{DownloadPercent: float64(i) * 100 / steps, DownloadRate: rate}, download/steps) {
			return
		}
	}
	if ends.state == agentapi.UpgradeFailed {
		report(ends.state, ends.UpgradeMetadata, simagent.PhaseGap)
		return
	}
	if !report(agentapi.UpgradeReplacing, agentapi.UpgradeMetadata{}, l.wait(actionID+"r", 2*time.Second, 5*time.Second)) ||
		!report(agentapi.UpgradeRestarting, agentapi.UpgradeMetadata{}, l.wait(actionID+"s", 2*time.Second, 4*time.Second)) {
		return
	}
	a.Runs(data.Version)
	watch := func(phase agentapi.BeaconPhase, alive, version string, crashes int) {
		l.beacon(ctx, agentapi.Beacon{
			ActionID: actionID, From: from, To: data.Version, Phase: phase, At: time.Now().UTC(),
			Agent: agentapi.BeaconAgent{Alive: alive != "", State: alive, Version: version, Crashes: crashes},
		}, ends)
	}
	watch(agentapi.BeaconWatching, "healthy", data.Version, 0)
	report(agentapi.UpgradeWatching, agentapi.UpgradeMetadata{}, l.wait(actionID+"w", 12*time.Second, 40*time.Second))
	if ends.state == agentapi.UpgradeRollback {
		watch(agentapi.BeaconRollingBack, "", "", 3)
		a.Runs(from)
		watch(agentapi.BeaconRolledBack, "healthy", from, 3)
		report(ends.state, ends.UpgradeMetadata, simagent.PhaseGap)
		return
	}
	watch(agentapi.BeaconCommitted, "healthy", data.Version, 0)
	l.mu.Lock()
	l.kept = []agentapi.Rollback{{Version: from, ValidUntil: time.Now().UTC().Add(90 * 24 * time.Hour).Truncate(time.Second)}}
	l.mu.Unlock()
	a.Report(ctx, nil, simagent.PhaseGap)
}

// beacon sends a report of the host's watcher.
func (l *agent) beacon(ctx context.Context, b agentapi.Beacon, ends end) {
	switch b.Phase {
	case agentapi.BeaconWatching:
		b.Waiting = "for 6 more healthy samples"
	case agentapi.BeaconRollingBack, agentapi.BeaconRolledBack:
		b.Reason = &agentapi.BeaconCause{Code: ends.ReasonCode, Text: ends.Reason}
	}
	path := strings.Replace(agentapi.PathBeacon, "{id}", l.id, 1)
	if _, err := l.fleet.do(ctx, l.watcher.Encode(), http.MethodPost, l.fleet.AgentURL+path, b, nil); err != nil && ctx.Err() == nil {
		l.fleet.say("the watcher of %s: %v", l.name, err)
	}
}

// upgradeComponent lets the agent upgrade one of its components.
func (l *agent) upgradeComponent(ctx context.Context, a *simagent.Agent, actionID string, data agentapi.UpgradeData) {
	change := func(f func(c *agentapi.Component)) {
		l.mu.Lock()
		defer l.mu.Unlock()
		for i := range l.components {
			if l.components[i].Name == data.Component.Name {
				f(&l.components[i])
				return
			}
		}
		c := agentapi.Component{ID: data.Component.Name, Type: "component", Status: "HEALTHY", Message: "Running"}
		c.Name, c.Runtime = data.Component.Name, data.Component.Runtime
		f(&c)
		l.components = append(l.components, c)
	}
	ends := l.endOf(data.Component.Name + " " + data.Version)
	for _, s := range []agentapi.UpgradeState{agentapi.UpgradeDownloading, agentapi.UpgradeReplacing, agentapi.UpgradeRestarting, agentapi.UpgradeWatching} {
		change(func(c *agentapi.Component) {
			c.UpgradeDetails = &agentapi.UpgradeDetails{TargetVersion: data.Version, ActionID: actionID, State: s}
		})
		a.Report(ctx, nil, l.wait(actionID+string(s), 3*time.Second, 10*time.Second))
	}
	if ends.state != "" {
		change(func(c *agentapi.Component) {
			c.UpgradeDetails = &agentapi.UpgradeDetails{TargetVersion: data.Version, ActionID: actionID, State: agentapi.UpgradeFailed, Metadata: componentFailure()}
		})
		a.Report(ctx, nil, simagent.PhaseGap)
		return
	}
	now := time.Now().UTC()
	change(func(c *agentapi.Component) { runsVersion(c, data.Version, now) })
	a.Report(ctx, nil, simagent.PhaseGap)
}
