// Package sqlitetest opens the embedded store for the tests of who uses it.
package sqlitetest

import (
	"testing"

	"github.com/muster-fleet/muster/server/store/sqlite"
)

// Open opens the file at path, and makes it if there is none. It is closed when the
// test ends, which fails if that does.
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
