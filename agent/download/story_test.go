package download

import (
	"bytes"
	"context"
	"errors"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/muster-fleet/muster/packaging/host/disk"
)

// tcpServer is a server on a real port that can be stopped and started again.
type tcpServer struct {
	t    *testing.T
	addr string
	host *host
	srv  *http.Server
	done chan struct{}
}

func (s *tcpServer) start() {
	s.t.Helper()
	var l net.Listener
	for deadline := time.Now().Add(10 * time.Second); ; time.Sleep(10 * time.Millisecond) {
		var err error
		if l, err = net.Listen("tcp", s.addr); err == nil {
			break
		}
		if time.Now().After(deadline) {
			s.t.Fatal(err)
		}
	}
	s.addr, s.srv, s.done = l.Addr().String(), &http.Server{Handler: s.host}, make(chan struct{})
	srv, done := s.srv, s.done
	go func() { defer close(done); _ = srv.Serve(l) }()
}

func (s *tcpServer) stop() {
	_ = s.srv.Close()
	<-s.done
}

// The server stops in the middle of a body, is down for some attempts and starts again on
// the same port. Then the agent restarts, and the server once more.
func TestDownloadSurvivesRestartsOfBothSides(t *testing.T) {
	data := noise(1, 4<<20)
	dir := t.TempDir()
	s := &tcpServer{t: t, addr: "127.0.0.1:0", host: &host{data: data, tag: `"1"`}}
	s.host.plan = []behaviour{stalls(1 << 20), stalls(1 << 20)}
	s.start()
	defer func() { s.stop() }()
	f := &Fetcher{Disk: disk.OS{}, Source: Source{Other: &http.Client{Transport: &http.Transport{}}}, Rand: func() float64 { return 0 }}
	defer f.Source.Other.CloseIdleConnections()
	url := "http://" + s.addr + "/p"
	fetch := func(ctx context.Context) (failed chan struct{}, result chan error) {
		failed, result = make(chan struct{}, 100), make(chan error, 1)
		go func() {
			result <- f.Fetch(ctx, []string{url}, dir, "p", wantOf(data), func(p Progress) {
				if p.Retry != "" {
					failed <- struct{}{}
				}
			})
		}()
		return failed, result
	}

	ctx, restart := context.WithCancelCause(t.Context())
	failed, result := fetch(ctx)
	until(t, "a part is on disk", func() bool { return sizeOf(dir, "p"+partSuffix) >= 1<<20-bufferSize })
	s.stop()
	for range 3 { // the broken connection, and two refused ones
		select {
		case <-failed:
		case <-time.After(10 * time.Second):
			t.Fatal("no attempt has failed")
		}
	}
	s.start()
	until(t, "the download continues", func() bool { return sizeOf(dir, "p"+partSuffix) >= 2<<20-bufferSize })
	restarted := errors.New("restarted")
	restart(restarted)
	if err := <-result; !errors.Is(err, restarted) {
		t.Fatal(err)
	}
	s.stop()
	s.start()
	_, result = fetch(t.Context())
	if err := <-result; err != nil {
		t.Fatal(err)
	}
	if got, err := os.ReadFile(filepath.Join(dir, "p")); err != nil || !bytes.Equal(got, data) {
		t.Errorf("it has %d bytes, %v", len(got), err)
	}
	if sent := s.host.sentSince(0); sent > 4<<20+3<<20+2<<20+bufferSize {
		t.Errorf("it asked for %q", s.host.ranges())
	}
}

func sizeOf(dir, name string) int64 {
	fi, err := os.Stat(filepath.Join(dir, name))
	if err != nil {
		return -1
	}
	return fi.Size()
}

func until(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(10 * time.Second); !ok(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("still not so: %s", what)
		}
	}
}
