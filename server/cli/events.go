package cli

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"

	"github.com/spf13/cobra"
)

func (a *client) newEvents() *cobra.Command {
	var after int64
	cmd := &cobra.Command{
		Use:     "events",
		Short:   "Follow the events of the server, one JSON object per line",
		Example: "  muster events | jq -r '[.at, .type, .subject] | @tsv'",
		Args:    noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			t, err := a.target.resolve()
			if err != nil {
				return err
			}
			path := "/api/v1/events"
			if cmd.Flags().Changed("after") {
				path += fmt.Sprintf("?after=%d", after)
			}
			resp, err := t.do(cmd.Context(), http.MethodGet, path, http.Header{}, nil, 0)
			if err != nil {
				return err
			}
			defer resp.Body.Close()
			last, err := copyEvents(cmd.OutOrStdout(), resp.Body)
			switch {
			case cmd.Context().Err() != nil:
				return nil // Ctrl-C is the way to end this command
			case errors.Is(err, errReset):
				return fmt.Errorf("%w: omit --after to start with the next event", err)
			case err == nil:
				err = errors.New("the server ended the stream")
			}
			if last != "" {
				return fmt.Errorf("%w: continue with `muster events --after %s`", err, last)
			}
			return err
		},
	}
	cmd.Flags().Int64Var(&after, "after", 0, "start after the event with this sequence number")
	return cmd
}

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
				return last, err
			}
		}
	}
	return last, lines.Err()
}

// maxEventLine bounds one event. That of an agent with a thousand components has some
// 200 KB.
const maxEventLine = 1 << 20
