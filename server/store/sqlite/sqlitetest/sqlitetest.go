// Package sqlitetest opens the embedded store for the tests of other packages.
package sqlitetest

import (
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
