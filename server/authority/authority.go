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

// Open loads the CA in dir, or makes one. names are the DNS names and IP
// addresses of the server's certificate; nil now means time.Now.
func Open(d disk.Disk, dir string, names []string, now func() time.Time) (*Authority, error) {
	if now == nil {
		now = time.Now
	}
	a := &Authority{names: names, now: now}
	certFile, keyFile := filepath.Join(dir, "ca.crt"), filepath.Join(dir, "ca.key")
	certPEM, err := d.ReadFile("certificate authority", certFile)
	if errors.Is(err, fs.ErrNotExist) {
		return a, a.create(d, dir, certFile, keyFile)
	}
	if err != nil {
		return nil, err
	}
	keyPEM, err := d.ReadFile("certificate authority", keyFile)
	if err != nil {
		return nil, fmt.Errorf("%w: %s has the CA's certificate, its key is missing: restore it from a backup", err, certFile)
	}
	pair, err := tls.X509KeyPair(certPEM, keyPEM)
	if err != nil {
		return nil, fmt.Errorf("certificate authority in %s: %w: restore ca.crt and ca.key from a backup", dir, err)
	}
	a.ca, a.key = pair.Leaf, pair.PrivateKey.(crypto.Signer)
	return a, nil
}

func (a *Authority) create(d disk.Disk, dir, certFile, keyFile string) error {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return err
	}
	now := a.now()
	template := &x509.Certificate{
		SerialNumber: serial(), Subject: pkix.Name{CommonName: "Muster CA", SerialNumber: now.UTC().Format("20060102150405")},
		NotBefore: now.Add(-backdate), NotAfter: now.Add(caLifetime),
		IsCA: true, BasicConstraintsValid: true, MaxPathLenZero: true, KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageCRLSign,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		return err
	}
	keyDER, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return err
	}
	if err := d.MkdirAll("certificate authority", dir, 0o700); err != nil {
		return err
	}
	// The key first: a certificate without its key could never be used again.
	if err := disk.WriteFile(d, "certificate authority", keyFile, pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: keyDER}), 0o600); err != nil {
		return err
	}
	if err := disk.WriteFile(d, "certificate authority", certFile, encode(der), 0o644); err != nil {
		return err
	}
	a.ca, err = x509.ParseCertificate(der)
	a.key = key
	return err
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

// Files is the configuration to serve with an operator's own certificate. It
// returns the pin of the last certificate of the chain, which is what agents pin.
func Files(certFile, keyFile string) (*tls.Config, string, error) {
	pair, err := tls.LoadX509KeyPair(certFile, keyFile)
	if err != nil {
		return nil, "", fmt.Errorf("tls.certificate, tls.key: %w", err)
	}
	last := pair.Certificate[len(pair.Certificate)-1]
	return &tls.Config{MinVersion: tls.VersionTLS12, Certificates: []tls.Certificate{pair}}, capin.Of(last), nil
}
