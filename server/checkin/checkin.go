package checkin

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"reflect"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/muster-fleet/muster/server/agentapi"
	"github.com/muster-fleet/muster/server/clock"
	"github.com/muster-fleet/muster/server/event"
	"github.com/muster-fleet/muster/server/fleet"
	"github.com/muster-fleet/muster/server/limit"
	"github.com/muster-fleet/muster/server/outage"
	"github.com/muster-fleet/muster/server/presence"
	"github.com/muster-fleet/muster/server/store"
)

// Defaults of the long poll, Fleet Server's.
const (
	// DefaultPoll is below the idle limits of common proxies and NAT tables.
	DefaultPoll = 5 * time.Minute
	// DefaultPollJitter keeps a fleet that started together from polling
	// together for ever.
	DefaultPollJitter = 30 * time.Second
	// pollMargin is taken off the time an agent says it waits, for the way back.
	pollMargin = 2 * time.Minute
	minPoll    = time.Minute
	maxPoll    = time.Hour

	// MaxActions bounds the actions of one answer; the rest comes with the next.
	MaxActions = 100
)

// Service takes in check-ins.
type Service struct {
	Agents  store.Agents
	Actions store.Actions
	Results store.Results
	// Inbox knows what agents have to do without asking the store for each; nil:
	// the store is asked.
	Inbox  Inbox
	Parker Parker
	Ledger *Ledger
	// Presence remembers what agents said that changed nothing; nil does not.
	Presence *presence.Registry
	Events   *event.Stream
	Log      *slog.Logger
	Now      clock.Clock
	// Outage keeps what agents say while the store is away; nil keeps nothing.
	Outage *outage.Keeper
	// Poll and PollJitter override the defaults when above zero.
	Poll       time.Duration
	PollJitter time.Duration

	first     sync.Once
	listening time.Time // since the first check-in of this process
	// newest is the highest sequence number of which this process knows that there
	// is an action.
	newest atomic.Int64
}

// Handle answers the check-in of an authenticated agent, at once or by parking
// it. An error means that nothing has been written to w.
// mark says how the same would come again.
func (s *Service) Handle(w http.ResponseWriter, r *http.Request, agent fleet.Agent, req agentapi.CheckinRequest, mark presence.Mark) error {
	ctx := r.Context()
	if req.Status == "" {
		return fleet.FieldError("body.status", "is missing: say online, degraded, error or starting")
	}
	asked, err := pollTimeout(req.PollTimeout)
	if err != nil {
		return err
	}
	if req.LocalMeta, err = objectOrNothing("body.local_metadata", req.LocalMeta); err != nil {
		return err
	}
	if isNull(req.Components) {
		req.Components = nil
	}
	now := s.Now.UTC()
	var after int64
	is := learnt{agent: agent, ticket: mark.Ticket}
	kept, err := s.Outage.Take(ctx, outage.Word{Agent: agent, Kind: outage.Checkin, At: now, Body: req, Gist: gist(req)}, func(ctx context.Context) (err error) {
		after, is, err = s.takeIn(ctx, is, req, now)
		return err
	})
	if err != nil {
		s.Log.Warn("check-in waits for the store", "agent", agent.ID, "error", err)
	}
	wait := Wait{AgentID: agent.ID, After: after}
	if err != nil || kept {
		// The store was away, and the agent is better parked than retrying. What it
		// says is taken in again even if it was kept: a parked agent still says it,
		// whatever another server has heard meanwhile.
		wait.Late = func(ctx context.Context) (after int64, gone bool, err error) {
			return s.takeInLate(ctx, agent, req, now)
		}
	}
	// The token was cut out of the text where it seemed to be; see presence.Word.
	seems := mark.Token == 0 || strconv.FormatInt(mark.Token, 10) == req.AckToken
	if wait.Late == nil && seems && is.rests(req, now) {
		mark.Ticket = is.ticket
		s.Presence.Keep(mark, &is.agent, presence.Known{After: after, Wait: asked}, now)
	}
	s.park(w, r, wait, asked)
	return nil
}

// Again answers a check-in that says what the agent has said before, and that
// changed nothing then, but for its token, 0 if it has none; see presence.Registry.
// false: nothing has been written, for the token is of an action that is not known
// here yet.
func (s *Service) Again(w http.ResponseWriter, r *http.Request, agentID string, known presence.Known, token int64) bool {
	if token > max(s.newest.Load(), known.After) {
		return false
	}
	s.Ledger.Seen(fleet.Touch{AgentID: agentID, At: s.Now.UTC(), ActionSeq: token})
	s.park(w, r, Wait{AgentID: agentID, After: cmp.Or(token, known.After)}, known.Wait)
	return true
}

func (s *Service) park(w http.ResponseWriter, r *http.Request, wait Wait, asked time.Duration) {
	deadline := time.Now().Add(s.pollTime(asked))
	// net/http's own write limit is for ordinary requests.
	_ = http.NewResponseController(w).SetWriteDeadline(deadline.Add(time.Minute))
	limit.Done(r.Context()) // what is parked is not worked on
	s.Parker.Park(Poll{Wait: wait, Deadline: deadline, Writer: w, Request: r, Checker: s})
}

// learnt is an agent as it was in the store, and the ticket that tells whether it
// still is so.
type learnt struct {
	agent  fleet.Agent
	ticket presence.Ticket
	// written says that the check-in has changed the agent.
	written bool
}

// rests says whether the same check-in would change nothing about the agent, now or
// later.
func (is learnt) rests(req agentapi.CheckinRequest, now time.Time) bool {
	if req.UpgradeDetails != nil || !is.agent.Settled() {
		return false
	}
	if !is.written {
		return true
	}
	again := is.agent
	changed, _ := observe(&again, req, 0, now)
	return !changed
}

// gist is what a check-in says. How long the agent is ready to wait is not news,
// and neither are the figures of a download: an agent tells them each second, and a
// fleet that downloads would fill the outage journal with what is out of date when
// the store is back. A parked agent's are read then.
func gist(req agentapi.CheckinRequest) agentapi.CheckinRequest {
	req.PollTimeout = ""
	if req.UpgradeDetails != nil {
		d := *req.UpgradeDetails
		d.Metadata.DownloadPercent, d.Metadata.DownloadRate = 0, 0
		req.UpgradeDetails = &d
	}
	return req
}

// WriteKept writes a check-in that was kept while the store was away. agent has
// just been read. One that is older than what the agent has said since, here or to
// another server, is passed over.
func (s *Service) WriteKept(ctx context.Context, agent fleet.Agent, m outage.Message) error {
	var req agentapi.CheckinRequest
	if err := json.Unmarshal(m.Body, &req); err != nil {
		return fleet.Errorf(fleet.Invalid, "the check-in that was kept cannot be read: %w", err)
	}
	if last := agent.Last.At; last != nil && m.Received.Before(*last) {
		return nil
	}
	_, _, err := s.takeIn(ctx, learnt{agent: agent}, req, m.Received)
	return err
}

// takeInLate is takeIn for an agent that was authenticated long ago. gone says that
// it is not the same any more: it stays parked, and its next check-in tells it why.
func (s *Service) takeInLate(ctx context.Context, agent fleet.Agent, req agentapi.CheckinRequest, now time.Time) (after int64, gone bool, err error) {
	is, err := s.Agents.Get(ctx, agent.ID)
	switch {
	case err != nil && fleet.KindOf(err) == fleet.NotFound:
		return 0, true, nil
	case err != nil:
		return 0, false, err
	case !is.Active || is.AccessKeyID != agent.AccessKeyID:
		return 0, true, nil
	}
	after, _, err = s.takeIn(ctx, learnt{agent: is}, req, now)
	return after, false, err
}

// takeIn writes what the check-in changes about the agent, and returns what the agent
// is then, and the sequence number behind which its next actions are.
func (s *Service) takeIn(ctx context.Context, was learnt, req agentapi.CheckinRequest, now time.Time) (after int64, is learnt, err error) {
	agent := was.agent
	is = was
	seen := fleet.Touch{AgentID: agent.ID, At: now, Status: req.Status, Message: req.Message}
	defer func() {
		if !is.written && err == nil {
			s.Ledger.Seen(seen) // most say nothing new, and are written together
		}
	}()
	token, err := s.token(ctx, agent, req.AckToken)
	if err != nil {
		return 0, is, err
	}
	if token > agent.Last.ActionSeq {
		// Not in the document: an action for the fleet would rewrite all of them at
		// once. A crash takes FlushInterval of the numbers at most. Agents show theirs
		// again and again; one that does not is given its action again, and passes it
		// over.
		seen.ActionSeq = token
	}
	// As the authentication read it: the ledger may write this very check-in
	// before the document is read again.
	gap := agent.Last.Gap(s.listeningSince(), now)
	statusChanged := agent.Last.Status != req.Status || agent.Last.Message != req.Message
	err = s.Events.Tell(ctx, s.Agents, agent, func(a *fleet.Agent) (r store.Report) {
		changed, upgradeChanged := observe(a, req, gap, now)
		if changed {
			// It is written only over what was read.
			r.Agent, is.ticket = a, s.Presence.Ticket(a.ID)
		}
		switch {
		case upgradeChanged:
			r.Results, r.Events = a.UpgradeResults(now), []fleet.Event{a.UpgradeEvent()}
		case statusChanged:
			r.Events = []fleet.Event{{
				Type: fleet.EventAgentStatus, Subject: a.ID, Data: event.Data(map[string]string{"status": req.Status, "message": req.Message}),
			}}
		}
		if is.written = changed || statusChanged; is.written {
			r.Seen, is.agent = &seen, *a
		}
		return r
	})
	if is.written {
		is.ticket = is.ticket.Written()
	}
	// A token older than what the server knows is believed: the agent was rolled
	// back, and what came after it went to a version that is gone.
	return cmp.Or(token, agent.Last.ActionSeq), is, err
}

// listeningSince is since when this server would have heard the agents and known of
// it: the store's absence is its own, too.
func (s *Service) listeningSince() time.Time {
	s.first.Do(func() { s.listening = s.Now.UTC() })
	if back := s.Outage.Since(); back.After(s.listening) {
		return back
	}
	return s.listening
}

// observe takes what the check-in says into the agent's document, and says
// whether that changed anything, and anything about its upgrade.
func observe(a *fleet.Agent, req agentapi.CheckinRequest, gap time.Duration, now time.Time) (changed, upgradeChanged bool) {
	said := fleet.Agent{LocalMetadata: req.LocalMeta}
	upgradeChanged = a.ObserveUpgrade(said.Host().FullVersion(), req.UpgradeDetails, now)
	changed = a.ObserveHealth(req.Status, gap, now) || upgradeChanged
	if len(req.LocalMeta) > 0 && !sameJSON(a.LocalMetadata, req.LocalMeta) {
		a.LocalMetadata, changed = req.LocalMeta, true
	}
	if len(req.Components) > 0 && !sameJSON(a.Components, req.Components) {
		a.Components, changed = req.Components, true
	}
	if req.Upgrade != nil && !reflect.DeepEqual(a.Kept, *req.Upgrade) {
		a.Kept, changed = *req.Upgrade, true
	}
	if req.PolicyRevisionIdx > a.PolicyRev && req.AgentPolicyID == a.PolicyID {
		a.PolicyRev, changed = req.PolicyRevisionIdx, true
	}
	if a.AuditUnenrolledReason != "" {
		// It said it was uninstalled, and here it is.
		a.AuditUnenrolledReason, a.AuditUnenrolledTime, changed = "", nil, true
	}
	return changed, upgradeChanged
}

// pollTimeout reads how long an agent is ready to wait; 0: it does not say.
func pollTimeout(text string) (time.Duration, error) {
	if text == "" {
		return 0, nil
	}
	d, err := time.ParseDuration(text)
	if err != nil || d < 0 {
		return 0, fleet.FieldError("body.poll_timeout", "is %q, want a duration such as 5m", text)
	}
	return d, nil
}

// pollTime is how long to park an agent that is ready to wait for asked: Fleet
// Server's rules.
func (s *Service) pollTime(asked time.Duration) time.Duration {
	poll, jitter := DefaultPoll, DefaultPollJitter
	if s.Poll > 0 {
		poll, jitter = s.Poll, s.PollJitter
	}
	if asked > 0 {
		poll = max(min(asked-pollMargin, maxPoll), minPoll)
	}
	if jitter > 0 {
		poll -= rand.N(jitter)
	}
	return poll
}

// token is the sequence number that an ack token stands for. As in Fleet Server,
// one that says nothing is as good as none. So is one of the future, which a
// store put back from a backup leaves agents with: it would keep every action
// from them until as many have been made again.
func (s *Service) token(ctx context.Context, agent fleet.Agent, text string) (int64, error) {
	if text == "" {
		return 0, nil
	}
	token, err := strconv.ParseInt(text, 10, 64)
	if err == nil && token <= agent.Last.ActionSeq {
		return token, nil // the usual case asks the store for nothing
	}
	if err != nil {
		s.Log.Debug("ack token is not ours", "agent", agent.ID, "token", text)
		return 0, nil
	}
	if token <= s.newest.Load() {
		return token, nil // all agents of one action show the same
	}
	last, err := s.Actions.LastSeq(ctx)
	if err != nil {
		return 0, err
	}
	if token > last {
		s.Log.Debug("ack token is of no action that there is", "agent", agent.ID, "token", text)
		return 0, nil
	}
	s.newest.Store(last)
	return token, nil
}

// sameJSON compares values, not spellings: a store may space, order or escape
// JSON anew, and a document must not be written at every check-in for that.
func sameJSON(a, b json.RawMessage) bool {
	if bytes.Equal(a, b) {
		return true
	}
	var va, vb any
	return json.Unmarshal(a, &va) == nil && json.Unmarshal(b, &vb) == nil && reflect.DeepEqual(va, vb)
}

func isNull(b json.RawMessage) bool { return string(b) == "null" }

// objectOrNothing takes null for absent: nothing is what clients in other
// languages mean by it, and not that the host has lost its name.
func objectOrNothing(field string, b json.RawMessage) (json.RawMessage, error) {
	if len(b) == 0 || isNull(b) {
		return nil, nil
	}
	if b[0] != '{' {
		return nil, fleet.FieldError(field, "want a JSON object")
	}
	return b, nil
}

// marshal encodes types of ours, which can be encoded.
func marshal(v any) []byte {
	b, err := json.Marshal(v)
	if err != nil {
		panic("check-in answer: " + err.Error())
	}
	return b
}
