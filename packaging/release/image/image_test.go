//go:build linux

package image

import (
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/muster-fleet/muster/packaging/release/releasetest"
	"github.com/muster-fleet/muster/testing/docker"
)

const version = "1.2.3"

// write writes the image of the server as it is in this repository.
func write(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	program := filepath.Join(dir, "muster")
	c := exec.Command("go", "build", "-tags=nomsgpack", "-trimpath", "-ldflags=-s -w -X main.version="+version, "-o", program, "./server")
	c.Dir, c.Env = filepath.Join("..", "..", ".."), append(os.Environ(), "CGO_ENABLED=0")
	if out, err := c.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	file := filepath.Join(dir, "image.tar")
	if err := Write(file, Options{
		Arch: runtime.GOARCH, Program: program, Version: version, Source: "https://github.com/muster-fleet/muster", Created: time.Unix(1_790_000_000, 0),
	}); err != nil {
		t.Fatal(err)
	}
	return file
}

// The server of the image runs without root, on a file system that it cannot write to, stops when it
// should, and finds its data again.
func TestServerRunsInAContainer(t *testing.T) {
	engine := docker.Start(t)
	run := func(args ...string) (string, error) {
		out, err := exec.CommandContext(t.Context(), "docker", append([]string{"--host", engine.Host}, args...)...).CombinedOutput()
		t.Logf("$ docker %s\n%s", strings.Join(args, " "), out)
		return strings.TrimSpace(string(out)), err
	}
	must := func(args ...string) string {
		t.Helper()
		out, err := run(args...)
		if err != nil {
			t.Fatal(err)
		}
		return out
	}
	must("load", "--input", write(t))
	agents, admin := releasetest.FreeAddress(t), releasetest.FreeAddress(t)
	start := []string{
		"run", "--detach", "--read-only", "--cap-drop=ALL", "--security-opt=no-new-privileges", "--network=host", "--volume=data:/var/lib/muster",
		"muster:" + version, "server", "--agents-listen", agents, "--admin-listen", admin,
	}
	container := must(start...)
	releasetest.Ready(t, "https://"+admin+"/readyz")
	if out := must("top", container, "-o", "pid,uid"); !strings.HasSuffix(out, " 65532") {
		t.Errorf("it runs as %q, want the user 65532", out)
	}
	pin := must("exec", container, "/muster", "ca-pin")
	if out, err := run("exec", container, "/muster", "server", "--check"); err != nil || !strings.Contains(out, "Version "+version) {
		t.Errorf("checking its configuration: %q, %v", out, err)
	}

	must("stop", "--time=30", container)
	if out := must("inspect", "--format={{.State.ExitCode}} {{.State.OOMKilled}}", container); out != "0 false" {
		t.Errorf("after SIGTERM it ended with %q", out)
	}
	must("rm", container)
	container = must(start...)
	releasetest.Ready(t, "https://"+admin+"/readyz")
	if again := must("exec", container, "/muster", "ca-pin"); again != pin {
		t.Errorf("the CA is %s, want the one of the volume, %s", again, pin)
	}

	// A folder of another user is refused by name.
	folder := t.TempDir()
	out, err := run("run", "--rm", "--read-only", "--network=host", "--volume="+folder+":/var/lib/muster", "muster:"+version, "server", "--agents-listen", releasetest.FreeAddress(t), "--admin-listen", releasetest.FreeAddress(t))
	if err == nil || !strings.Contains(out, "/var/lib/muster") || !strings.Contains(out, "permission denied") {
		t.Errorf("a folder of root is refused with %q, %v", out, err)
	}
}
