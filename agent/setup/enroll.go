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
	"github.com/muster-fleet/muster/packaging/manifest"
	"github.com/muster-fleet/muster/packaging/trust"
	"github.com/muster-fleet/muster/server/agentapi"
	"github.com/muster-fleet/muster/server/agentapi/capin"
)

// Enrollment is what an operator says to introduce a host to its server.
type Enrollment struct {
	URL   string
	Token string
	// CAPin is sha256:<hex> of the server's CA; empty means the host's roots.
	CAPin string
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
	return ParseKeys(e.TrustKeys)
}

func loopback(hostname string) bool {
	ip := net.ParseIP(hostname)
	return hostname == "localhost" || (ip != nil && ip.IsLoopback())
}

// ParseKeys reads publisher keys, each given as text or as the name of a file.
func ParseKeys(given []string) (trust.Keyring, error) {
	if len(given) == 0 {
		return nil, fmt.Errorf("%w: pass --trust-key with the publisher's public key, or this agent could never upgrade", trust.ErrNoKeys)
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

// Enroll introduces the host under top to a server and stores its identity.
// running is the version the agent will report.
func Enroll(ctx context.Context, d disk.Disk, top string, e Enrollment, running manifest.Identity, h host.Info) (*identity.Identity, error) {
	ring, err := e.check()
	if err != nil {
		return nil, err
	}
	id := identity.Identity{ServerURL: strings.TrimRight(e.URL, "/"), EnrolledAt: time.Now().UTC()}
	for _, k := range ring {
		id.TrustedKeys = append(id.TrustedKeys, k.String())
	}
	if err := pinCA(ctx, e, &id); err != nil {
		return nil, err
	}
	client, err := (gateway.Trust{CAPEM: id.CAPEM}).HTTPClient(id.ServerURL, nil)
	if err != nil {
		return nil, err
	}
	defer client.CloseIdleConnections()
	full := manifest.Package{Version: running.Version, Snapshot: running.Snapshot}.FullVersion()
	g := &gateway.Client{HTTP: client, URL: id.ServerURL, Version: full}
	resp, err := g.Enroll(ctx, e.Token, agentapi.EnrollRequest{
		Type: "PERMANENT",
		Metadata: agentapi.EnrollMetadata{
			Local: h.Metadata(host.Agent{Version: full, Snapshot: running.Snapshot, Build: running.String(), LogLevel: "info"}),
			Tags:  e.Tags,
		},
	})
	if err != nil {
		return nil, explainEnroll(err)
	}
	id.AgentID, id.APIKey = resp.Item.ID, resp.Item.AccessAPIKey
	if err := identity.Save(d, top, id); err != nil {
		return nil, err
	}
	return &id, nil
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
