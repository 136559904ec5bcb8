// Package retention removes what is over and old: actions with their results, rollouts with
// their targets and previews, groups of rollouts, the audit trail, the history of agents, incidents, dead letters,
// events, uploaded diagnostics and servers that are gone. One server does so, the owner of a lease. It never
// removes what is open, whatever its age or number.
package retention

import (
	"context"
	"log/slog"
	"slices"
	"strings"
	"time"

	"github.com/muster-fleet/muster/server/clock"
	"github.com/muster-fleet/muster/server/fleet"
	"github.com/muster-fleet/muster/server/kql"
	"github.com/muster-fleet/muster/server/store"
	"github.com/muster-fleet/muster/server/store/lease"
)

const (
	// interval separates rounds, each of which does little.
	interval = time.Minute
	// leaseID is the lease whose owner removes.
	leaseID = "retention"
	// actionPage bounds the actions that one round looks at, and actionDeletes those that it
	// removes: a store needs some 50 ms for each.
	actionPage, actionDeletes = 20, 20
	// rolloutPage bounds the rollouts that one round looks at. It removes one, which may
	// have 100,000 targets.
	rolloutPage = 20
	// seldom is in how many rounds the parts run once that need little time but read all
	// their records.
	seldom = 10
)

// Service removes what is over and old.
type Service struct {
	Store store.Store
	Lease *lease.Owner
	// Limits are for tests: those of a kind, in place of store.Info.Keep.
	Limits map[*store.Info]store.Limits
	// Uploads removes what is old of the files that agents have sent. It may be nil; then
	// they are kept.
	Uploads func(context.Context) error
	Log     *slog.Logger
	Now     clock.Clock

	// Where the next round continues, so that records that are still open do not hold up the
	// others.
	action  int64 // Seq of the last action
	rollout int   // offset, counted from the newest
	rounds  int
}

func (s *Service) keep(kind *store.Info) store.Limits {
	if l, ok := s.Limits[kind]; ok {
		return l
	}
	return kind.Keep
}

// Run runs a round every minute, on the server that owns the lease, until ctx ends.
func (s *Service) Run(ctx context.Context) {
	lease.Rounds{Work: "removals of old records", Lease: s.Lease, Interval: interval, Log: s.Log}.Run(ctx, s.Round)
}

// Round does a bounded part of the work if this server owns the lease. It must not be
// called concurrently.
func (s *Service) Round(ctx context.Context) error {
	owned, err := s.Lease.Take(ctx, leaseID)
	if err != nil || !owned {
		return err
	}
	now := s.Now.UTC()
	active, err := s.Store.Rollouts().Active(ctx)
	if err != nil {
		return err
	}
	often := s.rounds%seldom != 0
	s.rounds++
	for _, p := range parts {
		if often && p.seldom {
			continue
		}
		if err := p.remove(s, ctx, active, now); err != nil {
			return err
		}
	}
	return nil
}

// parts remove what is old of each kind of which store.Info says that this package does.
var parts = []struct {
	kind   *store.Info
	seldom bool // it reads all documents
	remove func(s *Service, ctx context.Context, active []store.RolloutHead, now time.Time) error
}{
	{store.KindActions, false, (*Service).actions},
	{store.KindRollouts.Info, false, (*Service).rollouts},
	{store.KindAudit, true, (*Service).audit},
	{store.KindHistory, true, (*Service).history},
	{store.KindRolloutGroups.Info, true, func(s *Service, ctx context.Context, _ []store.RolloutHead, now time.Time) error {
		return remove(ctx, s.Store, store.KindRolloutGroups, s.keep(store.KindRolloutGroups.Info), now, func(g *fleet.RolloutGroup) (time.Time, bool) {
			if g.EndedAt != nil {
				return *g.EndedAt, !g.State.Active()
			}
			return g.CreatedAt, !g.State.Active()
		})
	}},
	{store.KindIncidents.Info, true, func(s *Service, ctx context.Context, _ []store.RolloutHead, now time.Time) error {
		return remove(ctx, s.Store, store.KindIncidents, s.keep(store.KindIncidents.Info), now, func(i *fleet.Incident) (time.Time, bool) {
			if i.State != fleet.IncidentResolved || i.Resolved == nil {
				return time.Time{}, false
			}
			return i.Resolved.At, true
		})
	}},
	{store.KindDeadLetters.Info, true, func(s *Service, ctx context.Context, _ []store.RolloutHead, now time.Time) error {
		return remove(ctx, s.Store, store.KindDeadLetters, s.keep(store.KindDeadLetters.Info), now, func(l *fleet.DeadLetter) (time.Time, bool) { return l.At, true })
	}},
	{store.KindEvents, true, func(s *Service, ctx context.Context, _ []store.RolloutHead, _ time.Time) error {
		return s.Store.Events().Trim(ctx, s.keep(store.KindEvents).Count)
	}},
	{store.KindServers.Info, true, func(s *Service, ctx context.Context, _ []store.RolloutHead, now time.Time) error {
		return remove(ctx, s.Store, store.KindServers, s.keep(store.KindServers.Info), now, func(v *fleet.Server) (time.Time, bool) { return v.SeenAt, true })
	}},
	{store.KindUploads.Info, false, func(s *Service, ctx context.Context, _ []store.RolloutHead, _ time.Time) error {
		if s.Uploads == nil {
			return nil
		}
		return s.Uploads(ctx)
	}},
}

// remove removes the documents of a kind that are over and exceed the limits. over reports whether
// one is, and since when.
func remove[T any](ctx context.Context, db store.Store, kind store.Kind[T], limits store.Limits, now time.Time, over func(*T) (since time.Time, over bool)) error {
	c := kind.In(db.Documents(kind.Info))
	list, _, err := c.List(ctx, 0, 0)
	if err != nil {
		return err
	}
	for n := range list {
		since, ended := over(&list[n])
		if !ended || !limits.Exceeded(now.Sub(since), n) {
			continue
		}
		id, _ := kind.Info.Head(&list[n])
		if err := c.Delete(ctx, id); err != nil {
			return err
		}
	}
	return nil
}

// actionOver reports whether an action is over: no agent receives it any more. Agents that
// are away may receive one until it expires, whatever its results say.
func actionOver(a *fleet.Action, now time.Time) bool {
	if a.Expiration == nil {
		return now.Sub(a.CreatedAt) > fleet.DefaultExpiration
	}
	return a.Expired(now)
}

// actionOf reports whether an action is an offer or a withdrawal of one of the rollouts,
// whose ids begin with the rollout's.
func actionOf(id string, rollouts []store.RolloutHead) bool {
	id = strings.TrimPrefix(id, fleet.CancelID(""))
	return slices.ContainsFunc(rollouts, func(r store.RolloutHead) bool { return strings.HasPrefix(id, r.ID) })
}

func (s *Service) actions(ctx context.Context, active []store.RolloutHead, now time.Time) error {
	limits := s.keep(store.KindActions)
	// The newest action beyond the number that is kept.
	beyond := int64(0)
	more, err := s.Store.Actions().List(ctx, store.ActionQuery{Offset: limits.Count, Limit: 1})
	if err != nil {
		return err
	}
	if len(more) > 0 {
		beyond = more[0].Seq
	}
	page, err := s.Store.Actions().After(ctx, s.action, actionPage)
	if err != nil {
		return err
	}
	last, err := s.Store.Actions().LastSeq(ctx)
	if err != nil {
		return err
	}
	var old []string
	next := int64(0) // begin again
	for i := range page {
		a := &page[i]
		if now.Sub(a.CreatedAt) <= limits.Age && a.Seq > beyond {
			break // so are all after it
		}
		if next = a.Seq; a.Seq < last && actionOver(a, now) && !actionOf(a.ID, active) {
			old = append(old, a.ID)
		}
		if len(old) == actionDeletes {
			break
		}
	}
	if s.action = next; len(old) == 0 {
		return nil
	}
	// An agent whose upgrade has no action any more counts as failed.
	used := map[string]bool{}
	err = store.EachUpgrading(ctx, s.Store.Agents(), func(a *fleet.Agent) {
		used[a.UpgradeActionID] = true
		if a.Undoes != nil {
			used[a.Undoes.ActionID] = true
		}
	})
	if err != nil {
		return err
	}
	underway := store.AgentFilter{Query: kql.Exists{Field: fleet.FieldComponentsSince}}
	err = s.Store.Agents().Each(ctx, underway, func(a fleet.Agent) {
		for _, id := range a.ComponentActions {
			used[id] = true
		}
	})
	if err != nil {
		return err
	}
	for _, id := range old {
		if used[id] || used[strings.TrimPrefix(id, fleet.CancelID(""))] {
			continue
		}
		if err := s.Store.Actions().Delete(ctx, id); err != nil {
			return err
		}
	}
	return nil
}

// rolloutOver reports whether a rollout has ended, or is a draft that nobody has started;
// and since when.
func rolloutOver(r *fleet.Rollout) (since time.Time, over bool) {
	switch {
	case r.State.Active():
		return since, false
	case r.EndedAt != nil:
		return *r.EndedAt, true
	case r.State == fleet.RolloutDraft && r.Pin != nil:
		return since, false // its start was interrupted, and starting again completes it
	}
	return r.CreatedAt, true
}

func (s *Service) rollouts(ctx context.Context, active []store.RolloutHead, now time.Time) error {
	list, total, err := s.Store.Rollouts().List(ctx, max(0, s.rollout), rolloutPage)
	if err != nil {
		return err
	}
	first := s.rollout
	if s.rollout += len(list); s.rollout >= total {
		s.rollout = 0
	}
	isActive := map[string]bool{}
	for _, h := range active {
		isActive[h.ID] = true
	}
	for i := range slices.Backward(list) {
		r := &list[i]
		since, over := rolloutOver(r)
		// A rollback refers to what it rolls back, and returns its locks to it.
		if !over || isActive[r.RolledBackBy] || isActive[r.RollbackOf] {
			continue
		}
		if !s.keep(store.KindRollouts.Info).Exceeded(now.Sub(since), first+i) {
			continue
		}
		if needed, err := s.grouped(ctx, r); err != nil {
			return err
		} else if needed {
			continue
		}
		if err := store.RemoveOwned(ctx, s.Store, store.KindRollouts, r); err != nil {
			return err
		}
		s.rollout = 0 // the offsets have moved
		s.Log.Info("a rollout is over and old, and is removed with its targets", "rollout", r.ID, "name", r.Plan.Name, "state", r.State, "since", since)
		return s.Store.Rollouts().Delete(ctx, r.ID)
	}
	return nil
}

// grouped reports whether a group that may still roll the rollout back is active.
func (s *Service) grouped(ctx context.Context, r *fleet.Rollout) (bool, error) {
	if r.Group == "" {
		return false, nil
	}
	g, err := s.Store.RolloutGroups().Get(ctx, r.Group)
	if err != nil && fleet.KindOf(err) == fleet.NotFound {
		return false, nil
	}
	return g.State.Active(), err
}

func (s *Service) audit(ctx context.Context, active []store.RolloutHead, now time.Time) error {
	open := make([]string, len(active))
	for i, h := range active {
		open[i] = h.ID
	}
	limits := s.keep(store.KindAudit)
	_, err := s.Store.Audit().Trim(ctx, store.AuditTrim{
		Before: now.Add(-limits.Age), Keep: limits.Count, Except: open, Limit: store.MaxAuditTrim,
	})
	return err
}

func (s *Service) history(ctx context.Context, _ []store.RolloutHead, now time.Time) error {
	limits := s.keep(store.KindHistory)
	_, err := s.Store.History().Trim(ctx, store.HistoryTrim{Before: now.Add(-limits.Age), Keep: limits.Count, Limit: store.MaxHistoryTrim})
	return err
}
