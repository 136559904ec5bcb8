package cli

import (
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"github.com/muster-fleet/muster/server/api/adminapi"
)

func (a *client) newFreezes() *cobra.Command {
	cmd := &cobra.Command{Use: "freezes", Short: "List, add and remove freezes, in which only emergency rollouts offer upgrades"}
	list := showing(a, &cobra.Command{Use: "list", Short: "List the freezes"}, adminapi.ListFreezes, func(w io.Writer, got adminapi.FreezeList) {
		rows[adminapi.Freeze]{heading: "ID\tNAME\tFROM\tTO\tNOW\tBY", row: func(f adminapi.Freeze, now time.Time) []any {
			state := "later"
			switch {
			case !now.Before(f.To):
				state = "over"
			case !now.Before(f.From):
				state = "frozen"
			}
			return []any{f.ID, f.Name, f.From.Local().Format(time.DateTime), f.To.Local().Format(time.DateTime), state, f.CreatedBy}
		}}.print(w, got.Items)
	})
	remove := showing(a, &cobra.Command{
		Use:   "remove FREEZE",
		Short: "Remove a freeze",
		Args:  oneArg("one freeze id: `muster freezes list` shows them"),
	}, adminapi.DeleteFreeze, saying[adminapi.ActionWord]("removed"))
	cmd.AddCommand(list, a.newFreezesAdd(), remove)
	return cmd
}

func (a *client) newFreezesAdd() *cobra.Command {
	var from, to string
	cmd := sending(a, &cobra.Command{
		Use:     "add NAME --from TIME --to TIME",
		Short:   "Add a freeze",
		Example: "  muster freezes add \"end of year\" --from 2026-12-18 --to \"2027-01-04 08:00\"",
		Args:    oneArg("the freeze's name"),
	}, adminapi.CreateFreeze, func(_ *cobra.Command, args []string) (adminapi.CreateFreezeRequest, error) {
		req := adminapi.CreateFreezeRequest{Name: args[0]}
		for _, row := range []struct {
			flag, text string
			field      *time.Time
		}{{"--from", from, &req.From}, {"--to", to, &req.To}} {
			t, err := parseTime(row.text, time.Now())
			if err != nil {
				return req, &usageError{fmt.Errorf("%s %w", row.flag, err)}
			}
			*row.field = t
		}
		return req, nil
	}, func(w io.Writer, got adminapi.FreezeItem) {
		fmt.Fprintf(w, "Frozen from %s to %s: %s\n", got.Item.From.Local().Format(time.DateTime), got.Item.To.Local().Format(time.DateTime), got.Item.ID)
	})
	cmd.Flags().StringVar(&from, "from", "", "start of the freeze (required)")
	cmd.Flags().StringVar(&to, "to", "", "end of the freeze (required)")
	return cmd
}
