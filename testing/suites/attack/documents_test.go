package attack_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/muster-fleet/muster/server/app/apptest"
	"github.com/muster-fleet/muster/server/fleet"
	"github.com/muster-fleet/muster/server/store"
	"github.com/muster-fleet/muster/server/wire/agentapi"
)

// An attacker with an enrollment token, or on a host, sends documents that are JSON and that some
// reader of the store refuses, in every message. Each is answered 400 with the field's name, and
// nothing is broken for the others.
func TestDocumentsOfOneHostBreakNoQuery(t *testing.T) {
	t.Parallel()
	s := apptest.Start(t)
	s.Enroll("web-01", "9.3.0")
	a := s.Enroll("evil-01", "9.3.0")
	watcher := a.WatcherKey
	for name, value := range map[string]string{
		"deeper than SQLite reads":   strings.Repeat(`{"a":`, 1_001) + "1" + strings.Repeat("}", 1_001),
		"lists deeper than it reads": strings.Repeat("[", 1_001) + strings.Repeat("]", 1_001),
		"deeper than Go reads":       strings.Repeat(`{"a":`, 20_000) + "1" + strings.Repeat("}", 20_000),
		"no float":                   `{"a":1e999}`,
		"a long name":                `{"` + strings.Repeat("n", 5_000) + `":1}`,
		"many fields":                `{` + strings.Repeat(`"a":1,`, 10_001) + `"b":1}`,
		"a host name without end":    `{"host":{"hostname":"` + strings.Repeat("h", 2_000) + `"}}`,
	} {
		host := name == "a host name without end"
		for _, m := range []struct {
			path, key, body string
			host            bool // whether it has a host's name
		}{
			{agentapi.PathEnroll, s.Token, `{"type":"PERMANENT","metadata":{"local":%s}}`, true},
			{agentapi.PathEnroll, s.Token, `{"type":"PERMANENT","metadata":{"user_provided":%s}}`, false},
			{a.Path("checkin"), a.Key, `{"status":"online","local_metadata":%s}`, true},
			{a.Path("checkin"), a.Key, `{"status":"online","components":[%s]}`, false},
			{a.Path("acks"), a.Key, `{"events":[{"agent_id":"` + a.ID + `","action_id":"policy:default:1","data":%s}]}`, false},
			{a.Path("beacon"), watcher, `{"stage":"watching","x":%s}`, false},
			{agentapi.PathUploads, a.Key, `{"action_id":"x","agent_id":"` + a.ID + `","file":%s}`, false},
		} {
			if host && !m.host {
				continue
			}
			if len(value) > 64<<10 && (strings.HasSuffix(m.path, "beacon") || m.path == agentapi.PathUploads) {
				continue // their bodies are shorter
			}
			got := s.Agents(http.MethodPost, m.path, m.key, fmt.Sprintf(m.body, value))
			if text := string(got.Body); got.Status != http.StatusBadRequest || !strings.Contains(text, "[request body") {
				t.Errorf("%s in %s is answered %d %.300s", name, m.path, got.Status, text)
			}
		}
	}
	for _, kuery := range []string{
		"local_metadata.host.hostname: web-01", "web-01", "local_metadata.host.hostname: web*", "components.id: x or local_metadata.host.hostname: web-01", "not tags: x",
	} {
		got := s.Admin(http.MethodGet, "/api/fleet/agents?showInactive=true&kuery="+url.QueryEscape(kuery), nil)
		var list struct{ Items []struct{ ID string } }
		if err := json.Unmarshal(got.Body, &list); got.Status != http.StatusOK || err != nil || len(list.Items) == 0 {
			t.Errorf("%s is answered %d %.300s", kuery, got.Status, got.Body)
		}
	}
	if left := s.Store.Unreadable().List(time.Time{}); len(left) != 0 {
		t.Errorf("documents were stored that cannot be read: %v", left)
	}
	all, _, err := s.Store.Agents().List(t.Context(), store.AgentQuery{Limit: 10})
	if err != nil || len(all) != 2 {
		t.Errorf("%d agents were stored, %v", len(all), err)
	}
	for i := range all {
		if len(all[i].Hostname()) > fleet.MaxHostname {
			t.Errorf("the host name of %s has %d bytes", all[i].ID, len(all[i].Hostname()))
		}
	}
}
