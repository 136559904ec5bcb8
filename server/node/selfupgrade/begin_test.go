package selfupgrade_test

import (
	"context"
	"path/filepath"
	"testing"
	"time"

	"github.com/muster-fleet/muster/server/fleet"
	"github.com/muster-fleet/muster/server/node/selfupgrade"
	"github.com/muster-fleet/muster/server/store"
	"github.com/muster-fleet/muster/server/store/sqlite"
)

// late is a store in which somebody writes the upgrade just before it is updated.
type late struct {
	store.Store
	writes []func(*fleet.ServerUpgrade)
}

func (l *late) ServerUpgrades() store.Collection[fleet.ServerUpgrade] {
	return lateUpgrades{l.Store.ServerUpgrades(), l}
}

type lateUpgrades struct {
	store.Collection[fleet.ServerUpgrade]
	of *late
}

func (l lateUpgrades) Update(ctx context.Context, u fleet.ServerUpgrade) (int64, error) {
	if len(l.of.writes) > 0 {
		other, err := l.Get(ctx, u.ID)
		if err != nil {
			return 0, err
		}
		l.of.writes[0](&other)
		l.of.writes = l.of.writes[1:]
		if _, err := l.Collection.Update(ctx, other); err != nil {
			return 0, err
		}
	}
	return l.Collection.Update(ctx, u)
}

// A server may report its part of an upgrade that has ended while an operator begins the next one.
func TestLateReportDoesNotKeepTheNextUpgradeFromBeginning(t *testing.T) {
	now := time.Now().UTC()
	s, err := sqlite.Open(t.Context(), filepath.Join(t.TempDir(), "muster.db"), sqlite.Options{})
	check(t, err)
	defer s.Close()
	check(t, s.Servers().Create(t.Context(), fleet.Server{ID: "a", Host: "srv-a", Version: "1.0.0", SeenAt: now}))
	l := &late{Store: s}
	request := selfupgrade.Request{Actor: "kim", To: "1.1.0"}
	undone := func() {
		t.Helper()
		_, err := selfupgrade.Begin(t.Context(), s, request, now)
		check(t, err)
		_, err = selfupgrade.RequestUndo(t.Context(), s, "kim", now)
		check(t, err)
	}
	report := func(u *fleet.ServerUpgrade) { u.Servers[0].Reached = fleet.ServerCheck }

	undone()
	l.writes = []func(*fleet.ServerUpgrade){report, report}
	u, err := selfupgrade.Begin(t.Context(), l, request, now)
	check(t, err)
	if current, err := selfupgrade.Current(t.Context(), s.ServerUpgrades()); err != nil || current.Run != u.Run || current.Phase != fleet.ServerCheck {
		t.Errorf("the upgrade is %+v, %v", current, err)
	}

	_, err = selfupgrade.RequestUndo(t.Context(), s, "kim", now)
	check(t, err)
	l.writes = []func(*fleet.ServerUpgrade){func(u *fleet.ServerUpgrade) { u.Run, u.Phase = "another", fleet.ServerCheck }}
	if _, err := selfupgrade.Begin(t.Context(), l, request, now); fleet.KindOf(err) != fleet.Conflict {
		t.Errorf("somebody else has begun an upgrade: %v", err)
	}
}

func check(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
