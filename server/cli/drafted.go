package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/muster-fleet/muster/packaging/host/terminal"
	"github.com/muster-fleet/muster/server/api/adminapi"
)

// drafted is what rollouts and groups have in common: they are created as drafts, previewed, started
// exactly as previewed, commanded, and followed to an end.
type drafted[Item, Status, Preview any] struct {
	noun     string // the subcommands about it are muster NOUNs
	one      cobra.PositionalArgs
	complete func(states ...string) cobra.CompletionFunc

	get     adminapi.Operation[adminapi.None, Status]
	preview adminapi.Operation[adminapi.None, Preview]
	start   adminapi.Operation[adminapi.StartRolloutRequest, Item]

	// named returns the id of an item, its name with the id, and how many agents or members it has.
	named        func(Item) (id, title, size string)
	printPreview func(io.Writer, Preview)
	// previewed returns the hash of a preview and the size of what it would start, or why there is
	// nothing to start.
	previewed func(Preview) (hash, size string, err error)

	line   func(Status) string
	screen func(io.Writer, Status, time.Time)
	// outcome returns the exit code and the message once it ends or needs an operator.
	outcome func(got Status, interactive bool) (code int, text string)
}

// arg is the word for one of them in the usage of a subcommand.
func (d drafted[Item, Status, Preview]) arg() string { return strings.ToUpper(d.noun) }

// command is how one of its subcommands is called.
func (d drafted[Item, Status, Preview]) command(verb, id string) string {
	return fmt.Sprintf("muster %ss %s %s", d.noun, verb, id)
}

// of completes a subcommand about one of them that has, unless it says otherwise, no other arguments.
func (d drafted[Item, Status, Preview]) of(cmd *cobra.Command, states []string) *cobra.Command {
	if cmd.Args == nil {
		cmd.Args = d.one
	}
	if cmd.ValidArgsFunction == nil {
		cmd.ValidArgsFunction = d.complete(states...)
	}
	return cmd
}

// commanding makes cmd give a command to one of them in these states, and print what done says or,
// if it has --wait, follow it.
func commanding[In, Item, Status, Preview any](a *client, d drafted[Item, Status, Preview], cmd *cobra.Command, states []string, op adminapi.Operation[In, Item],
	request func(cmd *cobra.Command, args []string) (In, error), done func(got Item, args []string) string, follow *following,
) *cobra.Command {
	give := sent(a, op, request)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		got, err := give(cmd, args)
		if err != nil {
			return err
		}
		return d.showOrFollow(a, cmd, got, deref(follow), func(w io.Writer) { fmt.Fprintln(w, done(got, args)) })
	}
	if follow != nil {
		follow.register(cmd.Flags(), d.noun)
	}
	return d.of(cmd, states)
}

// reasoned is a subcommand that takes only a reason.
type reasoned[Item any] struct {
	op                adminapi.Operation[adminapi.WhyRequest, Item]
	name, short, long string
	done              string   // printed afterwards
	states            []string // of those that shells complete
	needsWhy          string   // why the reason is required; empty: it is not
}

func newReasoned[Item, Status, Preview any](a *client, d drafted[Item, Status, Preview], v reasoned[Item], more func(Item) string) *cobra.Command {
	cmd := &cobra.Command{Use: v.name + " " + d.arg(), Short: v.short, Long: v.long}
	return commanding(a, d, cmd, v.states, v.op, func(*cobra.Command, []string) (req adminapi.WhyRequest, err error) {
		if v.needsWhy != "" && a.server.Why == "" {
			err = &usageError{errors.New("--why is missing: " + v.needsWhy)}
		}
		return req, err
	}, func(got Item, _ []string) string {
		_, title, _ := d.named(got)
		return fmt.Sprintf(v.done, title) + more(got)
	}, new(following))
}

// newExample returns the subcommand that prints a text to start from.
func newExample(short, example string, text func() string) *cobra.Command {
	return &cobra.Command{
		Use: "example", Short: short, Example: example, Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			_, err := io.WriteString(cmd.OutOrStdout(), text())
			return err
		},
	}
}

// showPreview previews a draft and prints the subcommand that starts it.
func (d drafted[Item, Status, Preview]) showPreview(a *client, cmd *cobra.Command, id string, print func(io.Writer, Preview)) error {
	got, err := ask(cmd.Context(), a, d.preview, nil, id)
	if err != nil {
		return err
	}
	return a.show(cmd.OutOrStdout(), got, func(w io.Writer) {
		print(w, got)
		hash, _, _ := d.previewed(got)
		fmt.Fprintf(w, "\nStart it exactly as previewed with\n  %s --hash %s\n", d.command("start", id), hash)
	})
}

// creating holds the flags of subcommands that create a draft, and may preview or start it.
type creating struct {
	starting
	preview, start bool
}

func (c *creating) register(cmd *cobra.Command, noun string) {
	f := cmd.Flags()
	f.BoolVar(&c.preview, "preview", false, "show what the draft would do")
	f.BoolVar(&c.start, "start", false, "preview the "+noun+", ask for confirmation, and start it")
	f.BoolVarP(&c.yes, "yes", "y", false, "start without asking for confirmation")
	c.follow.register(f, noun)
}

// created previews or starts the draft that a subcommand has created, as its flags say, or prints the subcommands for it.
func (d drafted[Item, Status, Preview]) created(a *client, cmd *cobra.Command, got Item, c *creating) error {
	id, title, _ := d.named(got)
	switch {
	case c.start:
		return d.previewAndRun(a, cmd, id, &c.starting)
	case c.preview:
		return d.showPreview(a, cmd, id, d.printPreview)
	}
	return a.show(cmd.OutOrStdout(), got, func(w io.Writer) {
		fmt.Fprintf(w, "Created draft %s.\nPreview it with `%s`, then start it with `%s`.\n", title, d.command("preview", id), d.command("start", id))
	})
}

// starting holds the flags of subcommands that start a draft.
type starting struct {
	req    adminapi.StartRolloutRequest
	yes    bool
	owner  takeOver
	follow following
}

func (d drafted[Item, Status, Preview]) newStart(a *client, long string) (*cobra.Command, *starting) {
	var (
		s      starting
		accept bool
	)
	cmd := &cobra.Command{
		Use:     "start " + d.arg(),
		Short:   "Start a draft exactly as it was previewed",
		Long:    long,
		Example: fmt.Sprintf("  muster %ss start %s\n  muster %[1]ss start %[2]s --hash sha256:5f2a… --wait", d.noun, d.arg()),
		RunE: func(cmd *cobra.Command, args []string) error {
			s.req.AcceptDrift = given(accept)
			if s.req.Hash != "" {
				return d.run(a, cmd, args[0], &s)
			}
			if !s.yes && !isTerminal(cmd.InOrStdin()) {
				return &usageError{errors.New("standard input is not a terminal, so the preview cannot be confirmed: pass its --hash, or --yes to start without confirmation")}
			}
			err := d.previewAndRun(a, cmd, args[0], &s)
			if errors.As(err, new(errNothingToDo)) {
				return a.show(cmd.OutOrStdout(), map[string]string{"result": err.Error()}, func(w io.Writer) {
					fmt.Fprintf(w, "%s; remove the draft with `%s`\n", err, d.command("delete", args[0]))
				})
			}
			return err
		},
	}
	f := cmd.Flags()
	f.StringVar(&s.req.Hash, "hash", "", "hash of the preview, sha256:…")
	f.BoolVar(&accept, "accept-drift", false, "start even if the fleet has changed since the preview")
	f.BoolVarP(&s.yes, "yes", "y", false, "without --hash: start without asking for confirmation")
	s.follow.register(f, d.noun)
	return d.of(cmd, []string{"draft"}), &s
}

// previewAndRun shows the preview of a draft, asks unless --yes is given, and starts it exactly as
// previewed.
func (d drafted[Item, Status, Preview]) previewAndRun(a *client, cmd *cobra.Command, id string, s *starting) error {
	got, err := ask(cmd.Context(), a, d.preview, nil, id)
	if err != nil {
		return err
	}
	d.printPreview(cmd.ErrOrStderr(), got)
	hash, size, err := d.previewed(got)
	if err != nil {
		return err
	}
	if !s.yes {
		otherwise := fmt.Sprintf("not started: start the draft later with `%s --hash %s`", d.command("start", id), hash)
		if err := confirm(cmd, fmt.Sprintf("Start %s %s %s?", d.noun, id, size), otherwise); err != nil {
			return err
		}
	}
	s.req.Hash = hash
	return d.run(a, cmd, id, s)
}

// run starts a draft.
func (d drafted[Item, Status, Preview]) run(a *client, cmd *cobra.Command, id string, s *starting) error {
	got, err := ordered(cmd, &s.owner, func(name *string) (Item, error) {
		s.req.TakeOver = name
		return call(cmd.Context(), a, d.start, s.req, id)
	})
	if drift := driftOf(err); drift != nil {
		printDrift(cmd.ErrOrStderr(), *drift.Drift)
		return fmt.Errorf("%w\nStart it with the fleet as it is now (%s): `%s --hash %s`, or repeat the command with --accept-drift",
			err, counted(deref(drift.Targets), "agent"), d.command("start", id), deref(drift.Hash))
	}
	if err != nil {
		return err
	}
	_, title, size := d.named(got)
	return d.showOrFollow(a, cmd, got, s.follow, func(w io.Writer) {
		fmt.Fprintf(w, "Started %s %s %s.\nFollow it with `%s`.\n", d.noun, title, size, d.command("watch", id))
	})
}

// Exit codes of subcommands that follow a rollout, listed in `muster rollouts --help`, and of
// `muster wait fleets` and `muster apply --wait`, listed in their help.
// Scripts depend on them: append only.
const (
	exitFailed    = 3
	exitGate      = 4
	exitCancelled = 5
	exitOperator  = 6
	exitStalled   = 7
)

// exitError is an error with its own exit code.
type exitError struct {
	code int
	error
}

// following holds the flags of subcommands that follow a rollout.
type following struct {
	wait    bool
	timeout time.Duration
}

func (f *following) register(set *pflag.FlagSet, noun string) {
	set.BoolVar(&f.wait, "wait", false, fmt.Sprintf("follow the %s until it ends or needs an operator; the exit code is its outcome (see muster %[1]ss --help)", noun))
	f.registerTimeout(set, noun)
}

func (f *following) registerTimeout(set *pflag.FlagSet, noun string) {
	set.DurationVar(&f.timeout, "timeout", 0, "stop following after this time; the "+noun+" continues (default: no limit)")
}

// showOrFollow prints the result of a subcommand or, with --wait, follows what it is about.
func (d drafted[Item, Status, Preview]) showOrFollow(a *client, cmd *cobra.Command, got Item, follow following, human func(io.Writer)) error {
	if !follow.wait {
		return a.show(cmd.OutOrStdout(), got, human)
	}
	id, _, _ := d.named(got)
	return d.follow(a, cmd, id, follow, linesOf(cmd.ErrOrStderr(), d.line))
}

// newWatch returns the subcommand that follows one of them.
func (d drafted[Item, Status, Preview]) newWatch(a *client, example string, states ...string) *cobra.Command {
	var follow following
	cmd := &cobra.Command{
		Use:   "watch " + d.arg(),
		Short: "Follow a " + d.noun + " to its end",
		Long: fmt.Sprintf(`Show the progress of a %s until it ends or needs an operator: redrawn on a terminal,
otherwise one line for each change. The exit code is the outcome (see
`+"`muster %[1]ss --help`"+`). Ctrl-C stops following; the %[1]s continues.`, d.noun),
		Example: example,
		RunE: func(cmd *cobra.Command, args []string) error {
			print := linesOf(cmd.OutOrStdout(), d.line)
			switch {
			case a.output == "json":
				print = linesOf(cmd.ErrOrStderr(), d.line)
			case isTerminal(cmd.OutOrStdout()):
				print = func(got Status, now time.Time) {
					fmt.Fprint(terminal.Raw(cmd.OutOrStdout()), clearScreen)
					d.screen(cmd.OutOrStdout(), got, now)
				}
			}
			return d.follow(a, cmd, args[0], follow, print)
		},
	}
	follow.registerTimeout(cmd.Flags(), d.noun)
	return d.of(cmd, states)
}

// clearScreen moves to the top left and empties the terminal.
const clearScreen = "\x1b[H\x1b[2J"

// follow follows until there is an outcome. While the server does not answer, it retries.
// What is followed continues when nobody follows it.
func (d drafted[Item, Status, Preview]) follow(a *client, cmd *cobra.Command, id string, follow following, print func(Status, time.Time)) error {
	interactive := isTerminal(cmd.InOrStdin())
	last := "the server has not answered"
	return poll(cmd, follow.timeout, func(ctx context.Context) (bool, error) {
		got, err := ask(ctx, a, d.get, nil, id)
		if err != nil {
			if ctx.Err() == nil {
				last = err.Error()
			}
			return false, err
		}
		last = d.line(got)
		print(got, time.Now())
		code, text := d.outcome(got, interactive)
		if text == "" {
			return false, nil
		}
		err = a.show(cmd.OutOrStdout(), got, func(w io.Writer) {
			if code == 0 {
				fmt.Fprintln(w, text)
			}
		})
		if err == nil && code != 0 {
			err = &exitError{code, errors.New(text)}
		}
		return true, err
	}, func() error {
		return fmt.Errorf("not ended within %s (%s): %s %s continues. Follow it with `%s`", follow.timeout, last, d.noun, id, d.command("watch", id))
	}, &exitError{interrupted, fmt.Errorf("stopped following: %s %s continues. Follow it with `%s`, pause it with `%s --now`", d.noun, id, d.command("watch", id), d.command("pause", id))})
}

// linesOf returns a function that prints the line of what is followed whenever it changes.
func linesOf[T any](w io.Writer, lineOf func(T) string) func(T, time.Time) {
	say := changes(w)
	return func(followed T, _ time.Time) { say("", lineOf(followed)) }
}
