package component

import (
	"cmp"
	"context"
	"errors"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/muster-fleet/muster/agent/primitive"
	"github.com/muster-fleet/muster/agent/runtime"
	"github.com/muster-fleet/muster/agent/steps"
	"github.com/muster-fleet/muster/packaging/host/disk"
	"github.com/muster-fleet/muster/packaging/host/layout"
	"github.com/muster-fleet/muster/packaging/pkg/install"
	"github.com/muster-fleet/muster/packaging/pkg/manifest"
	"github.com/muster-fleet/muster/watcher/probe"
)

// observeEvery is how often components are looked at that are not being upgraded. Their
// failures reach the server within two looks, and ten components cost next to nothing.
const observeEvery = 10 * time.Second

// tidyTimeout bounds the removal of what an upgrade leaves: a runtime that does not answer must
// not keep the component from its next upgrade.
const tidyTimeout = time.Minute

// statusTimeout bounds one look at a component.
const statusTimeout = 5 * time.Second

// Run looks at the components until ctx ends.
func (m *Manager) Run(ctx context.Context) {
	tick := time.NewTicker(observeEvery)
	defer tick.Stop()
	for ctx.Err() == nil {
		m.look(ctx)
		select {
		case <-tick.C:
		case <-m.kick:
		case <-ctx.Done():
		}
	}
}

// lookSoon has Run look at the components at once, after one of them has changed.
func (m *Manager) lookSoon() {
	select {
	case m.kick <- struct{}{}:
	default: // it is about to
	}
}

// look looks once at every component that is not being upgraded.
func (m *Manager) look(ctx context.Context) {
	var looks sync.WaitGroup
	for _, c := range m.all() {
		looks.Go(func() {
			if c.look(ctx) {
				m.Changed(false)
			}
		})
	}
	looks.Wait()
}

// look reports whether what is reported has changed.
func (c *component) look(ctx context.Context) bool {
	select {
	case c.busy <- struct{}{}:
		defer c.unlock()
	default:
		return false
	}
	if err := c.enforce(ctx); err != nil && ctx.Err() == nil {
		c.m.Log.Warn("a component is not as the version in force asks", "component", c.name, "error", err)
	}
	adapter, r, err := c.current()
	c.mu.Lock()
	rules := c.rules
	c.mu.Unlock()
	var (
		s    sample
		gone bool
	)
	switch {
	case err != nil:
		s = sample{at: time.Now(), status: runtime.Status{Message: err.Error()}, unknown: true}
	case r == nil:
		return false
	default:
		s = c.m.sample(ctx, adapter, r, &rules)
		gone = c.findGone(ctx, adapter, time.Now())
	}
	if ctx.Err() != nil {
		return false
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	state, message := c.health()
	c.seen.add(s, &rules)
	now, text := c.health()
	return gone || now != state || now != probe.Healthy && text != message
}

// sample looks once at a component.
func (m *Manager) sample(ctx context.Context, a runtime.Adapter, r *runtime.Release, rules *Rules) sample {
	look, cancel := context.WithTimeout(ctx, statusTimeout)
	defer cancel()
	st, err := a.Status(look, r)
	s := sample{at: time.Now(), status: st}
	if err != nil {
		s = silent(err)
	}
	if !s.status.Running {
		return s
	}
	s.checks = make([]error, len(rules.Checks))
	var tries sync.WaitGroup
	for i, c := range rules.Checks {
		tries.Go(func() {
			limited, cancel := context.WithTimeout(ctx, c.Timeout)
			defer cancel()
			if i < rules.Signed {
				s.checks[i] = m.Check(limited, r.Home, c)
			} else {
				s.checks[i] = m.PolicyCheck(limited, c)
			}
		})
	}
	tries.Wait()
	return s
}

// silent is a sample of which nothing is known.
func silent(err error) sample {
	return sample{at: time.Now(), status: runtime.Status{Message: err.Error()}, unknown: true, err: err}
}

func (m *Manager) packageOf(dir, home string) (manifest.Package, error) {
	return install.ReadHome(m.Disk, dir, home)
}

// clean removes versions that are not kept, what a crash has left of others, and old backups.
// What cannot be removed now is removed after the next upgrade.
func (c *component) clean(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, tidyTimeout)
	defer cancel()
	d := c.m.Disk
	warn := func(what string, err error) {
		if err != nil {
			c.m.Log.Warn("not removed", "component", c.name, "what", what, "error", err)
		}
	}
	c.mu.Lock()
	s, adapter := c.state.clone(), c.m.Adapters[cmp.Or(c.state.Runtime, c.policy.Runtime)]
	c.mu.Unlock()
	homes, err := d.ReadDir(op, filepath.Join(c.dir, layout.DataDir))
	if !errors.Is(err, fs.ErrNotExist) { // nothing was ever unpacked
		warn(layout.DataDir, err)
	}
	j, err := steps.Read[primitive.Journal](journalOf(d, c.dir))
	warn(journalFile, err)
	for _, e := range homes {
		home := layout.DataDir + "/" + e.Name()
		if strings.HasPrefix(e.Name(), layout.StagingPrefix) { // it was being unpacked or removed
			warn(home, d.RemoveAll(op, layout.Path(c.dir, home)))
			continue
		}
		r, err := primitive.Release(d, c.dir, c.name, primitive.Installed{Home: home})
		if err != nil || s.has(home) || j != nil && j.To.Home == home { // an upgrade to it goes on
			continue
		}
		if adapter != nil { // the agent may be older than the policy
			warn("what the runtime has fetched for "+home, adapter.Discard(ctx, r))
		}
		warn(home, disk.RemoveHome(d, c.dir, home))
	}
	warn("downloads", d.RemoveAll(op, filepath.Join(c.dir, "downloads")))
	c.cleanBackups(&s, warn)
}

// cleanBackups removes old backups. The newest of a version that the host keeps stays: a
// rollback restores its configuration from it.
func (c *component) cleanBackups(s *state, warn func(what string, err error)) {
	d, dir := c.m.Disk, filepath.Join(c.dir, "backup")
	entries, err := d.ReadDir(op, dir)
	if err != nil {
		if !errors.Is(err, fs.ErrNotExist) {
			warn(dir, err)
		}
		return
	}
	type dated struct {
		name string
		at   time.Time
	}
	var list []dated
	for _, e := range entries {
		if fi, err := e.Info(); err == nil {
			list = append(list, dated{e.Name(), fi.ModTime()})
		}
	}
	slices.SortFunc(list, func(a, b dated) int { return b.at.Compare(a.at) })
	seen := map[string]bool{}
	for i, b := range list {
		home := primitive.BackupHome(d, filepath.Join(dir, b.name))
		newest := home != "" && !seen[home]
		seen[home] = true
		if i >= maxBackups && !(newest && s.has(home)) {
			warn("backup "+b.name, d.RemoveAll(op, filepath.Join(dir, b.name)))
		}
	}
}
