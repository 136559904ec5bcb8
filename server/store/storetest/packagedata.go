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

// packageOf returns pseudorandom bytes and their digest.
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
			t.Error("the store stores the bytes of packages: remove PackagesInFolder to test it")
		}
		return
	}
	// Some MiB, so that a store needs several documents.
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
	// listed fails the test unless List returns exactly these digests. The value is
	// PackageBytes.Whole.
	listed := func(t *testing.T, s store.Store, want map[string]bool) {
		t.Helper()
		cfg.eventually(t, func() error {
			list, err := s.PackageData().List(ctx)
			if err != nil {
				return err
			}
			for _, p := range list {
				whole, ok := want[p.SHA256]
				if !ok || whole != p.Whole || time.Since(p.Written).Abs() > 10*time.Minute {
					return fmt.Errorf("the list has %+v, want %v", p, want)
				}
			}
			if len(list) != len(want) {
				return fmt.Errorf("the list has %d packages, want %d: %+v", len(list), len(want), list)
			}
			return nil
		})
	}

	t.Run("a package put by one process is read by another", func(t *testing.T) {
		stores := cfg.openTwice(t)
		s, other := stores[0], stores[1]
		missing(t, s, digest)
		for range 2 { // a repeated Put is no error
			must(t, s.PackageData().Put(ctx, digest, int64(len(content)), bytes.NewReader(content)))
			if got := fetch(t, other, digest); !bytes.Equal(got, content) {
				t.Fatalf("Get returned %d other bytes than the %d that were put", len(got), len(content))
			}
		}
		small, few := packageOf(2, 5)
		must(t, other.PackageData().Put(ctx, small, 5, iotest.OneByteReader(bytes.NewReader(few))))
		if got := fetch(t, s, small); !bytes.Equal(got, few) {
			t.Fatalf("the small package is %q", got)
		}
		none, _ := packageOf(3, 0)
		must(t, s.PackageData().Put(ctx, none, 0, bytes.NewReader(nil)))
		if got := fetch(t, other, none); len(got) != 0 {
			t.Fatalf("the empty package is %q", got)
		}
		listed(t, other, map[string]bool{digest: true, small: true, none: true})
		// Names that are not the digest of a package are not found.
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
			t.Fatalf("after another one was deleted, the small package is %q", got)
		}
	})

	t.Run("an incomplete package is not found", func(t *testing.T) {
		s := cfg.open(t)
		size := int64(len(content))
		failed := errors.New("failed")
		err := s.PackageData().Put(ctx, digest, size, io.MultiReader(bytes.NewReader(content[:2<<20]), iotest.ErrReader(failed)))
		if !errors.Is(err, failed) {
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
				t.Fatalf("%s: Get returned %d bytes, %v", what, got.Len(), err)
			}
		}
		wantKind(t, s.PackageData().Put(ctx, digest, -1, bytes.NewReader(content)), fleet.Invalid)
		must(t, s.PackageData().Put(ctx, digest, size, bytes.NewReader(content)))
		if got := fetch(t, s, digest); !bytes.Equal(got, content) {
			t.Fatal("Get returned other bytes than were put")
		}
		// A failed Put does not damage a complete package.
		err = s.PackageData().Put(ctx, digest, size, io.MultiReader(bytes.NewReader(content[:2<<20]), iotest.ErrReader(failed)))
		if !errors.Is(err, failed) || !bytes.Equal(fetch(t, s, digest), content) {
			t.Fatalf("after a failed Put the package is damaged, or the error is %v", err)
		}
	})

	t.Run("Delete removes the bytes of an incomplete Put", func(t *testing.T) {
		stores := cfg.openTwice(t)
		s, other := stores[0], stores[1]
		if err := s.PackageData().Put(ctx, digest, int64(len(content)), bytes.NewReader(content[:2<<20])); err == nil {
			t.Fatal("Put accepted a reader that was too short")
		}
		must(t, other.PackageData().Delete(ctx, digest))
		listed(t, s, map[string]bool{})
	})

	t.Run("Get returns the error of its writer", func(t *testing.T) {
		s := cfg.open(t)
		must(t, s.PackageData().Put(ctx, digest, int64(len(content)), bytes.NewReader(content)))
		full := errors.New("full")
		if err := s.PackageData().Get(ctx, digest, brokenWriter{full}); !errors.Is(err, full) {
			t.Errorf("the error is %v, want the writer's", err)
		}
	})

	t.Run("packages are put and read concurrently", func(t *testing.T) {
		stores := cfg.openTwice(t)
		var all sync.WaitGroup
		for i := range 8 { // two puts of each package
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

// brokenWriter fails every write.
type brokenWriter struct{ err error }

func (w brokenWriter) Write([]byte) (int, error) { return 0, w.err }
