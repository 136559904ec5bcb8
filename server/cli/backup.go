package cli

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/muster-fleet/muster/packaging/host/disk"
	"github.com/muster-fleet/muster/server/app"
	"github.com/muster-fleet/muster/server/fleet"
	"github.com/muster-fleet/muster/server/node/backup"
	"github.com/muster-fleet/muster/server/node/selfupgrade"
	"github.com/muster-fleet/muster/server/rollout"
	"github.com/muster-fleet/muster/server/store"
	"github.com/muster-fleet/muster/server/store/event"
	"github.com/muster-fleet/muster/server/store/sqlite"
)

func (a *client) newBackup() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "backup FILE",
		Short: "Write a backup of the server to one file (on the server's machine)",
		Long: `Write what a server needs on an empty machine to one new file: the embedded store, the
CA, the online key, the upgrade manifests and the packages. The server may run: the file
has the store as it is at one moment.

The file is a secret. It has the key of the CA, so whoever reads it can pose as the
server. It has mode 0600; keep it encrypted. Your configuration file, and the certificate
that it may name, are not in it.

With Elasticsearch the file has the folders of the data folder only: take snapshots of the
indices for the documents and the packages.`,
		Example: `  muster backup /backup/muster-$(date +%F).tar --data /var/lib/muster
  muster backup /backup/muster-hourly.tar --without-packages`,
		Args: oneArg("the file to write, such as /backup/muster.tar"),
	}
	without := cmd.Flags().Bool("without-packages", false, "leave out the packages, which can be pushed again")
	return onServer(a, cmd, func(cmd *cobra.Command, args []string, config app.Config) (written, error) {
		return writeBackup(cmd.Context(), args[0], config, a.version, !*without)
	}, func(w io.Writer, out written) { out.human(w) })
}

// written is the output of `muster backup`.
type written struct {
	File     string `json:"file"`
	SHA256   string `json:"sha256"`
	Files    int    `json:"files"`
	Bytes    int64  `json:"bytes"`
	Store    bool   `json:"store"`
	Packages bool   `json:"packages"`
}

func (o written) human(w io.Writer) {
	fmt.Fprintf(w, "Wrote %s: %s, %d bytes, sha256 %s\n", o.File, counted(o.Files, "file"), o.Bytes, o.SHA256)
	if !o.Store {
		fmt.Fprintln(w, "It has no documents: take a snapshot of the indices in Elasticsearch.")
	}
	fmt.Fprintln(w, "Whoever reads it can pose as the server: keep it secret. To restore it: muster restore FILE --data FOLDER")
}

// backupFolder begins the name of the folder in which a backup is made.
const backupFolder = ".muster-backup-"

// writeBackup writes a backup to a new file.
func writeBackup(ctx context.Context, path string, config app.Config, version string, packages bool) (out written, err error) {
	if _, err := os.Lstat(path); !errors.Is(err, os.ErrNotExist) {
		return out, errors.Join(err, fmt.Errorf("%s exists already: name another file", path))
	}
	// A folder of its own is closed to others, and can be removed as a whole.
	work, err := os.MkdirTemp(filepath.Dir(path), backupFolder)
	if err != nil {
		return out, fmt.Errorf("%s cannot be written: %w", path, err)
	}
	defer func() { err = errors.Join(err, os.RemoveAll(work)) }()
	m := backup.Contents{Version: version, CreatedAt: time.Now().UTC(), Packages: packages}
	copied := ""
	if config.Store.Elasticsearch == nil {
		copied = filepath.Join(work, backup.StoreFile)
		if err := copyStore(ctx, filepath.Join(config.Data, backup.StoreFile), copied); err != nil {
			return out, err
		}
	} else {
		m.Packages = false // the store has them
	}
	made := filepath.Join(work, "backup.tar")
	f, err := os.OpenFile(made, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return out, err
	}
	hash := sha256.New()
	m, err = backup.Write(ctx, io.MultiWriter(f, hash), config.Data, copied, m)
	if err == nil {
		err = f.Sync()
	}
	if err = errors.Join(err, f.Close()); err != nil {
		return out, err
	}
	if len(m.Files) == 0 {
		return out, fmt.Errorf("there is no server data in %s: name the data folder with --data", config.Data)
	}
	if err := errors.Join(os.Rename(made, path), disk.OS{}.SyncDir("backup", filepath.Dir(path))); err != nil {
		return out, err
	}
	return written{File: path, SHA256: hex.EncodeToString(hash.Sum(nil)), Files: len(m.Files), Bytes: m.Bytes(), Store: m.Store, Packages: m.Packages}, nil
}

// copyStore copies the embedded store, which a server may be using, and verifies the copy.
func copyStore(ctx context.Context, from, to string) (err error) {
	if _, err := os.Stat(from); err != nil {
		return noData(filepath.Dir(from), err)
	}
	s, err := sqlite.Open(ctx, from, sqlite.Options{ReadOnly: true})
	if err != nil {
		return err
	}
	if err := errors.Join(s.Copy(ctx, to), s.Close()); err != nil {
		return err
	}
	return sqlite.CheckWhole(ctx, to)
}

func (a *client) newRestore() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "restore FILE",
		Short: "Restore a backup of the server (on the server's machine)",
		Long: `Put a backup that ` + "`muster backup`" + ` wrote into a data folder. The server must be stopped;
run this as its user, who will own the files.
The whole file is verified before anything is replaced. With --replace, what the folder has
is moved to a folder before-restore-…, and not deleted.

The restored store begins a new generation: agents get every later order, also those that
have already received as many as the backup has. Rollouts that were running in the backup
are paused. Afterwards:

- Agents that enrolled since the backup are unknown to the server. They keep running, and
  must be enrolled again.
- Orders, keys and settings made since the backup are gone. Keys that were revoked since
  are valid again.
- Upgrades that were open in the backup are offered again. Hosts that have done them
  answer from their record; cancel those that are no longer wanted.`,
		Example: `  muster restore /backup/muster-2026-03-01.tar --data /var/lib/muster`,
		Args:    oneArg("the backup to restore"),
	}
	replace := cmd.Flags().Bool("replace", false, "move what the data folder has to a folder before-restore-…")
	return onServer(a, cmd, func(cmd *cobra.Command, args []string, config app.Config) (restored, error) {
		return restore(cmd.Context(), args[0], config, *replace)
	}, func(w io.Writer, out restored) { out.human(w) })
}

// restored is the output of `muster restore`.
type restored struct {
	Data      string    `json:"data"`
	CreatedAt time.Time `json:"created_at"`
	Version   string    `json:"version"`
	Store     bool      `json:"store"`
	Packages  bool      `json:"packages"`
	// Paused are the ids of the rollouts that the backup has as running.
	Paused []string `json:"paused_rollouts"`
	// Kept is the folder of what was replaced, empty if there was nothing.
	Kept string `json:"kept,omitempty"`
}

func (o restored) human(w io.Writer) {
	if o.CreatedAt.IsZero() {
		fmt.Fprintf(w, "Completed the interrupted restore of %s.\n", o.Data)
	} else {
		fmt.Fprintf(w, "Restored the backup of %s (Muster %s) to %s.\n", formatTime(o.CreatedAt), o.Version, o.Data)
	}
	if o.Kept != "" {
		fmt.Fprintf(w, "What it replaced is in %s: remove it when all is well.\n", o.Kept)
	}
	printPaused(w, o.Paused)
	fmt.Fprintf(w, "\nNext:\n  - Start the server: muster server --data %s\n", o.Data)
	if !o.CreatedAt.IsZero() && !o.Store {
		fmt.Fprintln(w, "    First restore the snapshot of the indices, and run `muster store restored`.")
	}
	if o.Store && !o.Packages {
		fmt.Fprintln(w, "  - Push the packages again that are not in the data folder: the backup has none.")
	}
	fmt.Fprintln(w, "  - Enrol the agents again that enrolled since the backup, and revoke the keys again that were revoked since.")
}

func printPaused(w io.Writer, ids []string) {
	if len(ids) > 0 {
		fmt.Fprintf(w, "Paused %s that had been running: %s. Resume or cancel each.\n", counted(len(ids), "rollout"), strings.Join(ids, ", "))
	}
}

// restore puts a backup into the data folder.
func restore(ctx context.Context, path string, config app.Config, replace bool) (out restored, err error) {
	d := disk.OS{}
	out = restored{Data: config.Data, Paused: []string{}}
	file, err := os.Open(path)
	if err != nil {
		return out, err
	}
	defer file.Close()
	if err := d.MkdirAll("restore", config.Data, 0o700); err != nil {
		return out, err
	}
	if config.Store.Elasticsearch == nil {
		unlock, lockErr := sqlite.Lock(ctx, filepath.Join(config.Data, backup.StoreFile))
		if lockErr != nil {
			return out, lockErr
		}
		defer func() { err = errors.Join(err, unlock()) }()
	}
	if interrupted, err := backup.Interrupted(d, config.Data); err != nil || interrupted {
		if err == nil {
			out.Kept, err = finishRestore(config.Data)
		}
		return out, err
	}
	if there, err := backup.Occupied(d, config.Data); err != nil || len(there) > 0 && !replace {
		return out, errors.Join(err, fmt.Errorf("%s has data already (%s): name an empty folder with --data, or pass --replace to move it aside", config.Data, strings.Join(there, ", ")))
	}
	dir, err := backup.Unpacked(d, config.Data)
	if err != nil {
		return out, err
	}
	m, err := backup.Read(ctx, file, dir)
	if err == nil && m.Store != (config.Store.Elasticsearch == nil) {
		err = errors.New("it was made of a server with another kind of store: pass the configuration file of that server with --config")
	}
	if err == nil && m.Store {
		out.Paused, err = prepareRestored(ctx, filepath.Join(dir, backup.StoreFile))
	}
	if err == nil {
		err = ctx.Err()
	}
	if err != nil {
		return out, errors.Join(fmt.Errorf("backup %s: %w; nothing has been replaced", path, err), backup.Discard(d, config.Data))
	}
	out.CreatedAt, out.Version, out.Store, out.Packages = m.CreatedAt, m.Version, m.Store, m.Packages
	if err := backup.Commit(d, config.Data); err != nil {
		return out, err
	}
	out.Kept, err = finishRestore(config.Data)
	return out, err
}

// finishRestore puts what was restored into place. The server's record of an upgrade would
// bring the store to another version at the next start.
func finishRestore(data string) (kept string, err error) {
	if err := (selfupgrade.Records{Disk: disk.OS{}, Data: data, Log: slog.Default()}).Remove(); err != nil {
		return "", err
	}
	return backup.Finish(disk.OS{}, data, time.Now())
}

// prepareRestored verifies the embedded store of a backup and makes it one that a server
// may start on.
func prepareRestored(ctx context.Context, path string) (paused []string, err error) {
	if err := sqlite.CheckWhole(ctx, path); err != nil {
		return nil, err
	}
	s, err := sqlite.Open(ctx, path, sqlite.Options{})
	if err != nil {
		return nil, err
	}
	paused, err = beginGeneration(ctx, s)
	return paused, errors.Join(err, s.Close(), os.Remove(path+".lock"))
}

// beginGeneration lets a store whose documents were restored begin a new generation, ends an
// upgrade of the servers that was under way, and pauses the rollouts that were running: what
// they install may have been found to be bad since. It returns their ids.
func beginGeneration(ctx context.Context, s store.Store) (paused []string, err error) {
	if err := store.EndGeneration(ctx, s.Settings()); err != nil {
		return nil, err
	}
	if err := selfupgrade.Restored(ctx, s.ServerUpgrades(), time.Now().UTC()); err != nil {
		return nil, err
	}
	log := slog.New(slog.DiscardHandler)
	rollouts := &rollout.Service{Store: s, Events: &event.Stream{Store: s.Events(), Log: log}, Log: log}
	active, err := s.Rollouts().Active(ctx)
	if err != nil {
		return nil, err
	}
	paused = []string{}
	for _, head := range active {
		r, err := s.Rollouts().Get(ctx, head.ID)
		if err != nil {
			return paused, err
		}
		if r.State != fleet.RolloutRunning {
			continue
		}
		if _, err := rollouts.Pause(ctx, head.ID, true, rollout.Request{Actor: "muster restore", Why: "the store was restored from a backup"}); err != nil {
			return paused, err
		}
		paused = append(paused, head.ID)
	}
	return paused, nil
}

func (a *client) newStoreRestored() *cobra.Command {
	return onServer(a, &cobra.Command{
		Use:   "restored",
		Short: "Let a store begin a new generation after its documents were restored",
		Long: `Run this after you have restored the documents by other means than ` + "`muster restore`" + `, such as
a snapshot of Elasticsearch or of a machine, and before a server starts: agents may have
received later orders than the store knows, and without a new generation would not get the
next ones. All servers must be stopped. Rollouts that were running are paused, and an upgrade
of the servers is ended: run the command on each machine whose data folder has a file
server-upgrade.`,
		Example: "  muster store restored --config /etc/muster/server.yml",
	}, func(cmd *cobra.Command, _ []string, config app.Config) (map[string][]string, error) {
		if config.Store.Elasticsearch == nil {
			if _, err := os.Stat(filepath.Join(config.Data, backup.StoreFile)); err != nil {
				return nil, noData(config.Data, err)
			}
		}
		s, err := openStore(cmd.Context(), config)
		if err != nil {
			return nil, err
		}
		paused, err := beginGeneration(cmd.Context(), s)
		if err == nil {
			err = selfupgrade.Records{Disk: disk.OS{}, Data: config.Data, Log: slog.Default()}.Remove()
		}
		return map[string][]string{"paused_rollouts": paused}, errors.Join(err, s.Close())
	}, func(w io.Writer, out map[string][]string) {
		fmt.Fprintln(w, "The store begins a new generation when the next server starts.")
		printPaused(w, out["paused_rollouts"])
	})
}
