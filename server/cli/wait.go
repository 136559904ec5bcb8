package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"

	"github.com/spf13/cobra"
)

// waitInterval is how often subcommands that wait look: phases of an upgrade last seconds.
const waitInterval = time.Second

// poll looks until it is over, or has an error that waiting does not mend. While the server does not
// answer, it prints why, and looks again. After the timeout, if there is one, late is the error. Ctrl-C
// ends it with the error stopped; nil: that of the context.
func poll(cmd *cobra.Command, timeout time.Duration, look func(context.Context) (over bool, err error), late func() error, stopped error) error {
	ctx := cmd.Context()
	if timeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, timeout)
		defer cancel()
	}
	tick := time.NewTicker(waitInterval)
	defer tick.Stop()
	say := changes(cmd.ErrOrStderr())
	for {
		over, err := look(ctx)
		switch {
		case over || isFinal(err):
			return err
		case err == nil:
			say("", "")
		case ctx.Err() == nil:
			say("", err.Error())
		}
		select {
		case <-ctx.Done():
			if cmd.Context().Err() == nil {
				return late()
			}
			if stopped == nil {
				stopped = cmd.Context().Err()
			}
			return stopped
		case <-tick.C:
		}
	}
}

// isFinal reports whether a request was refused or has no server to go to, so that the same one will
// fail again.
func isFinal(err error) bool {
	var refused *refusal
	return errors.As(err, new(errServer)) || errors.As(err, &refused) && refused.status < http.StatusInternalServerError
}

// changes returns a function that prints a line with the time whenever the text about something, such
// as a host, differs from its last one.
func changes(w io.Writer) func(about, text string) {
	shown := map[string]string{}
	return func(about, text string) {
		if text != shown[about] && text != "" {
			column := ""
			if about != "" {
				column = fmt.Sprintf("%-20s ", about)
			}
			fmt.Fprintf(w, "%s  %s%s\n", time.Now().Format(time.TimeOnly), column, text)
		}
		shown[about] = text
	}
}
