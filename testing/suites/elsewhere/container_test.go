//go:build release && linux

package elsewhere

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/moby/moby/api/types/container"
	"github.com/moby/moby/client"

	"github.com/muster-fleet/muster/packaging/host/layout"
	"github.com/muster-fleet/muster/testing/kit/docker"
	"github.com/muster-fleet/muster/testing/kit/harness"
)

// shortWatch are the agent's settings.
const shortWatch = `upgrade:
  watch: {interval: 500ms, grace: 4s, failed_for: 2s, max_crashes: 2}
  download: {allow_http: [127.0.0.1]}
`

// box is a container with the agent.
type box struct {
	*world
	engine *docker.Engine
	image  string
	id     string
	// volume is the folder that is mounted as the agent's, or empty.
	volume string
}

// image makes an image from an archive of the agent, with nothing else in it, and returns its id.
func (w *world) image(e *docker.Engine, archive string) string {
	w.Helper()
	text, err := os.ReadFile(archive)
	w.ok("read the package", err)
	unpacked, err := gzip.NewReader(bytes.NewReader(text))
	w.ok("unpack the package", err)
	root, err := io.ReadAll(unpacked)
	w.ok("unpack the package", err)
	program := ""
	for r := tar.NewReader(bytes.NewReader(root)); program == ""; {
		h, err := r.Next()
		w.ok("find the agent in the package", err)
		if path.Base(h.Name) == layout.AgentLink && h.Typeflag == tar.TypeReg {
			program = path.Join("/", h.Name)
		}
	}
	changes := []string{`ENTRYPOINT ["` + program + `", "container", "--top", "/agent"]`}
	answer, err := e.Client().ImageImport(w.Context(), client.ImageImportSource{Source: bytes.NewReader(root), SourceName: "-"}, "", client.ImageImportOptions{Changes: changes})
	w.ok("docker import", err)
	defer answer.Close()
	var last struct{ Status, Error string }
	for dec := json.NewDecoder(answer); err == nil; {
		err = dec.Decode(&last)
	}
	if !errors.Is(err, io.EOF) || !strings.HasPrefix(last.Status, "sha256:") {
		w.Fatalf("docker import: %v, its last answer is %+v", err, last)
	}
	return last.Status
}

func (w *world) box(e *docker.Engine, image string) *box {
	return &box{world: w, engine: e, image: image}
}

// run starts a container of the image, with its settings in place.
func (b *box) run(name, volume string, flags ...string) {
	b.Helper()
	host := &container.HostConfig{NetworkMode: "host", RestartPolicy: container.RestartPolicy{Name: container.RestartPolicyAlways}}
	if volume != "" {
		host.Binds = []string{volume + ":/agent"}
		host.ReadonlyRootfs = true
	}
	c, err := b.engine.Client().ContainerCreate(b.Context(), client.ContainerCreateOptions{
		Name: name, HostConfig: host, Config: &container.Config{
			Image: b.image, Hostname: name, Cmd: flags, Env: []string{"MUSTER_ENROLLMENT_TOKEN=" + b.Server.Info.EnrollToken},
		},
	})
	b.ok("docker create", err)
	b.id, b.volume = c.ID, volume
	b.start()
	b.Cleanup(func() {
		if b.Failed() {
			b.Logf("the log of container %s:\n%s", name, b.log())
		}
	})
}

func (b *box) start() {
	b.Helper()
	_, err := b.engine.Client().ContainerStart(b.Context(), b.id, client.ContainerStartOptions{})
	b.ok("docker start", err)
}

// stop stops the container, and returns how long that took and its exit status.
func (b *box) stop() (time.Duration, int) {
	b.Helper()
	began := time.Now()
	_, err := b.engine.Client().ContainerStop(b.Context(), b.id, client.ContainerStopOptions{})
	b.ok("docker stop", err)
	return time.Since(began), b.inspect().State.ExitCode
}

func (b *box) remove() {
	b.Helper()
	_, err := b.engine.Client().ContainerRemove(b.Context(), b.id, client.ContainerRemoveOptions{Force: true})
	b.ok("docker rm", err)
}

func (b *box) inspect() container.InspectResponse {
	b.Helper()
	c, err := b.engine.Client().ContainerInspect(b.Context(), b.id, client.ContainerInspectOptions{})
	b.ok("docker inspect", err)
	return c.Container
}

func (b *box) log() string {
	out, err := b.engine.Client().ContainerLogs(context.Background(), b.id, client.ContainerLogsOptions{ShowStdout: true, ShowStderr: true})
	if err != nil {
		return err.Error()
	}
	defer out.Close()
	text, err := io.ReadAll(out)
	return string(text) + fmt.Sprint(err)
}

// configure writes the agent's settings, and starts the container again.
func (b *box) configure() {
	b.Helper()
	var text bytes.Buffer
	w := tar.NewWriter(&text)
	b.ok("make a tar", w.WriteHeader(&tar.Header{Name: layout.ConfigFile, Mode: 0o600, Size: int64(len(shortWatch))}))
	_, err := w.Write([]byte(shortWatch))
	b.ok("make a tar", errors.Join(err, w.Close()))
	if b.volume != "" {
		err = os.WriteFile(filepath.Join(b.volume, layout.ConfigFile), []byte(shortWatch), 0o600)
	} else {
		_, err = b.engine.Client().CopyToContainer(b.Context(), b.id, client.CopyToContainerOptions{DestinationPath: "/agent", Content: &text})
	}
	b.ok("configure the agent", err)
	b.stop()
	b.start()
}

// programs returns what runs in the container, by its processes' state and program.
func (b *box) programs() (out []string) {
	b.Helper()
	first := b.inspect().State.Pid
	namespace := func(pid string) string {
		ns, _ := os.Readlink("/proc/" + pid + "/ns/pid") // it has ended
		return ns
	}
	inside := namespace(fmt.Sprint(first))
	all, err := filepath.Glob("/proc/[0-9]*")
	b.ok("list processes", err)
	for _, dir := range all {
		if namespace(filepath.Base(dir)) != inside {
			continue
		}
		stat, err := os.ReadFile(dir + "/stat")
		if err != nil {
			continue
		}
		_, rest, _ := strings.Cut(string(stat), ") ")
		program, _ := os.Readlink(dir + "/exe")
		out = append(out, rest[:1]+" "+program)
	}
	return out
}

// hasNoZombies waits until nothing that has ended is left in the container's process table.
func (b *box) hasNoZombies() {
	b.Helper()
	harness.Eventually(b, "no process of the container is a zombie", func() error {
		if all := b.programs(); slices.ContainsFunc(all, func(p string) bool { return strings.HasPrefix(p, "Z") }) {
			return fmt.Errorf("they are %q", all)
		}
		return nil
	})
}

func newBox(t *testing.T) *box {
	t.Helper()
	e := docker.Shared(t)
	w := newWorld(t)
	return w.box(e, w.image(e, w.Archives["1.0.0"]))
}

func TestContainerWithAVolumeIsUpgradedAndRolledBack(t *testing.T) {
	b := newBox(t)
	volume := filepath.Join(b.Dir, "volume")
	b.ok("make a volume", os.Mkdir(volume, 0o755))
	b.run("boxed", volume, b.enrollment()...)
	h := b.online("boxed", "1.0.0")
	b.configure()
	b.online("boxed", "1.0.0")
	before := b.inspect()

	b.Publish("1.1.0", b.Programs.Agent)
	b.Upgrade("1.1.0", h)
	b.upgraded(h, "1.1.0")
	b.hasNoZombies()
	b.Publish("1.2.0", b.Programs.CrashLooper)
	b.Upgrade("1.2.0", h)
	b.rolledBack(h, "1.1.0", "crash_loop")
	b.hasNoZombies()
	if after := b.inspect(); after.State.Pid != before.State.Pid || after.RestartCount != 0 {
		t.Errorf("process 1 is now %d, was %d, after %d restarts: want the same process", after.State.Pid, before.State.Pid, after.RestartCount)
	}

	// What Docker kills after ten seconds has exit status 137.
	if took, status := b.stop(); status != 0 || took > 9*time.Second {
		t.Errorf("docker stop took %s, and the exit status is %d", took, status)
	}
	b.start()
	b.online("boxed", "1.1.0")
	// The volume decides, not the image.
	b.stop()
	b.remove()
	b.run("boxed", volume)
	if again := b.online("boxed", "1.1.0"); again.ID != h.ID {
		t.Errorf("a new container with the same volume is the agent %s, was %s", again.ID, h.ID)
	}
}

// A container that is killed during a watch of a version that does not start: nothing of that
// version can start the watcher again.
func TestContainerKilledDuringABadUpgradeComesBackWithTheOldVersion(t *testing.T) {
	b := newBox(t)
	volume := filepath.Join(b.Dir, "volume")
	b.ok("make a volume", os.Mkdir(volume, 0o755))
	b.run("killed", volume, b.enrollment()...)
	h := b.online("killed", "1.0.0")
	b.configure()
	b.online("killed", "1.0.0")
	b.Publish("1.2.0", b.Programs.CrashLooper)
	b.Upgrade("1.2.0", h)
	harness.Eventually(b, "the pointer leads to the bad version", func() error {
		to, err := os.Readlink(filepath.Join(volume, layout.AgentLink))
		if err == nil && !strings.Contains(to, "1.2.0") {
			err = errStill
		}
		return err
	})
	_, err := b.engine.Client().ContainerKill(t.Context(), b.id, client.ContainerKillOptions{Signal: "KILL"})
	b.ok("docker kill", err)
	harness.Eventually(b, "the container has ended", func() error {
		if b.inspect().State.Running {
			return errStill
		}
		return nil
	})
	b.start()
	b.rolledBack(h, "1.0.0", "crash_loop")
	if log := b.log(); !strings.Contains(log, "watcher started, since none was running") {
		t.Errorf("process 1 did not start the watcher; its log is\n%s", log)
	}
}

func TestContainerWithoutAVolumeBeginsWithTheVersionOfItsImage(t *testing.T) {
	b := newBox(t)
	b.run("loose", "", b.enrollment()...)
	h := b.online("loose", "1.0.0")
	b.configure()
	b.online("loose", "1.0.0")
	b.Publish("1.1.0", b.Programs.Agent)
	b.Upgrade("1.1.0", h)
	b.upgraded(h, "1.1.0")
	// The same container keeps its own layer.
	b.stop()
	b.start()
	if again := b.online("loose", "1.1.0"); again.ID != h.ID {
		t.Errorf("after docker restart it is the agent %s, was %s", again.ID, h.ID)
	}
	b.stop()
	b.remove()
	b.run("loose", "", b.enrollment()...)
	if again := b.online("loose", "1.0.0"); again.ID == h.ID {
		t.Error("a new container without a volume is the same agent: where was its identity?")
	}
	b.remove()
	b.run("strange", "")
	harness.Eventually(b, "the container says what is missing", func() error {
		if log := b.log(); !strings.Contains(log, "no agent is in /agent yet: pass --url") {
			return errors.New(log)
		}
		return nil
	})
}
