// Package enrollment manages enrollment keys, and enrols hosts: a host that presents an
// enrollment key becomes an agent with a key of its own.
package enrollment

import (
	"cmp"
	"context"
	"crypto/pbkdf2"
	"crypto/sha256"
	"crypto/sha512"
	"crypto/subtle"
	"encoding/base32"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/muster-fleet/muster/server/clock"
	"github.com/muster-fleet/muster/server/fleet"
	"github.com/muster-fleet/muster/server/store"
	"github.com/muster-fleet/muster/server/store/event"
	"github.com/muster-fleet/muster/server/store/keyfile"
	"github.com/muster-fleet/muster/server/wire/agentapi"
)

// Service manages enrollment keys and enrols hosts.
type Service struct {
	Store  store.Store
	Events *event.Stream
	Now    clock.Clock
	// Sealer encrypts the secrets of enrollment keys, so that they can be shown again.
	Sealer keyfile.Sealer
	// DefaultKeys: each policy has a key named Default, as in Kibana.
	DefaultKeys bool
}

// errToken is returned for every token that does not match. It does not reveal which
// part is wrong.
func errToken() error {
	return &fleet.Error{Kind: fleet.Unauthorized, Code: "ErrUnauthorized", Message: "the enrollment token is not valid here: copy it whole, or make a new one with `muster keys create`"}
}

// Authenticate checks an enrollment credential.
func (s *Service) Authenticate(ctx context.Context, cred fleet.Credential) (fleet.EnrollmentKey, error) {
	k, err := s.Store.EnrollmentKeys().Get(ctx, cred.ID)
	if fleet.KindOf(err) == fleet.NotFound && err != nil {
		return k, errToken()
	}
	if err != nil {
		return k, err
	}
	if !cred.Matches(k.Hash) {
		return k, errToken()
	}
	return k, k.Usable(s.Now.UTC())
}

// Credentials are issued to a host when it enrols, and not stored.
type Credentials struct {
	Agent fleet.Credential
	// Watcher authorizes beacons for this agent and nothing else: the watcher reports
	// when the agent cannot, and must not be able to act as the agent.
	Watcher fleet.Credential
}

// Enroll creates an agent, or replaces the one that has the requested id.
func (s *Service) Enroll(ctx context.Context, key fleet.EnrollmentKey, req agentapi.EnrollRequest) (fleet.Agent, Credentials, error) {
	// Clients in other languages send null for absent values.
	for _, raw := range []*json.RawMessage{&req.Metadata.Local, &req.Metadata.UserProvided} {
		if string(*raw) == "null" {
			*raw = nil
		}
	}
	if err := check(req); err != nil {
		return fleet.Agent{}, Credentials{}, err
	}
	// Actions for an earlier agent with this id are not delivered to this one.
	seq, err := s.Store.Actions().LastSeq(ctx)
	if err != nil {
		return fleet.Agent{}, Credentials{}, err
	}
	own := Credentials{Agent: fleet.NewCredential(), Watcher: fleet.NewCredential()}
	a := fleet.Agent{
		Type: req.Type, Active: true, PolicyID: key.PolicyID, EnrollmentID: req.EnrollmentID,
		AccessKeyID: own.Agent.ID, AccessKeyHash: own.Agent.Hash(),
		WatcherKeyID: own.Watcher.ID, WatcherKeyHash: own.Watcher.Hash(), EnrolledAt: s.Now.UTC(), Last: fleet.LastSeen{ActionSeq: seq},
		UserMetadata: req.Metadata.UserProvided, Tags: tags(req.Metadata.Tags),
	}
	a.LocalMetadata = fleet.NestMetadata(req.Metadata.Local)
	a.Version = cmp.Or(a.Host().FullVersion(), req.HeaderVersion)
	if a, err = s.place(ctx, a, req); err != nil {
		return fleet.Agent{}, Credentials{}, err
	}
	s.Events.Publish(ctx, fleet.Event{Type: fleet.EventAgentEnrolled, Subject: a.ID, Data: event.Data(map[string]string{"policy_id": a.PolicyID, "hostname": a.Hostname()})})
	return a, own, nil
}

// place stores a new agent under the id that its enrolment asks for, under one that follows from
// its enrollment_id, or under a new one.
//
// A host whose answer was lost asks again with the same enrollment_id. Both enrolments then have
// one id, which is unique in the store, so that one agent stays however many arrive at once: the
// last one's. Nobody has the keys of the others.
func (s *Service) place(ctx context.Context, a fleet.Agent, req agentapi.EnrollRequest) (fleet.Agent, error) {
	if req.ID != "" || req.EnrollmentID == "" {
		return s.store(ctx, a, cmp.Or(req.ID, fleet.NewID()), req.ReplaceToken, checkReplace)
	}
	for bearer := range maxBearers {
		taken := false
		placed, err := s.store(ctx, a, agentID(req.EnrollmentID, bearer), req.ReplaceToken, func(old, a *fleet.Agent) error {
			if taken = !neverSeen(old, a); taken {
				return errNotReplaceable(a.ID)
			}
			return nil
		})
		if !taken {
			return placed, err
		}
	}
	return a, fleet.Errorf(fleet.Conflict, "body.enrollment_id: %d agents that have checked in were enrolled with it: make a new one for each host", maxBearers)
}

// maxBearers bounds the agents that were enrolled with one enrollment_id and have checked in. A
// host makes a new one for each enrolment, so a second is that of a copied host; each costs the
// next one a read.
const maxBearers = 100

// agentID returns the id of the agent of an enrollment_id. Agents that have checked in keep theirs;
// the next bearer of the enrollment_id gets the next id.
func agentID(enrollmentID string, bearer int) string {
	sum := sha256.Sum256(fmt.Appendf(nil, "%d %s", bearer, enrollmentID))
	return strings.ToLower(base32.StdEncoding.EncodeToString(sum[:])[:len(fleet.NewID())])
}

// store stores the agent under an id, in the place of the agent that may be replaced by it.
func (s *Service) store(ctx context.Context, a fleet.Agent, id, replaceToken string, check func(old, a *fleet.Agent) error) (fleet.Agent, error) {
	a.ID, a.LocalMetadata = id, withAgentID(a.LocalMetadata, id)
	if replaceToken != "" {
		hash, err := hashToken(replaceToken, id)
		if err != nil {
			return a, err
		}
		a.ReplaceTokenHash = hash
	}
	return a, store.CreateOrReplace(ctx, s.Store.Agents(), a, func(old fleet.Agent) error {
		if err := check(&old, &a); err != nil {
			return err
		}
		return s.endOrders(ctx, &old, a.EnrolledAt)
	})
}

func errNotReplaceable(id string) error {
	return &fleet.Error{Kind: fleet.Forbidden, Code: "AgentNotReplaceable", Message: "an agent with id " + id + " exists: enrol with its replace_token and a key of its policy, or without an id"}
}

// checkReplace returns an error unless the new agent may replace the one that has the id it asks for.
func checkReplace(old, a *fleet.Agent) error {
	// As in Fleet Server, an agent that was unenrolled is replaced without a token: its keys
	// are invalid already.
	if !old.Active || neverSeen(old, a) {
		return nil
	}
	if old.ReplaceTokenHash == "" || subtle.ConstantTimeCompare([]byte(old.ReplaceTokenHash), []byte(a.ReplaceTokenHash)) != 1 || old.PolicyID != a.PolicyID {
		return errNotReplaceable(a.ID)
	}
	return nil
}

// neverSeen reports whether the stored agent is an earlier try of the enrolment of a, whose answer
// the host did not receive.
func neverSeen(old, a *fleet.Agent) bool {
	return old.Last.At == nil && a.EnrollmentID != "" && old.EnrollmentID == a.EnrollmentID
}

// endOrders ends what is open for an agent that is replaced. Otherwise it would wait for an agent that no
// longer exists: the new one receives none of it.
func (s *Service) endOrders(ctx context.Context, old *fleet.Agent, now time.Time) error {
	var results []fleet.Result
	end := func(id string) {
		if slices.ContainsFunc(results, func(r fleet.Result) bool { return r.ActionID == id }) {
			return
		}
		results = append(results, fleet.Result{ActionID: id, AgentID: old.ID, Hostname: old.Hostname(), Error: "the host enrolled again before the order was done", Timestamp: now})
	}
	for _, id := range old.ComponentActions {
		end(id)
	}
	if old.Upgrading() && old.UpgradeActionID != "" {
		end(old.UpgradeActionID)
	}
	if err := store.EachOpen(ctx, s.Store, old.ID, now, func(act *fleet.Action) { end(act.ID) }); err != nil {
		return err
	}
	_, err := s.Store.Results().Put(ctx, results)
	return err
}

// AuditUnenroll records an agent's report that it is gone from its host since a time:
// uninstall, orphaned or key_revoked. The agent's next check-in removes the record.
func (s *Service) AuditUnenroll(ctx context.Context, agentID, reason string, at time.Time) error {
	switch reason {
	case "uninstall", "orphaned", "key_revoked":
	default:
		return fleet.FieldError("body.reason", "is %q, want uninstall, orphaned or key_revoked", reason)
	}
	if at.IsZero() {
		return fleet.FieldError("body.timestamp", "is missing: say when the agent was removed")
	}
	at = at.UTC()
	var orphaned bool
	_, err := store.UpdateAgent(ctx, s.Store.Agents(), agentID, func(a *fleet.Agent) bool {
		if orphaned = a.AuditUnenrolledReason == "orphaned"; orphaned {
			return false
		}
		a.AuditUnenrolledReason, a.AuditUnenrolledTime = reason, &at
		return true
	})
	switch {
	case err != nil:
		return err
	case orphaned:
		return &fleet.Error{Kind: fleet.Conflict, Code: "ErrAuditReasonConflict", Message: "the agent is known to be orphaned already"}
	}
	s.Events.Publish(ctx, fleet.Event{Type: fleet.EventAgentStatus, Subject: agentID, Data: event.Data(map[string]string{"status": reason})})
	return nil
}

// maxIDLength is that of the table of messages, for the sentence.
const maxIDLength = 128

func check(req agentapi.EnrollRequest) error {
	switch req.Type {
	case "PERMANENT", "EPHEMERAL", "TEMPORARY":
	default:
		return fleet.FieldError("body.type", "is %q, want PERMANENT", req.Type)
	}
	if len(req.ID) > maxIDLength || strings.HasPrefix(req.ID, ".") || strings.ContainsFunc(req.ID, func(r rune) bool {
		return (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') && (r < '0' || r > '9') && r != '-' && r != '_' && r != '.'
	}) {
		return fleet.FieldError("body.id", "is %q, want at most %d letters, digits, '-', '_' or '.', and no '.' at the start", req.ID, maxIDLength)
	}
	for field, raw := range map[string]json.RawMessage{"body.metadata.local": req.Metadata.Local, "body.metadata.user_provided": req.Metadata.UserProvided} {
		var m map[string]any
		if len(raw) > 0 && json.Unmarshal(raw, &m) != nil {
			return fleet.FieldError(field, "want a JSON object")
		}
	}
	for i, tag := range req.Metadata.Tags {
		if err := fleet.CheckText(fmt.Sprintf("body.metadata.tags[%d]", i), tag); err != nil {
			return err
		}
	}
	return cmp.Or(
		fleet.CheckText("body.enrollment_id", req.EnrollmentID),
		fleet.CheckTexts("body.metadata.local", req.Metadata.Local),
		fleet.CheckTexts("body.metadata.user_provided", req.Metadata.UserProvided),
	)
}

func tags(in []string) []string {
	out := slices.Clone(in)
	slices.Sort(out)
	out = slices.Compact(out)
	if out == nil {
		out = []string{}
	}
	return out
}

// withAgentID sets elastic.agent.id, as Fleet Server does.
func withAgentID(local json.RawMessage, id string) json.RawMessage {
	m := map[string]any{}
	if len(local) > 0 {
		_ = json.Unmarshal(local, &m) // check has verified that it is an object
	}
	elastic, _ := m["elastic"].(map[string]any)
	if elastic == nil {
		elastic = map[string]any{}
	}
	agent, _ := elastic["agent"].(map[string]any)
	if agent == nil {
		agent = map[string]any{}
	}
	agent["id"] = id
	elastic["agent"] = agent
	m["elastic"] = elastic
	return event.Data(m)
}

// hashRounds slows down guessing, because users choose replace tokens. A token is
// checked only when a host enrols again.
const hashRounds = 100_000

func hashToken(token, agentID string) (string, error) {
	b, err := pbkdf2.Key(sha512.New, token, []byte(agentID), hashRounds, 32)
	return hex.EncodeToString(b), err
}
