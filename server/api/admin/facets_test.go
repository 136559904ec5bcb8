package admin_test

import (
	"encoding/csv"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/muster-fleet/muster/server/api/adminapi"
	"github.com/muster-fleet/muster/server/app/apptest"
	"github.com/muster-fleet/muster/server/fleet"
	"github.com/muster-fleet/muster/testing/kit/require"
)

// countedFleet stores agents as hosts of several sites report them.
func countedFleet(t *testing.T, s *apptest.Server, n int) []fleet.Agent {
	t.Helper()
	now := time.Now().UTC()
	var list []fleet.Agent
	for i := range n {
		seen := now
		a := fleet.Agent{
			ID: fmt.Sprintf("agent-%03d", i), Type: "PERMANENT", Active: i%10 != 9, PolicyID: "default", PolicyRev: 1, EnrolledAt: now, Version: fmt.Sprintf("1.%d.0", i%3),
			AccessKeyID: fmt.Sprint("key-", i), Tags: []string{"prod", []string{"site=ams", "site=fra", "=cmd()"}[i%3]},
			LocalMetadata: apptest.Metadata(fmt.Sprintf("web-%03d", i), "1.0.0"), Last: fleet.LastSeen{At: &seen, Status: []string{"online", "degraded"}[i%2], Message: "Running, \"well\""},
		}
		switch i % 8 {
		case 4:
			away := now.Add(-time.Hour)
			a.Last.At = &away
		case 5:
			a.BeginUpgrade(fmt.Sprint("act-", i), "2.0.0", now.Add(-time.Minute))
		case 6:
			a.UpgradeStatus, a.UpgradeTo, a.UpgradeStartedAt, a.UpgradedAt = fleet.UpgradeRolledBack, "2.0.0", &seen, &seen
		case 7:
			a.Version = ""
		}
		if i%5 == 0 {
			a.LocalMetadata = []byte(strings.ReplaceAll(string(a.LocalMetadata), "linux", "windows"))
		}
		if err := s.Store.Agents().Create(t.Context(), a); err != nil {
			t.Fatal(err)
		}
		list = append(list, a)
	}
	return list
}

func get[T any](t *testing.T, s *apptest.Server, path string, query ...string) T {
	t.Helper()
	q := url.Values{}
	for i := 0; i < len(query); i += 2 {
		q.Set(query[i], query[i+1])
	}
	return apptest.Decode[T](t, s.Admin(http.MethodGet, path+"?"+q.Encode(), nil))
}

func joined(parts ...string) string {
	return strings.Join(slices.DeleteFunc(parts, func(p string) bool { return p == "" }), " and ")
}

// Each value of a facet has the count that the list has for the query and the value's query.
func TestFacetsCountWhatTheListFinds(t *testing.T) {
	t.Parallel()
	s := apptest.Start(t)
	countedFleet(t, s, 60)
	total := func(kuery string, inactive bool) int {
		return get[adminapi.AgentList](t, s, "/api/fleet/agents", "kuery", kuery, "perPage", "0", "showInactive", fmt.Sprint(inactive)).Total
	}
	for _, c := range []struct {
		kuery    string
		inactive bool
	}{{"", false}, {"", true}, {"tags: \"site=ams\"", false}, {"not agent.version: 1.1.0", true}, {"agent.id: nobody", false}} {
		got := get[adminapi.Facets](t, s, "/api/v1/agents/facets", "kuery", c.kuery, "showInactive", fmt.Sprint(c.inactive))
		if want := total(c.kuery, c.inactive); got.Total != want {
			t.Errorf("%q: the total is %d, the list has %d", c.kuery, got.Total, want)
		}
		var names []string
		for _, f := range got.Facets {
			names = append(names, f.Field)
			sum := 0
			for _, v := range f.Values {
				inactive := c.inactive || v.Value == "unenrolled"
				if want := total(joined(c.kuery, v.Kuery), inactive); v.Count != want || v.Count == 0 {
					t.Errorf("%q: %s %q counts %d, and the list for %s has %d", c.kuery, f.Field, v.Value, v.Count, v.Kuery, want)
				}
				sum += v.Count
				byHealth := 0
				for health, n := range deref(v.Health) {
					if want := total(joined(c.kuery, v.Kuery, "health: "+health), inactive); n != want {
						t.Errorf("%q: %d of %s are %s, and the list has %d", c.kuery, n, v.Value, health, want)
					}
					byHealth += n
				}
				if (f.Field == "site") != (v.Health != nil) || v.Health != nil && byHealth != v.Count {
					t.Errorf("%q: %s %q has by health %v", c.kuery, f.Field, v.Value, v.Health)
				}
			}
			if f.Other != 0 || f.Field != "tag" && sum != got.Total {
				t.Errorf("%q: %s counts %d and %d others of %d", c.kuery, f.Field, sum, f.Other, got.Total)
			}
		}
		if want := []string{"health", "progress", "version", "policy", "tag", "os", "site"}; !slices.Equal(names, want) {
			t.Errorf("the facets are %q", names)
		}
	}
}

func deref[T any](p *T) (v T) {
	if p != nil {
		v = *p
	}
	return v
}

func TestFacetsNameTheMostFrequentValues(t *testing.T) {
	t.Parallel()
	s := apptest.Start(t)
	countedFleet(t, s, 30)
	got := get[adminapi.Facets](t, s, "/api/v1/agents/facets", "fields", "policy,version", "limit", "2", "showInactive", "true")
	if len(got.Facets) != 2 || got.Facets[0].Field != "version" || got.Facets[1].Field != "policy" {
		t.Fatalf("the facets are %+v", got.Facets)
	}
	v := got.Facets[0]
	if len(v.Values) != 2 || v.Values[0].Count < v.Values[1].Count || v.Other != got.Total-v.Values[0].Count-v.Values[1].Count {
		t.Errorf("the versions are %+v", v)
	}
	if p := got.Facets[1].Values[0]; p.Value != "default" || deref(p.Label) == "" || deref(p.Label) == "default" {
		t.Errorf("the policy is %+v", p)
	}
	for query, says := range map[string]string{
		"fields=version,colour": `[request query.fields]: has "colour"`, "limit=201": "query.limit", "kuery=x%3A": "query.kuery", "showInactive=yes": "query.showInactive",
	} {
		refused(t, query, s.Admin(http.MethodGet, "/api/v1/agents/facets?"+query, nil), 400, says)
	}
}

func TestExportHasEveryAgentOnce(t *testing.T) {
	t.Parallel()
	require.Time(t, "enrols thousands of agents")
	s := apptest.Start(t)
	countedFleet(t, s, 2345)
	answer := s.Admin(http.MethodGet, "/api/v1/agents/export?showInactive=true", nil)
	if answer.Status != 200 || !strings.HasPrefix(answer.Header.Get("Content-Type"), "text/csv") || !strings.Contains(answer.Header.Get("Content-Disposition"), "agents.csv") {
		t.Fatalf("the export answers %d %v", answer.Status, answer.Header)
	}
	if n := strings.Count(string(answer.Body), "\r\n"); n != 2346 {
		t.Errorf("the export has %d lines with CRLF", n)
	}
	rows, err := csv.NewReader(strings.NewReader(string(answer.Body))).ReadAll()
	if err != nil {
		t.Fatal(err)
	}
	if want := "id hostname health progress progress_since version desired_version last_healthy_version policy tags os site last_checkin message reason"; strings.Join(rows[0], " ") != want {
		t.Errorf("the columns are %q", rows[0])
	}
	seen := map[string]bool{}
	for i, row := range rows[1:] {
		if seen[row[0]] || i > 0 && row[1] < rows[i][1] {
			t.Fatalf("row %d is %q, after %q", i, row, rows[i])
		}
		seen[row[0]] = true
	}
	if len(seen) != 2345 {
		t.Errorf("the export has %d agents", len(seen))
	}
	if row := rows[1]; row[1] != "web-000" || row[2] != "healthy" || row[5] != "1.0.0" || row[9] != "prod site=ams" || row[10] != "windows" || row[11] != "ams" || row[13] != `Running, "well"` {
		t.Errorf("the first agent is %q", row)
	}
	for _, row := range rows[1:] {
		if row[0] == "agent-006" && row[3] != "rolled_back" {
			t.Errorf("agent-006 is %q", row)
		}
	}
}

func TestExportSelectsColumnsAndAgents(t *testing.T) {
	t.Parallel()
	s := apptest.Start(t)
	for i, tag := range []string{"=cmd()", "+1", "-1", "@x", "\tx", "a=b"} {
		a := fleet.Agent{ID: fmt.Sprint("agent-", i), Active: true, PolicyID: "default", AccessKeyID: fmt.Sprint("key-", i), EnrolledAt: time.Now().UTC(), Tags: []string{tag}}
		if err := s.Store.Agents().Create(t.Context(), a); err != nil {
			t.Fatal(err)
		}
	}
	export := func(query string) string {
		return string(s.Admin(http.MethodGet, "/api/v1/agents/export?"+query, nil).Body)
	}
	want := "tags,id\r\n'=cmd(),agent-0\r\n'+1,agent-1\r\n'-1,agent-2\r\n'@x,agent-3\r\n'\tx,agent-4\r\na=b,agent-5\r\n"
	if got := export("columns=tags,id"); got != want {
		t.Errorf("the export is %q, want %q", got, want)
	}
	if got := export("columns=id&kuery=agent.id:agent-3"); got != "id\r\nagent-3\r\n" {
		t.Errorf("the export of one agent is %q", got)
	}
	if got := export("columns=id&kuery=agent.id:nobody"); got != "id\r\n" {
		t.Errorf("the export of no agent is %q", got)
	}
	refused(t, "an unknown column", s.Admin(http.MethodGet, "/api/v1/agents/export?columns=id,colour", nil), 400, `[request query.columns]: has "colour"`)
	refused(t, "a wrong query", s.Admin(http.MethodGet, "/api/v1/agents/export?kuery=x%3A", nil), 400, "query.kuery")
}
