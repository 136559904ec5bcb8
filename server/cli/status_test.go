package cli_test

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/muster-fleet/muster/server/api/adminapi"
	"github.com/muster-fleet/muster/server/app/apptest"
	"github.com/muster-fleet/muster/server/fleet"
)

func TestOperatorSeesWhatTheFleetLooksLike(t *testing.T) {
	o, s := loggedIn(t, quick)
	for host, version := range map[string]string{"web-01": "1.0.0", "web-02": "1.1.0", "db-01": "1.1.0"} {
		s.Enroll(host, version).MustCheckin(nil)
	}
	o.contains(o.run("agents", "facets", "--fields", "version,health"), "3 agents", "health", "healthy", "1.1.0", `: "1.1.0"`)
	if got := asJSON[adminapi.Facets](o, "agents", "facets", "--kuery", "agent.version: 1.0.0"); got.Total != 1 {
		t.Errorf("the facets are %+v", got)
	}
	o.fails(1, []string{"agents", "facets", "--fields", "colour"}, `has "colour"`)
	if got := o.run("agents", "export", "--columns", "hostname,version"); got != "hostname,version\ndb-01,1.1.0\nweb-01,1.0.0\nweb-02,1.1.0\n" {
		t.Errorf("the export is %q", got)
	}
	o.fails(1, []string{"agents", "export", "--columns", "colour"}, "is no column")

	o.contains(o.run("attention"), "Nothing waits for a person.")
	if err := s.Store.Incidents().Create(t.Context(), fleet.Incident{ID: "i-1", State: fleet.IncidentOpen, Severity: "critical", Title: "web-01 could not go back", OpenedAt: time.Now().Add(-time.Hour)}); err != nil {
		t.Fatal(err)
	}
	deadline := time.Now().Add(apptest.WaitLimit) // what waits is cached for some seconds
	for text := ""; !strings.Contains(text, "web-01 could not go back."); text = o.run("attention") {
		if time.Now().After(deadline) {
			t.Fatalf("the incident does not show: %s", text)
		}
		time.Sleep(20 * time.Millisecond)
	}
	o.contains(o.run("settings"), "agents.listen", "default")
}

func TestOperatorKeepsViews(t *testing.T) {
	o, s := loggedIn(t, quick)
	o.contains(o.run("views", "list"), "none")
	o.contains(o.run("views", "save", "Offline", "--search", "kuery=health%3Aoffline"), "saved")
	o.contains(o.run("views", "list"), "Offline", "agents", "kuery=health%3Aoffline", "first key")
	view := asJSON[adminapi.ViewList](o, "views", "list").Items[0]
	o.fails(1, []string{"views", "save", "x", "--page", "hosts"}, `page: is "hosts"`)
	o.contains(o.run("views", "delete", view.ID), "deleted")
	o.fails(1, []string{"views", "delete", view.ID}, "no saved view")
	if got := s.Admin(http.MethodGet, "/api/v1/views", nil); strings.Contains(string(got.Body), "Offline") {
		t.Errorf("the views are %s", got.Body)
	}
}
