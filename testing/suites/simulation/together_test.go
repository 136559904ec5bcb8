package simulation

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/muster-fleet/muster/server/fleet"
	"github.com/muster-fleet/muster/server/wire/agentapi"
)

// together is a model of the host's half of a rollout in lockstep, with the faults of the host.
// until, reached, undo and ended survive a reboot, as on a real host.
type together struct {
	running *running
	action  string // the upgrade that is under way
	from,
	to string
	until, reached agentapi.LockstepPhase
	undo           string
	busy           bool // a step is scheduled
	held           bool // it is not started, as the policy requires
	ended          []string

	// fails is the phase that it cannot do. With start the new version runs, and is unwell.
	fails agentapi.LockstepPhase
	// leaves is the phase after which it loses its network, boots the one after which it boots,
	// and gone how long either takes.
	leaves, boots agentapi.LockstepPhase
	gone          time.Duration
	// slow is how much longer it takes to drain.
	slow time.Duration
	// loses is the phase after which it loses the staged version.
	loses agentapi.LockstepPhase
}

// running are the versions that run on hosts, and the first moment at which two of them differed.
type running struct {
	mu    sync.Mutex
	by    map[string]string // version by host; a stopped one is missing
	mixed string
}

// set records that a host runs a version, or none, and checks the invariant.
func (r *running) set(host, version string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.by, host)
	if version != "" {
		r.by[host] = version
	}
	of := map[string]int{}
	for _, v := range r.by {
		of[v]++
	}
	if len(of) > 1 && r.mixed == "" {
		r.mixed = fmt.Sprintf("%s runs %q at %s, beside %v", host, version, time.Now().Format(time.TimeOnly), of)
	}
}

func (r *running) version(host string) string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.by[host]
}

func (r *running) violation() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.mixed
}

func (r *running) versions() map[string]int {
	r.mu.Lock()
	defer r.mu.Unlock()
	of := map[string]int{}
	for _, v := range slices.Collect(maps.Values(r.by)) {
		of[v]++
	}
	return of
}

// How long a host takes for a phase: that of a small component.
var phaseTimes = map[agentapi.LockstepPhase]time.Duration{
	agentapi.LockstepDrain: 20 * time.Second, agentapi.LockstepStop: 3 * time.Second, agentapi.LockstepBackup: 10 * time.Second,
	agentapi.LockstepSwitch: 8 * time.Second, agentapi.LockstepStart: 2 * time.Second,
}

// switchOff switches the host off. When it is on again, it starts no component before its policy
// says which version is in force.
func (a *Agent) switchOff() {
	a.down = true
	for _, c := range a.components {
		c.together.held = true
		c.together.running.set(a.ID, "")
	}
}

func (a *Agent) switchOn(ctx context.Context) error {
	a.down = false
	for _, c := range a.components {
		if err := a.startInForce(ctx, c); err != nil {
			return err
		}
	}
	return nil
}

// startInForce checks in, gets the policy with the answer, and starts the component if its version
// is in force. While that is being changed, it tries again.
func (a *Agent) startInForce(ctx context.Context, c *component) error {
	l := c.together
	if err := a.checkinIfConnected(ctx); err != nil || l.action != "" || !a.connected() {
		return err
	}
	p, err := a.fleet.Store.Policies().Get(ctx, fleet.DefaultPolicyID)
	if err != nil {
		return err
	}
	if err := a.ack(ctx, fleet.PolicyAt{ID: p.ID, Revision: p.PolicyRev}.ChangeID(), ""); err != nil {
		return err
	}
	switch f := p.Component(c.name).InForce; {
	case f != nil && f.Changing:
		a.after(time.Second, func(ctx context.Context) error { return a.startInForce(ctx, c) })
	case f == nil || f.Version == c.version:
		l.held = false
		l.running.set(a.ID, c.version)
	}
	return a.checkinIfConnected(ctx)
}

func (a *Agent) upgradeTogether(ctx context.Context, c *component, act agentapi.Action, d agentapi.UpgradeData) error {
	l := c.together
	if l.action != "" || slices.Contains(l.ended, d.Component.UpgradeID) {
		return nil
	}
	l.action, l.from, l.to, l.until, l.reached, l.undo = d.Component.UpgradeID, c.version, d.Version, d.Component.Lockstep.Until, "", ""
	c.job = act.ID
	return a.goOn(ctx, c)
}

func (a *Agent) proceed(ctx context.Context, act agentapi.Action) error {
	var d agentapi.ProceedData
	if err := json.Unmarshal(act.Data, &d); err != nil {
		return err
	}
	c := a.component(d.Component)
	if c == nil || c.together == nil || c.together.action != d.UpgradeID {
		return a.ack(ctx, act.ID, "there is no such upgrade")
	}
	l := c.together
	switch {
	case d.Undo && l.until.Reaches(agentapi.LockstepSwitch):
		return a.ack(ctx, act.ID, "it goes through to its end")
	case d.Undo:
		l.undo = d.Reason
	case l.undo == "" && !l.until.Reaches(d.Until):
		l.until = d.Until
	}
	if err := a.ack(ctx, act.ID, ""); err != nil {
		return err
	}
	return a.goOn(ctx, c)
}

// says reports how far the host is.
func (a *Agent) says(ctx context.Context, c *component, s agentapi.UpgradeState, m agentapi.UpgradeMetadata) error {
	l := c.together
	m.Lockstep = &agentapi.LockstepReport{Until: l.until, Reached: l.reached}
	c.details = &agentapi.UpgradeDetails{TargetVersion: l.to, ActionID: l.action, State: s, Metadata: m}
	return a.checkinIfConnected(ctx)
}

// goOn begins what the host may do next.
func (a *Agent) goOn(ctx context.Context, c *component) error {
	l := c.together
	if l.action == "" || l.busy {
		return nil
	}
	if l.undo != "" {
		a.later(undoTime, c, func(ctx context.Context) error { return a.undone(ctx, c, l.undo) })
		return nil
	}
	at := slices.Index(agentapi.LockstepPhases, l.reached) + 1
	if at < len(agentapi.LockstepPhases) && l.until.Reaches(agentapi.LockstepPhases[at]) {
		p := agentapi.LockstepPhases[at]
		takes := phaseTimes[p] + time.Duration(a.hash()%7)*time.Second
		if p == agentapi.LockstepDrain {
			takes += l.slow
		}
		a.later(takes, c, func(ctx context.Context) error { return a.does(ctx, c, p) })
	}
	return a.says(ctx, c, agentapi.UpgradeReplacing, agentapi.UpgradeMetadata{})
}

// later schedules the next step of the upgrade, which waits while the host is switched off.
func (a *Agent) later(d time.Duration, c *component, do func(context.Context) error) {
	c.together.busy = true
	a.schedule(step{at: a.fleet.Now.UTC().Add(d), component: true, do: func(ctx context.Context) error {
		if a.down {
			a.later(crashPause, c, do)
			return nil
		}
		c.together.busy = false
		return do(ctx)
	}})
}

// does does one phase. An order to undo that came meanwhile comes first.
func (a *Agent) does(ctx context.Context, c *component, p agentapi.LockstepPhase) error {
	l := c.together
	if l.undo != "" && !l.until.Reaches(agentapi.LockstepSwitch) {
		return a.goOn(ctx, c)
	}
	lost := p == agentapi.LockstepStop && !slices.Contains(a.staged, c.name+" "+l.to)
	switch {
	case lost:
		return a.undone(ctx, c, "the staged version is gone")
	case l.fails == p && !p.Reaches(agentapi.LockstepSwitch):
		return a.undone(ctx, c, "the disk is full")
	case l.fails == p && p == agentapi.LockstepSwitch:
		return a.endTogether(ctx, c, "the migration failed", agentapi.UpgradeReplacing)
	}
	switch p {
	case agentapi.LockstepStop:
		l.running.set(a.ID, "")
	case agentapi.LockstepStart:
		l.running.set(a.ID, l.to)
		a.later(observeTime, c, func(ctx context.Context) error { return a.observedTogether(ctx, c) })
		return a.says(ctx, c, agentapi.UpgradeWatching, agentapi.UpgradeMetadata{})
	}
	l.reached = p
	if l.loses == p {
		a.staged = []string{}
	}
	if err := a.says(ctx, c, agentapi.UpgradeReplacing, agentapi.UpgradeMetadata{}); err != nil {
		return err
	}
	if err := a.interrupted(ctx, c, p); err != nil {
		return err
	}
	return a.goOn(ctx, c)
}

// interrupted lets the faults after a phase happen.
func (a *Agent) interrupted(_ context.Context, c *component, p agentapi.LockstepPhase) error {
	l := c.together
	back := func(do func(context.Context) error) {
		a.schedule(step{at: a.fleet.Now.UTC().Add(l.gone), component: true, do: do})
	}
	switch p {
	case l.leaves:
		a.offline = true
		back(func(ctx context.Context) error { return a.SetOffline(ctx, false) })
	case l.boots:
		a.down = true
		back(func(ctx context.Context) error {
			a.down, c.details = false, nil // right after its start the agent reports no details
			if err := a.checkinIfConnected(ctx); err != nil {
				return err
			}
			return a.goOn(ctx, c)
		})
	}
	return nil
}

func (a *Agent) observedTogether(ctx context.Context, c *component) error {
	l := c.together
	c.kept, c.version = l.from, l.to
	if l.fails == agentapi.LockstepStart {
		return a.endTogether(ctx, c, "it is not healthy", agentapi.UpgradeWatching)
	}
	id := c.job
	l.ended, l.action = append(l.ended, l.action), ""
	c.healthy, c.details, c.job = l.to, nil, ""
	if err := a.checkinIfConnected(ctx); err != nil || !a.connected() {
		return err
	}
	return a.ack(ctx, id, "")
}

// undone is called when the earlier version runs again.
func (a *Agent) undone(ctx context.Context, c *component, why string) error {
	l := c.together
	l.running.set(a.ID, l.from)
	return a.endTogether(ctx, c, why, agentapi.UpgradeReplacing)
}

// endTogether ends the upgrade as failed.
func (a *Agent) endTogether(ctx context.Context, c *component, why string, in agentapi.UpgradeState) error {
	l := c.together
	id := c.job
	if err := a.says(ctx, c, agentapi.UpgradeFailed, agentapi.UpgradeMetadata{FailedState: in, ErrorMsg: why}); err != nil {
		return err
	}
	l.ended, l.action, c.job = append(l.ended, l.action), "", ""
	if !a.connected() {
		return nil
	}
	return a.ack(ctx, id, why)
}
