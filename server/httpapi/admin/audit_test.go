package admin_test

import (
	"strings"
	"testing"

	"github.com/muster-fleet/muster/server/adminapi"
	"github.com/muster-fleet/muster/server/app/apptest"
)

func TestTrailHasOrdersWithTheirReason(t *testing.T) {
	t.Parallel()
	s := apptest.Start(t, quick)
	a := s.Enroll("web-01", "1.0.0")
	a.MustCheckin(nil)
	if got := s.Admin("POST", a.Path("unenroll")+"?why=scrapped", map[string]bool{"revoke": true}); got.Status != 200 {
		t.Fatalf("answered %d %s", got.Status, got.Body)
	}
	if got := s.Admin("POST", a.Path("unenroll")+"?why="+strings.Repeat("x", 3000), nil); got.Status != 400 || !strings.Contains(string(got.Body), "query.why") {
		t.Errorf("a long reason is answered %d %s", got.Status, got.Body)
	}
	trail := func() []adminapi.AuditEntry {
		return apptest.Decode[adminapi.AuditList](t, s.Admin("GET", "/api/v1/audit", nil)).Items
	}
	before := trail()
	e := before[0]
	if e.Actor != "first key" || e.Verb != "agent.revoke" || e.Why == nil || *e.Why != "scrapped" || !strings.Contains(e.Text, a.ID) || e.At.IsZero() {
		t.Errorf("the newest entry is %+v", e)
	}
	one := apptest.Decode[adminapi.AuditList](t, s.Admin("GET", "/api/v1/audit?subject="+e.Subject, nil))
	if one.Total != 1 || one.Items[0].Id != e.Id {
		t.Errorf("the entries about %s are %+v", e.Subject, one)
	}
	for query, want := range map[string]int{
		"actor=first+key&verb=agent&q=" + strings.ToUpper(a.ID): 1, "actor=first+key&verb=agent.revoke&q=scrapped": 1, "actor=nobody": 0,
		"people=true&q=scrapped": 1, "people=true&actor=muster": 0, "verb=agent.revok": 0, "q=scrapped&until=2020-01-01T00:00:00Z": 0, "q=scrapped&since=2020-01-01T00:00:00Z": 1,
	} {
		if got := apptest.Decode[adminapi.AuditList](t, s.Admin("GET", "/api/v1/audit?"+query, nil)); got.Total != want || len(got.Items) != want {
			t.Errorf("%s selects %d of %+v, want %d", query, got.Total, before, want)
		}
	}
	for query, field := range map[string]string{"people=perhaps": "query.people", "since=yesterday": "query.since", "until=1": "query.until", "q=" + strings.Repeat("a+", 11): "query.q", "q=" + strings.Repeat("a", 201): "query.q"} {
		if got := s.Admin("GET", "/api/v1/audit?"+query, nil); got.Status != 400 || !strings.Contains(string(got.Body), field) {
			t.Errorf("%s is answered %d %s", query, got.Status, got.Body)
		}
	}
	// What is refused has changed nothing.
	s.Admin("POST", a.Path("upgrade"), map[string]string{"version": "9.9.9"})
	s.Admin("DELETE", "/api/v1/packages/none.tar.gz", nil)
	if after := trail(); len(after) != len(before) {
		t.Errorf("refused calls stand in the trail: %+v", after[:len(after)-len(before)])
	}
}
