package docker

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/moby/moby/api/types/container"
	"github.com/moby/moby/client"

	"github.com/muster-fleet/muster/agent/runtime"
)

// limbo stands between an adapter and the engine, and says of one container what the engine says of
// those that it removes, or has failed to remove.
type limbo struct {
	mu     sync.Mutex
	id     string
	state  container.ContainerState
	until  time.Time // when a removal in progress is done
	stuck  bool      // a removal fails
	engine *client.Client
}

func newLimbo(w *world) *limbo {
	l := &limbo{engine: w.e.Client()}
	target, _ := url.Parse("http://engine")
	proxy := &httputil.ReverseProxy{
		Rewrite: func(r *httputil.ProxyRequest) { r.SetURL(target) },
		Transport: &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, "unix", strings.TrimPrefix(w.e.Host, "unix://"))
		}},
		ModifyResponse: l.mark,
	}
	socket := filepath.Join(w.TempDir(), "s")
	listener, err := new(net.ListenConfig).Listen(w.Context(), "unix", socket)
	w.ok("listen", err)
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(out http.ResponseWriter, r *http.Request) {
		if status, text := l.refuses(r); status != 0 {
			out.Header().Set("Content-Type", "application/json")
			out.WriteHeader(status)
			_ = json.NewEncoder(out).Encode(map[string]string{"message": text})
			return
		}
		proxy.ServeHTTP(out, r)
	}))
	server.Listener = listener
	server.Start()
	w.Cleanup(server.Close)
	w.Adapter = newAdapter(w.T, Options{Host: "unix://" + socket})
	return l
}

// hold makes the engine say of a container that it is in a state.
func (l *limbo) hold(id string, state container.ContainerState, stuck bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.id, l.state, l.stuck, l.until = id, state, stuck, time.Now().Add(2*time.Second)
}

// refuses returns what the engine answers to a request that such a container does not allow.
func (l *limbo) refuses(r *http.Request) (status int, text string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.id == "" || !strings.Contains(r.URL.Path, l.id) {
		return 0, ""
	}
	switch {
	case r.Method == http.MethodPost && (strings.HasSuffix(r.URL.Path, "/start") || strings.HasSuffix(r.URL.Path, "/update")):
		return http.StatusConflict, "container is marked for removal and cannot be started or updated"
	case r.Method == http.MethodDelete && l.stuck:
		return http.StatusInternalServerError, "unlinkat: device or resource busy"
	case r.Method == http.MethodDelete && l.state == container.StateRemoving:
		if time.Now().After(l.until) {
			break
		}
		time.AfterFunc(time.Until(l.until), func() {
			_, _ = l.engine.ContainerRemove(r.Context(), l.id, client.ContainerRemoveOptions{Force: true})
		})
		return http.StatusConflict, "removal of container " + l.id + " is already in progress"
	}
	return 0, ""
}

// mark puts the state into the engine's description of the container.
func (l *limbo) mark(resp *http.Response) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.id == "" || !strings.HasSuffix(resp.Request.URL.Path, "/json") || resp.StatusCode != http.StatusOK {
		return nil
	}
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		return err
	}
	var is map[string]any
	if err := json.Unmarshal(text, &is); err == nil && is["Id"] == l.id {
		state := is["State"].(map[string]any)
		state["Status"], state["Running"], state["Paused"], state["Dead"] = l.state, false, false, l.state == container.StateDead
		if text, err = json.Marshal(is); err != nil {
			return err
		}
	}
	resp.Body = io.NopCloser(bytes.NewReader(text))
	resp.ContentLength = int64(len(text))
	resp.Header.Set("Content-Length", strconv.Itoa(len(text)))
	return nil
}

// Whatever state the container of the version before is in, an upgrade, going back, and starting it
// again lead to a container that runs.
func TestEveryStateOfAContainerHasAWayOn(t *testing.T) {
	w := newWorld(t)
	l := newLimbo(w)
	ctx := t.Context()
	old, next := w.release("1.0.0", nil), w.release("2.0.0", nil)
	act := func(what string, do func(id string) error) func(*world) {
		return func(w *world) { w.ok(what, do(w.inspect("web").ID)) }
	}
	states := map[string]func(*world){
		"created": func(w *world) {
			w.ok("Stop", w.Stop(ctx, old))
			_, err := w.e.Client().ContainerRemove(ctx, "web", client.ContainerRemoveOptions{Force: true})
			w.ok("docker rm", err)
			w.ok("Install", w.Install(ctx, old, nil))
		},
		"running": func(*world) {},
		"paused": act("docker pause", func(id string) error {
			_, err := w.e.Client().ContainerPause(ctx, id, client.ContainerPauseOptions{})
			return err
		}),
		"exited": act("docker kill", func(id string) error {
			_, err := w.e.Client().ContainerStop(ctx, id, client.ContainerStopOptions{})
			return err
		}),
		"restarting": func(w *world) {
			w.ok("kill its program", syscall.Kill(w.inspect("web").State.Pid, syscall.SIGKILL))
		},
		"gone": act("docker rm", func(id string) error {
			_, err := w.e.Client().ContainerRemove(ctx, id, client.ContainerRemoveOptions{Force: true})
			return err
		}),
		"removing":       act("hold", func(id string) error { l.hold(id, container.StateRemoving, false); return nil }),
		"dead":           act("hold", func(id string) error { l.hold(id, container.StateDead, false); return nil }),
		"dead for good":  act("hold", func(id string) error { l.hold(id, container.StateDead, true); return nil }),
		"stuck removing": act("hold", func(id string) error { l.hold(id, container.StateRemoving, true); return nil }),
	}
	// What the API has, by its own list.
	_, all, _ := strings.Cut(container.ValidateContainerState("none").Error(), "must be one of ")
	for _, state := range strings.Split(all, ", ") {
		if states[state] == nil {
			t.Errorf("the table lacks the state %q of the engine's API", state)
		}
	}
	ways := map[string]func(*world){
		"upgrade": func(w *world) {
			w.run(next, old)
			w.eventually(next, "the new version", func(s runtime.Status) bool { return s.Ready && s.Home == next.Home })
		},
		"upgrade that is undone": func(w *world) {
			w.run(next, old)
			w.ok("Stop", w.Stop(ctx, next))
			w.ok("Restore", w.Restore(ctx, next, old, w.TempDir()))
			w.ok("Start", w.Start(ctx, old))
			w.eventually(old, "the old version", func(s runtime.Status) bool { return s.Ready && s.Home == old.Home })
		},
		"start": func(w *world) {
			if ok, err := w.Installed(ctx, old); err == nil && !ok {
				w.ok("Install", w.Install(ctx, old, nil))
			}
			w.ok("Start", w.Start(ctx, old))
			w.eventually(old, "the old version", func(s runtime.Status) bool { return s.Ready && s.Home == old.Home })
		},
	}
	for way, on := range ways {
		for state, enter := range states {
			t.Run(way+" from "+state, func(t *testing.T) {
				w := &world{T: t, hosts: w.hosts, Adapter: w.Adapter, e: w.e}
				l.hold("", "", false)
				w.ok("Clear", w.e.Clear(ctx))
				w.run(old, nil)
				enter(w)
				on(w)
			})
		}
	}
	l.hold("", "", false)
	w.ok("Clear", w.e.Clear(ctx))
}
