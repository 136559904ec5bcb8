package cli

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/muster-fleet/muster/server/api/adminapi"
)

// fleetOwned is the code of a refused order for agents that belong to an object of kind Fleet.
const fleetOwned = "fleet_owned"

// takeOver is the flag of orders that may take agents over from an object of kind Fleet.
type takeOver struct{ name string }

func (t *takeOver) flag(a *client, cmd *cobra.Command) {
	cmd.Flags().StringVar(&t.name, "take-over", "", "name of the Fleet object that the agents belong to, which the order suspends until it is resumed or its spec changes")
	_ = cmd.RegisterFlagCompletionFunc("take-over", completing(a.fleetNames))
}

// ordered sends an order. If the agents belong to an object and the operator has not named it,
// a terminal asks for its name, and the order is sent again with it.
func ordered[T any](cmd *cobra.Command, t *takeOver, send func(name *string) (T, error)) (T, error) {
	got, err := send(given(t.name))
	if !isOwned(err) {
		return got, err
	}
	if t.name == "" && isTerminal(cmd.InOrStdin()) {
		name, asked := prompt(cmd, trimPeriod(err.Error())+".\nTo take the agents over, which suspends the object, type its name: ")
		if asked != nil {
			return got, asked
		}
		if name == "" {
			return got, errors.New("nothing was ordered")
		}
		t.name = name
		return send(&name)
	}
	return got, fmt.Errorf("%w\nTo take the agents over, which suspends the object until `muster fleets resume`, repeat the command with --take-over NAME", err)
}

// isOwned reports whether an order was refused because agents belong to an object.
func isOwned(err error) bool {
	var (
		refused *refusal
		body    adminapi.Error
	)
	return errors.As(err, &refused) && json.Unmarshal(refused.body, &body) == nil && deref(body.Code) == fleetOwned
}

// prompt asks for a line of text.
func prompt(cmd *cobra.Command, question string) (string, error) {
	fmt.Fprintf(cmd.ErrOrStderr(), "\n%s", question)
	line, err := bufio.NewReader(cmd.InOrStdin()).ReadString('\n')
	if err != nil && !errors.Is(err, io.EOF) {
		return "", err
	}
	return strings.TrimSpace(line), nil
}
