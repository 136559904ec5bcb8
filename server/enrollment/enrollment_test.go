package enrollment_test

import (
	"encoding/json"
	"log/slog"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/muster-fleet/muster/server/agentapi"
	"github.com/muster-fleet/muster/server/enrollment"
	"github.com/muster-fleet/muster/server/event"
	"github.com/muster-fleet/muster/server/fleet"
	"github.com/muster-fleet/muster/server/store"
	"github.com/muster-fleet/muster/server/store/sqlite"
	"github.com/muster-fleet/muster/server/store/sqlite/sqlitetest"
)

type world struct {
	t       *testing.T
	store   *sqlite.Store
	service *enrollment.Service
	now     time.Time
}

func newWorld(t *testing.T) *world {
	t.Helper()
	s := sqlitetest.Open(t, filepath.Join(t.TempDir(), "muster.db"))
	w := &world{t: t, store: s, now: time.Date(2026, 3, 3, 10, 0, 0, 0, time.UTC)}
	w.service = &enrollment.Service{Store: s, Events: &event.Stream{Store: s.Events(), Log: slog.New(slog.DiscardHandler)}, Now: func() time.Time { return w.now }}
	for _, id := range []string{"web", "db"} {
		w.must(s.Policies().Create(t.Context(), fleet.Policy{ID: id, Name: id}))
	}
	return w
}

func (w *world) must(err error) {
	w.t.Helper()
	if err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) wantKind(err error, kind fleet.Kind, text string) {
	w.t.Helper()
	if err == nil || fleet.KindOf(err) != kind || !strings.Contains(err.Error(), text) {
		w.t.Errorf("error is %v (%s), want one of kind %s that says %q", err, fleet.KindOf(err), kind, text)
	}
}

func (w *world) key(policy string) fleet.EnrollmentKey {
	w.t.Helper()
	k, _, err := w.service.CreateKey(w.t.Context(), "rack", policy, 0, "ann")
	w.must(err)
	return k
}

func (w *world) enrol(k fleet.EnrollmentKey, req agentapi.EnrollRequest) fleet.Agent {
	w.t.Helper()
	a, _, err := w.enroll(k, req)
	w.must(err)
	return a
}

func (w *world) enroll(k fleet.EnrollmentKey, req agentapi.EnrollRequest) (fleet.Agent, enrollment.Credentials, error) {
	if req.Type == "" {
		req.Type = "PERMANENT"
	}
	return w.service.Enroll(w.t.Context(), k, req)
}

const local = `{"elastic":{"agent":{"version":"1.0.0"}},"host":{"hostname":"web-1"}}`

func TestEnroll(t *testing.T) {
	w := newWorld(t)
	k, cred, err := w.service.CreateKey(t.Context(), "rack 7", "web", 0, "ann")
	w.must(err)
	if !strings.HasPrefix(k.Name, "rack 7 (") || strings.Contains(k.Hash, cred.Secret) {
		t.Errorf("key is %+v", k)
	}
	got, err := w.service.Authenticate(t.Context(), cred)
	if err != nil || got.PolicyID != "web" {
		t.Fatalf("key is %+v, %v", got, err)
	}
	a, own, err := w.enroll(got, agentapi.EnrollRequest{Metadata: agentapi.EnrollMetadata{Local: json.RawMessage(local), Tags: []string{"eu", "blue", "eu"}}})
	w.must(err)
	if a.ID == "" || a.PolicyID != "web" || a.Version != "1.0.0" || a.Hostname() != "web-1" || !slices.Equal(a.Tags, []string{"blue", "eu"}) {
		t.Errorf("agent is %+v", a)
	}
	if !strings.Contains(string(a.LocalMetadata), `"id":"`+a.ID+`"`) {
		t.Errorf("metadata are %s, want elastic.agent.id in them", a.LocalMetadata)
	}
	stored, err := w.store.Agents().ByAccessKey(t.Context(), own.Agent.ID)
	if err != nil || stored.ID != a.ID || !own.Agent.Matches(stored.AccessKeyHash) {
		t.Errorf("the agent's key authenticates %+v, %v", stored, err)
	}
	if stored.WatcherKeyID != own.Watcher.ID || !own.Watcher.Matches(stored.WatcherKeyHash) || own.Watcher.Matches(stored.AccessKeyHash) || own.Agent.Matches(stored.WatcherKeyHash) {
		t.Errorf("the watcher's key is %+v, the agent is %+v", own.Watcher, stored)
	}
	other := w.enrol(got, agentapi.EnrollRequest{})
	if other.ID == a.ID || other.Tags == nil {
		t.Errorf("the second agent is %+v", other)
	}
}

func TestAuthenticateRefusesInvalidTokens(t *testing.T) {
	w := newWorld(t)
	k, cred, err := w.service.CreateKey(t.Context(), "", "web", time.Hour, "ann")
	w.must(err)
	_, err = w.service.Authenticate(t.Context(), fleet.Credential{ID: "unknown", Secret: cred.Secret})
	w.wantKind(err, fleet.Unauthorized, "copy it whole")
	unknown := err.Error()
	_, err = w.service.Authenticate(t.Context(), fleet.Credential{ID: cred.ID, Secret: cred.Secret + "x"})
	w.wantKind(err, fleet.Unauthorized, "copy it whole")
	if err != nil && err.Error() != unknown {
		t.Errorf("the error reveals that the id is right: %v", err)
	}
	w.now = w.now.Add(time.Hour)
	_, err = w.service.Authenticate(t.Context(), cred)
	w.wantKind(err, fleet.Unauthorized, "expired")
	w.now = w.now.Add(-time.Minute)
	_, err = w.service.Authenticate(t.Context(), cred)
	w.must(err)

	agent := w.enrol(k, agentapi.EnrollRequest{})
	w.must(w.service.RevokeKey(t.Context(), k.ID, "ann"))
	w.must(w.service.RevokeKey(t.Context(), k.ID, "ann")) // revoking twice is no error
	_, err = w.service.Authenticate(t.Context(), cred)
	w.wantKind(err, fleet.Unauthorized, "revoked")
	if a, err := w.store.Agents().Get(t.Context(), agent.ID); err != nil || !a.Active {
		t.Errorf("the agent that enrolled with it is %+v, %v", a, err)
	}
	w.wantKind(w.service.RevokeKey(t.Context(), "unknown", "ann"), fleet.NotFound, "unknown")
}

func TestCreateKeyErrors(t *testing.T) {
	w := newWorld(t)
	_, _, err := w.service.CreateKey(t.Context(), "", "nowhere", 0, "ann")
	w.wantKind(err, fleet.Invalid, "body.policy_id")
	_, _, err = w.service.CreateKey(t.Context(), "", "web", -time.Hour, "ann")
	w.wantKind(err, fleet.Invalid, "in the past")
}

func TestEnrollErrorNamesField(t *testing.T) {
	w := newWorld(t)
	k := w.key("web")
	many := slices.Repeat([]string{"x"}, enrollment.MaxTags+1)
	for field, req := range map[string]agentapi.EnrollRequest{
		"body.type":                   {Type: "FOREVER"},
		"body.metadata.tags":          {Metadata: agentapi.EnrollMetadata{Tags: many}},
		"body.metadata.local":         {Metadata: agentapi.EnrollMetadata{Local: json.RawMessage(`["x"]`)}},
		"body.metadata.user_provided": {Metadata: agentapi.EnrollMetadata{UserProvided: json.RawMessage(`7`)}},
		"body.id]: is \"a/b\"":        {ID: "a/b"},
		"body.id]: is \"..\"":         {ID: ".."},
		"body.id]: is \"a\\nb\"":      {ID: "a\nb"},
		"body.id]: is \"xxx":          {ID: strings.Repeat("x", 129)},
	} {
		_, _, err := w.enroll(k, req)
		w.wantKind(err, fleet.Invalid, field)
	}
	if _, n, err := w.store.Agents().List(t.Context(), store.AgentQuery{}); err != nil || n != 0 {
		t.Errorf("%d agents were created, %v", n, err)
	}
}

// null counts as absent.
func TestNullMetadata(t *testing.T) {
	w := newWorld(t)
	a := w.enrol(w.key("web"), agentapi.EnrollRequest{Metadata: agentapi.EnrollMetadata{Local: json.RawMessage("null"), UserProvided: json.RawMessage("null")}})
	if a.UserMetadata != nil || !json.Valid(a.LocalMetadata) {
		t.Errorf("metadata are %s and %s", a.LocalMetadata, a.UserMetadata)
	}
	a = w.enrol(w.key("web"), agentapi.EnrollRequest{Metadata: agentapi.EnrollMetadata{Local: json.RawMessage(`{"elastic":null}`)}})
	if !strings.Contains(string(a.LocalMetadata), a.ID) {
		t.Errorf("metadata are %s", a.LocalMetadata)
	}
}

func TestEnrollWithReplaceTokenReplacesAgent(t *testing.T) {
	w := newWorld(t)
	k := w.key("web")
	req := agentapi.EnrollRequest{ID: "web-1", ReplaceToken: "blue42"}
	old, oldKey, err := w.enroll(k, req)
	w.must(err)
	if strings.Contains(old.ReplaceTokenHash, "blue42") {
		t.Error("the token is stored unhashed")
	}
	// The agent is being upgraded when the host is reinstalled.
	seq, err := w.store.Actions().Create(t.Context(), fleet.Action{ID: "up", Type: agentapi.ActionUpgrade, Agents: []string{"web-1"}, Actioned: 1})
	w.must(err)
	marked, err := w.store.Agents().Get(t.Context(), "web-1")
	w.must(err)
	marked.BeginUpgrade("up", "1.1.0", w.now)
	_, err = w.store.Agents().Update(t.Context(), marked)
	w.must(err)

	for name, bad := range map[string]struct {
		key fleet.EnrollmentKey
		req agentapi.EnrollRequest
	}{
		"no token":      {k, agentapi.EnrollRequest{ID: "web-1"}},
		"wrong token":   {k, agentapi.EnrollRequest{ID: "web-1", ReplaceToken: "red"}},
		"other policy":  {w.key("db"), req},
		"without token": {k, agentapi.EnrollRequest{ID: "web-1", ReplaceToken: ""}},
	} {
		_, _, err := w.enroll(bad.key, bad.req)
		if fleet.KindOf(err) != fleet.Forbidden || err == nil {
			t.Errorf("%s: error is %v", name, err)
		}
	}
	w.now = w.now.Add(time.Hour)
	_, newKey, err := w.enroll(k, req)
	w.must(err)
	if _, err := w.store.Agents().ByAccessKey(t.Context(), oldKey.Agent.ID); fleet.KindOf(err) != fleet.NotFound {
		t.Errorf("the old key is still accepted: %v", err)
	}
	a, err := w.store.Agents().ByAccessKey(t.Context(), newKey.Agent.ID)
	w.must(err)
	if a.ID != "web-1" || !a.EnrolledAt.Equal(w.now) || a.Upgrading() || a.Last.ActionSeq != seq {
		t.Errorf("agent is %+v; the old agent's actions must not reach it", a)
	}
	if r, err := w.store.Results().Get(t.Context(), "up", "web-1"); err != nil || !strings.Contains(r.Error, "enrolled again") {
		t.Errorf("the old agent's action has the result %+v, %v", r, err)
	}
}

// An empty replace token does not match the absence of one.
func TestAgentWithoutReplaceTokenIsNotReplaced(t *testing.T) {
	w := newWorld(t)
	k := w.key("web")
	w.enrol(k, agentapi.EnrollRequest{ID: "web-1"})
	for _, token := range []string{"", "x"} {
		_, _, err := w.enroll(k, agentapi.EnrollRequest{ID: "web-1", ReplaceToken: token})
		w.wantKind(err, fleet.Forbidden, "web-1 exists")
	}
}
