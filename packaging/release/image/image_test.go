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

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/match"
	"github.com/google/go-containerregistry/pkg/v1/partial"
	"github.com/google/go-containerregistry/pkg/v1/remote"

	"github.com/muster-fleet/muster/packaging/release/releasetest"
	"github.com/muster-fleet/muster/testing/kit/docker"
)

const version = "1.2.3"

// options returns those of the image of the server as it is in this repository.
func options(t *testing.T) Options {
	t.Helper()
	program := filepath.Join(t.TempDir(), "muster")
	c := exec.Command("go", "build", "-tags=nomsgpack", "-trimpath", "-ldflags=-s -w -X main.version="+version, "-o", program, "./server")
	c.Dir, c.Env = filepath.Join("..", "..", ".."), append(os.Environ(), "CGO_ENABLED=0")
	if out, err := c.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return Options{Arch: runtime.GOARCH, Program: program, Version: version, Source: "https://github.com/muster-fleet/muster", Created: time.Unix(1_790_000_000, 0)}
}

// run runs a command of the Docker engine.
func run(t *testing.T, engine *docker.Engine, args ...string) (string, error) {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), "docker", append([]string{"--host", engine.Host}, args...)...).CombinedOutput()
	t.Logf("$ docker %s\n%s", strings.Join(args, " "), out)
	return strings.TrimSpace(string(out)), err
}

// The file of all architectures is pushed to a registry under one name, from which an engine pulls the
// image for its own processor.
func TestEnginePullsTheImageOfItsProcessor(t *testing.T) {
	engine := docker.Start(t)
	own := options(t)
	other := own
	other.Arch = map[string]string{"amd64": "arm64", "arm64": "amd64"}[own.Arch] // its program is not run
	dir := t.TempDir()
	file := filepath.Join(dir, "all.tar")
	if err := WriteAll(file, []Options{other, own}); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.CommandContext(t.Context(), "tar", "--extract", "--file", file, "--directory", dir).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	index, err := layout.ImageIndexFromPath(dir)
	if err != nil {
		t.Fatal(err)
	}
	images, err := partial.FindIndexes(index, match.Name(version))
	if err != nil || len(images) != 1 {
		t.Fatalf("the file has %d entries with the name %s, %v", len(images), version, err)
	}
	ref, err := name.ParseReference(docker.StartRegistry(t).Host + "/muster:" + version)
	if err != nil {
		t.Fatal(err)
	}
	if err := remote.WriteIndex(ref, images[0]); err != nil {
		t.Fatal(err)
	}
	for _, args := range [][]string{
		{"pull", ref.Name()},
		{"image", "inspect", "--format={{.Os}}/{{.Architecture}}", ref.Name()},
		{"run", "--rm", "--network=host", ref.Name(), "--version"},
	} {
		out, err := run(t, engine, args...)
		if err != nil {
			t.Fatal(err)
		}
		if want := map[string]string{"pull": version, "image": "linux/" + own.Arch, "run": version}[args[0]]; !strings.Contains(out, want) {
			t.Errorf("docker %s prints %q, want %q in it", args[0], out, want)
		}
	}
}

// The server of the image runs without root, on a file system that it cannot write to, stops when it
// should, and finds its data again.
func TestServerRunsInAContainer(t *testing.T) {
	engine := docker.Start(t)
	must := func(args ...string) string {
		t.Helper()
		out, err := run(t, engine, args...)
		if err != nil {
			t.Fatal(err)
		}
		return out
	}
	file := filepath.Join(t.TempDir(), "image.tar")
	if err := Write(file, options(t)); err != nil {
		t.Fatal(err)
	}
	must("load", "--input", file)
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
	if out, err := run(t, engine, "exec", container, "/muster", "server", "--check"); err != nil || !strings.Contains(out, "Version "+version) {
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
	out, err := run(t, engine, "run", "--rm", "--read-only", "--network=host", "--volume="+folder+":/var/lib/muster", "muster:"+version, "server", "--agents-listen", releasetest.FreeAddress(t), "--admin-listen", releasetest.FreeAddress(t))
	if err == nil || !strings.Contains(out, "/var/lib/muster") || !strings.Contains(out, "permission denied") {
		t.Errorf("a folder of root is refused with %q, %v", out, err)
	}
}
