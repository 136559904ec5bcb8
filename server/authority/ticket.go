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

// ticketDay is how long one key makes the tickets with which agents resume their
// sessions.
const ticketDay = 24 * time.Hour

// Tickets makes the keys of session tickets, the same at every server that has the
// same private key, and after a restart: so an agent that comes back, to whichever
// server, need not be shown the certificate again. They are made of the private
// key and the day, and are nowhere kept. They could lie in the store, but who has
// them can pose as the server to an agent that shows a ticket, and whoever reads
// the store's backups must not be able to.
type Tickets struct {
	secret []byte
	now    clock.Clock
}

// NewTickets makes those of a private key.
func NewTickets(key crypto.PrivateKey, now clock.Clock) (*Tickets, error) {
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return nil, fmt.Errorf("session tickets: %w", err)
	}
	secret, err := hkdf.Extract(sha256.New, der, []byte("muster session tickets"))
	return &Tickets{secret: secret, now: now}, err
}

// Tickets makes those of the CA.
func (a *Authority) Tickets() (*Tickets, error) { return NewTickets(a.key, a.now) }

// keys are today's, which new tickets are made with, and then those whose tickets
// are taken too: yesterday's, and tomorrow's, for another server's clock may be
// ahead.
func (t *Tickets) keys(now time.Time) ([][32]byte, error) {
	today := now.Unix() / int64(ticketDay.Seconds())
	var keys [][32]byte
	for _, day := range []int64{today, today - 1, today + 1} {
		b, err := hkdf.Expand(sha256.New, t.secret, fmt.Sprintf("day %d", day), 32)
		if err != nil {
			return nil, err
		}
		keys = append(keys, [32]byte(b))
	}
	return keys, nil
}

// Set gives config the keys of the day.
func (t *Tickets) Set(config *tls.Config) error {
	keys, err := t.keys(t.now.UTC())
	if err != nil {
		return err
	}
	config.SetSessionTicketKeys(keys)
	return nil
}

// ticketCheck is how often it is looked whether a day has begun: a machine that
// slept, or whose clock was set, is behind for no longer. Yesterday's keys are
// taken meanwhile.
const ticketCheck = 10 * time.Minute

// Rotate keeps the keys of config those of the day until ctx ends. config may be
// in use, and must be the one that connections are made with, not a copy.
func (t *Tickets) Rotate(ctx context.Context, config *tls.Config) {
	tick := time.NewTicker(ticketCheck)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			_ = t.Set(config) // it succeeded with the same lengths before
		case <-ctx.Done():
			return
		}
	}
}

// Certificate is what config shows to a client that asks for nothing in
// particular.
func Certificate(config *tls.Config) (*tls.Certificate, error) {
	if len(config.Certificates) > 0 {
		return &config.Certificates[0], nil
	}
	if config.GetCertificate == nil {
		return nil, errors.New("there is no certificate to serve with")
	}
	return config.GetCertificate(&tls.ClientHelloInfo{})
}

// IsRSA says that handshakes with a certificate take three times the processor
// time that they need.
func IsRSA(c *tls.Certificate) bool {
	_, is := c.PrivateKey.(*rsa.PrivateKey)
	return is
}
