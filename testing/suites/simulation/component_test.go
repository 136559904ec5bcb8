package simulation

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/muster-fleet/muster/server/fleet"
	"github.com/muster-fleet/muster/server/store/event"
	"github.com/muster-fleet/muster/server/wire/agentapi"
)

// How long the parts of a component's upgrade take. The host observes a new version itself, and
// then reports it.
const (
	replaceTime = 2 * time.Second
	observeTime = time.Minute
	undoTime    = 3 * time.Second
)

// component is a component of a simulated host.
type component struct {
	name, version, kept, healthy string
	details                      *agentapi.UpgradeDetails
	job                          string // the action that upgrades it
	begun                        bool   // it can no longer be cancelled
	broken                       string
	together                     *together // how it is upgraded in lockstep; nil: the host does not know how
}

func (c *component) report() agentapi.Component {
	status, message := "HEALTHY", ""
	switch {
	case c.broken != "":
		status, message = "FAILED", c.broken
	case c.job != "":
		status, message = "STARTING", "it is being upgraded"
	case c.version == "":
		status, message = "STOPPED", "no version is installed yet"
	}
	r := agentapi.Component{
		ID: "component-" + c.name, Type: "process", Status: status, Message: message,
		ComponentReport: agentapi.ComponentReport{Name: c.name, Runtime: "process", Version: c.version, LastHealthyVersion: c.healthy, UpgradeDetails: c.details},
	}
	if c.kept != "" {
		r.Rollbacks = []string{c.kept}
	}
	if r.Lockstep = c.together != nil; r.Lockstep {
		r.StartWithheld = c.together.held
	}
	return r
}

func (a *Agent) component(name string) *component {
	for _, c := range a.components {
		if c.name == name {
			return c
		}
	}
	return nil
}

// reportComponents returns what a check-in says of the components; nil for a host without any.
func (a *Agent) reportComponents() json.RawMessage {
	if len(a.components) == 0 {
		return nil
	}
	var list []agentapi.Component
	for _, c := range a.components {
		list = append(list, c.report())
	}
	return event.Data(list)
}

// upgradeComponent executes an UPGRADE of a component. How the host behaves on a version is in
// Behave under name/version: Crash makes it unhealthy while it is observed, and with Stuck the
// earlier version cannot be put back.
func (a *Agent) upgradeComponent(ctx context.Context, act agentapi.Action, d agentapi.UpgradeData) error {
	c := a.component(d.Component.Name)
	if c != nil && c.together != nil && d.Component.Lockstep != nil {
		return a.upgradeTogether(ctx, c, act, d)
	}
	if c == nil || c.job != "" {
		return a.ack(ctx, act.ID, "component "+d.Component.Name+" is not in the policy, or is being upgraded")
	}
	b := a.Behave[c.name+"/"+d.Version]
	c.job, c.begun, c.broken = act.ID, false, ""
	after := func(wait time.Duration, do func(context.Context) error) {
		a.schedule(step{at: a.fleet.Now.UTC().Add(wait), do: do, component: true})
	}
	phase := func(ctx context.Context, s agentapi.UpgradeState) error {
		c.details = &agentapi.UpgradeDetails{TargetVersion: d.Version, ActionID: act.ID, State: s}
		return a.checkinIfConnected(ctx)
	}
	end := func(ctx context.Context, errText string) error {
		c.job = ""
		if err := a.checkinIfConnected(ctx); err != nil || !a.connected() {
			return err
		}
		return a.ack(ctx, act.ID, errText)
	}
	undone := func(ctx context.Context) error {
		m := agentapi.UpgradeMetadata{FailedState: agentapi.UpgradeWatching, ErrorMsg: "version " + d.Version + " is not healthy: check page: 500"}
		if b.Stuck {
			m.ErrorMsg, m.ReasonCode = agentapi.FailedRollback+": "+m.ErrorMsg+"; the old version's folder is gone", agentapi.FailedRollback
			c.broken = m.ErrorMsg
		}
		c.details = &agentapi.UpgradeDetails{TargetVersion: d.Version, ActionID: act.ID, State: agentapi.UpgradeFailed, Metadata: m}
		return end(ctx, m.ErrorMsg)
	}
	observed := func(ctx context.Context) error {
		if b.Crash > 0 {
			after(undoTime, undone)
			return phase(ctx, agentapi.UpgradeRollback)
		}
		c.kept, c.version, c.healthy, c.details = c.version, d.Version, d.Version, nil
		return end(ctx, "")
	}
	wait := observeTime
	if b.Crash > 0 {
		wait = b.Crash
	}
	download := downloadTime + time.Duration(a.hash()%downloadSpread)*time.Second
	if b.Download > 0 {
		download = b.Download
	}
	if d.Rollback {
		download = 0
	}
	after(download, func(ctx context.Context) error {
		if c.job != act.ID {
			return nil // cancelled
		}
		c.begun = true
		after(replaceTime, func(ctx context.Context) error {
			after(wait, observed)
			return phase(ctx, agentapi.UpgradeWatching)
		})
		return phase(ctx, agentapi.UpgradeReplacing)
	})
	return phase(ctx, agentapi.UpgradeDownloading)
}

// cancelComponent cancels the upgrade of a component, if the action names one that has not
// begun.
func (a *Agent) cancelComponent(ctx context.Context, cancelID, targetID string) (done bool, err error) {
	for _, c := range a.components {
		if c.job != targetID || c.begun {
			continue
		}
		c.job, c.details = "", nil
		if err := a.ack(ctx, targetID, agentapi.Cancelled+" by action "+cancelID); err != nil {
			return true, err
		}
		if err := a.ack(ctx, cancelID, ""); err != nil {
			return true, err
		}
		return true, a.checkinIfConnected(ctx)
	}
	return false, nil
}

// addComponent adds a component to the default policy and its hosts: component web
// version=1.0.0. Without a version none is installed.
func (sim *simulation) addComponent(a arguments) (string, error) {
	name, version := a.word(0), a.named["version"]
	p, err := sim.store.Policies().Get(sim.ctx(), fleet.DefaultPolicyID)
	if err != nil {
		return "", err
	}
	p.Components = append(p.Components, agentapi.PolicyComponent{Name: name, Runtime: "process"})
	if _, err := sim.store.Policies().Update(sim.ctx(), p); err != nil {
		return "", err
	}
	for _, agent := range sim.fleet.Agents() {
		if agent.Policy != p.ID {
			continue
		}
		agent.components = append(agent.components, &component{name: name, version: version, healthy: version})
		if err := agent.checkinIfConnected(sim.ctx()); err != nil {
			return "", err
		}
	}
	return "", nil
}

// PublishComponent adds a package of a component.
func (f *Fleet) PublishComponent(ctx context.Context, name, version string, size int64) error {
	const sum = "4f53cda18c2baa0c0354bb5f9a3ecbe5ed12ab4d8e11ba873c2f11161202b945"
	return f.Store.Packages().Create(ctx, fleet.Package{
		File: fmt.Sprintf("muster-component-%s-%s.tar.gz", name, version), Version: version, Size: size, SHA256: sum, SHA512: sum + sum,
		PushedAt: f.Now.UTC(), PushedBy: "ann", Component: name, Runtime: "process",
	})
}
