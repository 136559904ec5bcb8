package cli

import (
	"fmt"
	"io"
	"net/url"
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
		words += fmt.Sprintf(", tries again until %s: %s", p.Until.Local().Format(time.DateTime), *p.Retrying)
	case p.Retrying != nil:
		words += ", tries again: " + *p.Retrying
	case p.Until != nil:
		words += " for " + p.Until.Local().Format(time.DateTime)
	case p.Reason != nil:
		words += ": " + p.Reason.Text
	}
	return words
}

func (a *client) newAgentsTimeline() *cobra.Command {
	var (
		component string
		limit     int
	)
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
		ValidArgsFunction: a.completeAgents,
		RunE: func(cmd *cobra.Command, args []string) error {
			if limit < 1 {
				return &usageError{fmt.Errorf("--limit is %d, want at least 1", limit)}
			}
			id, err := a.agentID(cmd.Context(), args[0])
			if err != nil {
				return err
			}
			all := adminapi.Timeline{Items: []adminapi.TimelineEntry{}}
			for before := ""; ; {
				q := url.Values{"limit": {fmt.Sprint(min(limit-len(all.Items), maxTimelinePage))}}
				if component != "" {
					q.Set("component", component)
				}
				if before != "" {
					q.Set("before", before)
				}
				page, err := ask(cmd.Context(), a, adminapi.GetTimeline, q, id)
				if err != nil {
					return err
				}
				all.Items, all.Next = append(all.Items, page.Items...), page.Next
				if before = deref(page.Next); before == "" || len(all.Items) >= limit {
					break
				}
			}
			return a.show(cmd.OutOrStdout(), all, func(w io.Writer) { printTimeline(w, all) })
		},
	}
	cmd.Flags().StringVar(&component, "component", "", "name of a component, or agent for the agent itself (default: all)")
	cmd.Flags().IntVar(&limit, "limit", 30, "maximum number of entries to show")
	return cmd
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
	var (
		kuery string
		seen  bool
	)
	cmd := &cobra.Command{
		Use:   "failures",
		Short: "Group the agents whose last upgrade failed or was rolled back by the cause",
		Long: `Group the agents whose last upgrade failed or was rolled back by the cause, the most
frequent first, with the query of the agents of each. --seen records that you have seen
them, which clears the badge of the web UI for your key.`,
		Example: `  muster agents failures
  muster agents failures --kuery 'site: fra1'
  muster agents failures --seen`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			q := url.Values{}
			if kuery != "" {
				q.Set("kuery", kuery)
			}
			got, err := ask(cmd.Context(), a, adminapi.GetFailures, q)
			if err != nil {
				return err
			}
			if seen {
				if _, err := call(cmd.Context(), a, adminapi.SeeFailures, adminapi.SeenRequest{}); err != nil {
					return err
				}
			}
			return a.show(cmd.OutOrStdout(), got, func(w io.Writer) {
				if got.Total == 0 {
					fmt.Fprintln(w, "no upgrade has failed or was rolled back")
					return
				}
				fmt.Fprintf(w, "%d agents, %d of them since you last looked\n", got.Total, got.Unseen)
				table(w, "AGENTS\tSTATE\tVERSION\tCAUSE\tLATEST\tQUERY", func(add func(...any)) {
					for _, c := range got.Causes {
						add(c.Count, stateWords(c.State), c.Version, c.Text, c.Latest.Local().Format(time.DateTime), c.Kuery)
					}
				})
				if other := deref(got.Other); other > 0 {
					fmt.Fprintf(w, "… and %d agents with other causes\n", other)
				}
			})
		},
	}
	cmd.Flags().StringVar(&kuery, "kuery", "", "only agents that match this KQL query, such as 'site: fra1'")
	cmd.Flags().BoolVar(&seen, "seen", false, "record that you have seen them")
	return cmd
}
