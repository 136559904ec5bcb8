package docker

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"path/filepath"
	goruntime "runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/moby/moby/api/types/container"
	"github.com/moby/moby/api/types/network"
	"github.com/moby/moby/client"
	v1 "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/muster-fleet/muster/agent/runtime"
	"github.com/muster-fleet/muster/packaging/pkg/manifest"
	engine "github.com/muster-fleet/muster/testing/kit/docker"
	"github.com/muster-fleet/muster/testing/kit/port"
)

// patience bounds every wait for a container.
const patience = time.Minute

// world is an agent's adapter on an engine.
type world struct {
	*testing.T
	hosts
	*Adapter
	e *engine.Engine
}

func newWorld(t *testing.T) *world {
	e := engine.Shared(t)
	return &world{T: t, hosts: hosts{t.TempDir()}, Adapter: newAdapter(t, Options{Host: e.Host}), e: e}
}

func (w *world) ok(what string, err error) {
	w.Helper()
	if err != nil {
		w.Fatalf("%s: %v", what, err)
	}
}

// says fails the test unless the error has the text.
func (w *world) says(what string, err error, text string) {
	w.Helper()
	if err == nil || !strings.Contains(err.Error(), text) {
		w.Errorf("%s: %v, want %q in it", what, err, text)
	}
}

// release returns a version of the component web with settings besides its image.
func (w *world) release(version string, settings map[string]any) *runtime.Release {
	r := w.hosts.release(w.T, w.e, "web", version)
	for k, v := range settings {
		r.Component.Settings[k] = v
	}
	return r
}

// run upgrades from a version, nil for none, as package primitive does.
func (w *world) run(to, from *runtime.Release) {
	w.Helper()
	w.ok("Check", w.Check(w.Context(), to))
	w.ok("Acquire", w.Acquire(w.Context(), to, func(float64) {}))
	if from != nil {
		w.ok("Stop", w.Stop(w.Context(), from))
	}
	w.ok("Install", w.Install(w.Context(), to, from))
	w.ok("Start", w.Start(w.Context(), to))
}

func (w *world) status(r *runtime.Release) runtime.Status {
	w.Helper()
	s, err := w.Status(w.Context(), r)
	w.ok("Status", err)
	return s
}

func (w *world) eventually(r *runtime.Release, want string, holds func(runtime.Status) bool) {
	w.Helper()
	for deadline := time.Now().Add(patience); ; time.Sleep(50 * time.Millisecond) {
		s := w.status(r)
		if holds(s) {
			return
		}
		if time.Now().After(deadline) {
			w.Fatalf("status is still %+v, want %s", s, want)
		}
	}
}

// names fails the test unless the engine has exactly these containers.
func (w *world) names(want ...string) {
	w.Helper()
	got, err := w.e.Names(w.Context())
	w.ok("list the containers", err)
	slices.Sort(got)
	if !slices.Equal(got, want) {
		w.Errorf("the containers are %q, want %q", got, want)
	}
}

func (w *world) inspect(name string) container.InspectResponse {
	w.Helper()
	answer, err := w.e.Client().ContainerInspect(w.Context(), name, client.ContainerInspectOptions{})
	w.ok("inspect container "+name, err)
	return answer.Container
}

// foreign runs a container as an operator does, with docker run.
func (w *world) foreign(name string, h container.HostConfig, labels map[string]string) string {
	w.Helper()
	h.NetworkMode = "none"
	id := w.e.Image(w.T, `CMD ["0.9.0"]`)
	c, err := w.e.Client().ContainerCreate(w.Context(), client.ContainerCreateOptions{Name: name, HostConfig: &h, Config: &container.Config{Image: id, Labels: labels}})
	w.ok("docker create", err)
	_, err = w.e.Client().ContainerStart(w.Context(), c.ID, client.ContainerStartOptions{})
	w.ok("docker start", err)
	return c.ID
}

func TestImageIsPulledOnceByItsDigest(t *testing.T) {
	w := newWorld(t)
	registry := engine.StartRegistry(t)
	here := v1.Platform{OS: goruntime.GOOS, Architecture: goruntime.GOARCH}
	r := w.release("1.0.0", map[string]any{"image": registry.Push(t, "team/web", here, v1.ImageConfig{Cmd: []string{"1.0.0"}})})
	if got, err := w.Acquired(t.Context(), r); got || err != nil {
		t.Errorf("Acquired is %v, %v before Acquire", got, err)
	}
	w.says("Verify before Acquire", w.Verify(t.Context(), r), "is not on this host")
	var reports []float64
	w.ok("Acquire", w.Acquire(t.Context(), r, func(percent float64) { reports = append(reports, percent) }))
	if !slices.IsSorted(reports) || reports[len(reports)-1] != 100 || len(reports) < 2 {
		t.Errorf("the progress is %v", reports)
	}
	w.ok("Verify", w.Verify(t.Context(), r))
	before := registry.Requests.Load()
	w.ok("Acquire again", w.Acquire(t.Context(), r, func(float64) {}))
	if n := registry.Requests.Load() - before; n > 0 {
		t.Errorf("%d requests to the registry for an image that is on the host", n)
	}
	w.run(r, nil)
	w.eventually(r, "that it runs", func(s runtime.Status) bool { return s.Ready })

	acquired := func(want bool) {
		t.Helper()
		if got, err := w.Acquired(t.Context(), r); got != want || err != nil {
			t.Errorf("Acquired is %v, %v, want %v", got, err, want)
		}
	}
	w.ok("Discard of an image that a container has", w.Discard(t.Context(), r))
	acquired(true)
	w.ok("Remove", w.Remove(t.Context(), r))
	// A version of another component on this host has the same image.
	other := w.hosts.release(t, w.e, "proxy", "2.0.0")
	other.Component.Settings["image"] = r.Component.Settings["image"]
	m := manifest.Manifest{APIVersion: manifest.APIVersion, Kind: manifest.Kind, Package: manifest.Package{
		Version: "2.0.0", Hash: "3f2a9c", OS: here.OS, Arch: here.Architecture, VersionedHome: "data/proxy-2.0.0-3f2a9c", Component: &other.Component,
	}}
	text, err := m.Encode()
	w.ok("encode a manifest", err)
	kept := filepath.Join(other.Home, manifest.FileName)
	w.ok("write a manifest", os.WriteFile(kept, text, 0o600))
	w.ok("Discard of an image that another version has", w.Discard(t.Context(), r))
	acquired(true)
	w.ok("remove the other version", os.Remove(kept))
	w.ok("Discard", w.Discard(t.Context(), r))
	acquired(false)
}

func TestImageThatWasLoadedIsNotDiscarded(t *testing.T) {
	w := newWorld(t)
	r := w.release("1.0.0", nil)
	w.ok("Discard", w.Discard(t.Context(), r))
	w.ok("Verify", w.Verify(t.Context(), r))
}

func TestPullErrorsTellRefusalsFromOutages(t *testing.T) {
	w := newWorld(t)
	registry := engine.StartRegistry(t)
	pull := func(image string) error {
		return w.Acquire(t.Context(), w.release("1.0.0", map[string]any{"image": image}), func(float64) {})
	}
	unknown := registry.Host + "/team/web@sha256:" + strings.Repeat("ab", 32)
	err := pull(unknown)
	w.says("an unknown digest", err, "the registry refuses it")
	if errors.Is(err, runtime.ErrTransient) {
		t.Errorf("an unknown digest may succeed later: %v", err)
	}
	registry.Stop()
	err = pull(unknown)
	w.says("no registry", err, "the registry cannot be reached")
	if !errors.Is(err, runtime.ErrTransient) {
		t.Errorf("an outage of the registry is not transient: %v", err)
	}
	w.says("a digest that is no image's", w.Verify(t.Context(), w.release("1.0.0", map[string]any{"image": unknown})), "is not on this host")
}

func TestRegistryCannotSendAnotherImage(t *testing.T) {
	w := newWorld(t)
	evil := httptest.NewServer(http.HandlerFunc(func(out http.ResponseWriter, _ *http.Request) {
		out.Header().Set("Content-Type", v1.MediaTypeImageManifest)
		fmt.Fprint(out, `{"schemaVersion": 2, "mediaType": "`+v1.MediaTypeImageManifest+`", "config": {"mediaType": "`+v1.MediaTypeImageConfig+`"}, "layers": []}`)
	}))
	defer evil.Close()
	r := w.release("1.0.0", map[string]any{"image": strings.TrimPrefix(evil.URL, "http://") + "/web@sha256:" + strings.Repeat("ab", 32)})
	err := w.Acquire(t.Context(), r, func(float64) {})
	w.says("Acquire", err, "the registry has sent other bytes")
	if errors.Is(err, runtime.ErrTransient) {
		t.Errorf("it may succeed later: %v", err)
	}
	if got, err := w.Acquired(t.Context(), r); got || err != nil {
		t.Errorf("Acquired is %v, %v", got, err)
	}
}

func TestImageThatCannotRunHereIsRefused(t *testing.T) {
	w := newWorld(t)
	registry := engine.StartRegistry(t)
	here := v1.Platform{OS: goruntime.GOOS, Architecture: goruntime.GOARCH}
	for _, test := range []struct {
		image, says string
		settings    map[string]any
	}{
		{registry.Push(t, "other", v1.Platform{OS: "linux", Architecture: "riscv64"}, v1.ImageConfig{}), "is for linux/riscv64, and the engine runs", nil},
		{registry.Push(t, "db", here, v1.ImageConfig{Volumes: map[string]struct{}{"/data": {}}}), "declares the volume /data", nil},
		{registry.Push(t, "db", here, v1.ImageConfig{Volumes: map[string]struct{}{"/data": {}}}), "", map[string]any{"mounts": []map[string]any{{"source": "web-data", "target": "/data"}}}},
	} {
		r := w.release("1.0.0", test.settings)
		r.Component.Settings["image"] = test.image
		w.ok("Acquire", w.Acquire(t.Context(), r, func(float64) {}))
		for what, err := range map[string]error{"Verify": w.Verify(t.Context(), r), "Check of an image that is here": w.Check(t.Context(), r)} {
			if test.says == "" {
				w.ok(what, err)
			} else {
				w.says(what, err, test.says)
			}
		}
	}
}

func TestContainerOfSomebodyElseIsNotTouched(t *testing.T) {
	w := newWorld(t)
	id := w.foreign("web", container.HostConfig{}, nil)
	r := w.release("1.0.0", nil)
	w.says("Check", w.Check(t.Context(), r), "have the manifest say adopt: true")
	if s := w.status(r); s.Running || s.Message == "" {
		t.Errorf("status is %+v, want that it does not run and why", s)
	}
	w.ok("Stop", w.Stop(t.Context(), r))
	w.says("Install", w.Install(t.Context(), r, nil), "Muster has not created it")
	w.says("Start", w.Start(t.Context(), r), "install it first")
	w.ok("Restore", w.Restore(t.Context(), r, nil, t.TempDir()))
	w.ok("Keep", w.Keep(t.Context(), r, nil))
	w.ok("Remove", w.Remove(t.Context(), r))
	w.names("web")
	if c := w.inspect("web"); c.ID != id || !c.State.Running {
		t.Errorf("the container is %s in state %+v, want %s, running", c.ID, c.State, id)
	}
}

// Two agents of one host, such as those of a test, have a component of the same name.
func TestContainerOfAnotherAgentIsNotTouched(t *testing.T) {
	w := newWorld(t)
	r := w.release("1.0.0", nil)
	w.run(r, nil)
	other := *w
	other.hosts.top = t.TempDir()
	theirs := other.release("1.0.0", nil)
	w.says("Check", other.Check(t.Context(), theirs), "is that of component web in "+filepath.Dir(r.Home))
	w.ok("Remove", other.Remove(t.Context(), theirs))
	if !w.status(r).Running {
		t.Error("another agent has removed the container")
	}
}

func TestAdoptedContainerIsReplacedAndPutBack(t *testing.T) {
	w := newWorld(t)
	id := w.foreign("web", container.HostConfig{}, nil)
	r := w.release("1.0.0", map[string]any{"adopt": true})
	w.run(r, nil)
	w.names("web", "web.bak")
	w.ok("Stop", w.Stop(t.Context(), r))
	for range 2 {
		w.ok("Restore", w.Restore(t.Context(), r, nil, t.TempDir()))
		w.names("web")
		if c := w.inspect("web"); c.ID != id || !c.State.Running {
			t.Errorf("the container is %s in state %+v, want %s, running", c.ID, c.State, id)
		}
	}
	w.run(r, nil)
	w.ok("Keep", w.Keep(t.Context(), r, nil))
	w.names("web")
	if !w.status(r).Running {
		t.Error("the new container does not run")
	}
}

func TestContainerThatCouldNotBePutBackIsNotAdopted(t *testing.T) {
	w := newWorld(t)
	r := w.release("1.0.0", map[string]any{"adopt": true})
	for says, h := range map[string]container.HostConfig{
		"started with --rm":       {AutoRemove: true},
		"docker update --restart": {RestartPolicy: container.RestartPolicy{Name: "always"}},
	} {
		id := w.foreign("web", h, nil)
		w.says("Check", w.Check(t.Context(), r), says)
		w.ok("remove", w.remove(t.Context(), id, "web"))
	}
}

// The engine takes the beginning of an id for a name.
func TestContainerWhoseIDBeginsWithTheNameIsAnother(t *testing.T) {
	w := newWorld(t)
	id := w.foreign("other", container.HostConfig{}, nil)
	r := w.release("1.0.0", map[string]any{"container": id[:12], "adopt": true})
	if s := w.status(r); s.Running {
		t.Errorf("status is %+v", s)
	}
	w.run(r, nil)
	w.names(id[:12], "other")
}

func TestVersionMayRenameItsContainer(t *testing.T) {
	w := newWorld(t)
	v1, v2 := w.release("1.0.0", nil), w.release("2.0.0", map[string]any{"container": "frontend"})
	w.run(v1, nil)
	w.run(v2, v1)
	w.names("frontend", "web.bak")
	w.ok("Stop", w.Stop(t.Context(), v2))
	w.ok("Restore", w.Restore(t.Context(), v2, v1, t.TempDir()))
	w.ok("Start", w.Start(t.Context(), v1))
	w.names("web")
	w.run(v2, v1)
	w.ok("Keep", w.Keep(t.Context(), v2, v1))
	w.names("frontend")
	w.ok("Remove", w.Remove(t.Context(), v2))
	w.names()
}

// An operator has run docker container prune in the middle of an upgrade.
func TestRestoreMakesAContainerThatWasPruned(t *testing.T) {
	w := newWorld(t)
	v1, v2 := w.release("1.0.0", nil), w.release("2.0.0", nil)
	w.run(v1, nil)
	w.run(v2, v1)
	w.ok("prune", w.remove(t.Context(), w.inspect("web.bak").ID, "web.bak"))
	w.ok("Stop", w.Stop(t.Context(), v2))
	w.ok("Restore", w.Restore(t.Context(), v2, v1, t.TempDir()))
	w.ok("Start", w.Start(t.Context(), v1))
	if s := w.status(v1); !s.Running || s.Home != v1.Home {
		t.Errorf("status is %+v", s)
	}
}

// The engine completes the requests of an agent that was killed, beside those of the next.
func TestRequestsOfAKilledAgentAreAwaited(t *testing.T) {
	w := newWorld(t)
	r := w.release("1.0.0", nil)
	both := func(what string, call func() error) {
		t.Helper()
		var done sync.WaitGroup
		for range 2 {
			done.Go(func() {
				if err := call(); err != nil {
					t.Errorf("%s: %v", what, err)
				}
			})
		}
		done.Wait()
	}
	for range 3 {
		both("Install", func() error { return w.Install(t.Context(), r, nil) })
		w.ok("Start", w.Start(t.Context(), r))
		both("Restore", func() error { return w.Restore(t.Context(), r, nil, "") })
		w.names()
	}
}

func TestBackupDescribesTheContainer(t *testing.T) {
	w := newWorld(t)
	v1 := w.release("1.0.0", map[string]any{"env": map[string]string{"COLOUR": "green"}})
	dir := t.TempDir()
	w.ok("Backup of nothing", w.Backup(t.Context(), v1, dir))
	w.run(v1, nil)
	w.ok("Backup", w.Backup(t.Context(), v1, dir))
	text, err := os.ReadFile(filepath.Join(dir, backupFile))
	if err != nil || !strings.Contains(string(text), "COLOUR=green") {
		t.Errorf("the backup is %q, %v", text, err)
	}
}

func TestContainerHasTheSettingsOfItsVersionAlone(t *testing.T) {
	w := newWorld(t)
	folder := t.TempDir()
	v1 := w.release("1.0.0", map[string]any{
		"env": map[string]string{"B": "2", "A": "1"}, "user": "1000:1000", "restart": "on-failure:3", "stop_timeout": "7s",
		"cap_drop": []string{"ALL"}, "cap_add": []string{"NET_BIND_SERVICE"}, "read_only": true, "memory": "64m", "cpus": 0.5,
		"labels": map[string]string{"team": "web"}, "command": []string{engine.Program, "1.0.0"},
		"mounts": []map[string]any{
			{"source": folder, "target": "/config", "read_only": true},
			{"source": "web-data", "target": "/data"},
			{"target": "/tmp"},
		},
	})
	w.run(v1, nil)
	c := w.inspect("web")
	for what, got := range map[string][2]any{
		"variables":    {fmt.Sprint(c.Config.Env), "[A=1 B=2"},
		"user":         {c.Config.User, "1000:1000"},
		"restart":      {fmt.Sprint(c.HostConfig.RestartPolicy), "{on-failure 3}"},
		"stop timeout": {fmt.Sprint(*c.Config.StopTimeout), "7"},
		"rights":       {fmt.Sprint(c.HostConfig.CapDrop, c.HostConfig.CapAdd), "[ALL] [CAP_NET_BIND_SERVICE]"},
		"limits":       {fmt.Sprint(c.HostConfig.Memory, c.HostConfig.NanoCPUs), "67108864 500000000"},
		"labels":       {c.Config.Labels["team"] + " " + c.Config.Labels[labelVersion], "web 1.0.0"},
		"mounts":       {fmt.Sprint(c.HostConfig.Binds, c.HostConfig.Tmpfs), "[" + folder + ":/config:ro web-data:/data] map[/tmp:"},
		"read only":    {fmt.Sprint(c.HostConfig.ReadonlyRootfs, c.HostConfig.Privileged), "true false"},
		"program":      {fmt.Sprint(c.Config.Entrypoint, c.Config.Cmd), "[" + engine.Program + " 1.0.0] []"},
	} {
		if !strings.HasPrefix(got[0].(string), got[1].(string)) {
			t.Errorf("%s: %v, want %v", what, got[0], got[1])
		}
	}
	v2 := w.release("2.0.0", nil)
	w.run(v2, v1)
	if c := w.inspect("web"); len(c.HostConfig.Binds) > 0 || c.Config.Labels["team"] != "" || c.Config.User != "" || c.HostConfig.ReadonlyRootfs {
		t.Errorf("the container has settings of the version before: %+v %+v", c.Config, c.HostConfig)
	}
}

func TestTakenPortIsFoundBeforeAnythingIsStopped(t *testing.T) {
	w := newWorld(t)
	_, err := w.e.Client().NetworkCreate(t.Context(), "lan", client.NetworkCreateOptions{Driver: "bridge", IPAM: &network.IPAM{
		Config: []network.IPAMConfig{{Subnet: netip.MustParsePrefix("10.213.84.0/24")}}, // a free one, whatever the machine's are
	}})
	w.ok("docker network create", err)
	number, err := port.Free()
	w.ok("find a free port", err)
	l, err := net.Listen("tcp", net.JoinHostPort(port.Host, strconv.Itoa(number)))
	w.ok("listen", err)
	publish := func(container string) *runtime.Release {
		r := w.hosts.release(t, w.e, container, "1.0.0")
		r.Component.Settings["network"] = "lan"
		r.Component.Settings["ports"] = []map[string]any{{"host": number, "container": 80, "address": "127.0.0.1"}}
		return r
	}
	web := publish("web")
	w.says("Check", w.Check(t.Context(), web), fmt.Sprintf("ports[0]: %d/tcp is taken by a program of this host", number))
	w.ok("close", l.Close())
	w.run(web, nil)
	w.says("Check", w.Check(t.Context(), publish("other")), fmt.Sprintf("ports[0]: %d/tcp is taken by container web", number))
	w.ok("Check of the component that has the port", w.Check(t.Context(), web))
}

func TestHealthCheckDecidesWhetherItIsReady(t *testing.T) {
	w := newWorld(t)
	folder := t.TempDir()
	id := w.e.Image(t, `CMD ["1.0.0"]`, `HEALTHCHECK --interval=300ms --timeout=5s --retries=1 CMD ["`+engine.Program+`", "probe", "/state/ready"]`)
	r := w.release("1.0.0", map[string]any{"image": "muster.invalid/web@" + id, "mounts": []map[string]any{{"source": folder, "target": "/state"}}})
	w.run(r, nil)
	w.eventually(r, "why it is not ready", func(s runtime.Status) bool {
		return s.Running && !s.Ready && strings.Contains(s.Message, "unhealthy: stat /state/ready")
	})
	w.ok("become ready", os.WriteFile(filepath.Join(folder, "ready"), nil, 0o600))
	w.eventually(r, "that it is ready", func(s runtime.Status) bool { return s.Ready && s.Message == "" })
}

func TestConfigurationFileIsMountedOnceItIsWritten(t *testing.T) {
	w := newWorld(t)
	file := filepath.Join(t.TempDir(), "conf.d", "web.conf")
	r := w.release("1.0.0", map[string]any{"mounts": []map[string]any{{"source": file, "target": "/web.conf", "read_only": true}}})
	w.says("Check of a file that nobody writes", w.Check(t.Context(), r), "does not exist")
	r.Component.ConfigFiles = []manifest.ConfigFile{{Path: file, From: "web.conf"}}
	w.ok("Check", w.Check(t.Context(), r))
	w.ok("Install", w.Install(t.Context(), r, nil))
	w.says("Start without the file", w.Start(t.Context(), r), file+" does not exist")
	w.ok("write the file", errors.Join(os.MkdirAll(filepath.Dir(file), 0o755), os.WriteFile(file, nil, 0o644)))
	w.ok("Start", w.Start(t.Context(), r))
	r.Component.Reload = true
	w.says("Check", w.Check(t.Context(), r), "mount its folder")
}

func TestCheckTellsAnEngineThatIsAwayFromNone(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "docker.sock")
	a := newAdapter(t, Options{Host: "unix://" + socket})
	a.program = "no-program-of-an-engine"
	r := &runtime.Release{Name: "web", Dir: "/x", Home: "/x/data/web-1", Component: manifest.Component{Settings: map[string]any{
		"image": "web@sha256:" + strings.Repeat("ab", 32),
	}}}
	err := a.Check(t.Context(), r)
	if !errors.Is(err, runtime.ErrUnavailable) || errors.Is(err, runtime.ErrTransient) || !strings.Contains(err.Error(), "docker.sock") || !strings.Contains(err.Error(), "install Docker") {
		t.Errorf("Check on a host without an engine: %v", err)
	}
	if _, err := a.Status(t.Context(), r); !errors.Is(err, runtime.ErrTransient) {
		t.Errorf("Status: %v, want that it may succeed later", err)
	}
	away := func(what string) {
		t.Helper()
		err := a.Check(t.Context(), r)
		if !errors.Is(err, runtime.ErrTransient) || errors.Is(err, runtime.ErrUnavailable) || !strings.Contains(err.Error(), "the Docker engine is away") || !strings.Contains(err.Error(), "systemctl start docker") {
			t.Errorf("Check with %s: %v", what, err)
		}
	}
	a.program = os.Args[0]
	away("the program of an engine")
	a.program = "no-program-of-an-engine"
	if err := os.WriteFile(socket, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	away("the socket of an engine that was killed")
}

// The agent starts before the engine does, or while somebody has stopped it.
func TestEngineThatWasStoppedAtTheFirstCallIsFoundLater(t *testing.T) {
	e := engine.Start(t)
	w := &world{T: t, hosts: hosts{t.TempDir()}, Adapter: newAdapter(t, Options{Host: e.Host}), e: e}
	r := w.release("1.0.0", nil)
	w.ok("stop the engine", e.Stop())
	if err := w.Check(t.Context(), r); !errors.Is(err, runtime.ErrTransient) {
		t.Errorf("Check while it is stopped: %v, want that it may succeed later", err)
	}
	w.ok("start the engine", e.Start(t.Context()))
	w.ok("Check", w.Check(t.Context(), r))
	w.run(r, nil)
	w.eventually(r, "that it runs", func(s runtime.Status) bool { return s.Ready })
}

// The engine is restarted again and again while the agent upgrades: the agent repeats what
// failed, and comes through.
func TestUpgradesSurviveRestartsOfTheEngine(t *testing.T) {
	e := engine.Start(t)
	w := &world{T: t, hosts: hosts{t.TempDir()}, Adapter: newAdapter(t, Options{Host: e.Host}), e: e}
	to, from := w.release("2.0.0", nil), w.release("1.0.0", nil)
	w.run(from, nil)

	restarts := make(chan error, 1)
	go func() {
		var err error
		for i := 0; err == nil && i < 3; i++ {
			if err = e.Stop(); err == nil {
				err = e.Start(context.Background())
			}
			time.Sleep(300 * time.Millisecond) // some calls succeed
		}
		restarts <- err
	}()
	failures := 0
	repeat := func(what string, call func() error) {
		t.Helper()
		for deadline := time.Now().Add(patience); ; time.Sleep(10 * time.Millisecond) {
			err := call()
			if err == nil {
				return
			}
			failures++
			if time.Now().After(deadline) {
				t.Errorf("%s: %v", what, err)
				return
			}
		}
	}
	for running := true; running && !t.Failed(); {
		select {
		case err := <-restarts:
			w.ok("restart the engine", err)
			running = false
		default:
		}
		repeat("Stop", func() error { return w.Stop(t.Context(), from) })
		repeat("Install", func() error { return w.Install(t.Context(), to, from) })
		repeat("Start", func() error { return w.Start(t.Context(), to) })
		repeat("Keep", func() error { return w.Keep(t.Context(), to, from) })
		to, from = from, to
	}
	if t.Failed() {
		w.ok("restart the engine", <-restarts)
		return
	}
	w.eventually(from, "that the last version runs", func(s runtime.Status) bool { return s.Ready && s.Home == from.Home })
	w.names("web")
	if failures == 0 {
		t.Error("no call failed, so nothing was tested")
	}
	w.ok("stop the engine", e.Stop())
	for what, err := range map[string]error{
		"Stop": w.Stop(t.Context(), from), "Start": w.Start(t.Context(), from), "Install": w.Install(t.Context(), to, from),
		"Restore": w.Restore(t.Context(), to, from, ""), "Keep": w.Keep(t.Context(), to, from), "Remove": w.Remove(t.Context(), from),
		"Acquire": w.Acquire(t.Context(), to, func(float64) {}), "Verify": w.Verify(t.Context(), to),
	} {
		if !errors.Is(err, runtime.ErrTransient) {
			t.Errorf("%s without an engine: %v, want that it may succeed later", what, err)
		}
	}
}

// An engine that starts must not run what an upgrade has stopped, installed or set aside,
// and must run what was started.
func TestStoppedContainersStayStoppedWhenTheEngineStarts(t *testing.T) {
	w := newWorld(t)
	e := w.e
	var installed []*runtime.Release
	for _, policy := range []string{"always", "on-failure", "unless-stopped"} {
		v1, v2 := w.hosts.release(t, e, policy, "1.0.0"), w.hosts.release(t, e, policy, "2.0.0")
		v1.Component.Settings["restart"], v2.Component.Settings["restart"] = policy, policy
		// It ends with an error, for which on-failure restarts too.
		v1.Component.Settings["args"] = []string{"1.0.0", "broken"}
		w.run(v1, nil)
		w.eventually(v1, "a restart", func(s runtime.Status) bool { return s.Restarts > 0 })
		w.ok("Stop", w.Stop(t.Context(), v1))
		w.ok("Install", w.Install(t.Context(), v2, v1))
		installed = append(installed, v2)
	}
	w.ok("restart the engine", errors.Join(e.Stop(), e.Start(t.Context())))
	for _, r := range installed {
		for _, name := range []string{r.Name, r.Name + asideSuffix} {
			if c := w.inspect(name); c.State.Running || c.RestartCount > 0 && c.State.Restarting {
				t.Errorf("the engine has started %s", name)
			}
		}
		w.ok("Start", w.Start(t.Context(), r))
	}
	w.ok("restart the engine", errors.Join(e.Stop(), e.Start(t.Context())))
	for _, r := range installed {
		if r.Name != "on-failure" { // it ends without an error when the engine stops
			w.eventually(r, "that it runs", func(s runtime.Status) bool { return s.Ready })
		}
	}
}
