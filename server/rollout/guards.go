package rollout

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/muster-fleet/muster/server/fleet"
	"github.com/muster-fleet/muster/server/rollout/action"
	"github.com/muster-fleet/muster/server/rollout/plan"
	"github.com/muster-fleet/muster/server/store"
	"github.com/muster-fleet/muster/server/store/audit"
)

// The exposure rule and the freeze calendar apply to every plan, and to every upgrade that
// is ordered without one.

// Defaults of the exposure rule: a tenth of the fleet, until one agent would have been
// healthy for a day.
const (
	defaultExposurePercent      = 10
	defaultExposureHealthyHours = 24
)

const (
	// maxFreeze bounds a freeze, so that a mistyped year does not stop all rollouts for
	// a century.
	maxFreeze = 366 * 24 * time.Hour
	// maxFreezes bounds the calendar, all of which is read in each round.
	maxFreezes = 500
	// maxGuardName bounds names that people choose, in bytes.
	maxGuardName = 200
)

// Subjects of audit entries that belong to no rollout.
const (
	subjectExposure = "exposure"
	subjectFreezes  = "freezes"
)

// Guards apply the freezes and the exposure budget to upgrades that are ordered without a
// rollout. It only reads.
type Guards struct{ Store store.Store }

// Checks implements action.Guards.
func (g Guards) Checks(ctx context.Context, o *action.UpgradeOrder, now time.Time) (expires time.Time, checks []action.Check, err error) {
	from, to, expires := o.Times(now)
	if !o.OverrideFreeze {
		freezes, _, err := g.Store.Freezes().List(ctx, 0, 0)
		if err == nil {
			err = plan.CheckFreezes(freezes, from, to)
		}
		if err != nil {
			return time.Time{}, nil, err
		}
		expires = plan.Expires(freezes, to, expires)
	}
	rule, err := exposureRule(ctx, g.Store)
	if err != nil || !rule.Enabled || o.OverrideExposure {
		return expires, nil, err
	}
	tally, err := tallyOf(ctx, g.Store, rule, o.Component, now)
	if err != nil {
		return time.Time{}, nil, err
	}
	offered, err := offeredBy(ctx, g.Store, o.Component, o.Version, "")
	if err != nil {
		return time.Time{}, nil, err
	}
	var sites [][fleet.MaxLabelLimits]int32
	see := func(v *action.Verdict) {
		if a := &v.Agent; a.Of(o.Component).Version != o.Version && !offered[a.ID] {
			sites = append(sites, tally.Sites(fleet.EncodeLabels(a.Labels())))
		}
	}
	return expires, []action.Check{{See: see, Refuses: func(context.Context) error {
		return plan.CheckExposure(tally.Budget(o.Version, offered), sites)
	}}}, nil
}

// Exposure returns the exposure rule; a disabled one if none was set.
func (s *Service) Exposure(ctx context.Context) (fleet.ExposureRule, error) {
	return exposureRule(ctx, s.Store)
}

func exposureRule(ctx context.Context, db store.Store) (fleet.ExposureRule, error) {
	rule, err := db.ExposureRules().Get(ctx, fleet.ExposureRuleID)
	if err != nil && fleet.KindOf(err) == fleet.NotFound {
		return fleet.ExposureRule{ID: fleet.ExposureRuleID, Percent: defaultExposurePercent, HealthyHours: defaultExposureHealthyHours}, nil
	}
	return rule, err
}

// SetExposure replaces the exposure rule. It applies from the next round on, also to
// rollouts under way.
func (s *Service) SetExposure(ctx context.Context, r fleet.ExposureRule, req Request) (fleet.ExposureRule, error) {
	if err := req.Check(); err != nil {
		return r, err
	}
	if err := checkExposureRule(r); err != nil {
		return r, err
	}
	now := s.Now.UTC()
	r.ID, r.UpdatedAt, r.UpdatedBy = fleet.ExposureRuleID, now, req.Actor
	text := req.Actor + " switched the exposure rule off"
	if r.Enabled {
		text = fmt.Sprintf("%s set the exposure rule: %v %% of the fleet until a version has had %v healthy agent-hours", req.Actor, r.Percent, r.HealthyHours)
	}
	was, err := s.Exposure(ctx)
	if err != nil {
		return r, err
	}
	if err := s.recordGuard(ctx, subjectExposure, "exposure.set", text, audit.Changes(was, r), req, now); err != nil {
		return r, err
	}
	r, written, err := store.Put(ctx, s.Store.ExposureRules(), r.ID, func(*fleet.ExposureRule) (fleet.ExposureRule, error) { return r, nil })
	if written {
		s.signal()
	}
	return r, err
}

func checkExposureRule(r fleet.ExposureRule) error {
	// In this form the comparison is false for NaN.
	share := func(p float64) bool { return p > 0 && p <= 100 }
	switch {
	case !share(r.Percent):
		return fleet.FieldError("body.percent", "is %v, want more than 0 and at most 100", r.Percent)
	case !(r.HealthyHours >= 0 && r.HealthyHours <= 1e9):
		return fleet.FieldError("body.healthy_hours", "is %v, want 0 or more agent-hours", r.HealthyHours)
	case len(r.Per) > fleet.MaxLabelLimits:
		return fleet.FieldError("body.per", "names %d labels, at most %d can be bounded", len(r.Per), fleet.MaxLabelLimits)
	}
	seen := map[string]bool{}
	for i, l := range r.Per {
		switch {
		case l.Label == "" || len(l.Label) > maxGuardName:
			return fleet.FieldError(fmt.Sprintf("body.per[%d].label", i), "is empty or too long: name a label, such as site")
		case seen[l.Label]:
			return fleet.FieldError(fmt.Sprintf("body.per[%d].label", i), "names %s twice", l.Label)
		case !share(l.Percent):
			return fleet.FieldError(fmt.Sprintf("body.per[%d].percent", i), "is %v, want more than 0 and at most 100", l.Percent)
		}
		seen[l.Label] = true
	}
	return nil
}

// ListFreezes returns the freeze calendar, newest first.
func (s *Service) ListFreezes(ctx context.Context) ([]fleet.Freeze, error) {
	list, _, err := s.Store.Freezes().List(ctx, 0, 0)
	return list, err
}

// CreateFreeze adds a freeze, and cancels the scheduled upgrades that would begin in it:
// hosts have them already, and begin them without asking the server. It chooses the id if
// it is empty; with a given id, a repeated call adds no second freeze.
func (s *Service) CreateFreeze(ctx context.Context, f fleet.Freeze, req Request) (fleet.Freeze, error) {
	now := s.Now.UTC()
	f.Name = strings.TrimSpace(f.Name)
	if err := req.Check(); err != nil {
		return f, err
	}
	if len(f.ID) > maxGuardName {
		return f, fleet.FieldError("body.id", "has %d bytes, at most %d are accepted", len(f.ID), maxGuardName)
	}
	if err := checkFreeze(f, now); err != nil {
		return f, err
	}
	return store.Exclusively(ctx, s.Store, "freezes", func(ctx context.Context) (fleet.Freeze, error) { return s.createFreeze(ctx, f, req, now) })
}

func (s *Service) createFreeze(ctx context.Context, f fleet.Freeze, req Request, now time.Time) (fleet.Freeze, error) {
	all, err := s.ListFreezes(ctx)
	if err != nil {
		return f, err
	}
	if len(all) >= maxFreezes {
		return f, fleet.Errorf(fleet.Conflict, "there are %d freezes already: remove those that have passed", len(all))
	}
	if f.ID == "" {
		f.ID = fleet.NewID()
	}
	for _, old := range all {
		if old.ID != f.ID {
			continue
		}
		if old.Name == f.Name && old.From.Equal(f.From) && old.To.Equal(f.To) {
			return old, s.Actions.CancelScheduled(ctx, old, req.Actor) // a crash may have prevented it
		}
		return f, fleet.Errorf(fleet.Conflict, "a freeze with id %s exists (%s): choose another id", f.ID, old.Name)
	}
	f.From, f.To, f.CreatedAt, f.CreatedBy = f.From.UTC(), f.To.UTC(), now, req.Actor
	text := req.Actor + " added the freeze “" + f.Name + "” " + period(f)
	if err := s.recordGuard(ctx, subjectFreezes, "freeze.create", text, nil, req, now); err != nil {
		return f, err
	}
	if err := s.Store.Freezes().Create(ctx, f); err != nil {
		return f, err
	}
	s.signal()
	return f, s.Actions.CancelScheduled(ctx, f, req.Actor)
}

func checkFreeze(f fleet.Freeze, now time.Time) error {
	switch {
	case f.Name == "" || len(f.Name) > maxGuardName:
		return fleet.FieldError("body.name", "has %d bytes, want 1 to %d: say what the freeze is for", len(f.Name), maxGuardName)
	case f.From.IsZero():
		return fleet.FieldError("body.from", "is missing: say when the freeze begins, such as 2026-12-20T00:00:00Z")
	case !f.To.After(f.From):
		return fleet.FieldError("body.to", "is %s, want a time after from (%s)", f.To.Format(time.RFC3339), f.From.Format(time.RFC3339))
	case !f.To.After(now):
		return fleet.FieldError("body.to", "is %s, which has passed", f.To.Format(time.RFC3339))
	case f.To.Sub(f.From) > maxFreeze:
		return fleet.FieldError("body.to", "is more than a year after from: make several freezes if that is meant")
	}
	return nil
}

// period describes when a freeze is in force.
func period(f fleet.Freeze) string {
	return "from " + f.From.Format(time.RFC3339) + " to " + f.To.Format(time.RFC3339)
}

// ChangeFreeze replaces the name and the times of a freeze, and cancels the scheduled
// upgrades that would begin in it, as CreateFreeze does.
func (s *Service) ChangeFreeze(ctx context.Context, f fleet.Freeze, req Request) (fleet.Freeze, error) {
	now := s.Now.UTC()
	f.Name, f.From, f.To = strings.TrimSpace(f.Name), f.From.UTC(), f.To.UTC()
	if err := req.Check(); err != nil {
		return f, err
	}
	if err := checkFreeze(f, now); err != nil {
		return f, err
	}
	changed, _, err := store.Change(ctx, store.WithGet(s.Store.Freezes(), s.getFreeze), f.ID, func(old fleet.Freeze) (fleet.Freeze, error) {
		old.Name, old.From, old.To = f.Name, f.From, f.To
		return old, nil
	}, func(old, changed fleet.Freeze) error {
		text := req.Actor + " changed the freeze “" + old.Name + "” " + period(old) + " to “" + f.Name + "” " + period(f)
		return s.recordGuard(ctx, subjectFreezes, "freeze.change", text, audit.Changes(old, changed), req, now)
	})
	if err != nil {
		return f, err
	}
	s.signal()
	return changed, s.Actions.CancelScheduled(ctx, changed, req.Actor)
}

func (s *Service) getFreeze(ctx context.Context, id string) (fleet.Freeze, error) {
	f, err := s.Store.Freezes().Get(ctx, id)
	if err != nil && fleet.KindOf(err) == fleet.NotFound {
		return f, fleet.Errorf(fleet.NotFound, "there is no freeze %s: `muster freezes list` shows those there are", id)
	}
	return f, err
}

// DeleteFreeze removes a freeze.
func (s *Service) DeleteFreeze(ctx context.Context, id string, req Request) error {
	if err := req.Check(); err != nil {
		return err
	}
	f, err := s.getFreeze(ctx, id)
	if err != nil {
		return err
	}
	if err := s.recordGuard(ctx, subjectFreezes, "freeze.delete", req.Actor+" removed the freeze “"+f.Name+"”", nil, req, s.Now.UTC()); err != nil {
		return err
	}
	if err := s.Store.Freezes().Delete(ctx, id); err != nil {
		return err
	}
	s.signal()
	return nil
}

func (s *Service) recordGuard(ctx context.Context, subject, verb, text string, changes []audit.FieldChange, req Request, now time.Time) error {
	return s.Store.Audit().Append(ctx, []fleet.AuditEntry{{
		ID: fleet.NewID(), At: now, Actor: req.Actor, Verb: verb, Subject: subject, Why: req.Why, Text: text, Data: audit.ChangeData(changes),
	}})
}
