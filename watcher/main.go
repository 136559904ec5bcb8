// Command muster-watcher watches one upgrade of the agent on this host: it keeps
// the new version, or puts the previous one back. The agent starts it when it has
// switched, and so does the host at boot as long as an upgrade is being watched.
// It talks to the agent's control socket and to the service manager, and tells the
// server what it sees; no answer of the server is needed for a verdict.
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

	"github.com/muster-fleet/muster/packaging/disk"
	"github.com/muster-fleet/muster/packaging/layout"
	"github.com/muster-fleet/muster/watcher/beacon"
	"github.com/muster-fleet/muster/watcher/handoff"
	"github.com/muster-fleet/muster/watcher/host"
	"github.com/muster-fleet/muster/watcher/report"
	"github.com/muster-fleet/muster/watcher/watch"
)

// version is set when a release is built.
var version = "dev"

// What the program says on standard output. The agent that starts it waits for
// the first line.
const (
	sayWatching = "watching"
	sayNothing  = "nothing to watch"
	sayHeld     = "another watcher is watching"
)

// Exit codes.
const (
	exitOK     = 0
	exitFailed = 1 // the watch is not over: starting the program again goes on
	exitUsage  = 2
)

const (
	// lockPatience is how long the lock may be held before it counts as another
	// watcher's: an agent that looks whether one runs holds it for an instant.
	lockPatience = 500 * time.Millisecond
	lockPoll     = 20 * time.Millisecond
)

func main() {
	staySmall()
	os.Exit(run(os.Args[1:], os.Stdout, os.Stderr))
}

const (
	// gcPercent: what a look, a question and a beacon leave behind would grow
	// to four megabytes before Go's default collects it.
	gcPercent = 25
	// softMemory is what the heap, stacks and the runtime take together; from
	// there on freed memory goes back at once. It is soft: a health document of
	// its largest size still fits, for as long as it takes to read it.
	softMemory = 6 << 20
	// processors: each takes buffers of its own, and nothing here is in a hurry.
	processors = 2
)

// staySmall: a watcher runs on every host of a fleet, beside what the host is
// for. With it 10 MB are resident, of which 6.5 are the program; without, 14.
func staySmall() {
	debug.SetGCPercent(gcPercent)
	debug.SetMemoryLimit(softMemory)
	runtime.GOMAXPROCS(min(processors, runtime.GOMAXPROCS(0)))
}

func run(args []string, stdout, stderr io.Writer) int {
	flags := flag.NewFlagSet("muster-watcher", flag.ContinueOnError)
	flags.SetOutput(stderr)
	top := flags.String("top", "/opt/muster", "the `folder` the agent is installed in")
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
		err = watchTop(dir, stdout)
	}
	if err != nil {
		fmt.Fprintf(stderr, "muster-watcher: %v\n", err)
		return exitFailed
	}
	return exitOK
}

func watchTop(top string, stdout io.Writer) error {
	// The pipe to the agent that started this program may close at any time,
	// and so may a terminal. Caught, not ignored: what is ignored here would
	// stay ignored in the agent that a rollback starts.
	passed := make(chan os.Signal, 1)
	signal.Notify(passed, syscall.SIGPIPE, syscall.SIGHUP)
	defer signal.Stop(passed)
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, os.Interrupt)
	defer stop()

	// Asked before the log is opened: most starts, at every boot, find nothing.
	m, err := handoff.ReadMarker(disk.OS{}, top)
	if m == nil && err == nil {
		return say(stdout, sayNothing)
	}
	out, lerr := openLog(layout.Path(top, layout.WatcherLogFile))
	if lerr != nil {
		// A disk that takes no log still wants its watcher.
		out = nopCloser{os.Stderr}
	}
	defer out.Close()
	log := slog.New(slog.NewTextHandler(out, nil)).With("watcher", version, "pid", os.Getpid())
	if lerr != nil {
		log.Warn("logging to standard error instead of the log file", "error", lerr)
	}
	if err != nil {
		log.Warn("the upgrade marker cannot be read and counts as none", "error", err)
		return say(stdout, sayNothing)
	}

	lock := flock.New(layout.Path(top, layout.WatcherLockFile))
	held, err := takeLock(ctx, lock)
	if err != nil {
		return fmt.Errorf("take the lock %s: %w", layout.WatcherLockFile, err)
	}
	if !held {
		return say(stdout, sayHeld)
	}
	if err := say(stdout, sayWatching); err != nil {
		return err
	}
	w := watch.Watch{
		Top:  top,
		Disk: disk.OS{},
		Host: &host.Host{Top: top, Service: m.Restart.Service},
		Log:  log,
	}
	sender := openBeacon(top, log)
	if sender != nil {
		w.Server = sender
	}
	o, err := w.Run(ctx)
	// The lock goes first: while the server is told the result, which may take
	// half a minute, the next upgrade may begin and wants its watcher.
	_ = lock.Unlock() // it ends with the process at the latest
	if sender != nil {
		sender.Close(ctx)
	}
	if errors.Is(err, context.Canceled) {
		return nil // asked to stop: the marker stays, the next watcher goes on
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

// openBeacon returns nil where the watcher has no credential it can use: the watch
// is the same without.
func openBeacon(top string, log *slog.Logger) *report.Sender {
	id, err := beacon.Load(disk.OS{}, top)
	if id == nil && err == nil {
		log.Info("the watcher has no credential of its own: the server is told nothing, and lost check-ins do not roll back",
			"file", layout.WatcherIdentityFile)
		return nil
	}
	var c *beacon.Client
	if err == nil {
		c, err = beacon.NewClient(*id, version, nil)
	}
	if err != nil {
		log.Warn("the watcher's credential cannot be used: the server is told nothing, and lost check-ins do not roll back", "error", err)
		return nil
	}
	return report.Start(c, log)
}

func takeLock(ctx context.Context, lock *flock.Flock) (bool, error) {
	ctx, cancel := context.WithTimeout(ctx, lockPatience)
	defer cancel()
	held, err := lock.TryLockContext(ctx, lockPoll)
	if errors.Is(err, context.DeadlineExceeded) {
		return false, nil
	}
	return held, err
}

// say prints one line, and reports the same to a service manager that waits for
// it: whether this watcher watches, or nothing is left to watch, its start is
// over. Nobody listening is no failure: the watch is what counts.
func say(stdout io.Writer, line string) error {
	if err := notifyReady(line); err != nil {
		fmt.Fprintf(os.Stderr, "muster-watcher: the service manager cannot be told of the start: %v\n", err)
	}
	_, err := fmt.Fprintln(stdout, line)
	if err == nil || errors.Is(err, syscall.EPIPE) {
		return nil
	}
	return fmt.Errorf("standard output: %w", err)
}

type nopCloser struct{ io.Writer }

func (nopCloser) Close() error { return nil }
