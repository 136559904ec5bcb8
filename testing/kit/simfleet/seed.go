package simfleet

import (
	"encoding/json"
	"time"

	"github.com/muster-fleet/muster/server/fleet"
	"github.com/muster-fleet/muster/server/wire/agentapi"
)

// document returns the agent of a host with everything that has happened to it.
func (p *past) document(h *host) (fleet.Agent, written) {
	enrolled := p.now.Add(-h.enrolled)
	a := fleet.Agent{
		ID: h.id, Type: "PERMANENT", Active: true, PolicyID: h.role.policy, PolicyRev: 1,
		AccessKeyID: h.access.ID, AccessKeyHash: h.access.Hash(), WatcherKeyID: h.watcher.ID, WatcherKeyHash: h.watcher.Hash(),
		EnrolledAt: enrolled, Version: oldest, VersionSince: &enrolled, HealthySince: &enrolled, LastHealthyVersion: oldest, Tags: h.tags,
		StagedVersions: []string{},
	}
	var w written
	switch h.health {
	case enrolling:
		a.Version, a.LastHealthyVersion, a.PolicyRev, a.HealthySince = current, "", 0, nil
	case longAway:
	default:
		w = p.live(h, &a)
	}
	a.LocalMetadata = h.metadata(a.Version)
	h.setHealth(&a, p.now)
	p.upgradeComponents(h, &a, &w)
	return a, w
}

// live lets what happened to a host happen to its agent.
func (p *past) live(h *host, a *fleet.Agent) written {
	var w written
	for _, wave := range p.waves {
		place, member := wave.place[h]
		switch {
		case !wave.takes(h):
		case !member && !wave.stopped(h) && h.story != rolled:
			a.Version, a.LastHealthyVersion = wave.version, wave.version // it enrolled with it, or has no record
		case member && wave.stopped(h):
			w.targets = append(w.targets, wave.target(h, a.Version, nil))
		case member:
			from := a.Version
			w.add(h, a, h.upgrade(a, wave.order(wave.batch(place)), wave.end(h)))
			w.targets = append(w.targets, wave.target(h, from, &w.records[len(w.records)-1]))
		}
	}
	for _, b := range p.single {
		if b.component != "" || !b.takes(h) || h.enrolled <= p.now.Sub(b.at) {
			continue
		}
		if b.cancelled != nil {
			a.BeginUpgrade(b.actionID, b.to, b.at)
			a.RequestedBy("", b.by, b.at)
			a.CancelUpgrade(b.actionID, *b.cancelled)
			w.records = append(w.records, a.EndedUpgrades()...)
			continue
		}
		w.add(h, a, h.upgrade(a, b.order, failure(h.luck(b.to))))
	}
	return w
}

// add adds an upgrade that has just ended.
func (w *written) add(h *host, a *fleet.Agent, acked time.Time) {
	for _, r := range a.EndedUpgrades() {
		if r.ActionID != a.UpgradeActionID || r.Component != "" {
			continue
		}
		w.records = append(w.records, r)
		result := fleet.Result{ActionID: r.ActionID, AgentID: h.id, Hostname: h.name, Message: "accepted", Timestamp: acked}
		if r.State != fleet.ProgressCommitted {
			result.Error, result.Timestamp = r.Reason, r.Ended()
		}
		w.results = append(w.results, result)
	}
}

// upgrade lets an agent go through an upgrade, in the states that a real one reports, and
// returns when it acknowledged the order.
func (h *host) upgrade(a *fleet.Agent, o order, end end) (acked time.Time) {
	from, clock := a.Version, o.at.Add(time.Duration(h.rng.IntN(400))*time.Second)
	after := func(least, more int) time.Time {
		clock = clock.Add(time.Duration(least+h.rng.IntN(more)) * time.Second)
		return clock
	}
	report := func(version string, s agentapi.UpgradeState, m agentapi.UpgradeMetadata, at time.Time) {
		a.ObserveUpgrade(version, &agentapi.UpgradeDetails{TargetVersion: o.to, ActionID: o.actionID, State: s, Metadata: m}, at)
	}
	a.BeginUpgrade(o.actionID, o.to, clock)
	a.RequestedBy("", o.by, clock)
	acked = after(1, 8)
	report(from, agentapi.UpgradeDownloading, agentapi.UpgradeMetadata{DownloadPercent: 10}, acked)
	if end.state == agentapi.UpgradeFailed {
		report(from, end.state, end.UpgradeMetadata, after(8, 90))
		return acked
	}
	report(from, agentapi.UpgradeReplacing, agentapi.UpgradeMetadata{}, after(8, 90))
	report(from, agentapi.UpgradeRestarting, agentapi.UpgradeMetadata{}, after(2, 4))
	report(o.to, agentapi.UpgradeWatching, agentapi.UpgradeMetadata{}, after(2, 6))
	if end.state == agentapi.UpgradeRollback {
		report(from, end.state, end.UpgradeMetadata, after(15, 200))
		a.Watch = &fleet.Watch{ReceivedAt: clock, Beacon: agentapi.Beacon{
			ActionID: o.actionID, From: from, To: o.to, Phase: agentapi.BeaconRolledBack, At: clock, Reason: &agentapi.BeaconCause{Code: end.ReasonCode, Text: end.Reason},
			Agent: agentapi.BeaconAgent{Alive: true, State: "healthy", Version: from, Crashes: 3},
		}}
		return acked
	}
	done := after(600, 60)
	a.ObserveUpgrade(o.to, nil, done)
	a.ObserveHealth("online", 0, done)
	a.Kept = agentapi.CheckinUpgrade{Rollbacks: []agentapi.Rollback{{Version: from, ValidUntil: done.Add(90 * 24 * time.Hour)}}}
	return acked
}

// setHealth gives an agent the health of its host.
func (h *host) setHealth(a *fleet.Agent, now time.Time) {
	seen := now.Add(-time.Duration(h.rng.IntN(50)) * time.Second)
	a.Last = fleet.LastSeen{At: &seen, Status: "online", Message: "Running"}
	switch h.health {
	case degraded:
		a.Last.Status, a.Last.Message, a.HealthySince = "degraded", h.complaint(), nil
		a.UnhealthyReason = []string{"input"}
	case failing:
		a.Last.Status, a.Last.Message, a.HealthySince = "error", h.complaint(), nil
		a.UnhealthyReason = []string{"output"}
	case away:
		seen = now.Add(-time.Duration(8+h.rng.IntN(9*24*60)) * time.Minute)
	case longAway:
		seen = now.Add(-time.Duration(16+h.rng.IntN(40)) * 24 * time.Hour)
	case enrolling:
		a.Last = fleet.LastSeen{}
	case unenrolled:
		at := now.Add(-time.Duration(1+h.rng.IntN(20*24)) * time.Hour)
		seen = at
		a.Active, a.UnenrolledAt, a.UnenrolledReason = false, &at, "manual"
	}
}

// complaint is what an unhealthy host reports.
func (h *host) complaint() string {
	texts := []string{
		"1 of 4 components does not run: collector: the output does not answer: connection refused",
		"disk usage of /var is 96 %",
		"the clock is 94 s behind that of the server",
		"component collector restarted 4 times in 10 minutes",
	}
	return texts[h.luck("complaint")%len(texts)]
}

type reported []agentapi.Component

func (r reported) encode() json.RawMessage {
	b, err := json.Marshal([]agentapi.Component(r))
	if err != nil {
		panic(err) // our own types always encode
	}
	return b
}

func (h *host) hasNewCollector() bool { return h.number%9 == 4 && !h.live }
func (h *host) hasNewWeb() bool       { return h.number%4 == 1 && !h.live && h.role.policy == "web" }

// components returns what the host's agent reports of its components before they were upgraded.
func (h *host) components(now time.Time) reported {
	var out reported
	since := now.Add(-time.Duration(100+h.number%200) * time.Hour)
	add := func(name, version string) {
		c := agentapi.Component{ID: name, Type: "component", Status: "HEALTHY", Message: "Running"}
		c.Name, c.Runtime, c.Version, c.LastHealthyVersion, c.Hash, c.Since = name, "process", version, version, hashOf(name+version), &since
		switch {
		case name != collectorComponent:
		case h.health == degraded:
			c.Status, c.Message, c.Restarts = "DEGRADED", "3 of 40 requests to the output failed", 2
		case h.health == failing:
			c.Status, c.Message, c.Restarts = "FAILED", "the output does not answer: connection refused", 14
		}
		out = append(out, c)
	}
	add(collectorComponent, "1.8.0")
	for _, name := range h.role.components {
		add(name, "3.1.0")
	}
	return out
}

// upgradeComponents gives an agent its components, and lets the orders for them happen.
func (p *past) upgradeComponents(h *host, a *fleet.Agent, w *written) {
	list := h.components(p.now)
	a.Components = list.encode()
	for _, b := range p.single {
		if b.component == "" || h.health == enrolling || !b.takes(h) || h.enrolled <= p.now.Sub(b.at) {
			continue
		}
		began := b.at.Add(time.Duration(h.rng.IntN(60)) * time.Second)
		a.BeginOf(b.component, b.actionID, b.to, began)
		a.RequestedBy(b.component, b.by, began)
		step := func(at time.Time, change func(c *agentapi.Component)) {
			was := a.Components
			for i := range list {
				if list[i].Name == b.component {
					change(&list[i])
				}
			}
			a.Components = list.encode()
			a.ObserveComponents(was, at)
		}
		details := func(s agentapi.UpgradeState, m agentapi.UpgradeMetadata) func(c *agentapi.Component) {
			return func(c *agentapi.Component) {
				c.UpgradeDetails = &agentapi.UpgradeDetails{TargetVersion: b.to, ActionID: b.actionID, State: s, Metadata: m}
			}
		}
		step(began.Add(6*time.Second), details(agentapi.UpgradeDownloading, agentapi.UpgradeMetadata{}))
		step(began.Add(20*time.Second), details(agentapi.UpgradeReplacing, agentapi.UpgradeMetadata{}))
		step(began.Add(22*time.Second), details(agentapi.UpgradeWatching, agentapi.UpgradeMetadata{}))
		end := began.Add(80 * time.Second)
		result := fleet.Result{ActionID: b.actionID, AgentID: h.id, Hostname: h.name, Message: "accepted", Timestamp: began.Add(5 * time.Second)}
		if h.luck(b.component)%12 == 0 {
			m := componentFailure()
			result.Error = m.ErrorMsg
			step(end, details(agentapi.UpgradeFailed, m))
		} else {
			step(end, func(c *agentapi.Component) { runsVersion(c, b.to, end) })
		}
		if h.number < waveOf {
			for _, r := range a.EndedUpgrades() {
				if r.Component == b.component && r.ActionID == b.actionID {
					w.records, w.results = append(w.records, r), append(w.results, result)
				}
			}
		}
	}
}

// runsVersion makes a component run another version.
func runsVersion(c *agentapi.Component, version string, now time.Time) {
	if c.Version != "" && c.Version != version {
		c.Rollbacks = []string{c.Version}
	}
	c.UpgradeDetails, c.Version, c.LastHealthyVersion, c.Since, c.Hash = nil, version, version, &now, hashOf(c.Name+version)
}
