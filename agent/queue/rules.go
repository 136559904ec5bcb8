package queue

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/muster-fleet/muster/server/wire/agentapi"
)

// Result is how an action ended.
type Result struct {
	Message string `json:"message,omitempty"`
	Error   string `json:"error,omitempty"` // empty: it succeeded
	// Data is that of the acknowledgement.
	Data json.RawMessage `json:"data,omitempty"`
}

func (s *state) clone() state {
	c := *s
	c.Pending = slices.Clone(s.Pending)
	c.Diagnostics = slices.Clone(s.Diagnostics)
	c.Stages = slices.Clone(s.Stages)
	c.Acks = slices.Clone(s.Acks)
	c.Done = slices.Clone(s.Done)
	c.Results = maps.Clone(s.Results)
	return c
}

// parse parses the upgrades that were read from the disk. One that this version cannot read ends.
func (s *state) parse(now time.Time) {
	for _, i := range slices.Clone(s.Pending) {
		parsed, err := i.parse()
		if err != nil {
			s.finish(i.Action.ID, Result{Error: err.Error()}, now)
			continue
		}
		s.Pending[s.find(i.Action.ID)] = parsed
	}
}

// accept handles one action. It does not do an action again whose id it has seen before,
// since servers send unconfirmed actions again. If the action has ended, its result is
// queued again: a server that was restored from a backup may have lost it.
func (s *state) accept(a agentapi.Action, now time.Time, stop Stopper) {
	switch {
	case a.ID == "" || s.find(a.ID) >= 0 || slices.ContainsFunc(s.Diagnostics, hasID(a.ID)) || slices.ContainsFunc(s.Stages, hasID(a.ID)):
		return
	case a.Type == agentapi.ActionPolicyChange:
		// Applied again as well: an agent that is assigned to a policy for the second time
		// gets the same revision with the same id.
		s.done(a.ID, s.acceptPolicy(a), now)
		return
	case slices.Contains(s.Done, a.ID):
		if r, ok := s.Results[a.ID]; ok {
			s.done(a.ID, r, now)
		}
		return
	}
	switch a.Type {
	case agentapi.ActionUpgrade:
		s.acceptUpgrade(a, now, stop)
	case agentapi.ActionCancel:
		s.finish(a.ID, s.cancel(a, now, stop), now)
	case agentapi.ActionProceed:
		s.finish(a.ID, s.proceed(a, now), now)
	case agentapi.ActionRequestDiagnostics:
		if len(s.Diagnostics) == MaxDiagnostics {
			s.finish(a.ID, Result{Error: fmt.Sprintf("%d requests for diagnostics wait already", MaxDiagnostics)}, now)
			return
		}
		s.Diagnostics = append(s.Diagnostics, a)
	case agentapi.ActionStage:
		if len(s.Stages) == MaxStages {
			s.finish(a.ID, Result{Error: fmt.Sprintf("%d versions wait to be staged already", MaxStages)}, now)
			return
		}
		if _, err := (Item{Action: a}).parse(); err != nil {
			s.finish(a.ID, Result{Error: err.Error()}, now)
			return
		}
		s.Stages = append(s.Stages, a)
	case agentapi.ActionPolicyReassign:
		s.finish(a.ID, Result{Message: "reassigned"}, now) // the new policy follows
	case agentapi.ActionSettings:
		s.finish(a.ID, s.acceptSettings(a), now)
	case agentapi.ActionUnenroll:
		s.Unenrolled = true
		for _, d := range slices.Concat(s.Diagnostics, s.Stages) {
			s.finish(d.ID, Result{Error: "the agent was unenrolled"}, now)
		}
		for _, i := range slices.Clone(s.Pending) {
			s.finish(i.Action.ID, Result{Error: "the agent was unenrolled"}, now)
		}
		s.finish(a.ID, Result{Message: "unenrolled"}, now)
	default:
		s.finish(a.ID, Result{Error: fmt.Sprintf("this agent does not understand actions of type %q", a.Type)}, now)
	}
}

func (s *state) acceptUpgrade(a agentapi.Action, now time.Time, stop Stopper) {
	item, err := Item{Action: a, ReceivedAt: now}.parse()
	switch {
	case err != nil:
		s.finish(a.ID, Result{Error: err.Error()}, now)
		return
	case item.expired(now):
		s.finish(a.ID, item.expiredResult(), now)
		return
	}
	for _, older := range s.of(item.Component()) {
		switch {
		case older.Action.CreatedAt.After(a.CreatedAt):
			s.finish(a.ID, supersededBy(older.Action.ID), now)
			return
		case older.lockstep() && !older.idle():
			// Only the server's rollout decides how that ends.
			s.finish(a.ID, Result{Error: fmt.Sprintf("component %s is being upgraded in lockstep with other hosts, by action %s", item.Component(), older.Action.ID)}, now)
			return
		case older.Attempts == 0:
			s.finish(older.Action.ID, supersededBy(a.ID), now)
		case !sameWork(older.Action, a):
			// The older upgrade ends at a step that can be undone. If it has passed
			// those, the newer one waits for its end.
			s.stop(older.Action.ID, supersededBy(a.ID).Error, stop)
		}
	}
	if len(s.Pending) >= MaxPending {
		s.finish(a.ID, Result{Error: fmt.Sprintf("the agent already has %d actions waiting", len(s.Pending))}, now)
		return
	}
	s.Pending = append(s.Pending, item)
}

// sameWork reports whether two upgrades request the same, so that the running one need
// not be stopped.
func sameWork(a, b agentapi.Action) bool {
	var x, y agentapi.UpgradeData
	return json.Unmarshal(a.Data, &x) == nil && json.Unmarshal(b.Data, &y) == nil && reflect.DeepEqual(x, y)
}

// stop stops a running upgrade and stores the reason, if it can still be stopped.
func (s *state) stop(id, why string, stop Stopper) bool {
	i := s.find(id)
	if i < 0 || s.Pending[i].Switched || stop == nil || !stop(id, why) {
		return false
	}
	s.Pending[i].Stop = why
	return true
}

func supersededBy(id string) Result {
	return Result{Error: "superseded by the newer upgrade " + id}
}

// acceptPolicy stores the revision, which check-ins report to the server, and what the agent
// follows of a policy. The rest is for other agents.
func (s *state) acceptPolicy(a agentapi.Action) Result {
	var data struct {
		Policy struct {
			ID    string `json:"id"`
			Agent struct {
				Download struct {
					SourceURI string `json:"sourceURI"`
				} `json:"download"`
			} `json:"agent"`
			Fleet struct {
				Hosts []string `json:"hosts"`
			} `json:"fleet"`
			Components []agentapi.PolicyComponent `json:"components"`
		} `json:"policy"`
	}
	var unread error
	if len(a.Data) > 0 {
		unread = json.Unmarshal(a.Data, &data)
	}
	id, revision, ok := parsePolicyAction(a.ID, data.Policy.ID)
	if !ok {
		return Result{Error: fmt.Sprintf("action id is %q, want policy:<id>:<revision>", a.ID)}
	}
	s.PolicyID, s.PolicyRevision = id, revision
	if unread != nil {
		// Not an error of the action: the server would send it again for ever.
		return Result{Message: "policy received, its source, servers and components are not followed: " + unread.Error()}
	}
	hosts := data.Policy.Fleet.Hosts
	s.Settings.SourceURI, s.Settings.Hosts = data.Policy.Agent.Download.SourceURI, hosts[:min(len(hosts), MaxHosts)]
	s.Settings.Components = data.Policy.Components
	return Result{Message: "policy received"}
}

// parsePolicyAction parses policy:<id>:<revision>, and the older policy:<id>:<revision>:<coordinator>
// of Fleet Servers, if the policy's own id is known.
func parsePolicyAction(action, policy string) (id string, revision int64, ok bool) {
	rest, ok := strings.CutPrefix(action, "policy:")
	colon := strings.LastIndexByte(rest, ':')
	if !ok || colon < 0 {
		return "", 0, false
	}
	id, number := rest[:colon], rest[colon+1:]
	if older, found := strings.CutPrefix(rest, policy+":"); found && policy != "" {
		id = policy
		number, _, _ = strings.Cut(older, ":")
	}
	revision, err := strconv.ParseInt(number, 10, 64)
	return id, revision, err == nil
}

// acceptSettings stores the log level.
func (s *state) acceptSettings(a agentapi.Action) Result {
	var data agentapi.SettingsData
	if err := json.Unmarshal(a.Data, &data); err != nil {
		return Result{Error: "data: " + err.Error()}
	}
	if data.LogLevel == nil || *data.LogLevel == "" {
		s.Settings.LogLevel = nil
		return Result{Message: "the log level is that of the configuration"}
	}
	level, ok := map[string]slog.Level{
		"debug": slog.LevelDebug, "info": slog.LevelInfo, "warning": slog.LevelWarn, "warn": slog.LevelWarn, "error": slog.LevelError,
	}[strings.ToLower(*data.LogLevel)]
	if !ok {
		return Result{Error: fmt.Sprintf("data.log_level: is %q, want debug, info, warning or error", *data.LogLevel)}
	}
	s.Settings.LogLevel = &level
	return Result{Message: "the log level is " + *data.LogLevel}
}

func (s *state) cancel(a agentapi.Action, now time.Time, stop Stopper) Result {
	var data agentapi.CancelData
	if err := json.Unmarshal(a.Data, &data); err != nil || data.TargetID == "" {
		return Result{Error: "data.target_id: names no action to cancel"}
	}
	i := s.find(data.TargetID)
	switch {
	case slices.ContainsFunc(s.Stages, hasID(data.TargetID)):
		if stop != nil {
			stop(data.TargetID, agentapi.Cancelled) // it may be the one under way
		}
		s.finish(data.TargetID, Result{Error: agentapi.Cancelled}, now)
		return Result{Message: "cancelled"}
	case i < 0 && slices.Contains(s.Done, data.TargetID):
		return Result{Error: fmt.Sprintf("action %s has already ended", data.TargetID)}
	case i < 0:
		// The action may arrive later, and must not run then.
		s.remember(data.TargetID, &Result{Error: agentapi.Cancelled})
		return Result{Message: "cancelled before it arrived"}
	case s.Pending[i].idle():
		s.finish(data.TargetID, Result{Error: agentapi.Cancelled}, now)
		return Result{Message: "cancelled"}
	case s.Pending[i].Until.Reaches(agentapi.LockstepBackup):
		return Result{Error: fmt.Sprintf("action %s can no longer be cancelled by itself: other hosts are upgraded in lockstep with this one, so cancel the rollout", data.TargetID)}
	case s.stop(data.TargetID, agentapi.Cancelled, stop):
		return Result{Message: "is being cancelled"}
	}
	return Result{Error: fmt.Sprintf("action %s can no longer be cancelled: the new version is being started", data.TargetID)}
}

// proceed lets an upgrade in lockstep go on, or has it undone. What is not pending has ended.
func (s *state) proceed(a agentapi.Action, now time.Time) Result {
	var data agentapi.ProceedData
	if err := json.Unmarshal(a.Data, &data); err != nil {
		return Result{Error: "data: " + err.Error()}
	}
	if !data.Undo {
		if err := data.Until.Valid(); err != nil {
			return Result{Error: "data.until: " + err.Error()}
		}
	}
	i := slices.IndexFunc(s.Pending, func(i Item) bool {
		return i.lockstep() && i.Component() == data.Component && i.request.Component.UpgradeID == data.UpgradeID
	})
	switch {
	case i < 0 && data.Undo:
		return Result{Message: "there is nothing to undo"}
	case i < 0:
		return Result{Error: fmt.Sprintf("no upgrade %s of component %s is under way in lockstep", data.UpgradeID, data.Component)}
	case !data.Undo:
		if err := s.Pending[i].goOn(data.Until); err != nil {
			return Result{Error: err.Error()}
		}
		return Result{Message: fmt.Sprintf("may go on until %q", s.Pending[i].Until)}
	case s.Pending[i].idle():
		s.finish(s.Pending[i].Action.ID, Result{Error: undone(data.Reason)}, now)
		return Result{Message: "undone before it began"}
	}
	if err := s.Pending[i].undo(undone(data.Reason)); err != nil {
		return Result{Error: err.Error()}
	}
	return Result{Message: "is being undone"}
}

// release is what PROCEED would do, without the server.
func (s *state) release(component string, undo bool) error {
	i := slices.IndexFunc(s.Pending, func(i Item) bool { return i.lockstep() && i.Component() == component })
	switch {
	case i < 0:
		return fmt.Errorf("component %s is not being upgraded in lockstep", component)
	case undo:
		return s.Pending[i].undo("undone on the host")
	}
	return s.Pending[i].goOn(agentapi.LockstepStart)
}

// goOn lets an upgrade in lockstep go on until a phase. A PROCEED may come after a later one.
func (i *Item) goOn(until agentapi.LockstepPhase) error {
	if i.Undo != "" {
		return errors.New("the upgrade is being undone")
	}
	if until.Reaches(i.Until) {
		i.Until = until
	}
	return nil
}

// undo has an upgrade in lockstep undone, unless other hosts may have switched.
func (i *Item) undo(why string) error {
	if i.Until.Reaches(agentapi.LockstepSwitch) {
		return fmt.Errorf("the upgrade can no longer be undone: it may have begun %q", agentapi.LockstepSwitch)
	}
	i.Undo = why
	return nil
}

// undone is the error of an upgrade in lockstep that the server has undone.
func undone(reason string) string {
	if reason == "" {
		return "undone by its rollout"
	}
	return "undone by its rollout: " + reason
}

// idle reports whether an upgrade has not begun, or waits for another try, so that nothing has to be
// undone. One in lockstep that waits for another try has something to go on with.
func (i Item) idle() bool { return i.Attempts == 0 && !i.Until.Reaches(agentapi.LockstepBackup) }

// of returns a copy of the items of a component, or with an empty name of the agent itself.
func (s *state) of(component string) []Item {
	return slices.DeleteFunc(slices.Clone(s.Pending), func(i Item) bool { return i.Component() != component })
}

// next returns the item of a component to run now: one that has begun, else the earliest that is
// due.
func next(pending []Item, now time.Time) (*Item, time.Time) {
	if len(pending) == 0 {
		return nil, time.Time{}
	}
	first := slices.MinFunc(pending, byOrder)
	if first.Attempts > 0 || !first.Due().After(now) {
		return &first, time.Time{}
	}
	again := first.Due()
	for _, i := range pending {
		if e := i.Action.Expiration; e != nil && e.Before(again) {
			again = *e
		}
	}
	return nil, again
}

func byOrder(a, b Item) int {
	if (a.Attempts > 0) != (b.Attempts > 0) {
		if a.Attempts > 0 {
			return -1
		}
		return 1
	}
	return a.Due().Compare(b.Due())
}

func (s *state) expire(now time.Time) {
	for _, i := range slices.Clone(s.Pending) {
		if i.expired(now) {
			s.finish(i.Action.ID, i.expiredResult(), now)
		}
	}
}

// expired reports whether the item has expired. An upgrade that has begun never expires.
func (i Item) expired(now time.Time) bool {
	return i.Attempts == 0 && i.Action.Expiration != nil && !now.Before(*i.Action.Expiration)
}

func (i Item) expiredResult() Result {
	if i.Retries > 0 {
		return Result{Error: fmt.Sprintf("expired at %s, after %d tries; the last one: %s",
			i.Action.Expiration.UTC().Format(time.RFC3339), i.Retries, i.LastError)}
	}
	return Result{Error: fmt.Sprintf("expired at %s, before it could begin", i.Action.Expiration.UTC().Format(time.RFC3339))}
}

// finish ends an action once: it queues the result and remembers the id.
func (s *state) finish(id string, r Result, now time.Time) {
	if slices.Contains(s.Done, id) {
		return
	}
	s.Diagnostics = slices.DeleteFunc(s.Diagnostics, hasID(id))
	s.Stages = slices.DeleteFunc(s.Stages, hasID(id))
	local := false
	if i := s.find(id); i >= 0 {
		local = s.Pending[i].Local
		s.Pending = slices.Delete(s.Pending, i, i+1)
	}
	if local {
		s.remember(id, nil)
		return
	}
	s.remember(id, &r)
	s.addAck(s.ack(id, r, now))
}

func hasID(id string) func(agentapi.Action) bool {
	return func(a agentapi.Action) bool { return a.ID == id }
}

// done records the result of an action. If the action had ended before, it only queues the
// result again, unless one is queued already.
func (s *state) done(id string, r Result, now time.Time) {
	waits := slices.ContainsFunc(s.Acks, func(e agentapi.AckEvent) bool { return e.ActionID == id })
	switch {
	case !slices.Contains(s.Done, id):
		s.finish(id, r, now)
	case !waits:
		s.addAck(s.ack(id, r, now))
	}
}

func (s *state) ack(id string, r Result, now time.Time) agentapi.AckEvent {
	return agentapi.AckEvent{
		Type: agentapi.AckType, Subtype: agentapi.AckSubtype,
		AgentID: s.AgentID, ActionID: id, Timestamp: now.UTC(), Message: cmp.Or(r.Message, r.Error, "done"), Error: r.Error, Data: r.Data,
	}
}

// adopt merges the results of another version, but not its pending upgrades: the server
// sends them again if they are still wanted, since this queue's ack token is older.
func (s *state) adopt(other state) {
	if other.AgentID != s.AgentID {
		return
	}
	for _, id := range other.Done {
		// An item that is pending here is the upgrade that was rolled back.
		if s.find(id) < 0 && !slices.Contains(s.Done, id) {
			var result *Result
			if r, ok := other.Results[id]; ok {
				result = &r
			}
			s.remember(id, result)
		}
	}
	for _, e := range other.Acks {
		known := slices.ContainsFunc(s.Acks, func(k agentapi.AckEvent) bool { return k.ActionID == e.ActionID })
		if s.find(e.ActionID) < 0 && !known {
			s.addAck(e)
		}
	}
	if other.PolicyRevision > s.PolicyRevision && other.PolicyID == s.PolicyID {
		s.PolicyRevision = other.PolicyRevision
		s.Settings = other.Settings
	}
	s.Unenrolled = s.Unenrolled || other.Unenrolled
}

func (s *state) addAck(e agentapi.AckEvent) {
	s.Acks = append(s.Acks, e)
	if extra := len(s.Acks) - MaxAcks; extra > 0 {
		s.Acks = slices.Delete(s.Acks, 0, extra)
	}
}

// remember records that an action has ended, and how, if the server is to know.
func (s *state) remember(id string, r *Result) {
	s.Done = append(s.Done, id)
	if r != nil {
		if s.Results == nil {
			s.Results = map[string]Result{}
		}
		s.Results[id] = *r
	}
	if extra := len(s.Done) - MaxDone; extra > 0 {
		for _, old := range s.Done[:extra] {
			delete(s.Results, old)
		}
		s.Done = slices.Delete(s.Done, 0, extra)
	}
}

func (s *state) find(id string) int {
	return slices.IndexFunc(s.Pending, func(i Item) bool { return i.Action.ID == id })
}

func (s *state) item(id string, change func(*Item)) error {
	i := s.find(id)
	if i < 0 {
		return fmt.Errorf("action %s is not in the queue", id)
	}
	change(&s.Pending[i])
	return nil
}
