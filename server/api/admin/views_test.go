package admin_test

import (
	"bytes"
	"compress/gzip"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/muster-fleet/muster/server/api/adminapi"
	"github.com/muster-fleet/muster/server/app/apptest"
	"github.com/muster-fleet/muster/server/fleet"
	"github.com/muster-fleet/muster/server/wire/agentapi"
)

func TestViewsAreSavedReplacedAndDeleted(t *testing.T) {
	t.Parallel()
	s := apptest.Start(t)
	save := func(page, name, search string) apptest.Answer {
		return s.Admin(http.MethodPost, "/api/v1/views", map[string]string{"page": page, "name": name, "search": search})
	}
	list := func() (out []string) {
		for _, v := range get[adminapi.ViewList](t, s, "/api/v1/views").Items {
			out = append(out, fmt.Sprint(v.Page, " ", v.Name, " ", v.Search, " ", v.CreatedBy))
		}
		return out
	}
	first := apptest.Decode[adminapi.ViewItem](t, save("agents", " Offline in Berlin ", "?kuery=health%3Aoffline")).Item
	save("rollouts", "Offline in Berlin", "state=paused")
	save("agents", "all", "")
	again := apptest.Decode[adminapi.ViewItem](t, save("agents", "Offline in Berlin", "kuery=x")).Item
	if again.ID != first.ID {
		t.Errorf("the replaced view has another id: %s, then %s", first.ID, again.ID)
	}
	want := "[agents all  first key agents Offline in Berlin kuery=x first key rollouts Offline in Berlin state=paused first key]"
	if got := fmt.Sprint(list()); got != want {
		t.Errorf("the views are\n%s\nwant\n%s", got, want)
	}
	if got := s.Admin(http.MethodDelete, "/api/v1/views/"+first.ID, nil); got.Status != 200 || len(list()) != 2 {
		t.Errorf("deleting answers %d %s, and leaves %q", got.Status, got.Body, list())
	}
	refused(t, "deleting it again", s.Admin(http.MethodDelete, "/api/v1/views/"+first.ID, nil), 404, "no saved view")
	for name, c := range map[string][4]string{
		"an unknown page": {"hosts", "x", "", "[request body.page]"}, "no name": {"agents", " ", "", "[request body.name]"},
		"a long name": {"agents", strings.Repeat("ä", fleet.MaxViewName+1), "", "[request body.name]"}, "a line break": {"agents", "a\nb", "", "[request body.name]"},
		"a long search": {"agents", "x", strings.Repeat("x", fleet.MaxViewSearch+1), "[request body.search]"},
	} {
		refused(t, name, save(c[0], c[1], c[2]), 400, c[3])
	}
	for i := len(list()); i < fleet.MaxViews; i++ {
		if got := save("audit", fmt.Sprint("view ", i), ""); got.Status != 200 {
			t.Fatalf("view %d: %d %s", i, got.Status, got.Body)
		}
	}
	refused(t, "one more", save("audit", "one more", ""), 409, "as many as there can be")
	if got := save("audit", "view 100", "changed"); got.Status != 200 {
		t.Errorf("replacing one of them answers %d %s", got.Status, got.Body)
	}
}

func TestLongAnswersAreCompressed(t *testing.T) {
	t.Parallel()
	s := apptest.Start(t)
	countedFleet(t, s, 40)
	ask := func(path, accepts string) apptest.Answer {
		t.Helper()
		// A client that names an encoding decodes the answer itself.
		got, err := s.Do(t.Context(), apptest.Request{
			Method: http.MethodGet, URL: s.AdminURL + path, Header: apptest.Headers("Authorization", "ApiKey "+s.AdminKey, "Accept-Encoding", accepts),
		})
		if err != nil || got.Status != 200 {
			t.Fatalf("%s answers %d: %v", path, got.Status, err)
		}
		return got
	}
	for _, path := range []string{"/api/fleet/agents?perPage=50", "/api/v1/agents/export", "/api/openapi.yaml", "/s/default/api/fleet/agents?perPage=50"} {
		plain, zipped := ask(path, "identity"), ask(path, "gzip")
		if plain.Header.Get("Content-Encoding") != "" || zipped.Header.Get("Content-Encoding") != "gzip" || zipped.Header.Get("Vary") != "Accept-Encoding" {
			t.Errorf("%s has the headers %v, and with gzip %v", path, plain.Header, zipped.Header)
			continue
		}
		r, err := gzip.NewReader(bytes.NewReader(zipped.Body))
		if err != nil {
			t.Fatal(err)
		}
		if body, err := io.ReadAll(r); err != nil || len(body) != len(plain.Body) || len(zipped.Body) >= len(plain.Body)/2 {
			t.Errorf("%s has %d bytes; compressed it has %d, and then %d again: %v", path, len(plain.Body), len(zipped.Body), len(body), err)
		}
	}
	if short := ask("/api/v1/session", "gzip"); short.Header.Get("Content-Encoding") != "" {
		t.Errorf("a short answer has the headers %v", short.Header)
	}
}

func TestEventStreamIsNotCompressed(t *testing.T) {
	t.Parallel()
	s := apptest.Start(t)
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, s.AdminURL+"/api/v1/events", http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	req.Header = apptest.Headers("Authorization", "ApiKey "+s.AdminKey, "Accept-Encoding", "gzip")
	resp, err := s.Client.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	head := make([]byte, len(": muster"))
	if _, err := io.ReadFull(resp.Body, head); err != nil || string(head) != ": muster" || resp.Header.Get("Content-Encoding") != "" {
		t.Errorf("the stream begins with %q, and has the headers %v: %v", head, resp.Header, err)
	}
}

func TestSeriesBeginsWithTheServer(t *testing.T) {
	t.Parallel()
	s := apptest.Start(t)
	deadline := time.Now().Add(apptest.WaitLimit)
	for {
		got := get[adminapi.Series](t, s, "/api/v1/series")
		if n := len(got.Times); n != 288 || got.StepSeconds != 300 {
			t.Fatalf("the series has %d times, one every %d s", n, got.StepSeconds)
		}
		list, _, err := s.Store.Samples().List(t.Context(), 0, 0)
		if err != nil {
			t.Fatal(err)
		}
		if len(list) == 1 {
			break
		}
		if time.Now().After(deadline) {
			t.Fatal("no sample was taken")
		}
		time.Sleep(10 * time.Millisecond)
	}
	for window, points := range map[string]int{"24h": 288, "7d": 336, "30d": 360} {
		if got := get[adminapi.Series](t, s, "/api/v1/series", "window", window); len(got.Times) != points {
			t.Errorf("%s has %d times", window, len(got.Times))
		}
	}
	refused(t, "another window", s.Admin(http.MethodGet, "/api/v1/series?window=1y", nil), 400, "query.window")
}

func TestSettingsHaveNoSecrets(t *testing.T) {
	t.Parallel()
	s := apptest.Start(t)
	found := map[string]adminapi.Setting{}
	for _, item := range get[adminapi.Settings](t, s, "/api/v1/settings").Items {
		found[item.Key] = item
	}
	if got := found["agents.url"]; got.Value != s.AgentURL || got.Origin != adminapi.OriginDefault {
		t.Errorf("agents.url is %+v", got)
	}
	if got := found["limits.max_agents"]; got.Value == "0" || got.Value == "" {
		t.Errorf("limits.max_agents is %+v", got)
	}
}

func TestAttentionListsWhatWaitsForAPerson(t *testing.T) {
	t.Parallel()
	s := apptest.Start(t)
	now := time.Now().UTC()
	create := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	create(s.Store.Incidents().Create(t.Context(), fleet.Incident{ID: "i", State: fleet.IncidentOpen, Severity: "critical", Title: "web-01 could not go back to 1.0.0", OpenedAt: now, AgentID: "a"}))
	create(s.Store.Webhooks().Create(t.Context(), fleet.Webhook{ID: "w", Name: "chat", URL: "https://chat.invalid", Disabled: true}))
	create(s.Store.DeadLetters().Create(t.Context(), fleet.DeadLetter{ID: "w:1", WebhookID: "w", At: now}))
	soon := now.Add(48 * time.Hour)
	create(s.Store.AdminKeys().Create(t.Context(), fleet.AdminKey{ID: "k", Name: "ci", Active: true, ExpireAt: &soon}))
	r := fleet.Rollout{
		ID: "r", State: fleet.RolloutPaused, Plan: fleet.Plan{Name: "web 2.4.1"}, Stop: &fleet.Stop{Kind: fleet.StopThreshold, Text: "3 of 9 agents failed", By: "muster", At: now}, CreatedAt: now,
	}
	create(s.Store.Rollouts().Create(t.Context(), r))
	silent, later := now.Add(-time.Hour), now.Add(24*time.Hour)
	_, err := s.Store.Actions().Create(t.Context(), fleet.Action{ID: "act", Type: agentapi.ActionUpgrade, Agents: []string{"a"}, Actioned: 1, CreatedAt: silent, Expiration: &later})
	create(err)
	a := fleet.Agent{ID: "a", Active: true, PolicyID: "default", PolicyRev: 1, AccessKeyID: "ka", EnrolledAt: silent, Version: "1.0.0", Last: fleet.LastSeen{At: &silent, Status: "online"}}
	a.BeginUpgrade("act", "2.0.0", silent)
	a.UpgradeDetails = apptest.Details("act", "2.0.0", "UPG_RESTARTING")
	create(s.Store.Agents().Create(t.Context(), a))
	full := fleet.Agent{ID: "full", Active: true, PolicyID: "default", PolicyRev: 1, AccessKeyID: "kf", EnrolledAt: silent, Version: "1.0.0", Last: fleet.LastSeen{
		At: &now, Status: "degraded", Message: "this host " + agentapi.Unwritable + ", so it stores no order: no space left on device",
	}}
	create(s.Store.Agents().Create(t.Context(), full))

	got := get[adminapi.Attention](t, s, "/api/v1/attention")
	var kinds []string
	for _, i := range got.Items {
		kinds = append(kinds, fmt.Sprint(i.Severity, " ", i.Kind, " ", deref(i.Subject)))
		if i.Text == "" || deref(i.Next) == "" {
			t.Errorf("%s has no sentence, or no next step", i.Kind)
		}
	}
	want := "[critical incident i critical paused r warning upgrade  warning upgrade  warning dead_letters w warning key k]"
	if text := fmt.Sprint(kinds); text != want || got.IncidentsOpen != 1 {
		t.Errorf("what waits is\n%s, %d incidents\nwant\n%s, 1 incident", text, got.IncidentsOpen, want)
	}
}
