// Command heartbeat replaces muster-agent in a package for measurements. It is the real agent,
// whose process also writes a line every millisecond. The longest gap is the outage of an upgrade.
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
	ctx, stop := context.WithCancel(ctx)
	beating := make(chan error, 1)
	go func() { beating <- beat(ctx, filepath.Join(top, beatsFile)) }()
	err = daemon.Agent{Options: options}.Run(ctx)
	stop()
	return errors.Join(err, <-beating, log.Close())
}

func beat(ctx context.Context, file string) error {
	f, err := os.OpenFile(file, os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
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
