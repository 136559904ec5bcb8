package authority_test

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/muster-fleet/muster/server/node/authority"
	"github.com/muster-fleet/muster/server/wire/agentapi/capin"
)

// operator has a certificate in files, with a CA that issues others.
type operator struct {
	t                 *testing.T
	ca                string // folder
	certFile, keyFile string
}

func newOperator(t *testing.T) operator {
	dir := t.TempDir()
	o := operator{t, t.TempDir(), filepath.Join(dir, "server.crt"), filepath.Join(dir, "server.key")}
	o.replace(o.issue(time.Now()))
	return o
}

// issue returns a new leaf of the CA with its chain, that is valid from a time on.
func (o operator) issue(at time.Time) *tls.Certificate {
	o.t.Helper()
	if err := os.Remove(filepath.Join(o.ca, "server.pem")); err != nil && !errors.Is(err, fs.ErrNotExist) {
		o.t.Fatal(err) // it would be kept
	}
	pair, err := open(o.t, o.ca, func() time.Time { return at }, "muster.example").TLS().GetCertificate(nil)
	if err != nil {
		o.t.Fatal(err)
	}
	return pair
}

// replace writes files beside the old ones and renames them, the certificate first.
func (o operator) replace(pair *tls.Certificate) {
	o.t.Helper()
	o.write(o.certFile, "CERTIFICATE", pair.Certificate...)
	o.writeKey(pair)
}

func (o operator) writeKey(pair *tls.Certificate) {
	o.t.Helper()
	key, err := x509.MarshalPKCS8PrivateKey(pair.PrivateKey)
	if err != nil {
		o.t.Fatal(err)
	}
	o.write(o.keyFile, "PRIVATE KEY", key)
}

func (o operator) write(path, kind string, ders ...[]byte) {
	o.t.Helper()
	var text []byte
	for _, der := range ders {
		text = append(text, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der})...)
	}
	if err := os.WriteFile(path+".new", text, 0o600); err != nil {
		o.t.Fatal(err)
	}
	if err := os.Rename(path+".new", path); err != nil {
		o.t.Fatal(err)
	}
}

func TestOpenFilesServesOperatorCertificate(t *testing.T) {
	o := newOperator(t)
	pair := o.issue(time.Now())
	ca := capin.Of(pair.Certificate[1])
	open := func(cert string, agreed *registry) (*authority.Files, error) {
		return authority.OpenFiles(cert, o.keyFile, nil, slog.New(slog.DiscardHandler), agreed)
	}
	var agreed registry
	f, err := open(o.certFile, &agreed)
	if err != nil || f.Pin() != ca || f.TLS().MinVersion != tls.VersionTLS12 {
		t.Fatalf("pin is %v, %v", f, err)
	}
	if block, _ := pem.Decode(f.PEM()); block == nil || capin.Of(block.Bytes) != ca {
		t.Errorf("the certificate with the pin is %s", f.PEM())
	}
	if _, err := open(filepath.Join(t.TempDir(), "absent"), &agreed); err == nil || !strings.Contains(err.Error(), "tls.certificate") {
		t.Errorf("error is %v, want the keys of the configuration in it", err)
	}

	// Agents that pinned the leaf accept the chain, too.
	o.replace(pair)
	agreed.pin = capin.Of(pair.Certificate[0])
	if f, err := open(o.certFile, &agreed); err != nil || f.Pin() != agreed.pin {
		t.Errorf("with the pin of another of the chain: %v", err)
	}
	agreed.pin = "sha256:other"
	var refused *authority.MismatchError
	if _, err := open(o.certFile, &agreed); !errors.As(err, &refused) || refused.Own != ca || !strings.Contains(err.Error(), o.certFile) {
		t.Errorf("with the pin of none of the chain: %v", err)
	}
}

func TestFilesAreReloadedWhenTheyChange(t *testing.T) {
	o := newOperator(t)
	var log bytes.Buffer
	now := time.Now()
	f, err := authority.OpenFiles(o.certFile, o.keyFile, func() time.Time { return now }, slog.New(slog.NewTextHandler(&log, nil)), &registry{})
	if err != nil {
		t.Fatal(err)
	}
	config := f.TLS()
	served := func() *tls.Certificate {
		t.Helper()
		c, err := config.GetCertificate(nil)
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	first := served()
	wants := func(what string, want *tls.Certificate, errors int) {
		t.Helper()
		for range 3 {
			now = now.Add(time.Second)
			if got := served(); !bytes.Equal(got.Certificate[0], want.Certificate[0]) {
				t.Errorf("%s: the certificate is that from %v, want that from %v", what, got.Leaf.NotBefore, want.Leaf.NotBefore)
			}
		}
		if n := strings.Count(log.String(), "level=ERROR"); n != errors {
			t.Errorf("%s: %d errors are logged, want %d:\n%s", what, n, errors, log.String())
		}
	}

	second := o.issue(now)
	o.replace(second)
	if got := served(); got != first {
		t.Error("files are read again within a second")
	}
	wants("a new certificate", second, 0)

	third := o.issue(now)
	o.write(o.certFile, "CERTIFICATE", third.Certificate...)
	wants("before its key is written", second, 1)
	o.writeKey(third)
	wants("with its key", third, 1)

	o.write(o.certFile, "CERTIFICATE", []byte("no certificate"))
	wants("a broken certificate", third, 2)
	if err := os.Remove(o.certFile); err != nil {
		t.Fatal(err)
	}
	wants("no certificate", third, 3)
	o.replace(newOperator(t).issue(now))
	wants("another CA, which agents would refuse", third, 4)
	o.replace(o.issue(now.AddDate(-2, 0, 0)))
	wants("an expired certificate", third, 5)
	last := o.issue(now)
	o.replace(last)
	wants("after all that", last, 5)
}

// A volume of Kubernetes has its files behind a link, which is changed as a whole.
func TestFilesAreReloadedBehindALink(t *testing.T) {
	o := newOperator(t)
	volume := t.TempDir()
	link := func(to operator) {
		t.Helper()
		fresh := filepath.Join(volume, "new")
		if err := os.Symlink(filepath.Dir(to.certFile), fresh); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(fresh, filepath.Join(volume, "data")); err != nil {
			t.Fatal(err)
		}
	}
	link(o)
	now := time.Now()
	f, err := authority.OpenFiles(filepath.Join(volume, "data", "server.crt"), filepath.Join(volume, "data", "server.key"), func() time.Time { return now }, slog.New(slog.DiscardHandler), &registry{})
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	renewed := operator{t, o.ca, filepath.Join(dir, "server.crt"), filepath.Join(dir, "server.key")}
	want := renewed.issue(now)
	renewed.replace(want)
	link(renewed)
	now = now.Add(time.Second)
	if got, err := f.TLS().GetCertificate(nil); err != nil || !bytes.Equal(got.Certificate[0], want.Certificate[0]) {
		t.Errorf("the certificate behind the new link is not in use: %v", err)
	}
}

// Whoever has an old private key must not be able to read tickets for long.
func TestTicketsFollowTheKeyOfTheFiles(t *testing.T) {
	o := newOperator(t)
	now := time.Now()
	f, err := authority.OpenFiles(o.certFile, o.keyFile, func() time.Time { return now }, slog.New(slog.DiscardHandler), &registry{})
	if err != nil {
		t.Fatal(err)
	}
	tickets, err := f.Tickets()
	if err != nil {
		t.Fatal(err)
	}
	config := f.TLS()
	config.MinVersion = tls.VersionTLS13
	client := &tls.Config{InsecureSkipVerify: true, ClientSessionCache: tls.NewLRUClientSessionCache(1)}
	session := func(what string, resumed bool) {
		t.Helper()
		if err := tickets.Set(config); err != nil {
			t.Fatal(err)
		}
		if got := connect(t, config, client); got != resumed {
			t.Errorf("%s: the session is resumed is %v, want %v", what, got, resumed)
		}
	}
	session("the first connection", false)
	session("the second", true)
	o.replace(o.issue(now))
	now = now.Add(time.Second)
	session("with a new key", false)
	session("and again", true)
}
