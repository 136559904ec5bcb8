package attack

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"net/http"
	"strconv"
	"testing"
	"time"

	"github.com/muster-fleet/muster/server/adminapi"
	"github.com/muster-fleet/muster/server/app/apptest"
)

// The attacker reads the store, or a backup of it, and knows how sessions are signed.
func TestAReaderOfTheStoreCannotForgeASession(t *testing.T) {
	s := apptest.Start(t)
	in, err := s.Do(t.Context(), apptest.Request{Method: http.MethodPost, URL: s.AdminURL + "/api/v1/session", Body: adminapi.LogInRequest{ApiKey: s.AdminKey}})
	if err != nil || in.Status != http.StatusOK {
		t.Fatalf("logging in: %d %s, %v", in.Status, in.Body, err)
	}
	admins, _, err := s.Store.AdminKeys().List(t.Context(), 0, 0)
	if err != nil || len(admins) != 1 {
		t.Fatalf("the store has %d admin keys, %v", len(admins), err)
	}
	secrets := map[string][]byte{"nothing": {}, "the hash of the admin key": []byte(admins[0].Hash)}
	err = s.Store.Settings().Each(t.Context(), func(name string, v []byte) { secrets["the setting "+name] = append([]byte{}, v...) })
	if err != nil {
		t.Fatal(err)
	}
	end := strconv.FormatInt(time.Now().Add(time.Hour).Unix(), 10)
	for name, secret := range secrets {
		for _, body := range []string{admins[0].ID + "." + end, fmt.Sprint(admins[0].ID, ".", admins[0].Generation, ".", end)} {
			mac := hmac.New(sha256.New, secret)
			mac.Write([]byte(body))
			cookie := "muster_session=" + body + "." + base64.RawURLEncoding.EncodeToString(mac.Sum(nil))
			got, err := s.Do(t.Context(), apptest.Request{Method: http.MethodGet, URL: s.AdminURL + "/api/v1/session", Header: apptest.Headers("Cookie", cookie)})
			if err != nil || got.Status != http.StatusUnauthorized {
				t.Errorf("a session signed with %s: %d %s, %v", name, got.Status, got.Body, err)
			}
		}
	}
}
