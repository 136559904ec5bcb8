package action_test

import (
	"encoding/json"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/muster-fleet/muster/server/fleet"
	"github.com/muster-fleet/muster/server/rollout/action"
	"github.com/muster-fleet/muster/server/store/keyfile"
	"github.com/muster-fleet/muster/server/wire/agentapi"
)

// An action of each type is delivered with the keys that Fleet Server delivers, and
// without others.
func TestCreateDeliversDataOfType(t *testing.T) {
	w := newWorld(t)
	w.enrol("a", "9.3.0")
	for _, c := range []struct {
		kind       agentapi.ActionType
		data, want string
	}{
		{agentapi.ActionPolicyReassign, `{"policy_id": "p2", "extra": 1}`, `{"policy_id":"p2"}`},
		{agentapi.ActionSettings, `{"log_level": "debug", "extra": 1}`, `{"log_level":"debug"}`},
		{agentapi.ActionSettings, `{"log_level": null}`, `{"log_level":null}`},
		{agentapi.ActionRequestDiagnostics, ``, ``},
		{agentapi.ActionRequestDiagnostics, `null`, ``},
		{agentapi.ActionRequestDiagnostics, `{"additional_metrics": ["CPU"], "exclude_events_log": true}`, `{"additional_metrics":["CPU"],"exclude_events_log":true}`},
		{
			agentapi.ActionMigrate, `{"target_uri": "https://other:8220", "enrollment_token": "t", "settings": {"retry_max": 3}}`,
			`{"target_uri":"https://other:8220","enrollment_token":"t","settings":{"retry_max":3}}`,
		},
		{agentapi.ActionPrivilegeLevelChange, `{"unprivileged": true, "user_info": {"username": "u", "extra": 1}}`, `{"unprivileged":true,"user_info":{"username":"u"}}`},
		{
			agentapi.ActionPrivilegeLevelChange, `{"unprivileged": true, "user_info": {"username": "u", "password": "p"}}`,
			`{"unprivileged":true,"user_info":{"username":"u","password":"p"}}`,
		},
		{agentapi.ActionInput, `{"anything": [1]}`, `{"anything":[1]}`},
	} {
		o := action.Order{Type: c.kind, Data: json.RawMessage(c.data), AgentIDs: []string{"a"}, Actor: "ann"}
		if c.kind == agentapi.ActionInput {
			o.InputType, o.Timeout = "osquery", 300
		}
		a, err := w.service.Create(t.Context(), o)
		w.must(err)
		sent := w.pending("a")
		got := w.opened(sent[len(sent)-1]).ForAgent("a")
		if got.ID != a.ID || got.Type != c.kind || string(got.Data) != c.want || got.InputType != o.InputType || got.Timeout != o.Timeout || got.Expiration == nil {
			t.Errorf("%s with %s is delivered as %+v with %s, want %s", c.kind, c.data, got, got.Data, c.want)
		}
		if b := w.agent("a"); b.UnenrollmentStartedAt != nil || b.UpgradeStartedAt != nil {
			t.Errorf("%s marked the agent: %+v", c.kind, b)
		}
	}
}

// opened returns an action with the data that its agents get.
func (w *world) opened(a fleet.Action) fleet.Action {
	w.t.Helper()
	if len(a.Sealed) == 0 {
		return a
	}
	data, ok := w.service.Sealer.Open("action "+a.ID, a.Sealed)
	if !ok || len(a.Data) > 0 {
		w.t.Fatalf("%s has the data %s, and its secrets open: %t", a.Type, a.Data, ok)
	}
	a.Data = json.RawMessage(data)
	return a
}

// Only what is secret is encrypted: a server without the key orders everything else.
func TestSecretsOfActionsNeedTheEncryptionKey(t *testing.T) {
	w := newWorld(t, "a")
	const migration, secret, open = `{"target_uri":"https://other","enrollment_token":"t"}`, `{"unprivileged":true,"user_info":{"password":"p"}}`, `{"unprivileged":true,"user_info":{"username":"u"}}`
	create := func(kind agentapi.ActionType, data string) (fleet.Action, error) {
		return w.service.Create(t.Context(), action.Order{Type: kind, Data: json.RawMessage(data), AgentIDs: []string{"a"}})
	}
	for _, c := range []struct {
		kind agentapi.ActionType
		data string
	}{{agentapi.ActionMigrate, migration}, {agentapi.ActionPrivilegeLevelChange, secret}} {
		a, err := create(c.kind, c.data)
		w.must(err)
		if len(a.Data) > 0 || len(a.Sealed) == 0 || string(w.opened(a).Data) != c.data {
			t.Errorf("%s is %+v", c.kind, a)
		}
	}
	stored := len(w.pending("a"))
	w.service.Sealer = keyfile.Sealer{}
	_, err := create(agentapi.ActionMigrate, migration)
	w.wantKind(err, fleet.Unavailable, "a MIGRATE has secrets, and this server has no key")
	_, err = create(agentapi.ActionPrivilegeLevelChange, secret)
	w.wantKind(err, fleet.Unavailable, "a PRIVILEGE_LEVEL_CHANGE has secrets, and this server has no key")
	if got := w.pending("a"); len(got) != stored {
		t.Errorf("refused orders created %+v", got[stored:])
	}
	a, err := create(agentapi.ActionPrivilegeLevelChange, open)
	w.must(err)
	if string(a.Data) != open || len(a.Sealed) > 0 {
		t.Errorf("an order without secrets is %+v", a)
	}
}

// agentSettings is how elastic-agent 9.5 decodes the settings of a MIGRATE.
type agentSettings struct {
	CA          []string `json:"ca"`
	CASHA256    []string `json:"ca_sha256"`
	Certificate string   `json:"certificate"`
	Key         string   `json:"key"`
	ProxyURL    string   `json:"proxy_url"`
	Insecure    bool     `json:"insecure"`
}

func TestMigrationHasTheSettingsUnderTheNamesThatAgentsRead(t *testing.T) {
	w := newWorld(t)
	w.enrol("a", "9.5.2")
	for name, c := range map[string]struct {
		settings string // of the order
		want     agentSettings
	}{
		"none":             {`{}`, agentSettings{}},
		"null":             {`null`, agentSettings{}},
		"others stay":      {`{"proxy_url":"http://p","insecure":true}`, agentSettings{ProxyURL: "http://p", Insecure: true}},
		"as in Kibana":     {`{"certificate_authorities":"/etc/ca.crt","ca_sha256":"ab","elastic_agent_cert":"/c","elastic_agent_cert_key":"/k"}`, agentSettings{CA: []string{"/etc/ca.crt"}, CASHA256: []string{"ab"}, Certificate: "/c", Key: "/k"}},
		"several":          {`{"certificate_authorities":"/a.crt, /b.crt","ca_sha256":"ab,cd"}`, agentSettings{CA: []string{"/a.crt", "/b.crt"}, CASHA256: []string{"ab", "cd"}}},
		"as agents read":   {`{"ca":["/a"],"certificate_authorities":"/b","ca_sha256":["ab"],"key":"/k"}`, agentSettings{CA: []string{"/a"}, CASHA256: []string{"ab"}, Key: "/k"}},
		"empty is not set": {`{"certificate_authorities":"","ca_sha256":""}`, agentSettings{}},
	} {
		a, err := w.service.Create(t.Context(), action.Order{
			Type: agentapi.ActionMigrate, AgentIDs: []string{"a"}, Data: json.RawMessage(`{"target_uri":"https://other","enrollment_token":"t","settings":` + c.settings + `}`),
		})
		w.must(err)
		var data agentapi.MigrateData
		w.must(json.Unmarshal(w.opened(a).Data, &data))
		var got agentSettings
		if len(data.Settings) > 0 {
			if err := json.Unmarshal(data.Settings, &got); err != nil {
				t.Errorf("%s: the agent refuses %s: %v", name, data.Settings, err)
			}
		}
		if !reflect.DeepEqual(got, c.want) {
			t.Errorf("%s: the agent reads %+v, want %+v", name, got, c.want)
		}
		if strings.Contains(c.settings, `"certificate_authorities":"/`) && !strings.Contains(string(data.Settings), `"certificate_authorities":"/`) {
			t.Errorf("%s: certificate_authorities is not delivered: %s", name, data.Settings)
		}
	}
}

func TestCreateErrorNamesField(t *testing.T) {
	w := newWorld(t, "a")
	for _, c := range []struct {
		kind       agentapi.ActionType
		data, says string
	}{
		{agentapi.ActionPolicyReassign, ``, "body.action.data"},
		{agentapi.ActionPolicyReassign, `{}`, "policy_id"},
		{agentapi.ActionPolicyReassign, `{"policy_id": 1}`, "body.action.data"},
		{agentapi.ActionSettings, `{"log_level": "loud"}`, "log_level"},
		{agentapi.ActionMigrate, `{"enrollment_token": "t"}`, "target_uri"},
		{agentapi.ActionMigrate, `{"target_uri": "https://other"}`, "enrollment_token"},
		{agentapi.ActionMigrate, `{"target_uri": "other", "enrollment_token": "t"}`, "target_uri"},
		{agentapi.ActionMigrate, `{"target_uri": "https://other", "enrollment_token": "t", "settings": []}`, "settings"},
		{agentapi.ActionRequestDiagnostics, `{"additional_metrics": ["HEAP"]}`, "additional_metrics"},
		{agentapi.ActionInput, `{}`, "input_type"},
		{agentapi.ActionUpgrade, `{"version": "1.1.0"}`, "type"},
		{agentapi.ActionPolicyChange, `{}`, "type"},
		{"NONSENSE", `{}`, "type"},
	} {
		_, err := w.service.Create(t.Context(), action.Order{Type: c.kind, Data: json.RawMessage(c.data), AgentIDs: []string{"a"}})
		if err == nil || fleet.KindOf(err) != fleet.Invalid || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s with %s: the error is %v, want one that says %q", c.kind, c.data, err, c.says)
		}
	}
	if got := w.pending("a"); len(got) != 0 {
		t.Errorf("refused orders created %+v", got)
	}
}

func TestCreateRefusesUnenrolledAgents(t *testing.T) {
	w := newWorld(t, "a", "gone")
	w.unenroll(revoke("gone"))
	n := len(w.eventTypes(0))
	o := action.Order{Type: agentapi.ActionSettings, Data: json.RawMessage(`{"log_level": "info"}`), AgentIDs: []string{"a", "gone"}, Actor: "ann"}
	a, err := w.service.Create(t.Context(), o)
	w.must(err)
	if r := w.result(a, "gone"); r == nil || !strings.Contains(r.Error, "unenrolled") || w.result(a, "a") != nil || !slices.Equal(a.Agents, []string{"a"}) {
		t.Errorf("the action is %+v, the result of the agent that is gone %+v", a, r)
	}
	if types := w.eventTypes(n); !slices.Contains(types, fleet.EventActionCreated) || slices.Contains(types, fleet.EventAgentUnenrolled) || slices.Contains(types, fleet.EventAgentUpgrade) {
		t.Errorf("events are %v", types)
	}
	o.AgentIDs, o.Single = []string{"gone"}, true
	_, err = w.service.Create(t.Context(), o)
	w.wantKind(err, fleet.Invalid, "unenrolled")
}

// An agent that has migrated is another server's.
func TestMigratedAgentIsUnenrolled(t *testing.T) {
	w := newWorld(t)
	w.enrol("a", "9.3.0")
	w.enrol("b", "9.3.0")
	o := action.Order{Type: agentapi.ActionMigrate, Data: json.RawMessage(`{"target_uri": "https://other", "enrollment_token": "t"}`), AgentIDs: []string{"a", "b"}}
	a, err := w.service.Create(t.Context(), o)
	w.must(err)
	w.service.Ack(t.Context(), w.agent("a"), []agentapi.AckEvent{{ActionID: a.ID}})
	w.service.Ack(t.Context(), w.agent("b"), []agentapi.AckEvent{{ActionID: a.ID, Error: "the other server refused it"}})
	if got := w.agent("a"); got.Active || got.UnenrolledAt == nil || got.AccessKeyHash != "" {
		t.Errorf("the agent that migrated is %+v", got)
	}
	if got := w.agent("b"); !got.Active || got.AccessKeyHash == "" {
		t.Errorf("the agent that could not migrate is %+v", got)
	}
}
