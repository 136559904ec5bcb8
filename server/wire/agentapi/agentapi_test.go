package agentapi

import (
	"encoding/json"
	"reflect"
	"strings"
	"testing"
	"time"
)

var at = time.Date(2026, time.March, 3, 10, 0, 0, 0, time.UTC)

// roundTrip decodes a sample from the wire, and checks that it encodes to the same
// JSON, except for the keys in dropped, which Muster does not keep.
func roundTrip[T any](t *testing.T, sample string, dropped ...string) T {
	t.Helper()
	var v T
	if err := json.Unmarshal([]byte(sample), &v); err != nil {
		t.Fatalf("%s: %v", sample, err)
	}
	out, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	var got, want map[string]any
	if err := json.Unmarshal(out, &got); err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal([]byte(sample), &want); err != nil {
		t.Fatal(err)
	}
	for _, key := range dropped {
		if _, ok := want[key]; !ok {
			t.Fatalf("the sample has no %s", key)
		}
		delete(want, key)
	}
	if !reflect.DeepEqual(got, want) {
		t.Fatalf("written as %v\nwant       %v", got, want)
	}
	return v
}

func TestEnrolment(t *testing.T) {
	r := roundTrip[EnrollRequest](t, `{
		"type": "PERMANENT", "id": "a1", "enrollment_id": "e1", "replace_token": "t", "shared_id": "s",
		"metadata": {"local": {"host": {"hostname": "web-1"}, "n": 12345678901234567}, "user_provided": {"rack": 4}, "tags": ["b", "a"]},
		"future": {"x": 1}
	}`, "future")
	if r.Type != "PERMANENT" || r.ID != "a1" || r.ReplaceToken != "t" || len(r.Metadata.Tags) != 2 || !strings.Contains(string(r.Metadata.Local), "12345678901234567") {
		t.Errorf("read as %+v", r)
	}
	roundTrip[EnrollRequest](t, `{"type": "PERMANENT", "metadata": {}}`)
	a := roundTrip[EnrollResponse](t, `{"action": "created", "item": {
		"id": "a1", "active": true, "policy_id": "default", "type": "PERMANENT", "enrolled_at": "2026-03-03T10:00:00Z",
		"user_provided_metadata": {}, "local_metadata": {"elastic": {"agent": {"id": "a1"}}}, "access_api_key_id": "k", "access_api_key": "azpz",
		"status": "online", "tags": ["a"], "actions": [], "watcher_api_key": "dzpz"}}`)
	if a.Item.AccessAPIKey != "azpz" || !a.Item.EnrolledAt.Equal(at) || a.Item.Actions == nil {
		t.Errorf("read as %+v", a)
	}
}

func TestCheckin(t *testing.T) {
	r := roundTrip[CheckinRequest](t, `{
		"status": "degraded", "message": "half of it runs", "ack_token": "tok", "local_metadata": {"elastic": {"agent": {"version": "1.0.0"}}},
		"components": [{"id": "log-1", "type": "log", "status": "DEGRADED", "message": "m", "units": [{"id": "u", "payload": {"x": [1, 2.50]}}]}],
		"poll_timeout": "5m0s", "agent_policy_id": "default", "policy_revision_idx": 3,
		"upgrade": {"rollbacks": [{"version": "0.9.0", "valid_until": "2026-03-03T10:00:00Z"}]},
		"upgrade_details": {"target_version": "1.1.0", "action_id": "act", "state": "UPG_DOWNLOADING",
			"metadata": {"download_percent": 12.5, "download_rate": 1000, "retry_error_msg": "timeout", "retry_until": "2026-03-03T10:00:00Z"}},
		"capabilities": ["new"]
	}`, "capabilities")
	if r.Status != "degraded" || r.PollTimeout != "5m0s" || r.PolicyRevisionIdx != 3 || !r.Upgrade.Rollbacks[0].ValidUntil.Equal(at) {
		t.Errorf("read as %+v", r)
	}
	if d := r.UpgradeDetails; d.State != UpgradeDownloading || d.Metadata.DownloadPercent != 12.5 || d.Metadata.DownloadRate != 1000 {
		t.Errorf("details are read as %+v", d)
	}
	var components []Component
	if err := json.Unmarshal(r.Components, &components); err != nil || components[0].Status != "DEGRADED" || !strings.Contains(string(components[0].Units), "2.50") {
		t.Errorf("components are %+v: %v", components, err)
	}

	r = roundTrip[CheckinRequest](t, `{"status": "online", "message": "", "upgrade": {}}`) // the form of current agents
	if r.UpgradeDetails != nil || r.Upgrade == nil {
		t.Errorf("read as %+v", r)
	}
}

func TestCheckinResponse(t *testing.T) {
	r := roundTrip[CheckinResponse](t, `{"ack_token": "tok", "action": "checkin", "actions": [
		{"id": "act", "agent_id": "a1", "type": "UPGRADE", "created_at": "2026-03-03T10:00:00Z", "input_type": "", "data": {"version": "1.1.0", "source_uri": "https://x/"},
		 "start_time": "2026-03-03T10:00:00Z", "expiration": "2026-03-03T10:00:00Z"},
		{"id": "c", "agent_id": "a1", "type": "CANCEL", "created_at": "2026-03-03T10:00:00Z", "input_type": "", "data": {"target_id": "act"}},
		{"id": "policy:p:2", "agent_id": "a1", "type": "POLICY_CHANGE", "created_at": "2026-03-03T10:00:00Z", "input_type": "", "data": {"policy": {"id": "p", "revision": 2}}},
		{"id": "u", "agent_id": "a1", "type": "UNENROLL", "created_at": "2026-03-03T10:00:00Z", "input_type": ""}]}`)
	var up UpgradeData
	var cancel CancelData
	var policy PolicyChangeData
	for i, into := range []any{&up, &cancel, &policy} {
		if err := json.Unmarshal(r.Actions[i].Data, into); err != nil {
			t.Error(err)
		}
	}
	if up.Version != "1.1.0" || up.SourceURI != "https://x/" || up.Rollback || cancel.TargetID != "act" || !strings.Contains(string(policy.Policy), `"revision"`) {
		t.Errorf("data are read as %+v, %+v, %s", up, cancel, policy.Policy)
	}
	if r.Actions[3].Data != nil || !r.Actions[0].StartTime.Equal(at) {
		t.Errorf("actions are read as %+v", r.Actions)
	}
	// Elastic's agents require the keys even if they are empty.
	b, err := json.Marshal(CheckinResponse{Action: "checkin", Actions: []Action{}})
	if want := `{"ack_token":"","action":"checkin","actions":[]}`; err != nil || string(b) != want {
		t.Errorf("an empty answer is %s, want %s: %v", b, want, err)
	}
}

func TestAcks(t *testing.T) {
	r := roundTrip[AckRequest](t, `{"events": [
		{"type": "ACTION_RESULT", "subtype": "ACKNOWLEDGED", "agent_id": "a1", "action_id": "act", "message": "m", "timestamp": "2026-03-03T10:00:00.5Z",
		 "error": "no space", "payload": {"retry": true, "retry_attempt": 2}},
		{"type": "ACTION_RESULT", "subtype": "ACKNOWLEDGED", "agent_id": "a1", "action_id": "d", "message": "", "timestamp": "2026-03-03T10:00:00Z", "data": {"upload_id": "u"}}]}`)
	if e := r.Events[0]; e.Error != "no space" || !e.Payload.Retry || e.Payload.RetryAttempt != 2 || e.Timestamp.Sub(at) != 500*time.Millisecond {
		t.Errorf("read as %+v", e)
	}
	if e := r.Events[1]; e.Error != "" || e.Payload != nil || string(e.Data) != `{"upload_id": "u"}` {
		t.Errorf("read as %+v", e)
	}
	roundTrip[AckResponse](t, `{"action": "acks", "errors": true, "items": [{"status": 200}, {"status": 404, "message": "NotFound"}]}`)
	roundTrip[AckResponse](t, `{"action": "acks", "items": [{"status": 200, "message": "OK"}]}`)
}

func TestStatusAndError(t *testing.T) {
	roundTrip[Status](t, `{"name": "muster", "status": "HEALTHY"}`)
	roundTrip[Status](t, `{"name": "muster", "status": "STARTING", "version": {"number": "1.0.0", "build_hash": "3f2a9c", "build_time": "2026-03-03T10:00:00Z"}}`)
	e := roundTrip[Error](t, `{"statusCode": 400, "error": "InvalidUserAgent", "message": "user-agent is invalid"}`)
	if e.Error() != "user-agent is invalid" {
		t.Errorf("says %q", e.Error())
	}
}

func TestUpgradeStates(t *testing.T) {
	for _, sample := range []string{
		`{"target_version": "1.1.0", "action_id": "act", "state": "UPG_REQUESTED"}`,
		`{"target_version": "1.1.0", "action_id": "act", "state": "UPG_SCHEDULED", "metadata": {"scheduled_at": "2026-03-03T10:00:00Z"}}`,
		`{"target_version": "1.1.0", "action_id": "act", "state": "UPG_SCHEDULED", "metadata": {"scheduled_at": "2026-03-03T10:00:00Z",
			"retry_error_msg": "no route", "retry_until": "2026-03-03T12:00:00Z", "retry_attempt": 2, "retry_limit": 6}}`,
		`{"target_version": "1.1.0", "action_id": "", "state": "UPG_WATCHING"}`,
		`{"target_version": "1.1.0", "action_id": "act", "state": "UPG_FAILED", "metadata": {"failed_state": "UPG_EXTRACTING", "error_msg": "no space"}}`,
		`{"target_version": "1.1.0", "action_id": "act", "state": "UPG_ROLLBACK", "metadata": {"reason": "watch failed", "reason_code": "crash_loop"}}`,
	} {
		if d := roundTrip[UpgradeDetails](t, sample); !d.State.Known() {
			t.Errorf("phase %s is not known", d.State)
		}
	}
	for state, over := range map[UpgradeState]bool{UpgradeWatching: false, UpgradeRestarting: false, UpgradeRollback: true, UpgradeFailed: true} {
		if state.Ended() != over {
			t.Errorf("%s is over: %v", state, state.Ended())
		}
	}
	if UpgradeState("UPG_FUTURE").Known() || UpgradeState("").Known() {
		t.Error("phases are known that do not exist")
	}
	if d := roundTrip[UpgradeDetails](t, `{"target_version": "2.0.0", "action_id": "act", "state": "UPG_FUTURE"}`); d.State != "UPG_FUTURE" {
		t.Errorf("a phase of a later agent is read as %q", d.State)
	}
}

func TestBeacons(t *testing.T) {
	b := roundTrip[Beacon](t, `{"action_id": "act", "from": "1.0.0", "to": "1.1.0", "stage": "rolling_back",
		"agent": {"alive": true, "state": "failed", "version": "1.1.0", "crashes": 2, "last_checkin": "2026-03-03T10:00:00Z"},
		"reason": {"code": "crash_loop", "text": "it crashed twice"}, "waiting": "for the process to end", "at": "2026-03-03T10:00:00Z"}`)
	if !b.At.Equal(at) || b.Agent.Crashes != 2 || b.Reason.Code != "crash_loop" {
		t.Errorf("read as %+v", b)
	}
	roundTrip[Beacon](t, `{"from": "1.0.0", "to": "1.1.0", "stage": "watching", "agent": {"alive": false, "crashes": 0}, "at": "2026-03-03T10:00:00Z"}`)
	for phase, over := range map[BeaconPhase]bool{
		BeaconWatching: false, BeaconRollingBack: false, BeaconCommitted: true, BeaconRolledBack: true, BeaconRollbackFailed: true,
	} {
		if !phase.Known() || phase.Ended() != over {
			t.Errorf("%s is known: %v, over: %v", phase, phase.Known(), phase.Ended())
		}
	}
	if BeaconPhase("hoping").Known() || BeaconPhase("").Known() {
		t.Error("phases are known that do not exist")
	}
}

func TestRateAcceptsNumberAndText(t *testing.T) {
	for text, want := range map[string]Rate{
		`10000`: 10_000, `0`: 0, `1.5`: 1.5, `1e6`: 1e6, `"10kBps"`: 10_000, `"1.5MBps"`: 1.5e6, `"3GBps"`: 3e9, `"2TBps"`: 2e12, `"7Bps"`: 7, `"7"`: 7,
	} {
		var m UpgradeMetadata
		if err := json.Unmarshal([]byte(`{"download_rate": `+text+`}`), &m); err != nil || m.DownloadRate != want {
			t.Errorf("%s is read as %v, want %v: %v", text, m.DownloadRate, want, err)
		}
		b, err := json.Marshal(UpgradeMetadata{DownloadRate: want})
		var again UpgradeMetadata
		if err != nil || json.Unmarshal(b, &again) != nil || again.DownloadRate != want {
			t.Errorf("%v is written as %s: %v", want, b, err)
		}
	}
	for _, bad := range []string{`"fast"`, `"10 parsec"`, `"10kB"`, `true`, `{}`, `""`, `"NaN"`, `"InfkBps"`, `"1e308TBps"`, `1e400`} {
		var m UpgradeMetadata
		if err := json.Unmarshal([]byte(`{"download_rate": `+bad+`}`), &m); err == nil || !strings.Contains(err.Error(), "download_rate") {
			t.Errorf("%s is read as %v: %v", bad, m.DownloadRate, err)
		}
	}
}

func TestUserAgentVersion(t *testing.T) {
	for header, want := range map[string]string{
		"Elastic Agent v8.15.5":         "8.15.5",
		"elastic agent 9.1.0":           "9.1.0",
		"Elastic Agent v9.1.0-SNAPSHOT": "9.1.0",
		"Elastic Agent v9.1.0-a-b":      "9.1.0",
		"Elastic Agent ":                "",
		"Elastic Agent v<script>":       "",
		"curl/8.5.0":                    "",
		"":                              "",
		"Elastic Agent v" + strings.Repeat("1", 40): "",
	} {
		if got := UserAgentVersion(header); got != want {
			t.Errorf("%q names version %q, want %q", header, got, want)
		}
	}
}

// An action that is encoded once reads like one that is encoded for its agent.
func TestEncodedActionEqualsAction(t *testing.T) {
	a := Action{ID: "policy:p:1", Type: ActionPolicyChange, CreatedAt: time.Unix(0, 0).UTC(), Data: json.RawMessage(`{"agent_id":""}`), Timeout: 3, Signed: &Signed{Data: "ZA==", Signature: "cw=="}}
	e := EncodeAction(a)
	for _, id := range []string{"a", `quoted "id"`} {
		a.AgentID = id
		want, err := json.Marshal(a)
		if err != nil {
			t.Fatal(err)
		}
		if got := e.AppendTo(nil, id); string(got) != string(want) {
			t.Errorf("%s, want %s", got, want)
		}
	}
}
