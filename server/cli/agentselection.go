package cli

import (
	"encoding/json"
	"errors"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// agentSelection holds the agents that a subcommand is for: named ones, or a query.
type agentSelection struct {
	kuery    string
	inactive bool
}

func (c *agentSelection) flags(f *pflag.FlagSet) {
	f.StringVar(&c.kuery, "kuery", "", "select the agents that match this KQL query instead of naming them; \"*\" selects all")
	f.BoolVar(&c.inactive, "inactive", false, "with --kuery: include inactive and unenrolled agents")
}

func (c *agentSelection) validate(_ *cobra.Command, args []string) error {
	switch {
	case len(args) == 0 && c.kuery == "":
		return errors.New("no agents are named: `muster agents list` shows them; or select them with --kuery")
	case len(args) > 0 && c.kuery != "":
		return errors.New("agents are named, and --kuery selects agents too: use one of the two")
	case len(args) > 0 && c.inactive:
		return errors.New("--inactive needs --kuery: named agents are selected whatever their status")
	}
	return nil
}

// request returns the selection as the API expects it: a query, or the ids in args.
func (c *agentSelection) request(args []string) json.RawMessage {
	if c.kuery != "" {
		return mustJSON(c.kuery)
	}
	return mustJSON(args)
}

func (c *agentSelection) includeInactive() *bool {
	if !c.inactive {
		return nil
	}
	return &c.inactive
}

// maxIDs is how many agents one request may name.
const maxIDs = 10_000

// requestPreviewed returns the selection for the request that follows a preview. It
// names the previewed agents, so that agents that match the query only now are left
// out. If they are too many to name, it sends the query.
func (c *agentSelection) requestPreviewed(args, ids []string) json.RawMessage {
	if c.kuery != "" && len(ids) <= maxIDs {
		return mustJSON(ids)
	}
	return c.request(args)
}

func each[A, B any](in []A, f func(A) B) []B {
	out := make([]B, len(in))
	for i, v := range in {
		out[i] = f(v)
	}
	return out
}

func mustJSON(v any) json.RawMessage {
	b, err := json.Marshal(v)
	if err != nil {
		panic(err) // the callers pass strings
	}
	return b
}
