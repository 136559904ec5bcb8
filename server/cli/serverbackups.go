package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"

	"github.com/muster-fleet/muster/packaging/disk"
	"github.com/muster-fleet/muster/server/backup"
	"github.com/muster-fleet/muster/server/cli/packagecmd"
	"github.com/muster-fleet/muster/server/selfupgrade"
	"github.com/muster-fleet/muster/server/store/elastic"
)

// backupsFolder is the folder in the data folder with the backups that upgrades make.
const backupsFolder = "backups"

func (a *client) newServerBackups() *cobra.Command {
	var configFile, data string
	cmd := &cobra.Command{
		Use:   "backups",
		Short: "List the backups that upgrades of the server have made, the newest first (on the server's machine)",
		Long: fmt.Sprintf(`List the backups that `+"`muster server upgrade`"+` has made in the folder `+backupsFolder+` of the data
folder, the newest first. FROM is the version that ran before the upgrade: `+"`muster restore`"+`
of this version restores the backup. An upgrade that has succeeded removes all but the
newest %d, and leaves other files in the folder, and a backup that cannot be read. The copies
of indices that an upgrade makes in Elasticsearch are neither listed nor removed.`, selfupgrade.KeptBackups),
		Example: `  muster server backups
  muster server backups --data /var/lib/muster -o json`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			config, err := loadConfig(configFile, data)
			if err == nil {
				err = config.Validate()
			}
			if err != nil {
				return err
			}
			if _, err := os.Stat(config.Data); err != nil {
				return fmt.Errorf("there is no server data in %s: name the data folder with --data: %w", config.Data, err)
			}
			list, err := upgradeBackups(cmd.Context(), config.Data)
			if err != nil {
				return err
			}
			return a.show(cmd.OutOrStdout(), list, func(w io.Writer) {
				table(w, "FROM\tTO\tMADE\tSIZE\tFILE\tPROBLEM", func(add func(...any)) {
					for _, b := range list {
						add(firstOf(b.From, "-"), b.To, b.CreatedAt.Local().Format(time.DateTime), packagecmd.SizeText(b.Bytes), b.File, firstOf(b.Problem, "-"))
					}
				})
				if es := config.Store.Elasticsearch; es != nil {
					fmt.Fprintf(w, "Upgrades with Elasticsearch copy the indices to %sbackup-…: list and remove these there.\n", firstOf(es.Prefix, elastic.DefaultPrefix))
				}
			})
		},
	}
	offlineFlags(cmd, &configFile, &data)
	return cmd
}

// upgradeBackups returns the backups that upgrades have made in a data folder, the newest first.
func upgradeBackups(ctx context.Context, data string) ([]selfupgrade.Backup, error) {
	list := []selfupgrade.Backup{}
	dir := filepath.Join(data, backupsFolder)
	entries, err := os.ReadDir(dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	for _, e := range entries {
		to, run, ok := selfupgrade.ParseBackupName(e.Name())
		if !ok || !e.Type().IsRegular() {
			continue
		}
		info, err := e.Info()
		if errors.Is(err, fs.ErrNotExist) { // removed meanwhile
			continue
		}
		if err != nil {
			return nil, err
		}
		b := selfupgrade.Backup{File: filepath.Join(dir, e.Name()), Run: run, To: to, CreatedAt: info.ModTime().UTC(), Bytes: info.Size()}
		m, err := backupManifest(ctx, b.File)
		switch {
		case ctx.Err() != nil:
			return nil, ctx.Err()
		case err != nil:
			b.Problem = err.Error()
		default:
			b.From, b.CreatedAt = m.Version, m.CreatedAt
		}
		list = append(list, b)
	}
	selfupgrade.SortBackups(list)
	return list, nil
}

func backupManifest(ctx context.Context, path string) (backup.Manifest, error) {
	f, err := os.Open(path)
	if err != nil {
		return backup.Manifest{}, err
	}
	defer f.Close()
	return backup.ReadManifest(ctx, f)
}

// Prune implements selfupgrade.Machine. A copy of indices stays: a server may have been pointed to it.
func (m *upgradeMachine) Prune(ctx context.Context, inUse ...string) (removed []string, err error) {
	if m.config.Store.Elasticsearch != nil {
		return nil, nil
	}
	list, err := upgradeBackups(ctx, m.config.Data)
	if err != nil {
		return nil, err
	}
	for _, b := range selfupgrade.Surplus(list, inUse...) {
		if err := os.Remove(b.File); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return removed, err
		}
		removed = append(removed, b.File)
	}
	if len(removed) == 0 {
		return nil, nil
	}
	return removed, disk.OS{}.SyncDir("backup", filepath.Join(m.config.Data, backupsFolder))
}
