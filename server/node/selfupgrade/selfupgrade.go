// Package selfupgrade upgrades all servers of an installation as one. An operator's request
// begins an upgrade in the store ([Begin]). Every server follows it there ([Follower]): it
// checks its machine, stops, replaces itself by the other version, and serves again. The
// server that owns the lease moves the upgrade from phase to phase, backs up the store and
// changes its schema; any server can continue where another one died. What a server has to
// do, and when the upgrade goes on, is decided by pure functions (decide.go).
package selfupgrade

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/muster-fleet/muster/packaging/pkg/manifest"
	"github.com/muster-fleet/muster/server/fleet"
	"github.com/muster-fleet/muster/server/store"
	"github.com/muster-fleet/muster/server/store/audit"
)

// Current returns the upgrade that is under way or the last one, nil if there was none.
func Current(ctx context.Context, upgrades store.Collection[fleet.ServerUpgrade]) (*fleet.ServerUpgrade, error) {
	u, err := upgrades.Get(ctx, fleet.ServerUpgradeID)
	switch {
	case err == nil:
		return &u, nil
	case fleet.KindOf(err) == fleet.NotFound:
		return nil, nil
	}
	return nil, err
}

// running returns the servers of the installation that are not away.
func running(ctx context.Context, servers store.Collection[fleet.Server], now time.Time) ([]fleet.Server, error) {
	list, _, err := servers.List(ctx, 0, 0)
	return slices.DeleteFunc(list, func(s fleet.Server) bool { return s.Away(now) }), err
}

// Request is the upgrade that an operator asks for.
type Request struct {
	Actor, To string
	// WithoutBackup leaves out the backup of the store.
	WithoutBackup bool
}

// Begin begins an upgrade of all servers that run. It fails with Conflict if one is under
// way, and with Invalid if the version cannot follow theirs.
func Begin(ctx context.Context, s store.Store, o Request, now time.Time) (*fleet.ServerUpgrade, error) {
	old, err := Current(ctx, s.ServerUpgrades())
	if err != nil {
		return nil, err
	}
	if old != nil && !old.Phase.Ended() {
		return nil, fleet.Errorf(fleet.Conflict, "the servers are being upgraded from %s to %s already: `muster server upgrade --status` says how far it is", old.From, old.To)
	}
	servers, err := running(ctx, s.Servers(), now)
	if err != nil {
		return nil, err
	}
	from, err := commonVersion(servers)
	if err != nil {
		return nil, err
	}
	if from == o.To {
		return nil, fleet.FieldError("to", "is %s, which all servers run already", o.To)
	}
	if err := manifest.CheckStep(from, o.To); err != nil {
		return nil, fleet.FieldError("to", "%s", err)
	}
	u := fleet.ServerUpgrade{
		ID: fleet.ServerUpgradeID, Run: fleet.NewID(), From: from, To: o.To, Phase: fleet.ServerCheck, Since: now, StartedAt: now, Actor: o.Actor, WithoutBackup: o.WithoutBackup,
	}
	var hosts []string
	for i := range servers {
		v := &servers[i]
		if problem := v.Problem(); problem != "" {
			return nil, fleet.Errorf(fleet.Conflict, "%s", problem)
		}
		u.Servers = append(u.Servers, fleet.UpgradingServer{ID: v.ID, Host: v.Host, Version: v.Version})
		hosts = append(hosts, v.Host)
	}
	entry := fleet.AuditEntry{Actor: o.Actor, Verb: "server.upgrade", Subject: u.Run, Text: fmt.Sprintf("began to upgrade the servers on %s from %s to %s", strings.Join(hosts, ", "), from, o.To)}
	if err := audit.Record(ctx, s.Audit(), now, entry); err != nil {
		return nil, err
	}
	// A server may still report its part of the upgrade that has ended.
	u, _, err = store.Put(ctx, s.ServerUpgrades(), u.ID, func(old *fleet.ServerUpgrade) (fleet.ServerUpgrade, error) {
		if old != nil && !old.Phase.Ended() {
			return u, fleet.Errorf(fleet.Conflict, "someone else has begun to upgrade the servers at this moment: `muster server upgrade --status` says how far it is")
		}
		return u, nil
	})
	return &u, err
}

// commonVersion returns the version that all servers run.
func commonVersion(servers []fleet.Server) (string, error) {
	if len(servers) == 0 {
		return "", fleet.Errorf(fleet.Conflict, "no server runs: start one, or make another version the current one with `muster server versions switch`")
	}
	by := map[string][]string{}
	for i := range servers {
		by[servers[i].Version] = append(by[servers[i].Version], servers[i].Host)
	}
	if len(by) == 1 {
		return servers[0].Version, nil
	}
	var parts []string
	for version, hosts := range by {
		slices.Sort(hosts)
		parts = append(parts, version+" on "+strings.Join(hosts, ", "))
	}
	slices.Sort(parts)
	return "", fleet.Errorf(fleet.Conflict, "servers of several versions run (%s): bring them to one version first, with `muster server versions switch` and a restart on each machine", strings.Join(parts, "; "))
}

// RequestUndo undoes the upgrade that is under way. It fails with Conflict if there is none,
// or if the schema of the store may have changed.
func RequestUndo(ctx context.Context, s store.Store, actor string, now time.Time) (*fleet.ServerUpgrade, error) {
	u, _, err := store.Put(ctx, s.ServerUpgrades(), fleet.ServerUpgradeID, func(u *fleet.ServerUpgrade) (fleet.ServerUpgrade, error) {
		switch {
		case u == nil || u.Phase.Ended():
			return fleet.ServerUpgrade{}, fleet.Errorf(fleet.Conflict, "the servers are not being upgraded: there is nothing to undo. `muster server upgrade --to VERSION` goes back to the previous minor version")
		case u.Phase.Committed():
			return *u, fleet.Errorf(fleet.Conflict, "the upgrade to %s has begun to change the store, and goes on: when it has ended, `muster server upgrade --to %s` goes back", u.To, u.From)
		case u.Phase == fleet.ServerUndo:
			return *u, nil
		}
		m := Move{Phase: fleet.ServerUndo, Problem: actor + " has asked to undo it"}
		if u.Phase == fleet.ServerCheck {
			m.Phase = fleet.ServerUndone
		}
		Apply(u, m, now)
		return *u, nil
	})
	return &u, err
}

// Restored ends the upgrade that was under way when a backup was made, such as the backup that
// an upgrade makes: servers that start on it would go on with the upgrade.
func Restored(ctx context.Context, upgrades store.Collection[fleet.ServerUpgrade], now time.Time) error {
	u, err := Current(ctx, upgrades)
	if err != nil || u == nil || u.Phase.Ended() {
		return err
	}
	Apply(u, Move{Phase: fleet.ServerUndone, Problem: "the store was restored from a backup"}, now)
	_, err = upgrades.Update(ctx, *u)
	return err
}
