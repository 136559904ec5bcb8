package gateway

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"syscall"
	"time"

	"github.com/muster-fleet/muster/packaging/host/network"
	"github.com/muster-fleet/muster/server/wire/agentapi/capin"
)

const (
	// dialTimeout: three SYN retries on a lossy link.
	dialTimeout = 10 * time.Second
	// idleTimeout is below Fleet Server's 35 s, so that a poll is not sent on a
	// connection the server is just closing.
	idleTimeout = 30 * time.Second
	// cachedSessions: one for the server, one for a TLS proxy.
	cachedSessions = 2
)

// Trust determines which certificate authority must have issued the server's
// certificate. The host name is verified in every case.
type Trust struct {
	// CAPEM is the authority's certificate; it takes precedence over Fingerprint.
	CAPEM string
	// Fingerprint is sha256:<hex> of the authority's certificate in DER form.
	// The server must send that certificate in its chain.
	Fingerprint string
	// Network has the proxy, and authorities for a server that neither of them pins.
	Network network.Settings
	// Dial connects; nil uses the network.
	Dial func(ctx context.Context, network, addr string) (net.Conn, error)
}

// HTTPClient returns a client for the server at rawURL. It speaks HTTP/1.1, with which a parked poll
// costs the server a fifth less than with HTTP/2 and needs no goroutine there.
func (t Trust) HTTPClient(rawURL string) (*http.Client, error) {
	u, err := url.Parse(rawURL)
	if err != nil || u.Host == "" {
		return nil, fmt.Errorf("server URL is %q, want https://host:port", rawURL)
	}
	cfg, err := t.tlsConfig(u.Hostname())
	if err != nil {
		return nil, err
	}
	// A resumed session spares the server a signature, which matters when a whole fleet
	// reconnects at once. The certificate was verified when the session began, with this
	// same configuration.
	cfg.ClientSessionCache = tls.NewLRUClientSessionCache(cachedSessions)
	dial := t.Dial
	if dial == nil {
		dial = (&net.Dialer{Timeout: dialTimeout}).DialContext
	}
	return &http.Client{
		Transport: &http.Transport{
			Proxy:               t.Network.ProxyFor,
			DialContext:         dial,
			TLSClientConfig:     cfg,
			TLSHandshakeTimeout: dialTimeout,
			IdleConnTimeout:     idleTimeout,
		},
		CheckRedirect: noRedirect,
	}, nil
}

// noRedirect refuses redirects: they would send the agent's key to another server.
func noRedirect(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }

func (t Trust) tlsConfig(host string) (*tls.Config, error) {
	cfg := &tls.Config{MinVersion: tls.VersionTLS12}
	switch {
	case t.CAPEM != "":
		cfg.RootCAs = x509.NewCertPool()
		if !cfg.RootCAs.AppendCertsFromPEM([]byte(t.CAPEM)) {
			return nil, errors.New("ca_pem: holds no certificate")
		}
	case t.Fingerprint != "":
		return capin.TLSConfig(t.Fingerprint, host)
	default:
		var err error
		if cfg.RootCAs, err = t.Network.Roots(); err != nil {
			return nil, fmt.Errorf("network.ca_pem: %w", err)
		}
	}
	return cfg, nil
}

// FetchCA connects once and returns the pinned certificate in PEM, so that the server
// need not send it with later connections.
func (t Trust) FetchCA(ctx context.Context, rawURL string) (string, error) {
	pem, err := capin.Fetch(ctx, rawURL, t.Fingerprint)
	if err != nil {
		return "", explain(err, rawURL)
	}
	return pem, nil
}

// unreachable is a network error with a text for operators.
type unreachable struct {
	text string
	err  error
}

func (u *unreachable) Error() string { return u.text }
func (u *unreachable) Unwrap() error { return u.err }

// explain adds the cause and the next step to the errors that a new installation meets.
func explain(err error, server string) error {
	var (
		unknown  x509.UnknownAuthorityError
		name     x509.HostnameError
		expired  x509.CertificateInvalidError
		notFound *net.DNSError
		notTLS   tls.RecordHeaderError
		network  net.Error
	)
	var text string
	switch {
	case errors.Is(err, context.Canceled):
		return err
	case errors.Is(err, capin.ErrMismatch):
		text = "its certificate does not come from the pinned CA: compare --ca-pin with the one the server printed at its start; if they differ, this is not your server"
	case errors.As(err, &unknown):
		text = "this host does not know its CA: pass --ca-pin with the fingerprint the server printed"
	case errors.As(err, &name):
		text = "its certificate is not for " + name.Host + ": use a name or address the certificate is for"
	case errors.As(err, &expired):
		text = "its certificate is not valid now: check the clock of this host and the server's certificate"
	case errors.As(err, &notTLS):
		text = "it does not speak TLS: check the port"
	case errors.As(err, &notFound):
		text = "no host has this name: check the URL"
	case errors.Is(err, syscall.ECONNREFUSED):
		text = "nothing listens there: check the port, and that the server runs"
	case errors.Is(err, context.DeadlineExceeded), errors.As(err, &network) && network.Timeout():
		text = "no answer in time: check the address and firewalls"
	default:
		return fmt.Errorf("server %s: %w", server, err)
	}
	return &unreachable{"server " + server + ": " + text, err}
}
