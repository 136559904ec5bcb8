package host

import (
	"os"
	"path"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/gofrs/flock"

	"github.com/muster-fleet/muster/packaging/layout"
	"github.com/muster-fleet/muster/watcher/watch"
)

// findAgent finds the agent's process by the number in its lock file. Where the
// system tells which program a process runs, that decides; elsewhere the lock
// does, which the agent holds as long as it runs. The program is asked first
// since it is the same question at every moment, while the lock is free for an
// instant when an agent replaces itself in place, and trying it could take it
// from an agent that starts just then.
func findAgent(top string) watch.Process {
	lock := layout.Path(top, layout.AgentLockFile)
	pid := readPID(lock)
	if pid != 0 {
		switch home, found := homeOf(top, pid); found {
		case runs:
			return watch.Process{Alive: true, PID: pid, Home: home}
		case ended:
			return watch.Process{}
		}
	}
	if !held(lock) {
		return watch.Process{}
	}
	return watch.Process{Alive: true, PID: pid}
}

// finding is what the system says of a process number.
type finding int

const (
	cannotTell finding = iota
	runs               // it runs a program of this installation
	ended              // there is no such process, or it only waits to be reaped
)

// readPID returns 0 when the lock file names no process: it may not be readable
// while it is held (Windows), or be about to be written.
func readPID(lock string) int {
	b, err := os.ReadFile(lock)
	if err != nil {
		return 0
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(b)))
	if err != nil || pid <= 0 {
		return 0
	}
	return pid
}

// held tries the lock, shared, for as short a time as there is. A lock that
// cannot be tried counts as free: then the agent's answer still proves it.
func held(lock string) bool {
	if _, err := os.Stat(lock); err != nil {
		return false
	}
	l := flock.New(lock, flock.SetFlag(os.O_RDONLY))
	got, err := l.TryRLock()
	if got {
		_ = l.Unlock()
	}
	return !got && err == nil
}

// homeIn returns the versioned home under top that program lies in.
func homeIn(top, program string) (string, bool) {
	if real, err := filepath.EvalSymlinks(top); err == nil {
		top = real
	}
	rel, err := filepath.Rel(top, program)
	if err != nil {
		return "", false
	}
	home := path.Dir(filepath.ToSlash(rel))
	return home, path.Dir(home) == layout.DataDir && path.Base(filepath.ToSlash(rel)) == layout.AgentLink
}
