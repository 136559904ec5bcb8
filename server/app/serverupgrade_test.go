package app_test

import (
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/muster-fleet/muster/server/app"
	"github.com/muster-fleet/muster/server/app/apptest"
	"github.com/muster-fleet/muster/server/fleet"
	"github.com/muster-fleet/muster/server/node/selfupgrade"
)

// While the servers are being upgraded, operators can look and change nothing, and agents stay
// connected. A server that cannot be replaced undoes the upgrade.
func TestOrdersAreRefusedWhileTheServersAreUpgraded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := apptest.Start(t, exactly(time.Second))
		order := func() apptest.Answer {
			return s.Admin(http.MethodPost, "/api/v1/freezes", map[string]any{"name": "year's end", "from": time.Now(), "to": time.Now().Add(time.Hour)})
		}
		time.Sleep(time.Second)
		servers, _, err := s.Store.Servers().List(t.Context(), 0, 0)
		if err != nil || len(servers) != 1 {
			t.Fatalf("the servers are %+v, %v", servers, err)
		}
		now := time.Now().UTC()
		u := fleet.ServerUpgrade{
			ID: fleet.ServerUpgradeID, Run: "r", From: apptest.Version, To: "9.9.9", Phase: fleet.ServerHold, Since: now, StartedAt: now,
			Servers: []fleet.UpgradingServer{{ID: servers[0].ID, Host: "srv-1", Reached: fleet.ServerCheck}, {ID: "other", Host: "srv-2"}},
		}
		if err := s.Store.ServerUpgrades().Create(t.Context(), u); err != nil {
			t.Fatal(err)
		}
		time.Sleep(3 * time.Second)
		got := order()
		if got.Status != http.StatusServiceUnavailable || got.Header.Get("Retry-After") == "" || !strings.Contains(string(got.Body), "the servers are being upgraded from "+apptest.Version+" to 9.9.9, and take no orders meanwhile") {
			t.Errorf("an order answered %d %s, with %v", got.Status, got.Body, got.Header)
		}
		if got := s.Admin(http.MethodGet, "/api/v1/freezes", nil); got.Status != http.StatusOK {
			t.Errorf("a look answered %d %s", got.Status, got.Body)
		}
		if got := s.Admin(http.MethodDelete, "/api/v1/session", nil); got.Status != http.StatusOK {
			t.Errorf("to log out answered %d %s", got.Status, got.Body)
		}
		a := s.Enroll("web-01", "1.0.0")
		a.MustCheckin(nil)

		// The other server does not take part.
		time.Sleep(time.Minute)
		if got := order(); got.Status != http.StatusOK {
			t.Errorf("after the upgrade was undone an order answered %d %s", got.Status, got.Body)
		}
		if u, err = s.Store.ServerUpgrades().Get(t.Context(), u.ID); err != nil || u.Phase != fleet.ServerUndo && u.Phase != fleet.ServerUndone || !strings.Contains(u.Problem, "the servers on srv-2 have not taken part") {
			t.Errorf("the upgrade has ended %s: %s, %v", u.Phase, u.Problem, err)
		}
	})
}

func TestServerOutsideAnInstallationIsNotUpgraded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := apptest.Start(t, exactly(time.Minute), func(o *app.Options) { o.Version = "1.0.0" })
		time.Sleep(time.Second)
		if _, err := selfupgrade.Begin(t.Context(), s.Store, selfupgrade.Request{Actor: "kim", To: "1.1.0"}, time.Now().UTC()); err != nil {
			t.Fatal(err)
		}
		if _, err := selfupgrade.Begin(t.Context(), s.Store, selfupgrade.Request{Actor: "kim", To: "1.1.0"}, time.Now().UTC()); fleet.KindOf(err) != fleet.Conflict {
			t.Errorf("a second upgrade: %v", err)
		}
		time.Sleep(10 * time.Second)
		u, err := selfupgrade.Current(t.Context(), s.Store.ServerUpgrades())
		if err != nil || u.Phase != fleet.ServerUndone || !strings.Contains(u.Problem, "install its version with `muster server install`") {
			t.Errorf("the upgrade is %+v, %v", u, err)
		}
		if _, err := selfupgrade.RequestUndo(t.Context(), s.Store, "kim", time.Now().UTC()); fleet.KindOf(err) != fleet.Conflict {
			t.Errorf("to undo what has ended: %v", err)
		}
		for to, want := range map[string]string{"1.0.0": "all servers run already", "2.0.0": "their major versions differ", "next": "next"} {
			if _, err := selfupgrade.Begin(t.Context(), s.Store, selfupgrade.Request{Actor: "kim", To: to}, time.Now().UTC()); err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("an upgrade to %s: %v, want %q", to, err, want)
			}
		}
	})
}
