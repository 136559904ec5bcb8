package cli

import (
	"net/url"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/muster-fleet/muster/server/api/adminapi"
)

func (a *client) newAudit() *cobra.Command {
	var limit int
	var people bool
	var actor, verb, since, until, search string
	cmd := &cobra.Command{
		Use:   "audit [SUBJECT]",
		Short: "Show who changed what, and why, newest first",
		Long: `Show who changed what, and why, newest first: everything, or what concerns one
subject, which is the id of an action, rollout, key, policy or webhook, or the file of a
package. The commands that change something take the reason as --why.`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			subject := ""
			if len(args) == 1 {
				subject = args[0]
			}
			q := url.Values{"subject": {subject}, "actor": {actor}, "verb": {verb}, "since": {since}, "until": {until}, "q": {search}, "people": {strconv.FormatBool(people)}}
			got, err := everyPage[adminapi.AuditEntry](cmd.Context(), a, adminapi.ListTrail, limit, q)
			if err != nil {
				return err
			}
			return showPaged(a, cmd.OutOrStdout(), got, trail)
		},
	}
	cmd.Flags().StringVar(&actor, "actor", "", "only what this admin key did; muster: the server's own steps")
	cmd.Flags().BoolVar(&people, "people", false, "without the server's own steps")
	cmd.Flags().StringVar(&verb, "verb", "", "only this verb, such as rollout.pause, or all of a noun, such as rollout")
	cmd.Flags().StringVar(&since, "since", "", "only entries from this time on, such as 2026-01-31T12:00:00Z")
	cmd.Flags().StringVar(&until, "until", "", "only entries until this time")
	cmd.Flags().StringVar(&search, "search", "", "only entries that contain each of these words")
	cmd.Flags().IntVar(&limit, "limit", 100, "maximum number of entries to list")
	return cmd
}

// trail is how audit entries are shown.
var trail = rows[adminapi.AuditEntry]{heading: "AT\tWHO\tWHAT\tWHY", row: func(e adminapi.AuditEntry, _ time.Time) []any {
	return []any{e.At.Local().Format(time.DateTime), e.Actor, e.Text, e.Why}
}}
