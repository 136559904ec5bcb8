package primitive

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"

	"github.com/muster-fleet/muster/agent/foreign"
	"github.com/muster-fleet/muster/agent/runtime"
	"github.com/muster-fleet/muster/packaging/host/disk"
	"github.com/muster-fleet/muster/packaging/pkg/check"
	"github.com/muster-fleet/muster/packaging/pkg/manifest"
)

// Extras are what a change does besides, because the packages of its versions ask for it: hooks, the
// copy of the state, migrations. verify_artifact finds them, before anything is stopped.
type Extras struct {
	Drain   bool `json:"drain,omitempty"`
	Undrain bool `json:"undrain,omitempty"`
	// Drained means that the hook drain was run, or has begun to.
	Drained bool `json:"drained,omitempty"`
	// Backup means that there is state to be copied, or a hook that does it. State are the paths.
	Backup bool     `json:"backup,omitempty"`
	State  []string `json:"state,omitempty"`
	// Saved means that the copy of the state is complete.
	Saved bool `json:"saved,omitempty"`
	// Down means that Migrations go back.
	Down       bool        `json:"down,omitempty"`
	Migrations []Migration `json:"migrations,omitempty"`
}

// Migration is one migration of a change.
type Migration struct {
	Version string `json:"version"`
	Begun   bool   `json:"begun,omitempty"`
	Done    bool   `json:"done,omitempty"`
}

// begun reports whether a migration has begun.
func (p *Extras) begun() bool { return len(p.Migrations) > 0 && p.Migrations[0].Begun }

// AcceptState has undoing leave the state as it is, unless there is a copy to be put back: an
// operator has brought it back by hand.
func (p *Extras) AcceptState() {
	if len(p.State) == 0 {
		p.Migrations = nil
	}
}

// findExtras sets the journal's Extras, and returns an error for what could not be done.
func (c *Change) findExtras(to *runtime.Release) error {
	j := c.Journal
	saved := j.Extras
	j.Extras = Extras{}
	from, err := c.from()
	if err != nil || from == nil || j.Reload {
		return err
	}
	if h := from.Component.Hooks; h != nil && h.Drain != nil && j.Runs {
		j.Extras.Drain = true
		j.Extras.Drained = saved.Drained
		j.Extras.Undrain = to.Component.Hooks != nil && to.Component.Hooks.Undrain != nil
	}
	for _, r := range []*runtime.Release{from, to} {
		if err := c.checkHooks(r); err != nil {
			return err
		}
	}
	if j.configOnly() {
		return nil
	}
	steps, down, err := manifest.Migrate(&from.Component, &to.Component, from.FullVersion(), to.FullVersion())
	if err != nil {
		return err
	}
	j.Extras.Down = down
	for _, s := range steps {
		j.Extras.Migrations = append(j.Extras.Migrations, Migration{Version: s.Version})
	}
	j.Extras.State = outermost(slices.Concat(from.Component.StatePaths, to.Component.StatePaths))
	j.Extras.Backup = len(j.Extras.State) > 0 || from.Component.Hooks != nil && from.Component.Hooks.Backup != nil
	if saved.Saved || saved.begun() { // an interrupted change goes on
		j.Extras = saved
	}
	return c.checkState()
}

// outermost returns the paths that are in none of the others.
func outermost(paths []string) []string {
	slices.Sort(paths)
	var out []string
	for _, p := range paths { // a folder sorts before what is in it
		if !slices.ContainsFunc(out, func(o string) bool { return p == o || strings.HasPrefix(p, o+"/") }) {
			out = append(out, p)
		}
	}
	return out
}

// checkHooks returns an error if the account does not exist that runs a version's hooks.
func (c *Change) checkHooks(r *runtime.Release) error {
	if _, err := c.hookAccount(r); err != nil {
		return fmt.Errorf("hooks of %s %s: %w", r.Name, r.FullVersion(), err)
	}
	return nil
}

func (c *Change) hookAccount(r *runtime.Release) (disk.Owner, error) {
	if h := r.Component.Hooks; h != nil {
		return c.Account(h.User, h.Group)
	}
	return disk.Own, nil
}

// checkState returns an error unless the state can be copied, and put back.
func (c *Change) checkState() error {
	var need int64
	for _, path := range c.Journal.Extras.State {
		if err := c.checkApart(path); err != nil {
			return err
		}
		n, err := c.checkStatePath(path)
		if err != nil {
			return err
		}
		need += n
	}
	if need == 0 || c.Journal.Extras.Saved {
		return nil
	}
	free, err := c.Disk.Free(VerifyArtifact, c.Dir)
	if err != nil {
		return err
	}
	if free < need {
		return fmt.Errorf("%w: the copy of the component's state needs %d bytes in %s, and %d are free", disk.ErrNoSpace, need, c.Dir, free)
	}
	return nil
}

// checkStatePath returns how many bytes are at a state path, if they can be replaced.
func (c *Change) checkStatePath(path string) (need int64, err error) {
	link := false
	err = c.inFolder(VerifyArtifact, path, func(parent disk.Folder, name string) error {
		fi, err := parent.Lstat(name)
		switch {
		case err != nil:
			return err
		case fi.Mode()&fs.ModeSymlink != 0:
			link = true
			return nil
		case !fi.IsDir():
			need = fi.Size()
			return checkCreate(parent, name)
		}
		folder, err := parent.OpenFolder(name)
		if err != nil {
			return err
		}
		if need, err = foreign.Size(folder); err == nil {
			err = checkCreate(folder, name)
		}
		return errors.Join(err, folder.Close())
	})
	switch {
	case missing(err):
		return 0, nil
	case err == nil && link:
		return 0, fmt.Errorf("state path %s is a link: name what it leads to", path)
	case err != nil:
		return 0, fmt.Errorf("state path %s: %w", path, err)
	}
	return need, nil
}

// checkApart refuses a state path that is in the agent's folder, or holds it.
func (c *Change) checkApart(path string) error {
	if err := c.checkOutside("state path", path); err != nil {
		return err
	}
	return c.eachOwn(func(own, real string) error {
		if c.in(real, path) {
			return fmt.Errorf("state path %s: it would hold the agent's own folder %s: name the folders in it that the component has", path, own)
		}
		return nil
	})
}

// hook runs a hook of a version, with its timeout, and with variables besides those of all hooks.
func (c *Change) hook(ctx context.Context, r *runtime.Release, h manifest.Hook, env ...string) (status int, err error) {
	as, err := c.hookAccount(r)
	if err != nil {
		return -1, err
	}
	j := c.Journal
	vars := []string{"MUSTER_COMPONENT=" + r.Name, "MUSTER_TO=" + j.To.FullVersion(), "MUSTER_DATA_DIR=" + r.Component.DataDir}
	if j.From != nil {
		vars = append(vars, "MUSTER_FROM="+j.From.FullVersion())
	}
	limited, cancel := context.WithTimeout(ctx, h.Bound())
	defer cancel()
	status, err = c.Execute(limited, check.Program{Home: r.Home, Exec: h.Exec, Env: append(vars, env...), As: as})
	switch {
	case err == nil:
		return status, nil
	case ctx.Err() != nil: // it was stopped, and has not failed
		return -1, context.Cause(ctx)
	case limited.Err() != nil:
		return -1, fmt.Errorf("after %s: %w", h.Bound(), err)
	}
	return status, err
}
