// Package setup brings an agent onto a host, introduces it to its server, and
// takes it away again. The command line calls it; the running agent does not.
// Whatever fails, the host is left as it was.
package setup

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"os"
	"strings"
	"time"

	"github.com/muster-fleet/muster/agent/gateway"
	"github.com/muster-fleet/muster/agent/host"
	"github.com/muster-fleet/muster/agent/identity"
	"github.com/muster-fleet/muster/packaging/disk"
	"github.com/muster-fleet/muster/packaging/layout"
	"github.com/muster-fleet/muster/packaging/manifest"
	"github.com/muster-fleet/muster/packaging/trust"
	"github.com/muster-fleet/muster/packaging/trust/tuf"
	"github.com/muster-fleet/muster/server/agentapi"
	"github.com/muster-fleet/muster/server/agentapi/capin"
	"github.com/muster-fleet/muster/watcher/beacon"
)

// Enrollment is what an operator says to introduce a host to its server.
type Enrollment struct {
	URL   string
	Token string
	// CAPin is sha256:<hex> of the server's CA; empty means the host's roots.
	CAPin string
	// TrustRoot is sha256:<hex> of the publishers' root file, which the server
	// has, or the name of a file that is one. It outweighs TrustKeys.
	TrustRoot string
	// TrustKeys are publisher keys, or names of files that hold one.
	TrustKeys []string
	Tags      []string
}

// check finds what can be known to be wrong without asking anybody.
func (e Enrollment) check() (trust.Keyring, error) {
	u, err := url.Parse(e.URL)
	switch {
	case err != nil || u.Host == "" || (u.Scheme != "https" && u.Scheme != "http"):
		return nil, fmt.Errorf("--url is %q, want https://host:port", e.URL)
	case u.Scheme == "http" && !loopback(u.Hostname()):
		return nil, fmt.Errorf("--url is %q: the token and the agent's key would travel in the clear, use https", e.URL)
	case e.Token == "":
		return nil, errors.New("no enrollment token: pass --token, or set MUSTER_ENROLLMENT_TOKEN")
	}
	if e.CAPin != "" {
		if _, err := capin.Parse(e.CAPin); err != nil {
			return nil, fmt.Errorf("--ca-pin: %w", err)
		}
	}
	if e.TrustRoot == "" {
		return ParseKeys(e.TrustKeys)
	}
	if strings.HasPrefix(e.TrustRoot, "sha256:") {
		if err := tuf.CheckDigest(e.TrustRoot); err != nil {
			return nil, fmt.Errorf("--trust-root: %w", err)
		}
	}
	return nil, nil
}

func loopback(hostname string) bool {
	ip := net.ParseIP(hostname)
	return hostname == "localhost" || (ip != nil && ip.IsLoopback())
}

// ParseKeys reads publisher keys, each given as text or as the name of a file.
func ParseKeys(given []string) (trust.Keyring, error) {
	if len(given) == 0 {
		return nil, fmt.Errorf("%w: pass --trust-root, or --trust-key with the publisher's public key, or this agent could never upgrade", trust.ErrNoKeys)
	}
	texts := make([]string, len(given))
	for i, g := range given {
		texts[i] = g
		if data, err := os.ReadFile(g); err == nil {
			texts[i] = string(data)
		}
	}
	ring, err := trust.ParseKeyring(texts)
	if err != nil {
		return nil, fmt.Errorf("--trust-key: %w", err)
	}
	return ring, nil
}

// session is an enrolment whose server and publishers are known, and that
// has changed nothing yet.
type session struct {
	Enrollment
	id     identity.Identity
	ring   trust.Keyring // of hosts without a root
	root   []byte
	server *gateway.Client
}

// prepare asks the server for what the operator has named by digest.
func (e Enrollment) prepare(ctx context.Context) (*session, error) {
	ring, err := e.check()
	if err != nil {
		return nil, err
	}
	s := &session{Enrollment: e, ring: ring, id: identity.Identity{ServerURL: strings.TrimRight(e.URL, "/")}}
	for _, k := range ring {
		s.id.TrustedKeys = append(s.id.TrustedKeys, k.String())
	}
	if err := pinCA(ctx, e, &s.id); err != nil {
		return nil, err
	}
	client, err := (gateway.Trust{CAPEM: s.id.CAPEM}).HTTPClient(s.id.ServerURL, nil)
	if err != nil {
		return nil, err
	}
	s.server = &gateway.Client{HTTP: client, URL: s.id.ServerURL}
	if e.TrustRoot != "" {
		if s.root, err = s.fetchRoot(ctx); err != nil {
			s.close()
			return nil, fmt.Errorf("--trust-root: %w", err)
		}
	}
	return s, nil
}

func (s *session) close() { s.server.HTTP.CloseIdleConnections() }

func (s *session) fetchRoot(ctx context.Context) ([]byte, error) {
	if !strings.HasPrefix(s.TrustRoot, "sha256:") {
		return os.ReadFile(s.TrustRoot)
	}
	return tuf.FetchRoot(ctx, s.server.TrustFile, s.TrustRoot)
}

// pin makes the root the one this host believes, and gives who then decides what
// may be installed.
func (s *session) pin(d disk.Disk, top string) (trust.Authority, error) {
	dir := layout.Path(top, layout.TrustDir)
	if s.root == nil {
		// What an earlier enrolment trusted must not decide any more.
		return s.ring, d.RemoveAll(opEnroll, dir)
	}
	if err := tuf.Pin(d, dir, s.root); err != nil {
		return nil, fmt.Errorf("--trust-root: %w", err)
	}
	return &tuf.Client{Disk: d, Dir: dir, Fetch: s.server.TrustFile}, nil
}

const opEnroll = "enroll"

// Enroll introduces the host under top to a server and stores its identity.
// running is the version the agent will report.
func Enroll(ctx context.Context, d disk.Disk, top string, e Enrollment, running manifest.Identity, h host.Info) (*identity.Identity, error) {
	s, err := e.prepare(ctx)
	if err != nil {
		return nil, err
	}
	defer s.close()
	return s.enroll(ctx, d, top, running, h)
}

func (s *session) enroll(ctx context.Context, d disk.Disk, top string, running manifest.Identity, h host.Info) (*identity.Identity, error) {
	full := manifest.Package{Version: running.Version, Snapshot: running.Snapshot}.FullVersion()
	s.server.Version = full
	resp, err := s.server.Enroll(ctx, s.Token, agentapi.EnrollRequest{
		Type: "PERMANENT",
		Metadata: agentapi.EnrollMetadata{
			Local: h.Metadata(host.Agent{Version: full, Snapshot: running.Snapshot, Build: running.String(), LogLevel: "info"}),
			Tags:  s.Tags,
		},
	})
	if err != nil {
		return nil, explainEnroll(err)
	}
	if _, err := s.pin(d, top); err != nil {
		return nil, err
	}
	id := s.id
	id.AgentID, id.APIKey, id.EnrolledAt = resp.Item.ID, resp.Item.AccessAPIKey, time.Now().UTC()
	if err := saveWatcher(d, top, id, resp.Item.WatcherAPIKey); err != nil {
		return nil, err
	}
	if err := identity.Save(d, top, id); err != nil {
		return nil, err
	}
	return &id, nil
}

// saveWatcher stores the watcher's own credential. A Fleet Server gives none: its
// hosts send no beacons.
func saveWatcher(d disk.Disk, top string, id identity.Identity, key string) error {
	if key == "" {
		return beacon.Remove(d, top)
	}
	return beacon.Save(d, top, beacon.Identity{
		AgentID: id.AgentID, APIKey: key, ServerURL: id.ServerURL, CAPEM: id.CAPEM, CAFingerprint: id.CAFingerprint,
	})
}

func pinCA(ctx context.Context, e Enrollment, id *identity.Identity) error {
	if e.CAPin == "" || strings.HasPrefix(id.ServerURL, "http://") {
		return nil
	}
	pin, err := capin.Parse(e.CAPin)
	if err != nil {
		return err
	}
	id.CAFingerprint = pin
	id.CAPEM, err = (gateway.Trust{Fingerprint: pin}).FetchCA(ctx, id.ServerURL)
	return err
}

func explainEnroll(err error) error {
	var refusal *gateway.StatusError
	if !errors.As(err, &refusal) {
		return err
	}
	switch refusal.HTTPStatus {
	case http.StatusUnauthorized, http.StatusForbidden:
		return fmt.Errorf("%w: the enrollment token was not accepted; it may be mistyped or revoked, make a new one on the server", err)
	case http.StatusNotFound:
		return fmt.Errorf("%w: nothing enrols agents at this URL; it is the agents' port (8220 by default) that is wanted", err)
	}
	return err
}
