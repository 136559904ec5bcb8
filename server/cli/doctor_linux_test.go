package cli_test

import (
	"bytes"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/muster-fleet/muster/server/app/apptest"
	"github.com/muster-fleet/muster/server/cli"
	"github.com/muster-fleet/muster/testing/kit/require"
)

// nobody is the user without rights of Linux.
const nobody = 65534

// A server that cannot start names why, and what mends it.
func TestServerNamesWhatMendsItsStart(t *testing.T) {
	o := newOperator(t)
	loopback := []string{"--agents-listen", "127.0.0.1:0", "--admin-listen", "127.0.0.1:0"}

	readOnly := smallDisk(t, "10m")
	remount := func(flags uintptr) {
		t.Helper()
		if err := syscall.Mount("", readOnly, "", syscall.MS_REMOUNT|flags, ""); err != nil {
			t.Fatal(err)
		}
	}
	data := filepath.Join(readOnly, "data")
	if err := os.Mkdir(data, 0o700); err != nil {
		t.Fatal(err)
	}
	remount(syscall.MS_RDONLY)
	o.fails(1, append([]string{"server", "--data", data}, loopback...), "the file system of "+data+" is read-only", "sudo mount -o remount,rw "+readOnly)
	o.fails(1, append([]string{"server", "--data", filepath.Join(readOnly, "other")}, loopback...), "read-only file system", "choose another with --data", "muster doctor")

	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	o.fails(1, []string{"server", "--data", t.TempDir(), "--agents-listen", "127.0.0.1:0", "--admin-listen", taken.Addr().String()}, "admin.listen", "muster doctor", "--admin-listen")
}

// A server whose user may not read the data must not take it for damaged, nor ask for a restore.
func TestServerWithoutRightsToItsData(t *testing.T) {
	require.Root(t)
	newOperator(t)
	data := t.TempDir()
	if err := os.Chmod(filepath.Dir(data), 0o755); err != nil { //nolint:gosec // nobody has to reach the folder
		t.Fatal(err)
	}
	start := func() string {
		done := make(chan string)
		go func() {
			runtime.LockOSThread() // the thread ends with the goroutine, since it is never unlocked
			if err := unix.Setfsuid(nobody); err != nil {
				done <- err.Error()
				return
			}
			var out bytes.Buffer
			cmd := cli.New(apptest.Version)
			cmd.SetArgs([]string{"server", "--data", data, "--agents-listen", "127.0.0.1:0", "--admin-listen", "127.0.0.1:0"})
			cmd.SetOut(&out)
			cmd.SetErr(&out)
			err := cmd.ExecuteContext(t.Context())
			if err != nil {
				out.WriteString(err.Error())
			}
			done <- out.String()
		}()
		return <-done
	}
	if err := os.Chmod(data, 0o700); err != nil { //nolint:gosec // a folder
		t.Fatal(err)
	}
	got := start()
	if want := "this user may not write to " + data + ": run this as the user who owns it, whom this shows: ls -ld " + data; !strings.Contains(got, want) || strings.Contains(got, "restore") || strings.Contains(got, "damaged") {
		t.Errorf("the server prints %q, want %q", got, want)
	}

	// The folder is the server's, and a command of root made the store in it.
	if err := os.Chown(data, nobody, nobody); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(data, "muster.db"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if got, want := start(), "sudo chown -R --reference="+data+" "+data; !strings.Contains(got, want) {
		t.Errorf("the server prints %q, want %q", got, want)
	}
}
