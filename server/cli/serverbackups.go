package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"github.com/muster-fleet/muster/packaging/host/disk"
	"github.com/muster-fleet/muster/server/app"
	"github.com/muster-fleet/muster/server/cli/packagecmd"
	"github.com/muster-fleet/muster/server/node/backup"
	"github.com/muster-fleet/muster/server/node/selfupgrade"
	"github.com/muster-fleet/muster/server/store/elastic"
)

// backupsFolder is the folder in the data folder with the backups that upgrades make.
const backupsFolder = "backups"

func (a *client) newServerBackups() *cobra.Command {
	return onServer(a, &cobra.Command{
		Use:   "backups",
		Short: "List the backups that upgrades of the server have made, the newest first (on the server's machine)",
		Long: fmt.Sprintf(`List the backups that `+"`muster server upgrade`"+` has made, the newest first: files in the folder
`+backupsFolder+` of the data folder, and with Elasticsearch copies of the indices. FROM is the version that
ran before the upgrade. `+"`muster restore`"+` of this version restores a file; a copy is used by naming
it in store.elasticsearch.prefix. An upgrade that has succeeded removes all but the newest %d. It
leaves other files in the folder, a backup that cannot be read, and a copy that a server has
run with.`, selfupgrade.KeptBackups),
		Example: `  muster server backups
  muster server backups --data /var/lib/muster -o json`,
	}, func(cmd *cobra.Command, _ []string, config app.Config) ([]selfupgrade.Backup, error) {
		if _, err := os.Stat(config.Data); err != nil {
			return nil, noData(config.Data, err)
		}
		return upgradeBackups(cmd.Context(), config)
	}, func(w io.Writer, list []selfupgrade.Backup) {
		tableOf(w, "FROM\tTO\tMADE\tSIZE\tFILE OR INDICES\tPROBLEM", list, func(b selfupgrade.Backup) []any {
			return []any{cmp.Or(b.From, "-"), cmp.Or(b.To, "-"), atTime(b.CreatedAt), packagecmd.SizeText(b.Bytes), b.Place(), cmp.Or(b.Problem, "-")}
		})
	})
}

// upgradeBackups returns the backups that upgrades have made of a server's store, the newest first.
func upgradeBackups(ctx context.Context, config app.Config) ([]selfupgrade.Backup, error) {
	list, err := backupFiles(ctx, config.Data)
	if es := config.Store.Elasticsearch; err == nil && es != nil {
		var copies []selfupgrade.Backup
		copies, err = indexCopies(ctx, es)
		list = append(list, copies...)
	}
	selfupgrade.SortBackups(list)
	return list, err
}

// indexCopies returns the copies of indices that upgrades have made.
func indexCopies(ctx context.Context, es *app.ElasticsearchConfig) ([]selfupgrade.Backup, error) {
	o, err := elasticOptions(es)
	if err != nil {
		return nil, err
	}
	found, err := elastic.Copies(ctx, o, selfupgrade.CopyPrefix)
	if err != nil {
		return nil, err
	}
	var list []selfupgrade.Backup
	for _, c := range found {
		run, ok := selfupgrade.ParseCopyName(cmp.Or(o.Prefix, elastic.DefaultPrefix), c.Prefix)
		if !ok {
			continue
		}
		b := selfupgrade.Backup{Indices: c.Prefix + "*", Run: run, Bytes: c.Bytes}
		switch m := c.Migration; {
		case m == nil:
			b.Problem = "they do not say that an upgrade has made them: look at them, and delete them by hand"
		case c.Used:
			b.Problem = "a server has run with them: delete them by hand if none does any more"
		case m.FinishedAt == nil:
			b.Unfinished, b.Problem = true, "the copy is not whole: an upgrade was interrupted or undone"
		}
		if m := c.Migration; m != nil {
			b.CreatedAt = m.StartedAt
			if b.From, b.To, ok = selfupgrade.ParseCopiedFrom(m.From); !ok {
				b.Unfinished, b.Problem = false, "they were filled from "+m.From+", and not by an upgrade"
			}
		}
		list = append(list, b)
	}
	return list, nil
}

// backupFiles returns the backups that upgrades have made in a data folder.
func backupFiles(ctx context.Context, data string) ([]selfupgrade.Backup, error) {
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
		m, err := backupContents(ctx, b.File)
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
	return list, nil
}

func backupContents(ctx context.Context, path string) (backup.Contents, error) {
	f, err := os.Open(path)
	if err != nil {
		return backup.Contents{}, err
	}
	defer f.Close()
	return backup.ReadContents(ctx, f)
}

// Prune implements selfupgrade.Machine.
func (m *upgradeMachine) Prune(ctx context.Context, inUse ...string) (removed []string, err error) {
	list, err := upgradeBackups(ctx, m.config)
	if err != nil {
		return nil, err
	}
	files := false
	for _, b := range selfupgrade.Surplus(list, inUse...) {
		if err := m.remove(ctx, b); err != nil {
			return removed, err
		}
		removed, files = append(removed, b.Place()), files || b.File != ""
	}
	if !files {
		return removed, nil
	}
	return removed, disk.OS{}.SyncDir("backup", filepath.Join(m.config.Data, backupsFolder))
}

func (m *upgradeMachine) remove(ctx context.Context, b selfupgrade.Backup) error {
	if b.File != "" {
		if err := os.Remove(b.File); !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		return nil
	}
	o, err := elasticOptions(m.config.Store.Elasticsearch)
	if err != nil {
		return err
	}
	o.Prefix = strings.TrimSuffix(b.Indices, "*")
	return elastic.RemoveCopy(ctx, o)
}
