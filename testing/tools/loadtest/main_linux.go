// Command loadtest loads a Muster server with thousands of simulated agents and measures
// it. It starts the server itself or uses a running one; see `go run ./testing/tools/loadtest
// --help`. DESIGN.md explains what is measured.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"runtime"
	"runtime/debug"
	"strings"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/muster-fleet/muster/testing/tools/loadtest/scenario"
)

// gcPercent makes garbage collection rare, since it would take CPU time from the server.
const gcPercent = 300

func main() {
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(gcPercent)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	os.Exit(run(ctx, newCommand()))
}

// Exit codes.
const (
	exitFailed      = 1 // something was lost, duplicated or answered with 5xx, or the run stopped
	exitUsage       = 2
	exitInterrupted = 130
)

// errFailures is returned if the table has failures.
var errFailures = errors.New("the run has failures: see above")

type usageError struct{ error }

func run(ctx context.Context, root *cobra.Command) int {
	err := root.ExecuteContext(ctx)
	var usage usageError
	switch {
	case err == nil:
		return 0
	case ctx.Err() != nil:
		fmt.Fprintln(root.ErrOrStderr(), "loadtest: interrupted")
		return exitInterrupted
	}
	fmt.Fprintln(root.ErrOrStderr(), "loadtest:", err)
	if errors.As(err, &usage) {
		return exitUsage
	}
	return exitFailed
}

// summaries has the short help of the scenarios by name.
var summaries = map[string]string{
	"enrol":       "Enrol hosts one at a time, then many at once",
	"park":        "Connect all agents for the first time, and measure the server while they are parked",
	"single":      "Order actions for single parked agents, one after the other",
	"upgrade-all": "Order an upgrade of all agents, and wait until each has received and acknowledged it",
	"floor":       "Measure bare servers: the least that a TLS connection and an answer cost on this machine",
	"checkins":    "Check in continuously, each check-in ending the one before",
	"behind":      "Order actions for single agents while one for all others is delivered",
	"churn":       "Disconnect and reconnect agents continuously",
	"slow":        "Order actions beside connections that are slow, half open or never read",
	"storm":       "Drop all connections at once, and let all agents reconnect",
	"restart":     "Stop and start the server (requires --start)",
}

func newCommand() *cobra.Command {
	var (
		o       scenario.Options
		output  string
		results string
	)
	root := &cobra.Command{
		Use:   "loadtest",
		Short: "Load a Muster server with thousands of simulated agents, and measure it",
		Long: `Runs simulated agents that speak the real protocol over TLS, and measures the server.

With --start the program builds the server and starts it in a temporary folder; --muster
names another program to start, such as one built from an older commit. Without --start,
name a running server. A server on another machine is refused without
--i-own-this-server. The agents stay enrolled there, with the tag load-<time>-<pid>.

The exit code is 1 if an action was lost or delivered twice, if an acknowledgement was
refused, or if the server answered with 5xx. Ctrl-C ends a run and removes what it started.`,
		Example: `  go run ./testing/tools/loadtest standard --start
  go run ./testing/tools/loadtest upgrade-all --start --agents 1000
  go run ./testing/tools/loadtest park upgrade-all --start --muster /tmp/before/muster
  go run ./testing/tools/loadtest park --agents 5000 --hold 5m --pid 4711 --server https://127.0.0.1:8220 \
    --ca ca.crt --enrollment-token TOKEN --admin-url https://127.0.0.1:8221 --admin-key KEY`,
		SilenceUsage: true, SilenceErrors: true,
		Args: cobra.ArbitraryArgs,
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) > 0 {
				return usageError{fmt.Errorf("there is no scenario %q: want standard, or %s", args[0], strings.Join(scenario.Names, ", "))}
			}
			return cmd.Help()
		},
	}
	root.SetFlagErrorFunc(func(c *cobra.Command, err error) error {
		return usageError{fmt.Errorf("%w (see `%s --help`)", err, c.CommandPath())}
	})
	f := root.PersistentFlags()
	f.BoolVar(&o.Start, "start", false, "build and start the server")
	f.StringVar(&o.Elasticsearch, "elasticsearch", "", "with --start: URL of an Elasticsearch, the server's store (default: the embedded one)")
	f.StringVar(&o.Muster, "muster", "", "with --start: the server's program, of any commit (default: it is built from this one)")
	f.BoolVar(&o.Keep, "keep", false, "with --start: keep the server's folder, with its store and log, and print its path")
	f.StringVar(&o.Server, "server", "", "URL for agents of a running server")
	f.StringVar(&o.CAFile, "ca", "", "file with the certificate of its authority: tls/ca.crt in its data folder")
	f.StringVar(&o.EnrollmentToken, "enrollment-token", "", "token to enrol hosts with")
	f.StringVar(&o.AdminURL, "admin-url", "", "URL of its admin API")
	f.StringVar(&o.AdminKey, "admin-key", os.Getenv("MUSTER_API_KEY"), "key of the admin API (default: MUSTER_API_KEY)")
	f.IntVar(&o.PID, "pid", 0, "id of its process on this machine, to measure its memory and CPU time")
	f.BoolVar(&o.Owned, "i-own-this-server", false, "load a server that is not on this machine's loopback")
	f.IntVar(&o.Agents, "agents", scenario.StandardAgents(runtime.NumCPU()), "number of agents; the default suits this machine")
	f.IntVar(&o.PerProcess, "per-process", 0, "number of agents in one process (default: as many as it can hold)")
	f.Float64Var(&o.HTTP2, "http2", 0, "share of the agents that use HTTP/2, 0 to 1")
	f.IntVar(&o.Dials, "dials", scenario.DefaultDials, "number of connections made at the same time")
	f.Float64Var(&o.Ramp, "ramp", scenario.DefaultRamp, "number of agents that connect in a second before a measurement")
	f.DurationVar(&o.Hold, "hold", scenario.DefaultHold, "how long the scenarios park, checkins, churn and slow measure")
	f.IntVar(&o.Rounds, "rounds", scenario.DefaultRounds, "number of actions for all agents")
	f.IntVar(&o.Singles, "singles", scenario.DefaultSingles, "number of actions for one agent")
	f.StringVarP(&output, "output", "o", "human", "output form: human or json")
	f.StringVar(&results, "results", "", "also write the table into this file, in place of the one of the same setup")
	f.StringVar(&o.Profiles, "profiles", "", "with --start: write CPU profiles of the server and the agents into this folder, and print where the time goes")

	measure := func(cmd *cobra.Command, names []string) error {
		if output != "human" && output != "json" {
			return usageError{fmt.Errorf("--output is %q, want human or json", output)}
		}
		if err := o.Validate(); err != nil {
			return usageError{err}
		}
		o.Progress = cmd.ErrOrStderr()
		table, err := scenario.Run(cmd.Context(), o, names...)
		if table == nil {
			return err
		}
		return errors.Join(err, show(cmd.OutOrStdout(), table, output, results, err == nil))
	}
	for _, name := range scenario.Names {
		root.AddCommand(&cobra.Command{
			Use: name + " [SCENARIO …]", Short: summaries[name],
			Args: func(_ *cobra.Command, args []string) error { return known(args) },
			RunE: func(cmd *cobra.Command, args []string) error { return measure(cmd, append([]string{name}, args...)) },
		})
	}
	root.AddCommand(&cobra.Command{
		Use: "standard", Short: "All scenarios, one after the other",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			names := scenario.Names
			if !o.Start {
				names = names[:len(names)-1] // all but restart, the last
			}
			return measure(cmd, names)
		},
	}, &cobra.Command{
		Use: scenario.GeneratorSubcommand, Hidden: true,
		Args: cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error { return scenario.ServeGenerator(os.Stdin, os.Stdout) },
	}, &cobra.Command{
		Use: scenario.FloorSubcommand, Hidden: true,
		Args: cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error { return scenario.ServeFloor(os.Stdin, os.Stdout) },
	})
	return root
}

func known(names []string) error {
	for _, name := range names {
		if summaries[name] == "" {
			return usageError{fmt.Errorf("there is no scenario %q: want %s", name, strings.Join(scenario.Names, ", "))}
		}
	}
	return nil
}

// show prints the table. It writes the table to a file only if the run completed.
func show(w io.Writer, table *scenario.Table, output, results string, completed bool) error {
	var err error
	if output == "json" {
		enc := json.NewEncoder(w)
		enc.SetIndent("", "  ")
		err = enc.Encode(table)
	} else {
		err = table.Markdown(w)
	}
	if err == nil && results != "" && completed {
		err = table.Report(results)
	}
	if err == nil && len(table.Failures) > 0 {
		err = errFailures
	}
	return err
}
