//go:build linux

package image

import (
	"crypto/tls"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/muster-fleet/muster/testing/docker"
)

const (
	// waitLimit bounds each wait: a start takes a second, also in a container.
	waitLimit = time.Minute
	version   = "1.2.3"
)

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
	agents, admin := freeAddress(t), freeAddress(t)
	start := []string{"run", "--detach", "--read-only", "--cap-drop=ALL", "--security-opt=no-new-privileges", "--network=host", "--volume=data:/var/lib/muster",
		"muster:" + version, "server", "--agents-listen", agents, "--admin-listen", admin}
	container := must(start...)
	ready(t, admin)
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
	ready(t, admin)
	if again := must("exec", container, "/muster", "ca-pin"); again != pin {
		t.Errorf("the CA is %s, want the one of the volume, %s", again, pin)
	}

	// Whoever mounts a folder of another user is told which.
	folder := t.TempDir()
	out, err := run("run", "--rm", "--read-only", "--network=host", "--volume="+folder+":/var/lib/muster", "muster:"+version, "server", "--agents-listen", freeAddress(t), "--admin-listen", freeAddress(t))
	if err == nil || !strings.Contains(out, "/var/lib/muster") || !strings.Contains(out, "permission denied") {
		t.Errorf("a folder of root is refused with %q, %v", out, err)
	}
}

// freeAddress returns an address that was free just now: the container shares the network.
func freeAddress(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}

func ready(t *testing.T, admin string) {
	t.Helper()
	client := &http.Client{Timeout: 5 * time.Second, Transport: &http.Transport{
		DisableKeepAlives: true, TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, //nolint:gosec // only whether it answers
	}}
	deadline := time.Now().Add(waitLimit)
	for {
		r, err := client.Get("https://" + admin + "/readyz")
		if err == nil {
			_ = r.Body.Close()
			if r.StatusCode == http.StatusOK {
				return
			}
			err = fmt.Errorf("/readyz answers %s", r.Status)
		}
		if time.Now().After(deadline) {
			t.Fatalf("timed out waiting for the server: %v", err)
		}
		time.Sleep(100 * time.Millisecond)
	}
}
