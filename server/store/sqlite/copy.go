package sqlite

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"
)

// Copy writes a copy of the store to a new file at path, as the store is at one moment. It
// delays no write, also of another process that owns the file; the log grows meanwhile.
func (s *Store) Copy(ctx context.Context, path string) (err error) {
	// SQLite fills an empty file, but would create one that others can read.
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	if err := f.Close(); err != nil {
		return err
	}
	// A connection of its own, which may write: query_only forbids this statement, too.
	db, err := connect(s.path, Options{BusyTimeout: DefaultBusyTimeout}, "mode=ro&_pragma=cache_size(-4000)", 1)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	_, err = db.ExecContext(ctx, `VACUUM INTO ?`, path)
	return s.fault("copy", err)
}

// CheckWhole reads all of the file at path, which no process may have open, and returns an
// error if it is damaged, or was written by another program or a newer Muster.
func CheckWhole(ctx context.Context, path string) (err error) {
	if err := prepareFile(path, embedded, true); err != nil {
		return err
	}
	db, err := connect(path, Options{BusyTimeout: DefaultBusyTimeout}, "mode=ro&"+readerSettings, 1)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	if _, _, err := schemaOf(ctx, db, embedded, path); err != nil {
		return fault(path, "check", err)
	}
	var verdict string
	if err := db.QueryRowContext(ctx, `PRAGMA integrity_check(1)`).Scan(&verdict); err != nil {
		return fault(path, "check", err)
	}
	if verdict != "ok" {
		return fmt.Errorf("database %s: it is damaged (%s)", path, verdict)
	}
	return nil
}

// Lock acquires the lock of the file at path, which need not exist, so that no process can
// open the store. It fails with ErrInUse if another process owns the file.
func Lock(ctx context.Context, path string) (unlock func() error, err error) {
	lock, err := acquireLock(ctx, path, lockWait)
	if err != nil {
		return nil, err
	}
	return lock.Close, nil
}

// lockWait is how long Lock waits for a process that is about to end.
const lockWait = time.Second
