package sqlite

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/gofrs/flock"
)

// ErrInUse reports that another process owns the file.
var ErrInUse = errors.New("another `muster server` uses it")

// lockRetry is the time between attempts to acquire a lock that another process holds.
const lockRetry = 20 * time.Millisecond

// acquireLock makes this process the owner of the file at path. The system releases the
// lock of a process that dies. The lock file is never removed: otherwise one process could
// lock the removed file and another a new one.
func acquireLock(ctx context.Context, path string, wait time.Duration) (*flock.Flock, error) {
	name := path + ".lock"
	lock := flock.New(name, flock.SetPermissions(0o600))
	waiting, cancel := context.WithTimeout(ctx, wait)
	defer cancel()
	held, err := lock.TryLockContext(waiting, lockRetry)
	switch {
	case held:
		// For the message below, which names no process if the system does not allow writing
		// to a locked file.
		_ = os.WriteFile(name, []byte(strconv.Itoa(os.Getpid())), 0o600)
		return lock, nil
	case ctx.Err() != nil:
		return nil, fmt.Errorf("database %s: %w", path, ctx.Err())
	case errors.Is(err, context.DeadlineExceeded):
		owner := ""
		if text, err := os.ReadFile(name); err == nil {
			if pid, err := strconv.Atoi(strings.TrimSpace(string(text))); err == nil {
				owner = fmt.Sprintf(" (process %d)", pid)
			}
		}
		return nil, fmt.Errorf("data folder %s: %w%s: the embedded store belongs to one server: stop that one first, or use another folder with --data; several servers need Elasticsearch (store.elasticsearch)",
			filepath.Dir(path), ErrInUse, owner)
	}
	return nil, fmt.Errorf("database %s: its lock file cannot be locked: %w", path, err)
}
