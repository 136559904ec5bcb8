package primitive

import (
	"context"
	"path/filepath"

	"github.com/muster-fleet/muster/agent/runtime"
	"github.com/muster-fleet/muster/agent/steps"
	"github.com/muster-fleet/muster/packaging/host/disk"
	"github.com/muster-fleet/muster/packaging/host/layout"
)

// installArtifact makes the version the one that is started: the component's link leads to
// its home, and the runtime knows it. Undoing restores both from the link's old target and
// the backup.
func (c *Change) installArtifact() steps.Step {
	return steps.Step{Name: InstallArtifact, Timeout: installTimeout, Input: c.input, Done: c.installed, Do: c.doInstall, Undo: c.undoInstall}
}

func (c *Change) link() string { return filepath.Join(c.Dir, runtime.CurrentLink) }

func (c *Change) installed(ctx context.Context) (bool, error) {
	current, err := c.current()
	if err != nil || current != c.Journal.To.Home {
		return false, err
	}
	to, err := c.to()
	if err != nil {
		return false, err
	}
	return c.Adapter.Installed(ctx, to)
}

func (c *Change) doInstall(ctx context.Context) error {
	to, from, err := c.both()
	if err != nil {
		return err
	}
	if err := c.Adapter.Install(ctx, to, from); err != nil {
		return err
	}
	return c.point(c.Journal.To.Home)
}

func (c *Change) point(home string) error {
	return disk.Point(c.Disk, InstallArtifact, filepath.FromSlash(home), c.link())
}

func (c *Change) undoInstall(ctx context.Context) error {
	if c.Journal.configOnly() || c.undone() {
		return nil
	}
	to, from, err := c.both()
	if err != nil {
		return err
	}
	if err := c.Adapter.Restore(ctx, to, from, c.backup()); err != nil {
		return err
	}
	return c.pointBack()
}

// pointBack restores the link, and removes the temporary link of an interrupted move.
func (c *Change) pointBack() error {
	if err := c.Disk.Remove(InstallArtifact, c.link()+layout.NewSuffix); err != nil {
		return err
	}
	if c.Journal.From == nil {
		if err := c.Disk.Remove(InstallArtifact, c.link()); err != nil {
			return err
		}
		return c.Disk.SyncDir(InstallArtifact, c.Dir)
	}
	current, err := c.current()
	if err != nil || current == c.Journal.From.Home {
		return err
	}
	return c.point(c.Journal.From.Home)
}
