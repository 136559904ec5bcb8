// Package cli is the operator's command line: `muster server` runs a server,
// every other subcommand talks to the admin API of one.
package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/muster-fleet/muster/packaging/host/terminal"
	"github.com/muster-fleet/muster/server/cli/packagecmd"
)

// Main runs the command line in os.Args and returns its exit code: 0 for success, 1 for
// a failure, 2 for a usage error. Subcommands that follow a rollout have more codes:
// see rolloutwait.go.
func Main(version string) int {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	return Run(ctx, New(version))
}

// interrupted is the exit code shells give a program that Ctrl-C ended.
const interrupted = 130

// Run executes root and returns the exit code. It prints an error to root's
// standard error. All output is escaped, because much of it is text of hosts, packages and
// servers.
func Run(ctx context.Context, root *cobra.Command) int {
	root.SetOut(terminal.NewWriter(root.OutOrStdout()))
	root.SetErr(terminal.NewWriter(root.ErrOrStderr()))
	running, done := context.WithCancel(ctx)
	defer done() // releases what lasts as long as a command
	err := root.ExecuteContext(running)
	var (
		usage *usageError
		exit  *exitError
	)
	switch {
	case err == nil:
		return 0
	case errors.As(err, &exit):
		fmt.Fprintln(root.ErrOrStderr(), "muster:", err)
		return exit.code
	case errors.Is(err, context.Canceled) && ctx.Err() != nil:
		fmt.Fprintln(root.ErrOrStderr(), "muster: interrupted")
		return interrupted
	}
	fmt.Fprintln(root.ErrOrStderr(), "muster:", err)
	if errors.As(err, &usage) {
		return 2
	}
	return 1
}

type usageError struct{ error }

// client holds what all subcommands share: the server and the output format.
type client struct {
	version string
	server  serverAddress
	output  string
}

// New returns the root command.
func New(version string) *cobra.Command {
	reused := &connections{}
	a := &client{version: version, server: serverAddress{reused: reused}}
	root := &cobra.Command{
		Use:   "muster",
		Short: "Fleet check-in server with self-upgrading agents",
		Long: `muster server runs the server. The other commands talk to its admin API: log in
once with ` + "`muster login`" + `, or set MUSTER_URL, MUSTER_API_KEY and MUSTER_CA_PIN.`,
		Version:       version,
		SilenceUsage:  true,
		SilenceErrors: true,
	}
	root.SetFlagErrorFunc(func(c *cobra.Command, err error) error {
		return &usageError{fmt.Errorf("%w (see `%s --help`)", err, c.CommandPath())}
	})
	a.server.flags(root.PersistentFlags())
	root.PersistentFlags().StringVarP(&a.output, "output", "o", "human", "output format: human or json")
	root.PersistentPreRunE = func(cmd *cobra.Command, _ []string) error {
		context.AfterFunc(cmd.Context(), reused.close)
		if formats := formatsOf(cmd); !slices.Contains(formats, a.output) {
			return &usageError{fmt.Errorf("--output is %q, want %s", a.output, orWords(formats))}
		}
		return nil
	}
	_ = root.RegisterFlagCompletionFunc("output", func(cmd *cobra.Command, _ []string, _ string) ([]string, cobra.ShellCompDirective) {
		return formatsOf(cmd), cobra.ShellCompDirectiveNoFileComp
	})
	root.AddCommand(a.newServer(), a.newAdminKey(), a.newCA(), a.newCAPin(), a.newLogin(), a.newStatus(), a.newDoctor(), a.newServers(), a.newAgents(), a.newComponents(), a.newActions(), a.newKeys(), a.newAdminKeys(), a.newPolicies(), a.newPackage(), a.newEvents(), a.newAudit(),
		a.newRollouts(), a.newGroups(), a.newIncidents(), a.newAttention(), a.newViews(), a.newSettings(), a.newExposure(), a.newFreezes(), a.newManifests(), a.newWebhooks(), a.newStore(), a.newBackup(), a.newRestore(),
		a.newApply(), a.newDiff(), a.newGet(), a.newDelete(), a.newWait(), a.newExplain(), a.newExport(), a.newFleets())
	a.find(root)
	refuseUnknown(root)
	return root
}

// moreFormats is the annotation of a subcommand with the formats that it has besides human and
// json, divided by spaces.
const moreFormats = "output"

// outputs gives a subcommand more formats of output.
func outputs(cmd *cobra.Command, formats ...string) {
	cmd.Annotations = map[string]string{moreFormats: strings.Join(formats, " ")}
	cmd.Long = cmp.Or(cmd.Long, cmd.Short+".") + "\n\nBesides human and json, --output may be " + orWords(formats) + "."
}

// orWords lists words as in: a, b or c.
func orWords(words []string) string {
	last := len(words) - 1
	if last < 1 {
		return strings.Join(words, "")
	}
	return strings.Join(words[:last], ", ") + " or " + words[last]
}

// formatsOf returns the values of --output that a subcommand has.
func formatsOf(cmd *cobra.Command) []string {
	return append([]string{"human", "json"}, strings.Fields(cmd.Annotations[moreFormats])...)
}

// refuseUnknown turns wrong arguments and unknown subcommands below cmd into usage errors.
// Cobra alone answers `muster agents lst` with the help text and exit code 0.
func refuseUnknown(cmd *cobra.Command) {
	if !cmd.Runnable() {
		cmd.Args = cobra.ArbitraryArgs
		cmd.RunE = func(c *cobra.Command, args []string) error {
			if len(args) == 0 {
				return c.Help()
			}
			return &usageError{unknownSubcommand(c, args[0])}
		}
	} else if check := cmd.Args; check != nil {
		cmd.Args = func(c *cobra.Command, args []string) error {
			if err := check(c, args); err != nil {
				return &usageError{err}
			}
			return nil
		}
	}
	for _, sub := range cmd.Commands() {
		refuseUnknown(sub)
	}
}

func unknownSubcommand(c *cobra.Command, word string) error {
	if c.SuggestionsMinimumDistance <= 0 {
		c.SuggestionsMinimumDistance = 2 // cobra's own default
	}
	if near := c.SuggestionsFor(word); len(near) > 0 {
		return fmt.Errorf("%s has no command %q: did you mean %s?", c.CommandPath(), word, strings.Join(near, " or "))
	}
	return fmt.Errorf("%s has no command %q (see `%s --help`)", c.CommandPath(), word, c.CommandPath())
}

func noArgs(c *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	return fmt.Errorf("%s takes no arguments, got %q (see `%s --help`)", c.CommandPath(), args[0], c.CommandPath())
}

func (a *client) newPackage() *cobra.Command {
	cmd := packagecmd.New()
	cmd.AddCommand(a.newPackageList(), a.newPackagePush(), a.newPackageTrust(), a.newPackageDistrust(), a.newPackageWithdraw())
	packagecmd.AddKeyCommands(cmd, remote{a})
	return cmd
}

// show prints v as JSON with -o json, and calls human otherwise.
func (a *client) show(w io.Writer, v any, human func(io.Writer)) error {
	if a.output == "json" {
		return packagecmd.WriteJSON(w, v)
	}
	human(w)
	return nil
}

// table prints rows in columns under a heading. What is too long for a row follows below the
// table in full, after the row's first cell.
func table(w io.Writer, heading string, rows func(add func(cells ...any))) {
	t := tabwriter.NewWriter(w, 0, 0, 3, ' ', 0)
	fmt.Fprintln(t, heading)
	columns := strings.Split(heading, "\t")
	var below []string
	rows(func(cells ...any) {
		for i, c := range cells {
			if i > 0 {
				fmt.Fprint(t, "\t")
			}
			text, whole := cell(c)
			if !whole {
				below = append(below, fmt.Sprintf("%s, %s: %s", oneLine(cells[0]), strings.ToLower(columns[i]), oneLine(c)))
			}
			fmt.Fprint(t, text)
		}
		fmt.Fprintln(t)
	})
	t.Flush()
	for _, line := range below {
		fmt.Fprintln(w, line)
	}
}

// tableOf prints a table with a row for each item.
func tableOf[T any](w io.Writer, heading string, items []T, row func(T) []any) {
	table(w, heading, func(add func(...any)) {
		for _, item := range items {
			add(row(item)...)
		}
	})
}

// details prints what is known of one thing, each on a line with its name in a column of a width.
type details struct {
	w     io.Writer
	width int
}

func (d details) row(name, text string) { fmt.Fprintf(d.w, "  %-*s %s\n", d.width, name, text) }

func (d details) rowf(name, format string, args ...any) { d.row(name, fmt.Sprintf(format, args...)) }

// option prints a line unless its text is empty.
func (d details) option(name, text string) {
	if text != "" {
		d.row(name, text)
	}
}

// maxCell is how many characters of a cell a table shows, so that a row stays on one
// line.
const maxCell = 120

// cell formats v on one line, shortened to maxCell characters; whole is false if it is longer.
func cell(v any) (text string, whole bool) {
	s := oneLine(v)
	if r := []rune(s); len(r) > maxCell {
		return string(r[:maxCell-1]) + "…", false
	}
	return s, true
}

func oneLine(v any) string { return strings.Join(strings.Fields(fmt.Sprint(v)), " ") }

// ago formats how long before now t was.
func ago(t *time.Time, now time.Time) string {
	if t == nil {
		return "never"
	}
	d := now.Sub(*t)
	switch {
	case d < 10*time.Second:
		return "now"
	case d < time.Minute:
		return fmt.Sprintf("%d s ago", int(d.Seconds()))
	case d < time.Hour:
		return fmt.Sprintf("%d min ago", int(d.Minutes()))
	case d < 48*time.Hour:
		return fmt.Sprintf("%d h ago", int(d.Hours()))
	}
	return fmt.Sprintf("%d days ago", int(d.Hours()/24))
}

// atTime formats a time as the clock of this machine shows it.
func atTime(t time.Time) string { return t.Local().Format(time.DateTime) }

// given returns a pointer to an option, nil if it is zero.
func given[T comparable](v T) *T {
	var zero T
	if v == zero {
		return nil
	}
	return &v
}

func deref[T any](p *T) T {
	var zero T
	if p == nil {
		return zero
	}
	return *p
}

// someArgs requires an argument or more; says is its error.
func someArgs(says string) cobra.PositionalArgs {
	return func(_ *cobra.Command, args []string) error {
		if len(args) == 0 {
			return errors.New(says)
		}
		return nil
	}
}

// twoArgs requires exactly two arguments, which its error describes as what.
func twoArgs(what string) cobra.PositionalArgs {
	return func(c *cobra.Command, args []string) error {
		if len(args) == 2 {
			return nil
		}
		return fmt.Errorf("want %s (see `%s --help`)", what, c.CommandPath())
	}
}

// oneArg requires exactly one argument, which its error describes as what.
func oneArg(what string) cobra.PositionalArgs {
	return func(c *cobra.Command, args []string) error {
		if len(args) == 1 {
			return nil
		}
		return fmt.Errorf("want %s (see `%s --help`)", what, c.CommandPath())
	}
}
