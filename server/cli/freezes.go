package cli

import (
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"github.com/muster-fleet/muster/server/api/adminapi"
)

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
