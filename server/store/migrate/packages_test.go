package migrate_test

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/muster-fleet/muster/server/fleet"
	"github.com/muster-fleet/muster/server/store/migrate"
	"github.com/muster-fleet/muster/server/store/sqlite"
)

func TestPackagesPutsMissingBytes(t *testing.T) {
	ctx, folder := t.Context(), t.TempDir()
	from, err := sqlite.Open(ctx, filepath.Join(folder, "muster.db"), sqlite.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer from.Close()
	for _, sum := range []string{"aa", "bb", "cc", "dd"} {
		if err := from.Packages().Create(ctx, fleet.Package{File: sum + ".tar.gz", SHA256: sum, Size: 4}); err != nil {
			t.Fatal(err)
		}
		if sum == "cc" {
			continue
		}
		if err := os.WriteFile(filepath.Join(folder, sum), []byte(sum+sum), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	tries := 0
	put := map[string]string{}
	lost, err := migrate.Packages(ctx, from, folder, func(sum string) bool { return sum == "bb" },
		func(_ context.Context, sum string, size int64, r io.Reader) error {
			b, err := io.ReadAll(r)
			if tries++; tries == 1 {
				return fleet.Errorf(fleet.Unavailable, "the store is away")
			}
			put[sum] = fmt.Sprint(size, " ", string(b))
			return err
		}, ignoreSteps)
	if err != nil || !slices.Equal(lost, []string{"cc.tar.gz"}) {
		t.Errorf("lost packages are %v, %v", lost, err)
	}
	if len(put) != 2 || put["aa"] != "4 aaaa" || put["dd"] != "4 dddd" {
		t.Errorf("put was called with %v", put)
	}
}

func TestUploadsPutsMissingBytes(t *testing.T) {
	ctx, folder := t.Context(), t.TempDir()
	from, err := sqlite.Open(ctx, filepath.Join(folder, "muster.db"), sqlite.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer from.Close()
	u := fleet.Upload{ID: "u", Chunks: []fleet.Chunk{{Key: "aa"}, {Key: "bb"}, {Key: "cc"}, {}}}
	if err := from.Uploads().Create(ctx, u); err != nil {
		t.Fatal(err)
	}
	for _, key := range []string{"aa", "bb"} {
		if err := os.WriteFile(filepath.Join(folder, key), []byte(key+key), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	put := map[string]string{}
	err = migrate.Uploads(ctx, from, folder, func(key string) bool { return key == "bb" },
		func(_ context.Context, key string, size int64, r io.Reader) error {
			b, err := io.ReadAll(r)
			put[key] = fmt.Sprint(size, " ", string(b))
			return err
		}, ignoreSteps)
	if err != nil || len(put) != 1 || put["aa"] != "4 aaaa" {
		t.Errorf("put was called with %v (%v)", put, err)
	}
}
