package primitive

import (
	"context"
	"fmt"
	"os"
	"path/filepath"

	"github.com/muster-fleet/muster/agent/steps"
	"github.com/muster-fleet/muster/packaging/install"
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
	fi, err := c.Disk.Lstat(VerifyArtifact, path)
	switch {
	case missing(err):
	case err != nil:
		return err
	case !fi.Mode().IsRegular():
		return fmt.Errorf("is no regular file: it would be replaced, move it away")
	case fi.Size() > maxConfigFile:
		return fmt.Errorf("has %d bytes, and configuration has at most %d", fi.Size(), maxConfigFile)
	}
	return c.checkCreate(path)
}

// checkCreate makes a file beside path and removes it.
func (c *Change) checkCreate(path string) error {
	name := filepath.Join(filepath.Dir(path), "."+filepath.Base(path)+writeCheck)
	if err := c.Disk.Remove(VerifyArtifact, name); err != nil {
		return notWritable(path, err)
	}
	f, err := c.Disk.OpenFile(VerifyArtifact, name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return notWritable(path, err)
	}
	if err := f.Close(); err != nil {
		return err
	}
	return c.Disk.Remove(VerifyArtifact, name)
}

func notWritable(path string, err error) error {
	folder := filepath.Dir(path)
	if missing(err) {
		return fmt.Errorf("the folder %s does not exist: create it, with the rights that the component needs", folder)
	}
	return fmt.Errorf("the agent may not write in %s: %w; if it runs under systemd allow it with a drop-in of its unit that says ReadWritePaths=%s", folder, err, folder)
}
