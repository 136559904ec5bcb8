// Package authority is the server's own certificate authority. It is created at the
// first start, so that agents and operators have TLS, and a CA to pin, without any
// configuration. The server uses the certificates that it issues; hosts pin the CA when
// they enrol.
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
	"log/slog"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/muster-fleet/muster/packaging/host/disk"
	"github.com/muster-fleet/muster/server/wire/agentapi/capin"
)

const (
	// caLifetime must exceed the lifetime of the fleet, because agents pin the CA.
	caLifetime = 20 * 365 * 24 * time.Hour
	// leafLifetime is below the 398 days that browsers accept.
	leafLifetime = 365 * 24 * time.Hour
	// renewBefore is how long before the expiry a running server issues a new leaf.
	renewBefore = 30 * 24 * time.Hour
	// backdate allows for hosts whose clocks are slow: by a time zone, or by what a clock without a battery
	// is off until it is set. leafLifetime and backdate together are below 398 days.
	backdate = 24 * time.Hour
)

// Authority issues the server's certificates, or serves with one that was issued elsewhere while the
// CA's key is not here; see [Install]. All keys are ECDSA P-256: a handshake
// costs a quarter of one with RSA, and a fleet makes many.
type Authority struct {
	ca    *x509.Certificate
	key   crypto.Signer // nil: it is not on this machine
	names []string
	now   func() time.Time
	disk  disk.Disk // nil: the server's certificate is not kept
	dir   string
	// Log may be nil.
	Log *slog.Logger

	mu        sync.Mutex
	leaf      *tls.Certificate
	installed installed // of leaf, while key is nil
	end       ending
}

// Registry records which CA an installation has, so that its servers agree on one. The
// server's implementation uses the store.
type Registry interface {
	// Registered returns the pin of the installation's CA, "" while it has none.
	Registered() (pin string, err error)
	// Register records pin as that of the installation's CA if it has none, and returns
	// the pin in effect.
	Register(pin string) (current string, err error)
}

// MismatchError means that a server does not have its installation's CA. Agents pin
// that CA, and would refuse the server.
type MismatchError struct {
	// Pin is that of the installation's CA, Own that of the server's, "" if it has
	// none.
	Pin, Own string
	// Where is the location of the server's CA.
	Where string
}

func (e *MismatchError) Error() string {
	what := fmt.Sprintf("%s has no CA, and the agents of this installation pin %s", e.Where, e.Pin)
	if e.Own != "" {
		what = fmt.Sprintf("the CA in %s is %s, and the agents of this installation pin %s", e.Where, e.Own, e.Pin)
	}
	return what + ": copy the folders tls and trust out of the data folder of a server that agents know into this server's, or give it the same tls.certificate and tls.key, and start it again (`muster ca-pin --help` says how an installation gets another CA)"
}

// Open loads the CA in dir. If there is none, it creates one, unless the installation
// has one already. Of several servers that start for the first time at the same moment,
// one creates the CA. If the CA is not the installation's, Open fails with a
// *MismatchError and leaves the folder unchanged. A nil registry means an installation
// of one server. names are the DNS names and IP addresses of the server's certificate;
// nil now means time.Now.
func Open(d disk.Disk, dir string, names []string, now func() time.Time, registry Registry) (*Authority, error) {
	if now == nil {
		now = time.Now
	}
	if registry == nil {
		registry = alone{}
	}
	a := &Authority{names: names, now: now, disk: d, dir: dir}
	err := a.load(d, dir)
	if errors.Is(err, fs.ErrNotExist) {
		return a, a.first(d, dir, registry)
	}
	if err != nil {
		return nil, err
	}
	current, err := registry.Register(a.Pin())
	if err == nil && current != a.Pin() {
		err = &MismatchError{Pin: current, Own: a.Pin(), Where: dir}
	}
	return a, err
}

// alone is the registry of an installation of one server.
type alone struct{}

func (alone) Registered() (string, error)         { return "", nil }
func (alone) Register(pin string) (string, error) { return pin, nil }

// load reads the CA. The error is fs.ErrNotExist if there is none.
func (a *Authority) load(d disk.Disk, dir string) error {
	certFile, keyFile := filepath.Join(dir, certName), filepath.Join(dir, keyName)
	certPEM, err := d.ReadFile(opAuthority, certFile)
	if err != nil {
		return err
	}
	keyPEM, err := d.ReadFile(opAuthority, keyFile)
	if errors.Is(err, fs.ErrNotExist) && a.loadInstalled(certPEM) == nil {
		return nil
	}
	if err != nil {
		// Not wrapped: the CA exists, and must not be replaced by a new one.
		return fmt.Errorf("%v: %s has the CA's certificate, its key is missing: restore it from a backup, or install a certificate that this CA has issued (`muster ca install`)", err, certFile) //nolint:errorlint // see above
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

// first creates the CA of an installation that has none. It writes a candidate under
// names of its own, registers it, and renames it if it was registered first. So a
// registered CA has its key, wherever the process dies and whichever other processes
// use the folder.
func (a *Authority) first(d disk.Disk, dir string, registry Registry) error {
	current, err := registry.Registered()
	if err != nil {
		return err
	}
	if current == "" {
		own, err := a.candidate(d, dir)
		if err != nil {
			return err
		}
		if current, err = registry.Register(own); err != nil {
			return err
		}
		if current != own {
			if err := errors.Join(d.Remove(opAuthority, candidateFile(dir, own, keyName)), d.Remove(opAuthority, candidateFile(dir, own, certName))); err != nil {
				return err
			}
		}
	}
	for _, name := range []string{keyName, certName} { // a certificate without its key could never be used again
		err := d.Rename(opAuthority, candidateFile(dir, current, name), filepath.Join(dir, name))
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	err = a.load(d, dir)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return &MismatchError{Pin: current, Where: dir}
	case err != nil:
		return err
	case a.Pin() != current:
		return &MismatchError{Pin: current, Own: a.Pin(), Where: dir}
	}
	return d.SyncDir(opAuthority, dir)
}

// candidateFile returns the path of a file of a CA that is not registered yet.
func candidateFile(dir, pin, name string) string {
	return filepath.Join(dir, strings.TrimPrefix(pin, "sha256:")+"."+name)
}

// candidate writes a new CA and returns its pin.
func (a *Authority) candidate(d disk.Disk, dir string) (string, error) {
	der, keyPEM, err := newCA(a.now())
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
		{keyName, keyPEM, 0o600},
		{certName, encode(der), 0o644},
	} {
		if err := disk.WriteFile(d, opAuthority, candidateFile(dir, pin, f.name), f.data, f.mode); err != nil {
			return "", err
		}
	}
	return pin, nil
}

// newCA returns a certificate and its key. Agents accept certificates of servers from it, and none of
// another authority (path length 0): who steals an authority below it could pose as any server.
func newCA(now time.Time) (der, keyPEM []byte, err error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, nil, err
	}
	template := &x509.Certificate{
		SerialNumber: serial(), Subject: pkix.Name{CommonName: "Muster CA", SerialNumber: now.UTC().Format("20060102150405")},
		NotBefore: now.Add(-backdate), NotAfter: now.Add(caLifetime),
		IsCA: true, BasicConstraintsValid: true, MaxPathLenZero: true, KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageCRLSign,
	}
	if der, err = x509.CreateCertificate(rand.Reader, template, template, key.Public(), key); err != nil {
		return nil, nil, err
	}
	keyPEM, err = encodeKey(key)
	return der, keyPEM, err
}

func encodeKey(key *ecdsa.PrivateKey) ([]byte, error) {
	der, err := x509.MarshalPKCS8PrivateKey(key)
	return pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der}), err
}

// PEM returns the CA's certificate.
func (a *Authority) PEM() []byte { return encode(a.ca.Raw) }

// Pin returns sha256:<hex> of the CA's certificate in DER.
func (a *Authority) Pin() string { return capin.Of(a.ca.Raw) }

// cipherSuites are those of TLS 1.2 that authenticate what they encrypt. Go's default also
// has suites with CBC.
var cipherSuites = []uint16{
	tls.TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256, tls.TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256,
	tls.TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384, tls.TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384,
	tls.TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256, tls.TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256,
}

// TLS returns the configuration to serve with. The chain includes the CA, so that a
// host that knows only the pin finds it.
func (a *Authority) TLS() *tls.Config {
	return &tls.Config{
		MinVersion: tls.VersionTLS12, CipherSuites: cipherSuites,
		GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return a.certificate() },
	}
}

func (a *Authority) certificate() (*tls.Certificate, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	now := a.now()
	if a.key == nil {
		a.renewInstalled(now)
		a.end.warn(a.Log, a.leaf.Leaf, now, installNext)
		return a.leaf, nil
	}
	if a.leaf == nil {
		a.leaf = a.kept(now)
	}
	if a.leaf != nil && now.Before(a.leaf.Leaf.NotAfter.Add(-renewBefore)) {
		return a.leaf, nil
	}
	leaf, key, err := issue(a.ca, a.key, a.names, leafLifetime, now)
	if err != nil {
		return nil, err
	}
	a.leaf = &tls.Certificate{Certificate: [][]byte{leaf.Raw, a.ca.Raw}, PrivateKey: key, Leaf: leaf}
	a.keep(key)
	return a.leaf, nil
}

// issue returns a certificate of a server with these names, from a CA and its key.
func issue(ca *x509.Certificate, by crypto.Signer, names []string, life time.Duration, now time.Time) (*x509.Certificate, *ecdsa.PrivateKey, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, nil, err
	}
	template := &x509.Certificate{
		SerialNumber: serial(), Subject: pkix.Name{CommonName: "Muster server"},
		NotBefore: now.Add(-backdate), NotAfter: now.Add(life),
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}
	for _, n := range names {
		if ip := net.ParseIP(n); ip != nil {
			template.IPAddresses = append(template.IPAddresses, ip)
		} else {
			template.DNSNames = append(template.DNSNames, n)
		}
	}
	der, err := x509.CreateCertificate(rand.Reader, template, ca, key.Public(), by)
	if err != nil {
		return nil, nil, err
	}
	leaf, err := x509.ParseCertificate(der)
	return leaf, key, err
}

// leafName is the file of the server's own certificate and its key. A new certificate at
// each start would cut off hosts whose clocks are slower than backdate.
const leafName = "server.pem"

// keep stores the certificate for the next start, which makes another one if that fails.
func (a *Authority) keep(key *ecdsa.PrivateKey) {
	if a.disk == nil {
		return
	}
	keyPEM, err := encodeKey(key)
	if err != nil {
		return
	}
	data := append(encode(a.leaf.Leaf.Raw), keyPEM...)
	_ = disk.WriteFile(a.disk, opAuthority, filepath.Join(a.dir, leafName), data, 0o600)
}

// kept returns the certificate of an earlier start if it is of this CA, valid, and has the same names, or
// else nil.
func (a *Authority) kept(now time.Time) *tls.Certificate {
	if a.disk == nil {
		return nil
	}
	data, err := a.disk.ReadFile(opAuthority, filepath.Join(a.dir, leafName))
	if err != nil {
		return nil
	}
	pair, err := tls.X509KeyPair(data, data)
	if err != nil {
		return nil
	}
	names := slices.Clone(pair.Leaf.DNSNames)
	for _, ip := range pair.Leaf.IPAddresses {
		names = append(names, ip.String())
	}
	same := len(names) == len(a.names) && !slices.ContainsFunc(a.names, func(n string) bool {
		if ip := net.ParseIP(n); ip != nil {
			n = ip.String()
		}
		return !slices.Contains(names, n)
	})
	if !same || pair.Leaf.CheckSignatureFrom(a.ca) != nil || now.Before(pair.Leaf.NotBefore) {
		return nil
	}
	pair.Certificate = [][]byte{pair.Leaf.Raw, a.ca.Raw}
	return &pair
}

func serial() *big.Int {
	b := make([]byte, 16)
	rand.Read(b) // never fails, by its documentation
	return new(big.Int).SetBytes(b)
}

func encode(der []byte) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
}

// Names returns the names of the machine: its host name, localhost, its addresses, and
// extra.
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
