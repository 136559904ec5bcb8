package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"strings"

	modernc "modernc.org/sqlite"
	sqlite3 "modernc.org/sqlite/lib"

	"github.com/muster-fleet/muster/server/fleet"
	"github.com/muster-fleet/muster/server/store"
)

// fault turns an error of SQLite into a fleet.Error that says what to try. It returns
// fleet.Errors, nil, and sql.ErrNoRows, which does not leave this package, unchanged.
func (s *Store) fault(op string, err error) error { return fault(s.path, op, err) }

func fault(path, op string, err error) error {
	if err == nil {
		return nil // before known is allocated
	}
	var known *fleet.Error
	switch {
	case errors.As(err, &known) || errors.Is(err, sql.ErrNoRows):
		return err
	case errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded):
		return store.Unavailable(op, err, "the caller stopped waiting for the store")
	case errors.Is(err, errClosed) || errors.Is(err, sql.ErrConnDone) || strings.Contains(err.Error(), "database is closed"):
		// database/sql exports no error for the last one.
		return store.Unavailable(op, err, "the store is closed: the server is shutting down")
	}
	if advice, ok := adviceFor(err); ok {
		return store.Unavailable(op, err, "database %s: %s", path, advice)
	}
	return store.Unavailable(op, err, "database %s: %s failed: %v", path, op, err)
}

const damaged = "it is damaged: stop the server, keep a copy, and restore a backup or salvage it with `sqlite3 FILE .recover`"

const full = "the disk is full: free some space"

// adviceFor says what is wrong and what to try.
func adviceFor(err error) (string, bool) {
	if extended(err) == sqlite3.SQLITE_IOERR_SHMSIZE { // the index of the log has no room
		return full, true
	}
	switch code(err) {
	case sqlite3.SQLITE_FULL:
		return full, true
	case sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED:
		return "it is locked by another process: stop that process, or try again", true
	case sqlite3.SQLITE_CORRUPT:
		return damaged, true
	case sqlite3.SQLITE_NOTADB:
		return "it is not a database: choose another file, or move this one away", true
	case sqlite3.SQLITE_READONLY, sqlite3.SQLITE_PERM, sqlite3.SQLITE_AUTH:
		return "it cannot be written: check the owner and the mode of the file, of its folder and of the files beside it that end in -wal and -shm", true
	case sqlite3.SQLITE_CANTOPEN:
		return "it cannot be opened: check that its folder exists and that this user may write there", true
	case sqlite3.SQLITE_IOERR:
		return "the disk fails to read or write: check the system log for disk errors", true
	case sqlite3.SQLITE_INTERRUPT:
		return "the caller stopped waiting", true
	}
	return "", false
}

// diskFailed reports whether the disk is full, fails, or cannot be written.
func diskFailed(err error) bool {
	switch code(err) {
	case sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR, sqlite3.SQLITE_READONLY, sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_PERM:
		return true
	}
	return false
}

// code returns SQLite's primary result code, or 0 if err is not from SQLite.
func code(err error) int { return extended(err) & 0xff }

// extended returns SQLite's extended result code, or 0 if err is not from SQLite.
func extended(err error) int {
	var e *modernc.Error
	if errors.As(err, &e) {
		return e.Code()
	}
	return 0
}
