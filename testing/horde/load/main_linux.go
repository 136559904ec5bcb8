// Command load loads a Muster server with thousands of agents and measures it: a server
// that it starts itself, or one that runs. `go run ./testing/horde/load --help` says how;
// DESIGN.md beside it explains what is measured.
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

	"github.com/muster-fleet/muster/testing/horde/scenario"
)

// gcPercent lets the heap of thousands of connections grow to some times their size
// before it is looked through: the processor time is the server's.
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
	exitFailed      = 1 // something was lost, doubled or answered with 5xx, or the run could not end
	exitUsage       = 2
	exitInterrupted = 130
)

// errFound says that the table has failures.
var errFound = errors.New("something happened that must not: see the failures above")

type usageError struct{ error }

func run(ctx context.Context, root *cobra.Command) int {
	err := root.ExecuteContext(ctx)
	var usage usageError
	switch {
	case err == nil:
		return 0
	case ctx.Err() != nil:
		fmt.Fprintln(root.ErrOrStderr(), "load: interrupted")
		return exitInterrupted
	}
	fmt.Fprintln(root.ErrOrStderr(), "load:", err)
	if errors.As(err, &usage) {
		return exitUsage
	}
	return exitFailed
}

// summaries are the scenarios' help, by name.
var summaries = map[string]string{
	"enrol":       "Enrol hosts one at a time, then many at once",
	"park":        "Connect all agents for the first time, and measure the server while they are parked",
	"single":      "Order actions for single parked agents, one after the other",
	"upgrade-all": "Order an upgrade of all agents: until each has it, and each has acknowledged",
	"floor":       "Measure bare servers: what a TLS connection and a check-in cost this machine at least",
	"checkins":    "Let agents check in again and again, each check-in ending the one before",
	"behind":      "Order actions for single agents behind one for all others",
	"churn":       "Let agents hang up and come back all the time",
	"slow":        "Order actions beside links that are slow, half open or never read",
	"storm":       "Drop all connections at once, and let everybody come back",
	"restart":     "Stop the server and start it again (with --start)",
}

func newCommand() *cobra.Command {
	var (
		o       scenario.Options
		output  string
		results string
	)
	root := &cobra.Command{
		Use:   "load",
		Short: "Load a Muster server with thousands of agents, and measure it",
		Long: `Runs agents that speak the real protocol over TLS and cost some kilobytes each,
and measures the server meanwhile. With --start it builds and starts the server itself, in
a temporary folder; --muster names another program to start, such as one built from an
older commit. Without --start, name a server that runs. One that is not on this machine is
refused, unless you say that it is yours; the agents stay enrolled there, with the tag
load-<time>-<number>.

The exit code is not 0 if an action was lost or came twice, if an acknowledgement was
refused, or if the server answered with 5xx. Ctrl-C ends a run and removes what it started.`,
		Example: `  go run ./testing/horde/load standard --start
  go run ./testing/horde/load upgrade-all --start --agents 1000
  go run ./testing/horde/load park upgrade-all --start --muster /tmp/before/muster
  go run ./testing/horde/load park --agents 5000 --hold 5m --pid 4711 --server https://127.0.0.1:8220 \
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
	f.BoolVar(&o.Keep, "keep", false, "with --start: leave the server's folder, with its log, and say where it is")
	f.StringVar(&o.Server, "server", "", "URL for agents of a server that runs")
	f.StringVar(&o.CAFile, "ca", "", "its authority's certificate: tls/ca.crt in its data folder")
	f.StringVar(&o.EnrollmentToken, "enrollment-token", "", "what hosts enrol with")
	f.StringVar(&o.AdminURL, "admin-url", "", "URL of its admin API")
	f.StringVar(&o.AdminKey, "admin-key", os.Getenv("MUSTER_API_KEY"), "key for it (default: MUSTER_API_KEY)")
	f.IntVar(&o.PID, "pid", 0, "its process on this machine, to measure memory and processor time")
	f.BoolVar(&o.Owned, "i-own-this-server", false, "load a server that is not on this machine's loopback")
	f.IntVar(&o.Agents, "agents", scenario.StandardAgents(runtime.NumCPU()), "how many agents; by default what this machine is fit for")
	f.IntVar(&o.PerProcess, "per-process", 0, "how many agents one process has (default: as many as it can hold)")
	f.Float64Var(&o.HTTP2, "http2", 0, "share of the agents that speak HTTP/2, 0 to 1")
	f.IntVar(&o.Dials, "dials", scenario.DefaultDials, "how many connections are made at the same time")
	f.Float64Var(&o.Ramp, "ramp", scenario.DefaultRamp, "how many agents connect in a second before anything is measured")
	f.DurationVar(&o.Hold, "hold", scenario.DefaultHold, "how long a fleet is parked, check-ins go round, agents churn")
	f.IntVar(&o.Rounds, "rounds", scenario.DefaultRounds, "how often an action for all is ordered")
	f.IntVar(&o.Singles, "singles", scenario.DefaultSingles, "how often an action for one agent is ordered")
	f.StringVarP(&output, "output", "o", "human", "output form: human or json")
	f.StringVar(&results, "results", "", "write the table into this file, too, in place of the last one of such a server")
	f.StringVar(&o.Profiles, "profiles", "", "with --start: profile the server and the agents, into this folder, and say where the time goes")

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
		Use: scenario.HerdCommand, Hidden: true,
		Args: cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error { return scenario.ServeHerd(os.Stdin, os.Stdout) },
	}, &cobra.Command{
		Use: scenario.FloorCommand, Hidden: true,
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

// show prints the table. It is written to a file only if the run was whole.
func show(w io.Writer, table *scenario.Table, output, results string, whole bool) error {
	var err error
	if output == "json" {
		enc := json.NewEncoder(w)
		enc.SetIndent("", "  ")
		err = enc.Encode(table)
	} else {
		err = table.Markdown(w)
	}
	if err == nil && results != "" && whole {
		err = table.Report(results)
	}
	if err == nil && len(table.Failures) > 0 {
		err = errFound
	}
	return err
}
