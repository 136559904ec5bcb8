// Package control serves an agent's control socket: its health, for the watcher and the
// command line, and upgrades and stages that are requested on the host. The client is package
// watcher/probe. Only the agent's user and root may use the socket; see package socket.
package control

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"github.com/muster-fleet/muster/agent/request"
	"github.com/muster-fleet/muster/packaging/host/socket"
	"github.com/muster-fleet/muster/watcher/probe"
)

const (
	// maxRequest bounds a request body; a real one has some hundred bytes.
	maxRequest = 64 << 10
	// answerTimeout bounds one request and its answer. Clients wait one second.
	answerTimeout = 5 * time.Second
	// staleTimeout is how long to wait for an agent behind an existing socket.
	staleTimeout = time.Second
)

// Server answers on the control socket.
type Server struct {
	// Health must not wait for network or disk.
	Health func() probe.Health
	// Upgrade accepts an upgrade; an error that is [request.ErrBusy] becomes 409, any
	// other 400.
	Upgrade func(probe.UpgradeRequest) error
	// Stage accepts a stage, and Remove removes a version. Their errors are as those of Upgrade.
	Stage  func(probe.StageRequest) error
	Remove func(probe.RemoveRequest) error
	// Release lets an upgrade in lockstep go on, or undoes it. Its errors become 400.
	Release func(probe.ReleaseRequest) error
	// Logs returns the last lines of a component's output, and History its last upgrades.
	// Their errors become 404.
	Logs    func(ctx context.Context, component string, lines int) ([]string, error)
	History func(component string) ([]probe.WorkloadEvent, error)
	Log     *slog.Logger
}

// Serve answers on l until ctx ends.
func (s *Server) Serve(ctx context.Context, l net.Listener) error {
	srv := &http.Server{
		Handler:           s.Handler(),
		ReadHeaderTimeout: answerTimeout,
		ReadTimeout:       answerTimeout,
		WriteTimeout:      answerTimeout,
		ErrorLog:          slog.NewLogLogger(s.log().Handler(), slog.LevelWarn),
	}
	stop := context.AfterFunc(ctx, func() { srv.Close() })
	defer stop()
	if err := srv.Serve(l); !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("control socket: %w", err)
	}
	return nil
}

// Handler returns the handler of the socket's API.
func (s *Server) Handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /v1/health", func(w http.ResponseWriter, _ *http.Request) {
		answer(w, http.StatusOK, s.Health())
	})
	mux.HandleFunc("POST /v1/upgrade", func(w http.ResponseWriter, r *http.Request) { accept(w, r, http.StatusAccepted, s.Upgrade) })
	mux.HandleFunc("POST /v1/stage", func(w http.ResponseWriter, r *http.Request) { accept(w, r, http.StatusAccepted, s.Stage) })
	mux.HandleFunc("POST /v1/versions/remove", func(w http.ResponseWriter, r *http.Request) { accept(w, r, http.StatusOK, s.Remove) })
	mux.HandleFunc("POST /v1/components/release", func(w http.ResponseWriter, r *http.Request) { accept(w, r, http.StatusAccepted, s.Release) })
	mux.HandleFunc("GET /v1/components/{name}/logs", s.logs)
	mux.HandleFunc("GET /v1/components/{name}/history", func(w http.ResponseWriter, r *http.Request) {
		events, err := s.History(r.PathValue("name"))
		answerOr(w, events, err)
	})
	return mux
}

func (s *Server) logs(w http.ResponseWriter, r *http.Request) {
	lines, err := strconv.Atoi(r.URL.Query().Get("lines"))
	if err != nil || lines < 1 || lines > probe.MaxLogLines {
		refuse(w, http.StatusBadRequest, fmt.Errorf("lines: is %q, want 1 to %d", r.URL.Query().Get("lines"), probe.MaxLogLines))
		return
	}
	ctx, cancel := context.WithTimeout(r.Context(), answerTimeout)
	defer cancel()
	out, err := s.Logs(ctx, r.PathValue("name"), lines)
	answerOr(w, out, err)
}

func answerOr(w http.ResponseWriter, v any, err error) {
	if err != nil {
		refuse(w, http.StatusNotFound, err)
		return
	}
	answer(w, http.StatusOK, v)
}

// accept passes the request's body to f, and answers with status if it is accepted.
func accept[T any](w http.ResponseWriter, r *http.Request, status int, f func(T) error) {
	var req T
	dec := json.NewDecoder(http.MaxBytesReader(w, r.Body, maxRequest))
	dec.DisallowUnknownFields()
	if err := dec.Decode(&req); err != nil {
		refuse(w, http.StatusBadRequest, fmt.Errorf("request body: %w", err))
		return
	}
	err := f(req)
	switch {
	case err == nil:
		answer(w, status, struct{}{})
	case errors.Is(err, request.ErrBusy):
		refuse(w, http.StatusConflict, err)
	default:
		refuse(w, http.StatusBadRequest, err)
	}
}

func refuse(w http.ResponseWriter, status int, err error) {
	answer(w, status, map[string]string{"message": err.Error()})
}

func answer(w http.ResponseWriter, status int, v any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(v) // fails only if the client has gone
}

func (s *Server) log() *slog.Logger {
	if s.Log != nil {
		return s.Log
	}
	return slog.New(slog.DiscardHandler)
}

// Listen opens the control socket of the agent under top. It replaces a socket file that
// a dead agent left, but not one that is served.
func Listen(top string) (net.Listener, error) {
	path := probe.SocketPath(top)
	if fi, err := os.Lstat(path); err == nil {
		if fi.Mode().Type() != fs.ModeSocket {
			return nil, fmt.Errorf("control socket: %s is there and is not a socket: remove it", path)
		}
		ctx, cancel := context.WithTimeout(context.Background(), staleTimeout)
		defer cancel()
		if c, err := socket.Dial(ctx, path); err == nil {
			c.Close()
			return nil, fmt.Errorf("control socket: an agent already answers on %s", path)
		}
		if err := os.Remove(path); err != nil {
			return nil, fmt.Errorf("control socket: %w", err)
		}
	}
	l, err := socket.Listen(path, StagingDir(top))
	if err != nil {
		return nil, fmt.Errorf("control socket: %w", err)
	}
	return l, nil
}

// StagingDir returns the folder in which the socket of the agent under top is created.
// An agent that is killed meanwhile leaves it behind, so its name is the same each time.
// The name is short because a socket in it must not have a longer path than the agent's
// own, which may be of maximum length.
func StagingDir(top string) string {
	path := probe.SocketPath(top)
	sum := sha256.Sum256([]byte(path))
	return filepath.Join(filepath.Dir(path), "."+hex.EncodeToString(sum[:3]))
}
