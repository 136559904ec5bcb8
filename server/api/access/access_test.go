package access_test

import (
	"context"
	"fmt"
	"log/slog"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/muster-fleet/muster/packaging/host/disk"
	"github.com/muster-fleet/muster/server/api/access"
	"github.com/muster-fleet/muster/server/fleet"
	"github.com/muster-fleet/muster/server/store"
	"github.com/muster-fleet/muster/server/store/event"
	"github.com/muster-fleet/muster/server/store/sqlite"
	"github.com/muster-fleet/muster/server/store/sqlite/sqlitetest"
)

// service returns a server's service on s, with the session key in a new folder.
func service(t *testing.T, s store.Store, now *time.Time) *access.Service {
	t.Helper()
	return serviceIn(t, t.TempDir(), s, now)
}

// serviceIn returns a service with the session key in dir.
func serviceIn(t *testing.T, dir string, s store.Store, now *time.Time) *access.Service {
	t.Helper()
	key, err := access.OpenSessionKey(t.Context(), disk.OS{}, dir, s.Settings(), slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	clock := func() time.Time { return *now }
	log := slog.New(slog.DiscardHandler)
	return access.New(s, key, &event.Stream{Store: s.Events(), Log: log, Now: clock}, clock)
}

func login(t *testing.T, a *access.Service, k fleet.AdminKey) (value string, expires time.Time) {
	t.Helper()
	value, expires, err := a.NewSession(k)
	if err != nil {
		t.Fatal(err)
	}
	return value, expires
}

const remote = "192.0.2.1:40000"

func dbPath(t *testing.T) string { return filepath.Join(t.TempDir(), "muster.db") }

func wantRefused(t *testing.T, err error, text string) {
	t.Helper()
	if err == nil || fleet.KindOf(err) != fleet.Unauthorized || !strings.Contains(err.Error(), text) {
		t.Errorf("error is %v, want a refusal that says %q", err, text)
	}
}

func revoke(t *testing.T, s *sqlite.Store, id string) {
	t.Helper()
	k, err := s.AdminKeys().Get(t.Context(), id)
	if err != nil {
		t.Fatal(err)
	}
	k.Active = false
	if _, err := s.AdminKeys().Update(t.Context(), k); err != nil {
		t.Fatal(err)
	}
}

func TestFirstKeyIsCreatedOnce(t *testing.T) {
	now := time.Date(2026, 3, 3, 10, 0, 0, 0, time.UTC)
	s := sqlitetest.Open(t, dbPath(t))
	a := service(t, s, &now)
	cred, made, err := a.FirstKey(t.Context())
	if err != nil || !made {
		t.Fatalf("made %t, %v", made, err)
	}
	if k, err := a.Authenticate(t.Context(), cred, remote); err != nil || k.Name != "first key" || !k.CreatedAt.Equal(now) {
		t.Errorf("it authenticates %+v, %v", k, err)
	}
	if cred, made, err := a.FirstKey(t.Context()); err != nil || made || cred != (fleet.Credential{}) {
		t.Errorf("at the second start: made %t, %v", made, err)
	}
}

func TestFirstKeyHasARandomID(t *testing.T) {
	now := time.Now()
	seen := map[string]bool{}
	for range 3 {
		cred, made, err := service(t, sqlitetest.Open(t, dbPath(t)), &now).FirstKey(t.Context())
		if err != nil || !made || len(cred.ID) != len(fleet.NewCredential().ID) || seen[cred.ID] {
			t.Fatalf("the first key of a new installation has the id %q (made %t, %v), after those of others: %v", cred.ID, made, err, seen)
		}
		seen[cred.ID] = true
	}
}

// together is a store that lists admin keys only when all servers are listing them.
type together struct {
	store.Store
	looked *sync.WaitGroup
}

func (s together) AdminKeys() store.Collection[fleet.AdminKey] {
	return keysTogether{s.Store.AdminKeys(), s.looked}
}

type keysTogether struct {
	store.Collection[fleet.AdminKey]
	looked *sync.WaitGroup
}

func (k keysTogether) List(ctx context.Context, offset, limit int) ([]fleet.AdminKey, int, error) {
	keys, n, err := k.Collection.List(ctx, offset, limit)
	k.looked.Done()
	k.looked.Wait()
	return keys, n, err
}

func TestConcurrentFirstStartsCreateOneKey(t *testing.T) {
	now := time.Now()
	db := sqlitetest.Open(t, dbPath(t))
	const servers = 3
	var all sync.WaitGroup
	creds := make([]fleet.Credential, servers)
	services := make([]*access.Service, servers)
	var looked sync.WaitGroup
	looked.Add(servers)
	for i := range servers {
		services[i] = service(t, together{db, &looked}, &now)
	}
	for i := range servers {
		all.Go(func() {
			cred, made, err := services[i].FirstKey(t.Context())
			if err != nil || made != (cred != fleet.Credential{}) {
				t.Errorf("server %d: made %t %+v, %v", i, made, cred.ID, err)
			}
			creds[i] = cred
		})
	}
	all.Wait()
	var first []fleet.Credential
	for _, c := range creds {
		if c != (fleet.Credential{}) {
			first = append(first, c)
		}
	}
	if len(first) != 1 {
		t.Fatalf("%d servers created a key", len(first))
	}
	for i, s := range services {
		if _, err := s.Authenticate(t.Context(), first[0], remote); err != nil {
			t.Errorf("server %d refuses it: %v", i, err)
		}
	}
}

func TestAuthenticateRefusesInvalidKeys(t *testing.T) {
	now := time.Now()
	s := sqlitetest.Open(t, dbPath(t))
	a := service(t, s, &now)
	k, cred, err := a.CreateKey(t.Context(), "ci", 0, "test")
	if err != nil {
		t.Fatal(err)
	}
	if strings.Contains(k.Hash, cred.Secret) {
		t.Error("the secret is stored")
	}
	for _, bad := range []fleet.Credential{{}, {ID: cred.ID}, {ID: "unknown", Secret: cred.Secret}, {ID: cred.ID, Secret: cred.Secret + "x"}} {
		_, err := a.Authenticate(t.Context(), bad, remote)
		wantRefused(t, err, "muster admin-key")
	}
	revoke(t, s, k.ID)
	_, err = a.Authenticate(t.Context(), cred, remote)
	wantRefused(t, err, "revoked")
}

func TestSessionExpiresAfterLifetime(t *testing.T) {
	now := time.Date(2026, 3, 3, 10, 0, 0, 500, time.UTC)
	s := sqlitetest.Open(t, dbPath(t))
	dir := t.TempDir()
	a := serviceIn(t, dir, s, &now)
	k, cred, err := a.CreateKey(t.Context(), "ann", 0, "test")
	if err != nil {
		t.Fatal(err)
	}
	value, expires := login(t, a, k)
	if strings.Contains(value, cred.Secret) || strings.ContainsAny(value, " ;,\"\\") {
		t.Errorf("cookie is %q", value)
	}
	// Every server accepts it, also after a restart.
	second := serviceIn(t, dir, s, &now)
	for _, a := range []*access.Service{a, second} {
		got, until, err := a.Session(t.Context(), value)
		if err != nil || got.ID != k.ID || !until.Equal(expires) {
			t.Errorf("session of %+v until %s, %v", got, until, err)
		}
	}
	now = expires.Add(-time.Second)
	if _, _, err := a.Session(t.Context(), value); err != nil {
		t.Errorf("a second before its end: %v", err)
	}
	now = expires
	_, _, err = a.Session(t.Context(), value)
	wantRefused(t, err, "has ended")
}

func TestTamperedSessionIsRefused(t *testing.T) {
	now := time.Date(2026, 3, 3, 10, 0, 0, 0, time.UTC)
	s := sqlitetest.Open(t, dbPath(t))
	a := service(t, s, &now)
	k, _, err := a.CreateKey(t.Context(), "ann", 0, "test")
	if err != nil {
		t.Fatal(err)
	}
	value, expires := login(t, a, k)
	raised := strings.Replace(value, ".0.", ".1.", 1)
	later := strings.Replace(value, "."+fmt.Sprint(expires.Unix())+".", "."+fmt.Sprint(expires.Unix()+3600)+".", 1)
	if later == value {
		t.Fatal("the cookie's expiry is not where the test expects it")
	}
	stranger, _ := login(t, service(t, sqlitetest.Open(t, dbPath(t)), &now), k)
	for _, bad := range []string{"", ".", "..", k.ID, value[:len(value)-1], value + "x", "x" + value, later, raised, stranger, strings.ToUpper(value)} {
		_, _, err := a.Session(t.Context(), bad)
		wantRefused(t, err, "log in again")
	}
}

func TestSessionEndsWhenKeyIsRevoked(t *testing.T) {
	now := time.Now()
	s := sqlitetest.Open(t, dbPath(t))
	a := service(t, s, &now)
	k, _, err := a.CreateKey(t.Context(), "ann", 0, "test")
	if err != nil {
		t.Fatal(err)
	}
	value, _ := login(t, a, k)
	revoke(t, s, k.ID)
	_, _, err = a.Session(t.Context(), value)
	wantRefused(t, err, "revoked")
	if err := s.AdminKeys().Delete(t.Context(), k.ID); err != nil {
		t.Fatal(err)
	}
	_, _, err = a.Session(t.Context(), value)
	wantRefused(t, err, "not valid")
}

func TestLogoutEndsAllSessionsOfTheKeyOnAllServers(t *testing.T) {
	now := time.Date(2026, 3, 3, 10, 0, 0, 0, time.UTC)
	s, dir := sqlitetest.Open(t, dbPath(t)), t.TempDir()
	a, other := serviceIn(t, dir, s, &now), serviceIn(t, dir, s, &now)
	k, cred, err := a.CreateKey(t.Context(), "ann", 0, "test")
	if err != nil {
		t.Fatal(err)
	}
	bob, _, err := a.CreateKey(t.Context(), "bob", 0, "test")
	if err != nil {
		t.Fatal(err)
	}
	here, _ := login(t, a, k)
	there, _ := login(t, other, k)
	bobs, _ := login(t, a, bob)
	if err := a.EndSessions(t.Context(), k.ID); err != nil {
		t.Fatal(err)
	}
	for _, value := range []string{here, there} {
		_, _, err := other.Session(t.Context(), value)
		wantRefused(t, err, "ended by a logout")
	}
	if _, _, err := other.Session(t.Context(), bobs); err != nil {
		t.Errorf("the session of another key: %v", err)
	}
	// The key still logs in.
	k, err = a.Authenticate(t.Context(), cred, remote)
	if err != nil {
		t.Fatal(err)
	}
	again, _ := login(t, other, k)
	if _, _, err := a.Session(t.Context(), again); err != nil {
		t.Errorf("the next session: %v", err)
	}
}
