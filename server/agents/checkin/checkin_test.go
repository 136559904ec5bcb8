package checkin_test

import (
	"encoding/json"
	"fmt"
	"math"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/muster-fleet/muster/server/agents/checkin"
	"github.com/muster-fleet/muster/server/fleet"
	"github.com/muster-fleet/muster/server/store"
	"github.com/muster-fleet/muster/server/wire/agentapi"
)

func TestActionIsDeliveredToAParkedAgentOnce(t *testing.T) {
	w := newWorld(t)
	p := w.checkin(agentapi.CheckinRequest{}).parked()
	up := w.upgrade()
	resp := p.delivers(up.ID)
	if resp.AckToken != token(up.Seq, up.ID) {
		t.Errorf("ack token is %q, want the generation, the action's sequence number %d and a digest of its id", resp.AckToken, up.Seq)
	}
	var data agentapi.UpgradeData
	if err := json.Unmarshal(resp.Actions[0].Data, &data); err != nil || data.Version != "1.1.0" {
		t.Errorf("data is %s, want version 1.1.0", resp.Actions[0].Data)
	}

	// The answer is lost: the agent shows no token and gets it again, at once.
	again := w.checkin(agentapi.CheckinRequest{}).delivers(up.ID)

	// It shows the token, and from then on the server remembers without it.
	w.checkin(agentapi.CheckinRequest{AckToken: again.AckToken}).parked().leave()
	if got := w.agent().Last.ActionSeq; got != up.Seq {
		t.Errorf("the agent's sequence number is %d, want %d", got, up.Seq)
	}
	p = w.checkin(agentapi.CheckinRequest{}).parked()

	_, err := w.actions.Cancel(t.Context(), up.ID, "ann")
	w.must(err)
	p.delivers(fleet.CancelID(up.ID))
}

// After an action for the whole fleet every check-in shows a new token, and most have no
// other change.
func TestCheckinWithOnlyANewTokenWritesNoDocument(t *testing.T) {
	w := newWorld(t)
	w.checkin(agentapi.CheckinRequest{}).parked().leave()
	up := w.upgrade()
	token := w.checkin(agentapi.CheckinRequest{}).delivers(up.ID).AckToken
	before, n := w.agent(), len(w.events(0))
	shown := agentapi.CheckinRequest{AckToken: token}
	w.checkin(shown).parked().leave()

	// The server dies before LastSeen writes: an agent that shows no token is given
	// its action again, and the next that it shows counts.
	w.service.LastSeen = &checkin.LastSeen{Agents: w.store.Agents(), Parker: w.parker, Cache: w.cache, Health: w.service.Health, Log: w.service.Log}
	w.checkin(agentapi.CheckinRequest{}).delivers(up.ID)
	w.checkin(shown).parked().leave()
	w.checkin(shown).parked().leave()
	after := w.agent()
	if after.Last.ActionSeq != up.Seq || after.Revision != before.Revision {
		t.Errorf("the number is %d, want %d; the revision %d, was %d", after.Last.ActionSeq, up.Seq, after.Revision, before.Revision)
	}
	if news := w.events(n); len(news) != 0 {
		t.Errorf("events of a token: %+v", news)
	}
	w.checkin(agentapi.CheckinRequest{}).parked()
}

// A check-in that changes the document writes the token's number in the same write.
func TestTokenIsWrittenWithOtherChanges(t *testing.T) {
	w := newWorld(t)
	up := w.upgrade()
	token := w.checkin(agentapi.CheckinRequest{}).delivers(up.ID).AckToken
	w.checkin(agentapi.CheckinRequest{AckToken: token, Status: "degraded"}).parked()
	a, err := w.store.Agents().Get(t.Context(), agentID)
	if err != nil || a.Last.ActionSeq != up.Seq || a.Last.Status != "degraded" {
		t.Errorf("last seen is %+v: %v", a.Last, err)
	}
}

func TestActionCancelledBeforeDeliveryIsNotDelivered(t *testing.T) {
	w := newWorld(t)
	up := w.upgrade()
	c, err := w.actions.Cancel(t.Context(), up.ID, "ann")
	w.must(err)
	w.fed(2)
	resp := w.checkin(agentapi.CheckinRequest{}).delivers(c.ID)
	if resp.Actions[0].Type != agentapi.ActionCancel {
		t.Errorf("delivered a %s", resp.Actions[0].Type)
	}
	w.checkin(agentapi.CheckinRequest{AckToken: resp.AckToken}).parked()
}

func TestExpiredActionIsNotDelivered(t *testing.T) {
	w := newWorld(t)
	past := time.Now().Add(-time.Second)
	_, err := w.store.Actions().Create(t.Context(), fleet.Action{ID: "late", Type: agentapi.ActionUpgrade, Agents: []string{agentID}, Actioned: 1, Expiration: &past})
	w.must(err)
	w.checkin(agentapi.CheckinRequest{}).parked()
}

func TestMoreActionsThanFitOneAnswerAreAllDelivered(t *testing.T) {
	w := newWorld(t)
	for i := range checkin.MaxActions + 5 {
		_, err := w.store.Actions().Create(t.Context(), fleet.Action{ID: fmt.Sprint("a", i), Type: agentapi.ActionUnenroll, Agents: []string{agentID}})
		w.must(err)
	}
	w.fed(checkin.MaxActions + 5)
	first := w.checkin(agentapi.CheckinRequest{}).response()
	if len(first.Actions) != checkin.MaxActions || first.Actions[0].ID != "a0" {
		t.Fatalf("%d actions from %s on, want %d from a0 on", len(first.Actions), first.Actions[0].ID, checkin.MaxActions)
	}
	second := w.checkin(agentapi.CheckinRequest{AckToken: first.AckToken}).response()
	if len(second.Actions) != 5 || second.Actions[0].ID != fmt.Sprint("a", checkin.MaxActions) {
		t.Fatalf("the rest is %d actions from %s on", len(second.Actions), second.Actions[0].ID)
	}
}

func TestForeignTokenIsIgnored(t *testing.T) {
	for _, token := range []string{
		"x1f", "1.5", "-1", "1", "4711", "ffff-1", generation, generation + "-", generation + "-0", generation + "-+1", generation + "-1x",
		generation + "-1", generation + "-1-", generation + "-1-0", generation + "-1-x",
		token(4711, "a"), token(math.MaxInt64, "a"), fmt.Sprint(generation, "-", math.MaxInt64, "0-1"),
	} {
		t.Run(token, func(t *testing.T) {
			w := newWorld(t)
			up := w.upgrade()
			w.checkin(agentapi.CheckinRequest{AckToken: token}).delivers(up.ID)
			if got := w.agent().Last.ActionSeq; got != 0 {
				t.Errorf("the agent's sequence number has become %d", got)
			}
		})
	}
}

// An agent that was rolled back shows the token of its old state.
func TestOlderTokenOfTheAgentIsUsed(t *testing.T) {
	w := newWorld(t)
	one, err := w.store.Actions().Create(t.Context(), fleet.Action{ID: "one", Type: agentapi.ActionUnenroll, Agents: []string{agentID}})
	w.must(err)
	two, err := w.store.Actions().Create(t.Context(), fleet.Action{ID: "two", Type: agentapi.ActionUnenroll, Agents: []string{agentID}})
	w.must(err)
	w.checkin(agentapi.CheckinRequest{AckToken: token(two, "two")}).parked().leave()
	w.checkin(agentapi.CheckinRequest{AckToken: token(one, "one")}).delivers("two")
	if got := w.agent().Last.ActionSeq; got != two {
		t.Errorf("the agent's sequence number went back to %d", got)
	}
}

// After a restore the numbers repeat that agents acknowledged before, so an agent may show
// a higher one than that of a new action.
func TestTokenOfAnotherGenerationHidesNoAction(t *testing.T) {
	for _, shown := range []string{"ffff-2-" + token(2, "new")[strings.LastIndexByte(token(2, "new"), '-')+1:], "2"} {
		t.Run(shown, func(t *testing.T) {
			w := newWorld(t)
			answered, err := w.store.Actions().Create(t.Context(), fleet.Action{ID: "answered", Type: agentapi.ActionUnenroll, Agents: []string{agentID}})
			w.must(err)
			_, err = w.store.Results().Put(t.Context(), []fleet.Result{{ActionID: "answered", AgentID: agentID, Timestamp: time.Now()}})
			w.must(err)
			_, err = w.store.Actions().Create(t.Context(), fleet.Action{ID: "new", Type: agentapi.ActionUnenroll, Agents: []string{agentID}})
			w.must(err)
			w.fed(2)
			resp := w.checkin(agentapi.CheckinRequest{AckToken: shown}).delivers("new")
			if got := w.agent().Last.ActionSeq; got != 0 {
				t.Errorf("the agent's sequence number has become %d", got)
			}
			w.checkin(agentapi.CheckinRequest{AckToken: resp.AckToken}).parked().leave()
			if got := w.agent().Last.ActionSeq; got <= answered {
				t.Errorf("the agent's sequence number is %d", got)
			}
		})
	}
}

// The same, for the check-ins that are recognised without the store.
func TestDuplicateWithATokenOfAnotherGenerationHidesNoAction(t *testing.T) {
	w := newWorld(t)
	cached := w.agent()
	g := w.cache.Generation(agentID)
	w.cache.Remember(&cached, g)
	for _, shown := range []string{"ffff-9", "9"} {
		body := fmt.Sprintf(`{"status":"online","ack_token":%q}`, shown)
		f, cut := checkin.FingerprintOf([]byte(body), "")
		w.cache.RememberCheckin(agentID, checkin.LastCheckin{Fingerprint: f, After: 3}, g, 1, time.Now())
		parked := &oncePark{}
		w.service.Parker = parked
		if !w.service.HandleDuplicate(httptest.NewRecorder(), httptest.NewRequest(http.MethodPost, "/", http.NoBody), agentID, f, cut) {
			t.Fatalf("%s: is no duplicate", shown)
		}
		if parked.After != 0 {
			t.Errorf("%s: actions after %d, want all", shown, parked.After)
		}
	}
	w.service.Parker = w.parker
}

// oncePark records what was parked.
type oncePark struct {
	checkin.Parker
	checkin.Wait
}

func (p *oncePark) Park(poll checkin.Poll) { p.Wait = poll.Wait }

func TestPhasesAreWrittenAtOnce(t *testing.T) {
	w := newWorld(t)
	up := w.upgrade()
	token := w.checkin(agentapi.CheckinRequest{}).delivers(up.ID).AckToken
	n := len(w.events(0))
	for _, state := range []agentapi.UpgradeState{agentapi.UpgradeDownloading, agentapi.UpgradeExtracting, agentapi.UpgradeReplacing} {
		d := w.details(up, state)
		d.Metadata.DownloadPercent = 40
		w.checkin(agentapi.CheckinRequest{AckToken: token, UpgradeDetails: d}).parked()
		// The agent reports the next phase by a new poll: the older is over.
		if got := w.agent().UpgradeDetails; got == nil || got.State != state || got.Metadata.DownloadPercent != 40 {
			t.Errorf("details are %+v, want %s", got, state)
		}
		news := w.events(n)
		if len(news) != 1 || news[0].Type != fleet.EventAgentUpgrade || news[0].Subject != agentID || !strings.Contains(string(news[0].Data), string(state)) {
			t.Errorf("events in %s are %+v", state, news)
		}
		n++
		w.must(w.parker.Close(t.Context()))
		w.parker = &checkin.Blocking{}
		w.service.Parker = w.parker
	}
}

func TestCheckinOfTheTargetVersionEndsTheUpgrade(t *testing.T) {
	w := newWorld(t)
	up := w.upgrade()
	token := w.checkin(agentapi.CheckinRequest{}).delivers(up.ID).AckToken
	w.checkin(agentapi.CheckinRequest{AckToken: token, LocalMeta: json.RawMessage(metadata("1.1.0")), UpgradeDetails: w.details(up, agentapi.UpgradeWatching)}).parked().leave()
	a := w.agent()
	if a.Version != "1.1.0" || a.Upgrading() || a.UpgradedAt == nil || a.UpgradeStatus != fleet.UpgradeNone {
		t.Errorf("after the new version checked in: version %s, status %q, upgraded at %v", a.Version, a.UpgradeStatus, a.UpgradedAt)
	}
	// The acknowledgement is lost; the result is there all the same.
	r, err := w.store.Results().Get(t.Context(), up.ID, agentID)
	if err != nil || r.Error != "" || r.Hostname != "web" {
		t.Errorf("result is %+v, %v", r, err)
	}

	// The watcher puts the old version back.
	d := w.details(up, agentapi.UpgradeRollback)
	d.Metadata.Reason, d.Metadata.ReasonCode = "it crashed four times", "crash_loop"
	w.checkin(agentapi.CheckinRequest{LocalMeta: json.RawMessage(metadata("1.0.0")), UpgradeDetails: d}).parked().leave()
	a = w.agent()
	if a.Version != "1.0.0" || a.UpgradeStatus != fleet.UpgradeRolledBack || a.UpgradedAt != nil || a.Upgrading() {
		t.Errorf("after the rollback: version %s, status %q", a.Version, a.UpgradeStatus)
	}
	if r, err = w.store.Results().Get(t.Context(), up.ID, agentID); err != nil || r.Error != "it crashed four times" {
		t.Errorf("result is %+v, %v", r, err)
	}
}

// The server dies between the two writes of an ended upgrade on a store without
// transactions. The next check-in completes them.
func TestEndOfAnUpgradeIsWrittenAfterACrash(t *testing.T) {
	w := newWorld(t)
	up := w.upgrade()
	token := w.checkin(agentapi.CheckinRequest{}).delivers(up.ID).AckToken
	req := agentapi.CheckinRequest{AckToken: token, LocalMeta: json.RawMessage(metadata("1.1.0"))}
	w.agents.away.Store(true)
	w.checkin(req).unavailable() // the result is written, the document is not
	if _, err := w.store.Results().Get(t.Context(), up.ID, agentID); err != nil {
		t.Fatalf("result: %v", err)
	}
	if a := w.agent(); !a.Upgrading() {
		t.Fatal("the document was written though the store was away")
	}
	w.agents.away.Store(false)
	w.checkin(req).parked().leave()
	if a := w.agent(); a.Upgrading() || a.Version != "1.1.0" {
		t.Errorf("after the next check-in: version %s, upgrading %t", a.Version, a.Upgrading())
	}
}

func TestCheckinIsRefusedUntilItsChangesAreWritten(t *testing.T) {
	w := newWorld(t)
	up := w.upgrade()
	token := w.checkin(agentapi.CheckinRequest{}).delivers(up.ID).AckToken
	req := agentapi.CheckinRequest{AckToken: token, UpgradeDetails: w.details(up, agentapi.UpgradeDownloading)}
	w.agents.away.Store(true)
	w.checkin(req).unavailable()
	w.agents.away.Store(false)
	w.checkin(req).parked()
	if a := w.agent(); a.UpgradeDetails == nil || a.Last.ActionSeq != up.Seq {
		t.Errorf("details are %v, sequence number %d", a.UpgradeDetails, a.Last.ActionSeq)
	}
}

func TestUnchangedCheckinWritesNoDocument(t *testing.T) {
	w := newWorld(t)
	meta := `{ "os": {"type":"linux", "name":"AT&T <Linux>"}, "elastic": {"agent":{"upgradeable":true,"version":"1.0.0"}} }`
	components := `[{"id": "log", "message": "1 > 0"}]`
	req := agentapi.CheckinRequest{LocalMeta: json.RawMessage(meta), Components: json.RawMessage(components)}
	w.checkin(req).parked().leave()
	before, n := w.agent(), len(w.events(0))
	if before.Host().OS.Type != "linux" || len(before.Components) == 0 {
		t.Fatalf("metadata are %s, components %s", before.LocalMetadata, before.Components)
	}
	for _, meta := range []string{meta, `{"elastic":{"agent":{"version":"1.0.0","upgradeable":true}},"os":{"name":"AT\u0026T <Linux>","type":"linux"}}`, "null", ""} {
		req.LocalMeta = json.RawMessage(meta)
		w.checkin(req).parked().leave()
		if got := w.agent(); got.Revision != before.Revision || string(got.LocalMetadata) != string(before.LocalMetadata) {
			t.Errorf("metadata %q were written again: %s", meta, got.LocalMetadata)
		}
	}
	if news := w.events(n); len(news) != 0 {
		t.Errorf("events of nothing: %+v", news)
	}
	req.Components = json.RawMessage("null")
	w.checkin(req).parked().leave()
	if got := w.agent(); string(got.Components) != string(before.Components) {
		t.Errorf("null has replaced the components by %s", got.Components)
	}
}

func TestCheckinRecordsWhatIsUnhealthy(t *testing.T) {
	w := newWorld(t)
	for _, c := range []struct{ status, components, want string }{
		{"online", `[{"id":"log","status":"HEALTHY"}]`, ""},
		{"degraded", `[{"id":"log","status":"DEGRADED","units":[{"type":"output","status":"FAILED"}]}]`, "output"},
		{"degraded", "", "output"}, // the components have not changed
		{"online", `[{"id":"log","status":"HEALTHY"}]`, ""},
		{"error", "", "other"},
	} {
		w.checkin(agentapi.CheckinRequest{Status: c.status, Components: json.RawMessage(c.components)}).parked().leave()
		if got := strings.Join(w.agent().UnhealthyReason, " "); got != c.want {
			t.Errorf("%s with %s: the reason is %q, want %q", c.status, c.components, got, c.want)
		}
	}
}

func TestStatusIsWrittenBeforeItsEvent(t *testing.T) {
	w := newWorld(t)
	w.checkin(agentapi.CheckinRequest{}).parked().leave()
	n := len(w.events(0))
	w.checkin(agentapi.CheckinRequest{Status: "degraded", Message: "disk is slow"}).parked()
	news := w.events(n)
	if len(news) != 1 || news[0].Type != fleet.EventAgentStatus {
		t.Fatalf("events are %+v", news)
	}
	if last := w.agent().Last; last.Status != "degraded" || last.Message != "disk is slow" || last.At == nil {
		t.Errorf("last seen is %+v", last)
	}
}

// A source that has failed is in the agent's timeline, once for each package, whatever the agent sends.
func TestFailedSourcesAreEvents(t *testing.T) {
	w := newWorld(t)
	w.checkin(agentapi.CheckinRequest{}).parked().leave()
	n := len(w.events(0))
	const mirror = "https://mirror/agent-1.1.0.tar.gz"
	for _, c := range []struct {
		name   string
		failed []agentapi.FailedSource
		want   string // empty: nothing is new
	}{
		{"none", nil, ""},
		{"one", []agentapi.FailedSource{{Package: mirror, Reason: "it has another content\x1b[2J than expected"}}, mirror + ": it has another content"},
		{"the same for another reason", []agentapi.FailedSource{{Package: mirror, Reason: "403"}}, ""},
		{"another one beside it", []agentapi.FailedSource{{Package: mirror, Reason: "403"}, {Package: "file:///srv/drop/agent.tar.gz", Reason: strings.Repeat("x", 100_000)}}, "file:///srv/drop/agent.tar.gz: xxx"},
		{"none again", nil, ""},
	} {
		w.checkin(agentapi.CheckinRequest{Upgrade: &agentapi.CheckinUpgrade{FailedSources: c.failed}}).parked().leave()
		news := w.events(n)
		n += len(news)
		if c.want == "" {
			if len(news) > 0 {
				t.Errorf("%s: there are %d events", c.name, len(news))
			}
			continue
		}
		if len(news) != 1 || news[0].Type != fleet.EventAgentSource || news[0].Subject != agentID || !strings.Contains(string(news[0].Data), c.want) ||
			len(news[0].Data) > 2*fleet.MaxEventText {
			t.Fatalf("%s: there are %d events, the first is %.300s, want %q", c.name, len(news), news[0].Data, c.want)
		}
		q := store.HistoryQuery{AgentID: agentID, Limit: 10}
		records, err := w.store.History().List(t.Context(), q)
		if err != nil || len(records) == 0 || records[0].Kind != fleet.HistorySource || !strings.Contains(records[0].Text, c.want) || strings.ContainsRune(records[0].Text, '\x1b') || len(records[0].Text) > fleet.MaxEventText+len("…") {
			t.Errorf("%s: the timeline has %d entries, %v, want %q", c.name, len(records), err, c.want)
		}
	}
}

func TestStagedVersionsAreEvents(t *testing.T) {
	w := newWorld(t)
	w.checkin(agentapi.CheckinRequest{}).parked().leave()
	n := len(w.events(0))
	for _, c := range []struct {
		staged []string
		event  string
	}{
		{[]string{}, ""}, // an agent that knows STAGE, and has nothing
		{[]string{"1.2.0", "web 2.4.0"}, `{"staged_versions":["1.2.0","web 2.4.0"]}`},
		{[]string{"1.2.0", "web 2.4.0"}, ""},
		{[]string{}, `{"staged_versions":[]}`},
	} {
		w.checkin(agentapi.CheckinRequest{StagedVersions: c.staged}).parked().leave()
		news := w.events(n)
		n += len(news)
		is := ""
		for _, e := range news {
			if is += string(e.Data); e.Type != fleet.EventAgentStaged || e.Subject != agentID {
				t.Errorf("event is %+v", e)
			}
		}
		if is != c.event {
			t.Errorf("after %q the events are %s, want %s", c.staged, is, c.event)
		}
	}
}

func TestCheckinClearsAnUninstallNotice(t *testing.T) {
	w := newWorld(t)
	a, now := w.agent(), time.Now().UTC()
	a.AuditUnenrolledReason, a.AuditUnenrolledTime = "uninstall", &now
	_, err := w.store.Agents().Update(t.Context(), a)
	w.must(err)
	w.checkin(agentapi.CheckinRequest{}).parked()
	if a := w.agent(); a.AuditUnenrolledReason != "" || a.AuditUnenrolledTime != nil {
		t.Errorf("reason is %q", a.AuditUnenrolledReason)
	}
}

func TestSnapshotsReportTheirFullVersion(t *testing.T) {
	w := newWorld(t)
	w.checkin(agentapi.CheckinRequest{LocalMeta: json.RawMessage(`{"elastic":{"agent":{"version":"1.1.0","snapshot":true}}}`)}).parked()
	if got := w.agent().Version; got != "1.1.0-SNAPSHOT" {
		t.Errorf("version is %s", got)
	}
}

func TestInvalidCheckinErrorsNameTheField(t *testing.T) {
	w := newWorld(t)
	for _, c := range []struct {
		req   agentapi.CheckinRequest
		field string
	}{
		{agentapi.CheckinRequest{}, "body.status"},
		{agentapi.CheckinRequest{Status: "online", PollTimeout: "five"}, "body.poll_timeout"},
		{agentapi.CheckinRequest{Status: "online", LocalMeta: json.RawMessage(`["web"]`)}, "body.local_metadata"},
	} {
		rec := httptest.NewRecorder()
		err := w.service.Handle(rec, httptest.NewRequest(http.MethodPost, "/", http.NoBody), w.agent(), c.req, checkin.Received{})
		if fleet.KindOf(err) != fleet.Invalid || err == nil || !strings.Contains(err.Error(), c.field) {
			t.Errorf("error is %v, want one that names %s", err, c.field)
		}
		if rec.Body.Len() > 0 {
			t.Errorf("%s: an answer was written: %s", c.field, rec.Body)
		}
	}
	if last := w.agent().Last; last.At != nil {
		t.Errorf("a refused check-in counts as seen: %+v", last)
	}
}

// deadlines notes how long polls may stay, and answers them.
type deadlines struct {
	checkin.Blocking
	park time.Duration
}

func (d *deadlines) Park(p checkin.Poll) { d.park = time.Until(p.Deadline) }

func TestPollTimeout(t *testing.T) {
	w := newWorld(t)
	for _, c := range []struct {
		asked        string
		poll, jitter time.Duration // the server's
		least, most  time.Duration
	}{
		{"", 0, 0, checkin.DefaultPoll - checkin.DefaultPollJitter, checkin.DefaultPoll},
		{"0s", 0, 0, checkin.DefaultPoll - checkin.DefaultPollJitter, checkin.DefaultPoll},
		{"", 10 * time.Second, 0, 10 * time.Second, 10 * time.Second},
		{"", 10 * time.Second, time.Second, 9 * time.Second, 10 * time.Second},
		{"10m", time.Minute, 0, 8 * time.Minute, 8 * time.Minute}, // two minutes for the way
		{"1s", 10 * time.Minute, 0, time.Minute, time.Minute},     // never a busy loop
		{"-5m", 10 * time.Minute, 0, time.Minute, time.Minute},
		{"24h", 10 * time.Minute, 0, time.Hour, time.Hour},
	} {
		d := &deadlines{}
		w.service.Parker, w.service.Poll, w.service.PollJitter = d, c.poll, c.jitter
		err := w.service.Handle(httptest.NewRecorder(), httptest.NewRequest(http.MethodPost, "/", http.NoBody), w.agent(),
			agentapi.CheckinRequest{Status: "online", PollTimeout: c.asked}, checkin.Received{})
		// The check-in itself takes part of the time.
		if err != nil || d.park > c.most || d.park < c.least-time.Second {
			t.Errorf("asked %q of a server with %s: parked for %s, error %v; want %s to %s", c.asked, c.poll, d.park, err, c.least, c.most)
		}
	}
}

// An agent that has to know its policy before it starts a component is answered within a second,
// and what it sends again is no repetition that waits for longer.
func TestAgentThatAwaitsAnAnswerIsNotParkedForLong(t *testing.T) {
	w := newWorld(t)
	for range 2 {
		d := &deadlines{}
		w.service.Parker = d
		err := w.service.Handle(httptest.NewRecorder(), httptest.NewRequest(http.MethodPost, "/", http.NoBody), w.agent(),
			agentapi.CheckinRequest{Status: "online", PollTimeout: "5m", AwaitsAnswer: true}, checkin.Received{Fingerprint: checkin.Fingerprint{1}})
		if err != nil || d.park > time.Second {
			t.Errorf("it is parked for %s, error %v", d.park, err)
		}
		if w.service.HandleDuplicate(httptest.NewRecorder(), httptest.NewRequest(http.MethodPost, "/", http.NoBody), w.agent().ID, checkin.Fingerprint{1}, "") {
			t.Error("its check-in is repeated")
		}
	}
}

// Metadata is only sent when it has changed. What it says of the version precedes the
// User-Agent, which omits pre-releases and builds.
func TestVersionOfUserAgentIsTakenWithoutMetadata(t *testing.T) {
	w := newWorld(t)
	for _, c := range []struct{ header, metadata, want string }{
		{"1.1.0", "", "1.1.0"},
		{"1.1.0", metadata("1.2.0-SNAPSHOT"), "1.2.0-SNAPSHOT"},
		{"1.2.0", "", "1.2.0-SNAPSHOT"},
		{"", "", "1.2.0-SNAPSHOT"},
	} {
		w.checkin(agentapi.CheckinRequest{HeaderVersion: c.header, LocalMeta: json.RawMessage(c.metadata)}).parked().leave()
		if got := w.agent().Version; got != c.want {
			t.Errorf("User-Agent %q and metadata %s: the version is %q, want %q", c.header, c.metadata, got, c.want)
		}
	}
}

func TestCheckinStatusAndEvents(t *testing.T) {
	w := newWorld(t)
	clock := time.Now().UTC()
	w.service.Now = func() time.Time { return clock }
	first := clock
	w.checkin(agentapi.CheckinRequest{}).parked().leave()
	if a := w.agent(); a.VersionSince == nil || !a.HealthySince.Equal(first) || a.LastHealthyVersion != "1.0.0" || a.UsualGap != 0 {
		t.Fatalf("after the first check-in: version since %v, healthy since %v, last healthy %q", a.VersionSince, a.HealthySince, a.LastHealthyVersion)
	}
	w.service.LastSeen.Flush(t.Context())
	clock = clock.Add(time.Hour)
	w.checkin(agentapi.CheckinRequest{}).parked().leave()
	if a := w.agent(); a.UsualGap.D() != time.Hour || !a.HealthySince.Equal(clock) {
		t.Errorf("after an hour of silence: usual gap %s, healthy since %v", a.UsualGap, a.HealthySince)
	}
	w.service.LastSeen.Flush(t.Context())
	back := w.agent()
	clock = clock.Add(time.Minute)
	w.checkin(agentapi.CheckinRequest{}).parked().leave()
	if a := w.agent(); a.Revision != back.Revision {
		t.Error("an ordinary check-in has written the document")
	}
}

// A restarted agent's first check-in may report nothing of its upgrade.
func TestUpgradeOfARestartedAgentGoesOn(t *testing.T) {
	w := newWorld(t)
	up := w.upgrade()
	token := w.checkin(agentapi.CheckinRequest{}).delivers(up.ID).AckToken
	send := func(idle bool, version string, d *agentapi.UpgradeDetails) fleet.Agent {
		w.checkin(agentapi.CheckinRequest{AckToken: token, LocalMeta: json.RawMessage(metadata(version)), UpgradeDetails: d, UpgradesIdle: idle}).parked().leave()
		return w.agent()
	}
	outcome := func() (r fleet.Result, counts fleet.ResultCounts) {
		r, _ = w.store.Results().Get(t.Context(), up.ID, agentID) // zero: there is none yet
		all, err := w.store.Results().Counts(t.Context(), []string{up.ID})
		w.must(err)
		return r, all[up.ID]
	}
	send(false, "1.0.0", w.details(up, agentapi.UpgradeDownloading))
	if a := send(false, "1.0.0", nil); !a.Upgrading() || a.UpgradeStatus != fleet.UpgradeStarted {
		t.Errorf("after the restart the upgrade is %s", a.UpgradeStatus)
	}
	if a := send(true, "1.0.0", nil); a.UpgradeStatus != fleet.UpgradeFailed || !a.UpgradePresumed {
		t.Errorf("of an idle host the upgrade is %s, presumed %v", a.UpgradeStatus, a.UpgradePresumed)
	}
	if r, n := outcome(); !strings.Contains(r.Error, "no upgrade under way any more") || n.Failed != 1 {
		t.Errorf("the result is %+v, counted as %+v", r, n)
	}
	if a := send(false, "1.0.0", w.details(up, agentapi.UpgradeDownloading)); !a.Upgrading() || a.ProgressStateAt(time.Now()) != fleet.ProgressDownloading {
		t.Errorf("after the host went on the upgrade is %s", a.UpgradeStatus)
	}
	send(false, "1.1.0", w.details(up, agentapi.UpgradeWatching))
	if a := send(true, "1.1.0", nil); a.ProgressStateAt(time.Now()) != fleet.ProgressCommitted {
		t.Errorf("at the end progress is %s", a.ProgressStateAt(time.Now()))
	}
	if r, n := outcome(); r.Error != "" || n.Failed != 0 || n.Acked != 1 {
		t.Errorf("the result is %+v, counted as %+v", r, n)
	}
}
