package fleet

import (
	"time"

	"github.com/muster-fleet/muster/server/kql"
)

// Rule selects the agents that have a value of a derived field, provided that no earlier rule
// selects them.
type Rule[T any] struct {
	Value T
	When  kql.Filter
}

// Classes are rules in the form in which stores count agents: under the first filter that
// selects them, or after the last one under none.
type Classes[T comparable] struct {
	Filters []kql.Filter
	values  []T // of each filter, and of the agents that none selects
}

// ClassesOf returns the classes of rules. Agents that no rule selects have the value rest.
func ClassesOf[T comparable](rules []Rule[T], rest T) Classes[T] {
	var c Classes[T]
	for _, r := range rules {
		c.Filters, c.values = append(c.Filters, r.When), append(c.values, r.Value)
	}
	c.values = append(c.values, rest)
	return c
}

// ByValue adds the counts of the classes with the same value. A value without agents is absent.
func (c Classes[T]) ByValue(counts []int) map[T]int {
	out := map[T]int{}
	for i, n := range counts {
		if n > 0 {
			out[c.values[i]] += n
		}
	}
	return out
}

// HealthClasses are the classes of agents by their health at now.
func HealthClasses(timeouts map[string]time.Duration, now time.Time) Classes[Health] {
	return ClassesOf(HealthRules(timeouts, now), HealthHealthy)
}

// ProgressClasses are the classes of agents by the progress of their last upgrade at now.
func ProgressClasses(now time.Time) Classes[ProgressState] {
	return ClassesOf(ProgressRules(now), ProgressNone)
}

// HealthRules expresses the rules of [StatusFacts.HealthAt] as filters, in order. An agent
// that no rule selects is healthy.
func HealthRules(timeouts map[string]time.Duration, now time.Time) []Rule[Health] {
	equals := func(f *kql.Field, v any) kql.Filter { return kql.Equals{Field: f, Value: v} }
	return []Rule[Health]{
		{HealthUnenrolled, kql.NotOf{Filter: equals(fieldActive, true)}},
		{HealthUninstalled, goneFilter()},
		{HealthInactive, silentTooLong(timeouts, now)},
		{HealthOffline, seenBefore(now.Add(-OfflineAfter))},
		{HealthFailed, equals(fieldCheckinStatus, "error")},
		{HealthEnrolling, kql.AnyOf{kql.NotOf{Filter: kql.Exists{Field: fieldPolicyRev}}, kql.NotOf{Filter: kql.Exists{Field: fieldLastCheckin}}}},
		{HealthDegraded, equals(fieldCheckinStatus, "degraded")},
	}
}
