package download

import (
	"bytes"
	"context"
	"errors"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/muster-fleet/muster/packaging/host/disk"
)

// drop is a folder of the host with the file in it, and the file's URL.
func (w *world) drop(data []byte) (path, fileURL string) {
	w.Helper()
	dir := filepath.Join(w.TempDir(), "a drop, 100%")
	path = filepath.Join(dir, "p")
	if err := os.Mkdir(dir, 0o700); err != nil {
		w.Fatal(err)
	}
	if err := os.WriteFile(path, data, 0o600); err != nil {
		w.Fatal(err)
	}
	return path, (&url.URL{Scheme: "file", Path: filepath.ToSlash(path)}).String()
}

func TestFolderIsASource(t *testing.T) {
	data := noise(1, 1<<20)
	inWorld(t, func(w *world) {
		path, url := w.drop(data)
		if err := w.fetcher().Find(w.Context(), []string{url}); err != nil {
			w.Error(err)
		}
		var reports []Progress
		w.fetch([]string{url}, data, func(p Progress) { reports = append(reports, p) })
		w.holds(data)
		if len(reports) != 2 || reports[1].Percent != 100 {
			w.Errorf("it reported %+v", reports)
		}
		if err := os.WriteFile(path, []byte("signature"), 0o600); err != nil {
			w.Fatal(err)
		}
		if got, err := w.fetcher().Small(w.Context(), []string{url}, maxSmall); err != nil || string(got) != "signature" {
			w.Errorf("small: %q, %v", got, err)
		}
	})
}

func TestFolderAndServerCompleteEachOther(t *testing.T) {
	data := noise(1, 1<<20)
	inWorld(t, func(w *world) {
		h := w.host("one", data)
		w.fetch([]string{"file:///nowhere/p", h.url}, data, nil)
		w.holds(data)
	})
	inWorld(t, func(w *world) {
		h := w.host("one", data, breaks(300_000))
		h.always = answers(503)
		_, url := w.drop(data)
		w.fetch([]string{h.url, url}, data, nil)
		w.holds(data)
	})
}

func TestFileInAFolderMustHaveTheWantedSizeAndDigest(t *testing.T) {
	data := noise(1, 1<<20)
	for name, wrong := range map[string][]byte{"bytes": noise(2, 1<<20), "size": data[1:]} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, func(w *world) {
				_, url := w.drop(wrong)
				err := w.fetcher().Fetch(w.Context(), []string{url}, w.dir, "p", wantOf(data), nil)
				if err == nil || Transient(err) || KeepsPart(err) || len(names(w.T, w.dir)) > 0 {
					t.Errorf("%v, left %q", err, names(w.T, w.dir))
				}
			})
		})
	}
}

func TestOnlyRegularFilesAreOpened(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Log("links need rights there; what is refused is decided alike")
		return
	}
	inWorld(t, func(w *world) {
		path, good := w.drop([]byte("data"))
		dir := filepath.Dir(path)
		for link, target := range map[string]string{
			"latest": "p", "again": filepath.Join(dir, "latest"), "null": "/dev/null", "loop": "loop", "nowhere": "gone",
		} {
			if err := os.Symlink(target, filepath.Join(dir, link)); err != nil {
				t.Fatal(err)
			}
		}
		other := func(name string) string { return strings.TrimSuffix(good, "p") + name }
		for url, says := range map[string]string{
			good: "", other("latest"): "", other("again"): "",
			other("null"): "no regular file", other(""): "no regular file", other("loop"): "more than 4 links",
			other("nowhere"): "not found: put the package there", other("x"): "not found: put the package there",
			"file://host/p": `names the host "host"`, "file:p": "names no file", "file://localhost" + strings.TrimPrefix(good, "file://"): "",
		} {
			got, err := w.fetcher().Small(w.Context(), []string{url}, maxSmall)
			if says == "" && (err != nil || string(got) != "data") {
				t.Errorf("%s: %q, %v", url, got, err)
			}
			if says != "" && (err == nil || !strings.Contains(err.Error(), says) || Transient(err)) {
				t.Errorf("%s: %v, want %q", url, err, says)
			}
		}
	})
}

// slowFolder is a mount that gives 64 kB a second, or fails after some bytes.
type slowFolder struct {
	disk.OS
	failAfter int
}

func (s *slowFolder) OpenFile(op, path string, flag int, perm fs.FileMode) (disk.File, error) {
	f, err := s.OS.OpenFile(op, path, flag, perm)
	if op == opSource {
		return &slowFile{f, s}, err
	}
	return f, err
}

type slowFile struct {
	disk.File
	s *slowFolder
}

func (f *slowFile) Read(p []byte) (int, error) {
	time.Sleep(time.Second)
	if f.s.failAfter--; f.s.failAfter == 0 {
		return 0, errors.New("stale file handle")
	}
	return f.File.Read(p)
}

func TestSlowFolderIsReportedAndCancelled(t *testing.T) {
	data := noise(1, 1<<20)
	inWorld(t, func(w *world) {
		_, url := w.drop(data)
		f := w.fetcher()
		f.Disk = &slowFolder{}
		ctx, cancel := context.WithCancelCause(w.Context())
		enough := errors.New("enough")
		reports := 0
		begun := time.Now()
		err := f.Fetch(ctx, []string{url}, w.dir, "p", wantOf(data), func(p Progress) {
			if reports++; reports == 5 {
				cancel(enough)
			}
		})
		if took := time.Since(begun); !errors.Is(err, enough) || !KeepsPart(err) || took > 6*time.Second || took < 4*time.Second {
			w.Fatalf("%v after %s", err, took)
		}
		// What is there already is not read again.
		begun = time.Now()
		if err := f.Fetch(w.Context(), []string{url}, w.dir, "p", wantOf(data), nil); err != nil {
			w.Fatal(err)
		}
		w.holds(data)
		if took := time.Since(begun); took > 14*time.Second {
			w.Errorf("the rest took %s", took)
		}
	})
}

func TestFailingFolderIsTriedAgain(t *testing.T) {
	data := noise(1, 1<<20)
	inWorld(t, func(w *world) {
		_, url := w.drop(data)
		f := w.fetcher()
		f.Disk = &slowFolder{failAfter: 8}
		var why string
		if err := f.Fetch(w.Context(), []string{url}, w.dir, "p", wantOf(data), func(p Progress) { why += p.Retry }); err != nil {
			w.Fatal(err)
		}
		w.holds(data)
		if !strings.Contains(why, "stale file handle") {
			w.Errorf("it said %q", why)
		}
	})
}

func TestFileReplacedInTheFolderStartsOver(t *testing.T) {
	old, data := noise(1, 1<<20), noise(2, 1<<20)
	inWorld(t, func(w *world) {
		path, url := w.drop(old)
		f := w.fetcher()
		f.Disk = &slowFolder{failAfter: 8}
		if err := f.Fetch(w.Context(), []string{url}, w.dir, "p", wantOf(data), func(p Progress) {
			if p.Retry == "" {
				return
			}
			later := time.Now().Add(time.Hour)
			if err := errors.Join(os.WriteFile(path, data, 0o600), os.Chtimes(path, later, later)); err != nil {
				w.Error(err)
			}
		}); err != nil {
			w.Fatal(err)
		}
		if got, err := os.ReadFile(filepath.Join(w.dir, "p")); err != nil || !bytes.Equal(got, data) {
			w.Errorf("it is not the new file: %v", err)
		}
	})
}
