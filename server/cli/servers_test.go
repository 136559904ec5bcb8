package cli_test

import (
	"testing"
	"time"

	"github.com/muster-fleet/muster/server/api/adminapi"
	"github.com/muster-fleet/muster/server/app/apptest"
	"github.com/muster-fleet/muster/server/fleet"
)

func TestServersAreListedAndForgotten(t *testing.T) {
	o, s := loggedIn(t)
	now := time.Now().UTC()
	for _, v := range []fleet.Server{
		{ID: "newer", Host: "srv-2", Version: "9.1.0", StartedAt: now, SeenAt: now.Add(time.Hour), AdminURL: "https://srv-2:8221", Parked: 7},
		{ID: "gone", Host: "srv-3", Version: "0.1.0", StartedAt: now.Add(-48 * time.Hour), SeenAt: now.Add(-24 * time.Hour)},
	} {
		if err := s.Store.Servers().Create(t.Context(), v); err != nil {
			t.Fatal(err)
		}
	}
	apptest.Eventually(t, "the server to be listed", func() string {
		if n := len(asJSON[adminapi.KnownServerList](o, "servers", "list").Items); n != 3 {
			return "it is not yet"
		}
		return ""
	})
	const remark = "warning: servers of several versions run: 9.1 on srv-2; 0.1 on "
	o.contains(o.run("servers", "list"), apptest.Version, s.AdminURL, "newer", "srv-2", "running", "https://srv-2:8221", "gone", "srv-3", "away", "2 d", remark)
	o.contains(o.run("status"), remark)
	o.fails(2, []string{"servers", "forget"}, "want one server id: `muster servers list` shows them")
	o.fails(1, []string{"servers", "forget", "newer"}, "the server on srv-2 (newer) runs", "stop it")
	o.contains(o.run("__complete", "servers", "forget", ""), "gone\tsrv-3 0.1.0")
	o.contains(o.run("servers", "forget", "gone", "--why", "replaced"), "forgotten")
	o.fails(1, []string{"servers", "forget", "gone"}, "there is no server gone")
	o.contains(o.run("audit"), "forgot the server on srv-3", "replaced")
}
