// Command heartbeat replaces muster-agent in a package for measurements. It is the real agent
// with one more component, which writes a line every millisecond. The longest gap is the
// outage of an upgrade.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"strconv"
	"syscall"
	"time"

	"github.com/muster-fleet/muster/agent/daemon"
	"github.com/muster-fleet/muster/watcher/probe"
)

// beatsFile is relative to the top folder. It has a line for each beat, in nanoseconds since
// 1970.
const beatsFile = "beats"

func main() {
	flags := flag.NewFlagSet("muster-agent run", flag.ExitOnError)
	top := flags.String("top", "", "folder the agent is installed in")
	if len(os.Args) < 2 || os.Args[1] != "run" {
		return // for other commands, such as version, an exit code of 0 suffices
	}
	_ = flags.Parse(os.Args[2:]) // exits on an error
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
	options.Components = append(options.Components, &heart{file: filepath.Join(top, beatsFile)})
	return errors.Join(daemon.Agent{Options: options}.Run(ctx), log.Close())
}

type heart struct{ file string }

func (*heart) ID() string                    { return "heart" }
func (*heart) Type() string                  { return "heart" }
func (*heart) Status() (probe.State, string) { return probe.Healthy, "beating" }

func (h *heart) Run(ctx context.Context) error {
	f, err := os.OpenFile(h.file, os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
	if err != nil {
		return err
	}
	defer f.Close()
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for ctx.Err() == nil {
		if _, err := f.WriteString(strconv.FormatInt(time.Now().UnixNano(), 10) + "\n"); err != nil {
			return err
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
		}
	}
	return nil
}
