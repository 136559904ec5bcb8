package outage_test

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/muster-fleet/muster/server/action"
	"github.com/muster-fleet/muster/server/agentapi"
	"github.com/muster-fleet/muster/server/beacon"
	"github.com/muster-fleet/muster/server/checkin"
	"github.com/muster-fleet/muster/server/enrollment"
	"github.com/muster-fleet/muster/server/event"
	"github.com/muster-fleet/muster/server/fleet"
	"github.com/muster-fleet/muster/server/outage"
	"github.com/muster-fleet/muster/server/outage/outagetest"
	"github.com/muster-fleet/muster/server/presence"
	"github.com/muster-fleet/muster/server/store"
	"github.com/muster-fleet/muster/server/store/sqlite"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var quiet = slog.New(slog.DiscardHandler)

// world is a store that can go away and the servers on it.
type world struct {
	t      *testing.T
	dir    string
	store  *outagetest.Store
	db     *sqlite.Store // the same store, whatever the switch says
	server *server
}

// server is a server without its handlers.
type server struct {
	*outage.Keeper
	parker  *checkin.Blocking
	ledger  *checkin.Ledger
	checkin *checkin.Service
	actions *action.Service
	beacons *beacon.Service
	enroll  *enrollment.Service
	stop    func()
}

func newWorld(t *testing.T, agents ...string) *world {
	t.Helper()
	dir := t.TempDir()
	db, err := sqlite.Open(t.Context(), filepath.Join(dir, "muster.db"), sqlite.Options{})
	if err != nil {
		t.Fatal(err)
	}
	w := &world{t: t, dir: filepath.Join(dir, "outage"), store: &outagetest.Store{Store: db}, db: db}
	t.Cleanup(func() {
		if err := db.Close(); err != nil {
			t.Error(err)
		}
	})
	for _, id := range agents {
		w.must(db.Agents().Create(t.Context(), fleet.Agent{
			ID: id, Type: "PERMANENT", Active: true, PolicyID: "default", EnrolledAt: time.Now().UTC(), Version: "1.0.0", Tags: []string{},
			AccessKeyID: "key-" + id, AccessKeyHash: fleet.Credential{Secret: "secret"}.Hash(), WatcherKeyID: "watcher-" + id,
			LocalMetadata: metadata("1.0.0"),
		}))
	}
	w.must(db.Packages().Create(t.Context(), fleet.Package{File: "muster-agent-1.1.0-linux-amd64.tar.gz", Version: "1.1.0", OS: "linux", Arch: "amd64"}))
	w.server = w.start(outage.DefaultMaxBytes)
	return w
}

func metadata(version string) json.RawMessage {
	return json.RawMessage(fmt.Sprintf(`{"elastic":{"agent":{"version":%q,"upgradeable":true}},"host":{"hostname":"web","architecture":"amd64"},"os":{"type":"linux"}}`, version))
}

// start starts a server on the store and what an earlier one has left.
func (w *world) start(maxBytes int64) *server {
	w.t.Helper()
	s := &server{parker: &checkin.Blocking{}}
	var err error
	s.Keeper, err = outage.New(w.dir, maxBytes, w.store.Agents(), w.store.Ping, quiet, nil)
	w.must(err)
	events := &event.Stream{Store: w.store.Events(), Log: quiet}
	feed, err := action.NewFeed(context.Background(), w.db.Actions(), s.parker.Wake, quiet)
	w.must(err)
	feed.Outage = s.Keeper
	s.ledger = &checkin.Ledger{Agents: w.store.Agents(), Parker: s.parker, Log: quiet, Outage: s.Keeper}
	s.actions = &action.Service{Store: w.store, Feed: feed, Events: events, Log: quiet, Outage: s.Keeper}
	s.beacons = &beacon.Service{Agents: w.store.Agents(), Events: events, Outage: s.Keeper}
	s.enroll = &enrollment.Service{Store: w.store, Events: events, Outage: s.Keeper}
	s.checkin = &checkin.Service{
		Agents: w.store.Agents(), Actions: w.store.Actions(), Results: w.store.Results(), Inbox: feed, Parker: s.parker, Ledger: s.ledger, Events: events, Log: quiet, Outage: s.Keeper,
	}
	s.Write = map[outage.Kind]outage.Writer{
		outage.Checkin: s.checkin.WriteKept, outage.Ack: s.actions.WriteKept, outage.Beacon: s.beacons.WriteKept, outage.Left: s.enroll.WriteKept,
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{}, 3)
	for _, loop := range []func(context.Context){s.Run, feed.Run, s.ledger.Run} {
		go func() { loop(ctx); done <- struct{}{} }()
	}
	s.stop = func() {
		if cancel == nil {
			return
		}
		if err := s.parker.Close(context.Background()); err != nil {
			w.t.Error(err)
		}
		cancel()
		cancel = nil
		for range 3 {
			<-done
		}
		if err := s.Close(); err != nil {
			w.t.Error(err)
		}
	}
	w.t.Cleanup(func() { s.stop() })
	return s
}

func (w *world) must(err error) {
	w.t.Helper()
	if err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) eventually(what string, ok func() string) {
	w.t.Helper()
	for deadline := time.Now().Add(20 * time.Second); ; time.Sleep(2 * time.Millisecond) {
		state := ok()
		if state == "" {
			return
		}
		if time.Now().After(deadline) {
			w.t.Fatalf("waited in vain until %s: %s", what, state)
		}
	}
}

// goes takes the store away and waits until the server knows.
func (w *world) goes(m outagetest.Mode) {
	w.t.Helper()
	w.store.Set(m)
	w.server.Failed(fleet.Errorf(fleet.Unavailable, "a message has met it"))
	w.eventually("the server knows that the store is away", func() string {
		if w.server.Away() == nil {
			return "it takes it for there"
		}
		return ""
	})
	w.store.Asked.Store(0)
}

// returns brings it back and waits until all that was kept is written.
func (w *world) returns() {
	w.t.Helper()
	w.store.Set(outagetest.There)
	w.caughtUp()
}

func (w *world) caughtUp() {
	w.t.Helper()
	w.eventually("all that was kept is written", func() string { return w.server.Degraded() })
}

// agent is the agent as the authentication finds it.
func (w *world) agent(id string) fleet.Agent {
	w.t.Helper()
	a, err := w.server.ByAccessKey(w.t.Context(), "key-"+id)
	w.must(err)
	return a
}

// document is the agent as the store has it.
func (w *world) document(id string) fleet.Agent {
	w.t.Helper()
	a, err := w.db.Agents().Get(w.t.Context(), id)
	w.must(err)
	return a
}

// poll sends a check-in, and returns when it is parked or answered. The agent's last
// poll must be over.
func (w *world) poll(id string, req agentapi.CheckinRequest) *poll {
	w.t.Helper()
	if req.Status == "" {
		req.Status = "online"
	}
	if req.LocalMeta == nil {
		req.LocalMeta = metadata("1.0.0")
	}
	ctx, hangUp := context.WithCancel(context.Background())
	p := &poll{w: w, done: make(chan struct{}), answer: httptest.NewRecorder(), hangUp: hangUp}
	agent := w.agent(id)
	go func() {
		defer close(p.done)
		if err := w.server.checkin.Handle(p.answer, httptest.NewRequest(http.MethodPost, "/", http.NoBody).WithContext(ctx), agent, req, presence.Mark{}); err != nil {
			w.t.Error(err)
		}
	}()
	w.t.Cleanup(func() { hangUp(); <-p.done })
	w.eventually("the poll is parked", func() string {
		select {
		case <-p.done:
			return ""
		default:
		}
		state := "it is not"
		w.server.parker.Parked(func(parked string) {
			if parked == id {
				state = ""
			}
		})
		return state
	})
	return p
}

type poll struct {
	w      *world
	done   chan struct{}
	answer *httptest.ResponseRecorder
	hangUp func()
}

// leave hangs up, as an agent that has more to say does.
func (p *poll) leave() {
	p.w.t.Helper()
	p.hangUp()
	<-p.done
	if p.answer.Body.Len() > 0 {
		p.w.t.Fatalf("the poll was answered %s; want it parked", p.answer.Body)
	}
}

// delivered waits for the answer and returns the ids of its actions.
func (p *poll) delivered() agentapi.CheckinResponse {
	p.w.t.Helper()
	select {
	case <-p.done:
	case <-time.After(20 * time.Second):
		p.w.t.Fatal("no answer within 20 s")
	}
	var resp agentapi.CheckinResponse
	p.w.must(json.Unmarshal(p.answer.Body.Bytes(), &resp))
	if p.answer.Code != http.StatusOK {
		p.w.t.Fatalf("the answer is %d %s", p.answer.Code, p.answer.Body)
	}
	return resp
}

func (w *world) order(ids ...string) fleet.Action {
	w.t.Helper()
	a, err := w.server.actions.Upgrade(w.t.Context(), action.UpgradeOrder{UpgradeWish: fleet.UpgradeWish{Version: "1.1.0"}, AgentIDs: ids, Actor: "ann"})
	w.must(err)
	return a
}

func (w *world) ack(id, actionID, errText string) agentapi.AckItem {
	w.t.Helper()
	return w.server.actions.Ack(w.t.Context(), w.agent(id), []agentapi.AckEvent{{ActionID: actionID, AgentID: id, Error: errText}})[0]
}

func details(a fleet.Action, state agentapi.UpgradeState) *agentapi.UpgradeDetails {
	return &agentapi.UpgradeDetails{TargetVersion: "1.1.0", ActionID: a.ID, State: state}
}

// phases are those the stream tells of, in order.
func (w *world) phases(id string) string {
	w.t.Helper()
	events, err := w.db.Events().After(w.t.Context(), 0, 1000)
	w.must(err)
	var out []string
	for _, e := range events {
		var data struct {
			Details *agentapi.UpgradeDetails `json:"upgrade_details"`
		}
		if e.Type == fleet.EventAgentUpgrade && e.Subject == id && json.Unmarshal(e.Data, &data) == nil && data.Details != nil {
			out = append(out, strings.TrimPrefix(string(data.Details.State), "UPG_"))
		}
	}
	return strings.Join(out, " ")
}

// An upgrade goes on through an outage: every phase is written in the order in
// which it was said, with the time at which it was said, and nobody is asked to
// say anything again.
func TestAnUpgradeGoesOnThroughAnOutage(t *testing.T) {
	t.Parallel()
	for name, mode := range map[string]outagetest.Mode{"gone": outagetest.Gone, "hanging": outagetest.Hanging} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, "a", "b")
			up := w.order("a")
			p := w.poll("a", agentapi.CheckinRequest{})
			token := p.delivered().AckToken
			w.agent("b")
			w.goes(mode)

			begun := time.Now().UTC()
			for _, state := range []agentapi.UpgradeState{agentapi.UpgradeDownloading, agentapi.UpgradeExtracting, agentapi.UpgradeReplacing, agentapi.UpgradeRestarting} {
				w.poll("a", agentapi.CheckinRequest{AckToken: token, UpgradeDetails: details(up, state)}).leave()
			}
			w.must(w.server.beacons.Take(t.Context(), w.agent("a"), agentapi.Beacon{ActionID: up.ID, From: "1.0.0", To: "1.1.0", Stage: agentapi.BeaconWatching, At: begun}))
			if item := w.ack("a", up.ID, ""); item.Status != http.StatusOK {
				t.Errorf("the acknowledgement is answered %+v", item)
			}
			last := w.poll("a", agentapi.CheckinRequest{AckToken: token, LocalMeta: metadata("1.1.0"), UpgradeDetails: details(up, agentapi.UpgradeWatching)})
			ended := time.Now().UTC()
			if n := w.store.Asked.Load(); n != 0 {
				t.Errorf("a store that was known to be away was asked %d times", n)
			}
			if text := w.server.Degraded(); !strings.Contains(text, "the store has been away since") || !strings.Contains(text, "7 messages") {
				t.Errorf("the server says %q", text)
			}

			w.returns()
			if got := w.phases("a"); got != "DOWNLOADING EXTRACTING REPLACING RESTARTING WATCHING" {
				t.Errorf("the phases were %s", got)
			}
			a := w.document("a")
			if a.Version != "1.1.0" || a.Upgrading() || a.Last.ActionSeq != up.Seq || a.Watch == nil {
				t.Errorf("after the outage it runs %s, upgrading: %t, seq %d, watch %+v", a.Version, a.Upgrading(), a.Last.ActionSeq, a.Watch)
			}
			if a.UpgradedAt == nil || a.UpgradedAt.Before(begun) || a.UpgradedAt.After(ended) {
				t.Errorf("upgraded at %v, it was between %s and %s", a.UpgradedAt, begun, ended)
			}
			r, err := w.db.Results().Get(t.Context(), up.ID, "a")
			if err != nil || r.Error != "" || r.Timestamp.After(ended) {
				t.Errorf("the result is %+v, %v", r, err)
			}
			if a.UsualGap != 0 {
				t.Errorf("the outage is taken for the agent's silence of %s", time.Duration(a.UsualGap))
			}
			last.leave()
			if w.server.Dropped() != 0 {
				t.Errorf("%d messages were dropped", w.server.Dropped())
			}
		})
	}
}

// A message that meets the store just as it goes away waits no longer than
// CallTimeout, and is kept.
func TestTheFirstMessageIsKeptToo(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "a")
	up := w.order("a")
	agent := w.agent("a")
	w.store.Set(outagetest.Hanging)
	begun := time.Now()
	item := w.server.actions.Ack(t.Context(), agent, []agentapi.AckEvent{{ActionID: up.ID, Error: "the disk is full"}})[0]
	if took := time.Since(begun); item.Status != http.StatusOK || took > outage.CallTimeout+3*time.Second {
		t.Errorf("after %s it is answered %+v", took, item)
	}
	w.returns()
	if r, err := w.db.Results().Get(t.Context(), up.ID, "a"); err != nil || r.Error != "the disk is full" {
		t.Errorf("the result is %+v, %v", r, err)
	}
}

// A server dies in the middle of writing what it kept: the next writes the rest,
// and what is written twice changes nothing.
func TestACrashInTheMiddleOfTheReplay(t *testing.T) {
	t.Parallel()
	for _, dieAt := range []int64{0, 2, 4} {
		t.Run(fmt.Sprint("after ", dieAt, " writes"), func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, "a")
			up := w.order("a")
			token := w.poll("a", agentapi.CheckinRequest{}).delivered().AckToken
			w.goes(outagetest.Gone)
			for _, state := range []agentapi.UpgradeState{agentapi.UpgradeDownloading, agentapi.UpgradeExtracting, agentapi.UpgradeReplacing} {
				w.poll("a", agentapi.CheckinRequest{AckToken: token, UpgradeDetails: details(up, state)}).leave()
			}
			if item := w.ack("a", up.ID, "the archive is broken"); item.Status != http.StatusOK {
				t.Fatalf("the acknowledgement is answered %+v", item)
			}
			failed := details(up, agentapi.UpgradeFailed)
			failed.Metadata.ErrorMsg, failed.Metadata.FailedState = "the archive is broken", agentapi.UpgradeReplacing
			w.poll("a", agentapi.CheckinRequest{AckToken: token, UpgradeDetails: failed}).leave()

			// The journal as it is now is what the crash leaves, for nothing is
			// removed before all are written; the store has taken the first in.
			image := t.TempDir()
			w.must(os.CopyFS(image, os.DirFS(w.dir)))
			var writes atomic.Int64
			w.store.Before(func(call string) error {
				if call == "agents.report" && writes.Add(1) > dieAt {
					return fleet.Errorf(fleet.Unavailable, "the server is dying")
				}
				return nil
			})
			w.store.Set(outagetest.There)
			w.eventually("the server dies", func() string {
				if n := writes.Load(); n <= dieAt {
					return fmt.Sprint("there were ", n, " writes")
				}
				return ""
			})
			w.server.stop()
			w.store.Before(nil)
			w.dir = image
			w.server = w.start(outage.DefaultMaxBytes)
			w.caughtUp()
			got := strings.Fields(w.phases("a"))
			if got = slices.Compact(got); strings.Join(got, " ") != "DOWNLOADING EXTRACTING REPLACING FAILED" {
				t.Errorf("the phases were %v", got)
			}
			if a := w.document("a"); a.UpgradeStatus != fleet.UpgradeFailed || a.UpgradeDetails == nil || a.UpgradeDetails.State != agentapi.UpgradeFailed {
				t.Errorf("the agent is %q with %+v", a.UpgradeStatus, a.UpgradeDetails)
			}
			if r, err := w.db.Results().Get(t.Context(), up.ID, "a"); err != nil || r.Error != "the archive is broken" {
				t.Errorf("the result is %+v, %v", r, err)
			}
		})
	}
}

// An agent whose last words are not written yet could be given what it has done.
func TestNobodyIsGivenWhatItHasDone(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "a", "b")
	w.agent("b")
	up := w.order("a")
	// The agent has the action, and was put back to a state without its token.
	w.poll("a", agentapi.CheckinRequest{}).delivered()
	w.goes(outagetest.Gone)
	if item := w.ack("a", up.ID, "it was rolled back"); item.Status != http.StatusOK {
		t.Fatalf("the acknowledgement is answered %+v", item)
	}
	// The store is back for all but the write of that acknowledgement.
	held := make(chan struct{})
	w.store.Before(func(call string) error {
		if call == "results.get" {
			return nil
		}
		select {
		case <-held:
			return nil
		default:
		}
		if call == "agents.report" {
			return fleet.Errorf(fleet.Conflict, "somebody else writes")
		}
		return nil
	})
	w.store.Set(outagetest.There)
	w.eventually("the store is back", func() string {
		if err := w.server.Away(); err != nil {
			return err.Error()
		}
		return ""
	})
	p := w.poll("a", agentapi.CheckinRequest{})
	other := w.poll("b", agentapi.CheckinRequest{})
	w.server.parker.Wake("a")
	select {
	case <-p.done:
		t.Fatalf("it was given %s", p.answer.Body)
	case <-time.After(50 * time.Millisecond):
	}
	if !strings.Contains(w.server.Degraded(), "catching up") {
		t.Errorf("the server says %q", w.server.Degraded())
	}
	close(held)
	w.caughtUp()
	w.server.parker.Wake("a")
	other.leave()
	if resp := p.delivered(); len(resp.Actions) != 0 || resp.AckToken == "" {
		t.Errorf("it was given %+v, want the token it has lost alone", resp)
	}
	if r, err := w.db.Results().Get(t.Context(), up.ID, "a"); err != nil || r.Error != "it was rolled back" {
		t.Errorf("the result is %+v, %v", r, err)
	}
}

// Agents that were parked through the outage are given what was ordered as soon as
// there was a store to order it in, once.
func TestParkedAgentsGetWhatIsOrderedAtTheReturn(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "before", "during")
	w.agent("during")
	before := w.poll("before", agentapi.CheckinRequest{})
	w.goes(outagetest.Gone)
	during := w.poll("during", agentapi.CheckinRequest{})
	w.store.Set(outagetest.There)
	up := w.order("before", "during")
	for name, p := range map[string]*poll{"before": before, "during": during} {
		resp := p.delivered()
		if len(resp.Actions) != 1 || resp.Actions[0].ID != up.ID {
			t.Errorf("who was parked %s was given %+v", name, resp.Actions)
		}
		w.poll(name, agentapi.CheckinRequest{AckToken: resp.AckToken}).leave()
	}
}

// Check-ins that say nothing new take no room, and the agents count as seen when the
// store is back.
func TestNothingNewIsNotKept(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "a")
	w.poll("a", agentapi.CheckinRequest{}).leave()
	w.goes(outagetest.Gone)
	for range 3 {
		w.poll("a", agentapi.CheckinRequest{}).leave()
	}
	b := agentapi.Beacon{From: "1.0.0", To: "1.1.0", Stage: agentapi.BeaconWatching}
	for n := range 3 {
		b.At = time.Now().Add(time.Duration(n) * time.Minute)
		w.must(w.server.beacons.Take(t.Context(), w.agent("a"), b))
	}
	if n, _ := w.server.Journal.Size(); n != 1 {
		t.Errorf("%d messages are kept, want the first beacon alone", n)
	}
	w.poll("a", agentapi.CheckinRequest{Status: "degraded", Message: "a disk"}).leave()
	last := w.poll("a", agentapi.CheckinRequest{})
	if n, _ := w.server.Journal.Size(); n != 3 {
		t.Errorf("%d messages are kept, want two more", n)
	}
	w.returns()
	w.server.parker.Wake("a")
	w.eventually("the agent is seen", func() string {
		if a := w.document("a"); a.Last.At == nil || a.Last.Status != "online" {
			return fmt.Sprintf("it is %+v", a.Last)
		}
		return ""
	})
	last.leave()
}

// A download is told of each second. Its phase is kept once, and where it has got to
// the parked agent says when the store is back.
func TestFiguresOfADownloadAreNotKept(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "a")
	a := w.document("a")
	a.BeginUpgrade("up", "1.1.0", time.Now().UTC())
	_, err := w.db.Agents().Update(t.Context(), a)
	w.must(err)
	downloading := func(percent float64) agentapi.CheckinRequest {
		return agentapi.CheckinRequest{UpgradeDetails: &agentapi.UpgradeDetails{
			TargetVersion: "1.1.0", ActionID: "up", State: agentapi.UpgradeDownloading,
			Metadata: agentapi.UpgradeMetadata{DownloadPercent: percent, DownloadRate: agentapi.Rate(1000 + percent)},
		}}
	}
	w.poll("a", agentapi.CheckinRequest{}).leave()
	w.goes(outagetest.Gone)
	for percent := range 50 {
		w.poll("a", downloading(float64(percent))).leave()
	}
	if n, _ := w.server.Journal.Size(); n != 1 {
		t.Errorf("%d messages are kept, want the phase alone", n)
	}
	trouble := downloading(50)
	trouble.UpgradeDetails.Metadata.RetryErrorMsg = "connection refused"
	w.poll("a", trouble).leave()
	if n, _ := w.server.Journal.Size(); n != 2 {
		t.Errorf("%d messages are kept, want what went wrong too", n)
	}
	last := w.poll("a", downloading(60))
	w.returns()
	w.server.parker.Wake("a")
	w.eventually("the store has the last figure", func() string {
		if d := w.document("a").UpgradeDetails; d == nil || d.Metadata.DownloadPercent != 60 {
			return fmt.Sprintf("it has %+v", d)
		}
		return ""
	})
	last.leave()
}

// A check-in that another server has overtaken changes nothing any more.
func TestAnOlderWordIsPassedOver(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "a")
	w.agent("a")
	w.goes(outagetest.Gone)
	w.poll("a", agentapi.CheckinRequest{Status: "degraded", LocalMeta: metadata("1.0.0")}).leave()
	// As another server would, to which the store answers again a little earlier.
	later := time.Now().UTC()
	_, err := w.db.Agents().Report(t.Context(), func() (r store.Report) {
		a := w.document("a")
		a.Version, a.LocalMetadata = "1.1.0", metadata("1.1.0")
		r.Agent, r.Seen = &a, &fleet.Touch{AgentID: "a", At: later, Status: "online"}
		return r
	}())
	w.must(err)
	w.returns()
	if a := w.document("a"); a.Version != "1.1.0" || a.Last.Status != "online" || !a.Last.At.Equal(later) {
		t.Errorf("the agent runs %s, %+v", a.Version, a.Last)
	}
}

// Two requests of an agent waited for a store that hangs, and the later was let go
// first.
func TestWordsAreWrittenInTheOrderInWhichTheyCame(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "a")
	a := w.order("a")
	agent := w.agent("a")
	w.goes(outagetest.Hanging)
	came := time.Now().UTC()
	for _, said := range []struct {
		state agentapi.UpgradeState
		at    time.Time
	}{{agentapi.UpgradeReplacing, came.Add(time.Second)}, {agentapi.UpgradeDownloading, came}} {
		kept, err := w.server.Take(outage.Arrived(t.Context(), said.at), outage.Word{
			Agent: agent, Kind: outage.Checkin, At: came.Add(time.Minute),
			Body: agentapi.CheckinRequest{Status: "online", LocalMeta: metadata("1.0.0"), UpgradeDetails: details(a, said.state)},
		}, nil)
		if err != nil || !kept {
			t.Fatalf("kept is %t, %v", kept, err)
		}
	}
	w.returns()
	if got := w.phases("a"); got != "DOWNLOADING REPLACING" {
		t.Errorf("the phases are %q", got)
	}
}

// What a host said before it enrolled again is nobody's word any more, and neither
// is what cannot be.
func TestWhatNothingCanComeOfIsDropped(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "a", "b", "c")
	for _, id := range []string{"a", "b", "c"} {
		w.agent(id)
	}
	w.goes(outagetest.Gone)
	w.poll("a", agentapi.CheckinRequest{Status: "degraded"}).leave()
	w.poll("b", agentapi.CheckinRequest{Status: "degraded"}).leave()
	if item := w.ack("c", "no-such-action", ""); item.Status != http.StatusOK {
		t.Fatalf("the acknowledgement is answered %+v", item)
	}
	w.must(w.server.enroll.Left(t.Context(), w.agent("c"), "uninstall"))
	a := w.document("a")
	a.AccessKeyID = "key-of-the-new-a"
	_, err := w.db.Agents().Update(t.Context(), a)
	w.must(err)
	w.must(w.db.Agents().Delete(t.Context(), "b"))
	w.returns()
	if n := w.server.Dropped(); n != 3 {
		t.Errorf("%d messages were dropped, want 3", n)
	}
	if a := w.document("a"); a.Last.Status != "" {
		t.Errorf("the new agent says %+v", a.Last)
	}
	if c := w.document("c"); c.AuditUnenrolledReason != "uninstall" {
		t.Errorf("the agent that left says %q", c.AuditUnenrolledReason)
	}
}

// A message that the store, which is there, never takes does not hold up the agent
// for ever.
func TestAMessageThatIsNeverTakenIsGivenUp(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "a", "b")
	w.agent("a")
	w.agent("b")
	w.goes(outagetest.Gone)
	for _, id := range []string{"a", "b"} {
		w.poll(id, agentapi.CheckinRequest{Status: "degraded"}).leave()
	}
	w.store.Before(func(call string) error {
		if call == "actions.get" {
			return fleet.Errorf(fleet.Internal, "a mistake of ours")
		}
		return nil
	})
	if item := w.ack("a", "x", ""); item.Status != http.StatusOK {
		t.Fatalf("the acknowledgement is answered %+v", item)
	}
	w.returns()
	if n := w.server.Dropped(); n != 1 || w.document("a").Last.Status != "degraded" || w.document("b").Last.Status != "degraded" {
		t.Errorf("%d messages were dropped; the agents are %+v and %+v", n, w.document("a").Last, w.document("b").Last)
	}
}

// An upgrade whose phases are still in the journal looks as if nobody had begun it:
// it is not judged before they are written.
func TestNoUpgradeIsSettledBeforeItsPhasesAreWritten(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "a")
	up := w.order("a")
	w.agent("a")
	w.goes(outagetest.Gone)
	var asked, refused atomic.Int64
	w.store.Before(func(call string) error {
		if call == "agents.upgrading" {
			asked.Add(1)
		}
		if call == "agents.report" && refused.Add(1) == 1 {
			return fleet.Errorf(fleet.Conflict, "somebody else writes") // so that it stays in the journal for a second
		}
		return nil
	})
	w.poll("a", agentapi.CheckinRequest{UpgradeDetails: details(up, agentapi.UpgradeDownloading)}).leave()
	once, cancel := context.WithCancel(t.Context())
	cancel()
	w.server.actions.Settle(once) // one round
	w.store.Set(outagetest.There)
	w.eventually("it is being written", func() string {
		if refused.Load() == 0 {
			return "it is not"
		}
		return ""
	})
	if w.server.CaughtUp() != nil {
		w.server.actions.Settle(once)
	}
	if n := asked.Load(); n != 0 {
		t.Errorf("upgrades were looked at %d times in the outage", n)
	}
	w.caughtUp()
	w.server.actions.Settle(once)
	if n := asked.Load(); n != 1 {
		t.Errorf("upgrades were looked at %d times after it", n)
	}
}

// A full journal: check-ins stay parked and are taken in when the store is back,
// acknowledgements are asked for again.
func TestAFullJournal(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "a")
	w.server.stop()
	w.server = w.start(1000)
	up := w.order("a")
	agent := w.agent("a")
	w.goes(outagetest.Gone)
	var item agentapi.AckItem
	for range 20 {
		if item = w.server.actions.Ack(t.Context(), agent, []agentapi.AckEvent{{ActionID: up.ID, Error: "the disk is full"}})[0]; item.Status != http.StatusOK {
			break
		}
	}
	if item.Status != http.StatusServiceUnavailable || !strings.Contains(item.Message, "full") {
		t.Errorf("a full journal answers %+v", item)
	}
	p := w.poll("a", agentapi.CheckinRequest{Status: "degraded", Message: "a disk"})
	if text := w.server.Degraded(); !strings.Contains(text, "the outage journal is full") {
		t.Errorf("the server says %q", text)
	}
	w.returns()
	w.server.parker.Wake("a")
	w.eventually("the check-in is taken in", func() string {
		if a := w.document("a"); a.Last.Status != "degraded" {
			return fmt.Sprintf("it is %+v", a.Last)
		}
		return ""
	})
	_ = p
}

// Who the agents are is known from memory, and nothing is denied that is not so.
func TestWhoAgentsAreInAnOutage(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "a", "b")
	w.agent("a")
	w.goes(outagetest.Gone)
	a, err := w.server.ByAccessKey(t.Context(), "key-a")
	if err != nil || a.ID != "a" || !a.Active || !(fleet.Credential{Secret: "secret"}).Matches(a.AccessKeyHash) || (fleet.Credential{Secret: "another"}).Matches(a.AccessKeyHash) {
		t.Errorf("the known agent is %+v, %v", a, err)
	}
	if a, err := w.server.ByWatcherKey(t.Context(), "a", "watcher-a"); err != nil || a.WatcherKeyID != "watcher-a" {
		t.Errorf("its watcher's is %+v, %v", a, err)
	}
	for what, ask := range map[string]func() (fleet.Agent, error){
		"an agent that was not seen": func() (fleet.Agent, error) { return w.server.ByAccessKey(t.Context(), "key-b") },
		"its watcher":                func() (fleet.Agent, error) { return w.server.ByWatcherKey(t.Context(), "b", "watcher-b") },
		"a watcher with a newer key": func() (fleet.Agent, error) { return w.server.ByWatcherKey(t.Context(), "a", "watcher-a2") },
		"a key nobody has":           func() (fleet.Agent, error) { return w.server.ByAccessKey(t.Context(), "stranger") },
	} {
		if _, err := ask(); fleet.KindOf(err) != fleet.Unavailable {
			t.Errorf("%s is told %v", what, err)
		}
	}
	w.returns()
	if _, err := w.server.ByAccessKey(t.Context(), "stranger"); fleet.KindOf(err) != fleet.NotFound {
		t.Errorf("when the store is back, a stranger is told %v", err)
	}
}
