package app_test

import (
	"context"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/muster-fleet/muster/server/api/adminapi"
	"github.com/muster-fleet/muster/server/app"
	"github.com/muster-fleet/muster/server/app/apptest"
	"github.com/muster-fleet/muster/server/fleet"
)

func TestServersOfOneStoreAreListedUntilTheyAreForgotten(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		first := apptest.Start(t, exactly(time.Minute))
		seed(t, first.Data, dir)
		second := apptest.StartOn(t, dir, exactly(time.Minute), on(first), func(o *app.Options) { o.Version = "0.2.0" })
		a := first.Enroll("web-01", "1.0.0")
		var polling sync.WaitGroup
		polling.Go(func() { _, _ = a.Checkin(context.Background(), second, nil) }) // until the second stops
		defer polling.Wait()
		time.Sleep(2 * fleet.ServerBeat)

		list := func() (one, two adminapi.KnownServer, got adminapi.KnownServerList) {
			t.Helper()
			got = apptest.Decode[adminapi.KnownServerList](t, first.Admin(http.MethodGet, "/api/v1/servers", nil))
			if len(got.Items) != 2 {
				t.Fatalf("the servers are %+v", got.Items)
			}
			if one, two = got.Items[0], got.Items[1]; one.Version == "0.2.0" {
				one, two = two, one
			}
			return one, two, got
		}
		one, two, got := list()
		if one.Id == two.Id || two.Version != "0.2.0" || two.AgentsUrl != second.AgentURL || two.AdminUrl != second.AdminURL || two.Schema != first.Store.Schema() ||
			two.Parked != 1 || one.Away || two.Away || two.Problem != nil {
			t.Errorf("the servers are %+v", got.Items)
		}
		if len(got.Remarks) != 1 || !strings.HasPrefix(got.Remarks[0], "servers of several versions run: 0.2 on ") {
			t.Errorf("the remarks are %q", got.Remarks)
		}
		path := "/api/v1/servers/" + two.Id
		if got := first.Admin(http.MethodDelete, path, nil); got.Status != http.StatusConflict {
			t.Errorf("to forget a server that runs answered %d %s", got.Status, got.Body)
		}

		if err := second.Stop(); err != nil {
			t.Fatal(err)
		}
		time.Sleep(fleet.ServerAway)
		if one, two, got = list(); one.Away || !two.Away || len(got.Remarks) != 0 {
			t.Errorf("when the second has stopped they are %+v", got)
		}
		if got := first.Admin(http.MethodDelete, path+"?why=replaced", nil); got.Status != http.StatusOK {
			t.Errorf("to forget it answered %d %s", got.Status, got.Body)
		}
		if left, _, err := first.Store.Servers().List(t.Context(), 0, 0); err != nil || len(left) != 1 || left[0].ID != one.Id {
			t.Errorf("left are %+v, %v", left, err)
		}
	})
}

func TestServerKeepsItsIDWhenItStartsAgain(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		var before fleet.Server
		for range 2 {
			s := apptest.StartOn(t, dir, apptest.OnPipes)
			synctest.Wait()
			list, _, err := s.Store.Servers().List(t.Context(), 0, 0)
			if err != nil || len(list) != 1 || before.ID != "" && list[0].ID != before.ID || list[0].Process == before.Process {
				t.Fatalf("it was %+v and is %+v, %v", before, list, err)
			}
			before = list[0]
			if err := s.Stop(); err != nil {
				t.Fatal(err)
			}
		}
	})
}
