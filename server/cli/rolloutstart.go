package cli

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/muster-fleet/muster/server/adminapi"
	"github.com/muster-fleet/muster/server/fleet"
)

// createRequest is adminapi.CreateRolloutRequest with the plan as it was read.
type createRequest struct {
	Plan fleet.Plan `json:"plan"`
	Why  string     `json:"why,omitempty"`
}

func (a *app) newRolloutsCreate() *cobra.Command {
	var (
		flags   planFlags
		follow  following
		why     string
		preview bool
		start   bool
		yes     bool
	)
	cmd := &cobra.Command{
		Use:   "create",
		Short: "Make a rollout from a plan file, or from flags",
		Long: `Makes a draft. Nothing happens before it is started. --preview shows what it
would do; --start previews it, asks, and starts exactly that. Without a terminal
there is nobody to ask: pass --yes.`,
		Example: `  muster rollouts create --file plan.yaml --preview
  muster rollouts create --version 1.1.0 --policy web --canary 5 --soak 30m --start
  muster rollouts create --file plan.yaml --version 1.1.0 --start --yes --wait`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if follow.wait && !start {
				return &usageError{errors.New("--wait follows a rollout that was started: add --start")}
			}
			if start && !yes && !isTerminal(cmd.InOrStdin()) {
				return &usageError{errors.New("standard input is no terminal, so nobody can confirm the preview: add --yes to start without a question, or make the draft without --start")}
			}
			file, err := flags.plan(cmd)
			if err != nil {
				return err
			}
			if err := a.nameAgents(cmd.Context(), &file, flags); err != nil {
				return err
			}
			got, err := call[adminapi.RolloutItem](cmd.Context(), a, http.MethodPost, "/api/v1/rollouts", createRequest{file.plan, why})
			if err != nil {
				return file.locate(err)
			}
			if start {
				return a.previewAndStart(cmd, got.Item.Id, adminapi.StartRolloutRequest{Why: &why}, yes, follow)
			}
			if preview {
				return a.showPreview(cmd, got.Item.Id, 0)
			}
			return a.show(cmd.OutOrStdout(), got, func(w io.Writer) {
				id := got.Item.Id
				fmt.Fprintf(w, "Made the draft %s (%s).\nSee what it would do with `muster rollouts preview %s`, then start it with `muster rollouts start %s`.\n", id, got.Item.Plan.Name, id, id)
			})
		},
	}
	f := cmd.Flags()
	flags.register(f)
	f.BoolVar(&preview, "preview", false, "show what it would do")
	f.BoolVar(&start, "start", false, "preview, ask, and start")
	f.BoolVarP(&yes, "yes", "y", false, "start without a question")
	whyFlag(cmd, &why)
	follow.register(f)
	a.completePlan(cmd)
	return cmd
}

func (a *app) completePlan(cmd *cobra.Command) {
	_ = cmd.RegisterFlagCompletionFunc("version", a.completeVersions)
	_ = cmd.RegisterFlagCompletionFunc("agents", a.completeAgents)
	_ = cmd.RegisterFlagCompletionFunc("strategy", completeWords([]string{"rolling", "canary", "all_at_once", "rings"}))
	_ = cmd.RegisterFlagCompletionFunc("canary-pick", completeWords([]string{"random", "stratified"}))
}

func (a *app) newRolloutsPreview() *cobra.Command {
	var (
		flags planFlags
		most  int
	)
	cmd := &cobra.Command{
		Use:   "preview [ROLLOUT]",
		Short: "Show what a draft or a plan would do; changes nothing",
		Long: `Shows which agents a rollout would upgrade, in which batches and when, and which
it leaves out and why. Of a draft, the preview is kept: start takes its hash, and
refuses if the fleet has changed since. Of a plan (--file, or flags as of
` + "`muster rollouts create`" + `) nothing is kept.`,
		Example: `  muster rollouts preview ROLLOUT
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
			if len(args) == 1 {
				return a.showPreview(cmd, args[0], most)
			}
			if cmd.Flags().NFlag() == 0 {
				return &usageError{errors.New("nothing to preview: name a draft, or a plan with --file or flags")}
			}
			file, err := flags.plan(cmd)
			if err != nil {
				return err
			}
			if err := a.nameAgents(cmd.Context(), &file, flags); err != nil {
				return err
			}
			got, err := call[adminapi.RolloutPreviewItem](cmd.Context(), a, http.MethodPost, "/api/v1/rollout_preview", createRequest{Plan: file.plan})
			if err != nil {
				return file.locate(err)
			}
			return a.show(cmd.OutOrStdout(), got, func(w io.Writer) { printRolloutPreview(w, got.Item, most) })
		},
	}
	flags.register(cmd.Flags())
	cmd.Flags().IntVar(&most, "agents-shown", 0, "also list this many of the agents, and of those left out")
	a.completePlan(cmd)
	return cmd
}

func (a *app) preview(ctx context.Context, id string) (adminapi.RolloutPreviewItem, error) {
	return call[adminapi.RolloutPreviewItem](ctx, a, http.MethodPost, rolloutPath(id, "preview"), nil)
}

// showPreview previews a draft and says how to start it.
func (a *app) showPreview(cmd *cobra.Command, id string, most int) error {
	got, err := a.preview(cmd.Context(), id)
	if err != nil {
		return err
	}
	return a.show(cmd.OutOrStdout(), got, func(w io.Writer) {
		printRolloutPreview(w, got.Item, most)
		fmt.Fprintf(w, "\nStart exactly this with\n  muster rollouts start %s --hash %s\n", id, got.Item.Hash)
	})
}

func (a *app) newRolloutsStart() *cobra.Command {
	var (
		req    adminapi.StartRolloutRequest
		follow following
		accept bool
		why    string
		yes    bool
	)
	cmd := &cobra.Command{
		Use:   "start ROLLOUT",
		Short: "Start a draft exactly as it was previewed",
		Long: `Starts a draft as the preview with --hash says. If the fleet has changed since,
it is refused and the difference is shown; --accept-drift starts it with the fleet
as it is now. Without --hash it is previewed and shown first, and you are asked.`,
		Example: `  muster rollouts start ROLLOUT
  muster rollouts start ROLLOUT --hash sha256:5f2a… --wait`,
		Args:              oneRollout,
		ValidArgsFunction: a.completeRollouts("draft"),
		RunE: func(cmd *cobra.Command, args []string) error {
			req.Why = &why
			if accept {
				req.AcceptDrift = &accept
			}
			if req.Hash != "" {
				return a.startRollout(cmd, args[0], req, follow)
			}
			if !yes && !isTerminal(cmd.InOrStdin()) {
				return &usageError{errors.New("standard input is no terminal, so nobody can confirm the preview: pass its --hash, or --yes to start without a question")}
			}
			return a.previewAndStart(cmd, args[0], req, yes, follow)
		},
	}
	f := cmd.Flags()
	f.StringVar(&req.Hash, "hash", "", "the preview's hash, sha256:…")
	f.BoolVar(&accept, "accept-drift", false, "although the fleet has changed since the preview")
	f.BoolVarP(&yes, "yes", "y", false, "without --hash: start without a question")
	whyFlag(cmd, &why)
	follow.register(f)
	return cmd
}

// previewAndStart shows what would happen, asks, and starts exactly that.
func (a *app) previewAndStart(cmd *cobra.Command, id string, req adminapi.StartRolloutRequest, yes bool, follow following) error {
	got, err := a.preview(cmd.Context(), id)
	if err != nil {
		return err
	}
	p := got.Item
	printRolloutPreview(cmd.ErrOrStderr(), p, 0)
	if len(p.Targets) == 0 {
		return fmt.Errorf("no agent would be upgraded: `muster rollouts preview %s --agents-shown 20` says why; remove the draft with `muster rollouts delete %s`", id, id)
	}
	if !yes {
		ok, err := confirm(cmd, fmt.Sprintf("Start rollout %s for %s?", id, counted(len(p.Targets), "agent")))
		if err != nil {
			return err
		}
		if !ok {
			return fmt.Errorf("not started: the draft stays, start it with `muster rollouts start %s --hash %s`", id, p.Hash)
		}
	}
	req.Hash = p.Hash
	return a.startRollout(cmd, id, req, follow)
}

func (a *app) startRollout(cmd *cobra.Command, id string, req adminapi.StartRolloutRequest, follow following) error {
	got, err := call[adminapi.RolloutItem](cmd.Context(), a, http.MethodPost, rolloutPath(id, "start"), req)
	if d := driftOf(err); d != nil {
		printDrift(cmd.ErrOrStderr(), *d.Drift)
		return fmt.Errorf("%w\nStart it as the fleet is now (%s) with `muster rollouts start %s --hash %s`, or the same as before with --accept-drift",
			err, counted(deref(d.Targets), "agent"), id, deref(d.Hash))
	}
	if err != nil {
		return err
	}
	return a.showOrFollow(cmd, got, follow, func(w io.Writer) {
		fmt.Fprintf(w, "Started %s for %s.\nFollow it with `muster rollouts watch %s`.\n", called(got.Item), counted(got.Item.Counts.Total, "agent"), id)
	})
}

func counted(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}

// isTerminal says whether a person is at the other end.
func isTerminal(stream any) bool {
	f, ok := stream.(*os.File)
	return ok && term.IsTerminal(int(f.Fd()))
}

// confirm asks, and takes yes for yes and everything else for no.
func confirm(cmd *cobra.Command, question string) (bool, error) {
	fmt.Fprintf(cmd.ErrOrStderr(), "\n%s [y/N] ", question)
	line, err := bufio.NewReader(cmd.InOrStdin()).ReadString('\n')
	if err != nil && !errors.Is(err, io.EOF) {
		return false, err
	}
	switch strings.ToLower(strings.TrimSpace(line)) {
	case "y", "yes":
		return true, nil
	}
	return false, nil
}
