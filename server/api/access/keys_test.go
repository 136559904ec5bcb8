package access_test

import (
	"context"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/muster-fleet/muster/server/api/access"
	"github.com/muster-fleet/muster/server/fleet"
	"github.com/muster-fleet/muster/server/store"
	"github.com/muster-fleet/muster/server/store/sqlite/sqlitetest"
)

func create(t *testing.T, a *access.Service, name string, lifetime time.Duration) (fleet.AdminKey, fleet.Credential) {
	t.Helper()
	k, cred, err := a.CreateKey(t.Context(), name, lifetime, "test")
	if err != nil {
		t.Fatal(err)
	}
	return k, cred
}

func wantKind(t *testing.T, err error, kind fleet.Kind, text string) {
	t.Helper()
	if err == nil || fleet.KindOf(err) != kind || !strings.Contains(err.Error(), text) {
		t.Errorf("error is %v, want one of kind %s that says %q", err, kind, text)
	}
}

func TestAdminKeyExpires(t *testing.T) {
	now := time.Date(2026, 3, 3, 10, 0, 0, 0, time.UTC)
	a := service(t, sqlitetest.Open(t, dbPath(t)), &now)
	k, cred := create(t, a, "ci", time.Hour)
	session, expires := login(t, a, k)
	if !expires.Equal(now.Add(time.Hour)) {
		t.Errorf("the session of a key that expires in an hour ends at %s", expires)
	}
	now = now.Add(time.Hour - time.Second)
	if _, err := a.Authenticate(t.Context(), cred, remote); err != nil {
		t.Errorf("a second before its expiry: %v", err)
	}
	now = now.Add(time.Second)
	_, err := a.Authenticate(t.Context(), cred, remote)
	wantRefused(t, err, "expired at 2026-03-03T11:00:00Z")
	_, _, err = a.Session(t.Context(), session)
	wantRefused(t, err, "log in again")
}

func TestAdminKeyNames(t *testing.T) {
	now := time.Date(2026, 3, 3, 10, 0, 0, 0, time.UTC)
	a := service(t, sqlitetest.Open(t, dbPath(t)), &now)
	for name, want := range map[string]string{"": "is missing", "  ": "is missing", strings.Repeat("ä", 101): "100 characters", "ann\x1b[2J": "printable", "ann\u202ebob": "printable"} {
		_, _, err := a.CreateKey(t.Context(), name, 0, "test")
		wantKind(t, err, fleet.Invalid, want)
	}
	k, _ := create(t, a, " ci ", time.Hour)
	if k.Name != "ci" || k.CreatedBy != "test" {
		t.Errorf("the key is %+v", k)
	}
	_, _, err := a.CreateKey(t.Context(), "ci", 0, "test")
	wantKind(t, err, fleet.Conflict, "rotate it")
	now = now.Add(time.Hour)
	create(t, a, "ci", 0) // the other one has expired
}

// The name of a key tells people who did something.
func TestNamesOfAdminKeysCannotBeMistaken(t *testing.T) {
	now := time.Date(2026, 3, 3, 10, 0, 0, 0, time.UTC)
	a := service(t, sqlitetest.Open(t, dbPath(t)), &now)
	for _, name := range []string{"Ann Lee", "ops-team", "Jos\u00e9", "straße", "田中", "mara"} {
		create(t, a, name, 0)
	}
	for _, name := range []string{
		"ann lee", "ANN LEE", "Ann  Lee", " Ann Lee", "Ann\u00a0Lee", "Аnn Lee", "Ann Lеe", "ΑΝΝ LEE", "Ａnn Lee", "𝐀nn Lee", "Ann Iee",
		"OPS-TEAM", "ops‐team", "ops–team", "οps-team", "орs-team", "0ps-team", "Jose\u0301", "JOSÉ", "STRASSE", "rnara", "MARA", "mаrа",
	} {
		if _, _, err := a.CreateKey(t.Context(), name, 0, "test"); fleet.KindOf(err) != fleet.Conflict && fleet.KindOf(err) != fleet.Invalid || err == nil {
			t.Errorf("%+q stands beside the other keys: %v", name, err)
		}
	}
	for _, name := range []string{"Ann Li", "ops-team-2", "ops team", "Jos", "中田", "музей", "muster-ci", "musterfrau", "groups", "Rolf", "automatic"} {
		create(t, a, name, 0)
	}
	for _, name := range []string{
		"muster", "Muster", "MUSTER", " muster ", "muster server upgrade", "muster restore", "мuster", "ｍuster", "rnuster", "muѕter", "must\u0435r", "Muster\u2003CI",
		"rollout", "Rollout spring", "group x", "automatic upgrades of policy Default",
	} {
		if _, _, err := a.CreateKey(t.Context(), name, 0, "test"); fleet.KindOf(err) != fleet.Invalid || err == nil {
			t.Errorf("%+q is taken for a person: %v", name, err)
		}
	}
}

func TestLastUsableKeyIsNotRevoked(t *testing.T) {
	now := time.Date(2026, 3, 3, 10, 0, 0, 0, time.UTC)
	a := service(t, sqlitetest.Open(t, dbPath(t)), &now)
	first, _ := create(t, a, "first", 0)
	wantKind(t, a.RevokeKey(t.Context(), first.ID, "test"), fleet.Conflict, "rotate it")
	second, cred := create(t, a, "second", time.Hour)
	wantKind(t, a.RevokeKey(t.Context(), "unknown", "test"), fleet.NotFound, "")
	for range 2 { // revoking again is no error
		if err := a.RevokeKey(t.Context(), second.ID, "test"); err != nil {
			t.Fatal(err)
		}
	}
	_, err := a.Authenticate(t.Context(), cred, remote)
	wantRefused(t, err, "revoked")
	// One that is about to expire is as good as none.
	third, _ := create(t, a, "third", 24*time.Hour-time.Second)
	wantKind(t, a.RevokeKey(t.Context(), first.ID, "test"), fleet.Conflict, "lock everybody out")
	_, _, err = a.RotateKey(t.Context(), first.ID, time.Hour, 0, first)
	wantKind(t, err, fleet.Invalid, "locked out")
	if _, _, err := a.RotateKey(t.Context(), third.ID, time.Hour, 0, third); err != nil { // the first lasts
		t.Error(err)
	}
	create(t, a, "fourth", 25*time.Hour)
	if _, _, err := a.RotateKey(t.Context(), first.ID, time.Hour, 0, first); err != nil {
		t.Error(err)
	}
}

func TestRotationReplacesTheSecret(t *testing.T) {
	now := time.Date(2026, 3, 3, 10, 0, 0, 0, time.UTC)
	s := sqlitetest.Open(t, dbPath(t))
	a := service(t, s, &now)
	old, oldCred := create(t, a, "ci", 24*time.Hour)
	session, _ := login(t, a, old)
	now = now.Add(time.Hour)

	// At once, also if it is the only key.
	other, _ := create(t, a, "ann", 0)
	_, _, err := a.RotateKey(t.Context(), old.ID, 0, 0, other)
	wantKind(t, err, fleet.Forbidden, "only its owner rotates it")
	k, cred, err := a.RotateKey(t.Context(), old.ID, 0, 0, old)
	if err != nil || k.Name != "ci" || k.CreatedBy != "ci" || k.ID == old.ID || !k.ExpireAt.Equal(now.Add(24*time.Hour)) {
		t.Fatalf("the new key is %+v, %v", k, err)
	}
	if _, err := a.Authenticate(t.Context(), cred, remote); err != nil {
		t.Errorf("the new secret: %v", err)
	}
	_, err = a.Authenticate(t.Context(), oldCred, remote)
	wantRefused(t, err, "revoked")
	_, _, err = a.Session(t.Context(), session)
	wantRefused(t, err, "revoked")

	// After a while, in which both are usable.
	next, nextCred, err := a.RotateKey(t.Context(), k.ID, 48*time.Hour, time.Hour, k)
	if err != nil || !next.ExpireAt.Equal(now.Add(48*time.Hour)) {
		t.Fatalf("the next key is %+v, %v", next, err)
	}
	for _, c := range []fleet.Credential{cred, nextCred} {
		if _, err := a.Authenticate(t.Context(), c, remote); err != nil {
			t.Errorf("within the grace period: %v", err)
		}
	}
	now = now.Add(time.Hour)
	_, err = a.Authenticate(t.Context(), cred, remote)
	wantRefused(t, err, "expired")

	for _, ended := range []fleet.AdminKey{old, k} {
		_, _, err = a.RotateKey(t.Context(), ended.ID, 0, 0, ended)
		wantKind(t, err, fleet.Conflict, "create another key")
	}
	_, _, err = a.RotateKey(t.Context(), next.ID, 0, access.MaxGrace+1, next)
	wantKind(t, err, fleet.Invalid, "grace")
	_, _, err = a.RotateKey(t.Context(), "unknown", 0, 0, next)
	wantKind(t, err, fleet.NotFound, "")
	if _, n, err := s.AdminKeys().List(t.Context(), 0, 0); n != 4 || err != nil {
		t.Errorf("there are %d keys, %v", n, err)
	}
}

// counting counts the updates of admin keys. With failing set they fail.
type counting struct {
	store.Store
	updates *atomic.Int64
	failing *atomic.Bool
}

func (s counting) AdminKeys() store.Collection[fleet.AdminKey] {
	return countingKeys{s.Store.AdminKeys(), s}
}

type countingKeys struct {
	store.Collection[fleet.AdminKey]
	s counting
}

func (k countingKeys) Update(ctx context.Context, v fleet.AdminKey) (int64, error) {
	k.s.updates.Add(1)
	if k.s.failing.Load() {
		return 0, fleet.Errorf(fleet.Unavailable, "the disk is full")
	}
	return k.Collection.Update(ctx, v)
}

func TestLastUseIsWrittenOnceAMinute(t *testing.T) {
	now := time.Date(2026, 3, 3, 10, 0, 0, 0, time.UTC)
	s := counting{sqlitetest.Open(t, dbPath(t)), new(atomic.Int64), new(atomic.Bool)}
	dir := t.TempDir()
	a, other := serviceIn(t, dir, s, &now), serviceIn(t, dir, s, &now)
	k, cred := create(t, a, "ci", 0)
	session, _ := login(t, a, k)
	used := func() string {
		t.Helper()
		got, err := s.AdminKeys().Get(t.Context(), k.ID)
		if err != nil {
			t.Fatal(err)
		}
		if got.LastUsedAt == nil {
			return fmt.Sprintf("never, %d writes", s.updates.Load())
		}
		return fmt.Sprintf("%s, %d writes", got.LastUsedAt.Format(time.TimeOnly), s.updates.Load())
	}
	use := func() {
		t.Helper()
		for _, server := range []*access.Service{a, other} {
			for range 10 {
				if _, err := server.Authenticate(t.Context(), cred, remote); err != nil {
					t.Fatal(err)
				}
				if _, _, err := server.Session(t.Context(), session); err != nil {
					t.Fatal(err)
				}
			}
		}
	}
	want := func(text string) {
		t.Helper()
		if got := used(); got != text {
			t.Errorf("last used %s, want %s", got, text)
		}
	}
	want("never, 0 writes")
	use()
	want("10:00:00, 1 writes")
	now = now.Add(59 * time.Second)
	use()
	want("10:00:00, 1 writes")
	now = now.Add(time.Second)
	use()
	want("10:01:00, 2 writes")

	// A store that cannot write is not asked for each request, and the key works.
	s.failing.Store(true)
	now = now.Add(time.Minute)
	use()
	want("10:01:00, 4 writes") // one of each server
}

// A request that read the key before it was revoked must not bring it back.
func TestRecordingAUseDoesNotUndoARevocation(t *testing.T) {
	now := time.Date(2026, 3, 3, 10, 0, 0, 0, time.UTC)
	db := sqlitetest.Open(t, dbPath(t))
	plain := service(t, db, &now)
	k, cred := create(t, plain, "ci", 0)
	create(t, plain, "ann", 0)
	raced := service(t, revokedAfterGet{db, func() {
		if err := plain.RevokeKey(t.Context(), k.ID, "ann"); err != nil {
			t.Error(err)
		}
	}}, &now)
	if _, err := raced.Authenticate(t.Context(), cred, remote); err != nil {
		t.Errorf("the request that was faster: %v", err)
	}
	_, err := plain.Authenticate(t.Context(), cred, remote)
	wantRefused(t, err, "revoked")
}

type revokedAfterGet struct {
	store.Store
	revoke func()
}

func (s revokedAfterGet) AdminKeys() store.Collection[fleet.AdminKey] {
	return getThenRevoke{s.Store.AdminKeys(), s.revoke}
}

type getThenRevoke struct {
	store.Collection[fleet.AdminKey]
	revoke func()
}

func (k getThenRevoke) Get(ctx context.Context, id string) (fleet.AdminKey, error) {
	v, err := k.Collection.Get(ctx, id)
	k.revoke()
	return v, err
}
