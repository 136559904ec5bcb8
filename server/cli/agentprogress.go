package cli

import (
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/muster-fleet/muster/server/api/adminapi"
	"github.com/muster-fleet/muster/server/fleet"
)

// healthOf returns whether an agent is well.
func healthOf(g adminapi.Agent) string {
	health := string(deref(g.Health))
	if g.Status == fleet.StatusUnenrolling {
		health += ", unenrolling"
	}
	return health
}

// stateWords returns a state of an upgrade as people read it.
func stateWords(s adminapi.ProgressState) string { return strings.ReplaceAll(string(s), "_", " ") }

// progressOf describes the last upgrade of an agent in a few words, empty if there was none.
func progressOf(g adminapi.Agent) string {
	if g.Progress == nil {
		return ""
	}
	if d := g.UpgradeDetails; d != nil && g.Progress.State == fleet.ProgressScheduled && describeRetry(d) != "" {
		return describeDetails(d) // it has the number of the attempt
	}
	return describeProgress(g.Progress)
}

// describeProgress says how an upgrade stands, with what an operator needs to know of the state.
func describeProgress(p *adminapi.Progress) string {
	of := " " + p.Version
	switch {
	case p.State == fleet.ProgressRolledBack:
		of = " from " + p.Version
	case deref(p.Rollback):
		of = " the rollback to " + p.Version
	}
	words := stateWords(p.State) + of
	if p.Percent != nil {
		words += fmt.Sprintf(" %d %%", *p.Percent)
	}
	switch {
	case p.Retrying != nil && p.Until != nil:
		words += fmt.Sprintf(", tries again until %s: %s", atTime(*p.Until), *p.Retrying)
	case p.Retrying != nil:
		words += ", tries again: " + *p.Retrying
	case p.Until != nil:
		words += " for " + atTime(*p.Until)
	case p.Reason != nil:
		words += ": " + p.Reason.Text
	}
	return words
}

func (a *client) newAgentsTimeline() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "timeline AGENT",
		Short: "Show what happened to an agent and its components, newest first",
		Long: `Show what happened to an agent and its components, newest first: upgrades with the time of
each state and the reason of a rollback, changes of its policy, and who changed what.
What is under way comes first. --component shows one component; agent means the agent itself.`,
		Example: `  muster agents timeline web-01
  muster agents timeline web-01 --component web
  muster agents timeline web-01 -o json | jq '.items[] | select(.state == "rolled_back")'`,
		Args:              oneAgent,
		ValidArgsFunction: completing(a.agentNames),
	}
	cmd.Flags().String("component", "", "name of a component, or agent for the agent itself (default: all)")
	limit := cmd.Flags().Int("limit", 30, "maximum number of entries to show")
	return running(a, cmd, func(cmd *cobra.Command, args []string) (all adminapi.Timeline, err error) {
		if *limit < 1 {
			return all, &usageError{fmt.Errorf("--limit is %d, want at least 1", *limit)}
		}
		id, err := a.agentID(cmd.Context(), args[0])
		if err != nil {
			return all, err
		}
		all.Items = []adminapi.TimelineEntry{}
		q := query{"component": "--component"}.values(cmd)
		for {
			q.Set("limit", fmt.Sprint(min(*limit-len(all.Items), maxTimelinePage)))
			page, err := ask(cmd.Context(), a, adminapi.GetTimeline, q, id)
			if err != nil {
				return all, err
			}
			all.Items, all.Next = append(all.Items, page.Items...), page.Next
			if deref(page.Next) == "" || len(all.Items) >= *limit {
				return all, nil
			}
			q.Set("before", *page.Next)
		}
	}, printTimeline)
}

// maxTimelinePage is the most that the server answers at once.
const maxTimelinePage = 200

func printTimeline(w io.Writer, t adminapi.Timeline) {
	for _, e := range t.Items {
		fmt.Fprintf(w, "%s  %s\n", e.At.Local().Format(time.DateTime+" MST"), describeEntry(e))
		for _, p := range deref(e.Phases) {
			text := ""
			if p.Text != nil {
				text = ": " + *p.Text
			}
			fmt.Fprintf(w, "    %s  %s%s\n", p.At.Local().Format(time.TimeOnly), stateWords(p.State), text)
		}
		if e.Reason != nil {
			fmt.Fprintf(w, "    reason: %s (%s)\n", e.Reason.Text, e.Reason.Code)
		}
		if e.Why != nil {
			fmt.Fprintf(w, "    why: %s\n", *e.Why)
		}
	}
	if t.Next != nil {
		fmt.Fprintln(w, "… and more: raise --limit")
	}
}

// describeEntry returns an entry in one line.
func describeEntry(e adminapi.TimelineEntry) string {
	var b strings.Builder
	switch {
	case e.To != nil:
		b.WriteString(string(e.Kind))
		if e.Component != nil {
			b.WriteString(" of component " + *e.Component)
		}
		if e.From != nil {
			b.WriteString(" from " + *e.From)
		}
		b.WriteString(" to " + *e.To)
		if e.State != nil {
			b.WriteString(": " + stateWords(*e.State))
		}
		if e.Text != nil {
			b.WriteString(": " + *e.Text)
		}
	default:
		b.WriteString(string(e.Kind) + ": " + deref(e.Text))
	}
	if e.By != nil {
		b.WriteString(" (by " + *e.By)
		if e.Rollout != nil {
			b.WriteString(", rollout " + e.Rollout.Name)
		}
		b.WriteString(")")
	}
	return b.String()
}

func (a *client) newAgentsFailures() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "failures",
		Short: "Group the agents whose last upgrade failed or was rolled back by the cause",
		Long: `Group the agents whose last upgrade failed or was rolled back by the cause, the most
frequent first, with the query of the agents of each. --seen records that you have seen
them, which clears the badge of the web UI for your key.`,
		Example: `  muster agents failures
  muster agents failures --kuery 'site: fra1'
  muster agents failures --seen`,
	}
	cmd.Flags().String("kuery", "", "only agents that match this KQL query, such as 'site: fra1'")
	seen := cmd.Flags().Bool("seen", false, "record that you have seen them")
	return running(a, cmd, func(cmd *cobra.Command, _ []string) (adminapi.Failures, error) {
		got, err := ask(cmd.Context(), a, adminapi.GetFailures, query{"kuery": "--kuery"}.values(cmd))
		if err == nil && *seen {
			_, err = call(cmd.Context(), a, adminapi.SeeFailures, adminapi.SeenRequest{})
		}
		return got, err
	}, printFailures)
}

func printFailures(w io.Writer, got adminapi.Failures) {
	if got.Total == 0 {
		fmt.Fprintln(w, "no upgrade has failed or was rolled back")
		return
	}
	fmt.Fprintf(w, "%d agents, %d of them since you last looked\n", got.Total, got.Unseen)
	tableOf(w, "AGENTS\tSTATE\tVERSION\tCAUSE\tLATEST\tQUERY", got.Causes, func(c adminapi.FailureCause) []any {
		return []any{c.Count, stateWords(c.State), c.Version, c.Text, atTime(c.Latest), c.Kuery}
	})
	if other := deref(got.Other); other > 0 {
		fmt.Fprintf(w, "… and %d agents with other causes\n", other)
	}
}

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
		ValidArgsFunction: completing(a.agentNames),
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
