package cli

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/muster-fleet/muster/server/api/adminapi"
)

func (a *client) newAgentsFacets() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "facets",
		Short: "Count agents by health, progress, version, policy, tag, OS and site",
		Example: `  muster agents facets
  muster agents facets --fields version,site --kuery 'policy_id: edge'`,
	}
	cmd.Flags().String("kuery", "", "count only agents that match this KQL query")
	cmd.Flags().String("fields", "", "count by these, separated by commas: health, progress, version, policy, tag, os, site (default all)")
	cmd.Flags().Bool("inactive", false, "include inactive and unenrolled agents")
	cmd.Flags().Int("limit", 20, "values of each, those with most agents first")
	return showingFor(a, cmd, adminapi.GetFacets, query{"kuery": "--kuery", "fields": "--fields", "showInactive": "--inactive", "limit": "--limit"}, func(w io.Writer, got adminapi.Facets) {
		fmt.Fprintf(w, "%d agents\n", got.Total)
		table(w, "FIELD\tVALUE\tAGENTS\tQUERY", func(add func(...any)) {
			for _, f := range got.Facets {
				for _, v := range f.Values {
					add(f.Field, cmp.Or(deref(v.Label), v.Value, "(none)"), v.Count, v.Kuery)
				}
				if f.Other > 0 {
					add(f.Field, "(others)", f.Other, "")
				}
			}
		})
	})
}

// exportTimeout bounds an export, as the server bounds its answer.
const exportTimeout = 10 * time.Minute

func (a *client) newAgentsExport() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "export",
		Short: "Write agents as CSV to standard output",
		Long: `Write the agents that a query selects as CSV, by hostname, with a header line. Cells that a
spreadsheet would take for a formula begin with an apostrophe, and control characters that
a host reports are escaped.`,
		Example: `  muster agents export > fleet.csv
  muster agents export --kuery 'agent.version < 1.10.0' --columns hostname,version,site`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			ctx, cancel := context.WithTimeout(cmd.Context(), exportTimeout)
			defer cancel()
			q := query{"kuery": "--kuery", "columns": "--columns", "showInactive": "--inactive"}
			resp, err := a.open(ctx, request{call: adminapi.ExportAgents.Call, query: q.values(cmd)})
			if err != nil {
				return err
			}
			defer resp.Body.Close()
			if err := copyLines(cmd.OutOrStdout(), resp.Body); err != nil {
				return fmt.Errorf("the table is incomplete: %w", err)
			}
			return nil
		},
	}
	cmd.Flags().String("kuery", "", "export only agents that match this KQL query")
	cmd.Flags().String("columns", "", "columns, separated by commas (default all)")
	cmd.Flags().Bool("inactive", false, "include inactive and unenrolled agents")
	return cmd
}

// copyLines copies a text whose lines end with CRLF, as those of RFC 4180 do, with the ends of
// lines of Unix. The output would escape a CR.
func copyLines(to io.Writer, from io.Reader) error {
	r := bufio.NewReader(from)
	for {
		line, err := r.ReadString('\n')
		if bare, ok := strings.CutSuffix(line, "\r\n"); ok {
			line = bare + "\n"
		}
		if _, werr := io.WriteString(to, line); werr != nil {
			return werr
		}
		switch {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return err
		}
	}
}
