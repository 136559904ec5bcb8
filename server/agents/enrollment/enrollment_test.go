package enrollment_test

import (
	"encoding/json"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/muster-fleet/muster/packaging/host/disk"
	"github.com/muster-fleet/muster/server/agents/enrollment"
	"github.com/muster-fleet/muster/server/fleet"
	"github.com/muster-fleet/muster/server/kql"
	"github.com/muster-fleet/muster/server/store"
	"github.com/muster-fleet/muster/server/store/event"
	"github.com/muster-fleet/muster/server/store/keyfile"
	"github.com/muster-fleet/muster/server/store/sqlite"
	"github.com/muster-fleet/muster/server/store/sqlite/sqlitetest"
	"github.com/muster-fleet/muster/server/wire/agentapi"
)

type world struct {
	t       *testing.T
	store   *sqlite.Store
	service *enrollment.Service
	now     time.Time
}

func newWorld(t *testing.T) *world {
	t.Helper()
	s := sqlitetest.Open(t, filepath.Join(t.TempDir(), "muster.db"))
	w := &world{t: t, store: s, now: time.Date(2026, 3, 3, 10, 0, 0, 0, time.UTC)}
	w.service = &enrollment.Service{Store: s, Events: &event.Stream{Store: s.Events(), Log: slog.New(slog.DiscardHandler)}, Now: func() time.Time { return w.now }}
	for _, id := range []string{"web", "db"} {
		w.must(s.Policies().Create(t.Context(), fleet.Policy{ID: id, Name: id}))
	}
	return w
}

func (w *world) must(err error) {
	w.t.Helper()
	if err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) wantKind(err error, kind fleet.Kind, text string) {
	w.t.Helper()
	if err == nil || fleet.KindOf(err) != kind || !strings.Contains(err.Error(), text) {
		w.t.Errorf("error is %v (%s), want one of kind %s that says %q", err, fleet.KindOf(err), kind, text)
	}
}

func (w *world) key(policy string) fleet.EnrollmentKey {
	w.t.Helper()
	k, _, err := w.service.CreateKey(w.t.Context(), "", policy, 0, "ann")
	w.must(err)
	return k
}

func (w *world) enrol(k fleet.EnrollmentKey, req agentapi.EnrollRequest) fleet.Agent {
	w.t.Helper()
	a, _, err := w.enroll(k, req)
	w.must(err)
	return a
}

func (w *world) enroll(k fleet.EnrollmentKey, req agentapi.EnrollRequest) (fleet.Agent, enrollment.Credentials, error) {
	if req.Type == "" {
		req.Type = "PERMANENT"
	}
	return w.service.Enroll(w.t.Context(), k, req)
}

const local = `{"elastic":{"agent":{"version":"1.0.0"}},"host":{"hostname":"web-1"}}`

func TestEnroll(t *testing.T) {
	w := newWorld(t)
	k, cred, err := w.service.CreateKey(t.Context(), "rack 7", "web", 0, "ann")
	w.must(err)
	if strings.Contains(k.Hash, cred.Secret) {
		t.Errorf("key is %+v", k)
	}
	got, err := w.service.Authenticate(t.Context(), cred)
	if err != nil || got.PolicyID != "web" {
		t.Fatalf("key is %+v, %v", got, err)
	}
	a, own, err := w.enroll(got, agentapi.EnrollRequest{Metadata: agentapi.EnrollMetadata{Local: json.RawMessage(local), Tags: []string{"eu", "blue", "eu"}}})
	w.must(err)
	if a.ID == "" || a.PolicyID != "web" || a.Version != "1.0.0" || a.Hostname() != "web-1" || !slices.Equal(a.Tags, []string{"blue", "eu"}) {
		t.Errorf("agent is %+v", a)
	}
	if !strings.Contains(string(a.LocalMetadata), `"id":"`+a.ID+`"`) {
		t.Errorf("metadata are %s, want elastic.agent.id in them", a.LocalMetadata)
	}
	stored, err := w.store.Agents().ByAccessKey(t.Context(), own.Agent.ID)
	if err != nil || stored.ID != a.ID || !own.Agent.Matches(stored.AccessKeyHash) {
		t.Errorf("the agent's key authenticates %+v, %v", stored, err)
	}
	if stored.WatcherKeyID != own.Watcher.ID || !own.Watcher.Matches(stored.WatcherKeyHash) || own.Watcher.Matches(stored.AccessKeyHash) || own.Agent.Matches(stored.WatcherKeyHash) {
		t.Errorf("the watcher's key is %+v, the agent is %+v", own.Watcher, stored)
	}
	other := w.enrol(got, agentapi.EnrollRequest{})
	if other.ID == a.ID || other.Tags == nil {
		t.Errorf("the second agent is %+v", other)
	}
}

func TestAuthenticateRefusesInvalidTokens(t *testing.T) {
	w := newWorld(t)
	k, cred, err := w.service.CreateKey(t.Context(), "", "web", time.Hour, "ann")
	w.must(err)
	_, err = w.service.Authenticate(t.Context(), fleet.Credential{ID: "unknown", Secret: cred.Secret})
	w.wantKind(err, fleet.Unauthorized, "copy it whole")
	unknown := err.Error()
	_, err = w.service.Authenticate(t.Context(), fleet.Credential{ID: cred.ID, Secret: cred.Secret + "x"})
	w.wantKind(err, fleet.Unauthorized, "copy it whole")
	if err != nil && err.Error() != unknown {
		t.Errorf("the error reveals that the id is right: %v", err)
	}
	w.now = w.now.Add(time.Hour)
	_, err = w.service.Authenticate(t.Context(), cred)
	w.wantKind(err, fleet.Unauthorized, "expired")
	w.now = w.now.Add(-time.Minute)
	_, err = w.service.Authenticate(t.Context(), cred)
	w.must(err)

	agent := w.enrol(k, agentapi.EnrollRequest{})
	w.must(w.service.RevokeKey(t.Context(), k.ID, "ann"))
	w.must(w.service.RevokeKey(t.Context(), k.ID, "ann")) // revoking twice is no error
	_, err = w.service.Authenticate(t.Context(), cred)
	w.wantKind(err, fleet.Unauthorized, "revoked")
	if a, err := w.store.Agents().Get(t.Context(), agent.ID); err != nil || !a.Active {
		t.Errorf("the agent that enrolled with it is %+v, %v", a, err)
	}
	w.wantKind(w.service.RevokeKey(t.Context(), "unknown", "ann"), fleet.NotFound, "unknown")
}

func TestCreateKeyErrors(t *testing.T) {
	w := newWorld(t)
	_, _, err := w.service.CreateKey(t.Context(), "", "nowhere", 0, "ann")
	w.wantKind(err, fleet.NotFound, `Agent policy "nowhere" not found`)
	w.wantKind(w.service.DeleteKey(t.Context(), "none", "ann"), fleet.NotFound, "Enrollment api key none not found")
}

func TestEachPolicyHasADefaultKeyIfThatIsConfigured(t *testing.T) {
	w := newWorld(t)
	ctx := t.Context()
	keys := func() (names []string) {
		all, _, err := w.store.EnrollmentKeys().List(ctx, 0, 0)
		w.must(err)
		for _, k := range all {
			names = append(names, k.PolicyID+": "+strings.Replace(k.Name, k.ID, "ID", 1))
		}
		slices.Sort(names)
		return names
	}
	w.must(w.service.CreateDefaultKeys(ctx))
	w.must(w.service.CreateDefaultKey(ctx, "web", "ann"))
	if got := keys(); len(got) != 0 {
		t.Errorf("without the option the keys are %q", got)
	}
	w.service.DefaultKeys = true
	want := []string{"db: Default (ID)", "web: Default (ID)"}
	w.must(w.service.CreateDefaultKey(ctx, "web", "ann"))
	for range 2 { // at each start
		w.must(w.service.CreateDefaultKeys(ctx))
		if got := keys(); !slices.Equal(got, want) {
			t.Errorf("the keys are %q, want %q", got, want)
		}
	}
	// A key that was revoked does not come back.
	all, _, err := w.store.EnrollmentKeys().List(ctx, 0, 0)
	w.must(err)
	w.must(w.service.RevokeKey(ctx, all[0].ID, "ann"))
	w.must(w.service.CreateDefaultKeys(ctx))
	if got := keys(); !slices.Equal(got, want) {
		t.Errorf("after one was revoked the keys are %q, want %q", got, want)
	}
}

func TestPolicyHasOneKeyOfAName(t *testing.T) {
	w := newWorld(t)
	create := func(name, policy string) (fleet.EnrollmentKey, error) {
		k, _, err := w.service.CreateKey(t.Context(), name, policy, 0, "ann")
		return k, err
	}
	first, err := create("rack", "web")
	w.must(err)
	if want := "rack (" + first.ID + ")"; first.Name != want || uuid.Validate(first.ID) != nil {
		t.Errorf("the name is %q, want %q with a UUID", first.Name, want)
	}
	const taken = "An enrollment key named rack already exists for agent policy web"
	_, err = create("rack", "web")
	w.wantKind(err, fleet.Conflict, taken)
	w.must(w.service.RevokeKey(t.Context(), first.ID, "ann"))
	_, err = create("rack", "web") // revoked keys keep their name
	w.wantKind(err, fleet.Conflict, taken)
	for _, other := range [][2]string{{"rack", "db"}, {"rack 7", "web"}, {"rac", "web"}, {"", "web"}, {"", "web"}} {
		k, err := create(other[0], other[1])
		w.must(err)
		if other[0] == "" && k.Name != k.ID {
			t.Errorf("a key without a name is called %q, want its id %s", k.Name, k.ID)
		}
	}
	w.must(w.service.DeleteKey(t.Context(), first.ID, "ann"))
	_, err = w.service.GetKey(t.Context(), first.ID)
	w.wantKind(err, fleet.NotFound, "Enrollment api key "+first.ID+" not found")
	_, err = create("rack", "web")
	w.must(err)
}

func TestKeyIsShownAgainByServersWithTheEncryptionKey(t *testing.T) {
	w := newWorld(t)
	dir := t.TempDir()
	sealer := func(dir string) keyfile.Sealer {
		t.Helper()
		s, err := keyfile.OpenSealer(t.Context(), keyfile.File{Disk: disk.OS{}, Dir: dir, Name: keyfile.EncryptionKey, Settings: w.store.Settings()}, slog.New(slog.DiscardHandler))
		w.must(err)
		return s
	}
	old, _, err := w.service.CreateKey(t.Context(), "made without", "web", 0, "ann")
	w.must(err)
	w.service.Sealer = sealer(dir)
	k, cred, err := w.service.CreateKey(t.Context(), "rack", "web", 0, "ann")
	w.must(err)
	reveal := func(id string) (fleet.Credential, bool) {
		t.Helper()
		k, err := w.service.GetKey(t.Context(), id)
		w.must(err)
		return w.service.Reveal(k)
	}
	if got, ok := reveal(k.ID); !ok || got != cred {
		t.Errorf("the key is shown as %v, %t, want %v", got, ok, cred)
	}
	if _, ok := reveal(old.ID); ok {
		t.Error("a key is shown whose secret was not stored")
	}
	// A secret that was moved to another key is not shown as that key's.
	moved, err := w.service.GetKey(t.Context(), old.ID)
	w.must(err)
	moved.Sealed = k.Sealed
	if _, ok := w.service.Reveal(moved); ok {
		t.Error("the secret of another key is shown")
	}
	// Another server, without a copy of the file, works but for this.
	w.service.Sealer = sealer(t.TempDir())
	if p := w.service.Sealer.Problem(); !strings.Contains(p, "copy "+keyfile.EncryptionKey) {
		t.Errorf("the problem is %q", p)
	}
	if _, ok := reveal(k.ID); ok {
		t.Error("a server without the encryption key shows the token")
	}
	hashed, cred, err := w.service.CreateKey(t.Context(), "hashed", "web", 0, "ann")
	w.must(err)
	if _, err := w.service.Authenticate(t.Context(), cred); err != nil || len(hashed.Sealed) != 0 {
		t.Errorf("its key has the sealed secret %x, %v", hashed.Sealed, err)
	}
	// An empty file makes another key, which opens none of the old secrets.
	w.must(os.WriteFile(filepath.Join(dir, keyfile.EncryptionKey), nil, 0o600))
	w.service.Sealer = sealer(dir)
	if _, ok := reveal(k.ID); ok || w.service.Sealer.Problem() != "" {
		t.Errorf("after the key was replaced: shown %t, problem %q", ok, w.service.Sealer.Problem())
	}
	again, cred, err := w.service.CreateKey(t.Context(), "again", "web", 0, "ann")
	w.must(err)
	if got, ok := reveal(again.ID); !ok || got != cred {
		t.Errorf("a new key is shown as %v, %t", got, ok)
	}
}

func TestEnrollErrorNamesField(t *testing.T) {
	w := newWorld(t)
	k := w.key("web")
	for field, req := range map[string]agentapi.EnrollRequest{
		"body.type":                   {Type: "FOREVER"},
		"body.metadata.local":         {Metadata: agentapi.EnrollMetadata{Local: json.RawMessage(`["x"]`)}},
		"body.metadata.user_provided": {Metadata: agentapi.EnrollMetadata{UserProvided: json.RawMessage(`7`)}},
		"body.id]: is \"a/b\"":        {ID: "a/b"},
		"body.id]: is \"..\"":         {ID: ".."},
		"body.id]: is \"a\\nb\"":      {ID: "a\nb"},
		"body.id]: is \"xxx":          {ID: strings.Repeat("x", 129)},
	} {
		_, _, err := w.enroll(k, req)
		w.wantKind(err, fleet.Invalid, field)
	}
	if _, n, err := w.store.Agents().List(t.Context(), store.AgentQuery{}); err != nil || n != 0 {
		t.Errorf("%d agents were created, %v", n, err)
	}
}

// null counts as absent.
func TestNullMetadata(t *testing.T) {
	w := newWorld(t)
	a := w.enrol(w.key("web"), agentapi.EnrollRequest{Metadata: agentapi.EnrollMetadata{Local: json.RawMessage("null"), UserProvided: json.RawMessage("null")}})
	if a.UserMetadata != nil || !json.Valid(a.LocalMetadata) {
		t.Errorf("metadata are %s and %s", a.LocalMetadata, a.UserMetadata)
	}
	a = w.enrol(w.key("web"), agentapi.EnrollRequest{Metadata: agentapi.EnrollMetadata{Local: json.RawMessage(`{"elastic":null}`)}})
	if !strings.Contains(string(a.LocalMetadata), a.ID) {
		t.Errorf("metadata are %s", a.LocalMetadata)
	}
}

func TestEnrollWithReplaceTokenReplacesAgent(t *testing.T) {
	w := newWorld(t)
	k := w.key("web")
	req := agentapi.EnrollRequest{ID: "web-1", ReplaceToken: "blue42"}
	old, oldKey, err := w.enroll(k, req)
	w.must(err)
	if strings.Contains(old.ReplaceTokenHash, "blue42") {
		t.Error("the token is stored unhashed")
	}
	// The agent is being upgraded when the host is reinstalled.
	_, err = w.store.Actions().Create(t.Context(), fleet.Action{ID: "up", Type: agentapi.ActionUpgrade, Agents: []string{"web-1"}, Actioned: 1})
	w.must(err)
	// It has not answered another order either, which does not mark it.
	seq, err := w.store.Actions().Create(t.Context(), fleet.Action{ID: "settings", Type: agentapi.ActionSettings, Agents: []string{"web-1"}, Actioned: 1})
	w.must(err)
	marked, err := w.store.Agents().Get(t.Context(), "web-1")
	w.must(err)
	marked.BeginUpgrade("up", "1.1.0", w.now)
	_, err = w.store.Agents().Update(t.Context(), marked)
	w.must(err)

	for name, bad := range map[string]struct {
		key fleet.EnrollmentKey
		req agentapi.EnrollRequest
	}{
		"no token":      {k, agentapi.EnrollRequest{ID: "web-1"}},
		"wrong token":   {k, agentapi.EnrollRequest{ID: "web-1", ReplaceToken: "red"}},
		"other policy":  {w.key("db"), req},
		"without token": {k, agentapi.EnrollRequest{ID: "web-1", ReplaceToken: ""}},
	} {
		_, _, err := w.enroll(bad.key, bad.req)
		if fleet.KindOf(err) != fleet.Forbidden || err == nil {
			t.Errorf("%s: error is %v", name, err)
		}
	}
	w.now = w.now.Add(time.Hour)
	_, newKey, err := w.enroll(k, req)
	w.must(err)
	if _, err := w.store.Agents().ByAccessKey(t.Context(), oldKey.Agent.ID); fleet.KindOf(err) != fleet.NotFound {
		t.Errorf("the old key is still accepted: %v", err)
	}
	a, err := w.store.Agents().ByAccessKey(t.Context(), newKey.Agent.ID)
	w.must(err)
	if a.ID != "web-1" || !a.EnrolledAt.Equal(w.now) || a.Upgrading() || a.Last.ActionSeq != seq {
		t.Errorf("agent is %+v; the old agent's actions must not reach it", a)
	}
	for _, id := range []string{"up", "settings"} {
		if r, err := w.store.Results().Get(t.Context(), id, "web-1"); err != nil || !strings.Contains(r.Error, "enrolled again") {
			t.Errorf("the old agent's action %s has the result %+v, %v", id, r, err)
		}
	}
}

// An empty replace token does not match the absence of one.
func TestAgentWithoutReplaceTokenIsNotReplaced(t *testing.T) {
	w := newWorld(t)
	k := w.key("web")
	w.enrol(k, agentapi.EnrollRequest{ID: "web-1"})
	for _, token := range []string{"", "x"} {
		_, _, err := w.enroll(k, agentapi.EnrollRequest{ID: "web-1", ReplaceToken: token})
		w.wantKind(err, fleet.Forbidden, "web-1 exists")
	}
}

// A host that did not receive the answer to its enrolment enrols again with the same
// enrollment_id. The agent of the first attempt, which never checked in, is replaced; one that
// has checked in stays.
func TestEnrollmentIDReplacesAgentThatNeverCheckedIn(t *testing.T) {
	w := newWorld(t)
	k := w.key("web")
	req := agentapi.EnrollRequest{EnrollmentID: "attempt"}
	lost, lostKey, err := w.enroll(k, req)
	w.must(err)
	w.must(change(w, lost.ID, func(a *fleet.Agent) { a.BeginUpgrade("order", "1.1.0", w.now) }))
	other, _, err := w.enroll(k, agentapi.EnrollRequest{EnrollmentID: "other"})
	w.must(err)
	second, own, err := w.enroll(w.key("db"), req)
	w.must(err)
	if got, err := w.store.Agents().Get(t.Context(), second.ID); err != nil || got.PolicyID != "db" || got.Upgrading() || !own.Agent.Matches(got.AccessKeyHash) {
		t.Errorf("the agent is %+v, %v", got, err)
	}
	if r, err := w.store.Results().Get(t.Context(), "order", lost.ID); err != nil || r.Error == "" {
		t.Errorf("the order of the agent that was replaced has the result %+v, %v", r, err)
	}
	w.wantAgents("attempt", second.ID)
	if _, err := w.store.Agents().ByAccessKey(t.Context(), lostKey.Agent.ID); fleet.KindOf(err) != fleet.NotFound {
		t.Errorf("the first key is still accepted: %v", err)
	}
	w.must(w.store.Agents().Touch(t.Context(), []fleet.Touch{{AgentID: second.ID, At: w.now, Status: "online"}}))
	third, _, err := w.enroll(k, req)
	w.must(err)
	w.wantAgents("attempt", second.ID, third.ID)
	fourth, _, err := w.enroll(k, req)
	w.must(err)
	w.wantAgents("attempt", second.ID, fourth.ID)
	w.wantAgents("other", other.ID)
}

// An agent with the enrollment_id that has checked in keeps its document, also after it was
// unenrolled: its history is that of another enrolment.
func TestEnrollmentIDOfUnenrolledAgentIsNotReplaced(t *testing.T) {
	w := newWorld(t)
	k := w.key("web")
	req := agentapi.EnrollRequest{EnrollmentID: "attempt"}
	gone := w.enrol(k, req)
	w.must(w.store.Agents().Touch(t.Context(), []fleet.Touch{{AgentID: gone.ID, At: w.now, Status: "online"}}))
	w.must(change(w, gone.ID, func(a *fleet.Agent) { a.Active = false }))
	next := w.enrol(k, req)
	again := w.enrol(k, req)
	if next.ID == gone.ID || again.ID != next.ID {
		t.Errorf("the agents are %s, %s and %s", gone.ID, next.ID, again.ID)
	}
	w.wantAgents("attempt", gone.ID, next.ID)
}

func TestParallelEnrolmentsWithOneEnrollmentIDLeaveOneAgent(t *testing.T) {
	for _, asked := range []string{"", "web-1"} {
		w := newWorld(t)
		k := w.key("web")
		var (
			all  sync.WaitGroup
			keys [20]fleet.Credential
		)
		for i := range keys {
			all.Go(func() {
				_, own, err := w.enroll(k, agentapi.EnrollRequest{ID: asked, EnrollmentID: "attempt"})
				keys[i] = own.Agent
				if err != nil {
					t.Errorf("enrolment %d: %v", i, err)
				}
			})
		}
		all.Wait()
		valid := 0
		for _, cred := range keys {
			if a, err := w.store.Agents().ByAccessKey(t.Context(), cred.ID); err == nil && cred.Matches(a.AccessKeyHash) {
				valid++
				w.wantAgents("attempt", a.ID)
			}
		}
		if valid != 1 {
			t.Errorf("%d of the keys are valid", valid)
		}
	}
}

func TestEnrollmentIDOfTooManyAgentsIsRefused(t *testing.T) {
	w := newWorld(t)
	k := w.key("web")
	for {
		a, _, err := w.enroll(k, agentapi.EnrollRequest{EnrollmentID: "image"})
		if err != nil {
			w.wantKind(err, fleet.Conflict, "body.enrollment_id: 100 agents")
			return
		}
		w.must(w.store.Agents().Touch(t.Context(), []fleet.Touch{{AgentID: a.ID, At: w.now, Status: "online"}}))
	}
}

func change(w *world, id string, f func(*fleet.Agent)) error {
	_, err := store.UpdateAgent(w.t.Context(), w.store.Agents(), id, func(a *fleet.Agent) bool { f(a); return true })
	return err
}

// wantAgents checks which agents were enrolled with an enrollment_id.
func (w *world) wantAgents(enrollmentID string, ids ...string) {
	w.t.Helper()
	var got []string
	with := store.AgentFilter{Query: kql.Equals{Field: fleet.FieldEnrollmentID, Value: enrollmentID}}
	w.must(w.store.Agents().Facts(w.t.Context(), with, func(id string, _ fleet.StatusFacts) { got = append(got, id) }))
	slices.Sort(got)
	slices.Sort(ids)
	if !slices.Equal(got, ids) {
		w.t.Errorf("the agents of %s are %v, want %v", enrollmentID, got, ids)
	}
}

// An agent that was unenrolled has no valid keys, so its id is free.
func TestUnenrolledAgentIsReplacedWithoutToken(t *testing.T) {
	w := newWorld(t)
	k := w.key("web")
	w.enrol(k, agentapi.EnrollRequest{ID: "web-1"})
	_, err := store.UpdateAgent(t.Context(), w.store.Agents(), "web-1", func(a *fleet.Agent) bool { a.Active = false; return true })
	w.must(err)
	a, _, err := w.enroll(w.key("db"), agentapi.EnrollRequest{ID: "web-1"})
	w.must(err)
	if got, err := w.store.Agents().Get(t.Context(), a.ID); err != nil || !got.Active || got.PolicyID != "db" {
		t.Errorf("agent is %+v, %v", got, err)
	}
}

// Agents of other makers may name their version in the User-Agent alone.
func TestVersionOfUserAgentIsTakenAtEnrolment(t *testing.T) {
	w := newWorld(t)
	k := w.key("web")
	a, _, err := w.enroll(k, agentapi.EnrollRequest{HeaderVersion: "8.15.5"})
	w.must(err)
	b, _, err := w.enroll(k, agentapi.EnrollRequest{HeaderVersion: "8.15.5", Metadata: agentapi.EnrollMetadata{Local: json.RawMessage(`{"elastic":{"agent":{"version":"8.15.5-SNAPSHOT"}}}`)}})
	w.must(err)
	if a.Version != "8.15.5" || b.Version != "8.15.5-SNAPSHOT" {
		t.Errorf("versions are %q and %q", a.Version, b.Version)
	}
}

func TestAuditUnenrollKeepsTimeOfReport(t *testing.T) {
	w := newWorld(t)
	a := w.enrol(w.key("web"), agentapi.EnrollRequest{ID: "web-1"})
	at := w.now.Add(-time.Hour)
	w.wantKind(w.service.AuditUnenroll(t.Context(), a.ID, "uninstall", time.Time{}), fleet.Invalid, "body.timestamp")
	w.wantKind(w.service.AuditUnenroll(t.Context(), a.ID, "bored", at), fleet.Invalid, "body.reason")
	w.must(w.service.AuditUnenroll(t.Context(), a.ID, "orphaned", at))
	w.wantKind(w.service.AuditUnenroll(t.Context(), a.ID, "uninstall", at), fleet.Conflict, "orphaned")
	if got, err := w.store.Agents().Get(t.Context(), a.ID); err != nil || got.AuditUnenrolledReason != "orphaned" || !got.AuditUnenrolledTime.Equal(at) {
		t.Errorf("the agent is %+v, %v", got, err)
	}
}
