package esnode

import (
	"context"
	"errors"
	"fmt"
	"io"
)

// Run runs one node until ctx ends, and prints its URL and how to use it with a server. A
// port of 0 means a free one. Its data is removed.
func Run(ctx context.Context, port int, out io.Writer) (err error) {
	fmt.Fprintf(out, "Starting Elasticsearch %s …\n", Version)
	c, err := New(ctx, Options{Port: port, Steady: true})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, c.Close()) }()
	n := c.Node(0)
	fmt.Fprintf(out, guide, n.URL, n.PID(), n.logFile())
	select {
	case <-ctx.Done():
		return nil
	case <-n.done:
		return fmt.Errorf("it has ended; its log ends:\n%s", lastLines([]byte(n.Log()), tail))
	}
}

const guide = `
It listens at %[1]s (process %[2]d, log %[3]s).

A server stores its data there with this configuration:

  store:
    elasticsearch:
      hosts: [%[1]s]

Tests use it instead of starting their own with

  ` + urlVariable + `=%[1]s

Ctrl-C ends it and removes its data.
`
