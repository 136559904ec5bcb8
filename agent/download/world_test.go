package download

import (
	"bytes"
	"context"
	"crypto/sha512"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/muster-fleet/muster/agent/backoff"
	"github.com/muster-fleet/muster/packaging/host/disk"
)

// world is a network of HTTP servers in virtual time, and a host that downloads
// from them to its disk.
type world struct {
	*testing.T
	dir    string
	client *http.Client

	mu    sync.Mutex
	hosts map[string]*host
}

func inWorld(t *testing.T, test func(w *world)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		w := &world{T: t, dir: t.TempDir(), hosts: map[string]*host{}}
		w.client = &http.Client{Transport: &http.Transport{DialContext: w.dial}}
		t.Cleanup(w.client.CloseIdleConnections)
		test(w)
	})
}

func (w *world) dial(ctx context.Context, _, addr string) (net.Conn, error) {
	name, _, _ := strings.Cut(addr, ":")
	w.mu.Lock()
	h := w.hosts[name]
	w.mu.Unlock()
	if h == nil {
		return nil, &net.OpError{Op: "dial", Net: "tcp", Err: syscall.ECONNREFUSED}
	}
	here, there := net.Pipe()
	select {
	case h.conns <- there:
		return here, nil
	case <-h.done:
		return nil, &net.OpError{Op: "dial", Net: "tcp", Err: syscall.ECONNREFUSED}
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

func (w *world) fetcher() *Fetcher {
	return &Fetcher{Disk: disk.OS{}, Source: Source{Other: w.client, UserAgent: "test"}}
}

// fetch downloads data to the file "p" and fails the test if that fails.
func (w *world) fetch(urls []string, data []byte, report func(Progress)) {
	w.Helper()
	if err := w.fetcher().Fetch(w.Context(), urls, w.dir, "p", wantOf(data), report); err != nil {
		w.Fatal(err)
	}
}

// stopAfter downloads data until the host has sent its nth answer, and then cancels the fetch as
// a stopping agent does.
func (w *world) stopAfter(n int, h *host, urls []string, data []byte) {
	w.Helper()
	ctx, cancel := context.WithCancelCause(w.Context())
	stopping := errors.New("stopping")
	err := w.fetcher().Fetch(ctx, urls, w.dir, "p", wantOf(data), func(p Progress) {
		if p.Retry != "" && len(h.requests()) >= n {
			cancel(stopping)
		}
	})
	if !errors.Is(err, stopping) || !KeepsPart(err) || Transient(err) {
		w.Fatalf("error %v, kept %t, transient %t", err, KeepsPart(err), Transient(err))
	}
}

// holds fails the test unless the file has these bytes and the folder holds nothing else.
func (w *world) holds(want []byte) {
	w.Helper()
	got, err := os.ReadFile(filepath.Join(w.dir, "p"))
	if err != nil || !bytes.Equal(got, want) {
		w.Errorf("the file has %d bytes, want %d equal ones (%v)", len(got), len(want), err)
	}
	if left := names(w.T, w.dir); !slices.Equal(left, []string{"p"}) {
		w.Errorf("the folder holds %q, want only p", left)
	}
}

func names(t *testing.T, dir string) []string {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		t.Fatal(err)
	}
	var out []string
	for _, e := range entries {
		out = append(out, e.Name())
	}
	return out
}

// host serves one file under every path, and misbehaves according to its plan.
type host struct {
	url   string
	conns chan net.Conn
	done  chan struct{}

	mu    sync.Mutex
	data  []byte
	tag   string
	asked []*http.Request
	// plan holds the behaviour for the nth request, from 0. Requests without one get
	// the file.
	plan []behaviour
	// always, if set, replaces the file for requests without a plan.
	always behaviour
}

type behaviour func(h *host, w http.ResponseWriter, r *http.Request)

func (w *world) host(name string, data []byte, plan ...behaviour) *host {
	h := &host{
		url: "http://" + name + "/p", data: data, tag: `"1"`, plan: plan,
		conns: make(chan net.Conn), done: make(chan struct{}),
	}
	srv := &http.Server{Handler: h}
	w.mu.Lock()
	w.hosts[name] = h
	w.mu.Unlock()
	var served sync.WaitGroup
	served.Go(func() { _ = srv.Serve(h) })
	w.Cleanup(func() {
		if err := srv.Close(); err != nil {
			w.Error(err)
		}
		served.Wait()
	})
	return h
}

func (h *host) Accept() (net.Conn, error) {
	select {
	case c := <-h.conns:
		return c, nil
	case <-h.done:
		return nil, net.ErrClosed
	}
}
func (h *host) Close() error   { close(h.done); return nil }
func (h *host) Addr() net.Addr { return &net.UnixAddr{Name: h.url} }

func (h *host) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	h.mu.Lock()
	n := len(h.asked)
	h.asked = append(h.asked, r.Clone(context.Background()))
	do := h.always
	if n < len(h.plan) && h.plan[n] != nil {
		do = h.plan[n]
	}
	h.mu.Unlock()
	if do == nil {
		do = serve
	}
	do(h, w, r)
}

func (h *host) requests() []*http.Request {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.Clone(h.asked)
}

// ranges returns the Range headers of all requests.
func (h *host) ranges() []string {
	var out []string
	for _, r := range h.requests() {
		out = append(out, r.Header.Get("Range"))
	}
	return out
}

// publish replaces the file.
func (h *host) publish(data []byte, tag string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.data, h.tag = data, tag
}

func serve(h *host, w http.ResponseWriter, r *http.Request) {
	h.mu.Lock()
	data, tag := h.data, h.tag
	h.mu.Unlock()
	if tag != "" {
		w.Header().Set("ETag", tag)
	}
	http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(data))
}

// breaks drops the connection after n bytes of the body.
func breaks(n int) behaviour {
	return func(h *host, w http.ResponseWriter, r *http.Request) {
		serve(h, &counted{ResponseWriter: w, left: n, end: func() { panic(http.ErrAbortHandler) }}, r)
	}
}

// stalls sends n bytes of the body and then nothing more.
func stalls(n int) behaviour {
	return func(h *host, w http.ResponseWriter, r *http.Request) {
		serve(h, &counted{ResponseWriter: w, left: n, end: func() { <-r.Context().Done(); panic(http.ErrAbortHandler) }}, r)
	}
}

// trickles sends in steps of a tenth of a second.
func trickles(bytesPerSecond int, then behaviour) behaviour {
	return inSteps(bytesPerSecond/10, time.Second/10, then)
}

// drips sends a byte at a time.
func drips(every time.Duration) behaviour { return inSteps(1, every, serve) }

func inSteps(size int, every time.Duration, then behaviour) behaviour {
	return func(h *host, w http.ResponseWriter, r *http.Request) {
		then(h, &slow{w, r.Context(), size, every}, r)
	}
}

func answers(status int, header ...string) behaviour {
	return func(_ *host, w http.ResponseWriter, _ *http.Request) {
		for i := 0; i < len(header); i += 2 {
			w.Header().Set(header[i], header[i+1])
		}
		w.WriteHeader(status)
	}
}

// without removes headers from the request, as a server does that does not support them.
func without(then behaviour, header ...string) behaviour {
	return func(h *host, w http.ResponseWriter, r *http.Request) {
		for _, name := range header {
			r.Header.Del(name)
		}
		then(h, w, r)
	}
}

type counted struct {
	http.ResponseWriter
	left int
	end  func()
}

func (c *counted) Write(p []byte) (int, error) {
	if len(p) > c.left {
		_, _ = c.ResponseWriter.Write(p[:c.left])
		c.ResponseWriter.(http.Flusher).Flush()
		c.end()
	}
	c.left -= len(p)
	return c.ResponseWriter.Write(p)
}

func (c *counted) Flush() { c.ResponseWriter.(http.Flusher).Flush() }

type slow struct {
	http.ResponseWriter
	ctx   context.Context
	size  int
	every time.Duration
}

func (s *slow) Write(p []byte) (int, error) {
	sent := 0
	for part := range slices.Chunk(p, s.size) {
		if err := backoff.Sleep(s.ctx, time.Duration(len(part))*s.every/time.Duration(s.size)); err != nil {
			return sent, err
		}
		n, err := s.ResponseWriter.Write(part)
		if sent += n; err != nil {
			return sent, err
		}
		s.Flush()
	}
	return sent, nil
}

func (s *slow) Flush() { s.ResponseWriter.(http.Flusher).Flush() }

// noise returns incompressible bytes, which differ for each seed.
func noise(seed byte, size int) []byte {
	data := make([]byte, size)
	_, _ = rand.NewChaCha8([32]byte{seed}).Read(data)
	return data
}

func wantOf(data []byte) Want {
	sum := sha512.Sum512(data)
	return Want{Size: int64(len(data)), SHA512: hex.EncodeToString(sum[:])}
}

func from(n int) string { return fmt.Sprintf("bytes=%d-", n) }
