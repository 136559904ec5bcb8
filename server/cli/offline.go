package cli

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"time"

	"github.com/muster-fleet/muster/server/api/access"
	"github.com/muster-fleet/muster/server/app"
	"github.com/muster-fleet/muster/server/fleet"
	"github.com/muster-fleet/muster/server/node/control"
	"github.com/muster-fleet/muster/server/node/selfupgrade"
	"github.com/muster-fleet/muster/server/store"
	"github.com/muster-fleet/muster/server/store/event"
)

// localOperations returns the operations of the server on this machine. They go through its
// control socket if it runs on the embedded store, and otherwise to the store itself.
func localOperations(ctx context.Context, config app.Config) (c control.Operations, done func(), err error) {
	if config.Store.Elasticsearch == nil {
		// Opening a missing store would create one that no server uses.
		if _, err := os.Stat(filepath.Join(config.Data, storeFile)); err != nil {
			return nil, nil, noData(config.Data, err)
		}
		client, err := control.Dial(ctx, config.Data)
		if !errors.Is(err, control.ErrNoServer) {
			return client, func() {}, err
		}
	}
	s, err := openStore(ctx, config)
	if err != nil {
		return nil, nil, err
	}
	return storeOperations{s}, func() { _ = s.Close() }, nil // writes are durable before Close
}

// storeOperations carries operations out on an open store.
type storeOperations struct{ store store.Store }

func (c storeOperations) CreateAdminKey(ctx context.Context, name string) (control.AdminKey, error) {
	events := &event.Stream{Store: c.store.Events(), Log: slog.Default()}
	k, cred, err := access.New(c.store, access.SessionKey{}, events, nil).CreateKey(ctx, name, 0, "muster admin-key")
	var refused *fleet.Error
	if errors.As(err, &refused) {
		err = refuse(0, refused.Error(), nil)
	}
	if err != nil {
		return control.AdminKey{}, err
	}
	return control.AdminKey{ID: k.ID, Name: k.Name, APIKey: cred.Encode()}, nil
}

func (c storeOperations) CAPin(ctx context.Context, forget bool) (string, error) {
	pin, err := app.CAPin(ctx, c.store)
	if err == nil && forget {
		err = app.ForgetCAPin(ctx, c.store)
	}
	return pin, err
}

// upgradeActor is who the audit trail names for operations on the upgrade of the servers.
const upgradeActor = "muster server upgrade"

func (c storeOperations) BeginUpgrade(ctx context.Context, to string, withoutBackup bool) (*fleet.ServerUpgrade, error) {
	return selfupgrade.Begin(ctx, c.store, selfupgrade.Request{Actor: upgradeActor, To: to, WithoutBackup: withoutBackup}, time.Now().UTC())
}

func (c storeOperations) UndoUpgrade(ctx context.Context) (*fleet.ServerUpgrade, error) {
	return selfupgrade.RequestUndo(ctx, c.store, upgradeActor, time.Now().UTC())
}

func (c storeOperations) Upgrade(ctx context.Context) (*fleet.ServerUpgrade, error) {
	return selfupgrade.Current(ctx, c.store.ServerUpgrades())
}
