package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io/fs"
)

// CheckDowngrade returns why a file of this program's schema cannot be taken back to an
// earlier one. That each schema between has a way back is decided when it is written.
func CheckDowngrade(to int) error {
	newest, err := newestSchema()
	if err != nil {
		return err
	}
	for version := newest; version > to; version-- {
		if _, err := downFor(version); err != nil {
			return err
		}
	}
	return nil
}

func downFor(version int) (string, error) {
	names, err := fs.Glob(migrations, fmt.Sprintf("migrations/%04d_*%s", version, downSuffix))
	if err != nil {
		return "", err
	}
	if len(names) != 1 {
		return "", fmt.Errorf("the schema %d of the embedded store has no way back to %d: restore a backup from before the upgrade instead, with `muster restore`", version, version-1)
	}
	b, err := migrations.ReadFile(names[0])
	return string(b), err
}

// Downgrade takes the file at path back to an earlier schema, in one transaction, for a
// server of an earlier version. No process may have it open. It does nothing if the file has
// that schema already.
func Downgrade(ctx context.Context, path string, to int) (err error) {
	if err := prepareFile(path, false); err != nil {
		return err
	}
	lock, err := acquireLock(ctx, path, lockWait)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, lock.Close()) }()
	db, err := connect(path, Options{BusyTimeout: DefaultBusyTimeout}, exclusiveSettings, 1)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	return fault(path, "take the schema back", downgrade(ctx, db, path, to))
}

func downgrade(ctx context.Context, db *sql.DB, path string, to int) error {
	version, _, err := schemaOf(ctx, db, path)
	if err != nil {
		return err
	}
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer tx.Rollback() // no effect after Commit
	for ; version > to; version-- {
		step, err := downFor(version)
		if err != nil {
			return err
		}
		for _, statement := range []string{step, fmt.Sprintf("PRAGMA user_version = %d", version-1)} {
			if _, err := tx.ExecContext(ctx, statement); err != nil {
				return fmt.Errorf("schema %d: %w", version, err)
			}
		}
	}
	return tx.Commit()
}
