package attack

import (
	"bytes"
	"crypto/aes"
	"crypto/cipher"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"github.com/muster-fleet/muster/server/api/adminapi"
	"github.com/muster-fleet/muster/server/app/apptest"
	"github.com/muster-fleet/muster/server/fleet"
	"github.com/muster-fleet/muster/server/store/keyfile"
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
			cookie := "__Host-muster_session=" + body + "." + base64.RawURLEncoding.EncodeToString(mac.Sum(nil))
			got, err := s.Do(t.Context(), apptest.Request{Method: http.MethodGet, URL: s.AdminURL + "/api/v1/session", Header: apptest.Headers("Cookie", cookie)})
			if err != nil || got.Status != http.StatusUnauthorized {
				t.Errorf("a session signed with %s: %d %s, %v", name, got.Status, got.Body, err)
			}
		}
	}
}

// The attacker reads the store, or a backup of it, and tries to enrol a host.
func TestAReaderOfTheStoreCannotReadAnEnrollmentToken(t *testing.T) {
	s := apptest.Start(t)
	cred, err := fleet.ParseCredential(s.Token)
	if err != nil {
		t.Fatal(err)
	}
	k, err := s.Store.EnrollmentKeys().Get(t.Context(), cred.ID)
	if err != nil || len(k.Sealed) == 0 {
		t.Fatalf("the store has %+v, %v", k, err)
	}
	if bytes.Contains(k.Sealed, []byte(cred.Secret)) {
		t.Error("the secret is not encrypted")
	}
	// Whatever the store has is no key to it.
	err = s.Store.Settings().Each(t.Context(), func(name string, v []byte) {
		for _, key := range [][]byte{v, []byte(k.Hash)} {
			sum := sha256.Sum256(key)
			for _, raw := range [][]byte{key, sum[:]} {
				block, err := aes.NewCipher(raw)
				if err != nil {
					continue // of another length
				}
				aead, err := cipher.NewGCMWithRandomNonce(block)
				if err != nil {
					t.Fatal(err)
				}
				if _, err := aead.Open(nil, nil, k.Sealed, []byte("enrollment key "+k.ID)); err == nil {
					t.Errorf("the setting %s decrypts it", name)
				}
			}
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	// The key is in a file that its owner alone can read.
	info, err := os.Stat(filepath.Join(s.Data, "trust", keyfile.EncryptionKey))
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the file of the key is %v, %v", info, err)
	}
}

// The attacker reads the store, or a backup of it, and looks for what an operator has sent to
// agents: the token of another server, and the password of an account. Nor do the answers for
// operators show them.
func TestAReaderOfTheStoreCannotReadTheSecretsOfActions(t *testing.T) {
	s := apptest.Start(t)
	a := s.Enroll("web-01", "9.3.0")
	agent := "/api/fleet/agents/" + a.ID
	secrets := []string{"token-of-the-other-server", "key-passphrase", "header-value", "token-of-the-replacement", "password-of-the-account"}
	for call, body := range map[string]string{
		"/migrate": fmt.Sprintf(`{"uri":"https://elsewhere:8220","enrollment_token":%q,"settings":{"elastic_agent_cert_key_passphrase":%q,"headers":{"X-Key":%q},"replace_token":%q}}`,
			secrets[0], secrets[1], secrets[2], secrets[3]),
		"/privilege_level_change": fmt.Sprintf(`{"user_info":{"username":"elastic","password":%q}}`, secrets[4]),
	} {
		if got := s.Admin(http.MethodPost, agent+call, body); got.Status != http.StatusOK {
			t.Fatalf("%s: %d %s", call, got.Status, got.Body)
		}
	}
	texts := map[string][]byte{}
	for _, path := range []string{agent, "/api/fleet/agents/action_status", "/api/v1/audit"} {
		texts[path] = s.Admin(http.MethodGet, path, nil).Body
	}
	files, err := filepath.Glob(filepath.Join(s.Data, "muster.db*"))
	if err != nil || len(files) == 0 {
		t.Fatalf("the files of the store are %v, %v", files, err)
	}
	for _, path := range files {
		if texts[path], err = os.ReadFile(path); err != nil {
			t.Fatal(err)
		}
	}
	for name, text := range texts {
		for _, secret := range secrets {
			if bytes.Contains(text, []byte(secret)) {
				t.Errorf("%s has %s", name, secret)
			}
		}
	}
	// The agent gets them all.
	var sent []byte
	for _, act := range a.MustCheckin(nil).Actions {
		sent = append(sent, act.Data...)
	}
	for _, secret := range secrets {
		if !bytes.Contains(sent, []byte(secret)) {
			t.Errorf("the agent was not sent %s: %s", secret, sent)
		}
	}
}
