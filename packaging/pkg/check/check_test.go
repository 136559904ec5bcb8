//go:build linux

package check

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/muster-fleet/muster/packaging/host/disk"
	"github.com/muster-fleet/muster/packaging/pkg/manifest"
)

// homeWith returns a versioned home with programs by name.
func homeWith(t *testing.T, programs map[string]string) string {
	t.Helper()
	home := t.TempDir()
	for name, script := range programs {
		must(t, os.WriteFile(filepath.Join(home, name), []byte("#!/bin/sh\n"+script+"\n"), 0o700))
	}
	return home
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func try(t *testing.T, home string, within time.Duration, c manifest.Check) error {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), within)
	defer cancel()
	return Run(ctx, home, c)
}

const plenty = 20 * time.Second

func TestExecCheck(t *testing.T) {
	h := homeWith(t, map[string]string{
		"ok":    `test "$1" = "a b" && test -e ok`, // it runs in the home, and its arguments are not split
		"bad":   `echo first; echo "no such table" >&2; exit 3`,
		"chat":  `i=0; while [ $i -lt 2000 ]; do echo "line $i of much"; i=$((i+1)); done; exit 1`,
		"split": `echo "$#"; exit 1`,
	})
	tests := []struct {
		name string
		exec []string
		want []string // in the error; nil passes
	}{
		{"in the home", []string{"ok", "a b"}, nil},
		{"an absolute one", []string{"/bin/sh", "-c", "exit 0"}, nil},
		{"that fails", []string{"bad"}, []string{"bad: exit status 3", "no such table"}},
		{"with a long output, of which the end is quoted", []string{"chat"}, []string{"line 1999 of much"}},
		{"without a shell between", []string{"split", "$HOME; exit 0 | cat"}, []string{`saying "1"`}},
		{"that is not there", []string{"gone"}, []string{"no such file"}},
		{"by a name a shell would search for", []string{"true"}, []string{"no such file"}},
	}
	for _, tc := range tests {
		t.Run(tc.name, func(t *testing.T) {
			err := try(t, h, plenty, manifest.Check{Exec: tc.exec})
			if tc.want == nil && err != nil {
				t.Fatalf("failed: %v", err)
			}
			for _, want := range tc.want {
				if err == nil || !strings.Contains(err.Error(), want) {
					t.Errorf("error is %v, want it to say %q", err, want)
				}
			}
			if err != nil && len(err.Error()) > maxCheckOutput+100 {
				t.Errorf("the error has %d bytes", len(err.Error()))
			}
		})
	}
}

// A program that hangs is killed, and so are its children.
func TestHangingExecCheckIsKilledWithItsChildren(t *testing.T) {
	h := homeWith(t, map[string]string{"hang": `sleep 300 & echo $! > child; echo waiting for a lock; wait`})
	begin := time.Now()
	err := try(t, h, 500*time.Millisecond, manifest.Check{Exec: []string{"hang"}})
	if err == nil || !strings.Contains(err.Error(), "no end in time, killed") || !strings.Contains(err.Error(), "waiting for a lock") {
		t.Errorf("error is %v", err)
	}
	if took := time.Since(begin); took > 10*time.Second {
		t.Errorf("took %v, want the timeout and an instant", took)
	}
	wantGone(t, filepath.Join(h, "child"))
}

// A program whose child holds its output open passes, and the child is killed.
func TestExecCheckThatLeavesAChildPasses(t *testing.T) {
	h := homeWith(t, map[string]string{"leave": `sleep 300 & echo $! > child; exit 0`})
	if err := try(t, h, plenty, manifest.Check{Exec: []string{"leave"}}); err != nil {
		t.Errorf("failed: %v", err)
	}
	wantGone(t, filepath.Join(h, "child"))
}

func wantGone(t *testing.T, pidFile string) {
	t.Helper()
	b, err := os.ReadFile(pidFile)
	must(t, err)
	pid, err := strconv.Atoi(strings.TrimSpace(string(b)))
	must(t, err)
	ended := func() bool {
		stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
		return errors.Is(err, os.ErrNotExist) || strings.Contains(string(stat), ") Z ")
	}
	deadline := time.Now().Add(5 * time.Second)
	for !ended() && time.Now().Before(deadline) {
		time.Sleep(10 * time.Millisecond)
	}
	if !ended() {
		_ = syscall.Kill(pid, syscall.SIGKILL)
		t.Errorf("its child %d is still there", pid)
	}
}

func TestHTTPCheck(t *testing.T) {
	mux := http.NewServeMux()
	status := func(path string, code int, body string) {
		mux.HandleFunc(path, func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(code); fmt.Fprint(w, body) })
	}
	status("/ok", 204, "")
	status("/sick", 503, "disk is full")
	status("/large", 500, strings.Repeat("x", 1<<20))
	mux.HandleFunc("/moved", func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, "/ok", http.StatusFound) })
	mux.HandleFunc("/round", func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, "/round", http.StatusFound) })
	mux.HandleFunc("/away", func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, "http://example.com/ok", http.StatusFound)
	})
	mux.HandleFunc("/slow", func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() })
	plain, secure := httptest.NewServer(mux), httptest.NewTLSServer(mux)
	defer plain.Close()
	defer secure.Close()
	tests := []struct {
		name, url string
		within    time.Duration
		want      string // in the error; empty passes
	}{
		{"2xx", plain.URL + "/ok", plenty, ""},
		{"with an unknown certificate", secure.URL + "/ok", plenty, ""},
		{"503", plain.URL + "/sick", plenty, `/sick answered 503 Service Unavailable, saying "disk is full"`},
		{"a large answer", plain.URL + "/large", plenty, "xxx"},
		{"moved within the host", plain.URL + "/moved", plenty, ""},
		{"moved to another", plain.URL + "/away", plenty, "redirects to another host, example.com"},
		{"moved in a circle", plain.URL + "/round", plenty, "more than 3 times"},
		{"no answer", plain.URL + "/slow", 200 * time.Millisecond, "deadline exceeded"},
		{"no server", "http://127.0.0.1:1/", plenty, "connection refused"},
	}
	for _, tc := range tests {
		t.Run(tc.name, func(t *testing.T) {
			err := try(t, "/nonexistent", tc.within, manifest.Check{HTTP: tc.url})
			if (tc.want == "") != (err == nil) || (err != nil && !strings.Contains(err.Error(), tc.want)) {
				t.Errorf("error is %v, want %q", err, tc.want)
			}
			if err != nil && len(err.Error()) > maxCheckOutput+200 {
				t.Errorf("the error has %d bytes", len(err.Error()))
			}
		})
	}
}

func TestTCPCheck(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	c := manifest.Check{TCP: l.Addr().String()}
	if err := try(t, "", plenty, c); err != nil {
		t.Errorf("open: %v", err)
	}
	must(t, l.Close())
	if err := try(t, "", plenty, c); !errors.Is(err, syscall.ECONNREFUSED) {
		t.Errorf("closed: %v", err)
	}
}

// A check of another host must not accept whoever answers there.
func TestHTTPCheckVerifiesCertificatesOfOtherHosts(t *testing.T) {
	server := httptest.NewTLSServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	defer server.Close()
	addr := server.Listener.Addr().String()
	conn, err := dialTLS(t.Context(), new(net.Dialer), "tcp", addr)
	if err != nil {
		t.Fatalf("on this host: %v", err)
	}
	conn.Close()
	for text, want := range map[string]bool{"127.0.0.1": true, "127.8.9.1": true, "::1": true, "10.0.0.1": false, "192.0.2.1": false, "fe80::1": false, "0.0.0.0": false} {
		if got := isLoopback(&net.TCPAddr{IP: net.ParseIP(text), Port: 443}); got != want {
			t.Errorf("%s: %v", text, got)
		}
	}
	if isLoopback(&net.UnixAddr{Name: "127.0.0.1"}) {
		t.Error("a name counts as loopback")
	}

	other := otherAddress(t)
	if other == "" {
		t.Log("this machine has loopback addresses only")
		return
	}
	listener, err := new(net.ListenConfig).Listen(t.Context(), "tcp", net.JoinHostPort(other, "0"))
	if err != nil {
		t.Fatal(err)
	}
	outside := httptest.NewUnstartedServer(server.Config.Handler)
	outside.Listener.Close()
	outside.Listener = listener
	outside.StartTLS()
	defer outside.Close()
	if err := try(t, "/nonexistent", 5*time.Second, manifest.Check{HTTP: outside.URL}); err == nil || !strings.Contains(err.Error(), "certificate") {
		t.Errorf("on %s: error is %v, want that the certificate is not trusted", other, err)
	}
}

// otherAddress returns an address of this machine that is not loopback, if it has one.
func otherAddress(t *testing.T) string {
	t.Helper()
	addrs, err := net.InterfaceAddrs()
	if err != nil {
		t.Fatal(err)
	}
	for _, a := range addrs {
		if n, ok := a.(*net.IPNet); ok && n.IP.IsGlobalUnicast() {
			return n.IP.String()
		}
	}
	return ""
}

func TestProgramRunsAsAnAccountWithItsVariables(t *testing.T) {
	h := homeWith(t, map[string]string{"hook": `echo "$(id -u):$(id -g):$(id -G) $MUSTER_TO $PATH"; exit 75`})
	as, want := disk.Own, fmt.Sprintf("%d:%d:", os.Geteuid(), os.Getegid())
	if os.Geteuid() == 0 {
		as, want = disk.Owner{UID: 12, GID: 34}, "12:34:34 "
		must(t, os.Chmod(h, 0o755))
		must(t, os.Chmod(filepath.Join(h, "hook"), 0o755))
		must(t, os.Chmod(filepath.Dir(h), 0o755))
	}
	status, err := Execute(t.Context(), Program{Home: h, Exec: []string{"hook"}, Env: []string{"MUSTER_TO=1.2.0"}, As: as})
	if status != 75 || err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), " 1.2.0 "+os.Getenv("PATH")) {
		t.Errorf("status %d, %v; want 75 and %s", status, err, want)
	}
}
