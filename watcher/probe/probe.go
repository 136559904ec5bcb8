// Package probe is how an agent's health is asked for on its own host: the
// health document, and the client for the control socket the agent serves it
// on. The watcher and the agent's command line ask; the agent answers.
package probe

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"time"

	"github.com/muster-fleet/muster/packaging/manifest"
)

// State is how well an agent, or a component of it, is.
type State string

const (
	Starting State = "starting"
	Healthy  State = "healthy"
	Degraded State = "degraded"
	Failed   State = "failed"
	Stopping State = "stopping"
)

// Health is the document GET /v1/health answers.
type Health struct {
	AgentID string `json:"agent_id"`
	manifest.Identity
	Home      string    `json:"home"` // versioned home, relative to the top folder
	PID       int       `json:"pid"`
	StartedAt time.Time `json:"started_at"`
	State     State     `json:"state"`
	Message   string    `json:"message,omitempty"`
	// Components are the workloads the agent runs.
	Components []Component `json:"components,omitempty"`
	Fleet      Fleet       `json:"fleet"`
	Upgrade    *Upgrade    `json:"upgrade,omitempty"`
	// Rollbacks are the kept versions this host could go back to.
	Rollbacks []Rollback `json:"rollbacks,omitempty"`
}

// Rollback is a kept version and whether the host is ready to go back to it.
type Rollback struct {
	Version    string    `json:"version"` // full version
	ValidUntil time.Time `json:"valid_until"`
	// Problem is why it could not be started; empty when it is ready.
	Problem string `json:"problem,omitempty"`
}

// Component is one workload.
type Component struct {
	ID      string `json:"id"`
	Type    string `json:"type"`
	State   State  `json:"state"`
	Message string `json:"message,omitempty"`
}

// Fleet is the agent's link to its server.
type Fleet struct {
	URL   string `json:"url,omitempty"`
	State State  `json:"state"`
	// LastCheckin is when the server last answered a check-in, also one that
	// is parked; nil before the first.
	LastCheckin *time.Time `json:"last_checkin,omitempty"`
	Error       string     `json:"error,omitempty"`
	// FailedTries is how many check-ins in a row have failed since then, and
	// LastStatus the HTTP status the last of them was refused with: 0 where no
	// answer came. The watcher tells by them whose the trouble is.
	FailedTries int `json:"failed_tries,omitempty"`
	LastStatus  int `json:"last_status,omitempty"`
}

// Upgrade is an upgrade in progress, or the last one when it did not succeed.
type Upgrade struct {
	ActionID      string `json:"action_id,omitempty"`
	TargetVersion string `json:"target_version"`
	State         string `json:"state"` // as on the wire: UPG_DOWNLOADING, …
	// Percent and BytesPerSecond are set while downloading.
	Percent        float64 `json:"percent,omitempty"` // 0 to 100
	BytesPerSecond float64 `json:"bytes_per_second,omitempty"`
	Message        string  `json:"message,omitempty"`
}

// UpgradeRequest is the body of POST /v1/upgrade: an upgrade asked for on the
// host itself. It is answered 202 when accepted, 409 while another one runs.
type UpgradeRequest struct {
	Version   string `json:"version"`
	SourceURI string `json:"source_uri,omitempty"`
	// Force installs a version although it was rolled back on this host.
	Force bool `json:"force,omitempty"`
	// Rollback goes back to a kept version instead: nothing is downloaded.
	// Version may then be empty, for the one there is.
	Rollback bool `json:"rollback,omitempty"`
}

// socketName is the control socket's name in the top folder.
const socketName = "muster-agent.sock"

// maxSocketPath is what the systems allow in sockaddr_un, the smallest (macOS:
// 104 bytes with the final zero) for all.
const maxSocketPath = 103

// SocketPath is the control socket of the agent installed under top (an absolute
// path). Where that path is too long for a socket it lies in the system's
// temporary folder, under a name made from top.
func SocketPath(top string) string {
	p := filepath.Join(top, socketName)
	if len(p) <= maxSocketPath {
		return p
	}
	sum := sha256.Sum256([]byte(top))
	return filepath.Join(os.TempDir(), "muster-agent-"+hex.EncodeToString(sum[:8])+".sock")
}

// Dialer opens a connection to an agent's control socket.
type Dialer func(ctx context.Context) (net.Conn, error)

// DialSocket returns the Dialer for the agent under top.
func DialSocket(top string) Dialer {
	path := SocketPath(top)
	return func(ctx context.Context) (net.Conn, error) {
		var d net.Dialer
		return d.DialContext(ctx, "unix", path)
	}
}

// Timeout bounds one question. The agent answers from memory, so a second means
// that it is not answering at all.
const Timeout = time.Second

// maxBody bounds what is read of an answer: a health document with a thousand
// components has some 200 KB.
const maxBody = 1 << 20

// Client asks one agent.
type Client struct {
	// Dial is required.
	Dial Dialer
}

// ErrNotRunning says that nobody listens on the control socket.
var ErrNotRunning = errors.New("the agent is not running")

// Health asks for the health document.
func (c Client) Health(ctx context.Context) (Health, error) {
	var h Health
	return h, c.do(ctx, http.MethodGet, "/v1/health", nil, &h)
}

// Upgrade asks the agent to upgrade itself.
func (c Client) Upgrade(ctx context.Context, r UpgradeRequest) error {
	return c.do(ctx, http.MethodPost, "/v1/upgrade", r, nil)
}

func (c Client) do(ctx context.Context, method, path string, in, out any) error {
	ctx, cancel := context.WithTimeout(ctx, Timeout)
	defer cancel()
	var body io.Reader
	if in != nil {
		b, err := json.Marshal(in)
		if err != nil {
			return err
		}
		body = bytes.NewReader(b)
	}
	req, err := http.NewRequestWithContext(ctx, method, "http://agent"+path, body)
	if err != nil {
		return err
	}
	conn, err := c.Dial(ctx)
	if err != nil {
		return fmt.Errorf("%w: %w", ErrNotRunning, err)
	}
	tr := &http.Transport{
		DisableKeepAlives: true,
		DialContext:       func(context.Context, string, string) (net.Conn, error) { return conn, nil },
	}
	defer conn.Close()
	resp, err := tr.RoundTrip(req)
	if err != nil {
		return fmt.Errorf("control socket: %s %s: %w", method, path, err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(io.LimitReader(resp.Body, maxBody))
	if err != nil {
		return fmt.Errorf("control socket: %s %s: %w", method, path, err)
	}
	if resp.StatusCode >= 300 {
		var e struct {
			Message string `json:"message"`
		}
		if json.Unmarshal(b, &e) != nil || e.Message == "" {
			e.Message = resp.Status
		}
		return errors.New(e.Message)
	}
	if out == nil {
		return nil
	}
	if err := json.Unmarshal(b, out); err != nil {
		return fmt.Errorf("control socket: %s: %w", path, err)
	}
	return nil
}
