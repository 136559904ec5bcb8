package action

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/muster-fleet/muster/server/clock"
	"github.com/muster-fleet/muster/server/fleet"
	"github.com/muster-fleet/muster/server/store"
	"github.com/muster-fleet/muster/server/store/audit"
	"github.com/muster-fleet/muster/server/wire/agentapi"
)

// The removal limit bounds how many agents operators unenrol, move to another policy, migrate or
// send to another server by the hosts of their policies within an hour, unless they say that they
// mean it. None of this can be taken back for hosts that have followed it. The exposure budget says
// nothing about them: it is about versions that are not proven yet.
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
	return refuseRemoval(fmt.Sprintf("the order would take away %d agents", n), n, earlier, limit,
		"Name fewer, wait or, if all of them are meant, set override_limit and say why (--override-limit --why REASON)")
}

// checkMoved is checkRemoved for moves that were not counted before for n agents. agents are all
// agents of the policies that are moved.
func checkMoved(moves []fleet.HostsChange, agents map[string]int, n, earlier, limit int) error {
	return refuseRemoval("the change would send "+movedText(moves, agents), n, earlier, limit,
		"Keep the present servers in the list, wait or, if all of them are meant, add override_limit=true and why=REASON to the query of the call")
}

// refuseRemoval returns the error about what takes n agents away, nil if the limit permits it.
func refuseRemoval(what string, n, earlier, limit int, next string) error {
	if n == 0 || n+earlier <= limit {
		return nil
	}
	before := ""
	if earlier > 0 {
		before = fmt.Sprintf(", after %d in the last hour", earlier)
	}
	e := fleet.Errorf(fleet.Conflict, "%s%s, and at most %d may be unenrolled, migrated or moved to another policy or server within an hour (admin.removals_per_hour of the server's configuration). %s", what, before, limit, next)
	e.Code = ErrRemovalLimit
	return e
}

// maxMovedNamed is how many policies an error names: a hosts object may have hundreds.
const maxMovedNamed = 3

// movedText names the agents that are moved, and where to.
func movedText(moves []fleet.HostsChange, agents map[string]int) string {
	var texts []string
	more, policies := 0, 0
	for _, m := range moves {
		n := agents[m.PolicyID]
		switch {
		case n == 0:
		case len(texts) < maxMovedNamed:
			texts = append(texts, m.Text(n))
		default:
			more, policies = more+n, policies+1
		}
	}
	if more > 0 {
		texts = append(texts, fmt.Sprintf("%d agents of %d more policies", more, policies))
	}
	return strings.Join(texts, "; ")
}

// Removals is the removal limit as other packages use it.
type Removals struct {
	Store store.Store
	// PerHour is admin.removals_per_hour; 0: see removalLimit.
	PerHour int
	Now     clock.Clock
}

// CheckMoved returns how many agents each policy has that is sent to other servers, without those
// that nobody misses, and an error if that exceeds the removal limit. Policies whose agents were
// sent elsewhere within the hour count once, so that a mistake can be corrected.
func (r Removals) CheckMoved(ctx context.Context, moves []fleet.HostsChange, overrideLimit bool) (map[string]int, error) {
	if overrideLimit && strings.TrimSpace(audit.Why(ctx)) == "" {
		return nil, fleet.FieldError("query.why", "is missing: say why the removal limit is overridden; the audit trail keeps it")
	}
	now := r.Now.UTC()
	earlier, err := r.removedSince(ctx, now.Add(-removalWindow))
	if err != nil {
		return nil, err
	}
	agents := map[string]int{}
	for _, m := range moves {
		agents[m.PolicyID] = 0
	}
	n, size := 0, 0
	err = r.Store.Agents().Census(ctx, func(c fleet.Census) {
		if !c.Active || !countsAsRemoved(c.LastCheckin, now) {
			return
		}
		size++
		if _, moved := agents[c.PolicyID]; !moved {
			return
		}
		agents[c.PolicyID]++
		if !earlier.agents[c.ID] && !earlier.policies[c.PolicyID] {
			n++
		}
	})
	if err != nil || overrideLimit {
		return agents, err
	}
	before, err := r.before(ctx, earlier, now)
	if err != nil {
		return nil, err
	}
	return agents, checkMoved(moves, agents, n, before, removalLimit(r.PerHour, size))
}

// checkRemoval returns an error if the order exceeds the removal limit.
func (s *Service) checkRemoval(ctx context.Context, r Removal, ids []string, do step) error {
	checks, err := s.removalChecks(ctx, r, ids)
	if err != nil {
		return err
	}
	return s.judgeAll(ctx, ids, do, checks, nil)
}

// removalChecks returns what the removal limit checks of an order. An order for one agent never
// exceeds it, nor counts: machines that are replaced automatically are unenrolled one by one. An agent
// of an earlier order counts once.
func (s *Service) removalChecks(ctx context.Context, r Removal, ids []string) ([]Check, error) {
	if r.OverrideLimit || len(ids) == 1 {
		return nil, nil
	}
	now := s.Now.UTC()
	limit := Removals{Store: s.Store, PerHour: s.RemovalsPerHour, Now: s.Now}
	earlier, err := limit.removedSince(ctx, now.Add(-removalWindow))
	if err != nil {
		return nil, err
	}
	more := slices.DeleteFunc(slices.Clone(ids), func(id string) bool { return earlier.agents[id] })
	if len(earlier.policies) == 0 && len(more)+len(earlier.agents) <= removalLimit(s.RemovalsPerHour, 0) {
		return nil, nil // usually: no agent has to be read
	}
	n := 0
	see := func(v *Verdict) {
		if !earlier.agents[v.Agent.ID] && !earlier.policies[v.Agent.PolicyID] && countsAsRemoved(v.Agent.Last.At, now) {
			n++
		}
	}
	refuses := func(ctx context.Context) error {
		before, err := limit.before(ctx, earlier, now)
		if err != nil {
			return err
		}
		size := 0
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
	return []Check{{see, refuses}}, nil
}

// removes are the types of the actions that take agents away.
var removes = []agentapi.ActionType{agentapi.ActionUnenroll, agentapi.ActionForceUnenroll, agentapi.ActionPolicyReassign, agentapi.ActionMigrate}

// removalPage bounds one read of removedSince. The removal limit keeps most of the actions small.
const removalPage = 100

// removed is what was taken away.
type removed struct {
	agents   map[string]bool // by orders
	policies map[string]bool // whose agents were sent to other servers
}

// before returns how many agents were taken away, without those that nobody misses.
func (r Removals) before(ctx context.Context, earlier removed, now time.Time) (n int, err error) {
	for some := range slices.Chunk(slices.Sorted(maps.Keys(earlier.agents)), removalPage) {
		agents, err := r.Store.Agents().GetMany(ctx, some)
		if err != nil {
			return 0, err
		}
		for i := range agents {
			if countsAsRemoved(agents[i].Last.At, now) {
				n++
			}
		}
	}
	if len(earlier.policies) == 0 {
		return n, nil
	}
	err = r.Store.Agents().Census(ctx, func(c fleet.Census) {
		if c.Active && earlier.policies[c.PolicyID] && !earlier.agents[c.ID] && countsAsRemoved(c.LastCheckin, now) {
			n++
		}
	})
	return n, err
}

// removedSince returns the agents of the orders for several agents since a time that take agents
// away, also of those that are being carried out, and the policies whose agents were sent to other
// servers since then.
func (r Removals) removedSince(ctx context.Context, since time.Time) (removed, error) {
	out := removed{map[string]bool{}, map[string]bool{}}
	add := func(a *fleet.Action, ids []string) {
		if slices.Contains(removes, a.Type) && len(ids) > 1 {
			for _, id := range ids {
				out.agents[id] = true
			}
		}
	}
	orders, _, err := r.Store.AcceptedOrders().List(ctx, 0, 0)
	if err != nil {
		return out, err
	}
	for i := range orders {
		add(&orders[i].Action, orders[i].AgentIDs)
	}
	for offset := 0; ; offset += removalPage {
		list, err := r.Store.Actions().List(ctx, store.ActionQuery{From: &since, Offset: offset, Limit: removalPage})
		if err != nil {
			return out, err
		}
		for i := range list {
			add(&list[i], list[i].Agents)
		}
		if len(list) < removalPage {
			break
		}
	}
	for offset := 0; ; offset += removalPage {
		list, _, err := r.Store.Audit().List(ctx, store.AuditQuery{Verb: fleet.VerbHostsMoved, Since: &since, Offset: offset, Limit: removalPage})
		if err != nil {
			return out, err
		}
		for i := range list {
			out.policies[list[i].Subject] = true
		}
		if len(list) < removalPage {
			return out, nil
		}
	}
}
