package attack

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/muster-fleet/muster/testing/kit/require"
	"github.com/muster-fleet/muster/watcher/probe"
)

// A user of the host orders an upgrade over the agent's control socket, although its modes
// have been opened to everybody.
func TestLocalUserCannotCommandTheAgent(t *testing.T) {
	require.Root(t)
	v := newVictim(t, "1.0.0")
	v.start()
	path := probe.SocketPath(v.top)
	if err := errors.Join(os.Chmod(v.top, 0o755), os.Chmod(path, 0o666)); err != nil {
		t.Fatal(err)
	}
	const body = `{"version":"1.1.0"}`
	order := fmt.Sprintf("POST /v1/upgrade HTTP/1.1\r\nHost: agent\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s", len(body), body)
	if got, err := sayAs(65534, path, order); err == nil && got != "" {
		t.Errorf("another user is answered %q", got)
	}
	got, err := sayAs(0, path, order)
	if err != nil || !strings.HasPrefix(got, "HTTP/1.1 ") || strings.HasPrefix(got, "HTTP/1.1 4") {
		t.Errorf("root is answered %q, %v: the order above proves nothing", got, err)
	}
}

// sayAs connects as a user, which Linux keeps for each thread, and returns the answer.
func sayAs(uid int, path, text string) (answer string, err error) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		runtime.LockOSThread() // and never unlocked, so that the thread ends with its user
		answer, err = func() (string, error) {
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
			if err := unix.Sendto(fd, []byte(text), unix.MSG_NOSIGNAL, nil); err != nil {
				return "", err
			}
			buf := make([]byte, 1000)
			n, err := unix.Read(fd, buf)
			return string(buf[:max(n, 0)]), err
		}()
	}()
	<-done
	return answer, err
}
