package authority

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"path/filepath"
	"time"

	"github.com/muster-fleet/muster/packaging/host/disk"
	"github.com/muster-fleet/muster/server/wire/agentapi/capin"
)

// The CA's key need not be on the server. Whoever steals a server with the key can issue certificates
// for servers of his own, to which hosts then follow him; without it he has one certificate, for the
// server's own names, until its end. So the key is kept elsewhere, a certificate with a short life is
// issued there ([Issue]), and installed on the server ([Install]), which uses it at once.

const (
	// MinLife and MaxLife bound the life of a certificate that is issued elsewhere: a day is what an
	// operator needs to carry it there, and browsers accept no more than 398 days.
	MinLife = 24 * time.Hour
	MaxLife = leafLifetime
	// warnAtMost is how long before its end the server warns: people who renew need some weeks. A
	// certificate with a short life has the last third of it.
	warnAtMost = 30 * 24 * time.Hour
	// warnEvery is how often it does.
	warnEvery = 24 * time.Hour

	installNext = "issue another one where the CA's key is (`muster ca issue`), and install it (`muster ca install`); the server need not be restarted"
)

// Create makes a CA in dir, which must not have one, and returns its pin.
func Create(d disk.Disk, dir string, now time.Time) (pin string, err error) {
	for _, name := range []string{certName, keyName} {
		file := filepath.Join(dir, name)
		if _, err := d.Lstat(opAuthority, file); !errors.Is(err, fs.ErrNotExist) {
			return "", errors.Join(fmt.Errorf("%s is there already: name another folder", file), err)
		}
	}
	a := &Authority{disk: d, dir: dir, now: func() time.Time { return now }}
	if pin, err = a.candidate(d, dir); err != nil {
		return "", err
	}
	for _, name := range []string{keyName, certName} {
		if err := d.Rename(opAuthority, candidateFile(dir, pin, name), filepath.Join(dir, name)); err != nil {
			return "", err
		}
	}
	return pin, d.SyncDir(opAuthority, dir)
}

// Issue returns a certificate for a server with these names, its key, and the CA's certificate, in PEM.
// dir has the CA and its key.
func Issue(d disk.Disk, dir string, names []string, life time.Duration, now time.Time) ([]byte, error) {
	switch {
	case len(names) == 0:
		return nil, errors.New("a certificate needs a name: that by which agents reach the server")
	case life < MinLife || life > MaxLife:
		return nil, fmt.Errorf("the life of a certificate is %s, want from %s to %s", life, MinLife, MaxLife)
	}
	a := &Authority{disk: d, dir: dir, now: func() time.Time { return now }}
	if err := a.load(d, dir); err != nil {
		return nil, err
	}
	if a.key == nil {
		return nil, fmt.Errorf("%s has the CA's certificate, its key is missing: issue the certificate where ca.key is", dir)
	}
	leaf, key, err := issue(a.ca, a.key, names, life, now)
	if err != nil {
		return nil, err
	}
	keyPEM, err := encodeKey(key)
	return bytes.Join([][]byte{encode(leaf.Raw), keyPEM, encode(a.ca.Raw)}, nil), err
}

// Install makes the server with the folder dir use what Issue has returned, and returns its
// certificate. In a folder without a CA it also stores the CA's certificate.
func Install(d disk.Disk, dir string, issued []byte, now time.Time) (*x509.Certificate, error) {
	ca, err := d.ReadFile(opAuthority, filepath.Join(dir, certName))
	fresh := errors.Is(err, fs.ErrNotExist)
	if fresh {
		ca, err = lastCertificate(issued)
	}
	if err != nil {
		return nil, err
	}
	pair, err := parseInstalled(issued, ca)
	if err != nil {
		return nil, err
	}
	if !now.Before(pair.Leaf.NotAfter) {
		return nil, fmt.Errorf("it ended at %s: issue another one", pair.Leaf.NotAfter.Format(time.RFC3339))
	}
	if err := d.MkdirAll(opAuthority, dir, 0o700); err != nil {
		return nil, err
	}
	if err := disk.WriteFile(d, opAuthority, filepath.Join(dir, leafName), issued, 0o600); err != nil {
		return nil, err
	}
	if fresh { // last: a CA without a key or a certificate starts no server
		err = disk.WriteFile(d, opAuthority, filepath.Join(dir, certName), ca, 0o644)
	}
	return pair.Leaf, err
}

// Info is what a folder has of a CA.
type Info struct {
	Pin string
	End time.Time
	// HasKey says that the CA's key is in the folder.
	HasKey bool
	// Server is the server's certificate, or nil.
	Server *x509.Certificate
}

// Read returns what dir has. The error is fs.ErrNotExist if there is no CA.
func Read(d disk.Disk, dir string) (Info, error) {
	data, err := d.ReadFile(opAuthority, filepath.Join(dir, certName))
	if err != nil {
		return Info{}, err
	}
	ca, err := parseCA(data)
	if err != nil {
		return Info{}, fmt.Errorf("%s: %w", filepath.Join(dir, certName), err)
	}
	i := Info{Pin: capin.Of(ca.Raw), End: ca.NotAfter}
	_, err = d.Lstat(opAuthority, filepath.Join(dir, keyName))
	i.HasKey = err == nil
	if leaf, err := d.ReadFile(opAuthority, filepath.Join(dir, leafName)); err == nil {
		if pair, err := parseInstalled(leaf, data); err == nil {
			i.Server = pair.Leaf
		}
	}
	return i, nil
}

// parseInstalled parses a server's certificate with its key, which a CA must have issued.
func parseInstalled(data, caPEM []byte) (*tls.Certificate, error) {
	ca, err := parseCA(caPEM)
	if err != nil {
		return nil, err
	}
	pair, err := tls.X509KeyPair(data, data)
	if err != nil {
		return nil, fmt.Errorf("a server's certificate and its key: %w", err)
	}
	if err := pair.Leaf.CheckSignatureFrom(ca); err != nil || pair.Leaf.IsCA {
		return nil, errors.Join(fmt.Errorf("it is no server's certificate of the CA that agents pin, %s", capin.Of(ca.Raw)), err)
	}
	pair.Certificate = [][]byte{pair.Leaf.Raw, ca.Raw}
	return &pair, nil
}

func parseCA(data []byte) (*x509.Certificate, error) {
	block, _ := pem.Decode(data)
	if block == nil || block.Type != "CERTIFICATE" {
		return nil, errors.New("the CA's certificate is not PEM")
	}
	return x509.ParseCertificate(block.Bytes)
}

// lastCertificate returns the CA's certificate of what Issue has returned.
func lastCertificate(data []byte) (last []byte, err error) {
	n := 0
	for block, rest := pem.Decode(data); block != nil; block, rest = pem.Decode(rest) {
		if block.Type == "CERTIFICATE" {
			last = pem.EncodeToMemory(block)
			n++
		}
	}
	if n < 2 {
		return nil, errors.New("it has no certificate of a CA: it is not what `muster ca issue` writes")
	}
	return last, nil
}

// installed is a certificate that was installed while the CA's key is not here.
type installed struct {
	data    []byte // of the file
	checked time.Time
	failed  string // the last error that was logged, until the file can be used again
}

// loadInstalled reads the certificate of a server whose CA's key is not on this machine.
func (a *Authority) loadInstalled(caPEM []byte) error {
	data, err := a.disk.ReadFile(opAuthority, filepath.Join(a.dir, leafName))
	if err != nil {
		return err
	}
	pair, err := parseInstalled(data, caPEM)
	if err != nil {
		return err
	}
	if a.ca, err = parseCA(caPEM); err != nil {
		return err
	}
	a.leaf, a.installed = pair, installed{data: data, checked: a.now()}
	return nil
}

// renewInstalled uses another certificate as soon as it is installed, and goes on with the one before
// if that cannot be used. The caller holds mu.
func (a *Authority) renewInstalled(now time.Time) {
	in := &a.installed
	if since := now.Sub(in.checked); since >= 0 && since < fileCheck {
		return
	}
	in.checked = now
	data, err := a.disk.ReadFile(opAuthority, filepath.Join(a.dir, leafName))
	if err == nil && bytes.Equal(data, in.data) {
		in.failed = ""
		return
	}
	var pair *tls.Certificate
	if err == nil {
		pair, err = parseInstalled(data, encode(a.ca.Raw))
	}
	if err == nil && !now.Before(pair.Leaf.NotAfter) {
		err = fmt.Errorf("it ended at %s", pair.Leaf.NotAfter.Format(time.RFC3339))
	}
	if err != nil {
		if text := err.Error(); text != in.failed && a.Log != nil {
			in.failed = text
			a.Log.Error("the installed certificate cannot be used, so the server goes on with the one before", "expires", a.leaf.Leaf.NotAfter, "error", err)
		}
		return
	}
	a.leaf, *in, a.end = pair, installed{data: data, checked: now}, ending{}
	if a.Log != nil {
		a.Log.Info("an installed certificate is in use", "expires", pair.Leaf.NotAfter)
	}
}

// WarnFrom returns from when on people are warned of a certificate's end.
func WarnFrom(c *x509.Certificate) time.Time {
	return c.NotAfter.Add(-min(warnAtMost, c.NotAfter.Sub(c.NotBefore)/3))
}

// ending warns of a certificate's end.
type ending struct{ warned time.Time }

// warn logs, once a day, that a certificate ends which the server cannot renew by itself.
func (e *ending) warn(log *slog.Logger, c *x509.Certificate, now time.Time, next string) {
	if log == nil || now.Before(WarnFrom(c)) || now.Sub(e.warned) < warnEvery {
		return
	}
	e.warned = now
	log.Warn("the server's certificate ends, and then no agent and no operator can connect", "expires", c.NotAfter, "do", next)
}

// RenewedElsewhere returns the server's certificate if the server cannot renew it by itself, or nil.
func (a *Authority) RenewedElsewhere() *x509.Certificate {
	if a.key != nil {
		return nil
	}
	leaf, err := a.certificate()
	if err != nil {
		return nil
	}
	return leaf.Leaf
}
