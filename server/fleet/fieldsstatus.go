package fleet

import (
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/muster-fleet/muster/server/kql"
)

// StatusRule selects the agents that have a status, provided that no earlier rule
// selects them.
type StatusRule struct {
	Status Status
	When   kql.Filter
}

// StatusRules expresses the rules of [StatusFacts.StatusAt] as filters, in order. An
// agent that no rule selects is online. A property test checks that both agree.
func StatusRules(timeouts map[string]time.Duration, now time.Time) []StatusRule {
	equals := func(f *kql.Field, v any) kql.Filter { return kql.Equals{Field: f, Value: v} }
	return []StatusRule{
		{StatusUnenrolled, kql.NotOf{Filter: equals(fieldActive, true)}},
		{StatusInactive, silentTooLong(timeouts, now)},
		{StatusUninstalled, equals(fieldAudit, "uninstall")},
		{StatusOrphaned, equals(fieldAudit, "orphaned")},
		{StatusOffline, seenBefore(now.Add(-OfflineAfter))},
		{StatusUpdating, kql.AnyOf{
			kql.NotOf{Filter: kql.Exists{Field: fieldPolicyRev}},
			kql.AllOf{kql.Compare{Field: fieldUpgradeStart, Op: kql.LessEqual, Value: now}, kql.NotOf{Filter: kql.Exists{Field: fieldUpgradedAt}}},
		}},
		{StatusEnrolling, kql.NotOf{Filter: kql.Exists{Field: fieldLastCheckin}}},
		{StatusUnenrolling, kql.Exists{Field: fieldUnenrolling}},
		{StatusError, equals(fieldCheckinStatus, "error")},
		{StatusDegraded, equals(fieldCheckinStatus, "degraded")},
	}
}

// statusFilter returns the Derive function of the status field.
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

// firstOf returns a filter that matches the documents of when if fits is set, and those
// documents of rest that when does not match.
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

// seenBefore selects the agents whose LastActivity is before t.
func seenBefore(t time.Time) kql.Filter {
	return kql.AnyOf{
		kql.Compare{Field: fieldLastCheckin, Op: kql.Less, Value: t},
		kql.AllOf{kql.NotOf{Filter: kql.Exists{Field: fieldLastCheckin}}, kql.Compare{Field: fieldEnrolledAt, Op: kql.Less, Value: t}},
	}
}

// silentTooLong selects the agents that have been silent for longer than their policy's
// timeout. It checks the shortest timeout first: nearly all agents were seen within it,
// so most need no look-up of their policy.
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

// SelectAgents compiles a query as operators mean it when they list agents or act on a
// list: without inactive and unenrolled agents, unless inactive is set.
//
// A query that names one of the two statuses, directly or by a wildcard, includes the
// agents that have it. status:* includes the unenrolled agents and not the inactive
// ones, as in Kibana. The errors are *kql.Error.
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
	// status:* matches everything, so Compile never calls Derive for it.
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
	// The status filter comes first: it needs no document.
	return kql.AllOf{shown, asked}, nil
}

// OfPolicies selects the agents of any of the policies.
func OfPolicies(ids []string) kql.Filter {
	of := make(kql.AnyOf, len(ids))
	for i, id := range ids {
		of[i] = kql.Equals{Field: fieldPolicyID, Value: id}
	}
	return of
}

// asksForAny reports whether field:* occurs in a query.
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
