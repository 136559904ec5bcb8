package fleet

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/muster-fleet/muster/server/kql"
	"github.com/muster-fleet/muster/server/wire/agentapi"
)

// The rules of the status exist twice: as a function of an agent, and as filters for
// stores. They must agree.
func TestStatusFiltersAgreeWithStatusAt(t *testing.T) {
	const day = 24 * time.Hour
	ages := []time.Duration{0, time.Second, OfflineAfter - 1, OfflineAfter, OfflineAfter + 1, time.Hour, day, day + 1, 14 * day, 14*day + 1, 100 * day}
	timeouts := map[string]time.Duration{"a": 14 * day, "b": day, "never": 0, "c": time.Minute, "d": day}
	maybe := func(t *rapid.T, name string) *time.Time {
		if rapid.Bool().Draw(t, name+" set") {
			return ago(rapid.SampledFrom(ages).Draw(t, name))
		}
		return nil
	}
	rapid.Check(t, func(t *rapid.T) {
		a := Agent{
			Active: rapid.Bool().Draw(t, "active"), PolicyID: rapid.SampledFrom([]string{"a", "b", "c", "d", "never", "unknown", ""}).Draw(t, "policy"),
			PolicyRev:  rapid.SampledFrom([]int64{0, 1, 2}).Draw(t, "revision"),
			EnrolledAt: *ago(rapid.SampledFrom(ages).Draw(t, "enrolled")), UnenrollmentStartedAt: maybe(t, "unenrolling"),
			AuditUnenrolledReason: rapid.SampledFrom([]string{"", "uninstall", "orphaned", "key_revoked"}).Draw(t, "audit"),
			Upgrade:               Upgrade{UpgradeStartedAt: maybe(t, "started"), UpgradedAt: maybe(t, "upgraded")},
			Last:                  LastSeen{At: maybe(t, "last seen"), Status: rapid.SampledFrom([]string{"", "online", "error", "degraded"}).Draw(t, "says")},
		}
		known := timeouts
		if rapid.Bool().Draw(t, "without timeouts") {
			known = nil
		}
		some := map[string]bool{}
		for _, s := range Statuses {
			some[string(s)] = rapid.Bool().Draw(t, string(s))
		}
		f := AgentSchema(known).Field("status").Derive(func(s string) bool { return some[s] }, now)
		status := a.Facts().StatusAt(now, known[a.PolicyID])
		if got := kql.Match(f, a.Values); got != some[string(status)] {
			t.Fatalf("the agent is %s, the filter of %v says %v: %+v", status, some, got, f)
		}
	})
}

// valued returns an agent with a value in every field of the schema.
func valued() Agent {
	return Agent{
		ID: "a1", Type: "PERMANENT", Active: true, PolicyID: "p1", PolicyRev: 3, PolicyCoordinator: new(int64(1)), EnrollmentID: "e1", Version: "1.10.0",
		EnrolledAt: now, UnenrolledAt: &now, UnenrolledReason: "left", UnenrollmentStartedAt: &now,
		AuditUnenrolledReason: "uninstall", AuditUnenrolledTime: &now,
		Last: LastSeen{At: &now, Status: "degraded", Message: "Half of it runs"}, Tags: []string{"prod", "db"},
		UnhealthyReason: []string{"input"}, AccessKeyID: "key1",
		LocalMetadata: json.RawMessage(`{
			"elastic": {"agent": {"id": "a1", "version": "1.10.0", "snapshot": false, "upgradeable": true, "unprivileged": false, "log_level": "info", "build": {"original": "1.10.0 (build: 1a2b)"}}},
			"host": {"hostname": "web-01", "name": "Web 01", "ip": ["10.0.0.1/24", "fe80::1/64"], "mac": ["02:00:00:00:00:01"], "architecture": "x86_64", "id": "m1"},
			"os": {"platform": "debian", "family": "debian", "name": "Debian GNU/Linux", "version": "13 (trixie)", "type": "linux", "kernel": "6.18", "full": "Debian 13"}}`),
		Components: json.RawMessage(`[{"id": "web-default", "type": "component", "status": "FAILED", "message": "It fell", "name": "web", "runtime": "systemd", "version": "2.4.0",
			"upgrade_details": {"target_version": "2.5.0", "action_id": "x2", "state": "UPG_FAILED",
				"metadata": {"phase": "VERIFYING", "failed_state": "UPG_WATCHING", "error_msg": "no answer", "reason_code": "check_failed"}}}]`),
		ComponentActions: []string{"x2"}, ComponentsSince: &now, Upgrade: Upgrade{UpgradeLog: UpgradeLog{UpgradeBy: "ann", UpgradeEndedAt: &now}, UpgradeActionID: "x1", UpgradeStatus: UpgradeFailed, UpgradeStartedAt: &now, UpgradedAt: &now, UpgradeDetails: &agentapi.UpgradeDetails{TargetVersion: "1.11.0", ActionID: "x1", State: agentapi.UpgradeFailed, Metadata: agentapi.UpgradeMetadata{
			ScheduledAt: &now, DownloadPercent: 12.5, DownloadRate: 1000, RetryErrorMsg: "no route", RetryUntil: &now, RetryAttempt: 1, RetryLimit: 6,
			FailedState: agentapi.UpgradeDownloading, ErrorMsg: "disk full", Reason: "it fell", ReasonCode: "crash_loop",
		}}}, StagedVersions: []string{"1.11.0"},
	}
}

// As in an index of Elasticsearch, whose lists of objects are flattened.
func TestConditionsOnComponentsMayMatchDifferentOnes(t *testing.T) {
	a := Agent{Components: json.RawMessage(`[{"name":"web","status":"HEALTHY","version":"2.4.0"},{"name":"db","status":"FAILED","version":"15.0.0"}]`)}
	for query, want := range map[string]bool{
		"components.name: web and components.status: FAILED":     true,
		"components.name: web and not components.status: FAILED": false,
		"components.version < 2.5.0":                             true,
		"components.version > 15.0.0":                            false,
		"components.name: cache":                                 false,
		"not components.runtime: *":                              true,
	} {
		f, err := kql.Compile(query, AgentSchema(nil), now)
		if err != nil {
			t.Fatal(err)
		}
		if got := kql.Match(f, a.Values); got != want {
			t.Errorf("%s: %v", query, got)
		}
	}
	if SortField("components.name") != nil {
		t.Error("lists are sorted by one of several names")
	}
}

func TestEveryFieldHasValuesOfItsType(t *testing.T) {
	a := valued()
	key := EnrollmentKey{ID: "k", Name: "n", PolicyID: "p", CreatedAt: now, ExpireAt: &now}
	policy := Policy{
		ID: "p", Name: "n", Namespace: "default", Description: "d", MonitoringEnabled: []string{"logs"}, UpdatedAt: now, UpdatedBy: "ann",
		DataOutputID: "o", MonitoringOutputID: "o", DownloadSourceID: "s", FleetServerHostID: "h", AgentFeatures: []AgentFeature{{Name: "fqdn", Enabled: true}},
		UnenrollTimeout: new(int64(60)), SupportsAgentless: new(true),
	}
	for _, row := range []struct {
		schema *kql.Schema
		values kql.Doc
		empty  kql.Doc
	}{
		{AgentSchema(nil), a.Values, (&Agent{}).Values},
		{EnrollmentKeySchema(), key.Values, (&EnrollmentKey{}).Values},
		{PolicySchema(), policy.Values, (&Policy{}).Values},
	} {
		names := map[string]bool{}
		for _, f := range row.schema.Fields {
			if names[f.Name] || f.Description == "" {
				t.Errorf("%s is declared twice, or has no description", f.Name)
			}
			names[f.Name] = true
			if f.Type == kql.TypeDerived || f.Constant || f.Name == FieldAPIKey {
				continue
			}
			got := row.values(f)
			if len(got) == 0 {
				t.Errorf("%s has no value", f.Name)
			}
			for _, v := range got {
				fits := false
				switch v.(type) {
				case string:
					fits = f.Type == kql.TypeKeyword || f.Type == kql.TypeText || f.Type == kql.TypeVersion
				case time.Time:
					fits = f.Type == kql.TypeDate
				case bool:
					fits = f.Type == kql.TypeBool
				case float64:
					fits = f.Type == kql.TypeNumber
				}
				if !fits {
					t.Errorf("%s, %s, has the value %v (%T)", f.Name, f.Type, v, v)
				}
			}
			for _, v := range row.empty(f) {
				if v == "" {
					t.Errorf("an empty %s counts as a value", f.Name)
				}
			}
			if text := strings.TrimSuffix(f.Name, KeywordSuffix); text != f.Name && row.schema.Field(text) == nil {
				t.Errorf("%s is the keyword sub-field of no field", f.Name)
			}
		}
	}
}

func TestValuesOfMalformedMetadata(t *testing.T) {
	hostname, snapshot := &kql.Field{Name: "local_metadata.host.hostname.keyword", Type: kql.TypeKeyword}, &kql.Field{Name: "local_metadata.elastic.agent.snapshot", Type: kql.TypeBool}
	for raw, want := range map[string][]any{
		``:                          nil,
		`null`:                      nil,
		`[]`:                        nil,
		`{"host":"web"}`:            nil,
		`{"host":["web"]}`:          nil,
		`{"host":{"hostname":7}}`:   nil,
		`{"host":{"hostname":""}}`:  nil,
		`{"host":{"hostname":{}}}`:  nil,
		`{"host":{"Hostname":"x"}}`: nil,
		`{"host":{"hostname":"x"}}`: {"x"},
		`{"a":{},"host":{"b":[1,{}],"hostname":["x","",7,"y"]}}`: {"x", "y"},
		`{"host":{"hostname":"x","hostname":"y"}}`:               {"x"},
	} {
		if got := (&Agent{LocalMetadata: json.RawMessage(raw)}).Values(hostname); !slices.Equal(got, want) {
			t.Errorf("%s has %v, want %v", raw, got, want)
		}
	}
	for raw, want := range map[string][]any{`true`: {true}, `false`: {false}, `"true"`: nil, `[true]`: nil, `1`: nil} {
		a := Agent{LocalMetadata: json.RawMessage(`{"elastic":{"agent":{"snapshot":` + raw + `}}}`)}
		if got := a.Values(snapshot); !slices.Equal(got, want) {
			t.Errorf("%s is %v, want %v", raw, got, want)
		}
	}
}

// Listings hide inactive and unenrolled agents unless the query names the status.
func TestSelectAgentsShowsHiddenStatusNamedInQuery(t *testing.T) {
	online := Agent{ID: "online", Active: true, PolicyID: "p", PolicyRev: 1, EnrolledAt: now, Last: LastSeen{At: &now, Status: "online"}}
	inactive, unenrolled := online, online
	inactive.ID, inactive.Last.At = "inactive", ago(48*time.Hour)
	unenrolled.ID, unenrolled.Active = "unenrolled", false
	timeouts := map[string]time.Duration{"p": 24 * time.Hour}
	for query, want := range map[string]string{
		"":                                  "online",
		"*":                                 "online",
		"policy_id: p":                      "online",
		"status: online":                    "online",
		"not status: online":                "",
		"status: inactive":                  "inactive",
		"status:unenrolled":                 "unenrolled",
		"status : unenrolled":               "unenrolled", // in Kibana the blank hides them
		"fleet-agents.status: unenrolled":   "unenrolled",
		`status: "inactive" or policy_id:p`: "online inactive",
		"status: (inactive or unenrolled)":  "inactive unenrolled",
		"not status: inactive":              "online",
		"status: in*":                       "inactive",
		"status: *":                         "online unenrolled", // as in Kibana
		"policy_id: p and status: *":        "online unenrolled",
		"policy_id: *":                      "online",
	} {
		f, err := SelectAgents(query, false, timeouts, now)
		if err != nil {
			t.Errorf("%s: %v", query, err)
			continue
		}
		var got []string
		for _, a := range []Agent{online, inactive, unenrolled} {
			if kql.Match(f, a.Values) {
				got = append(got, a.ID)
			}
		}
		if strings.Join(got, " ") != want {
			t.Errorf("%q shows %q, want %q", query, got, want)
		}
		f, err = SelectAgents(query, true, timeouts, now)
		asked, err2 := kql.Compile(query, AgentSchema(timeouts), now)
		if err != nil || err2 != nil {
			t.Fatal(err, err2)
		}
		for _, a := range []Agent{online, inactive, unenrolled} {
			if kql.Match(f, a.Values) != kql.Match(asked, a.Values) {
				t.Errorf("%q with all shown is not what the query says of the %s agent", query, a.ID)
			}
		}
	}
	if _, err := SelectAgents("status: sleeping", false, nil, now); err == nil || !strings.Contains(err.Error(), "unenrolling") {
		t.Errorf("an unknown status: %v", err)
	}
}

// As TestStatusFiltersAgreeWithStatusAt.
func TestHealthFiltersAgreeWithHealthAt(t *testing.T) {
	const day = 24 * time.Hour
	ages := []time.Duration{0, time.Second, OfflineAfter - 1, OfflineAfter, OfflineAfter + 1, day, day + 1, 14*day + 1}
	timeouts := map[string]time.Duration{"a": 14 * day, "b": day, "never": 0}
	rapid.Check(t, func(t *rapid.T) {
		age := func(name string) *time.Time { return ago(rapid.SampledFrom(ages).Draw(t, name)) }
		a := Agent{
			Active: rapid.Bool().Draw(t, "active"), PolicyID: rapid.SampledFrom([]string{"a", "b", "never", ""}).Draw(t, "policy"),
			PolicyRev: rapid.SampledFrom([]int64{0, 1}).Draw(t, "revision"), EnrolledAt: *age("enrolled"),
			AuditUnenrolledReason: rapid.SampledFrom([]string{"", "uninstall", "orphaned", "key_revoked"}).Draw(t, "audit"),
			Last:                  LastSeen{Status: rapid.SampledFrom([]string{"", "online", "error", "degraded"}).Draw(t, "says")},
		}
		if rapid.Bool().Draw(t, "seen") {
			a.Last.At = age("last seen")
		}
		some := map[string]bool{}
		for _, h := range Healths {
			some[string(h)] = rapid.Bool().Draw(t, string(h))
		}
		f := AgentSchema(timeouts).Field(FieldHealth).Derive(func(s string) bool { return some[s] }, now)
		health := a.Facts().HealthAt(now, timeouts[a.PolicyID])
		if got := kql.Match(f, a.Values); got != some[string(health)] {
			t.Fatalf("the agent is %s, the filter of %v says %v: %+v", health, some, got, f)
		}
	})
}

func TestProgressFiltersAgreeWithProgressStateAt(t *testing.T) {
	ages := []time.Duration{-time.Hour, -1, 0, time.Second, OfflineAfter, OfflineAfter + 1, time.Hour}
	rapid.Check(t, func(t *rapid.T) {
		maybe := func(name string) *time.Time {
			if rapid.Bool().Draw(t, name+" set") {
				return ago(rapid.SampledFrom(ages).Draw(t, name))
			}
			return nil
		}
		a := Agent{
			Active: rapid.IntRange(0, 9).Draw(t, "active") > 0, EnrolledAt: *ago(time.Hour), Last: LastSeen{At: maybe("last seen")},
			Upgrade: Upgrade{
				UpgradeStartedAt: maybe("started"), UpgradedAt: maybe("upgraded"),
				UpgradeStatus: rapid.SampledFrom([]UpgradeStatus{UpgradeNone, UpgradeStarted, UpgradeFailed, UpgradeRolledBack}).Draw(t, "status"),
			},
		}
		if state := rapid.SampledFrom(append([]string{"", "none"}, upgradeStates...)).Draw(t, "state"); state != "none" {
			a.UpgradeDetails = &agentapi.UpgradeDetails{State: agentapi.UpgradeState(state)}
			a.UpgradeDetails.Metadata.FailedState = agentapi.UpgradeState(rapid.SampledFrom(append([]string{""}, upgradeStates...)).Draw(t, "failed in"))
		}
		some := map[string]bool{}
		for _, s := range ProgressStates {
			some[string(s)] = rapid.Bool().Draw(t, string(s))
		}
		schema := AgentSchema(nil)
		state := a.ProgressStateAt(now)
		f := schema.Field(FieldProgress).Derive(func(s string) bool { return some[s] }, now)
		if got := kql.Match(f, a.Values); got != some[string(state)] {
			t.Fatalf("the progress is %q, the filter of %v says %v: %+v", state, some, got, f)
		}
		for query, want := range map[string]bool{"progress: *": state != ProgressNone, "not progress: *": state == ProgressNone} {
			f, err := kql.Compile(query, schema, now)
			if err != nil {
				t.Fatal(err)
			}
			if got := kql.Match(f, a.Values); got != want {
				t.Fatalf("%s is %v of %q", query, got, state)
			}
		}
	})
}

func TestProgressRulesOfComponentsAgreeWithActionProgressAt(t *testing.T) {
	compared := 0
	for _, state := range upgradeStates {
		for _, failed := range append([]string{""}, upgradeStates...) {
			d := componentDetails("act", "2.5.0", agentapi.UpgradeState(state))
			d.Metadata.FailedState = agentapi.UpgradeState(failed)
			h := newComponentHost(t)
			h.begins("act", "2.5.0")
			h.reports("2.4.0", d)
			want, ok := h.a.ActionProgressAt("act", "web", h.now)
			if !ok || want.State.Ended() {
				continue // the rules are for upgrades under way
			}
			compared++
			got := ProgressSent
			for _, r := range ComponentProgressRules("act", h.now) {
				if kql.Match(r.When, h.a.Values) {
					got = r.Value
					break
				}
			}
			if got != want.State {
				t.Errorf("a component in %q, which failed in %q, is %q; its rules say %q", state, failed, want.State, got)
			}
		}
	}
	if compared < 20 {
		t.Errorf("only %d upgrades were under way", compared)
	}
}

func TestShortNamesOfFields(t *testing.T) {
	a := valued()
	a.Tags = []string{"prod", "site=fra1", "site=", "fra2"}
	for query, want := range map[string]bool{
		"host: web-01":                      true,
		"host: web-*":                       true,
		"host: WEB-01":                      false,
		"version: 1.10.0":                   true,
		"version > 1.9":                     true,
		"version < 1.9.0":                   false,
		"policy: p1 and tag: prod":          true,
		"os: linux and os: *":               true,
		"site: fra1":                        true,
		"site: (ber1 or fra1)":              true,
		"site: fra*":                        true,
		"site: ber* fra*":                   true,
		"site: prod":                        false,
		"site: fra2":                        false,
		`site: ""`:                          false,
		"site: *":                           true,
		"not site: ber1 and tag: site=fra1": true,
	} {
		f, err := kql.Compile(query, AgentSchema(nil), now)
		if err != nil {
			t.Fatalf("%s: %v", query, err)
		}
		if got := kql.Match(f, a.Values); got != want {
			t.Errorf("%s: %v", query, got)
		}
	}
	if _, err := kql.Compile("site > a", AgentSchema(nil), now); err == nil || !strings.Contains(err.Error(), `"site" has no order`) {
		t.Errorf("a range of sites: %v", err)
	}
	if _, err := kql.Compile("hosts: a", AgentSchema(nil), now); err == nil || !strings.Contains(err.Error(), `did you mean "host"?`) {
		t.Errorf("a misspelt short name: %v", err)
	}
	first := kql.Suggest("", 0, AgentSchema(nil)).Completions
	if len(first) < 8 || first[0].Text != "host" || first[6].Text != FieldHealth || first[7].Text != FieldProgress {
		t.Errorf("suggested are %+v", first)
	}
	wanted := kql.Suggest("site: fr", 8, AgentSchema(nil)).Values
	if wanted == nil || wanted.Field != FieldTags || wanted.Prefix != "site=fr" || wanted.Complete("site=fra1").Text != `"fra1" ` {
		t.Errorf("wanted is %+v", wanted)
	}
}
