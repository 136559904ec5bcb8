package beacon

import (
	"bytes"
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/muster-fleet/muster/packaging/host/layout"
	"github.com/muster-fleet/muster/server/wire/agentapi"
	"github.com/muster-fleet/muster/server/wire/agentapi/capin"
)

const (
	// sendTimeout bounds one beacon: three SYN retries on a lossy link, as for
	// the agent's own connections.
	sendTimeout = 10 * time.Second

	// maxAnswer bounds the body of an error in bytes.
	maxAnswer = 4 << 10
)

// maxRetryAfter bounds a server's Retry-After, so that the server gets a report within the
// default grace.
const maxRetryAfter = 5 * time.Minute

// Client sends beacons to one server.
type Client struct {
	id      Identity
	http    *http.Client
	version string
}

// NewClient returns the client for id. version is the watcher's own. If dial is nil the
// client uses the network.
func NewClient(id Identity, version string, dial func(ctx context.Context, network, addr string) (net.Conn, error)) (*Client, error) {
	if err := id.validate(); err != nil {
		return nil, err
	}
	config, err := id.tlsConfig()
	if err != nil {
		return nil, err
	}
	return &Client{id: id, version: version, http: &http.Client{
		Transport: &http.Transport{
			Proxy:           id.Network.ProxyFor,
			DialContext:     dial,
			TLSClientConfig: config,
			// Each beacon makes a new connection, as a new agent does. An idle
			// connection could work when new ones fail.
			DisableKeepAlives: true,
		},
		// A redirect would send the key to another server.
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}}, nil
}

func (id Identity) tlsConfig() (*tls.Config, error) {
	config := &tls.Config{MinVersion: tls.VersionTLS12}
	switch {
	case id.CAPEM != "":
		config.RootCAs = x509.NewCertPool()
		if !config.RootCAs.AppendCertsFromPEM([]byte(id.CAPEM)) {
			return nil, fmt.Errorf("%s: ca_pem: holds no certificate", layout.WatcherIdentityFile)
		}
	case id.CAFingerprint != "":
		u, err := url.Parse(id.ServerURL)
		if err != nil {
			return nil, err
		}
		return capin.TLSConfig(id.CAFingerprint, u.Hostname())
	default:
		var err error
		if config.RootCAs, err = id.Network.Roots(); err != nil {
			return nil, fmt.Errorf("%s: network: ca_pem: %w", layout.WatcherIdentityFile, err)
		}
	}
	return config, nil
}

// URL is the server's base URL.
func (c *Client) URL() string { return c.id.ServerURL }

// RefusedError is an error answer of the server.
type RefusedError struct {
	HTTPStatus int
	Message    string
	// RetryAfter is the answer's Retry-After; zero if it has none.
	RetryAfter time.Duration
}

func (e *RefusedError) Error() string {
	return fmt.Sprintf("server answered %d: %s", e.HTTPStatus, cmp.Or(e.Message, http.StatusText(e.HTTPStatus)))
}

// Send sends one beacon within sendTimeout.
func (c *Client) Send(ctx context.Context, b agentapi.Beacon) error {
	ctx, cancel := context.WithTimeout(ctx, sendTimeout)
	defer cancel()
	body, err := json.Marshal(b)
	if err != nil {
		return err
	}
	path := strings.ReplaceAll(agentapi.PathBeacon, "{id}", url.PathEscape(c.id.AgentID))
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, strings.TrimRight(c.id.ServerURL, "/")+path, bytes.NewReader(body))
	if err != nil {
		return err
	}
	req.Header.Set("User-Agent", "Muster Watcher v"+c.version)
	req.Header.Set(agentapi.HeaderAPIVersion, agentapi.APIVersion)
	req.Header.Set("Authorization", "ApiKey "+c.id.APIKey)
	req.Header.Set("Content-Type", "application/json")
	resp, err := c.http.Do(req)
	if err != nil {
		return err // names the method and the URL
	}
	defer resp.Body.Close()
	answer, _ := io.ReadAll(io.LimitReader(resp.Body, maxAnswer)) // only for the message
	if resp.StatusCode >= 200 && resp.StatusCode < 300 {
		return nil
	}
	refusal := &RefusedError{HTTPStatus: resp.StatusCode, RetryAfter: retryAfter(resp.Header)}
	var e agentapi.Error
	if json.Unmarshal(answer, &e) == nil {
		refusal.Message = e.Message
	}
	return refusal
}

// retryAfter parses the header Retry-After in seconds, the form that servers use.
func retryAfter(h http.Header) time.Duration {
	seconds, err := strconv.Atoi(h.Get("Retry-After"))
	if err != nil || seconds < 0 {
		return 0
	}
	return time.Duration(min(seconds, int(maxRetryAfter/time.Second))) * time.Second
}
