// Package incident manages incidents: what only a person can decide or repair. The
// reconciler opens those of rollouts and their agents, Run those of versions from which
// several hosts were rolled back, and of components that could not be put back. CloseRun
// resolves those whose cause is gone. Operators acknowledge and resolve the others, and every
// change is published as an event.
package incident

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"github.com/muster-fleet/muster/server/clock"
	"github.com/muster-fleet/muster/server/fleet"
	"github.com/muster-fleet/muster/server/store"
	"github.com/muster-fleet/muster/server/store/audit"
	"github.com/muster-fleet/muster/server/store/event"
)

const (
	// ResolvedRetention is how long a resolved incident is stored: a quarter, the usual
	// period of reviews.
	ResolvedRetention = 90 * 24 * time.Hour
	// MaxPerRollout bounds the incidents of one category and rollout. Nobody works
	// through more of them one by one. One further incident, without an agent, stands
	// for the rest, which are among the rollout's targets.
	MaxPerRollout = 500
)

// System is the actor of changes that no person made.
const System = "muster"

// Service manages incidents.
type Service struct {
	Store store.Collection[fleet.Incident]
	// Agents is read by Run and CloseRun alone, Rollouts and Targets by CloseRun.
	Agents   store.Agents
	Rollouts store.Rollouts
	Targets  store.Targets
	Events   *event.Stream
	Audit    store.Audit
	Log      *slog.Logger
	Now      clock.Clock

	gone  map[string]int64 // the revisions of incidents whose cause was gone when CloseRun last looked
	next  int              // where its next round begins
	scans map[string]scan  // how far it has read the targets of incidents about many hosts, by incident
	pages int              // how many more pages of them its round may read
}

// ID returns the id of the incident of a cause.
func ID(category fleet.IncidentKind, rolloutID, agentID string) string {
	return string(category) + ":" + rolloutID + ":" + agentID
}

func idOf(i *fleet.Incident) string {
	switch {
	case i.Version != "" && i.Component != "":
		return string(i.Category) + ":" + i.Component + ":" + i.Version
	case i.Version != "":
		return string(i.Category) + ":" + i.Version
	case i.Component != "" && i.RolloutID == "": // a rollout is of one component
		return ID(i.Category, "", i.AgentID) + ":" + i.Component
	}
	return ID(i.Category, i.RolloutID, i.AgentID)
}

// Open opens an incident, or reopens a resolved one. One that is open or acknowledged
// takes the new title and text, such as those of a rollout that stops again.
func (s *Service) Open(ctx context.Context, i fleet.Incident) error {
	title, severity, ok := describe(i.Category)
	if !ok {
		return fleet.FieldError("category", "is %q, want one of %v", i.Category, fleet.IncidentKinds)
	}
	i.ID = idOf(&i)
	if i.Title == "" {
		what := cmp.Or(i.Hostname, i.AgentID, "more agents")
		if i.Version != "" {
			what = release{i.Component, i.Version}.String()
		}
		i.Title = fmt.Sprintf(title, what)
	}
	i.Severity = cmp.Or(i.Severity, severity)
	i.State, i.OpenedAt, i.Acked, i.Resolved, i.Count = fleet.IncidentOpen, s.Now.UTC(), nil, nil, 1
	return s.open(ctx, i)
}

// errManyMore is the reason why an incident is not opened of its own.
var errManyMore = errors.New("the rollout has enough incidents of this category")

func (s *Service) open(ctx context.Context, i fleet.Incident) error {
	created := false
	stored, written, err := store.Put(ctx, s.Store, i.ID, func(old *fleet.Incident) (fleet.Incident, error) {
		if created = old == nil; created {
			full, err := s.makeRoom(ctx, i)
			if err == nil && full && i.AgentID != "" {
				err = errManyMore
			}
			return i, err
		}
		next := *old
		switch {
		case old.State == fleet.IncidentResolved:
			next = i
			next.Count = old.Count + 1
		case i.AgentID == "":
			next.Title, next.Text = i.Title, i.Text
		}
		return next, nil
	})
	if errors.Is(err, errManyMore) {
		i.Title = fmt.Sprintf("More than %d agents of one rollout have the same trouble", MaxPerRollout)
		i.Text = "These and all further ones are among the rollout's failed targets: look for what they have in common before repairing single hosts."
		i.AgentID, i.Hostname = "", ""
		i.ID = ID(i.Category, i.RolloutID, "")
		return s.open(ctx, i)
	}
	if err != nil {
		return err
	}
	if written && created {
		s.Log.Warn("incident opened", "incident", stored.ID, "title", stored.Title)
	}
	if written {
		s.publish(ctx, stored, System)
	}
	return s.record(ctx, stored) // also of one that is open: a crash after it was written may have lost the entry
}

// describe returns the title of a category, with %s for the host or the version, and its severity.
func describe(k fleet.IncidentKind) (title, severity string, ok bool) {
	switch k {
	case fleet.IncidentUpgradeFailed:
		return "The upgrade of %s failed, and the previous version could not be restored", "critical", true
	case fleet.IncidentRollbackFailed:
		return "The rollback of %s failed", "critical", true
	case fleet.IncidentStalled:
		return "%s runs the new version, but has not become healthy", "warning", true
	case fleet.IncidentRolloutStopped:
		return "A rollout has stopped (%s)", "warning", true
	case fleet.IncidentVersionRolledBack:
		return "Several hosts were rolled back from %s", "critical", true
	case fleet.IncidentSharedIdentity:
		return "Several hosts check in as the agent of %s", "critical", true
	}
	return "", "", false
}

// makeRoom deletes incidents that were resolved long ago, and reports whether the
// incident's rollout has reached MaxPerRollout.
func (s *Service) makeRoom(ctx context.Context, i fleet.Incident) (full bool, err error) {
	all, _, err := s.Store.List(ctx, 0, 0)
	if err != nil {
		return false, err
	}
	before := s.Now.UTC().Add(-ResolvedRetention)
	siblings := 0
	for _, other := range all {
		switch {
		case other.State == fleet.IncidentResolved && other.Resolved != nil && other.Resolved.At.Before(before):
			if err := s.Store.Delete(ctx, other.ID); err != nil {
				return false, err
			}
		case other.Category == i.Category && other.RolloutID == i.RolloutID:
			siblings++
		}
	}
	return siblings >= MaxPerRollout, nil
}

// List returns a page of the incidents in a state, or of all if state is empty, the
// most recently opened first. The second result is their total.
func (s *Service) List(ctx context.Context, state fleet.IncidentState, offset, limit int) ([]fleet.Incident, int, error) {
	switch state {
	case "", fleet.IncidentOpen, fleet.IncidentAcked, fleet.IncidentResolved:
	default:
		return nil, 0, fleet.FieldError("query.state", "is %q, want %s, %s or %s", state, fleet.IncidentOpen, fleet.IncidentAcked, fleet.IncidentResolved)
	}
	all, _, err := s.Store.List(ctx, 0, 0)
	if err != nil {
		return nil, 0, err
	}
	if state != "" {
		all = slices.DeleteFunc(all, func(i fleet.Incident) bool { return i.State != state })
	}
	slices.SortStableFunc(all, func(a, b fleet.Incident) int { return b.OpenedAt.Compare(a.OpenedAt) })
	total := len(all)
	from := min(max(offset, 0), total)
	to := total
	if limit > 0 {
		to = min(from+limit, total)
	}
	return all[from:to], total, nil
}

// Get returns one incident.
func (s *Service) Get(ctx context.Context, id string) (fleet.Incident, error) {
	return s.Store.Get(ctx, id)
}

// Ack acknowledges an incident. A second acknowledgement changes nothing.
func (s *Service) Ack(ctx context.Context, id, actor, why string) (fleet.Incident, error) {
	return s.change(ctx, id, commandAck, actor, why, func(i *fleet.Incident, d *fleet.Decision) {
		i.State, i.Acked = fleet.IncidentAcked, d
	})
}

// Resolve marks the cause as repaired. A second call changes nothing. The incident
// opens again if the cause recurs.
func (s *Service) Resolve(ctx context.Context, id, actor, why string) (fleet.Incident, error) {
	return s.change(ctx, id, commandResolve, actor, why, func(i *fleet.Incident, d *fleet.Decision) {
		i.State, i.Resolved = fleet.IncidentResolved, d
	})
}

// change carries out a command on an incident if it is possible.
func (s *Service) change(ctx context.Context, id, name, actor, why string, edit func(*fleet.Incident, *fleet.Decision)) (fleet.Incident, error) {
	i, written, err := store.Change(ctx, s.Store, id, func(i fleet.Incident) (fleet.Incident, error) {
		switch refused := checkCommand(name, &i); {
		case refused != nil && refused.Done:
			return i, nil
		case refused != nil:
			return i, refused.Err("incident " + i.ID)
		}
		edit(&i, &fleet.Decision{By: actor, At: s.Now.UTC(), Why: why})
		return i, nil
	}, func(_, i fleet.Incident) error { return s.record(ctx, i) })
	if written {
		s.publish(ctx, i, actor)
	}
	return i, err
}

func by(d *fleet.Decision) string {
	if d == nil {
		return ""
	}
	return fmt.Sprintf(" by %s at %s", d.By, d.At.Format(time.RFC3339))
}

// Data is the data of fleet.EventIncident.
type Data struct {
	ID        string              `json:"id"`
	Category  fleet.IncidentKind  `json:"category"`
	Severity  string              `json:"severity"`
	State     fleet.IncidentState `json:"state"`
	Title     string              `json:"title"`
	Text      string              `json:"text"`
	Next      *fleet.IncidentNext `json:"next,omitempty"`
	RolloutID string              `json:"rollout_id,omitempty"`
	AgentID   string              `json:"agent_id,omitempty"`
	Hostname  string              `json:"hostname,omitempty"`
	Count     int                 `json:"count"`
}

func (s *Service) publish(ctx context.Context, i fleet.Incident, actor string) {
	s.Events.Publish(ctx, fleet.Event{Type: fleet.EventIncident, Subject: i.ID, Actor: actor, Data: event.Data(Data{
		ID: i.ID, Category: i.Category, Severity: i.Severity, State: i.State, Title: i.Title, Text: i.Text, Next: NextOf(&i),
		RolloutID: i.RolloutID, AgentID: i.AgentID, Hostname: i.Hostname, Count: i.Count,
	})})
}

// record writes the audit entry of the incident's state. The entry's id is derived from
// the incident and from whose decision it is, so writing it again is harmless, and of two people
// who decide at the same moment neither hides the other.
func (s *Service) record(ctx context.Context, i fleet.Incident) error {
	e := fleet.AuditEntry{
		At: i.OpenedAt, Actor: System, Verb: "incident.open", Subject: cmp.Or(i.RolloutID, i.ID), Text: i.Title,
		Data: event.Data(map[string]string{"incident_id": i.ID, "agent_id": i.AgentID}),
	}
	switch {
	case i.State == fleet.IncidentResolved && i.Resolved != nil:
		e.At, e.Actor, e.Why, e.Verb, e.Text = i.Resolved.At, i.Resolved.By, i.Resolved.Why, "incident.resolve", "Resolved: "+i.Title
	case i.State == fleet.IncidentAcked && i.Acked != nil:
		e.At, e.Actor, e.Why, e.Verb, e.Text = i.Acked.At, i.Acked.By, i.Acked.Why, "incident.ack", "Acknowledged: "+i.Title
	}
	e.ID = fmt.Sprintf("%s:%s:%d", e.Verb, i.ID, i.Count)
	if e.Actor != System {
		e.ID += ":" + audit.By(e.Actor)
	}
	return s.Audit.Append(ctx, []fleet.AuditEntry{e})
}
