package sqlite_test

import (
	"context"
	"database/sql"
	"path/filepath"
	"testing"

	"github.com/muster-fleet/muster/server/store"
	"github.com/muster-fleet/muster/server/store/sqlite"
	"github.com/muster-fleet/muster/server/store/storetest"
)

func TestContract(t *testing.T) {
	t.Parallel()
	storetest.Run(t, storetest.Config{
		NewLocation: func(t *testing.T) string { return filepath.Join(t.TempDir(), "muster.db") },
		Open: func(ctx context.Context, path string) (store.Store, error) {
			return sqlite.Open(ctx, path, sqlite.Options{})
		},
		PackagesInFolder: true,
		OneProcess:       true,
		Damage:           damage,
	})
}

// damage replaces the document of the first row of each table that has documents, and of each
// noun.
func damage(t *testing.T, path, doc string) {
	db, err := sql.Open("sqlite", path)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	tables, err := db.Query(`SELECT m.name FROM sqlite_schema m JOIN pragma_table_info(m.name) i WHERE m.type = 'table' AND i.name = 'doc'`)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for tables.Next() {
		var name string
		if err := tables.Scan(&name); err != nil {
			t.Fatal(err)
		}
		names = append(names, name)
	}
	if err := tables.Err(); err != nil || len(names) < 9 {
		t.Fatalf("the tables with documents are %q, %v", names, err)
	}
	for _, name := range names {
		first := `(SELECT min(rowid) FROM ` + name + `)`
		if name == "documents" {
			first = `(SELECT min(rowid) FROM documents GROUP BY noun)`
		}
		if _, err := db.Exec(`UPDATE `+name+` SET doc = ? WHERE rowid IN `+first, doc); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
	}
}
