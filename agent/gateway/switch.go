package gateway

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"strings"
	"sync"

	"github.com/muster-fleet/muster/server/wire/agentapi"
)

// Switch is the transport to an agent's server, which can move. Requests to the server's
// first address go to where it is now, so that nobody else needs to know.
type Switch struct {
	trust Trust
	base  *url.URL

	mu      sync.Mutex
	current *url.URL
	client  *http.Client // with the transport to current
}

// Switch returns a transport to the server at rawURL.
func (t Trust) Switch(rawURL string) (*Switch, error) {
	s := &Switch{trust: t}
	if err := s.Move(rawURL); err != nil {
		return nil, err
	}
	s.base = s.current
	return s, nil
}

// Client returns a client that uses the switch.
func (s *Switch) Client() *http.Client {
	return &http.Client{Transport: s, CheckRedirect: noRedirect}
}

// URL returns where the server is now.
func (s *Switch) URL() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.current.String()
}

// Move sends the following requests to rawURL, with the same rules for certificates.
func (s *Switch) Move(rawURL string) error {
	c, err := s.trust.HTTPClient(rawURL)
	if err != nil {
		return err
	}
	u, err := url.Parse(strings.TrimRight(rawURL, "/"))
	if err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.client != nil {
		s.client.CloseIdleConnections() // polls that are open there end by themselves
	}
	s.current, s.client = u, c
	return nil
}

// Try returns an error unless a server of the protocol answers at rawURL. It sends no
// credentials.
func (s *Switch) Try(ctx context.Context, rawURL string) error {
	c, err := s.trust.HTTPClient(rawURL)
	if err != nil {
		return err
	}
	defer c.CloseIdleConnections()
	_, err = (&Client{HTTP: c, URL: rawURL}).Status(ctx)
	return err
}

// Home asks the server at rawURL where the agent of c belongs, with the same rules for certificates;
// see [Client.Home].
func (s *Switch) Home(ctx context.Context, c *Client, rawURL string) (agentapi.Home, error) {
	h, err := s.trust.HTTPClient(rawURL)
	if err != nil {
		return agentapi.Home{}, err
	}
	defer h.CloseIdleConnections()
	return (&Client{HTTP: h, URL: rawURL, AgentID: c.AgentID, APIKey: c.APIKey, Version: c.Version}).Home(ctx)
}

// CheckHost returns an error unless a policy may move an agent to rawURL. http would show
// the agent's key to the network; on loopback it shows it to other programs of the host, so
// an agent goes there only from another such address.
func (s *Switch) CheckHost(rawURL string) error {
	u, err := url.Parse(rawURL)
	switch {
	case err != nil:
		return errors.New("is no URL: want https://host:port") // err may hold a password
	case u.User != nil:
		return errors.New("holds a user or a password: want https://host:port")
	case u.Scheme == "https" && u.Host != "":
		return nil
	case u.Scheme == "http" && IsLoopback(u.Hostname()) && s.base.Scheme == "http" && IsLoopback(s.base.Hostname()):
		return nil
	}
	return fmt.Errorf("is %q: want https://host:port", rawURL)
}

// IsLoopback reports whether the host name of a URL is this host's own.
func IsLoopback(hostname string) bool {
	ip := net.ParseIP(hostname)
	return hostname == "localhost" || (ip != nil && ip.IsLoopback())
}

// RoundTrip implements [http.RoundTripper].
func (s *Switch) RoundTrip(r *http.Request) (*http.Response, error) {
	s.mu.Lock()
	to, transport := s.current, s.client.Transport
	s.mu.Unlock()
	if to != s.base && r.URL.Scheme == s.base.Scheme && r.URL.Host == s.base.Host {
		r = r.Clone(r.Context())
		r.URL.Scheme, r.URL.Host, r.Host = to.Scheme, to.Host, ""
		r.URL.Path = to.Path + strings.TrimPrefix(r.URL.Path, s.base.Path)
		r.URL.RawPath = ""
	}
	return transport.RoundTrip(r)
}

// CloseIdleConnections is called by [http.Client.CloseIdleConnections].
func (s *Switch) CloseIdleConnections() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.client.CloseIdleConnections()
}
