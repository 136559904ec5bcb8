package cli

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/muster-fleet/muster/server/adminapi"
)

func (a *app) newExposure() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "exposure",
		Short: "The fleet-wide budget of a new version: show, set",
		Long: `The exposure budget bounds how much of the fleet runs, or has been offered, a
version that has not yet been well for long enough, whatever a plan says. A plan
that could break it is refused at its preview, and stopped in flight.`,
	}
	cmd.AddCommand(a.newExposureShow(), a.newExposureSet())
	return cmd
}

func (a *app) newExposureShow() *cobra.Command {
	return &cobra.Command{
		Use:   "show",
		Short: "Show the budget",
		Args:  noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			got, err := call[adminapi.ExposureRuleItem](cmd.Context(), a, http.MethodGet, "/api/v1/exposure", nil)
			if err != nil {
				return err
			}
			return a.show(cmd.OutOrStdout(), got, func(w io.Writer) { printRule(w, got.Item) })
		},
	}
}

func printRule(w io.Writer, r adminapi.ExposureRule) {
	if !r.Enabled {
		fmt.Fprintln(w, "There is no exposure budget: set one with `muster exposure set --percent 10 --healthy-hours 24`.")
		return
	}
	fmt.Fprintf(w, "At most %g %% of the fleet run a version with fewer than %g healthy agent-hours.\n", r.Percent, r.HealthyHours)
	for _, per := range deref(r.Per) {
		fmt.Fprintf(w, "  and at most %g %% of each %s\n", per.Percent, per.Label)
	}
	fmt.Fprintf(w, "Set by %s, %s.\n", r.UpdatedBy, ago(&r.UpdatedAt, time.Now()))
}

func (a *app) newExposureSet() *cobra.Command {
	var (
		percent, hours float64
		per            []string
		off            bool
		why            string
	)
	cmd := &cobra.Command{
		Use:   "set",
		Short: "Set the budget, or with --off do without one",
		Long:  `Sets the budget. What no flag says stays as it is.`,
		Example: `  muster exposure set --percent 10 --healthy-hours 24 --per site=25
  muster exposure set --off --why "moving the last site today"`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if cmd.Flags().NFlag() == 0 {
				return &usageError{errors.New("nothing to set: say --percent and --healthy-hours, or --off")}
			}
			now, err := call[adminapi.ExposureRuleItem](cmd.Context(), a, http.MethodGet, "/api/v1/exposure", nil)
			if err != nil {
				return err
			}
			req := adminapi.SetExposureRequest{Enabled: !off, Percent: now.Item.Percent, HealthyHours: now.Item.HealthyHours, Per: now.Item.Per, Why: &why}
			set(cmd.Flags().Changed("percent"), &req.Percent, percent)
			set(cmd.Flags().Changed("healthy-hours"), &req.HealthyHours, hours)
			if cmd.Flags().Changed("per") {
				labels := []adminapi.ExposureLabel{}
				for _, one := range per {
					label, text, _ := strings.Cut(one, "=")
					n, err := strconv.ParseFloat(strings.TrimSuffix(text, "%"), 64)
					if err != nil || label == "" {
						return &usageError{fmt.Errorf("--per is %q, want a label and a share such as site=25", one)}
					}
					labels = append(labels, adminapi.ExposureLabel{Label: label, Percent: n})
				}
				req.Per = &labels
			}
			got, err := call[adminapi.ExposureRuleItem](cmd.Context(), a, http.MethodPut, "/api/v1/exposure", req)
			if err != nil {
				return err
			}
			return a.show(cmd.OutOrStdout(), got, func(w io.Writer) { printRule(w, got.Item) })
		},
	}
	f := cmd.Flags()
	f.Float64Var(&percent, "percent", 0, "share of the fleet that may run a new version")
	f.Float64Var(&hours, "healthy-hours", 0, "agent-hours of health after which a version is no longer new")
	f.StringArrayVar(&per, "per", nil, "share of the agents of each value of a label, such as site=25")
	f.BoolVar(&off, "off", false, "no budget")
	whyFlag(cmd, &why)
	return cmd
}

func (a *app) newFreezes() *cobra.Command {
	cmd := &cobra.Command{Use: "freezes", Short: "The freeze calendar, when nothing is offered but by emergencies: list, add, remove"}
	list := &cobra.Command{
		Use:   "list",
		Short: "List the freezes",
		Args:  noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			got, err := call[adminapi.FreezeList](cmd.Context(), a, http.MethodGet, "/api/v1/freezes", nil)
			if err != nil {
				return err
			}
			return a.show(cmd.OutOrStdout(), got, func(w io.Writer) {
				now := time.Now()
				table(w, "ID\tNAME\tFROM\tTO\tNOW\tBY", func(add func(...any)) {
					for _, f := range got.Items {
						state := "later"
						switch {
						case !now.Before(f.To):
							state = "over"
						case !now.Before(f.From):
							state = "frozen"
						}
						add(f.Id, f.Name, f.From.Local().Format(time.DateTime), f.To.Local().Format(time.DateTime), state, f.CreatedBy)
					}
				})
			})
		},
	}
	cmd.AddCommand(list, a.newFreezesAdd(), a.newFreezesRemove())
	return cmd
}

func (a *app) newFreezesAdd() *cobra.Command {
	var from, to, why string
	cmd := &cobra.Command{
		Use:     "add NAME --from TIME --to TIME",
		Short:   "Add a freeze",
		Example: "  muster freezes add \"end of year\" --from 2026-12-18 --to \"2027-01-04 08:00\"",
		Args:    oneArg("the freeze's name"),
		RunE: func(cmd *cobra.Command, args []string) error {
			req := adminapi.CreateFreezeRequest{Name: args[0], Why: &why}
			for _, row := range []struct {
				flag, text string
				field      *time.Time
			}{{"--from", from, &req.From}, {"--to", to, &req.To}} {
				t, err := parseTime(row.text, time.Now())
				if err != nil {
					return &usageError{fmt.Errorf("%s %w", row.flag, err)}
				}
				*row.field = t
			}
			got, err := call[adminapi.FreezeItem](cmd.Context(), a, http.MethodPost, "/api/v1/freezes", req)
			if err != nil {
				return err
			}
			return a.show(cmd.OutOrStdout(), got, func(w io.Writer) {
				fmt.Fprintf(w, "Frozen from %s to %s: %s\n", got.Item.From.Local().Format(time.DateTime), got.Item.To.Local().Format(time.DateTime), got.Item.Id)
			})
		},
	}
	cmd.Flags().StringVar(&from, "from", "", "when it begins (required)")
	cmd.Flags().StringVar(&to, "to", "", "when it ends (required)")
	whyFlag(cmd, &why)
	return cmd
}

func (a *app) newFreezesRemove() *cobra.Command {
	var why string
	cmd := &cobra.Command{
		Use:   "remove FREEZE",
		Short: "Remove a freeze",
		Args:  oneArg("one freeze id: `muster freezes list` shows them"),
		RunE: func(cmd *cobra.Command, args []string) error {
			got, err := call[adminapi.ActionWord](cmd.Context(), a, http.MethodDelete, "/api/v1/freezes/"+url.PathEscape(args[0])+"?"+url.Values{"why": {why}}.Encode(), nil)
			if err != nil {
				return err
			}
			return a.show(cmd.OutOrStdout(), got, func(w io.Writer) { fmt.Fprintln(w, "removed") })
		},
	}
	whyFlag(cmd, &why)
	return cmd
}

func (a *app) newManifests() *cobra.Command {
	cmd := &cobra.Command{Use: "manifests", Short: "Upgrade manifests that plans can name: list, show"}
	list := &cobra.Command{
		Use:   "list",
		Short: "List the upgrade manifests the server finds",
		Args:  noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			got, err := call[adminapi.UpgradeManifestList](cmd.Context(), a, http.MethodGet, "/api/v1/upgrade_manifests", nil)
			if err != nil {
				return err
			}
			return a.show(cmd.OutOrStdout(), got, func(w io.Writer) {
				table(w, "PROFILE\tID\tVERSION\tMIGRATION\tDESCRIPTION", func(add func(...any)) {
					for _, m := range got.Items {
						add(m.Profile, m.Id, firstOf(m.Version, "-"), migrationWords(m.Migration), deref(m.Description))
					}
				})
				for _, m := range got.Items {
					if m.Error != nil {
						fmt.Fprintf(w, "%s/%s cannot be used: %s\n", m.Profile, m.Id, *m.Error)
					}
				}
			})
		},
	}
	show := &cobra.Command{
		Use:   "show PROFILE ID",
		Short: "Show one upgrade manifest",
		Args: func(c *cobra.Command, args []string) error {
			if len(args) != 2 {
				return fmt.Errorf("want a profile and the id of an upgrade (see `%s --help`)", c.CommandPath())
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			got, err := call[adminapi.UpgradeManifestItem](cmd.Context(), a, http.MethodGet, "/api/v1/upgrade_manifests/"+url.PathEscape(args[0])+"/"+url.PathEscape(args[1]), nil)
			if err != nil {
				return err
			}
			m := got.Item
			return a.show(cmd.OutOrStdout(), got, func(w io.Writer) {
				fmt.Fprintf(w, "%s %s  %s\n", m.Profile, m.Id, deref(m.Description))
				fmt.Fprintf(w, "  version    %s\n  from       %s\n  migration  %s\n  hash       %s\n", m.Version, firstOf(deref(m.SourceVersion), "any"), migrationWords(m.Migration), m.ContentHash)
				for _, art := range deref(m.Artifacts) {
					fmt.Fprintf(w, "  artifact   %s/%s %s %s\n", firstOf(deref(art.Os), "any"), firstOf(deref(art.Arch), "any"), art.Checksum, deref(art.Url))
				}
				if plan := deref(m.Migration).RecoveryPlan; plan != nil {
					fmt.Fprintf(w, "  recovery   %s\n", *plan)
				}
			})
		},
	}
	cmd.AddCommand(list, show)
	return cmd
}

func migrationWords(m *adminapi.Migration) string {
	if m == nil || m.Type == nil {
		return "none"
	}
	return string(*m.Type)
}
