package storetest

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/iotest"
	"time"

	"github.com/muster-fleet/muster/server/fleet"
	"github.com/muster-fleet/muster/server/store"
)

// packageOf is so many bytes without a pattern, with their digest.
func packageOf(seed byte, size int) (digest string, content []byte) {
	content = make([]byte, size)
	_, _ = rand.NewChaCha8([32]byte{seed}).Read(content) // never fails
	sum := sha256.Sum256(content)
	return hex.EncodeToString(sum[:]), content
}

func testPackageData(t *testing.T, cfg Config) {
	ctx := t.Context()

	if cfg.PackagesInFolder {
		if cfg.open(t).PackageData() != nil {
			t.Error("the store keeps the bytes of packages: prove it")
		}
		return
	}
	// Some MiB, so that no store keeps them in one document.
	digest, content := packageOf(1, 3<<20+17)
	fetch := func(t *testing.T, s store.Store, digest string) []byte {
		t.Helper()
		var got bytes.Buffer
		must(t, s.PackageData().Get(ctx, digest, &got))
		return got.Bytes()
	}
	missing := func(t *testing.T, s store.Store, digest string) {
		t.Helper()
		wantKind(t, s.PackageData().Get(ctx, digest, io.Discard), fleet.NotFound)
	}
	// listed wants these digests and no others, each whole or not.
	listed := func(t *testing.T, s store.Store, want map[string]bool) {
		t.Helper()
		cfg.eventually(t, func() error {
			list, err := s.PackageData().List(ctx)
			if err != nil {
				return err
			}
			for _, p := range list {
				whole, there := want[p.SHA256]
				if !there || whole != p.Whole || time.Since(p.Written).Abs() > 10*time.Minute {
					return fmt.Errorf("the list has %+v, want %v", p, want)
				}
			}
			if len(list) != len(want) {
				return fmt.Errorf("the list has %d, want %d: %+v", len(list), len(want), list)
			}
			return nil
		})
	}

	t.Run("what one process has put every other gets", func(t *testing.T) {
		stores := cfg.openTwice(t)
		s, other := stores[0], stores[1]
		missing(t, s, digest)
		for range 2 { // twice is once
			must(t, s.PackageData().Put(ctx, digest, int64(len(content)), bytes.NewReader(content)))
			if got := fetch(t, other, digest); !bytes.Equal(got, content) {
				t.Fatalf("%d bytes came, %d were put", len(got), len(content))
			}
		}
		small, few := packageOf(2, 5)
		must(t, other.PackageData().Put(ctx, small, 5, iotest.OneByteReader(bytes.NewReader(few))))
		if got := fetch(t, s, small); !bytes.Equal(got, few) {
			t.Fatalf("the small one is %q", got)
		}
		none, _ := packageOf(3, 0)
		must(t, s.PackageData().Put(ctx, none, 0, bytes.NewReader(nil)))
		if got := fetch(t, other, none); len(got) != 0 {
			t.Fatalf("the empty one is %q", got)
		}
		listed(t, other, map[string]bool{digest: true, small: true, none: true})
		// Under no digest of a whole one, or of none at all, there is a package.
		for _, bad := range []string{digest + ".0", digest[:10], "", strings.Repeat("f", 2000)} {
			missing(t, s, bad)
			must(t, s.PackageData().Delete(ctx, bad))
		}

		for range 2 {
			must(t, other.PackageData().Delete(ctx, digest))
			missing(t, s, digest)
		}
		listed(t, s, map[string]bool{small: true, none: true})
		if got := fetch(t, s, small); !bytes.Equal(got, few) {
			t.Fatalf("after another was deleted it is %q", got)
		}
	})

	t.Run("half a package is none", func(t *testing.T) {
		s := cfg.open(t)
		size := int64(len(content))
		torn := errors.New("torn")
		err := s.PackageData().Put(ctx, digest, size, io.MultiReader(bytes.NewReader(content[:2<<20]), iotest.ErrReader(torn)))
		if !errors.Is(err, torn) {
			t.Fatalf("the error is %v, want the reader's", err)
		}
		missing(t, s, digest)
		listed(t, s, map[string]bool{digest: false})
		other := slices.Clone(content)
		other[size-1] ^= 1
		for what, r := range map[string][]byte{"too short": content[:size-1], "too long": append(other[:size:size], 0), "other bytes": other} {
			wantKind(t, s.PackageData().Put(ctx, digest, size, bytes.NewReader(r)), fleet.Invalid)
			var got bytes.Buffer
			if err := s.PackageData().Get(ctx, digest, &got); fleet.KindOf(err) != fleet.NotFound {
				t.Fatalf("%s: it gave %d bytes, %v", what, got.Len(), err)
			}
		}
		wantKind(t, s.PackageData().Put(ctx, digest, -1, bytes.NewReader(content)), fleet.Invalid)
		must(t, s.PackageData().Put(ctx, digest, size, bytes.NewReader(content)))
		if got := fetch(t, s, digest); !bytes.Equal(got, content) {
			t.Fatal("what was put at last is not what came")
		}
		// A Put that is torn beside it takes nothing away.
		err = s.PackageData().Put(ctx, digest, size, io.MultiReader(bytes.NewReader(content[:2<<20]), iotest.ErrReader(torn)))
		if !errors.Is(err, torn) || !bytes.Equal(fetch(t, s, digest), content) {
			t.Fatalf("after a torn one the package is gone, or %v", err)
		}
	})

	t.Run("what a torn put left is deleted", func(t *testing.T) {
		stores := cfg.openTwice(t)
		s, other := stores[0], stores[1]
		if err := s.PackageData().Put(ctx, digest, int64(len(content)), bytes.NewReader(content[:2<<20])); err == nil {
			t.Fatal("half was taken for the whole")
		}
		must(t, other.PackageData().Delete(ctx, digest))
		listed(t, s, map[string]bool{})
	})

	t.Run("a writer who cannot go on is told apart from the store", func(t *testing.T) {
		s := cfg.open(t)
		must(t, s.PackageData().Put(ctx, digest, int64(len(content)), bytes.NewReader(content)))
		full := errors.New("full")
		if err := s.PackageData().Get(ctx, digest, brokenWriter{full}); !errors.Is(err, full) {
			t.Errorf("the error is %v, want the writer's", err)
		}
	})

	t.Run("several at once", func(t *testing.T) {
		stores := cfg.openTwice(t)
		var all sync.WaitGroup
		for i := range 8 { // two of each
			digest, content := packageOf(byte(10+i/2), 2<<20)
			all.Go(func() {
				if err := stores[i%2].PackageData().Put(ctx, digest, int64(len(content)), bytes.NewReader(content)); err != nil {
					t.Error(err)
					return
				}
				var got bytes.Buffer
				if err := stores[1-i%2].PackageData().Get(ctx, digest, &got); err != nil || !bytes.Equal(got.Bytes(), content) {
					t.Errorf("package %d: %d bytes, %v", i, got.Len(), err)
				}
			})
		}
		all.Wait()
	})
}

// brokenWriter takes nothing.
type brokenWriter struct{ err error }

func (w brokenWriter) Write([]byte) (int, error) { return 0, w.err }
