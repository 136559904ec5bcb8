package queue

import (
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/muster-fleet/muster/packaging/host/disk"
	"github.com/muster-fleet/muster/server/wire/agentapi"
	"github.com/muster-fleet/muster/testing/kit/require"
)

var noon = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

func at(d time.Duration) *time.Time {
	t := noon.Add(d)
	return &t
}

func upgradeTo(id string, created time.Duration) agentapi.Action {
	return agentapi.Action{ID: id, Type: agentapi.ActionUpgrade, CreatedAt: noon.Add(created), Data: json.RawMessage(`{"version":"1.1.0"}`)}
}

func cancelOf(id, target string) agentapi.Action {
	return agentapi.Action{ID: id, Type: agentapi.ActionCancel, Data: json.RawMessage(`{"target_id":"` + target + `"}`)}
}

// testQueue is a queue on a real disk that can be opened again.
type testQueue struct {
	t    testing.TB
	path string
	*Queue
}

func newTestQueue(t testing.TB, dir string) *testQueue {
	s := &testQueue{t: t, path: Path(dir)}
	s.reopen("agent-1")
	return s
}

func (s *testQueue) reopen(agent string) {
	q, err := Open(disk.OS{}, s.path, agent)
	if err != nil {
		s.t.Fatal(err)
	}
	s.Queue = q
}

func (s *testQueue) accept(actions ...agentapi.Action) {
	s.t.Helper()
	if err := s.Accept(actions, "", noon, func(string, string) bool { return false }); err != nil {
		s.t.Fatal(err)
	}
}

func (s *testQueue) pending() (ids []string) {
	for _, i := range s.state.Pending {
		ids = append(ids, i.Action.ID)
	}
	return ids
}

// results returns the queued acks as "id" or "id: error".
func (s *testQueue) results() (out []string) {
	for _, a := range s.Acks(MaxAcks) {
		r := a.ActionID
		if a.Error != "" {
			r += ": " + a.Error
		}
		out = append(out, r)
	}
	return out
}

func TestAcceptActions(t *testing.T) {
	expired := upgradeTo("old", 0)
	expired.Expiration = at(-time.Minute)
	for _, c := range []struct {
		name    string
		actions []agentapi.Action
		pending []string
		results []string
	}{
		{"an upgrade waits", []agentapi.Action{upgradeTo("a", 0)}, []string{"a"}, nil},
		{"delivered twice, it waits once", []agentapi.Action{upgradeTo("a", 0), upgradeTo("a", 0)}, []string{"a"}, nil},
		{"a newer one takes its place", []agentapi.Action{upgradeTo("a", 0), upgradeTo("b", time.Minute)}, []string{"b"}, []string{"a: superseded by the newer upgrade b"}},
		{"delivered the other way round too", []agentapi.Action{upgradeTo("b", time.Minute), upgradeTo("a", 0)}, []string{"b"}, []string{"a: superseded by the newer upgrade b"}},
		{"expired before it came", []agentapi.Action{expired}, nil, []string{"old: expired at 2026-03-01T11:59:00Z, before it could begin"}},
		{"cancelled", []agentapi.Action{upgradeTo("a", 0), cancelOf("c", "a")}, nil, []string{"a: cancelled", "c"}},
		{"cancelled before it came", []agentapi.Action{cancelOf("c", "a"), upgradeTo("a", 0)}, nil, []string{"c", "a: cancelled"}},
		{"a cancel that names nothing", []agentapi.Action{cancelOf("c", "")}, nil, []string{"c: data.target_id: names no action to cancel"}},
		{"a policy", []agentapi.Action{{ID: "policy:p1:7", Type: agentapi.ActionPolicyChange}}, nil, []string{"policy:p1:7"}},
		{"an upgrade that cannot be read", []agentapi.Action{upgradeTo("a", 0), {ID: "b", Type: agentapi.ActionUpgrade, CreatedAt: noon.Add(time.Minute), Data: json.RawMessage(`{"version":1}`)}}, []string{"a"}, []string{"b: action data: json: cannot unmarshal number into Go struct field UpgradeData.version of type string"}},
		{"a stage of no component", []agentapi.Action{{ID: "s", Type: agentapi.ActionStage, Data: json.RawMessage(`{"version":"1.1.0","component":{"name":"../x"}}`)}}, nil, []string{`s: action data.component.name: is "../x", want 2 to 63 lower-case letters, digits and dashes, a letter or digit at both ends`}},
		{"what this agent does not know", []agentapi.Action{{ID: "x", Type: "MIGRATE"}}, nil, []string{`x: this agent does not understand actions of type "MIGRATE"`}},
		{"unenrolled", []agentapi.Action{upgradeTo("a", 0), {ID: "u", Type: agentapi.ActionUnenroll}}, nil, []string{"a: the agent was unenrolled", "u"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := newTestQueue(t, t.TempDir())
			s.accept(c.actions...)
			check := func(when string) {
				if got := s.pending(); !slices.Equal(got, c.pending) {
					t.Errorf("%s: pending %v, want %v", when, got, c.pending)
				}
				if got := s.results(); !slices.Equal(got, c.results) {
					t.Errorf("%s: results %v, want %v", when, got, c.results)
				}
			}
			check("at once")
			s.reopen("agent-1")
			check("after a restart")
			s.accept(c.actions...)
			check("delivered again")
		})
	}
}

// A server that was restored from a backup sends actions again whose results it has lost.
func TestActionThatIsSentAgainIsAnsweredAgainAndNotDoneAgain(t *testing.T) {
	s := newTestQueue(t, t.TempDir())
	actions := []agentapi.Action{upgradeTo("a", 0), upgradeTo("b", time.Minute), cancelOf("c", "b")}
	s.accept(actions...)
	want := []string{"a: superseded by the newer upgrade b", "b: cancelled", "c"}
	answered := func(when string, want []string) {
		t.Helper()
		if got := s.results(); !slices.Equal(got, want) {
			t.Fatalf("%s: results %v, want %v", when, got, want)
		}
		if err := s.DropAcks(s.Acks(MaxAcks)); err != nil {
			t.Fatal(err)
		}
	}
	answered("at first", want)
	s.accept()
	answered("nothing was sent", nil)
	s.accept(actions...)
	s.accept(actions...) // before the results are sent
	if got := s.pending(); len(got) != 0 {
		t.Errorf("pending %v", got)
	}
	answered("sent again", want)
	s.reopen("agent-1")
	s.accept(actions...)
	answered("after a restart", want)

	// The version to which the host rolls back has not seen them.
	older := newTestQueue(t, t.TempDir())
	if err := older.Adopt(s.path); err != nil {
		t.Fatal(err)
	}
	s = older
	s.accept(actions...)
	answered("after a rollback", want)

	var many []agentapi.Action
	for i := range MaxDone {
		many = append(many, agentapi.Action{ID: fmt.Sprint("x", i), Type: "MIGRATE"})
	}
	s.accept(many...)
	if len(s.state.Done) != MaxDone || len(s.state.Results) != MaxDone {
		t.Errorf("%d actions and %d results are remembered, want %d", len(s.state.Done), len(s.state.Results), MaxDone)
	}
}

// stopping is a Stopper that records its calls.
type stopping struct {
	can   bool
	asked []string
}

func (s *stopping) stop(id, why string) bool {
	s.asked = append(s.asked, id+": "+why)
	return s.can
}

func (s *testQueue) acceptWith(stop *stopping, actions ...agentapi.Action) {
	s.t.Helper()
	if err := s.Accept(actions, "", noon, stop.stop); err != nil {
		s.t.Fatal(err)
	}
}

func (s *testQueue) begin(id string) {
	s.t.Helper()
	if err := s.Begin(id); err != nil {
		s.t.Fatal(err)
	}
}

func TestNewerUpgradeStopsTheRunningOne(t *testing.T) {
	s, ex := newTestQueue(t, t.TempDir()), &stopping{can: true}
	s.accept(upgradeTo("a", 0))
	s.begin("a")
	same := upgradeTo("a2", time.Second)
	s.acceptWith(ex, same)
	if len(ex.asked) != 0 {
		t.Errorf("asked to stop for the same work: %v", ex.asked)
	}
	newer := upgradeTo("b", time.Minute)
	newer.Data = json.RawMessage(`{"version":"1.2.0"}`)
	s.acceptWith(ex, newer)
	if !slices.Equal(ex.asked, []string{"a: superseded by the newer upgrade b"}) {
		t.Errorf("asked %v", ex.asked)
	}
	// The agent was killed before the upgrade was undone: it is not begun again.
	s.reopen("agent-1")
	if item, _, err := s.Next("", noon); err != nil || item == nil || item.Action.ID != "a" || item.Stop == "" {
		t.Errorf("after a restart next is %+v, %v", item, err)
	}
	late := upgradeTo("z", -time.Hour)
	s.acceptWith(ex, late)
	if got := s.results(); !slices.Equal(got, []string{"a2: superseded by the newer upgrade b", "z: superseded by the newer upgrade a"}) {
		t.Errorf("results %v", got)
	}
}

func TestRunningUpgradeIsStoppedOrWaitedFor(t *testing.T) {
	s, firm := newTestQueue(t, t.TempDir()), &stopping{}
	s.accept(upgradeTo("a", 0))
	s.begin("a")
	b := upgradeTo("b", time.Minute)
	b.Data = json.RawMessage(`{"version":"1.2.0"}`)
	s.acceptWith(firm, b)
	if got := s.pending(); !slices.Equal(got, []string{"a", "b"}) {
		t.Errorf("pending %v, want the newer upgrade to wait for the running one", got)
	}
	s.acceptWith(firm, cancelOf("c1", "a"))
	if got := s.results(); len(got) != 1 || !strings.Contains(got[0], "can no longer be cancelled") {
		t.Errorf("results %v", got)
	}
	ready := &stopping{can: true}
	s.acceptWith(ready, cancelOf("c2", "a"))
	if !slices.Equal(ready.asked, []string{"a: cancelled"}) || s.results()[1] != "c2" {
		t.Errorf("asked %v, results %v", ready.asked, s.results())
	}
	s.reopen("agent-1")
	if item, _, err := s.Next("", noon.Add(100*time.Hour)); err != nil || item == nil || item.Action.ID != "a" || item.Attempts != 1 || item.Stop != "cancelled" {
		t.Errorf("after a restart next is %+v, %v", item, err)
	}
	if err := s.Finish("a", Result{Message: "done"}, noon); err != nil {
		t.Fatal(err)
	}
	if item, _, err := s.Next("", noon); err != nil || item == nil || item.Action.ID != "b" {
		t.Errorf("then next is %+v, %v", item, err)
	}
	if err := s.Finish("a", Result{Error: "rolled back"}, noon); err != nil {
		t.Fatal(err)
	}
	if n := len(s.results()); n != 3 {
		t.Errorf("an action got a second result: %v", s.results())
	}
}

func TestPostponedUpgradeSurvivesARestart(t *testing.T) {
	s := newTestQueue(t, t.TempDir())
	a := upgradeTo("a", 0)
	a.Expiration = at(time.Hour)
	s.accept(a)
	s.begin("a")
	if err := s.Postpone("a", noon.Add(5*time.Minute), "no route to host"); err != nil {
		t.Fatal(err)
	}
	s.reopen("agent-1")
	if item, again, _ := s.Next("", noon); item != nil || !again.Equal(noon.Add(5*time.Minute)) {
		t.Errorf("at once: %+v, again %s", item, again)
	}
	item, _, _ := s.Next("", noon.Add(5*time.Minute))
	if item == nil || item.Retries != 1 || item.Attempts != 0 {
		t.Fatalf("when due: %+v", item)
	}
	// A CANCEL or a newer upgrade ends a postponed upgrade at once.
	s.accept(cancelOf("c", "a"))
	if got := s.results(); !slices.Equal(got, []string{"a: cancelled", "c"}) {
		t.Errorf("results %v", got)
	}

	late := newTestQueue(t, t.TempDir())
	late.accept(a)
	late.begin("a")
	if err := late.Postpone("a", noon.Add(2*time.Hour), "no route to host"); err != nil {
		t.Fatal(err)
	}
	if _, again, _ := late.Next("", noon); !again.Equal(*a.Expiration) {
		t.Errorf("next is at %s, want when it expires", again)
	}
	if item, _, _ := late.Next("", noon.Add(time.Hour)); item != nil || !strings.Contains(late.results()[0], "after 1 tries; the last one: no route to host") {
		t.Errorf("expired: %+v, %v", item, late.results())
	}
}

// An agent that is assigned another policy and back is sent the first one under the same id.
// If it went on to report the other, the server would send it without end.
func TestPolicyThatComesAgainIsReported(t *testing.T) {
	s := newTestQueue(t, t.TempDir())
	for _, id := range []string{"p1", "p2", "p1"} {
		s.accept(agentapi.Action{ID: "policy:" + id + ":1", Type: agentapi.ActionPolicyChange})
		if policy, revision := s.Policy(); policy != id || revision != 1 {
			t.Errorf("after %s it reports revision %d of %s", id, revision, policy)
		}
	}
}

// The version that was rolled back has answered actions; the restored version has an
// older queue.
func TestAdoptedActionsAreNotDoneAgainAfterARollback(t *testing.T) {
	old, bad := newTestQueue(t, t.TempDir()), newTestQueue(t, t.TempDir())
	for _, s := range []*testQueue{old, bad} {
		s.accept(upgradeTo("switch", 0))
		s.begin("switch")
	}
	if err := bad.Finish("switch", Result{Message: "upgraded"}, noon); err != nil {
		t.Fatal(err)
	}
	policy := agentapi.Action{ID: "policy:p1:7", Type: agentapi.ActionPolicyChange}
	bad.accept(policy, upgradeTo("later", time.Hour))
	if err := old.Adopt(bad.path); err != nil {
		t.Fatal(err)
	}
	if got := old.results(); !slices.Equal(got, []string{"policy:p1:7"}) {
		t.Errorf("results to send: %v", got)
	}
	// The server sends everything after the older token again.
	old.accept(policy, upgradeTo("switch", 0), upgradeTo("later", time.Hour))
	if err := old.Finish("switch", Result{Error: "rolled back"}, noon); err != nil {
		t.Fatal(err)
	}
	if got := old.results(); !slices.Equal(got, []string{"policy:p1:7", "switch: rolled back"}) {
		t.Errorf("results %v", got)
	}
	if got := old.pending(); !slices.Equal(got, []string{"later"}) {
		t.Errorf("pending %v", got)
	}
	if err := old.Adopt(filepath.Join(t.TempDir(), "none")); err != nil {
		t.Errorf("no other queue: %v", err)
	}
}

// A thief may have given its policy a number that the server of the enrolment never reaches.
func TestQueueOfAnAgentThatReturnsAwaitsThePolicy(t *testing.T) {
	s := newTestQueue(t, t.TempDir())
	s.accept(agentapi.Action{ID: "policy:p:900", Type: agentapi.ActionPolicyChange, Data: json.RawMessage(`{"policy":{"id":"p","fleet":{"hosts":["https://thief.test"]}}}`)},
		agentapi.Action{ID: "u", Type: agentapi.ActionUnenroll})
	if err := errors.Join(s.SetHomeDue(noon), s.Return()); err != nil {
		t.Fatal(err)
	}
	s.reopen("agent-1")
	if id, revision := s.Policy(); id != "p" || revision != 0 || s.Settings().Hosts != nil || s.Unenrolled() || !s.HomeDue().Equal(noon) {
		t.Errorf("policy %s %d, hosts %v, unenrolled %v, due %v", id, revision, s.Settings().Hosts, s.Unenrolled(), s.HomeDue())
	}
	s.reopen("agent-2")
	if !s.HomeDue().IsZero() {
		t.Error("another agent has the time of this one")
	}
}

func TestNextHonoursStartAndExpiration(t *testing.T) {
	s := newTestQueue(t, t.TempDir())
	a := upgradeTo("a", 0)
	a.StartTime, a.Expiration = at(time.Hour), at(2*time.Hour)
	s.accept(a)
	if item, again, _ := s.Next("", noon); item != nil || !again.Equal(*a.StartTime) {
		t.Errorf("at noon: %+v, again %s", item, again)
	}
	if item, _, _ := s.Next("", noon.Add(time.Hour)); item == nil || item.Action.ID != "a" {
		t.Errorf("when due: %+v", item)
	}
	if item, _, _ := s.Next("", noon.Add(2*time.Hour)); item != nil {
		t.Errorf("when expired: %+v", item)
	}
	if got := s.results(); len(got) != 1 || !strings.Contains(got[0], "expired") {
		t.Errorf("results %v", got)
	}
}

func TestAckTokenSurvivesEmptyAnswersAndRestarts(t *testing.T) {
	s := newTestQueue(t, t.TempDir())
	for _, token := range []string{"t1", ""} {
		if err := s.Accept(nil, token, noon, nil); err != nil {
			t.Fatal(err)
		}
	}
	s.reopen("agent-1")
	if s.AckToken() != "t1" {
		t.Errorf("token %q", s.AckToken())
	}
	s.reopen("agent-2")
	if s.AckToken() != "" {
		t.Error("another agent got this one's token")
	}
}

func TestUnreadableQueueStartsEmptyWithAnError(t *testing.T) {
	dir := t.TempDir()
	s := newTestQueue(t, dir)
	s.accept(upgradeTo("a", 0))
	for _, f := range []string{s.path, s.path + ".prev"} {
		if err := os.WriteFile(f, []byte("\x00\x00\x00"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	q, err := Open(disk.OS{}, s.path, "agent-1")
	if !errors.Is(err, disk.ErrDamaged) || q == nil {
		t.Fatalf("queue %v, error %v", q, err)
	}
	if err := q.Accept([]agentapi.Action{upgradeTo("a", 0)}, "", noon, nil); err != nil || q.Waiting("") == nil {
		t.Errorf("it does not work: %v", err)
	}
}

type fullDisk struct{ disk.OS }

func (fullDisk) Rename(op, _, _ string) error {
	return &disk.Error{Op: op, Err: errors.New("no space left on device")}
}

func TestChangeThatCannotBeStoredHasNoEffect(t *testing.T) {
	q, err := Open(fullDisk{}, Path(t.TempDir()), "agent-1")
	if err != nil {
		t.Fatal(err)
	}
	if err := q.Accept([]agentapi.Action{upgradeTo("a", 0)}, "t1", noon, nil); err == nil {
		t.Error("no error from a full disk")
	}
	if q.Waiting("") != nil || q.AckToken() != "" {
		t.Error("the queue acts on what it did not store")
	}
}

func TestSwitchMarksTheUpgradeInTheCopy(t *testing.T) {
	s := newTestQueue(t, t.TempDir())
	other := t.TempDir()
	s.accept(upgradeTo("a", 0))
	err := s.Switch("a", func() error {
		return disk.CopyTree(t.Context(), disk.OS{}, "test", filepath.Dir(s.path), filepath.Join(other, "run"))
	})
	if err != nil {
		t.Fatal(err)
	}
	if next := newTestQueue(t, other); next.Waiting("") == nil || !next.Waiting("").Switched {
		t.Error("the new version does not see the switch")
	}
	if err := s.Switch("a", func() error { return errors.New("exec failed") }); err == nil || s.Waiting("").Switched {
		t.Errorf("after a failed switch: %v, %+v", err, s.Waiting(""))
	}
}

// On a full disk the mark of a failed switch cannot be removed. The upgrade counts as not
// switched all the same, and its next try is stored so.
func TestFailedSwitchIsForgottenOnAFullDisk(t *testing.T) {
	dir := t.TempDir()
	s := newTestQueue(t, dir)
	s.accept(upgradeTo("a", 0))
	err := s.Switch("a", func() error {
		s.disk = fullDisk{}
		return errors.New("no space left")
	})
	if err == nil || s.Waiting("").Switched {
		t.Errorf("after a failed switch: %v, %+v", err, s.Waiting(""))
	}
	s.disk = disk.OS{}
	if err := s.Postpone("a", noon, "no space left"); err != nil {
		t.Fatal(err)
	}
	if again := newTestQueue(t, dir); again.Waiting("") == nil || again.Waiting("").Switched {
		t.Errorf("the next process finds %+v", again.Waiting(""))
	}
}

// An agent that is assigned to its former policy gets the same revision with the same id.
func TestPolicyThatIsSentAgainIsAppliedAgain(t *testing.T) {
	dir := t.TempDir()
	s := newTestQueue(t, dir)
	policy := func(id, source, hosts string) agentapi.Action {
		return agentapi.Action{ID: id, Type: agentapi.ActionPolicyChange, Data: json.RawMessage(
			`{"policy":{"id":"p","agent":{"download":{"sourceURI":"` + source + `"}},"fleet":{"hosts":[` + hosts + `]},"outputs":{"default":{}}}}`)}
	}
	first, second := policy("policy:a:3", "https://mirror.test/a", `"https://one.test:8220"`), policy("policy:b:7", "", "")
	s.accept(first)
	s.accept(second, agentapi.Action{ID: "r1", Type: agentapi.ActionPolicyReassign, Data: json.RawMessage(`{"policy_id":"a"}`)})
	if err := s.DropAcks(s.Acks(MaxAcks)); err != nil {
		t.Fatal(err)
	}
	s.accept(first, first)
	s.reopen("agent-1")
	id, revision := s.Policy()
	if got := s.Settings(); id != "a" || revision != 3 || got.SourceURI != "https://mirror.test/a" || !slices.Equal(got.Hosts, []string{"https://one.test:8220"}) {
		t.Errorf("policy %s:%d, %+v", id, revision, got)
	}
	if got := s.results(); !slices.Equal(got, []string{"policy:a:3"}) {
		t.Errorf("results %v, want one for the policy that was sent again", got)
	}
	s.accept(agentapi.Action{ID: "policy:a:4", Type: agentapi.ActionPolicyChange, Data: json.RawMessage(`{"policy":{"fleet":[]}}`)})
	if _, revision := s.Policy(); revision != 4 || s.Settings().SourceURI == "" {
		t.Errorf("a policy of another form: revision %d, %+v; want the revision, or the server sends it for ever", revision, s.Settings())
	}
}

func TestPolicyActionsOfFleetServers(t *testing.T) {
	for _, c := range []struct {
		action, policy, id string
		revision           int64
		refused            bool
	}{
		{action: "policy:a:3", policy: "a", id: "a", revision: 3},
		{action: "policy:a:3:1", policy: "a", id: "a", revision: 3}, // of version 7.17
		{action: "policy:a:b:3", policy: "a:b", id: "a:b", revision: 3},
		{action: "policy:a:3", id: "a", revision: 3},
		{action: "policy:a:3", policy: "other", id: "a", revision: 3},
		{action: "policy:a:x", policy: "a", refused: true},
		{action: "policy:a", policy: "a", refused: true},
		{action: "a:3", policy: "a", refused: true},
	} {
		s := newTestQueue(t, t.TempDir())
		s.accept(agentapi.Action{ID: c.action, Type: agentapi.ActionPolicyChange, Data: json.RawMessage(`{"policy":{"id":"` + c.policy + `"}}`)})
		id, revision := s.Policy()
		if id != c.id || revision != c.revision || (s.Acks(1)[0].Error != "") != c.refused {
			t.Errorf("%s of policy %q: %s revision %d, %+v", c.action, c.policy, id, revision, s.Acks(1))
		}
	}
}

func TestEveryResultHasAMessage(t *testing.T) {
	s := newTestQueue(t, t.TempDir())
	for i, a := range []agentapi.Action{
		{Type: agentapi.ActionPolicyReassign},
		{Type: agentapi.ActionUnenroll},
		{Type: agentapi.ActionCancel},
		{Type: "INPUT_ACTION"},
		{Type: agentapi.ActionMigrate},
		{Type: agentapi.ActionPolicyChange},
		{Type: agentapi.ActionSettings, Data: json.RawMessage(`{"log_level":"loud"}`)},
	} {
		a.ID = fmt.Sprint("x", i)
		s.accept(a)
	}
	if err := s.Finish("unknown", Result{}, noon); err != nil {
		t.Fatal(err)
	}
	acks := s.Acks(MaxAcks)
	if len(acks) != 8 {
		t.Fatalf("%d results, want 8", len(acks))
	}
	for _, a := range acks {
		if a.Message == "" || a.Type != agentapi.AckType || a.Subtype != agentapi.AckSubtype || a.AgentID == "" || a.Timestamp.IsZero() {
			t.Errorf("result %+v", a)
		}
	}
}

func TestLogLevelSurvivesARestart(t *testing.T) {
	s := newTestQueue(t, t.TempDir())
	s.accept(agentapi.Action{ID: "s1", Type: agentapi.ActionSettings, Data: json.RawMessage(`{"log_level":"warning"}`)})
	s.reopen("agent-1")
	if l := s.Settings().LogLevel; l == nil || *l != slog.LevelWarn {
		t.Errorf("level %v", l)
	}
	s.accept(agentapi.Action{ID: "s2", Type: agentapi.ActionSettings, Data: json.RawMessage(`{"log_level":null}`)})
	if l := s.Settings().LogLevel; l != nil {
		t.Errorf("level %v after null", l)
	}
}

// Whatever arrives in whatever order, at most one upgrade waits, every action is pending
// or has exactly one result, and the bounds hold.
func TestEveryActionHasAtMostOneResult(t *testing.T) {
	require.Time(t, "tries a hundred histories")
	dir := t.TempDir()
	n := 0
	rapid.Check(t, func(r *rapid.T) {
		n++
		s := newTestQueue(t, filepath.Join(dir, strings.Repeat("x", n%50), time.Duration(n).String()))
		seen := map[string]bool{}
		ids := rapid.SampledFrom([]string{"a", "b", "c", "d", "e"})
		r.Repeat(map[string]func(*rapid.T){
			"upgrade": func(r *rapid.T) {
				id := ids.Draw(r, "id")
				seen[id] = true
				s.accept(upgradeTo(id, time.Duration(rapid.IntRange(0, 9).Draw(r, "created"))*time.Minute))
			},
			"cancel": func(r *rapid.T) {
				id := "cancel-" + ids.Draw(r, "id")
				seen[id] = true
				s.accept(cancelOf(id, ids.Draw(r, "target")))
			},
			"restart": func(*rapid.T) { s.reopen("agent-1") },
			"finish": func(r *rapid.T) {
				if w := s.Waiting(""); w != nil {
					if err := s.Finish(w.Action.ID, Result{}, noon); err != nil {
						r.Fatal(err)
					}
				}
			},
			"": func(r *rapid.T) {
				if len(s.pending()) > 1 {
					r.Fatalf("pending %v", s.pending())
				}
				count := map[string]int{}
				for _, a := range s.Acks(MaxAcks) {
					count[a.ActionID]++
				}
				for _, id := range s.pending() {
					count[id]++
				}
				for id := range seen {
					if count[id] > 1 || (count[id] == 0 && !slices.Contains(s.state.Done, id)) {
						r.Fatalf("action %s counted %d times", id, count[id])
					}
				}
			},
		})
	})
}

func TestQueueIsIdleOnceTheServerHasAnsweredEveryResult(t *testing.T) {
	s := newTestQueue(t, t.TempDir())
	idle := func(want bool, what string) {
		t.Helper()
		if s.Idle() != want {
			t.Errorf("%s: idle is %v", what, s.Idle())
		}
	}
	idle(true, "new")
	s.accept(upgradeTo("a1", 0))
	idle(false, "with an upgrade")
	s.reopen("agent-1")
	idle(false, "with an upgrade, after a restart")
	s.accept(cancelOf("c1", "a1"))
	idle(false, "with results")
	if err := s.DropAcks(s.Acks(MaxAcks)); err != nil {
		t.Fatal(err)
	}
	idle(true, "answered")
	web := upgradeTo("w1", 0)
	web.Data = json.RawMessage(`{"version":"2.0.0","component":{"name":"web"}}`)
	s.accept(web)
	idle(false, "with an upgrade of a component")
}

func TestCheckFailsWhereTheQueueCannotBeWritten(t *testing.T) {
	home := t.TempDir()
	q, err := Open(disk.OS{}, Path(home), "agent-1")
	if err != nil {
		t.Fatal(err)
	}
	run := filepath.Dir(Path(home))
	if err := q.Check(); err != nil {
		t.Errorf("before the queue's folder was made: %v", err)
	}
	if err := os.Mkdir(run, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := q.Check(); err != nil {
		t.Errorf("in its folder: %v", err)
	}
	if left, err := os.ReadDir(run); err != nil || len(left) > 0 {
		t.Errorf("left are %v, %v", left, err)
	}
	if err := errors.Join(os.Remove(run), os.WriteFile(run, nil, 0o600)); err != nil {
		t.Fatal(err)
	}
	if err := q.Check(); err == nil {
		t.Error("the queue can be written where its folder is a file")
	}
}
