// Command muster-watcher watches one upgrade of the agent on this host: it commits the new
// version, or rolls back to the previous one. The agent starts it during an upgrade, and
// the host at boot while an upgrade is being watched. It uses the agent's control socket
// and the service manager, and reports to the server; its verdict needs no answer from
// the server.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"syscall"
	"time"

	"github.com/gofrs/flock"

	"github.com/muster-fleet/muster/packaging/host/disk"
	"github.com/muster-fleet/muster/packaging/host/launch"
	"github.com/muster-fleet/muster/packaging/host/layout"
	"github.com/muster-fleet/muster/packaging/host/terminal"
	"github.com/muster-fleet/muster/watcher/beacon"
	"github.com/muster-fleet/muster/watcher/handoff"
	"github.com/muster-fleet/muster/watcher/host"
	"github.com/muster-fleet/muster/watcher/report"
	"github.com/muster-fleet/muster/watcher/watch"
)

// version is set when a release is built.
var version = "dev"

// Lines on standard output. The agent that starts the watcher waits for the first.
const (
	lineWatching = "watching"
	lineNothing  = "nothing to watch"
	lineHeld     = "another watcher is watching"
)

// Exit codes.
const (
	exitOK     = 0
	exitFailed = 1 // the watch is not over; starting the program again continues it
	exitUsage  = 2
)

const (
	// lockTimeout is how long to wait for the lock before it counts as another
	// watcher's. An agent that checks whether a watcher runs holds it for an instant.
	lockTimeout = 500 * time.Millisecond
	lockPoll    = 20 * time.Millisecond
)

func main() {
	limitMemory()
	os.Exit(run(os.Args[1:], os.Stdout, terminal.NewWriter(os.Stderr)))
}

const (
	// gcPercent: with Go's default the garbage of samples and beacons grows to four
	// megabytes before it is collected.
	gcPercent = 25
	// softMemory is the soft limit for heap, stacks and the runtime. A health
	// document of maximum size may exceed it while it is read.
	softMemory = 6 << 20
	// processors: each has its own buffers, and nothing here needs more.
	processors = 2
)

// limitMemory keeps the watcher small, since it runs on every host of a fleet.
func limitMemory() {
	debug.SetGCPercent(gcPercent)
	debug.SetMemoryLimit(softMemory)
	runtime.GOMAXPROCS(min(processors, runtime.GOMAXPROCS(0)))
}

func run(args []string, stdout, stderr io.Writer) int {
	flags := flag.NewFlagSet("muster-watcher", flag.ContinueOnError)
	flags.SetOutput(stderr)
	top := flags.String("top", layout.DefaultTop, "the `folder` the agent is installed in")
	markerVersion := flags.Bool("marker-version", false, "print the version of the upgrade marker this watcher understands, and exit")
	showVersion := flags.Bool("version", false, "print the version, and exit")
	if err := flags.Parse(args); errors.Is(err, flag.ErrHelp) {
		return exitOK
	} else if err != nil {
		return exitUsage
	}
	if flags.NArg() > 0 {
		fmt.Fprintf(stderr, "muster-watcher: unexpected argument %q; see muster-watcher --help\n", flags.Arg(0))
		return exitUsage
	}
	switch {
	case *markerVersion:
		fmt.Fprintln(stdout, handoff.MarkerVersion)
		return exitOK
	case *showVersion:
		fmt.Fprintln(stdout, version)
		return exitOK
	}
	dir, err := filepath.Abs(*top)
	if err == nil {
		if launch.IsService() {
			stdout = io.Discard // nobody has opened it
		}
		err = launch.AsService(context.Background(), func(ctx context.Context) error { return watchTop(ctx, dir, stdout) })
	}
	if err != nil {
		fmt.Fprintf(stderr, "muster-watcher: %v\n", err)
		return exitFailed
	}
	return exitOK
}

func watchTop(ctx context.Context, top string, stdout io.Writer) error {
	// The pipe to the agent that started this program, or a terminal, may close at
	// any time. The signals are caught and not ignored, because an agent that a
	// rollback starts would inherit ignored signals.
	passed := make(chan os.Signal, 1)
	signal.Notify(passed, syscall.SIGPIPE, syscall.SIGHUP)
	defer signal.Stop(passed)
	ctx, stop := signal.NotifyContext(ctx, syscall.SIGTERM, os.Interrupt)
	defer stop()

	// Read before the log is opened: most starts, at every boot, find no marker.
	m, err := handoff.ReadMarker(disk.OS{}, top)
	if m == nil && err == nil {
		return announce(stdout, lineNothing)
	}
	out, lerr := openLog(layout.Path(top, layout.WatcherLogFile))
	if lerr != nil {
		// The watcher runs even if the disk takes no log.
		out = nopCloser{os.Stderr}
	}
	defer out.Close()
	log := slog.New(slog.NewTextHandler(out, nil)).With("watcher", version, "pid", os.Getpid())
	if lerr != nil {
		log.Warn("logging to standard error instead of the log file", "error", lerr)
	}
	if err != nil {
		log.Warn("the upgrade marker cannot be read and is ignored", "error", err)
		return announce(stdout, lineNothing)
	}

	roots, err := disk.FindRoots(disk.OS{}, top)
	if err != nil {
		return err // whoever does not know where the pointer is cannot restore it
	}
	lock := flock.New(layout.Path(top, layout.WatcherLockFile))
	held, err := acquire(ctx, lock)
	if err != nil {
		return fmt.Errorf("acquire the lock %s: %w", layout.WatcherLockFile, err)
	}
	if !held {
		return announce(stdout, lineHeld)
	}
	if err := announce(stdout, lineWatching); err != nil {
		return err
	}
	w := watch.Watch{
		Top:   top,
		Links: roots.Links,
		Disk:  disk.OS{},
		Host:  &host.Host{Top: top, Service: m.Restart.Service},
		Log:   log,
	}
	sender := openBeacon(top, log)
	if sender != nil {
		w.Server = sender
	}
	o, err := w.Run(ctx)
	// The lock is released first: reporting the result may take half a minute, and
	// the next upgrade may begin meanwhile and need its watcher.
	_ = lock.Unlock() // it ends with the process at the latest
	if sender != nil {
		sender.Close(ctx)
	}
	if errors.Is(err, context.Canceled) {
		return nil // asked to stop: the marker stays, and the next watcher continues
	}
	if err != nil {
		log.Error("the watch is not over", "error", err)
		return err
	}
	if o != nil && o.Result == handoff.RollbackFailed {
		log.Error("no version of the agent runs: repair the host by hand", "reason", o.Reason.Text)
	}
	return nil
}

// openBeacon returns nil if the watcher has no usable credential. The watch does not need
// one.
func openBeacon(top string, log *slog.Logger) *report.Sender {
	id, err := beacon.Load(disk.OS{}, top)
	if id == nil && err == nil {
		log.Info("the watcher has no credential of its own: it sends no reports to the server, and lost check-ins do not roll back",
			"file", layout.WatcherIdentityFile)
		return nil
	}
	var c *beacon.Client
	if err == nil {
		c, err = beacon.NewClient(*id, version, nil)
	}
	if err != nil {
		log.Warn("the watcher's credential cannot be used: it sends no reports to the server, and lost check-ins do not roll back", "error", err)
		return nil
	}
	return report.Start(c, log)
}

func acquire(ctx context.Context, lock *flock.Flock) (bool, error) {
	ctx, cancel := context.WithTimeout(ctx, lockTimeout)
	defer cancel()
	held, err := lock.TryLockContext(ctx, lockPoll)
	if errors.Is(err, context.DeadlineExceeded) {
		return false, nil
	}
	return held, err
}

// announce prints one line and notifies a service manager, for which the watcher has started
// with either line. It ignores a closed pipe, since the watch does not depend on it.
func announce(stdout io.Writer, line string) error {
	if err := notifyReady(line); err != nil {
		fmt.Fprintf(os.Stderr, "muster-watcher: the service manager cannot be notified of the start: %v\n", err)
	}
	_, err := fmt.Fprintln(stdout, line)
	if err == nil || readerGone(err) {
		return nil
	}
	return fmt.Errorf("standard output: %w", err)
}

type nopCloser struct{ io.Writer }

func (nopCloser) Close() error { return nil }
