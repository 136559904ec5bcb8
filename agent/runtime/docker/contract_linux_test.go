package docker

import (
	"context"
	"errors"
	"net/http"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"

	"github.com/muster-fleet/muster/agent/primitive/primitivetest"
	"github.com/muster-fleet/muster/agent/runtime"
	"github.com/muster-fleet/muster/agent/runtime/runtimetest"
	"github.com/muster-fleet/muster/packaging/host/disk"
	"github.com/muster-fleet/muster/packaging/host/layout"
	"github.com/muster-fleet/muster/packaging/pkg/manifest"
	engine "github.com/muster-fleet/muster/testing/kit/docker"
)

func TestMain(m *testing.M) { os.Exit(engine.With(m)) }

// newAdapter returns the adapter of an agent that starts now.
func newAdapter(t *testing.T, o Options) *Adapter {
	t.Helper()
	a, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := a.Close(); err != nil {
			t.Error(err)
		}
	})
	return a
}

// hosts makes releases of components below a folder of the test.
type hosts struct{ top string }

// release returns a version of a component. Its program prints the version.
func (h hosts) release(t *testing.T, e *engine.Engine, component, version string) *runtime.Release {
	t.Helper()
	dir := filepath.Join(h.top, component)
	r := &runtime.Release{
		Name: component, Dir: dir, Home: filepath.Join(dir, layout.DataDir, component+"-"+version+"-3f2a9c"),
		Identity: manifest.Identity{Version: version, Hash: "3f2a9c"},
		Component: manifest.Component{Name: component, Runtime: Name, Settings: map[string]any{
			// It is in no registry.
			"image": "muster.invalid/web@" + e.Image(t, `CMD ["`+version+`"]`), "network": "none", "stop_timeout": "5s",
		}},
	}
	if err := os.MkdirAll(r.Home, 0o755); err != nil {
		t.Fatal(err)
	}
	return r
}

func TestContract(t *testing.T) { runtimetest.Run(t, newHost) }

func TestActionsThatAreInterrupted(t *testing.T) { primitivetest.Run(t, newHost) }

func newHost(t *testing.T) runtimetest.Host {
	e := engine.Shared(t)
	h := hosts{t.TempDir()}
	release := func(component, version string, args ...string) *runtime.Release {
		r := h.release(t, e, component, version)
		if len(args) > 0 {
			r.Component.Settings["args"] = args
		}
		return r
	}
	refused := func(setting string, value any) *runtime.Release {
		r := release("web", "1.0.0")
		r.Component.Settings[setting] = value
		return r
	}
	return runtimetest.Host{
		Agent: func() runtime.Adapter { return newAdapter(t, Options{Host: e.Host}) },
		PowerCut: func() {
			err := e.PowerCut()
			for _, component := range []string{"web", "database", "reloads"} { // they are in the host's memory
				err = errors.Join(err, (&runtime.Release{Dir: filepath.Join(h.top, component)}).RemoveStarted(disk.OS{}))
			}
			if err := errors.Join(err, e.Start(context.Background())); err != nil {
				t.Fatal(err)
			}
		},
		Dying:   func(n int) (runtime.Adapter, func() bool) { return dying(t, e, n) },
		Release: func(component, version string) *runtime.Release { return release(component, version) },
		Broken: func(component, version string) *runtime.Release {
			return release(component, version, version, "broken")
		},
		Refused: map[string]*runtime.Release{
			"it has no digest":                   refused("image", "docker.io/library/nginx:1.27"),
			"settings.privileged: is no setting": refused("privileged", true),
			"network lan does not exist":         refused("network", "lan"),
			"/no/such/folder does not exist":     refused("mounts", []map[string]any{{"source": "/no/such/folder", "target": "/data"}}),
		},
	}
}

// dying returns the adapter of an agent that is killed at its n-th request that changes
// something. One that is killed at a request that only reads leaves the same behind.
func dying(t *testing.T, e *engine.Engine, n int) (runtime.Adapter, func() bool) {
	var changes atomic.Int64
	a := newAdapter(t, Options{Host: e.Host, Hook: func(req *http.Request) error {
		if req.Method != http.MethodGet && req.Method != http.MethodHead {
			changes.Add(1)
		}
		if changes.Load() >= int64(n) {
			return errors.New("the agent was killed")
		}
		return nil
	}})
	return a, func() bool { return changes.Load() >= int64(n) }
}
