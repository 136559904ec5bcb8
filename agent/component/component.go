// Package component runs what a host runs: it upgrades components by the actions of package
// primitive, observes their health, and knows which versions are installed. The policy says
// which components there are; an UPGRADE from the queue says which version; the adapters of
// package runtime do it. The daemon calls Upgrade with what is due, and reports what Reports
// returns.
//
// All about one component is in its folder: the versions, the link to the installed one, the
// record of its state, and while it is upgraded the journal. So an upgrade that was
// interrupted is continued or undone by whichever process comes next.
package component

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"math"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/muster-fleet/muster/agent/primitive"
	"github.com/muster-fleet/muster/agent/runtime"
	"github.com/muster-fleet/muster/agent/steps"
	"github.com/muster-fleet/muster/packaging/host/disk"
	"github.com/muster-fleet/muster/packaging/pkg/check"
	"github.com/muster-fleet/muster/packaging/pkg/manifest"
	"github.com/muster-fleet/muster/server/wire/agentapi"
	"github.com/muster-fleet/muster/watcher/handoff"
	"github.com/muster-fleet/muster/watcher/probe"
)

// FolderName is the folder of all components below the agent's top folder.
const FolderName = "components"

// Options are what a Manager depends on. All fields but Links are required.
type Options struct {
	Disk         disk.Disk
	Top          string // the agent's top folder, absolute
	Links        string // the folder of its pointer; empty: Top
	GOOS, GOARCH string
	// Adapters are the runtimes of this host, by name.
	Adapters map[string]runtime.Adapter
	Packages primitive.Packages
	// Check runs a health check of a package in the folder of its version, PolicyCheck one that
	// a policy adds.
	Check       func(ctx context.Context, home string, c manifest.Check) error
	PolicyCheck func(ctx context.Context, c manifest.Check) error
	// Execute runs a hook of a package.
	Execute func(context.Context, check.Program) (status int, err error)
	// Account returns the numbers of a user and a group.
	Account func(user, group string) (disk.Owner, error)
	// Keep bounds the versions besides the installed one. Its Window is not used.
	Keep handoff.Limits
	// Changed is called when a report has changed; progress says that only the progress
	// within a phase has.
	Changed func(progress bool)
	Log     *slog.Logger
}

// stopped is the state of a component of which no version is installed.
const stopped probe.State = "stopped"

// Manager runs the components of a host.
type Manager struct {
	Options

	// kick has Run look at the components at once.
	kick chan struct{}
	// confirmed means that the server has answered this agent; see Confirmed.
	confirmed atomic.Bool
	// stops is held for reading while a component is stopped for its upgrade, and for
	// writing while none may be.
	stops sync.RWMutex

	mu         sync.Mutex
	components map[string]*component
	names      []string // names in the order of the policy
}

// component is one component of the host.
type component struct {
	m    *Manager
	name string
	dir  string
	// busy holds a value while the component is upgraded or looked at.
	busy chan struct{}
	// stages holds a value while a version is staged, and while none may be.
	stages chan struct{}
	// proceeded has a value once proceed has changed.
	proceeded chan struct{}

	mu      sync.Mutex
	policy  agentapi.PolicyComponent
	state   state
	problem string // why it cannot be run, before anything is known of it
	// lost is since when this agent has no runtime for it, or zero.
	lost    time.Time
	details *agentapi.UpgradeDetails
	rules   Rules
	seen    observation
	// gone are the homes of versions beside the installed one whose image, or the like, the host has
	// lost; goneAt is when that was looked at.
	gone    map[string]bool
	goneAt  time.Time
	running string // id of the upgrade under way
	cancel  context.CancelCauseFunc
	proceed proceed
	// staysStopped means that the installed version can be upgraded in lockstep.
	staysStopped bool
	// unseen means that this agent does not know yet whether it ran when the agent started.
	unseen bool
	// staging is the stage under way, or the last one if it failed; cancelStage ends it.
	staging     *agentapi.UpgradeDetails
	cancelStage context.CancelCauseFunc
}

// New returns a Manager of no components; see Follow.
func New(o Options) *Manager {
	o.Keep.Window = math.MaxInt64 // a component can be rolled back at any time
	return &Manager{Options: o, kick: make(chan struct{}, 1), components: map[string]*component{}}
}

// Follow takes the components of a policy, the first time before any upgrade. What is no
// longer in the policy is left as it is, and no longer reported; a process of the agent's own
// is stopped. It returns an error if the policy cannot be used as a whole.
func (m *Manager) Follow(ctx context.Context, list []agentapi.PolicyComponent) error {
	if len(list) > agentapi.MaxComponents { // it is refused as a whole
		return fmt.Errorf("the policy has %d components, want at most %d", len(list), agentapi.MaxComponents)
	}
	m.mu.Lock()
	m.names = m.names[:0]
	var gone, added []*component
	for name, c := range m.components {
		if !slices.ContainsFunc(list, func(p agentapi.PolicyComponent) bool { return p.Name == name }) {
			gone = append(gone, c)
			delete(m.components, name)
		}
	}
	for _, p := range list {
		if manifest.ValidComponentName(p.Name) != nil || slices.Contains(m.names, p.Name) {
			continue // the server checks policies
		}
		m.names = append(m.names, p.Name)
		c := m.components[p.Name]
		if c == nil {
			c = &component{m: m, name: p.Name, dir: filepath.Join(m.Top, FolderName, p.Name), busy: make(chan struct{}, 1), stages: make(chan struct{}, 1), proceeded: make(chan struct{}, 1), unseen: true}
			m.components[p.Name] = c
			c.load()
			added = append(added, c)
		}
		c.follow(p)
	}
	m.mu.Unlock()
	var errs []error
	for _, c := range gone {
		errs = append(errs, c.unfollow(ctx))
	}
	for _, c := range added {
		errs = append(errs, c.resume(ctx), c.trim(ctx))
	}
	m.Changed(false)
	m.lookSoon()
	return errors.Join(errs...)
}

// Names returns the names of the components, in the order of the policy.
func (m *Manager) Names() []string {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Clone(m.names)
}

func (m *Manager) component(name string) *component {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.components[name]
}

func (m *Manager) all() []*component {
	m.mu.Lock()
	defer m.mu.Unlock()
	out := make([]*component, 0, len(m.names))
	for _, name := range m.names {
		out = append(out, m.components[name])
	}
	return out
}

// load reads the component's state. An unreadable one is like none: what is installed is
// found by the link.
func (c *component) load() {
	s, err := readState(c.m.Disk, c.dir)
	if err != nil {
		c.m.Log.Warn("the state of a component was unreadable", "component", c.name, "error", err)
	}
	if s.Installed == nil {
		s.Installed = c.findInstalled()
	}
	c.state, c.details = s, s.Report
}

// findInstalled returns the version that the component's link leads to, if there is one. During
// an upgrade that is the one before: the link may lead to a version that is undone yet.
func (c *component) findInstalled() *primitive.Installed {
	if j, err := steps.Read[primitive.Journal](journalOf(c.m.Disk, c.dir)); err == nil && j != nil {
		return j.From
	}
	home, err := primitive.Current(c.m.Disk, c.dir)
	if err != nil || home == "" {
		return nil
	}
	r, err := primitive.Release(c.m.Disk, c.dir, c.name, primitive.Installed{Home: home})
	if err != nil {
		return nil
	}
	return &primitive.Installed{Identity: r.Identity, Home: home}
}

// follow takes what the policy says about the component.
func (c *component) follow(p agentapi.PolicyComponent) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.policy, c.problem, c.lost = p, "", time.Time{}
	if c.m.Adapters[p.Runtime] == nil {
		if c.state.Installed != nil && cmp.Or(c.state.Runtime, p.Runtime) == p.Runtime { // an earlier agent had it
			c.lost = time.Now()
		}
		c.problem = fmt.Sprintf("this agent has no runtime %q: it has %s", p.Runtime, strings.Join(slices.Sorted(maps.Keys(c.m.Adapters)), ", "))
	}
	if err := checkHealth(p.Health); err != nil {
		c.problem, c.policy.Health = "the policy is refused: "+err.Error(), agentapi.ComponentHealth{}
	}
	c.observeAs()
}

// observeAs sets the rules by which the installed version is observed, and begins anew. The
// caller holds c.mu.
func (c *component) observeAs() {
	c.seen, c.rules, c.staysStopped = observation{}, newRules(nil, c.policy.Health), true
	if c.state.Installed == nil {
		return
	}
	if p, err := c.m.packageOf(c.dir, c.state.Installed.Home); err == nil {
		c.rules = newRules(p.Checks, c.policy.Health)
		c.staysStopped = primitive.StaysStopped(p.Component)
	}
}

// unfollow stops managing the component. Nobody else would stop a process of the agent's own.
func (c *component) unfollow(ctx context.Context) error {
	c.stop(errors.New("the component is no longer in the policy"))
	if err := c.lock(ctx); err != nil {
		return err
	}
	defer c.unlock()
	adapter, r, err := c.current()
	if err != nil || r == nil {
		return err
	}
	if s, ok := adapter.(runtime.Supervisor); ok {
		return s.Stop(ctx, r)
	}
	return nil
}

// resume takes up the supervision of the component, if that is the agent's task.
func (c *component) resume(ctx context.Context) error {
	adapter, r, err := c.current()
	if err != nil || r == nil {
		return err
	}
	c.mu.Lock()
	withheld := r.WithheldAtBoot || inForce(c.policy)
	c.mu.Unlock()
	if withheld {
		// What is being upgraded or looked at is locked by whoever does that.
		select {
		case c.busy <- struct{}{}:
			err = c.enforceAt(ctx, true)
			c.unlock()
		default:
		}
	}
	if s, ok := adapter.(runtime.Supervisor); ok {
		r.WithheldAtBoot = withheld // also of a version that was installed before its policy said so
		err = errors.Join(err, s.Resume(ctx, r))
	}
	return err
}

// Detach ends the supervision of components before the agent is replaced or ends. What runs
// goes on. No upgrade may act; see PauseStops.
func (m *Manager) Detach() {
	for _, a := range m.Adapters {
		if s, ok := a.(runtime.Supervisor); ok {
			s.Detach()
		}
	}
}

// Resume takes up the supervision again after Detach.
func (m *Manager) Resume(ctx context.Context) {
	for _, c := range m.all() {
		c.mu.Lock()
		c.unseen = true
		c.mu.Unlock()
		if err := c.resume(ctx); err != nil {
			m.Log.Error("a component is not supervised", "component", c.name, "error", err)
		}
	}
}

// lock waits until nothing else is done with the component.
func (c *component) lock(ctx context.Context) error {
	select {
	case c.busy <- struct{}{}:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func (c *component) unlock() { <-c.busy }

// current returns the adapter and the release of the installed version, nil if there is none.
func (c *component) current() (runtime.Adapter, *runtime.Release, error) {
	c.mu.Lock()
	installed, name := c.state.Installed, c.state.Runtime
	if name == "" {
		name = c.policy.Runtime
	}
	c.mu.Unlock()
	adapter := c.m.Adapters[name]
	if installed == nil || adapter == nil {
		return adapter, nil, nil
	}
	r, err := primitive.Release(c.m.Disk, c.dir, c.name, *installed)
	return adapter, r, err
}

// pausePoll is how often PauseStops looks whether a component has been started again.
const pausePoll = 50 * time.Millisecond

// PauseStops waits until no component is stopped for its upgrade, and keeps others from being
// stopped until resume is called.
func (m *Manager) PauseStops(ctx context.Context) (resume func(), err error) {
	tick := time.NewTicker(pausePoll)
	defer tick.Stop()
	for !m.stops.TryLock() {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
	return m.stops.Unlock, nil
}

// Reports returns what is reported of the components, in the order of the policy.
func (m *Manager) Reports() []agentapi.Component {
	var out []agentapi.Component
	for _, c := range m.all() {
		out = append(out, c.report())
	}
	return out
}

func (c *component) report() agentapi.Component {
	c.mu.Lock()
	defer c.mu.Unlock()
	state, message := c.health()
	r := agentapi.Component{
		ID: "component-" + c.name, Type: c.policy.Runtime, Status: strings.ToUpper(string(state)), Message: message,
		ComponentReport: agentapi.ComponentReport{
			Name: c.name, Runtime: c.policy.Runtime, Version: c.state.installed(), LastHealthyVersion: c.state.LastHealthy,
			Rollbacks: names(c.state.Kept()), RollbackProblems: c.keptProblems(), Lockstep: c.staysStopped, StartWithheld: c.state.Withheld != "",
		},
	}
	if i := c.state.Installed; i != nil {
		r.Hash, r.Image, r.ConfigSHA256, r.RenderedSHA256 = i.Hash, i.Image, i.ConfigSHA256, i.RenderedSHA256
	}
	if c.seen.looked() {
		r.Restarts = c.seen.last.status.Restarts
		if since := c.seen.last.status.Since; !since.IsZero() {
			r.Since = &since
		}
	}
	if c.details != nil {
		d := *c.details
		r.UpgradeDetails = &d
	}
	unit, err := json.Marshal([]map[string]string{{"id": r.ID, "type": "input", "status": r.Status, "message": r.Message}})
	if err == nil {
		r.Units = unit
	}
	return r
}

// health returns the component's state. The caller holds c.mu.
func (c *component) health() (probe.State, string) {
	switch {
	case c.problem != "":
		return probe.Failed, c.problem
	case c.state.Broken != "":
		return probe.Failed, c.state.Broken
	case c.running != "":
		return probe.Starting, "it is being upgraded"
	case c.state.Installed == nil:
		return stopped, "no version is installed yet"
	case c.state.Withheld != "":
		return stopped, c.state.Withheld
	}
	return c.seen.health(&c.rules, c.seen.last.at)
}

// FailedSince returns since when a component has failed although nobody stopped it and its runtime answers,
// or zero.
func (m *Manager) FailedSince(name string) time.Time {
	c := m.component(name)
	if c == nil {
		return time.Time{}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case !c.lost.IsZero():
		return c.lost
	case c.problem != "", c.state.Broken != "", c.running != "", c.state.Installed == nil, c.state.Withheld != "":
		return time.Time{}
	}
	return c.seen.failedSince(&c.rules, c.seen.last.at)
}

// Unanswered is a runtime that has not answered the agent about a component.
type Unanswered struct {
	Runtime string
	Err     error
	// AtFault means that the runtime is there, and the agent cannot use it, for so long that it is not busy
	// with itself.
	AtFault bool
}

// Unanswered returns the runtimes that did not answer about a component when it was looked at last, in the
// order of the policy.
func (m *Manager) Unanswered(now time.Time) []Unanswered {
	var out []Unanswered
	for _, c := range m.all() {
		c.mu.Lock()
		since, err := c.seen.unanswered()
		u := Unanswered{Runtime: c.policy.Runtime, Err: err}
		c.mu.Unlock()
		if err == nil {
			continue
		}
		_, own := m.Adapters[u.Runtime].(runtime.Supervisor)
		u.AtFault = atFault(err, own, now.Sub(since))
		i := slices.IndexFunc(out, func(o Unanswered) bool { return o.Runtime == u.Runtime })
		switch {
		case i < 0:
			out = append(out, u)
		case u.AtFault && !out[i].AtFault:
			out[i] = u
		}
	}
	return out
}

// atFault reports whether the agent is at fault for a runtime that has not answered for so long. own is one
// that the agent is itself.
func atFault(err error, own bool, silent time.Duration) bool {
	return silent >= silentTolerance && (errors.Is(err, runtime.ErrRefused) || own && !disk.IsHostFault(err))
}

// Health returns the worst state of the components, for the agent's own.
func (m *Manager) Health() (probe.State, string) {
	for _, c := range m.all() {
		c.mu.Lock()
		state, message := c.health()
		c.mu.Unlock()
		if state == probe.Failed || state == probe.Degraded {
			// The agent is not FAILED for a component: whether its version is at fault is decided by
			// comparison with the version before; see handoff.Before.
			return probe.Degraded, fmt.Sprintf("component %s: %s", c.name, message)
		}
	}
	return probe.Healthy, ""
}

// History returns the last upgrades of a component, oldest first.
func (m *Manager) History(name string) ([]probe.WorkloadEvent, error) {
	c := m.component(name)
	if c == nil {
		return nil, m.unknown(name)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.state.History), nil
}

// Logs returns the last lines of a component's output.
func (m *Manager) Logs(ctx context.Context, name string, lines int) ([]string, error) {
	c := m.component(name)
	if c == nil {
		return nil, m.unknown(name)
	}
	adapter, r, err := c.current()
	if err != nil {
		return nil, err
	}
	if r == nil {
		return nil, fmt.Errorf("no version of component %s is installed, so there is no output", name)
	}
	return adapter.Logs(ctx, r, lines)
}

// Known returns an error unless the policy has the component.
func (m *Manager) Known(name string) error {
	if m.component(name) == nil {
		return m.unknown(name)
	}
	return nil
}

func (m *Manager) unknown(name string) error {
	names := m.Names()
	if len(names) == 0 {
		return fmt.Errorf("there is no component %s: the host's policy has none", name)
	}
	return fmt.Errorf("there is no component %s: the host's policy has %s", name, strings.Join(names, ", "))
}
