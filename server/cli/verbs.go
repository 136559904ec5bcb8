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

	"github.com/muster-fleet/muster/server/api/adminapi"
)

// showing makes cmd send a request without a body, with the arguments in the path, and show the
// answer.
func showing[Out any](a *client, cmd *cobra.Command, op adminapi.Operation[adminapi.None, Out], human func(io.Writer, Out)) *cobra.Command {
	return showingFor(a, cmd, op, nil, human)
}

// showingFor is showing with a query.
func showingFor[Out any](a *client, cmd *cobra.Command, op adminapi.Operation[adminapi.None, Out], q url.Values, human func(io.Writer, Out)) *cobra.Command {
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		got, err := ask(cmd.Context(), a, op, q, args...)
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

// sending makes cmd send a request with the body that request makes, and show the answer. The first
// arguments are those of the path.
func sending[In, Out any](a *client, cmd *cobra.Command, op adminapi.Operation[In, Out], request func(cmd *cobra.Command, args []string) (In, error), human func(io.Writer, Out)) *cobra.Command {
	return sendingThen(a, cmd, op, request, func(cmd *cobra.Command, _ []string, got Out) error {
		return a.show(cmd.OutOrStdout(), got, func(w io.Writer) { human(w, got) })
	})
}

// sendingThen is sending with what becomes of the answer.
func sendingThen[In, Out any](a *client, cmd *cobra.Command, op adminapi.Operation[In, Out], request func(cmd *cobra.Command, args []string) (In, error),
	then func(cmd *cobra.Command, args []string, got Out) error,
) *cobra.Command {
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		in, err := request(cmd, args)
		if err != nil {
			return err
		}
		got, err := call(cmd.Context(), a, op, in, args[:strings.Count(op.Path, "{")]...)
		if err != nil {
			return err
		}
		return then(cmd, args, got)
	}
	return cmd
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

func (r rows[T]) print(w io.Writer, items []T) {
	if len(items) == 0 && r.empty != "" {
		fmt.Fprintln(w, r.empty)
		return
	}
	now := time.Now()
	table(w, r.heading, func(add func(...any)) {
		for _, item := range items {
			add(r.row(item, now)...)
		}
	})
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
