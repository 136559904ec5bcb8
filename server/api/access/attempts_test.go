package access_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/muster-fleet/muster/server/api/access"
	"github.com/muster-fleet/muster/server/fleet"
	"github.com/muster-fleet/muster/server/store/sqlite/sqlitetest"
)

// attempt returns "wrong", "in", or how long the caller is told to wait.
func attempt(t *testing.T, a *access.Service, cred fleet.Credential, remote string) string {
	t.Helper()
	_, err := a.Authenticate(t.Context(), cred, remote)
	var e *fleet.Error
	switch {
	case err == nil:
		return "in"
	case !errors.As(err, &e):
		t.Fatal(err)
	case e.Kind == fleet.Unauthorized:
		return "wrong"
	case e.Kind != fleet.TooMany:
		t.Fatal(err)
	}
	return e.RetryAfter.String()
}

func TestWrongKeysAreDelayedLongerAndLonger(t *testing.T) {
	now := time.Date(2026, 3, 3, 10, 0, 0, 0, time.UTC)
	a := service(t, sqlitetest.Open(t, dbPath(t)), &now)
	_, good := create(t, a, "ann", 0)
	try := func(want string) {
		t.Helper()
		if got := attempt(t, a, fleet.NewCredential(), remote); got != want {
			t.Errorf("at %s a wrong key is answered %q, want %q", now.Format("15:04:05.0"), got, want)
		}
	}
	for range 10 {
		try("wrong")
	}
	for _, delay := range []string{"1s", "2s", "4s", "8s", "16s", "30s", "30s"} {
		try(delay)
		d, err := time.ParseDuration(delay)
		if err != nil {
			t.Fatal(err)
		}
		now = now.Add(d - 100*time.Millisecond)
		try("1s") // trying meanwhile changes nothing
		now = now.Add(100 * time.Millisecond)
		try("wrong")
	}
	if got := attempt(t, a, good, "192.0.2.2:40000"); got != "in" {
		t.Errorf("a good key from another address: %s", got)
	}
	// A good key from the same address waits at most 30 s, and ends the delay.
	if got := attempt(t, a, fleet.NewCredential(), remote); got != "30s" {
		t.Errorf("before: %s", got)
	}
	now = now.Add(30 * time.Second)
	if got := attempt(t, a, good, remote); got != "in" {
		t.Errorf("a good key from the same address after 30 s: %s", got)
	}
	now = now.Add(15*time.Minute + time.Second)
	for range 10 {
		try("wrong")
	}
	try("1s")
}

func TestKeyThatIsInUseIsNotLockedOutByOthersBehindTheSameAddress(t *testing.T) {
	now := time.Date(2026, 3, 3, 10, 0, 0, 0, time.UTC)
	a := service(t, sqlitetest.Open(t, dbPath(t)), &now)
	_, good := create(t, a, "ann", 0)
	if got := attempt(t, a, good, remote); got != "in" {
		t.Fatal(got)
	}
	for range 20 {
		attempt(t, a, fleet.NewCredential(), remote)
	}
	if got := attempt(t, a, fleet.NewCredential(), remote); got != "1s" {
		t.Errorf("a stranger: %s", got)
	}
	if got := attempt(t, a, good, remote); got != "in" {
		t.Errorf("the key in use: %s", got)
	}
	// Nor does who knows its id lock it out, though their own attempts are delayed.
	guess := fleet.Credential{ID: good.ID, Secret: "guess"}
	for range 10 {
		attempt(t, a, guess, remote)
	}
	if got := attempt(t, a, guess, remote); got != "1s" {
		t.Errorf("a guess of its secret: %s", got)
	}
	for _, where := range []string{remote, "192.0.2.2:1"} {
		if got := attempt(t, a, good, where); got != "in" {
			t.Errorf("the key whose secret is guessed, from %s: %s", where, got)
		}
	}
}

func TestRevokedAndExpiredKeysAreNoGuesses(t *testing.T) {
	now := time.Date(2026, 3, 3, 10, 0, 0, 0, time.UTC)
	a := service(t, sqlitetest.Open(t, dbPath(t)), &now)
	_, cred := create(t, a, "ci", time.Hour)
	now = now.Add(time.Hour)
	for range 50 {
		if got := attempt(t, a, cred, remote); got != "wrong" {
			t.Fatalf("an expired key is answered %s", got)
		}
	}
}

// One IPv6 host has a network of addresses.
func TestAddressesOfOneIPv6NetworkAreDelayedTogether(t *testing.T) {
	now := time.Date(2026, 3, 3, 10, 0, 0, 0, time.UTC)
	a := service(t, sqlitetest.Open(t, dbPath(t)), &now)
	for i := range 10 {
		attempt(t, a, fleet.NewCredential(), fmt.Sprintf("[2001:db8::%x]:40000", i))
	}
	for where, want := range map[string]string{"[2001:db8::ffff]:1": "1s", "[2001:db8:0:1::1]:1": "wrong", "[::ffff:192.0.2.1]:1": "wrong"} {
		if got := attempt(t, a, fleet.NewCredential(), where); got != want {
			t.Errorf("from %s: %s, want %s", where, got, want)
		}
	}
}
