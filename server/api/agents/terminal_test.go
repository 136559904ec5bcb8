package agents_test

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/muster-fleet/muster/packaging/host/terminal"
	"github.com/muster-fleet/muster/server/app/apptest"
	"github.com/muster-fleet/muster/server/wire/agentapi"
)

// evil clears a terminal, sets its title, and shows what follows from right to left.
const evil = "x\x1b[2J\x1b]0;gone\a\u009b1m\u202ey"

func asJSON(t *testing.T, v any) string {
	t.Helper()
	b, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// A host is not in the fleet yet, so nothing is lost when it is refused.
func TestEnrolmentRefusesTextThatActsOnTerminals(t *testing.T) {
	t.Parallel()
	s := apptest.Start(t, quick)
	for _, c := range []struct {
		metadata map[string]any
		field    string
	}{
		{map[string]any{"tags": []string{"web", evil}}, "body.metadata.tags[1]"},
		{map[string]any{"tags": []string{"two\nlines"}}, "body.metadata.tags[0]"},
		{map[string]any{"local": map[string]any{"host": map[string]any{"hostname": evil}}}, "body.metadata.local.host.hostname"},
		{map[string]any{"local": map[string]any{"host": map[string]any{"ip": []any{"10.0.0.1", "10.0.\u20660.2"}}}}, "body.metadata.local.host.ip[1]"},
		{map[string]any{"local": map[string]any{"elastic": map[string]any{"agent": map[string]any{"version": "1.0.0\u007f"}}}}, "body.metadata.local.elastic.agent.version"},
		{map[string]any{"local": map[string]any{evil: "x"}}, "body.metadata.local"},
		{map[string]any{"user_provided": map[string]any{"site": "a\tb"}}, "body.metadata.user_provided.site"},
	} {
		got := s.Agents(http.MethodPost, agentapi.PathEnroll, s.Token, asJSON(t, map[string]any{"type": "PERMANENT", "metadata": c.metadata}))
		if message := got.ErrorBody().Message; got.Status != 400 || !strings.HasPrefix(message, "[request "+c.field+"]: ") || !terminal.IsSafe(message) {
			t.Errorf("%v: answered %d %s, want a refusal of %s", c.metadata, got.Status, got.Body, c.field)
		}
	}
	if all, _, err := s.Store.Agents().List(t.Context(), agentQuery); err != nil || len(all) != 0 {
		t.Errorf("enrolled are %+v, %v", all, err)
	}
	plain := `{"type":"PERMANENT","metadata":{"tags":["größe"],"local":{"os":{"name":"C:\\Windows \"10\" – 東京"}}}}`
	if got := s.Agents(http.MethodPost, agentapi.PathEnroll, s.Token, plain); got.Status != 200 {
		t.Errorf("plain text was answered %d %s", got.Status, got.Body)
	}
}

// To refuse the report of an enrolled host would cut it off, or lose the result of an
// upgrade. It is stored, and acts on nothing.
func TestReportsAreStoredWithEscapedText(t *testing.T) {
	t.Parallel()
	s := apptest.Start(t, quick)
	s.Publisher().Publish("1.1.0")
	a := s.Enroll("web-01", "1.0.0")
	up := upgrade(t, s, a, "1.1.0")
	report := map[string]any{
		"status": "degraded", "message": "two\nlines: " + evil, "ack_token": "",
		"local_metadata":  map[string]any{"host": map[string]any{"hostname": "web\n" + evil}, "elastic": map[string]any{"agent": map[string]any{"version": "1.0.0"}}},
		"components":      []any{map[string]any{"id": "log", "type": "log", "status": "FAILED", "message": "line\n" + evil, "pid": 12345678901234567}},
		"upgrade_details": map[string]any{"target_version": "1.1.0", "action_id": up, "state": "UPG_FAILED", "metadata": map[string]any{"error_msg": evil, "reason": evil, "reason_code": evil}},
		"upgrade":         map[string]any{"rollbacks": []any{map[string]any{"version": evil, "valid_until": time.Now()}}},
	}
	if got := s.Agents(http.MethodPost, a.Path("checkin"), a.Key, asJSON(t, report)); got.Status != 200 {
		t.Fatalf("the check-in was answered %d %s", got.Status, got.Body)
	}
	if got := a.Ack(evil, up); got.Status != 200 {
		t.Fatalf("the acknowledgement was answered %d %s", got.Status, got.Body)
	}
	b := apptest.Beacon(up, agentapi.BeaconRolledBack)
	b.Waiting, b.Agent.State, b.Reason = evil, evil, &agentapi.BeaconCause{Code: evil, Text: evil}
	a.Beacon(b)

	stored := s.Fleet(a.ID)
	if stored.Last.Status != "degraded" || stored.Last.Message != "two\nlines: "+terminal.Escape(evil) {
		t.Errorf("status is %s %q", stored.Last.Status, stored.Last.Message)
	}
	if want := `web\u000a` + terminal.Escape(evil); stored.Hostname() != want {
		t.Errorf("hostname is %q, want %q", stored.Hostname(), want)
	}
	if !strings.Contains(string(stored.Components), "12345678901234567") {
		t.Errorf("components are %s", stored.Components)
	}
	result, err := s.Store.Results().Get(t.Context(), up, a.ID)
	if err != nil {
		t.Fatal(err)
	}
	events, err := s.Store.Events().After(t.Context(), 0, 100)
	if err != nil {
		t.Fatal(err)
	}
	for what, v := range map[string]any{"document": stored, "last check-in": stored.Last, "result": result, "events": events} {
		var decoded any
		if err := json.Unmarshal([]byte(asJSON(t, v)), &decoded); err != nil {
			t.Fatal(err)
		}
		found := 0
		eachText(decoded, func(text string) {
			if strings.Contains(text, `\u202e`) {
				found++
			}
			if terminal.Escape(text) != text {
				t.Errorf("the %s has %q", what, text)
			}
		})
		if found == 0 {
			t.Errorf("the %s has no escaped text: %s", what, asJSON(t, v))
		}
	}
}

func eachText(v any, f func(string)) {
	switch v := v.(type) {
	case string:
		f(v)
	case []any:
		for _, e := range v {
			eachText(e, f)
		}
	case map[string]any:
		for key, e := range v {
			f(key)
			eachText(e, f)
		}
	}
}
