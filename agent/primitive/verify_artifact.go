package primitive

import (
	"context"
	"fmt"
	"path/filepath"

	"github.com/muster-fleet/muster/agent/steps"
	"github.com/muster-fleet/muster/packaging/host/disk"
	"github.com/muster-fleet/muster/packaging/pkg/install"
)

// verifyArtifact refuses whatever would only fail once the component is stopped: files that
// were changed since they were unpacked, an image other than the signed one, settings that
// this host cannot fulfil, and configuration that may not or cannot be written. It changes
// nothing on the host, and is never done: what it looks at may change.
func (c *Change) verifyArtifact() steps.Step {
	return steps.Step{Name: VerifyArtifact, Timeout: verifyTimeout, Input: c.input, Do: c.doVerify}
}

func (c *Change) doVerify(ctx context.Context) error {
	j := c.Journal
	to, err := c.to()
	if err != nil {
		return err
	}
	if _, err := install.CheckIntact(ctx, c.Disk, c.Dir, j.To.Home); err != nil {
		return err
	}
	if err := c.Adapter.Verify(ctx, to); err != nil {
		return err
	}
	if err := c.Adapter.Check(ctx, to); err != nil {
		return err
	}
	if err := c.checkLockstep(to); err != nil {
		return err
	}
	files, rendered, err := c.files(to)
	if err != nil {
		return err
	}
	for _, f := range files {
		if err := c.checkWritable(f.path); err != nil {
			return fmt.Errorf("configuration file %s: %w", f.path, err)
		}
	}
	j.To.Files, j.To.ConfigSHA256, j.To.RenderedSHA256 = paths(files), digestOf(files), rendered
	j.Reload = j.configOnly() && to.Component.Reload
	if err := c.findExtras(to); err != nil {
		return err
	}
	return c.Save()
}

// writeCheck ends the name of a file that is made and removed to check that the folder of a
// configuration file can be written to.
const writeCheck = ".muster-write-check"

func (c *Change) checkWritable(path string) error {
	err := c.inFolder(VerifyArtifact, path, func(folder disk.Folder, name string) error {
		fi, err := folder.Lstat(name)
		switch {
		case missing(err):
		case err != nil:
			return err
		case !fi.Mode().IsRegular():
			return fmt.Errorf("is no regular file: it would be replaced, move it away")
		case fi.Size() > maxConfigFile:
			return fmt.Errorf("has %d bytes, and configuration has at most %d", fi.Size(), maxConfigFile)
		}
		return checkCreate(folder, name)
	})
	if missing(err) {
		return noFolder(filepath.Dir(path))
	}
	return err
}

// checkCreate makes a file beside a name in a folder and removes it.
func checkCreate(folder disk.Folder, name string) error {
	name = "." + name + writeCheck
	if err := folder.Remove(name); err != nil {
		return notWritable(folder, err)
	}
	f, err := folder.Create(name, 0o600)
	if err != nil {
		return notWritable(folder, err)
	}
	if err := f.Close(); err != nil {
		return err
	}
	return folder.Remove(name)
}

func noFolder(folder string) error {
	return fmt.Errorf("the folder %s does not exist: create it, with the rights that the component needs", folder)
}

func notWritable(folder disk.Folder, err error) error {
	return fmt.Errorf("the agent may not write in %s: %w; if it runs under systemd allow it with a drop-in of its unit that says ReadWritePaths=%s", folder.Path(), err, folder.Path())
}
