package component

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/muster-fleet/muster/agent/primitive"
	"github.com/muster-fleet/muster/agent/request"
	"github.com/muster-fleet/muster/agent/runtime"
	"github.com/muster-fleet/muster/agent/steps"
	"github.com/muster-fleet/muster/packaging/host/disk"
	"github.com/muster-fleet/muster/packaging/host/layout"
	"github.com/muster-fleet/muster/server/wire/agentapi"
	"github.com/muster-fleet/muster/watcher/handoff"
	"github.com/muster-fleet/muster/watcher/probe"
)

// errBusy is returned for what must wait until the component is neither upgraded nor staged.
var errBusy = fmt.Errorf("%w: the component is being upgraded or staged", request.ErrBusy)

// besides returns an installed version as one of those besides the one that will be.
func besides(i primitive.Installed) handoff.Version {
	return handoff.Version{Install: handoff.Install{Identity: i.Identity, Home: i.Home}, Archive: i.Archive}
}

// trim removes the versions that the limits, which may have changed, do not allow any more.
func (c *component) trim(ctx context.Context) error {
	now := time.Now().UTC()
	c.mu.Lock()
	surplus := handoff.Surplus(c.state.OnHost, c.m.Keep, now)
	c.mu.Unlock()
	if len(surplus) == 0 {
		return nil
	}
	if err := c.change(func(s *state) { s.Trim(c.m.Keep, now) }); err != nil {
		return err
	}
	c.clean(ctx)
	return nil
}

// names returns the full versions of a list.
func names(list []handoff.Version) []string {
	var out []string
	for _, v := range list {
		out = append(out, v.FullVersion())
	}
	return out
}

// size returns the size of a version's files, 0 if it cannot be known: it only bounds what stays.
func (c *component) size(home string) int64 {
	n, err := disk.Size(c.m.Disk, op, layout.Path(c.dir, home))
	if err != nil {
		c.m.Log.Warn("the size of a version is not known", "component", c.name, "home", home, "error", err)
		return 0
	}
	return n
}

// Versions returns the versions of a component on the host: the installed one, then the staged
// and the kept ones, the newest first.
func (m *Manager) Versions(name string) []probe.Version {
	c := m.component(name)
	if c == nil {
		return nil
	}
	c.mu.Lock()
	s, gone := c.state.clone(), c.gone
	c.mu.Unlock()
	var out []probe.Version
	if i := s.Installed; i != nil {
		out = append(out, probe.Version{Version: i.FullVersion(), Hash: i.Hash, State: probe.VersionRunning})
	}
	add := func(list []handoff.Version, state probe.VersionState) {
		for _, v := range slices.Backward(list) {
			since := v.ReplacedAt
			if state == probe.VersionStaged {
				since = v.StagedAt
			}
			is := probe.Version{Version: v.FullVersion(), Hash: v.Hash, State: state, Since: since, Bytes: v.Bytes}
			if gone[v.Home] {
				is.Problem = goneText
			}
			out = append(out, is)
		}
	}
	add(s.Staged(), probe.VersionStaged)
	add(s.Kept(), probe.VersionPrevious)
	return out
}

// goneEvery is how often the host is asked whether it still has what the versions beside the
// installed one need: operators remove images by hand, or with a job of the night.
const goneEvery = time.Minute

const goneText = "what its runtime needs of it, such as its image, is gone from this host: it is fetched again when the host goes to this version, if its source still has it"

// keptProblems returns the kept versions that lack something, with what they lack. The caller holds
// c.mu.
func (c *component) keptProblems() []agentapi.RollbackProblem {
	var out []agentapi.RollbackProblem
	for _, v := range c.state.Kept() {
		if c.gone[v.Home] {
			out = append(out, agentapi.RollbackProblem{Version: v.FullVersion(), Reason: goneText})
		}
	}
	return out
}

// findGone notes which of the versions beside the installed one lack what their runtime has acquired, and
// reports whether that has changed. What cannot be known is as it was.
func (c *component) findGone(ctx context.Context, adapter runtime.Adapter, now time.Time) (changed bool) {
	c.mu.Lock()
	due := now.Sub(c.goneAt) >= goneEvery
	list, was := c.state.OnHost, c.gone
	c.mu.Unlock()
	if !due || adapter == nil {
		return false
	}
	gone := map[string]bool{}
	for _, v := range list {
		r, err := primitive.Release(c.m.Disk, c.dir, c.name, primitive.Installed{Home: v.Home})
		if err != nil {
			continue
		}
		look, cancel := context.WithTimeout(ctx, statusTimeout)
		if has, err := adapter.Acquired(look, r); err == nil && !has || err != nil && was[v.Home] {
			gone[v.Home] = true
		}
		cancel()
	}
	c.mu.Lock()
	c.gone, c.goneAt = gone, now
	c.mu.Unlock()
	return !maps.Equal(gone, was)
}

// RemoveVersion removes a version of a component, which must not be the installed one, from the
// host. The error is [request.ErrBusy] while the component is upgraded or staged.
func (m *Manager) RemoveVersion(ctx context.Context, name, version string) error {
	c := m.component(name)
	if c == nil {
		return m.unknown(name)
	}
	if !c.beginStage(func(error) {}) {
		return errBusy
	}
	defer c.endStage()
	if err := c.lock(ctx); err != nil { // a look at it takes seconds
		return err
	}
	defer c.unlock()
	c.mu.Lock()
	s := c.state.clone()
	c.mu.Unlock()
	if version == s.installed() {
		return fmt.Errorf("version %s of %s is the installed one: switch to another one before you remove it", version, name)
	}
	// What is left of an upgrade may need the version.
	if j, err := steps.Read[primitive.Journal](journalOf(c.m.Disk, c.dir)); err != nil || j != nil && !s.isCompleted(j.Desired.ID) {
		return errors.Join(errBusy, err)
	}
	var gone []string
	for _, v := range s.OnHost {
		if v.FullVersion() == version {
			gone = append(gone, v.Home)
		}
	}
	if len(gone) == 0 {
		return fmt.Errorf("version %s of %s is not on this host, which has %s", version, name, strings.Join(append([]string{s.installed()}, names(s.OnHost)...), ", "))
	}
	if err := c.change(func(s *state) { s.Remove(gone...) }); err != nil {
		return err
	}
	c.m.Log.Info("a version of a component is removed from the host", "component", name, "version", version)
	c.m.Changed(false)
	c.clean(ctx)
	return nil
}
