package primitive

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strconv"

	"github.com/muster-fleet/muster/agent/steps"
	"github.com/muster-fleet/muster/packaging/host/disk"
)

// backupState copies what the package of the installed version does not have: its
// configuration files as they are on the host, and what the runtime needs. The version's own
// files stay in its home. Nothing is undone: a backup stays for an investigation until
// package component removes it.
func (c *Change) backupState() steps.Step {
	return steps.Step{
		Name: BackupState, Timeout: backupTimeout, Input: c.input,
		Done: func(context.Context) (bool, error) {
			m, err := readBackup(c.Disk, c.backup())
			return m != nil, err
		},
		Do: c.doBackup,
	}
}

// backupRecord describes a backup. It is written last, so that a backup without it is
// incomplete.
type backupRecord struct {
	// From is the version that was backed up; nil: none was installed.
	From *Installed `json:"from,omitempty"`
	// Files are the configuration files of From. A file that did not exist has no Copy.
	Files []backupFile `json:"files,omitempty"`
}

type backupFile struct {
	Path string `json:"path"`
	// Copy is the name of the copy in the backup's folder.
	Copy  string     `json:"copy,omitempty"`
	Mode  uint32     `json:"mode,omitempty"`
	Owner disk.Owner `json:"owner,omitzero"`
}

const (
	backupFileName = "manifest.json"
	backupKind     = "component-backup"
	backupVersion  = 1

	// maxConfigFile bounds a configuration file. Larger ones are data.
	maxConfigFile = 4 << 20
)

func readBackup(d disk.Disk, dir string) (*backupRecord, error) {
	m, err := disk.FindRecord[backupRecord](d, BackupState, filepath.Join(dir, backupFileName), backupKind, backupVersion)
	if errors.Is(err, disk.ErrDamaged) {
		return nil, nil // it is made again
	}
	return m, err
}

// BackupHome returns the home of the version that was installed when a backup was made, empty
// if there was none, or if the backup is incomplete.
func BackupHome(d disk.Disk, dir string) string {
	m, err := readBackup(d, dir)
	if err != nil || m == nil || m.From == nil {
		return ""
	}
	return m.From.Home
}

func (c *Change) doBackup(ctx context.Context) error {
	dir := c.backup()
	if err := c.Disk.RemoveAll(BackupState, dir); err != nil {
		return err
	}
	// Others may pass it to the folder that a hook writes to, and read nothing in it.
	if err := c.Disk.MkdirAll(BackupState, dir, 0o711); err != nil {
		return err
	}
	m := backupRecord{From: c.Journal.From}
	from, err := c.from()
	if err != nil {
		return err
	}
	if from != nil {
		for i, path := range c.Journal.From.Files {
			f, err := c.backupFile(dir, strconv.Itoa(i), path)
			if err != nil {
				return err
			}
			m.Files = append(m.Files, f)
		}
		if err := c.Adapter.Backup(ctx, from, dir); err != nil {
			return fmt.Errorf("back up: %w", err)
		}
	}
	return c.saveBackup(dir, m)
}

func (c *Change) saveBackup(dir string, m backupRecord) error {
	if err := disk.WriteRecord(c.Disk, BackupState, filepath.Join(dir, backupFileName), backupKind, backupVersion, m); err != nil {
		return err
	}
	for ; dir != c.Dir; dir = filepath.Dir(dir) {
		if err := c.Disk.SyncDir(BackupState, filepath.Dir(dir)); err != nil {
			return err
		}
	}
	return nil
}

// backupFile copies a configuration file, if it exists, under a name in the backup's folder.
func (c *Change) backupFile(dir, name, path string) (backupFile, error) {
	f := backupFile{Path: path, Owner: disk.Own}
	is, err := c.readConfig(path)
	if err != nil || is == nil {
		return f, err
	}
	f.Copy, f.Mode, f.Owner = name, uint32(is.mode), is.owner
	return f, disk.WriteFile(c.Disk, BackupState, filepath.Join(dir, name), is.content, 0o600)
}
