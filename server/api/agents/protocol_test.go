package agents_test

import (
	"context"
	"encoding/json"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/muster-fleet/muster/server/api/adminapi"
	"github.com/muster-fleet/muster/server/app"
	"github.com/muster-fleet/muster/server/app/apptest"
	"github.com/muster-fleet/muster/server/fleet"
	"github.com/muster-fleet/muster/server/wire/agentapi"
)

// quick ends a check-in without actions after a second.
func quick(o *app.Options) {
	o.Config.Check.Poll, o.Config.Check.PollJitter = time.Second, 0
}

func upgrade(t *testing.T, s *apptest.Server, a *apptest.Agent, version string) string {
	t.Helper()
	got := s.Admin(http.MethodPost, "/api/fleet/agents/"+a.ID+"/upgrade", map[string]string{"version": version})
	return *apptest.Decode[adminapi.UpgradeResponse](t, got).ActionId
}

// seen returns an agent as the admin API shows it.
func seen(t *testing.T, s *apptest.Server, a *apptest.Agent) adminapi.Agent {
	t.Helper()
	return apptest.Decode[adminapi.AgentItem](t, s.Admin(http.MethodGet, "/api/fleet/agents/"+a.ID, nil)).Item
}

func TestHostEnrolsAndIsUpgraded(t *testing.T) {
	t.Parallel()
	s := apptest.Start(t, quick)
	s.Publisher().Publish("1.0.0", "1.1.0")
	a := s.Enroll("web-01", "1.0.0")
	if got := seen(t, s, a); got.Status != fleet.StatusEnrolling || got.Agent.Version != "1.0.0" {
		t.Fatalf("a new agent is %s with version %s", got.Status, got.Agent.Version)
	}

	first := a.MustCheckin(nil)
	if first.Action != "checkin" || first.Actions == nil || len(first.Actions) != 0 || first.AckToken != "" {
		t.Fatalf("a check-in with nothing to do got %+v", first)
	}
	if got := seen(t, s, a); got.Status != fleet.StatusOnline {
		t.Fatalf("the agent that checked in is %s", got.Status)
	}

	id := upgrade(t, s, a, "1.1.0")
	if got := seen(t, s, a); got.Status != fleet.StatusUpdating || got.UpgradeStartedAt == nil {
		t.Fatalf("the agent asked to upgrade is %s", got.Status)
	}
	second := a.MustCheckin(nil)
	if len(second.Actions) != 1 || second.Actions[0].ID != id || second.Actions[0].Type != agentapi.ActionUpgrade ||
		second.Actions[0].AgentID != a.ID || second.AckToken == "" {
		t.Fatalf("the upgrade was delivered as %+v", second)
	}
	var data agentapi.UpgradeData
	if err := json.Unmarshal(second.Actions[0].Data, &data); err != nil || data.Version != "1.1.0" || data.SourceURI != "" {
		t.Fatalf("its data is %s", second.Actions[0].Data)
	}

	for _, phase := range []agentapi.UpgradeState{agentapi.UpgradeDownloading, agentapi.UpgradeReplacing, agentapi.UpgradeRestarting} {
		a.MustCheckin(apptest.Details(id, "1.1.0", phase))
		if got := seen(t, s, a); got.UpgradeDetails == nil || string(got.UpgradeDetails.State) != string(phase) {
			t.Fatalf("in %s the API shows %+v", phase, got.UpgradeDetails)
		}
	}
	if got := a.Ack("", id); got.Status != http.StatusOK {
		t.Fatalf("the ack answered %s", got.Body)
	}
	if got := seen(t, s, a); got.UpgradeStartedAt == nil || got.UpgradedAt != nil {
		t.Fatal("an ack alone ended the upgrade")
	}
	a.Version = "1.1.0"
	a.MustCheckin(apptest.Details(id, "1.1.0", agentapi.UpgradeWatching))
	a.MustCheckin(nil)
	got := seen(t, s, a)
	if got.Status != fleet.StatusOnline || got.Agent.Version != "1.1.0" || got.UpgradedAt == nil || got.UpgradeStartedAt != nil || got.UpgradeDetails != nil || got.UpgradeStatus != nil {
		t.Fatalf("after the upgrade the API shows %+v", got)
	}
}

func TestParkedAgentGetsItsActionWithinASecond(t *testing.T) {
	t.Parallel()
	s := apptest.Start(t)
	s.Publisher().Publish("1.1.0")
	a := s.Enroll("web-01", "1.0.0")
	type answer struct {
		resp agentapi.CheckinResponse
		err  error
		at   time.Time
	}
	answers := make(chan answer, 1)
	go func() {
		ctx, cancel := context.WithTimeout(context.Background(), apptest.WaitLimit)
		defer cancel()
		resp, err := a.Checkin(ctx, s, nil)
		answers <- answer{resp, err, time.Now()}
	}()
	s.Parked(a)
	asked := time.Now()
	id := upgrade(t, s, a, "1.1.0")
	got := <-answers
	if got.err != nil || len(got.resp.Actions) != 1 || got.resp.Actions[0].ID != id {
		t.Fatalf("the poll was answered with %+v, %v", got.resp, got.err)
	}
	if took := got.at.Sub(asked); took > time.Second {
		t.Errorf("that took %s", took)
	}
}

func TestRolledBackUpgradeHasItsReason(t *testing.T) {
	t.Parallel()
	s := apptest.Start(t, quick)
	s.Publisher().Publish("1.1.0")
	a := s.Enroll("web-01", "1.0.0")
	id := upgrade(t, s, a, "1.1.0")
	a.MustCheckin(nil)
	a.Ack("", id)
	a.Version = "1.1.0"
	a.MustCheckin(apptest.Details(id, "1.1.0", agentapi.UpgradeWatching))
	a.Version = "1.0.0"
	details := apptest.Details(id, "1.1.0", agentapi.UpgradeRollback)
	details.Metadata.Reason, details.Metadata.ReasonCode = "it crashed 3 times", "crash_loop"
	a.MustCheckin(details)

	got := seen(t, s, a)
	if got.UpgradeStatus == nil || *got.UpgradeStatus != fleet.UpgradeRolledBack || got.UpgradeStartedAt != nil || got.Status != fleet.StatusOnline ||
		*got.UpgradeDetails.Metadata.ReasonCode != "crash_loop" {
		t.Fatalf("after the rollback the API shows %+v", got)
	}
	list := apptest.Decode[adminapi.ActionStatusList](t, s.Admin(http.MethodGet, "/api/fleet/agents/action_status", nil))
	if len(list.Items) != 1 || list.Items[0].Status != adminapi.FAILED || len(list.Items[0].LatestErrors) != 1 || list.Items[0].LatestErrors[0].Error != "it crashed 3 times" {
		t.Fatalf("the action is %+v", list.Items)
	}
}

func TestAcksAreAnsweredPerEvent(t *testing.T) {
	t.Parallel()
	s := apptest.Start(t, quick)
	s.Publisher().Publish("1.1.0")
	a := s.Enroll("web-01", "1.0.0")
	id := upgrade(t, s, a, "1.1.0")
	ack := func(body any) (int, agentapi.AckResponse) {
		got := s.Agents(http.MethodPost, a.Path("acks"), a.Key, body)
		var resp agentapi.AckResponse
		if err := json.Unmarshal(got.Body, &resp); err != nil {
			t.Fatalf("%v: %s", err, got.Body)
		}
		return got.Status, resp
	}
	event := func(agent, action string) agentapi.AckEvent {
		return agentapi.AckEvent{Type: agentapi.AckType, Subtype: agentapi.AckSubtype, AgentID: agent, ActionID: action}
	}
	for _, c := range []struct {
		name   string
		events []agentapi.AckEvent
		items  []int
		status int // the highest
	}{
		{"one", []agentapi.AckEvent{event(a.ID, id)}, []int{200}, 200},
		{"the same again", []agentapi.AckEvent{event(a.ID, id)}, []int{200}, 200},
		{"none", []agentapi.AckEvent{}, []int{}, 200},
		{"an unknown one between", []agentapi.AckEvent{event(a.ID, id), event(a.ID, "gone"), event(a.ID, id)}, []int{200, 404, 200}, 404},
		{"another agent's", []agentapi.AckEvent{event("other", id), event(a.ID, id)}, []int{400, 200}, 400},
		{"one without an id", []agentapi.AckEvent{event(a.ID, "")}, []int{400}, 400},
		{"a policy, which has no stored action", []agentapi.AckEvent{event(a.ID, "policy:default:1")}, []int{200}, 200},
	} {
		status, resp := ack(agentapi.AckRequest{Events: c.events})
		if status != c.status || resp.Action != "acks" || len(resp.Items) != len(c.items) || resp.Errors != (c.status != 200) {
			t.Errorf("%s: answered %d %+v", c.name, status, resp)
			continue
		}
		for i, item := range resp.Items {
			if item.Status != c.items[i] {
				t.Errorf("%s: item %d is %+v, want %d", c.name, i, item, c.items[i])
			}
		}
	}
}

func TestKeysOfUnenrolledAgentsAreRefused(t *testing.T) {
	t.Parallel()
	s := apptest.Start(t, quick)
	a := s.Enroll("web-01", "1.0.0")
	if got := s.Admin(http.MethodPost, "/api/fleet/agents/"+a.ID+"/unenroll", map[string]bool{"revoke": true}); got.Status != http.StatusOK {
		t.Fatalf("unenroll: %s", got.Body)
	}
	got := s.Agents(http.MethodPost, a.Path("checkin"), a.Key, `{"status":"online"}`)
	if got.Status != http.StatusUnauthorized || got.ErrorBody().Code != "ErrAgentInactive" {
		t.Errorf("the check-in of a revoked agent answered %d %s", got.Status, got.Body)
	}

	leaving := s.Enroll("web-02", "1.0.0")
	s.Admin(http.MethodPost, "/api/fleet/agents/"+leaving.ID+"/unenroll", nil)
	asked := leaving.MustCheckin(nil)
	if len(asked.Actions) != 1 || asked.Actions[0].Type != agentapi.ActionUnenroll {
		t.Fatalf("the agent asked to unenrol got %+v", asked)
	}
	leaving.Ack("", asked.Actions[0].ID)
	if got := s.Agents(http.MethodPost, leaving.Path("checkin"), leaving.Key, `{"status":"online"}`); got.ErrorBody().Code != "ErrAgentInactive" {
		t.Errorf("the unenrolled agent still checks in: %d %s", got.Status, got.Body)
	}
}

// An agent that a thief has moved asks where it belongs; see agent/DESIGN.md.
func TestAgentIsToldWhetherItIsWantedAndWhere(t *testing.T) {
	t.Parallel()
	s := apptest.Start(t, quick)
	a := s.Enroll("web-01", "1.0.0")
	path := a.Path("home")
	before := seen(t, s, a)
	hosts := func() []string {
		return apptest.Decode[agentapi.Home](t, s.Agents(http.MethodGet, path, a.Key, nil)).Hosts
	}
	none := hosts()
	for _, c := range []struct{ overrides string }{{`{"fleet":{"hosts":["https://a.test:8220","https://b.test:8220"]}}`}, {`{"fleet":{"hosts":[]}}`}} {
		if got := s.Admin(http.MethodPut, "/api/fleet/agent_policies/"+fleet.DefaultPolicyID, `{"name":"Default policy","namespace":"default","overrides":`+c.overrides+`}`); got.Status != http.StatusOK {
			t.Fatalf("change the policy: %s", got.Body)
		}
		var want struct{ Fleet agentapi.Home }
		if err := json.Unmarshal([]byte(c.overrides), &want); err != nil {
			t.Fatal(err)
		}
		if got := hosts(); !slices.Equal(got, want.Fleet.Hosts) {
			t.Errorf("the hosts are %v, then %v, want %v", none, got, want.Fleet.Hosts)
		}
	}
	if after := seen(t, s, a); after.LastCheckin != nil || after.Status != before.Status {
		t.Errorf("the question has made the agent %s, seen at %v", after.Status, after.LastCheckin)
	}
	s.Admin(http.MethodPost, "/api/fleet/agents/"+a.ID+"/unenroll", nil)
	if got := s.Agents(http.MethodGet, path, a.Key, nil); got.Status != http.StatusUnauthorized || got.ErrorBody().Code != "ErrAgentInactive" {
		t.Errorf("an agent that is asked to leave is answered %d %s", got.Status, got.Body)
	}
}

func TestInvalidEnrollmentTokensAreRefused(t *testing.T) {
	t.Parallel()
	var ahead atomic.Int64 // of the real clock
	s := apptest.Start(t, func(o *app.Options) {
		o.Now = func() time.Time { return time.Now().Add(time.Duration(ahead.Load())) }
	})
	create := func(name, expiration string) adminapi.EnrollmentKey {
		return apptest.Decode[adminapi.EnrollmentKeyCreated](t, s.Admin(http.MethodPost, "/api/fleet/enrollment_api_keys",
			map[string]string{"name": name, "policy_id": "default", "expiration": expiration})).Item
	}
	revoked, expired := create("a", "30d"), create("b", "1h")
	s.Admin(http.MethodDelete, "/api/fleet/enrollment_api_keys/"+revoked.Id, nil)
	ahead.Store(int64(time.Hour))
	for _, c := range []struct{ name, token, says string }{
		{"of another server", fleet.NewCredential().Encode(), "muster keys create"},
		{"with a wrong secret", fleet.Credential{ID: expired.Id, Secret: "guess"}.Encode(), "muster keys create"},
		{"revoked", *revoked.ApiKey, "has been revoked"},
		{"expired", *expired.ApiKey, "expired at"},
		{"that opens the admin API", s.AdminKey, "muster keys create"},
	} {
		got := s.Agents(http.MethodPost, agentapi.PathEnroll, c.token, agentapi.EnrollRequest{Type: "PERMANENT"})
		if e := got.ErrorBody(); got.Status != http.StatusUnauthorized || e.Code != "ErrUnauthorized" || !strings.Contains(e.Message, c.says) {
			t.Errorf("a token %s answered %d %s", c.name, got.Status, got.Body)
		}
	}
	if _, n, err := s.Store.Agents().List(t.Context(), agentQuery); err != nil || n != 0 {
		t.Errorf("%d agents enrolled, %v", n, err)
	}
}

// A token's limit counts hosts that enrol, and not messages that are refused.
func TestRefusedEnrolmentUsesNothingOfItsToken(t *testing.T) {
	t.Parallel()
	s := apptest.Start(t, quick, func(o *app.Options) { o.Config.Limits.EnrollmentsPerHour = 1 })
	enrol := func(body any) apptest.Answer { return s.Agents(http.MethodPost, agentapi.PathEnroll, s.Token, body) }
	for _, body := range []string{`{"type":`, `[]`, ``} {
		if got := enrol(body); got.Status != http.StatusBadRequest {
			t.Errorf("the body %q answered %d %s", body, got.Status, got.Body)
		}
	}
	whole := agentapi.EnrollRequest{Type: "PERMANENT", Metadata: agentapi.EnrollMetadata{Local: apptest.Metadata("web-01", "1.0.0")}}
	if got := enrol(whole); got.Status != http.StatusOK {
		t.Errorf("the first host is answered %d %s", got.Status, got.Body)
	}
	if got := enrol(whole); got.Status != http.StatusTooManyRequests {
		t.Errorf("the second host is answered %d %s", got.Status, got.Body)
	}
}

func TestNullFieldsCountAsAbsent(t *testing.T) {
	t.Parallel()
	s := apptest.Start(t, quick)
	got := apptest.Decode[agentapi.EnrollResponse](t, s.Agents(http.MethodPost, agentapi.PathEnroll, s.Token,
		`{"type":"PERMANENT","metadata":{"local":null,"user_provided":null,"tags":null}}`))
	a := &apptest.Agent{ID: got.Item.ID, Key: got.Item.AccessAPIKey}
	if answer := s.Agents(http.MethodPost, a.Path("checkin"), a.Key, `{"status":"online","local_metadata":null,"components":null,"upgrade_details":null,"upgrade":{}}`); answer.Status != http.StatusOK {
		t.Fatalf("check-in: %s", answer.Body)
	}
	if agent := seen(t, s, a); agent.LocalMetadata == nil || agent.Components == nil || agent.Tags == nil {
		t.Errorf("the API shows %+v", agent)
	}
}

func TestAuditUnenrollMarksAgentUninstalled(t *testing.T) {
	t.Parallel()
	s := apptest.Start(t, quick)
	a := s.Enroll("web-01", "1.0.0")
	a.MustCheckin(nil)
	report := func(reason string) apptest.Answer {
		return s.Agents(http.MethodPost, a.Path("audit/unenroll"), a.Key, map[string]any{"reason": reason, "timestamp": time.Now()})
	}
	if got := report("bored"); got.Status != http.StatusBadRequest || !strings.Contains(got.ErrorBody().Message, "body.reason") {
		t.Errorf("an unknown reason answered %d %s", got.Status, got.Body)
	}
	if got := report("uninstall"); got.Status != http.StatusOK || len(got.Body) != 0 {
		t.Errorf("uninstall answered %d %s", got.Status, got.Body)
	}
	if got := seen(t, s, a); got.Status != fleet.StatusUninstalled {
		t.Errorf("the uninstalled agent is %s", got.Status)
	}
	report("orphaned")
	if got := report("uninstall"); got.Status != http.StatusConflict || got.ErrorBody().Code != "ErrAuditReasonConflict" {
		t.Errorf("another reason answered %d %s", got.Status, got.Body)
	}
	a.MustCheckin(nil)
	if got := seen(t, s, a); got.Status != fleet.StatusOnline {
		t.Errorf("the agent that checks in again is %s", got.Status)
	}
}

func TestStatusShowsVersionOnlyToAgents(t *testing.T) {
	t.Parallel()
	s := apptest.Start(t)
	a := s.Enroll("web-01", "1.0.0")
	for _, c := range []struct {
		name, key, version string
	}{{"nobody", "", ""}, {"an agent", a.Key, apptest.Version}, {"a stranger", fleet.NewCredential().Encode(), ""}} {
		got := apptest.Decode[agentapi.Status](t, s.Agents(http.MethodGet, agentapi.PathStatus, c.key, nil))
		version := ""
		if got.Version != nil {
			version = got.Version.Number
		}
		if got.Status != agentapi.StatusHealthy || version != c.version {
			t.Errorf("%s gets %+v, version %q", c.name, got, version)
		}
	}
}

// While the store is unavailable, agents that repeat their last check-in stay parked and
// all other requests get 503. A 401 would make agents consider themselves unenrolled.
func TestUnavailableStoreAnswers503AndNever401(t *testing.T) {
	t.Parallel()
	s := apptest.Start(t, quick)
	s.Publisher().Publish("1.1.0", "1.2.0")
	a := s.Enroll("web-01", "1.0.0")
	artifact := func(version string) string {
		return agentapi.PathArtifacts + "muster-agent-" + version + "-linux-amd64.tar.gz"
	}
	if got := s.Agents(http.MethodGet, artifact("1.1.0"), a.Key, nil); got.Status != http.StatusOK {
		t.Fatalf("the package answered %d %s", got.Status, got.Body)
	}
	a.MustCheckin(nil) // stored
	a.MustCheckin(nil) // a duplicate, cached
	if err := s.Store.Close(); err != nil {
		t.Fatal(err)
	}
	a.MustCheckin(nil)
	another := fleet.NewCredential()
	own, err := fleet.ParseCredential(a.Key)
	if err != nil {
		t.Fatal(err)
	}
	forged := fleet.Credential{ID: own.ID, Secret: another.Secret}
	const beacon = `{"stage":"watching","from":"1.0.0","to":"1.1.0","at":"2026-03-03T10:00:00Z"}`
	for _, r := range []struct {
		method, path, key, body string
		status                  int
	}{
		{http.MethodPost, a.Path("checkin"), a.Key, `{"status":"degraded"}`, http.StatusServiceUnavailable},
		{http.MethodPost, a.Path("acks"), a.Key, `{"events":[{"action_id":"x"}]}`, http.StatusServiceUnavailable},
		{http.MethodPost, a.Path("audit/unenroll"), a.Key, `{"reason":"uninstall"}`, http.StatusServiceUnavailable},
		{http.MethodPost, a.Path("beacon"), a.WatcherKey, beacon, http.StatusServiceUnavailable},
		{http.MethodGet, artifact("1.1.0"), a.Key, "", http.StatusOK},
		{http.MethodGet, artifact("1.2.0"), a.Key, "", http.StatusServiceUnavailable}, // not cached
		{http.MethodPost, agentapi.PathEnroll, s.Token, `{"type":"PERMANENT"}`, http.StatusServiceUnavailable},
		{http.MethodGet, agentapi.PathTrust + "timestamp.json", "", "", http.StatusServiceUnavailable},
		{http.MethodPost, a.Path("checkin"), another.Encode(), `{"status":"online"}`, http.StatusServiceUnavailable},
		{http.MethodPost, a.Path("checkin"), forged.Encode(), `{"status":"online"}`, http.StatusServiceUnavailable},
		{http.MethodPost, a.Path("beacon"), another.Encode(), beacon, http.StatusServiceUnavailable},
		{http.MethodPost, "/api/fleet/agents/another/checkin", a.Key, `{"status":"online"}`, http.StatusServiceUnavailable},
	} {
		got := s.Agents(r.method, r.path, r.key, r.body)
		if got.Status != r.status {
			t.Errorf("%s %s answered %d %s, want %d", r.method, r.path, got.Status, got.Body, r.status)
		}
		after, err := strconv.Atoi(got.Header.Get("Retry-After"))
		if r.status == http.StatusServiceUnavailable && (err != nil || after < 5 || after > 10 || got.ErrorBody().Message == "") {
			t.Errorf("%s %s answered %s, Retry-After %q", r.method, r.path, got.Body, got.Header.Get("Retry-After"))
		}
	}
	var status agentapi.Status
	apptest.Eventually(t, "the status to say so", func() string {
		got := s.Agents(http.MethodGet, agentapi.PathStatus, a.Key, nil)
		if got.Status != http.StatusServiceUnavailable {
			return string(got.Body)
		}
		if err := json.Unmarshal(got.Body, &status); err != nil {
			t.Fatal(err)
		}
		return ""
	})
	if status.Status != agentapi.StatusDegraded || status.Version != nil || !strings.Contains(status.Reason, "the store has been away since") {
		t.Errorf("the status is %+v", status)
	}
}

// An agent is updating until it has acknowledged its first policy, whatever it says of
// itself. As in Fleet Server, the answer with a policy has no ack token.
func TestAgentIsUpdatingUntilItHasItsPolicy(t *testing.T) {
	t.Parallel()
	s := apptest.Start(t, quick)
	a := s.EnrollWithoutPolicy("web-01", "1.0.0")
	got := a.MustCheckin(nil)
	if len(got.Actions) != 1 || got.Actions[0].Type != agentapi.ActionPolicyChange || !strings.HasPrefix(got.Actions[0].ID, "policy:default:") || got.AckToken != "" {
		t.Fatalf("the first answer is %+v", got)
	}
	var data struct {
		Policy struct {
			ID       string `json:"id"`
			Revision int64  `json:"revision"`
		} `json:"policy"`
	}
	if err := json.Unmarshal(got.Actions[0].Data, &data); err != nil || data.Policy.ID != "default" || data.Policy.Revision == 0 {
		t.Errorf("its data is %s, %v", got.Actions[0].Data, err)
	}
	if got := seen(t, s, a); got.Status != fleet.StatusUpdating || got.LastCheckin == nil {
		t.Errorf("the agent is %+v", got)
	}
	if got := a.Ack("", got.Actions[0].ID); got.Status != http.StatusOK {
		t.Fatalf("the acknowledgement is answered %d %s", got.Status, got.Body)
	}
	if got := seen(t, s, a); got.Status != fleet.StatusOnline || *got.PolicyRevision != data.Policy.Revision {
		t.Errorf("the agent is %+v", got)
	}
	if got := a.MustCheckin(nil); len(got.Actions) != 0 {
		t.Errorf("the next answer is %+v", got)
	}
}
