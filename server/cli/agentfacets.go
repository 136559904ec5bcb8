package cli

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net/url"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/muster-fleet/muster/server/api/adminapi"
)

func (a *client) newAgentsFacets() *cobra.Command {
	var (
		kuery, fields string
		inactive      bool
		limit         int
	)
	cmd := &cobra.Command{
		Use:   "facets",
		Short: "Count agents by health, progress, version, policy, tag, OS and site",
		Example: `  muster agents facets
  muster agents facets --fields version,site --kuery 'policy_id: edge'`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			q := url.Values{"limit": {fmt.Sprint(limit)}}
			for name, value := range map[string]string{"kuery": kuery, "fields": fields} {
				if value != "" {
					q.Set(name, value)
				}
			}
			if inactive {
				q.Set("showInactive", "true")
			}
			got, err := ask(cmd.Context(), a, adminapi.GetFacets, q)
			if err != nil {
				return err
			}
			return a.show(cmd.OutOrStdout(), got, func(w io.Writer) {
				fmt.Fprintf(w, "%d agents\n", got.Total)
				table(w, "FIELD\tVALUE\tAGENTS\tQUERY", func(add func(...any)) {
					for _, f := range got.Facets {
						for _, v := range f.Values {
							add(f.Field, firstOf(deref(v.Label), v.Value, "(none)"), v.Count, v.Kuery)
						}
						if f.Other > 0 {
							add(f.Field, "(others)", f.Other, "")
						}
					}
				})
			})
		},
	}
	cmd.Flags().StringVar(&kuery, "kuery", "", "count only agents that match this KQL query")
	cmd.Flags().StringVar(&fields, "fields", "", "count by these, separated by commas: health, progress, version, policy, tag, os, site (default all)")
	cmd.Flags().BoolVar(&inactive, "inactive", false, "include inactive and unenrolled agents")
	cmd.Flags().IntVar(&limit, "limit", 20, "values of each, those with most agents first")
	return cmd
}

// exportTimeout bounds an export, as the server bounds its answer.
const exportTimeout = 10 * time.Minute

func (a *client) newAgentsExport() *cobra.Command {
	var (
		kuery, columns string
		inactive       bool
	)
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
			q := url.Values{}
			for name, value := range map[string]string{"kuery": kuery, "columns": columns} {
				if value != "" {
					q.Set(name, value)
				}
			}
			if inactive {
				q.Set("showInactive", "true")
			}
			t, err := a.server.resolve()
			if err != nil {
				return err
			}
			ctx, cancel := context.WithTimeout(cmd.Context(), exportTimeout)
			defer cancel()
			resp, err := t.do(ctx, request{call: adminapi.ExportAgents.Call, query: q})
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
	cmd.Flags().StringVar(&kuery, "kuery", "", "export only agents that match this KQL query")
	cmd.Flags().StringVar(&columns, "columns", "", "columns, separated by commas (default all)")
	cmd.Flags().BoolVar(&inactive, "inactive", false, "include inactive and unenrolled agents")
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
