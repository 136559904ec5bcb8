package authority

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/muster-fleet/muster/server/clock"
	"github.com/muster-fleet/muster/server/wire/agentapi/capin"
)

// Files serves with an operator's own certificate, and with a new one as soon as its files are
// replaced, as cert-manager and ACME clients do. Files that cannot be used change nothing.
type Files struct {
	certFile, keyFile string
	pin               string
	pem               []byte
	now               clock.Clock
	log               *slog.Logger

	mu      sync.Mutex
	pair    *tls.Certificate
	loaded  [2]fs.FileInfo // of the files that pair is from
	checked time.Time
	failed  string // the last error that was logged, until files are loaded again
	end     ending
}

// fileCheck is how often handshakes look for new files. Who has replaced them sees the result at
// once, and two calls of stat in a second cost nothing.
const fileCheck = time.Second

// OpenFiles loads the certificate and its key. Agents pin one certificate of the chain: the first
// server of an installation registers the last one. A chain without the registered certificate is
// a *MismatchError.
func OpenFiles(certFile, keyFile string, now clock.Clock, log *slog.Logger, registry Registry) (*Files, error) {
	f := &Files{certFile: certFile, keyFile: keyFile, now: now, log: log, checked: now.UTC()}
	pair, loaded, err := f.read()
	if err != nil {
		return nil, err
	}
	own := capin.Of(pair.Certificate[len(pair.Certificate)-1])
	if f.pin, err = registry.Register(own); err != nil {
		return nil, err
	}
	f.pair, f.loaded = pair, loaded
	if f.pem = pinned(pair, f.pin); f.pem == nil {
		return nil, &MismatchError{Pin: f.pin, Own: own, Where: certFile}
	}
	return f, nil
}

// read loads the files. It takes their state first, so that a change while they are read is seen
// by the next check.
func (f *Files) read() (*tls.Certificate, [2]fs.FileInfo, error) {
	state := f.state()
	pair, err := tls.LoadX509KeyPair(f.certFile, f.keyFile)
	if err != nil {
		return nil, state, fmt.Errorf("tls.certificate, tls.key: %w", err)
	}
	return &pair, state, nil
}

// state describes the files, with nil for one that is not there.
func (f *Files) state() (state [2]fs.FileInfo) {
	for i, name := range []string{f.certFile, f.keyFile} {
		if info, err := os.Stat(name); err == nil { // behind links, which cert-manager's volumes change
			state[i] = info
		}
	}
	return state
}

func sameFiles(a, b [2]fs.FileInfo) bool {
	return slices.EqualFunc(a[:], b[:], func(a, b fs.FileInfo) bool {
		return a != nil && b != nil && os.SameFile(a, b) && a.ModTime().Equal(b.ModTime()) && a.Size() == b.Size()
	})
}

// TLS returns the configuration to serve with.
func (f *Files) TLS() *tls.Config {
	return &tls.Config{
		MinVersion: tls.VersionTLS12, CipherSuites: cipherSuites,
		GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return f.certificate(), nil },
	}
}

// Leaf returns the certificate in use, which the operator replaces.
func (f *Files) Leaf() *x509.Certificate { return f.certificate().Leaf }

// Pin returns sha256:<hex> of the certificate of the chain that agents pin.
func (f *Files) Pin() string { return f.pin }

// PEM returns the certificate with the pin.
func (f *Files) PEM() []byte { return f.pem }

// Tickets returns the Tickets of the private key that is in use.
func (f *Files) Tickets() (*Tickets, error) {
	t := &Tickets{secret: func() ([]byte, error) { return secretOf(f.certificate().PrivateKey) }, now: f.now}
	_, err := t.secret()
	return t, err
}

// certificate returns the one of the files, and the one before while they cannot be used.
func (f *Files) certificate() *tls.Certificate {
	f.mu.Lock()
	defer f.mu.Unlock()
	now := f.now.UTC()
	if since := now.Sub(f.checked); since >= 0 && since < fileCheck {
		return f.pair
	}
	f.checked = now
	f.end.warn(f.log, f.pair.Leaf, now, "replace "+f.certFile+", which the server reads again by itself")
	if sameFiles(f.loaded, f.state()) {
		f.failed = "" // perhaps the files before were put back
		return f.pair
	}
	pair, loaded, err := f.read()
	if err == nil {
		err = f.refuse(pair, now)
	}
	if err != nil {
		// Tried again with every check, since a writer may be between two of its writes.
		if text := err.Error(); text != f.failed {
			f.failed = text
			f.log.Error("the new certificate cannot be used, so the server goes on with the one before", "certificate", f.certFile, "expires", f.pair.Leaf.NotAfter, "error", err)
		}
		return f.pair
	}
	f.pair, f.loaded, f.failed = pair, loaded, ""
	f.log.Info("a new certificate is in use", "certificate", f.certFile, "expires", pair.Leaf.NotAfter)
	return f.pair
}

// refuse returns why a new certificate cannot replace the one in use.
func (f *Files) refuse(pair *tls.Certificate, now time.Time) error {
	if pinned(pair, f.pin) == nil {
		return &MismatchError{Pin: f.pin, Own: capin.Of(pair.Certificate[len(pair.Certificate)-1]), Where: f.certFile}
	}
	if now.After(pair.Leaf.NotAfter) {
		return fmt.Errorf("tls.certificate: %s expired at %s", f.certFile, pair.Leaf.NotAfter.Format(time.RFC3339))
	}
	return nil
}

// pinned returns the certificate of a chain that has the pin, nil if there is none.
func pinned(pair *tls.Certificate, pin string) []byte {
	for _, der := range pair.Certificate {
		if capin.Of(der) == pin {
			return encode(der)
		}
	}
	return nil
}
