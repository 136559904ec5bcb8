package app

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"slices"

	"github.com/muster-fleet/muster/packaging/host/disk"
	"github.com/muster-fleet/muster/server/fleet"
	"github.com/muster-fleet/muster/server/node/authority"
	"github.com/muster-fleet/muster/server/store"
)

// caPinSetting is the store's setting with the pin of the CA. The CA itself stays out of
// the store: whoever reads its backups must not be able to pose as a server.
const caPinSetting = "ca-pin"

// CAPin returns the pin of the CA that all servers of the installation must have, "" if
// none has started yet.
func CAPin(ctx context.Context, s store.Store) (string, error) {
	pin, err := s.Settings().Get(ctx, caPinSetting)
	if fleet.KindOf(err) == fleet.NotFound {
		return "", nil
	}
	return string(pin), err
}

// ForgetCAPin deletes the pin, so that the server that starts next registers its own CA.
// Agents that pin another must be enrolled again.
func ForgetCAPin(ctx context.Context, s store.Store) error {
	return s.Settings().Delete(ctx, caPinSetting)
}

// CheckStore refuses an empty store beside the CA of an existing installation: a lost disk
// or a wrong path would otherwise begin a new installation, whose server refuses all
// agents.
func CheckStore(data string, empty func() (bool, error)) error {
	if _, err := os.Stat(filepath.Join(data, "tls", "ca.crt")); err != nil {
		return nil //nolint:nilerr // without a CA there was no installation, or agents pin an operator's certificate
	}
	is, err := empty()
	if err != nil || !is {
		return err
	}
	return fmt.Errorf("%s has the CA of an installation, and its store is empty: no agent, no key and no order is in it. Restore a backup with `muster restore FILE --data %s --replace`, or correct the data folder or the store in the configuration. To begin a new installation with this CA on purpose, start once with --new-store", data, data)
}

// isEmpty reports whether no server has started on the store.
func isEmpty(ctx context.Context, s store.Store) (bool, error) {
	if pin, err := CAPin(ctx, s); err != nil || pin != "" {
		return false, err
	}
	// The pin may have been forgotten.
	_, keys, err := s.AdminKeys().List(ctx, 0, 0)
	return err == nil && keys == 0, err
}

// registry implements authority.Registry with the store.
type registry struct {
	ctx   context.Context //nolint:containedctx // it lives for one call of authority
	store store.Store
}

func (r registry) Registered() (string, error) { return CAPin(r.ctx, r.store) }

func (r registry) Register(pin string) (string, error) {
	current, err := r.store.Settings().GetOrPut(r.ctx, caPinSetting, []byte(pin))
	return string(current), err
}

// certificates are the server's TLS configuration and identity, which agents of the
// installation accept.
type certificates struct {
	tls     *tls.Config
	tickets *authority.Tickets
	pin     string
	pem     []byte // the certificate with the pin
	file    string // path of the CA's certificate; empty with an operator's certificate
	// renewedElsewhere returns the server's certificate while the server cannot renew it itself, or nil.
	renewedElsewhere func() *x509.Certificate
}

func openCertificates(ctx context.Context, o Options) (*certificates, error) {
	c := o.Config
	known := registry{ctx, o.Store}
	if c.TLS.Certificate != "" {
		f, err := authority.OpenFiles(c.TLS.Certificate, c.TLS.Key, o.Now, o.Log, known)
		if err != nil {
			return nil, err
		}
		tickets, err := f.Tickets()
		return &certificates{tls: f.TLS(), tickets: tickets, pin: f.Pin(), pem: f.PEM(), file: "", renewedElsewhere: f.Leaf}, err
	}
	if !o.NewStore {
		if err := CheckStore(c.Data, func() (bool, error) { return isEmpty(ctx, o.Store) }); err != nil {
			return nil, err
		}
	}
	names := slices.Clone(c.TLS.Names)
	for _, u := range []string{c.Agents.URL, c.Admin.URL} {
		if p, err := url.Parse(u); err == nil && p.Hostname() != "" {
			names = append(names, p.Hostname())
		}
	}
	dir := filepath.Join(c.Data, "tls")
	a, err := authority.Open(disk.OS{}, dir, authority.Names(names...), o.Now, known)
	if err != nil {
		return nil, err
	}
	a.Log = o.Log
	tickets, err := a.Tickets()
	return &certificates{
		tls: a.TLS(), tickets: tickets, pin: a.Pin(), pem: a.PEM(), file: filepath.Join(dir, "ca.crt"), renewedElsewhere: a.RenewedElsewhere,
	}, err
}
