package primitive

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"time"

	"github.com/muster-fleet/muster/agent/runtime"
	"github.com/muster-fleet/muster/agent/statecopy"
	"github.com/muster-fleet/muster/agent/steps"
	"github.com/muster-fleet/muster/packaging/host/disk"
)

// Names in the folder of a backup.
const (
	// stateArchive has the component's state paths, from / on.
	stateArchive = "state.tar"
	// hookFolder is what the hook backup writes to.
	hookFolder = "data"
	// restoreFile says how to go back by hand.
	restoreFile = "RESTORE.txt"
)

// backupData copies the state of the stopped component: its state paths into an archive, and
// what the hook backup of its package writes. It is not done again once a migration has begun,
// since it would replace the copy by what that has changed. Nothing is undone: the backup stays
// until package component removes it.
func (c *Change) backupData() steps.Step {
	return steps.Step{
		Name: BackupData, Timeout: saveTimeout, Input: c.input, When: func() bool { return c.Journal.Extras.Backup },
		Do: c.doBackupData,
	}
}

func (c *Change) dataBackup() string  { return filepath.Join(c.backup(), hookFolder) }
func (c *Change) stateFile() string   { return filepath.Join(c.backup(), stateArchive) }
func (c *Change) restoreText() string { return filepath.Join(c.backup(), restoreFile) }

func (c *Change) doBackupData(ctx context.Context) error {
	p := &c.Journal.Extras
	if p.begun() {
		return nil
	}
	from, err := c.from()
	if err != nil {
		return err
	}
	p.Saved = false
	if len(p.State) > 0 {
		if err := statecopy.Save(ctx, c.Disk, c.stateFile(), p.State); err != nil {
			return fmt.Errorf("copy the component's state: %w", err)
		}
	}
	if h := from.Component.Hooks; h != nil && h.Backup != nil {
		if err := c.runBackup(ctx, from); err != nil {
			return err
		}
	}
	if err := disk.WriteFile(c.Disk, BackupData, c.restoreText(), []byte(c.howToRestore(from)), 0o600); err != nil {
		return err
	}
	p.Saved = true
	return c.Save()
}

// runBackup runs the hook backup with an empty folder of its own.
func (c *Change) runBackup(ctx context.Context, from *runtime.Release) error {
	folder := c.dataBackup()
	as, err := c.hookAccount(from)
	if err != nil {
		return err
	}
	if err := c.makeBackupFolder(folder, as); err != nil {
		return err
	}
	if _, err := c.hook(ctx, from, *from.Component.Hooks.Backup, "MUSTER_BACKUP="+folder); err != nil {
		return fmt.Errorf("hook backup: %w", err)
	}
	return c.Disk.SyncDir(BackupData, c.backup())
}

// makeBackupFolder makes an empty folder for the hook backup, which belongs to its account.
func (c *Change) makeBackupFolder(folder string, as disk.Owner) error {
	err := c.inFolder(BackupData, folder, func(parent disk.Folder, name string) error {
		if err := parent.RemoveAll(name); err != nil {
			return err
		}
		made, err := parent.MakeFolder(name)
		if err != nil {
			return err
		}
		return errors.Join(disk.SetOwner(made, 0o700, as), made.Close())
	})
	if err != nil || as == disk.Own {
		return err
	}
	// The account has to pass the folder of all backups.
	return c.inFolder(BackupData, c.backup(), func(all disk.Folder, _ string) error { return all.Chmod(0o711) })
}

// howToRestore is for people whose agent cannot go back.
func (c *Change) howToRestore(from *runtime.Release) string {
	j := c.Journal
	var b strings.Builder
	fmt.Fprintf(&b, "Component %s %s, as it was before its change to version %s at %s.\n\nTo go back by hand:\n\n",
		from.Name, from.FullVersion(), j.Desired.Version, time.Now().UTC().Format(time.RFC3339))
	fmt.Fprintf(&b, "1. Stop the component.\n")
	if len(j.Extras.State) > 0 {
		fmt.Fprintf(&b, "2. Remove its state, and put back the copy:\n\n")
		for _, path := range j.Extras.State {
			fmt.Fprintf(&b, "   rm -rf %s\n", quote(path))
		}
		fmt.Fprintf(&b, "   tar --extract --preserve-permissions --numeric-owner --file %s --directory /\n\n", quote(c.stateFile()))
	}
	if from.Component.Hooks != nil && from.Component.Hooks.Backup != nil {
		fmt.Fprintf(&b, "   The hook backup of the package has written to %s: its publishers say how that is put back.\n\n", quote(c.dataBackup()))
	}
	fmt.Fprintf(&b, "3. Have the server order the version again, with the name or the id of this host:\n\n   muster components upgrade %s HOST --version %s --force\n", from.Name, from.FullVersion())
	return b.String()
}

// quote quotes a path for a shell.
func quote(path string) string { return "'" + strings.ReplaceAll(path, "'", `'\''`) + "'" }
