package component

import (
	"context"
	"errors"
	"fmt"

	"github.com/muster-fleet/muster/agent/primitive"
	"github.com/muster-fleet/muster/agent/runtime"
	"github.com/muster-fleet/muster/agent/steps"
	"github.com/muster-fleet/muster/packaging/host/disk"
	"github.com/muster-fleet/muster/server/wire/agentapi"
)

// facts are what decides whether a component may run whose hosts must not run mixed versions.
type facts struct {
	policy    agentapi.PolicyComponent
	installed string // full version
	runs      bool
	// down means that it does not run, and that it is this rule's task to start it: its start was withheld
	// before, or did not run when the agent started. Otherwise an upgrade or somebody else has
	// stopped it, who also starts it.
	down bool
	// upgraded means that an upgrade of it is under way or waits.
	upgraded bool
	// confirmed means that the server has answered this agent, so that the policy is current.
	confirmed bool
	// released is what was in force when an operator released it; see Manager.ReleaseWithheld.
	released *agentapi.ComponentInForce
}

// action is what is to be done with a component.
type action int

const (
	leaveIt action = iota
	stopIt
	withholdIt // it does not run, and must not
	startIt
)

// decide decides what is to be done, and for stopIt and withholdIt why.
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
		return withholdIt, why
	case f.upgraded:
		return withholdIt, "it did not run when the agent started, and its upgrade goes on before it is started"
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
	for _, c := range m.all() {
		if c.withheld() != "" {
			return true
		}
	}
	return false
}

// IsWithheld reports whether the start of a component is withheld.
func (m *Manager) IsWithheld(name string) bool {
	c := m.component(name)
	return c != nil && c.withheld() != ""
}

// ReleaseWithheld starts a component whose start is withheld, whatever is in force, and lets it run until the
// server's policy puts something else in force.
func (m *Manager) ReleaseWithheld(ctx context.Context, name string) error {
	c := m.component(name)
	if c == nil {
		return m.unknown(name)
	}
	if err := c.lock(ctx); err != nil {
		return err
	}
	defer m.lookSoon() // once it is unlocked
	defer c.unlock()
	if c.withheld() == "" {
		return fmt.Errorf("the start of component %s is not withheld", name)
	}
	if err := c.change(func(s *state) { s.Released = c.policy.InForce }); err != nil { // change locks c.mu
		return err
	}
	return c.enforce(ctx)
}

// withheld returns why the start of the component is withheld, empty if it is not.
func (c *component) withheld() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.state.Withheld
}

// facts returns the facts of the installed version. The caller holds c.mu.
func (c *component) facts() facts {
	return facts{policy: c.policy, installed: c.state.installed(), confirmed: c.m.confirmed.Load(), released: c.state.Released}
}

// enforce stops, withholds or starts the component by the version that is in force. The caller has locked c.
func (c *component) enforce(ctx context.Context) error { return c.enforceAt(ctx, false) }

// enforceAt is enforce; when the agent starts it only withholds what does not run, which takes no time.
func (c *component) enforceAt(ctx context.Context, start bool) error {
	c.mu.Lock()
	p, s, unseen, f := c.policy, c.state, c.unseen, c.facts()
	c.mu.Unlock()
	concerned := inForce(p) || s.Withheld != "" || s.Released != nil || s.Undrain || s.Installed != nil && s.Installed.WithheldAtBoot && unseen
	if s.Installed == nil || s.Broken != "" || !concerned {
		c.mu.Lock()
		c.unseen = unseen && (s.Installed == nil || s.Broken != "") // what is down now, somebody else has stopped
		c.mu.Unlock()
		return nil
	}
	if s.Released != nil && (p.InForce == nil || *p.InForce != *s.Released) {
		if err := c.change(func(s *state) { s.Released = nil }); err != nil {
			return err
		}
	}
	j, err := steps.Read[primitive.Journal](journalOf(c.m.Disk, c.dir))
	if err != nil && !errors.Is(err, disk.ErrDamaged) { // a damaged one is like none; see journal
		return err
	}
	f.upgraded = j != nil && !s.isCompleted(j.Desired.ID)
	adapter, r, err := c.current()
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
	f.down = !f.runs && (s.Withheld != "" || unseen && !(f.upgraded && j.Ran))
	do, why := f.decide()
	if start && do != withholdIt {
		return nil
	}
	// A component is stopped within the time of the action: see primitive.StopNode.
	outer := ctx
	ctx, cancel = context.WithTimeout(ctx, primitive.StopTimeout)
	defer cancel()
	switch {
	case do == stopIt, do == withholdIt && (unseen || s.Withheld == ""):
		// Recorded first: an agent that starts in the middle knows that it has to start it again.
		if err := c.withhold(why); err != nil {
			return err
		}
		if err := adapter.Stop(ctx, r); err != nil {
			return err
		}
		c.m.Log.Warn("the start of a component is withheld", "component", c.name, "reason", why)
	case do == withholdIt:
		return c.withhold(why)
	case do == startIt:
		if err := adapter.Start(ctx, r); err != nil {
			return errors.Join(err, c.withhold(fmt.Sprintf("it may run, and its start fails, which is repeated every %s: %v", observeEvery, err)))
		}
		c.m.Log.Info("a component whose start was withheld is started", "component", c.name, "version", f.installed)
		fallthrough
	case f.runs:
		if err := c.withhold(""); err != nil {
			return err
		}
	}
	c.mu.Lock()
	c.unseen = false
	if do != leaveIt {
		c.observeAs()
	}
	c.mu.Unlock()
	if s.Undrain && !f.upgraded && (do == startIt || do == leaveIt && f.runs) {
		return c.undrain(outer, r)
	}
	return nil
}

// undrain runs the hook of a component that was drained when its start was withheld, and runs again.
func (c *component) undrain(ctx context.Context, r *runtime.Release) error {
	c.mu.Lock()
	i := c.state.Installed
	j := &primitive.Journal{Desired: primitive.Desired{Component: c.name, Runtime: r.Component.Runtime}, From: i, To: *i}
	c.mu.Unlock()
	if err := c.newChange(j, nil, nil, nil).Undrain(ctx, r); err != nil {
		return err // it is repeated at the next look
	}
	return c.change(func(s *state) { s.Undrain = false })
}

// withhold records why the start of the component is withheld; empty: it is not.
func (c *component) withhold(why string) error {
	if c.withheld() == why {
		return nil
	}
	defer c.m.Changed(false)
	return c.change(func(s *state) { s.Withheld = why })
}

// enforceAfter is enforce once an upgrade has ended.
func (c *component) enforceAfter(ctx context.Context) {
	if err := c.enforce(context.WithoutCancel(ctx)); err != nil {
		c.m.Log.Warn("whether a component may run is decided at the next look", "component", c.name, "error", err)
	}
}

// keepStopped has the undoing of an upgrade not start the version before where that must not run: other
// hosts may have gone on without this one. enforce starts it once it may run.
func (w *work) keepStopped() {
	c, j := w.c, w.j
	if j.From == nil {
		return
	}
	c.mu.Lock()
	f, why := c.facts(), c.state.Withheld
	c.mu.Unlock()
	f.installed = j.From.FullVersion()
	if why == "" && j.Ran {
		why = f.forbids()
	}
	if why == "" {
		return
	}
	drained := j.Extras.Drained
	j.Ran, j.Runs, j.Extras.Drained = false, false, false
	c.note(func(s *state) { s.Withheld, s.Undrain = why, s.Undrain || drained })
}
