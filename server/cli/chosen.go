package cli

import (
	"encoding/json"
	"errors"
	"fmt"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// chosenAgents are whom an order is for: agents named by id or host name, or a query.
type chosenAgents struct {
	kuery    string
	inactive bool
}

func (c *chosenAgents) flags(f *pflag.FlagSet) {
	f.StringVar(&c.kuery, "kuery", "", "the agents that match a query in KQL instead of named ones, \"*\" for all")
	f.BoolVar(&c.inactive, "inactive", false, "with --kuery: also agents that are inactive or unenrolled")
}

func (c *chosenAgents) check(_ *cobra.Command, args []string) error {
	switch {
	case len(args) == 0 && c.kuery == "":
		return errors.New("no agents are named: `muster agents list` shows them; or select them with --kuery")
	case len(args) > 0 && c.kuery != "":
		return errors.New("agents are named, and --kuery selects others: say one of the two")
	case len(args) > 0 && c.inactive:
		return errors.New("--inactive is for --kuery: agents that are named are meant whatever their status")
	}
	return nil
}

// selection is what the API takes.
func (c *chosenAgents) selection(args []string) json.RawMessage {
	if c.kuery != "" {
		return mustJSON(c.kuery)
	}
	return mustJSON(args)
}

func (c *chosenAgents) includeInactive() *bool {
	if !c.inactive {
		return nil
	}
	return &c.inactive
}

// maxNamed is how many agents one request may name.
const maxNamed = 10_000

// previewed is selection for the order that follows a preview. What was previewed
// is named, so that nobody is in it who came to match meanwhile; where they are
// too many for that, the query must do.
func (c *chosenAgents) previewed(args, ids []string) json.RawMessage {
	if c.kuery != "" && len(ids) <= maxNamed {
		return mustJSON(ids)
	}
	return c.selection(args)
}

// tell says how many a query has selected before anything is done to them.
func (c *chosenAgents) tell(cmd *cobra.Command, will, wont int, what string) {
	if c.kuery != "" {
		fmt.Fprintf(cmd.ErrOrStderr(), "The query selects %d agents: %d will be %s, %d will not.\n", will+wont, will, what, wont)
	}
}

func each[A, B any](in []A, f func(A) B) []B {
	out := make([]B, len(in))
	for i, v := range in {
		out[i] = f(v)
	}
	return out
}
