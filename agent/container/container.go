// Package container is the agent in a container, where no service manager starts it: process 1
// runs here, and the agent is its child. Package main calls it.
//
// All processes of a container end with its process 1. If that were the agent, a bad version would
// end the watcher that is to roll it back. So process 1 is a program that no upgrade replaces: it
// starts the agent that the pointer leads to, and the watcher if an upgrade is being watched, and
// reaps whatever ends. While an upgrade is watched the container lives as long as the watch. At all
// other times it lives as long as the agent, so that what runs the container sees that it has ended.
package container

import (
	"errors"
	"io/fs"
	"log/slog"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/gofrs/flock"

	"github.com/muster-fleet/muster/packaging/host/layout"
)

const (
	// stopTimeout bounds the end of the agent and of all other programs after SIGTERM. It is
	// above the agent's own, and below the ten seconds after which Docker kills.
	stopTimeout = 8 * time.Second
	// interval is how often the agent is looked for: the end of one that the watcher has started
	// is a signal to the watcher.
	interval = time.Second
	// watcherRestart is the pause between two starts of the watcher, which has nothing to repeat
	// faster.
	watcherRestart = 3 * time.Second
)

// Container runs the agent of one folder.
type Container struct {
	Top string // absolute
	Log *slog.Logger
}

// Installed reports whether an agent is installed in the folder.
func (c Container) Installed() (bool, error) {
	_, err := os.Lstat(layout.Path(c.Top, layout.AgentLink))
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	return err == nil, err
}

// watched reports whether an upgrade is being watched.
func (c Container) watched() bool {
	_, err := os.Lstat(layout.Path(c.Top, layout.MarkerFile))
	return err == nil
}

// held reports whether a process holds a lock file, by acquiring it for an instant. It is called
// only while no agent and no watcher is known to start.
func (c Container) held(file string) bool {
	name := layout.Path(c.Top, file)
	if _, err := os.Stat(name); err != nil {
		return false
	}
	l := flock.New(name, flock.SetFlag(os.O_RDONLY))
	got, err := l.TryRLock()
	if got {
		_ = l.Unlock()
	}
	return !got && err == nil
}

// holder returns the process id in the agent's lock file, or 0 if no process holds it. An id that
// an earlier container has left there is not one of this.
func (c Container) holder() int {
	if !c.held(layout.AgentLockFile) {
		return 0
	}
	text, err := os.ReadFile(layout.Path(c.Top, layout.AgentLockFile))
	if err != nil {
		return 0
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(text)))
	if err != nil {
		return 0
	}
	return pid
}
