package checkin_test

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/muster-fleet/muster/server/agents/agentcache"
	"github.com/muster-fleet/muster/server/agents/checkin"
	"github.com/muster-fleet/muster/server/fleet"
	"github.com/muster-fleet/muster/server/rollout/action"
	"github.com/muster-fleet/muster/server/store"
	"github.com/muster-fleet/muster/server/store/event"
	"github.com/muster-fleet/muster/server/store/sqlite"
	"github.com/muster-fleet/muster/server/store/storehealth"
	"github.com/muster-fleet/muster/server/wire/agentapi"
)

// world is a server without its handlers: the real store, and one agent.
type world struct {
	t       *testing.T
	store   *sqlite.Store
	agents  *awayAgents
	parker  *checkin.Blocking
	service *checkin.Service
	actions *action.Service
	feed    *action.Feed
	cache   *agentcache.Cache
}

const agentID = "web-1"

// generation is that of the store.
const generation = "a1b2"

// token returns the ack token of an action. Its digest is a number, and so has no leading zeros.
func token(seq int64, actionID string) string {
	sum := sha256.Sum256([]byte(actionID))
	return fmt.Sprintf("%s-%d-%x", generation, seq, binary.BigEndian.Uint64(sum[:]))
}

func metadata(version string) string {
	return fmt.Sprintf(`{"elastic":{"agent":{"version":%q,"upgradeable":true}},"host":{"hostname":"web","architecture":"amd64"},"os":{"type":"linux"}}`, version)
}

func newWorld(t *testing.T) *world {
	t.Helper()
	s, err := sqlite.Open(t.Context(), filepath.Join(t.TempDir(), "muster.db"), sqlite.Options{})
	if err != nil {
		t.Fatal(err)
	}
	log := slog.New(slog.DiscardHandler)
	w := &world{t: t, store: s, agents: &awayAgents{Agents: s.Agents(), results: s.Results()}, parker: &checkin.Blocking{}}
	events := &event.Stream{Store: s.Events(), Log: log}
	health := &storehealth.Monitor{}
	w.cache = agentcache.New(s.OnAgentChange, health.Away)
	feed, err := action.NewFeed(t.Context(), s.Actions(), w.parker.Wake, health, log)
	w.must(err)
	w.feed = feed
	w.actions = &action.Service{Store: s, Health: health, Feed: feed, Events: events, Log: log}
	w.service = &checkin.Service{
		Agents: w.agents, Actions: s.Actions(), Results: s.Results(), Pending: feed, Parker: w.parker, Events: events, Log: log, Generation: generation,
		Cache: w.cache, Health: health, LastSeen: &checkin.LastSeen{Agents: s.Agents(), Parker: w.parker, Cache: w.cache, Health: health, Log: log},
	}
	ctx, stop := context.WithCancel(context.Background())
	fed := make(chan struct{})
	go func() { defer close(fed); feed.Run(ctx) }()
	t.Cleanup(func() {
		if err := w.parker.Close(context.Background()); err != nil {
			t.Error(err)
		}
		stop()
		<-fed
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	w.must(s.Agents().Create(t.Context(), fleet.Agent{
		ID: agentID, Type: "PERMANENT", Active: true, PolicyID: "default", AccessKeyID: "key-1", EnrolledAt: time.Now().UTC(),
		Version: "1.0.0", LocalMetadata: json.RawMessage(metadata("1.0.0")), Tags: []string{},
	}))
	w.must(s.Packages().Create(t.Context(), fleet.Package{File: "muster-agent-1.1.0-linux-amd64.tar.gz", Version: "1.1.0", OS: "linux", Arch: "amd64"}))
	return w
}

func (w *world) must(err error) {
	w.t.Helper()
	if err != nil {
		w.t.Fatal(err)
	}
}

// fed waits until the feed has read n actions for the agent: a check-in before
// that gets those that it has, and the others afterwards.
func (w *world) fed(n int) {
	w.t.Helper()
	w.eventually(func() error {
		ids, _, err := w.feed.Pending(w.t.Context(), agentID, 0, time.Now(), n)
		if err == nil && len(ids) < n {
			err = fmt.Errorf("%d actions have come, want %d", len(ids), n)
		}
		return err
	})
}

// agent is as the store has it once LastSeen has written.
func (w *world) agent() fleet.Agent {
	w.t.Helper()
	w.service.LastSeen.Flush(w.t.Context())
	a, err := w.store.Agents().Get(w.t.Context(), agentID)
	w.must(err)
	return a
}

func (w *world) upgrade() fleet.Action {
	w.t.Helper()
	a, err := w.actions.Upgrade(w.t.Context(), action.UpgradeOrder{UpgradeRequest: fleet.UpgradeRequest{Version: "1.1.0"}, AgentIDs: []string{agentID}, Actor: "ann"})
	w.must(err)
	return a
}

func (w *world) details(a fleet.Action, state agentapi.UpgradeState) *agentapi.UpgradeDetails {
	return &agentapi.UpgradeDetails{TargetVersion: "1.1.0", ActionID: a.ID, State: state}
}

// poll is a check-in under way.
type poll struct {
	w      *world
	done   chan struct{}
	answer *httptest.ResponseRecorder
	err    error
	hangUp context.CancelFunc
}

// checkin sends a check-in of the agent, with status online by default.
func (w *world) checkin(req agentapi.CheckinRequest) *poll {
	w.t.Helper()
	if req.Status == "" {
		req.Status = "online"
	}
	agent := w.agent() // as the authentication reads it
	ctx, hangUp := context.WithCancel(context.Background())
	p := &poll{w: w, done: make(chan struct{}), answer: httptest.NewRecorder(), hangUp: hangUp}
	go func() {
		defer close(p.done)
		p.err = w.service.Handle(p.answer, httptest.NewRequest(http.MethodPost, "/", http.NoBody).WithContext(ctx), agent, req, checkin.Received{})
	}()
	return p
}

// parked waits until the poll is parked.
func (p *poll) parked() *poll {
	p.w.t.Helper()
	p.w.eventually(func() error {
		select {
		case <-p.done:
			p.w.t.Fatalf("answered %s, error %v; want it parked", p.answer.Body, p.err)
		default:
		}
		if p.w.parker.Count() == 0 {
			return errors.New("the poll is not parked")
		}
		return nil
	})
	return p
}

// unavailable waits until the check-in is refused for the store's sake.
func (p *poll) unavailable() {
	p.w.t.Helper()
	select {
	case <-p.done:
	case <-time.After(20 * time.Second):
		p.w.t.Fatal("no answer within 20 s")
	}
	if fleet.KindOf(p.err) != fleet.Unavailable || p.answer.Body.Len() > 0 {
		p.w.t.Fatalf("answered %s, error %v; want it unavailable", p.answer.Body, p.err)
	}
}

// leave disconnects and waits until no poll is parked.
func (p *poll) leave() {
	p.w.t.Helper()
	p.hangUp()
	<-p.done
	if n := p.w.parker.Count(); n != 0 {
		p.w.t.Fatalf("%d polls are parked after hanging up", n)
	}
}

// response waits for the answer.
func (p *poll) response() agentapi.CheckinResponse {
	p.w.t.Helper()
	select {
	case <-p.done:
	case <-time.After(20 * time.Second):
		p.w.t.Fatal("no answer within 20 s")
	}
	p.w.must(p.err)
	var resp agentapi.CheckinResponse
	p.w.must(json.Unmarshal(p.answer.Body.Bytes(), &resp))
	if p.answer.Code != http.StatusOK || resp.Action != "checkin" || resp.Actions == nil {
		p.w.t.Fatalf("answer is %d %s", p.answer.Code, p.answer.Body)
	}
	return resp
}

// delivers wants the actions with these ids in the answer.
func (p *poll) delivers(ids ...string) agentapi.CheckinResponse {
	p.w.t.Helper()
	resp := p.response()
	var got []string
	for _, a := range resp.Actions {
		got = append(got, a.ID)
		if a.AgentID != agentID {
			p.w.t.Errorf("action %s is for agent %q", a.ID, a.AgentID)
		}
	}
	if strings.Join(got, " ") != strings.Join(ids, " ") {
		p.w.t.Fatalf("delivered %v, want %v", got, ids)
	}
	return resp
}

func (w *world) eventually(check func() error) {
	w.t.Helper()
	for deadline := time.Now().Add(20 * time.Second); ; time.Sleep(time.Millisecond) {
		err := check()
		if err == nil {
			return
		}
		if time.Now().After(deadline) {
			w.t.Fatalf("after 20 s: %v", err)
		}
	}
}

// events are the types on the stream after the first n.
func (w *world) events(n int) []fleet.Event {
	w.t.Helper()
	list, err := w.store.Events().After(w.t.Context(), int64(n), 1_000)
	w.must(err)
	return list
}

// awayAgents is a store that can go away in the middle of a report: when the
// results are written, the rest is not.
type awayAgents struct {
	store.Agents
	results store.Results
	away    atomic.Bool
}

func (a *awayAgents) Report(ctx context.Context, r store.Report) (int64, error) {
	if a.away.Load() {
		_, err := a.results.Put(ctx, r.Results)
		return 0, errors.Join(fleet.Errorf(fleet.Unavailable, "the store is away"), err)
	}
	return a.Agents.Report(ctx, r)
}
