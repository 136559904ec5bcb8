package socket

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/muster-fleet/muster/testing/kit/require"
)

// The mode of the file was changed, or a folder was opened to others.
func TestConnectionsOfOtherUsersAreClosed(t *testing.T) {
	require.Root(t)
	dir := folder(t, 0)
	path := filepath.Join(dir, "c.sock")
	l, err := Listen(path, filepath.Join(dir, ".c"))
	if err != nil {
		t.Fatal(err)
	}
	served := make(chan struct{})
	go func() {
		defer close(served)
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			_, _ = io.WriteString(conn, "welcome")
			conn.Close()
		}
	}()
	defer func() { l.Close(); <-served }()
	if err := errors.Join(os.Chmod(dir, 0o755), os.Chmod(path, 0o666)); err != nil {
		t.Fatal(err)
	}
	for uid, want := range map[int]string{65534: "", 0: "welcome"} {
		if got := readAs(t, uid, path); got != want {
			t.Errorf("user %d reads %q, want %q", uid, got, want)
		}
	}
}

// readAs connects as another user, which Linux keeps for each thread, and returns what the
// other end says.
func readAs(t *testing.T, uid int, path string) string {
	t.Helper()
	type result struct {
		text string
		err  error
	}
	done := make(chan result)
	go func() {
		runtime.LockOSThread() // and never unlocked, so that the thread ends with its user
		text, err := func() (string, error) {
			if _, _, errno := unix.RawSyscall(unix.SYS_SETRESUID, uintptr(uid), uintptr(uid), uintptr(uid)); errno != 0 {
				return "", errno
			}
			fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
			if err != nil {
				return "", err
			}
			defer unix.Close(fd)
			if err := unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &unix.Timeval{Sec: 10}); err != nil {
				return "", err
			}
			if err := unix.Connect(fd, &unix.SockaddrUnix{Name: path}); err != nil {
				return "", err
			}
			buf := make([]byte, 100)
			n, err := unix.Read(fd, buf)
			return string(buf[:max(n, 0)]), err
		}()
		done <- result{text, err}
	}()
	select {
	case r := <-done:
		if r.err != nil {
			t.Fatalf("as user %d: %v", uid, r.err)
		}
		return r.text
	case <-time.After(20 * time.Second):
		t.Fatalf("as user %d: no end", uid)
		return ""
	}
}
