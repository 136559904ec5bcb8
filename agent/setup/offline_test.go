package setup

import (
	"context"
	"crypto/rand"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/muster-fleet/muster/packaging/host/disk"
	"github.com/muster-fleet/muster/packaging/host/layout"
	"github.com/muster-fleet/muster/packaging/pkg/trust/tuf"
	"github.com/muster-fleet/muster/packaging/pkg/trust/tuf/tuftest"
)

// Without a network, a package is verified with the signed metadata that lie beside it.
func TestInstallWithoutANetworkVerifiesTheCopyBesideThePackage(t *testing.T) {
	// edit changes a file of the copy.
	edit := func(t *testing.T, dir, name string, change func([]byte) []byte) {
		t.Helper()
		matches, err := filepath.Glob(filepath.Join(dir, name))
		if err != nil || len(matches) != 1 {
			t.Fatalf("%s: %q, %v", name, matches, err)
		}
		data, err := os.ReadFile(matches[0])
		if err == nil {
			err = os.WriteFile(matches[0], change(data), 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	remove := func(t *testing.T, file string) {
		t.Helper()
		if err := os.Remove(file); err != nil {
			t.Fatal(err)
		}
	}
	const again = "make it again with `muster package keys mirror`"
	for _, c := range []struct {
		name  string
		age   time.Duration // of the copy
		spoil func(t *testing.T, p publisher, i *Installation)
		want  []string // none: it is installed
	}{
		{name: "a digest"},
		{name: "a root file", spoil: func(_ *testing.T, p publisher, i *Installation) { i.TrustRoot = p.root }},
		{name: "a later root", spoil: func(t *testing.T, p publisher, i *Installation) {
			p.Rotate(func(s *tuf.RootSpec) { s.Targets.Threshold = 3 })
			p.Copy(filepath.Dir(i.Package))
		}},
		{name: "a copy of yesterday", age: 25 * time.Hour, want: []string{"timestamp", "has expired", again}},
		{name: "targets that people must sign again", age: tuf.TargetsLife + time.Hour, spoil: func(t *testing.T, p publisher, i *Installation) {
			p.Now = time.Now()
			p.Resign()
			p.Copy(filepath.Dir(i.Package))
		}, want: []string{"targets", "has expired", "sign a new one"}},
		{name: "no copy", spoil: func(t *testing.T, _ publisher, i *Installation) {
			dir := t.TempDir()
			data, err := os.ReadFile(i.Package)
			if err == nil {
				i.Package = filepath.Join(dir, filepath.Base(i.Package))
				err = os.WriteFile(i.Package, data, 0o600)
			}
			if err != nil {
				t.Fatal(err)
			}
		}, want: []string{"1.root.json", "is not there", again}},
		{name: "no timestamp", spoil: func(t *testing.T, _ publisher, i *Installation) {
			remove(t, filepath.Join(filepath.Dir(i.Package), tuf.TimestampFile))
		}, want: []string{tuf.TimestampFile, again}},
		{name: "another publisher's copy", spoil: func(t *testing.T, _ publisher, i *Installation) {
			newPublisher(t).Copy(filepath.Dir(i.Package))
		}, want: []string{"--trust-root", "root digest"}},
		{name: "another publisher's copy, and the root file", spoil: func(t *testing.T, p publisher, i *Installation) {
			i.TrustRoot = p.root
			other := newPublisher(t)
			other.SignFile(i.Package)
			other.Copy(filepath.Dir(i.Package))
		}, want: []string{"0 of 1 signatures by the keys of root 1"}},
		{name: "files of two copies", spoil: func(t *testing.T, p publisher, i *Installation) {
			dir := filepath.Dir(i.Package)
			name := tuf.FileName(tuf.RoleTargets, 1)
			first, err := os.ReadFile(filepath.Join(dir, name))
			if err != nil {
				t.Fatal(err)
			}
			p.Release("2.0.0", "later")
			p.Copy(dir)
			if err := os.WriteFile(filepath.Join(dir, tuf.FileName(tuf.RoleTargets, 2)), first, 0o600); err != nil {
				t.Fatal(err)
			}
		}, want: []string{"2.targets.json", "is not what was signed"}},
		{name: "changed targets", spoil: func(t *testing.T, _ publisher, i *Installation) {
			edit(t, filepath.Dir(i.Package), "1.targets.json", func(d []byte) []byte { return []byte(strings.Replace(string(d), "1.0.0", "1.0.1", 1)) })
		}, want: []string{"1.targets.json", "is not what was signed"}},
		{name: "a file without end", spoil: func(t *testing.T, _ publisher, i *Installation) {
			edit(t, filepath.Dir(i.Package), tuf.TimestampFile, func([]byte) []byte { return make([]byte, 1<<20) })
		}, want: []string{tuf.TimestampFile, "is too long"}},
		{name: "a changed archive", spoil: func(t *testing.T, _ publisher, i *Installation) {
			edit(t, filepath.Dir(i.Package), "*.gz", func(d []byte) []byte { d[len(d)/2] ^= 1; return d })
		}, want: []string{"is not what was signed"}},
		{name: "an archive under another version's name", spoil: func(t *testing.T, p publisher, i *Installation) {
			to := filepath.Join(filepath.Dir(i.Package), strings.Replace(filepath.Base(i.Package), "1.0.0", "1.0.1", 1))
			if err := os.Rename(i.Package, to); err != nil {
				t.Fatal(err)
			}
			i.Package = to
		}, want: []string{"is not among the signed packages", "1.0.0"}},
		{name: "no root", spoil: func(_ *testing.T, _ publisher, i *Installation) { i.TrustRoot = "" }, want: []string{"--trust-root"}},
		{name: "no digest", spoil: func(_ *testing.T, _ publisher, i *Installation) { i.TrustRoot = "sha256:5f" }, want: []string{"--trust-root", "64 lower-case hexadecimal digits"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			p := publisherOf(t, tuftest.NewAt(t, time.Now().Add(-c.age).Truncate(time.Second), rand.Reader))
			top := filepath.Join(t.TempDir(), "h")
			i := Installation{Disk: disk.OS{}, Top: top, UnsafeTop: true, Package: p.pack(t, runtime.GOOS, ""), TrustRoot: p.TrustRoot()}
			if c.spoil != nil {
				c.spoil(t, p, &i)
			}
			_, err := i.Run(context.Background())
			for _, word := range c.want {
				if err == nil || !strings.Contains(err.Error(), word) {
					t.Errorf("error %v, want %q", err, word)
				}
			}
			_, left := os.Lstat(top)
			if len(c.want) > 0 {
				if left == nil {
					t.Errorf("%s is left", top)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			// The root stays pinned, and older metadata are refused from now on.
			if pinned, err := tuf.Pinned(disk.OS{}, layout.Path(top, layout.TrustDir)); err != nil || !pinned {
				t.Errorf("pinned: %v, %v", pinned, err)
			}
		})
	}
}
