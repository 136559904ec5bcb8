//go:build linux

package chart

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"

	"github.com/muster-fleet/muster/packaging/release/image"
	"github.com/muster-fleet/muster/packaging/release/releasetest"
	"github.com/muster-fleet/muster/testing/kit/docker"
)

// pod runs the container of the chart as a kubelet would, by a Docker engine.
type pod struct {
	t       *testing.T
	host    string
	volumes map[string]string // folders, by the volume's name
	image   string
}

func (p pod) try(args ...string) (string, error) {
	p.t.Helper()
	out, err := exec.CommandContext(p.t.Context(), "docker", append([]string{"--host", p.host}, args...)...).CombinedOutput()
	p.t.Logf("$ docker %s\n%s", strings.Join(args, " "), out)
	return strings.TrimSpace(string(out)), err
}

func (p pod) docker(args ...string) string {
	p.t.Helper()
	out, err := p.try(args...)
	if err != nil {
		p.t.Fatal(err)
	}
	return out
}

// run starts the container with the values, waits until its readiness probe passes, and returns its id and
// the seconds that it has to end.
func (p pod) run(values map[string]any) (id string, grace int64) {
	p.t.Helper()
	rendered, err := render(p.t, values)
	if err != nil {
		p.t.Fatal(err)
	}
	known, _ := objects(p.t, rendered)
	set := known["StatefulSet fleet-muster"].(*appsv1.StatefulSet).Spec.Template.Spec
	c := set.Containers[0]
	file := filepath.Join(p.t.TempDir(), "server.yml")
	if err := os.WriteFile(file, []byte(known["ConfigMap fleet-muster"].(*corev1.ConfigMap).Data["server.yml"]), 0o644); err != nil {
		p.t.Fatal(err)
	}
	args := []string{
		"run", "--detach", "--network=host", "--security-opt=no-new-privileges",
		fmt.Sprintf("--user=%d:%d", *set.SecurityContext.RunAsUser, *set.SecurityContext.RunAsGroup), fmt.Sprintf("--group-add=%d", *set.SecurityContext.FSGroup),
		"--read-only=" + strconv.FormatBool(*c.SecurityContext.ReadOnlyRootFilesystem),
	}
	for _, dropped := range c.SecurityContext.Capabilities.Drop {
		args = append(args, "--cap-drop="+string(dropped))
	}
	for _, e := range c.Env {
		args = append(args, "--env="+e.Name+"="+e.Value)
	}
	for _, m := range c.VolumeMounts {
		from := p.volumes[m.Name]
		if m.Name == "config" {
			from = file
		}
		if from == "" {
			p.t.Fatalf("the volume %s is mounted, and the test has none", m.Name)
		}
		mount := from + ":" + m.MountPath
		if m.ReadOnly {
			mount += ":ro"
		}
		args = append(args, "--volume="+mount)
	}
	// The network is the machine's, whose ports may be taken.
	admin := releasetest.FreeAddress(p.t)
	args = append(append(args, p.image), c.Args...)
	id = p.docker(append(args, "--agents-listen", releasetest.FreeAddress(p.t), "--admin-listen", admin)...)
	releasetest.Ready(p.t, "https://"+admin+c.ReadinessProbe.HTTPGet.Path)
	return id, *set.TerminationGracePeriodSeconds
}

// end stops and removes a container, which is killed after the grace period.
func (p pod) end(id string, grace int64) {
	p.t.Helper()
	p.docker("stop", fmt.Sprintf("--time=%d", grace), id)
	if out := p.docker("inspect", "--format={{.State.ExitCode}}", id); out != "0" {
		p.t.Errorf("the server ended with %s", out)
	}
	p.docker("rm", id)
}

// secret copies a folder of the server as a kubelet mounts a Secret: links to files that only the group
// can read, behind a link that an update replaces.
func secret(t *testing.T, from string) string {
	t.Helper()
	files, err := os.ReadDir(from)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	must(os.Mkdir(filepath.Join(dir, "..1"), 0o755))
	must(os.Symlink("..1", filepath.Join(dir, "..data")))
	for _, f := range files {
		data, err := os.ReadFile(filepath.Join(from, f.Name()))
		must(err)
		path := filepath.Join(dir, "..1", f.Name())
		must(os.WriteFile(path, data, 0o440))
		must(os.Chown(path, 0, 65532))
		must(os.Symlink(filepath.Join("..data", f.Name()), filepath.Join(dir, f.Name())))
	}
	must(os.Chown(dir, 0, 65532))
	must(os.Chmod(dir, 0o750))
	return dir
}

// The server runs as the chart says, in a volume whose group is the server's; another server runs with the
// keys of the first one, which it cannot write.
func TestServerRunsAsTheChartSays(t *testing.T) {
	engine := docker.Start(t)
	data := t.TempDir()
	// A kubelet gives the volume to the group, and leaves the owner root.
	if err := os.Chown(data, 0, 65532); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(data, os.ModeSetgid|0o775); err != nil {
		t.Fatal(err)
	}
	p := pod{t: t, host: engine.Host, volumes: map[string]string{"data": data}, image: "muster:" + version}
	p.docker("load", "--input", imageFile(t))

	id, grace := p.run(nil)
	pin := p.docker("exec", id, "/muster", "ca-pin", "--config", "/etc/muster/server.yml")
	if out := p.docker("exec", id, "/muster", "admin-key", "--config", "/etc/muster/server.yml"); !strings.Contains(out, "/var/lib/muster/") {
		t.Errorf("without a terminal, the command of the notes says %q, want the path of a file in the volume", out)
	}
	p.end(id, grace)

	p.volumes["ca"], p.volumes["trust"] = secret(t, filepath.Join(data, "tls")), secret(t, filepath.Join(data, "trust"))
	for _, dir := range []string{"tls", "trust"} {
		if err := os.RemoveAll(filepath.Join(data, dir)); err != nil {
			t.Fatal(err)
		}
	}
	id, grace = p.run(map[string]any{"sharedKeys": map[string]any{"caSecret": "muster-ca", "trustSecret": "muster-trust"}})
	if again := p.docker("exec", id, "/muster", "ca-pin", "--config", "/etc/muster/server.yml"); again != pin {
		t.Errorf("the CA is %s, want that of the Secret, %s", again, pin)
	}
	if log := p.docker("logs", id); strings.Contains(log, "level=ERROR") || strings.Contains(log, "has no online key") {
		t.Errorf("the server with keys of a Secret complains:\n%s", log)
	}
	p.end(id, grace)
}

// imageFile makes the image of the server as it is in this repository.
func imageFile(t *testing.T) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "image.tar")
	if err := image.Write(file, image.Options{Arch: runtime.GOARCH, Program: build(t), Version: version, Source: "https://github.com/muster-fleet/muster", Created: options.Time}); err != nil {
		t.Fatal(err)
	}
	return file
}
