package authority_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/tls"
	"net"
	"testing"
	"testing/synctest"
	"time"

	"github.com/muster-fleet/muster/server/node/authority"
)

// server returns the configuration of a server on the day of now.
func server(t *testing.T, a *authority.Authority, now time.Time) *tls.Config {
	t.Helper()
	keys, err := a.Tickets()
	if err != nil {
		t.Fatal(err)
	}
	config := a.TLS()
	config.MinVersion, config.Time = tls.VersionTLS13, func() time.Time { return now }
	if err := keys.Set(config); err != nil {
		t.Fatal(err)
	}
	return config
}

// connect makes a connection and reports whether it resumed an earlier session.
func connect(t *testing.T, to *tls.Config, client *tls.Config) bool {
	t.Helper()
	ours, theirs := net.Pipe()
	served := make(chan error, 1)
	go func() {
		c := tls.Server(theirs, to)
		_, err := c.Write([]byte("x")) // shakes hands first
		served <- err
	}()
	c := tls.Client(ours, client)
	if _, err := c.Read(make([]byte, 1)); err != nil { // reads the ticket on the way
		t.Fatal(err)
	}
	if err := <-served; err != nil {
		t.Fatal(err)
	}
	ours.Close()
	theirs.Close()
	return c.ConnectionState().DidResume
}

func TestSessionResumesAtServersWithSameCA(t *testing.T) {
	t.Parallel()
	start := time.Now()
	at := start
	clock := func() time.Time { return at }
	dir := t.TempDir()
	first := open(t, dir, clock)
	client := &tls.Config{
		InsecureSkipVerify: true, ServerName: "localhost", ClientSessionCache: tls.NewLRUClientSessionCache(1),
		Time: clock,
	}
	if connect(t, server(t, first, at), client) {
		t.Fatal("the first session was resumed")
	}
	if !connect(t, server(t, first, at), client) {
		t.Error("a restart forgot the session")
	}
	if !connect(t, server(t, open(t, dir, clock), at), client) {
		t.Error("another server with the same CA did not resume")
	}
	if connect(t, server(t, open(t, t.TempDir(), clock), at), client) {
		t.Error("a server with another CA resumed")
	}
	// The last full session got a ticket of another CA: start over.
	connect(t, server(t, first, at), client)
	at = start.Add(24 * time.Hour)
	if !connect(t, server(t, first, at), client) {
		t.Error("yesterday's ticket was refused")
	}
	at = at.Add(48 * time.Hour)
	if connect(t, server(t, first, at), client) {
		t.Error("a ticket of two days ago was accepted")
	}
	at = at.Add(-24 * time.Hour)
	if !connect(t, server(t, first, at), client) {
		t.Error("a server whose clock is a day behind refused a ticket")
	}
}

func TestRotateChangesKeysDaily(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := open(t, t.TempDir(), nil)
		keys, err := a.Tickets()
		if err != nil {
			t.Fatal(err)
		}
		running := a.TLS()
		if err := keys.Set(running); err != nil {
			t.Fatal(err)
		}
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			keys.Rotate(ctx, running)
		}()
		client := &tls.Config{InsecureSkipVerify: true, ServerName: "localhost", ClientSessionCache: tls.NewLRUClientSessionCache(1)}
		connect(t, running, client)
		// The clock starts at midnight, when keys rotate: a connection at that moment
		// may get one of yesterday's tickets.
		time.Sleep(25 * time.Hour)
		// A new server of the day resumes the running server's sessions, and vice
		// versa.
		fresh := server(t, a, time.Now())
		if !connect(t, running, client) || !connect(t, fresh, client) || !connect(t, running, client) {
			t.Error("a session was not resumed")
		}
		for range 3 { // days, with a new ticket on each
			time.Sleep(24 * time.Hour)
			if !connect(t, running, client) {
				t.Error("yesterday's session was not resumed")
			}
		}
		if connect(t, fresh, client) {
			t.Error("a server that never rotated its keys resumed")
		}
		stop()
		<-ended
	})
}

func TestCertificateAndTicketsOfConfig(t *testing.T) {
	t.Parallel()
	slow, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	fast, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	for _, key := range []any{slow, fast} {
		cert, err := authority.Certificate(&tls.Config{Certificates: []tls.Certificate{{PrivateKey: key}}})
		if err != nil || authority.IsRSA(cert) != (key == any(slow)) {
			t.Errorf("of %T: %v, %v", key, cert, err)
		}
		if _, err := authority.NewTickets(key, nil); err != nil {
			t.Errorf("%T makes no tickets: %v", key, err)
		}
	}
	cert, err := authority.Certificate(open(t, t.TempDir(), nil).TLS())
	if err != nil || authority.IsRSA(cert) {
		t.Errorf("the authority's certificate: %v", err)
	}
	if _, err := authority.Certificate(&tls.Config{}); err == nil {
		t.Error("a configuration without a certificate has one")
	}
	if _, err := authority.NewTickets("no key", nil); err == nil {
		t.Error("NewTickets accepts an invalid key")
	}
}
