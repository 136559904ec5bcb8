package sqlite_test

import (
	"context"
	"path/filepath"
	"testing"

	"github.com/muster-fleet/muster/server/store"
	"github.com/muster-fleet/muster/server/store/sqlite"
	"github.com/muster-fleet/muster/server/store/sqlite/sqlitetest"
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
		Damage:           sqlitetest.Damage,
	})
}
