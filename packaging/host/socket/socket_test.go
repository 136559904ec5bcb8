package socket

import (
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func folder(t *testing.T, length int) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "m")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	for len(dir) < length {
		dir = filepath.Join(dir, strings.Repeat("d", min(200, length-len(dir))))
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	return dir
}

func TestSocketIsInItsFolderHoweverLongItsPath(t *testing.T) {
	for _, length := range []int{0, maxPath - len("/c.sock"), maxPath, 1000} {
		dir := folder(t, length)
		path := filepath.Join(dir, "c.sock")
		for range 2 { // again after it is closed
			l, err := Listen(path, filepath.Join(dir, ".c"))
			if err != nil {
				t.Fatalf("%d bytes: %v", len(path), err)
			}
			accepted := make(chan net.Conn, 1)
			go func() {
				conn, err := l.Accept()
				if err != nil {
					t.Error(err)
				}
				accepted <- conn
			}()
			conn, err := Dial(t.Context(), path)
			if err != nil {
				t.Fatalf("%d bytes: %v", len(path), err)
			}
			other := <-accepted
			for _, c := range []net.Conn{conn, other} {
				if uid, err := PeerUID(c.(*net.UnixConn)); err != nil || (uid != os.Geteuid() && uid != unknown) {
					t.Errorf("the user is %d, %v", uid, err)
				}
				c.Close()
			}
			if fi, err := os.Lstat(path); err != nil || fi.Mode().Perm() != 0o600 || l.Addr().String() != path {
				t.Errorf("the socket is %v, %v", fi, err)
			}
			if entries, err := os.ReadDir(dir); err != nil || len(entries) != 1 {
				t.Errorf("in the folder are %v, %v", entries, err)
			}
			if err := l.Close(); err != nil {
				t.Error(err)
			}
			if entries, err := os.ReadDir(dir); err != nil || len(entries) != 0 {
				t.Errorf("left are %v, %v", entries, err)
			}
		}
	}
}
