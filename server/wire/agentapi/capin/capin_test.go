package capin_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"io"
	"math/big"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/muster-fleet/muster/server/wire/agentapi/capin"
)

// certificate is a certificate with its key.
type certificate struct {
	der  []byte
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

// issue returns a certificate, self-signed if by is nil.
func issue(t *testing.T, by *certificate, isCA bool, notAfter time.Time, names ...string) *certificate {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(time.Now().UnixNano()), Subject: pkix.Name{CommonName: strings.Join(names, " ")},
		NotBefore: notAfter.Add(-48 * time.Hour), NotAfter: notAfter, DNSNames: names,
		IsCA: isCA, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}
	if isCA {
		template.KeyUsage, template.ExtKeyUsage = x509.KeyUsageCertSign, nil
	}
	parent, signer := template, key
	if by != nil {
		parent, signer = by.cert, by.key
	}
	der, err := x509.CreateCertificate(rand.Reader, template, parent, key.Public(), signer)
	if err != nil {
		t.Fatal(err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	return &certificate{der, cert, key}
}

// shake connects a host that trusts pin and expects the name host to a server that
// presents the chain, and returns the host's error.
func shake(t *testing.T, pin, host string, chain ...*certificate) error {
	t.Helper()
	config, err := capin.TLSConfig(pin, host)
	if err != nil {
		t.Fatal(err)
	}
	pair := tls.Certificate{PrivateKey: chain[0].key}
	for _, c := range chain {
		pair.Certificate = append(pair.Certificate, c.der)
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	here, err := net.Dial("tcp", listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	there, err := listener.Accept()
	if err != nil {
		t.Fatal(err)
	}
	served := make(chan struct{})
	go func() {
		defer close(served)
		defer there.Close()
		server := tls.Server(there, &tls.Config{Certificates: []tls.Certificate{pair}})
		if server.Handshake() == nil {
			_, _ = io.Copy(io.Discard, server)
		}
	}()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	err = tls.Client(here, config).HandshakeContext(ctx)
	here.Close()
	<-served
	return err
}

func TestTLSConfigVerifiesPinnedCA(t *testing.T) {
	tomorrow, yesterday := time.Now().Add(24*time.Hour), time.Now().Add(-24*time.Hour)
	root := issue(t, nil, true, tomorrow, "root")
	other := issue(t, nil, true, tomorrow, "other")
	between := issue(t, root, true, tomorrow, "between")
	good := issue(t, root, false, tomorrow, "muster.example")
	alone := issue(t, nil, false, tomorrow, "muster.example")
	pin := capin.Of(root.der)
	for _, c := range []struct {
		name  string
		pin   string
		host  string
		chain []*certificate
		says  string // "" for trust
	}{
		{name: "the pinned CA", pin: pin, host: "muster.example", chain: []*certificate{good, root}},
		{name: "an intermediate CA", pin: pin, host: "muster.example", chain: []*certificate{issue(t, between, false, tomorrow, "muster.example"), between, root}},
		{name: "a pinned intermediate CA", pin: capin.Of(between.der), host: "muster.example", chain: []*certificate{issue(t, between, false, tomorrow, "muster.example"), between}},
		{name: "a pinned self-signed leaf", pin: capin.Of(alone.der), host: "muster.example", chain: []*certificate{alone}},
		{name: "the pin of another CA", pin: capin.Of(other.der), host: "muster.example", chain: []*certificate{good, root}, says: "pinned"},
		{name: "the CA is not presented", pin: pin, host: "muster.example", chain: []*certificate{good}, says: "pinned"},
		{
			name: "presents the CA, but is issued by another", pin: pin, host: "muster.example",
			chain: []*certificate{issue(t, other, false, tomorrow, "muster.example"), root}, says: "unknown authority",
		},
		{
			name: "presents both, and is issued by another", pin: pin, host: "muster.example",
			chain: []*certificate{issue(t, other, false, tomorrow, "muster.example"), other, root}, says: "unknown authority",
		},
		{name: "another host", pin: pin, host: "evil.example", chain: []*certificate{good, root}, says: "evil.example"},
		{name: "an expired leaf", pin: pin, host: "muster.example", chain: []*certificate{issue(t, root, false, yesterday, "muster.example"), root}, says: "expired"},
		{
			name: "a leaf that signs leaves", pin: pin, host: "muster.example",
			chain: []*certificate{issue(t, good, false, tomorrow, "muster.example"), good, root}, says: "x509",
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			err := shake(t, c.pin, c.host, c.chain...)
			if (err == nil) != (c.says == "") || (err != nil && !strings.Contains(err.Error(), c.says)) {
				t.Errorf("error is %v, want %q", err, c.says)
			}
			if c.says == "pinned" && !errors.Is(err, capin.ErrMismatch) {
				t.Errorf("error is %v, want ErrMismatch", err)
			}
		})
	}
}

func TestParse(t *testing.T) {
	pin := capin.Of([]byte("certificate"))
	if len(pin) != len("sha256:")+2*sha256.Size {
		t.Fatalf("pin is %s", pin)
	}
	colons := "SHA256:"
	for i, digits := 0, strings.ToUpper(pin[len("sha256:"):]); i < len(digits); i += 2 {
		colons += digits[i:i+2] + ":"
	}
	for _, text := range []string{pin, " " + pin + "\n", strings.ToUpper(pin), strings.TrimSuffix(colons, ":")} {
		if got, err := capin.Parse(text); err != nil || got != pin {
			t.Errorf("%q is read as %s, %v", text, got, err)
		}
	}
	for _, text := range []string{"", "sha256:", pin[7:], "sha1:" + pin[7:], pin[:len(pin)-2], pin + "00", "sha256:" + strings.Repeat("x", 64)} {
		if got, err := capin.Parse(text); err == nil || !strings.Contains(err.Error(), "64 hexadecimal digits") {
			t.Errorf("%q is read as %s, %v", text, got, err)
		}
		if _, err := capin.TLSConfig(text, "muster.example"); err == nil {
			t.Errorf("%q makes a configuration", text)
		}
	}
}

func TestFetchErrors(t *testing.T) {
	pin := capin.Of([]byte("certificate"))
	for _, c := range []struct{ url, pin, says string }{
		{"muster.example:8220", pin, "https://host:port"},
		{"https://", pin, "https://host:port"},
		{"https://127.0.0.1:1", pin, "127.0.0.1:1"},
		{"https://127.0.0.1:1", "abc", "CA pin"},
	} {
		if _, err := capin.Fetch(t.Context(), c.url, c.pin); err == nil || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: error is %v, want %q", c.url, err, c.says)
		}
	}
}
