package cli

import (
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/muster-fleet/muster/server/api/adminapi"
)

func (a *client) newExposure() *cobra.Command {
	return noun(&cobra.Command{
		Use:   "exposure",
		Short: "Show and set the exposure budget of new versions",
		Long: `The exposure budget bounds the share of the fleet that runs, or was offered, a new
version: one that has not been healthy for long enough yet. It holds whatever a plan
says. The server refuses to start a rollout that could exceed the budget, and pauses
one that would.`,
	},
		showing(a, &cobra.Command{Use: "show", Short: "Show the budget"}, adminapi.GetExposure, printRule),
		a.newExposureSet())
}

func printRule(w io.Writer, got adminapi.ExposureRuleItem) {
	r := got.Item
	if !r.Enabled {
		fmt.Fprintln(w, "There is no exposure budget: set one with `muster exposure set --percent 10 --healthy-hours 24`.")
		return
	}
	fmt.Fprintf(w, "At most %g %% of the fleet run a version with fewer than %g healthy agent-hours.\n", r.Percent, r.HealthyHours)
	for _, per := range r.Per {
		fmt.Fprintf(w, "  and at most %g %% of each %s\n", per.Percent, per.Label)
	}
	fmt.Fprintf(w, "Set by %s, %s.\n", r.UpdatedBy, ago(&r.UpdatedAt, time.Now()))
}

func (a *client) newExposureSet() *cobra.Command {
	var (
		percent, hours float64
		per            []string
		off            bool
	)
	cmd := sending(a, &cobra.Command{
		Use:   "set",
		Short: "Set the budget, or disable it with --off",
		Long:  `Set the exposure budget. Values without a flag stay unchanged.`,
		Example: `  muster exposure set --percent 10 --healthy-hours 24 --per site=25
  muster exposure set --off --why "moving the last site today"`,
		Args: noArgs,
	}, adminapi.SetExposure, func(cmd *cobra.Command, _ []string) (req adminapi.SetExposureRequest, err error) {
		if cmd.Flags().NFlag() == 0 {
			return req, &usageError{errors.New("nothing to set: pass --percent and --healthy-hours, or --off")}
		}
		now, err := ask(cmd.Context(), a, adminapi.GetExposure, nil)
		if err != nil {
			return req, err
		}
		req = adminapi.SetExposureRequest{Enabled: !off, Percent: now.Item.Percent, HealthyHours: now.Item.HealthyHours, Per: now.Item.Per}
		set(cmd.Flags().Changed("percent"), &req.Percent, percent)
		set(cmd.Flags().Changed("healthy-hours"), &req.HealthyHours, hours)
		if cmd.Flags().Changed("per") {
			labels := []adminapi.ExposureLabel{}
			for _, one := range per {
				label, text, _ := strings.Cut(one, "=")
				n, err := strconv.ParseFloat(strings.TrimSuffix(text, "%"), 64)
				if err != nil || label == "" {
					return req, &usageError{fmt.Errorf("--per is %q, want a label and a percentage such as site=25", one)}
				}
				labels = append(labels, adminapi.ExposureLabel{Label: label, Percent: n})
			}
			req.Per = labels
		}
		return req, nil
	}, printRule)
	f := cmd.Flags()
	f.Float64Var(&percent, "percent", 0, "percentage of the fleet that may run a new version")
	f.Float64Var(&hours, "healthy-hours", 0, "healthy agent-hours after which a version is no longer new")
	f.StringArrayVar(&per, "per", nil, "percentage for each value of a label, such as site=25")
	f.BoolVar(&off, "off", false, "disable the budget")
	return cmd
}

func (a *client) newFreezes() *cobra.Command {
	add := &cobra.Command{
		Use:     "add NAME --from TIME --to TIME",
		Short:   "Add a freeze",
		Example: "  muster freezes add \"end of year\" --from 2026-12-18 --to \"2027-01-04 08:00\"",
		Args:    oneArg("the freeze's name"),
	}
	from := add.Flags().String("from", "", "start of the freeze (required)")
	to := add.Flags().String("to", "", "end of the freeze (required)")
	return noun(&cobra.Command{Use: "freezes", Short: "List, add and remove freezes, in which only emergency rollouts offer upgrades"},
		showing(a, &cobra.Command{Use: "list", Short: "List the freezes"}, adminapi.ListFreezes, func(w io.Writer, got adminapi.FreezeList) {
			rows[adminapi.Freeze]{heading: "ID\tNAME\tFROM\tTO\tNOW\tBY", row: func(f adminapi.Freeze, now time.Time) []any {
				state := "later"
				switch {
				case !now.Before(f.To):
					state = "over"
				case !now.Before(f.From):
					state = "frozen"
				}
				return []any{f.ID, f.Name, atTime(f.From), atTime(f.To), state, f.CreatedBy}
			}}.print(w, got.Items)
		}),
		sending(a, add, adminapi.CreateFreeze, func(_ *cobra.Command, args []string) (req adminapi.CreateFreezeRequest, err error) {
			req.Name = args[0]
			if req.From, err = parseTime(*from, time.Now()); err != nil {
				return req, &usageError{fmt.Errorf("--from %w", err)}
			}
			if req.To, err = parseTime(*to, time.Now()); err != nil {
				return req, &usageError{fmt.Errorf("--to %w", err)}
			}
			return req, nil
		}, func(w io.Writer, got adminapi.FreezeItem) {
			fmt.Fprintf(w, "Frozen from %s to %s: %s\n", atTime(got.Item.From), atTime(got.Item.To), got.Item.ID)
		}),
		showing(a, &cobra.Command{
			Use:   "remove FREEZE",
			Short: "Remove a freeze",
			Args:  oneArg("one freeze id: `muster freezes list` shows them"),
		}, adminapi.DeleteFreeze, saying[adminapi.ActionWord]("removed")))
}
