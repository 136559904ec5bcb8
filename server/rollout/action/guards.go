package action

import (
	"context"
	"strings"
	"time"

	"github.com/muster-fleet/muster/server/fleet"
	"github.com/muster-fleet/muster/server/store"
	"github.com/muster-fleet/muster/server/wire/agentapi"
)

// Check judges an order by all agents that would follow it, after each was judged alone.
type Check struct {
	// See is called with each of them.
	See func(*Verdict)
	// Refuses returns why the order is refused, after See was called with all; nil: it is not.
	Refuses func(ctx context.Context) error
}

// Guards decide whether an upgrade may be ordered now. Rollouts make their offers by the
// same rules, so that no way to a host is without them.
type Guards interface {
	// Checks returns an error that names the freeze which forbids the order, whoever would follow.
	// Otherwise it returns when the order expires, which is not after the last time of o.Times, and
	// what the exposure budget checks, if anything.
	Checks(ctx context.Context, o *UpgradeOrder, now time.Time) (expires time.Time, checks []Check, err error)
}

// judgeAll judges each of the agents once: f gets the verdicts, in the order of the ids, and the checks
// those of the agents that would follow. It returns the first refusal of a check. Without f and checks
// no agent is read.
func (s *Service) judgeAll(ctx context.Context, ids []string, do step, checks []Check, f func(Verdict)) error {
	if f == nil && len(checks) == 0 {
		return nil
	}
	err := s.eachPage(ctx, ids, do, func(page []Verdict) error {
		for i := range page {
			for _, c := range checks {
				if page[i].Err == nil {
					c.See(&page[i])
				}
			}
			if f != nil {
				f(page[i])
			}
		}
		return nil
	})
	for i := 0; i < len(checks) && err == nil; i++ {
		err = checks[i].Refuses(ctx)
	}
	return err
}

// guard returns when the order expires, and the checks of all its agents. It returns an error if the
// order is refused whoever would follow.
func (s *Service) guard(ctx context.Context, o *UpgradeOrder) (expires time.Time, of *owned, checks []Check, err error) {
	now := s.Now.UTC()
	_, _, expires = o.Times(now)
	if o.Stages {
		return expires, &owned{}, nil, nil // nothing that runs is changed
	}
	if s.Guards != nil && !o.Rollback {
		if expires, checks, err = s.Guards.Checks(ctx, o, now); err != nil {
			return time.Time{}, nil, nil, err
		}
	}
	of, err = ownedBy(ctx, s.Owners, o.claim())
	return expires, of, append(checks, of.checks()...), err
}

// Times returns when the first and the last agent of the order begin, if it is given now, and when it
// expires if no freeze begins before.
func (o *UpgradeOrder) Times(now time.Time) (from, to, latest time.Time) {
	if o.StartTime == nil {
		return now, now, now.Add(fleet.DefaultExpiration)
	}
	from, to = beginsFrom(*o.StartTime, o.RolloutSeconds, now)
	return from, to, o.StartTime.Add(fleet.DefaultExpiration)
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
			if from, to := beginsFrom(*a.StartTime, a.RolloutSeconds, now); !f.Covers(from, to) {
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
