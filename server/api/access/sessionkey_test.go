package access_test

import (
	"encoding/base64"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/muster-fleet/muster/server/api/access"
	"github.com/muster-fleet/muster/server/fleet"
	"github.com/muster-fleet/muster/server/store/sqlite/sqlitetest"
)

// A reader of the store, or of its backup, must not be able to sign a session.
func TestSessionKeyIsAFileAndNotInTheStore(t *testing.T) {
	now := time.Now()
	s, dir := sqlitetest.Open(t, dbPath(t)), t.TempDir()
	a := serviceIn(t, dir, s, &now)
	file := filepath.Join(dir, "session-key")
	info, err := os.Stat(file)
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Fatalf("the file is %v, %v", info, err)
	}
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	key, err := base64.StdEncoding.DecodeString(strings.TrimSpace(string(text)))
	if err != nil || len(key) != 32 {
		t.Fatalf("the file has %d bytes, %v", len(key), err)
	}
	err = s.Settings().Each(t.Context(), func(name string, v []byte) {
		if strings.Contains(string(v), string(key)) || strings.Contains(string(v), strings.TrimSpace(string(text))) {
			t.Errorf("the setting %s has the key", name)
		}
	})
	if err != nil {
		t.Fatal(err)
	}

	k, _, err := a.CreateKey(t.Context(), "ann", 0, "test")
	if err != nil {
		t.Fatal(err)
	}
	value, _ := login(t, a, k)
	if _, _, err := serviceIn(t, dir, s, &now).Session(t.Context(), value); err != nil {
		t.Errorf("after a restart: %v", err)
	}
}

func TestServerWithoutTheSessionKeyLogsNobodyIn(t *testing.T) {
	now := time.Now()
	s, dir := sqlitetest.Open(t, dbPath(t)), t.TempDir()
	first := serviceIn(t, dir, s, &now)
	k, cred, err := first.CreateKey(t.Context(), "ann", 0, "test")
	if err != nil {
		t.Fatal(err)
	}
	value, _ := login(t, first, k)

	refuses := func(name string, a *access.Service) {
		t.Helper()
		_, _, logIn := a.NewSession(k)
		_, _, use := a.Session(t.Context(), value)
		for _, err := range []error{logIn, use} {
			if err == nil || fleet.KindOf(err) != fleet.Unavailable || !strings.Contains(err.Error(), "copy session-key") || err.Error() != a.Problem() {
				t.Errorf("%s: the error is %v, the problem %q", name, err, a.Problem())
			}
		}
		if _, err := a.Authenticate(t.Context(), cred, remote); err != nil {
			t.Errorf("%s refuses the admin key: %v", name, err)
		}
	}
	other := t.TempDir()
	refuses("a server without the key", serviceIn(t, other, s, &now))
	if entries, err := os.ReadDir(other); err != nil || len(entries) != 0 {
		t.Errorf("it made %v, %v", entries, err)
	}
	none := filepath.Join(t.TempDir(), "trust")
	refuses("a server without the folder", serviceIn(t, none, s, &now))
	if _, err := os.Stat(none); err == nil {
		t.Error("it made the folder")
	}
	file := filepath.Join(other, "session-key")
	for name, text := range map[string]string{"another key": strings.Repeat("A", 43) + "=", "a damaged key": "x", "half a key": "AAAA"} {
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		refuses("a server with "+name, serviceIn(t, other, s, &now))
	}

	// What the message says: copy the file.
	text, err := os.ReadFile(filepath.Join(dir, "session-key"))
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, text, 0o600); err != nil {
		t.Fatal(err)
	}
	copied := serviceIn(t, other, s, &now)
	if _, _, err := copied.Session(t.Context(), value); err != nil || copied.Problem() != "" {
		t.Errorf("with a copy: %v, problem %q", err, copied.Problem())
	}
	// Or, if it is lost, make it, empty. That ends all sessions.
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	renewed := serviceIn(t, other, s, &now)
	_, _, err = renewed.Session(t.Context(), value)
	wantRefused(t, err, "log in again")
	if _, _, err := renewed.NewSession(k); err != nil {
		t.Errorf("with a new key: %v", err)
	}
	refuses("the server with the old key", serviceIn(t, dir, s, &now))
}
