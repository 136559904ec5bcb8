package action

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/muster-fleet/muster/server/agentapi"
	"github.com/muster-fleet/muster/server/audit"
	"github.com/muster-fleet/muster/server/fleet"
	"github.com/muster-fleet/muster/server/store"
)

// The removal limit bounds how many agents operators unenrol, move to another policy or migrate to
// another server within an hour, unless they say that they mean it. None of these orders can be
// taken back for hosts that have followed it. The exposure budget says nothing about them: it is
// about versions that are not proven yet.
const (
	// removalWindow is how long an order counts: somebody who has made a mistake notices it within
	// an hour, by the hosts that are missing.
	removalWindow = time.Hour
	// removalPercent is the share of the fleet, as that of the exposure rule.
	removalPercent = 10
	// removalAlways is the limit of small fleets: so many hosts are enrolled again by hand in an
	// afternoon.
	removalAlways = 25
	// removalCounts is how long a silent agent counts, as in the exposure budget: nobody misses a
	// host that has been away for longer, and clean-ups unenrol thousands of them.
	removalCounts = fleet.DefaultInactivityTimeout
)

// ErrRemovalLimit is the code of the error about an order that exceeds the removal limit.
const ErrRemovalLimit = "removal_limit"

// Removal is the part of an order that takes agents away.
type Removal struct {
	// OverrideLimit says that the order is meant though it exceeds the removal limit. It needs Why,
	// or the reason of the call.
	OverrideLimit bool   `json:",omitempty"`
	Why           string `json:",omitempty"`
}

// overrides returns the guard rails that the order overrides, for the audit trail.
func (r Removal) overrides() []string {
	if r.OverrideLimit {
		return []string{ErrRemovalLimit}
	}
	return nil
}

func (r Removal) checkWhy(ctx context.Context) error {
	switch why := cmp.Or(r.Why, audit.Why(ctx)); {
	case len(r.Why) > maxWhy:
		return fleet.FieldError("body.why", "has %d bytes, at most %d are accepted", len(r.Why), maxWhy)
	case r.OverrideLimit && strings.TrimSpace(why) == "":
		return fleet.FieldError("body.why", "is missing: say why the removal limit is overridden; the audit trail keeps it")
	}
	return nil
}

// removalLimit returns how many agents may be removed within removalWindow. configured is
// admin.removals_per_hour; size is how many agents the fleet has that count.
func removalLimit(configured, size int) int {
	if configured > 0 {
		return configured
	}
	return max(removalAlways, size*removalPercent/100)
}

// countsAsRemoved reports whether an agent that was last seen then counts towards the limit, and
// towards the size of the fleet.
func countsAsRemoved(seen *time.Time, now time.Time) bool {
	return seen != nil && now.Sub(*seen) <= removalCounts
}

// checkRemoved returns an error if an order for n agents, after earlier ones for others, exceeds
// the limit.
func checkRemoved(n, earlier, limit int) error {
	if n == 0 || n+earlier <= limit {
		return nil
	}
	before := ""
	if earlier > 0 {
		before = fmt.Sprintf(", after %d in the last hour", earlier)
	}
	e := fleet.Errorf(fleet.Conflict, "the order would take away %d agents%s, and at most %d may be unenrolled, moved to another policy or migrated within an hour (admin.removals_per_hour of the server's configuration). "+
		"Name fewer, wait or, if all of them are meant, set override_limit and say why (--override-limit --why REASON)", n, before, limit)
	e.Code = ErrRemovalLimit
	return e
}

// checkRemoval returns an error if the order exceeds the removal limit. An order for one agent never
// does, nor counts: machines that are replaced automatically are unenrolled one by one. An agent of
// an earlier order counts once.
func (s *Service) checkRemoval(ctx context.Context, r Removal, ids []string, do step) error {
	if r.OverrideLimit || len(ids) == 1 {
		return nil
	}
	now := s.Now.UTC()
	earlier, err := s.removedSince(ctx, now.Add(-removalWindow))
	if err != nil {
		return err
	}
	more := slices.DeleteFunc(slices.Clone(ids), func(id string) bool { return earlier[id] })
	if len(more)+len(earlier) <= removalLimit(s.RemovalsPerHour, 0) {
		return nil // usually: no agent has to be read
	}
	n, before, size := 0, 0, 0
	err = s.eachVerdict(ctx, more, do, func(v Verdict) {
		if v.Err == nil && countsAsRemoved(v.Agent.Last.At, now) {
			n++
		}
	})
	if err != nil {
		return err
	}
	for some := range slices.Chunk(slices.Sorted(maps.Keys(earlier)), s.pageSize()) {
		agents, err := s.Store.Agents().GetMany(ctx, some)
		if err != nil {
			return err
		}
		for i := range agents {
			if countsAsRemoved(agents[i].Last.At, now) {
				before++
			}
		}
	}
	err = s.Store.Agents().Census(ctx, func(c fleet.Census) {
		if c.Active && countsAsRemoved(c.LastCheckin, now) {
			size++
		}
	})
	if err != nil {
		return err
	}
	return checkRemoved(n, before, removalLimit(s.RemovalsPerHour, size))
}

// removes are the types of the actions that take agents away.
var removes = []agentapi.ActionType{agentapi.ActionUnenroll, agentapi.ActionForceUnenroll, agentapi.ActionPolicyReassign, agentapi.ActionMigrate}

// removalPage bounds one read of removedSince. The removal limit keeps most of the actions small.
const removalPage = 100

// removedSince returns the agents of the orders for several agents since a time that take agents
// away, also of those that are being carried out.
func (s *Service) removedSince(ctx context.Context, since time.Time) (map[string]bool, error) {
	removed := map[string]bool{}
	add := func(a *fleet.Action, ids []string) {
		if slices.Contains(removes, a.Type) && len(ids) > 1 {
			for _, id := range ids {
				removed[id] = true
			}
		}
	}
	orders, _, err := s.Store.AcceptedOrders().List(ctx, 0, 0)
	if err != nil {
		return nil, err
	}
	for i := range orders {
		add(&orders[i].Action, orders[i].AgentIDs)
	}
	for offset := 0; ; offset += removalPage {
		list, err := s.Store.Actions().List(ctx, store.ActionQuery{From: &since, Offset: offset, Limit: removalPage})
		if err != nil {
			return nil, err
		}
		for i := range list {
			add(&list[i], list[i].Agents)
		}
		if len(list) < removalPage {
			return removed, nil
		}
	}
}
