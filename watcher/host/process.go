package host

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/gofrs/flock"

	"github.com/muster-fleet/muster/packaging/host/disk"
	"github.com/muster-fleet/muster/packaging/host/layout"
	"github.com/muster-fleet/muster/watcher/watch"
)

// findAgent finds the agent's process by the process id in its lock file. If the system
// shows which program a process runs, that determines the result. Otherwise it is the lock,
// which the agent holds as long as it runs. The lock comes second because it is free for an
// instant while an agent re-executes itself, and because trying it could keep an agent that
// is just starting from acquiring it.
func findAgent(top string) watch.Process {
	lock := layout.Path(top, layout.AgentLockFile)
	pid := readPID(layout.LockPID(lock))
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

// finding is the system's information about a process id.
type finding int

const (
	cannotTell finding = iota
	runs               // it runs a program of this installation
	ended              // there is no such process, or it only waits to be reaped
)

// readPID returns 0 if the file holds no process id: it may not be written yet.
func readPID(file string) int {
	b, err := os.ReadFile(file)
	if err != nil {
		return 0
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(b)))
	if err != nil || pid <= 0 {
		return 0
	}
	return pid
}

// held reports whether the lock is held, by acquiring it shared for an instant. It returns
// false if that fails; the agent's answer then still proves that it runs.
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

// homeIn returns the versioned home under top that holds program, or has a link to it.
func homeIn(top, program string) (string, bool) {
	if filepath.Base(program) != layout.AgentLink {
		return "", false
	}
	if real, err := filepath.EvalSymlinks(top); err == nil {
		top = real
	}
	home, err := disk.FindHome(disk.OS{}, top, program)
	return home, home != "" && err == nil
}
