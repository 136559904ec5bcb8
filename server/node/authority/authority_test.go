package authority_test

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"io"
	"io/fs"
	"log"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/muster-fleet/muster/packaging/host/disk"
	"github.com/muster-fleet/muster/server/node/authority"
	"github.com/muster-fleet/muster/server/wire/agentapi/capin"
)

func open(t *testing.T, dir string, now func() time.Time, names ...string) *authority.Authority {
	t.Helper()
	a, err := authority.Open(disk.OS{}, dir, names, now, nil)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

func leaf(t *testing.T, a *authority.Authority) *x509.Certificate {
	t.Helper()
	pair, err := a.TLS().GetCertificate(nil)
	if err != nil {
		t.Fatal(err)
	}
	if len(pair.Certificate) != 2 || capin.Of(pair.Certificate[1]) != a.Pin() {
		t.Fatalf("the chain has %d certificates, want the leaf and the pinned CA", len(pair.Certificate))
	}
	return pair.Leaf
}

func TestOpenCreatesCAOnce(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "tls")
	first := open(t, dir, nil, "muster.example")
	again := open(t, dir, nil, "muster.example")
	if first.Pin() != again.Pin() || !bytes.Equal(first.PEM(), again.PEM()) {
		t.Errorf("pins are %s and %s", first.Pin(), again.Pin())
	}
	block, _ := pem.Decode(first.PEM())
	if block == nil || capin.Of(block.Bytes) != first.Pin() {
		t.Errorf("the certificate %s does not have the pin %s", first.PEM(), first.Pin())
	}
	file, err := os.ReadFile(filepath.Join(dir, "ca.crt"))
	if err != nil || !bytes.Equal(file, first.PEM()) {
		t.Errorf("ca.crt is %s, %v", file, err)
	}
	for name, mode := range map[string]os.FileMode{"ca.key": 0o600, "ca.crt": 0o644} {
		if fi, err := os.Stat(filepath.Join(dir, name)); err != nil || fi.Mode().Perm() != mode {
			t.Errorf("%s: %v, %v, want mode %o", name, fi, err, mode)
		}
	}
	if other := open(t, t.TempDir(), nil); other.Pin() == first.Pin() {
		t.Error("two servers have one CA")
	}
}

// The server dies between writing the key and the certificate.
func TestKeyWithoutCertificateIsReplaced(t *testing.T) {
	dir := t.TempDir()
	open(t, dir, nil)
	if err := os.Remove(filepath.Join(dir, "ca.crt")); err != nil {
		t.Fatal(err)
	}
	if a := open(t, dir, nil, "localhost"); leaf(t, a).CheckSignatureFrom(ca(t, a)) != nil {
		t.Error("the new CA does not sign")
	}
}

func ca(t *testing.T, a *authority.Authority) *x509.Certificate {
	t.Helper()
	block, _ := pem.Decode(a.PEM())
	c, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func TestDamagedCAIsNotReplaced(t *testing.T) {
	for name, damage := range map[string]func(dir string) error{
		"its key is missing": func(dir string) error { return os.Remove(filepath.Join(dir, "ca.key")) },
		"restore ca.crt and ca.key from a backup": func(dir string) error {
			return os.WriteFile(filepath.Join(dir, "ca.crt"), []byte("nothing"), 0o600)
		},
		"private key does not match": func(dir string) error {
			other := t.TempDir()
			open(t, other, nil)
			key, err := os.ReadFile(filepath.Join(other, "ca.key"))
			return errors.Join(err, os.WriteFile(filepath.Join(dir, "ca.key"), key, 0o600))
		},
	} {
		dir := t.TempDir()
		open(t, dir, nil)
		if err := damage(dir); err != nil {
			t.Fatal(err)
		}
		before, _ := os.ReadFile(filepath.Join(dir, "ca.crt"))
		_, err := authority.Open(disk.OS{}, dir, nil, nil, nil)
		if err == nil || !strings.Contains(err.Error(), name) || !strings.Contains(err.Error(), dir) {
			t.Errorf("error is %v, want one that names %s and says %q", err, dir, name)
		}
		if after, _ := os.ReadFile(filepath.Join(dir, "ca.crt")); !bytes.Equal(before, after) {
			t.Errorf("%s: ca.crt was replaced, and with it every agent's pin", name)
		}
	}
}

func TestLeafIsRenewedBeforeExpiry(t *testing.T) {
	now := time.Date(2026, 3, 3, 10, 0, 0, 0, time.UTC)
	a := open(t, t.TempDir(), func() time.Time { return now }, "muster.example", "10.0.0.7", "::1")
	first := leaf(t, a)
	if !slices.Equal(first.DNSNames, []string{"muster.example"}) || len(first.IPAddresses) != 2 {
		t.Errorf("names are %v and %v", first.DNSNames, first.IPAddresses)
	}
	if life := first.NotAfter.Sub(first.NotBefore); life > 398*24*time.Hour {
		t.Errorf("it lasts %s, more than browsers accept", life)
	}
	if !first.NotBefore.Before(now) {
		t.Error("a host whose clock is behind would refuse it")
	}
	now = first.NotAfter.Add(-31 * 24 * time.Hour)
	if leaf(t, a) != first {
		t.Error("renewed too early")
	}
	now = first.NotAfter.Add(-29 * 24 * time.Hour)
	next := leaf(t, a)
	if next.NotAfter.Sub(now) < 300*24*time.Hour || next.SerialNumber.Cmp(first.SerialNumber) == 0 {
		t.Errorf("at %s the leaf ends at %s", now, next.NotAfter)
	}
	roots := x509.NewCertPool()
	roots.AddCert(ca(t, a))
	if _, err := next.Verify(x509.VerifyOptions{Roots: roots, DNSName: "muster.example", CurrentTime: now}); err != nil {
		t.Errorf("the new leaf: %v", err)
	}
}

func TestNames(t *testing.T) {
	names := authority.Names("muster.example", "", "localhost")
	for _, want := range []string{"localhost", "127.0.0.1", "::1", "muster.example"} {
		if !slices.Contains(names, want) {
			t.Errorf("%s is missing in %v", want, names)
		}
	}
	if slices.Contains(names, "") || len(slices.Compact(slices.Clone(names))) != len(names) {
		t.Errorf("names are %q", names)
	}
}

// Both parts together: a host that knows only the pin connects to its server.
func TestHostWithPinConnects(t *testing.T) {
	a := open(t, t.TempDir(), nil, "127.0.0.1", "localhost")
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "hello") }))
	server.Config.ErrorLog = log.New(io.Discard, "", 0)
	// Not StartTLS, which presents a certificate of its own to hosts that request an
	// address.
	server.Listener = tls.NewListener(server.Listener, a.TLS())
	server.Start()
	defer server.Close()
	serverURL := strings.Replace(server.URL, "http:", "https:", 1)
	u, err := url.Parse(serverURL)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	got, err := capin.Fetch(ctx, serverURL, strings.ToUpper(a.Pin()))
	if err != nil || got != string(a.PEM()) {
		t.Errorf("fetched %s, %v", got, err)
	}
	other := open(t, t.TempDir(), nil)
	if _, err := capin.Fetch(ctx, serverURL, other.Pin()); !errors.Is(err, capin.ErrMismatch) {
		t.Errorf("with the pin of another CA: %v", err)
	}
	config, err := capin.TLSConfig(a.Pin(), u.Hostname())
	if err != nil {
		t.Fatal(err)
	}
	client := &http.Client{Transport: &http.Transport{TLSClientConfig: config}}
	defer client.CloseIdleConnections()
	resp, err := client.Get(serverURL)
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
}

// registry is an installation's registry in memory.
type registry struct {
	mu  sync.Mutex
	pin string
	err error
	// before runs before a registration, as a concurrent server.
	before func()
}

func (r *registry) Registered() (string, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.pin, r.err
}

func (r *registry) Register(pin string) (string, error) {
	if r.before != nil {
		r.before()
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.pin == "" && r.err == nil {
		r.pin = pin
	}
	return r.pin, r.err
}

// files lists a folder.
func files(t *testing.T, dir string) []string {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		t.Fatal(err)
	}
	names := []string{}
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names
}

// One installation with servers on several machines.
func TestServersShareOneCA(t *testing.T) {
	agreed := &registry{}
	first, second := filepath.Join(t.TempDir(), "tls"), filepath.Join(t.TempDir(), "tls")
	a, err := authority.Open(disk.OS{}, first, nil, nil, agreed)
	if err != nil || agreed.pin != a.Pin() {
		t.Fatalf("registered is %q, %v", agreed.pin, err)
	}
	refused := func(dir, own string) {
		t.Helper()
		_, err := authority.Open(disk.OS{}, dir, nil, nil, agreed)
		var not *authority.MismatchError
		if !errors.As(err, &not) || not.Pin != a.Pin() || not.Own != own {
			t.Fatalf("the error is %v", err)
		}
		for _, says := range []string{dir, a.Pin(), own, "copy the folders tls and trust", "muster ca-pin"} {
			if !strings.Contains(err.Error(), says) {
				t.Errorf("the error does not say %q: %v", says, err)
			}
		}
	}
	refused(second, "")
	if got := files(t, second); len(got) != 0 {
		t.Errorf("the refused server's folder has %v", got)
	}
	own := open(t, second, nil)
	before := files(t, second)
	refused(second, own.Pin())
	if got := files(t, second); !slices.Equal(got, before) {
		t.Errorf("the refused server's folder has %v", got)
	}
	if err := errors.Join(os.RemoveAll(second), os.CopyFS(second, os.DirFS(first))); err != nil {
		t.Fatal(err)
	}
	if copied, err := authority.Open(disk.OS{}, second, nil, nil, agreed); err != nil || copied.Pin() != a.Pin() {
		t.Errorf("with the first one's folder: %v", err)
	}
}

func TestConcurrentFirstStartsCreateOneCA(t *testing.T) {
	for name, shared := range map[string]bool{"one folder": true, "a folder each": false} {
		t.Run(name, func(t *testing.T) {
			agreed := &registry{}
			dirs := make([]string, 4)
			var ready, all sync.WaitGroup
			ready.Add(len(dirs))
			// All servers have a candidate when the first one registers.
			agreed.before = func() { ready.Done(); ready.Wait() }
			got, errs := make([]*authority.Authority, len(dirs)), make([]error, len(dirs))
			top := t.TempDir()
			for i := range dirs {
				dirs[i] = filepath.Join(top, "tls")
				if !shared {
					dirs[i] = filepath.Join(top, strconv.Itoa(i), "tls")
				}
				all.Go(func() { got[i], errs[i] = authority.Open(disk.OS{}, dirs[i], nil, nil, agreed) })
			}
			all.Wait()
			won := 0
			for i, err := range errs {
				var not *authority.MismatchError
				switch {
				case err == nil && got[i].Pin() == agreed.pin:
					won++
					if left := files(t, dirs[i]); !slices.Equal(left, []string{"ca.crt", "ca.key"}) {
						t.Errorf("server %d has %v", i, left)
					}
				case errors.As(err, &not) && !shared:
					if left := files(t, dirs[i]); len(left) != 0 {
						t.Errorf("server %d was refused and has %v", i, left)
					}
				default:
					t.Errorf("server %d: %v", i, err)
				}
			}
			if want := map[bool]int{true: len(dirs), false: 1}[shared]; won != want {
				t.Errorf("%d started, want %d", won, want)
			}
		})
	}
}

// failing is a disk that fails from the n-th modifying call on.
type failing struct {
	disk.OS
	left int
}

var errBroken = errors.New("the machine has stopped")

func (d *failing) fails() bool {
	d.left--
	return d.left < 0
}

func (d *failing) OpenFile(op, path string, flag int, perm fs.FileMode) (disk.File, error) {
	if flag != os.O_RDONLY && d.fails() {
		return nil, errBroken
	}
	return d.OS.OpenFile(op, path, flag, perm)
}

func (d *failing) Rename(op, from, to string) error {
	if d.fails() {
		return errBroken
	}
	return d.OS.Rename(op, from, to)
}

func (d *failing) Remove(op, path string) error {
	if d.fails() {
		return errBroken
	}
	return d.OS.Remove(op, path)
}

func (d *failing) SyncDir(op, path string) error {
	if d.fails() {
		return errBroken
	}
	return d.OS.SyncDir(op, path)
}

func TestCrashDuringCACreationIsRecoverable(t *testing.T) {
	for step := 0; ; step++ {
		agreed, dir := &registry{}, filepath.Join(t.TempDir(), "tls")
		_, err := authority.Open(&failing{left: step}, dir, nil, nil, agreed)
		if err == nil {
			if step < 8 {
				t.Fatalf("only %d steps were failed", step)
			}
			return
		}
		if !errors.Is(err, errBroken) {
			t.Fatalf("step %d: %v", step, err)
		}
		promised := agreed.pin
		a, err := authority.Open(disk.OS{}, dir, nil, nil, agreed)
		if err != nil {
			t.Fatalf("after step %d it does not start: %v", step, err)
		}
		if promised != "" && a.Pin() != promised {
			t.Fatalf("after step %d the CA is not the registered one", step)
		}
		if leaf(t, a).CheckSignatureFrom(ca(t, a)) != nil {
			t.Fatalf("after step %d the CA does not sign", step)
		}
	}
}

func TestNoCAIsCreatedDuringStoreOutage(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "tls")
	away := errors.New("away")
	if _, err := authority.Open(disk.OS{}, dir, nil, nil, &registry{err: away}); !errors.Is(err, away) {
		t.Errorf("the error is %v", err)
	}
	if got := files(t, dir); len(got) != 0 {
		t.Errorf("the folder has %v", got)
	}
}
