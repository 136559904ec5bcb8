package fleet

import (
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/muster-fleet/muster/server/kql"
)

// StatusRule says which agents have a status if no rule before it has them.
type StatusRule struct {
	Status Status
	When   kql.Filter
}

// StatusRules are those of StatusAt, spelt out in fields. A test proves that both
// say the same of every agent. Agents that no rule has are online.
func StatusRules(timeouts map[string]time.Duration, now time.Time) []StatusRule {
	equals := func(f *kql.Field, v any) kql.Filter { return kql.Equals{Field: f, Value: v} }
	return []StatusRule{
		{StatusUnenrolled, kql.NotOf{Filter: equals(fieldActive, true)}},
		{StatusInactive, silentTooLong(timeouts, now)},
		{StatusUninstalled, equals(fieldAudit, "uninstall")},
		{StatusOrphaned, equals(fieldAudit, "orphaned")},
		{StatusOffline, seenBefore(now.Add(-OfflineAfter))},
		{StatusUpdating, kql.AllOf{kql.Exists{Field: fieldUpgradeStart}, kql.NotOf{Filter: kql.Exists{Field: fieldUpgradedAt}}}},
		{StatusEnrolling, kql.NotOf{Filter: kql.Exists{Field: fieldLastCheckin}}},
		{StatusUnenrolling, kql.Exists{Field: fieldUnenrolling}},
		{StatusError, equals(fieldCheckinStatus, "error")},
		{StatusDegraded, equals(fieldCheckinStatus, "degraded")},
	}
}

// statusFilter is Field.Derive of the status.
func statusFilter(timeouts map[string]time.Duration) func(fits func(string) bool, now time.Time) kql.Filter {
	return func(fits func(string) bool, now time.Time) kql.Filter {
		var f kql.Filter = kql.Nothing{}
		if fits(string(StatusOnline)) {
			f = kql.Everything{}
		}
		for _, rule := range slices.Backward(StatusRules(timeouts, now)) {
			f = firstOf(rule.When, fits(string(rule.Status)), f)
		}
		return f
	}
}

// firstOf is the filter of documents that when has, if fits, and of those of rest
// that when has not.
func firstOf(when kql.Filter, fits bool, rest kql.Filter) kql.Filter {
	switch rest := rest.(type) {
	case kql.Everything:
		if fits {
			return rest
		}
		return kql.NotOf{Filter: when}
	case kql.Nothing:
		if fits {
			return when
		}
		return rest
	case kql.AnyOf:
		if fits {
			return append(kql.AnyOf{when}, rest...)
		}
	case kql.AllOf:
		if !fits {
			return append(kql.AllOf{kql.NotOf{Filter: when}}, rest...)
		}
	}
	if fits {
		return kql.AnyOf{when, rest}
	}
	return kql.AllOf{kql.NotOf{Filter: when}, rest}
}

// seenBefore is of agents whose LastActivity is before a time.
func seenBefore(t time.Time) kql.Filter {
	return kql.AnyOf{
		kql.Compare{Field: fieldLastCheckin, Op: kql.Less, Value: t},
		kql.AllOf{kql.NotOf{Filter: kql.Exists{Field: fieldLastCheckin}}, kql.Compare{Field: fieldEnrolledAt, Op: kql.Less, Value: t}},
	}
}

// silentTooLong is of agents that have been silent for longer than their policy's
// timeout. Nearly all were seen within the shortest of them: that is asked first,
// so that their policy need not be looked up.
func silentTooLong(timeouts map[string]time.Duration, now time.Time) kql.Filter {
	policies := map[time.Duration][]string{}
	for id, d := range timeouts {
		if d > 0 {
			policies[d] = append(policies[d], id)
		}
	}
	if len(policies) == 0 {
		return kql.Nothing{}
	}
	var each kql.AnyOf
	durations := slices.Sorted(maps.Keys(policies))
	for _, d := range durations {
		var of kql.AnyOf
		slices.Sort(policies[d])
		for _, id := range policies[d] {
			of = append(of, kql.Equals{Field: fieldPolicyID, Value: id})
		}
		each = append(each, kql.AllOf{seenBefore(now.Add(-d)), of})
	}
	if len(durations) == 1 {
		return each[0]
	}
	return kql.AllOf{seenBefore(now.Add(-durations[0])), each}
}

// SelectAgents is what a query means to people who list agents, or order
// something of those a list shows: of all agents those the query has, without the
// inactive and the unenrolled unless inactive is set.
//
// A query that asks for one of the two statuses itself, by name or by a wildcard
// that fits it, is not kept from those agents. status:* asks for the unenrolled
// and not for the inactive, as in Kibana. The errors are *kql.Error.
func SelectAgents(query string, inactive bool, timeouts map[string]time.Duration, now time.Time) (kql.Filter, error) {
	schema := AgentSchema(timeouts)
	hide := map[string]bool{string(StatusInactive): !inactive, string(StatusUnenrolled): !inactive}
	status := schema.Fields[0]
	derive := status.Derive
	status.Derive = func(fits func(string) bool, now time.Time) kql.Filter {
		for s := range hide {
			hide[s] = hide[s] && !fits(s)
		}
		return derive(fits, now)
	}
	asked, err := kql.Compile(query, schema, now)
	if err != nil {
		return nil, err
	}
	// Which means all, and so is never derived.
	if n, err := kql.Parse(query); err == nil && asksForAny(n, schema, status) {
		hide[string(StatusUnenrolled)] = false
	}
	shown := derive(func(s string) bool { return !hide[s] }, now)
	if _, all := shown.(kql.Everything); all {
		return asked, nil
	}
	if _, all := asked.(kql.Everything); all {
		return shown, nil
	}
	// In this order: what hides needs no document.
	return kql.AllOf{shown, asked}, nil
}

// asksForAny says whether field:* stands somewhere in a query.
func asksForAny(n kql.Node, schema *kql.Schema, field *kql.Field) bool {
	some := func(nodes []kql.Node) bool {
		return slices.ContainsFunc(nodes, func(n kql.Node) bool { return asksForAny(n, schema, field) })
	}
	switch n := n.(type) {
	case kql.And:
		return some(n)
	case kql.Or:
		return some(n)
	case kql.Not:
		return asksForAny(n.Node, schema, field)
	case kql.Is:
		return n.Field != nil && n.Value.Kind == kql.Pattern && strings.Trim(n.Value.Text, "*") == "" && schema.Field(n.Field.Text) == field
	}
	return false
}
