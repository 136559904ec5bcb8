package cli

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"

	"github.com/muster-fleet/muster/packaging/host/disk"
	findings "github.com/muster-fleet/muster/packaging/host/doctor"
	"github.com/muster-fleet/muster/server/app"
	"github.com/muster-fleet/muster/server/node/backup"
	"github.com/muster-fleet/muster/server/store"
	"github.com/muster-fleet/muster/server/store/elastic"
	"github.com/muster-fleet/muster/server/store/migrate"
	"github.com/muster-fleet/muster/server/store/sqlite"
)

// storeFile is the name of the embedded store in the data folder.
const storeFile = backup.StoreFile

// openStore opens the store that the configuration names.
func openStore(ctx context.Context, config app.Config) (store.Store, error) {
	return openStoreAs(ctx, config, false)
}

// openStoreAs opens the store. With asIs it leaves the schema in Elasticsearch as it is, which
// other servers may be changing; the schema of the embedded store is the owner's affair.
func openStoreAs(ctx context.Context, config app.Config, asIs bool) (store.Store, error) {
	if err := checkData(config.Data); err != nil {
		return nil, err
	}
	interrupted, err := backup.Interrupted(disk.OS{}, config.Data)
	if err != nil {
		return nil, err
	}
	if interrupted {
		return nil, fmt.Errorf("the restore of %s was interrupted: run the same `muster restore` again, which completes it", config.Data)
	}
	if es := config.Store.Elasticsearch; es != nil {
		o, err := elasticOptions(es)
		if err != nil {
			return nil, err
		}
		o.AsIs = asIs
		return elastic.Open(ctx, o)
	}
	s, err := sqlite.Open(ctx, filepath.Join(config.Data, storeFile), sqlite.Options{})
	if errors.Is(err, fs.ErrPermission) {
		// A subcommand that root ran on the data left a file that the server's user may not open.
		return nil, fmt.Errorf("%w: sudo chown -R --reference=%s %s", err, config.Data, config.Data)
	}
	if err != nil {
		return nil, err
	}
	// `muster store migrate` needs an id, and cannot write one while a server runs.
	if _, err := migrate.ID(ctx, s); err != nil {
		return nil, errors.Join(err, s.Close())
	}
	return s, nil
}

// checkData makes the data folder if there is none, and refuses one in which this process may not
// write: what may not be read would be taken for damaged. It accepts a full disk, which a server can
// start on.
func checkData(data string) error {
	if err := os.MkdirAll(data, 0o700); err != nil {
		return fmt.Errorf("data folder: %w: choose another with --data; `muster doctor` names what mends this one", err)
	}
	f, err := os.CreateTemp(data, ".muster-*")
	if errors.Is(err, fs.ErrPermission) || errors.Is(err, syscall.EROFS) {
		found := findings.Folder(data)
		return fmt.Errorf("data folder: %s: %s", found.Found, found.Mend)
	}
	if err != nil {
		return nil //nolint:nilerr // whoever needs to write reports it
	}
	return errors.Join(f.Close(), os.Remove(f.Name()))
}

func elasticOptions(c *app.ElasticsearchConfig) (elastic.Options, error) {
	o := elastic.Options{URLs: c.Hosts, Prefix: c.Prefix, Username: c.Username, CAFingerprint: c.CAFingerprint}
	var err error
	if o.Password, o.APIKey, o.ServiceToken, err = c.Secrets(); err != nil {
		return o, err
	}
	if c.CA != "" {
		if o.CACert, err = os.ReadFile(c.CA); err != nil {
			return o, fmt.Errorf("store.elasticsearch.ca: %w", err)
		}
	}
	if c.Certificate != "" {
		cert, err := tls.LoadX509KeyPair(c.Certificate, c.Key)
		if err != nil {
			return o, fmt.Errorf("store.elasticsearch.certificate: %w", err)
		}
		o.ClientCertificate = &cert
	}
	return o, nil
}
