package admin_test

import (
	"net/http"
	"testing"

	"github.com/muster-fleet/muster/server/api/adminapi"
	"github.com/muster-fleet/muster/server/app/apptest"
)

func TestAdminKeysHaveALife(t *testing.T) {
	t.Parallel()
	s := apptest.Start(t)
	as := func(key, method, path string, body any) apptest.Answer {
		t.Helper()
		got, err := s.Do(t.Context(), apptest.Request{Method: method, URL: s.AdminURL + path, Header: apptest.Headers("Authorization", "ApiKey "+key), Body: body})
		if err != nil {
			t.Fatal(err)
		}
		return got
	}
	list := func() map[string]adminapi.AdminKey {
		t.Helper()
		got := apptest.Decode[adminapi.AdminKeyList](t, s.Admin("GET", "/api/v1/admin_keys", nil))
		if got.Total != len(got.Items) {
			t.Errorf("%d of %d keys", len(got.Items), got.Total)
		}
		keys := map[string]adminapi.AdminKey{}
		for _, k := range got.Items {
			if k.ApiKey != nil {
				t.Error("the list has a secret")
			}
			keys[k.Id] = k
		}
		return keys
	}

	refused(t, "revoking the only key", s.Admin("DELETE", "/api/v1/admin_keys/"+apptest.Decode[adminapi.Session](t, s.Admin("GET", "/api/v1/session", nil)).KeyId, nil), 409, "lock everybody out")
	refused(t, "a key without a name", s.Admin("POST", "/api/v1/admin_keys", map[string]string{}), 400, "body.name")
	refused(t, "a bad expiry", s.Admin("POST", "/api/v1/admin_keys", map[string]string{"name": "ci", "expiration": "-1h"}), 400, "body.expiration")

	ci := apptest.Decode[adminapi.AdminKeyItem](t, s.Admin("POST", "/api/v1/admin_keys", map[string]string{"name": "ci", "expiration": "24h"})).Item
	refused(t, "a second key of the name", s.Admin("POST", "/api/v1/admin_keys", map[string]string{"name": "ci"}), 409, "rotate it")
	if k := list()[ci.Id]; k.Name != "ci" || *k.CreatedBy != "first key" || k.LastUsedAt != nil || k.ExpireAt.Sub(k.CreatedAt).Hours() != 24 {
		t.Errorf("the new key is %+v", k)
	}
	session := apptest.Decode[adminapi.Session](t, as(*ci.ApiKey, "GET", "/api/v1/session", nil))
	if session.KeyId != ci.Id || session.Name != "ci" {
		t.Errorf("its session is %+v", session)
	}
	if k := list()[ci.Id]; k.LastUsedAt == nil {
		t.Error("its use is not recorded")
	}

	refused(t, "a long grace", s.Admin("POST", "/api/v1/admin_keys/"+ci.Id+"/rotate", map[string]string{"grace": "169h"}), 400, "body.grace")
	refused(t, "another's key", s.Admin("POST", "/api/v1/admin_keys/"+ci.Id+"/rotate", map[string]string{}), 403, "only its owner rotates it")
	next := apptest.Decode[adminapi.AdminKeyItem](t, as(*ci.ApiKey, "POST", "/api/v1/admin_keys/"+ci.Id+"/rotate", map[string]string{})).Item
	refused(t, "the old secret", as(*ci.ApiKey, "GET", "/api/v1/session", nil), 401, "revoked")
	if got := as(*next.ApiKey, "GET", "/api/v1/session", nil); got.Status != http.StatusOK {
		t.Errorf("the new secret: %d %s", got.Status, got.Body)
	}
	if got := as(*next.ApiKey, "DELETE", "/api/v1/admin_keys/"+next.Id, nil); got.Status != http.StatusOK {
		t.Errorf("revoking itself: %d %s", got.Status, got.Body)
	}
	refused(t, "then", as(*next.ApiKey, "GET", "/api/v1/session", nil), 401, "revoked")
	if keys := list(); len(keys) != 3 || keys[ci.Id].Active || keys[next.Id].Active {
		t.Errorf("the keys are %+v", keys)
	}
	refused(t, "revoking an unknown one", s.Admin("DELETE", "/api/v1/admin_keys/x", nil), 404, "")
}
