package runtime

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"

	"github.com/muster-fleet/muster/agent/foreign"
	"github.com/muster-fleet/muster/packaging/host/disk"
)

// memoryDir is a file system in memory on every Linux host. The agent may write there, which its unit
// does not let it do in /run.
const memoryDir = "/dev/shm"

const opStarted = "held at boot"

// StartedDir is a folder by which the service manager of a host recognizes whether an agent has started
// a component since the last boot, which empties it: one that is WithheldAtBoot cannot start without it.
// It is empty, and only its existence counts.
func (r *Release) StartedDir() string {
	sum := sha256.Sum256([]byte(r.Dir))
	return filepath.Join(memoryDir, "muster-"+hex.EncodeToString(sum[:8]))
}

// LetStart makes the folder of a release that is WithheldAtBoot. All accounts may make names beside it, so a
// link or a file that has its name is removed.
func (r *Release) LetStart(d disk.Disk) error {
	if !r.WithheldAtBoot {
		return nil
	}
	memory, name, err := foreign.Parent(d, opStarted, r.StartedDir())
	if err != nil {
		return err
	}
	defer memory.Close()
	started, err := memory.OpenFolder(name)
	switch {
	case errors.Is(err, disk.ErrLink), errors.Is(err, disk.ErrNotFolder):
		if err := memory.Remove(name); err != nil {
			return err
		}
		started, err = memory.MakeFolder(name)
	case errors.Is(err, fs.ErrNotExist):
		started, err = memory.MakeFolder(name)
	}
	if err != nil {
		return err
	}
	return started.Close()
}

// RemoveStarted removes the folder of a component that is removed.
func (r *Release) RemoveStarted(d disk.Disk) error { return d.RemoveAll(opStarted, r.StartedDir()) }

// CheckBoot returns an error if the host cannot hold a release that is WithheldAtBoot.
func (r *Release) CheckBoot(d disk.Disk) error {
	if !r.WithheldAtBoot {
		return nil
	}
	_, err := d.Lstat(opStarted, memoryDir)
	if errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("component %s: %w: the hosts of its policy must not run mixed versions (lockstep), and without %s this host cannot keep a boot from starting it", r.Name, ErrUnavailable, memoryDir)
	}
	return err
}
