package esnode

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
)

// fakeMaven puts files into the requested folder.
type fakeMaven struct {
	files map[string]string
	// broken has the files of each failing attempt.
	broken []map[string]string
	mu     sync.Mutex
	calls  int
}

func (s *fakeMaven) get(_ context.Context, to string, attempt int) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.calls++
	files := s.files
	if attempt <= len(s.broken) {
		files = s.broken[attempt-1]
	}
	if files == nil {
		return errors.New("no route")
	}
	for name, text := range files {
		name = filepath.Join(to, filepath.FromSlash(name))
		if err := errors.Join(os.MkdirAll(filepath.Dir(name), 0o755), os.WriteFile(name, []byte(text), 0o644)); err != nil {
			return err
		}
	}
	return nil
}

func listOf(files map[string]string) string {
	var b strings.Builder
	b.WriteString("# A remark.\n")
	for name, text := range files {
		sum := sha256.Sum256([]byte(text))
		fmt.Fprintf(&b, "%s  %s\n", hex.EncodeToString(sum[:]), name)
	}
	return b.String()
}

var (
	asMavenGives = map[string]string{"a.jar": "A", "netty.jar": "N", "unpacked/META-INF/plugin.properties": "P"}
	asItShouldBe = listOf(map[string]string{"lib/a.jar": "A", "modules/t/netty.jar": "N", "modules/t/plugin.properties": "P"})
)

func TestFetchRetriesUntilTheJarsAreComplete(t *testing.T) {
	half := map[string]string{"a.jar": "", "netty.jar": "N", "unpacked/META-INF/plugin.properties": "P"}
	for _, test := range []struct {
		what   string
		broken []map[string]string
		calls  int
		says   string // "" is success
	}{
		{"at once", nil, 1, ""},
		{"half a file", []map[string]string{half}, 2, ""},
		{"a file too few", []map[string]string{{"a.jar": "A"}}, 2, ""},
		{"no line, twice", []map[string]string{nil, nil}, 3, ""},
		{"no line", []map[string]string{nil, nil, nil}, 3, "attempt 3 of 3): no route"},
		{"another file under the name", []map[string]string{half, half, half}, 3, "lib/a.jar has the digest"},
	} {
		t.Run(test.what, func(t *testing.T) {
			dir, s := t.TempDir(), &fakeMaven{files: asMavenGives, broken: test.broken}
			synctest.Test(t, func(t *testing.T) {
				dist, err := fetchInto(t.Context(), dir, asItShouldBe, s.get)
				if s.calls != test.calls {
					t.Errorf("fetched %d times, want %d", s.calls, test.calls)
				}
				left, _ := filepath.Glob(filepath.Join(dir, "fetch-*"))
				if len(left) > 0 {
					t.Errorf("it left %v", left)
				}
				if test.says != "" {
					if err == nil || !strings.Contains(err.Error(), test.says) {
						t.Errorf("%v, want an error that says %q", err, test.says)
					}
					return
				}
				if err != nil {
					t.Fatal(err)
				}
				if text, err := os.ReadFile(filepath.Join(dist, "modules", "t", "netty.jar")); string(text) != "N" {
					t.Errorf("%q, %v", text, err)
				}
			})
		})
	}
}

func TestFetchKeepsJarsUntilTheyAreDamaged(t *testing.T) {
	dir, s := t.TempDir(), &fakeMaven{files: asMavenGives}
	var callers sync.WaitGroup
	for range 3 {
		callers.Go(func() {
			if _, err := fetchInto(t.Context(), dir, asItShouldBe, s.get); err != nil {
				t.Error(err)
			}
		})
	}
	callers.Wait()
	if s.calls != 1 {
		t.Errorf("three callers fetched %d times, want once", s.calls)
	}
	// The folder of a killed process, and a truncated jar.
	damaged := filepath.Join(dir, Version, "lib", "a.jar")
	if err := errors.Join(os.MkdirAll(filepath.Join(dir, "fetch-1"), 0o755), os.Truncate(damaged, 0)); err != nil {
		t.Fatal(err)
	}
	if _, err := fetchInto(t.Context(), dir, asItShouldBe, s.get); err != nil {
		t.Fatal(err)
	}
	if text, _ := os.ReadFile(damaged); string(text) != "A" || s.calls != 2 {
		t.Errorf("after %d fetches the damaged file is %q", s.calls, text)
	}
	if _, err := os.Stat(filepath.Join(dir, "fetch-1")); err == nil {
		t.Error("what a killed process left is still there")
	}
}

func TestFetchWithoutMavenFailsAtOnce(t *testing.T) {
	t.Setenv("PATH", t.TempDir())
	calls := 0
	_, err := fetchInto(t.Context(), t.TempDir(), asItShouldBe, func(ctx context.Context, to string, attempt int) error {
		calls++
		return maven(ctx, to, attempt)
	})
	if err == nil || !strings.Contains(err.Error(), "mvn") || calls != 1 {
		t.Errorf("after %d attempts: %v", calls, err)
	}
}

func TestMalformedListIsRefused(t *testing.T) {
	for _, text := range []string{"", "# only words\n", "abc  lib/a.jar\n", strings.Repeat("0", 64) + "  ../a.jar\n", strings.Repeat("0", 64) + "\n"} {
		if _, err := fetchInto(t.Context(), t.TempDir(), text, nil); err == nil {
			t.Errorf("%q was taken for a list", text)
		}
	}
	if files, err := parseList(wanted); err != nil || len(files) < 40 {
		t.Errorf("the list of this package: %d files, %v", len(files), err)
	}
}
