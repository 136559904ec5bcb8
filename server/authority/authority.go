// Package authority is the server's own certificate authority: made at first
// start, so that agents and operators have TLS, and something to pin, before
// anybody has thought about certificates. The replica serves with what it
// issues; hosts pin the CA when they enrol.
package authority

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/muster-fleet/muster/packaging/disk"
	"github.com/muster-fleet/muster/server/agentapi/capin"
)

const (
	// caLifetime: agents pin the CA, so it must outlive the fleet.
	caLifetime = 20 * 365 * 24 * time.Hour
	// leafLifetime is below what browsers accept of a certificate, 398 days.
	leafLifetime = 365 * 24 * time.Hour
	// renewBefore is when a new leaf is issued, while the server runs.
	renewBefore = 30 * 24 * time.Hour
	// backdate tolerates hosts whose clocks are behind.
	backdate = time.Hour
)

// Authority issues the server's certificates. ECDSA P-256 throughout: a
// handshake costs a quarter of an RSA one, and a fleet makes many.
type Authority struct {
	ca    *x509.Certificate
	key   crypto.Signer
	names []string
	now   func() time.Time

	mu   sync.Mutex
	leaf *tls.Certificate
}

// Registry is where the servers of an installation agree on their CA. The replica
// gives one that lies in the store.
type Registry interface {
	// Registered returns the pin of the installation's CA, "" while it has none.
	Registered() (pin string, err error)
	// Register makes pin that of the installation's CA if it has none, and returns
	// which one it has then.
	Register(pin string) (kept string, err error)
}

// NotOursError says that a server does not have the CA of its installation. Agents
// pin that one, and would refuse the server.
type NotOursError struct {
	// Pin is the installation's, Own that of the CA that the server has, "" if it
	// has none.
	Pin, Own string
	// Where the server's CA lies, or should lie.
	Where string
}

func (e *NotOursError) Error() string {
	what := fmt.Sprintf("%s has no CA, and the agents of this installation pin %s", e.Where, e.Pin)
	if e.Own != "" {
		what = fmt.Sprintf("the CA in %s is %s, and the agents of this installation pin %s", e.Where, e.Own, e.Pin)
	}
	return what + ": copy the folders tls and trust out of the data folder of a server that agents know into this server's, or give it the same tls.certificate and tls.key, and start it again (`muster ca-pin --help` tells how an installation gets another CA)"
}

// Open loads the CA in dir. In a folder without one it makes one, unless the
// installation has one already: of servers that start for the first time at the same
// moment one makes it. With any other than the installation's it fails with a
// *NotOursError and leaves the folder as it was. A nil registry is an installation of
// one server. names are the DNS names and IP addresses of the server's certificate;
// nil now means time.Now.
func Open(d disk.Disk, dir string, names []string, now func() time.Time, registry Registry) (*Authority, error) {
	if now == nil {
		now = time.Now
	}
	if registry == nil {
		registry = alone{}
	}
	a := &Authority{names: names, now: now}
	err := a.load(d, dir)
	if errors.Is(err, fs.ErrNotExist) {
		return a, a.first(d, dir, registry)
	}
	if err != nil {
		return nil, err
	}
	kept, err := registry.Register(a.Pin())
	if err == nil && kept != a.Pin() {
		err = &NotOursError{Pin: kept, Own: a.Pin(), Where: dir}
	}
	return a, err
}

// alone is the registry of a server that has nobody to agree with.
type alone struct{}

func (alone) Registered() (string, error)         { return "", nil }
func (alone) Register(pin string) (string, error) { return pin, nil }

// load reads the CA; fs.ErrNotExist if there is none.
func (a *Authority) load(d disk.Disk, dir string) error {
	certFile, keyFile := filepath.Join(dir, certName), filepath.Join(dir, keyName)
	certPEM, err := d.ReadFile(opAuthority, certFile)
	if err != nil {
		return err
	}
	keyPEM, err := d.ReadFile(opAuthority, keyFile)
	if err != nil {
		// Not wrapped: the CA is there, and must not be made anew.
		return fmt.Errorf("%v: %s has the CA's certificate, its key is missing: restore it from a backup", err, certFile) //nolint:errorlint // see above
	}
	pair, err := tls.X509KeyPair(certPEM, keyPEM)
	if err != nil {
		return fmt.Errorf("certificate authority in %s: %w: restore ca.crt and ca.key from a backup", dir, err)
	}
	a.ca, a.key = pair.Leaf, pair.PrivateKey.(crypto.Signer)
	return nil
}

const (
	opAuthority       = "certificate authority"
	certName, keyName = "ca.crt", "ca.key"
)

// first makes the CA of an installation that has none. It is written under names of
// its own, put up for election, and gets its place when it is elected: whatever it
// dies of, and whoever does the same in the same folder, an elected CA has its key.
func (a *Authority) first(d disk.Disk, dir string, registry Registry) error {
	kept, err := registry.Registered()
	if err != nil {
		return err
	}
	if kept == "" {
		own, err := a.candidate(d, dir)
		if err != nil {
			return err
		}
		if kept, err = registry.Register(own); err != nil {
			return err
		}
		if kept != own {
			if err := errors.Join(d.Remove(opAuthority, candidateFile(dir, own, keyName)), d.Remove(opAuthority, candidateFile(dir, own, certName))); err != nil {
				return err
			}
		}
	}
	for _, name := range []string{keyName, certName} { // a certificate without its key could never be used again
		err := d.Rename(opAuthority, candidateFile(dir, kept, name), filepath.Join(dir, name))
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	err = a.load(d, dir)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return &NotOursError{Pin: kept, Where: dir}
	case err != nil:
		return err
	case a.Pin() != kept:
		return &NotOursError{Pin: kept, Own: a.Pin(), Where: dir}
	}
	return d.SyncDir(opAuthority, dir)
}

// candidateFile is where a file of a CA lies that is not elected yet.
func candidateFile(dir, pin, name string) string {
	return filepath.Join(dir, strings.TrimPrefix(pin, "sha256:")+"."+name)
}

// candidate writes a new CA and returns its pin.
func (a *Authority) candidate(d disk.Disk, dir string) (string, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return "", err
	}
	now := a.now()
	template := &x509.Certificate{
		SerialNumber: serial(), Subject: pkix.Name{CommonName: "Muster CA", SerialNumber: now.UTC().Format("20060102150405")},
		NotBefore: now.Add(-backdate), NotAfter: now.Add(caLifetime),
		IsCA: true, BasicConstraintsValid: true, MaxPathLenZero: true, KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageCRLSign,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		return "", err
	}
	keyDER, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return "", err
	}
	if err := d.MkdirAll(opAuthority, dir, 0o700); err != nil {
		return "", err
	}
	pin := capin.Of(der)
	for _, f := range []struct {
		name string
		data []byte
		mode fs.FileMode
	}{
		{keyName, pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: keyDER}), 0o600},
		{certName, encode(der), 0o644},
	} {
		if err := disk.WriteFile(d, opAuthority, candidateFile(dir, pin, f.name), f.data, f.mode); err != nil {
			return "", err
		}
	}
	return pin, nil
}

// PEM is the CA's certificate.
func (a *Authority) PEM() []byte { return encode(a.ca.Raw) }

// Pin is sha256:<hex> of the CA's certificate in DER.
func (a *Authority) Pin() string { return capin.Of(a.ca.Raw) }

// TLS is the configuration to serve with. The CA is part of the chain shown, so
// that a host that knows only the pin can find it.
func (a *Authority) TLS() *tls.Config {
	return &tls.Config{
		MinVersion:     tls.VersionTLS12,
		GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return a.certificate() },
	}
}

func (a *Authority) certificate() (*tls.Certificate, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	now := a.now()
	if a.leaf != nil && now.Before(a.leaf.Leaf.NotAfter.Add(-renewBefore)) {
		return a.leaf, nil
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	template := &x509.Certificate{
		SerialNumber: serial(), Subject: pkix.Name{CommonName: "Muster server"},
		NotBefore: now.Add(-backdate), NotAfter: now.Add(leafLifetime),
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}
	for _, n := range a.names {
		if ip := net.ParseIP(n); ip != nil {
			template.IPAddresses = append(template.IPAddresses, ip)
		} else {
			template.DNSNames = append(template.DNSNames, n)
		}
	}
	der, err := x509.CreateCertificate(rand.Reader, template, a.ca, key.Public(), a.key)
	if err != nil {
		return nil, err
	}
	leaf, err := x509.ParseCertificate(der)
	if err != nil {
		return nil, err
	}
	a.leaf = &tls.Certificate{Certificate: [][]byte{der, a.ca.Raw}, PrivateKey: key, Leaf: leaf}
	return a.leaf, nil
}

func serial() *big.Int {
	b := make([]byte, 16)
	rand.Read(b) // never fails, by its documentation
	return new(big.Int).SetBytes(b)
}

func encode(der []byte) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
}

// Names are what the machine is known by: its host name, localhost, its
// addresses, and extra.
func Names(extra ...string) []string {
	names := append([]string{"localhost", "127.0.0.1", "::1"}, extra...)
	if host, err := os.Hostname(); err == nil {
		names = append(names, host)
	}
	if addrs, err := net.InterfaceAddrs(); err == nil {
		for _, addr := range addrs {
			if ipnet, ok := addr.(*net.IPNet); ok && !ipnet.IP.IsLinkLocalUnicast() {
				names = append(names, ipnet.IP.String())
			}
		}
	}
	slices.Sort(names)
	return slices.DeleteFunc(slices.Compact(names), func(n string) bool { return n == "" })
}

// Files is the configuration to serve with an operator's own certificate, and the
// pin agents have of it: that of a certificate of the chain. The first server of an
// installation chooses the last one. A chain that does not have the installation's is
// a *NotOursError.
func Files(certFile, keyFile string, registry Registry) (*tls.Config, string, error) {
	pair, err := tls.LoadX509KeyPair(certFile, keyFile)
	if err != nil {
		return nil, "", fmt.Errorf("tls.certificate, tls.key: %w", err)
	}
	own := capin.Of(pair.Certificate[len(pair.Certificate)-1])
	kept, err := registry.Register(own)
	if err != nil {
		return nil, "", err
	}
	if !slices.ContainsFunc(pair.Certificate, func(der []byte) bool { return capin.Of(der) == kept }) {
		return nil, "", &NotOursError{Pin: kept, Own: own, Where: certFile}
	}
	return &tls.Config{MinVersion: tls.VersionTLS12, Certificates: []tls.Certificate{pair}}, kept, nil
}
