package replica

import (
	"context"
	"crypto/tls"
	"net/url"
	"path/filepath"
	"slices"

	"github.com/muster-fleet/muster/packaging/disk"
	"github.com/muster-fleet/muster/server/authority"
	"github.com/muster-fleet/muster/server/fleet"
	"github.com/muster-fleet/muster/server/store"
)

// caPinSetting is where the store remembers which CA agents pin. The CA itself stays
// out of the store: whoever reads its backups must not be able to pose as a server.
const caPinSetting = "ca-pin"

// CAPin returns the pin of the CA that all servers of the installation must have; ""
// if none has started yet.
func CAPin(ctx context.Context, s store.Store) (string, error) {
	pin, err := s.Settings().Get(ctx, caPinSetting)
	if fleet.KindOf(err) == fleet.NotFound {
		return "", nil
	}
	return string(pin), err
}

// ForgetCAPin lets the server that starts next say which CA the installation has.
// Agents that pin another must be enrolled again.
func ForgetCAPin(ctx context.Context, s store.Store) error {
	return s.Settings().Delete(ctx, caPinSetting)
}

// registry keeps the pin in the store.
type registry struct {
	ctx   context.Context //nolint:containedctx // it lives for one call of authority
	store store.Store
}

func (r registry) Registered() (string, error) { return CAPin(r.ctx, r.store) }

func (r registry) Register(pin string) (string, error) {
	kept, err := r.store.Settings().GetOrPut(r.ctx, caPinSetting, []byte(pin))
	return string(kept), err
}

// certificates are what the replica serves with: always those that agents of the
// installation accept.
func (r *Replica) certificates(ctx context.Context) (*tls.Config, error) {
	c := r.opts.Config
	known := registry{ctx, r.opts.Store}
	if c.TLS.Certificate != "" {
		config, pin, err := authority.Files(c.TLS.Certificate, c.TLS.Key, known)
		if err != nil {
			return nil, err
		}
		r.info.CAPin = pin
		r.tickets, err = authority.NewTickets(config.Certificates[0].PrivateKey, r.opts.Now)
		return config, err
	}
	names := slices.Clone(c.TLS.Names)
	for _, u := range []string{c.Agents.URL, c.Admin.URL} {
		if p, err := url.Parse(u); err == nil && p.Hostname() != "" {
			names = append(names, p.Hostname())
		}
	}
	dir := filepath.Join(c.Data, "tls")
	a, err := authority.Open(disk.OS{}, dir, authority.Names(names...), r.opts.Now, known)
	if err != nil {
		return nil, err
	}
	r.info.CAPin, r.info.CAFile = a.Pin(), filepath.Join(dir, "ca.crt")
	r.tickets, err = a.Tickets()
	return a.TLS(), err
}
