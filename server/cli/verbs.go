package cli

import (
	"context"
	"fmt"
	"io"
	"maps"
	"net/url"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/muster-fleet/muster/server/api/adminapi"
)

// noun is a command of a noun, such as agents, with its subcommands.
func noun(cmd *cobra.Command, subcommands ...*cobra.Command) *cobra.Command {
	cmd.AddCommand(subcommands...)
	return cmd
}

// running makes cmd, which takes no arguments unless it says otherwise, run something and show what that
// returns.
func running[Out any](a *client, cmd *cobra.Command, run func(cmd *cobra.Command, args []string) (Out, error), human func(io.Writer, Out)) *cobra.Command {
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		got, err := run(cmd, args)
		if err != nil {
			return err
		}
		return a.show(cmd.OutOrStdout(), got, func(w io.Writer) { human(w, got) })
	}
	if cmd.Args == nil {
		cmd.Args = noArgs
	}
	return cmd
}

// showing makes cmd send a request without a body, with the arguments in the path, and show the
// answer.
func showing[Out any](a *client, cmd *cobra.Command, op adminapi.Operation[adminapi.None, Out], human func(io.Writer, Out)) *cobra.Command {
	return showingFor(a, cmd, op, nil, human)
}

// showingFor is showing with a query.
func showingFor[Out any](a *client, cmd *cobra.Command, op adminapi.Operation[adminapi.None, Out], q query, human func(io.Writer, Out)) *cobra.Command {
	return running(a, cmd, func(cmd *cobra.Command, args []string) (Out, error) {
		return ask(cmd.Context(), a, op, q.values(cmd), args...)
	}, human)
}

// listing makes cmd show a list that comes in pages, with the arguments in the path. --limit bounds it:
// most is its default, and what are the items.
func listing[T, Out any](a *client, cmd *cobra.Command, op adminapi.Operation[adminapi.None, Out], q query, most int, what string, r rows[T]) *cobra.Command {
	limit := cmd.Flags().Int("limit", most, "maximum number of "+what+" to list")
	if cmd.Args == nil {
		cmd.Args = noArgs
	}
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		got, err := everyPage[T](cmd.Context(), a, op, *limit, q.values(cmd), args...)
		if err != nil {
			return err
		}
		return showPaged(a, cmd.OutOrStdout(), got, r)
	}
	return cmd
}

// query has the parameters of a query by name: a text, or the name of the flag that has the value, such
// as --kuery.
type query map[string]string

// values returns the parameters without those that are empty.
func (q query) values(cmd *cobra.Command) url.Values {
	out := url.Values{}
	for name, text := range q {
		if flag, ok := strings.CutPrefix(text, "--"); ok {
			f := cmd.Flags().Lookup(flag)
			if list, ok := f.Value.(pflag.SliceValue); ok {
				out[name] = list.GetSlice()
				continue
			}
			text = f.Value.String()
		}
		if text != "" {
			out.Set(name, text)
		}
	}
	return out
}

// statesFlag adds the flag that chooses items of a list, such as agents, by their states.
func statesFlag(cmd *cobra.Command, what string, states []string) *[]string {
	chosen := cmd.Flags().StringSlice("state", nil, "list only "+what+" in these states: "+strings.Join(states, ", "))
	_ = cmd.RegisterFlagCompletionFunc("state", completeWords(states)) // the flag exists
	return chosen
}

// sending makes cmd send a request with the body that request makes, and show the answer. The first
// arguments are those of the path.
func sending[In, Out any](a *client, cmd *cobra.Command, op adminapi.Operation[In, Out], request func(cmd *cobra.Command, args []string) (In, error), human func(io.Writer, Out)) *cobra.Command {
	return running(a, cmd, sent(a, op, request), human)
}

// sent returns a function that sends the body that request makes, and returns the answer.
func sent[In, Out any](a *client, op adminapi.Operation[In, Out], request func(cmd *cobra.Command, args []string) (In, error)) func(cmd *cobra.Command, args []string) (Out, error) {
	return func(cmd *cobra.Command, args []string) (out Out, err error) {
		in, err := request(cmd, args)
		if err != nil {
			return out, err
		}
		return call(cmd.Context(), a, op, in, args[:strings.Count(op.Path, "{")]...)
	}
}

// body returns a request that does not depend on the arguments.
func body[In any](in *In) func(*cobra.Command, []string) (In, error) {
	return func(*cobra.Command, []string) (In, error) { return *in, nil }
}

// saying returns a function that prints a word in place of an answer.
func saying[Out any](word string) func(io.Writer, Out) {
	return func(w io.Writer, _ Out) { fmt.Fprintln(w, word) }
}

// rows is a table of items of one type.
type rows[T any] struct {
	heading string
	row     func(item T, now time.Time) []any
	empty   string                       // in place of a table without rows
	below   func(w io.Writer, items []T) // may be nil
}

// print prints the table.
func (r rows[T]) print(w io.Writer, items []T) {
	if len(items) == 0 && r.empty != "" {
		fmt.Fprintln(w, r.empty)
		return
	}
	now := time.Now()
	tableOf(w, r.heading, items, func(item T) []any { return r.row(item, now) })
	if r.below != nil {
		r.below(w, items)
	}
}

// paged is a list of the API that comes in pages: the items that were read, and how many there are.
type paged[T any] struct {
	Items   []T `json:"items"`
	Total   int `json:"total"`
	Page    int `json:"page"`
	PerPage int `json:"perPage"`
}

// showPaged shows a list, and how many items it does not have.
func showPaged[T any](a *client, w io.Writer, list paged[T], r rows[T]) error {
	return a.show(w, list, func(w io.Writer) {
		r.print(w, list.Items)
		if more := list.Total - len(list.Items); more > 0 {
			fmt.Fprintf(w, "… and %d more: see --limit\n", more)
		}
	})
}

// everyPage reads the list of an operation page by page, up to limit items.
func everyPage[T, Out any](ctx context.Context, a *client, op adminapi.Operation[adminapi.None, Out], limit int, q url.Values, path ...string) (paged[T], error) {
	return everyPageOf[T](ctx, a, op, pageSize, limit, q, path...)
}

// everyPageOf is everyPage for a list whose pages have a size of their own.
func everyPageOf[T, Out any](ctx context.Context, a *client, op adminapi.Operation[adminapi.None, Out], size, limit int, q url.Values, path ...string) (paged[T], error) {
	all := paged[T]{Items: []T{}, Page: 1}
	q = maps.Clone(q)
	if q == nil {
		q = url.Values{}
	}
	q.Set("perPage", fmt.Sprint(size))
	for page := 1; ; page++ {
		q.Set("page", fmt.Sprint(page))
		got, err := ask(ctx, a, adminapi.Operation[adminapi.None, paged[T]](op), q, path...)
		if err != nil {
			return paged[T]{}, err
		}
		all.Items, all.Total = append(all.Items, got.Items...), got.Total
		if len(got.Items) < size || len(all.Items) >= limit {
			all.Items = all.Items[:min(len(all.Items), limit)]
			all.PerPage = len(all.Items)
			return all, nil
		}
	}
}
