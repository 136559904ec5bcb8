package action

import (
	"context"
	"strings"
	"time"

	"github.com/muster-fleet/muster/server/fleet"
	"github.com/muster-fleet/muster/server/rollout/plan"
	"github.com/muster-fleet/muster/server/store"
	"github.com/muster-fleet/muster/server/wire/agentapi"
)

// Guards decide whether an upgrade may be ordered now. Rollouts make their offers by the
// same rules, so that no way to a host is without them.
type Guards interface {
	// Check returns an error that names the freeze or the budget which forbids the order.
	// Otherwise it returns when the order expires, which is not after o.Latest. agents calls
	// its argument with each agent that would be upgraded.
	Check(ctx context.Context, o plan.Order, agents func(func(*fleet.Agent)) error) (expires time.Time, err error)
}

// CheckOrder returns the error about a freeze, the exposure budget or a declared fleet with which
// Upgrade refuses the order, nil if it would not.
func (s *Service) CheckOrder(ctx context.Context, o UpgradeOrder) error {
	do, _, err := s.upgradeStep(ctx, o)
	if err != nil {
		return err
	}
	_, _, err = s.allowed(ctx, &o, do)
	return err
}

// allowed returns when the order expires and which declared fleet it suspends, or an error that
// names what forbids it.
func (s *Service) allowed(ctx context.Context, o *UpgradeOrder, do step) (expires time.Time, suspend string, err error) {
	follow := func(f func(*fleet.Agent)) error {
		return s.eachVerdict(ctx, o.AgentIDs, do, func(v Verdict) {
			if v.Err == nil {
				f(&v.Agent)
			}
		})
	}
	now := s.Now.UTC()
	g := plan.Order{
		Component: o.Component, Version: o.Version, From: now, To: now, Latest: now.Add(fleet.DefaultExpiration),
		OverrideFreeze: o.OverrideFreeze, OverrideExposure: o.OverrideExposure, Now: now,
	}
	if o.StartTime != nil {
		g.From, g.To = beginsFrom(*o.StartTime, o.RolloutSeconds, now)
		g.Latest = o.StartTime.Add(fleet.DefaultExpiration)
	}
	expires = g.Latest
	if s.Guards != nil && !o.Rollback {
		if expires, err = s.Guards.Check(ctx, g, follow); err != nil {
			return time.Time{}, "", err
		}
	}
	suspend, err = CheckOwned(ctx, s.Owners, o.claim(), follow)
	return expires, suspend, err
}

// beginsFrom returns when the first and the last agent of a scheduled upgrade begin, from
// now on.
func beginsFrom(start time.Time, rolloutSeconds int, now time.Time) (first, last time.Time) {
	last = start.Add(time.Duration(rolloutSeconds) * time.Second)
	if start.Before(now) {
		start = now
	}
	if last.Before(start) {
		last = start
	}
	return start, last
}

func (o *UpgradeOrder) checkWhy() error {
	switch {
	case len(o.Why) > maxWhy:
		return fleet.FieldError("body.why", "has %d bytes, at most %d are accepted", len(o.Why), maxWhy)
	case (o.OverrideFreeze || o.OverrideExposure) && strings.TrimSpace(o.Why) == "":
		return fleet.FieldError("body.why", "is missing: say why the guard rail is overridden; the audit trail keeps it")
	}
	return nil
}

// maxWhy bounds a reason, in bytes, as in rollouts.
const maxWhy = 2 << 10

func (o *UpgradeOrder) overrides() (which []string) {
	if o.OverrideFreeze {
		which = append(which, "freeze")
	}
	if o.OverrideExposure {
		which = append(which, "exposure")
	}
	return which
}

// CancelScheduled cancels the upgrades that were scheduled for a time within the freeze,
// except those that were ordered in spite of freezes. Hosts have a scheduled upgrade
// already, and begin it without asking the server.
func (s *Service) CancelScheduled(ctx context.Context, f fleet.Freeze, actor string) error {
	now := s.Now.UTC()
	// An upgrade can be scheduled a year ahead, so all stored actions are read. Retention
	// bounds their number.
	for offset := 0; ; offset += cancelPage {
		list, err := s.Store.Actions().List(ctx, store.ActionQuery{Offset: offset, Limit: cancelPage})
		if err != nil {
			return err
		}
		for i := range list {
			a := &list[i]
			if a.Type != agentapi.ActionUpgrade || a.StartTime == nil || a.OverrideFreeze || a.CancelledAt != nil || a.Expired(now) {
				continue
			}
			if end := a.StartTime.Add(time.Duration(a.RolloutSeconds) * time.Second); end.Before(now) {
				continue // all of them have begun
			}
			if from, to := beginsFrom(*a.StartTime, a.RolloutSeconds, now); !f.Holds(from, to) {
				continue
			}
			if _, err := s.cancel(ctx, a.ID, actor, "it was scheduled for a time within the freeze “"+f.Name+"”"); err != nil && fleet.KindOf(err) != fleet.Conflict { // Conflict: it is over
				return err
			}
		}
		if len(list) < cancelPage {
			return nil
		}
	}
}

// cancelPage bounds one read of CancelScheduled, since an action may name 100,000 agents.
const cancelPage = 20
