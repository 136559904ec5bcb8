// Package control serves operations that an operator calls on the server's own machine,
// such as `muster admin-key`, on a socket in the server's data folder. The operations
// need the running server, because the embedded store belongs to its process. Only the
// server's user and root may use the socket; see packaging/host/socket. The package has the
// client, too.
package control

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"time"

	"github.com/muster-fleet/muster/server/fleet"
)

const (
	// maxMessage bounds the bodies of requests and responses, which have some hundred
	// bytes.
	maxMessage = 64 << 10
	// serveTimeout bounds one request: a write waits for the store, which may be busy
	// for some seconds.
	serveTimeout = 30 * time.Second
)

// ErrNoServer means that no server serves the folder's socket.
var ErrNoServer = errors.New("no server runs on the data folder")

// Operations are the operations that the socket serves.
type Operations interface {
	CreateAdminKey(ctx context.Context, name string) (AdminKey, error)
	// CAPin returns the pin of the registered CA, empty if there is none, and removes
	// the registration if forget is set.
	CAPin(ctx context.Context, forget bool) (pin string, err error)
	Upgrades
}

// Upgrades are the operations on the upgrade of all servers.
type Upgrades interface {
	// BeginUpgrade begins an upgrade of all servers to a version.
	BeginUpgrade(ctx context.Context, to string, withoutBackup bool) (*fleet.ServerUpgrade, error)
	// UndoUpgrade undoes the upgrade that is under way.
	UndoUpgrade(ctx context.Context) (*fleet.ServerUpgrade, error)
	// Upgrade returns the upgrade that is under way or the last one, nil if there was none.
	Upgrade(ctx context.Context) (*fleet.ServerUpgrade, error)
}

// AdminKey is a new admin key. APIKey cannot be shown again.
type AdminKey struct {
	ID     string `json:"id"`
	Name   string `json:"name"`
	APIKey string `json:"api_key"`
}

type nameRequest struct {
	Name string `json:"name"`
}

type pinMessage struct {
	Forget bool   `json:"forget,omitempty"`
	Pin    string `json:"ca_pin,omitempty"`
}

type upgradeRequest struct {
	To            string `json:"to"`
	WithoutBackup bool   `json:"without_backup,omitempty"`
}

type empty struct{}

type upgradeMessage struct {
	Upgrade *fleet.ServerUpgrade `json:"upgrade"`
}

type failure struct {
	Message string `json:"message"`
}

const (
	adminKeysPath = "/v1/admin-keys"
	caPinPath     = "/v1/ca-pin"
	upgradePath   = "/v1/upgrade"
	beginPath     = "/v1/upgrade/begin"
	undoPath      = "/v1/upgrade/undo"
)

// Handler returns the socket's API.
func Handler(c Operations) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("POST "+adminKeysPath, handle(func(ctx context.Context, r nameRequest) (AdminKey, error) { return c.CreateAdminKey(ctx, r.Name) }))
	mux.HandleFunc("POST "+caPinPath, handle(func(ctx context.Context, r pinMessage) (pinMessage, error) {
		pin, err := c.CAPin(ctx, r.Forget)
		return pinMessage{Pin: pin}, err
	}))
	mux.HandleFunc("POST "+beginPath, handle(func(ctx context.Context, r upgradeRequest) (upgradeMessage, error) {
		u, err := c.BeginUpgrade(ctx, r.To, r.WithoutBackup)
		return upgradeMessage{u}, err
	}))
	mux.HandleFunc("POST "+undoPath, handle(func(ctx context.Context, _ empty) (upgradeMessage, error) {
		u, err := c.UndoUpgrade(ctx)
		return upgradeMessage{u}, err
	}))
	mux.HandleFunc("POST "+upgradePath, handle(func(ctx context.Context, _ empty) (upgradeMessage, error) {
		u, err := c.Upgrade(ctx)
		return upgradeMessage{u}, err
	}))
	return mux
}

func handle[In, Out any](do func(context.Context, In) (Out, error)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		var in In
		dec := json.NewDecoder(http.MaxBytesReader(w, r.Body, maxMessage))
		dec.DisallowUnknownFields()
		if err := dec.Decode(&in); err != nil {
			answer(w, http.StatusBadRequest, failure{"request body: " + err.Error()})
			return
		}
		out, err := do(r.Context(), in)
		if err != nil {
			answer(w, http.StatusUnprocessableEntity, failure{err.Error()})
			return
		}
		answer(w, http.StatusOK, out)
	}
}

func answer(w http.ResponseWriter, status int, v any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(v) // fails only if the client has disconnected
}

// Serve serves the socket in folder until stop is called. The caller must hold the lock
// on the folder's store: an existing socket then belongs to a server that was killed,
// and is replaced.
func Serve(folder string, c Operations, log *slog.Logger) (stop func(), err error) {
	l, err := listen(folder)
	if err != nil {
		return nil, fmt.Errorf("control socket: %w", err)
	}
	srv := &http.Server{
		Handler:           Handler(c),
		ReadHeaderTimeout: serveTimeout, ReadTimeout: serveTimeout, WriteTimeout: serveTimeout,
		ErrorLog: slog.NewLogLogger(log.Handler(), slog.LevelWarn),
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		if err := srv.Serve(l); !errors.Is(err, http.ErrServerClosed) {
			log.Error("control socket", "error", err)
		}
	}()
	return func() {
		_ = srv.Close() // closing the listener cannot lose data
		<-ended
	}, nil
}

// Client calls the server that runs on a data folder.
type Client struct{ http http.Client }

// Dial returns a client of the server that runs on folder, or ErrNoServer.
func Dial(ctx context.Context, folder string) (*Client, error) {
	conn, err := dial(ctx, folder)
	if err != nil {
		return nil, err
	}
	_ = conn.Close() // the server accepts connections
	return &Client{http.Client{Timeout: serveTimeout, Transport: &http.Transport{
		DisableKeepAlives: true,
		DialContext:       func(ctx context.Context, _, _ string) (net.Conn, error) { return dial(ctx, folder) },
	}}}, nil
}

// CreateAdminKey implements Operations.
func (c *Client) CreateAdminKey(ctx context.Context, name string) (k AdminKey, err error) {
	return k, c.call(ctx, adminKeysPath, nameRequest{name}, &k)
}

// CAPin implements Operations.
func (c *Client) CAPin(ctx context.Context, forget bool) (string, error) {
	var out pinMessage
	err := c.call(ctx, caPinPath, pinMessage{Forget: forget}, &out)
	return out.Pin, err
}

// BeginUpgrade implements Upgrades.
func (c *Client) BeginUpgrade(ctx context.Context, to string, withoutBackup bool) (*fleet.ServerUpgrade, error) {
	var out upgradeMessage
	err := c.call(ctx, beginPath, upgradeRequest{to, withoutBackup}, &out)
	return out.Upgrade, err
}

// UndoUpgrade implements Upgrades.
func (c *Client) UndoUpgrade(ctx context.Context) (*fleet.ServerUpgrade, error) {
	var out upgradeMessage
	err := c.call(ctx, undoPath, empty{}, &out)
	return out.Upgrade, err
}

// Upgrade implements Upgrades.
func (c *Client) Upgrade(ctx context.Context) (*fleet.ServerUpgrade, error) {
	var out upgradeMessage
	err := c.call(ctx, upgradePath, empty{}, &out)
	return out.Upgrade, err
}

func (c *Client) call(ctx context.Context, path string, in, out any) error {
	body, err := json.Marshal(in)
	if err != nil {
		return err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://server"+path, bytes.NewReader(body))
	if err != nil {
		return err
	}
	resp, err := c.http.Do(req)
	if err != nil {
		return fmt.Errorf("the server on this machine did not answer: %w", err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(io.LimitReader(resp.Body, maxMessage))
	if err != nil {
		return fmt.Errorf("the server on this machine did not answer: %w", err)
	}
	if resp.StatusCode == http.StatusOK {
		return json.Unmarshal(text, out)
	}
	var refusal failure
	if json.Unmarshal(text, &refusal) != nil || refusal.Message == "" {
		return fmt.Errorf("the server on this machine answered %s: is it of another version?", resp.Status)
	}
	return errors.New(refusal.Message)
}
