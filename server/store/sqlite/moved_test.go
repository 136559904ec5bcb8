package sqlite_test

import (
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/muster-fleet/muster/server/store"
	"github.com/muster-fleet/muster/server/store/sqlite"
)

func open(t *testing.T, path string, opts sqlite.Options) *sqlite.Store {
	t.Helper()
	s, err := sqlite.Open(t.Context(), path, opts)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

func TestMovedStoreIsRefusedUntilUnmarked(t *testing.T) {
	t.Parallel()
	ctx, path := t.Context(), filepath.Join(t.TempDir(), "muster.db")
	mark := store.Moved{To: "Elasticsearch at https://es:9200", At: time.Date(2026, time.May, 4, 3, 2, 1, 0, time.UTC)}
	s := open(t, path, sqlite.Options{})
	s.Close()
	if m, err := sqlite.Unmark(ctx, path); m != nil || err != nil {
		t.Fatalf("there was a mark: %v, %v", m, err)
	}
	reader := open(t, path, sqlite.Options{ReadOnly: true})
	if err := reader.MarkMoved(ctx, mark); err == nil {
		t.Fatal("a store that was opened for reading was marked")
	}
	s = open(t, path, sqlite.Options{})
	generation, err := store.Generation(ctx, s.Settings())
	if err != nil {
		t.Fatal(err)
	}
	if again, err := store.Generation(ctx, s.Settings()); again != generation || err != nil {
		t.Fatalf("the generation is %q, then %q: %v", generation, again, err)
	}
	for range 2 {
		if err := s.MarkMoved(ctx, mark); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.Settings().Each(ctx, func(name string, _ []byte) {
		if name != store.GenerationSetting {
			t.Errorf("there is a setting %s", name)
		}
	}); err != nil {
		t.Fatal(err)
	}
	s.Close()
	_, err = sqlite.Open(ctx, path, sqlite.Options{})
	if err == nil || !strings.Contains(err.Error(), "moved to Elasticsearch at https://es:9200 on 2026-05-04 03:02:01 UTC") || !strings.Contains(err.Error(), "muster store unmark") {
		t.Fatalf("a moved store: %v", err)
	}
	if m, err := sqlite.Unmark(ctx, path); err != nil || m == nil || *m != mark {
		t.Fatalf("the mark is %v, %v", m, err)
	}
	s = open(t, path, sqlite.Options{})
	if next, err := store.Generation(ctx, s.Settings()); next == generation || err != nil {
		t.Errorf("the generation is still %q: %v", next, err)
	}
}
