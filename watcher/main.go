// Command muster-watcher watches one upgrade of the agent on this host: it keeps
// the new version, or puts the previous one back. The agent starts it when it has
// switched, and so does the host at boot as long as an upgrade is being watched.
// It talks to the agent's control socket and to the service manager, never to
// the network.
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
	"syscall"
	"time"

	"github.com/gofrs/flock"

	"github.com/muster-fleet/muster/packaging/disk"
	"github.com/muster-fleet/muster/watcher/host"
	"github.com/muster-fleet/muster/watcher/marker"
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

func main() { os.Exit(run(os.Args[1:], os.Stdout, os.Stderr)) }

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
		fmt.Fprintln(stdout, marker.Version)
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
	m, err := marker.Read(disk.OS{}, top)
	if m == nil && err == nil {
		return say(stdout, sayNothing)
	}
	out, lerr := openLog(filepath.Join(top, logFile))
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

	lock := flock.New(filepath.Join(top, filepath.FromSlash(marker.WatcherLockFile)))
	held, err := takeLock(ctx, lock)
	if err != nil {
		return fmt.Errorf("take the lock %s: %w", marker.WatcherLockFile, err)
	}
	if !held {
		return say(stdout, sayHeld)
	}
	defer lock.Unlock() //nolint:errcheck // the lock ends with the process
	if err := say(stdout, sayWatching); err != nil {
		return err
	}
	w := watch.Watch{
		Top:  top,
		Disk: disk.OS{},
		Host: &host.Host{Top: top, Service: m.Restart.Service},
		Log:  log,
	}
	o, err := w.Run(ctx)
	if errors.Is(err, context.Canceled) {
		return nil // asked to stop: the marker stays, the next watcher goes on
	}
	if err != nil {
		log.Error("the watch is not over", "error", err)
		return err
	}
	if o != nil && o.Result == marker.RollbackFailed {
		log.Error("no version of the agent runs: repair the host by hand", "reason", o.Reason.Text)
	}
	return nil
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

// say prints one line, and tells systemd that the start is over: a watcher that
// finds nothing to do has started well too. Nobody listening is no failure: the
// watch is what counts.
func say(stdout io.Writer, line string) error {
	if err := notifyReady(); err != nil {
		slog.Warn("systemd was not told that the watcher is ready", "error", err)
	}
	_, err := fmt.Fprintln(stdout, line)
	if err == nil || errors.Is(err, syscall.EPIPE) {
		return nil
	}
	return fmt.Errorf("standard output: %w", err)
}

type nopCloser struct{ io.Writer }

func (nopCloser) Close() error { return nil }
