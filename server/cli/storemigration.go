package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/muster-fleet/muster/server/app"
	"github.com/muster-fleet/muster/server/store"
	"github.com/muster-fleet/muster/server/store/elastic"
	"github.com/muster-fleet/muster/server/store/migrate"
	"github.com/muster-fleet/muster/server/store/sqlite"
)

// exitInUse is the exit code of a migration that has copied everything but cannot finish
// while a server uses the source.
const exitInUse = 3

func (a *client) newStore() *cobra.Command {
	return noun(&cobra.Command{
		Use:   "store",
		Short: "Move the server's data to another store, or follow up a restore (on the server's machine)",
	}, a.newStoreMigrate(), a.newStoreUnmark(), a.newStoreRestored())
}

func (a *client) newStoreMigrate() *cobra.Command {
	var (
		m                            migration
		configFile, data, from, into string
	)
	cmd := &cobra.Command{
		Use:   "migrate",
		Short: "Move everything from the embedded store to Elasticsearch",
		Long: `Copy all documents from the embedded store in the data folder to the Elasticsearch that
the configuration names, compare both, and mark the embedded store as moved. Agents
continue where they were.

While the server still runs, with its old configuration, the command copies everything
and exits with code 3. Then stop the server and run the same command again: it copies
what has changed, compares both stores and says what to do next. An interrupted command
continues where it was when it is run again.

Exit codes: 0 moved and compared, 1 failed, 3 copied, but a server still uses the
embedded store.`,
		Example: `  muster store migrate --from sqlite --to elasticsearch --config server.yml --dry-run
  muster store migrate --from sqlite --to elasticsearch --config server.yml`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if from != "sqlite" || into != "elasticsearch" {
				return &usageError{errors.New("only --from sqlite --to elasticsearch is supported: to go back, use the embedded store as it was (see `muster store unmark --help`)")}
			}
			config, err := validConfig(configFile, data)
			if err != nil {
				return err
			}
			m.client, m.cmd, m.config = a, cmd, config
			if err := m.prepare(); err != nil {
				return err
			}
			ctx := cmd.Context()
			if m.dryRun {
				err = m.show(ctx)
			} else {
				err = m.run(ctx)
			}
			if err != nil && ctx.Err() != nil {
				return &exitError{interrupted, errors.New("interrupted: run the same command again to continue")}
			}
			return err
		},
	}
	f := cmd.Flags()
	f.StringVar(&from, "from", "", "store to copy from: sqlite")
	f.StringVar(&into, "to", "", "store to copy to: elasticsearch")
	f.StringVar(&configFile, "config", "", "the server's configuration file, with store.elasticsearch")
	f.StringVar(&data, "data", "", "the server's data folder (default "+app.Defaults().Data+")")
	f.BoolVar(&m.dryRun, "dry-run", false, "show what would be moved and change nothing")
	f.BoolVar(&m.restart, "restart", false, "delete the indices of an unfinished migration from Elasticsearch and start over")
	f.BoolVarP(&m.yes, "yes", "y", false, "with --restart: delete without asking for confirmation")
	return cmd
}

// migration is one run of `muster store migrate`.
type migration struct {
	client      *client
	cmd         *cobra.Command
	config      app.Config
	opts        elastic.Options
	path        string // of the embedded store
	destination string // described for messages

	dryRun, restart, yes bool

	// noun is in progress since began; reported is when it was last logged.
	noun            string
	began, reported time.Time
}

// moved is the output of the subcommand.
type moved struct {
	// State is "planned" (--dry-run), "copied" (a server uses the source), "moved" or
	// "different".
	State string      `json:"state"`
	From  string      `json:"from"`
	To    string      `json:"to"`
	Nouns []movedNoun `json:"nouns"`
	// LostPackages names the packages whose archives are missing from the data folder.
	LostPackages []string `json:"lost_packages,omitempty"`
	// Unreadable are documents of the embedded store that nobody can read, so that they are not
	// copied; up to a bound of the store.
	Unreadable []unreadable `json:"unreadable,omitempty"`
}

// unreadable is a document that is not copied.
type unreadable struct {
	Noun   string `json:"noun"`
	ID     string `json:"id"`
	Reason string `json:"reason"`
}

// unreadableIn returns the documents that reading a store completely has left out.
func unreadableIn(s store.Store) (out []unreadable) {
	for _, d := range s.Unreadable().List(time.Time{}) {
		out = append(out, unreadable{d.Noun, d.ID, d.Reason})
	}
	return out
}

// movedNoun reports on one kind of document, as far as the migration has come.
type movedNoun struct {
	Noun      string            `json:"noun"`
	Documents int               `json:"documents"`
	Written   *int              `json:"written,omitempty"`
	Removed   *int              `json:"removed,omitempty"`
	Compared  *migrate.Compared `json:"compared,omitempty"`
}

// prepare checks that both stores are named.
func (m *migration) prepare() (err error) {
	es := m.config.Store.Elasticsearch
	if es == nil {
		return errors.New("the configuration names no Elasticsearch: add store.elasticsearch to it (see `muster server --example-config`), and name it with --config")
	}
	if m.opts, err = elasticOptions(es); err != nil {
		return err
	}
	m.opts.Loading = true
	m.path = filepath.Join(m.config.Data, storeFile)
	if _, err := os.Stat(m.path); err != nil {
		return noStore(m.config.Data, err)
	}
	m.destination = fmt.Sprintf("Elasticsearch at %s, indices %s*", strings.Join(es.Hosts, ", "), m.prefix())
	return nil
}

func (m *migration) prefix() string { return cmp.Or(m.opts.Prefix, elastic.DefaultPrefix) }

// show prints what would be moved, for --dry-run.
func (m *migration) show(ctx context.Context) error {
	source, _, err := m.openSource(ctx)
	if err != nil {
		return err
	}
	defer source.Close()
	found, err := elastic.Inspect(ctx, m.opts)
	if err != nil {
		return err
	}
	all, err := migrate.Count(ctx, source)
	if err != nil {
		return err
	}
	out := moved{State: "planned", From: m.path, To: m.destination}
	for _, c := range all {
		out.Nouns = append(out.Nouns, movedNoun{Noun: c.Noun, Documents: c.Read})
	}
	there := 0
	for _, n := range found.Documents {
		there += n
	}
	return m.client.show(m.cmd.OutOrStdout(), out, func(w io.Writer) {
		tableOf(w, "NOUN\tDOCUMENTS", out.Nouns, func(n movedNoun) []any { return []any{n.Noun, n.Documents} })
		fmt.Fprintf(w, "\nThese would be copied from %s to %s, ", out.From, out.To)
		switch {
		case found.Migration != nil && found.Migration.FinishedAt == nil:
			fmt.Fprintf(w, "which already has %s of an unfinished migration from %s.\n", counted(there, "document"), found.Migration.From)
		case there > 0:
			fmt.Fprintf(w, "which already has %s: the migration would be refused.\n", counted(there, "document"))
		default:
			fmt.Fprint(w, "which is empty.\n")
		}
	})
}

func (m *migration) run(ctx context.Context) error {
	id, before, err := m.source(ctx)
	if err != nil {
		return err
	}
	done, err := m.mayFill(ctx, id, before)
	if err != nil || done {
		return err
	}
	to, err := elastic.Open(ctx, m.opts)
	if err != nil {
		return err
	}
	defer to.Close()
	state, err := to.Migration(ctx)
	if err != nil {
		return err
	}
	if state == nil {
		state = &store.Migration{Source: id, From: m.path, StartedAt: time.Now().UTC()}
		if err := to.SetMigration(ctx, *state); err != nil {
			return err
		}
	}
	for pass := 1; ; pass++ {
		from, owner, err := m.openSource(ctx)
		if err != nil {
			return err
		}
		if !owner && pass > 1 {
			from.Close()
			return &exitError{exitInUse, fmt.Errorf("everything has been copied, but a server still uses %s: stop it and run the same command again, which copies what has changed and ends the migration", m.path)}
		}
		err = m.pass(ctx, from, to, owner, *state)
		from.Close()
		if err != nil || owner {
			return err
		}
		// If the server has been stopped meanwhile, the next pass ends the migration.
	}
}

// source returns the id of the embedded store, and its mark if it has been moved.
func (m *migration) source(ctx context.Context) (id string, before *store.Moved, err error) {
	s, _, err := m.openSource(ctx)
	if err != nil {
		return "", nil, err
	}
	defer s.Close()
	if before, err = s.Moved(ctx); err != nil {
		return "", nil, err
	}
	id, err = migrate.ID(ctx, s)
	return id, before, err
}

// mayFill checks that Elasticsearch is empty or has an unfinished migration of this store.
// It returns done if this store has been moved there already.
func (m *migration) mayFill(ctx context.Context, id string, before *store.Moved) (done bool, err error) {
	found, err := elastic.Inspect(ctx, m.opts)
	if err != nil {
		return false, err
	}
	state := found.Migration
	open := state != nil && state.FinishedAt == nil
	if open && m.restart {
		if err := m.removeUnfinished(ctx, *state); err != nil {
			return false, err
		}
		found, state, open = elastic.Found{}, nil, false
	}
	switch {
	case open && state.Source == id:
		return false, nil
	case open:
		return false, fmt.Errorf("%s has an unfinished migration from another store (%s): choose another prefix, or delete that migration with --restart", m.destination, state.From)
	case before != nil && state != nil && state.Source == id:
		return true, m.client.show(m.cmd.OutOrStdout(), moved{State: "moved", From: m.path, To: before.To, Nouns: []movedNoun{}}, func(w io.Writer) {
			fmt.Fprintf(w, "%s was moved to %s on %s already.\n", m.path, before.To, formatTime(before.At))
		})
	case before != nil:
		return false, fmt.Errorf("%s was moved to %s on %s: to move it once more, remove its mark with `muster store unmark --data %s`", m.path, before.To, formatTime(before.At), m.config.Data)
	case state != nil:
		return false, fmt.Errorf("%s has a migration that was finished on %s, and servers may have used it since: choose another prefix, or delete these indices by hand", m.destination, formatTime(*state.FinishedAt))
	case len(found.Documents) > 0:
		return false, fmt.Errorf("%s already has documents of another installation: choose another prefix (store.elasticsearch.prefix)", m.destination)
	}
	return false, nil
}

// formatTime formats t in UTC.
func formatTime(t time.Time) string { return t.UTC().Format(time.DateTime + " MST") }

func (m *migration) removeUnfinished(ctx context.Context, state store.Migration) error {
	if !m.yes {
		if !isTerminal(m.cmd.InOrStdin()) {
			return &usageError{errors.New("standard input is not a terminal: add --yes to delete the unfinished migration without confirmation")}
		}
		question := fmt.Sprintf("Delete the indices %s* of %s, from an unfinished migration of %s that started on %s?",
			m.prefix(), strings.Join(m.opts.URLs, ", "), state.From, formatTime(state.StartedAt))
		if err := confirm(m.cmd, question, "nothing has been deleted"); err != nil {
			return err
		}
	}
	return elastic.RemoveUnfinished(ctx, m.opts)
}

// busyTimeout is how long to wait for the embedded store: a subcommand such as
// `muster admin-key` opens it for a moment.
const busyTimeout = time.Second

// openSource opens the embedded store as its owner or, if a server uses it, read-only.
func (m *migration) openSource(ctx context.Context) (s *sqlite.Store, owner bool, err error) {
	s, err = sqlite.Open(ctx, m.path, sqlite.Options{Moved: true, BusyTimeout: busyTimeout})
	if !errors.Is(err, sqlite.ErrInUse) {
		return s, true, err
	}
	s, err = sqlite.Open(ctx, m.path, sqlite.Options{Moved: true, ReadOnly: true})
	return s, false, err
}

// pass copies and, if it owns the source, compares both stores and ends the migration.
func (m *migration) pass(ctx context.Context, from *sqlite.Store, to *elastic.Store, owner bool, state store.Migration) error {
	if owner {
		m.logf("copying %s to %s", m.path, m.destination)
	} else {
		m.logf("copying %s to %s while a server uses it", m.path, m.destination)
	}
	copied, err := migrate.Copy(ctx, from, to, m.progress("copied"))
	if err != nil {
		return err
	}
	out := moved{State: "copied", From: m.path, To: m.destination}
	for i := range copied {
		out.Nouns = append(out.Nouns, movedNoun{Noun: copied[i].Noun, Documents: copied[i].Read, Written: &copied[i].Written, Removed: &copied[i].Removed})
	}
	if out.LostPackages, err = m.packages(ctx, from, to); err != nil {
		return err
	}
	out.Unreadable = unreadableIn(from)
	if !owner {
		return m.client.show(m.cmd.OutOrStdout(), out, out.human)
	}
	m.logf("comparing both stores")
	compared, err := migrate.Verify(ctx, from, to, m.progress("compared"))
	if err != nil {
		return err
	}
	out.State = "moved"
	var different error
	for i := range compared {
		out.Nouns[i].Compared = &compared[i]
		if !compared[i].Same() && different == nil {
			out.State = "different"
			different = fmt.Errorf("%s differ, first in %s, so the embedded store was not marked as moved: start over with --restart, and report a bug if they differ again", compared[i].Noun, compared[i].Differs)
		}
	}
	if different == nil {
		if err := m.finish(ctx, from, to, state); err != nil {
			return err
		}
	}
	if err := m.client.show(m.cmd.OutOrStdout(), out, out.human); err != nil {
		return err
	}
	return different
}

// packages copies the archives of packages and the bytes of uploads into the destination, where
// every server finds them, and returns the names of those that are missing.
func (m *migration) packages(ctx context.Context, from *sqlite.Store, to *elastic.Store) ([]string, error) {
	data := to.PackageData()
	list, err := data.List(ctx)
	if err != nil {
		return nil, err
	}
	there := map[string]bool{}
	for _, p := range list {
		there[p.SHA256] = p.Whole
	}
	have := func(sha256 string) bool { return there[sha256] }
	if err := migrate.Uploads(ctx, from, m.config.UploadsDir(), have, data.Put, m.progress("copied")); err != nil {
		return nil, err
	}
	return migrate.Packages(ctx, from, m.config.PackagesDir(), have, data.Put, m.progress("copied"))
}

// finish marks the source as moved before it releases the destination. After a crash between
// the two no server can use either, until the subcommand is run again.
func (m *migration) finish(ctx context.Context, from *sqlite.Store, to *elastic.Store, state store.Migration) error {
	now := time.Now().UTC()
	if err := from.MarkMoved(ctx, store.Moved{To: m.destination, At: now}); err != nil {
		return err
	}
	state.FinishedAt = &now
	return to.SetMigration(ctx, state)
}

func (m *migration) logf(format string, args ...any) {
	fmt.Fprintf(m.cmd.ErrOrStderr(), "%s  %s\n", time.Now().Format(time.TimeOnly), fmt.Sprintf(format, args...))
}

const (
	// progressEvery is how often the progress of a noun is logged.
	progressEvery = 5 * time.Second
	// logDoneAfter is how long a noun must take for its end to be logged.
	logDoneAfter = time.Second
)

// progress returns a function that logs the progress of nouns that take a while.
func (m *migration) progress(did string) func(migrate.Step) {
	return func(s migrate.Step) {
		if m.noun != s.Noun {
			m.noun, m.began, m.reported = s.Noun, time.Now(), time.Now()
		}
		switch {
		case s.Ended && time.Since(m.began) >= logDoneAfter:
			m.logf("%s %s: %d", did, s.Noun, s.Done)
		case s.Ended || time.Since(m.reported) < progressEvery:
			return
		case s.Total > 0:
			m.logf("%s %s: %d of %d", did, s.Noun, s.Done, s.Total)
		default:
			m.logf("%s %s: %d so far", did, s.Noun, s.Done)
		}
		m.reported = time.Now()
	}
}

// digestShown is how many digits of a digest are printed.
const digestShown = 16

// unreadableShown is how many unreadable documents are printed one by one.
const unreadableShown = 20

func (out moved) printUnreadable(w io.Writer) {
	n := len(out.Unreadable)
	if n == 0 {
		return
	}
	fmt.Fprintf(w, "Not copied: %s of the embedded store that cannot be read. A backup of the data folder may have them whole:\n", counted(n, "document"))
	for _, d := range out.Unreadable[:min(n, unreadableShown)] {
		fmt.Fprintf(w, "  %s %s: %s\n", d.Noun, d.ID, d.Reason)
	}
	if n > unreadableShown {
		fmt.Fprintf(w, "  … and %d more (-o json names them)\n", n-unreadableShown)
	}
}

func (out moved) human(w io.Writer) {
	defer func() {
		for _, file := range out.LostPackages {
			fmt.Fprintf(w, "The archive %s is missing from the data folder: push it again.\n", file)
		}
		out.printUnreadable(w)
	}()
	if out.State == "copied" {
		tableOf(w, "NOUN\tDOCUMENTS\tWRITTEN\tREMOVED", out.Nouns, func(n movedNoun) []any { return []any{n.Noun, n.Documents, *n.Written, *n.Removed} })
		return
	}
	tableOf(w, "NOUN\tSQLITE\tELASTICSEARCH\tWRITTEN\tDIGEST", out.Nouns, func(n movedNoun) []any {
		c := n.Compared
		digest := c.FromDigest[:digestShown]
		if c.FromDigest != c.ToDigest {
			digest += " != " + c.ToDigest[:digestShown]
		}
		return []any{n.Noun, c.From, c.To, *n.Written, digest}
	})
	if out.State == "moved" {
		readable := ""
		if len(out.Unreadable) > 0 {
			readable = ", as far as they can be read"
		}
		fmt.Fprintf(w, `
Moved and compared: both stores have the same documents%s. From now on the server needs
its configuration to name %s.
%s is unchanged but marked as moved: a server does not start on it.
Keep the data folder: its folders tls and trust are the server's identity.
`, readable, out.To, out.From)
	}
}

func (a *client) newStoreUnmark() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "unmark",
		Short: "Let a server use an embedded store again that has been moved",
		Long: `Remove the mark that ` + "`muster store migrate`" + ` leaves in the embedded store. The store lacks
everything that has happened since the move: agents that enrolled later are not in it.`,
		Example: "  muster store unmark --data /var/lib/muster",
	}
	var files serverFiles
	files.flags(cmd)
	path := ""
	return running(a, cmd, func(cmd *cobra.Command, _ []string) (*store.Moved, error) {
		config, err := loadConfig(files.config, files.data)
		if err != nil {
			return nil, err
		}
		path = filepath.Join(config.Data, storeFile)
		if _, err := os.Stat(path); err != nil {
			return nil, noStore(config.Data, err)
		}
		mark, err := sqlite.Unmark(cmd.Context(), path)
		if err == nil && mark == nil {
			err = fmt.Errorf("%s is not marked as moved", path)
		}
		return mark, err
	}, func(w io.Writer, mark *store.Moved) {
		fmt.Fprintf(w, "%s, moved to %s on %s, can be used again\n", path, mark.To, formatTime(mark.At))
	})
}

// noStore is the error of a data folder without an embedded store.
func noStore(folder string, err error) error {
	return fmt.Errorf("there is no embedded store in %s: name the server's data folder with --data: %w", folder, err)
}
