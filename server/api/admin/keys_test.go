package admin_test

import (
	"strings"
	"testing"
	"time"

	"github.com/muster-fleet/muster/server/api/adminapi"
	"github.com/muster-fleet/muster/server/app"
	"github.com/muster-fleet/muster/server/app/apptest"
	"github.com/muster-fleet/muster/server/wire/agentapi"
)

const keysPath = "/api/fleet/enrollment_api_keys"

func TestEnrollmentKeyIsReadAgain(t *testing.T) {
	t.Parallel()
	s := apptest.Start(t)
	created := apptest.Decode[adminapi.EnrollmentKeyCreated](t, s.Admin("POST", keysPath, `{"name":"rack","policy_id":"default"}`)).Item
	got := apptest.Decode[adminapi.EnrollmentKeyItem](t, s.Admin("GET", keysPath+"/"+created.Id, nil)).Item
	list := apptest.Decode[adminapi.EnrollmentKeyList](t, s.Admin("GET", keysPath+"?kuery=api_key_id:"+created.Id, nil))
	if len(list.Items) != 1 || len(list.List) != 1 || list.Total != 1 {
		t.Fatalf("the list is %+v", list)
	}
	for what, k := range map[string]adminapi.EnrollmentKey{"the key": got, "its item in the list": list.Items[0], "and in the older name of the list": list.List[0]} {
		if k.ApiKey == nil || *k.ApiKey != *created.ApiKey || k.Name != "rack ("+k.Id+")" || k.Id != k.ApiKeyId {
			t.Errorf("%s is %+v, want %+v", what, k, created)
		}
	}
	if got := s.Agents("POST", agentapi.PathEnroll, *got.ApiKey, agentapi.EnrollRequest{Type: "PERMANENT"}); got.Status != 200 {
		t.Errorf("enrolling with it answered %d %s", got.Status, got.Body)
	}
	if none := apptest.Decode[adminapi.EnrollmentKeyList](t, s.Admin("GET", keysPath+"?perPage=0", nil)); len(none.Items) != 0 || none.Total != 2 {
		t.Errorf("with perPage=0: %+v", none)
	}

	for kuery, want := range map[string]int{
		`api_key: "` + *created.ApiKey + `"`: 1, `fleet-enrollment-api-keys.api_key: "other"`: 0, "hidden: false": 2, "updated_at: *": 0,
	} {
		if got := apptest.Decode[adminapi.EnrollmentKeyList](t, s.Admin("GET", asked(keysPath, kuery), nil)); got.Total != want {
			t.Errorf("%s finds %d keys, want %d", kuery, got.Total, want)
		}
	}

	// A key of an older version has only its hash.
	k, err := s.Store.EnrollmentKeys().Get(t.Context(), created.Id)
	if err != nil {
		t.Fatal(err)
	}
	k.Sealed = nil
	if _, err := s.Store.EnrollmentKeys().Update(t.Context(), k); err != nil {
		t.Fatal(err)
	}
	if got := s.Admin("GET", keysPath+"/"+created.Id, nil); got.Status != 200 || strings.Contains(string(got.Body), `"api_key"`) {
		t.Errorf("a key without a stored secret is %d %s", got.Status, got.Body)
	}

	for query, wants := range map[string]int{"?forceDelete=false": 200, "?forceDelete=true": 404} {
		k := apptest.Decode[adminapi.EnrollmentKeyCreated](t, s.Admin("POST", keysPath, `{"policy_id":"default"}`)).Item
		if got := apptest.Decode[adminapi.ActionWord](t, s.Admin("DELETE", keysPath+"/"+k.Id+query, nil)); got.Action != "deleted" {
			t.Errorf("%s answered %+v", query, got)
		}
		if got := s.Admin("GET", keysPath+"/"+k.Id, nil); got.Status != wants {
			t.Errorf("after %s the key is %d %s, want %d", query, got.Status, got.Body, wants)
		}
	}
}

func TestEnrollmentKeysAreOnlyHashedIfConfiguredSo(t *testing.T) {
	t.Parallel()
	s := apptest.Start(t, func(o *app.Options) { o.Config.Enrollment.ReadableKeys = false })
	created := apptest.Decode[adminapi.EnrollmentKeyCreated](t, s.Admin("POST", keysPath, `{"policy_id":"default"}`)).Item
	if created.ApiKey == nil {
		t.Fatalf("a new key is %+v", created)
	}
	if got := apptest.Decode[adminapi.EnrollmentKeyItem](t, s.Admin("GET", keysPath+"/"+created.Id, nil)).Item; got.ApiKey != nil {
		t.Errorf("it is shown again: %+v", got)
	}
	if k, err := s.Store.EnrollmentKeys().Get(t.Context(), created.Id); err != nil || len(k.Sealed) != 0 {
		t.Errorf("the store has %+v, %v", k, err)
	}
}

func TestExpirationsOfEnrollmentKeysAreThoseOfKibana(t *testing.T) {
	t.Parallel()
	s := apptest.Start(t)
	for text, want := range map[string]time.Duration{
		"30d": 30 * 24 * time.Hour, "24h": 24 * time.Hour, "90m": 90 * time.Minute, "60s": time.Minute, "106751d": 106751 * 24 * time.Hour,
	} {
		k := apptest.Decode[adminapi.EnrollmentKeyCreated](t, s.Admin("POST", keysPath, map[string]string{"policy_id": "default", "expiration": text})).Item
		if k.ExpireAt == nil || k.ExpireAt.Sub(k.CreatedAt) != want {
			t.Errorf("%s: the key is %+v", text, k)
		}
	}
	for _, text := range []string{"", "0d", "-1h", "1h30m", "1.5h", "10ms", "24H", "1w", "2026-12-31", "106752d", "9223372037s", "99999999999999999d"} {
		refused(t, text, s.Admin("POST", keysPath, map[string]string{"policy_id": "default", "expiration": text}), 400,
			"[request body.expiration]: Expiration must be a valid duration (for example, 30d, 24h, 90m, 60s)")
	}
	refused(t, "a long text", s.Admin("POST", keysPath, map[string]string{"policy_id": "default", "expiration": strings.Repeat("1", 20) + "d"}), 400,
		"[request body.expiration]: value has length [21] but it must have a maximum length of [20].")
}
