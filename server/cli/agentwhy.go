package cli

import (
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"github.com/muster-fleet/muster/server/api/adminapi"
)

func (a *client) newAgentsWhy() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "why AGENT",
		Short: "Explain why an agent runs its version and not that of a rollout",
		Long: `Show why an agent runs, or does not run, the version of a rollout, starting with the
broadest reason. The default is the rollout that the agent is in, or was in last.
--component asks about a component of the agent, --at about a time in the past.`,
		Example: `  muster agents why web-01
  muster agents why web-01 --rollout ROLLOUT --at "2h ago"
  muster agents why web-01 --component web
  muster agents why web-01 --at "2026-11-21 14:00"`,
		Args:              oneAgent,
		ValidArgsFunction: a.completeAgents,
	}
	cmd.Flags().String("component", "", "name of a component of the agent (default: the agent itself)")
	rollout := cmd.Flags().String("rollout", "", "id of the rollout (default: the agent's last)")
	at := cmd.Flags().String("at", "", "time to ask about, such as \"2h ago\" or 2026-01-31T12:00:00Z (default: now)")
	_ = cmd.RegisterFlagCompletionFunc("rollout", func(cmd *cobra.Command, _ []string, word string) ([]string, cobra.ShellCompDirective) {
		return a.completeRollouts()(cmd, nil, word)
	})
	return running(a, cmd, func(cmd *cobra.Command, args []string) (got adminapi.ExplanationItem, err error) {
		q := query{"component": "--component"}.values(cmd)
		if *rollout != "" {
			found, err := a.allRollouts().find(cmd.Context(), *rollout)
			if err != nil {
				return got, fmt.Errorf("--rollout: %w", err)
			}
			q.Set("rollout", found)
		}
		if *at != "" {
			t, err := parseTime(*at, time.Now())
			if err != nil {
				return got, &usageError{fmt.Errorf("--at %w", err)}
			}
			q.Set("at", t.UTC().Format(time.RFC3339))
		}
		id, err := a.agentID(cmd.Context(), args[0])
		if err != nil {
			return got, err
		}
		return ask(cmd.Context(), a, adminapi.ExplainAgent, q, id)
	}, func(w io.Writer, got adminapi.ExplanationItem) { printWhy(w, got.Item) })
}

func printWhy(w io.Writer, e adminapi.Explanation) {
	fmt.Fprintln(w, e.Summary)
	if e.RolloutID != "" {
		fmt.Fprintf(w, "  rollout %s (%s)\n", e.RolloutID, e.RolloutName)
	}
	for _, r := range e.Chain {
		fmt.Fprintf(w, "  • %s", r.Text)
		if r.Since != nil {
			fmt.Fprintf(w, " (since %s", atTime(*r.Since))
			if r.Until != nil {
				fmt.Fprintf(w, ", until %s", atTime(*r.Until))
			}
			fmt.Fprint(w, ")")
		} else if r.Until != nil {
			fmt.Fprintf(w, " (until %s)", atTime(*r.Until))
		}
		fmt.Fprintln(w)
	}
	if next := e.Next; next != "" {
		fmt.Fprintf(w, "Next: %s\n", next)
	}
}
