package cli

import (
	"bufio"
	"cmp"
	"errors"
	"fmt"
	"io"
	"net/url"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/muster-fleet/muster/server/api/adminapi"
)

func (a *client) newEvents() *cobra.Command {
	var after int64
	cmd := &cobra.Command{
		Use:   "events",
		Short: "Follow the events of the server, one JSON object per line",
		Long: `Follow the events of the server, one JSON object per line, until Ctrl-C. When the connection
ends, the command connects again and continues after the last event.`,
		Example: "  muster events | jq -r '[.at, .type, .subject] | @tsv'",
		Args:    noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			last := ""
			if cmd.Flags().Changed("after") {
				last = fmt.Sprint(after)
			}
			return a.followEvents(cmd, last)
		},
	}
	cmd.Flags().Int64Var(&after, "after", 0, "start after the event with this sequence number")
	return cmd
}

// followEvents writes the events after one, empty for the next ones, until Ctrl-C. When the stream
// ends, or the server does not answer, it connects again and continues after the last event.
func (a *client) followEvents(cmd *cobra.Command, last string) error {
	tick := time.NewTicker(waitInterval)
	defer tick.Stop()
	said := ""
	for {
		err := a.readEvents(cmd, &last)
		switch {
		case cmd.Context().Err() != nil:
			return nil // Ctrl-C is the way to end this subcommand
		case errors.Is(err, errReset):
			return fmt.Errorf("%w: omit --after to start with the next event", err)
		case errors.As(err, new(errOutput)), errors.Is(err, bufio.ErrTooLong), isFinal(err):
			return err
		case err == nil:
			said = "" // it was connected
		case said != err.Error():
			said = err.Error()
			fmt.Fprintf(cmd.ErrOrStderr(), "%s  %s; connecting again\n", time.Now().Format(time.TimeOnly), said)
		}
		select {
		case <-cmd.Context().Done():
			return nil
		case <-tick.C:
		}
	}
}

// readEvents writes the events after the last one until the stream ends, which is no error.
func (a *client) readEvents(cmd *cobra.Command, last *string) error {
	r := request{call: adminapi.StreamEvents.Call}
	if *last != "" {
		r.query = url.Values{"after": {*last}}
	}
	resp, err := a.open(cmd.Context(), r)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	id, err := copyEvents(cmd.OutOrStdout(), resp.Body)
	*last = cmp.Or(id, *last)
	if err != nil && !errors.Is(err, errReset) && !errors.As(err, new(errOutput)) && !errors.Is(err, bufio.ErrTooLong) {
		return nil // the connection was cut
	}
	return err
}

// errOutput is the error of a reader that has gone away, such as the next program of a pipe.
type errOutput struct{ error }

func (e errOutput) Unwrap() error { return e.error }

var errReset = errors.New("the server no longer has all events after that one")

// copyEvents writes the data of each message to w, one per line, until the stream ends.
// It returns the id of the last message.
func copyEvents(w io.Writer, stream io.Reader) (last string, err error) {
	lines := bufio.NewScanner(stream)
	lines.Buffer(nil, maxEventLine)
	for lines.Scan() {
		field, value, _ := strings.Cut(lines.Text(), ": ")
		switch {
		case field == "event" && value == "reset":
			return last, errReset
		case field == "id":
			last = value
		case field == "data":
			if _, err := fmt.Fprintln(w, value); err != nil {
				return last, errOutput{err}
			}
		}
	}
	return last, lines.Err()
}

// maxEventLine bounds one event. That of an agent with a thousand components has some
// 200 KB.
const maxEventLine = 1 << 20
