package cli

import (
	"fmt"
	"io"
	"net/url"
	"time"

	"github.com/spf13/cobra"

	"github.com/muster-fleet/muster/server/api/adminapi"
)

func (a *client) newAgentsWhy() *cobra.Command {
	var component, rollout, at string
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
		RunE: func(cmd *cobra.Command, args []string) error {
			q := url.Values{}
			if component != "" {
				q.Set("component", component)
			}
			if rollout != "" {
				id, err := a.allRollouts().find(cmd.Context(), rollout)
				if err != nil {
					return fmt.Errorf("--rollout: %w", err)
				}
				q.Set("rollout", id)
			}
			if at != "" {
				t, err := parseTime(at, time.Now())
				if err != nil {
					return &usageError{fmt.Errorf("--at %w", err)}
				}
				q.Set("at", t.UTC().Format(time.RFC3339))
			}
			id, err := a.agentID(cmd.Context(), args[0])
			if err != nil {
				return err
			}
			got, err := ask(cmd.Context(), a, adminapi.ExplainAgent, q, id)
			if err != nil {
				return err
			}
			return a.show(cmd.OutOrStdout(), got, func(w io.Writer) { printWhy(w, got.Item) })
		},
	}
	cmd.Flags().StringVar(&component, "component", "", "name of a component of the agent (default: the agent itself)")
	cmd.Flags().StringVar(&rollout, "rollout", "", "id of the rollout (default: the agent's last)")
	cmd.Flags().StringVar(&at, "at", "", "time to ask about, such as \"2h ago\" or 2026-01-31T12:00:00Z (default: now)")
	_ = cmd.RegisterFlagCompletionFunc("rollout", func(cmd *cobra.Command, _ []string, word string) ([]string, cobra.ShellCompDirective) {
		return a.completeRollouts()(cmd, nil, word)
	})
	return cmd
}

func printWhy(w io.Writer, e adminapi.Explanation) {
	fmt.Fprintln(w, e.Summary)
	if e.RolloutID != "" {
		fmt.Fprintf(w, "  rollout %s (%s)\n", e.RolloutID, e.RolloutName)
	}
	for _, r := range e.Chain {
		fmt.Fprintf(w, "  • %s", r.Text)
		if r.Since != nil {
			fmt.Fprintf(w, " (since %s", r.Since.Local().Format(time.DateTime))
			if r.Until != nil {
				fmt.Fprintf(w, ", until %s", r.Until.Local().Format(time.DateTime))
			}
			fmt.Fprint(w, ")")
		} else if r.Until != nil {
			fmt.Fprintf(w, " (until %s)", r.Until.Local().Format(time.DateTime))
		}
		fmt.Fprintln(w)
	}
	if next := e.Next; next != "" {
		fmt.Fprintf(w, "Next: %s\n", next)
	}
}
