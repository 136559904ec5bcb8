package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/muster-fleet/muster/packaging/host/terminal"
	"github.com/muster-fleet/muster/server/api/adminapi"
	"github.com/muster-fleet/muster/server/fleet"
	"github.com/muster-fleet/muster/server/rollout/plan"
)

// createRequest is adminapi.CreateRolloutRequest with a fleet.Plan.
type createRequest struct {
	Plan     *fleet.Plan `json:"plan,omitempty"`
	From     string      `json:"from,omitempty"`
	Failed   bool        `json:"failed,omitempty"`
	Why      *string     `json:"why,omitempty"`
	TakeOver *string     `json:"take_over,omitempty"`
}

func (a *client) newRolloutsCreate() *cobra.Command {
	var (
		flags  planFlags
		s      creating
		from   string
		failed bool
	)
	cmd := &cobra.Command{
		Use:   "create",
		Short: "Create a rollout from a plan file, from flags, or for what failed in another",
		Long: `Create a rollout as a draft, which does nothing until it is started. --preview shows what
it would do. --start previews it, asks for confirmation, and starts it exactly as
previewed; without a terminal, pass --yes to skip the question.

--from ROLLOUT --failed takes the plan of a rollout that has ended, for those of its
targets that failed, were rolled back or could not be given the version. Hosts on which the
version failed before are included. While a rollout is active,
` + "`muster rollouts retry`" + ` does the same within it.`,
		Example: `  muster rollouts create --file plan.yaml --preview
  muster rollouts create --version 1.1.0 --policy web --canary 5 --soak 30m --start
  muster rollouts create --from ROLLOUT --failed --start --wait
  muster rollouts create --file plan.yaml --version 1.1.0 --start --yes --wait`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if s.follow.wait && !s.start {
				return &usageError{errors.New("--wait follows a started rollout: add --start")}
			}
			if s.start && !s.yes && !isTerminal(cmd.InOrStdin()) {
				return &usageError{errors.New("standard input is not a terminal, so the preview cannot be confirmed: add --yes to start without confirmation, or omit --start to create a draft")}
			}
			req := createRequest{Failed: failed}
			var file planFile
			switch {
			case failed != (from != ""):
				return &usageError{errors.New("--from names the rollout whose failed targets are tried again: it goes with --failed")}
			case failed && flags.given(cmd.Flags()) != "":
				return &usageError{fmt.Errorf("--%s does not go with --from: the rollout gets the plan of %s", flags.given(cmd.Flags()), from)}
			case !failed:
				var err error
				if file, err = flags.plan(cmd); err != nil {
					return err
				}
				if err := a.resolveAgents(cmd, &file); err != nil {
					return err
				}
				req.Plan = &file.plan
			}
			var err error
			if req.From, err = a.allRollouts().find(cmd.Context(), from); err != nil {
				return fmt.Errorf("--from: %w", err)
			}
			got, err := ordered(cmd, &s.owner, func(name *string) (adminapi.RolloutItem, error) {
				req.TakeOver = name
				return call(cmd.Context(), a, adminapi.Operation[createRequest, adminapi.RolloutItem]{Call: adminapi.CreateRollout.Call}, req)
			})
			if err != nil {
				return file.locate(err)
			}
			err = a.rolloutDrafts().created(a, cmd, got, &s)
			if s.start {
				err = a.removeRefused(cmd, got.Item.ID, err)
			}
			return err
		},
	}
	f := cmd.Flags()
	flags.register(f)
	f.StringVar(&from, "from", "", "rollout that has ended, whose plan is taken; with --failed")
	f.BoolVar(&failed, "failed", false, "with --from: only for the targets that failed in it")
	s.register(cmd, "rollout")
	s.owner.flag(a, cmd)
	a.completePlan(cmd)
	return cmd
}

func (a *client) completePlan(cmd *cobra.Command) {
	_ = cmd.RegisterFlagCompletionFunc("version", completing(a.versionNames))
	_ = cmd.RegisterFlagCompletionFunc("agents", completing(a.agentNames))
	_ = cmd.RegisterFlagCompletionFunc("strategy", completeWords(plan.Kinds()))
	_ = cmd.RegisterFlagCompletionFunc("canary-pick", completeWords([]string{"random", "stratified"}))
}

func (a *client) newRolloutsPreview() *cobra.Command {
	var (
		flags     planFlags
		maxAgents int
		configs   bool
		hosts     []string
	)
	cmd := &cobra.Command{
		Use:   "preview [ROLLOUT]",
		Short: "Show what a draft or a plan would do",
		Long: `Show which agents a rollout would upgrade, in which batches and when, and which agents
it leaves out and why. The preview of a draft is stored: pass its hash to start, which
refuses if the fleet has changed since. The preview of a plan, given by --file or by the
flags of ` + "`muster rollouts create`" + `, is not stored.

--configs shows instead what a draft changes in the configuration files that the server
renders: the differences from what it has rendered for each host before, those of several
hosts once. Files of which the server does not know what a host has are shown as new.`,
		Example: `  muster rollouts preview ROLLOUT
  muster rollouts preview ROLLOUT --configs --host web-01,web-02
  muster rollouts preview --file plan.yaml --agents-shown 50
  muster rollouts preview --version 1.1.0 --label site=fra -o json`,
		Args: func(c *cobra.Command, args []string) error {
			if len(args) > 1 {
				return fmt.Errorf("want one rollout id, or a plan (see `%s --help`)", c.CommandPath())
			}
			return nil
		},
		ValidArgsFunction: a.completeRollouts("draft"),
		RunE: func(cmd *cobra.Command, args []string) error {
			switch {
			case len(hosts) > 0 && !configs:
				return &usageError{errors.New("--host chooses whose configuration files are compared: add --configs")}
			case configs && len(args) == 0:
				return &usageError{errors.New("--configs compares the configuration files of a draft: create one with `muster rollouts create`, and name it")}
			case configs:
				return a.showConfigs(cmd, args[0], hosts)
			case len(args) == 1:
				return a.rolloutDrafts().showPreview(a, cmd, args[0], func(w io.Writer, p adminapi.RolloutPreviewItem) { printRolloutPreview(w, p.Item, maxAgents) })
			}
			if cmd.Flags().NFlag() == 0 {
				return &usageError{errors.New("nothing to preview: name a draft, or describe a plan with --file or flags")}
			}
			file, err := flags.plan(cmd)
			if err != nil {
				return err
			}
			if err := a.resolveAgents(cmd, &file); err != nil {
				return err
			}
			got, err := call(cmd.Context(), a, adminapi.Operation[createRequest, adminapi.RolloutPreviewItem]{Call: adminapi.DryRunRollout.Call}, createRequest{Plan: &file.plan})
			if err != nil {
				return file.locate(err)
			}
			return a.show(cmd.OutOrStdout(), got, func(w io.Writer) { printRolloutPreview(w, got.Item, maxAgents) })
		},
	}
	flags.register(cmd.Flags())
	cmd.Flags().IntVar(&maxAgents, "agents-shown", 0, "also list up to this many agents, and as many of those left out")
	cmd.Flags().BoolVar(&configs, "configs", false, "show what a draft changes in the configuration files of its hosts")
	cmd.Flags().StringSliceVar(&hosts, "host", nil, "with --configs: only of these hosts")
	a.completePlan(cmd)
	return cmd
}

func (a *client) newRolloutsStart() *cobra.Command {
	cmd, s := a.rolloutDrafts().newStart(a, `Start a draft as in the preview with the given --hash. If the fleet has changed since,
the server refuses and the difference is shown; --accept-drift starts the rollout with
the fleet as it is now. Without --hash the command shows a preview first and asks for
confirmation.`)
	s.owner.flag(a, cmd)
	return cmd
}

// previewedRollout returns the hash and the size of a preview, or why there is nothing to start.
func previewedRollout(got adminapi.RolloutPreviewItem) (hash, size string, err error) {
	p := got.Item
	if n := len(p.Skipped); len(p.Targets) == 0 && n > 0 && !slices.ContainsFunc(p.Skipped, func(s adminapi.SkippedAgent) bool { return s.Code != codeSame }) {
		err = errNothingToDo{fmt.Sprintf("nothing to do: the version runs already on %s of the rollout", counted(n, "agent"))}
	} else if len(p.Targets) == 0 {
		err = errNoTargets{fmt.Errorf("no agent would be upgraded: `muster rollouts preview` shows why, with --agents-shown 20 and the plan or the draft")}
	}
	return p.Hash, "for " + counted(len(p.Targets), "agent"), err
}

// codeSame is the code of agents that a rollout leaves out since they run its version.
const codeSame = "runs_version"

// errNoTargets is the error of a rollout that would upgrade no agent.
type errNoTargets struct{ error }

// errNothingToDo says that all agents of a rollout run its version. It is no failure.
type errNothingToDo struct{ text string }

func (e errNothingToDo) Error() string { return e.text }

// removeRefused removes the draft that this subcommand has created if it could not be started: a
// script that is repeated would otherwise leave one each time. After drift the draft stays, since the
// operator may start it as it is now, and so does one whose start was not confirmed.
func (a *client) removeRefused(cmd *cobra.Command, id string, err error) error {
	nothing := errors.As(err, new(errNothingToDo))
	if !nothing && !errors.As(err, new(errNoTargets)) && (!isFinal(err) || driftOf(err) != nil) {
		return err
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(cmd.Context()), removeTime)
	defer cancel()
	if _, derr := ask(ctx, a, adminapi.DeleteRollout, nil, id); derr != nil {
		fmt.Fprintf(cmd.ErrOrStderr(), "the draft %s is left: remove it with `muster rollouts delete %[1]s`\n", id)
	}
	if nothing {
		return a.show(cmd.OutOrStdout(), map[string]string{"result": err.Error()}, func(w io.Writer) { fmt.Fprintln(w, err) })
	}
	return err
}

// removeTime bounds the removal of a draft, which is one small request.
const removeTime = 10 * time.Second

func counted(n int, noun string) string { return countedAs(n, noun, noun+"s") }

func countedAs(n int, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprintf("%d %s", n, many)
}

// isTerminal reports whether stream is a terminal.
func isTerminal(stream any) bool {
	if w, ok := stream.(io.Writer); ok {
		stream = terminal.Raw(w)
	}
	f, ok := stream.(*os.File)
	return ok && term.IsTerminal(int(f.Fd()))
}

// confirm asks a question. Every answer but y and yes means no, whose error is otherwise.
func confirm(cmd *cobra.Command, question, otherwise string) error {
	answer, err := prompt(cmd, question+" [y/N] ")
	if answer = strings.ToLower(answer); err == nil && answer != "y" && answer != "yes" {
		err = errors.New(otherwise)
	}
	return err
}
