package cli

import (
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"github.com/muster-fleet/muster/server/api/adminapi"
)

func (a *client) newAttention() *cobra.Command {
	return showing(a, &cobra.Command{
		Use:   "attention",
		Short: "List what waits for a person, the most urgent first",
		Long: `List what waits for a person, the most urgent first: rollouts that wait for approval or were
paused by a gate, open incidents, failed upgrades, suspended fleets, keys and signed files
that expire within 30 days, notifications that could not be delivered, and remarks about the
servers.`,
	}, adminapi.GetAttention, func(w io.Writer, got adminapi.Attention) {
		if len(got.Items) == 0 {
			fmt.Fprintln(w, "Nothing waits for a person.")
			return
		}
		now := time.Now()
		for _, i := range got.Items {
			fmt.Fprintf(w, "%-8s  %s\n", i.Severity, i.Text)
			about := deref(i.Subject)
			if i.Since != nil {
				about = firstOf(about, "since") + "  " + ago(i.Since, now)
			}
			fmt.Fprintf(w, "%-8s  %s", "", deref(i.Next))
			if about != "" {
				fmt.Fprintf(w, "  (%s)", about)
			}
			fmt.Fprintln(w)
		}
	})
}

func (a *client) newSettings() *cobra.Command {
	return showing(a, &cobra.Command{
		Use:   "settings",
		Short: "Show the settings in force on the server, and where each comes from",
		Long: `Show the settings in force on the server that answers, and where each comes from: the
default, the configuration file, the environment or a flag. Secrets are hidden.
` + "`muster server --example-config`" + ` explains every key.`,
	}, adminapi.GetServerSettings, func(w io.Writer, got adminapi.Settings) {
		tableOf(w, "KEY\tVALUE\tFROM", got.Items, func(s adminapi.Setting) []any { return []any{s.Key, firstOf(s.Value, "-"), s.Origin} })
	})
}
