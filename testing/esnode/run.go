package esnode

import (
	"context"
	"errors"
	"fmt"
	"io"
)

// Run runs one node by hand until ctx ends, and says where it is and how a
// server is put on it. A port of 0 is a free one. Its data goes with it.
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
It answers at %[1]s (process %[2]d, its log is %[3]s).

A server keeps everything there with this in its configuration:

  store:
    elasticsearch:
      hosts: [%[1]s]

Tests use it, instead of starting their own, with

  ` + urlVariable + `=%[1]s

Ctrl-C ends it and removes its data.
`
