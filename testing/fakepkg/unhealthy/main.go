// Command unhealthy replaces muster-agent in a package: a release that starts and checks in
// like a good one, and whose workload fails a little later. It is the real agent with one
// more component.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/muster-fleet/muster/agent/daemon"
	"github.com/muster-fleet/muster/watcher/probe"
)

// healthyFor is how long it reports healthy: long enough to check in and be watched, and
// shorter than any grace period in use.
const healthyFor = 2 * time.Second

func main() {
	flags := flag.NewFlagSet("muster-agent run", flag.ExitOnError)
	top := flags.String("top", "", "folder the agent is installed in")
	args := os.Args[1:]
	if len(args) == 0 || args[0] != "run" {
		fmt.Fprintln(os.Stderr, "usage: muster-agent run --top DIR")
		os.Exit(2)
	}
	_ = flags.Parse(args[1:]) // exits on an error
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, os.Interrupt)
	defer stop()
	if err := run(ctx, *top); err != nil {
		fmt.Fprintln(os.Stderr, "muster-agent:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, top string) error {
	options, log, err := daemon.Installed(top, "dev")
	if err != nil {
		return err
	}
	options.Components = append(options.Components, &leak{})
	return errors.Join(daemon.Agent{Options: options}.Run(ctx), log.Close())
}

// leak is a workload that runs out of a resource.
type leak struct{ failed atomic.Bool }

func (*leak) ID() string   { return "log-shipper" }
func (*leak) Type() string { return "shipper" }

func (l *leak) Status() (probe.State, string) {
	if l.failed.Load() {
		return probe.Failed, "out of file handles: 1024 of 1024 in use"
	}
	return probe.Healthy, "shipping"
}

func (l *leak) Run(ctx context.Context) error {
	select {
	case <-ctx.Done():
	case <-time.After(healthyFor):
		l.failed.Store(true)
		<-ctx.Done()
	}
	return nil
}
