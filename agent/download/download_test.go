package download

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/muster-fleet/muster/packaging/disk"
)

// origin serves one file, and breaks as the test wants.
type origin struct {
	*httptest.Server
	mu       sync.Mutex
	data     []byte
	etag     string
	breakAt  []int // per request: bytes after which the connection breaks; 0 never
	requests []http.Header
}

func newOrigin(t *testing.T, size int) *origin {
	t.Helper()
	o := &origin{etag: `"v1"`, data: make([]byte, size)}
	random := rand.NewChaCha8([32]byte{1})
	_, _ = random.Read(o.data)
	o.Server = httptest.NewServer(http.HandlerFunc(o.serve))
	t.Cleanup(o.Close)
	return o
}

func (o *origin) serve(w http.ResponseWriter, r *http.Request) {
	o.mu.Lock()
	n := len(o.requests)
	o.requests = append(o.requests, r.Header.Clone())
	data, etag, breakAt := o.data, o.etag, 0
	if n < len(o.breakAt) {
		breakAt = o.breakAt[n]
	}
	o.mu.Unlock()
	if breakAt > 0 {
		w = &breaking{ResponseWriter: w, left: breakAt}
	}
	w.Header().Set("ETag", etag)
	http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(data))
}

func (o *origin) count() int {
	o.mu.Lock()
	defer o.mu.Unlock()
	return len(o.requests)
}

// breaking drops the connection after some bytes.
type breaking struct {
	http.ResponseWriter
	left int
}

func (b *breaking) Write(p []byte) (int, error) {
	if len(p) > b.left {
		_, _ = b.ResponseWriter.Write(p[:b.left])
		b.ResponseWriter.(http.Flusher).Flush()
		panic(http.ErrAbortHandler)
	}
	b.left -= len(p)
	return b.ResponseWriter.Write(p)
}

func fetcher() *Fetcher {
	return &Fetcher{Disk: disk.OS{}, Source: Source{Other: http.DefaultClient, UserAgent: "test"}, Rand: func() float64 { return 0 }}
}

func TestADownloadGoesOnWhereItBroke(t *testing.T) {
	o := newOrigin(t, 1<<20)
	o.breakAt = []int{300_000, 300_000, 300_000}
	dir := t.TempDir()
	var last Progress
	if err := fetcher().Fetch(context.Background(), o.URL, dir, "p", func(p Progress) { last = p }); err != nil {
		t.Fatal(err)
	}
	same(t, dir, o.data)
	if o.count() != 4 {
		t.Errorf("%d requests", o.count())
	}
	for i, h := range o.requests[1:] {
		if h.Get("If-Range") != o.etag || !strings.HasPrefix(h.Get("Range"), "bytes=") || h.Get("Range") == "bytes=0-" {
			t.Errorf("request %d has Range %q, If-Range %q", i+1, h.Get("Range"), h.Get("If-Range"))
		}
	}
	if last.Percent != 100 {
		t.Errorf("last progress %+v", last)
	}
}

func TestADownloadGoesOnAfterARestart(t *testing.T) {
	o := newOrigin(t, 1<<20)
	dir := t.TempDir()
	o.breakAt = []int{700_000}
	ctx, cancel := context.WithCancelCause(context.Background())
	stopping := errors.New("stopping")
	err := fetcher().Fetch(ctx, o.URL, dir, "p", func(p Progress) {
		if p.Retry != "" {
			cancel(stopping)
		}
	})
	if !errors.Is(err, stopping) || !Kept(err) {
		t.Fatalf("error %v, kept %t", err, Kept(err))
	}
	if err := fetcher().Fetch(context.Background(), o.URL, dir, "p", nil); err != nil {
		t.Fatal(err)
	}
	same(t, dir, o.data)
	if r := o.requests[1].Get("Range"); r == "" {
		t.Error("the second process began anew")
	}
	if err := fetcher().Fetch(context.Background(), o.URL, dir, "p", nil); err != nil || o.count() != 2 {
		t.Errorf("a complete download was asked for again: %v, %d requests", err, o.count())
	}
}

func TestAFilePublishedAnewBeginsAnew(t *testing.T) {
	o := newOrigin(t, 1<<20)
	dir := t.TempDir()
	o.breakAt = []int{500_000}
	err := fetcher().Fetch(context.Background(), o.URL, dir, "p", func(p Progress) {
		if p.Retry == "" {
			return
		}
		o.mu.Lock()
		o.data = bytes.Repeat([]byte("new"), 1000)
		o.etag = `"v2"`
		o.mu.Unlock()
	})
	if err != nil {
		t.Fatal(err)
	}
	same(t, dir, bytes.Repeat([]byte("new"), 1000))
}

func TestWhatEndsADownload(t *testing.T) {
	for _, c := range []struct {
		name string
		url  func(*origin) string
		disk disk.Disk
		is   error
		want string
	}{
		{name: "not there", url: func(*origin) string { return "/404" }, is: ErrNotFound, want: "publish it with `muster package push`"},
		{name: "no rights", url: func(*origin) string { return "/403" }, want: "403"},
		{name: "another place", url: func(*origin) string { return "/302" }, want: "source_uri"},
		{name: "no space", url: func(*origin) string { return "/" }, disk: small{}, want: "not enough disk space"},
		{name: "cannot write", url: func(*origin) string { return "/" }, disk: broken{}, want: "input/output error"},
	} {
		t.Run(c.name, func(t *testing.T) {
			o := newOrigin(t, 1000)
			o.Config.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				var status int
				if _, err := fmt.Sscanf(r.URL.Path, "/%d", &status); err == nil {
					w.Header().Set("Location", "http://elsewhere.invalid/")
					w.WriteHeader(status)
					return
				}
				o.serve(w, r)
			})
			f := fetcher()
			f.Source.Other = &http.Client{CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
			if c.disk != nil {
				f.Disk = c.disk
			}
			err := f.Fetch(context.Background(), o.URL+c.url(o), t.TempDir(), "p", nil)
			if err == nil || !strings.Contains(err.Error(), c.want) || (c.is != nil && !errors.Is(err, c.is)) || Kept(err) {
				t.Errorf("error %v (kept %t), want %q", err, Kept(err), c.want)
			}
		})
	}
}

type small struct{ disk.OS }

func (small) Free(string, string) (int64, error) { return 1000, nil }

type broken struct{ disk.OS }

func (broken) OpenFile(op, _ string, _ int, _ os.FileMode) (disk.File, error) {
	return nil, &disk.Error{Op: op, Err: errors.New("input/output error")}
}

func TestServerErrorsAreWaitedOut(t *testing.T) {
	o := newOrigin(t, 1000)
	busy := 3
	o.Config.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if busy--; busy >= 0 {
			w.WriteHeader(http.StatusServiceUnavailable)
			return
		}
		o.serve(w, r)
	})
	dir := t.TempDir()
	if err := fetcher().Fetch(context.Background(), o.URL, dir, "p", nil); err != nil {
		t.Fatal(err)
	}
	same(t, dir, o.data)
}

func TestCredentialsGoOnlyToTheOwnServer(t *testing.T) {
	own, other := newOrigin(t, 10), newOrigin(t, 10)
	f := fetcher()
	f.Source.Own, f.Source.Origin = http.DefaultClient, own.URL+"/"
	f.Source.Authorize = func(r *http.Request) { r.Header.Set("Authorization", "ApiKey secret") }
	for _, o := range []*origin{own, other} {
		if _, err := f.Small(context.Background(), o.URL+"/artifacts/x"); err != nil {
			t.Fatal(err)
		}
	}
	if own.requests[0].Get("Authorization") == "" || other.requests[0].Get("Authorization") != "" {
		t.Errorf("own got %q, other got %q", own.requests[0].Get("Authorization"), other.requests[0].Get("Authorization"))
	}
}

func TestRateLimit(t *testing.T) {
	o := newOrigin(t, 200_000)
	f := fetcher()
	f.RateLimit = 400_000
	begun := time.Now()
	if err := f.Fetch(context.Background(), o.URL, t.TempDir(), "p", nil); err != nil {
		t.Fatal(err)
	}
	if took := time.Since(begun); took < 450*time.Millisecond {
		t.Errorf("200 kB at 400 kB/s took %s", took)
	}
}

func same(t *testing.T, dir string, want []byte) {
	t.Helper()
	f, err := os.Open(filepath.Join(dir, "p"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	got, err := io.ReadAll(f)
	if err != nil || !bytes.Equal(got, want) {
		t.Errorf("the file has %d bytes, want %d equal ones (%v)", len(got), len(want), err)
	}
	entries, err := os.ReadDir(dir)
	if err != nil || len(entries) != 1 {
		t.Errorf("left in the folder: %v, %v", entries, err)
	}
}
