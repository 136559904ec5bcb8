package e2e

import (
	"bufio"
	"context"
	"encoding/json"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/muster-fleet/muster/packaging/pkg/serverlayout"
	"github.com/muster-fleet/muster/testing/kit/toolchain"
)

// Two versions of the server are installed beside each other, and the same path runs one after the
// other, with the same data.
func TestVersionsOfTheServerAreBesideEachOther(t *testing.T) {
	t.Parallel()
	root, err := toolchain.Root()
	check(t, err)
	dir := t.TempDir()
	prefix, etc := filepath.Join(dir, "usr"), filepath.Join(dir, "etc")
	check(t, os.MkdirAll(prefix, 0o755))
	run := func(program string, args ...string) string {
		t.Helper()
		out, err := exec.CommandContext(t.Context(), program, args...).CombinedOutput()
		if err != nil {
			t.Fatalf("%s: %v\n%s", strings.Join(args, " "), err, out)
		}
		return string(out)
	}
	for _, version := range []string{"1.0.0", "1.1.0"} {
		p, err := toolchain.BuildServer(t.Context(), root, filepath.Join(dir, version), version, io.Discard)
		check(t, err)
		out := run(p.Muster, "server", "install", "--prefix", prefix, "--sysconfdir", etc)
		if !strings.Contains(out, "Installed "+version+" in "+filepath.Join(prefix, "lib", "muster", version)) {
			t.Errorf("the installation prints %s", out)
		}
		check(t, os.RemoveAll(filepath.Dir(p.Muster)))
	}
	muster := filepath.Join(prefix, "bin", "muster")
	serves := func(version string) {
		t.Helper()
		if got := serve(t, muster, filepath.Join(dir, "data")); got != version {
			t.Errorf("version %q serves, want %s", got, version)
		}
	}
	serves("1.0.0")
	// The program knows its prefix.
	if out := run(muster, "server", "versions", "switch", "1.1.0", "--sysconfdir", etc); !strings.Contains(out, muster+" runs 1.1.0 now. A server that runs must be restarted.") {
		t.Errorf("the switch prints %s", out)
	}
	serves("1.1.0")
	var list []serverlayout.Installed
	check(t, json.Unmarshal([]byte(run(muster, "server", "versions", "list", "--sysconfdir", etc, "-o", "json")), &list))
	if len(list) != 2 || list[0].Version != "1.1.0" || !list[0].Current || list[0].Problem != "" || list[1].Version != "1.0.0" || list[1].Current || list[1].Problem != "" {
		t.Errorf("the list is %+v", list)
	}
	run(muster, "server", "versions", "switch", "1.0.0", "--sysconfdir", etc)
	serves("1.0.0")
	run(muster, "server", "versions", "remove", "1.1.0", "--sysconfdir", etc)
	if out := run(muster, "server", "versions", "list", "--sysconfdir", etc); strings.Contains(out, "1.1.0") || !strings.Contains(out, "current") {
		t.Errorf("after the removal the list is\n%s", out)
	}
}

// serve starts a server, and stops it once it serves. It returns its version.
func serve(t *testing.T, muster, data string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, muster, "server", "--data", data, "--agents-listen", "127.0.0.1:0", "--admin-listen", "127.0.0.1:0", "-o", "json")
	out, err := cmd.StdoutPipe()
	check(t, err)
	cmd.Stderr = t.Output()
	check(t, cmd.Start())
	line, err := bufio.NewReader(out).ReadBytes('\n')
	var info struct {
		Version string `json:"version"`
	}
	if err == nil {
		err = json.Unmarshal(line, &info)
	}
	check(t, err)
	check(t, cmd.Process.Signal(syscall.SIGTERM))
	_, _ = io.Copy(io.Discard, out)
	check(t, cmd.Wait())
	return info.Version
}
