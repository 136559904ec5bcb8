// Package capin lets a host authenticate its server before it has any certificate, by
// the fingerprint (pin) of the server's certificate authority. The server prints the
// pin, and an operator copies it. Agents and the command line verify it; to allow that,
// the server includes the authority's certificate in every handshake.
package capin

import (
	"context"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"encoding/hex"
	"encoding/pem"
	"errors"
	"fmt"
	"net"
	"net/url"
	"strings"
	"time"
)

// ErrMismatch means that the server does not have the pinned authority.
var ErrMismatch = errors.New("the server's certificate does not come from the pinned CA")

// Parse parses a pin, sha256:<64 hexadecimal digits>, and returns its canonical form.
func Parse(s string) (string, error) {
	digits, ok := strings.CutPrefix(strings.ToLower(strings.TrimSpace(s)), "sha256:")
	digits = strings.ReplaceAll(digits, ":", "")
	if b, err := hex.DecodeString(digits); !ok || err != nil || len(b) != sha256.Size {
		return "", fmt.Errorf("CA pin is %q, want sha256: and 64 hexadecimal digits, as the server prints it", s)
	}
	return "sha256:" + digits, nil
}

// Of returns the pin of a certificate in DER.
func Of(der []byte) string {
	sum := sha256.Sum256(der)
	return "sha256:" + hex.EncodeToString(sum[:])
}

// TLSConfig returns a configuration that trusts servers of the name host whose
// certificate is issued by the pinned authority, and no others. The server must present
// the authority's certificate.
func TLSConfig(pin, host string) (*tls.Config, error) {
	pin, err := Parse(pin)
	if err != nil {
		return nil, err
	}
	return &tls.Config{
		MinVersion: tls.VersionTLS12,
		ServerName: host,
		// Not insecure: VerifyConnection does the verification, with the pinned
		// certificate from the chain as the only root.
		InsecureSkipVerify: true, //nolint:gosec // see above
		VerifyConnection: func(cs tls.ConnectionState) error {
			return verify(cs.PeerCertificates, pin, host)
		},
	}, nil
}

func verify(chain []*x509.Certificate, pin, host string) error {
	ca := find(chain, pin)
	if ca == nil {
		return fmt.Errorf("%w %s", ErrMismatch, pin)
	}
	roots, intermediates := x509.NewCertPool(), x509.NewCertPool()
	roots.AddCert(ca)
	for _, c := range chain[1:] {
		intermediates.AddCert(c)
	}
	_, err := chain[0].Verify(x509.VerifyOptions{Roots: roots, Intermediates: intermediates, DNSName: host})
	return err
}

func find(chain []*x509.Certificate, pin string) *x509.Certificate {
	for _, c := range chain {
		if Of(c.Raw) == pin {
			return c
		}
	}
	return nil
}

// fetchTimeout bounds Fetch; it allows for three SYN retries on a lossy link.
const fetchTimeout = 10 * time.Second

// Fetch connects to the server at rawURL and returns the pinned certificate in PEM, so
// that later connections do not depend on the server presenting it.
func Fetch(ctx context.Context, rawURL, pin string) (string, error) {
	u, err := url.Parse(rawURL)
	if err != nil || u.Host == "" {
		return "", fmt.Errorf("server URL is %q, want https://host:port", rawURL)
	}
	config, err := TLSConfig(pin, u.Hostname())
	if err != nil {
		return "", err
	}
	addr := u.Host
	if u.Port() == "" {
		addr = net.JoinHostPort(u.Hostname(), "443")
	}
	ctx, cancel := context.WithTimeout(ctx, fetchTimeout)
	defer cancel()
	conn, err := (&tls.Dialer{Config: config}).DialContext(ctx, "tcp", addr)
	if err != nil {
		return "", err
	}
	defer conn.Close()
	pin, _ = Parse(pin) // TLSConfig has checked it
	ca := find(conn.(*tls.Conn).ConnectionState().PeerCertificates, pin)
	return string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: ca.Raw})), nil
}
