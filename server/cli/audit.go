package cli

import (
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/muster-fleet/muster/server/api/adminapi"
)

func (a *client) newAudit() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "audit [SUBJECT]",
		Short: "Show who changed what, and why, newest first",
		Long: `Show who changed what, and why, newest first: everything, or what concerns one
subject, which is the id of an action, rollout, key, policy or webhook, or the file of a
package. The commands that change something take the reason as --why.`,
		Args: cobra.MaximumNArgs(1),
	}
	f := cmd.Flags()
	f.String("actor", "", "only what this admin key did; muster: the server's own steps")
	f.Bool("people", false, "without the server's own steps")
	f.String("verb", "", "only this verb, such as rollout.pause, or all of a noun, such as rollout")
	f.String("since", "", "only entries from this time on, such as 2026-01-31T12:00:00Z")
	f.String("until", "", "only entries until this time")
	f.String("search", "", "only entries that contain each of these words")
	limit := f.Int("limit", 100, "maximum number of entries to list")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		q := query{"subject": strings.Join(args, ""), "actor": "--actor", "verb": "--verb", "since": "--since", "until": "--until", "q": "--search", "people": "--people"}
		got, err := everyPage[adminapi.AuditEntry](cmd.Context(), a, adminapi.ListTrail, *limit, q.values(cmd))
		if err != nil {
			return err
		}
		return showPaged(a, cmd.OutOrStdout(), got, trail)
	}
	return cmd
}

// trail is how audit entries are shown.
var trail = rows[adminapi.AuditEntry]{heading: "AT\tWHO\tWHAT\tWHY", row: func(e adminapi.AuditEntry, _ time.Time) []any {
	return []any{atTime(e.At), e.Actor, e.Text, e.Why}
}}
