package component

import (
	"context"
	"errors"
	"fmt"

	"github.com/muster-fleet/muster/agent/primitive"
	"github.com/muster-fleet/muster/agent/runtime"
	"github.com/muster-fleet/muster/agent/steps"
	"github.com/muster-fleet/muster/packaging/disk"
	"github.com/muster-fleet/muster/server/wire/agentapi"
)

// facts are what decides whether a component may run whose hosts must not run mixed versions.
type facts struct {
	policy    agentapi.PolicyComponent
	installed string // full version
	runs      bool
	// down means that it does not run, and that it is this rule's task to start it: it was held
	// before, or did not run when the agent started. Otherwise an upgrade or somebody else has
	// stopped it, who also starts it.
	down bool
	// upgraded means that an upgrade of it is under way or waits.
	upgraded bool
	// confirmed means that the server has answered this agent, so that the policy is current.
	confirmed bool
	// released is what was in force when an operator released it; see Manager.ReleaseHeld.
	released *agentapi.ComponentInForce
}

// action is what is to be done with a component.
type action int

const (
	leaveIt action = iota
	stopIt
	holdIt // it does not run, and must not
	startIt
)

// decide decides what is to be done, and for stopIt and holdIt why.
func (f facts) decide() (do action, why string) {
	why = f.forbids()
	switch {
	case f.runs && (why == "" || f.upgraded):
		return leaveIt, ""
	case f.runs:
		return stopIt, why
	case !f.down:
		return leaveIt, ""
	case why != "":
		return holdIt, why
	case f.upgraded:
		return holdIt, "it did not run when the agent started, and its upgrade goes on before it is started"
	}
	return startIt, ""
}

// forbids returns why the component must not run, or must not be started, empty if it may.
func (f facts) forbids() string {
	force := f.policy.InForce
	if !f.policy.Lockstep || force == nil || f.released != nil && *f.released == *force {
		return ""
	}
	switch right := force.Version == f.installed; {
	case f.runs && (right || force.Changing):
		return ""
	case force.Changing:
		return fmt.Sprintf("a rollout in lockstep changes this policy from version %s, and %s is installed: it is not started until the rollout has decided which version all hosts run", force.Version, f.installed)
	case !right:
		return fmt.Sprintf("version %s is in force for this policy, and %s is installed: it is not started until it has switched", force.Version, f.installed)
	case !f.runs && !f.confirmed:
		return fmt.Sprintf("version %s is installed, and the server has not answered yet whether it is still in force: it is not started until then", f.installed)
	}
	return ""
}

// inForce reports whether the policy says which version of the component may run.
func inForce(p agentapi.PolicyComponent) bool { return p.Lockstep && p.InForce != nil }

// Confirmed is called once the server has answered a check-in of this agent, and the policy that
// came with the answer is followed: a component that waited for that may be started.
func (m *Manager) Confirmed() {
	if !m.confirmed.Swap(true) {
		m.lookSoon()
	}
}

// AwaitsServer reports whether a component waits for the server's first answer.
func (m *Manager) AwaitsServer() bool {
	if m.confirmed.Load() {
		return false
	}
	for _, u := range m.all() {
		if u.held() != "" {
			return true
		}
	}
	return false
}

// IsHeld reports whether a component is held.
func (m *Manager) IsHeld(name string) bool {
	u := m.unit(name)
	return u != nil && u.held() != ""
}

// ReleaseHeld starts a component that is held, whatever is in force, and lets it run until the
// server's policy puts something else in force.
func (m *Manager) ReleaseHeld(ctx context.Context, name string) error {
	u := m.unit(name)
	if u == nil {
		return m.unknown(name)
	}
	if err := u.lock(ctx); err != nil {
		return err
	}
	defer m.lookSoon() // once it is unlocked
	defer u.unlock()
	if u.held() == "" {
		return fmt.Errorf("component %s is not held", name)
	}
	if err := u.change(func(s *state) { s.Released = u.policy.InForce }); err != nil { // change locks u.mu
		return err
	}
	return u.enforce(ctx)
}

// held returns why the component is held, empty if it is not.
func (u *unit) held() string {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.state.Held
}

// facts returns the facts of the installed version. The caller holds u.mu.
func (u *unit) facts() facts {
	return facts{policy: u.policy, installed: u.state.installed(), confirmed: u.m.confirmed.Load(), released: u.state.Released}
}

// enforce stops, holds or starts the component by the version that is in force. The caller has locked u.
func (u *unit) enforce(ctx context.Context) error { return u.enforceAt(ctx, false) }

// enforceAt is enforce; when the agent starts it only holds what does not run, which takes no time.
func (u *unit) enforceAt(ctx context.Context, start bool) error {
	u.mu.Lock()
	p, s, unseen, f := u.policy, u.state, u.unseen, u.facts()
	u.mu.Unlock()
	concerned := inForce(p) || s.Held != "" || s.Released != nil || s.Undrain || s.Installed != nil && s.Installed.HeldAtBoot && unseen
	if s.Installed == nil || s.Broken != "" || !concerned {
		u.mu.Lock()
		u.unseen = unseen && (s.Installed == nil || s.Broken != "") // what is down now, somebody else has stopped
		u.mu.Unlock()
		return nil
	}
	if s.Released != nil && (p.InForce == nil || *p.InForce != *s.Released) {
		if err := u.change(func(s *state) { s.Released = nil }); err != nil {
			return err
		}
	}
	j, err := steps.Read[primitive.Journal](journalOf(u.m.Disk, u.dir))
	if err != nil && !errors.Is(err, disk.ErrDamaged) { // a damaged one is like none; see journal
		return err
	}
	f.upgraded = j != nil && !s.isCompleted(j.Order.ID)
	adapter, r, err := u.current()
	if err != nil || r == nil {
		return err
	}
	look, cancel := context.WithTimeout(ctx, statusTimeout)
	status, err := adapter.Status(look, r)
	cancel()
	if err != nil {
		return err // the next look decides
	}
	// What this agent has not seen run is not restarted by it, whatever its runtime is about to do.
	f.runs = status.Running || status.Waits && !unseen
	f.down = !f.runs && (s.Held != "" || unseen && !(f.upgraded && j.Ran))
	do, why := f.decide()
	if start && do != holdIt {
		return nil
	}
	// A component is stopped within the time of the action: see primitive.StopNode.
	outer := ctx
	ctx, cancel = context.WithTimeout(ctx, primitive.StopTimeout)
	defer cancel()
	switch {
	case do == stopIt, do == holdIt && (unseen || s.Held == ""):
		// Recorded first: an agent that starts in the middle knows that it has to start it again.
		if err := u.hold(why); err != nil {
			return err
		}
		if err := adapter.Stop(ctx, r); err != nil {
			return err
		}
		u.m.Log.Warn("a component is held", "component", u.name, "reason", why)
	case do == holdIt:
		return u.hold(why)
	case do == startIt:
		if err := adapter.Start(ctx, r); err != nil {
			return errors.Join(err, u.hold(fmt.Sprintf("it may run, and its start fails, which is repeated every %s: %v", observeEvery, err)))
		}
		u.m.Log.Info("a component that was held is started", "component", u.name, "version", f.installed)
		fallthrough
	case f.runs:
		if err := u.hold(""); err != nil {
			return err
		}
	}
	u.mu.Lock()
	u.unseen = false
	if do != leaveIt {
		u.observeAs()
	}
	u.mu.Unlock()
	if s.Undrain && !f.upgraded && (do == startIt || do == leaveIt && f.runs) {
		return u.undrain(outer, r)
	}
	return nil
}

// undrain runs the hook of a component that was drained when it was held, and runs again.
func (u *unit) undrain(ctx context.Context, r *runtime.Release) error {
	u.mu.Lock()
	i := u.state.Installed
	j := &primitive.Journal{Order: primitive.Order{Component: u.name, Runtime: r.Component.Runtime}, From: i, To: *i}
	u.mu.Unlock()
	if err := u.newChange(j, nil, nil, nil).Undrain(ctx, r); err != nil {
		return err // it is repeated at the next look
	}
	return u.change(func(s *state) { s.Undrain = false })
}

// hold records why the component is held; empty: it is not.
func (u *unit) hold(why string) error {
	if u.held() == why {
		return nil
	}
	defer u.m.Changed(false)
	return u.change(func(s *state) { s.Held = why })
}

// enforceAfter is enforce once an upgrade has ended.
func (u *unit) enforceAfter(ctx context.Context) {
	if err := u.enforce(context.WithoutCancel(ctx)); err != nil {
		u.m.Log.Warn("whether a component may run is decided at the next look", "component", u.name, "error", err)
	}
}

// keepStopped has the undoing of an upgrade not start the version before where that must not run: other
// hosts may have gone on without this one. enforce starts it once it may run.
func (w *work) keepStopped() {
	u, j := w.u, w.j
	if j.From == nil {
		return
	}
	u.mu.Lock()
	f, why := u.facts(), u.state.Held
	u.mu.Unlock()
	f.installed = j.From.FullVersion()
	if why == "" && j.Ran {
		why = f.forbids()
	}
	if why == "" {
		return
	}
	drained := j.Extras.Drained
	j.Ran, j.Runs, j.Extras.Drained = false, false, false
	u.note(func(s *state) { s.Held, s.Undrain = why, s.Undrain || drained })
}
