package cli

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// agentOrder is an order for agents that are named or selected: it is previewed, given for the agents
// of the preview, and followed.
type agentOrder[Preview, Created any] struct {
	selection *agentSelection
	dryRun    bool
	preview   func(agents json.RawMessage, ids []string) (Preview, error)
	print     func(io.Writer, Preview)
	// count returns how many agents would follow the order, how many not, and the ids of all.
	count func(Preview) (will, wont int, ids []string)
	// instead answers an order that has nothing to do; nil: there is no such answer.
	instead func(Preview) (done bool, err error)
	none    func() error // of an order that no agent would follow
	what    string       // what becomes of agents, such as: upgraded to 1.1.0
	// confirm returns an error if the order is not to be given; nil: it is.
	confirm func(Preview) error
	order   func(agents json.RawMessage) (Created, error)
	// begun says what was ordered, and follow with which subcommand it is followed; empty: it has ended.
	begun  func(Preview, Created) string
	follow string
	// wait waits until it has ended, which done then says; nil: the subcommand does not wait.
	wait func(Preview, Created) error
	done func(Preview, Created) string
}

// run gives the order to agents with these names, or to those of the selection.
func (o agentOrder[Preview, Created]) run(a *client, cmd *cobra.Command, names []string) error {
	ids, err := a.agentIDs(cmd.Context(), names)
	if err != nil {
		return err
	}
	p, err := o.preview(o.selection.request(ids), ids)
	if err != nil {
		return err
	}
	if o.dryRun {
		return a.show(cmd.OutOrStdout(), p, func(w io.Writer) { o.print(w, p) })
	}
	if o.instead != nil {
		if done, err := o.instead(p); done || err != nil {
			return err
		}
	}
	will, wont, previewed := o.count(p)
	if will == 0 {
		o.print(cmd.ErrOrStderr(), p)
		return o.none()
	}
	if o.selection.kuery != "" {
		fmt.Fprintf(cmd.ErrOrStderr(), "The query selects %s: %d will be %s, %d will not.\n", counted(will+wont, "agent"), will, o.what, wont)
	}
	if o.confirm != nil {
		if err := o.confirm(p); err != nil {
			return err
		}
	}
	created, err := o.order(o.selection.requestPreviewed(ids, previewed))
	if err != nil {
		return err
	}
	text := o.begun(p, created)
	if o.follow != "" {
		text += "\nFollow it with " + o.follow + "."
	}
	if o.wait != nil {
		if err := o.wait(p, created); err != nil {
			return err
		}
		text = o.done(p, created)
	}
	return a.show(cmd.OutOrStdout(), created, func(w io.Writer) { fmt.Fprintln(w, text) })
}

// ofAgents says of how many agents an order is for some.
func ofAgents(will, all int) string { return fmt.Sprintf("%d of %s", will, counted(all, "agent")) }

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

// tryEach is each of a function that may fail: the first error ends it.
func tryEach[A, B any](in []A, f func(A) (B, error)) (out []B, err error) {
	for _, v := range in {
		one, err := f(v)
		if err != nil {
			return nil, err
		}
		out = append(out, one)
	}
	return out, nil
}

func mustJSON(v any) json.RawMessage {
	b, err := json.Marshal(v)
	if err != nil {
		panic(err) // the callers pass strings
	}
	return b
}
