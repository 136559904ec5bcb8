package sqlite

import (
	"context"
	"database/sql"
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"strings"
)

//go:embed migrations/*.sql
var migrations embed.FS

// embedded are the schemas of this program.
var embedded = schemas{migrations}

// schemas are the files of a folder migrations: NNNN_*.sql brings the schema before it to the
// number NNNN, from 1 without a gap, and NNNN_*.down.sql takes it back. A schema without the
// latter cannot go back.
type schemas struct{ files fs.FS }

const downSuffix = ".down.sql"

// newest returns the number of the last schema.
func (s schemas) newest() (int, error) {
	up, err := fs.Glob(s.files, "migrations/*.sql")
	down, derr := fs.Glob(s.files, "migrations/*"+downSuffix)
	return len(up) - len(down), errors.Join(err, derr)
}

// up returns the statements that bring the schema before to the version.
func (s schemas) up(version int) (string, error) {
	return s.step(version, false, fmt.Sprintf("there is no migration to the schema %d", version))
}

// down returns the statements that take the version back to the schema before.
func (s schemas) down(version int) (string, error) {
	return s.step(version, true, fmt.Sprintf("the schema %d of the embedded store has no way back to %d: restore a backup from before the upgrade instead, with `muster restore`", version, version-1))
}

func (s schemas) step(version int, down bool, none string) (string, error) {
	names, err := fs.Glob(s.files, fmt.Sprintf("migrations/%04d_*.sql", version))
	if err != nil {
		return "", err
	}
	for _, name := range names {
		if strings.HasSuffix(name, downSuffix) == down {
			b, err := fs.ReadFile(s.files, name)
			return string(b), err
		}
	}
	return "", errors.New(none)
}

// CheckDowngrade returns why a file of this program's schema cannot be taken back to an
// earlier one. That each schema between has a way back is decided when it is written.
func CheckDowngrade(to int) error {
	newest, err := embedded.newest()
	if err != nil {
		return err
	}
	for version := newest; version > to; version-- {
		if _, err := embedded.down(version); err != nil {
			return err
		}
	}
	return nil
}

// Downgrade takes the file at path back to an earlier schema, in one transaction, for a
// server of an earlier version. No process may have it open. It does nothing if the file has
// that schema already.
func Downgrade(ctx context.Context, path string, to int) error {
	return embedded.downgrade(ctx, path, to)
}

func (s schemas) downgrade(ctx context.Context, path string, to int) (err error) {
	if err := prepareFile(path, s, false); err != nil {
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
	return fault(path, "take the schema back", s.takeBack(ctx, db, path, to))
}

func (s schemas) takeBack(ctx context.Context, db *sql.DB, path string, to int) error {
	version, _, err := schemaOf(ctx, db, s, path)
	if err != nil {
		return err
	}
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer tx.Rollback() // no effect after Commit
	for ; version > to; version-- {
		step, err := s.down(version)
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
