// Package setup installs an agent on a host, enrols it with its server, and uninstalls
// it. The command line calls it; the running agent does not. After an error the host is
// as before.
package setup

import (
	"bytes"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"strings"
	"time"

	"github.com/muster-fleet/muster/agent/config"
	"github.com/muster-fleet/muster/agent/gateway"
	"github.com/muster-fleet/muster/agent/host"
	"github.com/muster-fleet/muster/agent/identity"
	"github.com/muster-fleet/muster/packaging/host/disk"
	"github.com/muster-fleet/muster/packaging/host/layout"
	"github.com/muster-fleet/muster/packaging/pkg/manifest"
	"github.com/muster-fleet/muster/packaging/pkg/trust"
	"github.com/muster-fleet/muster/packaging/pkg/trust/tuf"
	"github.com/muster-fleet/muster/server/wire/agentapi"
	"github.com/muster-fleet/muster/server/wire/agentapi/capin"
	"github.com/muster-fleet/muster/watcher/beacon"
)

// Enrollment holds an operator's input for the enrolment of a host.
type Enrollment struct {
	URL   string
	Token string
	// TokenFile is where Token is from, if from a file: see ReadToken.
	TokenFile string
	// CAPin is sha256:<hex> of the server's CA; empty means the host's roots.
	CAPin string
	// TrustRoot is sha256:<hex> of the publishers' root file, which is fetched from
	// the server, or the name of such a file.
	TrustRoot string
	Tags      []string
}

// check makes the checks that need no network.
func (e Enrollment) check() error {
	u, err := url.Parse(e.URL)
	switch {
	case err != nil || u.Host == "" || (u.Scheme != "https" && u.Scheme != "http"):
		return fmt.Errorf("--url is %q, want https://host:port", e.URL)
	case u.Scheme == "http" && !gateway.IsLoopback(u.Hostname()):
		return fmt.Errorf("--url is %q: the token and the agent's key would travel in the clear, use https", e.URL)
	case e.Token == "":
		return errors.New("no enrollment token: pass --token-file, or set MUSTER_ENROLLMENT_TOKEN")
	case !isToken(e.Token):
		return fmt.Errorf("%s is no enrollment token: copy it whole, or make another with `muster keys create`", e.tokenFlag())
	}
	if e.CAPin != "" {
		if _, err := capin.Parse(e.CAPin); err != nil {
			return fmt.Errorf("--ca-pin: %w", err)
		}
	}
	return checkRoot(e.TrustRoot)
}

// checkRoot checks the form of --trust-root.
func checkRoot(trustRoot string) error {
	if trustRoot == "" {
		return fmt.Errorf("%w: pass --trust-root with the digest of the publishers' root, as muster keys create prints it, or this agent could never upgrade", trust.ErrNoPublisher)
	}
	if strings.HasPrefix(trustRoot, "sha256:") {
		if err := tuf.CheckDigest(trustRoot); err != nil {
			return fmt.Errorf("--trust-root: %w", err)
		}
	}
	return nil
}

// tokenFlag names the flag that the token is from, for messages.
func (e Enrollment) tokenFlag() string {
	if e.TokenFile != "" {
		return "--token-file"
	}
	return "--token"
}

// maxTokenFile bounds what is read of the file of a token, which has some 60 bytes. The flag may
// name another file by mistake.
const maxTokenFile = 4 << 10

// ReadToken returns the enrollment token in a file, or in standard input if the name is "-".
func ReadToken(stdin io.Reader, name string) (string, error) {
	from := stdin
	if name != "-" {
		f, err := os.Open(name)
		if err != nil {
			return "", fmt.Errorf("--token-file: %w", err)
		}
		defer f.Close()
		from = f
	}
	text, err := io.ReadAll(io.LimitReader(from, maxTokenFile+1))
	token := strings.TrimSpace(string(text))
	switch {
	case err != nil:
		return "", fmt.Errorf("--token-file: %w", err)
	case token == "":
		return "", fmt.Errorf("--token-file: %s is empty: want an enrollment token", name)
	case len(text) > maxTokenFile:
		return "", fmt.Errorf("--token-file: %s has more than %d bytes, and an enrollment token fewer", name, maxTokenFile)
	}
	return token, nil
}

// isToken reports whether a text has the form of an enrollment token, base64(id:secret).
func isToken(s string) bool {
	b, err := base64.StdEncoding.DecodeString(s)
	return err == nil && bytes.Contains(b, []byte(":"))
}

// enrollmentSession is an enrolment after the server and the publishers' root have been
// fetched and verified. It has changed nothing on the host yet.
type enrollmentSession struct {
	Enrollment
	id     identity.Identity
	root   []byte
	server *gateway.Client
	// keepTrust means that whom the host trusts stays as it is.
	keepTrust bool
}

// prepare fetches what the operator has specified by digest.
func (e Enrollment) prepare(ctx context.Context) (*enrollmentSession, error) {
	if err := e.check(); err != nil {
		return nil, err
	}
	s := &enrollmentSession{Enrollment: e, id: identity.Identity{ServerURL: strings.TrimRight(e.URL, "/")}}
	if err := pinCA(ctx, e, &s.id); err != nil {
		return nil, err
	}
	client, err := (gateway.Trust{CAPEM: s.id.CAPEM}).HTTPClient(s.id.ServerURL)
	if err != nil {
		return nil, err
	}
	s.server = &gateway.Client{HTTP: client, URL: s.id.ServerURL}
	if s.root, err = readRoot(ctx, s.server.TrustFile, e.TrustRoot); err != nil {
		defer s.close()
		if s.isAdminPort(ctx) {
			return nil, s.wrongPort()
		}
		if errors.Is(err, tuf.ErrNotServed) {
			return nil, fmt.Errorf("--trust-root: %w; a Fleet Server has no such files: pass the publishers' root file itself", err)
		}
		return nil, fmt.Errorf("--trust-root: %w", err)
	}
	return s, nil
}

func (s *enrollmentSession) close() { s.server.HTTP.CloseIdleConnections() }

// readRoot reads the root of --trust-root, which names a file, or the digest of one that get
// fetches.
func readRoot(ctx context.Context, get tuf.Fetch, trustRoot string) ([]byte, error) {
	if !strings.HasPrefix(trustRoot, "sha256:") {
		return os.ReadFile(trustRoot)
	}
	return tuf.FetchRoot(ctx, get, trustRoot)
}

// pin pins the root on this host, and returns the authority that verifies packages.
func (s *enrollmentSession) pin(d disk.Disk, top string) (trust.Authority, error) {
	dir := layout.Path(top, layout.TrustDir)
	if err := tuf.Pin(d, dir, s.root); err != nil {
		return nil, fmt.Errorf("--trust-root: %w", err)
	}
	return &tuf.Client{Disk: d, Dir: dir, Fetch: s.server.TrustFile}, nil
}

// Enroll enrols the host under top with a server and stores its identity.
// running is the version the agent will report.
func Enroll(ctx context.Context, d disk.Disk, top string, e Enrollment, running manifest.Identity, h host.Info) (*identity.Identity, error) {
	s, err := e.prepare(ctx)
	if err != nil {
		return nil, err
	}
	defer s.close()
	id, err := s.enroll(ctx, d, top, running, h)
	if err != nil {
		return nil, err
	}
	return id, identity.EndEnrollment(d, top)
}

// enroll enrols the host. The enrolment has not ended afterwards: the caller ends it once nothing
// undoes it any more.
func (s *enrollmentSession) enroll(ctx context.Context, d disk.Disk, top string, running manifest.Identity, h host.Info) (*identity.Identity, error) {
	full := running.FullVersion()
	cfg, err := config.Load(d, top)
	if err != nil {
		return nil, err
	}
	s.server.Version, s.server.NamedVersion = full, cfg.Server.UserAgentVersion
	pending, err := identity.BeginEnrollment(d, top, h.ID)
	if err != nil {
		return nil, err
	}
	resp, err := s.server.Enroll(ctx, s.Token, agentapi.EnrollRequest{
		Type: "PERMANENT", EnrollmentID: pending.EnrollmentID,
		Metadata: agentapi.EnrollMetadata{
			Local: h.Metadata(host.Agent{Version: full, Snapshot: running.Snapshot, Build: running.String(), LogLevel: "info"}),
			Tags:  s.Tags,
		},
	})
	if err != nil && mayHaveEnrolled(err) {
		return nil, fmt.Errorf("%w; the server may have enrolled this host nevertheless: run the same command again, and it replaces that agent", s.explain(ctx, err))
	}
	if err != nil {
		err = s.explain(ctx, err)
		if pending.Begun {
			err = errors.Join(err, identity.EndEnrollment(d, top))
		}
		return nil, err
	}
	if !s.keepTrust {
		if _, err := s.pin(d, top); err != nil {
			return nil, err
		}
	}
	id := s.id
	id.MachineID = h.ID
	id.AgentID, id.APIKey, id.EnrolledAt = resp.Item.ID, resp.Item.AccessAPIKey, time.Now().UTC()
	if err := saveWatcher(d, top, id, resp.Item.WatcherAPIKey); err != nil {
		return nil, err
	}
	if err := identity.Save(d, top, id); err != nil {
		return nil, err
	}
	return &id, nil
}

// mayHaveEnrolled reports whether a server may have enrolled the host, so that only its answer was
// lost: all but a refusal.
func mayHaveEnrolled(err error) bool {
	var refusal *gateway.StatusError
	return !errors.As(err, &refusal) || refusal.HTTPStatus/100 == 5
}

// saveWatcher stores the watcher's own credential. A Fleet Server issues none, and then
// the watcher sends no reports.
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

// explain names the flag that an error of the enrolment is about.
func (s *enrollmentSession) explain(ctx context.Context, err error) error {
	var refusal *gateway.StatusError
	switch {
	case !errors.As(err, &refusal):
		return err
	case refusal.HTTPStatus == http.StatusNotFound, s.isAdminPort(ctx):
		return s.wrongPort()
	case refusal.HTTPStatus == http.StatusUnauthorized, refusal.HTTPStatus == http.StatusForbidden:
		return fmt.Errorf("%s: %w", s.tokenFlag(), err)
	}
	return err
}

// isAdminPort reports whether the server refuses a status request without a key, as admin
// APIs do and agents' ports do not.
func (s *enrollmentSession) isAdminPort(ctx context.Context) bool {
	_, err := s.server.Status(ctx)
	var refusal *gateway.StatusError
	return errors.As(err, &refusal) && refusal.HTTPStatus/100 == 4 && refusal.HTTPStatus != http.StatusTooManyRequests
}

func (s *enrollmentSession) wrongPort() error {
	return fmt.Errorf("--url: %s is not the port for agents: pass that one, 8220 unless configured otherwise; the admin API and the web UI have another", s.id.ServerURL)
}
