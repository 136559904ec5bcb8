package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"

	"github.com/muster-fleet/muster/packaging/host/disk"
	"github.com/muster-fleet/muster/server/app"
	"github.com/muster-fleet/muster/server/fleet"
	"github.com/muster-fleet/muster/server/node/control"
	"github.com/muster-fleet/muster/server/node/selfupgrade"
)

func (a *client) newServerUpgrade() *cobra.Command {
	var (
		files                                  serverFiles
		to                                     string
		resume, status, undo, detach, unbacked bool
	)
	cmd := &cobra.Command{
		Use:   "upgrade",
		Short: "Upgrade all servers of the installation as one (on a server's machine)",
		Long: `Upgrade all servers of the installation as one, to a version that is installed beside the
old one on each machine (` + "`muster server install`" + `): of the same major version, and of the
same, a higher or the previous minor version.

The servers check their machines, take no more orders from operators, answer their parked
agents bit by bit and stop. One of them backs up the store and brings its schema to that of
the version; each moves the pointer on its machine, replaces its own process, and serves
again. The backup of an embedded store is a file for ` + "`muster restore`" + `: ` + "`muster server backups`" + `
lists these, and an upgrade that has succeeded removes all but the newest three. That of
Elasticsearch is a copy of the indices with a prefix of its own, which a server can be
pointed to: remove it when you no longer need it. Agents that cannot connect meanwhile try again. What fails before the schema changes
is undone as a whole; from there on the upgrade only goes forward. A server that dies on
the way continues when its service manager starts it.

The command follows the upgrade to its end. Ctrl-C ends only the command: --status shows the
upgrade, and --undo asks to undo it while that is possible. --resume completes the part of
this machine that a crash has interrupted, before its server starts; without one it does
nothing, so that a service manager can run it before each start.

Exit codes: 0 upgraded, 1 failed or undone, 130 interrupted while it goes on.`,
		Example: `  muster server upgrade --to 1.2.0
  muster server upgrade --status --config /etc/muster/server.yml
  muster server upgrade --undo`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			asked := 0
			for _, given := range []bool{to != "", resume, status, undo} {
				if given {
					asked++
				}
			}
			if asked != 1 {
				return &usageError{errors.New("want one of --to VERSION, --resume, --status and --undo (see `muster server upgrade --help`)")}
			}
			config, err := validConfig(files.config, files.data)
			if err != nil {
				return err
			}
			if resume {
				return a.resumeUpgrade(cmd.Context(), cmd.OutOrStdout(), config)
			}
			c, done, err := upgradeOperations(cmd.Context(), config)
			if err != nil {
				return err
			}
			defer done()
			f := upgradeFollower{client: a, out: cmd.OutOrStdout(), err: cmd.ErrOrStderr(), operations: c, redial: func(ctx context.Context) (control.Upgrades, func(), error) {
				return upgradeOperations(ctx, config)
			}}
			return f.run(cmd.Context(), to, undo, detach, unbacked)
		},
	}
	files.flags(cmd)
	f := cmd.Flags()
	f.StringVar(&to, "to", "", "version to upgrade to, or to go back to")
	f.BoolVar(&resume, "resume", false, "complete the part of this machine in an upgrade that was interrupted")
	f.BoolVar(&status, "status", false, "show the upgrade that is under way, or the last one")
	f.BoolVar(&undo, "undo", false, "undo the upgrade that is under way, as long as the store has not changed")
	f.BoolVar(&unbacked, "without-backup", false, "do not back up the store, which costs the time to copy all documents: you have a backup, or a snapshot of the indices")
	f.BoolVar(&detach, "detach", false, "do not follow the upgrade to its end")
	return cmd
}

// upgradeOperations returns the operations on the upgrade of the servers. They never open an
// embedded store, which would change its schema, and never change that of Elasticsearch.
func upgradeOperations(ctx context.Context, config app.Config) (control.Upgrades, func(), error) {
	if config.Store.Elasticsearch != nil {
		s, err := openStoreAs(ctx, config, true)
		if err != nil {
			return nil, nil, err
		}
		return storeOperations{s}, func() { _ = s.Close() }, nil // writes are durable before Close
	}
	c, err := control.Dial(ctx, config.Data)
	if errors.Is(err, control.ErrNoServer) {
		err = fmt.Errorf("no server runs on %s: start it, which continues an upgrade that is under way, or name the data folder with --data", config.Data)
	}
	if err != nil {
		return nil, nil, err
	}
	return c, func() {}, nil
}

// resumeUpgrade moves this machine's pointer if its server has recorded that only the other
// version may run. Everything else the server does itself when it starts.
func (a *client) resumeUpgrade(ctx context.Context, out io.Writer, config app.Config) error {
	records := selfupgrade.Records{Disk: disk.OS{}, Data: config.Data, Log: slog.Default()}
	r, err := records.Read()
	if err != nil {
		return err
	}
	state := "none"
	switch {
	case r.Run == "":
	case !r.Decided():
		state = "waiting"
	default:
		m := &upgradeMachine{version: a.version, config: config, log: slog.Default()}
		if err := m.Switch(ctx, r.To); err != nil {
			return err
		}
		state = "switched"
	}
	return a.show(out, map[string]string{"state": state, "from": r.From, "to": r.To}, func(w io.Writer) {
		switch state {
		case "none":
			fmt.Fprintln(w, "No upgrade of the servers is under way on this machine.")
		case "waiting":
			fmt.Fprintf(w, "The servers are being upgraded from %s to %s. The server on this machine continues when it starts.\n", r.From, r.To)
		default:
			fmt.Fprintf(w, "Version %s is the current one on this machine. Start its server, which continues the upgrade.\n", r.To)
		}
	})
}

// upgradeFollower follows an upgrade of the servers on the terminal.
type upgradeFollower struct {
	client     *client
	out, err   io.Writer
	operations control.Upgrades
	redial     func(context.Context) (control.Upgrades, func(), error)
}

const (
	// upgradePoll is the interval at which the subcommand looks at the upgrade.
	upgradePoll = 300 * time.Millisecond
	// upgradeSilence is how long the subcommand accepts that no server answers: a server
	// starts within seconds, and its service manager may pause before that.
	upgradeSilence = 2 * time.Minute
)

func (f *upgradeFollower) run(ctx context.Context, to string, undo, detach, unbacked bool) error {
	u, err := f.begin(ctx, to, undo, unbacked)
	switch {
	case err != nil:
		return err
	case u == nil:
		return f.client.show(f.out, map[string]any{"phase": nil}, func(w io.Writer) { fmt.Fprintln(w, "The servers were never upgraded together.") })
	case to == "" && !undo || detach:
		return f.client.show(f.out, u, func(w io.Writer) { printUpgrade(w, u, time.Now()) })
	}
	u, err = f.follow(ctx, u)
	if err != nil {
		return err
	}
	if err := f.client.show(f.out, u, func(w io.Writer) { printUpgrade(w, u, time.Now()) }); err != nil {
		return err
	}
	want := fleet.ServerDone
	set(undo, &want, fleet.ServerUndone)
	if u.Phase != want {
		return fmt.Errorf("the upgrade to %s has ended %s: %s", u.To, u.Phase, cmp.Or(u.Problem, "see the logs of the servers"))
	}
	return nil
}

func (f *upgradeFollower) begin(ctx context.Context, to string, undo, unbacked bool) (*fleet.ServerUpgrade, error) {
	switch {
	case to != "":
		return f.operations.BeginUpgrade(ctx, to, unbacked)
	case undo:
		return f.operations.UndoUpgrade(ctx)
	}
	return f.operations.Upgrade(ctx)
}

// phaseTexts say what happens in each phase.
var phaseTexts = map[fleet.ServerPhase]string{
	fleet.ServerCheck:   "each server checks that the version is installed on its machine",
	fleet.ServerHold:    "the servers take no more orders; agents stay connected",
	fleet.ServerStop:    "each server answers its agents and stops",
	fleet.ServerRecheck: "each machine is checked again",
	fleet.ServerBackup:  "the store is backed up",
	fleet.ServerMigrate: "the schema of the store is changed: from here on the upgrade only goes forward",
	fleet.ServerSwitch:  "each server replaces itself by the other version",
	fleet.ServerStart:   "each server serves again",
	fleet.ServerVerify:  "each server checks itself, and agents come back",
	fleet.ServerUndo:    "the upgrade is undone: each server serves again as before",
}

// follow prints the phases until the upgrade ends.
func (f *upgradeFollower) follow(ctx context.Context, u *fleet.ServerUpgrade) (*fleet.ServerUpgrade, error) {
	run, printed, answered := u.Run, "", time.Now()
	commands, done := f.operations, func() {}
	defer func() { done() }()
	for {
		if line := fmt.Sprintf("%-12s %s", u.Phase, phaseTexts[u.Phase]); line != printed && !u.Phase.Ended() && f.client.output != "json" {
			fmt.Fprintf(f.err, "%6.1f s  %s\n", time.Since(u.StartedAt).Seconds(), line)
			printed = line
		}
		if u.Phase.Ended() || u.Run != run {
			return u, nil
		}
		select {
		case <-ctx.Done():
			return u, &exitError{interrupted, fmt.Errorf("interrupted: the upgrade to %s goes on, and is in the phase %s: `muster server upgrade --status` shows it, --undo asks to undo it", u.To, u.Phase)}
		case <-time.After(upgradePoll):
		}
		got, err := commands.Upgrade(ctx)
		if err == nil && got != nil {
			u, answered = got, time.Now()
			continue
		}
		if time.Since(answered) > upgradeSilence {
			return u, fmt.Errorf("no server has answered for %s; the last phase was %s. A server continues the upgrade when it starts: see their logs, and `muster server upgrade --status`: %w", upgradeSilence, u.Phase, err)
		}
		if again, end, err := f.redial(ctx); err == nil {
			done()
			commands, done = again, end
		}
	}
}

func printUpgrade(w io.Writer, u *fleet.ServerUpgrade, now time.Time) {
	switch u.Phase {
	case fleet.ServerDone:
		fmt.Fprintf(w, "Upgraded %s from %s to %s", counted(len(u.Servers), "server"), u.From, u.To)
	case fleet.ServerUndone:
		fmt.Fprintf(w, "The upgrade from %s to %s was undone", u.From, u.To)
	default:
		fmt.Fprintf(w, "The servers are being upgraded from %s to %s. Phase %s since %s: %s.\n", u.From, u.To, u.Phase, ago(&u.Since, now), phaseTexts[u.Phase])
	}
	if d, ok := u.Took(); ok {
		fmt.Fprintf(w, " in %.1f s.\n", d.Seconds())
	}
	if d, ok := u.Downtime(); ok {
		fmt.Fprintf(w, "Without servers for %.1f s, from the first that stopped to the last that served again.\n", d.Seconds())
	}
	if before, after := u.Agents(); before > 0 && u.Phase == fleet.ServerDone {
		fmt.Fprintf(w, "%d agents were connected before, and %d are now.\n", before, after)
	}
	if u.Problem != "" {
		fmt.Fprintf(w, "Problem: %s\n", u.Problem)
	}
	if u.Backup != "" {
		fmt.Fprintf(w, "Backup of the store: %s\n", u.Backup)
	}
	tableOf(w, "HOST\tVERSION\tREACHED\tPROBLEM", u.Servers, func(s fleet.UpgradingServer) []any {
		return []any{s.Host, s.Version, cmp.Or(string(s.Reached), "-"), cmp.Or(s.Problem, "-")}
	})
}

func (a *client) newServerSchema() *cobra.Command {
	cmd := &cobra.Command{
		Use:    "schema",
		Short:  "Show the schemas that this program writes (used by `muster server upgrade`)",
		Hidden: true,
		Args:   noArgs,
	}
	var files serverFiles
	files.flags(cmd)
	bring := cmd.Flags().Bool("migrate", false, "bring the store to this program's schema; no server may use it")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if *bring {
			return bringSchema(cmd.Context(), files)
		}
		s := ownSchemas()
		return a.show(cmd.OutOrStdout(), s, func(w io.Writer) {
			fmt.Fprintf(w, "SQLite %d, Elasticsearch %d\n", s.SQLite, s.Elasticsearch)
		})
	}
	return cmd
}

// bringSchema opens the store, which brings it to this program's schema.
func bringSchema(ctx context.Context, files serverFiles) error {
	config, err := loadConfig(files.config, files.data)
	if err != nil {
		return err
	}
	if config.Store.Elasticsearch == nil {
		if _, err := os.Stat(filepath.Join(config.Data, storeFile)); err != nil { // it would be created
			return err
		}
	}
	s, err := openStore(ctx, config)
	if err != nil {
		return err
	}
	return s.Close()
}
