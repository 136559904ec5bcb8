// Package probe defines the agent's health document and the client of its control socket,
// which the watcher and the agent's command line use.
package probe

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"path/filepath"
	"strings"
	"time"

	"github.com/muster-fleet/muster/packaging/host/socket"
	"github.com/muster-fleet/muster/packaging/pkg/manifest"
)

// State is the state of an agent or of a component.
type State string

const (
	Starting State = "starting"
	Healthy  State = "healthy"
	Degraded State = "degraded"
	Failed   State = "failed"
	Stopping State = "stopping"
)

// Health is the answer of GET /v1/health.
type Health struct {
	AgentID string `json:"agent_id"`
	manifest.Identity
	Home      string    `json:"home"` // versioned home, relative to the top folder
	PID       int       `json:"pid"`
	StartedAt time.Time `json:"started_at"`
	State     State     `json:"state"`
	Message   string    `json:"message,omitempty"`
	// Checks are the agent's checks of itself that fail. The agent is FAILED while it is at fault for one.
	Checks []Check `json:"checks,omitempty"`
	// Workloads are the components of the policy. They have versions of their own.
	Workloads []Workload `json:"workloads,omitempty"`
	Fleet     Fleet      `json:"fleet"`
	Upgrade   *Upgrade   `json:"upgrade,omitempty"`
	// Rollbacks are the versions that this host can be rolled back to, the newest first.
	Rollbacks []Rollback `json:"rollbacks,omitempty"`
	// Versions are those of the agent on this host: the one that runs, then the newest first.
	Versions []Version `json:"versions,omitempty"`
	// Staging is the stage in progress, or the last one when it did not succeed.
	Staging *Upgrade `json:"staging,omitempty"`
}

// Version is a version of the agent, or of a component, on the host.
type Version struct {
	Version string       `json:"version"` // full version
	Hash    string       `json:"hash"`
	State   VersionState `json:"state"`
	// Since is when it was staged or replaced.
	Since time.Time `json:"since,omitzero"`
	Bytes int64     `json:"bytes,omitempty"` // of its files
	// Until is until when the host can be rolled back to it.
	Until time.Time `json:"until,omitzero"`
	// Problem is why the version cannot be started; empty if it can.
	Problem string `json:"problem,omitempty"`
}

// Build returns the version as its folder is named, 1.1.0-3f2a9c, which distinguishes two builds of it.
func (v Version) Build() string { return build(v.Version, v.Hash) }

// Is reports whether name means this version; see [manifest.Identity.Is].
func (v Version) Is(name string) bool { return name == v.Version || name == v.Build() }

func build(version, hash string) string {
	return manifest.Identity{Version: version, Hash: hash}.String()
}

// VersionState is the state of a version on the host.
type VersionState string

const (
	VersionRunning  VersionState = "running"  // of a component: installed
	VersionPrevious VersionState = "previous" // it ran, and was good
	VersionStaged   VersionState = "staged"   // it has not run since it was unpacked
)

// Rollback is a version that the host can be rolled back to.
type Rollback struct {
	Version    string    `json:"version"` // full version
	Hash       string    `json:"hash,omitempty"`
	ValidUntil time.Time `json:"valid_until"`
	// Problem is why the version cannot be started; empty if it can.
	Problem string `json:"problem,omitempty"`
}

// Build is [Version.Build].
func (r Rollback) Build() string { return build(r.Version, r.Hash) }

// Check is a check of the agent by itself that fails.
type Check struct {
	Name    string    `json:"name"` // disk, queue, settings, runtime docker
	Problem string    `json:"problem"`
	Since   time.Time `json:"since"`
	// AtFault means that, as far as the agent can say, it fails because of the agent and not of its host.
	AtFault bool `json:"at_fault,omitempty"`
}

// Workload is a component of the policy.
type Workload struct {
	Name    string `json:"name"`
	Runtime string `json:"runtime"`
	// ManagedBy restarts it when it ends: muster-agent, systemd, docker.
	ManagedBy string `json:"managed_by"`
	Version   string `json:"version,omitempty"` // installed; empty: none
	State     State  `json:"state"`
	Message   string `json:"message,omitempty"`
	// LastHealthyVersion is the last one that ended its observation well; Rollbacks are the
	// versions that are kept.
	LastHealthyVersion string     `json:"last_healthy_version,omitempty"`
	Rollbacks          []string   `json:"rollbacks,omitempty"`
	Restarts           int        `json:"restarts,omitempty"`
	Since              *time.Time `json:"since,omitempty"`
	// FailedSince is since when it does not run, or ends again and again, although nobody stopped it and
	// its runtime answers; zero: it has not failed.
	FailedSince time.Time `json:"failed_since,omitzero"`
	Folder      string    `json:"folder"`
	Upgrade     *Upgrade  `json:"upgrade,omitempty"`
	// Versions and Staging are as those of the agent itself in Health.
	Versions []Version `json:"versions,omitempty"`
	Staging  *Upgrade  `json:"staging,omitempty"`
}

// WorkloadEvent is one upgrade of a component in its history.
type WorkloadEvent struct {
	At    time.Time `json:"at"`
	ID    string    `json:"id"`
	From  string    `json:"from,omitempty"` // empty: none was installed
	To    string    `json:"to"`
	Error string    `json:"error,omitempty"`
}

// Fleet is the agent's link to its server.
type Fleet struct {
	URL   string `json:"url,omitempty"`
	State State  `json:"state"`
	// LastCheckin is when the server last answered a check-in, or when a poll was sent
	// that is still open; nil before the first.
	LastCheckin *time.Time `json:"last_checkin,omitempty"`
	Error       string     `json:"error,omitempty"`
	// FailedTries is how many check-ins have failed since then, and LastStatus the HTTP
	// status of the last of them, 0 if there was no answer. By them
	// the watcher decides whether the agent or the server is at fault.
	FailedTries int `json:"failed_tries,omitempty"`
	LastStatus  int `json:"last_status,omitempty"`
}

// Upgrade is an upgrade in progress, or the last one when it did not succeed.
type Upgrade struct {
	ActionID      string `json:"action_id,omitempty"`
	TargetVersion string `json:"target_version"`
	State         string `json:"state"`           // as on the wire: UPG_DOWNLOADING, …
	Phase         string `json:"phase,omitempty"` // of a component: PREPARING, …
	// Percent and BytesPerSecond are set while downloading.
	Percent        float64 `json:"percent,omitempty"` // 0 to 100
	BytesPerSecond float64 `json:"bytes_per_second,omitempty"`
	Message        string  `json:"message,omitempty"`
}

// UpgradeRequest is the body of POST /v1/upgrade, which requests an upgrade on the host. The
// answer is 202 if it is accepted and 409 while another upgrade runs.
type UpgradeRequest struct {
	// Component is the component to upgrade, which must be a Rollback; empty: the agent itself.
	Component string `json:"component,omitempty"`
	// Version is a full version, or for a Rollback of the agent also a build, as Version.Build returns it.
	Version   string `json:"version"`
	SourceURI string `json:"source_uri,omitempty"`
	// Force installs a version even if it was rolled back on this host.
	Force bool `json:"force,omitempty"`
	// Rollback switches to a version that is on the host, without a download. Without a
	// Version it is the previous one.
	Rollback bool `json:"rollback,omitempty"`
}

// StageRequest is the body of POST /v1/stage, which requests that a version is fetched, verified
// and unpacked. The answers are those to an [UpgradeRequest].
type StageRequest struct {
	// Component is the component of the version; empty: the agent itself.
	Component string `json:"component,omitempty"`
	Version   string `json:"version"`
	SourceURI string `json:"source_uri,omitempty"`
	// Force stages a version even if it was rolled back on this host.
	Force bool `json:"force,omitempty"`
}

// ReleaseRequest has a component whose upgrade in lockstep waits go on, or undone, without its
// server.
type ReleaseRequest struct {
	Component string `json:"component"`
	// Undo undoes the upgrade; otherwise it goes on to its end, or a component that is held is
	// started.
	Undo bool `json:"undo,omitempty"`
}

// RemoveRequest is the body of POST /v1/versions/remove, which removes a version from the host.
// The answer is 200 when it is removed, and 409 while another one is installed or watched.
type RemoveRequest struct {
	// Component is the component of the version; empty: the agent itself.
	Component string `json:"component,omitempty"`
	Version   string `json:"version"`
}

// socketName is the control socket's name in the top folder.
const socketName = "muster-agent.sock"

// SocketPath returns the path of the control socket of the agent under top.
func SocketPath(top string) string { return filepath.Join(top, socketName) }

// Dialer opens a connection to an agent's control socket.
type Dialer func(ctx context.Context) (net.Conn, error)

// DialSocket returns the Dialer for the agent under top.
func DialSocket(top string) Dialer {
	return func(ctx context.Context) (net.Conn, error) { return socket.Dial(ctx, SocketPath(top)) }
}

// Timeout bounds one request. The agent answers from memory, far faster than this.
const Timeout = time.Second

// SlowTimeout bounds a request for output, which the agent asks a runtime for, and the removal
// of a version from the disk.
const SlowTimeout = 5 * time.Second

// maxBody bounds an answer in bytes: a health document with a thousand components has some
// 200 KB.
const maxBody = 1 << 20

// Client is a client of an agent's control socket.
type Client struct {
	// Dial is required.
	Dial Dialer
}

// ErrNotRunning is returned if no agent listens on the control socket.
var ErrNotRunning = errors.New("the agent is not running")

// Health requests the health document.
func (c Client) Health(ctx context.Context) (Health, error) {
	var h Health
	return h, c.do(ctx, http.MethodGet, "/v1/health", nil, &h)
}

// MaxLogLines bounds the lines of a component's output in one answer.
const MaxLogLines = 1000

// Logs requests the last lines of a component's output, oldest first.
func (c Client) Logs(ctx context.Context, component string, lines int) ([]string, error) {
	var out []string
	return out, c.do(ctx, http.MethodGet, fmt.Sprintf("/v1/components/%s/logs?lines=%d", url.PathEscape(component), lines), nil, &out)
}

// History requests the last upgrades of a component, oldest first.
func (c Client) History(ctx context.Context, component string) ([]WorkloadEvent, error) {
	var out []WorkloadEvent
	return out, c.do(ctx, http.MethodGet, "/v1/components/"+url.PathEscape(component)+"/history", nil, &out)
}

// Upgrade requests an upgrade.
func (c Client) Upgrade(ctx context.Context, r UpgradeRequest) error {
	return c.do(ctx, http.MethodPost, "/v1/upgrade", r, nil)
}

// Stage requests that a version is staged.
func (c Client) Stage(ctx context.Context, r StageRequest) error {
	return c.do(ctx, http.MethodPost, "/v1/stage", r, nil)
}

// Release releases a component from its lockstep.
func (c Client) Release(ctx context.Context, r ReleaseRequest) error {
	return c.do(ctx, http.MethodPost, "/v1/components/release", r, nil)
}

// Remove removes a version from the host.
func (c Client) Remove(ctx context.Context, r RemoveRequest) error {
	return c.do(ctx, http.MethodPost, "/v1/versions/remove", r, nil)
}

func (c Client) do(ctx context.Context, method, path string, in, out any) error {
	limit := Timeout
	if strings.Contains(path, "/logs") || strings.HasSuffix(path, "/remove") {
		limit = SlowTimeout
	}
	ctx, cancel := context.WithTimeout(ctx, limit)
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
