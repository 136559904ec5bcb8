package docker

import (
	"context"
	"fmt"
	"path/filepath"
	"strings"

	"github.com/containerd/errdefs"
	"github.com/moby/moby/client"

	"github.com/muster-fleet/muster/agent/runtime"
	"github.com/muster-fleet/muster/packaging/host/disk"
)

// backupFile is the engine's description of the container, in the folder of Backup.
const backupFile = "container.json"

// Backup writes the engine's description of the container, for people: Restore has the
// container itself, or makes it again from the manifest.
func (a *Adapter) Backup(ctx context.Context, r *runtime.Release, dir string) error {
	s, err := parse(r)
	if err != nil {
		return err
	}
	c, err := a.find(ctx, s.Container)
	if err != nil || c == nil || c.errForeign(s, r) != nil {
		return err
	}
	return disk.WriteFile(a.disk, "backup", filepath.Join(dir, backupFile), c.raw, 0o600) // its variables may be secret
}

// place is where Install acts: the names of the new container and of the one before.
type place struct {
	to, old *settings
}

func placeOf(to, from *runtime.Release) (place, error) {
	s, err := parse(to)
	if err != nil || from == nil {
		return place{s, s}, err
	}
	old, err := parse(from)
	return place{s, old}, err
}

func (p place) aside() string { return p.old.Container + asideSuffix }

// Install sets the container of the version before aside, under its name with .bak, and
// creates the one of the release from its manifest alone.
func (a *Adapter) Install(ctx context.Context, to, from *runtime.Release) error {
	p, err := placeOf(to, from)
	if err != nil {
		return err
	}
	c, err := a.find(ctx, p.old.Container)
	if err != nil {
		return err
	}
	if c != nil && !c.is(to) {
		if err := a.setAside(ctx, c, p, to); err != nil {
			return err
		}
	}
	c, err = a.find(ctx, p.to.Container)
	switch {
	case err != nil:
		return err
	case c.serves(to):
		return nil
	case c.is(to):
		_, err := a.replaceEnding(ctx, c, to, p.to)
		return err
	case c != nil: // its name differs from that of the version before
		return fmt.Errorf("install container %s: another container has the name", p.to.Container)
	}
	return a.create(ctx, to, p.to)
}

// setAside renames a container. Whatever has the new name is left from an upgrade before
// whose Keep was interrupted: this upgrade's own container has its name until now.
func (a *Adapter) setAside(ctx context.Context, c *found, p place, to *runtime.Release) error {
	before, err := a.find(ctx, p.aside())
	if err != nil {
		return err
	}
	for _, mine := range []*found{c, before} {
		if err := mine.errForeign(p.old, to); err != nil {
			return err
		}
	}
	// It may run if nothing was installed and the container is adopted.
	if err := a.stop(ctx, c, to); err != nil {
		return err
	}
	if before != nil {
		if err := a.remove(ctx, before.ID, p.aside()); err != nil {
			return err
		}
	}
	if c.ends() {
		return a.remove(ctx, c.ID, p.old.Container) // Restore makes it again
	}
	return a.rename(ctx, c, p.aside())
}

func (a *Adapter) rename(ctx context.Context, c *found, name string) error {
	_, err := a.engine.ContainerRename(ctx, c.ID, client.ContainerRenameOptions{NewName: name})
	return a.explain(ctx, fmt.Sprintf("rename container %s to %s", strings.TrimPrefix(c.Name, "/"), name), err)
}

func (a *Adapter) create(ctx context.Context, r *runtime.Release, s *settings) error {
	img, err := a.image(ctx, s)
	if err != nil {
		return err
	}
	if img == nil {
		return fmt.Errorf("create container %s: image %s is not on this host", s.Container, s.Image)
	}
	if err := r.LetStart(a.disk); err != nil { // the engine wants it there already
		return err
	}
	c, h := s.config(r, img.ID)
	_, err = a.engine.ContainerCreate(ctx, client.ContainerCreateOptions{Name: s.Container, Config: c, HostConfig: h})
	if errdefs.IsConflict(err) && await(ctx, func() bool {
		c, err := a.find(ctx, s.Container)
		return err == nil && c.is(r)
	}) {
		return nil
	}
	return a.explain(ctx, "create container "+s.Container, err)
}

// Installed reports whether the container is that of the release.
func (a *Adapter) Installed(ctx context.Context, to *runtime.Release) (bool, error) {
	s, err := parse(to)
	if err != nil {
		return false, err
	}
	c, err := a.find(ctx, s.Container)
	return c.serves(to), err
}

// Restore removes the container of the release, and gives the one that was set aside its
// name again. If somebody has removed that, Restore creates it from its manifest.
func (a *Adapter) Restore(ctx context.Context, to, from *runtime.Release, _ string) error {
	p, err := placeOf(to, from)
	if err != nil {
		return err
	}
	if from == nil || from.Home != to.Home {
		c, err := a.find(ctx, p.to.Container)
		if err != nil {
			return err
		}
		if c.is(to) {
			if err := a.remove(ctx, c.ID, p.to.Container); err != nil {
				return err
			}
		}
	}
	if from == nil {
		return a.restoreAdopted(ctx, p)
	}
	c, err := a.find(ctx, p.old.Container)
	if err != nil || c.serves(from) {
		return err // Install has not begun, or this was done before
	}
	if err := c.errForeign(p.old, from); err != nil {
		return err
	}
	if c != nil {
		if err := a.remove(ctx, c.ID, p.old.Container); err != nil {
			return err
		}
	}
	aside, err := a.find(ctx, p.aside())
	if err != nil {
		return err
	}
	if aside.serves(from) {
		return a.rename(ctx, aside, p.old.Container)
	}
	if err := a.Acquire(ctx, from, func(float64) {}); err != nil {
		return err
	}
	return a.create(ctx, from, p.old)
}

// restoreAdopted gives an adopted container its name again and starts it, which nobody else
// does, since no version was installed.
func (a *Adapter) restoreAdopted(ctx context.Context, p place) error {
	if !p.to.Adopt {
		return nil
	}
	c, err := a.find(ctx, p.aside())
	if err != nil {
		return err
	}
	if c != nil && !c.ends() {
		if err := a.rename(ctx, c, p.to.Container); err != nil {
			return err
		}
	} else if c, err = a.find(ctx, p.to.Container); err != nil || c == nil {
		return err
	}
	if c.State.Running {
		return nil
	}
	_, err = a.engine.ContainerStart(ctx, c.ID, client.ContainerStartOptions{})
	return a.explain(ctx, "start container "+p.to.Container, err)
}

// Keep removes the container that was set aside. Its image stays until Discard.
func (a *Adapter) Keep(ctx context.Context, to, from *runtime.Release) error {
	p, err := placeOf(to, from)
	if err != nil {
		return err
	}
	c, err := a.find(ctx, p.aside())
	if err != nil || c == nil || c.errForeign(p.old, to) != nil {
		return err
	}
	return a.remove(ctx, c.ID, p.aside())
}

// Remove removes all containers that this agent has created for the component, whatever
// their names. Volumes and images stay.
func (a *Adapter) Remove(ctx context.Context, r *runtime.Release) error {
	s, err := parse(r)
	if err != nil {
		return err
	}
	// Stop gives the program its time to end; what is removed is killed.
	c, err := a.find(ctx, s.Container)
	if err != nil {
		return err
	}
	if c != nil && c.of(r) {
		if err := a.stop(ctx, c, r); err != nil {
			return err
		}
	}
	list, err := a.engine.ContainerList(ctx, client.ContainerListOptions{All: true, Filters: client.Filters{}.Add("label", labelComponent+"="+r.Name)})
	if err != nil {
		return a.explain(ctx, "list the containers of component "+r.Name, err)
	}
	for _, c := range list.Items {
		if !isOf(c.Labels, r) {
			continue
		}
		if err := a.remove(ctx, c.ID, strings.Join(c.Names, ", ")); err != nil {
			return err
		}
	}
	return r.RemoveStarted(a.disk)
}
