// Command unhealthy replaces muster-agent in a package: a release that starts and checks in
// like a good one, and does harm a little later. It is the real agent beside a fault.
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
	"strings"
	"syscall"
	"time"

	"github.com/muster-fleet/muster/agent/daemon"
	"github.com/muster-fleet/muster/packaging/host/layout"
)

// healthyFor is how long it does no harm: long enough to check in and be watched, and
// shorter than any grace period in use.
const healthyFor = time.Second

// lockFile is a file of its package with the name of a lock that a component of the host needs. If it is
// there the release takes the lock, and otherwise it takes the folder of its own queue for a file.
const lockFile = "takes-lock"

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
	harm := time.AfterFunc(healthyFor, func() {
		if err := doHarm(layout.Path(top, options.Running.Home)); err != nil {
			options.Log.Error("no harm was done", "error", err)
		}
	})
	defer harm.Stop()
	return errors.Join(daemon.Agent{Options: options}.Run(ctx), log.Close())
}

func doHarm(home string) error {
	lock, err := os.ReadFile(filepath.Join(home, lockFile))
	if err == nil {
		return os.WriteFile(strings.TrimSpace(string(lock)), []byte(strconv.Itoa(os.Getpid())), 0o600)
	}
	run := filepath.Join(home, layout.RunDir)
	return errors.Join(os.RemoveAll(run), os.WriteFile(run, nil, 0o600))
}
