package cli

import (
	"fmt"
	"io"
	"net/http"
	"net/url"
	"time"

	"github.com/spf13/cobra"

	"github.com/muster-fleet/muster/server/adminapi"
)

func (a *client) newAudit() *cobra.Command {
	var limit int
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
			all, total, err := everyPage(limit, func(page, size int) ([]adminapi.AuditEntry, int, error) {
				got, err := call[adminapi.AuditList](cmd.Context(), a, http.MethodGet,
					fmt.Sprintf("/api/v1/audit?subject=%s&page=%d&perPage=%d", url.QueryEscape(subject), page, size), nil)
				return got.Items, got.Total, err
			})
			if err != nil {
				return err
			}
			return a.showTrail(cmd.OutOrStdout(), all, total)
		},
	}
	cmd.Flags().IntVar(&limit, "limit", 100, "maximum number of entries to list")
	return cmd
}

// showTrail shows audit entries, newest first.
func (a *client) showTrail(out io.Writer, all []adminapi.AuditEntry, total int) error {
	return a.show(out, adminapi.AuditList{Items: all, Total: total, Page: 1, PerPage: len(all)}, func(w io.Writer) {
		table(w, "AT\tWHO\tWHAT\tWHY", func(add func(...any)) {
			for _, e := range all {
				add(e.At.Local().Format(time.DateTime), e.Actor, e.Text, deref(e.Why))
			}
		})
	})
}
