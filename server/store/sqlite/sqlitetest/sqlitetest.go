// Package sqlitetest opens the embedded store for the tests of other packages.
package sqlitetest

import (
	"database/sql"
	"errors"
	"fmt"
	"testing"

	"github.com/muster-fleet/muster/server/store/sqlite"
)

// Open opens the file at path, creating it if there is none, and closes it when the test
// ends.
func Open(t testing.TB, path string) *sqlite.Store {
	t.Helper()
	s, err := sqlite.Open(t.Context(), path, sqlite.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

// Damage replaces the document of the first row of each table that has documents, and of each
// noun, in a file that no process has open.
func Damage(t *testing.T, path, doc string) {
	t.Helper()
	change(t, path, func(db *sql.DB) error {
		tables, err := db.QueryContext(t.Context(), `SELECT m.name FROM sqlite_schema m JOIN pragma_table_info(m.name) i WHERE m.type = 'table' AND i.name = 'doc'`)
		if err != nil {
			return err
		}
		defer tables.Close() // Err reports errors
		var names []string
		for tables.Next() {
			var name string
			if err := tables.Scan(&name); err != nil {
				return err
			}
			names = append(names, name)
		}
		if err := tables.Err(); err != nil || len(names) < 9 {
			return fmt.Errorf("the tables with documents are %q: %w", names, err)
		}
		for _, name := range names {
			first := `(SELECT min(rowid) FROM ` + name + `)`
			if name == "documents" {
				first = `(SELECT min(rowid) FROM documents GROUP BY noun)`
			}
			if _, err := db.ExecContext(t.Context(), `UPDATE `+name+` SET doc = ? WHERE rowid IN `+first, doc); err != nil {
				return fmt.Errorf("%s: %w", name, err)
			}
		}
		return nil
	})
}

// DamageAgent replaces the document of an agent, in a file that no process has open.
func DamageAgent(t *testing.T, path, id, doc string) {
	t.Helper()
	change(t, path, func(db *sql.DB) error {
		done, err := db.ExecContext(t.Context(), `UPDATE agents SET doc = ? WHERE id = ?`, doc, id)
		if err != nil {
			return err
		}
		if n, err := done.RowsAffected(); err != nil || n != 1 {
			return fmt.Errorf("%d rows are of agent %s: %w", n, id, err)
		}
		return nil
	})
}

func change(t *testing.T, path string, f func(*sql.DB) error) {
	t.Helper()
	db, err := sql.Open("sqlite", path)
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(f(db), db.Close()); err != nil {
		t.Fatal(err)
	}
}
