package authority

import (
	"context"
	"crypto"
	"crypto/hkdf"
	"crypto/rsa"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"time"

	"github.com/muster-fleet/muster/server/clock"
)

// ticketDay is how long one key encrypts new session tickets.
const ticketDay = 24 * time.Hour

// Tickets derives the keys of session tickets. Servers with the same private key derive
// the same keys, also after a restart, so an agent can resume its session at any of
// them. The keys depend on the private key and the day, and are not stored: whoever has
// them can pose as the server to an agent that presents a ticket, so they must not be
// in the store's backups.
type Tickets struct {
	secret func() ([]byte, error)
	now    clock.Clock
}

// NewTickets returns the Tickets of a private key.
func NewTickets(key crypto.PrivateKey, now clock.Clock) (*Tickets, error) {
	secret, err := secretOf(key)
	return &Tickets{secret: func() ([]byte, error) { return secret, err }, now: now}, err
}

func secretOf(key crypto.PrivateKey) ([]byte, error) {
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return nil, fmt.Errorf("session tickets: %w", err)
	}
	return hkdf.Extract(sha256.New, der, []byte("muster session tickets"))
}

// Tickets returns the Tickets of the CA's key, which all servers of the installation have, or while it is
// not here, of the server's own.
func (a *Authority) Tickets() (*Tickets, error) {
	if a.key != nil {
		return NewTickets(a.key, a.now)
	}
	t := &Tickets{now: a.now, secret: func() ([]byte, error) {
		leaf, err := a.certificate()
		if err != nil {
			return nil, err
		}
		return secretOf(leaf.PrivateKey)
	}}
	_, err := t.secret()
	return t, err
}

// keys returns the key of today, for new tickets, and those of yesterday and tomorrow,
// whose tickets are accepted too: another server's clock may be ahead.
func (t *Tickets) keys(now time.Time) ([][32]byte, error) {
	secret, err := t.secret()
	if err != nil {
		return nil, err
	}
	today := now.Unix() / int64(ticketDay.Seconds())
	var keys [][32]byte
	for _, day := range []int64{today, today - 1, today + 1} {
		b, err := hkdf.Expand(sha256.New, secret, fmt.Sprintf("day %d", day), 32)
		if err != nil {
			return nil, err
		}
		keys = append(keys, [32]byte(b))
	}
	return keys, nil
}

// Set sets the keys of the day in config.
func (t *Tickets) Set(config *tls.Config) error {
	keys, err := t.keys(t.now.UTC())
	if err != nil {
		return err
	}
	config.SetSessionTicketKeys(keys)
	return nil
}

// ticketCheck is how often Rotate checks for a new day or private key. After the machine
// slept or its clock was set, the keys are outdated for at most this long; yesterday's
// tickets are accepted meanwhile.
const ticketCheck = 10 * time.Minute

// Rotate updates the keys of config every day until ctx ends. config may be in use, and
// must be the one that connections use, not a copy.
func (t *Tickets) Rotate(ctx context.Context, config *tls.Config) {
	tick := time.NewTicker(ticketCheck)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			_ = t.Set(config) // cannot fail: keys that can be served with can be encoded
		case <-ctx.Done():
			return
		}
	}
}

// Certificate returns the certificate that config presents to a client without special
// requirements.
func Certificate(config *tls.Config) (*tls.Certificate, error) {
	if len(config.Certificates) > 0 {
		return &config.Certificates[0], nil
	}
	if config.GetCertificate == nil {
		return nil, errors.New("there is no certificate to serve with")
	}
	return config.GetCertificate(&tls.ClientHelloInfo{})
}

// IsRSA reports whether the certificate has an RSA key, which triples the processor
// time of handshakes.
func IsRSA(c *tls.Certificate) bool {
	_, is := c.PrivateKey.(*rsa.PrivateKey)
	return is
}
