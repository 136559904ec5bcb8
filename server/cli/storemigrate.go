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

	"github.com/muster-fleet/muster/server/replica"
	"github.com/muster-fleet/muster/server/store"
	"github.com/muster-fleet/muster/server/store/elastic"
	"github.com/muster-fleet/muster/server/store/migrate"
	"github.com/muster-fleet/muster/server/store/sqlite"
)

// exitInUse is the exit code of a migration that has copied what there was, but
// cannot end while a server uses the source.
const exitInUse = 3

func (a *app) newStore() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "store",
		Short: "Move what the server keeps to another store",
		Long:  "Works on the server's stores themselves, on the server's own machine.",
	}
	cmd.AddCommand(a.newStoreMigrate(), a.newStoreUnmark())
	return cmd
}

func (a *app) newStoreMigrate() *cobra.Command {
	var (
		m                            migration
		configFile, data, from, into string
	)
	cmd := &cobra.Command{
		Use:   "migrate",
		Short: "Move everything from the embedded store to Elasticsearch",
		Long: `Copies all documents from the embedded store in the data folder to the
Elasticsearch that the configuration names, compares both, and marks the embedded
store as moved. Agents, their keys and what they have received stay as they are.

While the server still runs, with its old configuration, this copies what there is
and ends with code 3. Then stop the server and run the same command again: it
copies what has changed, compares, and says how to go on. It may be interrupted at
any time; run again, it goes on where it was.

Exit codes: 0 moved and compared, 1 failed, 3 copied, but a server still uses the
embedded store.`,
		Example: `  muster store migrate --from sqlite --to elasticsearch --config server.yml --dry-run
  muster store migrate --from sqlite --to elasticsearch --config server.yml`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if from != "sqlite" || into != "elasticsearch" {
				return &usageError{errors.New("only --from sqlite --to elasticsearch is possible: there is no way back but the embedded store as it was (see `muster store unmark --help`)")}
			}
			config, err := loadConfig(configFile, data)
			if err != nil {
				return err
			}
			if err := config.Validate(); err != nil {
				return err
			}
			m.app, m.cmd, m.config = a, cmd, config
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
				return &exitError{interrupted, errors.New("interrupted: run the same command again, and it goes on where it was")}
			}
			return err
		},
	}
	f := cmd.Flags()
	f.StringVar(&from, "from", "", "where documents are: sqlite")
	f.StringVar(&into, "to", "", "where they go: elasticsearch")
	f.StringVar(&configFile, "config", "", "the server's configuration file, with store.elasticsearch")
	f.StringVar(&data, "data", "", "the server's data folder (default "+replica.Defaults().Data+")")
	f.BoolVar(&m.dryRun, "dry-run", false, "say what would be moved, and change nothing")
	f.BoolVar(&m.restart, "restart", false, "delete what an unfinished migration has left in Elasticsearch, and begin anew")
	f.BoolVarP(&m.yes, "yes", "y", false, "with --restart: without a question")
	return cmd
}

// migration is one run of `muster store migrate`.
type migration struct {
	app    *app
	cmd    *cobra.Command
	config replica.Config
	opts   elastic.Options
	path   string // of the embedded store
	target string // for people

	dryRun, restart, yes bool

	// noun is worked on since began, and was told of last at told.
	noun        string
	began, told time.Time
}

// moved is what the command prints.
type moved struct {
	// State is "planned" (--dry-run), "copied" (a server uses the source), "moved", or
	// "different".
	State string      `json:"state"`
	From  string      `json:"from"`
	To    string      `json:"to"`
	Nouns []movedNoun `json:"nouns"`
	// LostPackages are the files of packages whose bytes the data folder lacks.
	LostPackages []string `json:"lost_packages,omitempty"`
}

// movedNoun has what is known by then.
type movedNoun struct {
	Noun      string            `json:"noun"`
	Documents int               `json:"documents"`
	Written   *int              `json:"written,omitempty"`
	Removed   *int              `json:"removed,omitempty"`
	Compared  *migrate.Compared `json:"compared,omitempty"`
}

// prepare finds both ends.
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
		return fmt.Errorf("there is no embedded store in %s: name the server's data folder with --data: %w", m.config.Data, err)
	}
	m.target = fmt.Sprintf("Elasticsearch at %s, indices %s*", strings.Join(es.Hosts, ", "), m.prefix())
	return nil
}

func (m *migration) prefix() string { return cmp.Or(m.opts.Prefix, elastic.DefaultPrefix) }

// show is --dry-run.
func (m *migration) show(ctx context.Context) error {
	source, _, err := m.openSource(ctx)
	if err != nil {
		return err
	}
	defer source.Close()
	found, err := elastic.Look(ctx, m.opts)
	if err != nil {
		return err
	}
	all, err := migrate.Count(ctx, source)
	if err != nil {
		return err
	}
	out := moved{State: "planned", From: m.path, To: m.target}
	for _, c := range all {
		out.Nouns = append(out.Nouns, movedNoun{Noun: c.Noun, Documents: c.Read})
	}
	there := 0
	for _, n := range found.Documents {
		there += n
	}
	return m.app.show(m.cmd.OutOrStdout(), out, func(w io.Writer) {
		table(w, "NOUN\tDOCUMENTS", func(add func(...any)) {
			for _, n := range out.Nouns {
				add(n.Noun, n.Documents)
			}
		})
		fmt.Fprintf(w, "\nThese would go from %s to %s, ", out.From, out.To)
		switch {
		case found.Migration != nil && found.Migration.FinishedAt == nil:
			fmt.Fprintf(w, "where %s of an unfinished migration from %s are already.\n", counted(there, "document"), found.Migration.From)
		case there > 0:
			fmt.Fprintf(w, "where %s are in the way.\n", counted(there, "document"))
		default:
			fmt.Fprint(w, "where there is nothing yet.\n")
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
		from, alone, err := m.openSource(ctx)
		if err != nil {
			return err
		}
		if !alone && pass > 1 {
			from.Close()
			return &exitError{exitInUse, fmt.Errorf("everything has been copied, but a server still uses %s: stop it and run the same command again, which copies what has changed and ends the migration", m.path)}
		}
		err = m.pass(ctx, from, to, alone, *state)
		from.Close()
		if err != nil || alone {
			return err
		}
		// Whoever has stopped the server meanwhile need not run it again.
	}
}

// source returns the id of the embedded store, and its mark if it was moved.
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

// mayFill says whether Elasticsearch has nothing, or what an unfinished migration
// of this store has left; done: this store was moved there.
func (m *migration) mayFill(ctx context.Context, id string, before *store.Moved) (done bool, err error) {
	found, err := elastic.Look(ctx, m.opts)
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
		return false, fmt.Errorf("%s: a migration from another store (%s) is not finished there: choose another prefix, or delete what it has left with --restart", m.target, state.From)
	case before != nil && state != nil && state.Source == id:
		return true, m.app.show(m.cmd.OutOrStdout(), moved{State: "moved", From: m.path, To: before.To, Nouns: []movedNoun{}}, func(w io.Writer) {
			fmt.Fprintf(w, "%s was moved to %s on %s: there is nothing left to do.\n", m.path, before.To, day(before.At))
		})
	case before != nil:
		return false, fmt.Errorf("%s was moved to %s on %s: to move it once more, remove its mark with `muster store unmark --data %s`", m.path, before.To, day(before.At), m.config.Data)
	case state != nil:
		return false, fmt.Errorf("%s: a migration was finished there on %s, and servers may have worked on it since: choose another prefix, or delete these indices by hand", m.target, day(*state.FinishedAt))
	case len(found.Documents) > 0:
		return false, fmt.Errorf("%s: there are documents already, of another installation: choose another prefix (store.elasticsearch.prefix)", m.target)
	}
	return false, nil
}

// day is when something happened.
func day(t time.Time) string { return t.UTC().Format(time.DateTime + " MST") }

func (m *migration) removeUnfinished(ctx context.Context, state store.Migration) error {
	if !m.yes {
		if !isTerminal(m.cmd.InOrStdin()) {
			return &usageError{errors.New("there is no terminal to ask on: add --yes to delete what the migration has left")}
		}
		ok, err := confirm(m.cmd, fmt.Sprintf("Delete the indices %s* of %s, which a migration from %s began to fill on %s?",
			m.prefix(), strings.Join(m.opts.URLs, ", "), state.From, day(state.StartedAt)))
		if err != nil {
			return err
		}
		if !ok {
			return errors.New("nothing has been deleted")
		}
	}
	return elastic.RemoveUnfinished(ctx, m.opts)
}

// aloneWait is how long to wait for the embedded store: a command such as
// `muster admin-key` has it open for a moment.
const aloneWait = time.Second

// openSource opens the embedded store as its owner, or reads it beside the server that
// uses it.
func (m *migration) openSource(ctx context.Context) (s *sqlite.Store, alone bool, err error) {
	s, err = sqlite.Open(ctx, m.path, sqlite.Options{Moved: true, BusyTimeout: aloneWait})
	if !errors.Is(err, sqlite.ErrInUse) {
		return s, true, err
	}
	s, err = sqlite.Open(ctx, m.path, sqlite.Options{Moved: true, ReadOnly: true})
	return s, false, err
}

// pass copies, and if nobody else has the source, ends the migration.
func (m *migration) pass(ctx context.Context, from *sqlite.Store, to *elastic.Store, alone bool, state store.Migration) error {
	if alone {
		m.tell("copying %s to %s", m.path, m.target)
	} else {
		m.tell("copying %s to %s, beside the server that uses it", m.path, m.target)
	}
	copied, err := migrate.Copy(ctx, from, to, m.progress("copied"))
	if err != nil {
		return err
	}
	out := moved{State: "copied", From: m.path, To: m.target}
	for i := range copied {
		out.Nouns = append(out.Nouns, movedNoun{Noun: copied[i].Noun, Documents: copied[i].Read, Written: &copied[i].Written, Removed: &copied[i].Removed})
	}
	if out.LostPackages, err = m.packages(ctx, from, to); err != nil {
		return err
	}
	if !alone {
		return m.app.show(m.cmd.OutOrStdout(), out, out.human)
	}
	m.tell("comparing both")
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
			different = fmt.Errorf("%s are not the same, the first that differs is %s: nothing was marked as moved; start over with --restart, and report it if that does not help", compared[i].Noun, compared[i].Differs)
		}
	}
	if different == nil {
		if err := m.finish(ctx, from, to, state); err != nil {
			return err
		}
	}
	if err := m.app.show(m.cmd.OutOrStdout(), out, out.human); err != nil {
		return err
	}
	return different
}

// packages puts the bytes of packages into the target, where every server finds
// them, and returns the files of those that are lost.
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
	return migrate.Packages(ctx, from, m.config.PackagesDir(), func(sha256 string) bool { return there[sha256] }, data.Put, m.progress("copied"))
}

// finish closes the source before it opens the target: in between no server can
// use either, and the command, run again, ends it.
func (m *migration) finish(ctx context.Context, from *sqlite.Store, to *elastic.Store, state store.Migration) error {
	now := time.Now().UTC()
	if err := from.MarkMoved(ctx, store.Moved{To: m.target, At: now}); err != nil {
		return err
	}
	state.FinishedAt = &now
	return to.SetMigration(ctx, state)
}

func (m *migration) tell(format string, args ...any) {
	fmt.Fprintf(m.cmd.ErrOrStderr(), "%s  %s\n", time.Now().Format(time.TimeOnly), fmt.Sprintf(format, args...))
}

const (
	// tellEvery is how often a noun that takes long says how far it is.
	tellEvery = 5 * time.Second
	// tellOf is how long a noun takes that is told of when it is done.
	tellOf = time.Second
)

// progress tells of nouns that take a while.
func (m *migration) progress(did string) func(migrate.Step) {
	return func(s migrate.Step) {
		if m.noun != s.Noun {
			m.noun, m.began, m.told = s.Noun, time.Now(), time.Now()
		}
		switch {
		case s.Ended && time.Since(m.began) >= tellOf:
			m.tell("%s %s: %d", did, s.Noun, s.Done)
		case s.Ended || time.Since(m.told) < tellEvery:
			return
		case s.Total > 0:
			m.tell("%s %s: %d of %d", did, s.Noun, s.Done, s.Total)
		default:
			m.tell("%s %s: %d so far", did, s.Noun, s.Done)
		}
		m.told = time.Now()
	}
}

// digestShown is how much of a digest people compare.
const digestShown = 16

func (out moved) human(w io.Writer) {
	defer func() {
		for _, file := range out.LostPackages {
			fmt.Fprintf(w, "The bytes of %s are not in the data folder, so nobody could fetch it: push it again.\n", file)
		}
	}()
	if out.State == "copied" {
		table(w, "NOUN\tDOCUMENTS\tWRITTEN\tREMOVED", func(add func(...any)) {
			for _, n := range out.Nouns {
				add(n.Noun, n.Documents, *n.Written, *n.Removed)
			}
		})
		return
	}
	table(w, "NOUN\tSQLITE\tELASTICSEARCH\tWRITTEN\tDIGEST", func(add func(...any)) {
		for _, n := range out.Nouns {
			c := n.Compared
			digest := c.FromDigest[:digestShown]
			if c.FromDigest != c.ToDigest {
				digest += " is not " + c.ToDigest[:digestShown]
			}
			add(n.Noun, c.From, c.To, *n.Written, digest)
		}
	})
	if out.State == "moved" {
		fmt.Fprintf(w, `
Moved and compared: both stores have the same. From now on the server needs its
configuration to name %s.
%s is kept as it is, and marked: a server will not start on it.
The data folder is still needed: the folders tls and trust in it are the server's identity.
`, out.To, out.From)
	}
}

func (a *app) newStoreUnmark() *cobra.Command {
	var configFile, data string
	cmd := &cobra.Command{
		Use:   "unmark",
		Short: "Let a server use an embedded store again that was moved",
		Long: `Removes the mark that ` + "`muster store migrate`" + ` leaves in the embedded store. A server
on it knows nothing of what has happened since the move: agents that enrolled
later are not in it, and actions may get numbers once more that agents have seen.`,
		Example: "  muster store unmark --data /var/lib/muster",
		Args:    noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			config, err := loadConfig(configFile, data)
			if err != nil {
				return err
			}
			path := filepath.Join(config.Data, storeFile)
			if _, err := os.Stat(path); err != nil {
				return fmt.Errorf("there is no embedded store in %s: name the server's data folder with --data: %w", config.Data, err)
			}
			mark, err := sqlite.Unmark(cmd.Context(), path)
			if err != nil {
				return err
			}
			if mark == nil {
				return fmt.Errorf("%s is not marked as moved: there is nothing to do", path)
			}
			return a.show(cmd.OutOrStdout(), mark, func(w io.Writer) {
				fmt.Fprintf(w, "%s, moved to %s on %s, can be used again\n", path, mark.To, day(mark.At))
			})
		},
	}
	cmd.Flags().StringVar(&configFile, "config", "", "the server's configuration file (YAML)")
	cmd.Flags().StringVar(&data, "data", "", "the server's data folder (default "+replica.Defaults().Data+")")
	return cmd
}
