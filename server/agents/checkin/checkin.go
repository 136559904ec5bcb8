package checkin

import (
	"bytes"
	"context"
	"encoding/json"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"reflect"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/muster-fleet/muster/packaging/host/terminal"
	"github.com/muster-fleet/muster/server/agents/limit"
	"github.com/muster-fleet/muster/server/clock"
	"github.com/muster-fleet/muster/server/fleet"
	"github.com/muster-fleet/muster/server/store"
	"github.com/muster-fleet/muster/server/store/event"
	"github.com/muster-fleet/muster/server/store/keyfile"
	"github.com/muster-fleet/muster/server/store/storehealth"
	"github.com/muster-fleet/muster/server/wire/agentapi"
)

// Defaults of the long poll, Fleet Server's.
const (
	// DefaultPoll is below the idle limits of common proxies and NAT tables.
	DefaultPoll = 5 * time.Minute
	// DefaultPollJitter keeps a fleet that started together from polling
	// together for ever.
	DefaultPollJitter = 30 * time.Second
	// pollMargin is subtracted from the time that an agent waits, for the way back.
	pollMargin = 2 * time.Minute
	minPoll    = time.Minute
	maxPoll    = time.Hour
	// shortPoll is how long an agent is parked that is to check in again soon: a new host, and an
	// Elastic Agent while its upgrade is under way. That
	// reports a phase only at the start of a poll. An upgrade takes a minute or more, so
	// most phases show, and 100,000 agents send 3,300 check-ins a second, of which one
	// core handles 18,000.
	shortPoll = 30 * time.Second
	// awaitedPoll is how long an agent is parked that awaits an answer: long enough to compare its
	// policy and its actions. An agent awaits one once after its start.
	awaitedPoll = time.Second

	// MaxActions bounds the actions of one answer; the next answer has the rest.
	MaxActions = 100
)

// Service handles check-ins. All fields but Poll and PollJitter, Log and Now are
// required.
type Service struct {
	Agents   store.Agents
	Actions  store.Actions
	Results  store.Results
	Pending  PendingSource
	Parker   Parker
	LastSeen *LastSeen
	Cache    Cache
	Health   *storehealth.Monitor
	Events   *event.Stream
	Log      *slog.Logger
	Now      clock.Clock
	// Policies may be nil; then agents get no policy.
	Policies PolicySource
	// Sealer decrypts the data of actions that has secrets. Without the key such actions
	// fail when they would be delivered.
	Sealer keyfile.Sealer
	// Generation is that of the store of Actions; see store.Generation.
	Generation string
	// Poll and PollJitter override the defaults when above zero.
	Poll       time.Duration
	PollJitter time.Duration

	first     sync.Once
	listening time.Time // since the first check-in of this process
	// newest is the highest sequence number of the actions that this process has read.
	newest  atomic.Int64
	warn    sync.Once
	resends resends
	digests digests
	// unopened is the id of the last action whose data could not be decrypted.
	unopened atomic.Pointer[string]
}

// Received is what Handle needs to know of a check-in besides its contents.
type Received struct {
	// Fingerprint and Token are FingerprintOf its body.
	Fingerprint Fingerprint
	Token       string
	// Generation was taken before the agent was read; see Cache.
	Generation Generation
}

// Handle answers the check-in of an authenticated agent, at once or by parking it. An
// error means that nothing has been written to w; of kind Unavailable, that the agent
// is to send the check-in again.
func (s *Service) Handle(w http.ResponseWriter, r *http.Request, agent fleet.Agent, req agentapi.CheckinRequest, received Received) error {
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
	req = normal(escaped(req))
	if err := fleet.CheckStored("body.components", req.Components); err != nil {
		return err
	}
	now := s.Now.UTC()
	var after int64
	var written, short bool
	err = s.Health.Call(r.Context(), func(ctx context.Context) (err error) {
		after, written, short, err = s.apply(ctx, agent, req, now)
		return err
	})
	if err != nil {
		s.Cache.ForgetCheckin(agent.ID, received.Fingerprint)
		return err
	}
	has := agent.ReportedPolicy(req.AgentPolicyID, req.PolicyRevisionIdx)
	// FingerprintOf does not parse the body. If it has cut out anything but the token, the
	// fingerprint is not that of the check-in.
	if (received.Token == "" || received.Token == req.AckToken) && !req.AwaitsAnswer {
		var state uint64
		if !written && !short && req.UpgradeDetails == nil {
			state = agent.CheckinState()
		}
		s.Cache.RememberCheckin(agent.ID, LastCheckin{Fingerprint: received.Fingerprint, Policy: has, After: after, PollTimeout: asked}, received.Generation, state, now)
	}
	poll := s.pollTime(asked)
	if short {
		poll = min(poll, shortPoll)
	}
	if req.AwaitsAnswer {
		poll = min(poll, awaitedPoll)
	}
	s.park(w, r, Wait{AgentID: agent.ID, Policy: has, After: after}, poll)
	return nil
}

// HandleDuplicate parks an authenticated agent whose check-in repeats its last one, except
// for the ack token, which is empty if there is none. If it returns false, it has not
// written to w, and the check-in must be passed to Handle.
func (s *Service) HandleDuplicate(w http.ResponseWriter, r *http.Request, agentID string, f Fingerprint, token string) bool {
	now := s.Now.UTC()
	last, ok := s.Cache.IsDuplicate(agentID, f, now)
	if !ok {
		return false
	}
	after, shown := last.After, int64(0)
	if token != "" {
		var known bool
		if shown, known = s.digests.check(parseToken(token, s.Generation)); !known {
			return false
		}
		after = shown
	}
	if shown > max(s.newest.Load(), last.After) { // the token may be of an action that this process has not read
		return false
	}
	s.LastSeen.Seen(fleet.Touch{AgentID: agentID, At: now, ActionSeq: shown})
	s.park(w, r, Wait{AgentID: agentID, Policy: last.Policy, After: after}, s.pollTime(last.PollTimeout))
	return true
}

func (s *Service) park(w http.ResponseWriter, r *http.Request, wait Wait, poll time.Duration) {
	deadline := time.Now().Add(poll)
	// net/http's write timeout is for ordinary requests.
	_ = http.NewResponseController(w).SetWriteDeadline(deadline.Add(time.Minute))
	limit.Done(r.Context()) // a parked poll holds no slot
	s.Parker.Park(Poll{Wait: wait, Deadline: deadline, Writer: w, Request: r, Checker: s})
}

// apply writes what the check-in changes about the agent, if anything, and returns the
// sequence number after which the agent's next actions come. short reports whether the
// agent is to check in again soon.
func (s *Service) apply(ctx context.Context, agent fleet.Agent, req agentapi.CheckinRequest, now time.Time) (after int64, written, short bool, err error) {
	seen := fleet.Touch{AgentID: agent.ID, At: now, Status: req.Status, Message: req.Message}
	if after, err = s.after(ctx, agent, req.AckToken); err != nil {
		return 0, false, false, err
	}
	if after > agent.Last.ActionSeq {
		// Not in the document: an action for the fleet would rewrite all documents at
		// once. A crash loses at most FlushInterval of the numbers. Agents repeat theirs;
		// one that does not gets its action again, and ignores it.
		seen.ActionSeq = after
	}
	// From the document that the authentication read: LastSeen may write this check-in
	// before the document is read again.
	gap := agent.Last.Gap(s.listeningSince(), now)
	statusChanged := agent.Last.Status != req.Status || agent.Last.Message != req.Message
	events, err := store.ApplyReport(ctx, s.Agents, agent, now, func(a *fleet.Agent) (r store.Report) {
		reported, staged, failed, policy, wasShared := a.Components, a.StagedVersions, a.Kept.FailedSources, a.Policy(), a.SharedSince != nil
		borne, follows := a.ObserveBearer(bearerOf(req), now)
		// Repeated as often as their entries are written, so that a reader which missed it finds it.
		if is := a.SharedSince != nil; is != wasShared || is && borne {
			r.Events = append(r.Events, a.SharedEvent())
		}
		short = a.NewHostSince != nil // so that it gets its orders as soon as it was alone for long enough
		if !follows {
			// The document is that of another host. What this one says of itself is in its entry.
			seen.Status, seen.Message = "", ""
			if written = borne; borne {
				r.Agent, r.Seen = a, &seen
			}
			return r
		}
		changed, upgradeChanged := observe(a, req, gap, now)
		newly, upgraded := observeComponents(a, reported, now)
		missing, gone := a.ObserveMissing(req.UpgradesIdle, now)
		upgradeChanged = upgradeChanged || missing
		changed = changed || borne || missing || len(gone) > 0
		news, ended := componentNews(a, newly, append(upgraded, gone...), now)
		short = short || a.ReportsLate(now)
		if changed {
			r.Agent = a
		}
		switch {
		case upgradeChanged:
			r.Results, r.Events = a.UpgradeResults("", now), append(r.Events, a.UpgradeEvent(""))
		case statusChanged:
			r.Events = append(r.Events, fleet.Event{
				Type: fleet.EventAgentStatus, Subject: a.ID, Data: event.Data(map[string]string{"status": req.Status, "message": req.Message}),
			})
		}
		if !slices.Equal(staged, a.StagedVersions) {
			r.Events = append(r.Events, fleet.Event{Type: fleet.EventAgentStaged, Subject: a.ID, Data: event.Data(map[string][]string{"staged_versions": a.StagedVersions})})
			r.History = append(r.History, a.StagedRecord(staged, now))
		}
		if news := a.NewlyFailedSources(failed); len(news) > 0 {
			record := a.SourceRecord(news, now)
			r.Events = append(r.Events, fleet.Event{Type: fleet.EventAgentSource, Subject: a.ID, Data: event.Data(map[string]string{"text": record.Text})})
			r.History = append(r.History, record)
		}
		if a.Policy() != policy && a.PolicyRev != 0 {
			r.History = append(r.History, a.PolicyRecord(now))
		}
		r.Events, r.Results = append(r.Events, news...), append(r.Results, ended...)
		if written = changed || statusChanged; written {
			r.Seen = &seen
		}
		return r
	})
	if events {
		s.Events.Wake()
	}
	if err == nil && !written {
		s.LastSeen.Seen(seen) // most change nothing, and are written together
	}
	return after, written, short, err
}

// listeningSince returns since when this server has accepted messages of agents: the time
// in which the store was away does not count as an agent's silence.
func (s *Service) listeningSince() time.Time {
	s.first.Do(func() { s.listening = s.Now.UTC() })
	if back := s.Health.Back(); back.After(s.listening) {
		return back
	}
	return s.listening
}

// observe applies the check-in to the agent's document, and reports whether that changed
// anything, and anything about its upgrade.
func observe(a *fleet.Agent, req agentapi.CheckinRequest, gap time.Duration, now time.Time) (changed, upgradeChanged bool) {
	reported := fleet.Agent{LocalMetadata: req.LocalMeta}
	host := reported.Host()
	if req.UpgradeDetails != nil {
		maker := host.Maker
		if len(req.LocalMeta) == 0 {
			maker = a.Host().Maker
		}
		req.UpgradeDetails = maker.Details(*req.UpgradeDetails)
	}
	version := host.FullVersion()
	if version == "" && coreOf(a.Version) != req.HeaderVersion {
		version = req.HeaderVersion // metadata is only sent when it has changed, and knows more of the version
	}
	upgradeChanged = a.ObserveUpgrade(version, req.UpgradeDetails, now)
	changed = a.ObserveHealth(req.Status, gap, now) || upgradeChanged
	if len(req.LocalMeta) > 0 && !sameJSON(a.LocalMetadata, req.LocalMeta) {
		a.LocalMetadata, changed = req.LocalMeta, true
	}
	components := len(req.Components) > 0 && !sameJSON(a.Components, req.Components)
	if components {
		a.Components, changed = req.Components, true
	}
	if components || a.Last.Status != req.Status {
		changed = a.ObserveUnhealthy(req.Status) || changed
	}
	if req.Upgrade != nil && !reflect.DeepEqual(a.Kept, *req.Upgrade) {
		a.Kept, changed = *req.Upgrade, true
	}
	if !reflect.DeepEqual(a.StagedVersions, req.StagedVersions) {
		a.StagedVersions, changed = req.StagedVersions, true
	}
	if has := a.ReportedPolicy(req.AgentPolicyID, req.PolicyRevisionIdx); has != a.Policy() {
		a.PolicyRev, changed = has.Revision, true
	}
	changed = a.Return() || changed
	return changed, upgradeChanged
}

// bearerOf returns which program checks in.
func bearerOf(req agentapi.CheckinRequest) fleet.Bearer {
	reported := fleet.Agent{LocalMetadata: req.LocalMeta}
	host := reported.Host()
	return fleet.BearerOf(req.Instance, &host)
}

// maxComponentEvents bounds the events of one check-in: a host may change all of its components
// with each. For more there is one event, and readers read the agent.
const maxComponentEvents = 10

// observeComponents applies a new report on components, of which was is the one before; see
// fleet.Agent.ObserveComponents.
func observeComponents(a *fleet.Agent, was json.RawMessage, now time.Time) (changed, upgraded []string) {
	if bytes.Equal(was, a.Components) {
		return nil, nil
	}
	return a.ObserveComponents(was, now)
}

// componentNews returns the events of the components that have changed, and the results of their
// upgrades.
func componentNews(a *fleet.Agent, changed, upgraded []string, now time.Time) (events []fleet.Event, results []fleet.Result) {
	for _, name := range upgraded {
		results = append(results, a.UpgradeResults(name, now)...)
		if !slices.Contains(changed, name) {
			changed = append(changed, name)
		}
	}
	if len(changed) > maxComponentEvents {
		return []fleet.Event{{Type: fleet.EventAgentComponent, Subject: a.ID, Data: event.Data(map[string]any{"components": len(changed)})}}, results
	}
	for _, name := range changed {
		events = append(events, a.UpgradeEvent(name))
	}
	return events, results
}

// coreOf returns a version without its pre-release and its build, as in a User-Agent.
func coreOf(version string) string {
	if i := strings.IndexAny(version, "-+"); i >= 0 {
		return version[:i]
	}
	return version
}

// pollTimeout parses how long an agent is willing to wait; 0 if it does not say. As in Fleet
// Server, a negative time counts as the shortest.
func pollTimeout(text string) (time.Duration, error) {
	if text == "" {
		return 0, nil
	}
	d, err := time.ParseDuration(text)
	if err != nil {
		return 0, fleet.FieldError("body.poll_timeout", "is %q, want a duration such as 5m", text)
	}
	return d, nil
}

// pollTime returns how long to park an agent that is willing to wait for asked, by Fleet
// Server's rules.
func (s *Service) pollTime(asked time.Duration) time.Duration {
	poll, jitter := DefaultPoll, DefaultPollJitter
	if s.Poll > 0 {
		poll, jitter = s.Poll, s.PollJitter
	}
	if asked != 0 {
		poll = max(min(asked-pollMargin, maxPoll), minPoll)
	}
	if jitter > 0 {
		poll -= rand.N(jitter)
	}
	return poll
}

// after returns the sequence number after which the agent's next actions come. Without an
// ack token that is the last one that the agent has shown. A token older than that is used:
// the agent was rolled back, and later actions were delivered to a version that is gone.
//
// A token that is not of this generation, that is beyond the newest action, or that names
// another action than the store has under its number, comes from another history of the store,
// and counts as 0: the agent gets everything again that it
// has not answered, and ignores the actions whose ids it knows.
func (s *Service) after(ctx context.Context, agent fleet.Agent, text string) (int64, error) {
	if text == "" {
		return agent.Last.ActionSeq, nil
	}
	t := parseToken(text, s.Generation)
	if t.seq == 0 {
		s.Log.Debug("ack token is not of this generation of the store", "agent", agent.ID, "token", text)
		return 0, nil
	}
	if t.seq > agent.Last.ActionSeq && t.seq > s.newest.Load() {
		last, err := s.Actions.LastSeq(ctx)
		if err != nil {
			return 0, err
		}
		if t.seq > last {
			s.noteOtherHistory(agent.ID)
			return 0, nil
		}
		s.newest.Store(last)
	}
	// The usual case needs no call of the store: all agents of one action have the same token.
	seq, err := s.verify(ctx, t)
	if err == nil && seq == 0 {
		s.noteOtherHistory(agent.ID)
	}
	return seq, err
}

// noteOtherHistory logs, once, that an agent has received actions that the store does not have.
func (s *Service) noteOtherHistory(agentID string) {
	s.warn.Do(func() {
		s.Log.Warn("an agent has received an action that the store does not have: the store was put back to an earlier state; such agents get all actions that they have not answered", "agent", agentID)
	})
}

// sameJSON compares values, not encodings: a store may change the spacing, order or
// escapes of JSON, and that must not cause a write at every check-in.
func sameJSON(a, b json.RawMessage) bool {
	if bytes.Equal(a, b) {
		return true
	}
	var va, vb any
	return json.Unmarshal(a, &va) == nil && json.Unmarshal(b, &vb) == nil && reflect.DeepEqual(va, vb)
}

// escaped returns a check-in without characters that act on the terminal of whoever reads
// it. Messages keep their lines.
func escaped(req agentapi.CheckinRequest) agentapi.CheckinRequest {
	req.Status, req.Message = terminal.EscapeLine(req.Status), terminal.Escape(req.Message)
	req.LocalMeta = fleet.EscapeReport(req.LocalMeta, terminal.EscapeLine)
	req.Components = fleet.EscapeReport(req.Components, terminal.Escape)
	if req.UpgradeDetails != nil {
		d := *req.UpgradeDetails
		d.TargetVersion, d.ActionID = terminal.EscapeLine(d.TargetVersion), terminal.EscapeLine(d.ActionID)
		m := &d.Metadata
		m.FailedState, m.ReasonCode = agentapi.UpgradeState(terminal.EscapeLine(string(m.FailedState))), terminal.EscapeLine(m.ReasonCode)
		m.RetryErrorMsg, m.ErrorMsg, m.Reason = terminal.Escape(m.RetryErrorMsg), terminal.Escape(m.ErrorMsg), terminal.Escape(m.Reason)
		req.UpgradeDetails = &d
	}
	if i := req.Instance; i != nil {
		req.Instance = &agentapi.Instance{BootID: terminal.EscapeLine(i.BootID), ProcessID: terminal.EscapeLine(i.ProcessID)}
	}
	if req.Upgrade != nil {
		u := agentapi.CheckinUpgrade{Rollbacks: slices.Clone(req.Upgrade.Rollbacks), FailedSources: slices.Clone(req.Upgrade.FailedSources)}
		for i := range u.Rollbacks {
			u.Rollbacks[i].Version = terminal.EscapeLine(u.Rollbacks[i].Version)
		}
		for i, f := range u.FailedSources {
			u.FailedSources[i] = agentapi.FailedSource{Package: terminal.EscapeLine(f.Package), Reason: terminal.EscapeLine(f.Reason)}
		}
		req.Upgrade = &u
	}
	if len(req.StagedVersions) > 0 {
		req.StagedVersions = slices.Clone(req.StagedVersions)
		for i, v := range req.StagedVersions {
			req.StagedVersions[i] = terminal.EscapeLine(v)
		}
	}
	return req
}

// normal returns a check-in in the form that is stored: the status in lower case, since
// Elastic's agents send DEGRADED beside online, and metadata nested.
func normal(req agentapi.CheckinRequest) agentapi.CheckinRequest {
	req.Status, req.LocalMeta = strings.ToLower(req.Status), fleet.NestMetadata(req.LocalMeta)
	return req
}

func isNull(b json.RawMessage) bool { return string(b) == "null" }

// objectOrNothing checks that b is an object or absent. null counts as absent, since
// clients in other languages send it for absent values.
func objectOrNothing(field string, b json.RawMessage) (json.RawMessage, error) {
	if len(b) == 0 || isNull(b) {
		return nil, nil
	}
	if b[0] != '{' {
		return nil, fleet.FieldError(field, "want a JSON object")
	}
	return b, nil
}

// marshal encodes this project's types, which cannot fail.
func marshal(v any) []byte {
	b, err := json.Marshal(v)
	if err != nil {
		panic("check-in answer: " + err.Error())
	}
	return b
}
