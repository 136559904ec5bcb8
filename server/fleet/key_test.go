package fleet

import (
	"encoding/base64"
	"strings"
	"testing"
	"time"
)

func TestCredentialRoundTrip(t *testing.T) {
	c := NewCredential()
	for _, text := range []string{c.Encode(), "  " + c.Encode() + "\n"} { // as copied from a terminal
		got, err := ParseCredential(text)
		if err != nil || got != c {
			t.Fatalf("%q is read as %+v: %v", text, got, err)
		}
	}
	if !c.Matches(c.Hash()) {
		t.Error("a credential does not match its own hash")
	}
	other := NewCredential()
	if c.Matches(other.Hash()) || c.Matches("") || c == other || c.ID == other.ID {
		t.Error("two credentials are alike")
	}
}

// Agents keep their keys for years, and only hashes are stored: a change of either
// encoding would lock every host out.
func TestCredentialEncodingDoesNotChange(t *testing.T) {
	c := Credential{ID: "k3y", Secret: "s3cret"}
	if got, want := c.Encode(), "azN5OnMzY3JldA=="; got != want {
		t.Errorf("encoded as %s, want %s", got, want)
	}
	if got, want := c.Hash(), "1ec1c26b50d5d3c58d9583181af8076655fe00756bf7285940ba3670f99fcba0"; got != want {
		t.Errorf("hashed as %s, want %s", got, want)
	}
	if n := NewCredential(); len(n.ID) != 20 || len(n.Secret) != 52 || strings.ContainsAny(n.ID+n.Secret, ":=/+") {
		t.Errorf("a new credential is %+v", n)
	}
}

func TestParseCredentialRejectsInvalid(t *testing.T) {
	b64 := func(s string) string { return base64.StdEncoding.EncodeToString([]byte(s)) }
	for _, bad := range []string{"", "!", "id:hunter2", b64("hunter2"), b64(":hunter2"), b64("id:"), b64("id:hunter2:b"), b64("id:hunter2")[1:]} {
		c, err := ParseCredential(bad)
		if err == nil || KindOf(err) != Unauthorized || !strings.Contains(err.Error(), "copy it whole") {
			t.Errorf("%q is read as %+v: %v", bad, c, err)
		}
		if err != nil && strings.Contains(err.Error(), "hunter2") {
			t.Errorf("the refusal of %q shows the secret: %v", bad, err)
		}
	}
}

func TestEnrollmentKeyIsUsableUntilRevokedOrExpired(t *testing.T) {
	key := EnrollmentKey{Active: true}
	if err := key.Usable(now); err != nil {
		t.Errorf("a key without an end: %v", err)
	}
	key.ExpireAt = ago(-time.Second)
	if err := key.Usable(now); err != nil {
		t.Errorf("a second before its end: %v", err)
	}
	key.ExpireAt = ago(0)
	if err := key.Usable(now); KindOf(err) != Unauthorized || !strings.Contains(err.Error(), "2026-03-03T10:00:00Z") {
		t.Errorf("at its end: %v", err)
	}
	key = EnrollmentKey{}
	if err := key.Usable(now); KindOf(err) != Unauthorized || !strings.Contains(err.Error(), "revoked") {
		t.Errorf("a revoked key: %v", err)
	}
}
